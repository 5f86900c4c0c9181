"""Staying in step: after `sync` the store is what would be made from the source as it is."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dynfrsdb
from dynfrsdb import difference, sql
from dynfrsdb.chain import read_export
from dynfrsdb.errors import InvalidInput, Suppressed, Unreachable
from dynfrsdb.syncing import Manner, SyncReport, sync
from dynfrsdb.tables.sql import Source
from tests.conftest import MEMORY
from tests.sources import Base, People, expected_digest, people, person

COUNT = 60
EDITS = st.lists(
    st.tuples(st.sampled_from(["delete", "update", "insert"]), st.integers(0, 2 * COUNT), st.integers(1, 3)),
    max_size=25,
)


def follow(path: Path, base: Base, source: Source | None = None, **manner: Any) -> SyncReport:
    with dynfrsdb.open(path, "w") as db:
        return sync(db, source or base.source, manner=Manner(**manner))


def digest(path: Path) -> str:
    with dynfrsdb.open(path) as db:
        assert db.check()
        return db.digest()


def refusal(error: type[Exception], path: Path, act: Callable[[], object]) -> str:
    """What is said when `act` is refused; the store is as before, its ledger too."""
    with dynfrsdb.open(path) as db:
        before = db.digest(), db.ledger()
    with pytest.raises(error) as caught:
        act()
    with dynfrsdb.open(path) as db:
        assert (db.digest(), db.ledger()) == before
    return str(caught.value)


@pytest.fixture
def filled(base: Base) -> Base:
    base.insert(people(COUNT))
    return base


@pytest.fixture
def store(filled: Base, store_dir: Path) -> Path:
    return filled.create(store_dir / "people.forest")


def test_a_store_is_what_its_table_says(store: Path) -> None:
    assert digest(store) == expected_digest(store, people(COUNT))


def test_sync_adds_removes_and_replaces(store: Path, filled: Base) -> None:
    now = people(COUNT)
    changed = {id: person(id, 1) for id in (0, 30, 59)}
    new = {id: person(id) for id in (COUNT, COUNT + 7, 2**63 - 1)}
    filled.update(changed)
    filled.insert(new)
    filled.delete([1, 2, 58])
    now = {id: each for id, each in {**now, **changed, **new}.items() if id not in (1, 2, 58)}

    report = follow(store, filled)

    assert (report.added, report.removed, report.replaced, report.unchanged) == (3, 3, 3, COUNT - 6)
    assert report.rows == len(now)
    assert digest(store) == expected_digest(store, now)


def test_syncing_twice_changes_nothing_the_second_time(store: Path, filled: Base) -> None:
    filled.delete([5])
    follow(store, filled)

    again = follow(store, filled)

    assert (again.added, again.removed, again.replaced, again.unchanged) == (0, 0, 0, COUNT - 1)
    assert again.receipts == []


def test_another_subject_is_a_change(store: Path, filled: Base) -> None:
    """Or the person would not be found when they ask to be forgotten."""
    filled.execute("UPDATE people SET who = 'somebody else' WHERE id = 9")

    assert follow(store, filled).replaced == 1

    with dynfrsdb.open(store, "w") as db:
        assert db.forget("somebody else").removed == 1


def test_transactions_are_bounded(store: Path, filled: Base) -> None:
    filled.delete(range(10, 30))
    filled.insert({id: person(id) for id in range(100, 105)})

    report = follow(store, filled, batch=4)

    assert [each.added + each.removed for each in report.receipts] == [4, 4, 4, 4, 4, 4, 1]
    assert (report.added, report.removed) == (5, 20)


def test_a_dry_run_counts_and_changes_nothing(store: Path, filled: Base) -> None:
    filled.delete([3])
    filled.update({4: person(4, 1)})
    filled.insert({99: person(99)})
    with dynfrsdb.open(store) as db:
        before = db.digest()

        report = sync(db, filled.source, manner=Manner(dry_run=True))

        assert (report.added, report.removed, report.replaced, report.unchanged) == (1, 1, 1, COUNT - 2)
        assert db.digest() == before


def test_every_change_says_where_it_came_from(store: Path, filled: Base) -> None:
    source = Source(filled.url, table="people", where="id < 50")

    follow(store, filled, source)

    with dynfrsdb.open(store) as db:
        created, changed = (each.details["source"] for each in db.ledger() if each.kind in ("create", "change"))
    assert created == {**changed, "where": None}
    assert changed["where"] == "id < 50"
    assert (changed["table"], changed["id"], changed["target"], changed["subject"]) == (
        "people",
        "id",
        "outcome",
        "who",
    )
    assert "postgres@" not in changed["url"]


def test_the_ledger_of_a_store_in_step_can_be_exported_and_its_receipts_checked(
    store: Path, filled: Base, tmp_path: Path
) -> None:
    filled.delete([3])
    with dynfrsdb.open(store, "w") as db:
        sequence = sync(db, filled.source).receipts[0].sequence

        (tmp_path / "receipt.json").write_text(db.issue_receipt(sequence))
        db.export_ledger(tmp_path / "ledger.jsonl")

    assert dynfrsdb.verify_receipt(tmp_path / "receipt.json", store=store)
    assert read_export(tmp_path / "ledger.jsonl")[sequence - 1]["source"]["table"] == "people"


def test_a_long_row_of_vanished_samples_is_taken_in_parts(
    store: Path, filled: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two rows of the source the store may have more samples than are looked at in one go."""
    monkeypatch.setattr(difference, "AT_ONCE", 7)

    report = follow(store, filled, Source(filled.url, table="people", where="id IN (2, 57)"), batch=10)

    assert (report.removed, report.unchanged) == (COUNT - 2, 2)
    assert digest(store) == expected_digest(store, {id: person(id) for id in (2, 57)})


