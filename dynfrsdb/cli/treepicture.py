"""A tree as one SVG file: no script, no font, nothing from a network.

Leaves of what is drawn stand side by side, every split over the middle of its children. The lines between them are as
wide as the samples that go there are many; the strip at the foot of a box shows how its samples divide into classes, or
where its mean lies between the least and the greatest of the means shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dynfrsdb.cli.charts import safe
from dynfrsdb.cli.trees import in_leaf

COLOURS = ("#3b6fb6", "#e08a1e", "#3c9d6b", "#b8486b", "#7d5fb2", "#2f9db3", "#9a7b2f", "#8a8f98")
"""Of classes, told apart by people who do not see all colours; the last is for all others."""
_WIDE, _HIGH = 194, 66
_ACROSS, _DOWN = 210, 118
_TOP, _SIDE = 76, 24
_LETTERS = 24
"""Of a name, so that it fits a box in usual fonts."""

_STYLE = """
  svg { --ink: #1d2330; --quiet: #667085; --paper: #ffffff; --box: #f7f8fa; --line: #c4c9d2; --tag: #fff4d6;
        --tagline: #d69a00; --leaf: #2f8f5b; background: var(--paper); font: 12px system-ui, sans-serif; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e8eaf0; --quiet: #9aa3b2; --paper: #14171d; --box: #1d222b; --line: #485162; --tag: #3a3015;
          --tagline: #d8a72c; --leaf: #5fc08c; } }
  text { fill: var(--ink); }
  .quiet { fill: var(--quiet); }
  .title { font-size: 16px; font-weight: 600; }
  .name { font-weight: 600; }
  .box { fill: var(--box); stroke: var(--line); }
  .leaf .box { stroke: var(--leaf); }
  .tag .box { fill: var(--tag); stroke: var(--tagline); stroke-dasharray: 5 3; }
  .edge { fill: none; stroke: var(--line); stroke-linecap: round; }
"""


@dataclass
class _Placed:
    """A node and where its box stands: the middle of its upper edge."""

    node: dict[str, Any]
    depth: int
    x: float = 0.0
    below: list[_Placed] = field(default_factory=list)

    @property
    def y(self) -> float:
        return _TOP + self.depth * _DOWN

    def all(self) -> Iterator[_Placed]:
        yield self
        for child in self.below:
            yield from child.all()


def picture(found: dict[str, Any], store: str) -> str:
    """The SVG of what `dynfrsdb tree --json` prints."""
    root, leaves = _place(found["root"], 0, 0)
    everything = list(root.all())
    width = max(2 * _SIDE + leaves * _ACROSS, 560)
    height = max(each.y for each in everything) + _HIGH + 40
    for each in everything:
        each.x += (width - leaves * _ACROSS) / 2
    means = [each.node["mean"] for each in everything if each.node.get("mean") is not None]
    strip = _Classes(found["classes"]) if found["classes"] else _Means(means)
    title = safe(f"tree {found['tree']} of {store}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{title}">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{_SIDE}" y="32">{title}</text>',
        f'<text class="quiet" x="{_SIDE}" y="52">{found["samples"]:,} samples{strip.legend()}</text>',
        *(_edge(each, child, root) for each in everything for child in each.below),
        *(_box(each, found["classes"], strip) for each in everything),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _place(node: dict[str, Any], depth: int, leaves: int) -> tuple[_Placed, int]:
    """A node with all below it, the first leaf in column `leaves`; and the column behind the last."""
    placed = _Placed(node, depth)
    for side in ("left", "right"):
        if side in node:
            child, leaves = _place(node[side], depth + 1, leaves)
            placed.below.append(child)
    if placed.below:
        placed.x = sum(child.x for child in placed.below) / len(placed.below)
        return placed, leaves
    placed.x = (leaves + 0.5) * _ACROSS
    return placed, leaves + 1


def _edge(above: _Placed, child: _Placed, root: _Placed) -> str:
    start, end = above.y + _HIGH, child.y
    middle = (start + end) / 2
    wide = 1 + 9 * math.sqrt(child.node["samples"] / max(1, root.node["samples"]))
    right = child is above.below[-1]
    label_x = (above.x + child.x) / 2 + (10 if right else -10)
    return (
        f'<path class="edge" stroke-width="{wide:.1f}" d="M{above.x:g} {start:g} C{above.x:g} {middle:g} '
        f'{child.x:g} {middle:g} {child.x:g} {end:g}"/>'
        f'<text class="quiet" x="{label_x:g}" y="{middle - 8:g}" text-anchor="{"start" if right else "end"}">'
        f"{'&gt;' if right else '&#8804;'}</text>"
    )


def _box(placed: _Placed, classes: list[Any] | None, strip: _Classes | _Means) -> str:
    node, left = placed.node, placed.x - _WIDE / 2
    if node["kind"] == "tag":
        name = whole = "tag"
        what = "grown when needed"
    else:
        name = whole = "leaf"
        what = in_leaf(node, classes, most=2)
        if node["kind"] == "split":
            whole = f"{node['feature']} \u2264 {node['threshold']}"
            threshold = f" \u2264 {node['threshold']:.5g}"
            name = _short(node["feature"], _LETTERS - len(threshold)) + threshold
    hint = safe(f"{node['path']}\n{whole}\n{node['samples']:,} samples\n{what}")
    lines = [
        f'<g class="{node["kind"]}"><title>{hint}</title>',
        f'<rect class="box" x="{left:g}" y="{placed.y:g}" width="{_WIDE}" height="{_HIGH}" rx="7"/>',
        _line("name", placed.x, placed.y + 19, name),
        _line("quiet", placed.x, placed.y + 35, f"{node['samples']:,} samples"),
        _line("quiet", placed.x, placed.y + 50, _short(what, _LETTERS + 4)),
        strip.of(node, left + 8, placed.y + _HIGH - 11, _WIDE - 16),
        _line("quiet", placed.x, placed.y + _HIGH + 16, "\u22ef") if "more" in node else "",
        "</g>",
    ]
    return "".join(lines)


def _line(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="middle">{safe(text)}</text>'


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"


class _Classes:
    """The strip of a classification: one piece per class, as long as its share."""

    def __init__(self, classes: list[Any]) -> None:
        self._classes = classes

    def legend(self) -> str:
        shown = len(COLOURS) - 1
        names = [_short(str(label), 20) for label in self._classes[:shown]]
        if len(self._classes) > shown:
            names.append(f"{len(self._classes) - shown} more")
        return "".join(
            f'<tspan dx="14" style="fill:{colour}">&#9632;</tspan><tspan dx="4">{safe(name)}</tspan>'
            for colour, name in zip(COLOURS, names, strict=False)
        )

    def of(self, node: dict[str, Any], x: float, y: float, width: float) -> str:
        if "counts" not in node or not node["samples"]:
            return ""
        parts = []
        for i, count in enumerate(node["counts"]):
            if count:
                wide = width * count / node["samples"]
                colour = COLOURS[min(i, len(COLOURS) - 1)]
                parts.append(f'<rect x="{x:.1f}" y="{y:g}" width="{wide:.1f}" height="5" fill="{colour}"/>')
                x += wide
        return "".join(parts)


class _Means:
    """The strip of a regression: a dot on a line from the least to the greatest mean."""

    def __init__(self, means: list[float]) -> None:
        self._low, self._high = min(means, default=0.0), max(means, default=0.0)

    def legend(self) -> str:
        return f'<tspan dx="14">means from {self._low:.6g} to {self._high:.6g}</tspan>'

    def of(self, node: dict[str, Any], x: float, y: float, width: float) -> str:
        if node.get("mean") is None:
            return ""
        span = self._high - self._low
        at = x + 3 + (width - 6) * ((node["mean"] - self._low) / span if span else 0.5)
        return (
            f'<rect class="box" x="{x:g}" y="{y + 1:g}" width="{width:g}" height="3"/>'
            f'<circle cx="{at:.1f}" cy="{y + 2.5:g}" r="3.5" fill="{COLOURS[0]}"/>'
        )
