"""Where the catalog is: what `--url` says, else DYNFRSDB_CATALOG, else a file among the user's data.

    $XDG_DATA_HOME/dynfrsdb/catalog.sqlite         ~/.local/share/dynfrsdb/catalog.sqlite, if that is not set

Imports nothing heavy: `doctor`, and verbs that ask whether there is a catalog to tell, come here first."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "DYNFRSDB_CATALOG"


def url(given: str | None) -> str:
    """The URL of the catalog."""
    return given or os.environ.get(VARIABLE) or f"sqlite:///{default_file()}"


def default_file() -> Path:
    """The file of a user who said nothing."""
    data = os.environ.get("XDG_DATA_HOME") or ""
    home = Path(data) if os.path.isabs(data) else Path(os.path.expanduser("~"), ".local", "share")
    return home / "dynfrsdb" / "catalog.sqlite"
