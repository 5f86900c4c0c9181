"""What stands follows from the ledger: holds, waiting requests, the suppression list.

Each of them is a database of its own, because it is asked often, but says nothing that the ledger does not (except the
reasons of holds, which are people's text). So whoever puts in a hold or takes one out behind the ledger's back is
noticed by `check`, and a backup whose ledger was continued can be brought to where the store was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynfrsdb import chain, holds, later, suppression
from dynfrsdb.secrets import Secrets
from dynfrsdb_storage import Snapshot, WriteSession
from dynfrsdb_storage.ledger import Entry
from dynfrsdb_storage.records import frame, unframe

LOST_REASON = "the reason was lost when the store was restored from a backup"


def flaws(snapshot: Snapshot, secrets: Secrets) -> list[str]:
    """What stands in a store and should not, or does not stand and should; in words."""
    entries = chain.entries(snapshot)
    mode, listed = suppression.standing(entries)
    problems = []
    if suppression.mode(snapshot.state) != mode:
        problems.append(f"the suppression is {suppression.mode(snapshot.state)}, but the ledger says {mode}")
    if suppression.listed(snapshot) != listed:
        problems.append("the suppression list is not that of the ledger")
    stands = (("holds", "hold", holds.standing(entries)), ("queue", "waiting request", later.standing(entries)))
    for database, what, expected in stands:
        found = {key: unframe(payload) for key, payload in snapshot.scan(database)}
        for key in sorted({*found, *expected}):
            number = int.from_bytes(key[-8:], "big")
            if key not in found:
                problems.append(f"{what} {number} is missing")
            elif key not in expected:
                problems.append(f"{what} {number} is not in the ledger")
            elif not _same(database, found[key], expected[key], secrets):
                problems.append(f"{what} {number} is not what the ledger says")
    return problems


def bring_up(session: WriteSession, entries: list[Entry]) -> None:
    """Make everything stand, with the next commit, as a ledger says."""
    for key, entry in _differing(session, "holds", holds.standing(entries)).items():
        session.put("holds", key, frame(holds.record(entry, LOST_REASON)))
    for key, entry in _differing(session, "queue", later.standing(entries)).items():
        session.put("queue", key, frame(later.record(entry)))
    mode, listed = suppression.standing(entries)
    session.state[suppression.MODE] = mode
    suppression.empty(session)
    for subject in listed:
        suppression.put(session, subject)


def _differing(session: WriteSession, database: str, expected: Mapping[bytes, Entry]) -> dict[bytes, Entry]:
    """Delete what should not stand; returns what should and does not."""
    there = {key for key, _ in session.snapshot.scan(database)}
    for key in there - expected.keys():
        session.delete(database, key)
    return {key: entry for key, entry in expected.items() if key not in there}


def _same(database: str, found: list[Any], entry: Entry, secrets: Secrets) -> bool:
    if database == "queue":
        return found == later.record(entry)
    reason = found[0]
    known = reason == LOST_REASON or secrets.reason(reason) == entry["reason"]
    return known and found == holds.record(entry, reason)
