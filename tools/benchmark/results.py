"""Everything that a run found, as plain values and back: what `--json` writes and `--from` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.data import PLANS
from benchmark.figures import Figure
from benchmark.targets import Row, Targets, scale_rows

Figures = dict[str, Figure]


@dataclass
class SetResult:
    """What was found about one data set."""

    words: str
    samples: int
    figures: Figures
    curves: dict[str, list[float]] = field(default_factory=dict)


@dataclass
class Results:
    """A whole run."""

    date: str
    machine: dict[str, Any]
    sets: dict[str, SetResult] = field(default_factory=dict)
    scale: dict[int, Figures] = field(default_factory=dict)

    def rows(self, name: str) -> Iterator[Row]:
        """The targets of one data set."""
        yield from Targets(name, PLANS[name].cpp, PLANS[name].aims, self.sets[name].figures).rows()

    def scale_rows(self, size: int) -> Iterator[Row]:
        """The targets of one size of the large run."""
        yield from scale_rows(f"{size:,} rows", self.scale[size])

    @classmethod
    def merged(cls, runs: Iterable[Results]) -> Results:
        """Several runs as one: of a set that two of them have measured the later counts, whole, with its partners."""
        whole = cls("", {})
        for run in runs:
            whole = cls(run.date, run.machine, {**whole.sets, **run.sets}, {**whole.scale, **run.scale})
        return whole

    def write(self, path: Path) -> None:
        """Write everything, the targets included."""
        sets = {
            name: {
                "words": one.words,
                "samples": one.samples,
                "figures": _plain(one.figures),
                "curves": one.curves,
                "targets": [row.as_dict() for row in self.rows(name)],
            }
            for name, one in self.sets.items()
        }
        whole = {
            "date": self.date,
            "machine": self.machine,
            "sets": sets,
            "scale": {str(size): _plain(figures) for size, figures in self.scale.items()},
            "scale targets": [row.as_dict() for size in self.scale for row in self.scale_rows(size)],
        }
        path.write_text(json.dumps(whole, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Results:
        """What `write` wrote."""
        whole = json.loads(path.read_text())
        sets = {
            name: SetResult(one["words"], one["samples"], _figures(one["figures"]), one["curves"])
            for name, one in whole["sets"].items()
        }
        scale = {int(size): _figures(figures) for size, figures in whole["scale"].items()}
        return cls(whole["date"], whole["machine"], sets, scale)


def _plain(figures: Figures) -> dict[str, Any]:
    return {name: figure.as_dict() for name, figure in figures.items()}


def _figures(plain: dict[str, Any]) -> Figures:
    return {name: Figure(**figure) for name, figure in plain.items()}
