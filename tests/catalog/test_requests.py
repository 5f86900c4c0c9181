"""One request over many stores: each is asked, each forgets once, and what became of it is known."""

from __future__ import annotations

import shutil
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest

import dynfrsdb
from dynfrsdb.catalog import registry, report
from dynfrsdb.catalog.handle import Catalog
from dynfrsdb.catalog.requests import find, forget
from dynfrsdb.catalog.tables import Base
from dynfrsdb.errors import EntryNotFound, InvalidInput, RequestConflict, StoreNotFound
from tests.catalog.stores import ask, everything, opened, outcomes, removals
from tests.people import people
from tests.test_golden_stores import GOLDEN, unpacked

IN_ALL, IN_TWO = "person 50", "person 5"
"""Of all three stores, and of all but churn."""
GONE = ("unlearned", "rows erased", "erased")


def parts(catalog: Catalog, request: str) -> dict[str, dict[str, Any]]:
    (found,) = report.requests(catalog, request)
    return {Path(part["store"]).stem: part for part in found["stores"]}


def state(catalog: Catalog, request: str) -> str:
    (found,) = report.requests(catalog, request)
    return str(found["state"])


def samples(path: Path, subject: str) -> int:
    with dynfrsdb.open(path) as db, db._store.snapshot() as snapshot:
        hashed = db._secrets.subject(subject.encode())
        return sum(1 for key, _ in snapshot.scan("subjects") if key.startswith(hashed))


def test_every_store_that_holds_somebody_forgets_them(anywhere: Catalog, three: dict[str, Path]) -> None:
    for path in three.values():
        registry.register(anywhere, path)

    found = ask(anywhere, IN_TWO, "ticket 1")

    assert found["churn"] == "not held"
    assert found["credit"] in GONE
    assert found["fraud"] in GONE
    assert state(anywhere, "ticket 1") == "done"
    assert [samples(path, IN_TWO) for path in three.values()] == [0, 0, 0]
    assert [removals(path) for path in three.values()] == [[2], [2], []]


def test_the_evidence_is_the_ledger_entry_of_the_store(known: Catalog, three: dict[str, Path]) -> None:
    ask(known, IN_ALL, "ticket 1")
    with dynfrsdb.open(three["fraud"]) as db:
        entry = next(each for each in db.ledger() if each.removed)

    part = parts(known, "ticket 1")["fraud"]

    assert (part["change"], part["entry_hash"], part["unlearned"]) == (entry.sequence, entry.hash, entry.time)
    assert (part["removed"], part["why"]) == (2, None)


def test_stages_follow_the_store(known: Catalog, three: dict[str, Path]) -> None:
    ask(known, IN_ALL, "ticket 1")
    with opened(three["fraud"], "w") as db:
        db.vacuum()
    registry.refresh(known)

    part = parts(known, "ticket 1")["fraud"]

    with dynfrsdb.open(three["fraud"]) as db:
        (erasure,) = db.erasure_status()
    assert part["outcome"] == "erased"
    assert (part["rows_erased"], part["erased"]) == (erasure.rows_erased, erasure.erased)


def test_asking_again_does_nothing_twice(known: Catalog, three: dict[str, Path]) -> None:
    ask(known, IN_ALL, "ticket 1")
    before = {name: part["entry_hash"] for name, part in parts(known, "ticket 1").items()}

    ask(known, IN_ALL, "ticket 1")

    assert {name: part["entry_hash"] for name, part in parts(known, "ticket 1").items()} == before
    assert [removals(path) for path in three.values()] == [[2], [2], [2]]


def test_a_request_is_for_one_person(known: Catalog, three: dict[str, Path]) -> None:
    ask(known, IN_ALL, "ticket 1")

    with pytest.raises(RequestConflict, match="request 'ticket 1' was made for somebody else"):
        ask(known, IN_TWO, "ticket 1")

    assert samples(three["credit"], IN_TWO) == 2


def test_a_store_that_holds_somebody_back_refuses_until_it_lets_go(known: Catalog, three: dict[str, Path]) -> None:
    with opened(three["fraud"], "w") as db:
        hold = db.hold(IN_ALL, "the case of Featherstonehaugh")

    said = forget(known, IN_ALL, "ticket 1", opened)

    part = parts(known, "ticket 1")["fraud"]
    assert state(known, "ticket 1") == part["outcome"] == "refused"
    assert f"held by hold {hold.sequence}" in part["why"]
    assert "Featherstonehaugh" in said[part["uuid"]]
    assert "Featherstonehaugh" not in str(everything(known))
    assert outcomes(known, "ticket 1")["credit"] in GONE

    with opened(three["fraud"], "w") as db:
        db.release(hold.sequence)
    assert ask(known, IN_ALL, "ticket 1")["fraud"] in GONE
    assert [removals(path) for path in three.values()] == [[2], [2], [2]]


