"""What dynfrsdb costs, beside what else one could do. One command:

    python tools/bench.py                                    every set, every measure; a quarter of an hour or more
    python tools/bench.py --data purchase --only query       one measure of one set
    python tools/bench.py --quick                            few samples: does it run, and roughly where does it stand?
    python tools/bench.py --cpp ./dynfrs                     beside the paper's own program, which you have compiled
    python tools/bench.py --scale                            88 thousand to 8.8 million rows; needs 10 GB of disk
    python tools/bench.py --json out.json --docs             keep everything, and write docs/performance.md
    python tools/bench.py --from out.json --docs             write it again from what was kept

How it measures is in `tools/benchmark/`. Needs the extra `bench`. The stores lie in a temporary directory on the disk
that `--dir` names: where that is memory, durability costs nothing and the figures mean little.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

for variable in ("DYNFRSDB_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import click  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmark import measure_build, measure_cpp, measure_process, measure_query, measure_removal, scale  # noqa: E402
from benchmark.data import PLANS, USUAL, load  # noqa: E402
from benchmark.machine import machine, today  # noqa: E402
from benchmark.report import FIGURES, TARGETS, cells, figure_cells  # noqa: E402
from benchmark.results import Results, SetResult  # noqa: E402
from benchmark.trial import Effort, Trial, warm_up  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
MEASURES: dict[str, Callable[[Trial], None]] = {
    "build": measure_build.build,
    "size": measure_build.size,
    "inside": measure_removal.inside,
    "cpp": measure_cpp.cpp,
    "removal": measure_removal.durable,
    "tail": measure_removal.tail,
    "batch": measure_removal.batch,
    "sequence": measure_removal.sequence,
    "query": measure_query.query,
    "predict": measure_query.predict,
    "mixed": measure_query.mixed,
    "readers": measure_process.readers,
    "memory": measure_process.remembers,
    "open": measure_process.opening,
    "start": measure_process.start,
}


def measure(trial: Trial, only: tuple[str, ...], say: Callable[[str], None]) -> SetResult:
    """Everything about one set."""
    for name, act in MEASURES.items():
        if not only or name in only:
            say(f"{trial.data.name}: {name}")
            act(trial)
    return SetResult(trial.data.words, len(trial.data.X), trial.figures, trial.curves)


def show(results: Results, console: Console, everything: bool) -> None:
    """What was found, on the terminal."""
    for name, one in results.sets.items():
        console.print(f"\n{name}: {one.words}", style="bold")
        if everything:
            _print(console, FIGURES, itertools.starmap(figure_cells, one.figures.items()))
        _print(console, TARGETS, map(cells, results.rows(name)))
    for size in results.scale:
        console.print(f"\n{size:,} rows", style="bold")
        _print(console, FIGURES, itertools.starmap(figure_cells, results.scale[size].items()))
        _print(console, TARGETS, map(cells, results.scale_rows(size)))


def _print(console: Console, headings: Iterable[str], lines: Iterable[tuple[str, ...]]) -> None:
    table = Table(*headings, box=None, pad_edge=False)
    for line in lines:
        table.add_row(*line)
    console.print(table, "")


class Wanted(NamedTuple):
    """What is to be measured: these measures of these sets, these sizes."""

    names: tuple[str, ...]
    only: tuple[str, ...]
    sizes: tuple[int, ...]
    quick: bool
    program: Path | None


def run(wanted: Wanted, sets: Path, place: Path | None) -> Iterator[Results]:
    """Measure; yields what there is after each set and each size, so that it can be kept."""
    errors = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="dynfrsdb-bench-", dir=place) as temporary:
        directory = Path(temporary)
        results = Results(today(), machine(directory))
        if wanted.program is not None:
            errors.print("trying the C++")
            measure_cpp.attempt(wanted.program, load("tiny", sets), directory)
        errors.print("loading kernels")
        warm_up(directory)
        for name in wanted.names:
            data = load(name, sets)
            effort = Effort.suited(len(data.X), wanted.quick)
            trial = Trial(data, directory, effort, program=wanted.program)
            results.sets[name] = found = measure(trial, wanted.only, errors.print)
            found.words += ", a quick run" if wanted.quick else ""
            trial.discard()
            yield results
        for size in wanted.sizes:
            results.scale[size] = scale.measure(size, directory, wanted.quick, errors.print)
            yield results


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(MEASURES)), help="This measure; may be repeated.")
@click.option("--data", "names", multiple=True, type=click.Choice(list(PLANS)), help="This set; may be repeated.")
@click.option("--quick", is_flag=True, help="Few samples of everything.")
@click.option(
    "--scale", "scaled", is_flag=True, help="How costs grow, up to millions of rows; only that, if no set is named."
)
@click.option("--rows", multiple=True, type=click.IntRange(100), help="With --scale: this many rows; may be repeated.")
@click.option(
    "--cpp",
    "program",
    type=click.Path(exists=True, dir_okay=False, executable=True, resolve_path=True, path_type=Path),
    help="The paper's own program (shurongwang/DynFrs on GitHub, compiled as its README says), to be measured beside "
    "ours; sets with two classes only.",
)
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write everything to this file.")
@click.option("--docs", is_flag=True, help="Write docs/performance.md and its pictures.")
@click.option("--docs-dir", type=click.Path(file_okay=False, path_type=Path), default=ROOT / "docs", help="Where to.")
@click.option(
    "--from",
    "kept",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Begin with what an earlier --json kept, and measure only what is named. A set that is measured again takes "
    "the place of all that was kept of it: a figure and its partner are of one run.",
)
@click.option("--sets", type=click.Path(file_okay=False, path_type=Path), default=DATA, help="Where the npz files are.")
@click.option("--dir", "place", type=click.Path(exists=True, file_okay=False, path_type=Path), help="For the stores.")
@click.option("--figures", is_flag=True, help="Print every figure, not only the targets.")
def main(
    only: tuple[str, ...],
    names: tuple[str, ...],
    quick: bool,
    scaled: bool,
    rows: tuple[int, ...],
    program: Path | None,
    out: Path | None,
    docs: bool,
    docs_dir: Path,
    kept: tuple[Path, ...],
    sets: Path,
    place: Path | None,
    figures: bool,
) -> None:
    """Measure dynfrsdb and its partners in the same run."""
    chosen = names or (() if kept or (scaled and not only) else USUAL)
    sizes = (rows or (scale.QUICK_ROWS if quick else scale.ROWS)) if scaled else ()
    results = Results.merged(Results.read(path) for path in kept)
    if chosen or sizes:
        for found in run(Wanted(chosen, only, sizes, quick, program), sets, place):
            results = Results.merged([results, found])
            if out is not None:
                results.write(out)
    show(results, Console(width=150), figures)
    if out is not None:
        results.write(out)
    if docs:
        from benchmark.document import write

        click.echo(f"wrote {write(results, docs_dir)}")


if __name__ == "__main__":
    main()
