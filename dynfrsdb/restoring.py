"""Restore: a backup becomes the store again, and who was forgotten meanwhile is forgotten in it, too.

A backup is a state of the past, with people in it who were removed later. The ledger is the list of those removals, if
it was exported since and kept elsewhere:

    backup      entries 1 .. 40
    export             .. 40  41 remove  42 add  43 forget  44 hold  45 remove
    restored    entries 1 .. 40 .. 45  46 restore

An exported entry names removed ids by their keyed hashes only. The backup has the key and the ids, so each of its ids
is hashed and looked up. The entries themselves are copied: they fit the chain, so a receipt for one of them is in the
ledger of the restored store, and a head that was kept still is its past. Holds, waiting requests and the suppression
list are brought to where they were, except for the reasons of holds, which are in no ledger.

Samples that were added after the backup are lost; how many is reported. Ids that were assigned to them are not assigned
again.

It takes two commits. The first copies the entries and marks the backup: from then on nobody can open it, until the
second has applied them and takes the mark away. If the process dies between, restoring is to be done again, and can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain as joined
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynfrsdb import chain, standing
from dynfrsdb.errors import InvalidInput
from dynfrsdb.inputs import LAST_ID
from dynfrsdb_storage import Snapshot, Store, layout
from dynfrsdb_storage.ledger import Entry
from dynfrsdb_storage.records import frame

if TYPE_CHECKING:
    from dynfrsdb.receipt import Receipt
    from dynfrsdb.secrets import Secrets


@dataclass(frozen=True)
class Restored:
    """What restoring a backup did."""

    receipt: Receipt
    replayed: int
    """Ledger entries that came after the backup."""
    removed: int
    lost: int
    """Samples that were added after the backup and lived in the end: the store does not have them."""

    def as_dict(self) -> dict[str, Any]:
        """What was done, as plain values."""
        return {"replayed": self.replayed, "removed": self.removed, "lost": self.lost, **self.receipt.as_dict()}


def restore(path: Path, replay: Path, timeout: float = 30.0) -> Restored:
    """Apply to the backup at `path` every removal that the exported ledger `replay` has behind it."""
    from dynfrsdb.database import Database  # brings the engine along

    exported = chain.read_export(replay)
    with Store.open(path, writable=True, restoring=True) as store:
        _mark(store, exported, replay, timeout)
    with Database(path, "w", settle=None, _restoring=True) as db, db.transaction(timeout=timeout) as txn:
        session = txn._open()
        ledger = chain.entries(session.snapshot)
        first, last = session.state.pop(layout.RESTORING)
        tail = ledger[first:last]
        gone = _living(session.snapshot, db._secrets, tail)
        txn._heeds_holds = False
        txn.remove(gone)
        lost = _lost(tail, len(gone))
        txn._entry.update(kind="restore", backup=first, replayed=len(tail), lost=lost)
        session.state["next_id"] = min(session.state["next_id"] + _added(tail), LAST_ID)
        standing.bring_up(session, ledger)
    assert txn.receipt is not None
    return Restored(txn.receipt, len(tail), len(gone), lost)


def _mark(store: Store, exported: list[Entry], replay: Path, timeout: float) -> None:
    """Continue the ledger of a backup, and keep everybody out until that is applied."""
    with store.write(timeout, "restore") as session:
        if layout.RESTORING in session.state:
            _refuse_other(session.snapshot, exported, replay)
            return
        last = int(session.state["sequence"])
        for entry in _tail(session.snapshot, exported, replay):
            session.put("ledger", layout.sequence_key(entry["sequence"]), frame(entry))
            session.state.update(sequence=entry["sequence"], head=entry["hash"])
        session.state[layout.RESTORING] = [last, session.state["sequence"]]
        session.commit()


def _refuse_other(snapshot: Snapshot, exported: list[Entry], replay: Path) -> None:
    """Raise unless the ledger that restoring was begun with is this one."""
    ledger, last = chain.entries(snapshot), exported[-1]
    if last["sequence"] > len(ledger) or ledger[last["sequence"] - 1] != last:
        raise InvalidInput(
            f"restoring '{snapshot.generation.store}' was begun with another ledger than '{replay}'; go on with that "
            "one, or begin again with a fresh copy of the backup"
        )


def _tail(snapshot: Snapshot, exported: list[Entry], replay: Path) -> list[Entry]:
    """The exported entries behind the backup's ledger; raises if they do not continue it."""
    store, last = snapshot.generation.store, int(snapshot.state["sequence"])
    first = exported[0]["sequence"]
    if exported[-1]["sequence"] < last:
        raise InvalidInput(
            f"'{store}' has {last} entries and '{replay}' ends with entry {exported[-1]['sequence']}: the store was "
            "restored from it already, or the export is older than the backup; export the newest ledger"
        )
    if first > last + 1:
        raise InvalidInput(
            f"'{replay}' begins with entry {first}, but '{store}' has {last} only: those between are missing; export "
            "the whole ledger"
        )
    behind = last + 1 - first
    before = exported[behind - 1]["hash"] if behind else exported[0]["prev"]
    if before != snapshot.state["head"]:
        raise InvalidInput(
            f"'{replay}' does not continue the ledger of '{store}': entry {last} is another one. It is the ledger of "
            "another store, or this copy was changed since it was made"
        )
    return exported[behind:]


def _living(snapshot: Snapshot, secrets: Secrets, tail: list[Entry]) -> list[int]:
    """The ids of the backup that were removed after it."""
    removed = set(joined.from_iterable(entry.get("removed_ids", ()) for entry in tail))
    ids = (layout.parse_id_key(key) for key, _ in snapshot.scan("samples"))
    return [id for id in ids if secrets.id(id) in removed] if removed else []


def _added(tail: list[Entry]) -> int:
    return sum(int(entry.get("added", 0)) for entry in tail)


def _lost(tail: list[Entry], removed: int) -> int:
    """How many samples came after the backup and stayed, if the backup had `removed` of those that went."""
    removals = sum(len(entry.get("removed_ids", ())) for entry in tail)
    lost_before = sum(int(entry.get("lost", 0)) for entry in tail)
    return _added(tail) - (removals - removed) - lost_before