def test_a_store_that_is_being_written_is_asked_again(known: Catalog, three: dict[str, Path]) -> None:
    with opened(three["fraud"], "w") as db, db._store.write():
        found = ask(known, IN_ALL, "ticket 1", timeout=0.05)

    assert found["fraud"] == state(known, "ticket 1") == "unreachable"
    assert "is being written by process" in parts(known, "ticket 1")["fraud"]["why"]
    assert ask(known, IN_ALL, "ticket 1")["fraud"] in GONE
    assert state(known, "ticket 1") == "done"


def test_a_store_that_is_away_is_asked_when_it_is_back(known: Catalog, three: dict[str, Path]) -> None:
    away = three["fraud"].with_suffix(".away")
    shutil.move(three["fraud"], away)

    assert ask(known, IN_ALL, "ticket 1")["fraud"] == "unreachable"

    shutil.move(away, three["fraud"])
    assert ask(known, IN_ALL, "ticket 1")["fraud"] in GONE


def test_a_store_that_did_it_and_is_away_has_done_it(known: Catalog, three: dict[str, Path]) -> None:
    ask(known, IN_ALL, "ticket 1")
    shutil.move(three["fraud"], three["fraud"].with_suffix(".away"))

    assert ask(known, IN_ALL, "ticket 1")["fraud"] in GONE


def test_a_damaged_store_is_named_and_the_others_go_on(known: Catalog, three: dict[str, Path]) -> None:
    (three["fraud"] / "gen-0001" / "data.mdb").write_bytes(b"nothing")

    found = ask(known, IN_ALL, "ticket 1")

    assert found["fraud"] == "unreachable"
    assert {found["credit"], found["churn"]} <= set(GONE)


def test_a_store_without_the_person_is_looked_at_again(known: Catalog, three: dict[str, Path]) -> None:
    assert ask(known, IN_TWO, "ticket 1")["churn"] == "not held"
    X, y = people(1, 3)
    with opened(three["churn"], "w") as db:
        db.add(X, y, subjects=[IN_TWO])

    assert ask(known, IN_TWO, "ticket 1")["churn"] in GONE


def test_who_came_back_after_a_request_needs_a_new_one(known: Catalog, three: dict[str, Path]) -> None:
    ask(known, IN_ALL, "ticket 1")
    X, y = people(1, 3)
    with opened(three["churn"], "w") as db:
        db.add(X, y, subjects=[IN_ALL])

    said = forget(known, IN_ALL, "ticket 1", opened)

    assert list(said.values()) == ["1 samples of the subject came after this; make a new request"]
    assert samples(three["churn"], IN_ALL) == 1
    ask(known, IN_ALL, "ticket 2")
    assert samples(three["churn"], IN_ALL) == 0


def test_what_a_store_did_by_itself_under_this_id_counts(known: Catalog, three: dict[str, Path]) -> None:
    with opened(three["fraud"], "w") as db:
        db.forget(IN_ALL, request_id="ticket 1")

    assert ask(known, IN_ALL, "ticket 1")["fraud"] in GONE
    assert removals(three["fraud"]) == [2]


def test_an_id_that_a_store_knows_for_somebody_else_is_refused_there(known: Catalog, three: dict[str, Path]) -> None:
    with opened(three["fraud"], "w") as db:
        db.forget(IN_TWO, request_id="ticket 1")

    found = ask(known, IN_ALL, "ticket 1")
    registry.refresh(known)
    registry.rebuild(known, [])

    assert found["fraud"] == outcomes(known, "ticket 1")["fraud"] == "refused"
    assert "used before for something else" in parts(known, "ticket 1")["fraud"]["why"]
    assert samples(three["fraud"], IN_ALL) == 2


def test_a_store_that_was_put_back_before_a_request_is_asked_again(known: Catalog, three: dict[str, Path]) -> None:
    copy = three["fraud"].with_suffix(".copy")
    with opened(three["fraud"], "w") as db:
        db.backup(copy)
    ask(known, IN_ALL, "ticket 1")
    shutil.rmtree(three["fraud"])
    shutil.move(copy, three["fraud"])

    registry.refresh(known)

    assert outcomes(known, "ticket 1")["fraud"] == state(known, "ticket 1") == "pending"
    assert "put back to a state before this" in parts(known, "ticket 1")["fraud"]["why"]
    assert ask(known, IN_ALL, "ticket 1")["fraud"] in GONE
    assert samples(three["fraud"], IN_ALL) == 0


