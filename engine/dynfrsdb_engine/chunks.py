"""Long lists on disk, changed chunk by chunk.

A long list lies on disk as sorted slots in chunks, each under its smallest slot. A change notes which slots leave a
list and which come (`Working.edits`); a commit brings the one chunk that each of them belongs to and writes it anew:

    17 .. 3980     less 23              the same key
    3991 .. 8000   less 3991            its first slot went: the record moves to another key
    8017 .. 9900   one more, too many   two chunks of equal size

Where chunks lie is the business of the caller, who finds them by the keys that `list_edits` gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.checksum import crc32
from dynfrsdb_engine.collect import place_in_order
from dynfrsdb_engine.install import keep_list
from dynfrsdb_engine.kernel import Record, inner, kernel, maker
from dynfrsdb_engine.reference import Address, Held, refer
from dynfrsdb_engine.sealing import (
    BUCKET_KEY,
    CHECKSUM,
    NODE_KEY,
    Sealed,
    first_parts,
    put_big,
    put_key,
    put_slots,
    room_for,
)
from dynfrsdb_engine.source import Damaged
from dynfrsdb_engine.unaligned import get32
from dynfrsdb_engine.working import EDIT, EDITS, TOP_LIST, Working, working_at

NONE = np.int64(0)
GOOD, UNLIKE, UNSOUND = 0, 1, 2
"""All edits were made; one does not fit its chunk; a chunk is not as it was written."""
WRONG = {UNLIKE: "does not list the samples that belong to it", UNSOUND: "has a list that fails its checksum"}
SLOT = 4
"""Bytes of a slot."""


class Edits(NamedTuple):
    """Slots to take out of, or put into, long lists that stay on disk, and the keys of where they belong: that of a
    chunk which begins with the slot."""

    edits: npt.NDArray[np.void]
    keys: npt.NDArray[np.uint8]


class Chunks(NamedTuple):
    """Chunks that change, as they are stored: keys, one to a line, all values, and the size of each; `home` is the
    chunk of each edit."""

    keys: npt.NDArray[np.uint8]
    values: npt.NDArray[np.uint8]
    sizes: npt.NDArray[np.int64]
    home: npt.NDArray[np.int64]


class Limits(NamedTuple):
    """How many slots a chunk is given, and how many it may have before it is written as two."""

    given: int
    most: int


@kernel
def pick_edits(w_address: Address[Working], out: Edits) -> int:
    """Copy those edits whose lists are not written wholly anyway; returns how many."""
    w, out = working_at(w_address), refer(out)
    found = NONE
    for i in range(w.top[EDITS]):
        edit = w.edits[i]
        node = w.nodes[edit.row]
        if node.kind != 0 and node.tree == edit.tree and node.path == edit.path and not node.fresh:
            put_key(out.keys, found, edit.tree, edit.path, np.int64(edit.slot))
            out.edits[found] = edit
            found += 1
    return found


def list_edits(working: Held[Working]) -> Edits:
    """What changes in long lists that stay on disk."""
    most = int(working.value.top[EDITS])
    room = Edits(np.empty(most, EDIT), np.empty((most, BUCKET_KEY), np.uint8))
    found = pick_edits(working.address, room)
    return Edits(room.edits[:found], room.keys[:found])


@inner
def edit_chunk(slots: npt.NDArray[np.uint32], n: int, slot: np.uint32, sign: int) -> int:
    """Take a slot out of the first `n`, which are in order, or put it in; returns how many there are then, -1 if it was
    not there, or was there already."""
    at = place_in_order(slots, n, slot)
    there = at < n and slots[at] == slot
    if there == (sign > 0):
        return -1
    if there:
        for i in range(at, n - 1):
            slots[i] = slots[i + 1]
        return n - 1
    for i in range(n, at, -1):
        slots[i] = slots[i - 1]
    slots[at] = slot
    return n + 1


@inner
def edited_list(w: Working, edit: Record, rows: npt.NDArray[np.int64]) -> int:
    """Which of the lists of these lines, which ascend, an edit belongs to, or -1: the line may have been another node's
    when it was noted."""
    low, high = NONE, rows.size
    while low < high:
        middle = (low + high) >> 1
        if rows[middle] < edit.row:
            low = middle + 1
        else:
            high = middle
    if low == rows.size or rows[low] != edit.row:
        return -1
    node = w.nodes[edit.row]
    return low if node.tree == edit.tree and node.path == edit.path else -1


@kernel
def take_lists(
    w_address: Address[Working],
    rows: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    slots: npt.NDArray[np.uint32],
) -> None:
    """Bring long lists from disk, one behind the other, into memory, for the nodes in these lines, which ascend; and
    make the edits that wait for them there as well. `sizes` are those after it."""
    w, entering, begin = working_at(w_address), np.zeros(rows.size, np.int64), NONE
    for e in range(w.top[EDITS]):
        i = edited_list(w, w.edits[e], rows)
        if i >= 0:
            entering[i] += w.edits[e].sign > 0
    for i in range(rows.size):
        keep_list(w, rows[i], slots[begin : begin + sizes[i]])
        w.top[TOP_LIST] += entering[i]
        begin += sizes[i]
    for e in range(w.top[EDITS]):
        edit = w.edits[e]
        i = edited_list(w, edit, rows)
        if i >= 0:
            n = edit_chunk(w.lists[w.nodes[rows[i]].list_at :], sizes[i], edit.slot, np.int64(edit.sign))
            sizes[i] = n if n >= 0 else sizes[i]


@inner
def named_slot(key: npt.NDArray[np.uint8]) -> np.uint32:
    """The slot that a chunk is kept under, which should be its first."""
    slot = np.uint32(0)
    for i in range(NODE_KEY, BUCKET_KEY):
        slot = np.uint32(slot * np.uint32(256) + np.uint32(key[i]))
    return slot


@inner
def put_chunk(seed: np.uint64, key: npt.NDArray[np.uint8], slots: npt.NDArray[np.uint32], i: int, out: Sealed) -> None:
    """Write record `i`: slots, under the node's part of `key` and the first of them."""
    its = out.keys[i]
    for j in range(NODE_KEY):
        its[j] = key[j]
    put_big(its, NODE_KEY, np.uint64(slots[0]), 4)
    put_slots(seed, slots, i, out)


