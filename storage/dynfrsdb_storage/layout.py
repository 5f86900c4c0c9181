"""Every constant of the format: names, keys, sizes, and the shape of a row slot.

FORMAT.md describes the same bytes in prose; a test compares the two, so a number changes in both or in neither.

Keys are big-endian, so that LMDB's byte order is the order of the numbers. The one key worth a picture is a node's:

    tree u16 | path bits, left-aligned in 56 bits | depth u8            10 bytes

    path 0b1      bits 0000...   depth 0        the root
    path 0b10     bits 0000...   depth 1        its left child: same bits, deeper, so right behind it
    path 0b101    bits 0100...   depth 2
    path 0b11     bits 1000...   depth 1        the right child: behind everything on the left

Sorted by key, a tree lies in pre-order, and everything below a node is one contiguous range. A bucket's key is a
node's key and a u32, so buckets have the same order and the same ranges.

Everything that is not a key is little-endian.

Not done here: checksums of records (records.py), reading and writing row slots (rows.py). What a node or a bucket
means is not known in this layer at all.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from dynfrsdb_storage import lazynumpy as np

FORMAT = 2
OLDEST_READ = 1
ALGORITHM = 1
NEEDS = "0.1.0"
"""The oldest version of dynfrsdb that reads and writes this format and this algorithm; every store says so."""

DATABASES = (
    "meta",
    "samples",
    "subjects",
    "roots",
    "nodes",
    "buckets",
    "reserved",
    "pending",
    "ledger",
    "requests",
    "holds",
    "queue",
    "suppression",
)
"""The LMDB sub-databases."""

META_FORMAT = b"format"
META_SETTINGS = b"settings"
META_STATE = b"state"
META_KEYS = (META_FORMAT, META_SETTINGS, META_STATE)
"""Records of `meta` that every generation has its own of."""
RESTORING = "restoring"
"""The counter that is set while a backup is being restored: nobody else may open the store."""

CURRENT_FILE = "CURRENT"
LOCK_FILE = "LOCK"
LEASE_FILE = "LEASE"
DATA_FILE = "data.mdb"
ROWS_FILE = "rows.bin"
READERS_FILE = "lock.mdb"

LOCK_BYTES = 512
CHECKSUM_BYTES = 4
INLINE_LIMIT = 1900
PAGE_BYTES = 4096
PAGE_HEADER = 16
SUBJECT_BYTES = 16
ROOTS_PER_RECORD = 128
MAX_DEPTH = 56
MIN_RESERVED = 1024
ROW_COUNTERS = ("slots", "reserved", "pending", "window")
"""Counters of `state` that describe rows.bin: a copy, or a new generation, has its own."""
KEEP_ALLOCATED = 64 << 20
TAIL_BYTES = 256 << 10
MAX_READERS = 1024
READERS_FILE_BYTES = 128 + 64 * MAX_READERS

NODE_KEY_BYTES = 10
BUCKET_KEY_BYTES = 14
ROW_HEADER = 24

GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
_64_BITS = 2**64 - 1

_HASHED_AT_ONCE = 1 << 18

Array: TypeAlias = "npt.NDArray[Any]"


def generation_name(number: int) -> str:
    """The directory of generation `number`: `gen-0001`."""
    return f"gen-{number:04d}"


def generation_number(name: str) -> int:
    """The number of the generation in the directory `name`."""
    return int(name.rpartition("-")[2])


def node_key(tree: int, path: int) -> bytes:
    """The key of the node that is reached from the root of `tree` by `path` (root 1, children 2v and 2v+1)."""
    return _node_number(tree, path).to_bytes(NODE_KEY_BYTES, "big")


def node_keys(trees: Array, paths: Array) -> list[bytes]:
    """`node_key` for many nodes at once."""
    keys = np.empty(len(paths), _node_key_type())
    keys["tree"] = trees
    keys["place"] = _places(paths)
    return _cut(keys)


def is_node_key(key: bytes) -> bool:
    """Whether `key` can be the key of a node, or of a bucket: a damaged one may be anything."""
    return len(key) >= NODE_KEY_BYTES and key[9] <= MAX_DEPTH


def parse_node_key(key: bytes) -> tuple[int, int]:
    """The (tree, path) of a node's key; of a bucket's key, the node it begins with."""
    return int.from_bytes(key[:2], "big"), (1 << key[9]) | int.from_bytes(key[2:9], "big") >> (MAX_DEPTH - key[9])


def parse_node_keys(keys: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """`parse_node_key` for many keys of nodes at once: trees, and paths."""
    found = np.frombuffer(b"".join(keys), _node_key_type())
    places = found["place"].astype(np.uint64)
    depth = places & np.uint64(0xFF)
    paths = (np.uint64(1) << depth) | ((places >> np.uint64(8)) >> (np.uint64(MAX_DEPTH) - depth))
    return found["tree"].astype(np.int64), paths


def bucket_key(tree: int, path: int, chunk: int = 0) -> bytes:
    """The key of a bucket (chunk 0) or of the chunk of a long list whose smallest slot is `chunk`."""
    return node_key(tree, path) + chunk.to_bytes(4, "big")


def parse_bucket_key(key: bytes) -> tuple[int, int, int]:
    """The (tree, path, chunk) of a bucket's key."""
    tree, path = parse_node_key(key)
    return tree, path, int.from_bytes(key[10:14], "big")


