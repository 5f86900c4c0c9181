"""Files that people keep: exported ledgers, receipts, keys."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from dynfrsdb.errors import InvalidInput


def read(file: Path) -> bytes:
    """The content of a file."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"'{file}' cannot be read: {error.strerror}") from error


def write(file: Path, text: str) -> None:
    """Write a file, which is there wholly or not at all; one that is there already is replaced."""
    new = file.with_name(file.name + ".new")
    try:
        with open(new, "w", encoding="utf-8") as target:
            target.write(text)
            target.flush()
            os.fsync(target.fileno())
        os.replace(new, file)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise InvalidInput(f"'{file}' cannot be written: {error.strerror}") from error
