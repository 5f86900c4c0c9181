"""Receipts: what a change did, as the ledger has it.

A receipt holds no raw identifier: removed ids and forgotten subjects appear as keyed hashes. `ids` is the one
exception, and is not part of the ledger: it tells the caller of `add` which ids were assigned."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class Receipt:
    """Evidence of one committed change."""

    sequence: int
    time: str
    kind: str
    added: int
    removed: int
    samples: int
    trees: int
    nodes: int
    tagged: int
    digest_before: str
    digest_after: str
    removed_ids: tuple[str, ...]
    subjects: tuple[str, ...]
    request: str | None
    prev: str
    hash: str
    ids: tuple[int, ...] = field(default=(), compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The receipt as plain values, without the ids that only the caller knows."""
        return {name: value for name, value in self.__dict__.items() if name != "ids"}


@dataclass(frozen=True)
class Plan:
    """What a change would do; nothing was changed to find out."""

    added: int
    removed: int
    trees: int
    nodes: int
    tagged: int
    voided: int
    records: int
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values."""
        return dict(self.__dict__)


def now() -> str:
    """The time as the ledger has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def receipt_of(entry: dict[str, Any], ids: tuple[int, ...] = ()) -> Receipt:
    """The receipt of a ledger entry."""
    hexed: dict[str, Any] = {
        name: value.hex() if isinstance(value, bytes) else value
        for name, value in entry.items()
        if name not in ("removed_ids", "subjects")
    }
    return Receipt(
        **hexed,
        removed_ids=tuple(value.hex() for value in entry["removed_ids"]),
        subjects=tuple(value.hex() for value in entry["subjects"]),
        ids=ids,
    )
