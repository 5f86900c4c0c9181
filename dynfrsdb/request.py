"""Request ids: asking twice changes nothing.

A transaction with a request id notes, in its own commit, the id's hash with its sequence number and a hash of
everything it was asked to do. When the same id comes again, the transaction only collects what it is asked: the same
gives the first receipt, anything else is a conflict."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from dynfrsdb.errors import InvalidInput
from dynfrsdb.secrets import Secrets
from dynfrsdb_storage import Snapshot, layout
from dynfrsdb_storage.records import frame, unframe


class Asked:
    """A hash of the operations of a transaction, in their order."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=32)

    def note(self, verb: str, *parts: npt.NDArray[Any] | list[bytes] | bytes | None) -> None:
        """Note one call with everything it was given."""
        self._hash.update(verb.encode())
        for part in parts:
            data = part.tobytes() if isinstance(part, np.ndarray) else msgpack.packb(part)
            self._hash.update(len(data).to_bytes(8, "little") + data)

    def digest(self) -> bytes:
        """The hash so far."""
        return self._hash.digest()


@dataclass(frozen=True)
class Known:
    """A request that was carried out: its ledger entry, the hash of what it asked, and the ids it was assigned."""

    sequence: int
    asked: bytes
    assigned: list[list[int]]


def request_bytes(request_id: Any) -> bytes:
    """A request id as bytes, or an error that says what it may be."""
    if isinstance(request_id, str) and request_id:
        return request_id.encode("utf-8", "surrogatepass")
    if isinstance(request_id, bytes) and request_id:
        return request_id
    raise InvalidInput(f"request_id={request_id!r} is not a non-empty str or bytes")


def find(snapshot: Snapshot, key: bytes) -> Known | None:
    """What is known of a request, by its hash."""
    payload = snapshot.get("requests", [key])[0]
    return None if payload is None else Known(*unframe(payload))


def note(known: Known, secrets: Secrets) -> bytes:
    """The record of a request that is being carried out."""
    return frame([known.sequence, secrets.request(known.asked), known.assigned])


def entry_at(snapshot: Snapshot, sequence: int) -> dict[str, Any]:
    """The ledger entry with this number."""
    payload = snapshot.get("ledger", [layout.sequence_key(sequence)])[0]
    assert payload is not None, f"request names ledger entry {sequence}, which is not there"
    entry: dict[str, Any] = unframe(payload)
    return entry
