"""A table of people in a database, and a model of it in memory.

Person i has what `person(i)` says. The table can be in SQLite or in PostgreSQL; what a store made from it must be, a
test computes from the model alone: `features` is written from the documents, not from the code that encodes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from sqlalchemy import text

import dynfrsdb
from dynfrsdb import sql
from dynfrsdb.loading import Prepared, create_from, prepare
from dynfrsdb.survey import Wishes
from dynfrsdb.tables.sql import Source, SqlTable

JOBS = ("clerk", "cook", "smith")
CLASSES = ("ill", "well")
SETTINGS: dict[str, Any] = {"n_estimators": 6, "q": 0.5, "min_samples_split": 3, "seed": 7}
WISHES = {"target": "outcome", "id": "id", "subject": "who", "min_category": 1}
_COLUMNS = ("who text", "age double precision", "job text", "smoker boolean", "weight numeric(10, 2)", "outcome text")


class Person(NamedTuple):
    who: str | None
    age: float | None
    job: str
    smoker: bool
    weight: float
    outcome: str | None


People = dict[int, Person]


def person(id: int, turn: int = 0) -> Person:
    """The person with this id; another `turn`, other values."""
    mixed = id * 7919 + turn * 104729
    outcome = "ill" if (mixed % 97 < 40) ^ (mixed % 5 == 0) else "well"
    return Person(
        f"subject {id // 2}", mixed % 89 + 0.5, JOBS[mixed % 3], mixed % 2 == 0, mixed % 1000 / 4 + turn, outcome
    )


def people(count: int) -> People:
    return {id: person(id) for id in range(count)}


class Base:
    """A database with the table `people`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.source = Source(url, table="people")
        self.execute(f"CREATE TABLE people (id bigint, {', '.join(_COLUMNS)})")

    def execute(self, statement: str, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        given = list(rows)
        with sql.engine(self.url).begin() as connection:
            connection.execute(text(statement), given or None)

    def insert(self, found: People) -> None:
        names = ("id", *Person._fields)
        values = ", ".join(f":{name}" for name in names)
        if found:
            self.execute(
                f"INSERT INTO people ({', '.join(names)}) VALUES ({values})",
                ({"id": id, **each._asdict()} for id, each in found.items()),
            )

    def delete(self, ids: Iterable[int]) -> None:
        gone = [{"id": id} for id in ids]
        if gone:
            self.execute("DELETE FROM people WHERE id = :id", gone)

    def update(self, found: People) -> None:
        self.delete(found)
        self.insert(found)

    def create(self, path: Path, source: Source | None = None, **wishes: Any) -> Path:
        """A closed store made from the table."""
        given = source or self.source
        with SqlTable(given, "id") as table:
            prepared = prepare(path, table, Wishes(**{**WISHES, **wishes}), **SETTINGS)
        create_from(path, prepared, None, given.record(id="id", target="outcome", subject="who"))
        return path


def features(each: Person) -> list[float]:
    return [each.age or 0.0, *(float(each.job == job) for job in JOBS), float(each.smoker), each.weight]


def expected_digest(store: Path, found: People) -> str:
    """The digest of a store with the settings of `store` that was made from these people and nothing else."""
    with dynfrsdb.open(store) as db:
        settings, secrets = db._settings, db._secrets
    kept = sorted(found)
    samples = Prepared(
        settings,
        np.array(kept, np.uint64),
        np.array([features(found[id]) for id in kept], np.float32),
        np.array([CLASSES.index(found[id].outcome or "") for id in kept], np.int64),
        np.array([list(secrets.subject((found[id].who or "").encode())) for id in kept], np.uint8),
        {},
    )
    with tempfile.TemporaryDirectory(dir=store.parent) as place:
        create_from(Path(place, "expected.forest"), samples)
        with dynfrsdb.open(Path(place, "expected.forest")) as db:
            return db.digest()


@pytest.fixture(params=["sqlite", "postgresql"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Base:
    """An empty table of people, in each kind of database."""
    sqlite = request.param == "sqlite"
    return Base(f"sqlite:///{tmp_path}/people.db" if sqlite else request.getfixturevalue("postgres"))


@pytest.fixture
def sqlite_base(tmp_path: Path) -> Base:
    return Base(f"sqlite:///{tmp_path}/people.db")
