"""Staying in step: a store that follows a table of a database.

    sync(db, Source("postgresql://host/clinic", table="people"))

One pass reads the source in the order of its ids, inside one transaction of the source, and holds each part of it
against the newest commit of the store. What differs is gathered, and whenever there is enough of it, it becomes a
transaction of the store:

    in the source, not in the store       added
    in the store, not in the source       removed
    in both, with other values            removed and added again, in the same transaction

Promises
    A sample is only removed if the source was read *past* its id without an error. A source that dies in the middle
    looks like an error, never like rows that vanished.
    Ids that are no whole numbers, or not in order, or there twice, are found before anything is changed: they are read
    once by themselves, in the same transaction of the source.
    What was compared without a lock is compared again under it. So whatever others do meanwhile, nothing is added twice
    and nothing removed that came to be wanted.
    The store never goes back: a pass that finds another one to have committed since it opened the source begins anew,
    because what it knows of the source is older than what the store has.
    Whoever is held stays, and is counted. Whoever is on the suppression list is treated as by `add`.

A process that dies leaves whole transactions behind, and the next pass does what is left. There is nothing to
remember between passes but the store itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dynfrsdb import holds, inputs, suppression
from dynfrsdb.difference import Difference, Places, Stored, Wanted, difference, unchanged
from dynfrsdb.encoding import Encoding, require
from dynfrsdb.errors import InvalidInput, Locked
from dynfrsdb.loading import Ids, Part, encoding_of, parts, targets_of
from dynfrsdb.receipt import Receipt
from dynfrsdb.tables.sql import Source, SqlTable
from dynfrsdb_storage import Snapshot, layout
from dynfrsdb_storage.records import unframe

if TYPE_CHECKING:
    from dynfrsdb.build import Progress
    from dynfrsdb.database import Database
    from dynfrsdb.transaction import Live, Transaction

BATCH = 10_000
"""Changes in one transaction, unless told otherwise."""
PASSES = 8
"""How often a pass begins anew because another process keeps the same store in step."""
_NOBODY = np.empty(0, np.uint64)


@dataclass
class SyncReport:
    """What came of it."""

    rows: int = 0
    """In the source."""
    added: int = 0
    removed: int = 0
    replaced: int = 0
    unchanged: int = 0
    held: int = 0
    """Samples that would have been removed or replaced, but somebody holds them."""
    suppressed: int = 0
    """Rows of the source that were left out because their subjects are on the suppression list."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Rows whose value has no feature, by column."""
    receipts: list[Receipt] = field(default_factory=list)
    """One for each transaction."""

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, with the number of transactions for their receipts."""
        values = asdict(replace(self, receipts=[]))
        return {**values, "transactions": len(self.receipts), "receipts": [each.sequence for each in self.receipts]}


@dataclass(frozen=True)
class Manner:
    """How a store is brought in step."""

    batch: int = BATCH
    timeout: float = 30.0
    dry_run: bool = False
    allow_empty: bool = False
    progress: Progress = lambda stage, done, total: None
    before_commit: Callable[[], object] = lambda: None
    """Called when everything is prepared and the commit is next."""
    on_receipt: Callable[[Receipt], object] = lambda receipt: None
    """Called after each commit."""
    after_commit: Callable[[], object] = lambda: None
    """Called after that, and also if there was no commit after all."""


class _Changes(NamedTuple):
    """Samples to come, of which some may be there with other values; and samples to go."""

    come: Wanted | None
    go: Ids

    @property
    def size(self) -> int:
        return len(self.go) + (0 if self.come is None else len(self.come.ids))


class _Overtaken(Exception):
    """Another process has brought the store in step since the source was opened."""


def sync(
    db: Database,
    source: Source,
    *,
    id: str | None = None,
    target: str | None = None,
    subject: str | None = None,
    manner: Manner | None = None,
    report: SyncReport | None = None,
) -> SyncReport:
    """Bring a store in step with a source; columns that are not named are those the store was created with.

    `report` is filled while it goes on, so that its owner knows what was committed if it does not come to an end."""
    stored = encoding_of(db._settings)
    encoding = replace(stored, target=target or stored.target, id=id or stored.id, subject=subject or stored.subject)
    for what, name in (("target", encoding.target), ("id", encoding.id)):
        if name is None:
            raise InvalidInput(f"this store does not know which column is the {what}; pass --{what}")
    report, manner = report or SyncReport(), manner or Manner()
    for attempt in range(PASSES):
        time.sleep(min(5.0, 0.1 * 2**attempt) if attempt else 0)
        try:
            _Pass(db, source, encoding, manner, report).run()
            return report
        except _Overtaken:
            continue
    raise Locked(
        f"other processes keep '{db.path}' in step at the same time ({PASSES} times while the source was read); let "
        "one of them do it"
    )


class _Pass:
    """One look at the whole source."""

    def __init__(self, db: Database, source: Source, encoding: Encoding, manner: Manner, report: SyncReport) -> None:
        self._db, self._encoding, self._manner, self._report = db, encoding, manner, report
        self._said = source.record(id=encoding.id, target=encoding.target, subject=encoding.subject)
        self._table = SqlTable(source, encoding.id)
        self._sequence = 0
        """The last ledger entry that this pass knows of."""
        self._come: list[Wanted] = []
        self._go: list[Ids] = []
        self._gathered = 0

    def run(self) -> None:
        """Read, compare and change, to the end."""
        report = self._report
        report.rows = report.unchanged = report.held = report.suppressed = 0
        self._sequence = self._db._newest(self._begin)  # before the source is opened: what comes later is seen
        with self._table as table:
            self._manner.progress("reading ids", 0, 0)
            report.rows = table.count_ids()
            if not report.rows and len(self._db) and not self._manner.allow_empty:
                raise InvalidInput(
                    f"'{table.name}' has no rows; nothing was changed. If all samples are to go, pass --allow-empty"
                )
            self._follow(table)
        self._act(least=1)

    def _follow(self, table: SqlTable) -> None:
        """Compare all rows with all samples."""
        first, rows, unknown = 0, 0, Counter[str]()
        for part in parts(table.by_id(self._columns()), self._encoding, unknown):
            rows += part.batch.size
            if part.batch.size:
                wanted = self._wanted(part)
                self._refuse_fickle(int(wanted.ids[0]) >= first and bool((wanted.ids[1:] > wanted.ids[:-1]).all()))
                self._compare(wanted, first, int(wanted.ids[-1]))
                first = int(wanted.ids[-1]) + 1
            self._manner.progress("comparing", rows, self._report.rows)
        self._refuse_fickle(rows == self._report.rows)
        if first < inputs.ID_LIMIT:
            self._compare(_nothing(self._db), first, inputs.ID_LIMIT - 1)
        self._report.unknown = dict(unknown)

    def _refuse_fickle(self, same: bool) -> None:
        if not same:
            raise InvalidInput(
                f"'{self._table.name}' does not give the same rows when it is asked twice; leave random and volatile "
                "functions out of it"
            )

    def _begin(self, snapshot: Snapshot) -> int:
        if self._encoding.subject is None and snapshot.count("subjects"):
            raise InvalidInput(
                f"samples of '{self._db.path}' belong to subjects, and no column of the source says whose a row is; "
                "pass --subject"
            )
        return int(snapshot.state["sequence"])

    def _columns(self) -> list[str]:
        """The columns that are needed; all of them are there."""
        encoding, heading = self._encoding, self._table.heading()
        roles = [name for name in (encoding.id, encoding.target, encoding.subject) if name is not None]
        wanted = [*roles, *([each.name for each in encoding.columns] if encoding.named else heading.columns)]
        for name in wanted:
            require(heading, name)
        return list(dict.fromkeys(wanted))

    def _wanted(self, part: Part) -> Wanted:
        settings, batch, target = self._db._settings, part.batch, self._encoding.target
        assert part.ids is not None
        assert target is not None
        labels = targets_of(batch.columns[target], settings, batch.where(target))
        names = [name or None for name in part.subjects] if part.subjects else [None] * batch.size
        hashed = {name: b"" if name is None else self._db._secrets.subject(name) for name in set(names)}
        y = inputs.targets(labels, batch.size, settings)
        return Wanted(part.ids, part.X, y, labels, names, [hashed[name] for name in names])

    def _compare(self, wanted: Wanted, first: int, last: int) -> None:
        """Gather what differs among the samples with first <= id <= last, and act whenever it is enough."""
        while first <= last:
            look = partial(self._look, wanted=wanted, first=first, last=last)
            found, unwelcome, held = self._db._newest(look)
            self._report.unchanged += found.unchanged
            self._report.held += held
            self._gather(wanted, found, unwelcome)
            self._act(least=self._manner.batch)
            first = found.last + 1

    def _look(self, snapshot: Snapshot, wanted: Wanted, first: int, last: int) -> tuple[Difference, Ids, int]:
        """What differs, without those who are held; the wanted ids that are not welcome; how many are held."""
        found = difference(snapshot, wanted, first, last)
        mine = holds.in_force(snapshot, {*found.changes_of, *found.goes_of} - {b""})
        free = [of not in mine for of in found.changes_of], [of not in mine for of in found.goes_of]
        held = sum(not each for part in free for each in part)
        if held:
            found = found._replace(changes=found.changes[free[0]], goes=found.goes[free[1]])
        return found, self._unwelcome(snapshot, wanted, np.concatenate((found.comes, found.changes))), held

    def _unwelcome(self, snapshot: Snapshot, wanted: Wanted, places: Places) -> Ids:
        """The ids of samples whose subjects are on the suppression list; raises if the store refuses such samples."""
        rows = suppression.unwelcome(snapshot, snapshot.state, [wanted.subjects[at] for at in places])
        if rows and suppression.mode(snapshot.state) == suppression.REFUSE:
            raise suppression.refusal(self._db.path, f"'{self._table.name}', id {wanted.ids[places[rows[0]]]}")
        return wanted.ids[places[rows]]

    def _gather(self, wanted: Wanted, found: Difference, unwelcome: Ids) -> None:
        self._report.suppressed += len(unwelcome)
        come = np.sort(np.concatenate((found.comes, found.changes)))
        come = come[~np.isin(wanted.ids[come], unwelcome)]
        there = wanted.ids[found.changes]
        go = np.concatenate((found.goes, there[np.isin(there, unwelcome)]))
        if self._manner.dry_run:
            replaced = len(come) - len(found.comes) + int(np.isin(wanted.ids[found.comes], unwelcome).sum())
            self._count(len(come) - replaced, len(go), replaced)
            return
        if come.size:
            self._come.append(wanted.some(come))
        if go.size:
            self._go.append(go)
        self._gathered += come.size + go.size

    def _count(self, added: int, removed: int, replaced: int) -> None:
        self._report.added += added
        self._report.removed += removed
        self._report.replaced += replaced

    def _act(self, least: int) -> None:
        """Make transactions of what was gathered, as long as there are `least` changes."""
        if self._gathered < least:
            return
        come = Wanted.all(self._come) if self._come else None
        go = np.concatenate(self._go) if self._go else _NOBODY
        self._come, self._go, self._gathered = [], [], 0
        for changes in _pieces(come, go, self._manner.batch):
            if changes.size < min(least, self._manner.batch):
                self._come, self._go = [changes.come] if changes.come else [], [changes.go]
                self._gathered = changes.size
            else:
                self._commit(changes)

    def _commit(self, changes: _Changes) -> None:
        transaction = self._db.transaction(timeout=self._manner.timeout)
        try:
            with transaction:
                self._refuse_overtaken(transaction._open().snapshot)
                added, removed, replaced = self._change(transaction, changes)
                self._manner.before_commit()
            receipt = transaction.receipt
            if receipt is not None:
                self._sequence = receipt.sequence
                self._count(added - transaction.skipped, removed, replaced)
                self._report.suppressed += transaction.skipped
                self._report.receipts.append(receipt)
                self._manner.on_receipt(receipt)
        finally:
            self._manner.after_commit()

    def _refuse_overtaken(self, snapshot: Snapshot) -> None:
        for _, payload in snapshot.scan("ledger", layout.sequence_key(self._sequence + 1)):
            if "source" in unframe(payload):
                raise _Overtaken
        self._sequence = int(snapshot.state["sequence"])

    def _change(self, transaction: Transaction, changes: _Changes) -> tuple[int, int, int]:
        """Do what still is to be done, as the transaction sees the store; returns (added, removed, replaced)."""
        come, snapshot = changes.come, transaction._open().snapshot
        ids = [] if come is None else come.ids.tolist()
        live = {id: each for id, each in transaction._find([*ids, *changes.go.tolist()]).items() if each is not None}
        if come is not None:
            come = _still(snapshot, come, live)
        mine = holds.in_force(snapshot, {each.subject for each in live.values()} - {b""})
        free = {id for id, each in live.items() if each.subject not in mine}
        going = [id for id in changes.go.tolist() if id in free]
        replaced = [id for id in (() if come is None else come.ids.tolist()) if id in free]
        self._report.held += sum(id in live and id not in free for id in changes.go.tolist())
        if going or replaced:
            transaction.remove([*going, *replaced])
        added = 0
        if come is not None:
            rows = come.some(np.array([id not in live or id in free for id in come.ids.tolist()], bool).nonzero()[0])
            self._report.held += len(come.ids) - len(rows.ids)
            if len(rows.ids):
                transaction.add(rows.X, rows.labels, rows.ids, rows.names)
            added = len(rows.ids) - len(replaced)
        if going or replaced or added:
            transaction._entry["source"] = self._said
        return added, len(going), len(replaced)


def _still(snapshot: Snapshot, come: Wanted, live: dict[int, Live]) -> Wanted:
    """Those that the store still does not have exactly so."""
    there = [at for at, id in enumerate(come.ids.tolist()) if id in live]
    found = [live[int(come.ids[at])] for at in there]
    stored = Stored(
        come.ids[there], np.array([each.slot for each in found], np.uint32), [each.subject for each in found]
    )
    same = unchanged(snapshot, come, np.array(there, np.intp), stored, np.arange(len(there)))
    return come.some(np.setdiff1d(np.arange(len(come.ids)), np.array(there, np.intp)[same]))


def _nothing(db: Database) -> Wanted:
    """A part of a source without rows."""
    return Wanted(_NOBODY, np.empty((0, db._settings.n_features), np.float32), np.empty(0, np.int64), (), (), ())


def _pieces(come: Wanted | None, go: Ids, most: int) -> Iterator[_Changes]:
    """Changes, not more than `most` at a time."""
    arriving = 0 if come is None else len(come.ids)
    for start in range(0, arriving + len(go), most):
        some = np.arange(start, min(start + most, arriving))
        part = come.some(some) if come is not None and some.size else None
        yield _Changes(part, go[max(0, start - arriving) : max(0, start + most - arriving)])
