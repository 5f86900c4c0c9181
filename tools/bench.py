"""What dynfrsdb costs, beside what else one could do. One command:

    python tools/bench.py                                    every set, every measure; some minutes
    python tools/bench.py --data purchase --only query       one measure of one set
    python tools/bench.py --quick                            few samples: does it run, and roughly where does it stand?
    python tools/bench.py --scale                            also 88 thousand to 8.8 million rows; needs 10 GB of disk
    python tools/bench.py --json out.json --docs             keep everything, and write docs/performance.md

How it measures is in `tools/benchmark/`. Needs the extra `bench`. The stores lie in a temporary directory on the disk
that `--dir` names: on one that is memory, durability costs nothing and the figures mean little.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

for variable in ("DYNFRSDB_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import click  # noqa: E402
from benchmark import measure_build, measure_process, measure_query, measure_removal  # noqa: E402
from benchmark.data import PLANS, USUAL, load  # noqa: E402
from benchmark.report import HEADINGS, cells, figure_cells  # noqa: E402
from benchmark.targets import Table as Targets  # noqa: E402
from benchmark.trial import Effort, Trial  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import dynfrsdb  # noqa: E402

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
MEASURES: dict[str, Callable[[Trial], None]] = {
    "build": measure_build.build,
    "size": measure_build.size,
    "inside": measure_removal.inside,
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


def warm_up(directory: Path) -> None:
    """Compile or load every kernel before anything is timed."""
    (directory / "warm-up").mkdir()
    trial = Trial(load("tiny", Path()), directory / "warm-up", Effort.quick())
    with trial.warm("auto") as db:
        db.remove(trial.ids(40))
        db.remove(trial.ids(60)[50:51])
        db.add(trial.data.X_test, trial.data.y_test)
        db.settle()
        db.predict_proba(trial.data.X)
        with dynfrsdb.open(db.path) as reader:
            for id in trial.ids(80)[60:]:
                db.remove([id])
                reader.predict_proba(trial.data.X)


def machine(directory: Path) -> dict[str, Any]:
    """Where this ran."""
    import lmdb
    import numba
    import numpy
    import sklearn

    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {
        "cpu": model[0].partition(":")[2].strip() if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": int(total.split()[1]) * 1024,
        "filesystem": filesystem(directory),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{module.__name__: module.__version__ for module in (numpy, numba, lmdb, sklearn)},
    }


def filesystem(directory: Path) -> str:
    """The kind of file system that a directory is on."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, found, *_ = line.split()
        if str(directory.resolve()).startswith(point) and len(point) >= len(best):
            best, kind = point, found
    return kind


def measure(trial: Trial, only: tuple[str, ...], say: Callable[[str], None]) -> dict[str, Any]:
    """Everything about one set, as plain values."""
    for name, act in MEASURES.items():
        if not only or name in only:
            say(f"{trial.data.name}: {name}")
            act(trial)
    return {
        "words": trial.data.words,
        "figures": {name: figure.as_dict() for name, figure in trial.figures.items()},
        "curves": trial.curves,
        "targets": [row.as_dict() for row in Targets(trial.data, trial.figures).rows()],
    }


def show(trial: Trial, console: Console) -> None:
    """The tables of one set."""
    console.print(f"\n[bold]{trial.data.name}[/]: {trial.data.words}")
    figures = Table("figure", "median", "mean", "p99", "p99.9", "n", box=None, pad_edge=False)
    for name, figure in trial.figures.items():
        figures.add_row(*figure_cells(name, figure))
    console.print(figures, "")
    targets = Table(*HEADINGS, box=None, pad_edge=False)
    for row in Targets(trial.data, trial.figures).rows():
        targets.add_row(*cells(row))
    console.print(targets)


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(MEASURES)), help="This measure; may be repeated.")
@click.option("--data", "names", multiple=True, type=click.Choice(list(PLANS)), help="This set; may be repeated.")
@click.option("--quick", is_flag=True, help="Few samples of everything.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write everything to this file.")
@click.option("--sets", type=click.Path(file_okay=False, path_type=Path), default=DATA, help="Where the npz files are.")
@click.option("--dir", "place", type=click.Path(exists=True, file_okay=False, path_type=Path), help="For the stores.")
def main(
    only: tuple[str, ...], names: tuple[str, ...], quick: bool, out: Path | None, sets: Path, place: Path | None
) -> None:
    """Measure dynfrsdb and its partners in the same run."""
    console, errors = Console(width=160), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="dynfrsdb-bench-", dir=place) as temporary:
        directory = Path(temporary)
        found: dict[str, Any] = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine(directory),
            "sets": {},
        }
        errors.print("loading kernels")
        warm_up(directory)
        for name in names or USUAL:
            trial = Trial(load(name, sets), directory, Effort.quick() if quick else Effort())
            found["sets"][name] = measure(trial, only, errors.print)
            show(trial, console)
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
