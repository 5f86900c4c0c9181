"""Retired generations: zero before they are gone, and gone as soon as nobody needs them."""

import os
from pathlib import Path

import pytest

from dynfrsdb_storage import Store, failpoints
from dynfrsdb_storage.directory import switch_current
from dynfrsdb_storage.records import unframe
from dynfrsdb_storage.retire import holders, retire_old, retire_unfinished
from tests.storage.people import add, in_child, living, new_store, remove, values
from tests.storage.test_generations import rebuild


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a closed store of 20 people."""
    return new_store(tmp_path / "people.forest")


def test_every_file_is_zero_before_any_is_unlinked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rebuild(path)
    switch_current(path, "gen-0002")
    seen: list[tuple[str, bool]] = []

    def look(name: str) -> None:
        if name == "retire-unlinked":
            seen.extend((file.name, any(file.read_bytes())) for file in (path / "gen-0001").iterdir())

    links = path.parent / "links"
    links.mkdir()
    for file in (path / "gen-0001").iterdir():
        os.link(file, links / file.name)
    monkeypatch.setattr(failpoints, "hook", look)

    assert retire_old(path) == []

    assert not (path / "gen-0001").exists()
    assert seen
    assert not any(dirty for _, dirty in seen)
    assert {file.name: any(file.read_bytes()) for file in links.iterdir()} == {
        "LEASE": False,
        "data.mdb": False,
        "lock.mdb": False,
        "rows.bin": False,
    }
    assert (links / "rows.bin").stat().st_size > len(values(1).tobytes())


def test_a_generation_that_is_open_stays_and_its_holder_is_known(path: Path) -> None:
    with Store.open(path, writable=False) as reader:
        rebuild(path)
        switch_current(path, "gen-0002")

        assert retire_old(path) == ["gen-0001"]
        assert holders(path / "gen-0001") == [os.getpid()]

        assert living(reader) == set(range(20))
        assert holders(path / "gen-0001") == []
        assert retire_old(path) == []


def test_a_generation_that_is_being_built_is_not_an_old_one(path: Path) -> None:
    rebuild(path)

    assert retire_old(path) == []
    assert (path / "gen-0002").exists()

    retire_unfinished(path)
    assert not (path / "gen-0002").exists()


def test_the_session_after_a_death_removes_what_was_being_built(path: Path) -> None:
    def die() -> None:
        with Store.open(path, writable=True) as store, store.write():
            rebuild(path)
            os._exit(7)

    assert in_child(die) == 7
    assert (path / "gen-0002").exists()

    with Store.open(path, writable=True) as store:
        add(store, [100])

    assert sorted(each.name for each in path.iterdir()) == ["CURRENT", "LOCK", "gen-0001"]


@pytest.mark.parametrize("left", [[], ["LEASE"], ["LEASE", "rows.bin"]])
def test_a_half_removed_generation_is_removed(path: Path, left: list[str]) -> None:
    rebuild(path)
    switch_current(path, "gen-0002")
    for file in (path / "gen-0001").iterdir():
        if file.name not in left:
            file.unlink()

    assert retire_old(path) == []
    assert not (path / "gen-0001").exists()


def entries(store: Store) -> list[tuple[str, int]]:
    with store.snapshot() as snapshot:
        found = [unframe(payload) for _, payload in snapshot.scan("ledger")]
    return [(entry["kind"], entry["through"]) for entry in found if "kind" in entry]


def test_rows_that_a_reader_holds_back_are_noted_when_they_are_erased_and_not_before(path: Path) -> None:
    with Store.open(path, writable=True) as store:
        remove(store, [1])  # entry 2
        remove(store, [2])  # entry 3; notes that the rows of entry 2 are erased
        assert entries(store) == [("rows erased", 2)]
        with store.snapshot():
            remove(store, [3])  # entry 5
            remove(store, [4])  # entry 7
            assert entries(store) == [("rows erased", 2), ("rows erased", 4)]
            assert store.erase_pending() == 2

        assert store.erase_pending() == 0

        assert entries(store)[2:] == [("rows erased", 7)]
        with store.snapshot() as snapshot:
            assert (snapshot.state["rows_erased"], snapshot.state["pending"]) == (7, 0)
        assert not store.owes
