"""Erased rows are synced while the writer goes on, and nobody says that they are erased before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dynfrsdb
from dynfrsdb_storage.erasing import Erasing
from dynfrsdb_storage.rows import RowWriter

PATIENCE = 60


class Disk:
    """A disk that takes as long as one likes."""

    def __init__(self) -> None:
        self.asked, self.may_end = threading.Event(), threading.Event()

    def sync(self) -> None:
        self.asked.set()
        assert self.may_end.wait(PATIENCE)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.may_end.set()


def test_what_is_on_the_way_has_begun_and_is_done_when_the_disk_has_it(disk: Disk) -> None:
    erasing = Erasing()
    erasing.sync([b"a", b"b"], disk.sync)
    assert b"a" in erasing.begun()
    assert b"c" not in erasing.begun()

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(erasing.wait)
        assert disk.asked.wait(PATIENCE)
        assert not waiting.done()
        assert b"a" not in erasing.done()
        disk.may_end.set()
        waiting.result(PATIENCE)
    assert b"a" in erasing.done()

    erasing.forget([b"a"])
    assert (b"a" in erasing.begun(), b"b" in erasing.done()) == (False, True)


def test_rows_that_are_removed_soon_after_each_other_share_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynfrsdb_storage.erasing.DELAY", PATIENCE)
    synced: list[bool] = []
    erasing = Erasing()
    for key in (b"a", b"b", b"c"):
        erasing.sync([key], lambda: synced.append(True))

    erasing.wait()

    assert synced == [True]
    assert erasing.done() == {b"a", b"b", b"c"}


def test_rows_that_come_while_the_disk_is_busy_get_a_sync_of_their_own(disk: Disk) -> None:
    synced: list[bool] = []
    erasing = Erasing()
    erasing.sync([b"a"], disk.sync)
    assert disk.asked.wait(PATIENCE)
    erasing.sync([b"b"], lambda: synced.append(True))
    assert not synced

    disk.may_end.set()
    erasing.wait()

    assert synced == [True]
    assert erasing.done() == {b"a", b"b"}


def test_a_sync_begins_by_itself(disk: Disk) -> None:
    erasing = Erasing()

    erasing.sync([b"a"], disk.sync)

    assert disk.asked.wait(PATIENCE)


def test_a_disk_error_leaves_them_for_later() -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    erasing = Erasing()
    erasing.sync([b"a"], fail)
    erasing.wait()
    assert b"a" not in erasing.done()
    assert b"a" not in erasing.begun()

    erasing.sync([b"a"], lambda: None)
    erasing.wait()
    assert b"a" in erasing.done()


def test_where_no_thread_can_start_it_is_synced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    synced: list[bool] = []
    erasing = Erasing()
    erasing.sync([b"a"], lambda: synced.append(True))

    assert synced == [True]
    assert b"a" in erasing.done()


def test_a_removal_does_not_wait_for_the_disk_and_the_ledger_does(
    path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowWriter, "sync", lambda writer: disk.sync())
    with dynfrsdb.open(path, "w", settle=None) as db:
        db.remove([1])
        assert disk.asked.wait(PATIENCE)
        with db.snapshot() as seen:
            assert not seen._snapshot.rows.words[1].any()

        with ThreadPoolExecutor() as pool:
            status = pool.submit(db.erasure_status)
            with pytest.raises(TimeoutError):
                status.result(0.2)
            disk.may_end.set()
            (erasure,) = status.result(PATIENCE)
        assert erasure.stage == "rows erased"