def test_a_store_made_from_arrays_follows_a_table(base: Base, store_dir: Path) -> None:
    """A regression whose features have no names: the columns of the table in their order, but for id and target."""
    path = store_dir / "arrays.forest"
    with dynfrsdb.create(
        path, [[1.0, 2.0], [3.0, 4.0]], [0.5, 1.5], ids=[5, 6], task="regression", target_step=0.25, n_estimators=3
    ) as db:
        base.execute("CREATE TABLE t (id integer, a double precision, y double precision, b integer)")
        base.execute("INSERT INTO t VALUES (5, 1, 0.5, 2), (6, 3, 1.75, 4), (8, 0, -2, -1)")

        report = sync(db, Source(base.url, table="t"), id="id", target="y")

        assert (report.unchanged, report.replaced, report.added) == (1, 1, 1)
        assert [(db.sample(id).y, db.sample(id).x.tolist()) for id in (5, 6, 8)] == [
            (0.5, [1, 2]),
            (1.75, [3, 4]),
            (-2.0, [0, -1]),
        ]


def test_a_store_that_does_not_know_its_columns_asks_for_them(base: Base, store_dir: Path) -> None:
    with (
        dynfrsdb.create(store_dir / "arrays.forest", [[1.0], [2.0]], [0, 1]) as db,
        pytest.raises(InvalidInput, match="which column is the target; pass --target"),
    ):
        sync(db, base.source, id="id")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(EDITS, min_size=1, max_size=3), batch=st.sampled_from([1, 3, 1000]))
def test_after_any_edits_the_store_is_that_of_the_table(
    kind: str, rounds: list[list[tuple[str, int, int]]], batch: int, request: pytest.FixtureRequest
) -> None:
    """The claim of the product, for stores that follow a source."""
    place = Path(tempfile.mkdtemp(prefix="dynfrsdb-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        base = Base(f"sqlite:///{place}/people.db" if kind == "sqlite" else _fresh_postgres(request))
        model = people(COUNT)
        base.insert(model)
        path = base.create(place / "people.forest")
        for edits in rounds:
            model = edited(base, model, edits)
            if model:
                follow(path, base, batch=batch)
        if model:
            assert digest(path) == expected_digest(path, model)
    finally:
        sql.dispose()
        shutil.rmtree(place)


def _fresh_postgres(request: pytest.FixtureRequest) -> str:
    server = request.getfixturevalue("postgres_server")
    return str(server.url(server.fresh()))


def edited(base: Base, model: People, edits: list[tuple[str, int, int]]) -> People:
    now = dict(model)
    for kind, id, turn in edits:
        if kind == "delete":
            now.pop(id, None)
        elif (kind == "update") == (id in now):
            now[id] = person(id, turn)
    base.delete(model.keys() - now.keys())
    base.update({id: each for id, each in now.items() if model.get(id) != each})
    return now


# What is refused


def test_duplicate_ids_are_named_and_refused_before_anything_changes(store: Path, filled: Base) -> None:
    """Even if the first of them comes after differences that would have been applied."""
    filled.delete(range(20))
    filled.insert({40: person(40, 1), 41: person(41)})

    message = refusal(InvalidInput, store, lambda: follow(store, filled, batch=1))

    assert message == ("'people' has more than one row with id 40, 41; nothing was changed. Give each row its own id")


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("NULL", "column 'id' is missing; every sample needs an id"),
        ("-3", "'people', id -3, column 'id' is negative"),
    ],
)
def test_ids_that_are_none_are_refused_before_anything_changes(cell: str, said: str, store: Path, filled: Base) -> None:
    filled.delete(range(20))
    filled.execute(f"UPDATE people SET id = {cell} WHERE id = 50")

    assert said in refusal(InvalidInput, store, lambda: follow(store, filled, batch=1))


