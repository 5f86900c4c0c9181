"""A child process with a limit of memory.

Pages of mapped files count as a process's memory, and the system lets it have as many as it touches while there is
plenty. What it needs shows where the system must take pages back: in a control group, which counts the page cache that
its processes brought, too.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_LIMITS = "memory.limit_in_bytes", "memory.max"
_PEAKS = "memory.max_usage_in_bytes", "memory.peak"


class Group:
    """A control group for one child."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def enter(self) -> None:
        """Move the process that calls this into the group."""
        (self._directory / "cgroup.procs").write_text("0")

    def peak(self) -> int:
        """The most bytes that the group had."""
        return int(_first(self._directory, _PEAKS).read_text())


@contextmanager
def confined(limit: int) -> Iterator[Group | None]:
    """A group of at most `limit` bytes below the one that we are in, or None where we may not make one."""
    directory = _own() / f"dynfrsdb-{uuid.uuid4().hex[:8]}"
    try:
        directory.mkdir()
    except OSError:
        yield None
        return
    try:
        yield Group(directory) if _limited(directory, limit) else None
    finally:
        directory.rmdir()


def _limited(directory: Path, limit: int) -> bool:
    try:
        _first(directory, _LIMITS).write_text(str(limit))
    except (OSError, LookupError):
        return False
    return True


def _first(directory: Path, names: tuple[str, str]) -> Path:
    """The file of the older or of the newer kind of control groups."""
    for name in names:
        if (directory / name).exists():
            return directory / name
    raise LookupError(f"'{directory}' does not control memory")


def _own() -> Path:
    """Our own group, of the older kind if there is one."""
    found = {}
    for line in Path(f"/proc/{os.getpid()}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        found.update({name: path.lstrip("/") for name in names.split(",")})
    return _GROUPS / "memory" / found["memory"] if "memory" in found else _GROUPS / found.get("", "")
