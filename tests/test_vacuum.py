"""Vacuum: the same forest, and nothing of the removed in any byte of any file."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dynfrsdb
from dynfrsdb_storage import failpoints, layout
from dynfrsdb_storage.extents import Extents, leftovers, scrub
from tests.people import SHAPE, X, Y, changer, people, receipt_of

GONE = [5, 17, 18, 40, 41, 42, 299]


@pytest.fixture
def worn(path: Path) -> Path:
    """A store with a history: people came and went, and came back under an old id."""
    more, labels = people(200, seed=1)
    with changer(path) as db:
        for start in range(0, 200, 20):
            db.add(more[start : start + 20], labels[start : start + 20], ids=range(1000 + start, 1020 + start))
            db.remove(range(1000 + start, 1010 + start))
        db.settle(limit=50)
        for id in GONE:
            db.remove([id])
        db.remove(range(1010, 1200, 20), request_id="request 1")
        db.add(X[[5]], Y[[5]], ids=[5], subjects=["person 5"])
    return path


def tree_records(db: dynfrsdb.Database) -> dict[str, list[tuple[bytes, bytes]]]:
    with db._store.snapshot() as snapshot:
        return {name: list(snapshot.scan_raw(name)) for name in ("nodes", "buckets", "roots", "samples", "subjects")}


def survivors(db: dynfrsdb.Database, path: Path) -> dynfrsdb.Database:
    """A store made of the samples that `db` holds, with the same settings and seed."""
    with db._store.snapshot() as snapshot:
        ids = [layout.parse_id_key(key) for key, _ in snapshot.scan("samples")]
    samples = [db.sample(id) for id in ids]
    named = [f"person {id % 100}" if sample.has_subject else None for id, sample in zip(ids, samples, strict=True)]
    rows, labels = np.array([sample.x for sample in samples]), [sample.y for sample in samples]
    return dynfrsdb.create(path, rows, labels, ids=ids, subjects=named, **SHAPE)


def rows_file(path: Path) -> bytes:
    (file,) = path.glob("gen-*/rows.bin")
    return file.read_bytes()


def test_records_and_rows_are_those_of_a_store_built_from_the_survivors(worn: Path, store_dir: Path) -> None:
    with changer(worn) as db, survivors(db, store_dir / "fresh") as fresh:
        before = db.digest(), len(db), db.predict_proba(X).tobytes()
        assert tree_records(db) != tree_records(fresh)

        assert db.vacuum()

        assert (db.digest(), len(db), db.predict_proba(X).tobytes()) == before
        assert tree_records(db) == tree_records(fresh)
        assert rows_file(worn) == rows_file(store_dir / "fresh")
        assert db.check().problems == ()


def test_every_byte_outside_live_records_is_zero(worn: Path, store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the generation as it becomes the live one; commits after that leave older copies of their own pages."""
    (old,), new = worn.glob("gen-*/data.mdb"), store_dir / "new.mdb"
    assert leftovers(old)
    copy = {"vacuum-switched": lambda: shutil.copy(worn / "gen-0002/data.mdb", new)}
    monkeypatch.setattr(failpoints, "hook", lambda name: copy.get(name, int)())

    with changer(worn) as db:
        db.vacuum()

    extents = Extents(new)
    free = bytearray(new.read_bytes())
    for start, end in owned(extents):
        free[start:end] = bytes(end - start)
    assert len(free) > 100_000
    assert not free.strip(b"\0")
    assert extents.strays == set()


def owned(extents: Extents) -> Iterator[tuple[int, int]]:
    at = 0
    for start, end in (*extents.gaps(), (extents.size, extents.size)):
        yield at, start
        at = end


def test_a_file_that_is_scrubbed_is_still_the_same_store(worn: Path) -> None:
    """LMDB never looks at the bytes that we call free: of a worn file as of a new one."""
    (data,) = worn.glob("gen-*/data.mdb")
    with dynfrsdb.open(worn) as db:
        before = db.digest()

    assert scrub(data) > 0

    assert leftovers(data) == []
    (worn / "LOCK").write_bytes(b"")  # it holds a checksum of whole pages
    with changer(worn) as db:
        assert (db.digest(), db.check().problems) == (before, ())
        db.remove([1, 2, 3])
        assert db.check().problems == ()


def test_rows_are_exactly_the_live_ones_in_the_order_of_their_ids(worn: Path) -> None:
    with changer(worn) as db:
        db.vacuum()
        with db._store.snapshot() as snapshot:
            found = [(layout.parse_id_key(key), payload[:4]) for key, payload in snapshot.scan("samples")]
            words = snapshot.rows.words

        assert [int.from_bytes(slot, "little") for _, slot in found] == list(range(len(found)))
        assert words[: len(found), 1].tolist() == [id for id, _ in found]
        assert not words[len(found) :].any()
        size = layout.slot_bytes(4)
        assert not rows_file(worn)[len(found) * size :].strip(b"\0")


