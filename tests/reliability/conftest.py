"""What the tests of this folder share: warm kernels, which forked children inherit, and a store of people."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynfrsdb_storage import room
from tests.reliability.workload import new_store, warm


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> None:
    warm()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes live for a few commits here; their first one makes room, as that of one which commits for long."""
    monkeypatch.setattr(room, "PATIENCE", 1)


@pytest.fixture
def path(store_dir: Path) -> Path:
    """The path of a closed store of people."""
    return new_store(store_dir / "people.forest")
