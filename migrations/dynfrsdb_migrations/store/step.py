"""What a step is.

A step that changes what a record is should not use the code that reads and writes such records today, which will go on
changing: it keeps a copy of what it needs. What it may rely on is what no format changes (FORMAT.md, "How the format
grows old"): CURRENT and generations, LMDB, checksums of records, the record `format`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dynfrsdb_storage import WriteSession
from dynfrsdb_storage.copying import Change

Settings = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Step:
    """From format `to` - 1 to format `to`."""

    to: int
    needs: str
    """The oldest version of dynfrsdb that reads and writes format `to`."""
    about: str
    """What changes, in a few words, for people."""
    is_read: bool
    """Whether this version reads stores that have yet to take this step."""


@dataclass(frozen=True, kw_only=True)
class InPlace(Step):
    """A step in one LMDB transaction; `apply` may put and delete records."""

    apply: Callable[[WriteSession], None] = lambda session: None


@dataclass(frozen=True, kw_only=True)
class Rewrite(Step):
    """A step into a new generation; `record` says what becomes of each record but those of `roots`, and `settings` of
    the settings. Keys must stay in order."""

    record: Change = lambda database, key, payload: (key, payload)
    settings: Callable[[Settings], Settings] = lambda settings: settings
