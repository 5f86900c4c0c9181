"""Numbers and rows as text, for the terminal and for the document."""

from __future__ import annotations

from collections.abc import Iterable

from benchmark.figures import Figure
from benchmark.targets import Row

TARGETS = ("what", "ours", "n", "partner", "its", "ratio", "by CPU", "target", "met")
FIGURES = ("figure", "median", "mean", "p99", "p99.9", "n")
_MET = {True: "yes", False: "no", None: ""}


def quantity(value: float | None, unit: str = "") -> str:
    """A number with the unit that suits it."""
    if value is None:
        return ""
    if unit == "s":
        factor, name = (1.0, "s") if value >= 1 else (1e3, "ms") if value >= 1e-3 else (1e6, "us")
        return f"{three(value * factor)} {name}"
    if unit == "B":
        factor, name = (1e-9, "GB") if value >= 1e9 else (1e-6, "MB")
        return f"{three(value * factor)} {name}"
    return f"{three(value)} {unit}".strip()


def three(value: float) -> str:
    """Three digits that mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def times(ratio: float | None) -> str:
    """A ratio."""
    return "" if ratio is None else f"{three(ratio)}x"


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table of targets."""
    target = ""
    if row.target is not None:
        sign = ">= " if row.at_least else "<= "
        target = sign + (quantity(row.target, row.unit) if row.ratio is None else times(row.target))
    return (
        row.what,
        quantity(row.ours, row.unit),
        f"{row.n:,}",
        partner(row),
        quantity(row.partner_value, row.unit),
        times(row.ratio),
        times(row.cpu_ratio),
        target,
        _MET[row.met],
    )


def partner(row: Row) -> str:
    """What a row is held against, without the figure's name that it shares with ours."""
    return row.partner.partition(": ")[2] or row.partner


def figure_cells(name: str, figure: Figure) -> tuple[str, ...]:
    """A row of the table of figures; one sample has no tail."""
    parts = (figure.median, figure.mean, figure.p99, figure.p999) if figure.n > 1 else (figure.median,)
    shown = [quantity(part, figure.unit) for part in parts]
    return (name, *shown, *[""] * (4 - len(shown)), f"{figure.n:,}")


def markdown(headings: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table as Markdown."""
    heads = list(headings)
    rows = [heads, ["---"] * len(heads), *(list(line) for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
