"""Records: a payload with a checksum that knows where it belongs.

LMDB has no checksums; half of all random bit flips in its file would otherwise come back as silently wrong data. A
value in the store is

    crc32 u32 | payload | zero padding

and the checksum covers the name of the database and the key as well, so that a valid record in the wrong place fails
too.

LMDB keeps small values inside its pages and gives each large one whole pages of its own, 16 bytes of which it needs
itself. So a value either has at most 1900 bytes (two fit a page) or is padded to exactly k*4096 - 16: no page is left
half empty, and the padding is part of what the checksum covers. A large payload therefore comes back with trailing
zeros. Whoever wrote a binary record knows its length from its content; a msgpack record does not, and is framed:

    length u32 | msgpack

Not done here: what nodes, buckets and requests mean; their payloads are opaque bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

import msgpack

from dynfrsdb_storage import layout
from dynfrsdb_storage.errors import CorruptStore

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from dynfrsdb_storage import lazynumpy as np

_SEEDS = {name: zlib.crc32(name.encode() + b"\0") for name in layout.DATABASES}
_U32 = struct.Struct("<I")
_PENDING = struct.Struct("<IQ")
_INLINE = layout.INLINE_LIMIT - layout.CHECKSUM_BYTES
"""Bytes of a payload that needs no pages of its own."""

Payload: TypeAlias = bytes | memoryview
Sealed: TypeAlias = "tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.int64]]"
"""Records of one database that somebody else has packed: one line per key, all values, and where each of them ends."""
Roots: TypeAlias = "tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32], npt.NDArray[np.uint8]]"


def seed(database: str) -> int:
    """The checksum of the name of a database, from which those of its records go on."""
    return _SEEDS[database]


def pack(database: str, key: bytes, payload: Payload) -> bytes:
    """The value to store under `key` of `database`: checksum, payload, padding."""
    data = payload if len(payload) <= _INLINE else _filled_up(payload)
    return zlib.crc32(data, zlib.crc32(key, _SEEDS[database])).to_bytes(4, "little") + data


def pack_many(database: str, pairs: Iterable[tuple[bytes, Payload]]) -> dict[bytes, bytes]:
    """`pack` for many (key, payload), in their order.

    As a dict, because thousands of pairs would have the garbage collector look through the whole process.
    """
    seed, crc32 = _SEEDS[database], zlib.crc32
    return {
        key: crc32(data, crc32(key, seed)).to_bytes(4, "little") + data
        for key, payload in pairs
        for data in (payload if len(payload) <= _INLINE else _filled_up(payload),)
    }


def portions(sealed: Sealed, most: int) -> Iterator[Sealed]:
    """Sealed records, so many at a time."""
    keys, values, ends = sealed
    for first in range(0, len(keys), most):
        begin = int(ends[first - 1]) if first else 0
        here = ends[first : first + most]
        yield keys[first : first + most], values[begin : int(here[-1])], here - begin


def cut_apart(sealed: Sealed) -> tuple[list[bytes], list[bytes]]:
    """Sealed records as (keys, values)."""
    keys, values, ends = sealed
    each: list[bytes] = keys.view(f"V{keys.shape[1]}").ravel().tolist()
    sizes = ends.copy()
    sizes[1:] -= ends[:-1]
    return each, list(map(BytesIO(values.data).read, sizes.tolist()))


def unpack(database: str, key: bytes, value: bytes) -> bytes | None:
    """The payload of a value (with its padding), or None if the checksum says that it is not what was written here."""
    payload = value[4:]
    if len(value) < 4 or zlib.crc32(payload, zlib.crc32(key, _SEEDS[database])) != _U32.unpack_from(value)[0]:
        return None
    return payload


def frame(message: Any) -> bytes:
    """A payload that holds `message` as msgpack and says how long it is."""
    body: bytes = msgpack.packb(message, use_bin_type=True)
    return _U32.pack(len(body)) + body


def unframe(payload: bytes) -> Any:
    """The message of a framed payload."""
    length = _U32.unpack_from(payload)[0]
    if length > len(payload) - 4:
        raise CorruptStore(f"a record says it has {length} bytes but holds {len(payload) - 4}; run 'dynfrsdb check'")
    return msgpack.unpackb(payload[4 : 4 + length], raw=False, strict_map_key=False)


def sample_payload(slot: int, subject: bytes = b"") -> bytes:
    """The record of a sample: its slot and, if it belongs to a subject, the subject's 16-byte hash."""
    if len(subject) not in (0, layout.SUBJECT_BYTES):
        raise ValueError(f"a subject hash has {layout.SUBJECT_BYTES} bytes, this one {len(subject)}")
    return _U32.pack(slot) + subject


