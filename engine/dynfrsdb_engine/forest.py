"""Queries, growth and changes: the rounds between kernels and whoever keeps the records.

Kernels walk until they meet something that is not there, and say what. `Forest` fetches everything that is missing,
for all trees and rows at once and down to where the rows end, from a `Source`, grows the tags that a query met, and
lets the kernel go on. Warm, there is one kernel call; cold, there are few rounds, however deep trees are."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine import change as changes
from dynfrsdb_engine import predict as predicting
from dynfrsdb_engine.batch import LANES, answer_many
from dynfrsdb_engine.chunks import Edits, list_edits
from dynfrsdb_engine.collect import Ops
from dynfrsdb_engine.commit import Changed, changed_records, drop_dirty, mark_clean
from dynfrsdb_engine.digest import tree_bytes
from dynfrsdb_engine.grow import Queries
from dynfrsdb_engine.install import GROWN, GROWN_ASIDE, STORED
from dynfrsdb_engine.jobs import BadRow, Ground, Growth, Work, at_once, grouped, grow_work, make_ground, work_for
from dynfrsdb_engine.kernel import Record
from dynfrsdb_engine.lists import MISPLACED, NEED_LISTS, NEED_RECORD, NO_ROOM, OVER, WAIT
from dynfrsdb_engine.recount import BENCH, make_bench
from dynfrsdb_engine.resident import Resident
from dynfrsdb_engine.rows import Rows
from dynfrsdb_engine.scan import (
    FOUND_MISSING,
    FOUND_TAG,
    lay_out,
    scan_dirty_tags,
    scan_tags,
    tag_sizes,
)
from dynfrsdb_engine.source import Damaged, Source
from dynfrsdb_engine.spec import Spec
from dynfrsdb_engine.working import (
    CLEARS,
    CLOCK,
    NOTHING,
    TAGGINGS,
    TOP_POINT,
    ensure,
)

NO_NEEDS = np.zeros(0, predicting.NEED)
ROWS_AT_ONCE = 1024
"""Query rows that one kernel call takes, so that what a cold call needs stays bounded."""
FEW = 1024
"""Trees, counted once for each sample that changes in them, up to which a change works in room that is kept for it."""
LISTS = 1 << 18
"""Slots that a change begins with room for: what it voids leaves gaps, and each time there must be more is a pause."""
GROUND = 1 << 14
"""Samples that a forest keeps room for growing: as many as most changes and queries grow."""
HOT_ROWS_AT_ONCE = 16_384
"""The same where nothing may be missing: a tree is copied once for all of them."""


class Samples(NamedTuple):
    """Samples that come (sign +1) and go (-1)."""

    ids: npt.NDArray[np.uint64]
    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    slots: npt.NDArray[np.uint32]
    sign: npt.NDArray[np.int8]


class Effect(NamedTuple):
    """What a change did: trees and nodes visited, nodes whose subtree became void, nodes and buckets tagged, nodes
    whose best split became another."""

    trees: int
    visited: int
    voided: int
    tagged: int
    resplit: int


def root_size(growth: Growth) -> int:
    """How many samples the first record of a growth has."""
    at = 2 if growth.records[0]["bucket"] else 4
    width = 2 if growth.records[0]["bucket"] else 4
    return int.from_bytes(growth.data[at : at + width].tobytes(), "little")


def _ways(items: npt.NDArray[np.void], ops: Ops) -> list[list[float] | None]:
    """The sample that is on its way down below each item, if it is a single one."""
    alone = (items["end"] - items["start"] == 1).tolist()
    samples = ops.order[items["start"]].tolist()
    lines = {sample: ops.X[sample].tolist() for sample, single in zip(samples, alone, strict=True) if single}
    return [lines[sample] if single else None for sample, single in zip(samples, alone, strict=True)]


def _make_queues(size: int) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Room for a change of samples that are in `size` trees together: this level, the next one, items that wait."""
    return np.empty(size, changes.CHANGE), np.empty(size, changes.CHANGE), np.empty(size, changes.CHANGE)


