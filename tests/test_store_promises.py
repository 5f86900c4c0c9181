"""What a store promises beside exactness: what it reads, what it leaves alone, and what readers see."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dynfrsdb
from dynfrsdb_storage import layout
from dynfrsdb_storage.build import Builder
from tests.people import SHAPE, Matrix, X, Y, changer, files, people


def tree_loads(db: dynfrsdb.Database) -> int:
    return db._store.loads["nodes"] + db._store.loads["buckets"]


def records_on_paths(path: Path, rows: Matrix, trees: set[int]) -> int:
    """How many records of these trees the rows pass, by following the stored splits."""
    with dynfrsdb.open(path) as db, db._store.snapshot() as snapshot:
        nodes = {layout.parse_node_key(key): data for key, data in snapshot.scan("nodes")}
    passed = set()
    for tree in trees:
        for row in rows.astype(np.float32):
            place = 1
            passed.add((tree, place))
            while (tree, place) in nodes and nodes[tree, place][0] == 1:
                data = nodes[tree, place]
                cut, feature = np.frombuffer(data, "<f4", 1, 36)[0], int.from_bytes(data[40:42], "little")
                place = 2 * place + (not row[feature] <= cut)
                passed.add((tree, place))
    return len(passed)


def test_opening_reads_no_tree(path: Path) -> None:
    with changer(path) as db:
        assert tree_loads(db) == 0
        assert sum(db._store.loads.values()) <= 4


def test_opening_reads_as_much_of_a_large_store_as_of_a_small_one(store_dir: Path) -> None:
    loads = []
    for n in (10, 1500):
        dynfrsdb.create(store_dir / str(n), *people(n), **SHAPE).close()
        with dynfrsdb.open(store_dir / str(n)) as db:
            loads.append(dict(db._store.loads))

    assert loads[0] == loads[1]


def test_a_query_loads_the_records_on_its_paths_and_nothing_else(path: Path) -> None:
    expected = records_on_paths(path, X[5:6], set(range(6)))

    with dynfrsdb.open(path) as db:
        db.predict(X[5:6])
        assert tree_loads(db) == expected

        db.predict(X[5:6])
        assert tree_loads(db) == expected, "the second time everything is in memory"


def test_a_removal_that_moves_nothing_loads_the_records_on_its_paths_and_nothing_else(path: Path) -> None:
    """A removal that moves a range or a split has to look below; most do not."""
    quiet = 0
    for id in range(40):
        with changer(path) as db:
            trees = set(db.sample(id).trees)
            plan = db.remove([id], dry_run=True)
            assert isinstance(plan, dynfrsdb.Plan)
        with changer(path) as db:
            expected = records_on_paths(path, X[id : id + 1], trees)
            with db.transaction() as txn:
                txn.remove([id])
                txn._apply()
                loaded = tree_loads(db)
                txn.add(X[id : id + 1], Y[id : id + 1], ids=[id])
            assert loaded >= expected
            quiet += loaded == expected
            assert loaded < db.info()["nodes"] + db.info()["buckets"]

    assert quiet >= 10


class Stop(Exception):
    """Ends a transaction."""


def roll_back(db: dynfrsdb.Database, act: Callable[[dynfrsdb.Transaction], object]) -> None:
    """Do something in a transaction that then fails."""

    def fail() -> None:
        with db.transaction() as txn:
            act(txn)
            raise Stop

    with pytest.raises(Stop):
        fail()


def test_a_rollback_leaves_every_file_as_it_was(path: Path) -> None:
    with changer(path) as db:
        db.remove([0])
        answers, before, digest, info = db.predict_proba(X), files(path), db.digest(), db.info()

        def much(txn: dynfrsdb.Transaction) -> None:
            txn.remove(range(50, 90))
            txn.predict(X)
            txn.add(X[:30] + 1, Y[:30], ids=range(1000, 1030))
            txn.forget("person 3")
            txn.predict(X[:10])

        roll_back(db, much)

        assert files(path) == before
        assert db.predict_proba(X).tobytes() == answers.tobytes()
        assert (db.digest(), db.info()) == (digest, info)
        assert db.check()


def test_a_rollback_leaves_the_handle_able_to_go_on(path: Path) -> None:
    with changer(path) as db:
        roll_back(db, lambda txn: (txn.remove(range(150)), txn.predict(X[:20])))
        db.remove(range(100, 140))

        assert db.check()
        assert db.verify()


def test_a_plan_changes_nothing(path: Path) -> None:
    with changer(path) as db:
        db.remove([0])
        before, answers = files(path), db.predict_proba(X)

        plans = [
            db.add(X[:5] + 1, Y[:5], ids=range(1000, 1005), dry_run=True),
            db.remove([1, 2, 3], dry_run=True),
            db.forget("person 7", dry_run=True),
        ]

        assert [(plan.added, plan.removed) for plan in plans] == [(5, 0), (0, 3), (0, 3)]
        assert files(path) == before
        assert db.predict_proba(X).tobytes() == answers.tobytes()
        assert len(db.ledger()) == 2


def test_a_plan_says_what_the_change_then_does(path: Path) -> None:
    with changer(path) as db:
        plan = db.remove([1, 2, 3], dry_run=True)
        receipt = db.remove([1, 2, 3])

        assert (plan.removed, plan.trees, plan.nodes, plan.tagged) == (
            receipt.removed,
            receipt.trees,
            receipt.nodes,
            receipt.tagged,
        )


@pytest.mark.parametrize("stage", ["rows", "trees"])
def test_an_interrupted_create_leaves_nothing(store_dir: Path, stage: str) -> None:
    def interrupt(here: str, done: int, total: int) -> None:
        if here == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dynfrsdb.create(store_dir / "people.forest", X, Y, progress=interrupt, **SHAPE)

    assert list(store_dir.iterdir()) == []
    dynfrsdb.create(store_dir / "people.forest", X, Y, **SHAPE).close()


def test_progress_goes_from_one_to_all(store_dir: Path) -> None:
    seen: list[tuple[str, int, int]] = []

    dynfrsdb.create(store_dir / "people.forest", X, Y, progress=lambda *step: seen.append(step), **SHAPE).close()

    assert seen == [("rows", 300, 300), *(("trees", done, 6) for done in range(1, 7))]


def test_a_transaction_that_only_looks_leaves_the_handle_free_to_follow_others(path: Path) -> None:
    with changer(path) as db, changer(path) as other:
        with db.transaction() as txn:
            txn.predict(X[:3])
        other.remove(range(100))
        db.remove([200])

        assert txn.receipt is None
        assert db.check()
        assert db.verify()


def test_a_request_that_changes_nothing_does_not_hide_what_others_did(path: Path) -> None:
    with changer(path) as db, changer(path) as other:
        db.predict(X[:3])
        other.remove(range(100))
        with db.transaction(request_id="nothing to do"):
            pass

        assert db.predict_proba(X).tobytes() == other.predict_proba(X).tobytes()
        db.remove([200])
        assert db.check()


def test_growth_that_is_written_with_a_change_is_seen_by_other_writers(path: Path) -> None:
    """No stamp tells of it: the other writer still holds the tags, whose lists are gone from the disk."""
    with changer(path) as db, changer(path) as other:
        db.remove(range(0, 60))
        assert db.info()["tags"]
        other.predict(np.random.default_rng(1).normal(size=(3000, 4)))
        other.add(X[:1], Y[:1], ids=[1000])

        for id in range(60, 70):
            db.remove([id])

        assert db.check()
        assert db.verify()


def test_settling_writes_what_queries_grew_in_memory(path: Path) -> None:
    with changer(path) as db:
        db.remove(range(0, 60))
        assert db.info()["tags"]
        db.predict(np.random.default_rng(1).normal(size=(3000, 4)))

        db.settle()

        assert db.info()["tags"] == 0
        db.remove(range(60, 120))
        assert db.check()


def test_a_sample_that_comes_and_goes_in_one_transaction_leaves_a_long_leaf_as_it_was(store_dir: Path) -> None:
    rows, labels = np.arange(40.0).reshape(20, 2), [0] * 20
    with dynfrsdb.create(
        store_dir / "s", rows, labels, classes=[0, 1], n_estimators=1, q=1.0, min_samples_split=2, _bucket=4
    ) as db:
        with db.transaction() as txn:
            txn.add([[5.0, 5.0]], [0], ids=[100])
            txn.predict(rows[:1])
            txn.remove([100])
            txn.predict(rows[:1])
            txn.add([[5.0, 6.0]], [1], ids=[101])
            txn.predict(rows[:1])

        assert db.check()
        assert db.verify()


def test_a_large_batch_behind_a_question_is_one_change(path: Path) -> None:
    """The batch needs more reserved slots than there are, which takes a commit in the middle of the transaction."""
    more, labels = people(1500, seed=3)
    with changer(path) as db:
        with db.transaction() as txn:
            txn.remove(range(20))
            txn.predict(X[:5])
            txn.add(more, labels)
            txn.predict(X[:5])

        assert len(db) == 1780
        assert db.check()
        assert db.verify()


def test_a_long_leaf_rewrites_one_chunk_of_its_list(store_dir: Path) -> None:
    n = 3000
    rows = np.arange(float(n)).reshape(n, 1)
    with dynfrsdb.create(
        store_dir / "s", rows, [0] * n, classes=[0, 1], n_estimators=1, q=1.0, _bucket=4, seed=1
    ) as db:

        def chunks() -> dict[bytes, bytes]:
            with db._store.snapshot() as snapshot:
                return dict(snapshot.scan("buckets"))

        before = chunks()
        db.remove([1234])
        after = chunks()

        assert len(before) == 7
        assert len(before.items() - after.items()) == len(after.items() - before.items()) == 1
        assert db.info()["tags"] == 0
        assert db.check()


def test_the_map_grows_by_itself(path: Path) -> None:
    with changer(path) as db:
        db._store.current().env.set_mapsize(1 << 19)
        more, labels = people(6000, seed=2)

        db.add(more, labels)
        db.settle()

        assert db.info()["map_size"] > 1 << 19
        assert db.check()
        assert db.verify()


def test_a_snapshot_sees_one_commit_and_a_handle_the_newest(path: Path) -> None:
    with changer(path) as db, dynfrsdb.open(path) as reader:
        old = db.predict_proba(X)
        with reader.snapshot() as snapshot:
            db.remove(range(150))

            assert snapshot.predict_proba(X).tobytes() == old.tobytes()
            assert (len(snapshot), 3 in snapshot, len(reader), 3 in reader) == (300, True, 150, False)
            assert snapshot.sample(3).x.tolist() == np.float32(X[3]).tolist()
        assert reader.predict_proba(X).tobytes() == db.predict_proba(X).tobytes() != old.tobytes()


def test_a_handle_answers_from_the_last_commit_while_its_own_transaction_is_open(path: Path) -> None:
    with changer(path) as db:
        old = db.predict_proba(X)
        with db.transaction() as txn:
            txn.remove(range(150))
            inside = txn.predict_proba(X)

            assert db.predict_proba(X).tobytes() == old.tobytes() != inside.tobytes()
        assert db.predict_proba(X).tobytes() == inside.tobytes()


def test_settling_by_itself_leaves_no_small_tag_and_changes_no_answer(path: Path, store_dir: Path) -> None:
    with (
        changer(path, "auto") as db,
        dynfrsdb.create(store_dir / "s", X[60:], Y[60:], ids=range(60, 300), **SHAPE) as fresh,
    ):
        for first in range(0, 60, 6):
            receipt = db.remove(range(first, first + 6))
            assert db.info()["tags"] == 0
        assert receipt.tagged > 0

        assert db.predict_proba(X).tobytes() == fresh.predict_proba(X).tobytes()
        assert db.check()


def test_settling_in_parts_changes_no_answer(path: Path) -> None:
    with changer(path) as db:
        db.remove(range(0, 100))
        digest, answers = db.digest(), db.predict_proba(X)
    with changer(path) as db:
        tags = db.info()["tags"]
        assert db.settle(limit=1) == 1
        assert 0 < db.info()["tags"] < tags
        assert db.digest() == digest
        db.settle()

        assert (db.info()["tags"], db.digest()) == (0, digest)
        assert db.predict_proba(X).tobytes() == answers.tobytes()
        assert db.check()


@pytest.mark.parametrize("what", ["sync_rows", "sync_records"])
def test_a_disk_error_in_the_middle_of_a_build_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Files are synced while trees grow; the disk tells of a write that failed once, and not again at the end."""
    monkeypatch.setenv("DYNFRSDB_THREADS", "2")
    sync, failed = getattr(Builder, what), list[bool]()

    def fail_once(builder: Builder) -> None:
        if not failed:
            failed.append(True)
            raise OSError(errno.EIO, "the disk has lost a write")
        sync(builder)

    monkeypatch.setattr(Builder, what, fail_once)

    with pytest.raises(OSError, match="lost a write"):
        dynfrsdb.create(tmp_path / "people.forest", X, Y, **SHAPE)

    assert list(tmp_path.iterdir()) == []
