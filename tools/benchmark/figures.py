"""Figures: samples of one measurement, summed up, and what the kernel counts about a process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

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

    @classmethod
    def of(cls, samples: Sequence[float], unit: str = "s") -> Figure:
        """Sum samples up."""
        found = np.asarray(samples, np.float64)
        p99, p999 = np.quantile(found, [0.99, 0.999])
        return cls(
            unit, found.size, float(np.median(found)), float(found.mean()), float(p99), float(p999), float(found.max())
        )

    def as_dict(self) -> dict[str, Any]:
        """The figure as plain values."""
        return asdict(self)


def seconds(act: Callable[..., Any], *arguments: Any) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    act(*arguments)
    return time.perf_counter() - started


class Turns(NamedTuple):
    """Seconds of each turn, and pages written in it."""

    ours: list[float]
    partner: list[float]
    our_pages: list[float]
    partner_pages: list[float]


def in_turns(rounds: int, ours: Callable[[int], Any], partner: Callable[[int], Any], begin: int = 0) -> Turns:
    """Time two things in turns, so that both see the same disk and the same neighbours.

    Each is first every other time; `begin` says which one begins."""
    found = Turns([], [], [], [])
    for i in range(rounds):
        turn = [(ours, found.ours, found.our_pages), (partner, found.partner, found.partner_pages)]
        for act, times, pages in turn if (i + begin) % 2 == 0 else reversed(turn):
            before, started = written_pages(), time.perf_counter()
            act(i)
            times.append(time.perf_counter() - started)
            pages.append(written_pages() - before)
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
