"""A store that follows a source, while the source dies, processes die, and several do it at once.

Whatever happens: no sample goes because a source could not be read, none comes twice, and the next `sync` that comes to
its end leaves exactly what the source has.
"""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import dynfrsdb
from dynfrsdb import difference, sql, syncing
from dynfrsdb.errors import Locked, Unreachable
from dynfrsdb.syncing import Manner, SyncReport, sync
from dynfrsdb.tables import batch
from dynfrsdb.tables.sql import Source
from tests.postgres import Server
from tests.reliability.workload import KILLED, LENGTH, Child, Tell, chance, elsewhere, in_child
from tests.sources import Base, People, expected_digest, people, person

COUNT = 300
AT_ONCE = 32
"""Rows that are read and compared in one go here, so that a small table has many parts."""
KILLS = 8 * LENGTH


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "ROWS_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(difference, "AT_ONCE", AT_ONCE)


@pytest.fixture
def model(base: Base) -> People:
    """What the table says after the store was made: much of it has changed."""
    base.insert(people(COUNT))
    return people(COUNT)


@pytest.fixture
def store(base: Base, model: People, store_dir: Path) -> Path:
    path = base.create(store_dir / "people.forest")
    gone = [id for id in model if id % 7 == 0]
    changed = {id: person(id, 1) for id in model if id % 7 == 1}
    new = {id: person(id) for id in range(COUNT, COUNT + 40)}
    base.delete(gone)
    base.update(changed)
    base.insert(new)
    model.update(changed | new)
    for id in gone:
        del model[id]
    return path


def follow(path: Path, source: Source, **manner: Any) -> SyncReport:
    with dynfrsdb.open(path, "w") as db:
        return sync(db, source, manner=Manner(**manner))


def at_part(number: int, act: Callable[[], object]) -> Callable[[str, int, int], None]:
    """A progress callback that does something once, when a part of the source was compared."""
    parts = 0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal parts
        parts += stage == "comparing"
        if parts == number and stage == "comparing":
            act()

    return progress


def samples(path: Path) -> set[int]:
    with dynfrsdb.open(path) as db, db._store.snapshot() as snapshot:
        return {int.from_bytes(key, "big") for key, _ in snapshot.scan("samples")}


def in_step(path: Path, model: People) -> None:
    """The store is sound, and what the model says."""
    with dynfrsdb.open(path) as db:
        assert db.check().problems == ()
        assert db.digest() == expected_digest(path, model)


# Sources that die


def end_other_connections(url: str) -> None:
    with sql.engine(url).begin() as connection:
        connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                 "AND datname = current_database()")
        )  # fmt: skip


def interrupted_halfway(path: Path, base: Base, model: People, act: Callable[[], object]) -> None:
    """The source dies when some of it was read: nobody behind that place is touched."""
    before = samples(path)

    with pytest.raises(Unreachable), dynfrsdb.open(path, "w") as db:
        sync(db, base.source, manner=Manner(batch=1, progress=at_part(3, act)))

    read = sorted(model)[: 4 * AT_ONCE]
    found = samples(path)
    assert {id for id in before if id > read[-1]} <= found
    assert found != before
    assert found - before <= set(model)
    with dynfrsdb.open(path) as db:
        assert db.check().problems == ()


@pytest.mark.parametrize("base", ["postgresql"], indirect=True)
def test_a_connection_that_ends_in_the_middle_removes_nobody(base: Base, store: Path, model: People) -> None:
    interrupted_halfway(store, base, model, lambda: end_other_connections(base.url))

    follow(store, base.source)

    in_step(store, model)


@pytest.mark.parametrize("base", ["postgresql"], indirect=True)
def test_a_server_that_is_stopped_in_the_middle_removes_nobody(
    base: Base, store: Path, model: People, postgres_server: Server
) -> None:
    interrupted_halfway(store, base, model, lambda: postgres_server.stop(signal.SIGINT))
    with pytest.raises(Unreachable):
        follow(store, base.source)

    postgres_server.start()
    follow(store, base.source)

    in_step(store, model)


