"""Creating and opening: a store is there completely or not at all, and what is not one is refused before it can
hurt."""

import os
import pickle
import shutil
import stat
from pathlib import Path

import lmdb
import numpy as np
import pytest

from dynfrsdb_storage import Builder, Store, create, failpoints, layout, records
from dynfrsdb_storage.errors import (
    ClosedStore,
    CorruptStore,
    Error,
    StoreExists,
    StoreNotFound,
    UnsupportedFormat,
)
from tests.storage.people import SEED, add, in_child, living, new_store, problems, remove

SETTINGS = {"n_features": 2, "n_trees": 3, "seed": SEED}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a closed store of 20 people."""
    return new_store(tmp_path / "people.forest")


def test_a_new_store_is_sound_and_private(path: Path) -> None:
    with Store.open(path, writable=False) as store:
        assert problems(store) == []
        assert living(store) == set(range(20))
    for entry in [path, *path.rglob("*")]:
        assert stat.S_IMODE(entry.stat().st_mode) == (0o700 if entry.is_dir() else 0o600)


def test_an_empty_store_is_sound(tmp_path: Path) -> None:
    with Store.open(new_store(tmp_path / "empty.forest", people=0), writable=True) as store:
        add(store, [1, 2])

        assert living(store) == {1, 2}
        assert problems(store) == []


def test_create_touches_nothing_that_exists(path: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for taken in (path, tmp_path / "folder"):
        with pytest.raises(StoreExists, match="exists already"):
            create(taken, SETTINGS, {}, lambda builder: None)

    assert sorted(tmp_path.iterdir()) == sorted([path, tmp_path / "folder"])
    with Store.open(path, writable=False) as store:
        assert living(store) == set(range(20))


def test_an_interrupted_create_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(builder: Builder) -> None:
        builder.put("nodes", b"key", b"payload")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create(tmp_path / "a.forest", SETTINGS, {}, interrupted)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("point", ["build-fill", "build-sync", "build-rename"])
def test_what_a_killed_create_leaves_is_cleaned_by_the_next(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.forest"
    monkeypatch.setattr(failpoints, "hook", lambda name: os.kill(os.getpid(), 9) if name == point else None)
    assert in_child(lambda: new_store(path)) == -9
    monkeypatch.setattr(failpoints, "hook", None)
    assert not path.exists()
    assert len(list(tmp_path.iterdir())) == 1

    new_store(path)

    assert list(tmp_path.iterdir()) == [path]


def test_a_create_that_is_under_way_is_not_taken_for_a_stale_one(tmp_path: Path) -> None:
    def slow(builder: Builder) -> None:
        new_store(tmp_path / "a.forest")

    with pytest.raises(StoreExists):
        create(tmp_path / "a.forest", SETTINGS, {}, slow)

    with Store.open(tmp_path / "a.forest", writable=False) as store:
        assert living(store) == set(range(20))
    assert list(tmp_path.iterdir()) == [tmp_path / "a.forest"]


def test_sorted_records_must_be_sorted(tmp_path: Path) -> None:
    def unsorted(builder: Builder) -> None:
        builder.put_sorted("nodes", [(b"b", b""), (b"a", b"")])

    with pytest.raises(ValueError, match="ascending order"):
        create(tmp_path / "a.forest", SETTINGS, {}, unsorted)


def sealed(database: str, pairs: list[tuple[bytes, bytes]]) -> records.Sealed:
    """Records as somebody else would pack them."""
    values = [records.pack(database, *pair) for pair in pairs]
    keys = np.frombuffer(b"".join(key for key, _ in pairs), np.uint8).reshape(len(pairs), -1)
    return keys, np.frombuffer(b"".join(values), np.uint8), np.cumsum([len(value) for value in values])


def test_records_that_were_packed_elsewhere_are_those_that_are_packed_here(tmp_path: Path) -> None:
    pairs = [(layout.id_key(i), bytes([i % 251]) * (i % 2_500)) for i in range(25_000)]

    def both(builder: Builder) -> None:
        builder.put_sorted("nodes", pairs)
        builder.put_sealed("buckets", sealed("buckets", pairs))

    create(tmp_path / "a.forest", SETTINGS, {}, both)

    with Store.open(tmp_path / "a.forest", writable=False) as store, store.snapshot() as snapshot:
        assert list(snapshot.scan("buckets")) == list(snapshot.scan("nodes"))


def test_records_that_were_packed_elsewhere_must_be_sorted(tmp_path: Path) -> None:
    def unsorted(builder: Builder) -> None:
        builder.put_sealed("nodes", sealed("nodes", [(b"b", b""), (b"a", b"")]))

    with pytest.raises(ValueError, match="ascending order"):
        create(tmp_path / "a.forest", SETTINGS, {}, unsorted)


def test_a_build_grows_its_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynfrsdb_storage.env.FIRST_MAP", 1 << 20)

    def fill(builder: Builder) -> None:
        builder.put_sorted("nodes", ((layout.id_key(i), bytes(1000)) for i in range(30_000)))

    create(tmp_path / "a.forest", SETTINGS, {}, fill)

    with Store.open(tmp_path / "a.forest", writable=False) as store, store.snapshot() as snapshot:
        assert snapshot.count("nodes") == 30_000


def test_the_seed_is_in_no_text(path: Path) -> None:
    with Store.open(path, writable=True) as store, store.snapshot() as snapshot, store.write() as session:
        for thing in (store, snapshot, session, store.info(), snapshot.generation):
            assert repr(SEED)[2:-1] not in repr(thing)
            assert SEED.hex() not in repr(thing)


def test_nothing_there_and_something_else_there_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("hello")

    with pytest.raises(StoreNotFound, match="there is no store at"):
        Store.open(tmp_path / "nothing", writable=False)
    with pytest.raises(UnsupportedFormat, match="it has no file CURRENT"):
        Store.open(tmp_path / "folder", writable=False)
    with pytest.raises(UnsupportedFormat, match="is not a dynfrsdb store"):
        Store.open(tmp_path / "file", writable=False)
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["file", "folder"]


@pytest.mark.parametrize("name", ["CURRENT", "LOCK", "gen-0001/data.mdb", "gen-0001/rows.bin", "gen-0001/LEASE"])
def test_a_lost_file_is_named_and_not_made_anew(path: Path, name: str) -> None:
    (path / name).unlink()

    with pytest.raises(Error, match=r"lost its|no file CURRENT"), Store.open(path, writable=True) as store:
        problems(store)
    assert not (path / name).exists()


@pytest.mark.parametrize("pages", range(0, 14))
def test_a_truncated_data_file_is_refused_before_it_is_mapped(path: Path, pages: int) -> None:
    os.truncate(path / "gen-0001/data.mdb", pages * 4096 + 100)

    with pytest.raises(CorruptStore, match="shorter than it says"):
        Store.open(path, writable=False)


def test_a_truncated_rows_file_is_refused_before_it_is_mapped(path: Path) -> None:
    os.truncate(path / "gen-0001/rows.bin", 100)

    with pytest.raises(CorruptStore, match=r"'rows\.bin'.*is cut short"), Store.open(path, writable=False) as store:
        living(store)


def test_an_unwritten_page_at_the_end_is_no_truncation(path: Path) -> None:
    """LMDB leaves a page unwritten that it took at the end of the file and gave back before its commit."""
    with Store.open(path, writable=True) as store:
        with store.write() as session:
            session.put_many("nodes", [(layout.id_key(i), bytes(8000)) for i in range(50)])
            session.commit()
        with store.write() as session:
            session.delete_range("nodes", layout.id_key(0), layout.id_key(49))
            session.commit()
            session.commit()
            session.commit()
        last_page = store.current().env.info()["last_pgno"]
    data = path / "gen-0001/data.mdb"
    os.truncate(data, last_page * 4096)

    with Store.open(path, writable=True) as store:
        assert living(store) == set(range(20))
        assert problems(store) == []


def test_a_foreign_data_file_is_refused(path: Path) -> None:
    (path / "gen-0001/data.mdb").write_bytes(b"SQLite format 3\0" * 4096)

    with pytest.raises(UnsupportedFormat, match=r"not an LMDB 0\.9 file"):
        Store.open(path, writable=False)


def test_a_newer_format_is_refused_whatever_else_it_changes_before_anything_is_mapped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = {"format": layout.FORMAT + 1, "algorithm": 1, "uuid": bytes(16), "needs": "7.5"}
    with Store.open(path, writable=True) as store, store.write() as session:
        session.put("meta", layout.META_FORMAT, records.frame(newer))
        session.put("meta", layout.META_SETTINGS, b"in another way")
        session.commit()
    drop(path, "queue")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("LMDB maps the file")

    monkeypatch.setattr(lmdb, "open", refuse)
    monkeypatch.setattr(lmdb, "Environment", refuse)
    with pytest.raises(UnsupportedFormat, match=rf"has format {layout.FORMAT + 1}, .*; install dynfrsdb 7\.5 or newer"):
        Store.open(path, writable=False)


def drop(path: Path, database: str) -> None:
    """Take a database out of a store."""
    with lmdb.open(str(path / "gen-0001"), max_dbs=20, map_size=0, lib_version=0) as env:
        handle = env.open_db(database.encode(), create=False)
        with env.begin(write=True) as txn:
            txn.drop(handle)


def test_a_store_that_has_lost_a_database_is_refused(path: Path) -> None:
    drop(path, "queue")

    with pytest.raises(UnsupportedFormat, match="it is an LMDB file of something else"):
        Store.open(path, writable=False)


def test_a_store_that_was_rolled_back_is_refused(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path / "gen-0001", tmp_path / "old")
    with Store.open(path, writable=True) as store:
        remove(store, [3])
    shutil.rmtree(path / "gen-0001")
    shutil.copytree(tmp_path / "old", path / "gen-0001")

    with pytest.raises(CorruptStore, match="rolled back: it is at commit 1, but commit 3 was acknowledged"):
        Store.open(path, writable=True)

    (path / "LOCK").write_bytes(b"")
    with Store.open(path, writable=True) as store:
        assert living(store) == set(range(20))


def test_a_damaged_lock_file_is_named(path: Path) -> None:
    (path / "LOCK").write_bytes(b"x" * 512)

    with pytest.raises(CorruptStore, match=r"the file LOCK of .* is damaged"):
        Store.open(path, writable=True)


@pytest.mark.parametrize(("first", "last"), [(0, 19), (3, 9), (5, 5), (18, 40), (20, 30)])
def test_what_is_between_two_keys_is_what_a_scan_finds(path: Path, first: int, last: int) -> None:
    with Store.open(path, writable=False) as store, store.snapshot() as snapshot:
        ends = layout.id_key(first), layout.id_key(last)

        found, one = snapshot.between("samples", [ends, (layout.id_key(7), layout.id_key(7))])

        assert list(one.values()) == snapshot.get("samples", [layout.id_key(7)])
        assert list(found.items()) == list(snapshot.scan("samples", *ends))
        assert len(found) == len(range(first, min(last, 19) + 1))


def test_a_bad_checksum_names_tree_and_node(path: Path) -> None:
    with Store.open(path, writable=True) as store:
        with store.write() as session:
            session.put("nodes", layout.node_key(3, 0b1011), b"a payload to be damaged")
            session.commit()
        data = path / "gen-0001/data.mdb"
        raw = data.read_bytes().replace(b"to be damaged", b"to be DAMAGED")
        with open(data, "r+b") as file:
            file.write(raw)

        with store.snapshot() as snapshot, pytest.raises(CorruptStore) as caught:
            snapshot.get("nodes", [layout.node_key(3, 0b1011)])
        with store.snapshot() as snapshot, pytest.raises(CorruptStore, match="fails its checksum"):
            snapshot.between("nodes", [layout.subtree_range(3, 1)])

    assert str(caught.value) == (
        f"tree 3, node 0b1011 in '{path}' fails its checksum; no answer was given. Run 'dynfrsdb check {path}'"
    )


def test_handles_of_one_process_share_the_files(path: Path) -> None:
    with Store.open(path, writable=False) as reader:
        with Store.open(path, writable=True) as writer:
            assert reader.current() is writer.current()
            add(writer, [100])
        assert living(reader) == {*range(20), 100}


def test_a_snapshot_goes_on_while_a_writer_opens_the_store(path: Path) -> None:
    with Store.open(path, writable=False) as reader, reader.snapshot() as snapshot:
        writer = Store.open(path, writable=True)
        add(writer, [100])

        assert snapshot.count("samples") == 20
        assert snapshot.commit == 1
        writer.close()


def test_a_handle_can_be_pickled(path: Path) -> None:
    with Store.open(path, writable=True) as store, pickle.loads(pickle.dumps(store)) as copy:
        add(copy, [100])

        assert copy.writable
        assert living(store) == {*range(20), 100}


def test_a_closed_handle_says_so(path: Path) -> None:
    store = Store.open(path, writable=False)
    snapshot = store.snapshot()
    store.close()
    store.close()

    assert snapshot.commit == 1
    snapshot.close()
    with pytest.raises(ClosedStore, match="is closed; open it again"):
        store.snapshot()
    with pytest.raises(ClosedStore, match="is over"):
        snapshot.get("samples", [b"x"])


def test_the_newest_token_changes_with_every_commit(path: Path) -> None:
    with Store.open(path, writable=True) as store, Store.open(path, writable=False) as reader:
        before = reader.newest()
        assert reader.newest() == before

        add(store, [100])

        assert reader.newest() != before


def test_the_newest_token_shows_commits_of_other_processes(path: Path) -> None:
    with Store.open(path, writable=False) as reader:
        before = reader.newest()

        assert in_child(lambda: add(Store.open(path, writable=True), [100])) == 0

        assert reader.newest() != before
        assert living(reader) == {*range(20), 100}


def test_mapped_rows_stay_valid_when_the_file_grows(path: Path) -> None:
    with Store.open(path, writable=True) as store:
        with store.snapshot() as snapshot:
            old = snapshot.rows.words
        add(store, range(1000, 6000))

        assert int(old[3, 1]) == 3
        with store.snapshot() as snapshot:
            assert len(snapshot.rows.words) > len(old)


def test_info_shows_sizes_and_readers(path: Path) -> None:
    with Store.open(path, writable=True) as store, store.snapshot():
        add(store, [100])
        info = store.info()

    assert info["generation"] == 1
    assert info["commit"] == 2
    ages = [reader.pop("age") for reader in info["readers"]]
    assert all(0 <= age < 60 for age in ages)
    assert sorted(info["readers"], key=lambda r: r["lag"]) == [
        {"pid": os.getpid(), "lag": 0},
        {"pid": os.getpid(), "lag": 1},
    ]
    assert info["files"]["rows.bin"] == info["slots"] * layout.slot_bytes(5)
    assert info["free_pages"] >= 0
