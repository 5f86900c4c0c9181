"""Needles: bytes by which a person would be recognised, and where in a store's files they are.

Vacuum's proof of absence needs no needle. This is for the caller who still knows the values of somebody who was
removed, and wants to see for themselves. A needle file has a JSON object on each line, with any of

    {"x": [5.1, 3.5, 1.4, 0.2], "subject": "person 17", "id": 1099511627776, "hex": "00ff..."}

and each becomes bytes as the store would have them:

    x         the row as 32-bit floats: whole, and every window of 16 bytes of it
    subject   its text, and the keyed hash under which its samples are found
    id        64 bits in either order of bytes, and its decimal digits
    hex       itself

What is too plain to mean anything is left out and counted: less than 6 bytes, or a window with fewer than 6 that are
not zero. Every file of the store is searched, byte by byte, free pages and old generations included. A hit is told by
the place it is in:

    live        a record or row of a live sample: somebody who is there has the same values
    receipt     the ledger, which keeps a keyed hash of a forgotten subject as evidence
    waiting     a removed row that is not overwritten yet
    leftover    a free page, the slack of a page, an old generation: bytes that belong to nothing

Searching compares six bytes of each needle, those with the fewest zeros, at every offset of a file at once; what
matches is compared in full."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dynfrsdb import inputs
from dynfrsdb.errors import InvalidInput
from dynfrsdb.secrets import Secrets
from dynfrsdb.settings import Settings
from dynfrsdb_storage import Snapshot
from dynfrsdb_storage.places import Place, Places

SHORTEST = 6
WINDOW = 16
AT_ONCE = 1 << 22
FIELDS = ("x", "subject", "id", "hex")


@dataclass(frozen=True)
class Needle:
    """Bytes to look for, and what they are of a line of the needle file."""

    data: bytes
    line: int
    what: str


@dataclass
class Needles:
    """What to look for."""

    needles: list[Needle] = field(default_factory=list)
    too_plain: int = 0
    """How many were left out."""

    def add(self, data: bytes, line: int, what: str) -> None:
        """Look for `data`, unless too little of it is not zero."""
        if len(data) - data.count(0) < SHORTEST:
            self.too_plain += 1
        else:
            self.needles.append(Needle(data, line, what))


@dataclass(frozen=True)
class Hit:
    """A needle that was found: where, and what that place is."""

    file: str
    offset: int
    size: int
    line: int
    what: str
    place: str
    belongs: str


@dataclass(frozen=True)
class ScanReport:
    """What `scan` found; true if no needle was found but in what is live and in receipts."""

    needles: int
    too_plain: int
    files: int
    bytes: int
    hits: tuple[Hit, ...]

    @property
    def leftovers(self) -> tuple[Hit, ...]:
        """Hits in bytes that should not be there for ever."""
        return tuple(hit for hit in self.hits if hit.place in ("waiting", "leftover"))

    def __bool__(self) -> bool:
        return not self.leftovers

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        hits = [dict(vars(hit)) for hit in self.hits]
        return {"ok": bool(self), **vars(self), "hits": hits}


def read(path: Path, settings: Settings) -> Needles:
    """The needles of a file."""
    needles, secrets = Needles(), Secrets(settings)
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the needle file '{path}' cannot be read ({error})") from error
    for number, text in enumerate(lines, 1):
        if text.strip():
            _note(needles, _object(text, number), number, settings, secrets)
    if not needles.needles:
        raise InvalidInput(f"the needle file '{path}' holds nothing to look for ({needles.too_plain} were too plain)")
    return needles


def _object(text: str, line: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"line {line} of the needle file is not JSON ({error})") from error
    if not isinstance(found, dict) or not found or set(found) - set(FIELDS):
        raise InvalidInput(f"line {line} of the needle file must be an object with some of {', '.join(FIELDS)}")
    return found


def _note(needles: Needles, given: dict[str, Any], line: int, settings: Settings, secrets: Secrets) -> None:
    if "x" in given:
        row = inputs.features([given["x"]], settings.n_features, ()).astype("<f4").tobytes()
        needles.add(row, line, "row")
        for at in range(len(row) - WINDOW + 1 if len(row) > WINDOW else 0):
            needles.add(row[at : at + WINDOW], line, "part of a row")
    if "subject" in given:
        subject = inputs.one_subject(given["subject"])
        needles.add(subject, line, "subject")
        needles.add(secrets.subject(subject), line, "hash of a subject")
    if "id" in given:
        number = inputs.one_id(given["id"])
        for data in (number.to_bytes(8, "little"), number.to_bytes(8, "big"), str(number).encode()):
            needles.add(data, line, "id")
    if "hex" in given:
        try:
            needles.add(bytes.fromhex(given["hex"]), line, "bytes")
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"line {line} of the needle file: 'hex' is not hexadecimal ({error})") from error


def scan(snapshot: Snapshot, needles: Needles, progress: Any = None) -> ScanReport:
    """Look for needles in every file of the store."""
    root = snapshot.generation.directory.parent
    files = sorted(file for file in root.rglob("*") if file.is_file())
    total, done, hits = sum(file.stat().st_size for file in files), 0, []
    places, search = Places(snapshot), _Search(needles.needles)
    for file in files:
        name = str(file.relative_to(root))
        for offset, needle in search.file(file):
            place: Place = places.of(name, offset, len(needle.data))
            hits.append(Hit(name, offset, len(needle.data), needle.line, needle.what, place.kind, place.words))
        done += file.stat().st_size if file.exists() else 0
        if progress is not None:
            progress("scanning", min(done, total), total)
    return ScanReport(len(needles.needles), needles.too_plain, len(files), total, tuple(_merged(hits)))


def _merged(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Parts of a row that follow each other as one hit, and none of a row that was found whole."""
    held: Hit | None = None
    for hit in sorted(hits, key=lambda hit: (hit.file, hit.line, hit.offset, -hit.size)):
        inside = held is not None and (hit.file, hit.line) == (held.file, held.line) and "row" in hit.what
        if inside and held is not None and "row" in held.what and hit.offset < held.offset + held.size:
            end = max(held.offset + held.size, hit.offset + hit.size)
            held = Hit(**{**vars(held), "size": end - held.offset})
            continue
        if held is not None:
            yield held
        held = hit
    if held is not None:
        yield held