class Forest(Resident):
    """A forest to ask and to change, as far as it is in memory. Not for several threads at once."""

    def __init__(self, spec: Spec, source: Source, rows: Rows, *, changeable: bool) -> None:
        super().__init__(spec, source, rows, changeable=changeable)
        self._bench = BENCH.hold(make_bench(spec))
        self._needs = np.zeros(4 * ROWS_AT_ONCE, predicting.NEED)
        self._counts = np.zeros(2, np.int64)
        self._queues = _make_queues(FEW if changeable else 0)
        self._ground: Ground | None = None

    # Queries

    def predict(self, X: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Mean answers for the rows of X: one column per class, or one."""
        self.w.top[CLOCK] += 1
        out = np.empty((X.shape[0], self.spec.classes or 1))
        for start in range(0, X.shape[0], ROWS_AT_ONCE):
            rows, answers = X[start : start + ROWS_AT_ONCE], out[start : start + ROWS_AT_ONCE]
            if self.track or not self._answer(rows, answers):
                while not self._try(rows, answers):
                    self._meet(self._needs[: self._counts[0]], rows)
        return out

    def predict_if_ready(self, X: npt.NDArray[np.float32]) -> npt.NDArray[np.float64] | None:
        """As `predict`, if everything needed is in memory and there are samples at all; changes nothing, so several
        threads may call it at once."""
        out = np.empty((X.shape[0], self.spec.classes or 1))
        if self.track:
            ready = not self.is_empty and predicting.predict(
                self._spec.address, self._working.address, X, out, NO_NEEDS, np.zeros(2, np.int64), True
            )
        else:
            ready = self._answer(X, out)
        return out if ready else None

    def _answer(self, X: npt.NDArray[np.float32], out: npt.NDArray[np.float64]) -> bool:
        n, most = X.shape[0], HOT_ROWS_AT_ONCE
        if n > most:
            return all(self._answer(X[i : i + most], out[i : i + most]) for i in range(0, n, most))
        worth_copies = n >= LANES and n * self.spec.trees >= self.w.top[TOP_POINT]
        kernel = answer_many if worth_copies else predicting.answer
        answered: bool = kernel(self._spec.address, self._working.address, X, out)
        return answered

    def _try(self, X: npt.NDArray[np.float32], out: npt.NDArray[np.float64]) -> bool:
        self._counts[1] += 1
        return bool(
            predicting.predict(self._spec.address, self._working.address, X, out, self._needs, self._counts, self.track)
        )

    def _meet(self, needs: npt.NDArray[np.void], X: npt.NDArray[np.float32]) -> None:
        """Load what is missing and grow the tags that queries met."""
        missing, tagged = needs[needs["tagged"] == 0], needs[needs["tagged"] == 1]
        if missing.size:
            places, first = np.unique(missing[["tree", "path"]], return_index=True)
            lines = {row: X[row].tolist() for row in set(missing["row"].tolist())}
            ways = [lines[row] for row in missing["row"][first].tolist()]
            self.load(np.ascontiguousarray(places["tree"]), np.ascontiguousarray(places["path"]), ways)
        if tagged.size:
            places, which = np.unique(tagged[["tree", "path"]], return_inverse=True)
            points = np.array([self._point(tree, path) for tree, path in places.tolist()], np.int64)
            rows = tagged["row"][np.argsort(which, kind="stable")].astype(np.int32)
            work = self._work(points, self._tag_sizes(points), np.cumsum(np.bincount(which)))
            self._take(self._grow(work, Queries(X, rows, False)))

    def _tag_sizes(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How many samples the tags at these points have; brings the lists of those that are long."""
        sizes = np.empty(points.size, np.int64)
        if tag_sizes(self._working.address, points, sizes):
            nodes = self.w.nodes[self.w.points["owner"][points[sizes < 0]]]
            self._load_lists(nodes["tree"], nodes["path"], nodes["point"])
        return np.abs(sizes)

    def _work(
        self, points: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], asked_to: npt.NDArray[np.int64]
    ) -> Work:
        """Tags at these points, of these sizes, as work to be done; `asked_to` says where the queries of each end."""
        work = work_for(points.size, int(sizes.sum()))
        lay_out(self._working.address, points, asked_to, work)
        return work

    def _grow(self, work: Work, queries: Queries | None = None) -> Growth:
        """Grow in this thread."""
        if work.slots.size > GROUND:
            return grow_work(self.spec, self.rows, work, queries, self._working)
        if self._ground is None:
            self._ground = make_ground(self.spec, GROUND)
        return grow_work(self.spec, self.rows, work, queries, self._working, self._ground)

    def _take(self, growth: Growth) -> None:
        self._install(growth.records, growth.data, growth.lists, GROWN)

    # Growing everything

    def tags(self) -> npt.NDArray[np.void]:
        """All tags of the forest, largest first; brings what is missing on the way to them."""
        while True:
            found = self._scan(lambda out: scan_tags(self._spec.address, self._working.address, out))
            missing = found[found["what"] == FOUND_MISSING]
            if not missing.size:
                return found[np.argsort(-found["n"], kind="stable")]
            self.load(np.ascontiguousarray(missing["tree"]), np.ascontiguousarray(missing["path"]))

    def dirty_tags(self, stamp: int, limit: int) -> npt.NDArray[np.void]:
        """The tags with at most `limit` samples that the open transaction, which will be commit `stamp`, has made."""
        return self._scan(lambda out: scan_dirty_tags(self._working.address, stamp, limit, out))

    def grow_tags(self, found: npt.NDArray[np.void], pool: Executor | None = None) -> None:
        """Grow these tags wholly, some at once."""
        points = np.ascontiguousarray(found["point"])
        sizes = self._tag_sizes(points)
        groups = grouped(range(points.size), sizes.tolist().__getitem__, at_once(self.spec))
        works = (self._work(points[group], sizes[group], np.zeros(len(group), np.int64)) for group in groups)
        if pool is None:
            for work in works:
                self._take(self._grow(work))
            return
        rows, before = self.rows, self._working
        for growth in list(pool.map(lambda work: grow_work(self.spec, rows, work, None, before), works)):
            self._take(growth)

    def set_aside(self, found: npt.NDArray[np.void]) -> Work:
        """These tags as work for `grow_work`, which another thread may do while this forest goes on."""
        points = np.ascontiguousarray(found["point"])
        work = self._work(points, self._tag_sizes(points), np.zeros(points.size, np.int64))
        work.items["old"] = NOTHING
        return work

    def take_what_fits(self, growth: Growth) -> None:
        """Replace tags by what was grown from work that was set aside, as far as they still have the same samples. All
        `tags` must be in memory."""
        self._install(growth.records, growth.data, growth.lists, GROWN_ASIDE)

    def load_tree(self, tree: int) -> None:
        """Bring a whole tree and grow its tags."""
        self.load_below([(tree, 1)])
        found = self._scan_below([(tree, 1)])
        self.grow_tags(found[found["what"] == FOUND_TAG])

    def plant(self, tree: int, growth: Growth) -> None:
        """Take a whole tree that was grown with stamp 0, where none is in memory."""
        self.w.roots[tree] = (0, root_size(growth), 0)
        self._install(growth.records, growth.data, growth.lists, STORED)

    def tree_bytes(self, tree: int) -> bytes:
        """What the digest of a tree hashes; the tree must be wholly in memory and settled."""
        return tree_bytes(self._spec, self._working, self.rows, tree)

    # Changes

    def change(self, samples: Samples, stamp: int) -> Effect:
        """Apply samples that come and go, under the number of the commit that will write them."""
        order = np.empty(samples.ids.size * self.spec.occupancy, np.int32)
        ops = Ops(samples.X, samples.y, samples.slots, samples.sign, order)
        now, then, waiting = self._queues if order.size <= FEW else _make_queues(order.size)
        queues, fill = (now, then), np.zeros(changes.FILL, np.int64)
        changes.start_items(self._spec.address, samples.ids, order, now, fill)
        trees, tagged = int(fill[changes.NOW]), int(self.w.top[TAGGINGS])
        many = min(order.size, 1024)
        self.w = ensure(self.w, nodes=8, buckets=8, leaves=64, lists=LISTS, edits=many + 1, cleared=64 + many)
        while True:
            held = (self._spec.address, self._working.address, self._bench.address)
            status = changes.change(*held, self.rows, ops, stamp, queues, waiting, fill)
            if status == OVER:
                made, done = int(self.w.top[TAGGINGS]) - tagged, fill.tolist()
                return Effect(trees, done[changes.VISITED], done[changes.VOIDED], made, done[changes.RESPLIT])
            if status == WAIT:
                self._satisfy(waiting[: fill[changes.WAITING]], ops, now, fill)
                continue
            item = queues[fill[changes.TURN]][fill[changes.AT]]
            if status != NO_ROOM:
                self._complain(status, item)
            self._make_room(item)

    def _make_room(self, item: Record) -> None:
        changed = int(item["end"] - item["start"])
        n = int(self.w.roots["n"].max()) + 2 * changed
        leaf = 4 + 2 * self.spec.columns
        self.w = ensure(
            self.w, nodes=16, buckets=64, leaves=64 * leaf, lists=2 * n + 1024, cleared=256, edits=changed + 1024
        )

    def _satisfy(
        self, waiting: npt.NDArray[np.void], ops: Ops, now: npt.NDArray[np.void], fill: npt.NDArray[np.int64]
    ) -> None:
        """Bring what the waiting items need and let the walk begin again with them."""
        needs = waiting["need"].tolist()
        if NEED_RECORD in needs:
            records = waiting[waiting["need"] == NEED_RECORD]
            self.load(np.ascontiguousarray(records["tree"]), np.ascontiguousarray(records["path"]), _ways(records, ops))
        if NEED_LISTS in needs:
            self.load_below(waiting[waiting["need"] == NEED_LISTS][["tree", "path"]].tolist())
        waiting["need"] = 0
        now[: waiting.size] = waiting
        fill[changes.NOW], fill[changes.TURN], fill[changes.WAITING] = waiting.size, 0, 0

    def _complain(self, status: int, item: Record) -> None:
        if status == MISPLACED:
            raise Damaged(int(item["tree"]), int(item["path"]), "does not hold a sample that belongs there")
        raise Damaged(int(item["tree"]), int(item["path"]), "has a sample whose row fails its hash")

    def changed(self, seeds: tuple[int, int], chunk: int) -> Changed:
        """Every changed record; checksums go on from `seeds`, and new lists are in chunks of so many slots."""
        return changed_records(self._spec, self._working, seeds, chunk)

    def cleared(self) -> npt.NDArray[np.void]:
        """Nodes whose old records, and all below them, must be deleted before the changed ones are written."""
        return self.w.cleared[: self.w.top[CLEARS]]

    def edits(self) -> Edits:
        """What changes in long lists that stay on disk."""
        return list_edits(self._working)

    def mark_clean(self) -> None:
        """After a commit: memory and disk agree."""
        mark_clean(self._working.address)

    def drop_changes(self) -> None:
        """After a rollback: let go of everything that differs from the disk. Roots must be set again."""
        drop_dirty(self._working.address)


__all__ = ["BadRow", "Damaged", "Effect", "Forest", "Samples", "Source"]
