"""Three small stores that share people, and how tests look at them and at the catalog.

credit    persons 0 .. 59, two samples each
fraud     persons 0 .. 59, two samples each
churn     persons 40 .. 99, two samples each
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import select

import dynfrsdb
from dynfrsdb.catalog import report
from dynfrsdb.catalog.handle import Catalog
from dynfrsdb.catalog.requests import forget
from dynfrsdb.catalog.tables import Base
from tests.people import people

FIRST = {"credit": 0, "fraud": 0, "churn": 40}
OF_CONTACT = {"registered", "unregistered", "seen", "problem"}
"""Columns that tell of contacts and not of stores."""


def new_stores(folder: Path) -> dict[str, Path]:
    """The three stores."""
    return {name: new_store(folder / f"{name}.forest", first) for name, first in FIRST.items()}


def new_store(path: Path, first: int = 0) -> Path:
    """A store of 60 people, from number `first` on."""
    X, y = people(120, 3)
    names = [f"person {first + row // 2}" for row in range(len(X))]
    dynfrsdb.create(path, X, y, subjects=names, n_estimators=4, q=0.5, n_thresholds=4, _bucket=8).close()
    return path


def opened(path: Path, mode: str) -> dynfrsdb.Database:
    """A handle that leaves tags alone."""
    return dynfrsdb.open(path, mode, settle=None)


def ask(catalog: Catalog, subject: str, request: str, **more: Any) -> dict[str, str]:
    """Forget somebody everywhere; what became of it, by the names of the stores."""
    forget(catalog, subject, request, opened, **{"timeout": 5.0, **more})
    return outcomes(catalog, request)


def outcomes(catalog: Catalog, request: str) -> dict[str, str]:
    """What became of a request, by the names of the stores."""
    (found,) = report.requests(catalog, request)
    return {Path(part["store"]).stem: part["outcome"] for part in found["stores"]}


def removals(path: Path) -> list[int]:
    """How many samples each change of a store removed."""
    with dynfrsdb.open(path) as db:
        return [each.removed for each in db.ledger() if each.removed]


def everything(catalog: Catalog) -> dict[str, list[Any]]:
    """All rows of all tables, without when there was contact."""
    with catalog.reading() as session:
        return {
            name: sorted(
                (
                    {key: value for key, value in row._mapping.items() if key not in OF_CONTACT}
                    for row in session.execute(select(table))
                ),
                key=repr,
            )
            for name, table in Base.metadata.tables.items()
        }