class _Search:
    """Many needles in one pass over a file."""

    def __init__(self, needles: list[Needle]) -> None:
        self._longest = max(len(needle.data) for needle in needles)
        self._by_anchor: dict[int, list[tuple[int, Needle]]] = {}
        for needle in needles:
            at, anchor = _anchor(needle.data)
            self._by_anchor.setdefault(anchor, []).append((at, needle))
        self._anchors = np.array(sorted(self._by_anchor), np.uint64)
        self._first = np.zeros(1 << 16, bool)
        self._first[self._anchors & np.uint64(0xFFFF)] = True

    def file(self, file: Path) -> Iterator[tuple[int, Needle]]:
        """The (offset, needle) of everything that is found."""
        with open(file, "rb") as source:
            start, data = 0, source.read(AT_ONCE)
            while data:
                more = source.read(AT_ONCE)
                # Needles that begin in this piece may end in the next one.
                yield from self._piece(data + more[: self._longest], len(data), start)
                start, data = start + len(data), more

    def _piece(self, data: bytes, size: int, start: int) -> Iterator[tuple[int, Needle]]:
        padded = data + bytes(16)
        for at in self._candidates(padded, len(data)):
            anchor = int.from_bytes(padded[at : at + SHORTEST], "little")
            for before, needle in self._by_anchor[anchor]:
                begin = at - before
                if 0 <= begin < size and data[begin : begin + len(needle.data)] == needle.data:
                    yield start + begin, needle

    def _candidates(self, padded: bytes, size: int) -> list[int]:
        """Offsets at which six bytes are those of some needle."""
        found: list[npt.NDArray[np.int64]] = []
        for shift in range(8):
            words = np.frombuffer(padded, "<u8", (size - shift + 7) // 8 if size > shift else 0, shift)
            likely = np.flatnonzero(self._first[words & np.uint64(0xFFFF)])
            sixes = words[likely] & np.uint64(0xFFFFFFFFFFFF)
            place = np.searchsorted(self._anchors, sixes).clip(0, self._anchors.size - 1)
            found.append(likely[self._anchors[place] == sixes] * 8 + shift)
        return sorted(np.concatenate(found).tolist())


def _anchor(data: bytes) -> tuple[int, int]:
    """The (place, number) of the six bytes of a needle that have the fewest zeros."""
    places = range(len(data) - SHORTEST + 1)
    at = max(places, key=lambda place: SHORTEST - data[place : place + SHORTEST].count(0))
    return at, int.from_bytes(data[at : at + SHORTEST], "little")