def test_a_restored_store_has_done_what_the_lost_one_did(known: Catalog, three: dict[str, Path]) -> None:
    copy, ledger = three["fraud"].with_suffix(".copy"), three["fraud"].with_suffix(".jsonl")
    with opened(three["fraud"], "w") as db:
        db.backup(copy)
    ask(known, IN_ALL, "ticket 1")
    with opened(three["fraud"], "r") as db:
        db.export_ledger(ledger)
    shutil.rmtree(three["fraud"])
    shutil.move(copy, three["fraud"])
    dynfrsdb.restore(three["fraud"], ledger)

    registry.rebuild(known, [])

    assert ask(known, IN_ALL, "ticket 1")["fraud"] in GONE
    assert samples(three["fraud"], IN_ALL) == 0


def test_a_store_that_is_registered_later_is_asked_by_the_same_command(
    catalog: Catalog, three: dict[str, Path]
) -> None:
    registry.register(catalog, three["credit"])
    ask(catalog, IN_ALL, "ticket 1")
    registry.register(catalog, three["fraud"])

    assert outcomes(catalog, "ticket 1")["fraud"] == state(catalog, "ticket 1") == "pending"
    assert ask(catalog, IN_ALL, "ticket 1")["fraud"] in GONE


def test_two_who_ask_the_same_at_once_do_it_once(anywhere: Catalog, three: dict[str, Path]) -> None:
    for path in three.values():
        registry.register(anywhere, path)

    with ThreadPool(3) as pool:
        found = pool.map(lambda _: ask(anywhere, IN_ALL, "ticket 1", timeout=30), range(3))

    assert all(set(each.values()) <= set(GONE) for each in found)
    assert [removals(path) for path in three.values()] == [[2], [2], [2]]


def test_looking_for_somebody_changes_nothing(known: Catalog) -> None:
    before = everything(known)

    assert sorted(map(str, find(known, IN_TWO, "ticket 1").values())) == ["0", "2", "2"]

    assert everything(known) == before


def test_without_stores_there_is_nothing_to_ask(catalog: Catalog) -> None:
    with pytest.raises(StoreNotFound, match="no store is registered"):
        ask(catalog, IN_ALL, "ticket 1")


def test_an_unknown_request_says_how_a_lost_one_comes_back(known: Catalog) -> None:
    with pytest.raises(EntryNotFound, match="forget the subject again with this id"):
        outcomes(known, "ticket 1")


@pytest.mark.parametrize("request_id", ["", " ", "a\nb", "a\0b", "\udc80", "x" * 201])
def test_a_request_id_is_a_line_of_text(known: Catalog, request_id: str) -> None:
    with pytest.raises(InvalidInput, match="request id"):
        ask(known, IN_ALL, request_id)


def test_nothing_raw_is_in_the_catalog_unless_it_was_asked_for(known: Catalog, three: dict[str, Path]) -> None:
    """Neither who was forgotten, nor ids, values, reasons, seeds or keys; not in any byte of the file."""
    name, reason, number = "Wilhelmina Featherstonehaugh", "the case of Wilhelmina", 7_346_182_950
    with opened(three["fraud"], "w") as db:
        db.add([[1234.5678, 2, 3]], [1], ids=[number], subjects=[name])
        hold = db.hold(name, reason)
        ask(known, name, "ticket 1")
        db.release(hold.sequence)
        settings = db._settings
        ask(known, name, "ticket 1")
    file = Path(str(known.url).removeprefix("sqlite:///")).read_bytes()
    secrets = [settings.seed, *(settings.secret(each) for each in (b"subject", b"id", b"request", b"samples"))]
    raw = [name, reason, "Wilhelmina", str(number), f"{number:x}", "1234.5", *(key.hex() for key in secrets)]

    found = [each for each in [*(text.encode() for text in raw), *secrets] if each in file]

    assert found == []
    ask(known, name, "ticket 2", keep_subject=True)
    assert name.encode() in Path(str(known.url).removeprefix("sqlite:///")).read_bytes()
    assert [each["subject"] for each in report.requests(known)] == [None, name]


def test_two_catalogs_know_one_person_by_different_hashes(known: Catalog, tmp_path: Path) -> None:
    other = Catalog(f"sqlite:///{tmp_path}/other.sqlite", create=True)

    assert known.subject_hash(b"ann") == Catalog(known.url).subject_hash(b"ann")
    assert known.subject_hash(b"ann") != other.subject_hash(b"ann")


def test_every_table_is_looked_at_by_these_tests(known: Catalog) -> None:
    assert set(everything(known)) == set(Base.metadata.tables)


def test_a_store_of_an_older_format_is_brought_in_and_asked_once_it_was_migrated(
    catalog: Catalog, store_dir: Path
) -> None:
    path = unpacked(GOLDEN / "format-1.tar.xz", "people.forest", store_dir).path
    registry.register(catalog, path)

    before = ask(catalog, "person 12", "ticket 3")

    assert before == {"people": "unreachable"}
    assert "run 'dynfrsdb migrate" in parts(catalog, "ticket 3")["people"]["why"]
    dynfrsdb.migrate(path)
    assert ask(catalog, "person 12", "ticket 3")["people"] in GONE
