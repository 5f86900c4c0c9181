"""What was wanted, against what came out.

Each row holds one of our figures against its partner from the same run. Ratios to the retrain and to the C++ have
targets for the two sets that the C++ was measured on; the rest hold for every set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmark.data import MB, DataSet
from benchmark.figures import Figure

MIB, GIB = 1 << 20, 1 << 30
TWICE = 1.7
"""What counts as "near 2x" with two threads."""
NEAR = 1.5
"""What counts as "near hot" for the median query beside a writer."""
Figures = dict[str, Figure]


@dataclass(frozen=True)
class Row:
    """One line of the table: `ours` of `partner` is `ratio`, wanted is at most (or at least) `target`."""

    key: str
    what: str
    data: str
    ours: float
    unit: str
    n: int
    partner: str
    partner_value: float | None
    ratio: float
    target: float | None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None if there is none for this set."""
        if self.target is None:
            return None
        return self.ratio >= self.target if self.at_least else self.ratio <= self.target

    def as_dict(self) -> dict[str, Any]:
        """The row as plain values."""
        return {**asdict(self), "met": self.met}


class Table:
    """The rows of one set, as far as their figures were measured."""

    def __init__(self, data: DataSet, figures: Figures) -> None:
        self._data, self._figures = data, figures

    def rows(self) -> Iterator[Row]:
        """All rows whose figures are there."""
        for make in (self._building, self._removing, self._batches, self._asking, self._mixed, self._process):
            yield from make()

    def _compare(
        self,
        key: str,
        what: str,
        ours: str,
        partner: str,
        target: float | None,
        use: Callable[[Figure], float] = lambda figure: figure.median,
        at_least: bool = False,
    ) -> Iterator[Row]:
        """A row that holds one figure against another."""
        if ours in self._figures and partner in self._figures:
            mine, theirs = self._figures[ours], self._figures[partner].median
            yield Row(
                key,
                what,
                self._data.name,
                use(mine),
                mine.unit,
                mine.n,
                partner,
                theirs,
                use(mine) / theirs,
                target,
                at_least,
            )

    def _limit(
        self, key: str, what: str, ours: str, target: float, use: Callable[[Figure], float] = lambda f: f.median
    ) -> Iterator[Row]:
        """A row that holds one figure against a fixed limit."""
        if ours in self._figures:
            mine = self._figures[ours]
            yield Row(key, what, self._data.name, use(mine), mine.unit, mine.n, "", None, use(mine), target)

    def _aim(self, name: str) -> float | None:
        return None if self._data.aims is None else float(getattr(self._data.aims, name))

    def _building(self) -> Iterator[Row]:
        yield from self._compare("build", "build, durable", "build", "retrain", self._aim("build"))
        yield from self._compare(
            "build-2", "build with two threads, how much faster", "build", "build, two threads", TWICE, at_least=True
        )
        if "store size" in self._figures:
            size, cpp = self._figures["store size"], self._data.cpp
            yield Row(
                "size",
                "store size",
                self._data.name,
                size.median,
                "B",
                1,
                "memory of the C++",
                cpp.memory if cpp else None,
                size.median / cpp.memory if cpp else size.median,
                self._aim("size"),
            )

    def _removing(self) -> Iterator[Row]:
        yield from self._compare(
            "removal-open",
            "one removal in an open transaction, mean",
            "removal, before commit",
            "retrain",
            self._aim("removal"),
            use=lambda figure: figure.mean,
        )
        for policy in ("auto", "lazy"):
            name = f"removal, {policy}"
            yield from self._compare(
                f"removal-{policy}", f"one removal, durable, settle={policy}, p50", name, f"{name}: bare LMDB", 1.5
            )
            yield from self._limit(
                f"pages-{policy}",
                f"pages of tree records per touched tree, settle={policy}, mean",
                f"{name}: tree pages per tree",
                6.0,
                use=lambda figure: figure.mean,
            )

    def _batches(self) -> Iterator[Row]:
        aims = {"100": ("hundred", "hundred"), "1%": ("percent", "percent")}
        for words, (aim, cpp) in aims.items():
            name = f"batch of {words}, lazy"
            if name in self._figures and "retrain" in self._figures:
                yield self._budget(words, name, cpp)
            yield from self._compare(
                f"batch-{words}-aim", f"{words} removed in one transaction", name, "retrain", self._aim(aim)
            )
        for policy in ("lazy", "auto"):
            yield from self._compare(
                f"batch-1%-settled-{policy}",
                f"1% removed in one transaction, settle={policy}, and all settled",
                f"batch of 1%, {policy}: with settling",
                "retrain",
                self._aim("settled"),
            )

    def _budget(self, words: str, name: str, cpp: str) -> Row:
        """A batch against 1.5 times bare LMDB and the C++ in memory together."""
        ours, bare = self._figures[name], self._figures[f"{name}: bare LMDB"].median
        memory = (
            0.0 if self._data.cpp is None else float(getattr(self._data.cpp, cpp)) * self._figures["retrain"].median
        )
        budget = 1.5 * bare + memory
        partner = "1.5 x bare LMDB" if self._data.cpp is None else "1.5 x bare LMDB, and the C++"
        what = f"{words} removed in one durable transaction"
        target = None if self._data.cpp is None else 1.0
        return Row(
            f"batch-{words}",
            what,
            self._data.name,
            ours.median,
            "s",
            ours.n,
            partner,
            budget,
            ours.median / budget,
            target,
        )

    def _asking(self) -> Iterator[Row]:
        yield from self._compare("query", "one-row query, hot, p50", "query", "query: scikit-learn", self._aim("query"))
        yield from self._compare(
            "predict", "batch prediction, hot", "prediction", "prediction: scikit-learn", 2.0, at_least=True
        )

    def _mixed(self) -> Iterator[Row]:
        policy = best_policy(self._figures)
        if policy is None:
            return
        stream = f"stream 1:1:2, {policy}"
        for what, plain in (("add", f"addition, {policy}"), ("remove", f"removal, {policy}: alone")):
            words = f"stream 1:1:2, settle={policy}, {what}, p50"
            yield from self._compare(f"mixed-{what}", words, f"{stream}: {what}", plain, 1.7)
        yield from self._compare(
            "mixed-query",
            f"stream 1:1:2, settle={policy}, query, mean",
            f"{stream}: query",
            "retrain",
            self._aim("mixed_query"),
            use=lambda figure: figure.mean,
        )
        yield from self._compare(
            "reader", "query in a reader beside a writer, settle=auto, p50", "readers, auto", "readers, no writer", NEAR
        )

    def _process(self) -> Iterator[Row]:
        yield from self._limit("memory", "memory of 100 removals and queries", "memory", 150 * MB)
        yield from self._limit("open", "open, first pages cached", "open, cached", 0.005)
        yield from self._limit("start", "process: start, open, first query", "process: start, open, first query", 1.0)
        yield from self._limit("help", "process: --help", "process: --help", 0.15)
        yield from self._limit("info", "process: info", "process: info", 0.15)


def best_policy(figures: Figures) -> str | None:
    """The settling policy with the cheapest queries in the mixed stream."""
    found = {policy: figures.get(f"stream 1:1:2, {policy}: query") for policy in ("auto", "lazy")}
    means = {policy: figure.mean for policy, figure in found.items() if figure is not None}
    return min(means, key=lambda policy: means[policy]) if means else None


def scale_rows(name: str, figures: Figures) -> Iterator[Row]:
    """The limits of the large run."""
    limits = {
        "scale-build": ("memory of the build at its peak", "build: memory", 8 * GIB, "median"),
        "scale-open": ("open, first pages cached", "open, cached", 0.005, "median"),
        "scale-removal": ("one removal, durable, p50", "removal", 0.010, "median"),
        "scale-query": ("first query after imports, cold", "first query, cold", 0.100, "median"),
        "scale-memory": ("memory of 1,000 removals and queries", "memory", 1.5 * GIB, "median"),
    }
    for key, (what, figure, limit, use) in limits.items():
        if figure in figures:
            value = float(getattr(figures[figure], use))
            found = figures[figure]
            yield Row(key, what, name, value, found.unit, found.n, "", None, value, limit)
