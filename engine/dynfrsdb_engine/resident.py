"""What of a forest is in memory: brought from a `Source`, moved from commit to commit, kept to a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.chunks import take_lists
from dynfrsdb_engine.follow import (
    FOUND_GONE,
    FOUND_SPLIT,
    compact,
    drop_nodes,
    drop_settled_tags,
    mark_used,
    renew,
    sample_uses,
)
from dynfrsdb_engine.grow import RECORD
from dynfrsdb_engine.install import GOOD, STORED, WRONG_STAMP, install, make_room
from dynfrsdb_engine.records import way_down
from dynfrsdb_engine.rows import Rows
from dynfrsdb_engine.scan import FOUND, FOUND_LIST, FOUND_MISSING, expected_sizes, scan_below
from dynfrsdb_engine.source import Damaged, Records, Source
from dynfrsdb_engine.spec import SPEC, Spec
from dynfrsdb_engine.working import (
    CLOCK,
    EDITS,
    MISSING,
    TAGS,
    TOP_BUCKET,
    TOP_LEAF,
    TOP_LIST,
    TOP_NODE,
    TOP_POINT,
    WORKING,
    Working,
    ensure,
    make_working,
    point_of,
    used_bytes,
)

FEW = 8
"""Missing subtrees that are brought one by one; more are brought with everything around them, in one go."""
RESTORED_AT_ONCE = 32_768
"""Samples below nodes that are brought anew when a commit is followed."""
Place = tuple[int, int, bool]
"""(tree, path, whether it is a bucket)"""
Way = Sequence[float]
"""The features of a row that goes down a tree."""


def _in_one_piece(found: Records) -> tuple[npt.NDArray[np.void], npt.NDArray[np.uint8]]:
    """Records as kernels take them, with their payloads in one buffer."""
    sizes = np.fromiter(map(len, found.payloads), np.int64, len(found.payloads))
    records = np.zeros(sizes.size, RECORD)
    records["size"] = sizes
    records["at"] = np.cumsum(sizes) - sizes
    records["tree"], records["path"], records["bucket"] = found.trees, found.paths, found.buckets
    return records, np.frombuffer(bytearray().join(found.payloads), np.uint8)


class Resident:
    """One working set with the source it is filled from. Not for several threads at once."""

    def __init__(self, spec: Spec, source: Source, rows: Rows, *, changeable: bool) -> None:
        self.spec, self.source, self.rows = spec, source, rows
        self.changeable = changeable
        self._spec = SPEC.hold(spec)
        self._working = WORKING.hold(make_working(spec, changeable))
        self.track = False
        """Whether queries note what they use, so that `shrink` knows what to keep."""

    @property
    def w(self) -> Working:
        """The working set."""
        return self._working.value

    @w.setter
    def w(self, w: Working) -> None:
        if w is not self._working.value:
            self._working = WORKING.hold(w)

    def set_roots(self, stamps: npt.NDArray[np.uint64], n: npt.NDArray[np.uint32], tags: npt.NDArray[np.uint8]) -> None:
        """Take over what the roots must be."""
        self.w.roots["stamp"], self.w.roots["n"], self.w.roots["tags"] = stamps, n, tags

    @property
    def tags_made(self) -> int:
        """Tags made less tags grown or dropped since the working set was made."""
        return int(self.w.top[TAGS])

    @property
    def is_empty(self) -> bool:
        """Whether no tree holds a sample, so that there is no answer."""
        return not self.w.roots["n"].any()

    @property
    def size(self) -> int:
        """Bytes in use."""
        return used_bytes(self.w)

    # Loading

    def _install(
        self, records: npt.NDArray[np.void], data: npt.NDArray[np.uint8], lists: npt.NDArray[np.uint32], origin: int
    ) -> None:
        self.w = make_room(self.w, records, data.size, int(records["list_size"].sum()))
        changed = origin != STORED and self.changeable
        status, i = install(self._spec.address, self._working.address, records, data, lists, origin, changed)
        self._refuse(status, records, i)

    def _refuse(self, status: int, records: npt.NDArray[np.void], i: int) -> None:
        if status != GOOD:
            what = f"is not of the {'commit' if status == WRONG_STAMP else 'size'} that its parent names"
            raise Damaged(int(records[i]["tree"]), int(records[i]["path"]), what)

    def _bring(self, found: Records) -> None:
        records, data = _in_one_piece(found)
        self._install(records, data, np.empty(0, np.uint32), STORED)

    def load(
        self, trees: npt.NDArray[np.int64], paths: npt.NDArray[np.uint64], ways: Sequence[Way | None] | None = None
    ) -> None:
        """Bring the records of these nodes, whose parents are in memory. Where a row is on its way down (`ways`, one
        for each node), all that it comes by is brought as well: left to the caller, each level would take a round."""
        if not trees.size:
            return
        sizes = np.empty(trees.size, np.int64)
        expected_sizes(self._working.address, trees, paths, sizes)
        if sizes.min() < 0:
            raise Damaged(int(trees[sizes.argmin()]), int(paths[sizes.argmin()]), "has no parent")
        places = list(zip(trees.tolist(), paths.tolist(), (sizes <= self.spec.bucket).tolist(), strict=True))
        brought, payloads = list(places), list(self.source.records(places))
        level, found = places, payloads
        while ways is not None and level:
            level, ways = self._next_level(level, found, ways)
            found = list(self.source.records(level))
            brought += level
            payloads += found
        all_trees, all_paths, buckets = zip(*brought, strict=True)
        self._bring(Records(all_trees, all_paths, buckets, payloads))

    def _next_level(
        self, places: Sequence[Place], payloads: Sequence[bytes], ways: Sequence[Way | None]
    ) -> tuple[list[Place], list[Way | None]]:
        """Where rows that came by these records go next, and those rows."""
        level: list[Place] = []
        rows: list[Way | None] = []
        for (tree, path, bucket), payload, way in zip(places, payloads, ways, strict=True):
            if way is None or bucket:
                continue
            step = way_down(payload, way)
            if step is not None:
                level.append((tree, 2 * path + step[0], step[1] <= self.spec.bucket))
                rows.append(way)
        return level, rows

    def load_below(self, tops: Sequence[tuple[int, int]]) -> None:
        """Bring everything at and below these nodes (tree, path), long lists too."""
        found = self._scan_below(tops)
        if (found["what"] == FOUND_MISSING).any():
            for top in tops:
                self._bring_missing(top)
            found = self._scan_below(tops)
            missing = found[found["what"] == FOUND_MISSING]
            if missing.size:
                raise Damaged(int(missing[0]["tree"]), int(missing[0]["path"]), "is missing")
        lists = found[found["what"] == FOUND_LIST]
        self._load_lists(lists["tree"], lists["path"], lists["point"])

    def _bring_missing(self, top: tuple[int, int]) -> None:
        """Bring every record below a node."""
        found = self._scan_below([top])
        missing = found[found["what"] == FOUND_MISSING]
        if missing.size > FEW:
            self._bring_below([top])
        elif missing.size:
            self._bring_anew(missing)

    def _scan_below(self, tops: Sequence[tuple[int, int]]) -> npt.NDArray[np.void]:
        """Tags at and below these nodes, and what is not in memory."""
        trees = np.array([tree for tree, _ in tops], np.int64)
        paths = np.array([path for _, path in tops], np.uint64)
        return self._scan(lambda out: scan_below(self._working.address, trees, paths, out))

    def _point(self, tree: int, path: int) -> int:
        return int(point_of(self._working.address, tree, np.uint64(path), path.bit_length() - 1))

    def _load_lists(
        self, trees: npt.NDArray[np.int64], paths: npt.NDArray[np.uint64], points: npt.NDArray[np.int64]
    ) -> None:
        """Bring the long lists of these nodes, with what the open transaction changed in them."""
        if not points.size:
            return
        order = np.argsort(self.w.points["owner"][points])
        rows = self.w.points["owner"][points[order]].astype(np.int64)
        places = list(zip(trees[order].tolist(), paths[order].tolist(), strict=True))
        lists = self.source.long_lists(places)
        sizes = np.fromiter(map(len, lists), np.int64, len(lists))
        self.w = ensure(self.w, lists=int(sizes.sum() + self.w.top[EDITS]))
        take_lists(self._working.address, rows, sizes, np.concatenate(lists))
        expected = self.w.stats.head["n"][rows]
        for i in np.flatnonzero(sizes != expected).tolist():
            raise Damaged(*places[i], f"has a list of {sizes[i]} samples where {expected[i]} are expected")

    def _scan(self, scanner: Callable[[npt.NDArray[np.void]], int]) -> npt.NDArray[np.void]:
        """Run a scanner, again with more room if it found more than fits."""
        found = np.empty(1024, FOUND)
        count = scanner(found)
        if count > found.size:
            found = np.empty(count, FOUND)
            count = scanner(found)
        return found[:count]

    # Following and shrinking

    def follow(
        self, stamps: npt.NDArray[np.uint64], n: npt.NDArray[np.uint32], tags: npt.NDArray[np.uint8], settled: bool
    ) -> None:
        """Move to a commit with these roots: bring changed splits up to date, and anew what changed otherwise, also
        tags if some were `settled` on the way."""
        trees = np.flatnonzero(self.w.roots["stamp"] != stamps.astype(np.int64))
        self.set_roots(stamps, n, tags)
        trees = trees[self.w.points["feature"][trees] != MISSING]
        roots = np.zeros(trees.size, FOUND)
        roots["tree"], roots["path"], roots["point"], roots["n"] = trees, 1, trees, n[trees]
        small = roots["n"] <= self.spec.bucket
        drop_nodes(self._working.address, trees[small], np.ones(np.count_nonzero(small), np.uint64))
        gone, changed = [roots[small]], roots[~small]
        while changed.size:
            found = self._renew(changed)
            gone.append(found[found["what"] == FOUND_GONE])
            changed = found[found["what"] == FOUND_SPLIT]
        if settled:
            tags_gone = np.zeros(self.w.top[TOP_NODE] + self.w.top[TOP_BUCKET], FOUND)
            gone.append(tags_gone[: drop_settled_tags(self._working.address, tags_gone)])
        self._restore(np.concatenate(gone))

    def _restore(self, gone: npt.NDArray[np.void]) -> None:
        """Bring what was dropped anew, with all below it: the smallest first, until it is enough for one query."""
        gone = gone[np.argsort(gone["n"], kind="stable")]
        gone = gone[(gone["n"] > 0) & (np.cumsum(gone["n"]) <= RESTORED_AT_ONCE)]
        if gone.size:
            self._bring_anew(gone)

    def _bring_anew(self, missing: npt.NDArray[np.void]) -> None:
        """Bring these nodes, whose parents are in memory, with all below them."""
        self.load(np.ascontiguousarray(missing["tree"]), np.ascontiguousarray(missing["path"]))
        points = self.w.points[missing["point"]]
        splits = missing[(points["owner"] >= 0) & (points["feature"] >= 0)]
        if splits.size:
            self._bring_below(splits[["tree", "path"]].tolist())

    def _bring_below(self, tops: Sequence[tuple[int, int]]) -> None:
        """Bring everything at and below these nodes."""
        self._bring(self.source.below(tops))

    def _renew(self, changed: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Bring these splits up to date; returns the children to look at next, and what was dropped."""
        places = [
            (tree, path, False) for tree, path in zip(changed["tree"].tolist(), changed["path"].tolist(), strict=True)
        ]
        splits = Records(changed["tree"], changed["path"], False, self.source.records(places))
        records, data = _in_one_piece(splits)
        found = np.zeros(2 * len(places), FOUND)
        status, i, count = renew(self._spec.address, self._working.address, records, data, found)
        self._refuse(status, records, i)
        return found[:count]

    def shrink(self, budget: int) -> bool:
        """Keep what was used lately, if the working set is larger than `budget` bytes; returns whether it was.

        The half that was used least lately goes, then the half of what is left, until the rest fits. Nothing may be
        waiting to be written.
        """
        size = self.size
        self.track = size > budget // 2
        if size <= budget:
            return False
        sample = np.zeros(1024, np.int64)
        uses = np.sort(sample[: sample_uses(self._working.address, sample)])
        mark_used(self._working.address)
        while self.size > budget and uses.size:
            oldest = int(uses[uses.size // 2])
            oldest += int(uses[0] == oldest)
            self._compact(oldest)
            uses = uses[uses >= oldest]
        if self.size > budget:
            self._compact(int(self.w.top[CLOCK]) + 1)
        return True

    def _compact(self, oldest: int) -> None:
        top = self.w.top
        new = ensure(
            make_working(self.spec, self.changeable),
            points=int(top[TOP_POINT]),
            leaves=int(top[TOP_LEAF]),
            lists=int(top[TOP_LIST]),
            nodes=int(top[TOP_NODE]),
            buckets=int(top[TOP_BUCKET]),
        )
        new.top[CLOCK], new.top[TAGS] = top[CLOCK], top[TAGS]
        held = WORKING.hold(new)
        compact(self._spec.address, self._working.address, held.address, oldest)
        self._working = held
