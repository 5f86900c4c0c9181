"""Is the store what it claims to be? Digest, check and verify.

`digest` hashes the settled forest; tags are grown in passing, in memory. `verify` grows trees again from the live rows
and compares their digests: the product's claim, tried. `check` walks everything on disk. Every tree record is a
function of its samples, so each tree is grown afresh and every stored record is held against the one that a fresh
build would have at the same place:

    split    the same counts, ranges, constants and best split, byte for byte
    leaf     the same counts and the same list
    bucket   the same slots and the same small tree
    tag      the same samples, and nothing below

Stamps are the one thing that a fresh build does not know; they must be what parents say. The storage layer's own audit
(checksums, rows, index, slots, ledger) comes first, and then what stands by the ledger (standing.py)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dynfrsdb import standing
from dynfrsdb.build import Progress, grown, occupants
from dynfrsdb.errors import CorruptStore
from dynfrsdb.secrets import Secrets
from dynfrsdb.settings import Settings
from dynfrsdb.shelf import Shelf
from dynfrsdb.view import View, in_words, rows_of, spec_of
from dynfrsdb_engine.forest import Forest
from dynfrsdb_engine.inspect import Place, places
from dynfrsdb_engine.jobs import BadRow, Growth, Job
from dynfrsdb_engine.spec import Spec
from dynfrsdb_storage import Snapshot, Store, check_storage, layout

MOST = 50
"""Problems that a report lists."""


@dataclass(frozen=True)
class CheckReport:
    """What `check` found; true if all is well."""

    problems: tuple[str, ...]
    samples: int
    trees: int
    records: int

    def __bool__(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class VerifyReport:
    """What `verify` found; true if every tree equals one grown from the live samples alone."""

    trees: tuple[int, ...]
    differing: tuple[int, ...]
    digest: str | None

    def __bool__(self) -> bool:
        return not self.differing


def live_samples(snapshot: Snapshot) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """Ids and slots of all live samples, in the order of their ids."""
    found = [(key, payload[:4]) for key, payload in snapshot.scan("samples")]
    ids = np.frombuffer(b"".join(key for key, _ in found), ">u8").astype(np.uint64)
    slots = np.frombuffer(b"".join(slot for _, slot in found), "<u4").astype(np.uint32)
    return ids, slots


def stored_digests(store: Store, snapshot: Snapshot, spec: Spec, trees: list[int]) -> Iterator[bytes]:
    """Digests of settled trees as the store has them."""
    for tree in trees:
        view = View(store, spec, changeable=False)
        with view.at(snapshot) as forest:
            forest.load_tree(tree)
            try:
                content = forest.tree_bytes(tree)
            except ValueError as error:
                raise CorruptStore(f"{error} in '{store.path}'. Run 'dynfrsdb check {store.path}'") from error
            yield hashlib.sha256(content).digest()


def fresh_jobs(snapshot: Snapshot, spec: Spec, trees: list[int]) -> Iterator[Job]:
    """The work of growing trees from the live samples alone."""
    ids, slots = live_samples(snapshot)
    starts, members = occupants(spec, ids)
    for tree in trees:
        yield Job(tree, 1, 0, np.sort(slots[members[starts[tree] : starts[tree + 1]]]))


def forest_digest(settings: Settings, trees: list[bytes]) -> str:
    """The digest of a forest from those of its trees."""
    return hashlib.sha256(settings.canonical() + b"".join(trees)).hexdigest()


def digest(store: Store, snapshot: Snapshot, settings: Settings) -> str:
    """The hash of the settled forest."""
    spec = spec_of(settings)
    return forest_digest(settings, list(stored_digests(store, snapshot, spec, list(range(spec.trees)))))


def verify(
    store: Store, snapshot: Snapshot, settings: Settings, count: int | None, progress: Progress | None
) -> VerifyReport:
    """Grow trees afresh and compare."""
    spec = spec_of(settings)
    chosen = list(range(spec.trees))
    if count is not None and count < spec.trees:
        chosen = sorted(random.sample(chosen, max(count, 0)))
    differing = []
    digests = []
    stored = stored_digests(store, snapshot, spec, chosen)
    rows = rows_of(snapshot)
    with in_words(store.path):
        for done, growth in enumerate(grown(spec, rows, fresh_jobs(snapshot, spec, chosen)), 1):
            tree = chosen[done - 1]
            forest = Forest(spec, Shelf(), rows, changeable=False)
            forest.plant(tree, growth)
            expected = hashlib.sha256(forest.tree_bytes(tree)).digest()
            digests.append(next(stored))
            if digests[-1] != expected:
                differing.append(tree)
            if progress is not None:
                progress("trees", done, len(chosen))
    whole = forest_digest(settings, digests) if len(chosen) == spec.trees else None
    return VerifyReport(tuple(chosen), tuple(differing), whole)


def check(snapshot: Snapshot, settings: Settings, progress: Progress | None) -> CheckReport:
    """Look at everything."""
    spec = spec_of(settings)
    report = progress or (lambda stage, done, total: None)

    def note(part: str, done: int) -> None:
        report(part, done, snapshot.count(part) if part in layout.DATABASES else int(snapshot.state["slots"]))

    problems = check_storage(snapshot, note)
    records = snapshot.count("nodes") + snapshot.count("buckets")
    if not problems:
        problems = standing.flaws(snapshot, Secrets(settings)) + _check_trees(snapshot, spec, report)
    shown = problems[:MOST]
    if len(problems) > MOST:
        shown.append(f"... and {len(problems) - MOST} more")
    return CheckReport(tuple(shown), int(snapshot.state["samples"]), spec.trees, records)


def _check_trees(snapshot: Snapshot, spec: Spec, report: Progress) -> list[str]:
    problems: list[str] = []
    stamps, sizes, flags = snapshot.roots()
    trees = list(range(spec.trees))
    tags = 0
    try:
        for done, growth in enumerate(grown(spec, rows_of(snapshot), fresh_jobs(snapshot, spec, trees)), 1):
            tree = trees[done - 1]
            found = _CheckTree(snapshot, spec, tree, growth)
            problems += found.run(int(stamps[tree]), int(sizes[tree]), bool(flags[tree]))
            tags += found.tags
            report("trees", done, spec.trees)
    except BadRow as bad:
        problems.append(f"the row in slot {bad.slot} fails its hash")
    except CorruptStore as error:
        problems.append(str(error))
    if not problems and tags != snapshot.state["tags"]:
        problems.append(f"there are {tags} tags, but the counter says {snapshot.state['tags']}")
    if not problems and spec.classes == 0:
        problems += _check_target_sum(snapshot)
    return problems


def _check_target_sum(snapshot: Snapshot) -> list[str]:
    _, slots = live_samples(snapshot)
    total = int(np.abs(snapshot.rows.words[slots, 2].astype(np.int64)).sum()) if slots.size else 0
    stated = snapshot.state["targets"]
    return [] if total == stated else [f"the targets add up to {total}, but the counter says {stated}"]


class _CheckTree:
    """One tree on disk against the same tree grown afresh."""

    def __init__(self, snapshot: Snapshot, spec: Spec, tree: int, growth: Growth) -> None:
        self._snapshot, self._spec, self._tree = snapshot, spec, tree
        self._fresh = {place.path: place for place in places(spec, growth)}
        self._problems: list[str] = []
        self.tags = 0

    def run(self, stamp: int, n: int, flag: bool) -> list[str]:
        first, last = layout.tree_range(self._tree)
        self._nodes = {layout.parse_node_key(key)[1]: data for key, data in self._snapshot.scan("nodes", first, last)}
        self._lists: dict[int, list[bytes]] = {}
        for key, data in self._snapshot.scan("buckets", first, last):
            self._lists.setdefault(layout.parse_bucket_key(key)[1], []).append(data)
        if n != self._fresh[1].n:
            self._say(1, f"is said to hold {n} samples, but occupancy gives it {self._fresh[1].n}")
        tagged = self._visit(1, stamp)
        if tagged != flag:
            self._say(1, f"is {'not ' if tagged else ''}said to have tags below")
        for path in sorted({*self._nodes, *self._lists}):
            self._say(path, "does not belong to the tree")
        return self._problems

    def _say(self, path: int, what: str) -> None:
        self._problems.append(f"tree {self._tree}, node {path:#b} {what}")

    def _visit(self, path: int, stamp: int) -> bool:
        """Hold a record against the fresh one, and what is below it; returns whether there is a tag."""
        fresh = self._fresh[path]
        place = self._take(path, fresh.n)
        if place is None:
            self._say(path, "is missing")
            return False
        if place.stamp != stamp:
            self._say(path, f"carries the stamp of commit {place.stamp}, its parent says {stamp}")
        if place.tagged:
            self.tags += 1
            if not np.array_equal(place.slots, self._samples(path)):
                self._say(path, "is tagged and does not list the samples that belong to it")
            return True
        difference = place.difference(fresh)
        if difference:
            self._say(path, difference)
            return False
        if not place.split:
            return False
        left = self._visit(2 * path, place.left_stamp)
        right = self._visit(2 * path + 1, place.right_stamp)
        if (left, right) != (place.left_tags, place.right_tags):
            self._say(path, "is wrong about where there are tags below it")
        return left or right

    def _take(self, path: int, n: int) -> Place | None:
        """The stored record at a place, taken off the lists of what is there."""
        bucket = n <= self._spec.bucket
        data = self._lists.pop(path, [])
        node = None if bucket else self._nodes.pop(path, None)
        if bucket:
            return Place.read(self._spec, self._tree, path, data[0], True) if len(data) == 1 else None
        if node is None:
            return None
        place = Place.read(self._spec, self._tree, path, node, False)
        return place.with_list(np.frombuffer(b"".join(data), "<u4")) if not place.split else place

    def _samples(self, path: int) -> npt.NDArray[np.uint32]:
        """All samples that the fresh tree has at and below a node."""
        below = [self._fresh[path]]
        slots = []
        while below:
            place = below.pop()
            if place.split:
                below += [self._fresh[2 * place.path], self._fresh[2 * place.path + 1]]
            else:
                slots.append(place.slots)
        return np.sort(np.concatenate(slots))
