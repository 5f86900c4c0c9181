"""The product's claim as a state machine: whatever happens to a store, it is the forest of the samples that are left.

    model       a dict of live samples
    rules       everything the public face offers that changes a store, rebuilds it, looks at it, or fails half way
    invariant   the settled digest, and the answers bit for bit, are those of a forest grown in memory from the model;
                every tenth step the naive twin is asked as well
    at the end  a fresh store of the survivors has the same digest, and `check` finds nothing

Rows come from a small pool of nasty data and ids from a small set, and the two are picked independently, so samples
are added again under an old id with old or new values. The invariant looks through a snapshot, with a working set of
its own: the handles under test are not disturbed by being watched, and tags pile up in them as they would in life.
Three handles look at one store: the one that changes it most, another writer, and a reader that is asked now and then
and has to catch up.

`tools/soak` runs this for as long as one likes; tests/test_state_machine.py runs a fixed number of steps.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import dynfrsdb
from dynfrsdb import settle as settling
from tests import naive, nasty
from tests.survivors import Nursery

MEMORY = Path("/dev/shm")
POOL = 48
IDS = (*range(40), 10**12, 2**63, 2**64 - 2, 2**64 - 1)
PEOPLE = tuple(f"person {i}" for i in range(5))
MAX_FEATURES: dict[str, Any] = {"one": 1, "sqrt": "sqrt", "all": "all"}

numbers = st.integers(0, 999)
few = st.lists(numbers, min_size=1, max_size=4)
many = st.lists(numbers, min_size=5, max_size=30)
handles = st.sampled_from(["first", "first", "second"])


class RolledBack(Exception):
    """Raised inside a transaction to make it fail."""


@dataclass(frozen=True)
class Call:
    """One call inside a transaction, with everything it was given."""

    verb: str
    samples: tuple[naive.Sample, ...] = ()
    ids: tuple[int, ...] = ()
    person: str = ""
    rows: tuple[int, ...] = ()


Live = dict[int, naive.Sample]


def person_of(id: int) -> str | None:
    """Whose sample this is; every third belongs to nobody."""
    return None if id % 3 == 0 else PEOPLE[id % len(PEOPLE)]


def folder() -> Path:
    """A new folder, in memory where that is possible."""
    return Path(tempfile.mkdtemp(prefix="dynfrsdb-", dir=MEMORY if MEMORY.is_dir() else None))


class ForestMachine(RuleBasedStateMachine):
    """Rules that change a store and a dict alike."""

    task: ClassVar[nasty.Task] = "binary"
    steps: ClassVar[int] = 0

    @initialize(
        data=st.data(),
        pool=st.integers(0, 2**32),
        shape=st.sampled_from(nasty.SHAPES),
        bucket=st.sampled_from([2, 3, 64]),
        settle=st.sampled_from([None, None, "auto"]),
        start=st.sampled_from([0, 12, 40, 40]),
    )
    def create(
        self, data: st.DataObject, pool: int, shape: nasty.Shape, bucket: int, settle: str | None, start: int
    ) -> None:
        self.folder, self.taken = folder(), 0
        self.pool = nasty.make(pool, self.task, n=POOL)
        self.arguments: dict[str, Any] = {
            "n_features": self.pool.rows.shape[1],
            "n_estimators": shape.n_trees,
            "q": {"all": 1.0, "one tree": 1.0 / shape.n_trees, "half": 0.5}[shape.q_rule],
            "max_features": MAX_FEATURES[shape.p_rule],
            "n_thresholds": shape.s,
            "max_depth": shape.max_depth,
            "min_samples_split": shape.min_samples_split,
            "criterion": data.draw(st.sampled_from(nasty.CRITERIA[self.task])),
            "seed": pool,
            "_bucket": bucket,
            **self.about_targets(data.draw(st.sampled_from(nasty.OFFSETS_AND_STEPS))),
        }
        chosen = [self.sample(IDS[i], i) for i in range(start)]
        self.build(self.folder / "store", chosen).close()
        self.settle_by_itself = settle
        self.live: Live = {sample.id: sample for sample in chosen}
        self.next_id = start
        self.aside: Any = None
        self.asked: dict[str, tuple[list[Call], dynfrsdb.Receipt]] = {}
        self.open()
        self.nursery = Nursery(self.db._settings)
        self.grown = self.nursery.grow(self.live.values())

    def about_targets(self, target: tuple[float, float]) -> dict[str, Any]:
        if self.task == "regression":
            self.labels: list[Any] = []
            return {"task": "regression", "target_offset": target[0], "target_step": target[1]}
        self.labels = [f"class {c}" for c in range(nasty.CLASSES[self.task])] if self.task == "multiclass" else [0, 1]
        return {"classes": self.labels}

    def build(self, path: Path, samples: list[naive.Sample]) -> dynfrsdb.Database:
        """A store made of these samples at once."""
        if not samples:
            return dynfrsdb.create(path, **self.arguments)
        X, y, ids, people = self.columns(samples)
        return dynfrsdb.create(path, X, y, ids=ids, subjects=people, **self.arguments)

    def open(self) -> None:
        self.db = dynfrsdb.open(self.folder / "store", "w", settle=self.settle_by_itself)
        self.second = dynfrsdb.open(self.folder / "store", "w", settle=None)
        self.reader = dynfrsdb.open(self.folder / "store", "r")

    def close(self) -> None:
        for handle in (self.reader, self.second, self.db):
            handle.close()

    # Samples

    def sample(self, id: int, row: int) -> naive.Sample:
        row %= POOL
        return naive.Sample(id, naive.as_row(self.pool.rows[row]), int(self.pool.y[row]))

    def columns(
        self, samples: Iterable[naive.Sample]
    ) -> tuple[npt.NDArray[np.float32], list[Any], list[int], list[str | None]]:
        """X, y, ids and subjects, as a caller has them."""
        samples = list(samples)
        X = np.array([sample.x for sample in samples], np.float32).reshape(len(samples), -1)
        return (
            X,
            [self.label(sample.y) for sample in samples],
            [s.id for s in samples],
            [person_of(s.id) for s in samples],
        )

    def label(self, y: int) -> Any:
        """A target as the caller has it."""
        return self.labels[y] if self.labels else self.arguments["target_offset"] + self.arguments["target_step"] * y

    def newcomers(self, live: Live, picks: list[int]) -> list[naive.Sample]:
        """Samples under ids that nobody has now; the same picks give an old id other values now and then."""
        free = [id for id in IDS if id not in live]
        ids = dict.fromkeys(free[pick % len(free)] for pick in picks) if free else {}
        return [self.sample(id, pick // 7) for id, pick in zip(ids, picks, strict=False)]

    def leavers(self, live: Live, picks: list[int]) -> list[int]:
        ids = sorted(live)
        return list(dict.fromkeys(ids[pick % len(ids)] for pick in picks)) if ids else []

    def questions(self, picks: Iterable[int]) -> npt.NDArray[np.float32]:
        """Rows of the pool, some of them a little beside."""
        rows = self.pool.rows[[pick % POOL for pick in picks]].copy()
        beside = [pick % 3 == 0 for pick in picks]
        rows[beside] = np.nextafter(rows[beside], np.float32(0.0))
        return rows

    # What both do

    def handle(self, which: str) -> dynfrsdb.Database:
        return self.db if which == "first" else self.second

    def become(self, live: Live) -> None:
        self.live = live
        self.grown = self.nursery.grow(live.values())

    def calls(self, live: Live, picks: list[tuple[str, list[int]]]) -> list[Call]:
        """Calls that make sense one after the other."""
        made = []
        live = dict(live)
        for verb, numbers in picks:
            call = self.call(live, verb, numbers)
            if call is not None:
                made.append(call)
                live = after(live, call)
        return made

    def call(self, live: Live, verb: str, picks: list[int]) -> Call | None:
        if verb == "add":
            samples = self.newcomers(live, picks)
            return Call("add", samples=tuple(samples)) if samples else None
        if verb == "remove":
            ids = self.leavers(live, picks)
            return Call("remove", ids=tuple(ids)) if ids else None
        if verb == "forget":
            person = PEOPLE[picks[0] % len(PEOPLE)]
            return Call("forget", person=person) if person in map(person_of, live) else None
        return Call("predict", rows=tuple(picks)) if live else None

    def say(self, txn: dynfrsdb.Transaction, call: Call) -> None:
        """Make a call."""
        if call.verb == "add":
            X, y, ids, people = self.columns(call.samples)
            assert txn.add(X, y, ids, people).tolist() == ids
        elif call.verb == "remove":
            txn.remove(list(call.ids))
        elif call.verb == "forget":
            txn.forget(call.person)
        else:
            txn.predict(self.questions(call.rows))

    def do(self, txn: dynfrsdb.Transaction, calls: list[Call]) -> Live:
        """Make calls, holding every answer on the way against the forest that the samples of that moment make."""
        live = dict(self.live)
        for call in calls:
            if call.verb == "predict":
                grown = self.nursery.grow(live.values())
                self.same_answers(txn.predict, self.questions(call.rows), grown.answers)
            else:
                self.say(txn, call)
                live = after(live, call)
        return live

    def same_answers(
        self,
        said: Callable[[npt.NDArray[np.float32]], npt.NDArray[Any]],
        X: npt.NDArray[np.float32],
        expected: Callable[..., npt.NDArray[Any]],
    ) -> None:
        got, want = said(X), expected(X)
        assert got.tobytes() == want.tobytes(), (got, want)

    # Rules

    @rule(pick=numbers, which=handles)
    def add_one(self, pick: int, which: str) -> None:
        self.change(which, [("add", [pick])])

    @rule(picks=many, which=handles)
    def add_a_batch(self, picks: list[int], which: str) -> None:
        self.change(which, [("add", picks)])

    @rule(pick=numbers, which=handles)
    def remove_one(self, pick: int, which: str) -> None:
        self.change(which, [("remove", [pick])])

    @rule(picks=st.one_of(few, few, many), which=handles)
    def remove_a_batch(self, picks: list[int], which: str) -> None:
        self.change(which, [("remove", picks)])

    @rule(pick=numbers)
    def forget_a_person(self, pick: int) -> None:
        self.change("first", [("forget", [pick])])

    def change(self, which: str, picks: list[tuple[str, list[int]]]) -> None:
        """One change by the one-call form."""
        db, calls = self.handle(which), self.calls(self.live, picks)
        for call in calls:
            if call.verb == "add":
                X, y, ids, people = self.columns(call.samples)
                receipt = db.add(X, y, ids, people)
            else:
                receipt = db.remove(list(call.ids)) if call.verb == "remove" else db.forget(call.person)
            now = after(self.live, call)
            assert (receipt.added, receipt.removed) == (
                len(now.keys() - self.live.keys()),
                len(self.live.keys() - now.keys()),
            )
            self.note_ids(call)
            self.become(now)

    def note_ids(self, call: Call) -> None:
        self.next_id = max([self.next_id, *(sample.id + 1 for sample in call.samples)])

    @rule(pick=numbers)
    def add_under_an_assigned_id(self, pick: int) -> None:
        sample = self.sample(self.next_id, pick)
        X, y, _, _ = self.columns([sample])
        try:
            receipt = self.db.add(X, y)
        except dynfrsdb.InvalidInput:
            assert self.next_id >= 2**64 - 1
        else:
            assert isinstance(receipt, dynfrsdb.Receipt)
            assert receipt.ids == (sample.id,)
            self.next_id += 1
            self.become(self.live | {sample.id: sample})
            self.change("first", [("remove", [sorted(self.live).index(sample.id)])])

    @precondition(lambda self: self.live)
    @rule(pick=numbers, row=numbers)
    def replace_a_sample(self, pick: int, row: int) -> None:
        id = self.leavers(self.live, [pick])[0]
        new = self.sample(id, row)
        X, y, ids, people = self.columns([new])
        with self.db.transaction() as txn:
            txn.remove(id)
            txn.add(X, y, ids, people)
        self.become(self.live | {id: new})

    @rule(
        picks=st.lists(
            st.tuples(st.sampled_from(["add", "remove", "forget", "predict", "predict"]), st.one_of(few, many)),
            max_size=6,
        ),
        which=handles,
        ending=st.sampled_from(["commit", "commit", "exception", "unknown id", "bad row"]),
    )
    def transaction(self, picks: list[tuple[str, list[int]]], which: str, ending: str) -> None:
        calls = self.calls(self.live, picks)
        try:
            with self.handle(which).transaction() as txn:
                now = self.do(txn, calls)
                self.end(txn, ending)
        except (RolledBack, dynfrsdb.SampleNotFound, dynfrsdb.InvalidInput):
            assert txn.receipt is None
            return
        for call in calls:
            self.note_ids(call)
        self.become(now)

    def end(self, txn: dynfrsdb.Transaction, ending: str) -> None:
        if ending == "exception":
            raise RolledBack
        if ending == "unknown id":
            txn.remove([77_777])
        if ending == "bad row":
            txn.add([[float("nan")] * self.arguments["n_features"]], [self.label(0)])

    @rule(picks=st.lists(st.tuples(st.sampled_from(["add", "remove", "forget"]), few), min_size=1, max_size=3))
    def carry_out_a_request(self, picks: list[tuple[str, list[int]]]) -> None:
        calls, name = self.calls(self.live, picks), f"request {len(self.asked)}"
        with self.db.transaction(request_id=name) as txn:
            assert not txn.replayed
            now = self.do(txn, calls)
        assert txn.receipt is not None
        self.asked[name] = (calls, txn.receipt)
        for call in calls:
            self.note_ids(call)
        self.become(now)

    @precondition(lambda self: self.asked)
    @rule(pick=numbers, which=handles, other=st.booleans())
    def ask_again(self, pick: int, which: str, other: bool) -> None:
        name = list(self.asked)[pick % len(self.asked)]
        calls, receipt = self.asked[name]
        try:
            with self.handle(which).transaction(request_id=name) as txn:
                assert txn.replayed
                for call in calls:
                    self.say(txn, call)
                if other:
                    txn.remove([5])
        except dynfrsdb.RequestConflict:
            assert other
        else:
            assert not other
            assert txn.receipt == receipt

    @rule(picks=few, verb=st.sampled_from(["add", "remove", "forget"]))
    def plan_a_change(self, picks: list[int], verb: str) -> None:
        for call in self.calls(self.live, [(verb, picks)]):
            if verb == "add":
                X, y, ids, people = self.columns(call.samples)
                plan = self.db.add(X, y, ids, people, dry_run=True)
            else:
                plan = (
                    self.db.remove(list(call.ids), dry_run=True)
                    if verb == "remove"
                    else self.db.forget(call.person, dry_run=True)
                )
            assert isinstance(plan, dynfrsdb.Plan)

    @precondition(lambda self: self.live)
    @rule(picks=st.one_of(few, many), which=st.sampled_from(["first", "second", "reader"]))
    def query(self, picks: list[int], which: str) -> None:
        handle = self.reader if which == "reader" else self.handle(which)
        self.same_answers(handle.predict, self.questions(picks), self.grown.answers)
        if self.labels:
            self.same_answers(handle.predict_proba, self.questions(picks), self.grown.means)

    @rule(which=handles, limit=st.sampled_from([None, None, 1, 10]))
    def settle(self, which: str, limit: int | None) -> None:
        self.handle(which).settle(limit)
        if limit is None:
            assert self.db.info()["tags"] == 0

    @precondition(lambda self: self.aside is None)
    @rule(which=handles)
    def grow_tags_aside(self, which: str) -> None:
        """What comes of it is used when anything else may have happened."""
        db = self.handle(which)
        with db._store.write(purpose="settle") as session:
            aside = settling.set_aside(db, session, small=0)
        self.aside = None if aside is None else settling.grow_aside(db, aside)

    @precondition(lambda self: self.aside is not None)
    @rule(which=handles)
    def take_what_was_grown_aside(self, which: str) -> None:
        db = self.handle(which)
        with db._store.write(purpose="settle") as session:
            settling.take_back(db, session, self.aside)
        self.aside = None

    @precondition(lambda self: self.taken % 11 == 0)
    @rule(which=handles)
    def vacuum(self, which: str) -> None:
        """The handle that vacuums cannot erase what the other two still have open; they let go when they are asked."""
        self.handle(which).vacuum()
        assert len(self.db) == len(self.second) == len(self.reader)
        self.handle(which)._store.erase_pending(timeout=10)
        assert {each.stage for each in self.reader.erasure_status()} <= {"erased"}
        assert len(list((self.folder / "store").glob("gen-*"))) == 1

    @rule(settle=st.sampled_from([None, "auto"]))
    def close_and_reopen(self, settle: str | None) -> None:
        self.close()
        self.settle_by_itself = settle
        self.open()

    @precondition(lambda self: len(self.live) < 12)
    @rule(row=numbers, which=handles)
    def fill_the_forest(self, row: int, which: str) -> None:
        """Without this most steps would be spent on forests too small to hold a split."""
        self.change(which, [("add", list(range(row, row + len(IDS))))])

    @precondition(lambda self: len(self.live) > 2 and self.taken % 7 == 0)
    @rule()
    def empty_the_forest(self) -> None:
        self.db.remove(sorted(self.live))
        self.become({})

    # What must hold

    @invariant()
    def the_forest_is_that_of_the_survivors(self) -> None:
        type(self).steps += 1
        self.taken += 1
        assert len(self.db) == len(self.live)
        assert self.db.digest() == self.grown.digest()
        with self.db.snapshot() as snapshot:
            X = self.pool.rows[:4]
            if self.live:
                self.same_answers(snapshot.predict, X, self.grown.answers)
            else:
                self.refuses(snapshot, X)
        if self.taken % 10 == 0:
            assert self.db.digest() == self.nursery.twin_digest(self.live.values())
            self.sound(self.db)

    def refuses(self, snapshot: dynfrsdb.Snapshot, X: npt.NDArray[np.float32]) -> None:
        try:
            snapshot.predict(X)
        except dynfrsdb.EmptyForest:
            return
        raise AssertionError("an empty forest gave an answer")

    def sound(self, db: dynfrsdb.Database) -> None:
        problems = db.check().problems
        assert not problems, problems

    def teardown(self) -> None:
        if not hasattr(self, "folder"):
            return
        try:
            if hasattr(self, "grown"):
                self.compare_with_a_fresh_store()
        finally:
            if hasattr(self, "reader"):
                self.close()
            shutil.rmtree(self.folder)

    def compare_with_a_fresh_store(self) -> None:
        survivors = [self.live[id] for id in sorted(self.live)]
        with self.build(self.folder / "fresh", survivors) as fresh:
            assert self.db.digest() == fresh.digest() == self.nursery.twin_digest(survivors)
            self.sound(fresh)
        self.sound(self.db)
        assert self.db.verify()


def after(live: Live, call: Call) -> Live:
    """The samples that live after a call."""
    gone = set(call.ids) | {id for id in live if call.person and person_of(id) == call.person}
    return {id: sample for id, sample in live.items() if id not in gone} | {
        sample.id: sample for sample in call.samples
    }


class Binary(ForestMachine):
    """Two classes, Gini and entropy."""

    task = "binary"


class Multiclass(ForestMachine):
    """Five classes, Gini and entropy."""

    task = "multiclass"


class Regression(ForestMachine):
    """Fixed-point targets up to 2^40."""

    task = "regression"


MACHINES: tuple[type[ForestMachine], ...] = (Binary, Multiclass, Regression)
