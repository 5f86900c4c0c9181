"""Removing: one sample in an open transaction, one durably, many durably, with and without settling.

Two policies are measured. `auto`, the default, grows small tags before the commit that made them (its background
thread is held still, so that two runs write the same records); `lazy` leaves every tag to whoever needs it.
"""

from __future__ import annotations

import cProfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import dynfrsdb
from benchmark.bare import Change, Watch, differing
from benchmark.figures import Stopwatch, in_turns, seconds
from benchmark.parts import KERNELS, PARTS, Parts
from benchmark.trial import Trial, store_size

CALLS = 50
POLICIES: dict[str, str | None] = {"auto": "auto", "lazy": None}
WARM_UP = 5
IN_ONE = 10
"""Removals of one open transaction: few, so that tags do not spare the later ones their way down."""
IN_A_ROW = 100
"""Removals of one open transaction, the way the C++ makes them: tags of earlier ones do spare the later ones."""


def inside(trial: Trial) -> None:
    """One removal inside an open transaction, working set warm, before the commit: each walking its trees at once, as
    if somebody looked in between, and several that walk together, as a transaction lets them; and many in a row."""
    alone, together, kernels = Stopwatch(), Stopwatch(), list[float]()
    ids = iter(trial.ids(2 * (trial.effort.open_rounds + 1) * IN_ONE, seed=1))
    with trial.warm("auto") as db, Parts() as parts:
        for _ in range(trial.effort.open_rounds + 1):
            with db.transaction() as txn:
                for _ in range(IN_ONE):
                    parts.take()
                    alone.time(_remove_now, txn, [next(ids)])
                    kernels.append(parts.take()[KERNELS])
            trial.heat(db)
            with db.transaction() as txn:
                together.time(_remove_now, txn, [next(ids) for _ in range(IN_ONE)])
            trial.heat(db)
    trial.note("removal, before commit", alone.without(IN_ONE))
    trial.note("removal, before commit: kernels", kernels[IN_ONE:])
    trial.note("removal, before commit: together", [whole / IN_ONE for whole in together.seconds[1:]])
    _in_a_row(trial)


class _RolledBackError(Exception):
    """Nothing went wrong; the transaction is not to be committed."""


