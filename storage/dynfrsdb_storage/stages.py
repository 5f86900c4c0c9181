"""Stages: how far a removal has come, in the ledger.

    unlearned       the entry of the change itself: no record depends on the sample any more
    rows erased     its slot in rows.bin was overwritten, and that was synced
    erased          the generation it was in has been overwritten and is gone: nothing of it is left in any file

Rows are overwritten in the order of commits, because what holds them back is the oldest reader; and a vacuum leaves
everything behind that was removed before it. So a stage is always reached by all removals up to some entry, and one
entry says so for all of them:

    41  change        removed 2
    42  change        removed 1
    43  rows erased   through 42
    44  vacuum        through 43     a new generation is live; the old one is still being held, or overwritten
    45  erased        through 43

Three counters say the same at a glance: `rows_erased`, `vacuumed` and `erased`. Entries are written with the next
commit, or by one of their own when a handle is idle or is closed, so a stage is never noted before it was reached.
"""

from collections.abc import Iterable
from typing import Any

from dynfrsdb_storage.ledger import Entry, now

ROWS_ERASED = "rows erased"
VACUUM = "vacuum"
ERASED = "erased"
COUNTERS = ("rows_erased", "vacuumed", "erased")
_REACHED = {ROWS_ERASED: ("rows_erased",), VACUUM: ("vacuumed",), ERASED: ("rows_erased", "erased")}


def rows_erased(state: dict[str, Any], waiting: Iterable[int]) -> Entry | None:
    """The entry for rows that were overwritten, given the entries whose rows still wait; None if that is not new."""
    through = min((sequence - 1 for sequence in waiting), default=int(state["sequence"]))
    return _entry(ROWS_ERASED, through) if through > state.get("rows_erased", 0) else None


def vacuumed(state: dict[str, Any], generation: int) -> Entry:
    """The entry with which a new generation begins."""
    return {**_entry(VACUUM, int(state["sequence"])), "generation": generation}


def erased(state: dict[str, Any], generations: Iterable[str]) -> Entry | None:
    """The entry for what a vacuum left behind, once no generation but the live one is there; None if it is not due."""
    return _entry(ERASED, state["vacuumed"]) if is_vacuumed(state) and not any(generations) else None


def is_vacuumed(state: dict[str, Any]) -> bool:
    """Whether a vacuum was made whose old generation is not known to be gone."""
    return int(state.get("vacuumed", 0)) > int(state.get("erased", 0))


def reached(state: dict[str, Any], entry: Entry) -> dict[str, int]:
    """The counters that an entry of a stage raises; what is further on already stays where it is."""
    return {name: max(int(state.get(name, 0)), int(entry["through"])) for name in _REACHED[entry["kind"]]}


def of_these_files(entries: Iterable[Entry]) -> list[Entry]:
    """Entries without those that a restored store took over (`replayed` of them, behind entry `backup`) from the one
    that was lost: what was erased there may be in the files of a backup."""
    listed = list(entries)
    taken = [(entry["backup"], entry["backup"] + entry["replayed"]) for entry in listed if "replayed" in entry]
    return [entry for entry in listed if not any(first < entry["sequence"] <= last for first, last in taken)]


def counted(entries: Iterable[Entry]) -> dict[str, int]:
    """The counters as the ledger has them."""
    counters = dict.fromkeys(COUNTERS, 0)
    for entry in of_these_files(entries):
        if entry.get("kind") in _REACHED:
            counters.update(reached(counters, entry))
    return counters


def _entry(kind: str, through: int) -> Entry:
    return {"time": now(), "kind": kind, "through": through}
