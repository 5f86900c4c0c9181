"""Where the engine's records lie in the store.

A place in a forest is (tree, path). A record with n > B lies in `nodes`, one with n <= B in `buckets`, both under the
same key; a long list lies in `buckets` as well, in chunks of sorted slots, each under its smallest slot:

    nodes    3|0b101          leaf, n = 1000
    buckets  3|0b101|17       slots 17 .. 3980, 450 of them
    buckets  3|0b101|3991     slots 3991 .. 8000
    buckets  3|0b101|8017     the last 100

so that one sample that leaves a list of thousands rewrites one chunk. `Shelf` reads them for the engine;
`put_changed`, `edit_lists` and `clear` write what a commit changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.chunks import Edits, Limits, edited
from dynfrsdb_engine.commit import Changed
from dynfrsdb_engine.forest import Damaged, Forest
from dynfrsdb_engine.jobs import Growth
from dynfrsdb_engine.source import Records
from dynfrsdb_storage import Snapshot, WriteSession, layout, records

CHUNK = 450
"""Slots in a chunk when a long list is written: 1,800 bytes, so that two chunks share a page."""
MOST = 474
"""Slots that a chunk may grow to before it is written as two."""
LIMITS = Limits(CHUNK, MOST)
SEEDS = records.seed("nodes"), records.seed("buckets")
"""Where the checksums of tree records begin."""
FIRST_CHUNK = bytes(4)
"""Behind a node's key: that of its bucket."""
Slots = npt.NDArray[np.uint32]
Payloads = dict[bytes, bytes]
"""Payloads by their keys. (Not pairs: thousands of those would have the garbage collector look through the process.)"""


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
            if not wanted:
                continue
            key_of = layout.bucket_key if database == "buckets" else layout.node_key
            keys = [key_of(places[i][0], places[i][1]) for i in wanted]
            for i, payload in zip(wanted, self._open().get(database, keys), strict=True):
                found[i] = payload
        for place, payload in zip(places, found, strict=True):
            if payload is None:
                raise Damaged(place[0], place[1], "is missing")
        return [payload for payload in found if payload is not None]

    def below(self, tops: Sequence[tuple[int, int]]) -> Records:
        """All records at and below nodes (tree, path), parents before children: all nodes, then all buckets."""
        ranges = [layout.subtree_range(*top) for top in tops]
        nodes = _joined(self._open().between("nodes", ranges))
        buckets = _joined(self._open().between("buckets", ranges))
        size = layout.NODE_KEY_BYTES
        short = [key for key in buckets if key[:size] not in nodes]  # the others are chunks of long lists
        trees, paths = layout.parse_node_keys([*nodes, *(key[:size] for key in short)])
        is_bucket = np.arange(trees.size) >= len(nodes)
        return Records(trees, paths, is_bucket, [*nodes.values(), *(buckets[key] for key in short)])

    def long_lists(self, places: Sequence[tuple[int, int]]) -> Sequence[Slots]:
        """The slots of the long lists at (tree, path), ascending; the caller knows how many there are."""
        nodes = [layout.node_key(*place) for place in places]
        found = self._open().between("buckets", [(node + bytes(4), node + b"\xff" * 4) for node in nodes])
        return [np.frombuffer(b"".join(chunks.values()), "<u4").astype(np.uint32) for chunks in found]


def _joined(found: Sequence[Payloads]) -> Payloads:
    """What was found in several ranges."""
    return found[0] if len(found) == 1 else {key: data for each in found for key, data in each.items()}


