"""Damage with right checksums, past the library: `check` and `verify` name it, answers stop."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

import dynfrsdb
from dynfrsdb_storage import layout, records
from tests.people import X, changer, files


def rewrite(path: Path, database: str, key: bytes, payload: bytes | None) -> None:
    """Put a record with a right checksum past the library, or delete one."""
    with lmdb.open(str(path / "gen-0001"), max_dbs=20, lib_version=0, map_size=1 << 30) as env:
        handle = env.open_db(database.encode(), create=False)
        with env.begin(write=True, db=handle) as txn:
            if payload is None:
                assert txn.delete(key)
            else:
                txn.put(key, records.pack(database, key, payload))


def some_record(path: Path, database: str, kind: int = 1) -> tuple[bytes, bytes]:
    """A split, a tag (kind 3) or a grown bucket; not a chunk of a long list."""
    with dynfrsdb.open(path) as db, db._store.snapshot() as snapshot:
        nodes = dict(snapshot.scan("nodes")) if database == "buckets" else {}
        found = ((key, data) for key, data in snapshot.scan(database) if key[: layout.NODE_KEY_BYTES] not in nodes)
        return next((key, data) for key, data in found if data[0] == kind)


def problems(path: Path) -> str:
    with dynfrsdb.open(path) as db:
        report = db.check()
        assert not report
        return "\n".join(report.problems)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (4, "says it has"),
        (8, "carries the stamp of commit 1, its parent says 0"),
        (16, "carries the stamp of commit 0, its parent says 1"),
        (32, "has another best split than its samples make"),
        (36, "has another best split than its samples make"),
        (40, "has another best split than its samples make"),
        (48, "has other counts, ranges or constants than its samples make"),
        (-1, "has other counts, ranges or constants than its samples make"),
    ],
)
def test_check_names_a_split_with_a_flipped_bit(path: Path, at: int, words: str) -> None:
    key, data = some_record(path, "nodes")
    tree, place = layout.parse_node_key(key)

    rewrite(path, "nodes", key, flipped(data, at % len(data)))

    assert f"tree {tree}, node {place:#b}" in problems(path)
    assert words in problems(path)


def test_check_names_a_bucket_with_a_wrong_sample(path: Path) -> None:
    key, data = some_record(path, "buckets")
    tree, place, _ = layout.parse_bucket_key(key)

    rewrite(path, "buckets", key, flipped(data, 14))

    assert f"tree {tree}, node {place:#b} does not list the samples that belong to it" in problems(path)


def test_check_names_a_bucket_with_another_tree(path: Path) -> None:
    key, data = some_record(path, "buckets")
    tree, place, _ = layout.parse_bucket_key(key)
    n = int.from_bytes(data[2:4], "little")

    rewrite(path, "buckets", key, flipped(data, 14 + 4 * n + 2))

    assert f"tree {tree}, node {place:#b} has other counts, or another small tree, than its samples make" in problems(
        path
    )


@pytest.mark.parametrize("database", ["nodes", "buckets"])
def test_check_names_a_missing_and_an_extra_record(path: Path, database: str) -> None:
    key, data = some_record(path, database)
    tree, place = layout.parse_node_key(key)
    extra = layout.node_key(tree, 1 << 50) + key[layout.NODE_KEY_BYTES :]

    rewrite(path, database, extra, data)
    assert problems(path) == f"tree {tree}, node {1 << 50:#b} does not belong to the tree"

    rewrite(path, database, key, None)
    assert f"tree {tree}, node {place:#b} is missing" in problems(path)


def test_check_names_a_tag_with_a_record_below_it(path: Path) -> None:
    with changer(path) as db:
        db.remove(range(0, 100))
    key, _ = some_record(path, "nodes", kind=3)
    _, data = some_record(path, "buckets")
    tree, place = layout.parse_node_key(key)

    rewrite(path, "buckets", layout.bucket_key(tree, 2 * place), data)

    assert problems(path) == f"tree {tree}, node {2 * place:#b} does not belong to the tree"


def test_check_names_a_tag_whose_list_is_wrong(path: Path) -> None:
    with changer(path) as db:
        db.remove(range(0, 100))
    key, _ = some_record(path, "nodes", kind=3)
    tree, place = layout.parse_node_key(key)
    with dynfrsdb.open(path) as db, db._store.snapshot() as snapshot:
        chunk, data = next(iter(snapshot.scan("buckets", key + bytes(4), key + b"\xff" * 4)))

    rewrite(path, "buckets", chunk, flipped(data, len(data) - 4))

    assert f"tree {tree}, node {place:#b} is tagged and does not list the samples that belong to it" in problems(path)


def test_a_bad_checksum_stops_answers_and_changes(path: Path) -> None:
    key, data = some_record(path, "nodes")
    with lmdb.open(str(path / "gen-0001"), max_dbs=20, lib_version=0, map_size=1 << 30) as env:
        handle = env.open_db(b"nodes", create=False)
        with env.begin(write=True, db=handle) as txn:
            txn.put(key, flipped(records.pack("nodes", key, data), 60))
    before = files(path)

    with changer(path) as db:
        for act in (lambda: db.predict(X), lambda: db.remove(range(100)), db.digest):
            with pytest.raises(dynfrsdb.CorruptStore, match="fails its checksum"):
                act()
        assert len(db) == 300
        assert files(path) == before


def test_an_old_record_with_a_right_checksum_is_caught_by_its_stamp(path: Path) -> None:
    """As if the disk had lost one write: the record is sound, but its parent names another commit."""
    with changer(path) as db, db._store.snapshot() as snapshot:
        before = dict(snapshot.scan("nodes"))
    with changer(path) as db:
        db.remove(range(0, 30))
        with db._store.snapshot() as snapshot:
            changed = [key for key, data in snapshot.scan("nodes") if data[0] == 1 and before.get(key, data) != data]

    rewrite(path, "nodes", changed[0], before[changed[0]])

    with dynfrsdb.open(path) as db, pytest.raises(dynfrsdb.CorruptStore, match="its parent names"):
        db.predict(X)


def test_verify_names_the_tree_that_differs(path: Path) -> None:
    """A threshold that is wrong but parts the samples alike is still another forest."""
    key, data = some_record(path, "nodes")
    tree, _ = layout.parse_node_key(key)

    rewrite(path, "nodes", key, flipped(data, 36))

    with dynfrsdb.open(path) as db:
        report = db.verify()
        assert not report
        assert report.differing == (tree,)
        assert report.digest == db.digest()
