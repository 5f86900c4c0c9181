"""Create a store, open one, or restore one from a backup."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dynfrsdb import inputs
from dynfrsdb.build import Progress, Training, build, training
from dynfrsdb.database import CACHE_BYTES, Database
from dynfrsdb.errors import InvalidInput
from dynfrsdb.restoring import Restored
from dynfrsdb.restoring import restore as apply
from dynfrsdb.secrets import HASH_BYTES, Secrets
from dynfrsdb.settings import BUCKET, Settings


def create(
    path: Path | str,
    X: Any = None,
    y: Any = None,
    *,
    ids: Any = None,
    subjects: Any = None,
    task: str = "classification",
    n_features: int | None = None,
    feature_names: Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
    target_offset: float = 0.0,
    target_step: float | None = None,
    n_estimators: int = 100,
    q: float = 0.1,
    max_depth: int = 20,
    n_thresholds: int = 20,
    max_features: int | float | str | None = None,
    min_samples_split: int = 10,
    criterion: str | None = None,
    seed: int | str | bytes | None = None,
    progress: Progress | None = None,
    _bucket: int = BUCKET,
) -> Database:
    """Create a store at `path`, with samples or empty, and open it for writing.

    `progress(stage, done, total)` is called as rows are written and trees are grown. Interrupting leaves nothing
    behind."""
    place = inputs.place(path)
    if (X is None) != (y is None):
        raise InvalidInput("X and y belong together; pass both or none")
    settings = Settings.make(
        X=X,
        y=y,
        task=task,
        n_features=n_features,
        feature_names=feature_names,
        classes=classes,
        target_offset=target_offset,
        target_step=target_step,
        n_estimators=n_estimators,
        q=q,
        max_depth=max_depth,
        n_thresholds=n_thresholds,
        max_features=max_features,
        min_samples_split=min_samples_split,
        criterion=criterion,
        seed=seed,
        bucket=_bucket,
    )
    build(place, settings, _training(settings, X, y, ids, subjects), inputs.callback(progress))
    return Database(place, mode="w")


def _training(settings: Settings, X: Any, y: Any, ids: Any, subjects: Any) -> Training:
    """The samples, checked and in the order of their ids."""
    if X is None:
        if ids is not None or subjects is not None:
            raise InvalidInput("ids= and subjects= name samples; pass X and y too")
        empty = np.empty((0, settings.n_features), np.float32)
        nobody = np.empty((0, HASH_BYTES), np.uint8)
        return Training(np.empty(0, np.uint64), empty, np.empty(0, np.int64), nobody)
    rows = inputs.features(X, settings.n_features, settings.feature_names)
    targets = inputs.targets(y, len(rows), settings)
    numbers = np.arange(len(rows), dtype=np.uint64) if ids is None else inputs.ids(ids, len(rows))
    names = inputs.subjects(subjects, len(rows))
    secrets = Secrets(settings)
    hashes = b"".join(secrets.subject(name) if name else bytes(HASH_BYTES) for name in names or ())
    return training(settings, numbers, rows, targets, np.frombuffer(hashes, np.uint8).reshape(-1, HASH_BYTES))


def open(path: Path | str, mode: str = "r", *, settle: str | None = "auto", cache_bytes: int = CACHE_BYTES) -> Database:
    """Open a store.

    "r" reads, "w" may begin transactions. `settle=None` leaves tagged nodes to queries and to `settle`.
    """
    return Database(path, mode, settle, cache_bytes)


def restore(backup: Path | str, replay: Path | str, *, timeout: float = 30) -> Restored:
    """Make a backup the store again: apply every removal that the exported ledger `replay` has behind it.

    The backup itself is changed. Nobody can open it from when this begins until it is complete."""
    place, ledger = inputs.place(backup, "backup"), inputs.place(replay, "replay")
    return apply(place, ledger, inputs.seconds(timeout, "timeout"))