@pytest.mark.parametrize("base", ["sqlite"], indirect=True)
def test_a_damaged_file_removes_nobody(base: Base, store: Path, model: People) -> None:
    """What can still be read of a file that was cut in half is not what is left of the source."""
    before = samples(store)
    file = Path(base.url.removeprefix("sqlite:///"))
    whole = file.read_bytes()
    sql.dispose()
    file.write_bytes(whole[: len(whole) // 2 // 4096 * 4096])

    with pytest.raises(Unreachable):
        follow(store, base.source, batch=1)

    assert samples(store) == before
    file.write_bytes(whole)
    follow(store, base.source)
    in_step(store, model)


@pytest.mark.parametrize("base", ["postgresql"], indirect=True)
def test_a_statement_that_times_out_changes_nothing(base: Base, store: Path) -> None:
    before = samples(store)
    slow = Source(f"{base.url}&options=-c statement_timeout=100", table="people", where="pg_sleep(1) IS NOT NULL")

    with pytest.raises(Unreachable, match="took too long"):
        follow(store, slow)

    assert samples(store) == before


# Others who write


def test_what_others_did_meanwhile_is_neither_doubled_nor_missed(base: Base, store: Path, model: People) -> None:
    """Between the comparison and the commit somebody removes what was to go, and adds what was to come."""

    def meddle(db: dynfrsdb.Database) -> None:
        db.remove([0, 7, 8])
        new = person(300)
        row = [new.age, new.job == "clerk", new.job == "cook", new.job == "smith", new.smoker, new.weight]
        db.add([row], [new.outcome], ids=[300], subjects=[new.who])

    last = -(-len(model) // AT_ONCE)
    report = follow(store, base.source, progress=at_part(last, lambda: elsewhere(meddle, store)))

    in_step(store, model)
    assert report.removed == len([id for id in range(COUNT) if id % 7 == 0]) - 2


def test_a_store_never_goes_back_to_an_older_state_of_its_source(base: Base, store: Path, model: People) -> None:
    """Another process brings the store to a newer state of the source while this one still reads an older one."""
    if base.url.startswith("sqlite"):
        sqlite3.connect(base.url.removeprefix("sqlite:///")).execute("PRAGMA journal_mode = WAL")
    newer = {id: person(id, 2) for id in list(model)[:20]} | {id: person(id) for id in range(900, 910)}

    def overtake() -> None:
        base.update(newer)
        assert in_child(lambda: follow(store, base.source)) == 0

    follow(store, base.source, batch=1, progress=at_part(1, overtake))

    in_step(store, model | newer)


def test_who_is_overtaken_every_time_says_so(base: Base, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of trying for ever."""
    monkeypatch.setattr(syncing, "PASSES", 3)
    turn = iter(range(3))

    def overtake(stage: str, done: int, total: int) -> None:
        if stage == "comparing" and done == AT_ONCE:
            source = Source(base.url, table="people", where=f"id <> {next(turn) + 2}")
            assert in_child(lambda: follow(store, source)) == 0

    with pytest.raises(Locked, match="let one of them do it"):
        follow(store, base.source, progress=overtake)


def keep_following(path: Path, source: Source, rounds: int, tell: Tell) -> None:
    with dynfrsdb.open(path, "w") as db:
        for _ in range(rounds):
            report = sync(db, source, manner=Manner(batch=5, timeout=60))
            tell({"added": report.added, "removed": report.removed, "replaced": report.replaced})


def test_two_processes_that_sync_at_once_double_and_lose_nothing(base: Base, store: Path, model: People) -> None:
    """While the source changes under them. What both say that they did is what the ledger says."""
    start = samples(store)
    children = [Child(lambda tell: keep_following(store, base.source, 4, tell)) for _ in range(2)]
    for step in range(6):
        changed = {id: person(id, step + 2) for id in list(model)[step::11]}
        base.update(changed)
        model.update(changed)
        time.sleep(0.05)
    said = [line for child in children for line in child.rest()]

    assert [child.end() for child in children] == [0, 0]
    follow(store, base.source)
    in_step(store, model)
    with dynfrsdb.open(store) as db:
        *entries, last = (each for each in db.ledger() if each.kind == "change")
    told = (
        sum(line["added"] + line["replaced"] for line in said),
        sum(line["removed"] + line["replaced"] for line in said),
    )
    done = sum(each.added for each in entries), sum(each.removed for each in entries)
    assert told in (done, (done[0] + last.added, done[1] + last.removed))
    assert len(start) + sum(each.added - each.removed for each in (*entries, last)) == len(model)


# Processes that die


def test_a_sync_that_is_killed_is_finished_by_the_next(base: Base, store: Path, model: People) -> None:
    dice = chance("kill a sync")
    for step in range(KILLS):
        changed = {id: person(id, step + 2) for id in dice.sample(sorted(model), 60)}
        base.update(changed)
        model.update(changed)
        with Child(lambda tell: keep_following(store, base.source, 1, tell)) as child:
            time.sleep(dice.uniform(0.02, 0.6))
            child.kill()
            assert child.end() in (KILLED, 0)
        with dynfrsdb.open(store) as db:
            assert db.check().problems == ()

    follow(store, base.source)

    in_step(store, model)
