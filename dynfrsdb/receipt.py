"""Receipts: what a change did, as the ledger has it.

A receipt holds no raw identifier: removed ids and forgotten subjects appear as keyed hashes. `ids` is the one
exception, and is not part of the ledger: it tells the caller of `add` which ids were assigned.

Samples are not all that the ledger tells of: the stages of removals, holds, waiting requests, backups and restorations
have entries too. Those have zeros for what they leave alone, and fields of their own in `details`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dynfrsdb_storage.ledger import now as now


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Evidence of one commit."""

    sequence: int
    time: str
    kind: str
    added: int = 0
    removed: int = 0
    samples: int = 0
    trees: int = 0
    nodes: int = 0
    tagged: int = 0
    digest_before: str = ""
    digest_after: str = ""
    removed_ids: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    request: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    prev: str
    hash: str
    ids: tuple[int, ...] = field(default=(), compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The receipt as plain values, without the ids that only the caller knows."""
        values = {name: value for name, value in self.__dict__.items() if name not in ("ids", "details")}
        return {**values, **self.details}


@dataclass(frozen=True)
class Plan:
    """What a change would do; nothing was changed to find out."""

    added: int
    removed: int
    trees: int
    nodes: int
    tagged: int
    resplit: int
    """Nodes whose best split would be another one: another feature, or another threshold.

    Nodes that would become leaves or buckets, or lose or gain more samples than half of what they have, are not asked;
    those are among the voided."""
    voided: int
    """Nodes that would not split as they do now, so that everything below is grown anew.

    Their best split would be another one, or they would be leaves or buckets, or most of their samples change."""
    records: int
    bytes: int
    seconds: float
    """About how long it would take: what the same work took in memory, and a disk of ordinary speed."""

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values."""
        return dict(self.__dict__)


def new_entry(kind: str, state: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A ledger entry of a commit that changes no sample of a store with these counters."""
    return {
        "time": now(),
        "kind": kind,
        "added": 0,
        "removed": 0,
        "samples": state["samples"],
        "trees": 0,
        "nodes": 0,
        "tagged": 0,
        "digest_before": state["digest"],
        "digest_after": state["digest"],
        "removed_ids": [],
        "subjects": [],
        "request": None,
        **more,
    }


def receipt_of(entry: Mapping[str, Any], ids: tuple[int, ...] = ()) -> Receipt:
    """The receipt of a ledger entry."""
    said = {name: _shown(value) for name, value in entry.items()}
    details = {name: said.pop(name) for name in entry if name not in Receipt.__dataclass_fields__}
    return Receipt(**said, details=details, ids=ids)


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return tuple(map(_shown, value)) if isinstance(value, list) else value
