"""Moments and delays, as people write them: until when a hold lasts, when a request is due.

    7d  12h  30m  45s  90            a delay; a bare number is seconds
    2027-01-31  2027-01-31T12:00+01:00   a moment; without a zone it is UTC

Inside, a moment is a whole number of seconds since 1970."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

from dynfrsdb.errors import InvalidInput

_DELAY = re.compile(r"(\d+(?:\.\d+)?)\s*([dhms]?)")
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "": 1}
_LAST = 253_402_300_799
"""The last second of the year 9999: later ones cannot be written as a date."""


def delay(value: Any, name: str) -> float:
    """A delay in seconds, from text, a number of seconds or a timedelta."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, str) and (found := _DELAY.fullmatch(value.strip())):
        value = float(found[1]) * _SECONDS[found[2]]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _LAST:
        raise InvalidInput(f"{name}={value!r} is not a delay; pass one like '7d', '12h', '30m' or a number of seconds")
    return float(value)


def moment(value: Any, name: str) -> int:
    """A moment in whole seconds since 1970, from text, a date or a datetime; rounded up."""
    try:
        given = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        given = None
    if isinstance(given, date) and not isinstance(given, datetime):
        given = datetime(given.year, given.month, given.day)
    if not isinstance(given, datetime):
        raise InvalidInput(f"{name}={value!r} is not a date; pass one like '2027-01-31' or '2027-01-31T12:00+01:00'")
    aware = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
    return whole(aware.timestamp(), name)


def whole(seconds: float, name: str) -> int:
    """A moment that can be written as a date, in whole seconds, rounded up."""
    rounded = math.ceil(seconds)
    if not 0 <= rounded <= _LAST:
        raise InvalidInput(f"{name} is not between the years 1970 and 9999")
    return rounded


def spelt(seconds: int) -> str:
    """A moment as the ledger has it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()
