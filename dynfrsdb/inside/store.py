"""A store opened for looking, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dynfrsdb import chain, suppression
from dynfrsdb.errors import Error
from dynfrsdb.inside.nodes import Trees
from dynfrsdb.receipt import Receipt, receipt_of
from dynfrsdb.settings import Settings
from dynfrsdb_storage import Snapshot, Store, layout
from dynfrsdb_storage.records import unframe

Result = TypeVar("Result")


class Inside(NamedTuple):
    """One commit of a store."""

    store: Store
    snapshot: Snapshot
    settings: Settings

    @property
    def trees(self) -> Trees:
        """Its trees."""
        return Trees(self.snapshot, self.settings)


def look(path: Path, ask: Callable[[Inside], Result]) -> Result:
    """What `ask` says of the newest commit; asked again if that commit had to be let go of meanwhile.

    (It is let go of when the store has outgrown this process's map of it. `Database` does the same.)
    """
    with Store.open(path, writable=False) as store:
        while True:
            with store.snapshot() as snapshot:
                try:
                    found = ask(Inside(store, snapshot, Settings.from_record(snapshot.settings)))
                except Error:
                    if not snapshot.ended:
                        raise
                else:
                    if not snapshot.ended:
                        return found


def info(inside: Inside) -> dict[str, Any]:
    """Sizes, counts, settings and readers; never the seed."""
    settings, state, snapshot = inside.settings, inside.snapshot.state, inside.snapshot
    shown = settings.record()
    del shown["seed"]
    return {
        **inside.store.info(),
        "task": settings.task,
        "samples": state["samples"],
        "samples_with_subject": snapshot.count("subjects"),
        "subjects": snapshot.count_beginnings("subjects", layout.SUBJECT_BYTES),
        "trees": settings.n_trees,
        "nodes": snapshot.count("nodes"),
        "buckets": snapshot.count("buckets"),
        "tags": state["tags"],
        "holds": snapshot.count("holds"),
        "waiting_requests": snapshot.count("queue"),
        "suppression": suppression.mode(state),
        "suppressed": snapshot.count("suppression"),
        "changes": state["sequence"],
        "sample_digest": state["digest"].hex(),
        "ledger_head": state["head"].hex(),
        "taken_from_data": shown.pop("from_data"),
        "settings": shown,
    }


def ledger(snapshot: Snapshot, since: str | None = None) -> list[Receipt]:
    """All changes, or those since a head that was kept, oldest first."""
    if since is not None:
        return [receipt_of(entry) for entry in chain.since(snapshot, since)]
    snapshot.confirm("ledger", int(snapshot.state["sequence"]))
    return [receipt_of(unframe(payload)) for _, payload in snapshot.scan("ledger")]
