"""Pages are looked at for every snapshot, however old, in handles that write as in those that read."""

import faulthandler
import itertools
import os
from pathlib import Path

import pytest

from dynfrsdb_storage import Snapshot, Store, guard, layout, looked
from dynfrsdb_storage.errors import CorruptStore
from tests.storage.people import add, in_child, living, new_store, remove

BRANCH, LEAF = 1, 2
PATIENCE = 60
"""Seconds after which what should have ended counts as hung."""
LONG = bytes(3 * layout.PAGE_BYTES - layout.PAGE_HEADER - layout.CHECKSUM_BYTES)
"""A value that fills three pages of its own."""


def root_of(snapshot: Snapshot, database: str) -> int:
    """The first page of a database, which is the only one of a small one."""
    tree = snapshot.generation._guard.tree(snapshot._known, database)
    assert tree is not None
    assert tree.depth == 1
    return tree.root


def lose_last_record(store: Store, page: int) -> None:
    """Let the header of a leaf say that it has one record less."""
    with open(store.path / "gen-0001/data.mdb", "r+b", buffering=0) as file:
        at = page * layout.PAGE_BYTES + 12
        lower = int.from_bytes(os.pread(file.fileno(), 2, at), "little")
        os.pwrite(file.fileno(), (lower - 2).to_bytes(2, "little"), at)


@pytest.mark.parametrize("writable", [False, True])
def test_a_page_that_lost_a_record_is_noticed_by_any_handle(tmp_path: Path, writable: bool) -> None:
    with Store.open(new_store(tmp_path / "people.forest"), writable) as store, store.snapshot() as snapshot:
        lose_last_record(store, root_of(snapshot, "samples"))

        with pytest.raises(CorruptStore, match=r"'samples' in .* is damaged \(page \d+ has lost records\)"):
            list(snapshot.scan("samples"))
        with pytest.raises(CorruptStore, match="has lost records"):
            snapshot.get("samples", [layout.id_key(19)])


def test_a_page_that_is_damaged_while_a_reader_lives_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may commit for months, and pages are read from the disk again."""
    with Store.open(new_store(tmp_path / "people.forest"), writable=False) as store:
        assert living(store) == set(range(20))
        with store.snapshot() as snapshot:
            lose_last_record(store, root_of(snapshot, "samples"))

        monkeypatch.setattr(looked, "TRUSTED", 0.0)
        with pytest.raises(CorruptStore, match="has lost records"):
            living(store)


def test_a_page_of_an_old_snapshot_is_still_looked_at(tmp_path: Path) -> None:
    """LMDB's meta pages know the last two commits only."""
    with Store.open(new_store(tmp_path / "people.forest"), writable=True) as store, store.snapshot() as old:
        for i in range(100, 105):
            add(store, [i])
        lose_last_record(store, root_of(old, "samples"))

        with pytest.raises(CorruptStore, match="has lost records"):
            list(old.scan("samples"))
        assert living(store) == {*range(20), *range(100, 105)}


def test_the_free_list_is_noted_by_each_commit_and_held_against_it(tmp_path: Path) -> None:
    path = new_store(tmp_path / "people.forest", people=2000)
    for i in range(30):
        with Store.open(path, writable=True) as store:
            remove(store, [i])

    with Store.open(path, writable=True) as store, store.snapshot() as snapshot:
        page = snapshot._known.free_root
        with open(path / "gen-0001/data.mdb", "r+b", buffering=0) as file:
            at = (page + 1) * layout.PAGE_BYTES - 8
            before = os.pread(file.fileno(), 1, at)
            os.pwrite(file.fileno(), bytes([before[0] ^ 1]), at)
            with pytest.raises(CorruptStore, match="the list of free pages"):
                remove(store, [100])
            os.pwrite(file.fileno(), before, at)
        remove(store, [100])


def test_a_long_free_list_is_sound_whatever_the_bytes_of_its_numbers(tmp_path: Path) -> None:
    """Its keys are numbers, lowest byte first: 256 comes behind 255."""
    path = new_store(tmp_path / "people.forest", people=2000)
    with Store.open(path, writable=False) as reader, reader.snapshot():  # which lets the list grow
        with Store.open(path, writable=True) as store:
            for i in range(300):
                remove(store, [i])
        with Store.open(path, writable=True) as store:
            with store.snapshot() as snapshot:
                assert read_kind(path, snapshot._known.free_root) == BRANCH
                assert snapshot.transaction > 256
            remove(store, [300])
            assert 300 not in living(store)


