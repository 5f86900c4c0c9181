"""The audit finds each kind of damage and says what it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dynfrsdb_storage import Store, WriteSession, check_storage, layout, records
from tests.storage.people import add, new_store, problems, remove, subject


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An open store of 20 people in which nothing is wrong, with some history."""
    store = Store.open(new_store(tmp_path / "people.forest"), writable=True)
    add(store, range(100, 110))
    remove(store, [3, 105])
    add(store, [200])
    assert problems(store) == []
    return store


def scribble(store: Store, offset: int, data: bytes) -> None:
    with open(store.path / "gen-0001/rows.bin", "r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_changed_row_is_found(store: Store) -> None:
    scribble(store, 7 * layout.slot_bytes(5) + 24, b"\x01")

    assert problems(store) == ["sample 7: its row (slot 7) fails its hash or its id"]


def test_two_swapped_rows_are_found(store: Store) -> None:
    size = layout.slot_bytes(5)
    raw = (store.path / "gen-0001/rows.bin").read_bytes()
    scribble(store, 7 * size, raw[8 * size : 9 * size] + raw[7 * size : 8 * size])

    assert problems(store) == [
        "sample 7: its row (slot 7) fails its hash or its id",
        "sample 8: its row (slot 8) fails its hash or its id",
    ]


def test_an_erased_row_of_a_living_person_is_found(store: Store) -> None:
    scribble(store, 7 * layout.slot_bytes(5), bytes(layout.slot_bytes(5)))

    assert problems(store) == ["sample 7: its row (slot 7) fails its hash or its id"]


def test_leftover_data_in_a_free_slot_is_found(store: Store) -> None:
    with store.snapshot() as snapshot:
        last = snapshot.state["slots"] - 1
    scribble(store, last * layout.slot_bytes(5) + 8, b"\x01")

    assert problems(store) == [f"slot {last} holds data but no sample"]


def test_data_behind_the_last_slot_is_found_and_zeros_are_not(store: Store) -> None:
    end = (store.path / "gen-0001/rows.bin").stat().st_size
    scribble(store, end, bytes(100))
    assert problems(store) == []

    scribble(store, end + 50, b"\x01")
    assert problems(store) == ["'rows.bin' holds data behind its last slot"]


def damage_sample_slot(session: WriteSession) -> None:
    session.put("samples", layout.id_key(7), records.sample_payload(8))


def lose_subject(session: WriteSession) -> None:
    session.delete("subjects", layout.subject_key(subject(8), 8))


def invent_subject(session: WriteSession) -> None:
    session.put("subjects", layout.subject_key(subject(8), 9), b"")


def reserve_live_slot(session: WriteSession) -> None:
    session.put("reserved", layout.reserved_key(5), records.count_payload(1))


def lose_reserved(session: WriteSession) -> None:
    start = next(iter(session.snapshot.scan("reserved")))[0]
    session.delete("reserved", start)


def miscount(session: WriteSession) -> None:
    session.state["samples"] += 1


def claim_a_stage(session: WriteSession) -> None:
    session.state["erased"] = 2


def drop_entry(session: WriteSession) -> None:
    session.delete("ledger", layout.sequence_key(2))


def change_entry(session: WriteSession) -> None:
    key = layout.sequence_key(2)
    payload = session.snapshot.get("ledger", [key])[0]
    assert payload is not None
    session.put("ledger", key, records.frame({**records.unframe(payload), "samples": 11}))


def cut_ledger(session: WriteSession) -> None:
    session.delete("ledger", layout.sequence_key(session.state["sequence"]))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_sample_slot, "slot 8 is used twice"),
        (damage_sample_slot, "slot 7 belongs to nothing"),
        (damage_sample_slot, "sample 7: its row (slot 8) fails its hash or its id"),
        (lose_subject, "sample 8 is missing from its subject's list"),
        (invent_subject, "sample 9 is on the list of a subject it does not belong to"),
        (reserve_live_slot, "slot 5 is used twice"),
        (lose_reserved, "belongs to nothing"),
        (lose_reserved, "reserved, its counters say"),
        (miscount, "the store has 29 samples, its counters say 30"),
        (claim_a_stage, "'erased' is 2, the ledger says 0"),
        (drop_entry, "does not follow the one before it"),
        (change_entry, "ledger entry 2 was changed"),
        (cut_ledger, "the ledger has 4 entries, the store's counters say 5"),
    ],
)
def test_a_contradiction_is_found(store: Store, damage: Callable[[WriteSession], None], words: str) -> None:
    with store.write() as session:
        damage(session)
        session.commit()

    assert any(words in problem for problem in problems(store)), problems(store)


def test_every_bad_record_is_reported_not_just_the_first(store: Store) -> None:
    with store.write() as session:
        session.put("nodes", layout.node_key(3, 1), b"payload one")
        session.put("nodes", layout.node_key(3, 2), b"payload two")
        session.commit()
    data = store.path / "gen-0001/data.mdb"
    raw = data.read_bytes()
    with open(data, "r+b") as file:
        file.write(raw.replace(b"payload one", b"PAYLOAD one").replace(b"payload two", b"PAYLOAD two"))

    assert problems(store) == ["tree 3, node 0b1 fails its checksum", "tree 3, node 0b10 fails its checksum"]


def test_the_audit_tells_how_far_it_is(store: Store) -> None:
    seen: dict[str, int] = {}
    with store.snapshot() as snapshot:
        check_storage(snapshot, seen.__setitem__)

    assert seen["samples"] == 29
    assert seen["rows.bin"] == 29


def test_a_session_that_is_under_way_is_no_problem(store: Store) -> None:
    with store.write() as session:
        slots = session.reserve(1)
        session.write_rows(slots, [1000], [0], [[1.0, 2.0, 3.0, 4.0, 5.0]])  # type: ignore[arg-type]

        assert problems(store) == []
