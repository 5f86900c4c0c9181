"""Suppression: who was forgotten does not come back unnoticed.

A person is forgotten, and the next import from a system that still has them would bring them back. A store can keep a
list of the keyed hashes of forgotten subjects:

    suppression     key: subject hash        record: empty

What `add` does with a sample of somebody on the list is the store's mode, kept with its counters:

    off       nothing is looked up; forgetting puts nobody on the list
    refuse    the whole call is refused, and the error names the row
    skip      the sample is left out and counted; the ledger has the number

When the list is turned on, everybody whom the ledger knows to be forgotten, and who has no sample now, is put on it.
Turning it off empties it. A person who wants to come back is taken off by name.

The hashes are those under which samples of a subject are found, so the list says no more about people than the ledger
does. Needs no engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dynfrsdb import chain
from dynfrsdb.errors import InvalidInput, SampleNotFound, Suppressed
from dynfrsdb.receipt import Receipt, new_entry, receipt_of
from dynfrsdb.secrets import Secrets
from dynfrsdb_storage import Snapshot, Store, WriteSession, layout
from dynfrsdb_storage.ledger import Entry

OFF, REFUSE, SKIP = "off", "refuse", "skip"
MODES = (OFF, REFUSE, SKIP)
MODE = "suppression"
"""The name of the mode among the store's counters."""


def mode(state: Mapping[str, Any]) -> str:
    """What a store with these counters does with samples of forgotten subjects."""
    return str(state.get(MODE, OFF))


def listed(snapshot: Snapshot) -> set[bytes]:
    """The hashes of everybody on the list."""
    return {key for key, _ in snapshot.scan("suppression")}


def switch(store: Store, wanted: Any, timeout: float) -> Receipt:
    """Set a store's mode."""
    if not isinstance(wanted, str) or wanted not in MODES:
        raise InvalidInput(f"{wanted!r} is not a mode of suppression; pass 'off', 'refuse' or 'skip'")
    with store.write(timeout, "suppress") as session:
        turned_on = wanted != OFF and mode(session.state) == OFF
        subjects = sorted(_forgotten(session.snapshot)) if turned_on else []
        made = session.append_ledger(new_entry("suppression", session.state, subjects=subjects, mode=wanted))
        session.state[MODE] = wanted
        if wanted == OFF:
            empty(session)
        for subject in subjects:
            put(session, subject)
        session.commit()
    return receipt_of(made)


def standing(entries: Iterable[Entry]) -> tuple[str, set[bytes]]:
    """The mode, and the list, that follow from a ledger."""
    current: str = OFF
    known: set[bytes] = set()
    for each in entries:
        if each["kind"] == "suppression":
            current = each["mode"]
            known = set() if current == OFF else known.union(each["subjects"])
        elif each["kind"] == "lift":
            known.difference_update(each["subjects"])
        elif each["kind"] == "change" and current != OFF:
            known.update(each["subjects"])
    return current, known


def empty(session: WriteSession) -> None:
    """Take everybody off the list with the next commit, but for those who are put on it before that."""
    session.delete_range("suppression", bytes(layout.SUBJECT_BYTES), b"\xff" * layout.SUBJECT_BYTES)


def put(session: WriteSession, subject: bytes) -> None:
    """Put a subject on the list with the next commit."""
    session.put("suppression", subject, b"")


def lift(store: Store, secrets: Secrets, subject: bytes, timeout: float) -> Receipt:
    """Take a subject off the list."""
    hashed = secrets.subject(subject)
    with store.write(timeout, "lift") as session:
        if session.snapshot.get("suppression", [hashed])[0] is None:
            raise SampleNotFound(f"this subject is not on the suppression list of '{store.path}'")
        session.delete("suppression", hashed)
        made = session.append_ledger(new_entry("lift", session.state, subjects=[hashed]))
        session.commit()
    return receipt_of(made)


def unwelcome(
    snapshot: Snapshot, state: Mapping[str, Any], subjects: Sequence[bytes], forgotten: Sequence[bytes] = ()
) -> list[int]:
    """Which rows with these subjects (b"" for none) are of somebody on the list, or just `forgotten`."""
    if mode(state) == OFF:
        return []
    named = sorted(set(filter(None, subjects)))
    found = zip(named, snapshot.get("suppression", named), strict=True)
    known = {subject for subject, payload in found if payload is not None} | set(forgotten)
    return [row for row, subject in enumerate(subjects) if subject in known]


def refusal(store: object, place: str) -> Suppressed:
    """The error for a row of somebody on the list."""
    return Suppressed(
        f"{place}: its subject was forgotten and is on the suppression list of '{store}'; leave the row out, or take "
        f"the subject off the list with 'dynfrsdb suppress {store} --lift SUBJECT'"
    )


def _forgotten(snapshot: Snapshot) -> set[bytes]:
    """Subjects that the ledger knows to be forgotten, not taken off the list since, and that have no sample now."""
    named: set[bytes] = set()
    for each in chain.entries(snapshot):
        if each["kind"] == "change":
            named.update(each["subjects"])
        elif each["kind"] == "lift":
            named.difference_update(each["subjects"])
    return {each for each in named if not any(True for _ in snapshot.scan("subjects", *layout.subject_range(each)))}
