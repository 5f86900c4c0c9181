"""Records as a store keeps them: each under its key, behind its checksum.

Growing and commits make payloads. A store wants more, and wants it for thousands of records at once:

    key      tree u16 | path bits, left-aligned, 56 | depth u8 | chunk u32, of buckets only     big-endian
    value    crc32 u32 | payload | zeros, if it is so large that it gets pages of its own        little-endian

Made here, by threads that need no interpreter, so that whoever writes only has to hand them on. The checksum covers the
name of the database, the key, and everything behind itself; it goes on from a `seed`, which is that of the name. Seeds,
like all bytes on disk, are the storage layer's, and a test compares every byte of ours with its own.

    growth (tree 3)               nodes               buckets
      split  1     n=900      ->  3|0b1
      bucket 2     n=120      ->                      3|0b10|0
      leaf   3     n=780      ->  3|0b11              3|0b11|4        slots 4 .. 611: its list, by `chunk`
                                                      3|0b11|613      slots 613 .. 899

Records keep their order. If they come in pre-order, as growing makes them, keys ascend."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.checksum import crc32
from dynfrsdb_engine.jobs import Growth
from dynfrsdb_engine.kernel import inner, kernel
from dynfrsdb_engine.reference import refer
from dynfrsdb_engine.unaligned import get32, get64, put32, put64

NODE_KEY, BUCKET_KEY = 10, 14
"""Bytes of a key."""
MAX_DEPTH = np.uint64(56)
INLINE, PAGE, PAGE_HEADER, CHECKSUM = np.int64(1900), np.int64(4096), np.int64(16), np.int64(4)
"""A value has at most INLINE bytes, or fills whole pages but for a header."""
BYTE, EIGHT, ONE = np.uint64(0xFF), np.uint64(8), np.uint64(1)
FIRST = np.int64(0)
"""The chunk of a bucket that is not a list."""
NODES, BUCKETS, BUCKET_BYTES = 0, 2, 3
"""Places in what `measure` adds up."""


class Sealed(NamedTuple):
    """Records of one database: one line per key; value i is `values[ends[i - 1] : ends[i]]`."""

    keys: npt.NDArray[np.uint8]
    values: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]


@inner
def copy_bytes(data: npt.NDArray[np.uint8], at: int, size: int, out: npt.NDArray[np.uint8], to: int) -> None:
    """Copy `data[at : at + size]` to `out[to:]`, eight bytes at a time."""
    end = at + size
    while at + 8 <= end:
        to = put64(out, to, get64(data, at))
        at += 8
    while at < end:
        out[to] = data[at]
        at += 1
        to += 1


@inner
def sealed_size(size: int) -> int:
    """Bytes of the value of a payload with `size` bytes."""
    plain = CHECKSUM + size
    return plain if plain <= INLINE else (plain + PAGE_HEADER + PAGE - 1) // PAGE * PAGE - PAGE_HEADER


@inner
def put_big(out: npt.NDArray[np.uint8], at: int, value: np.uint64, size: int) -> None:
    """Write the low bytes of a number, highest first."""
    for i in range(size):
        out[at + i] = np.uint8((value >> (EIGHT * np.uint64(size - 1 - i))) & BYTE)


@inner
def put_key(keys: npt.NDArray[np.uint8], i: int, tree: int, path: np.uint64, chunk: int) -> None:
    """Write the key of a node, or of a bucket where keys have room for a chunk, to line `i`."""
    depth, rest = np.uint64(0), path
    while rest > ONE:
        rest >>= ONE
        depth += ONE
    key = keys[i]
    put_big(key, 0, np.uint64(tree), 2)
    put_big(key, 2, (path ^ (ONE << depth)) << (MAX_DEPTH - depth), 7)
    put_big(key, 9, depth, 1)
    if key.size == BUCKET_KEY:
        put_big(key, NODE_KEY, np.uint64(chunk), 4)


@inner
def close_value(seed: np.uint64, sealed: Sealed, i: int, begin: int, end: int) -> None:
    """Value `i` begins at `begin`, and its payload is there and goes to `end`: write what is around it."""
    key, out = sealed.keys[i], sealed.values
    first = begin + CHECKSUM
    last = begin + sealed_size(end - first)
    for j in range(end, last):
        out[j] = 0
    put32(out, begin, np.int64(crc32(crc32(seed, key, 0, key.size), out, first, last)))
    sealed.ends[i] = last


@inner
def put_value(seed: np.uint64, data: npt.NDArray[np.uint8], at: int, size: int, i: int, sealed: Sealed) -> None:
    """Write value `i`, whose key is there: that of the payload `data[at : at + size]`."""
    begin = sealed.ends[i - 1] if i else np.int64(0)
    copy_bytes(data, at, size, sealed.values, begin + CHECKSUM)
    close_value(seed, sealed, i, begin, begin + CHECKSUM + size)


@inner
def put_slots(seed: np.uint64, slots: npt.NDArray[np.uint32], i: int, sealed: Sealed) -> None:
    """Write value `i`, whose key is there: that of a chunk of a long list."""
    begin = sealed.ends[i - 1] if i else np.int64(0)
    at = begin + CHECKSUM
    for slot in slots:
        at = put32(sealed.values, at, np.int64(slot))
    close_value(seed, sealed, i, begin, at)


@kernel
def seal(
    seed: np.uint64,
    data: npt.NDArray[np.uint8],
    at: npt.NDArray[np.int64],
    size: npt.NDArray[np.int64],
    sealed: Sealed,
) -> None:
    """Write the values of payloads in `data` under keys that are in `sealed`."""
    sealed = refer(sealed)
    for i in range(at.size):
        put_value(seed, data, at[i], size[i], i, sealed)


@kernel
def measure(records: npt.NDArray[np.void], chunk: int, room: npt.NDArray[np.int64]) -> None:
    """Add up how many records there are for each database, and the bytes of their values."""
    room[:] = 0
    for i in range(records.size):
        record = records[i]
        first = BUCKETS if record.bucket else NODES
        room[first] += 1
        room[first + 1] += sealed_size(record.size)
        full, rest = record.list_size // chunk, record.list_size % chunk
        room[BUCKETS] += full + (rest > 0)
        room[BUCKET_BYTES] += full * sealed_size(4 * chunk) + (sealed_size(4 * rest) if rest else 0)


@kernel
def seal_records(
    records: npt.NDArray[np.void],
    data: npt.NDArray[np.uint8],
    lists: npt.NDArray[np.uint8],
    chunk: int,
    seeds: tuple[np.uint64, np.uint64],
    nodes: Sealed,
    buckets: Sealed,
) -> None:
    """Write keys and values of all records, and of long lists (the bytes of slots) in chunks, each under its first
    slot."""
    nodes, buckets = refer(nodes), refer(buckets)
    of_nodes, of_buckets = np.int64(0), np.int64(0)
    for i in range(records.size):
        record = records[i]
        if record.bucket:
            put_key(buckets.keys, of_buckets, record.tree, record.path, FIRST)
            put_value(seeds[1], data, record.at, record.size, of_buckets, buckets)
            of_buckets += 1
        else:
            put_key(nodes.keys, of_nodes, record.tree, record.path, FIRST)
            put_value(seeds[0], data, record.at, record.size, of_nodes, nodes)
            of_nodes += 1
        end = record.list_at + record.list_size
        for at in range(record.list_at, end, chunk):
            put_key(buckets.keys, of_buckets, record.tree, record.path, get32(lists, 4 * at))
            put_value(seeds[1], lists, 4 * at, 4 * min(chunk, end - at), of_buckets, buckets)
            of_buckets += 1


def room_for(keys: int, key_bytes: int, value_bytes: int) -> Sealed:
    """Room for so many records of one database."""
    return Sealed(np.empty((keys, key_bytes), np.uint8), np.empty(value_bytes, np.uint8), np.empty(keys, np.int64))


def first_parts(sealed: Sealed, count: int) -> Sealed:
    """The first records of some."""
    end = int(sealed.ends[count - 1]) if count else 0
    return Sealed(sealed.keys[:count], sealed.values[:end], sealed.ends[:count])


def seal_growth(growth: Growth, seeds: tuple[int, int], chunk: int) -> tuple[Sealed, Sealed]:
    """The records of a growth as (nodes, buckets), in its order, lists in chunks of so many slots; `seeds` are those of
    the two databases."""
    room = np.empty(4, np.int64)
    measure(growth.records, chunk, room)
    sizes = room.tolist()
    nodes, buckets = room_for(sizes[0], NODE_KEY, sizes[1]), room_for(sizes[2], BUCKET_KEY, sizes[3])
    both = np.uint64(seeds[0]), np.uint64(seeds[1])
    seal_records(growth.records, growth.data, growth.lists.view(np.uint8), chunk, both, nodes, buckets)
    return nodes, buckets
