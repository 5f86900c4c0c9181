"""What the catalog says of stores is what the stores say, however it came there."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynfrsdb
from dynfrsdb.catalog import registry, report
from dynfrsdb.catalog.handle import Catalog
from dynfrsdb.errors import Error
from tests.catalog.stores import ask, everything, new_store, opened
from tests.reliability.workload import in_child


def entries(catalog: Catalog) -> list[tuple[int, str, int, int, str]]:
    names = ("sequence", "kind", "added", "removed", "hash")
    return [tuple(each[name] for name in names) for each in report.ledger(catalog)]


def test_the_ledger_is_that_of_the_store(anywhere: Catalog, path: Path) -> None:
    with opened(path, "w") as db:
        db.forget("person 3", request_id="a ticket")
        db.hold("person 4", "a reason", "2999-01-01")
    registry.register(anywhere, path)
    with dynfrsdb.open(path) as db:
        expected = db.ledger()
        hold = db.holds()[0]

    assert entries(anywhere) == [(each.sequence, each.kind, each.added, each.removed, each.hash) for each in expected]
    (row,) = report.stores(anywhere)
    assert (row["samples"], row["features"], row["task"]) == (297, 4, "classification")
    assert (row["sequence"], row["head"]) == (expected[-1].sequence, expected[-1].hash)
    (held,) = report.holds(anywhere)
    assert (held["number"], held["until"], held["in_force"]) == (hold.number, hold.until, True)


def test_bringing_in_twice_changes_nothing(anywhere: Catalog, path: Path) -> None:
    registry.register(anywhere, path)
    before = everything(anywhere)

    assert [each.entries for each in registry.refresh(anywhere)] == [0]
    registry.register(anywhere, path)

    assert everything(anywhere) == before


def test_only_what_is_new_is_read(catalog: Catalog, path: Path) -> None:
    registry.register(catalog, path)
    with opened(path, "w") as db:
        db.remove([1])
        db.remove([2])
        before = len(db.ledger())

    (contact,) = registry.refresh(catalog)

    assert contact.state == "current"
    assert 0 < contact.entries <= before


class History:
    """Random changes of a store, with contacts in between."""

    def __init__(self, catalog: Catalog, path: Path, seed: int) -> None:
        self.catalog, self.path, self.dice = catalog, path, random.Random(seed)
        self.copy = path.parent / "copy.forest"
        self.exported = path.parent / "ledger.jsonl"

    def step(self) -> None:
        acts = (self.add, self.remove, self.forget, self.hold, self.release, self.keep, self.put_back, self.ask)
        self.dice.choice(acts)()
        if self.dice.random() < 0.5:
            registry.refresh(self.catalog)

    def change(self, act: Callable[[dynfrsdb.Database], Any]) -> None:
        with opened(self.path, "w") as db, contextlib.suppress(dynfrsdb.Held):
            act(db)

    def somebody(self) -> str:
        return f"person {self.dice.randrange(60)}"

    def add(self) -> None:
        row = np.array([[self.dice.random() for _ in range(3)]])
        self.change(lambda db: db.add(row, [self.dice.randrange(2)], subjects=[self.somebody()]))

    def remove(self) -> None:
        def act(db: dynfrsdb.Database) -> None:
            with db._store.snapshot() as snapshot:
                ids = [int.from_bytes(key, "big") for key, _ in snapshot.scan("samples")]
            db.remove(self.dice.sample(ids, 2))

        self.change(act)

    def forget(self) -> None:
        with contextlib.suppress(dynfrsdb.SampleNotFound):
            self.change(lambda db: db.forget(self.somebody(), request_id=f"r{self.dice.random()}"))

    def hold(self) -> None:
        with contextlib.suppress(dynfrsdb.SampleNotFound):
            self.change(lambda db: db.hold(self.somebody(), "a reason"))

    def release(self) -> None:
        self.change(lambda db: [db.release(each.number) for each in db.holds()[:2]])

    def keep(self) -> None:
        if not self.copy.exists():
            self.change(lambda db: db.backup(self.copy))

    def put_back(self) -> None:
        """Restore the backup, sometimes without the removals that came after it."""
        if not self.copy.exists():
            return
        with dynfrsdb.open(self.path) as db:
            db.export_ledger(self.exported)
        shutil.rmtree(self.path)
        shutil.move(self.copy, self.path)
        if self.dice.random() < 0.5:
            dynfrsdb.restore(self.path, self.exported)

    def ask(self) -> None:
        ask(self.catalog, self.somebody(), f"request {self.dice.random()}")


@pytest.mark.parametrize("seed", [2, 3, 8])
def test_what_was_brought_in_step_by_step_is_what_a_rebuild_gives(anywhere: Catalog, path: Path, seed: int) -> None:
    shutil.rmtree(path)
    history = History(anywhere, new_store(path), seed)
    registry.register(anywhere, path)
    for _ in range(20):
        history.step()
    with opened(path, "w") as db:
        db.vacuum()
    registry.refresh(anywhere)
    before = everything(anywhere)

    registry.rebuild(anywhere, [])

    assert everything(anywhere) == before
    with dynfrsdb.open(path) as db:
        assert [each[4] for each in entries(anywhere)] == [each.hash for each in db.ledger()]


def test_a_store_that_was_put_back_is_read_anew_and_that_is_said(
    anywhere: Catalog, path: Path, store_dir: Path
) -> None:
    with opened(path, "w") as db:
        db.backup(store_dir / "copy.forest")
        db.remove([1])
    registry.register(anywhere, path)
    shutil.rmtree(path)
    shutil.move(store_dir / "copy.forest", path)
    with opened(path, "w") as db:
        db.remove([2])
        db.remove([3])
        db.remove([4])

    (contact,) = registry.refresh(anywhere)

    assert contact.state == "restored"
    assert "it was restored, or replaced by a copy" in str(contact.why)
    with dynfrsdb.open(path) as db:
        assert [each[4] for each in entries(anywhere)] == [each.hash for each in db.ledger()]


def test_many_who_bring_in_one_store_at_once_double_nothing(anywhere: Catalog, path: Path) -> None:
    registry.register(anywhere, path)
    failures: list[BaseException] = []

    def bring_in() -> None:
        try:
            for _ in range(10):
                registry.refresh(anywhere)
                registry.register(anywhere, path)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=bring_in) for _ in range(3)]
    for thread in threads:
        thread.start()
    with opened(path, "w") as db:
        for number in range(30):
            db.remove([number])
    for thread in threads:
        thread.join()
    registry.refresh(anywhere)
    before = everything(anywhere)
    registry.rebuild(anywhere, [])

    assert failures == []
    assert everything(anywhere) == before
    assert sum(each[3] for each in entries(anywhere)) == 30


def test_a_forked_child_brings_in_through_a_connection_of_its_own(anywhere: Catalog, path: Path) -> None:
    registry.register(anywhere, path)
    with opened(path, "w") as db:
        db.remove([1])

    assert in_child(lambda: registry.refresh(anywhere)) == 0

    assert [each.entries for each in registry.refresh(anywhere)] == [0]
    assert sum(each[3] for each in entries(anywhere)) == 1


def test_where_samples_came_from_is_read_from_the_ledger(anywhere: Catalog, path: Path) -> None:
    """One row for each source, however often it was used."""
    sources = [
        {"url": "postgresql://db/clinic", "table": "patients"},
        {"url": "sqlite:////data/x.db", "query": "SELECT"},
    ]
    with opened(path, "w") as db:
        for number, source in enumerate([sources[0], sources[1], sources[0]]):
            with db.transaction() as txn:
                txn._entry["source"] = source
                txn.remove([number])
    registry.register(anywhere, path)

    found = [({**each}, each.pop("first") < each.pop("last")) for each in report.sources(anywhere)]

    assert [again for _, again in found] == [True, False]
    assert [{name: each[name] for name in source} for (each, _), source in zip(found, sources, strict=True)] == sources


def test_a_damaged_ledger_is_not_brought_in(catalog: Catalog, path: Path) -> None:
    registry.register(catalog, path)
    before = everything(catalog)
    with opened(path, "w") as db, db._store.write() as session:
        session.append_ledger({"time": "", "kind": "x"})
        session.state["head"] = bytes(32)
        session.commit()

    (contact,) = registry.refresh(catalog)

    assert contact.state == "unreachable"
    assert "is not what was written" in str(contact.why)
    assert everything(catalog) == before
    assert report.stores(catalog)[0]["problem"] == contact.why


def test_an_error_of_ours_goes_through_a_transaction_as_it_is(catalog: Catalog) -> None:
    with pytest.raises(Error, match="there is no store at"):
        registry.register(catalog, "/nowhere/at.all")
