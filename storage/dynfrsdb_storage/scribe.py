"""The scribe: a process of its own that writes a new generation, and has seen nothing else.

A process that has a store open has mapped all of its pages, free ones with their leftovers included, and its memory
holds what it read an hour ago. So a vacuum, or a migration, does not write the new generation itself. It starts this
module in a fresh interpreter and tells it, through a pipe, what to write: rows, records and roots, all of them of live
samples. The scribe opens no file but those it makes. When all is written it overwrites every byte of data.mdb that
belongs to no record (extents.py), makes sure that it has no file of another generation mapped, and says that it is
done.

    vacuum                                         scribe
    {directory, identity, settings, state}   -->   makes the directory, LEASE, LMDB, rows.bin
    ["rows", slots, ids, ys, x] ...          -->
    ["free", start, count] ...               -->   (a migration leaves slots where they are)
    ["flush"]                                -->   (rows can be read now)
                                             <--   {"flushed": true}
    ["records", database, [key, payload] ...] ->
    ["sealed", database, keys, values, ends] -->   packed already: many at once
    ["roots", stamps, n, tags]               -->
    ["finish", state]                        -->   closes, scrubs, syncs
                                             <--   {"finished": true}, or at any time {"error": ...}

Messages are msgpack. The scribe dies with its parent, and leaves what it has written to whoever takes the writer lock
next; one that outlived it would write into a directory that is somebody else's by then.
"""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from dynfrsdb_storage import layout
from dynfrsdb_storage.build import Builder, build_generation
from dynfrsdb_storage.errors import Error
from dynfrsdb_storage.extents import scrub
from dynfrsdb_storage.locks import Lease

LARGEST_MESSAGE = (1 << 31) - 1
_SET_DEATH_SIGNAL = 1

Answer = Callable[[dict[str, Any]], None]
Messages = Iterator[Any]


def main(parent: int) -> None:
    """Write the generation that the process `parent` asks for through stdin."""
    _die_with(parent)
    # Unbuffered: a buffered file waits for as many bytes as it is asked for, and not for a message.
    source, out = os.fdopen(0, "rb", buffering=0), os.fdopen(1, "wb", buffering=0)

    def answer(message: dict[str, Any]) -> None:
        out.write(msgpack.packb(message))

    try:
        _write(iter(msgpack.Unpacker(source, max_buffer_size=LARGEST_MESSAGE)), answer)
    except Error as error:
        answer({"error": type(error).__name__, "message": str(error)})
    except Exception as error:
        answer({"error": "", "message": f"{type(error).__name__}: {error}"})


def _die_with(parent: int) -> None:
    """End now if the parent is gone already, and otherwise as soon as it is."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _write(messages: Messages, answer: Answer) -> None:
    order = next(messages)
    directory = Path(order["directory"])
    leases: list[Lease | None] = []

    def fill(builder: Builder) -> None:
        leases.append(Lease.take(directory / layout.LEASE_FILE))
        for verb, *arguments in messages:
            if verb == "finish":
                builder.state.update(arguments[0])
                return
            _VERBS[verb](builder, answer, *arguments)
        raise EOFError("the parent has ended before the generation was complete")

    build_generation(directory, order["identity"], order["settings"], order["state"], fill)
    scrub(directory / layout.DATA_FILE)
    _refuse_foreign_maps(directory)
    answer({"finished": True})


def _rows(builder: Builder, answer: Answer, slots: bytes, ids: bytes, ys: bytes, x: bytes) -> None:
    places = np.frombuffer(slots, np.uint32)
    values = np.frombuffer(x, np.float32).reshape(places.size, -1)
    builder.write_rows(places, np.frombuffer(ids, np.uint64), np.frombuffer(ys, np.int64), values)


def _free(builder: Builder, answer: Answer, start: int, count: int) -> None:
    builder.leave_free(start, count)


def _flush(builder: Builder, answer: Answer) -> None:
    answer({"flushed": True})  # a pwrite can be read by everybody at once


def _records(builder: Builder, answer: Answer, database: str, pairs: list[Any]) -> None:
    builder.put_sorted(database, map(tuple, pairs))


def _sealed(builder: Builder, answer: Answer, database: str, keys: bytes, values: bytes, ends: bytes) -> None:
    where = np.frombuffer(ends, np.int64)
    lines = np.frombuffer(keys, np.uint8).reshape(where.size, -1)
    builder.put_sealed(database, (lines, np.frombuffer(values, np.uint8), where))


def _roots(builder: Builder, answer: Answer, stamps: bytes, n: bytes, tags: bytes) -> None:
    columns = np.frombuffer(stamps, np.uint64), np.frombuffer(n, np.uint32), np.frombuffer(tags, np.uint8)
    builder.set_roots(np.arange(columns[0].size), *columns)


_VERBS: dict[str, Callable[..., None]] = {
    "rows": _rows,
    "free": _free,
    "flush": _flush,
    "records": _records,
    "sealed": _sealed,
    "roots": _roots,
}


def _refuse_foreign_maps(directory: Path) -> None:
    """Raise if this process has mapped a file of the store that is not of this generation."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return
    store, own = f"{directory.parent}/", f"{directory}/"
    foreign = [line for line in lines if store in line and own not in line]
    if foreign:
        raise RuntimeError(f"the scribe has mapped files it must not see: {foreign}")
