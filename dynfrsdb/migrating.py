"""Bring a store that an older version wrote to the format that this one writes. Needs no engine."""

from __future__ import annotations

from pathlib import Path

from dynfrsdb import inputs
from dynfrsdb_migrations.store.run import Migration as Migration
from dynfrsdb_migrations.store.run import look
from dynfrsdb_migrations.store.run import migrate as carry_out
from dynfrsdb_storage.copying import Progress


def migrate(
    path: Path | str, *, progress: Progress | None = None, timeout: float = 30, dry_run: bool = False
) -> Migration:
    """Bring a store to the format of this version; with `dry_run`, only say what that takes.

    The forest, its answers, its digest and the ledger stay the same. Each step is whole or has not happened."""
    place, wait = inputs.place(path), inputs.seconds(timeout, "timeout")
    report = inputs.callback(progress) or (lambda stage, done, total: None)
    return look(place) if inputs.flag(dry_run, "dry_run") else carry_out(place, wait, report)
