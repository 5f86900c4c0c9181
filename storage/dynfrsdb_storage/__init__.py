"""The storage layer: LMDB, rows.bin, locks and generations, behind one handle.

It keeps bytes and keeps promises: nothing acknowledged is ever lost, nothing removed ever comes back. It does not
know what a tree is. Bottom-up:

    errors, failpoints      what can go wrong; where tests make it go wrong
    layout, records         keys, sizes, checksums: the format (FORMAT.md)
    formats                 which formats we read and write
    ages                    times of commits: for how long a reader has been behind
    disk, pages, locks      the file system, LMDB's file before LMDB sees it, flocks
    extents                 what each byte of LMDB's file is; bytes that are nothing
    rows, env               rows.bin; LMDB with its rules
    rehearsal, erasing      rows that are only tried; rows that are overwritten, on their way to the disk
    generation, directory   one open generation; which one is live
    retire                  a generation that is no more: overwritten, then removed
    read, slots, ledger     snapshots; places for rows; the chain of entries
    stages                  how far a removal has come, in the ledger
    planned                 a commit, worked out
    write, build            sessions; new stores
    living, copying         all live samples, checked; one commit, copied
    store, audit            the handle; is all well?
    scribe, successor       a process that writes the next generation; how that becomes the live one
    alone                   nobody else has the generation open

Names are looked up when they are used: who only reads does not import what writes. For the same reason numpy is
imported by the first who needs an array (lazynumpy).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynfrsdb_storage.audit import check_storage
    from dynfrsdb_storage.build import Builder, build_generation, create
    from dynfrsdb_storage.read import Snapshot
    from dynfrsdb_storage.rows import RowFile
    from dynfrsdb_storage.store import Store
    from dynfrsdb_storage.successor import Successor
    from dynfrsdb_storage.write import WriteSession

_HOMES = {
    "Builder": "build",
    "RowFile": "rows",
    "Snapshot": "read",
    "Store": "store",
    "Successor": "successor",
    "WriteSession": "write",
    "build_generation": "build",
    "check_storage": "audit",
    "create": "build",
}

__all__ = [
    "Builder",
    "RowFile",
    "Snapshot",
    "Store",
    "Successor",
    "WriteSession",
    "build_generation",
    "check_storage",
    "create",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dynfrsdb_storage' has no attribute {name!r}")
    return getattr(import_module(f"dynfrsdb_storage.{_HOMES[name]}"), name)