def test_ids_that_sort_as_text_are_refused_before_anything_changes(store: Path, filled: Base) -> None:
    source = Source(
        filled.url, query="SELECT CAST(id AS text) AS id, who, age, job, smoker, weight, outcome FROM people"
    )
    filled.delete(range(30, 40))

    message = refusal(InvalidInput, store, lambda: follow(store, filled, source, batch=1))

    assert "sorts otherwise than whole numbers do" in message


def test_a_query_that_gives_other_rows_every_time_is_refused(store: Path, filled: Base) -> None:
    """What it leaves out the second time has not vanished."""
    often = "random() < 0.5" if filled.url.startswith("postgresql") else "random() % 2 = 0"
    source = Source(filled.url, query=f"SELECT * FROM people WHERE {often} OR id < 10")

    def until_it_differs() -> None:
        for _ in range(50):
            follow(store, filled, source, dry_run=True)

    assert "does not give the same rows when it is asked twice" in refusal(InvalidInput, store, until_it_differs)


def test_a_missing_value_names_column_and_id(store: Path, filled: Base) -> None:
    filled.execute("UPDATE people SET age = NULL WHERE id = 31")

    message = refusal(InvalidInput, store, lambda: follow(store, filled))

    assert message.startswith("'people', id 31, column 'age' is missing; fill it in")


def test_a_missing_target_names_column_and_id(store: Path, filled: Base) -> None:
    filled.execute("UPDATE people SET outcome = NULL WHERE id = 31")

    message = refusal(InvalidInput, store, lambda: follow(store, filled))

    assert message == "'people', id 31, column 'outcome' is missing; every sample needs a class"


def test_an_empty_source_is_refused_unless_that_is_meant(store: Path, filled: Base) -> None:
    filled.execute("DELETE FROM people")

    assert "has no rows; nothing was changed" in refusal(InvalidInput, store, lambda: follow(store, filled))
    assert follow(store, filled, allow_empty=True).removed == COUNT
    with dynfrsdb.open(store) as db:
        assert len(db) == 0


def test_what_is_not_there_is_said(store: Path, filled: Base) -> None:
    def at(**more: Any) -> str:
        return refusal(InvalidInput, store, lambda: follow(store, filled, Source(filled.url, **more)))

    assert "nobody" in at(table="nobody")
    assert "'the query' has no column 'job'" in at(query="SELECT id, who, outcome, age FROM people")
    assert "syntax error" in at(table="people", where="id <")
    nowhere = Source("sqlite:////nowhere/people.db", table="people")
    assert "there is no file '/nowhere/people.db'" in refusal(
        Unreachable, store, lambda: follow(store, filled, nowhere)
    )


def test_subjects_of_a_store_are_not_lost_to_a_source_without_them(filled: Base, store_dir: Path) -> None:
    path = filled.create(store_dir / "nobodys.forest", subject=None, ignore=["who"])
    with dynfrsdb.open(path, "w") as db:
        db.add([[1.0, 0, 0, 1, 0, 2]], ["ill"], ids=[777], subjects=["somebody"])

    message = refusal(InvalidInput, path, lambda: follow(path, filled))

    assert message.endswith("no column of the source says whose a row is; pass --subject")


# Holds and suppression


def test_whoever_is_held_stays_and_is_counted(store: Path, filled: Base) -> None:
    """Vanished or changed in the source: neither touches somebody who is held. When the hold ends, both do."""
    with dynfrsdb.open(store, "w") as db:
        number = db.hold("subject 5", "a lawsuit").sequence
    filled.delete([10, 20])
    filled.update({11: person(11, 1)})
    now = {id: each for id, each in people(COUNT).items() if id != 20}

    report = follow(store, filled)

    assert (report.removed, report.replaced, report.held) == (1, 0, 2)
    assert digest(store) == expected_digest(store, now)
    with dynfrsdb.open(store, "w") as db:
        db.release(number)
    report = follow(store, filled)
    assert (report.removed, report.replaced, report.held) == (1, 1, 0)


def test_forgotten_people_do_not_come_back_with_the_next_sync(store: Path, filled: Base) -> None:
    with dynfrsdb.open(store, "w") as db:
        db.suppress("skip")
        db.forget("subject 5")

    report = follow(store, filled)

    assert (report.added, report.suppressed, report.receipts) == (0, 2, [])
    with dynfrsdb.open(store) as db:
        assert 10 not in db


def test_a_store_that_refuses_forgotten_people_names_the_row(store: Path, filled: Base) -> None:
    with dynfrsdb.open(store, "w") as db:
        db.suppress("refuse")
        db.forget("subject 5")

    message = refusal(Suppressed, store, lambda: follow(store, filled))

    assert message.startswith("'people', id 10: its subject was forgotten")
