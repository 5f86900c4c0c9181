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

from benchmark.figures import PAGE, written_pages


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
        "pages counted for ten": _counted_for_ten(directory / "ten"),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{module.__name__: module.__version__ for module in (numpy, numba, lmdb, sklearn)},
    }


def _counted_for_ten(file: Path) -> int:
    """How many pages the process's counter goes up by when ten are written here and there in a cached file."""
    file.write_bytes(bytes(4 << 20))
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
        before = written_pages()
        for place in range(10):
            os.pwrite(descriptor, b"x" * PAGE, 97 * place * PAGE)
        os.fsync(descriptor)
        return round(written_pages() - before)
    finally:
        os.close(descriptor)
        file.unlink()


def _filesystem(directory: Path) -> str:
    """The kind of file system: that of the longest mount point above."""
    best, kind = Path("/"), "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, found, *_ = line.split()
        if directory.is_relative_to(point) and len(Path(point).parts) >= len(best.parts):
            best, kind = Path(point), found
    return kind