def growth_records(growth: Growth) -> tuple[Payloads, Payloads]:
    """Records as (nodes, buckets) to put, each in the order of the growth; long lists are among the buckets, and then
    those are in the order of their keys."""
    records, data = growth.records, growth.data.tobytes()
    keys, at = layout.node_keys(records["tree"], records["path"]), records["at"]
    columns = keys, at.tolist(), (at + records["size"]).tolist(), records["bucket"].tolist()
    nodes: Payloads = {}
    buckets: Payloads = {}
    for key, begin, end, is_bucket in zip(*columns, strict=True):
        if is_bucket:
            buckets[key + FIRST_CHUNK] = data[begin:end]
        else:
            nodes[key] = data[begin:end]
    listed = records[records["list_size"] > 0]
    if listed.size:
        buckets = dict(sorted([*buckets.items(), *_list_records(growth, listed)], key=itemgetter(0)))
    return nodes, buckets


def _list_records(growth: Growth, nodes: npt.NDArray[np.void]) -> Iterator[tuple[bytes, bytes]]:
    """The long lists of nodes as chunk records."""
    data = growth.lists.astype("<u4", copy=False).view(np.uint8).data
    keys = layout.node_keys(nodes["tree"], nodes["path"])
    for key, first, size in zip(keys, nodes["list_at"].tolist(), nodes["list_size"].tolist(), strict=True):
        for at in range(first, first + size, CHUNK):
            chunk = bytes(data[4 * at : 4 * min(at + CHUNK, first + size)])
            yield key + chunk[3::-1], chunk


def clear(session: WriteSession, places: Iterable[tuple[int, int]]) -> None:
    """Delete the records of nodes (tree, path) and of everything below them."""
    ranges = [layout.subtree_range(*place) for place in places]
    session.delete_ranges("nodes", ranges)
    session.delete_ranges("buckets", ranges)


def put_roots(session: WriteSession, roots: npt.NDArray[np.void], before: npt.NDArray[np.void]) -> None:
    """Write the roots of all trees, as far as they are not as before."""
    for chunk, first in enumerate(range(0, roots.size, layout.ROOTS_PER_RECORD)):
        some = roots[first : first + layout.ROOTS_PER_RECORD]
        if some.tobytes() != before[first : first + layout.ROOTS_PER_RECORD].tobytes():
            session.put_roots(chunk, some["stamp"], some["n"], some["tags"])


def changed_records(forest: Forest) -> Changed:
    """Everything that changed in a working set, as records of this store."""
    return forest.changed(SEEDS, CHUNK)


def put_changed(session: WriteSession, changed: Changed) -> None:
    """Write changed records, and long lists that are new."""
    session.put_sealed("nodes", changed.nodes)
    session.put_sealed("buckets", changed.buckets)


def edit_lists(session: WriteSession, wanted: Edits) -> None:
    """Take slots out of long lists and put slots in, rewriting only the chunks that change."""
    if not wanted.edits.size:
        return
    keys: list[bytes] = wanted.keys.view(f"V{layout.BUCKET_KEY_BYTES}").ravel().tolist()
    near, chunks = session.snapshot.near("buckets", keys)
    homes = [its or b"" for its in near]
    strays = [i for i, key in enumerate(keys) if homes[i][: layout.NODE_KEY_BYTES] != key[: layout.NODE_KEY_BYTES]]
    for i in strays:
        homes[i], chunks[homes[i]] = _first_chunk(session.snapshot, keys[i][: layout.NODE_KEY_BYTES])
    if strays:  # then a record of somebody else was found
        chunks = {home: chunks[home] for home in homes}
    gone, again = edited(SEEDS[1], wanted.edits, homes, chunks, LIMITS)
    for key in gone:
        session.delete("buckets", key)
    session.put_sealed("buckets", again)


def _first_chunk(snapshot: Snapshot, node: bytes) -> tuple[bytes, bytes]:
    """The first chunk of a list, as it is stored, where a slot belongs that is smaller than all in the list."""
    found = next(iter(snapshot.scan("buckets", node + bytes(4), node + b"\xff" * 4)), None)
    if found is None:
        raise Damaged(*layout.parse_node_key(node), "has lost the list of its samples")
    return found[0], records.pack("buckets", *found)
