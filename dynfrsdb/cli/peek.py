"""Looking into a store without its engine.

`dynfrsdb.Database` brings numba along, which takes seconds to import. What a store says about itself, its ledger and
single samples are plain records, and this module reads them through the storage layer alone. The answers are those of
`Database.info`, `ledger` and `sample`; a test holds them side by side.

The one thing computed here is which trees a sample lives in: the occupancy of `algorithm 1` (storage/FORMAT.md), in
Python's integers, where the engine has it as a kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dynfrsdb import chain
from dynfrsdb.errors import CorruptStore, SampleNotFound
from dynfrsdb.receipt import receipt_of
from dynfrsdb.settings import Settings
from dynfrsdb_storage import Snapshot, Store, layout
from dynfrsdb_storage.records import unframe

_GOLDEN = 0x9E3779B97F4A7C15
_64_BITS = 2**64 - 1


def info(path: Path) -> dict[str, Any]:
    """Sizes, counts, settings and readers other than this process; never the seed."""
    with _opened(path) as (store, snapshot, settings):
        about, shown, state = store.info(), settings.record(), snapshot.state
        about["readers"] = [reader for reader in about["readers"] if reader["pid"] != os.getpid()]
        del shown["seed"]
        return {
            **about,
            "task": settings.task,
            "samples": state["samples"],
            "samples_with_subject": snapshot.count("subjects"),
            "trees": settings.n_trees,
            "nodes": snapshot.count("nodes"),
            "buckets": snapshot.count("buckets"),
            "tags": state["tags"],
            "changes": state["sequence"],
            "sample_digest": state["digest"].hex(),
            "ledger_head": state["head"].hex(),
            "taken_from_data": shown.pop("from_data"),
            "settings": shown,
        }


def ledger(path: Path, since: str | None = None) -> list[dict[str, Any]]:
    """All changes, or those since a head that was kept, oldest first."""
    with _opened(path) as (_, snapshot, _):
        if since is not None:
            return [receipt_of(entry).as_dict() for entry in chain.since(snapshot, since)]
        return [receipt_of(unframe(payload)).as_dict() for _, payload in snapshot.scan("ledger")]


def sample(path: Path, id: int) -> dict[str, Any]:
    """One live sample: its values, its class or target, whether it belongs to a subject, and its trees."""
    with _opened(path) as (_, snapshot, settings):
        payload = snapshot.get("samples", [layout.id_key(id)])[0]
        if payload is None:
            raise SampleNotFound(f"sample {id} is not in '{path}'")
        slot, rows = int.from_bytes(payload[:4], "little"), snapshot.rows
        if rows.bad(np.array([slot], np.uint32), np.array([id], np.uint64)).size:
            raise CorruptStore(f"the row of sample {id} in '{path}' fails its hash. Run 'dynfrsdb check {path}'")
        # The words before the features are the row's hash, id and target.
        target = int(rows.words[slot, 2].astype(np.int64))
        features = rows.floats[slot, 6 : 6 + settings.n_features]
        return {
            "id": id,
            "target": settings.classes[target]
            if settings.classes
            else settings.target_offset + settings.target_step * target,
            "has_subject": len(payload) > 4,
            "trees": occupancy(settings, id),
            # str gives the shortest number that reads back as the same float32.
            "features": dict(zip(_names(settings), (float(str(value)) for value in features), strict=True)),
        }


def occupancy(settings: Settings, id: int) -> list[int]:
    """The trees that a sample lives in, ascending."""
    trees = list(range(settings.n_trees))
    start = _step(settings.occupancy_key(), id)
    for j in range(settings.k):
        r = j + (((_step(start, j) >> 32) * (settings.n_trees - j)) >> 32)
        trees[j], trees[r] = trees[r], trees[j]
    return sorted(trees[: settings.k])


def _step(h: int, v: int) -> int:
    z = ((h ^ v) + _GOLDEN) & _64_BITS
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _64_BITS
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _64_BITS
    return z ^ (z >> 31)


def _names(settings: Settings) -> tuple[str, ...]:
    return settings.feature_names or tuple(f"x{i}" for i in range(settings.n_features))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Store, Snapshot, Settings]]:
    with Store.open(path, writable=False) as store, store.snapshot() as snapshot:
        yield store, snapshot, Settings.from_record(snapshot.settings)
