"""Requests that wait: forget somebody, but not before a period of grace is over.

    queue      key: due (seconds since 1970), number        record: subject hashes, hash of the request id or nil

The number of a waiting request is that of the ledger entry that put it there, and keys sort by when they are due, so
what is due is the beginning of the database. Nothing happens by itself: `run_due` carries out what is due, and is meant
to be called now and then, by cron for example. A request leaves the queue in the same commit that removes the samples:
whatever dies when, it is carried out once.

    queued ---- due ----> removed                     one commit, one ledger entry, `queued` names the request
       |          `-----> held: stays, and is tried again next time
       `- cancelled

Who is forgotten by hand meanwhile, or has no sample left for another reason, is no error: the request is done.

Needs no engine, except to carry requests out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynfrsdb import holds, moments, request
from dynfrsdb.errors import EntryNotFound, Held, RequestConflict
from dynfrsdb.receipt import Receipt, new_entry, receipt_of
from dynfrsdb.secrets import Secrets
from dynfrsdb_storage import Snapshot, Store, layout
from dynfrsdb_storage.ledger import Entry
from dynfrsdb_storage.records import frame, unframe

if TYPE_CHECKING:
    from dynfrsdb.database import Database
    from dynfrsdb.transaction import Transaction


@dataclass(frozen=True)
class Waiting:
    """A request to forget that is not carried out yet."""

    number: int
    due: str
    subjects: tuple[str, ...]
    request: str | None
    is_due: bool

    def as_dict(self) -> dict[str, Any]:
        """The request as plain values."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Outcome:
    """What became of a request that was due: its receipt, or why it has to wait."""

    number: int
    receipt: Receipt | None
    held: str | None

    def as_dict(self) -> dict[str, Any]:
        """The outcome as plain values."""
        return {
            "number": self.number,
            "held": self.held,
            "receipt": None if self.receipt is None else self.receipt.as_dict(),
        }


@dataclass(frozen=True)
class _Queued:
    """A record of the queue."""

    key: bytes
    due: int
    number: int
    subjects: list[bytes]
    request: bytes | None


def enqueue(
    store: Store, secrets: Secrets, subjects: list[bytes], after: Any, request_id: Any, timeout: float
) -> Receipt:
    """Queue a request to forget subjects when a delay is over; asked twice with one request id, it is queued once."""
    wait = moments.delay(after, "after")
    asked = request.Asked()
    asked.note("forget later", [str(wait).encode(), *subjects])
    name = None if request_id is None else secrets.request(request.request_bytes(request_id))
    hashed = [secrets.subject(subject) for subject in dict.fromkeys(subjects)]
    with store.write(timeout, "queue") as session:
        known = None if name is None else request.find(session.snapshot, name)
        if known is not None:
            if known.asked != secrets.request(asked.digest()):
                raise RequestConflict("this request id was used before for something else; use a new one")
            return receipt_of(request.entry_at(session.snapshot, known.sequence))
        for subject in hashed:
            holds.refuse_nobody(session.snapshot, subject)
        holds.refuse_held(session.snapshot, hashed)
        due = moments.whole(time.time() + wait, "the time when the request is due")
        made = session.append_ledger(
            new_entry("queue", session.state, subjects=hashed, request=name, due=moments.spelt(due))
        )
        session.put("queue", layout.queue_key(due, made["sequence"]), frame(record(made)))
        if name is not None:
            session.put("requests", name, request.note(request.Known(made["sequence"], asked.digest(), []), secrets))
        session.commit()
    return receipt_of(made)


def record(entry: Entry) -> list[Any]:
    """The record of the waiting request that a ledger entry tells of."""
    return [entry["subjects"], entry["request"]]


def standing(entries: Iterable[Entry]) -> dict[bytes, Entry]:
    """The requests that a ledger says were queued, and neither carried out nor cancelled."""
    waiting: dict[int, Entry] = {}
    for entry in entries:
        if entry["kind"] == "queue":
            waiting[entry["sequence"]] = entry
        elif "queued" in entry:
            waiting.pop(entry["queued"], None)
    return {layout.queue_key(moments.moment(each["due"], "due"), each["sequence"]): each for each in waiting.values()}


def listed(snapshot: Snapshot) -> list[Waiting]:
    """All requests that wait, the next one first."""
    now = time.time()
    return [
        Waiting(
            each.number,
            moments.spelt(each.due),
            tuple(subject.hex() for subject in each.subjects),
            None if each.request is None else each.request.hex(),
            each.due <= now,
        )
        for each in _queue(snapshot)
    ]


def cancel(store: Store, number: Any, timeout: float) -> Receipt:
    """Take a request off the queue; nothing is forgotten."""
    with store.write(timeout, "cancel") as session:
        found = next((each for each in _queue(session.snapshot) if each.number == number), None)
        if found is None:
            raise EntryNotFound(
                f"no request {number} waits in '{store.path}': it was carried out or cancelled, or never made. "
                "'dynfrsdb requests list' shows those that wait"
            )
        session.delete("queue", found.key)
        made = session.append_ledger(
            new_entry("cancel", session.state, subjects=found.subjects, request=found.request, queued=number)
        )
        session.commit()
    return receipt_of(made)


def run_due(db: Database, timeout: float) -> list[Outcome]:
    """Carry out what is due, each request in a transaction of its own."""
    now = int(time.time())
    with db._store.snapshot() as snapshot:
        due = [each for each in _queue(snapshot) if each.due <= now]
    outcomes = []
    for each in due:
        transaction = db.transaction(timeout=timeout)
        try:
            with transaction:
                _carry_out(transaction, each)
        except Held as held:
            outcomes.append(Outcome(each.number, None, str(held)))
            continue
        if transaction.receipt is not None:  # else another process was faster
            outcomes.append(Outcome(each.number, transaction.receipt, None))
    return outcomes


def _carry_out(transaction: Transaction, queued: _Queued) -> None:
    session = transaction._open()
    if session.snapshot.get("queue", [queued.key])[0] is None:
        return
    session.delete("queue", queued.key)
    transaction._entry.update(queued=queued.number, request=queued.request)
    for subject in queued.subjects:
        transaction._forget(subject)


def _queue(snapshot: Snapshot) -> Iterator[_Queued]:
    for key, payload in snapshot.scan("queue"):
        subjects, name = unframe(payload)
        yield _Queued(key, *layout.parse_queue_key(key), subjects, name)
