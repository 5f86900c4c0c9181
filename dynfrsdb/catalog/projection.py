"""One store -> its rows.

    store       ledger  1 2 3 4 5 6 7            head 7:9f0c
    catalog     ledger  1 2 3 4                  head 4:11d2, as it was seen last
                                5 6 7            read and added, if entry 4 of the store still has the hash 11d2

If it has not, or is not there, the store was restored from a backup or replaced, and all its rows are made anew. What
stands (holds) is replaced each time. Doing it twice changes nothing.

What requests became of is settled here, too: an entry that carries the hash of a request and of its subject is the
removal that was asked for, whoever noted it or did not live to.

The row of the store must be locked before the store is looked at (see handle.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from dynfrsdb import chain, holds
from dynfrsdb.catalog import contact
from dynfrsdb.catalog.handle import there
from dynfrsdb.catalog.tables import LedgerEntry, Outcome, Registered, Source, StandingHold
from dynfrsdb.errors import CorruptStore
from dynfrsdb.inside.store import Inside
from dynfrsdb.receipt import now
from dynfrsdb.request import entry_at, request_bytes
from dynfrsdb.secrets import Secrets
from dynfrsdb_storage import Snapshot, layout
from dynfrsdb_storage.ledger import FIRST_PREV, Entry, broken_links
from dynfrsdb_storage.records import unframe

DONE, PENDING, NOT_HELD, REFUSED, UNREACHABLE = "done", "pending", "not held", "refused", "unreachable"
_LEFT_OUT = ("removed_ids",)
"""One hash per removed sample: evidence, but no news; receipts have them."""
_COLUMNS = ("sequence", "time", "kind", "added", "removed", "samples", "request", "prev", "hash")
_BATCH = 500


@dataclass(frozen=True)
class Seen:
    """What a look at a store found."""

    about: dict[str, Any]
    anew: bool
    """Whether `entries` is the whole ledger, because what was seen before does not fit, or nothing was."""
    entries: list[Entry]
    holds: list[holds.Hold]
    removals: dict[str, list[Entry]]
    """Those of the entries that removed samples for one of the requests that were asked about, by its id."""


def project(session: Session, store: Registered, anew: bool = False) -> Seen:
    """Bring a store in; raises Unreached, and changes nothing, if it cannot be asked."""
    requests = asked(session, store)
    since = (0, "") if anew else (store.sequence, store.head)
    seen = contact.reach(store, lambda inside: see(inside, since, requests))
    write(session, store, seen)
    return seen


def see(inside: Inside, since: tuple[int, str], requests: Iterable[str]) -> Seen:
    """Look at a store: what is new since a head, and what of it was done for these requests."""
    snapshot, settings = inside.snapshot, inside.settings
    state, identity = snapshot.state, snapshot.generation.identity
    anew, entries = _news(snapshot, *since)
    return Seen(
        about={
            "task": settings.task,
            "features": settings.n_features,
            "trees": settings.n_trees,
            "samples": state["samples"],
            "format": identity["format"],
            "algorithm": identity["algorithm"],
            "commit": snapshot.commit,
            "sequence": state["sequence"],
            "head": state["head"].hex(),
        },
        anew=anew,
        entries=entries,
        holds=holds.listed(snapshot),
        removals=_removals(entries, requests, Secrets(settings)),
    )


def _removals(entries: list[Entry], requests: Iterable[str], secrets: Secrets) -> dict[str, list[Entry]]:
    done = [entry for entry in entries if entry.get("request") and entry["removed"]]
    names = {secrets.request(request_bytes(each)): each for each in requests} if done else {}
    found: dict[str, list[Entry]] = {}
    for entry in done:
        if entry["request"] in names:
            found.setdefault(names[entry["request"]], []).append(entry)
    return found


def _news(snapshot: Snapshot, sequence: int, head: str) -> tuple[bool, list[Entry]]:
    """Whether the ledger does not continue a head, and the entries behind it; all of them if it does not."""
    last: int = snapshot.state["sequence"]
    known = sequence <= last and (entry_at(snapshot, sequence)["hash"] if sequence else FIRST_PREV).hex() == head
    if not known or not sequence:
        return True, chain.entries(snapshot)
    found = snapshot.scan("ledger", layout.sequence_key(sequence + 1)) if sequence < last else ()
    entries: list[Entry] = [unframe(payload) for _, payload in found]
    broken = broken_links(entries, last, snapshot.state["head"], sequence, bytes.fromhex(head))
    if broken:
        path = snapshot.generation.store
        raise CorruptStore(f"the ledger of '{path}' is not what was written: {broken[0]}; run 'dynfrsdb check {path}'")
    return False, entries


def write(session: Session, store: Registered, seen: Seen) -> None:
    """Put what was seen of a store into its rows."""
    if seen.anew:
        for table in (LedgerEntry, Source):
            session.execute(delete(table).where(table.store == store.uuid))
    rows = [_row(store.uuid, entry) for entry in seen.entries]
    for first in range(0, len(rows), _BATCH):
        session.execute(insert(LedgerEntry), rows[first : first + _BATCH])
    session.execute(delete(StandingHold).where(StandingHold.store == store.uuid))
    standing = [
        {"store": store.uuid, "number": each.number, "subject": each.subject, "since": each.since, "until": each.until}
        for each in seen.holds
    ]
    if standing:
        session.execute(insert(StandingHold), standing)
    _note_sources(session, store.uuid, rows)
    _settle(session, store.uuid, seen)
    for name, value in seen.about.items():
        setattr(store, name, value)
    store.seen, store.problem = now(), None


def _row(uuid: str, entry: Entry) -> dict[str, Any]:
    """A ledger entry as a row; entries of stages have no counts."""
    shown = chain.to_json(entry)
    row = {
        "added": 0,
        "removed": 0,
        "samples": None,
        "request": None,
        **{each: shown[each] for each in _COLUMNS if each in shown},
    }
    details = {name: value for name, value in shown.items() if name not in (*_COLUMNS, *_LEFT_OUT)}
    return {"store": uuid, **row, "details": details}


def _note_sources(session: Session, uuid: str, rows: list[dict[str, Any]]) -> None:
    said = [(row["sequence"], row["details"]["source"]) for row in rows if row["details"].get("source")]
    if not said:
        return
    known = list(session.scalars(select(Source).where(Source.store == uuid)))
    for sequence, described in said:
        same = next((each for each in known if each.described == described), None)
        if same is None:
            same = Source(store=uuid, first=sequence, url=str(described.get("url")), described=described)
            session.add(same)
            known.append(same)
        same.last = sequence


def asked(session: Session, store: Registered) -> list[str]:
    """The requests that a store was, or is to be, asked for."""
    known = select(Outcome.request).where(Outcome.store == store.uuid, Outcome.subject.is_not(None))
    return list(session.scalars(known))


def _settle(session: Session, uuid: str, seen: Seen) -> None:
    """Note which requests the ledger says were carried out, and those it no longer says it of."""
    settled = set()
    for request, entries in seen.removals.items():
        outcome = there(session, Outcome, (request, uuid))
        found = next((entry for entry in entries if bytes.fromhex(outcome.subject or "") in entry["subjects"]), None)
        if found is not None:
            note_removal(outcome, found["sequence"], found["hash"].hex(), found["removed"], found["time"])
            settled.add(request)
    if not seen.anew:
        return
    session.flush()
    for outcome in session.scalars(select(Outcome).where(Outcome.store == uuid, Outcome.outcome == DONE)):
        if outcome.request not in settled:
            outcome.outcome, outcome.why = PENDING, "the store was put back to a state before this; ask again"
            outcome.sequence = outcome.hash = outcome.removed = outcome.time = None


def note_removal(outcome: Outcome, sequence: int, hash: str, removed: int, time: str) -> None:
    """Note that a request was carried out, and in which ledger entry."""
    outcome.outcome, outcome.why = DONE, None
    outcome.sequence, outcome.hash, outcome.removed, outcome.time = sequence, hash, removed, time


def removal(session: Session, uuid: str, name: str, subject: str) -> LedgerEntry | None:
    """The entry that was brought in of a request's removal of a subject; both under their names in the store."""
    known = select(LedgerEntry).where(LedgerEntry.store == uuid, LedgerEntry.request == name, LedgerEntry.removed > 0)
    found = session.scalars(known.order_by(LedgerEntry.sequence))
    return next((entry for entry in found if subject in entry.details["subjects"]), None)
