"""What all tests share: where stores are made, and the seed of the state machine."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import people
from tests.postgres import postgres, postgres_server
from tests.sources import base, sqlite_base

__all__ = ["base", "postgres", "postgres_server", "sqlite_base"]

MEMORY = Path("/dev/shm")
MACHINE_SEED = 20250701


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--machine-seed", type=int, default=MACHINE_SEED, help="the seed of the state machine's examples")


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a shell; children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> str:
    return f"state machine: --machine-seed={config.getoption('--machine-seed')}"


@pytest.fixture
def store_dir() -> Iterator[Path]:
    """A directory for stores, in memory where that is possible."""
    path = Path(tempfile.mkdtemp(prefix="dynfrsdb-", dir=MEMORY if MEMORY.is_dir() else None))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def path(store_dir: Path) -> Path:
    """A store of 300 samples, each of one of 100 subjects."""
    return people.new_store(store_dir / "people.forest")
