"""What was measured, as tables of text: for the terminal and for the document."""

from __future__ import annotations

from collections.abc import Iterable

from benchmark.figures import Figure
from benchmark.targets import Row

HEADINGS = ("set", "what", "ours", "n", "partner", "its", "ratio", "target", "met")


def quantity(value: float | None, unit: str) -> str:
    """A number with the unit that suits it."""
    if value is None:
        return ""
    if unit == "s":
        for factor, name in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
            if value * factor >= 1 or name == "us":
                return f"{three(value * factor)} {name}"
    if unit == "B":
        return f"{three(value / 1e6)} MB" if value < 1e9 else f"{three(value / 1e9)} GB"
    return f"{three(value)} {unit}".strip()


def three(value: float) -> str:
    """Three digits that mean something."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table of targets."""
    limit = row.partner_value is None
    ratio = quantity(row.ratio, row.unit) if limit else f"{three(row.ratio)}x"
    target = "" if row.target is None else quantity(row.target, row.unit) if limit else f"{three(row.target)}x"
    sign = "" if row.target is None else ">= " if row.at_least else "<= "
    met = {True: "yes", False: "NO", None: ""}[row.met]
    ours = quantity(row.ours, row.unit)
    unit = "B" if row.key == "size" else row.unit
    return (
        row.data,
        row.what,
        ours,
        f"{row.n:,}",
        row.partner,
        quantity(row.partner_value, unit),
        "" if limit else ratio,
        sign + target,
        met,
    )


def figure_cells(name: str, figure: Figure) -> tuple[str, ...]:
    """A row of the table of figures."""
    parts = (figure.median, figure.mean, figure.p99, figure.p999) if figure.n > 1 else (figure.median,)
    shown = [quantity(part, figure.unit) for part in parts]
    return (name, *shown, *[""] * (4 - len(shown)), f"{figure.n:,}")


def markdown(headings: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table as Markdown."""
    heads = list(headings)
    rows = [heads, ["---"] * len(heads), *(list(line) for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
