"""`--receipt FILE`: the receipt of a change, as the document that is handed out, whole or not at all.

That the file can be written is tried before the change. What can still go wrong after it (the disk is full by now)
does not undo the change, so the message says that it stands and how to get its receipt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dynfrsdb.database import Database


@contextmanager
def receipt_file(path: Path | None, db: Database) -> Iterator[Callable[[int], None]]:
    """A function that writes the receipt of a ledger entry to `path`, replacing what is there."""
    if path is None:
        yield lambda sequence: None
        return
    from dynfrsdb.errors import Error, InvalidInput

    beside = path.absolute().parent / f".{path.name}.{os.getpid()}"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise InvalidInput(f"the receipt cannot be written to '{path}': {why}; nothing was changed") from error

    def keep(sequence: int) -> None:
        try:
            text = db.issue_receipt(sequence)
            with open(descriptor, "w", closefd=False) as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            os.replace(beside, path)
        except (OSError, Error) as error:
            raise click.ClickException(
                f"this is committed as change {sequence}, but its receipt could not be written to '{path}': {error}; "
                f"'dynfrsdb receipt {db.path} {sequence}' gives it"
            ) from error

    try:
        yield keep
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(beside)
