"""Bulk build: a whole forest from arrays, into a store that appears at once or not at all.

Rows go to slots in the order of their ids, so that the same samples always give the same files. Trees are grown one
after the other, several at a time in threads, and written in key order. Nothing is durable before everything is;
interrupting leaves nothing that looks like a store.

Threads that grow trees also seal their records (keys, checksums), and one more adds up the digest of the samples; all
of it in kernels, which do not need the interpreter. What needs it, beside setting up, is to hand records to LMDB: a
twentieth of a build. A thread may have to wait for it between two calls of a kernel, so it gets a lot to do at once,
and this one writes the index, which no tree needs, only when the others are busy."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dynfrsdb.inputs import LAST_ID, refuse_too_much
from dynfrsdb.receipt import now
from dynfrsdb.secrets import HASH_BYTES, MODULUS, Secrets
from dynfrsdb.settings import Settings
from dynfrsdb.shelf import CHUNK, SEEDS
from dynfrsdb.view import spec_of
from dynfrsdb_engine.hashing import spread
from dynfrsdb_engine.jobs import Growth, Job, at_once, grow_jobs, in_groups
from dynfrsdb_engine.keyed import sum_of_hashes
from dynfrsdb_engine.rows import Rows
from dynfrsdb_engine.sealing import Sealed, room_for, seal, seal_growth
from dynfrsdb_engine.spec import Spec
from dynfrsdb_storage import Builder, Successor, create, layout, records

T = TypeVar("T")
Occupants = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]
Progress = Callable[[str, int, int], None]
ROWS_AT_ONCE = 65_536
SYNCED_BEHIND = 2, 4, 8
"""Records are synced, while others are made, when a half of all trees is left, a quarter, and an eighth: in the end
everybody waits for the disk."""
SAMPLES_AHEAD = 1 << 19
"""Samples of trees that are grown before somebody takes them; at least two trees for each thread."""


class Training(NamedTuple):
    """Samples to build from, checked, in the order of their ids."""

    ids: npt.NDArray[np.uint64]
    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    subjects: npt.NDArray[np.uint8]
    """One line of 16 bytes per sample, zeros for nobody's; or no line at all."""


def training(
    settings: Settings,
    ids: npt.NDArray[np.uint64],
    X: npt.NDArray[np.float32],
    y: npt.NDArray[np.int64],
    subjects: npt.NDArray[np.uint8],
) -> Training:
    """Samples that were checked one by one, held against what a store can take, in the order of their ids."""
    refuse_too_much(settings, ids.size, float(np.abs(y).astype(np.float64).sum()))
    if (ids[1:] > ids[:-1]).all():
        return Training(ids, X, y, subjects)
    order = np.argsort(ids, kind="stable")
    return Training(ids[order], X[order], y[order], subjects[order] if len(subjects) else subjects)


def threads() -> int:
    """How many threads grow trees, beside the one that writes them: DYNFRSDB_THREADS, or as many as there are cores to
    run on. With 1 there is only one, which does everything."""
    return max(1, int(os.environ.get("DYNFRSDB_THREADS", "0")) or len(os.sched_getaffinity(0)))


