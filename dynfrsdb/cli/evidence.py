"""`--receipt FILE`: the receipt as a file, whole or not at all.

That the file can be written is tried before the change. What can still go wrong after it (the disk is full by now)
does not undo the change, so the message says that it stands and where its receipt is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dynfrsdb.receipt import Receipt


@contextmanager
def receipt_file(path: Path | None, store: Path) -> Iterator[Callable[[Receipt], None]]:
    """A function that writes a receipt to `path`, replacing what is there; does nothing if there is no path."""
    if path is None:
        yield lambda receipt: None
        return
    from dynfrsdb.errors import InvalidInput

    beside = path.absolute().parent / f".{path.name}.{os.getpid()}"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise InvalidInput(f"the receipt cannot be written to '{path}': {why}; nothing was changed") from error

    def keep(receipt: Receipt) -> None:
        try:
            with open(descriptor, "w", closefd=False) as file:
                file.write(json.dumps(receipt.as_dict(), indent=2) + "\n")
                file.flush()
                os.fsync(descriptor)
            os.replace(beside, path)
        except OSError as error:
            raise click.ClickException(
                f"this is committed as change {receipt.sequence}, but its receipt could not be written to '{path}': "
                f"{(error.strerror or str(error)).lower()}; 'dynfrsdb ledger {store}' has it"
            ) from error

    try:
        yield keep
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(beside)