def parse_sample(payload: bytes) -> tuple[int, bytes]:
    """The (slot, subject hash or b"") of a sample's record."""
    return _U32.unpack_from(payload)[0], payload[4:]


def count_payload(count: int) -> bytes:
    """The record of a range of slots: how many there are."""
    return _U32.pack(count)


def parse_count(payload: bytes) -> int:
    """How many slots a range holds."""
    return int(_U32.unpack_from(payload)[0])


def pending_payload(count: int, sequence: int) -> bytes:
    """The record of a range of removed slots: how many there are, and the ledger entry of their removal."""
    return _PENDING.pack(count, sequence)


def parse_pending(payload: bytes) -> tuple[int, int]:
    """The (count, sequence) of a range of removed slots."""
    count, sequence = _PENDING.unpack_from(payload)
    return count, sequence


def roots_payload(stamps: layout.Array, n: layout.Array, tags: layout.Array) -> bytes:
    """The record of up to 128 roots: all stamps u64, then all n u32, then all flags u8."""
    return stamps.astype("<u8").tobytes() + n.astype("<u4").tobytes() + tags.astype("u1").tobytes()


def parse_roots(payload: bytes, trees: int) -> Roots:
    """The (stamps, n, tags) of the `trees` roots in a record."""
    _check_roots(payload, trees)
    stamps = np.frombuffer(payload, "<u8", trees).astype(np.uint64)
    n = np.frombuffer(payload, "<u4", trees, 8 * trees).astype(np.uint32)
    return stamps, n, np.frombuffer(payload, "u1", trees, 12 * trees).copy()


def parse_root(payload: bytes, trees: int, at: int) -> tuple[int, int, bool]:
    """The (stamp, n, whether it has tags) of root `at` of the `trees` in a record."""
    _check_roots(payload, trees)
    (stamp,), (n,) = struct.unpack_from("<Q", payload, 8 * at), _U32.unpack_from(payload, 8 * trees + 4 * at)
    return stamp, n, bool(payload[12 * trees + at])


def _check_roots(payload: bytes, trees: int) -> None:
    if len(payload) != 13 * trees:
        raise CorruptStore(
            f"a roots record has {len(payload)} bytes, {trees} trees take {13 * trees}; run 'dynfrsdb check'"
        )


def set_roots(roots: Roots, trees: layout.Array, stamps: layout.Array, n: layout.Array, tags: layout.Array) -> None:
    """Set the columns of some trees in `roots`."""
    roots[0][trees] = stamps
    roots[1][trees] = n
    roots[2][trees] = tags


def describe(database: str, key: bytes) -> str:
    """A record's name in words, for an error message."""
    if database in ("nodes", "buckets") and layout.is_node_key(key):
        tree, path = layout.parse_node_key(key)
        return f"tree {tree}, {database.removesuffix('s')} {path:#b}"
    if database == "samples":
        return f"the record of sample {layout.parse_id_key(key)}"
    if database == "ledger":
        return f"ledger entry {int.from_bytes(key, 'big')}"
    if database == "roots":
        first = int.from_bytes(key, "big") * layout.ROOTS_PER_RECORD
        return f"the roots of trees {first} to {first + layout.ROOTS_PER_RECORD - 1}"
    if database == "meta":
        return f"the store's {key.decode(errors='replace')} record"
    return f"record {key.hex()} of '{database}'"


def _filled_up(payload: Payload) -> bytes:
    """A payload that has pages of its own, with zeros up to the end of the last."""
    size = layout.CHECKSUM_BYTES + layout.PAGE_HEADER + len(payload)
    return b"".join((payload, bytes(-size % layout.PAGE_BYTES)))
