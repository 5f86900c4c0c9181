"""Whatever a caller passes: an error of ours that says what to do, and nothing has changed.

Three kinds of tests. Tables of bad arguments, one per parameter of the public face, each tried alone. Directed misuse:
of transactions, closed handles, request ids. And a fuzz that mixes good and bad calls in random order, whose model is
the set of ids that must be there.
"""

from __future__ import annotations

import inspect
import math
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import dynfrsdb
from tests.reliability.workload import BATCH, add, chance, new_store, values

opening: Any = dynfrsdb.open
creating: Any = dynfrsdb.create
"""The same functions, for calls that a type checker would refuse."""
NAN, INF = float("nan"), float("inf")
PEOPLE = 60
ROW = values([1000]).tolist()
ROUNDS = 150

BAD_ROWS: list[Any] = [
    None,
    3,
    "rows",
    b"rows",
    {"a": 1},
    {1, 2},
    object(),
    iter(ROW),
    [1.0, 2.0, 3.0, 4.0],
    [[]],
    [[1.0, 2.0, 3.0]],
    [[1.0, 2.0, 3.0, 4.0, 5.0]],
    [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0]],
    [[1.0, 2.0, 3.0, NAN]],
    [[1.0, 2.0, 3.0, INF]],
    [[1.0, 2.0, 3.0, 1e39]],
    [[1.0, 2.0, 3.0, 10**400]],
    [[1.0, 2.0, 3.0, None]],
    [[1.0, 2.0, 3.0, "4"]],
    [[1.0, 2.0, 3.0, 4j]],
    [None],
    np.zeros((1, 2, 4)),
    np.zeros((1, 4), complex),
    np.zeros((1, 4), "M8[s]"),
    np.array(1.0),
    np.ma.masked_array(np.zeros((1, 4)), mask=True),
    pandas.DataFrame([["a", "b", "c", "d"]]),
    pandas.DataFrame([[1.0, None, 3.0, 4.0]]),
]
BAD_TARGETS: list[Any] = [
    None, 3, "no", b"no", {"no": 1}, {"no"}, [], ["no", "yes"], [["no"]], ["maybe"], [NAN], [None], [1j], [{}],
    np.array([["no"]]), object(),
]  # fmt: skip
BAD_IDS: list[Any] = [
    "1000", 3.0, object(), True, ["1000"], [-1], [2**64], [10**30], [1.5], [None], [[1000]], [True], [NAN],
    {"id": 1000}, np.array([1000.0]), np.array(["1000"]), np.array([[1000]]),
]  # fmt: skip
BAD_IDS_OF_ONE_ROW: list[Any] = [*BAD_IDS, [], [1000, 1001], {1000}]
BAD_SUBJECTS: list[Any] = ["one", 3, [], ["a", "b"], [3], [""], [b""], [NAN], [["a"]], {"a"}, {"a": 1}, ["\ud800"]]
BAD_SECONDS: list[Any] = ["1", None, [], True, -1, -INF, NAN, 1j]
BAD_PATHS: list[Any] = [None, 3, [], object(), "", b"", "a\0b", "\ud800"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_store(tmp_path_factory.mktemp("bad") / "people.forest", PEOPLE)


@pytest.fixture
def db(path: Path) -> Iterator[dynfrsdb.Database]:
    """A store for writing that must be the same after the test as before it."""
    with dynfrsdb.open(path, "w") as db:
        before = state(db)
        yield db
    with dynfrsdb.open(path) as after:
        assert state(after) == before
        assert after.check().problems == ()


def state(db: dynfrsdb.Database) -> tuple[Any, ...]:
    """What nothing refused may change."""
    return db.digest(), len(db), len(db.ledger()), db.info()["sample_digest"]


def refusal(act: Callable[[], Any]) -> str:
    """The message of the error of ours that `act` must raise."""
    with pytest.raises(dynfrsdb.Error) as caught:
        act()
    message = str(caught.value)
    assert len(message) > 15
    assert message[0] in "'" or not message[0].isupper() or message.startswith(("X ", "LMDB "))
    return message


def named(values: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bad", values, ids=[f"{i}-{type(value).__name__}" for i, value in enumerate(values)])


@named(BAD_ROWS)
def test_rows_that_are_none_are_refused(db: dynfrsdb.Database, bad: Any) -> None:
    refusal(lambda: db.add(bad, ["no"], ids=[1000]))
    refusal(lambda: db.predict(bad))
    refusal(lambda: db.predict_proba(bad))
    with db.snapshot() as snapshot:
        refusal(lambda: snapshot.predict(bad))


@named(BAD_TARGETS)
def test_targets_that_are_none_are_refused(db: dynfrsdb.Database, bad: Any) -> None:
    refusal(lambda: db.add(ROW, bad))


@named(BAD_IDS)
def test_ids_that_are_none_are_refused(db: dynfrsdb.Database, bad: Any) -> None:
    refusal(lambda: db.remove(bad))
    refusal(lambda: db.sample(bad))
    assert bad not in db


@named(BAD_IDS_OF_ONE_ROW)
def test_ids_that_do_not_name_the_rows_are_refused(db: dynfrsdb.Database, bad: Any) -> None:
    refusal(lambda: db.add(ROW, ["no"], ids=bad))


@named(BAD_SUBJECTS)
def test_subjects_that_are_none_are_refused(db: dynfrsdb.Database, bad: Any) -> None:
    refusal(lambda: db.add(ROW, ["no"], subjects=bad))
    refusal(lambda: db.forget(bad))


@named(BAD_SECONDS)
def test_seconds_that_are_none_are_refused(db: dynfrsdb.Database, bad: Any) -> None:
    def hold() -> None:
        with db.snapshot(bad):
            pass

    refusal(lambda: db.transaction(timeout=bad))
    refusal(lambda: db.remove([1], timeout=bad))
    refusal(lambda: db.settle(timeout=bad))
    refusal(hold)


def test_waiting_for_ever_is_a_number_of_seconds(db: dynfrsdb.Database) -> None:
    assert isinstance(db.remove([1], timeout=math.inf, dry_run=True), dynfrsdb.Plan)


@named(BAD_PATHS)
def test_paths_that_are_none_are_refused(db: dynfrsdb.Database, bad: Any) -> None:
    refusal(lambda: dynfrsdb.open(bad))
    refusal(lambda: dynfrsdb.open(bad, "w"))
    refusal(lambda: dynfrsdb.create(bad, ROW, ["no"]))
    refusal(lambda: db.backup(bad))


@pytest.mark.parametrize(
    "call",
    [
        lambda path: opening(path, "rw"),
        lambda path: opening(path, None),
        lambda path: opening(path, b"r"),
        lambda path: opening(path, settle="always"),
        lambda path: opening(path, cache_bytes=-1),
        lambda path: opening(path, cache_bytes="1 GB"),
        lambda path: opening(path, cache_bytes=True),
        lambda path: creating(path, ROW, ["no"]),
        lambda path: creating(path / "inside.forest", None, ["no"], n_features=1),
        lambda path: creating(path.parent / "new.forest", ROW, ["no"], progress="bar"),
        lambda path: creating(path.parent / "new.forest", ROW * 2, ["no", "yes"], ids=[7, 7]),
        lambda path: creating(path.parent / "new.forest", ids=[7], n_features=1, classes=["a", "b"]),
    ],
)
def test_opening_and_creating_refuse_what_they_do_not_know(
    db: dynfrsdb.Database, path: Path, call: Callable[[Path], Any]
) -> None:
    refusal(lambda: call(path))

    assert not (path.parent / "new.forest").exists()
    assert not list(path.parent.glob(".*creating*"))


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db.settle("all"),
        lambda db: db.settle(-1),
        lambda db: db.settle(1.5),
        lambda db: db.settle(progress=3),
        lambda db: db.verify("all"),
        lambda db: db.verify(0),
        lambda db: db.verify(1.5),
        lambda db: db.verify(True),
        lambda db: db.verify(progress=3),
        lambda db: db.check(progress="bar"),
        lambda db: db.backup(db.path.parent / "copy.forest", progress="bar"),
        lambda db: db.remove([1], request_id=""),
        lambda db: db.remove([1], request_id=3),
        lambda db: db.remove([1, 1]),
        lambda db: db.remove([1, 10**6]),
        lambda db: db.forget("nobody"),
        lambda db: db.add(ROW * 2, ["no", "no"], ids=[1000, 1000]),
        lambda db: db.add(ROW, ["no"], ids=[1]),
        lambda db: db.sample(10**6),
    ],
)
def test_other_arguments_that_make_no_sense_are_refused(
    db: dynfrsdb.Database, call: Callable[[dynfrsdb.Database], Any]
) -> None:
    refusal(lambda: call(db))