def subtree_range(tree: int, path: int) -> tuple[bytes, bytes]:
    """(first, last) around the keys of this node, of all nodes below it, and of their buckets, and no others."""
    first = _node_number(tree, path)
    last = first | ((1 << (65 - path.bit_length())) - 1)  # all bits that lie behind those of the path
    return first.to_bytes(NODE_KEY_BYTES, "big"), last.to_bytes(NODE_KEY_BYTES, "big")


def tree_range(tree: int) -> tuple[bytes, bytes]:
    """(first, last) around all keys of one tree."""
    return subtree_range(tree, 1)


def id_key(sample: int) -> bytes:
    """The key of a sample id."""
    return sample.to_bytes(8, "big")


def id_keys(samples: Array) -> list[bytes]:
    """`id_key` for many ids at once."""
    return _cut(np.ascontiguousarray(samples, ">u8"))


def parse_id_key(key: bytes) -> int:
    """The sample id of a key of `samples`."""
    return int.from_bytes(key, "big")


def subject_key(subject: bytes, sample: int) -> bytes:
    """The key that says: this sample belongs to the subject with this 16-byte hash."""
    if len(subject) != SUBJECT_BYTES:
        raise ValueError(f"a subject hash has {SUBJECT_BYTES} bytes, this one {len(subject)}")
    return subject + sample.to_bytes(8, "big")


def subject_range(subject: bytes) -> tuple[bytes, bytes]:
    """(first, last) around all samples of one subject."""
    return subject + bytes(8), subject + b"\xff" * 8


def parse_subject_key(key: bytes) -> tuple[bytes, int]:
    """The (subject hash, sample id) of a key of `subjects`."""
    return key[:SUBJECT_BYTES], int.from_bytes(key[SUBJECT_BYTES:], "big")


def queue_key(due: int, number: int) -> bytes:
    """The key of a request that waits until `due`, in seconds since 1970."""
    return due.to_bytes(8, "big") + number.to_bytes(8, "big")


def parse_queue_key(key: bytes) -> tuple[int, int]:
    """The (due, number) of a key of `queue`."""
    return int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")


def sequence_key(sequence: int) -> bytes:
    """The key of a ledger entry."""
    return sequence.to_bytes(8, "big")


def roots_key(chunk: int) -> bytes:
    """The key of the record that holds the roots of trees 128*chunk and up."""
    return chunk.to_bytes(2, "big")


def reserved_key(start: int) -> bytes:
    """The key of a range of reserved slots."""
    return start.to_bytes(4, "big")


def pending_key(commit: int, start: int) -> bytes:
    """The key of a range of slots that `commit` removed and that wait to be erased."""
    return commit.to_bytes(8, "big") + start.to_bytes(4, "big")


def parse_pending_key(key: bytes) -> tuple[int, int]:
    """The (commit, start) of a key of `pending`."""
    return int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")


