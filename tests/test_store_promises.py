"""What a store promises beside exactness: what it reads, what it leaves alone, what it refuses, and what it says."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import numpy.typing as npt
import pandas
import pytest

import dynfrsdb
from dynfrsdb_storage import layout, records

SHAPE: dict[str, Any] = {
    "n_estimators": 6,
    "q": 0.5,
    "min_samples_split": 2,
    "n_thresholds": 5,
    "seed": 7,
    "_bucket": 8,
}
Matrix = npt.NDArray[np.float64]


def people(n: int = 300, d: int = 4, seed: int = 0) -> tuple[Matrix, npt.NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, ((X[:, 0] + 0.3 * rng.normal(size=n)) > 0).astype(np.int64)


X, Y = people()


@pytest.fixture
def path(store_dir: Path) -> Path:
    """A store of 300 samples, each of one of 100 subjects."""
    path = store_dir / "people.forest"
    dynfrsdb.create(path, X, Y, subjects=[f"person {i % 100}" for i in range(len(X))], **SHAPE).close()
    return path


def changer(path: Path, settle: str | None = None) -> dynfrsdb.Database:
    return dynfrsdb.open(path, "w", settle=settle)


def receipt_of(change: dynfrsdb.Receipt | dynfrsdb.Plan) -> dynfrsdb.Receipt:
    """What a one-call form gives, unless it was a dry run."""
    assert isinstance(change, dynfrsdb.Receipt)
    return change


def files(path: Path) -> dict[str, str]:
    """The hash of every file of a store but its lock files."""
    found = [file for file in path.rglob("*") if file.is_file() and file.name not in ("LOCK", "lock.mdb")]
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


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


# What is read


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


# What is left alone


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


@pytest.mark.xfail(
    raises=dynfrsdb.CorruptStore, reason="Forest._load_list puts back a slot that came and went within the transaction"
)
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


# One function


def test_adding_an_id_again_gives_the_same_forest(path: Path) -> None:
    with changer(path) as db:
        digest, sample_digest = db.digest(), db.info()["sample_digest"]

        db.remove([17, 230])
        assert db.digest() != digest
        db.add(X[[230, 17]], Y[[230, 17]], ids=[230, 17], subjects=["somebody", None])

        assert (db.digest(), db.info()["sample_digest"]) == (digest, sample_digest)


def test_insertion_order_does_not_matter(store_dir: Path, path: Path) -> None:
    order = np.random.default_rng(1).permutation(len(X))
    with dynfrsdb.create(store_dir / "s", n_features=4, classes=[0, 1], **SHAPE) as db, dynfrsdb.open(path) as whole:
        for part in np.array_split(order, 7):
            db.add(X[part], Y[part], ids=part)

        assert db.digest() == whole.digest()
        assert db.predict_proba(X).tobytes() == whole.predict_proba(X).tobytes()
    with dynfrsdb.create(store_dir / "t", X[order], Y[order], ids=order, **SHAPE) as db, dynfrsdb.open(path) as whole:
        assert db.digest() == whole.digest()


def test_the_number_of_threads_does_not_matter(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for threads in ("1", "2", "7"):
        monkeypatch.setenv("DYNFRSDB_THREADS", threads)
        with dynfrsdb.create(store_dir / threads, X, Y, **SHAPE) as db:
            db.remove(range(40, 80))
            db.settle()
            seen.add((db.digest(), db.predict_proba(X).tobytes()))
            assert db.check()

    assert len(seen) == 1


def test_the_size_of_buckets_does_not_matter(store_dir: Path) -> None:
    digests = set()
    for bucket in (1, 2, 8, 128):
        with dynfrsdb.create(store_dir / str(bucket), X, Y, **{**SHAPE, "_bucket": bucket}) as db:
            db.remove(range(40, 80))
            digests.add(db.digest())

    assert len(digests) == 1


def test_settled_records_depend_on_the_live_samples_only(store_dir: Path) -> None:
    """Records of a store with a history are those of a fresh one, byte for byte, but for stamps and slots."""
    with dynfrsdb.create(store_dir / "s", X, Y, **SHAPE) as db:
        for first in range(0, 60, 10):
            db.remove(range(first, first + 10))
            db.predict(X[:50])
        db.settle()

        with dynfrsdb.create(store_dir / "fresh", X[60:], Y[60:], ids=range(60, 300), **SHAPE) as fresh:
            assert shapes(db) == shapes(fresh)


def shapes(db: dynfrsdb.Database) -> dict[bytes, bytes]:
    """What nodes hold apart from stamps, and how many samples each bucket has."""
    with db._store.snapshot() as snapshot:
        nodes = dict(snapshot.scan("nodes"))
        buckets = {key: data[:4] for key, data in snapshot.scan("buckets") if key[: layout.NODE_KEY_BYTES] not in nodes}
    return buckets | {key: data[:8] + (data[32:] if data[0] == 1 else data[16:]) for key, data in nodes.items()}


SPECIALISATIONS = """
import importlib, pkgutil, sys, tempfile
import numpy as np
import dynfrsdb, dynfrsdb_engine

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 5))
labels = {"classification": rng.integers(0, 3, 400), "regression": rng.normal(size=400)}
for task, criterion in (("classification", "gini"), ("classification", "entropy"), ("regression", None)):
    path = tempfile.mkdtemp(dir=sys.argv[1]) + "/s"
    y = labels[task]
    with dynfrsdb.create(path, X, y, task=task, criterion=criterion, n_estimators=4, q=.5, min_samples_split=2, _bucket=8) as db:
        db.remove(range(0, 40))
        db.add(X[:40], y[:40], ids=range(1000, 1040))
        db.predict(X), db.settle(), db.check(), db.verify(), db.digest(), db.sample(50)
    with dynfrsdb.open(path) as db:
        db.predict(X)
