"""Processes: memory, opening, starting, and readers beside a writer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmark.confined import Group
from benchmark.figures import seconds
from benchmark.measure_removal import POLICIES
from benchmark.trial import Trial, small_store

PER_SECOND = 10
CHANGES = 100
"""Removals and queries of the process whose memory is measured."""
FRESH = "import sys, numpy, dynfrsdb; dynfrsdb.open(sys.argv[1]).predict_proba(numpy.load(sys.argv[2])[:1])"
GRID = np.concatenate([np.linspace(0, 0.9, 10), 1 - np.geomspace(0.1, 0.001, 21)])
"""Shares of queries at which latencies are drawn."""


def environment(threads: int = 1) -> dict[str, str]:
    """Our environment, with our import path, and bytecode kept as that of installed packages is; 0 threads: as many as
    there are cores."""
    path = os.pathsep.join(path for path in sys.path if path)
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**ours, "PYTHONPATH": path, "DYNFRSDB_THREADS": str(threads)}


def child(*arguments: str, threads: int = 1, group: Group | None = None) -> dict[str, Any]:
    """Run `benchmark.child`, in a control group if there is one, and return what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmark.child", *arguments],
        env=environment(threads),
        stdout=subprocess.PIPE,
        preexec_fn=None if group is None else group.enter,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _file(trial: Trial, name: str, values: Any) -> str:
    path = trial.directory / f"{trial.data.name}-{name}.npy"
    np.save(path, values)
    return str(path)


def _rows(trial: Trial) -> str:
    return _file(trial, "questions", np.vstack(trial.questions))


def remembers(trial: Trial) -> None:
    """Memory of a process that opened the store and made 100 removals and 100 queries, above one with numba loaded."""
    ids = _file(trial, "ids", np.array(trial.ids(min(CHANGES, len(trial.data.X) // 3), seed=6)))
    empty = child("numba-only")["peak"]
    with trial.copy() as path:
        found = child("work", str(path), _rows(trial), ids)
    trial.note("memory of an interpreter with numba", empty, "B")
    trial.note("memory", found["peak"] - empty, "B")
    npz = trial.directory / f"{trial.data.name}.npz"
    np.savez(npz, X=trial.data.X, y=trial.data.y)
    place = trial.place()
    built = child("build", str(place), str(npz), json.dumps(trial.data.settings))
    trial.note("memory of a build", built["peak"] - empty, "B")
    shutil.rmtree(place)
    npz.unlink()


def opening(trial: Trial) -> None:
    """Opening a store and the first query, after the imports and with the kernels loaded."""
    for state in ("cached", "cold"):
        with trial.copy() as path:
            arguments = ("first", str(path), _rows(trial), state, str(small_store(trial.directory)))
            found = [child(*arguments) for _ in range(trial.effort.children)]
        trial.note(f"open, {state}", [one["open"] for one in found])
        trial.note(f"first query, {state}", [one["query"] for one in found])
        trial.note("loading the kernels for a query", [one["kernels"] for one in found])


def start(trial: Trial) -> None:
    """Whole processes: a first query, `--help`, and inspecting commands."""
    rows = _rows(trial)
    commands = {
        "process: start, open, first query": ["-c", FRESH, str(trial.base), rows],
        "process: --help": ["-m", "dynfrsdb.cli", "--help"],
        "process: info": ["-m", "dynfrsdb.cli", "info", str(trial.base)],
        "process: ledger": ["-m", "dynfrsdb.cli", "ledger", str(trial.base)],
        "process: an interpreter": ["-c", "pass"],
    }
    for name, arguments in commands.items():
        if trial.effort.children > 1:
            _run(arguments)
        trial.note(name, [seconds(_run, arguments) for _ in range(trial.effort.children)])


def _run(arguments: list[str]) -> None:
    subprocess.run([sys.executable, *arguments], env=environment(), stdout=subprocess.DEVNULL, check=True)


def readers(trial: Trial) -> None:
    """Queries of reader processes while a writer commits ten removals a second."""
    hot: list[float] = []
    for name, policy in POLICIES.items():
        with trial.warm(policy, background=True) as db:
            peace, busy = _beside(trial, db)
        hot += peace
        trial.note(f"readers: {name}", busy)
        trial.curves[f"readers: {name}"] = np.quantile(busy, GRID).tolist()
    trial.note("readers: no writer", hot)
    trial.curves["readers: no writer"] = np.quantile(hot, GRID).tolist()
    trial.curves["shares"] = GRID.tolist()


def _beside(trial: Trial, db: Any) -> tuple[list[float], list[float]]:
    """Latencies of all readers, before and while `db` writes; it writes until the last of them is done."""
    ids = iter(trial.ids(len(trial.data.X) // 2, seed=7))
    outs = [trial.directory / f"reader-{i}.npz" for i in range(trial.effort.readers)]
    with ExitStack() as stack:
        processes = [stack.enter_context(_reader(trial, Path(db.path), out)) for out in outs]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        begin, turn = time.perf_counter(), 0
        while any(process.poll() is None for process in processes):
            db.remove([next(ids)])
            turn += 1
            time.sleep(max(0.0, begin + turn / PER_SECOND - time.perf_counter()))
        if any(process.returncode for process in processes):
            raise click.ClickException("a reader process failed; its error is above")
    found = [np.load(out) for out in outs]
    return [float(t) for one in found for t in one["hot"]], [float(t) for one in found for t in one["busy"]]


def _reader(trial: Trial, path: Path, out: Path) -> subprocess.Popen[str]:
    duration = trial.effort.beside
    arguments = ["reader", str(path), _rows(trial), str(duration / 5), str(duration), str(out)]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmark.child", *arguments],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
