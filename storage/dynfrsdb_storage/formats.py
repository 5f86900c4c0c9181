"""Formats: which of them this version reads and writes, and what it says of the others.

    older than OLDEST_READ    refused; 'dynfrsdb migrate STORE' first
    older than FORMAT         read as it is; not written before 'dynfrsdb migrate STORE'
    FORMAT                    read and written
    newer                     refused; the store says which version of dynfrsdb to install

A store never changes its format because somebody opens it: a process of an older version may have it open as well.

The **algorithm** is no matter of format. It decides which forest grows out of the samples, so another one would give
other answers, and other digests than the receipts have. No migration changes it.

Not done here: the steps from format to format, which are in dynfrsdb_migrations.
"""

from typing import Any

from dynfrsdb_storage import layout
from dynfrsdb_storage.errors import UnsupportedFormat

Identity = dict[str, Any]
"""The record `format` of a store."""


def refuse_unknown(store: str, found: Identity) -> None:
    """Raise if a store is of a newer format, or of another algorithm: there is nothing else that could be read."""
    if found["format"] > layout.FORMAT:
        raise UnsupportedFormat(
            f"'{store}' has format {found['format']}, this version of dynfrsdb reads {layout.OLDEST_READ} to "
            f"{layout.FORMAT}; {_install(found)}"
        )
    if found["algorithm"] > layout.ALGORITHM:
        raise UnsupportedFormat(
            f"'{store}' is grown by algorithm {found['algorithm']}, this version of dynfrsdb knows "
            f"{layout.ALGORITHM}; {_install(found)}"
        )
    if found["algorithm"] < layout.ALGORITHM:
        raise UnsupportedFormat(
            f"'{store}' is grown by algorithm {found['algorithm']}; this version of dynfrsdb grows by "
            f"{layout.ALGORITHM}, which gives other answers. Go on with the version that made it, or create a new "
            "store from its samples"
        )


def is_read(found: Identity) -> bool:
    """Whether this version understands the rows and records of a store, older ones included."""
    return layout.OLDEST_READ <= int(found["format"]) <= layout.FORMAT


def refuse_older(store: str, found: Identity, writable: bool) -> None:
    """Raise if a store must be migrated before it is read, or written."""
    if found["format"] < layout.OLDEST_READ:
        raise UnsupportedFormat(
            f"'{store}' has format {found['format']}, which this version of dynfrsdb does not read; run "
            f"'dynfrsdb migrate {store}'"
        )
    if writable and found["format"] < layout.FORMAT:
        raise UnsupportedFormat(
            f"'{store}' has format {found['format']}, which this version of dynfrsdb reads and does not write; run "
            f"'dynfrsdb migrate {store}'"
        )


def _install(found: Identity) -> str:
    needs = found.get("needs")
    return f"install dynfrsdb {needs} or newer" if needs else "install a newer version of dynfrsdb"