for module in pkgutil.iter_modules(dynfrsdb_engine.__path__, "dynfrsdb_engine."):
    for name, value in vars(importlib.import_module(module.name)).items():
        signatures = getattr(value, "nopython_signatures", ())
        if len(signatures) > 1 and value.__module__ == module.name and any("array" in str(s.args).lower() for s in signatures):
            print(module.name, name, len(signatures), *signatures, sep="\\n    ")
"""


def test_every_kernel_that_takes_arrays_has_one_specialisation(store_dir: Path) -> None:
    """Whatever the task: arrays cross into kernels with one type each, or everything is compiled twice."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SPECIALISATIONS), str(store_dir)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == ""


# Requests and receipts


def test_asking_twice_changes_nothing_and_gives_the_first_receipt(path: Path) -> None:
    with changer(path) as db:
        first = db.remove([5, 6], request_id="request 1")
        added = receipt_of(db.add(X[:2], Y[:2], request_id="request 2"))
        before = files(path)

        again = db.remove([5, 6], request_id="request 1")
        added_again = receipt_of(db.add(X[:2], Y[:2], request_id="request 2"))

        assert again == first
        assert (added_again, added_again.ids) == (added, added.ids)
        assert added.ids == (300, 301)
        assert files(path) == before


def test_a_request_is_known_in_another_process_of_the_same_store(path: Path) -> None:
    with changer(path) as db:
        first = db.forget("person 9", request_id=b"\xff\x00")
    with changer(path) as db, db.transaction(request_id=b"\xff\x00") as txn:
        assert txn.replayed
        txn.forget("person 9")

    assert txn.receipt == first


def test_a_request_id_that_is_used_for_something_else_is_a_conflict(path: Path) -> None:
    with changer(path) as db:
        db.remove([5, 6], request_id="request 1")
        others: list[Callable[[], object]] = [
            lambda: db.remove([5], request_id="request 1"),
            lambda: db.remove([6, 5], request_id="request 1"),
            lambda: db.forget("person 5", request_id="request 1"),
            lambda: db.add(X[:1], Y[:1], request_id="request 1"),
        ]
        for act in others:
            with pytest.raises(dynfrsdb.RequestConflict, match="used before for something else"):
                act()

        assert len(db) == 298


def test_a_request_that_failed_is_not_known(path: Path) -> None:
    with changer(path) as db:
        with pytest.raises(dynfrsdb.SampleNotFound):
            db.remove([5, 5555], request_id="request 1")

        receipt = db.remove([5], request_id="request 1")

        assert receipt.removed == 1


def test_receipts_form_a_chain(path: Path) -> None:
    with changer(path) as db:
        start = db.info()["sample_digest"]
        given = [
            receipt_of(db.remove([1, 2])),
            receipt_of(db.add(X[:3], Y[:3])),
            receipt_of(db.forget("person 50")),
            receipt_of(db.add(X[[1, 2]], Y[[1, 2]], ids=[1, 2])),
        ]
        ledger = db.ledger()

        assert ledger[1:] == given
        assert [receipt.sequence for receipt in ledger] == [1, 2, 3, 4, 5]
        for before, after in pairwise(ledger):
            assert after.prev == before.hash
            assert after.digest_before == before.digest_after
        assert (ledger[0].digest_after, ledger[-1].digest_after) == (start, db.info()["sample_digest"])
        assert [(r.added, r.removed, r.samples) for r in given] == [(0, 2, 298), (3, 0, 301), (0, 3, 298), (2, 0, 300)]
        assert all(0 < r.trees <= 6 and r.nodes >= r.trees for r in given)


def test_the_digest_of_the_samples_is_that_of_a_fresh_store(store_dir: Path, path: Path) -> None:
    with changer(path) as db, dynfrsdb.create(store_dir / "s", X[10:], Y[10:], ids=range(10, 300), **SHAPE) as fresh:
        db.remove(range(10))

        assert db.info()["sample_digest"] == fresh.info()["sample_digest"]


