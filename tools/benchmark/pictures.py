"""Pictures for the document, as SVG. The same figures give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler

from benchmark.figures import Figure
from benchmark.results import Results

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter

STYLE: Any = {
    "svg.hashsalt": "dynfrsdb",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "axes.prop_cycle": cycler(color=["#0b5fa5", "#d1495b", "#3a7d44", "#8d6a9f", "#666666"]),
}
DRAWN = ("purchase", "heart", "adult", "letter", "covertype", "tiny")


def draw(results: Results, directory: Path) -> Iterator[tuple[str, str]]:
    """Draw what there are figures for; yields (title, file name)."""
    directory.mkdir(parents=True, exist_ok=True)
    pictures = (
        ("Cost against the number of samples", "cost-against-samples.svg", _cost),
        ("Removals per second against the size of the transaction", "removals-per-second.svg", _removals),
        ("Query latency while a writer commits ten removals a second", "queries-beside-a-writer.svg", _readers),
    )
    for title, name, paint in pictures:
        with mpl.rc_context(STYLE):
            figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
            if paint(results, axes):
                figure.legend(loc="outside right upper")
                figure.savefig(directory / name, metadata={"Date": None, "Creator": None})
                yield title, name
            plt.close(figure)


def _log(axes: Any, x: str, y: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
        axis.set_minor_formatter(NullFormatter())


def _cost(results: Results, axes: Any) -> bool:
    lines = {
        "one removal, p50": ("removal, no query in between", "median"),
        "queries in between, p50": ("removal", "median"),
        "queries in between, p99": ("removal", "p99"),
        "first query, cold": ("first query, cold", "median"),
        "open": ("open, cached", "median"),
    }
    sizes = sorted(results.scale)
    if len(sizes) < 2:
        return False
    for label, (name, part) in lines.items():
        found: list[Figure] = [results.scale[size][name] for size in sizes]
        axes.plot(sizes, [1e3 * getattr(figure, part) for figure in found], marker="o", label=label)
    _log(axes, "samples", "milliseconds")
    return True


def _removals(results: Results, axes: Any) -> bool:
    drawn = False
    for name in (name for name in DRAWN if name in results.sets):
        figures, samples = results.sets[name].figures, results.sets[name].samples
        sizes = {"1": 1, "10": 10, "100": 100, "0.1%": samples // 1000, "1%": samples // 100}
        measured = sorted((n, words) for words, n in sizes.items() if f"batch of {words}, lazy" in figures and n)
        found = [one for i, one in enumerate(measured) if not i or one[0] > 1.5 * measured[i - 1][0]]
        if not found:
            continue
        counts = [n for n, _ in found]
        ours = [n / figures[f"batch of {words}, lazy"].median for n, words in found]
        bare = [n / figures[f"batch of {words}, lazy: bare LMDB"].median for n, words in found]
        (line,) = axes.plot(counts, ours, marker="o", label=name)
        axes.plot(counts, bare, linestyle=":", color=line.get_color())
        drawn = True
    axes.plot([], [], linestyle=":", color="black", label="bare LMDB")
    _log(axes, "removals in one durable transaction", "removals per second")
    return drawn


def _readers(results: Results, axes: Any) -> bool:
    found = next((results.sets[name] for name in DRAWN if name in results.sets and results.sets[name].curves), None)
    if found is None:
        return False
    slower = [1 - share for share in found.curves["shares"]]
    labels = {"readers: no writer": "no writer", "readers: auto": "settle=auto", "readers: lazy": "settle=None"}
    for curve, label in labels.items():
        axes.plot(slower, [1e3 * value for value in found.curves[curve]], label=label)
    _log(axes, "share of queries that took longer", "milliseconds")
    axes.invert_xaxis()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    return True
