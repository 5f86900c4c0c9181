"""Two small charts as SVG, for a page that needs no network: bars, and a line that goes in steps.

Marks carry a <title>, which browsers show when the pointer rests on them. Colours are names that the page defines, for
day and for night.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from dynfrsdb.cli.output import printable

_WIDTH, _HEIGHT = 760, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 12, 30
_MOST_BARS, _MOST_STEPS = 200, 1_000


@dataclass(frozen=True)
class Bar:
    """One bar: its height, what the axis calls it, and what it says when asked."""

    value: float
    label: str
    says: str


@dataclass(frozen=True)
class Step:
    """One step of a line: from x on the line is at y."""

    x: float
    y: float
    says: str


def safe(text: object) -> str:
    """Text as it may stand in HTML and SVG."""
    return escape(printable(text))


def bars(values: Sequence[Bar], unit: Callable[[float], str], top: float | None = None) -> str:
    """A bar chart; `top` fixes the upper end of the axis."""
    values = _gathered(values)
    ticks = _ticks(0.0, top if top is not None else max((bar.value for bar in values), default=0.0))
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(values))
    gap = 2 if step > 6 else 0.5
    marks = []
    for i, bar in enumerate(values):
        y = _y(bar.value, ticks)
        height = _HEIGHT - _BOTTOM - y
        marks.append(
            f'<rect class="bar" x="{_LEFT + i * step + gap / 2:.2f}" y="{y:.2f}" width="{step - gap:.2f}" '
            f'height="{height:.2f}" rx="{min(2.0, step / 4):.1f}"><title>{safe(bar.says)}</title></rect>'
        )
    every = max(1, math.ceil(len(values) / 10))
    labels = [
        _text(_LEFT + (i + 0.5) * step, _HEIGHT - 10, bar.label, "middle")
        for i, bar in enumerate(values)
        if i % every == 0
    ]
    return _chart([*_axis(ticks, unit), *marks, *labels])


def steps(values: Sequence[Step], unit: Callable[[float], str], name: Callable[[float], str]) -> str:
    """A line that keeps its height until the next step."""
    values = _thinned(values)
    heights = [step.y for step in values] or [0.0]
    ticks = _ticks(min(heights) if min(heights) > max(heights) / 2 else 0.0, max(heights))
    first, last = (values[0].x, values[-1].x) if values else (0.0, 0.0)

    def across(x: float) -> float:
        share = (x - first) / (last - first) if last > first else 0.5
        return _LEFT + 6 + share * (_WIDTH - _LEFT - _RIGHT - 12)

    points, marks = [], []
    for i, step in enumerate(values):
        x, y = across(step.x), _y(step.y, ticks)
        points.append(f"M{x:.1f} {y:.1f}" if not i else f"H{x:.1f}V{y:.1f}")
        marks.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{safe(step.says)}</title></circle>')
    where = [first + (last - first) * i / 4 for i in range(5)] if last > first else [first]
    labels = [_text(across(x), _HEIGHT - 10, name(x), "middle") for x in where if values]
    if len(where) > 1:
        labels[0] = _text(_LEFT, _HEIGHT - 10, name(where[0]), "start")
        labels[-1] = _text(_WIDTH - _RIGHT, _HEIGHT - 10, name(where[-1]), "end")
    return _chart([*_axis(ticks, unit), f'<path class="line" d="{"".join(points)}"/>', *marks, *labels])


def _chart(parts: list[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _axis(ticks: list[float], unit: Callable[[float], str]) -> list[str]:
    return [
        f'<path class="grid" d="M{_LEFT} {_y(tick, ticks):.1f}H{_WIDTH - _RIGHT}"/>'
        + _text(_LEFT - 8, _y(tick, ticks) + 4, unit(tick), "end")
        for tick in ticks
    ]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{safe(text)}</text>'


def _y(value: float, ticks: list[float]) -> float:
    share = (value - ticks[0]) / (ticks[-1] - ticks[0])
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers around low and high, about four steps; a step is 1, 2 or 5 times a power of ten."""
    raw = (high - low or max(1.0, high)) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def _gathered(values: Sequence[Bar]) -> Sequence[Bar]:
    """At most 200 bars; more are drawn as the means of neighbours."""
    size = math.ceil(len(values) / _MOST_BARS)
    if size <= 1:
        return values
    groups = [values[i : i + size] for i in range(0, len(values), size)]
    return [
        Bar(
            sum(bar.value for bar in group) / len(group),
            group[0].label,
            f"{group[0].label} to {group[-1].label}, the mean of {len(group)}",
        )
        for group in groups
    ]


def _thinned(values: Sequence[Step]) -> Sequence[Step]:
    """At most 1,000 steps and the last one."""
    size = math.ceil(len(values) / _MOST_STEPS)
    return values if size <= 1 else [*values[:-1:size], values[-1]]
