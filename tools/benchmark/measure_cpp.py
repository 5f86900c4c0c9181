"""The paper's own program, in C++, in the same run as ours.

It is not ours to keep here. Whoever has compiled it (the repository shurongwang/DynFrs on GitHub, as its README says)
names it with `--cpp`, and it runs in a directory that we prepare:

    Datasets/purchase/train.txt     "9864 18", then a row per line, its class last; test.txt likewise

    dynfrs -data purchase -T 250 -k 25 -d 10 -s 30 -dly 1 -unl_time 20
    Build time:     254ms
    Unlearned:      103 samples within 20 ms

It draws its own random numbers and its own samples to remove, others each time; so every figure is of several
processes, each of which builds its forest and then does one thing. It knows two classes; other sets are left out.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from benchmark.data import Array, DataSet
from benchmark.measure_removal import IN_A_ROW, sizes
from benchmark.trial import Trial

SPAN = 20
"""Milliseconds of removals one after the other, until it is known how many there are in it."""
PATIENCE = 600.0
"""Seconds that one process may take: far more than any of them should."""
TRYING = 60.0
"""The same for the small set that it is tried on."""
UNLEARNED = {
    "-unl_time": re.compile(r"Unlearned:\s+(?P<samples>\d+) samples within (?P<ms>\d+) ms"),
    "-unl_cnt": re.compile(r"Unlearned:\s+(?P<ms>\d+) ms for (?P<samples>\d+) samples"),
}
BUILT = re.compile(r"Build time:\s+(?P<ms>\d+)ms")

RUNNER = """\
import os, sys
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(f"\\n{used.ru_maxrss} {os.waitstatus_to_exitcode(status)}")
"""
"""A small process between us and the program: the system counts as a child's peak what the process had that started it,
and we are larger than the C++."""


class Said(NamedTuple):
    """What one process said: seconds of its build, samples and seconds of its removals, and its memory at the peak."""

    build: float
    samples: int
    seconds: float
    memory: int


class Program:
    """The C++ and one set, written down the way it reads sets."""

    def __init__(self, path: Path, data: DataSet, directory: Path, patience: float = PATIENCE) -> None:
        self._path, self._data, self._directory, self._patience = path, data, directory, patience
        place = directory / "Datasets" / data.name
        place.mkdir(parents=True)
        classes = np.unique(data.y, return_inverse=True)[1]
        _write(place / "train.txt", data.X, classes)
        _write(place / "test.txt", data.X[:1], classes[:1])  # nobody asks: all that it needs is a file

    def run(self, task: str, amount: int, lazy: bool = True) -> Said:
        """Build a forest, then remove: `amount` samples (-unl_cnt), or for `amount` milliseconds (-unl_time)."""
        chosen = self._data.settings
        settings = {"-T": chosen["n_estimators"], "-k": self._data.occupancy, "-d": chosen["max_depth"]}
        settings |= {"-s": chosen["n_thresholds"], "-dly": int(lazy), task: amount}
        flags = [str(part) for setting in settings.items() for part in setting]
        text, memory = self._finish([str(self._path), "-data", self._data.name, *flags])
        built, gone = BUILT.search(text), UNLEARNED[task].search(text)
        if built is None or gone is None:
            missing = "'Build time:' and milliseconds" if built is None else f"'Unlearned:' as {task} prints it"
            raise self._error(f"printed no line with {missing}; is it the program of the paper?")
        return Said(int(built["ms"]) / 1e3, int(gone["samples"]), int(gone["ms"]) / 1e3, memory)

    def span(self) -> int:
        """Milliseconds in which it removes about as many samples as we do in a row; at least one."""
        found = SPAN
        while (done := self.run("-unl_time", found)).samples == len(self._data.X) and found > 1:
            found //= 2
        return max(1, round(found * IN_A_ROW / max(1, done.samples)))

    def _finish(self, command: list[str]) -> tuple[str, int]:
        """What a process printed, once it has ended well, and the most bytes of memory that it had."""
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", RUNNER, *command],
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
        )
        try:
            text, complaint = process.communicate(timeout=self._patience)
        except subprocess.TimeoutExpired as error:
            raise self._error(f"did not end within {self._patience:g} s") from error
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        if process.returncode:
            raise self._error(f"could not be started: {_last(complaint)}")
        peak, status = _last(text).split()
        if status != "0":
            raise self._error(f"ended with status {status}: {_last(complaint) or 'it did not say why'}")
        return text, int(peak) * 1024

    def _error(self, what: str) -> click.ClickException:
        return click.ClickException(f"--cpp: '{self._path}', given the set '{self._data.name}', {what}")


def _write(path: Path, X: Array, classes: Array) -> None:
    header = f"{len(X)} {X.shape[1] + 1}"
    np.savetxt(path, np.column_stack([X, classes]), fmt="%.9g", header=header, comments="")


def _last(text: str) -> str:
    return (text.splitlines() or [""])[-1]


def attempt(path: Path, data: DataSet, directory: Path) -> None:
    """Run it on a small set, to find out before anything is measured whether it is what it should be."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        program = Program(path, data, Path(place), TRYING)
        program.run("-unl_time", 1)
        program.run("-unl_cnt", 10, lazy=False)


def cpp(trial: Trial) -> None:
    """Builds, removals one after the other, batches and memory of the C++, if somebody gave it and it knows the set."""
    if trial.program is None or len(np.unique(trial.data.y)) != 2:
        return
    with tempfile.TemporaryDirectory(dir=trial.directory) as place:
        program = Program(trial.program, trial.data, Path(place))
        tasks = _tasks(trial, program.span())
        said: dict[str, list[Said]] = {name: [] for name in tasks}
        for _ in range(trial.effort.batches):
            for name, task in tasks.items():
                said[name].append(program.run(*task))
    _note(trial, said)


def _tasks(trial: Trial, span: int) -> dict[str, tuple[str, int, bool]]:
    """What processes do after building, by the name of its figure: the task, how much of it, and whether lazily."""
    several = sizes(trial)
    return {
        "removal, lazy": ("-unl_time", span, True),
        "removal, eager": ("-unl_cnt", IN_A_ROW, False),
        **{f"batch of {words}": ("-unl_cnt", several[words], True) for words in ("100", "1%")},
    }


def _note(trial: Trial, said: dict[str, list[Said]]) -> None:
    """Keep figures. Whoever has removed everything has stopped before the time was over, nobody knows when."""
    for name, found in said.items():
        if name.startswith("batch"):
            times = [one.seconds for one in found]
        else:
            times = [one.seconds / one.samples for one in found if 0 < one.samples < len(trial.data.X)]
        if times:
            trial.note(f"the C++: {name}", times)
    trial.note("the C++: build", [one.build for found in said.values() for one in found])
    trial.note("the C++: memory", [one.memory for one in said["removal, lazy"]], "B")
