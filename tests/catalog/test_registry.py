"""A store is known by its uuid, is asked at one place, and a copy is never taken for it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from sqlalchemy import update

import dynfrsdb
from dynfrsdb.catalog import place, registry, report
from dynfrsdb.catalog.handle import Catalog
from dynfrsdb.catalog.tables import Registered
from dynfrsdb.errors import InvalidInput, StoreExists, StoreNotFound
from tests.catalog.stores import ask, everything, new_store, outcomes, removals


def backup(path: Path, name: str = "copy.forest") -> Path:
    with dynfrsdb.open(path) as db:
        db.backup(path.parent / name)
    return path.parent / name


def places(catalog: Catalog) -> list[str]:
    return [Path(each["path"]).name for each in report.stores(catalog)]


def move_to_another_host(catalog: Catalog, path: Path) -> None:
    """As it is in a catalog that two hosts share."""
    with catalog.writing("moving") as session:
        session.execute(update(Registered).where(Registered.path == str(path)).values(host="another.host"))


def test_a_store_by_another_path_is_the_same_store(catalog: Catalog, path: Path) -> None:
    registry.register(catalog, path)
    link = path.parent / "link.forest"
    link.symlink_to(path)

    states = [registry.register(catalog, each).state for each in (link, path.parent / "." / path.name)]

    assert states == ["current", "current"]
    assert places(catalog) == [path.name]


def test_a_relative_path_is_registered_as_an_absolute_one(
    catalog: Catalog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)

    registry.register(catalog, path.name)

    assert [each["path"] for each in report.stores(catalog)] == [os.path.realpath(path)]


def test_a_copy_is_refused_by_name_and_nothing_is_mixed_up(anywhere: Catalog, path: Path) -> None:
    registry.register(anywhere, path)
    copy = backup(path)
    before = everything(anywhere)

    with pytest.raises(StoreExists, match=r"copy.forest' is a copy of '.*people.forest', which is registered"):
        registry.register(anywhere, copy)

    assert everything(anywhere) == before


def test_a_store_that_was_moved_is_registered_at_its_new_place(catalog: Catalog, path: Path) -> None:
    registry.register(catalog, path)
    shutil.move(path, path.parent / "new.forest")

    (lost,) = registry.refresh(catalog)
    found = registry.register(catalog, path.parent / "new.forest")

    assert (lost.state, found.state) == ("unreachable", "moved")
    assert "if it was moved, run 'dynfrsdb catalog register'" in str(lost.why)
    assert places(catalog) == ["new.forest"]
    assert report.stores(catalog)[0]["problem"] is None


def test_a_copy_does_not_take_the_place_of_a_store_that_cannot_be_read_today(catalog: Catalog, path: Path) -> None:
    registry.register(catalog, path)
    copy = backup(path)
    (path / "CURRENT").write_text("nonsense\n")

    with pytest.raises(StoreExists, match="is a copy of"):
        registry.register(catalog, copy)


def test_an_older_copy_in_the_place_of_a_lost_store_is_said_to_be_one(catalog: Catalog, path: Path) -> None:
    copy = backup(path)
    with dynfrsdb.open(path, "w") as db:
        db.remove([1])
    registry.register(catalog, path)
    shutil.rmtree(path)

    found = registry.register(catalog, copy)

    assert found.state == "restored"
    assert "does not continue entry" in str(found.why)
    assert places(catalog) == ["copy.forest"]


def test_of_several_copies_of_a_lost_store_none_is_taken(catalog: Catalog, path: Path) -> None:
    registry.register(catalog, path)
    backup(path)
    backup(path, "older.forest")
    shutil.rmtree(path)

    states = {Path(each.store).name: each.state for each in registry.rebuild(catalog, [path.parent])}

    assert states == {"copy.forest": "a copy", "older.forest": "a copy", "people.forest": "unreachable"}


def test_another_store_at_a_registered_place_does_not_answer_for_it(known: Catalog, three: dict[str, Path]) -> None:
    shutil.rmtree(three["credit"])
    new_store(three["credit"])

    assert ask(known, "person 50", "r")["credit"] == "unreachable"

    (why,) = [each["problem"] for each in report.stores(known) if each["problem"]]
    assert "another store" in why
    assert removals(three["credit"]) == []


def test_a_store_of_another_host_is_never_opened_here(known: Catalog, three: dict[str, Path]) -> None:
    """A copy at the same path would answer for it."""
    move_to_another_host(known, three["credit"])

    states = {Path(each.store).stem: each.state for each in registry.refresh(known)}
    found = ask(known, "person 50", "r")

    assert states == {"credit": "elsewhere", "fraud": "current", "churn": "current"}
    assert found["credit"] == "unreachable"
    assert removals(three["credit"]) == []


def test_a_store_that_came_from_another_host_has_to_be_said_to_have_moved(
    known: Catalog, three: dict[str, Path]
) -> None:
    move_to_another_host(known, three["credit"])

    with pytest.raises(StoreExists, match=r"on host 'another.host'; if it was moved from there, pass --moved"):
        registry.register(known, three["credit"])

    assert registry.register(known, three["credit"], moved=True).state == "moved"
    assert {each.state for each in registry.refresh(known)} == {"current"}


def test_a_store_that_was_taken_out_is_not_asked_and_its_evidence_stays(known: Catalog, three: dict[str, Path]) -> None:
    ask(known, "person 50", "first")
    registry.unregister(known, str(three["credit"]))

    assert set(ask(known, "person 51", "second")) == {"fraud", "churn"}

    assert set(outcomes(known, "first")) == {"credit", "fraud", "churn"}
    assert removals(three["credit"]) == [2]
    assert "credit.forest" not in places(known)


def test_a_store_that_was_taken_out_may_be_replaced_by_its_copy(catalog: Catalog, path: Path) -> None:
    registry.register(catalog, path)
    copy = backup(path)
    registry.unregister(catalog, str(path))

    registry.register(catalog, copy)

    assert places(catalog) == ["copy.forest"]


def test_who_names_no_store_is_told(known: Catalog) -> None:
    with pytest.raises(StoreNotFound, match=r"no store 'x.forest' is registered"):
        registry.unregister(known, "x.forest")


def test_a_lost_catalog_is_made_again_from_a_directory(known: Catalog, three: dict[str, Path], tmp_path: Path) -> None:
    ask(known, "person 50", "r")
    again = Catalog(f"sqlite:///{tmp_path}/again.sqlite", create=True)

    found = registry.rebuild(again, [three["credit"].parent])

    assert {each.state for each in found} == {"current"}
    before, after = everything(known), everything(again)
    for table in ("dynfrsdb_stores", "dynfrsdb_ledger", "dynfrsdb_holds"):
        assert after[table] == before[table]
    assert ask(again, "person 50", "r") == outcomes(known, "r")
    assert [removals(path) for path in three.values()] == [[2], [2], [2]]


def test_of_several_copies_that_nobody_registered_none_is_taken(catalog: Catalog, path: Path) -> None:
    backup(path)
    new_store(path.parent / "below.forest")

    found = registry.rebuild(catalog, [path.parent])

    assert sorted((Path(each.store).name, each.state) for each in found) == [
        ("below.forest", "current"),
        ("copy.forest", "a copy"),
        ("people.forest", "a copy"),
    ]
    assert "register the one that is in use" in str(found[0].why)
    assert places(catalog) == ["below.forest"]


def test_a_rebuild_keeps_what_is_known_of_a_store_that_cannot_be_reached(
    known: Catalog, three: dict[str, Path]
) -> None:
    before = everything(known)
    shutil.move(three["fraud"], three["fraud"].with_suffix(".gone"))

    states = {Path(each.store).stem: each.state for each in registry.rebuild(known, [])}

    assert states == {"credit": "current", "fraud": "unreachable", "churn": "current"}
    assert everything(known) == before


def test_a_damaged_store_below_a_directory_is_named_and_the_others_are_taken(catalog: Catalog, path: Path) -> None:
    new_store(path.parent / "good.forest")
    (path / "CURRENT").write_text("nonsense\n")

    found = {Path(each.store).name: each.state for each in registry.rebuild(catalog, [path.parent])}

    assert found == {"people.forest": "unreachable", "good.forest": "current"}


def test_a_path_that_no_table_can_hold_is_refused(catalog: Catalog, store_dir: Path) -> None:
    path = new_store(store_dir / "a\nb.forest")

    with pytest.raises(InvalidInput, match="rename it"):
        registry.register(catalog, path)


def test_the_catalog_is_a_file_of_the_user_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(place.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    by_default = place.url(None)
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/ann")
    at_home = place.url(None)
    monkeypatch.setenv(place.VARIABLE, "postgresql://db/x")

    assert by_default == "sqlite:////data/dynfrsdb/catalog.sqlite"
    assert at_home == "sqlite:////home/ann/.local/share/dynfrsdb/catalog.sqlite"
    assert place.url(None) == "postgresql://db/x"
    assert place.url("sqlite:///x") == "sqlite:///x"