def test_ledger_requests_and_commit_numbers_go_on(worn: Path) -> None:
    with changer(worn) as db:
        db.settle()
        ledger, commit, info = db.ledger(), db.refresh(), db.info()

        db.vacuum()

        after = db.ledger()
        assert after[: len(ledger)] == ledger
        assert [receipt.kind for receipt in after[len(ledger) :]] == ["vacuum", "erased"]
        assert db.refresh() == commit + 2  # the new generation, and the note that the old one is gone
        assert (db.info()["generation"], db.info()["uuid"]) == (2, info["uuid"])
        assert db.remove(range(1010, 1200, 20), request_id="request 1").removed == 10
        assert receipt_of(db.add(X[:1], Y[:1])).ids == (1200,)
        assert len(db.ledger()) == len(after) + 1
        assert db.check().problems == ()


def test_records_that_vacuum_does_not_know_are_carried_over(worn: Path) -> None:
    more = [(name, b"key of 16 bytes!", bytes(range(1, 250)) * 30) for name in ("holds", "queue", "suppression")]
    more.append(("meta", b"encoding", b"something that a later version keeps"))
    with changer(worn) as db:
        with db._store.write() as session:
            for name, key, payload in more:
                session.put(name, key, payload)
            session.commit()

        db.vacuum()

        with db._store.snapshot() as snapshot:
            for name, key, payload in more:
                (found,) = snapshot.get(name, [key])
                assert found is not None
                assert found.rstrip(b"\0") == payload


def test_stamps_are_zero_and_tags_are_gone(worn: Path) -> None:
    with changer(worn) as db:
        db.remove(range(20, 30))
        assert db.info()["tags"] > 0

        db.vacuum()

        with db._store.snapshot() as snapshot:
            stamps, _, tags = snapshot.roots()
        assert (db.info()["tags"], int(stamps.max()), int(tags.max())) == (0, 0, 0)


@pytest.mark.parametrize("empty", [True, False])
def test_small_stores_can_be_vacuumed(store_dir: Path, empty: bool) -> None:
    with dynfrsdb.create(store_dir / "s", X[:3], Y[:3], classes=[0, 1], **SHAPE) as db:
        if empty:
            db.remove([0, 1, 2])
        db.vacuum()
        db.vacuum()

        assert (db.info()["generation"], len(db), db.check().problems) == (3, 0 if empty else 3, ())
        db.add(X[10:20], Y[10:20])
        assert db.check().problems == ()


def test_a_regression_can_be_vacuumed(store_dir: Path) -> None:
    with dynfrsdb.create(store_dir / "s", X, X[:, 0] * 3, task="regression", target_step=0.01, **SHAPE) as db:
        db.remove(range(0, 300, 3))
        before = db.predict(X).tobytes()

        db.vacuum()

        assert (db.predict(X).tobytes(), db.check().problems, bool(db.verify())) == (before, (), True)


def test_progress_goes_through_rows_trees_and_checks(path: Path) -> None:
    seen: dict[str, tuple[int, int]] = {}
    with changer(path) as db:
        db.vacuum(lambda stage, done, total: seen.update({stage: (done, total)}))

    assert seen["rows"] == (300, 300)
    assert seen["trees"] == seen["checking trees"] == (6, 6)


def test_it_says_how_much_room_it_takes_and_refuses_without(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with changer(path) as db:
        db.remove([1])
        before, plan = db.refresh(), db.vacuum(dry_run=True)
        assert 1 << 20 < plan.needed < plan.free
        assert (db.refresh(), db.info()["generation"]) == (before, 1)

        monkeypatch.setattr("dynfrsdb_storage.successor.MARGIN", plan.free)
        with pytest.raises(dynfrsdb.StoreFull, match=r"needs up to [\d,]+ bytes beside the store, [\d,]+ are free"):
            db.vacuum()

        assert (db.info()["generation"], sorted(each.name for each in path.glob("gen-*"))) == (1, ["gen-0001"])
        assert db.check().problems == ()


def test_a_damaged_row_ends_the_vacuum_and_nothing_is_changed(path: Path) -> None:
    (rows,) = path.glob("gen-*/rows.bin")
    data = bytearray(rows.read_bytes())
    data[40 * 17 + 30] ^= 1
    rows.write_bytes(data)

    with changer(path) as db:
        with pytest.raises(dynfrsdb.CorruptStore, match="the row of sample 17 fails its hash; nothing was copied"):
            db.vacuum()

        assert [each.name for each in path.glob("gen-*")] == ["gen-0001"]
        assert len(db) == 300


def test_a_handle_for_reading_cannot_vacuum(path: Path) -> None:
    with dynfrsdb.open(path) as db, pytest.raises(dynfrsdb.ReadOnly):
        db.vacuum()
    with changer(path) as db, db.transaction(), pytest.raises(dynfrsdb.TransactionMisuse, match="vacuum"):
        db.vacuum()


def test_all_history_gives_the_same_files(worn: Path, store_dir: Path) -> None:
    """Two stores with the same live samples, whatever happened to them, are the same after a vacuum, but for names,
    times and the ledger."""
    with changer(worn) as db, survivors(db, store_dir / "other") as other:
        ids = [id for id in range(300) if id not in GONE]
        random.Random(3).shuffle(ids)
        for id in ids[:40]:
            sample = other.sample(id)
            other.remove([id])
            other.add([sample.x], [sample.y], ids=[id], subjects=[f"person {id % 100}"])
        db.vacuum()
        other.vacuum()

        assert tree_records(db) == tree_records(other)
        assert rows_file(worn) == rows_file(store_dir / "other")
