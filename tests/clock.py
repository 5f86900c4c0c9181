"""A later time, for what is due or over then."""

from __future__ import annotations

import time

import pytest

DAY = 86_400


def advance(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Set this process's clock ahead."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + days * DAY)
