"""Sealed records are, byte for byte, what the storage layer makes of the same keys and payloads."""

from __future__ import annotations

import zlib
from itertools import pairwise

import numpy as np

from dynfrsdb.shelf import CHUNK
from dynfrsdb_engine import sealing
from dynfrsdb_engine.grow import RECORD
from dynfrsdb_engine.jobs import Growth
from dynfrsdb_engine.sealing import Sealed, room_for, seal, seal_growth
from dynfrsdb_storage import layout, records

SEEDS = zlib.crc32(b"nodes\0"), zlib.crc32(b"buckets\0")
AROUND = (0, 1, 7, 1895, 1896, 1897, 4075, 4076, 4077, 8172, 8173, 20_000)
"""Sizes of payloads, those where a value gets another page among them."""


def noise(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def pairs(sealed: Sealed) -> list[tuple[bytes, bytes]]:
    """Keys and values, cut apart."""
    begins = [0, *sealed.ends.tolist()]
    values = [sealed.values[a:b].tobytes() for a, b in pairwise(begins)]
    return [(key.tobytes(), value) for key, value in zip(sealed.keys, values, strict=True)]


def put(database: str, key: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """What the storage layer writes."""
    return key, records.pack(database, key, payload)


def test_both_layers_mean_the_same_by_a_page() -> None:
    ours = sealing.INLINE, sealing.PAGE, sealing.PAGE_HEADER, sealing.CHECKSUM, sealing.MAX_DEPTH
    theirs = layout.INLINE_LIMIT, layout.PAGE_BYTES, layout.PAGE_HEADER, layout.CHECKSUM_BYTES, layout.MAX_DEPTH
    assert list(map(int, ours)) == list(theirs)
    assert (sealing.NODE_KEY, sealing.BUCKET_KEY) == (layout.NODE_KEY_BYTES, layout.BUCKET_KEY_BYTES)


def test_values_of_any_size_under_any_key_are_those_of_the_store() -> None:
    data, size = noise(sum(AROUND)), np.array(AROUND, np.int64)
    at = np.cumsum(size) - size
    keys = layout.id_keys(np.arange(len(AROUND), dtype=np.uint64) << np.uint64(40))
    wanted = [put("samples", key, data[a : a + n]) for key, a, n in zip(keys, at.tolist(), AROUND, strict=True)]
    room = room_for(len(keys), 8, sum(len(value) for _, value in wanted))
    room.keys[:] = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 8)

    seal(np.uint64(zlib.crc32(b"samples\0")), np.frombuffer(data, np.uint8), at, size, room)

    assert pairs(room) == wanted


def test_a_growth_is_sealed_in_its_order_with_its_lists_in_chunks() -> None:
    paths = [1, 2, 6, 7, (1 << 56) | 12345, (1 << 57) - 1, 5, 3, 9, 4, 8, 10]
    trees = [0, 1, 255, 256, 65_534, 3, 3, 3, 3, 3, 3, 3]
    lengths = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 0, 0, 0, 0, 0, 0]
    grown, data, lists = (
        np.zeros(len(AROUND), RECORD),
        noise(sum(AROUND)),
        np.cumsum(np.arange(1, 3000, dtype=np.uint32)),
    )
    grown["path"], grown["tree"], grown["size"], grown["list_size"] = paths, trees, AROUND, lengths
    grown["at"], grown["list_at"] = np.cumsum(AROUND) - AROUND, np.cumsum(lengths) - lengths
    grown["bucket"] = [0] * 6 + [1, 0, 1, 1, 0, 1]
    growth = Growth(grown, np.frombuffer(data, np.uint8), lists.astype(np.uint32))
    nodes, buckets = [], []
    for one in grown:
        payload = data[one["at"] : one["at"] + one["size"]]
        key = layout.node_key(int(one["tree"]), int(one["path"]))
        if one["bucket"]:
            buckets.append(put("buckets", key + bytes(4), payload))
        else:
            nodes.append(put("nodes", key, payload))
        slots = lists[one["list_at"] : one["list_at"] + one["list_size"]]
        for begin in range(0, len(slots), CHUNK):
            chunk = slots[begin : begin + CHUNK]
            place = layout.bucket_key(int(one["tree"]), int(one["path"]), int(chunk[0]))
            buckets.append(put("buckets", place, chunk.astype("<u4").tobytes()))

    sealed = seal_growth(growth, SEEDS, CHUNK)

    assert pairs(sealed[0]) == nodes
    assert pairs(sealed[1]) == buckets


def test_nothing_is_sealed_as_nothing() -> None:
    empty = Growth(np.zeros(0, RECORD), np.zeros(0, np.uint8), np.zeros(0, np.uint32))

    assert [pairs(sealed) for sealed in seal_growth(empty, SEEDS, CHUNK)] == [[], []]