@inner
def take_chunk(
    seed: np.uint64,
    key: npt.NDArray[np.uint8],
    values: npt.NDArray[np.uint8],
    at: int,
    size: int,
    out: npt.NDArray[np.uint32],
) -> int:
    """Copy the slots of a chunk whose value begins at `at`; returns how many, -1 if it fails its checksum."""
    first, end = at + CHECKSUM, at + size
    if size < CHECKSUM or crc32(crc32(seed, key, 0, key.size), values, first, end) != np.uint64(get32(values, at)):
        return -1
    n = (end - first) // SLOT
    for i in range(n):
        out[i] = get32(values, first + SLOT * i)
    return n


@maker
def by_chunk(chunks: Chunks) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The first edit of each chunk, and for each edit the next one of the same chunk, or -1."""
    first, more = np.full(chunks.sizes.size, -1, np.int64), np.empty(chunks.home.size, np.int64)
    for edit in range(chunks.home.size - 1, -1, -1):
        c = chunks.home[edit]
        more[edit], first[c] = first[c], edit
    return first, more


@kernel
def edit_chunks(
    seed: np.uint64,
    edits: npt.NDArray[np.void],
    chunks: Chunks,
    limits: Limits,
    moved: npt.NDArray[np.int8],
    out: Sealed,
    count: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Make all edits, those of a chunk in their order; writes the new chunks, `count` of them, and notes which keys are
    not used any more. Returns what came of it, and of which edit."""
    chunks, limits, out = refer(chunks), refer(limits), refer(out)
    first, more = by_chunk(chunks)
    slots, at = np.empty(chunks.values.size // SLOT + edits.size, np.uint32), NONE
    for c in range(chunks.sizes.size):
        n, edit = take_chunk(seed, chunks.keys[c], chunks.values, at, chunks.sizes[c], slots), first[c]
        if n < 0:
            return UNSOUND, edit
        while edit >= 0:
            n = edit_chunk(slots, n, edits[edit].slot, np.int64(edits[edit].sign))
            if n < 0:
                return UNLIKE, edit
            edit = more[edit]
        moved[c] = n == 0 or n > limits.most or slots[0] != named_slot(chunks.keys[c])
        parts = np.int64(n > 0) if n <= limits.most else (n + limits.given - 1) // limits.given
        size = (n + parts - 1) // max(parts, np.int64(1))
        for part in range(parts):
            put_chunk(seed, chunks.keys[c], slots[part * size : min((part + 1) * size, n)], count[0], out)
            count[0] += 1
        at += chunks.sizes[c]
    return GOOD, NONE


def edited(
    seed: int, edits: npt.NDArray[np.void], homes: Sequence[bytes], chunks: Mapping[bytes, bytes], limits: Limits
) -> tuple[list[bytes], Sealed]:
    """The keys of chunks that are no more, and the chunks that are written instead of `chunks`, which are given as they
    are stored: their checksums, which go on from `seed`, are checked here. `homes` are the keys of those that each edit
    belongs to."""
    keys, values = b"".join(chunks), b"".join(chunks.values())
    sizes = np.array([*map(len, chunks.values())], np.int64)
    place = dict(zip(chunks, range(len(chunks)), strict=True))
    home = np.array([*map(place.__getitem__, homes)], np.int64)
    before = Chunks(np.frombuffer(keys, np.uint8).reshape(-1, BUCKET_KEY), np.frombuffer(values, np.uint8), sizes, home)
    records = 3 * len(chunks) + len(edits) // limits.given
    room = room_for(records, BUCKET_KEY, len(values) + SLOT * len(edits) + int(CHECKSUM) * records)
    moved, count = np.empty(len(chunks), np.int8), np.zeros(1, np.int64)
    status, bad = edit_chunks(np.uint64(seed), edits, before, limits, moved, room, count)
    if status != GOOD:
        raise Damaged(int(edits[bad]["tree"]), int(edits[bad]["path"]), WRONG[status])
    gone = [key for key, went in zip(chunks, moved.tolist(), strict=True) if went]
    return gone, first_parts(room, int(count[0]))
