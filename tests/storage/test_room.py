"""Commits write in rows: a store keeps free pages for that, and not too many."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from dynfrsdb_storage import Store, layout, room, space
from dynfrsdb_storage.errors import CorruptStore
from dynfrsdb_storage.freelist import FreeList, FreeListReader
from tests.storage.people import living, new_store, problems, remove

NODES, CHANGED = 1_200, 40
"""Nodes of a store, and those that a commit writes."""
A_WHILE = 60
"""Commits after which a store has the room that it will have."""


@contextmanager
def forest(path: Path) -> Iterator[Store]:
    """A store of some hundred pages of nodes, open for writing."""
    with Store.open(new_store(path), writable=True) as store:
        with store.write() as session:
            session.put_many("nodes", ((layout.node_key(0, 1024 + i), bytes(700)) for i in range(NODES)))
            session.commit()
        yield store


def write_here_and_there(store: Store, draw: random.Random) -> None:
    """A commit that changes nodes all over the file."""
    with store.write() as session:
        chosen = draw.sample(range(NODES), CHANGED)
        session.put_many("nodes", ((layout.node_key(0, 1024 + i), draw.randbytes(700)) for i in chosen))
        session.commit()


def free_list(store: Store) -> tuple[FreeList, int]:
    """The list of free pages, read anew, and how many pages the file has."""
    with store.snapshot() as snapshot:
        known = snapshot._known
        return FreeListReader(snapshot.generation._guard).read(known, trusting=False), known.last_page + 1


def in_use(store: Store) -> set[int]:
    """All pages that are not free."""
    free, pages = free_list(store)
    listed = np.frombuffer(b"".join(record.numbers for record in free.records), "<u8")
    return set(range(pages)) - set(listed.tolist())


def rows_of_commits(store: Store, commits: int = 30) -> tuple[int, int]:
    """How many pages some commits write, and in how many rows."""
    draw, pages, rows = random.Random(2), 0, 0
    for _ in range(commits):
        before = in_use(store)
        write_here_and_there(store, draw)
        written = in_use(store) - before
        pages += len(written)
        rows += sum(number - 1 not in written for number in written)
    return pages, rows


def test_who_commits_again_and_again_writes_in_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for patience in (room.PATIENCE, 10_000):
        monkeypatch.setattr(room, "PATIENCE", patience)
        with forest(tmp_path / f"{patience}.forest") as store:
            draw = random.Random(1)
            for _ in range(A_WHILE):
                write_here_and_there(store, draw)
            found[patience] = rows_of_commits(store)

    (pages, rows), (pages_alone, rows_alone) = found.values()
    assert pages > 1_000
    assert pages / rows > 2
    assert pages_alone / rows_alone < 1.2


def test_room_is_bounded_and_the_file_stops_growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with forest(tmp_path / "people.forest") as store:
        draw = random.Random(1)
        sizes = []
        for _ in range(8):
            for _ in range(A_WHILE):
                write_here_and_there(store, draw)
            free, pages = free_list(store)
            sizes.append(pages)

        used = pages - free.pages
        assert room.PER_PAGE * used * 0.7 < free.pages < room.PER_PAGE * used * 1.8
        assert sizes[-1] <= sizes[5] * 1.01

    monkeypatch.setattr(room, "MOST", 100)
    with forest(tmp_path / "narrow.forest") as store:
        for _ in range(A_WHILE):
            write_here_and_there(store, random.Random(1))
        assert free_list(store)[0].pages < 250


def test_a_few_commits_do_not_make_a_store_grow(tmp_path: Path) -> None:
    with forest(tmp_path / "people.forest") as store:
        before = free_list(store)[1]
        draw = random.Random(1)
        for _ in range(room.PATIENCE - 2):
            write_here_and_there(store, draw)

        assert free_list(store)[1] < before * 1.5


def test_a_disk_without_room_leaves_a_store_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that are promised to LMDB must have their blocks, or a later removal fails where it went through before."""
    monkeypatch.setattr(space, "keep_allocated", lambda *_: False)
    with forest(tmp_path / "people.forest") as store:
        draw = random.Random(1)
        for _ in range(A_WHILE):
            write_here_and_there(store, draw)
        free, pages = free_list(store)

        assert free.pages < (pages - free.pages) / 2


def test_an_old_reader_does_not_make_room_grow_for_ever(tmp_path: Path) -> None:
    """What became free after it began cannot be used; that must not be taken for a lack of room each time."""
    with forest(tmp_path / "people.forest") as store, store.snapshot():
        draw = random.Random(1)
        for _ in range(A_WHILE):
            write_here_and_there(store, draw)
        free, pages = free_list(store)
        held_back = A_WHILE * 2 * CHANGED

        assert free.pages < held_back + 2 * room.PER_PAGE * (pages - free.pages)


def test_nothing_is_lost_or_comes_back_when_room_is_made_and_put_in_order(tmp_path: Path) -> None:
    with Store.open(new_store(tmp_path / "people.forest", people=400), writable=True) as store:
        for i in range(0, 300, 3):
            remove(store, [i])

        assert living(store) == set(range(400)) - set(range(0, 300, 3))
        assert not problems(store)
    with Store.open(tmp_path / "people.forest", writable=False) as store:
        assert not problems(store)
        with store.snapshot() as snapshot:
            assert snapshot.get("meta", [b"room"]) == [None]


def test_a_list_that_is_read_from_commit_to_commit_is_what_is_on_disk(tmp_path: Path) -> None:
    with forest(tmp_path / "people.forest") as store:
        draw = random.Random(1)
        for _ in range(A_WHILE):
            write_here_and_there(store, draw)
            with store.snapshot() as snapshot:
                followed = snapshot.generation._free_list.read(snapshot._known, trusting=True)
            anew, _ = free_list(store)

            assert followed == anew
        assert max(record.pages for record in anew.records) > 254  # some of it in values with pages of their own


def test_a_record_that_lists_more_pages_than_it_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.forest"
    with forest(path) as store:
        write_here_and_there(store, random.Random(1))
    with Store.open(path, writable=True) as store:
        with store.snapshot() as snapshot:
            known = snapshot._known
            page = snapshot.generation._guard.page(known.free_root, known.last_page)
        free, _ = free_list(store)
        record = max(free.records, key=lambda record: record.pages)
        at = page.find(record.pages.to_bytes(8, "little") + record.numbers[:8])
        assert at > 0
        with open(path / "gen-0001/data.mdb", "r+b", buffering=0) as file:
            file.seek(known.free_root * layout.PAGE_BYTES + at)
            file.write((record.pages + 5000).to_bytes(8, "little"))
        (path / "LOCK").write_bytes(b"")  # so that no checksum was noted

        with pytest.raises(CorruptStore, match=r"the list of free pages .* has lost free pages"):
            remove(store, [3])