def test_a_free_list_that_leads_back_to_itself_comes_to_an_end(tmp_path: Path) -> None:
    path = new_store(tmp_path / "people.forest", people=2000)
    with Store.open(path, writable=False) as reader, reader.snapshot():  # which lets the list grow
        with Store.open(path, writable=True) as store:
            for i in range(120):
                remove(store, [i])
        with reader.snapshot() as snapshot:
            root = snapshot._known.free_root
    assert read_kind(path, root) == BRANCH
    with open(path / "gen-0001/data.mdb", "r+b", buffering=0) as file:
        at = root * layout.PAGE_BYTES
        first = int.from_bytes(os.pread(file.fileno(), 2, at + layout.PAGE_HEADER), "little")
        os.pwrite(file.fileno(), root.to_bytes(6, "little"), at + first)

    def write() -> None:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        with Store.open(path, writable=True) as store:
            with pytest.raises(CorruptStore, match=rf"the list of free pages.* \(page {root} has two places\)"):
                remove(store, [200])
            assert 200 in living(store)

    assert in_child(write) == 0


def test_pages_that_come_from_the_disk_are_asked_for_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = new_store(tmp_path / "people.forest", people=5000), set[int]()
    monkeypatch.setattr(guard, "_blocks_read", itertools.count().__next__)
    monkeypatch.setattr(os, "posix_fadvise", lambda _, at, size, advice: asked.add(at // layout.PAGE_BYTES))
    with Store.open(path, writable=False) as store, store.snapshot() as snapshot:
        found = snapshot.get("samples", [layout.id_key(id) for id in range(0, 5000, 50)])

        assert None not in found
        leaves = [page for page in asked if read_kind(path, page) == LEAF]
        tree = snapshot.generation._guard.tree(snapshot._known, "samples")
        assert tree is not None
        assert 0 < len(leaves) <= tree.leaves
        assert {read_kind(path, page) for page in asked} == {LEAF, BRANCH}


def test_nothing_is_taken_to_come_from_the_disk_where_nothing_is_read(tmp_path: Path) -> None:
    path, keys = new_store(tmp_path / "people.forest", people=5000), [layout.id_key(7)]
    with Store.open(path, writable=False) as store, store.snapshot() as snapshot:
        snapshot.get("samples", keys)
        snapshot.get("samples", keys)

        assert not snapshot._known.from_disk


def store_of_nodes(path: Path, count: int) -> Path:
    """A store with `count` long values."""
    with Store.open(new_store(path), writable=True) as store, store.write() as session:
        for tree in range(count):
            session.put("nodes", layout.node_key(tree, 1), LONG)
        session.commit()
    return path


@pytest.mark.parametrize("writable", [False, True])
def test_only_a_long_value_that_is_asked_for_must_have_the_pages_it_says(tmp_path: Path, writable: bool) -> None:
    path = store_of_nodes(tmp_path / "people.forest", 20)
    asked, other = layout.node_key(7, 1), layout.node_key(8, 1)
    with Store.open(path, writable) as store, store.snapshot() as snapshot:
        with open(path / "gen-0001/data.mdb", "r+b", buffering=0) as file:
            page = root_of(snapshot, "nodes") * layout.PAGE_BYTES
            at = page + os.pread(file.fileno(), layout.PAGE_BYTES, page).index(asked) - 8
            size = int.from_bytes(os.pread(file.fileno(), 4, at), "little")
            os.pwrite(file.fileno(), (size ^ 1 << 28).to_bytes(4, "little"), at)

        assert snapshot.get("nodes", [other]) == [LONG]
        with pytest.raises(CorruptStore, match=r"a record of page \d+ refers to pages that do not exist"):
            snapshot.get("nodes", [asked])
        with pytest.raises(CorruptStore, match=r"a record of page \d+ refers to pages that do not exist"):
            list(snapshot.scan("nodes", other, other))


def test_getting_a_long_value_reads_as_little_however_many_others_its_leaf_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads(count: int) -> int:
        path, pread, done = store_of_nodes(tmp_path / f"{count}.forest", count), os.pread, list[int]()

        def noted(descriptor: int, size: int, at: int) -> bytes:
            done.append(at)
            return pread(descriptor, size, at)

        with Store.open(path, writable=False) as store, store.snapshot() as snapshot:
            root_of(snapshot, "nodes")
            with monkeypatch.context() as patch:
                patch.setattr(os, "pread", noted)
                assert snapshot.get("nodes", [layout.node_key(1, 1)]) == [LONG]
        return len(done)

    assert reads(3) == reads(60) <= 2


def read_kind(path: Path, page: int) -> int:
    """What the header of a page says that it is."""
    with open(path / "gen-0001/data.mdb", "rb") as file:
        file.seek(page * layout.PAGE_BYTES + 10)
        return file.read(1)[0]
