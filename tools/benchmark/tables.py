"""The tables of the document, each from the figures that it needs; a set that lacks them is left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmark.data import PLANS
from benchmark.figures import Figure
from benchmark.parts import PARTS
from benchmark.report import TARGETS, cells, markdown, partner, quantity, times
from benchmark.results import Results
from benchmark.targets import SCALE, Row, scale_rows

SIZES = ("1", "10", "100", "0.1%", "1%")
POLICIES = ("auto", "lazy")
INSIDE = "removal, before commit"
TREE_PAGES = ("pages of nodes", "pages of buckets")


def targets(rows: Iterable[Row]) -> str:
    """Rows with their targets."""
    return markdown(TARGETS, map(cells, rows))


def ratios(results: Results, names: Sequence[str]) -> str:
    """Several sets side by side, ratios only, or plain numbers where there is no partner."""
    found = {name: {row.key: row for row in results.rows(name)} for name in names}
    keys = {(key, partner(row)): row for rows in found.values() for key, row in rows.items()}
    lines = []
    for (key, its), any_row in keys.items():
        rows = [row if row is not None and partner(row) == its else None for row in (found[n].get(key) for n in names)]
        lines.append([any_row.what, its, *map(short, rows)])
    return markdown(["what", "partner", *names], lines)


def short(row: Row | None) -> str:
    """A row as one number."""
    if row is None:
        return ""
    return times(row.ratio) if row.ratio is not None else quantity(row.ours, row.unit)


def sets(results: Results) -> str:
    """The sets and their settings."""
    return markdown(("set", "samples, features, settings"), ((name, one.words) for name, one in results.sets.items()))


def building(results: Results) -> str:
    """Building, with one thread and with two, beside scikit-learn."""
    heads = (
        "set",
        "build",
        "two threads",
        "faster by",
        "growing alone: faster by",
        "retrain",
        "of the retrain",
        "scikit-learn's random forest",
        "n",
    )
    lines = []
    for name, one in results.sets.items():
        ours, retrain = one.figures.get("build"), one.figures.get("retrain")
        if ours is not None and retrain is not None:
            alone = [one.figures.get(f"growing alone{more}") for more in ("", ", two threads")]
            double, forest = (one.figures.get(key) for key in ("build, two threads", "random forest, training"))
            faster = [_ratio(ours, double), _ratio(*alone)]
            share = times(ours.median / retrain.median)
            lines.append((name, _p(ours), _p(double), *faster, _p(retrain), share, _p(forest), f"{ours.n:,}"))
    return markdown(heads, lines)


def _p(figure: Figure | None, part: str = "median") -> str:
    return "" if figure is None else quantity(getattr(figure, part), figure.unit)


def _ratio(one: Figure | None, other: Figure | None) -> str:
    return "" if one is None or other is None else times(one.median / other.median)


def spent(results: Results) -> str:
    """What of a durable removal is spent where, medians."""
    heads = ("set", "policy", "whole", *PARTS, "the rest: Python", "whole without that, of bare LMDB")
    lines = []
    for name, one in results.sets.items():
        for policy in POLICIES:
            key = f"removal, {policy}"
            whole, bare, *parts = (
                one.figures.get(key + more) for more in ("", ": bare LMDB", *(f": {p}" for p in PARTS))
            )
            if whole is not None and bare is not None and all(parts):
                rest = max(0.0, whole.median - sum(part.median for part in parts if part is not None))
                floor = times((whole.median - rest) / bare.median)
                lines.append((name, policy, _p(whole), *map(_p, parts), quantity(rest, "s"), floor))
    return markdown(heads, lines)


def removal(results: Results) -> str:
    """One durable removal beside bare LMDB, with its tail."""
    heads = (
        "set",
        "policy",
        "p50",
        "p99",
        "bare LMDB, p50",
        "p99",
        "ratio of p50",
        "n",
        "p99 of the tail",
        "p99.9",
        "n",
    )
    lines = []
    for name, one in results.sets.items():
        for policy in POLICIES:
            key = f"removal, {policy}"
            ours, bare, tail = (one.figures.get(key + more) for more in ("", ": bare LMDB", ": tail"))
            if ours is not None and bare is not None:
                last = (_p(tail, "p99"), _p(tail, "p999"), f"{tail.n:,}" if tail else "")
                middle = (_p(ours), _p(ours, "p99"), _p(bare), _p(bare, "p99"), times(ours.median / bare.median))
                lines.append((name, policy, *middle, f"{ours.n:,}", *last))
    return markdown(heads, lines)


def pages(results: Results) -> str:
    """Records and pages of one durable removal, means."""
    heads = ("set", "policy", "records written", "of trees", "loaded, cold", "pages of nodes", "of buckets", "others")
    lines = []
    for name, one in results.sets.items():
        for policy in POLICIES:
            part = {
                key.partition(": ")[2]: figure.mean
                for key, figure in one.figures.items()
                if key.startswith(f"removal, {policy}: ")
            }
            if "records written" in part:
                trees = sum(part.get(which, 0.0) for which in TREE_PAGES)
                values = [part["records written"], part["tree records written"], part["records loaded, cold"]]
                values += [part.get(which, 0.0) for which in TREE_PAGES] + [part["pages of LMDB"] - trees]
                values += [part["tree pages per tree"], part["pages by the I/O counter"], part["calls"]]
                lines.append((name, policy, *(quantity(value) for value in values)))
    return markdown([*heads, "tree pages per touched tree", "by the I/O counter", "Python's calls"], lines)


def inside(results: Results) -> str:
    """One removal before its commit."""
    heads = (
        "set",
        "mean",
        "p50",
        "p99",
        "of the retrain, mean",
        "n",
        "kernels alone, mean",
        "of the retrain",
        "the C++, elsewhere",
        "ten that walk together, each",
        "of the retrain",
        "a hundred in a row, each",
        "of the retrain",
    )
    lines = []
    for name, one in results.sets.items():
        ours, retrain = one.figures.get("removal, before commit"), one.figures.get("retrain")
        kernels, together = (one.figures.get(f"removal, before commit: {what}") for what in ("kernels", "together"))
        if ours is not None and kernels is not None and together is not None and retrain is not None:
            ratios = [times(figure.mean / retrain.median) for figure in (ours, kernels, together)]
            first = (_p(ours, "mean"), _p(ours), _p(ours, "p99"), ratios[0], f"{ours.n:,}")
            aims = PLANS[name].aims
            cpp = "" if aims is None else times(aims.removal)
            middle = (_p(kernels, "mean"), ratios[1], cpp, _p(together, "mean"), ratios[2])
            row = one.figures.get(f"{INSIDE}: in a row")
            last = (_p(row, "mean"), "" if row is None else times(row.mean / retrain.median))
            lines.append((name, *first, *middle, *last))
    return markdown(heads, lines)


BESIDE_CPP = (
    ("build, durable", "build", "median", "build", "build"),
    ("one removal in an open transaction, in a row, mean", f"{INSIDE}: in a row", "mean", "removal, lazy", "lazy"),
    ("the kernels of one, after predictions, mean", f"{INSIDE}: kernels", "mean", "removal, lazy", "lazy"),
    ("one removal that leaves nothing for later", "", "mean", "removal, eager", "eager"),
    ("100 removed, durable", "batch of 100, lazy", "median", "batch of 100", "hundred"),
    ("1% removed, durable", "batch of 1%, lazy", "median", "batch of 1%", "percent"),
    ("store size, and its memory", "store size", "median", "memory", "memory"),
)
"""What, our figure and which part of it, the figure of the C++, and the name of what it was elsewhere."""


def beside_cpp(results: Results) -> str:
    """The C++ as it was measured, beside ours and beside its figures from elsewhere."""
    heads = ("set", "what", "ours", "the C++", "n", "ratio", "the C++, of the retrain", "elsewhere")
    lines = []
    for name, one in results.sets.items():
        for what, key, part, its_key, constant in BESIDE_CPP:
            ours, its = one.figures.get(key), one.figures.get(f"the C++: {its_key}")
            if its is not None:
                shown = _p(its, "mean") if its.mean else "under 1 ms"
                ratio = times(getattr(ours, part) / its.mean) if ours is not None and its.mean else ""
                shares = _of_the_retrain(name, its, one.figures.get("retrain"), constant)
                lines.append((name, what, _p(ours, part), shown, f"{its.n:,}", ratio, *shares))
    return markdown(heads, lines)


def _of_the_retrain(name: str, its: Figure, retrain: Figure | None, constant: str) -> tuple[str, str]:
    """What the C++ takes, as a share of the retrain: in this run, and elsewhere; bytes as they are."""
    cpp = PLANS[name].cpp
    elsewhere = None if cpp is None else float(getattr(cpp, constant))
    if its.unit == "B":
        return "", quantity(elsewhere, its.unit)
    return times(its.mean / retrain.median) if retrain is not None and its.mean else "", times(elsewhere)


def batch(results: Results) -> str:
    """Many removals in one transaction."""
    heads = ("set", "removed", "records", "to commit", "bare LMDB", "of the retrain", "with settling", "of the retrain")
    lines = []
    for name, one in results.sets.items():
        retrain = one.figures.get("retrain")
        for words in SIZES:
            key = f"batch of {words}, lazy"
            if key in one.figures and retrain is not None:
                ours, bare, all_of_it, records = (
                    one.figures[key + more] for more in ("", ": bare LMDB", ": with settling", ": records")
                )
                shares = [times(figure.median / retrain.median) for figure in (ours, all_of_it)]
                lines.append((name, words, _p(records), _p(ours), _p(bare), shares[0], _p(all_of_it), shares[1]))
    return markdown(heads, lines)


def sequence(results: Results) -> str:
    """Many removals, one after the other."""
    heads = ["set", "removed"]
    for policy in POLICIES:
        heads += [f"{policy}: to commit", "of the retrain", "with settling", "of the retrain"]
    lines = []
    for name, one in results.sets.items():
        retrain = one.figures.get("retrain")
        for words in SIZES:
            found = [
                one.figures.get(f"sequence of {words}, {policy}{more}")
                for policy in POLICIES
                for more in ("", ": with settling")
            ]
            line = [name, words]
            for figure in found:
                if figure is not None and retrain is not None:
                    line += [_p(figure), times(figure.median / retrain.median)]
            if len(line) == len(heads):
                lines.append(line)
    return markdown(heads, lines)


def queries(results: Results) -> str:
    """One row and many rows."""
    heads = (
        "set",
        "one row, p50",
        "p99",
        "n",
        "scikit-learn, p50",
        "ratio",
        "rows per second",
        "scikit-learn",
        "ratio",
    )
    lines = []
    for name, one in results.sets.items():
        found = [
            one.figures.get(key) for key in ("query", "query: scikit-learn", "prediction", "prediction: scikit-learn")
        ]
        ours, theirs, many, their_many = found
        line = [name, *[""] * 8]
        if ours is not None and theirs is not None:
            line[1:6] = _p(ours), _p(ours, "p99"), f"{ours.n:,}", _p(theirs), times(ours.median / theirs.median)
        if many is not None and their_many is not None:
            line[6:9] = quantity(many.median), quantity(their_many.median), times(many.median / their_many.median)
        if any(line[1:]):
            lines.append(line)
    return markdown(heads, lines)


def stream(results: Results) -> str:
    """Streams of changes and queries."""
    heads = ("set", "stream", "policy", "add, p50", "plain", "remove, p50", "plain", "query, mean", "p50", "p99")
    lines: list[tuple[str, ...]] = []
    for name, one in results.sets.items():
        for mix in ("1:1:2", "1:1:200"):
            for policy in POLICIES:
                add, remove, query = (
                    one.figures.get(f"stream {mix}, {policy}: {w}") for w in ("add", "remove", "query")
                )
                if query is not None:
                    plain = one.figures.get(f"addition, {policy}: alone"), one.figures.get(f"removal, {policy}: alone")
                    changes = (_p(add), _p(plain[0]), _p(remove), _p(plain[1]))
                    lines.append((name, mix, policy, *changes, _p(query, "mean"), _p(query), _p(query, "p99")))
    return markdown((*heads, "mean, of the retrain"), _with_share(results, lines))


def _with_share(results: Results, lines: list[tuple[str, ...]]) -> Iterable[tuple[str, ...]]:
    for line in lines:
        figures = results.sets[line[0]].figures
        retrain, query = figures.get("retrain"), figures[f"stream {line[1]}, {line[2]}: query"]
        yield (*line, "" if retrain is None else times(query.mean / retrain.median))


def readers(results: Results) -> str:
    """Queries beside a writer."""
    heads = ("set", "writer", "p50", "p99", "p99.9", "slowest", "n")
    words = {"no writer": "none", "auto": "auto", "lazy": "lazy"}
    lines = []
    for name, one in results.sets.items():
        for key, writer in words.items():
            figure = one.figures.get(f"readers: {key}")
            if figure is not None:
                parts = [_p(figure, part) for part in ("median", "p99", "p999", "most")]
                lines.append((name, writer, *parts, f"{figure.n:,}"))
    return markdown(heads, lines)


def processes(results: Results) -> str:
    """Memory, opening and starting."""
    wanted = {
        "store size": "store size",
        "store size after removals, lazy": "store size after the removals of the tail, lazy",
        "memory": "memory of 100 removals and 100 queries",
        "memory of a build": "memory of a build",
        "open, cached": "open, cached",
        "open, cold": "open, cold",
        "first query, cached": "first query, cached",
        "first query, cold": "first query, cold",
        "loading the kernels for a query": "loading the kernels for a query",
        "process: start, open, first query": "process: start, open, first query",
        "process: --help": "process: --help",
        "process: info": "process: info",
        "process: ledger": "process: ledger",
        "process: an interpreter": "process: an interpreter that does nothing",
    }
    figures = {name: one.figures for name, one in results.sets.items()}
    lines = [
        [words, *(_p(found.get(key)) for found in figures.values())]
        for key, words in wanted.items()
        if any(key in found for found in figures.values())
    ]
    return markdown(["median", *figures], lines)


def scale(results: Results) -> str:
    """Every figure of the large run, by number of samples."""
    sizes = sorted(results.scale)
    names = dict.fromkeys(name for size in sizes for name in results.scale[size])
    lines = []
    for name in names:
        found = [results.scale[size].get(name) for size in sizes]
        lines.append([name if name != "removal" else "removal, p50", *map(_p, found)])
        if name in ("removal", "query after a removal"):
            lines.append([f"{name}, p99", *(_p(figure, "p99") for figure in found)])
    return markdown(["", *(f"{size:,}" for size in sizes)], lines)


def scale_targets(results: Results) -> str:
    """The limits of the large run, by number of samples."""
    sizes = sorted(results.scale)
    found = {size: {row.key: row for row in scale_rows("", results.scale[size])} for size in sizes}
    lines = []
    for key, (what, _, limit) in SCALE.items():
        rows = [found[size].get(key) for size in sizes]
        unit = next((row.unit for row in rows if row is not None), "")
        marks = [f"{short(row)}{'' if row.met else ' (missed)'}" if row is not None else "" for row in rows]
        lines.append([what, quantity(limit, unit), *marks])
    return markdown(["what", "at most", *(f"{size:,}" for size in sizes)], lines)
