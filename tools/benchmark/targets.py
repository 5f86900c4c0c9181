"""What was wanted, against what came out.

Each row holds one of our figures against its partner from the same run. Ratios to the retrain and to the C++ have
targets for the two sets whose figures of the C++ are known from elsewhere; the other targets hold for every set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmark.data import MB, Aims, Cpp
from benchmark.figures import Figure
from benchmark.trial import WARM_ROWS

GIB = 1 << 30
TWICE = 1.7
"""What counts as "near 2x" with two threads."""
NEAR = 1.5
"""What counts as "near hot" for the median query beside a writer."""


@dataclass(frozen=True)
class Row:
    """One line of the table: `ours` is `ratio` times `partner`, or a plain number; at most `target` is wanted."""

    key: str
    what: str
    data: str
    ours: float
    unit: str
    n: int
    target: float | None
    partner: str = ""
    partner_value: float | None = None
    at_least: bool = False
    cpu_ratio: float | None = None
    """The ratio in processor time, where it was measured."""

    @property
    def ratio(self) -> float | None:
        """Ours relative to the partner's."""
        return None if self.partner_value is None else self.ours / self.partner_value

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None if there is none for this set."""
        if self.target is None:
            return None
        value = self.ours if self.ratio is None else self.ratio
        return value >= self.target if self.at_least else value <= self.target

    def as_dict(self) -> dict[str, Any]:
        """The row as plain values."""
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


class Targets:
    """The rows of one set, as far as their figures were measured."""

    def __init__(self, name: str, cpp: Cpp | None, aims: Aims | None, figures: dict[str, Figure]) -> None:
        self._name, self._cpp, self._aims, self._figures = name, cpp, aims, figures

    def rows(self) -> Iterator[Row]:
        """All rows whose figures are there."""
        for part in (self._building, self._removing, self._batches, self._asking, self._mixed, self._processes):
            yield from part()

    def _aim(self, name: str) -> float | None:
        return None if self._aims is None else float(getattr(self._aims, name))

    def _row(
        self,
        key: str,
        what: str,
        figure: str,
        target: float | None,
        *,
        of: str = "",
        use: str = "median",
        at_least: bool = False,
    ) -> Iterator[Row]:
        """A row that holds a figure against another one (`of`), or against a plain limit."""
        mine, theirs = self._figures.get(figure), self._figures.get(of)
        if mine is not None and (theirs is not None or not of):
            its = None if theirs is None else theirs.median
            cpu = None if theirs is None else _cpu_ratio(mine, theirs)
            yield Row(key, what, self._name, getattr(mine, use), mine.unit, mine.n, target, of, its, at_least, cpu)

    def _building(self) -> Iterator[Row]:
        yield from self._row("build", "build, durable", "build", self._aim("build"), of="retrain")
        two = "build, two threads"
        yield from self._row(
            "build-2", "how much faster a build is with two threads", "build", TWICE, of=two, at_least=True
        )
        if (size := self._figures.get("store size")) is not None:
            memory = None if self._cpp is None else self._cpp.memory
            partner = "memory of the C++" if self._cpp else ""
            yield Row("size", "store size", self._name, size.median, "B", 1, self._aim("size"), partner, memory)

    def _removing(self) -> Iterator[Row]:
        aim, what = self._aim("removal"), "one removal in an open transaction"
        in_a_row, asked = f"{what}, in a row, mean", f"{what}, after {WARM_ROWS:,} predictions, mean"
        figure = "removal, before commit"
        yield from self._row("removal-row", in_a_row, f"{figure}: in a row", aim, of="retrain", use="mean")
        yield from self._beside_cpp(in_a_row)
        yield from self._row("removal-open", asked, figure, aim, of="retrain", use="mean")
        for policy in ("auto", "lazy"):
            name = f"removal, {policy}"
            what = f"one removal, durable, {policy}, p50"
            yield from self._row(f"removal-{policy}", what, name, 1.5, of=f"{name}: bare LMDB")
            what = f"pages of tree records per touched tree, {policy}, mean"
            yield from self._row(f"pages-{policy}", what, f"{name}: tree pages per tree", 6.0, use="mean")

    def _beside_cpp(self, what: str) -> Iterator[Row]:
        """Removals the way the C++ makes them, against the C++ on this machine, if it was measured."""
        ours, its = (self._figures.get(name) for name in ("removal, before commit: in a row", "the C++: removal, lazy"))
        if ours is not None and its is not None:
            yield Row("removal-cpp", what, self._name, ours.mean, "s", ours.n, 1.0, "the C++, lazy", its.mean)

    def _batches(self) -> Iterator[Row]:
        for words, aim in {"100": "hundred", "1%": "percent"}.items():
            name = f"batch of {words}, lazy"
            if name in self._figures and "retrain" in self._figures:
                yield self._against_floor(words, name, aim)
            what = f"{words} removed in one durable transaction"
            yield from self._row(f"batch-{words}", what, name, self._aim(aim), of="retrain")
        for policy in ("lazy", "auto"):
            what = f"1% removed in one transaction, {policy}, and everything settled"
            name = f"batch of 1%, {policy}: with settling"
            yield from self._row(f"settled-{policy}", what, name, self._aim("settled"), of="retrain")

    def _against_floor(self, words: str, name: str, aim: str) -> Row:
        """A batch against 1.5 times bare LMDB and the C++ in memory: as measured in this run, or else, for the sets
        that have them, by its figures from elsewhere."""
        ours, floor = self._figures[name], 1.5 * self._figures[f"{name}: bare LMDB"].median
        what, partner = f"{words} removed in one durable transaction", "1.5 x bare LMDB"
        if (measured := self._figures.get(f"the C++: batch of {words}")) is not None:
            floor += measured.mean
            partner += " + the C++"
        elif self._cpp is not None:
            floor += float(getattr(self._cpp, aim)) * self._figures["retrain"].median
            partner += " + the C++"
        target = None if self._cpp is None else 1.0
        return Row(f"batch-{words}-floor", what, self._name, ours.median, "s", ours.n, target, partner, floor)

    def _asking(self) -> Iterator[Row]:
        yield from self._row("query", "one-row query, hot, p50", "query", self._aim("query"), of="query: scikit-learn")
        partner = "prediction: scikit-learn"
        yield from self._row("predict", "batch prediction, hot", "prediction", 2.0, of=partner, at_least=True)

    def _mixed(self) -> Iterator[Row]:
        policy = best_policy(self._figures)
        stream = f"stream 1:1:2, {policy}"
        for what, plain in (("add", f"addition, {policy}: alone"), ("remove", f"removal, {policy}: alone")):
            yield from self._row(f"mixed-{what}", f"{stream}, {what}, p50", f"{stream}: {what}", 1.7, of=plain)
        aim = self._aim("mixed_query")
        yield from self._row("mixed-query", f"{stream}, query, mean", f"{stream}: query", aim, of="retrain", use="mean")
        what = "query in a reader process beside a writer, auto, p50"
        yield from self._row("reader", what, "readers: auto", NEAR, of="readers: no writer")

    def _processes(self) -> Iterator[Row]:
        yield from self._row("memory", "memory of 100 removals and 100 queries", "memory", 150 * MB)
        yield from self._row("open", "open, first pages cached", "open, cached", 0.005)
        start = "process: start, open, first query"
        yield from self._row("start", start, start, 1.0)
        yield from self._row("help", "process: --help", "process: --help", 0.15)
        yield from self._row("info", "process: info", "process: info", 0.15)


def _cpu_ratio(mine: Figure, theirs: Figure) -> float | None:
    """Processor time relative to the partner's; for rates the other way round, so that more is better."""
    if not mine.cpu or not theirs.cpu:
        return None
    return theirs.cpu / mine.cpu if mine.unit == "rows/s" else mine.cpu / theirs.cpu


def best_policy(figures: dict[str, Figure]) -> str:
    """The settling policy with the cheapest queries in the mixed stream."""
    found = {policy: figures.get(f"stream 1:1:2, {policy}: query") for policy in ("auto", "lazy")}
    means = {policy: figure.mean for policy, figure in found.items() if figure is not None}
    return min(means, key=lambda policy: means[policy], default="auto")


SCALE = {
    "scale-build": ("memory of the build, at its peak", "build: memory", 8 * GIB),
    "scale-open": ("open, first pages cached", "open, cached", 0.005),
    "scale-query": ("first query after imports, cold", "first query, cold", 0.1),
    "scale-removal": ("one removal, durable, p50", "removal, no query in between", 0.01),
    "scale-mixed": ("one removal, durable, a query after each, p50", "removal", 0.01),
    "scale-memory": ("memory of 1,000 removals and 1,000 queries", "memory", 1.5 * GIB),
}
"""Limits of the large run: what, figure, at most."""


def scale_rows(name: str, figures: dict[str, Figure]) -> Iterator[Row]:
    """The rows of one size of the large run."""
    for key, (what, figure, limit) in SCALE.items():
        if figure in figures:
            found = figures[figure]
            yield Row(key, what, name, found.median, found.unit, found.n, limit)
