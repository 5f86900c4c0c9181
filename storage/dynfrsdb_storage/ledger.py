"""The ledger: a chain in which no entry can be changed, dropped or moved unnoticed.

Each entry carries its sequence number, the hash of the entry before it, and its own hash:

    hash = sha256(prev + msgpack(entry without its hash))          the first prev is 32 zero bytes

The store's counters keep the last hash (`head`) and the last number (`sequence`), so cutting off the end is seen as
well.

What an entry says is the business of the layers above; here it is a dict.
"""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgpack

FIRST_PREV = bytes(32)

Entry = dict[str, Any]


def now() -> str:
    """The time as the ledger has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def link(entry: Entry, sequence: int, prev: bytes) -> Entry:
    """`entry` as the next one of the chain."""
    linked = {**entry, "sequence": sequence, "prev": prev}
    return {**linked, "hash": entry_hash(linked)}


def entry_hash(entry: Entry) -> bytes:
    """The hash that an entry must carry."""
    body: bytes = msgpack.packb({k: v for k, v in entry.items() if k != "hash"}, use_bin_type=True)
    return hashlib.sha256(entry["prev"] + body).digest()


def broken_links(
    entries: Iterable[Entry], sequence: int, head: bytes, number: int = 0, prev: bytes = FIRST_PREV
) -> list[str]:
    """What is wrong with a chain that should go from behind entry `number` with hash `prev`, by default from the
    beginning, to entry `sequence` with hash `head`; in words."""
    problems = []
    for entry in entries:
        number += 1
        if entry.get("sequence") != number:
            problems.append(f"ledger entry {number} says it is number {entry.get('sequence')}")
        if entry.get("prev") != prev:
            problems.append(f"ledger entry {number} does not follow the one before it")
        elif entry.get("hash") != entry_hash(entry):
            problems.append(f"ledger entry {number} was changed")
        prev = entry.get("hash", FIRST_PREV)
    if number != sequence:
        problems.append(f"the ledger has {number} entries, the store's counters say {sequence}")
    elif prev != head:
        problems.append("the last ledger entry is not the one that the store's counters name")
    return problems
