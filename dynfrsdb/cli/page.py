"""`info --html`: a store on one page, with nothing from a network and no script.

How large each tree is, how much of each is tagged, how many samples lived when; then readers, settings, and the last
changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from dynfrsdb.cli.charts import Bar, Step, bars, safe, steps
from dynfrsdb.cli.output import in_short
from dynfrsdb.inside.size import TreeSize, tree_sizes
from dynfrsdb.inside.store import Inside, ledger
from dynfrsdb.receipt import Receipt

_LAST = 25
_PAGE_BYTES = 4096

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --quiet: #667085; --paper: #ffffff; --card: #f6f7f9; --line: #e3e6eb;
        --blue: #3b6fb6; --amber: #d69a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaf0; --quiet: #9aa3b2; --paper: #14171d; --card: #1c2129;
        --line: #2e3541; --blue: #6f9fe0; --amber: #d8a72c; } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 880px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 40px 0 4px; }
p { margin: 4px 0 12px; color: var(--quiet); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 10px; margin: 22px 0; }
.tile { background: var(--card); border-radius: 10px; padding: 10px 14px; }
.tile b { display: block; font-size: 21px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--quiet); font-size: 13px; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--quiet); font-size: 11px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--line); }
.bar { fill: var(--blue); } .tags .bar { fill: var(--amber); }
.bar:hover, .dot:hover { opacity: .7; }
.line { fill: none; stroke: var(--blue); stroke-width: 2; } .dot { fill: var(--blue); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--quiet); font-weight: 500; white-space: nowrap; }
td { overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
"""


def page(inside: Inside, about: dict[str, Any]) -> str:
    """The page of one commit; `about` is what `dynfrsdb info` prints."""
    sizes, receipts = tree_sizes(inside), ledger(inside.snapshot)
    name = safe(inside.store.path.name)
    body = [
        f"<h1>{name}</h1>",
        f"<p>commit {about['commit']:,}, {safe(about['task'])}, {safe(_drawn())}</p>",
        _tiles(about, sizes),
        *_tree_charts(sizes),
        *_ledger_chart([each for each in receipts if each.added or each.removed or each.kind == "create"]),
        "<h2>Readers</h2>",
        _readers(about["readers"]),
        "<h2>Last changes</h2>",
        _changes(receipts[: -_LAST - 1 : -1]),
        "<h2>Settings</h2>",
        f"<p>Taken from data at creation: {safe(in_short(about['taken_from_data']))}</p>",
        _table(None, ([field.replace("_", " "), in_short(value)] for field, value in about["settings"].items())),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n" + "\n".join(body) + "\n"
        "</main>\n</body>\n</html>\n"
    )


def _drawn() -> str:
    return f"drawn {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def _tiles(about: dict[str, Any], sizes: list[TreeSize]) -> str:
    places = sum(size.samples for size in sizes)
    tagged = sum(size.tagged_samples for size in sizes) / places if places else 0.0
    values = {
        "samples": f"{about['samples']:,}",
        "people": f"{about['subjects']:,}",
        "trees": f"{about['trees']:,}",
        "nodes": f"{about['nodes']:,}",
        "buckets": f"{sum(size.buckets for size in sizes):,}",
        "tags": f"{about['tags']:,}",
        "of samples' places tagged": f"{tagged:.1%}",
        "changes": f"{about['changes']:,}",
        "on disk": _bytes(sum(about["files"].values())),
        "free inside the file": _bytes(about["free_pages"] * _PAGE_BYTES),
        "rows waiting to be erased": f"{about['pending_erasures']:,}",
    }
    tiles = (f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for name, value in values.items())
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _tree_charts(sizes: list[TreeSize]) -> list[str]:
    large = [
        Bar(
            size.bytes,
            str(size.tree),
            f"tree {size.tree}: {size.bytes:,} bytes, {size.samples:,} samples, {size.nodes:,} nodes, "
            f"{size.buckets:,} buckets",
        )
        for size in sizes
    ]
    shares = [size.tagged_samples / size.samples if size.samples else 0.0 for size in sizes]
    tagged = [
        Bar(
            share,
            str(size.tree),
            f"tree {size.tree}: {share:.1%} of its {size.samples:,} samples are below {size.tags:,} tags",
        )
        for size, share in zip(sizes, shares, strict=True)
    ]
    return [
        "<h2>Size of each tree</h2>",
        "<p>Bytes of all records of a tree, by its number.</p>",
        bars(large, _bytes),
        "<h2>Tagged part of each tree</h2>",
        "<p>The share of a tree's samples that lie below a tag: void, and grown again when a query comes by.</p>",
        f'<div class="tags">{bars(tagged, lambda share: f"{share:.0%}", top=1.0)}</div>',
    ]


def _ledger_chart(receipts: list[Receipt]) -> list[str]:
    times = [datetime.fromisoformat(receipt.time).timestamp() for receipt in receipts]
    by_time = len(times) > 1 and times[-1] - times[0] >= 1
    where = times if by_time else [float(receipt.sequence) for receipt in receipts]
    line = [
        Step(
            x,
            receipt.samples,
            f"change {receipt.sequence}, {receipt.time}: {receipt.added:,} added, {receipt.removed:,} removed, "
            f"{receipt.samples:,} live",
        )
        for x, receipt in zip(where, receipts, strict=True)
    ]
    span = times[-1] - times[0] if times else 0.0
    return [
        "<h2>Ledger</h2>",
        f"<p>Live samples after each change, by {'time' if by_time else 'number of the change'}.</p>",
        steps(line, lambda y: f"{y:,.0f}", lambda x: _clock(x, span) if by_time else f"{x:g}"),
    ]


def _readers(readers: list[dict[str, Any]]) -> str:
    if not readers:
        return "<p>Nobody was looking.</p>"
    lines = ([str(each["pid"]), f"{each['lag']:,}", f"{each['age']:.0f} s"] for each in readers)
    return _table(("process", "commits behind", "for"), lines)


def _changes(receipts: Sequence[Receipt]) -> str:
    columns = ("change", "time", "kind", "added", "removed", "samples", "trees", "hash")
    lines = (
        [
            f"{each.sequence:,}",
            each.time[:19].replace("T", " "),
            each.kind,
            *(f"{count:,}" for count in (each.added, each.removed, each.samples, each.trees)),
            each.hash[:12],
        ]
        for each in receipts
    )
    return _table(columns, lines)


def _table(columns: Sequence[str] | None, lines: Iterable[Sequence[str]]) -> str:
    head = "<tr>" + "".join(f"<th>{safe(name)}</th>" for name in columns) + "</tr>" if columns else ""
    rows = []
    for line in lines:
        first = "th" if columns is None else "td"
        cells = [f"<{first}>{safe(line[0])}</{first}>", *(f"<td>{safe(cell)}</td>" for cell in line[1:])]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if size >= 100 or size == int(size) else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("the last unit takes all")


def _clock(seconds: float, span: float) -> str:
    """A time on an axis as long as `span` seconds."""
    when = datetime.fromtimestamp(seconds, UTC)
    if span < 120:
        return f"{when:%H:%M:%S}"
    return f"{when:%H:%M}" if span < 86_400 else f"{when:%Y-%m-%d}"
