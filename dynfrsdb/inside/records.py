"""Tree records as plain values; storage/FORMAT.md, "Tree records", is the treaty.

A classification counts samples by class, a regression sums its fixed-point targets. `Totals` is either: class counts,
or the one number (sum,). With n beside it, it says everything that a score needs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from dynfrsdb.settings import Settings

SPLIT, LEAF, TAG = 1, 2, 3
TWO_VALUED = 1
LEAF_MARK = 0xFFFF
BUCKET_HEADER = 14

Totals = tuple[int, ...]
"""Samples of each class; for a regression one number, the sum of the targets."""

_SPLIT = struct.Struct("<BBHIQQQIfHHBxH")
_LIST = struct.Struct("<BxHIQ")
_BUCKET = struct.Struct("<BxHQH")
_CANDIDATE = struct.Struct("<HBff")
_PAIR = struct.Struct("<HI")
_SMALL_PAIR = struct.Struct("<HH")
_SMALL_SPLIT = struct.Struct("<Hf")
_SUM = struct.Struct("<q")


class Head(NamedTuple):
    """The first bytes of a split record."""

    kind: int
    flags: int
    candidates: int
    n: int
    stamp: int
    left_stamp: int
    right_stamp: int
    n_left: int
    threshold: float
    feature: int
    best: int
    cut: int
    valued: int


class Counted(NamedTuple):
    """One candidate: a feature's range over the node's samples, and what is left of each of its thresholds."""

    feature: int
    low: float
    high: float
    at_low: int
    at_high: int
    left: list[tuple[int, Totals]]
    """(n, totals) of the samples at or below each threshold, ascending."""


class Listed(NamedTuple):
    """A leaf or a tag whose samples are a long list."""

    kind: int
    n: int
    stamp: int
    totals: Totals | None


class Small(NamedTuple):
    """One node of a bucket's small tree: a split, or a leaf with its totals."""

    feature: int | None
    threshold: float
    n: int
    totals: Totals


class Bucket(NamedTuple):
    """At most B samples and the small tree over them, in pre-order; none if it is tagged."""

    kind: int
    n: int
    stamp: int
    slots: tuple[int, ...]
    tree: list[Small]


class SplitRecord:
    """A split: who it is, its totals, and its candidates one after another."""

    def __init__(self, settings: Settings, data: bytes) -> None:
        self.head = Head._make(_SPLIT.unpack_from(data))
        self._data, self._settings = data, settings
        self._count = "I" if self.head.n > 0xFFFF else "H"
        width, classes = struct.calcsize("=" + self._count), settings.n_classes
        at = _SPLIT.size
        if classes:
            self.totals: Totals = struct.unpack_from(f"<{classes}{self._count}", data, at)
            self._candidates_at = at + classes * width
            self._line = struct.Struct(f"<{classes}{self._count}")
        else:
            self.totals = _SUM.unpack_from(data, at)
            self._candidates_at = at + 24 + 2 * width
            self._line = struct.Struct(f"<{self._count}q")
        self._ends = struct.Struct(f"<2{self._count}")

    def candidates(self) -> Iterator[Counted]:
        """All candidates, in the node's feature order."""
        at = self._candidates_at
        for _ in range(self.head.candidates):
            candidate, at = self._candidate(at)
            yield candidate

    def best_left(self) -> Totals:
        """The totals of the left side."""
        at = self._candidates_at
        for _ in range(self.head.best):
            form = self._data[at + 2]
            at += _CANDIDATE.size + self._ends.size + self._line.size * (1 if form == TWO_VALUED else self._settings.s)
        return self._candidate(at)[0].left[self.head.cut][1]

    def _candidate(self, at: int) -> tuple[Counted, int]:
        feature, form, low, high = _CANDIDATE.unpack_from(self._data, at)
        at += _CANDIDATE.size
        at_low, at_high = self._ends.unpack_from(self._data, at)
        at += self._ends.size
        lines, s = 1 if form == TWO_VALUED else self._settings.s, self._settings.s
        end = at + lines * self._line.size
        left = list(accumulate(map(self._parsed, self._line.iter_unpack(self._data[at:end])), _plus))
        return Counted(feature, low, high, at_low, at_high, left * s if form == TWO_VALUED else left), end

    def _parsed(self, line: tuple[int, ...]) -> tuple[int, Totals]:
        return (sum(line), line) if self._settings.n_classes else (line[0], line[1:])


def listed(settings: Settings, data: bytes) -> Listed:
    """A leaf or tag record of `nodes`."""
    kind, m, n, stamp = _LIST.unpack_from(data)
    if kind == TAG:
        return Listed(kind, n, stamp, None)
    if not settings.n_classes:
        return Listed(kind, n, stamp, _SUM.unpack_from(data, _LIST.size))
    pairs = _PAIR.iter_unpack(data[_LIST.size : _LIST.size + m * _PAIR.size])
    return Listed(kind, n, stamp, _dense(settings.n_classes, pairs))


def bucket(settings: Settings, data: bytes) -> Bucket:
    """A bucket record."""
    kind, n, stamp, nodes = _BUCKET.unpack_from(data)
    slots = struct.unpack_from(f"<{n}I", data, BUCKET_HEADER)
    return Bucket(kind, n, stamp, slots, list(_small_tree(settings, data, BUCKET_HEADER + 4 * n, nodes)))


def _small_tree(settings: Settings, data: bytes, at: int, nodes: int) -> Iterator[Small]:
    for _ in range(nodes):
        feature, threshold = _SMALL_SPLIT.unpack_from(data, at)
        if feature != LEAF_MARK:
            at += _SMALL_SPLIT.size
            yield Small(feature, threshold, 0, ())
            continue
        n = int.from_bytes(data[at + 2 : at + 4], "little")
        at += 4
        if not settings.n_classes:
            yield Small(None, 0.0, n, _SUM.unpack_from(data, at))
            at += _SUM.size
            continue
        end = at + 2 + _SMALL_PAIR.size * int.from_bytes(data[at : at + 2], "little")
        yield Small(None, 0.0, n, _dense(settings.n_classes, _SMALL_PAIR.iter_unpack(data[at + 2 : end])))
        at = end


def _dense(classes: int, pairs: Iterator[tuple[int, ...]]) -> Totals:
    counts = [0] * classes
    for label, samples in pairs:
        counts[label] = samples
    return tuple(counts)


def _plus(a: tuple[int, Totals], b: tuple[int, Totals]) -> tuple[int, Totals]:
    return a[0] + b[0], plus(a[1], b[1])


def plus(a: Totals, b: Totals) -> Totals:
    """The totals of two sets of samples together."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def minus(a: Totals, b: Totals) -> Totals:
    """The totals of what is left of a without b."""
    return tuple(x - y for x, y in zip(a, b, strict=True))


def slots(chunk: bytes) -> tuple[int, ...]:
    """The slots in a chunk of a long list."""
    return struct.unpack(f"<{len(chunk) // 4}I", chunk)
