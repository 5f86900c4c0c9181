"""Jobs: what is to be grown, brought to the kernel that grows it (grow.py), and what came of it.

    Job, Job, ...      nodes with their samples, from anywhere        `grow_jobs`
    Work               a stack of items and their samples             `grow_work`
      |  samples are copied out of the rows file to a Ground
      v
    Growth             records in pre-order, and long lists

Growing one node alone would be mostly calls, and growing all at once would take memory for all samples. So jobs go in
groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.grow import FULL, ITEM, RECORD, Queries, Samples, Sink, grow
from dynfrsdb_engine.records import bucket_room, split_room
from dynfrsdb_engine.reference import Held
from dynfrsdb_engine.rows import Rows, gather
from dynfrsdb_engine.search import Scratch, Stats, make_scratch, make_stats
from dynfrsdb_engine.spec import EXAMPLE, Spec
from dynfrsdb_engine.working import NOTHING, WORKING, Working, make_working

T = TypeVar("T")
SAMPLES_AT_ONCE = 32_768
"""Samples of small jobs that are grown in one go: some milliseconds, as long as a thread may wait in between."""
VALUES_AT_ONCE = 1 << 22
"""Fewer, if they have so many features that their values would take too much memory."""
BELOW = 128
"""Stack room beyond the jobs: two items for each level, and two lines for the items in hand."""
NO_TREES = WORKING.hold(make_working(EXAMPLE, keep_stats=False))
"""For who grows nodes that were not in memory before."""


class Work(NamedTuple):
    """Nodes to grow, as a stack of items, the first node on top, and their samples: items name ranges of `slots`."""

    items: npt.NDArray[np.void]
    slots: npt.NDArray[np.uint32]
    nodes: int


class Job(NamedTuple):
    """One node to grow. `asking` are query rows (indices) that reach it; None grows everything below."""

    tree: int
    path: int
    stamp: int
    slots: npt.NDArray[np.uint32]
    asking: npt.NDArray[np.int32] | None = None


@dataclass(frozen=True)
class Growth:
    """Records in pre-order, job after job; a record's long list is `lists[list_at : list_at + list_size]`."""

    records: npt.NDArray[np.void]
    data: npt.NDArray[np.uint8]
    lists: npt.NDArray[np.uint32]


class BadRow(Exception):
    """A row failed its hash; `slot` says which."""

    def __init__(self, slot: int) -> None:
        super().__init__(slot)
        self.slot = slot


def larger(array: npt.NDArray[np.void], size: int) -> npt.NDArray[np.void]:
    """A copy of a one-dimensional array with room for `size` entries."""
    wider = np.zeros(size, array.dtype)
    wider[: array.size] = array
    return wider


class Ground(NamedTuple):
    """Memory to grow in, for one thread and some number of samples at most: what a search needs, and where samples are
    copied to. Who grows a little again and again finds it in the processor's caches."""

    stats: Stats
    scratch: Scratch
    values: npt.NDArray[np.float32]
    targets: npt.NDArray[np.int64]
    order: npt.NDArray[np.uint32]
    """Two lines: the samples' order, which is changed as they are partitioned, and how it begins."""
    data: npt.NDArray[np.uint8]


def make_ground(spec: Spec, samples: int) -> Ground:
    """Ground for growing up to `samples` samples."""
    order = np.empty((2, samples), np.uint32)
    order[1] = np.arange(samples)
    return Ground(
        stats=make_stats(spec, 1),
        scratch=make_scratch(spec, samples),
        values=np.empty(spec.features * samples, np.float32),
        targets=np.empty(samples, np.int64),
        order=order,
        data=np.empty(40 * samples + 4 * split_room(spec) + bucket_room(spec.bucket) + 1024, np.uint8),
    )


def gather_samples(spec: Spec, rows: Rows, slots: npt.NDArray[np.uint32], ground: Ground) -> Samples:
    """Copy the samples in `slots` out of the rows file."""
    n = slots.size
    X, y, index = ground.values[: spec.features * n].reshape(spec.features, n), ground.targets[:n], ground.order[0, :n]
    index[:] = ground.order[1, :n]
    bad = gather(rows, slots, X, y)
    if bad >= 0:
        raise BadRow(int(slots[bad]))
    return Samples(X, y, slots, index)


def grow_jobs(spec: Spec, rows: Rows, jobs: Sequence[Job], asked: npt.NDArray[np.float32] | None = None) -> Growth:
    """Grow `jobs` in this thread. `asked` are the query rows that jobs refer to."""
    asking = [job.asking for job in jobs if job.asking is not None]
    queries = None if asked is None or not asking else Queries(asked, np.concatenate(asking).astype(np.int32), False)
    return grow_work(spec, rows, _work_of(jobs), queries)


def grow_work(
    spec: Spec,
    rows: Rows,
    work: Work,
    queries: Queries | None = None,
    before: Held[Working] = NO_TREES,
    ground: Ground | None = None,
) -> Growth:
    """Grow nodes in this thread, wholly or where `queries` come by; items may remember small trees `before`. What was
    grown on a `ground` lies there until something else is."""
    n = work.slots.size
    ground = ground or make_ground(spec, n)
    samples = gather_samples(spec, rows, work.slots, ground)
    if queries is None:
        queries = Queries(np.empty((0, spec.features), np.float32), np.empty(0, np.int32), True)
    records = np.empty(2 * work.nodes + n // 16 + 16, RECORD)
    sink = Sink(ground.data, records, np.array([0, 0, work.nodes], np.int64))
    ground.scratch.known["job"] = NOTHING
    while grow(spec, before.address, samples, queries, work.items, sink, ground.stats, ground.scratch) == FULL:
        data = np.empty(2 * sink.data.size, np.uint8)
        data[: sink.data.size] = sink.data
        sink = Sink(data, larger(sink.records, 2 * sink.records.size), sink.fill)
    return Growth(sink.records[: sink.fill[1]], sink.data[: sink.fill[0]], samples.slots[samples.index])


def work_for(nodes: int, samples: int) -> Work:
    """Room for so many nodes to grow, and for their samples."""
    return Work(np.empty(nodes + BELOW, ITEM), np.empty(samples, np.uint32), nodes)


def _work_of(jobs: Sequence[Job]) -> Work:
    work = work_for(len(jobs), sum(job.slots.size for job in jobs))
    start = q_start = 0
    for place, job in enumerate(jobs):
        end = start + job.slots.size
        work.slots[start:end] = job.slots
        q_end = q_start + (job.asking.size if job.asking is not None else 0)
        item = (job.path, job.stamp, start, end, q_start, q_end, job.tree, place, NOTHING, 0, 0, 0)
        work.items[len(jobs) - 1 - place] = item
        start, q_start = end, q_end
    return work


def in_groups(jobs: Iterable[Job], together: int) -> Iterator[list[Job]]:
    """The jobs in order, as many at a time as have fewer than `together` samples between them, but at least one."""
    return grouped(jobs, lambda job: job.slots.size, together)


def grouped(things: Iterable[T], size_of: Callable[[T], int], together: int) -> Iterator[list[T]]:
    """Things in order, as many at a time as are smaller than `together`, taken together, but at least one."""
    group: list[T] = []
    size = 0
    for thing in things:
        more = size_of(thing)
        if group and size + more >= together:
            yield group
            group, size = [], 0
        group.append(thing)
        size += more
    if group:
        yield group


def at_once(spec: Spec) -> int:
    """How many samples of small jobs are grown in one go."""
    return min(SAMPLES_AT_ONCE, VALUES_AT_ONCE // spec.features)