class InThisThread(Executor):
    """Does at once what it is given."""

    def submit(self, act: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """A future that is over."""
        future: Future[Any] = Future()
        future.set_result(act(*args, **named))
        return future


def workers(count: int) -> Executor:
    """Threads to give work to, or this one."""
    return ThreadPoolExecutor(count) if threads() > 1 else InThisThread()


def build(
    path: Any,
    settings: Settings,
    training: Training,
    progress: Progress | None,
    said: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Create the store; its first ledger entry says `said` besides its usual fields."""
    report = progress or (lambda stage, done, total: None)
    state = {
        "samples": training.ids.size,
        "next_id": min(int(training.ids[-1]) + 1, LAST_ID) if training.ids.size else 0,
        "targets": 0 if settings.n_classes else int(np.abs(training.y).sum()),
        "tags": 0,
        "settled": 0,
    }
    create(path, settings.record(), state, lambda builder: _fill(builder, settings, training, report, said))


def _fill(builder: Builder, settings: Settings, training: Training, report: Progress, said: Mapping[str, Any]) -> None:
    spec = spec_of(settings)
    with _beside() as beside:
        found = beside.submit(occupants, spec, training.ids)
        _write_rows(builder, training, report)
        key, words, size = Secrets(settings).key_of_samples, builder.rows.words, 16 + 4 * settings.n_features
        hashed = [beside.submit(sum_of_hashes, key, words[part], size) for part in _parts(training.ids.size)]
        synced: list[Future[None]] = []

        def sync(act: Callable[[], None]) -> None:
            if threads() > 1:
                synced.append(beside.submit(act))

        sync(builder.sync_rows)
        write_trees(
            builder,
            spec,
            found.result(),
            report,
            meanwhile=lambda: _write_index(builder, training),
            along=lambda: sync(builder.sync_records),
        )
        for done in synced:
            done.result()  # or its error would be lost: the disk tells of a write that failed only once
        digest = (sum(part.result() for part in hashed) % MODULUS).to_bytes(HASH_BYTES, "little")
    builder.state["digest"] = digest
    builder.append_ledger(
        {
            "time": now(),
            "kind": "create",
            "added": training.ids.size,
            "removed": 0,
            "samples": training.ids.size,
            "trees": spec.trees,
            "nodes": 0,
            "tagged": 0,
            "digest_before": bytes(16),
            "digest_after": digest,
            "removed_ids": [],
            "subjects": [],
            "request": None,
            **said,
        }
    )


@contextmanager
def _beside() -> Iterator[Executor]:
    """A thread for what can be done while others grow trees; what it has not begun is dropped at the end."""
    thread = workers(1)
    try:
        yield thread
    finally:
        thread.shutdown(cancel_futures=True)


def write_trees(
    builder: Builder | Successor,
    spec: Spec,
    homes: Occupants,
    report: Progress,
    meanwhile: Callable[[], None] = lambda: None,
    along: Callable[[], None] = lambda: None,
) -> None:
    """Grow all trees of samples whose rows lie in slots 0, 1, 2, ... in the order of their ids, and write them. Does
    also what can be done `meanwhile`, and `along` the way: each time that half of what was left is written."""
    starts, members = homes
    written = builder.rows
    rows = Rows(written.words, written.floats, written.multipliers)

    def grow_and_seal(group: list[Job]) -> tuple[range, Sealed, Sealed]:
        trees = range(group[0].tree, group[-1].tree + 1)
        return trees, *seal_growth(grow_jobs(spec, rows, group), SEEDS, CHUNK)

    marks = {spec.trees - spec.trees // part for part in SYNCED_BEHIND}
    groups = in_groups(tree_jobs(spec, starts, members), at_once(spec))
    with closing(in_threads(grow_and_seal, groups, meanwhile)) as grown_trees:
        for trees, nodes, buckets in grown_trees:
            builder.put_sealed("nodes", nodes)
            builder.put_sealed("buckets", buckets)
            for tree in trees:
                report("trees", tree + 1, spec.trees)
            if not marks.isdisjoint(trees):
                along()
    builder.set_roots(
        np.arange(spec.trees),
        np.zeros(spec.trees, np.uint64),
        np.diff(starts).astype(np.uint32),
        np.zeros(spec.trees, np.uint8),
    )


def tree_jobs(spec: Spec, starts: npt.NDArray[np.int64], members: npt.NDArray[np.int32]) -> Iterator[Job]:
    """The work of growing all trees of samples that lie in the order of their ids."""
    for tree in range(spec.trees):
        yield Job(tree, 1, 0, members[starts[tree] : starts[tree + 1]].astype(np.uint32))


def _parts(total: int) -> Iterator[slice]:
    """So many samples, some at a time."""
    return (slice(start, min(start + ROWS_AT_ONCE, total)) for start in range(0, total, ROWS_AT_ONCE))


def _write_rows(builder: Builder, training: Training, report: Progress) -> None:
    for part in _parts(training.ids.size):
        slots = np.arange(part.start, part.stop, dtype=np.uint32)
        builder.write_rows(slots, training.ids[part], training.y[part], training.X[part])
        report("rows", part.stop, training.ids.size)


def _write_index(builder: Builder, training: Training) -> None:
    """The index from ids and subjects."""
    for part in _parts(training.ids.size):
        builder.put_sealed("samples", _sample_records(training, part))
    builder.put_sorted("subjects", ((key, b"") for key in _subject_keys(training)))


def _sample_records(training: Training, part: slice) -> Sealed:
    """The records of samples: their slots and, of those that belong to somebody, a subject."""
    count, width = part.stop - part.start, 4 + HASH_BYTES * bool(len(training.subjects))
    payloads, sizes = np.zeros((count, width), np.uint8), np.full(count, width)
    payloads[:, :4] = np.arange(part.start, part.stop, dtype="<u4").view(np.uint8).reshape(count, 4)
    if len(training.subjects):
        payloads[:, 4:] = training.subjects[part]
        sizes[~training.subjects[part].any(axis=1)] = 4
    sealed = room_for(count, 8, int(sizes.sum()) + layout.CHECKSUM_BYTES * count)
    sealed.keys[:] = training.ids[part].astype(">u8").view(np.uint8).reshape(count, 8)
    seal(np.uint64(records.seed("samples")), payloads.reshape(-1), width * np.arange(count), sizes, sealed)
    return sealed


def _subject_keys(training: Training) -> Iterator[bytes]:
    """The keys of the index by subject, ascending."""
    owned = np.flatnonzero(training.subjects.any(axis=1))
    high, low = training.subjects[owned].view(">u8").astype(np.uint64).T
    for at in owned[np.lexsort((training.ids[owned], low, high))]:
        yield layout.subject_key(training.subjects[at].tobytes(), int(training.ids[at]))


def occupants(spec: Spec, ids: npt.NDArray[np.uint64]) -> Occupants:
    """Which of `ids` live in which tree: tree t holds `members[starts[t] : starts[t + 1]]`."""
    starts = np.empty(spec.trees + 1, np.int64)
    members = np.empty(ids.size * spec.occupancy, np.int32)
    spread(spec.occupancy_key, ids, spec.occupancy, starts, members)
    return starts, members


def grown(spec: Spec, rows: Rows, jobs: Iterator[Job]) -> Generator[Growth, None, None]:
    """Grow whole trees in threads, one at a time, in order."""
    return in_threads(lambda group: grow_jobs(spec, rows, group), in_groups(jobs, 0))


def in_threads(
    act: Callable[[list[Job]], T], groups: Iterator[list[Job]], meanwhile: Callable[[], None] = lambda: None
) -> Generator[T, None, None]:
    """What `act` makes of each group, in order, in threads. Does also what can be done `meanwhile`, when these have
    begun."""
    count = threads()
    with workers(count) as pool, closing(_ahead(pool, count, act, groups)) as futures:
        for place, future in enumerate(futures):
            if not place:
                meanwhile()
            yield future.result()


def _ahead(
    pool: Executor, count: int, act: Callable[[list[Job]], T], groups: Iterator[list[Job]]
) -> Generator[Future[T], None, None]:
    """The results for all groups, in order, of which never more than `SAMPLES_AHEAD`, or a few trees, are begun before
    somebody takes them."""
    least, most = (2 * count, SAMPLES_AHEAD) if count > 1 else (1, 0)
    begun: deque[tuple[Future[T], int]] = deque()
    samples = 0
    try:
        for group in groups:
            size = sum(job.slots.size for job in group)
            while len(begun) >= least and samples + size > most:
                future, done = begun.popleft()
                samples -= done
                yield future
            begun.append((pool.submit(act, group), size))
            samples += size
        while begun:
            yield begun.popleft()[0]
    finally:
        for future, _ in begun:
            future.cancel()