def _in_a_row(trial: Trial) -> None:
    """Removals of one open transaction, each walking its trees at once, with nothing in between; as many rounds as the
    C++ has processes. A round begins with the forest as it was built, and all of it in memory, as the C++ has it: a
    transaction that is rolled back lets go of what it changed."""
    watch, count = Stopwatch(), min(IN_A_ROW, len(trial.data.X) // 2)
    with trial.warm("auto") as db:
        for i in range(trial.effort.batches + 1):
            ids = [[id] for id in trial.ids(count, 100 + i)]
            trial.fill(db)
            with suppress(_RolledBackError), db.transaction() as txn:
                watch.time_each(partial(_remove_now, txn), ids)
                raise _RolledBackError
            trial.heat(db)
    trial.note("removal, before commit: in a row", watch.seconds[count:], cpu=watch.cpu[1:])


def _remove_now(txn: dynfrsdb.Transaction, ids: list[int]) -> None:
    """Remove samples, call by call, and walk their trees, with which a transaction waits until somebody looks or it
    commits."""
    for id in ids:
        txn.remove([id])
    with txn._db._gate.alone():
        txn._apply()


def durable(trial: Trial) -> None:
    """One removal as its own transaction, in turns with bare LMDB."""
    _ = trial.budget
    for name, policy in POLICIES.items():
        ids = trial.ids(trial.effort.removals + WARM_UP, seed=2)
        changes, loads = record(trial, [[id] for id in ids], policy)
        _replay(trial, name, ids, changes)
        trial.note(f"removal, {name}: calls", _calls(trial, ids[:CALLS], policy), "")
        measured = changes[WARM_UP:]
        trial.note(f"removal, {name}: records loaded, cold", loads[WARM_UP:], "")
        trial.note(f"removal, {name}: records written", [change.records for change in measured], "")
        trial.note(f"removal, {name}: tree records written", [change.tree_records for change in measured], "")
        trial.note(f"removal, {name}: pages of LMDB", [sum(change.pages.values()) for change in measured], "")
        for database in sorted(measured[0].pages):
            pages = [change.pages.get(database, 0) for change in measured]
            if any(pages):
                trial.note(f"removal, {name}: pages of {database}", pages, "")
        per_tree = [change.tree_pages / trial.data.occupancy for change in measured]
        trial.note(f"removal, {name}: tree pages per tree", per_tree, "")


def _calls(trial: Trial, ids: list[int], policy: str | None) -> float:
    """How many functions a durable removal calls, those written in C too; the first ones are not counted."""
    profile = cProfile.Profile()
    with trial.warm(policy) as db:
        for i, id in enumerate(ids):
            if i == WARM_UP:
                profile.enable()
            db.remove([id])
        profile.disable()
    return sum(entry.callcount for entry in profile.getstats()) / (len(ids) - WARM_UP)


def record(trial: Trial, batches: Sequence[list[int]], policy: str | None) -> tuple[list[Change], list[int]]:
    """What removing each batch in its own transaction writes, and how many records it loads."""
    changes, loads = [], []
    with trial.copy() as path, trial.writer(path, policy) as db, Watch(path) as watch:
        for ids in batches:
            before = sum(db._store.loads.values())
            db.remove(ids)
            loads.append(sum(db._store.loads.values()) - before)
            changes.append(watch.change())
    return changes, loads


def _replay(trial: Trial, name: str, ids: list[int], changes: list[Change]) -> None:
    spent: list[dict[str, float]] = []
    with trial.warm(POLICIES[name]) as db, trial.bare() as bare, Watch(db.path) as watch, Parts() as parts:

        def remove(i: int) -> None:
            parts.take()
            db.remove([ids[i]])
            spent.append(parts.take())

        ours, theirs = in_turns(len(ids), remove, lambda i: bare.apply(changes[i]))
        unlike = differing(watch.contents(), bare.contents())
    trial.note(f"removal, {name}", ours := ours.without(WARM_UP))
    trial.note(f"removal, {name}: bare LMDB", theirs := theirs.without(WARM_UP))
    for part in PARTS:
        trial.note(f"removal, {name}: {part}", [one[part] for one in spent[WARM_UP:]])
    trial.note(f"removal, {name}: pages by the I/O counter", ours.pages, "")
    trial.note(f"removal, {name}: pages by the I/O counter, bare LMDB", theirs.pages, "")
    trial.note(f"removal, {name}: records that differ from bare LMDB at the end", unlike, "")


def sizes(trial: Trial) -> dict[str, int]:
    """The transaction sizes of the tables."""
    n = len(trial.data.X)
    return {"1": 1, "10": 10, "100": 100, "0.1%": max(1, n // 1000), "1%": max(1, n // 100)}


def batch(trial: Trial) -> None:
    """Many removals in one durable transaction, in turns with bare LMDB, and settling everything afterwards."""
    _ = trial.budget
    for policy in POLICIES:
        for words, n in sizes(trial).items():
            if policy == "auto" and words not in ("100", "1%"):
                continue
            _batches(trial, f"batch of {words}, {policy}", n, POLICIES[policy])


def _batches(trial: Trial, name: str, n: int, policy: str | None) -> None:
    """Batches of `n`, each in a store of its own."""
    ours, bares, settled, records = Stopwatch(), Stopwatch(), Stopwatch(), []
    for i in range(trial.effort.batches):
        ids = trial.ids(n, 10 + i)
        (change,), _ = record(trial, [ids], policy)
        records.append(change.records)
        with trial.warm(policy) as db, trial.bare() as bare:
            turn: list[tuple[Stopwatch, Callable[..., Any], Any]]
            turn = [(ours, db.remove, ids), (bares, bare.apply, change)]
            for watch, act, argument in turn if i % 2 == 0 else reversed(turn):
                watch.time(act, argument)
            settled.time(db.settle)
    trial.note(name, ours)
    trial.note(f"{name}: bare LMDB", bares)
    trial.note(f"{name}: settling", settled)
    trial.note(f"{name}: with settling", ours.plus(settled))
    trial.note(f"{name}: records", records, "")


def sequence(trial: Trial) -> None:
    """Many removals, each its own durable transaction, and settling everything afterwards."""
    _ = trial.budget
    for policy in POLICIES:
        for words, n in sizes(trial).items():
            with trial.warm(POLICIES[policy]) as db:
                db.remove(trial.ids(n + 1, seed=3)[n:])
                times = [seconds(db.remove, [id]) for id in trial.ids(n, seed=3)]
                settling = seconds(db.settle)
            trial.note(f"sequence of {words}, {policy}", sum(times))
            trial.note(f"sequence of {words}, {policy}: with settling", sum(times) + settling)


def tail(trial: Trial) -> None:
    """The slowest removals: enough of them, each its own transaction, for p99.9 to mean something."""
    n = min(trial.effort.tail, len(trial.data.X) // 3)
    for name, policy in POLICIES.items():
        with trial.warm(policy) as db:
            times = [seconds(db.remove, [id]) for id in trial.ids(n + WARM_UP, seed=4)]
            trial.note(f"store size after removals, {name}", store_size(db.path), "B")
        trial.note(f"removal, {name}: tail", times[WARM_UP:])
