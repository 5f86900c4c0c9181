"""Where and when this ran."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lmdb
import numba
import numpy
import sklearn


def today() -> str:
    """The date, in UTC."""
    return datetime.now(UTC).date().isoformat()


def machine(directory: Path) -> dict[str, Any]:
    """The machine, the file system that `directory` is on, and versions."""
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {
        "cpu": model[0].partition(":")[2].strip() if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": int(total.split()[1]) * 1024,
        "filesystem": _filesystem(directory.resolve()),
        "system": f"{platform.system()} {platform.release()}",
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{module.__name__: module.__version__ for module in (numpy, numba, lmdb, sklearn)},
    }


def _filesystem(directory: Path) -> str:
    """The kind of file system: that of the longest mount point above."""
    best, kind = Path("/"), "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, found, *_ = line.split()
        if directory.is_relative_to(point) and len(Path(point).parts) >= len(best.parts):
            best, kind = Path(point), found
    return kind