JUNK: list[Any] = [
    None, True, -1, 3, 10**30, 1.5, NAN, INF, 1j, "", "x", "\ud800", "a\0b", b"x", [], [None], ["a"], {"a": 1},
    object(), np.zeros((1, 4)), np.zeros(3), np.array("x"), "9999-99-99",
]  # fmt: skip
PLAUSIBLE: dict[str, Any] = {"X": ROW, "y": ["no"], "ids": [1], "n_features": 4}


def face(db: dynfrsdb.Database) -> dict[str, Callable[..., Any]]:
    """Everything that can be called, but for what ends the handle."""
    functions = {name: getattr(dynfrsdb, name) for name in dynfrsdb.__all__}
    methods = {name: getattr(db, name) for name in dir(db) if not name.startswith("_") and name != "close"}
    return {name: act for name, act in {**functions, **methods}.items() if inspect.isroutine(act)}


def with_junk(act: Callable[..., Any], place: Path) -> Iterator[dict[str, Any]]:
    """Arguments for `act`, of which one is junk; the others, as far as it needs them, are plausible."""
    there = [each for each in inspect.signature(act).parameters.values() if each.kind < each.VAR_KEYWORD]
    needed = {each.name: PLAUSIBLE.get(each.name, str(place / "new")) for each in there if each.default is each.empty}
    for each in there:
        if each.kind != each.VAR_POSITIONAL:
            yield from ({**needed, each.name: bad} for bad in JUNK)


