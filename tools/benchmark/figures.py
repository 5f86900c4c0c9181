"""Figures: samples of one measurement, summed up, and what the kernel counts about a process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Figure:
    """The samples of one measurement: their middle, their mean and their tail."""

    unit: str
    n: int
    median: float
    mean: float
    p99: float
    p999: float
    most: float
    cpu: float | None = None
    """Mean processor time of a sample, in seconds: what neighbours on the machine disturb least."""

    @classmethod
    def of(cls, samples: Sequence[float], unit: str = "s", cpu: Sequence[float] = ()) -> Figure:
        """Sum samples up."""
        found = np.asarray(samples, np.float64)
        median, p99, p999, most = np.quantile(found, [0.5, 0.99, 0.999, 1.0]).tolist()
        return cls(unit, found.size, median, float(found.mean()), p99, p999, most, float(np.mean(cpu)) if cpu else None)

    def as_dict(self) -> dict[str, Any]:
        """The figure as plain values."""
        return asdict(self)


@dataclass
class Stopwatch:
    """Times calls, one after the other: seconds that passed, seconds of processor time, pages written."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    pages: list[float] = field(default_factory=list)

    def time(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Make one call; returns what it returns."""
        pages, cpu, started = written_pages(), time.process_time(), time.perf_counter()
        answer = act(*arguments)
        self.seconds.append(time.perf_counter() - started)
        self.cpu.append(time.process_time() - cpu)
        self.pages.append(written_pages() - pages)
        return answer

    def time_each(self, act: Callable[[Any], Any], arguments: Iterable[Any]) -> None:
        """Make short calls close together, with nothing between them that would cool the caches."""
        before, cpu = len(self.seconds), time.process_time()
        self.seconds += [seconds(act, argument) for argument in arguments]
        self.cpu.append((time.process_time() - cpu) / max(1, len(self.seconds) - before))

    def plus(self, after: Stopwatch) -> Stopwatch:
        """Each call together with the one of `after` that followed it."""
        pairs = [(self.seconds, after.seconds), (self.cpu, after.cpu), (self.pages, after.pages)]
        return Stopwatch(*([a + b for a, b in zip(*pair, strict=True)] for pair in pairs))

    def without(self, first: int) -> Stopwatch:
        """The same without the first calls."""
        return Stopwatch(self.seconds[first:], self.cpu[first:], self.pages[first:])


def seconds(act: Callable[..., Any], *arguments: Any) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    act(*arguments)
    return time.perf_counter() - started


def in_turns(rounds: int, *acts: Callable[[int], Any]) -> list[Stopwatch]:
    """Time things in turns, backwards every other time, so that all see the same disk and the same neighbours."""
    found = [Stopwatch() for _ in acts]
    for i in range(rounds):
        turn = list(zip(found, acts, strict=True))
        for watch, act in turn if i % 2 == 0 else reversed(turn):
            watch.time(act, i)
    return found


def written_pages() -> float:
    """Pages that this process has given the kernel to write, since it began."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1]) / PAGE
    return 0.0


def memory(field: str = "VmHWM") -> int:
    """Bytes of memory of this process: VmHWM at the peak, VmRSS now, RssAnon without mapped files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0