def test_a_receipt_holds_no_raw_identifier(path: Path) -> None:
    with changer(path) as db:
        receipt = receipt_of(db.forget("person 50"))

    text = str(receipt.as_dict())
    assert "person" not in text
    assert len(receipt.removed_ids) == 3
    assert all(len(value) == 32 for value in (*receipt.removed_ids, *receipt.subjects))


# Frames and words


def test_frames_are_taken_and_their_columns_checked(store_dir: Path) -> None:
    frame = pandas.DataFrame(X, columns=["age", "weight", "height", "pulse"])
    with dynfrsdb.create(store_dir / "s", frame, pandas.Series(Y), **SHAPE) as db:
        db.add(frame[:2], pandas.Series(Y[:2]), ids=pandas.Series([900, 901]))
        answers = db.predict_proba(frame)

        assert answers.tobytes() == db.predict_proba(X).tobytes()
        with pytest.raises(dynfrsdb.InvalidInput, match="column 0 of X is 'pulse', this store expects 'age' there"):
            db.predict(frame[["pulse", "weight", "height", "age"]])
        with pytest.raises(dynfrsdb.InvalidInput, match="row 3, column 'weight' is NaN"):
            db.add(frame.assign(weight=np.where(np.arange(300) == 3, np.nan, 1.0)), Y)
        assert len(db) == 302


def refusals(db: dynfrsdb.Database, path: Path) -> list[tuple[type[Exception], str, Any]]:
    nan = X[:3].copy()
    nan[1, 2] = np.nan
    return [
        (KeyError, f"sample 4141 is not in '{path}'", lambda: db.remove([3, 4141])),
        (KeyError, f"no sample of this subject is in '{path}'", lambda: db.forget("nobody")),
        (
            ValueError,
            f"row 1: sample 7 is already in '{path}'; remove it first or choose another id",
            lambda: db.add(X[:2], Y[:2], ids=[999, 7]),
        ),
        (
            ValueError,
            "id 7 is given twice, in rows 0 and 1; give each sample its own id",
            lambda: db.add(X[:2], Y[:2], ids=[7, 7]),
        ),
        (ValueError, "row 1, column 2 is NaN; dynfrsdb stores finite numbers only", lambda: db.add(nan, Y[:3])),
        (ValueError, "row 0, column 1 is too large", lambda: db.add([[0.0, 1e39, 0.0, 0.0]], [0])),
        (ValueError, "row 0 has 3 features, this store takes 4", lambda: db.add(X[:2, :3], Y[:2])),
        (
            ValueError,
            "row 0 of y is 5, which is not a class of this store; its classes are 0, 1",
            lambda: db.add(X[:1], [5]),
        ),
        (ValueError, "y has 1 entries for 2 rows of X; pass one per row", lambda: db.add(X[:2], [1])),
    ]


def test_bad_input_is_refused_in_words_and_nothing_is_changed(path: Path) -> None:
    with changer(path) as db:
        db.remove([0])
        before = files(path)

        for kind, words, act in refusals(db, path):
            with pytest.raises(dynfrsdb.Error) as caught:
                act()
            assert isinstance(caught.value, kind)
            assert words in str(caught.value)
        assert files(path) == before


def test_misuse_is_refused_in_words(path: Path) -> None:
    with changer(path) as db, dynfrsdb.open(path) as reader:
        with pytest.raises(dynfrsdb.ReadOnly, match="is open for reading"):
            reader.remove([1])
        with db.transaction() as txn:
            with pytest.raises(dynfrsdb.TransactionMisuse, match="has a transaction open already"), db.transaction():
                pass
            txn.remove([1])
        with pytest.raises(dynfrsdb.TransactionMisuse, match="use it inside its 'with' block"):
            txn.remove([2])
        with pytest.raises(dynfrsdb.StoreExists):
            dynfrsdb.create(path, X, Y)
    with pytest.raises(dynfrsdb.ClosedStore):
        db.predict(X)
    with pytest.raises(dynfrsdb.StoreNotFound):
        dynfrsdb.open(path.parent / "nowhere")


def test_an_empty_forest_gives_no_answer(path: Path) -> None:
    with changer(path) as db:
        db.remove(range(300))

        with pytest.raises(dynfrsdb.EmptyForest, match="holds no samples; add some first"):
            db.predict(X)
        assert db.check()
        db.add(X, Y, ids=range(300))
        assert db.verify()


def test_no_text_shows_the_seed(path: Path) -> None:
    with changer(path) as db:
        seed = db._settings.seed
        for text in (repr(db), str(db.info()), str(db.ledger()), repr(db._settings)):
            assert seed.hex() not in text
            assert str(seed) not in text


# Readers


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


# Damage


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
