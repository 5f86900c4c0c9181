"""Where the engine's records lie in the store.

A place in a forest is (tree, path). A record with n > B lies in `nodes`, one with n <= B in `buckets`, both under the
same key; a long list lies in `buckets` as well, in chunks of sorted slots, each under its smallest slot:

    nodes    3|0b101          leaf, n = 1000
    buckets  3|0b101|17       slots 17 .. 3980, 450 of them
    buckets  3|0b101|3991     slots 3991 .. 8000
    buckets  3|0b101|8017     the last 100

so that one sample that leaves a list of thousands rewrites one chunk. `Shelf` reads them for the engine;
`write_growth`, `edit_lists` and `clear` write what a commit changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.forest import Damaged
from dynfrsdb_engine.grow import Growth
from dynfrsdb_storage import Snapshot, WriteSession, layout

CHUNK = 450
"""Slots in a chunk when a long list is written: 1,800 bytes, so that two chunks share a page."""
MOST = 474
"""Slots that a chunk may grow to before it is written as two."""
Slots = npt.NDArray[np.uint32]
Pair = tuple[bytes, bytes]


class Shelf:
    """Reads records for the engine out of one snapshot at a time."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None

    def _open(self) -> Snapshot:
        assert self.snapshot is not None, "records are read inside a snapshot"
        return self.snapshot

    def records(self, places: Sequence[tuple[int, int, bool]]) -> Sequence[bytes]:
        """The payloads at (tree, path, whether it is a bucket)."""
        found: list[bytes | None] = [None] * len(places)
        for database in ("nodes", "buckets"):
            wanted = [i for i, place in enumerate(places) if place[2] == (database == "buckets")]
            key_of = layout.bucket_key if database == "buckets" else layout.node_key
            keys = [key_of(places[i][0], places[i][1]) for i in wanted]
            for i, payload in zip(wanted, self._open().get(database, keys), strict=True):
                found[i] = payload
        for place, payload in zip(places, found, strict=True):
            if payload is None:
                raise Damaged(place[0], place[1], "is missing")
        return [payload for payload in found if payload is not None]

    def below(self, tree: int, path: int) -> Iterable[tuple[int, bool, bytes]]:
        """All records at and below a node, in pre-order."""
        first, last = layout.subtree_range(tree, path)
        found = [(key, False, data) for key, data in self._open().scan("nodes", first, last)]
        nodes = {key for key, _, _ in found}
        for key, data in self._open().scan("buckets", first, last):
            if key[: layout.NODE_KEY_BYTES] not in nodes:
                found.append((key[: layout.NODE_KEY_BYTES], True, data))
        found.sort(key=lambda record: record[0])
        return [(layout.parse_node_key(key)[1], bucket, data) for key, bucket, data in found]

    def long_list(self, tree: int, path: int) -> Slots:
        """The slots of a long list, ascending."""
        return np.concatenate([np.empty(0, np.uint32), *(slots for _, slots in chunks(self._open(), tree, path))])


def chunks(snapshot: Snapshot, tree: int, path: int) -> Iterator[tuple[bytes, Slots]]:
    """The chunks of a long list as (key, slots)."""
    node = layout.node_key(tree, path)
    for key, data in snapshot.scan("buckets", node + bytes(4), node + b"\xff" * 4):
        yield key, np.frombuffer(data, "<u4")


def cut(tree: int, path: int, slots: Slots) -> Iterator[Pair]:
    """A long list as chunk records."""
    node = layout.node_key(tree, path)
    for start in range(0, slots.size, CHUNK):
        part = slots[start : start + CHUNK]
        yield node + int(part[0]).to_bytes(4, "big"), part.astype("<u4").tobytes()


def growth_pairs(growth: Growth) -> tuple[list[Pair], list[Pair]]:
    """Records as (nodes, buckets) to put, each in the order of the growth; long lists are among the buckets."""
    nodes: list[Pair] = []
    buckets: list[Pair] = []
    records, data = growth.records, growth.data.tobytes()
    keys = layout.node_keys(records["tree"], records["path"])
    columns = (records[name].tolist() for name in ("at", "size", "bucket", "list_at", "list_size", "tree", "path"))
    for key, at, size, bucket, list_at, list_size, tree, path in zip(keys, *columns, strict=True):
        if bucket:
            buckets.append((key + bytes(4), data[at : at + size]))
            continue
        nodes.append((key, data[at : at + size]))
        if list_size:
            buckets.extend(cut(tree, path, growth.lists[list_at : list_at + list_size]))
    return nodes, buckets


def clear(session: WriteSession, tree: int, path: int) -> None:
    """Delete the records of a node and of everything below it."""
    first, last = layout.subtree_range(tree, path)
    session.delete_range("nodes", first, last)
    session.delete_range("buckets", first, last)


def edit_lists(session: WriteSession, edits: npt.NDArray[np.void]) -> None:
    """Take slots out of long lists and put slots in, rewriting only the chunks that change."""
    lists: dict[tuple[int, int], dict[int, list[bool]]] = {}
    columns = (edits[name].tolist() for name in ("tree", "path", "slot", "sign"))
    for tree, path, slot, sign in zip(*columns, strict=True):
        lists.setdefault((tree, path), {}).setdefault(slot, []).append(sign > 0)
    for (tree, path), slots in lists.items():
        _edit_list(session, tree, path, slots)


def _edit_list(session: WriteSession, tree: int, path: int, edits: dict[int, list[bool]]) -> None:
    """Edit one list. A slot may come and go within one transaction: what counts is whether it ends in the list."""
    node = layout.node_key(tree, path)
    touched: dict[bytes, bytes] = {}
    for slot, comes in edits.items():
        key, data = _chunk_of(session.snapshot, node, slot)
        data = touched.get(key, data)
        slots = np.frombuffer(data, "<u4")
        at = int(np.searchsorted(slots, slot))
        there = at < slots.size and int(slots[at]) == slot
        if there == comes[0]:
            raise Damaged(tree, path, "does not list the samples that belong to it")
        middle = slot.to_bytes(4, "little") if comes[-1] else b""
        touched[key] = data[: 4 * at] + middle + data[4 * (at + there) :]
    for key, data in touched.items():
        session.delete("buckets", key)
        for part in _parts(np.frombuffer(data, "<u4")):
            session.put("buckets", node + int(part[0]).to_bytes(4, "big"), part.tobytes())


def _parts(slots: Slots) -> list[Slots]:
    """A chunk as it is written again: itself, or cut in pieces if it grew too large, or nothing."""
    return np.array_split(slots, -(-slots.size // CHUNK)) if slots.size > MOST else [slots] if slots.size else []


def _chunk_of(snapshot: Snapshot, node: bytes, slot: int) -> tuple[bytes, bytes]:
    """The chunk that holds a slot, or would hold it: the last that begins at or below it, else the first."""
    found = snapshot.at_or_before("buckets", node + slot.to_bytes(4, "big"))
    if found is None or found[0][: layout.NODE_KEY_BYTES] != node:
        found = next(iter(snapshot.scan("buckets", node + bytes(4), node + b"\xff" * 4)), None)
    if found is None:
        raise Damaged(*layout.parse_node_key(node), "has lost the list of its samples")
    return found
