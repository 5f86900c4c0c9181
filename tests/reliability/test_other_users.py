"""Other users: whoever only reads needs permission to read, and to leave its number in lock.mdb."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import dynfrsdb
from dynfrsdb.errors import ReadOnly
from tests.reliability.workload import (
    EVERYBODY,
    answer,
    in_child,
    living,
)

NOBODY = 65534


def as_nobody(work: Callable[[], object]) -> int:
    """Run `work` in a child that may do nothing but what everybody may."""

    def unprivileged() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        work()

    return in_child(unprivileged)


def open_to_everybody(path: Path) -> Path:
    """Let everybody read a store, and write nothing but lock.mdb."""
    path.parent.chmod(0o755)
    for entry in [path, *path.rglob("*")]:
        entry.chmod(0o755 if entry.is_dir() else 0o666 if entry.name == "lock.mdb" else 0o644)
    return path


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_reader_needs_write_permission_to_nothing_but_lock_mdb(path: Path) -> None:
    with dynfrsdb.open(open_to_everybody(path), "w", settle=None) as db:
        db.remove(range(0, 40, 2))
        expected = answer(db)

        def read() -> None:
            for file in ("CURRENT", "LOCK", "gen-0001/data.mdb", "gen-0001/rows.bin", "gen-0001/LEASE"):
                assert not os.access(path / file, os.W_OK)
            with dynfrsdb.open(path) as reader:
                assert answer(reader) == expected
                assert living(reader) == EVERYBODY - set(range(0, 40, 2))
                assert reader.check().problems == ()
                with pytest.raises(ReadOnly), dynfrsdb.open(path, "w") as writer:
                    writer.remove([1])
                assert answer(reader) == expected

        assert as_nobody(read) == 0
        assert 1 in db
        db.remove([1])
        assert db.check().problems == ()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_reader_that_may_not_write_lock_mdb_is_told_so(path: Path) -> None:
    (open_to_everybody(path) / "gen-0001/lock.mdb").chmod(0o644)

    def read() -> None:
        with pytest.raises(ReadOnly, match=r"write permission to lock\.mdb"):
            dynfrsdb.open(path)

    assert as_nobody(read) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_store_is_private_to_begin_with(path: Path) -> None:
    path.parent.chmod(0o755)

    def read() -> None:
        with pytest.raises(ReadOnly, match="may not be read by this user"):
            dynfrsdb.open(path)

    assert as_nobody(read) == 0
