"""Holds: somebody's samples must stay for now, and nobody removes them by mistake.

    holds      key: subject hash, number        record: the reason, since when, until when

The number of a hold is that of the ledger entry that placed it. As long as a hold is in force no sample of its subject
can be removed, one by one or by forgetting; the refusal says why. A hold ends at its date, or when it is released.

The reason is people's text and may name somebody. It is in the store for as long as the hold is; the ledger, which is
for ever, has a keyed hash of it.

Needs no engine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dynfrsdb import moments
from dynfrsdb.errors import EntryNotFound, Held, InvalidInput, SampleNotFound
from dynfrsdb.receipt import Receipt, new_entry, receipt_of
from dynfrsdb.secrets import Secrets
from dynfrsdb_storage import Snapshot, Store, WriteSession, layout
from dynfrsdb_storage.ledger import Entry
from dynfrsdb_storage.records import frame, unframe

LONGEST_REASON = 1000


@dataclass(frozen=True)
class Hold:
    """A hold on one subject's samples."""

    number: int
    subject: str
    reason: str
    since: str
    until: str | None
    in_force: bool

    def as_dict(self) -> dict[str, Any]:
        """The hold as plain values."""
        return dict(self.__dict__)


def place(store: Store, secrets: Secrets, subject: bytes, reason: Any, until: Any, timeout: float) -> Receipt:
    """Hold a subject's samples."""
    text = _reason(reason)
    last = None if until is None else moments.moment(until, "until")
    if last is not None and last <= time.time():
        raise InvalidInput(f"until={until!r} is over already; pass a date to come, or None to hold until released")
    hashed = secrets.subject(subject)
    with store.write(timeout, "hold") as session:
        refuse_nobody(session.snapshot, hashed)
        made = session.append_ledger(
            new_entry(
                "hold",
                session.state,
                subjects=[hashed],
                reason=secrets.reason(text),
                until=None if last is None else moments.spelt(last),
            )
        )
        session.put("holds", layout.subject_key(hashed, made["sequence"]), frame(record(made, text)))
        session.commit()
    return receipt_of(made)


def record(entry: Entry, reason: str) -> list[Any]:
    """The record of the hold that a ledger entry tells of."""
    until = None if entry["until"] is None else moments.moment(entry["until"], "until")
    return [reason, entry["time"], until]


def standing(entries: Iterable[Entry]) -> dict[bytes, Entry]:
    """The holds that a ledger says were placed, and neither released nor dropped with their subject."""
    placed: dict[bytes, Entry] = {}
    for entry in entries:
        kind = entry["kind"]
        for subject in entry["subjects"] if kind in ("hold", "release", "change") else ():
            if kind == "hold":
                placed[layout.subject_key(subject, entry["sequence"])] = entry
            elif kind == "release":
                placed.pop(layout.subject_key(subject, entry["hold"]), None)
            else:
                placed = {key: each for key, each in placed.items() if not key.startswith(subject)}
    return placed


def listed(snapshot: Snapshot) -> list[Hold]:
    """All holds, in the order they were placed, those included that are over and not released yet."""
    found = [_parsed(key, payload) for key, payload in snapshot.scan("holds")]
    return sorted(found, key=lambda hold: hold.number)


def release(store: Store, number: Any, timeout: float) -> Receipt:
    """End a hold."""
    with store.write(timeout, "release") as session:
        keys = {layout.parse_subject_key(key)[1]: key for key, _ in session.snapshot.scan("holds")}
        if number not in keys:
            raise EntryNotFound(f"there is no hold {number} in '{store.path}'; 'dynfrsdb hold list' shows all")
        subject = keys[number][: layout.SUBJECT_BYTES]
        session.delete("holds", keys[number])
        made = session.append_ledger(new_entry("release", session.state, subjects=[subject], hold=number))
        session.commit()
    return receipt_of(made)


def refuse_held(snapshot: Snapshot, subjects: Iterable[bytes]) -> None:
    """Raise if a hold on one of these subjects is in force."""
    for hold in in_force(snapshot, subjects).values():
        store, until = snapshot.generation.store, f" until {hold.until}" if hold.until else ""
        raise Held(
            f"this subject is held{until}: {hold.reason}; nothing was changed. To end the hold, run "
            f"'dynfrsdb hold release {store} {hold.number}'"
        )


def in_force(snapshot: Snapshot, subjects: Iterable[bytes]) -> dict[bytes, Hold]:
    """Those of these subjects who are held, each with a hold that is in force."""
    if not snapshot.count("holds"):
        return {}
    snapshot.confirm_pages("holds")  # or a page that lost records would let go of somebody who is held
    return {subject: hold for subject in subjects for hold in _of(snapshot, subject) if hold.in_force}


def drop(session: WriteSession, subject: bytes) -> None:
    """Delete a subject's holds, all of them over, with the next commit: their reasons may name who is forgotten."""
    if session.snapshot.count("holds"):
        session.delete_range("holds", *layout.subject_range(subject))


def refuse_nobody(snapshot: Snapshot, subject: bytes) -> None:
    """Raise if a subject has no sample: whoever names it has most likely misspelt it."""
    if next(snapshot.scan("subjects", *layout.subject_range(subject)), None) is None:
        snapshot.confirm("subjects")
        raise SampleNotFound(f"no sample of this subject is in '{snapshot.generation.store}'")


def _of(snapshot: Snapshot, subject: bytes) -> Iterator[Hold]:
    for key, payload in snapshot.scan("holds", *layout.subject_range(subject)):
        yield _parsed(key, payload)


def _parsed(key: bytes, payload: bytes) -> Hold:
    subject, number = layout.parse_subject_key(key)
    reason, since, until = unframe(payload)
    in_force = until is None or until > time.time()
    return Hold(number, subject.hex(), reason, since, None if until is None else moments.spelt(until), in_force)


def _reason(reason: Any) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidInput("a hold needs a reason; pass a non-empty text")
    text = " ".join(reason.split())
    if len(text) > LONGEST_REASON:
        raise InvalidInput(f"the reason has {len(text)} characters; at most {LONGEST_REASON} are kept")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the reason is not valid Unicode text; write it in another way") from None
    return text
