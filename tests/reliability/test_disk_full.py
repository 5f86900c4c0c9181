"""The disk is full: a clear error, nothing changed, and the store goes on when there is room again.

A file system of 96 MB is mounted and filled to the last byte; where that may not be done, a preloaded library says
that the disk is full (tests/full_disk.py). Whatever needs new room is refused; removals go through,
because some 64 MB behind data.mdb were allocated before the disk filled up.

    full while                        what is refused                    what still works
    rows.bin grows (a reservation)    the addition                       queries, removals, small additions
    data.mdb grows (a large change)   the change                         queries, removals
    the map grows                     the change, run again from start   queries, removals
    a store is created                the creation, leaving nothing
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import dynfrsdb
from dynfrsdb_storage import failpoints, layout
from tests.full_disk import can_mount, fill_up, make_room, run_injected, small_disk
from tests.reliability.workload import (
    PEOPLE,
    add,
    answer,
    fresh_answer,
    label,
    living,
    new_store,
    subject,
    values,
    warm,
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    warm()
    with small_disk(tmp_path) as made:
        yield made


def many(count: int, first: int = 10_000) -> range:
    """People who are not there yet."""
    return range(first, first + count)


def remove_with_much_else(db: dynfrsdb.Database, id: int) -> None:
    """A transaction that adds rows, removes one, and writes 100 MB of records, more than the disk can take."""
    with db.transaction() as txn:
        add(txn, many(200))
        txn.remove([id])
        assert txn._session is not None
        txn._session.put_many("queue", [(layout.sequence_key(i), bytes(4000)) for i in range(25_000)])


class Facts:
    """What must be the same after a change that was refused."""

    def __init__(self, db: dynfrsdb.Database) -> None:
        self.live, self.answer, self.digest, self.changes = living(db), answer(db), db.digest(), len(db.ledger())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facts) and vars(self) == vars(other)


def test_removals_and_queries_go_through_on_a_full_disk(disk: Path, store_dir: Path) -> None:
    with dynfrsdb.open(new_store(disk / "people.forest"), "w") as db:
        db.remove([0])
        fill_up(disk)

        for id in range(1, 60):
            db.remove([id])
        db.forget(subject(100))
        db.settle()

        gone = {*range(60), *(id for id in range(PEOPLE) if subject(id) == subject(100))}
        assert living(db) == set(range(PEOPLE)) - gone
        assert not db.check().problems
        with dynfrsdb.open(disk / "people.forest") as reader:
            assert answer(reader) == fresh_answer(store_dir / "fresh.forest", set(range(PEOPLE)) - gone)


def test_a_process_that_opens_the_store_on_a_full_disk_can_remove(disk: Path) -> None:
    path = new_store(disk / "people.forest")
    with dynfrsdb.open(path, "w") as db:
        db.remove([0])
    fill_up(disk)

    with dynfrsdb.open(path, "w") as db:
        db.remove([1, 2, 3])

        assert living(db) == set(range(4, PEOPLE))
        assert not db.check().problems


def test_space_is_kept_again_when_there_is_room_again(disk: Path) -> None:
    """Whoever opened the store on a full disk, and lives to see it full once more, can still remove."""
    path = new_store(disk / "people.forest")
    fill_up(disk)
    with dynfrsdb.open(path, "w", settle=None) as db:
        with suppress(dynfrsdb.StoreFull):  # nobody had kept any space yet
            db.remove([0])
        make_room(disk)
        db.remove([1])
        fill_up(disk)

        for id in range(2, 30):
            db.remove([id])

        assert living(db) | {0} == set(range(PEOPLE)) - set(range(1, 30)) | {0}
        assert not db.check().problems


def test_an_addition_that_finds_no_room_for_rows_changes_nothing(disk: Path) -> None:
    with dynfrsdb.open(new_store(disk / "people.forest"), "w", settle=None) as db:
        add(db, [5000])
        before = Facts(db)
        fill_up(disk)

        with pytest.raises(dynfrsdb.StoreFull, match=r"nothing was changed\. Make room and try again"):
            add(db, many(3000))
        assert Facts(db) == before
        assert not db.check().problems

        make_room(disk)
        add(db, many(3000))
        assert living(db) == before.live | set(many(3000))
        assert not db.check().problems


def test_a_change_that_finds_no_room_for_records_changes_nothing(disk: Path) -> None:
    with dynfrsdb.open(new_store(disk / "people.forest"), "w", settle=None) as db:
        add(db, [5000])
        before = Facts(db)
        fill_up(disk)

        with pytest.raises(dynfrsdb.StoreFull, match=r"no room left for .*; nothing was changed\. Make room"):
            remove_with_much_else(db, 7)
        assert Facts(db) == before
        assert not db.check().problems

        db.remove([7])
        make_room(disk)
        add(db, many(200))
        assert living(db) == (before.live | set(many(200))) - {7}
        assert not db.check().problems


def test_a_disk_that_fills_up_while_the_map_grows_changes_nothing(disk: Path) -> None:
    with dynfrsdb.open(new_store(disk / "people.forest"), "w", settle=None) as db:
        add(db, [5000])
        before = Facts(db)
        db._store.current().env.set_mapsize(2 << 20)
        grown = []

        def hook(name: str) -> None:
            if name == "map-grow":
                grown.append(name)
                if len(grown) == 1:
                    fill_up(disk)

        failpoints.hook = hook
        try:
            with pytest.raises(dynfrsdb.StoreFull, match="nothing was changed"):
                remove_with_much_else(db, 3)
        finally:
            failpoints.hook = None
        assert grown
        assert Facts(db) == before
        assert not db.check().problems

        db.remove([3])
        assert living(db) == before.live - {3}
        assert not db.check().problems


def test_a_reader_may_come_to_a_full_disk(disk: Path) -> None:
    path = new_store(disk / "people.forest")
    with dynfrsdb.open(path) as reader:
        before = Facts(reader)
    fill_up(disk)

    with dynfrsdb.open(path) as reader:
        assert Facts(reader) == before


def test_creating_on_a_full_disk_leaves_nothing(disk: Path) -> None:
    fill_up(disk)

    with pytest.raises(dynfrsdb.StoreFull, match="Make room and try again"):
        dynfrsdb.create(disk / "people.forest", values(range(50)), [label(id) for id in range(50)])

    assert [entry.name for entry in disk.iterdir()] == ["filler"]
    make_room(disk)
    with dynfrsdb.open(new_store(disk / "people.forest")) as db:
        assert db.check()


def test_an_injected_full_disk_is_met_in_the_same_way(store_dir: Path) -> None:
    """All of the above where nothing can be mounted, elsewhere a part of it."""
    chosen = "no_room_for or go_through" if can_mount() else "not injected"

    said = run_injected(Path(__file__), chosen, store_dir)

    assert re.search(r"^\d+ passed", said, re.MULTILINE), said
    assert not re.search("failed|error|skipped", said), said
