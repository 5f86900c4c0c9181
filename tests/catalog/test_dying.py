"""Whoever dies wherever in a request over many stores: the same command goes on, and each store forgets once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import dynfrsdb
from dynfrsdb import catalog as package
from dynfrsdb import sql
from dynfrsdb.catalog import registry, report, schema
from dynfrsdb.catalog.handle import Catalog
from dynfrsdb.catalog.requests import forget
from dynfrsdb.errors import Unreachable
from tests.catalog.stores import ask, everything, opened, outcomes
from tests.people import people
from tests.postgres import Server
from tests.reliability.workload import KILLED, LENGTH, chance, die_at, in_child

FOLDER = str(Path(package.__file__).parent)
GONE = {"unlearned", "rows erased", "erased"}
STORES = ("credit", "fraud")
FEW = 12


def crowd(folder: Path, persons: int) -> dict[str, Path]:
    """Two stores with as many people as there are ways to die."""
    X, y = people(persons, 3)
    names = [f"person {row}" for row in range(persons)]
    found = {name: folder / f"{name}.forest" for name in STORES}
    for path in found.values():
        dynfrsdb.create(path, X, y, subjects=names, n_estimators=2, q=0.5, n_thresholds=2, _bucket=8).close()
    return found


class Lines:
    """Counts the lines of the catalog's code as they are run, each the first and the second time; dies at one."""

    def __init__(self, last: int | None = None) -> None:
        self.visited: dict[tuple[str, int], int] = {}
        self._last, self._count = last, 0

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            times = self.visited[place] = self.visited.get(place, 0) + 1
            if times <= 2:
                self._count += 1
                if self._count == self._last:
                    os.kill(os.getpid(), signal.SIGKILL)
        return self.trace

    @property
    def count(self) -> int:
        return self._count


def traced(catalog: Catalog, number: int, lines: Lines) -> None:
    sys.settrace(lines.trace)
    try:
        ask(catalog, f"person {number}", f"request {number}")
    finally:
        sys.settrace(None)


def removed_once(path: Path, number: int) -> bool:
    """Whether one entry of the ledger, and only one, is the removal that request `number` asked for."""
    with dynfrsdb.open(path) as db:
        name = db._secrets.request(f"request {number}".encode()).hex()
        return [each.removed for each in db.ledger() if each.request == name] == [1]


def test_killed_at_any_line_a_request_goes_on_and_is_carried_out_once(catalog: Catalog, store_dir: Path) -> None:
    """At a few lines that chance chooses, and at every line if DYNFRSDB_SOAK is more than 1."""
    stores = crowd(store_dir, 500)
    for path in stores.values():
        registry.register(catalog, path)
    traced(catalog, 0, Lines())
    whole = Lines()
    traced(catalog, 1, whole)
    assert 100 < whole.count < 490
    everywhere = range(2, whole.count + 1)
    chosen = everywhere if LENGTH > 1 else sorted(chance("lines of the catalog").sample(everywhere, FEW))

    for number in chosen:
        assert in_child(partial(traced, catalog, number, Lines(number))) == KILLED
        if number % 3 == 0:
            registry.refresh(catalog)
        assert set(ask(catalog, f"person {number}", f"request {number}").values()) <= GONE

    assert [(path, number) for path in stores.values() for number in chosen if not removed_once(path, number)] == []
    before = everything(catalog)
    registry.rebuild(catalog, [])
    assert everything(catalog) == before


@pytest.mark.parametrize("point", ["commit-before", "commit-after", "acknowledge-after", "erase-middle"])
def test_killed_inside_a_store_a_request_goes_on(anywhere: Catalog, store_dir: Path, point: str) -> None:
    stores = crowd(store_dir, 20)
    for path in stores.values():
        registry.register(anywhere, path)

    def die() -> None:
        die_at(point)
        ask(anywhere, "person 1", "request 1")

    assert in_child(die) == KILLED
    before = outcomes(anywhere, "request 1")
    registry.refresh(anywhere)

    seen = outcomes(anywhere, "request 1")
    assert before == {"credit": "pending", "fraud": "pending"}
    assert (seen["credit"] in GONE) == (point != "commit-before")
    assert set(ask(anywhere, "person 1", "request 1").values()) <= GONE
    assert all(removed_once(path, 1) for path in stores.values())


def test_a_catalog_that_goes_down_in_the_middle_is_gone_on_with_when_it_is_back(
    postgres_server: Server, store_dir: Path
) -> None:
    url = postgres_server.url(postgres_server.fresh())
    schema.migrate(url)
    catalog, stores = Catalog(url), crowd(store_dir, 20)
    for path in stores.values():
        registry.register(catalog, path)
    asked = count()

    def stopping(path: Path, mode: str) -> dynfrsdb.Database:
        if next(asked) == 1:
            postgres_server.stop()
        return opened(path, mode)

    try:
        with pytest.raises(Unreachable, match="noting what a store did failed at"):
            forget(catalog, "person 1", "request 1", stopping)
    finally:
        postgres_server.start()

    assert {removed_once(path, 1) for path in stores.values()} == {True}
    assert [each.entries for each in registry.refresh(catalog)][1] > 0
    assert set(outcomes(catalog, "request 1").values()) <= GONE
    assert set(ask(catalog, "person 1", "request 1").values()) <= GONE
    assert {removed_once(path, 1) for path in stores.values()} == {True}
    sql.dispose()


def test_who_looks_meanwhile_sees_whole_requests(catalog: Catalog, store_dir: Path) -> None:
    """A reader of the catalog never waits for stores, and never sees a removal without its ledger entry."""
    stores = crowd(store_dir, 40)
    for path in stores.values():
        registry.register(catalog, path)
    over = threading.Event()
    seen: list[bool] = []

    def look() -> None:
        while not over.is_set():
            hashes = {each["hash"] for each in report.ledger(catalog)}
            parts = [part for each in report.requests(catalog) for part in each["stores"]]
            later = {each["hash"] for each in report.ledger(catalog)}
            seen.append(all(part["entry_hash"] in later for part in parts if part["change"]) and hashes <= later)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(10):
        ask(catalog, f"person {number}", f"request {number}")
    over.set()
    reader.join()

    assert len(seen) > 1
    assert all(seen)