def slot_bytes(n_features: int) -> int:
    """The size of one row slot: hash u64, id u64, y i64, x f32 * n_features, zero padding to a multiple of 8."""
    return (ROW_HEADER + 4 * n_features + 7) // 8 * 8


def mix(z: Array) -> Array:
    """The finaliser of splitmix64 on an array of uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
    mixed: Array = z ^ (z >> np.uint64(31))
    return mixed


def row_multipliers(n_features: int) -> npt.NDArray[np.uint64]:
    """The odd multipliers of the row hash: one for the constant, one for the slot, one per 32-bit word."""
    return _multipliers((slot_bytes(n_features) - 8) // 4)


def row_hashes(slots: Array, words: Array, multipliers: Array | None = None) -> npt.NDArray[np.uint64]:
    """The hashes, never 0, that rows `words` (uint64 [m, slot_bytes/8], first column ignored) have in their slots."""
    halves = np.ascontiguousarray(words[:, 1:], np.uint64).view(np.uint32)
    if multipliers is None:
        multipliers = _multipliers(halves.shape[1])
    total = multipliers[0] + np.asarray(slots).astype(np.uint64) * multipliers[1]
    step = max(1, _HASHED_AT_ONCE // halves.shape[1])
    for i in range(0, len(halves), step):
        total[i : i + step] += (halves[i : i + step] * multipliers[2:]).sum(axis=1, dtype=np.uint64)
    hashes = mix(total)
    hashes[hashes == 0] = 1
    return hashes


def row_hash(slot: int, row: bytes) -> int:
    """The same hash of one row, as its bytes in the slot, in Python's integers: no array for a single row."""
    words = struct.unpack(f"<{len(row) // 4 - 2}I", row[8:])
    total = sum(word * (mix_one((i + 1) * GOLDEN) | 1) for i, word in enumerate((1, slot, *words)))
    return mix_one(total) or 1


def mix_one(z: int) -> int:
    """`mix` of one number."""
    z &= _64_BITS
    z = (z ^ (z >> 30)) * MIX_1 & _64_BITS
    z = (z ^ (z >> 27)) * MIX_2 & _64_BITS
    return z ^ (z >> 31)


def _multipliers(words: int) -> npt.NDArray[np.uint64]:
    steps = np.arange(1, words + 3, dtype=np.uint64) * np.uint64(GOLDEN)
    return mix(steps) | np.uint64(1)


def _node_number(tree: int, path: int) -> int:
    """The key of a node as a number: 16 bits of tree, 56 of path, 8 of depth."""
    depth = path.bit_length() - 1
    if not 0 <= depth <= MAX_DEPTH:
        raise ValueError(f"path {path:#b} has depth {depth}; paths have depth 0 to {MAX_DEPTH}")
    return tree << 64 | (path - (1 << depth)) << (64 - depth) | depth


def _places(paths: Array) -> npt.NDArray[np.uint64]:
    """The path bits and the depth of each path as one 64-bit number; the leading 1 is shifted out of it."""
    paths = np.ascontiguousarray(paths, np.uint64)
    depth = _bit_lengths(paths).astype(np.uint64) - np.uint64(1)
    if depth.max(initial=0) > MAX_DEPTH:  # that of path 0 is 2**64 - 1
        raise ValueError(f"paths have depth 0 to {MAX_DEPTH}; got paths from {paths.min():#b} to {paths.max():#b}")
    places: npt.NDArray[np.uint64] = (paths << (np.uint64(64) - depth)) | depth
    return places


def _bit_lengths(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """int.bit_length of each value; behind a leading 10 there is nothing that float64 could round up."""
    return np.frexp((values & ~(values >> np.uint64(1))).astype(np.float64))[1]


@cache
def _node_key_type() -> np.dtype[np.void]:
    """A key of `nodes` as numpy takes it."""
    return np.dtype([("tree", ">u2"), ("place", ">u8")])


def _cut(keys: Array) -> list[bytes]:
    """The elements of a packed array as separate bytes."""
    blob, size = keys.tobytes(), keys.dtype.itemsize
    return [blob[i : i + size] for i in range(0, len(blob), size)]