def test_whatever_is_passed_to_whatever_there_is_raises_nothing_but_errors_of_ours(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What some junk happens to mean, is done; so this is a store of its own."""
    monkeypatch.chdir(tmp_path)
    with dynfrsdb.open(path) as original:
        original.backup(tmp_path / "copy.forest")
    calls, raw = 0, list[str]()
    with dynfrsdb.open(tmp_path / "copy.forest", "w", settle=None) as db:
        for name, act in face(db).items():
            for given in with_junk(act, tmp_path):
                calls += 1
                try:
                    act(**given)
                except dynfrsdb.Error as error:
                    if len(str(error)) < 15:
                        raw.append(f"{name}({given}): {error!r}")
                except Exception as error:
                    raw.append(f"{name}({given}): {error!r}")

        print(f"{calls} calls")
        assert raw == []
        assert calls > 1000
        assert db.check().problems == ()
        assert db.verify().differing == ()


def test_a_handle_for_reading_changes_nothing(db: dynfrsdb.Database, path: Path) -> None:
    def begin() -> None:
        with reader.transaction():
            pass

    with dynfrsdb.open(path) as reader:
        for act in (begin, reader.settle, lambda: reader.remove([1]), lambda: add(reader, [1000])):
            assert "open it for writing" in refusal(act)


def test_a_closed_handle_says_so_whatever_it_is_asked(db: dynfrsdb.Database, path: Path) -> None:
    closed = dynfrsdb.open(path, "w")
    closed.close()
    closed.close()

    calls: list[Callable[[], Any]] = [
        lambda: closed.predict(BATCH),
        lambda: closed.predict_proba(BATCH),
        lambda: closed.remove([1]),
        lambda: closed.forget("subject 1"),
        lambda: add(closed, [1000]),
        lambda: closed.transaction().__enter__(),
        lambda: closed.snapshot().__enter__(),
        lambda: closed.sample(1),
        lambda: 1 in closed,
        lambda: len(closed),
        lambda: closed.backup(path.parent / "copy.forest"),
        closed.info,
        closed.ledger,
        closed.digest,
        closed.check,
        closed.verify,
        closed.settle,
        closed.refresh,
    ]
    for call in calls:
        assert "is closed; open it again" in refusal(call)


def test_a_snapshot_that_is_over_says_so(db: dynfrsdb.Database) -> None:
    with db.snapshot() as snapshot:
        pass

    for act in (
        lambda: snapshot.predict(BATCH),
        lambda: snapshot.sample(1),
        lambda: 1 in snapshot,
        lambda: len(snapshot),
    ):
        assert "take a new one" in refusal(act)


def test_a_transaction_outside_its_block_does_nothing(db: dynfrsdb.Database) -> None:
    early, late = db.transaction(), db.transaction()
    with late:
        pass

    for txn in (early, late):
        for act in (
            lambda txn=txn: add(txn, [1000]),
            lambda txn=txn: txn.remove([1]),
            lambda txn=txn: txn.forget("subject 1"),
            lambda txn=txn: txn.predict(BATCH),
            lambda txn=txn: txn.predict_proba(BATCH),
        ):
            assert "inside its 'with' block" in refusal(act)
    assert "begin a new one" in refusal(late.__enter__)


def test_nothing_can_be_begun_inside_a_transaction(db: dynfrsdb.Database, path: Path) -> None:
    """Neither another one, nor what would wait for it, nor the end of the handle; and the outer one goes on."""
    with suppress(_Stop), db.transaction() as txn:
        txn.remove([1])
        for act in (db.transaction().__enter__, db.settle, db.close, lambda: db.remove([2]), txn.__enter__):
            assert "finish it first" in refusal(act)
        txn.remove([2])
        with dynfrsdb.open(path, "w") as other:
            assert "is being written by process" in refusal(lambda: other.remove([3], timeout=0))
        raise _Stop


def test_a_thread_that_closes_the_handle_waits_for_the_transaction_of_another(path: Path, tmp_path: Path) -> None:
    """Closing under an open transaction would commit it and then say that it failed."""
    with dynfrsdb.open(path) as original:
        original.backup(tmp_path / "copy.forest")
    db = dynfrsdb.open(tmp_path / "copy.forest", "w")
    closing = threading.Thread(target=db.close)

    with db.transaction() as txn:
        closing.start()
        closing.join(0.2)
        assert closing.is_alive()
        txn.remove([1])
    closing.join(30)

    assert txn.receipt is not None
    with dynfrsdb.open(tmp_path / "copy.forest") as after:
        assert 1 not in after
        assert after.check().problems == ()


def test_an_exception_inside_a_transaction_undoes_everything_it_did(db: dynfrsdb.Database) -> None:
    answers = db.predict_proba(BATCH)

    with suppress(_Stop), db.transaction() as txn:
        txn.remove([1, 2])
        add(txn, [1, 1000])
        txn.forget("subject 5")
        txn.predict(BATCH)
        txn.remove([1000])
        raise _Stop

    assert txn.receipt is None
    assert np.array_equal(db.predict_proba(BATCH), answers)


def test_a_dry_run_changes_nothing(db: dynfrsdb.Database) -> None:
    db.remove([1, 2, 3], dry_run=True, request_id="dry")
    db.forget("subject 4", dry_run=True)
    db.add(ROW, ["no"], dry_run=True)


def test_a_request_id_that_comes_again_with_something_else_is_a_conflict(path: Path, tmp_path: Path) -> None:
    with dynfrsdb.open(path) as original:
        original.backup(tmp_path / "copy.forest")
    with dynfrsdb.open(tmp_path / "copy.forest", "w", settle=None) as db:
        first = db.remove([1], request_id="r")
        before = state(db)

        for act in (
            lambda: db.remove([2], request_id="r"),
            lambda: db.remove([1, 2], request_id="r"),
            lambda: db.forget("subject 1", request_id="r"),
            lambda: add_as_request(db),
        ):
            refusal(act)
        assert db.remove([1], request_id="r") == first

        assert state(db) == before
        assert db.check().problems == ()


def add_as_request(db: dynfrsdb.Database) -> None:
    with db.transaction(request_id="r") as txn:
        txn.remove([1])
        add(txn, [1000])


def test_good_and_bad_calls_in_any_order_leave_exactly_the_good_ones(path: Path, tmp_path: Path) -> None:
    draw = chance("good and bad calls")
    with dynfrsdb.open(path) as original:
        original.backup(tmp_path / "copy.forest")
    with dynfrsdb.open(tmp_path / "copy.forest", "w") as db:
        live, refused = set(range(PEOPLE)), 0
        for _ in range(ROUNDS):
            wanted, errors, committed = transact(db, draw, live)
            live = wanted if committed else live
            refused += errors
            assert len(db) == len(live)

        print(f"{refused} calls refused in {ROUNDS} transactions, {len(live)} people in the end")
        assert refused > ROUNDS
        assert {i for i in range(3000) if i in db} == live
        assert db.check().problems == ()
        assert db.verify().differing == ()


def transact(db: dynfrsdb.Database, draw: random.Random, live: set[int]) -> tuple[set[int], int, bool]:
    """One transaction of random calls; returns who should live if it commits, how many calls failed, and whether."""
    wanted, errors = set(live), 0
    stop = draw.random() < 0.3
    try:
        with db.transaction(request_id=draw.choice([None, f"request {draw.random()}"])) as txn:
            for _ in range(draw.randint(1, 6)):
                try:
                    good_or_bad(txn, draw, wanted)
                except dynfrsdb.Error:
                    errors += 1
            if stop:
                raise _Stop
    except _Stop:
        return wanted, errors, False
    return wanted, errors, True


def good_or_bad(txn: dynfrsdb.Transaction, draw: random.Random, wanted: set[int]) -> None:
    """One call, good or bad; `wanted` follows the good ones only, because the others raise first."""
    some = draw.sample(sorted(wanted), min(3, len(wanted))) or [0]
    new = [i for i in draw.sample(range(3000), 3) if i not in wanted]
    match draw.randrange(12):
        case 0 | 1:
            txn.remove(some)
            wanted.difference_update(some)
        case 2 | 3 | 4:
            add(txn, new)
            wanted.update(new)
        case 5:
            txn.predict_proba(BATCH)
        case 6:
            txn.remove([*some, 5000])
        case 7:
            add(txn, [*new, some[0], 4000])
        case 8:
            txn.add(draw.choice(BAD_ROWS[:-2]), ["no"])
        case 9:
            txn.add(ROW, draw.choice(BAD_TARGETS), ids=[2**63])
        case 10:
            txn.add(ROW, ["no"], ids=draw.choice(BAD_IDS_OF_ONE_ROW))
        case 11:
            txn.forget(draw.choice([*BAD_SUBJECTS, "nobody"]))


class _Stop(Exception):
    """Ends a transaction from inside."""
