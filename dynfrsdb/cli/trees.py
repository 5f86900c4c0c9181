"""Verbs that look at trees: tree, node, importances. They never import the engine.

A node is named by its tree and the way down to it: L and R for the steps, a dot for the root. An error that names a
node by its number (0b101) can be followed with that number.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dynfrsdb.cli import options
from dynfrsdb.cli.output import Form, emit, emit_rows, note, printable, progress, properties, rows

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.tree import Tree as Drawing

    from dynfrsdb.inside.importance import Importances
    from dynfrsdb.inside.nodes import Node, Trees
    from dynfrsdb.inside.store import Inside

_TREE = click.IntRange(0, 65_534)
_BAR = 40


def _path(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """A way down from the root, as a number: the root is 1, children of v are 2v and 2v+1."""
    from dynfrsdb.inside.nodes import parse_path

    try:
        return parse_path(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command()
@options.store
@click.argument("tree", type=_TREE)
@click.option(
    "--depth", type=click.IntRange(0, 56), default=4, show_default=True, metavar="N", help="Levels below the root."
)
@click.option("--svg", type=options.FILE, metavar="FILE", help="Write a picture for a browser instead.")
@options.as_json
def tree(store: Path, tree: int, depth: int, svg: Path | None, as_json: bool) -> None:
    """One tree: its splits, counts and tags.

    Trees are numbered from 0.
    """
    from dynfrsdb.inside.store import look

    found = look(store, lambda inside: _tree(inside, tree, depth))
    if svg is not None:
        from dynfrsdb.cli.treepicture import picture

        svg.write_text(picture(found, store.name), encoding="utf-8")
        emit({"svg": str(svg)}, lambda: f"wrote '{svg}'", as_json)
        return
    emit(found, lambda: _tree_drawing(found), as_json)


def _tree(inside: Inside, tree: int, depth: int) -> dict[str, Any]:
    trees, settings = inside.trees, inside.settings
    root = trees.root(tree)
    return {
        "tree": tree,
        "samples": root.n,
        "classes": list(settings.classes) or None,
        "root": _subtree(trees, root, depth),
    }


def _subtree(trees: Trees, node: Node, depth: int) -> dict[str, Any]:
    """A node as plain values with its children, down to some depth; `more` says that it goes on below."""
    from dynfrsdb.inside.nodes import described

    found = described(trees.settings, node)
    if node.kind == "split" and depth:
        left, right = trees.children(node)
        found |= {"left": _subtree(trees, left, depth - 1), "right": _subtree(trees, right, depth - 1)}
    elif node.kind == "split":
        found["more"] = True
    return found


def _tree_drawing(found: dict[str, Any]) -> RenderableType:
    from rich.tree import Tree

    drawing = Tree(_label(found["root"], found["classes"]), guide_style="dim")
    _hang(drawing, found["root"], found["classes"])
    return drawing


def _hang(drawing: Drawing, node: dict[str, Any], classes: list[Any] | None) -> None:
    for side in ("left", "right"):
        if side in node:
            _hang(drawing.add(_label(node[side], classes)), node[side], classes)


def _label(node: dict[str, Any], classes: list[Any] | None) -> RenderableType:
    from rich.text import Text

    step = "" if node["path"] == "." else f"{node['path'][-1]}  "
    if node["kind"] == "tag":
        return Text(f"{step}TAG, {node['samples']:,} samples, grown when needed", style="yellow")
    what = f"{node['feature']} <= {node['threshold']}" if node["kind"] == "split" else "leaf"
    text = Text(step + printable(what), style="" if node["kind"] == "split" else "green")
    text.append(f"   n={node['samples']:,}   {printable(in_leaf(node, classes))}", style="dim")
    return text.append("  ...", style="dim") if "more" in node else text


def in_leaf(node: dict[str, Any], classes: list[Any] | None, most: int = 3) -> str:
    """What the samples of a node are: their commonest classes, or the mean of their targets."""
    if classes is None:
        return "-" if node["mean"] is None else f"mean: {node['mean']:.6g}"
    counts = sorted(((count, label) for label, count in zip(classes, node["counts"], strict=True) if count), key=_first)
    shown = ", ".join(f"{label}: {count:,}" for count, label in counts[:most])
    return shown + (f", {len(counts) - most} more" if len(counts) > most else "")


def _first(pair: tuple[int, Any]) -> int:
    return -pair[0]


@click.command()
@options.store
@click.argument("tree", type=_TREE)
@click.argument("path", callback=_path)
@options.rows
def node(store: Path, tree: int, path: int, form: Form) -> None:
    """One node: what it considered, how close it was.

    Every candidate with its score, and the margin of the best over the runner-up: how near a removal is to changing
    the split.

    PATH is the way down from the root: L and R for the steps (LLR), a dot for the root. --csv prints all cuts of all
    candidates.
    """
    from dynfrsdb.inside.store import look

    found = look(store, lambda inside: _node(inside, tree, path))
    if form.csv:
        emit_rows([cut for each in found["candidates"] for cut in each["cuts"]], lambda: "", form)
        return
    emit(found, lambda: _node_drawing(found), form.json)


def _node(inside: Inside, tree: int, path: int) -> dict[str, Any]:
    from dynfrsdb.inside import candidates
    from dynfrsdb.inside.nodes import described

    trees, settings = inside.trees, inside.settings
    node = trees.find(tree, path)
    considered = candidates.considered(trees, node)
    return {
        "tree": tree,
        **described(settings, node),
        "depth": node.depth,
        "classes": list(settings.classes) or None,
        "criterion": settings.criterion,
        "better": "lower" if settings.n_classes else "higher",
        **candidates.judged(settings, considered),
        "candidates": [candidates.described_candidate(settings, each) for each in considered],
    }


def _node_drawing(found: dict[str, Any]) -> RenderableType:
    from rich.console import Group

    about = {name: value for name, value in found.items() if name not in ("candidates", "counts", "classes", "best")}
    if "counts" in found:
        about["counts"] = in_leaf(found, found["classes"], most=10)
    for name in ("runner_up", "margin"):
        if found.get(name) is not None:
            about[name] = f"{found[name]:.6g}" if name == "margin" else _cut(found[name])
    if not found["candidates"]:
        return properties(about)
    best = found["best"]["score"]
    lines = [
        [
            each["feature"],
            f"{each['low']} ({each['at_low']:,})",
            f"{each['high']} ({each['at_high']:,})",
            each["best"]["threshold"],
            each["best"]["left"],
            each["best"]["right"],
            f"{each['best']['score']:.6g}",
            f"{abs(each['best']['score'] - best):.6g}",
        ]
        for each in found["candidates"]
    ]
    columns = ("candidate", "least (samples)", "greatest", "best cut", "left", "right", "score", "behind by")
    return Group(properties(about), "", rows(columns, lines))


def _cut(cut: dict[str, Any]) -> str:
    return f"{cut['feature']} <= {cut['threshold']}, {cut['left']:,} left, {cut['right']:,} right"


@click.command()
@options.store
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the N largest.")
@options.rows
def importances(store: Path, top: int | None, form: Form) -> None:
    """How much each feature decides.

    This is the mean decrease in impurity; all add up to 1. Parts of trees that are tagged decide nothing yet and are
    left out; `settle` grows them.
    """
    from dynfrsdb.inside.importance import importances as read
    from dynfrsdb.inside.store import look

    def ask(inside: Inside) -> tuple[Importances, list[str]]:
        features = range(inside.settings.n_features)
        return read(inside.trees, show), [inside.settings.feature_name(feature) for feature in features]

    with progress() as show:
        found, names = look(store, ask)
    order = sorted(range(len(names)), key=lambda feature: -found.features[feature])[:top]
    records = [{"feature": names[feature], "importance": found.features[feature]} for feature in order]
    if found.tags:
        note(
            f"{found.tags:,} tagged parts with {found.tagged_share:.1%} of the samples are not counted; "
            f"run 'dynfrsdb settle {store}' to grow them"
        )
    emit_rows(records, lambda: _bars(records), form)


def _bars(records: list[dict[str, Any]]) -> RenderableType:
    largest = max((each["importance"] for each in records), default=0.0) or 1.0
    lines = ([each["feature"], f"{each['importance']:.4f}", _bar(each["importance"] / largest)] for each in records)
    return rows(("feature", "importance", ""), lines)


def _bar(share: float) -> str:
    """A bar of up to 40 characters, in eighths of one."""
    whole, rest = divmod(round(share * _BAR * 8), 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


VERBS = (tree, node, importances)
