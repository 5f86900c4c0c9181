"""A forest as far as it is in memory, and the rounds between kernels and whoever keeps the records.

Kernels walk until they meet something that is not there, and say what. `Forest` fetches everything that is missing,
for all trees and rows at once, from a `Source`, grows the tags that a query met, and lets the kernel go on. Warm,
there is one kernel call; cold, at most as many rounds as trees are deep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine import change as changes
from dynfrsdb_engine import predict as predicting
from dynfrsdb_engine.batch import LANES, answer_many
from dynfrsdb_engine.collect import Ops
from dynfrsdb_engine.commit import dirty_records, drop_dirty, mark_clean
from dynfrsdb_engine.digest import tree_bytes
from dynfrsdb_engine.follow import (
    FOUND_GONE,
    FOUND_SPLIT,
    compact,
    drop_nodes,
    drop_unlisted_tags,
    mark_used,
    renew,
    sample_uses,
)
from dynfrsdb_engine.grow import RECORD, BadRow, Growth, Job, grow_jobs, grow_parallel
from dynfrsdb_engine.hashing import spread
from dynfrsdb_engine.install import GOOD, WRONG_STAMP, install, make_room, take_list
from dynfrsdb_engine.kernel import Record
from dynfrsdb_engine.lists import MISPLACED, NEED_LISTS, NEED_RECORD, NO_ROOM, OVER, WAIT
from dynfrsdb_engine.recount import BENCH, make_bench
from dynfrsdb_engine.rows import Rows
from dynfrsdb_engine.scan import (
    FOUND,
    FOUND_LIST,
    FOUND_MISSING,
    FOUND_TAG,
    expected_sizes,
    scan_below,
    scan_dirty_tags,
    scan_tags,
)
from dynfrsdb_engine.source import Damaged, Source
from dynfrsdb_engine.spec import SPEC, Spec
from dynfrsdb_engine.working import (
    CLEARS,
    CLOCK,
    EDITS,
    MISSING,
    TAGGINGS,
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

NO_NEEDS = np.zeros(0, predicting.NEED)
FEW = 8
"""Missing subtrees that are brought one by one; more are brought with everything around them, in one go."""
ROWS_AT_ONCE = 1024
"""Query rows that one kernel call takes, so that what a cold call needs stays bounded."""
HOT_ROWS_AT_ONCE = 16_384
"""The same where nothing may be missing: a tree is copied once for all of them."""
RESTORED_AT_ONCE = 32_768
"""Samples below nodes that are brought anew when a commit is followed."""


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


class Forest:
    """One working set with the source it is filled from. Not for several threads at once."""

    def __init__(self, spec: Spec, source: Source, rows: Rows, *, changeable: bool) -> None:
        self.spec, self.source, self.rows = spec, source, rows
        self.changeable = changeable
        self._spec, self._bench = SPEC.hold(spec), BENCH.hold(make_bench(spec))
        self._working = WORKING.hold(make_working(spec, changeable))
        self._needs = np.zeros(4 * ROWS_AT_ONCE, predicting.NEED)
        self._counts = np.zeros(2, np.int64)
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
        self, records: npt.NDArray[np.void], data: npt.NDArray[np.uint8], lists: npt.NDArray[np.uint32], grown: bool
    ) -> None:
        self.w = make_room(self.w, records, data.size, int(records["list_size"].sum()))
        status, i = install(
            self._spec.address, self._working.address, records, data, lists, grown, grown and self.changeable
        )
        self._refuse(status, records, i)

    def _refuse(self, status: int, records: npt.NDArray[np.void], i: int) -> None:
        if status != GOOD:
            what = f"is not of the {'commit' if status == WRONG_STAMP else 'size'} that its parent names"
            raise Damaged(int(records[i]["tree"]), int(records[i]["path"]), what)

    def _bring(self, places: Sequence[tuple[int, int, bool]], payloads: Sequence[bytes]) -> None:
        records, data = self._as_records(places, payloads)
        self._install(records, data, np.empty(0, np.uint32), grown=False)

    def _as_records(
        self, places: Sequence[tuple[int, int, bool]], payloads: Sequence[bytes]
    ) -> tuple[npt.NDArray[np.void], npt.NDArray[np.uint8]]:
        """Payloads in one buffer, as kernels take them."""
        sizes = np.fromiter((len(payload) for payload in payloads), np.int64, len(payloads))
        records = np.zeros(len(places), RECORD)
        records["size"] = sizes
        records["at"][1:] = np.cumsum(sizes)[:-1]
        records["tree"] = [place[0] for place in places]
        records["path"] = np.array([place[1] for place in places], np.uint64)
        records["bucket"] = [place[2] for place in places]
        return records, np.frombuffer(bytearray().join(payloads), np.uint8)

    def load(self, trees: npt.NDArray[np.int64], paths: npt.NDArray[np.uint64]) -> None:
        """Bring the records of these nodes, whose parents are in memory."""
        sizes = np.empty(trees.size, np.int64)
        expected_sizes(self._working.address, trees, paths, sizes)
        if sizes.size and sizes.min() < 0:
            raise Damaged(int(trees[sizes.argmin()]), int(paths[sizes.argmin()]), "has no parent")
        places = list(zip(trees.tolist(), paths.tolist(), (sizes <= self.spec.bucket).tolist(), strict=True))
        self._bring(places, self.source.records(places))

    def load_below(self, tree: int, path: int) -> None:
        """Bring everything at and below a node, long lists too."""
        found = self._scan_below(tree, path)
        missing = found[found["what"] == FOUND_MISSING]["path"].tolist()
        if missing:
            for top in missing if len(missing) <= FEW else [path]:
                self._bring_below(tree, top)
            found = self._scan_below(tree, path)
        for entry in found:
            if entry["what"] == FOUND_MISSING:
                raise Damaged(tree, int(entry["path"]), "is missing")
            if entry["what"] == FOUND_LIST:
                self._load_list(tree, int(entry["path"]), int(entry["point"]))

    def _scan_below(self, tree: int, path: int) -> npt.NDArray[np.void]:
        """Tags at and below a node, and what is not in memory."""
        point = self._point(tree, path)
        return self._scan(lambda out: scan_below(self._working.address, tree, np.uint64(path), point, out))

    def _point(self, tree: int, path: int) -> int:
        return int(point_of(self._working.address, tree, np.uint64(path), path.bit_length() - 1))

    def _load_list(self, tree: int, path: int, point: int) -> None:
        """Bring a long list, with what the open transaction changed in it."""
        row = int(self.w.points[point]["owner"])
        edits = self.w.edits[: self.w.top[EDITS]]
        mine = edits[(edits["row"] == row) & (edits["tree"] == tree) & (edits["path"] == path)]
        slots = self.source.long_list(tree, path)
        if mine.size:
            # The last edit of a slot counts.
            stays = dict(zip(mine["slot"].tolist(), (mine["sign"] > 0).tolist(), strict=True))
            entering = np.array([slot for slot, inside in stays.items() if inside], np.uint32)
            slots = np.sort(np.concatenate([np.setdiff1d(slots, mine["slot"]), entering])).astype(np.uint32)
        if slots.size != self.w.stats.head[row]["n"]:
            raise Damaged(
                tree, path, f"has a list of {slots.size} samples where {self.w.stats.head[row]['n']} are expected"
            )
        self.w = ensure(self.w, lists=slots.size)
        take_list(self._working.address, row, slots)

    def _scan(self, scanner: Callable[[npt.NDArray[np.void]], int]) -> npt.NDArray[np.void]:
        """Run a scanner, again with more room if it found more than fits."""
        found = np.zeros(1024, FOUND)
        count = scanner(found)
        if count > found.size:
            found = np.zeros(count, FOUND)
            count = scanner(found)
        return found[:count]

    # Following and shrinking

    def follow(self, stamps: npt.NDArray[np.uint64], n: npt.NDArray[np.uint32], tags: npt.NDArray[np.uint8]) -> None:
        """Move to a commit with these roots: bring changed splits up to date, and anew what changed otherwise."""
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
        self._restore(np.concatenate(gone))

    def _restore(self, gone: npt.NDArray[np.void]) -> None:
        """Bring what was dropped anew, with all below it: the smallest first, until it is enough for one query."""
        gone = gone[np.argsort(gone["n"], kind="stable")]
        gone = gone[(gone["n"] > 0) & (np.cumsum(gone["n"]) <= RESTORED_AT_ONCE)]
        if gone.size:
            self.load(np.ascontiguousarray(gone["tree"]), np.ascontiguousarray(gone["path"]))
        splits = gone[(gone["n"] > self.spec.bucket) & (self.w.points["feature"][gone["point"]] >= 0)]
        for tree, path in splits[["tree", "path"]].tolist():
            self._bring_below(tree, path)

    def _bring_below(self, tree: int, path: int) -> None:
        below = list(self.source.below(tree, path))
        self._bring([(tree, place, bucket) for place, bucket, _ in below], [payload for _, _, payload in below])

    def _renew(self, changed: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Bring these splits up to date; returns the children to look at next, and what was dropped."""
        places = [
            (tree, path, False) for tree, path in zip(changed["tree"].tolist(), changed["path"].tolist(), strict=True)
        ]
        records, data = self._as_records(places, self.source.records(places))
        found = np.zeros(2 * len(places), FOUND)
        status, i, count = renew(self._spec.address, self._working.address, records, data, found)
        self._refuse(status, records, i)
        return found[:count]

    def forget_unlisted_tags(self) -> None:
        """After somebody else settled: let go of tags whose list may be gone from the disk."""
        drop_unlisted_tags(self._working.address)

    def shrink(self, budget: int) -> bool:
        """Keep what was used lately, if the working set is larger than `budget` bytes; returns whether it was.

        Nothing may be waiting to be written.
        """
        self.track = self.size > budget // 2
        if self.size <= budget:
            return False
        sample = np.zeros(1024, np.int64)
        uses = np.sort(sample[: sample_uses(self._working.address, sample)])
        mark_used(self._working.address)
        oldest = int(uses[uses.size // 2]) if uses.size else 0
        self._compact(oldest if uses.size and uses[0] < oldest else oldest + 1)
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
            places = np.unique(missing[["tree", "path"]])
            self.load(np.ascontiguousarray(places["tree"]), np.ascontiguousarray(places["path"]))
        if tagged.size:
            places, which = np.unique(tagged[["tree", "path"]], return_inverse=True)
            asking = [tagged["row"][which == i] for i in range(places.size)]
            jobs = [
                self._job(tree, path, self._point(tree, path), rows)
                for (tree, path), rows in zip(places.tolist(), asking, strict=True)
            ]
            self._take(grow_jobs(self.spec, self.rows, jobs, X))

    def _job(self, tree: int, path: int, point: int, asking: npt.NDArray[np.int32] | None = None) -> Job:
        """The work of growing a tag."""
        owner = int(self.w.points["owner"][point])
        if owner < 0:
            stamp, n = int(self.w.buckets["stamp"][-2 - owner]), int(self.w.buckets["n"][-2 - owner])
            return Job(tree, path, stamp, self.w.slots[-2 - owner, :n], asking)
        if self.w.nodes["list_at"][owner] < 0:
            self._load_list(tree, path, point)
        at, n = int(self.w.nodes["list_at"][owner]), int(self.w.stats.head["n"][owner])
        return Job(tree, path, int(self.w.nodes["stamp"][owner]), self.w.lists[at : at + n], asking)

    def _take(self, growth: Growth) -> None:
        self._install(growth.records, growth.data, growth.lists, grown=True)

    # Growing everything

    def tags(self) -> npt.NDArray[np.void]:
        """All tags of the forest, largest first; brings what is missing on the way to them."""
        while True:
            found = self._scan(lambda out: scan_tags(self._spec.address, self._working.address, out))
            missing = found[found["what"] == FOUND_MISSING]
            if not missing.size:
                return found[np.argsort(-found["n"], kind="stable")]
            self.load(np.ascontiguousarray(missing["tree"]), np.ascontiguousarray(missing["path"]))

    def dirty_tags(self, limit: int) -> npt.NDArray[np.void]:
        """The tags of the open transaction with at most `limit` samples."""
        return self._scan(lambda out: scan_dirty_tags(self._working.address, limit, out))

    def grow_tags(self, found: npt.NDArray[np.void], pool: Executor | None = None) -> None:
        """Grow these tags wholly."""
        columns = (found[name].tolist() for name in ("tree", "path", "point"))
        jobs = [self._job(tree, path, point) for tree, path, point in zip(*columns, strict=True)]
        for growth in grow_parallel(self.spec, self.rows, jobs, pool):
            self._take(growth)

    def load_tree(self, tree: int) -> None:
        """Bring a whole tree and grow its tags."""
        self.load_below(tree, 1)
        found = self._scan_below(tree, 1)
        self.grow_tags(found[found["what"] == FOUND_TAG])

    def plant(self, tree: int, growth: Growth) -> None:
        """Take a whole tree that was grown with stamp 0, where none is in memory."""
        self.w.roots[tree] = (0, root_size(growth), 0)
        self._install(growth.records, growth.data, growth.lists, grown=False)

    def tree_bytes(self, tree: int) -> bytes:
        """What the digest of a tree hashes; the tree must be wholly in memory and settled."""
        return tree_bytes(self._spec, self._working, self.rows, tree)

    # Changes

    def change(self, samples: Samples, stamp: int) -> Effect:
        """Apply samples that come and go, under the number of the commit that will write them."""
        starts = np.empty(self.spec.trees + 1, np.int64)
        order = np.empty(samples.ids.size * self.spec.occupancy, np.int32)
        spread(self.spec.occupancy_key, samples.ids, self.spec.occupancy, starts, order)
        ops = Ops(samples.X, samples.y, samples.slots, samples.sign, order)
        queues = np.empty(order.size, changes.CHANGE), np.empty(order.size, changes.CHANGE)
        waiting, fill = np.empty(order.size, changes.CHANGE), np.zeros(changes.FILL, np.int64)
        changes.start_items(starts, queues[0], fill)
        trees, tagged = int(fill[changes.NOW]), int(self.w.top[TAGGINGS])
        self.w = ensure(self.w, nodes=8, buckets=8, leaves=64, edits=min(order.size, 1024) + 1, cleared=64)
        while True:
            held = (self._spec.address, self._working.address, self._bench.address)
            status = changes.change(*held, self.rows, ops, stamp, queues, waiting, fill)
            if status == OVER:
                made = int(self.w.top[TAGGINGS]) - tagged
                visited, voided, resplit = (int(fill[i]) for i in (changes.VISITED, changes.VOIDED, changes.RESPLIT))
                return Effect(trees, visited, voided, made, resplit)
            if status == WAIT:
                self._satisfy(waiting[: fill[changes.WAITING]], queues[0], fill)
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

    def _satisfy(self, waiting: npt.NDArray[np.void], now: npt.NDArray[np.void], fill: npt.NDArray[np.int64]) -> None:
        """Bring what the waiting items need and let the walk begin again with them."""
        records = waiting[waiting["need"] == NEED_RECORD]
        if records.size:
            self.load(np.ascontiguousarray(records["tree"]), np.ascontiguousarray(records["path"]))
        for item in waiting[waiting["need"] == NEED_LISTS]:
            self.load_below(int(item["tree"]), int(item["path"]))
        waiting["need"] = 0
        now[: waiting.size] = waiting
        fill[changes.NOW], fill[changes.TURN], fill[changes.WAITING] = waiting.size, 0, 0

    def _complain(self, status: int, item: Record) -> None:
        if status == MISPLACED:
            raise Damaged(int(item["tree"]), int(item["path"]), "does not hold a sample that belongs there")
        raise Damaged(int(item["tree"]), int(item["path"]), "has a sample whose row fails its hash")

    def dirty_records(self) -> Growth:
        """Every changed record."""
        return dirty_records(self._spec, self._working)

    def cleared(self) -> npt.NDArray[np.void]:
        """Nodes whose old records, and all below them, must be deleted before the changed ones are written."""
        return self.w.cleared[: self.w.top[CLEARS]]

    def edits(self) -> npt.NDArray[np.void]:
        """Slots to take out of, or put into, long lists that stay on disk."""
        edits = self.w.edits[: self.w.top[EDITS]]
        nodes = self.w.nodes[edits["row"]]
        alive = (
            (nodes["kind"] != 0)
            & (nodes["tree"] == edits["tree"])
            & (nodes["path"] == edits["path"])
            & (nodes["fresh"] == 0)
        )
        mine: npt.NDArray[np.void] = edits[alive]
        return mine

    def mark_clean(self) -> None:
        """After a commit: memory and disk agree."""
        mark_clean(self._working.address)

    def drop_changes(self) -> None:
        """After a rollback: let go of everything that differs from the disk. Roots must be set again."""
        drop_dirty(self._working.address)


__all__ = ["BadRow", "Damaged", "Effect", "Forest", "Samples", "Source"]
