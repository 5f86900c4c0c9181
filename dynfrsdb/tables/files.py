"""Lines of text files: plain, gzipped or piped in; UTF-8, with or without a byte order mark."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dynfrsdb.errors import InvalidInput

LONGEST_LINE = 1 << 26
_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise InvalidInput(f"'{path}' cannot be read: {(error.strerror or str(error)).lower()}") from error
    with file:
        yield file


def lines(path: Path, report: Callable[[int, int], None]) -> Iterator[str]:
    """The lines of a file, with their ends; `report` hears how many bytes of how many were read."""
    with _opened(path) as raw:
        total = path.stat().st_size if path.is_file() else 0
        source = _unpacked(raw)
        number = 0
        try:
            while line := source.readline(LONGEST_LINE):
                number += 1
                yield _text(path, number, line)
                if not number & 1023 and total:
                    report(raw.tell(), total)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidInput(f"'{path}' is damaged behind line {number}: its compressed data breaks off") from error
        except OSError as error:
            raise InvalidInput(f"'{path}' cannot be read: {(error.strerror or str(error)).lower()}") from error
        report(total, total)


def _unpacked(raw: BinaryIO) -> BinaryIO:
    buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
    if buffered.peek(2)[:2] != _GZIP:
        return buffered
    return gzip.GzipFile(fileobj=buffered)  # type: ignore[return-value]


def _text(path: Path, number: int, line: bytes) -> str:
    if number == 1 and line.startswith(_UTF16):
        raise InvalidInput(f"'{path}' is UTF-16; save it as UTF-8")
    if len(line) == LONGEST_LINE:
        raise InvalidInput(f"'{path}', line {number} is longer than {LONGEST_LINE >> 20} MB; is this a text file?")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"'{path}', line {number} is not UTF-8 (byte {error.start + 1} of the line); save it as UTF-8"
        ) from None
    return text.removeprefix("\ufeff") if number == 1 else text
