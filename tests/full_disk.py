"""A disk that can be filled to the last byte.

It is a small file system, where this user may mount one. Elsewhere it is a plain directory in a process that has
full_disk.c preloaded: then `filler` is not what fills the disk but what says that it is full. `run_injected` starts
such a process, a pytest of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

MEGABYTES = 96
INJECTED = os.environ.get("FULL_DIR", "")
FILLER = "filler"


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A small file system; skips where there can be none, because `run_injected` is for that."""
    if INJECTED:
        yield Path(INJECTED)
        for entry in Path(INJECTED).iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        return
    if not can_mount():
        pytest.skip("this user may not mount a file system; a full disk is injected instead")
    disk = place / "disk"
    disk.mkdir()
    _mount(disk)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def fill_up(disk: Path) -> None:
    """Leave no free byte."""
    with open(disk / FILLER, "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1) if not INJECTED else ():
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def make_room(disk: Path) -> None:
    """Give all of it back."""
    (disk / FILLER).unlink()


@cache
def can_mount() -> bool:
    """Whether this user may mount a file system here."""
    with tempfile.TemporaryDirectory() as place:
        try:
            _mount(Path(place))
        except (OSError, subprocess.CalledProcessError):
            return False
        subprocess.run(["umount", "-l", place], check=True)
        return True


def run_injected(tests: Path, chosen: str, place: Path) -> str:
    """Run the tests of a file whose names fit with a full disk injected; returns what pytest says."""
    try:
        library = build(Path(__file__).with_suffix(".c"), place)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a full disk can be injected only with a C compiler for Linux ({error})")
    disk = place / "injected"
    disk.mkdir()
    environment = {**os.environ, "LD_PRELOAD": str(library), "FULL_DIR": str(disk)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-k",
        chosen,
        str(tests),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    return done.stdout + done.stderr


def build(source: Path, place: Path) -> Path:
    """Compile a library to preload; raises if there is no C compiler, or if it cannot."""
    target = place / source.with_suffix(".so").name
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(target), str(source), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    return target


def _mount(disk: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(disk)]
    subprocess.run(command, check=True, capture_output=True)
