"""What a write session promises: everything or nothing, in the right order, and rows that really go away."""

import threading
from pathlib import Path

import numpy as np
import pytest

from dynfrsdb_storage import Store, failpoints, layout, ledger, records
from dynfrsdb_storage.errors import ClosedStore, Locked, ReadOnly
from tests.storage.people import add, living, new_store, problems, put_people, remove, take_people, traces, values


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An open store of 20 people."""
    return Store.open(new_store(tmp_path / "people.forest"), writable=True)


def test_what_was_added_and_removed_is_there_and_gone(store: Store) -> None:
    assert add(store, [100, 101]) == 2
    assert remove(store, [3, 100]) == 3

    assert living(store) == set(range(20)) - {3} | {101}
    assert problems(store) == []


def test_leaving_without_commit_changes_nothing_and_leaves_no_row_behind(store: Store) -> None:
    with store.write() as session:
        put_people(session, [100])
        take_people(session, [4])
        session.put("nodes", b"key", b"payload")
        assert traces(store.path, 100) == 1

    assert living(store) == set(range(20))
    assert traces(store.path, 100) == 0
    with store.snapshot() as snapshot:
        assert snapshot.get("nodes", [b"key"]) == [None]
        assert snapshot.commit == 1
    assert problems(store) == []


def test_an_exception_rolls_back(store: Store) -> None:
    def fail() -> None:
        with store.write() as session:
            put_people(session, [100])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert living(store) == set(range(20))
    assert traces(store.path, 100) == 0


def test_the_row_of_a_removed_person_is_overwritten_at_once(store: Store) -> None:
    remove(store, [7])

    assert traces(store.path, 7) == 0
    assert traces(store.path, 8) == 1


def test_a_reader_of_an_older_commit_keeps_the_row_until_it_is_done(store: Store) -> None:
    with store.snapshot() as old:
        remove(store, [7])

        assert traces(store.path, 7) == 1
        assert store.erase_pending() == 1
        assert old.rows.floats[7, 6:11].tolist() == values(7).tolist()
        assert store.info()["pending_erasures"] == 1

    assert store.erase_pending() == 0
    assert traces(store.path, 7) == 0
    assert store.info()["pending_erasures"] == 0


def test_a_reader_of_the_newest_commit_does_not_delay_erasure(store: Store) -> None:
    remove(store, [7])
    with store.snapshot():
        assert store.erase_pending() == 0
        with store.write() as session:
            assert session.unerased == 0


def test_closing_a_handle_erases_what_a_reader_delayed(store: Store) -> None:
    with store.snapshot():
        remove(store, [7])
    store.close()

    assert traces(store.path, 7) == 0


def test_a_slot_is_used_again_only_after_a_commit_has_cleared_it(store: Store) -> None:
    remove(store, [0, 1])
    with store.write() as session:
        assert session.reserve(1).tolist() == [20]
        session.commit()
        assert session.reserve(2).tolist() == [0, 1]

    assert problems(store) == []


def test_a_slot_that_a_reader_holds_is_not_used_again(store: Store) -> None:
    with store.snapshot():
        remove(store, [0])
        add(store, [100])
        add(store, [101])
        with store.write() as session:
            assert session.reserve(1).tolist() == [22]


def test_reserved_slots_that_get_no_row_stay_reserved(store: Store) -> None:
    with store.write() as session:
        session.reserve(10)
        put_people(session, [100])
        session.commit()
        assert session.reserve(1).tolist() == [20]

    assert living(store) == {*range(20), 100}
    assert problems(store) == []


@pytest.mark.parametrize("batches", [[1024], [1025], [600, 600], [5000], [3, 2040, 3000]])
def test_a_batch_of_any_size_finds_reserved_slots(store: Store, batches: list[int]) -> None:
    with store.write() as session:
        at = 1000
        for size in batches:
            put_people(session, range(at, at + size))
            at += size
        session.commit()

    assert len(living(store)) == 20 + sum(batches)
    assert problems(store) == []
    with store.snapshot() as snapshot:
        assert snapshot.state["reserved"] >= layout.MIN_RESERVED


def test_a_large_batch_that_is_rolled_back_leaves_no_row_behind(store: Store) -> None:
    with store.write() as session:
        put_people(session, range(1000, 1800))
        put_people(session, range(2000, 4000))

    assert [traces(store.path, i) for i in (1000, 1799, 2000, 3999)] == [0, 0, 0, 0]
    assert problems(store) == []
    assert len(living(store)) == 20


def test_rows_go_only_into_slots_of_this_session(store: Store) -> None:
    with store.write() as session:
        session.reserve(2)
        with pytest.raises(ValueError, match="only into slots that this session has reserved"):
            session.write_rows(np.array([5]), np.array([1]), np.array([0]), values(1)[None])
        with pytest.raises(ValueError, match="only into slots"):
            session.write_rows(np.array([22]), np.array([1]), np.array([0]), values(1)[None])

    assert living(store) == set(range(20))


def test_deletes_come_before_puts(store: Store) -> None:
    keys = [layout.node_key(1, path) for path in (1, 2, 4, 5, 3)]
    with store.write() as session:
        session.put_many("nodes", [(key, b"old") for key in keys])
        session.commit()
        session.put("nodes", keys[2], b"new")
        session.delete_range("nodes", *layout.subtree_range(1, 2))
        session.delete("nodes", keys[4])
        session.delete("nodes", b"not there")
        session.commit()

    with store.snapshot() as snapshot:
        assert list(snapshot.scan("nodes")) == [(keys[0], b"old"), (keys[2], b"new")]


def test_one_session_may_commit_many_times(store: Store) -> None:
    with store.write() as session:
        for i in range(5):
            put_people(session, [100 + i])
            assert session.number == i + 2
            assert session.commit() == i + 2
            assert session.snapshot.commit == i + 2

    assert len(living(store)) == 25
    assert problems(store) == []


def test_roots_are_set_128_trees_at_a_time(store: Store) -> None:
    stamps, n, tags = np.arange(130), np.arange(130) + 1, np.arange(130) % 2
    with store.write() as session:
        session.put_roots(1, stamps[128:], n[128:], tags[128:])
        session.commit()
        assert [column[:128].any() for column in session.snapshot.roots()] == [False, False, False]
        session.put_roots(0, stamps[:128], n[:128], tags[:128])
        session.commit()

    with store.snapshot() as snapshot:
        found = snapshot.roots()
        assert [str(column.dtype) for column in found] == ["uint64", "uint32", "uint8"]
        assert [column.tolist() for column in found] == [stamps.tolist(), n.tolist(), tags.tolist()]


def test_ledger_entries_form_a_chain(store: Store) -> None:
    with store.write() as session:
        first = session.append_ledger({"what": "a"})
        second = session.append_ledger({"what": "b"})
        session.commit()

    assert (first["sequence"], second["sequence"]) == (2, 3)
    assert second["prev"] == first["hash"]
    with store.snapshot() as snapshot:
        stored = [records.unframe(payload) for _, payload in snapshot.scan("ledger")]
        assert stored[1:] == [first, second]
        assert ledger.broken_links(stored, 3, second["hash"]) == []


def test_a_full_map_grows_and_the_whole_change_goes_through(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(failpoints, "hook", seen.append)
    store.current().env.set_mapsize(1 << 20)

    with store.write() as session:
        put_people(session, [100])
        session.put_many("buckets", [(layout.bucket_key(1, 1, i), bytes(3000)) for i in range(1000)])
        assert session.commit() == 2

    assert seen.count("map-grow") >= 1
    assert living(store) == {*range(20), 100}
    with store.snapshot() as snapshot:
        assert snapshot.count("buckets") == 1000
    assert problems(store) == []


def test_a_snapshot_of_the_newest_commit_survives_a_growing_map(store: Store) -> None:
    store.current().env.set_mapsize(1 << 20)
    with store.snapshot() as newest, store.write() as session:
        session.put_many("buckets", [(layout.bucket_key(1, 1, i), bytes(3000)) for i in range(1000)])
        session.commit()

        assert newest.commit == 1
        assert newest.count("buckets") == 0


def test_an_older_snapshot_that_a_growing_map_ends_says_so(store: Store) -> None:
    store.current().env.set_mapsize(1 << 20)
    with store.snapshot() as old:
        add(store, [100])
        with store.write() as session:
            session.put_many("buckets", [(layout.bucket_key(1, 1, i), bytes(3000)) for i in range(1000)])
            session.commit()

        with pytest.raises(ClosedStore, match=r"memory map had to grow.*take a new one"):
            old.count("samples")
        assert old.ended


def test_readers_of_other_handles_follow_a_grown_map(store: Store) -> None:
    with Store.open(store.path, writable=False) as reader:
        store.current().env.set_mapsize(1 << 20)
        with store.write() as session:
            session.put_many("buckets", [(layout.bucket_key(1, 1, i), bytes(3000)) for i in range(1000)])
            session.commit()

        with reader.snapshot() as snapshot:
            assert snapshot.count("buckets") == 1000


def test_the_second_writer_waits_and_then_is_told_who_writes(store: Store) -> None:
    with store.write(purpose="nightly import"), pytest.raises(Locked) as caught:
        store.write(timeout=0.05).__enter__()

    assert "is being written by process" in str(caught.value)
    assert "nightly import); try again or pass timeout=" in str(caught.value)
    assert isinstance(caught.value, TimeoutError)
    add(store, [100])


def test_threads_take_turns(store: Store) -> None:
    threads = [threading.Thread(target=add, args=(store, [100 + i])) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert living(store) == {*range(20), *range(100, 108)}
    assert problems(store) == []


def test_a_session_that_is_over_refuses_work(store: Store) -> None:
    with store.write() as session:
        pass

    with pytest.raises(ClosedStore, match="is over; begin a new one"):
        session.commit()


def test_a_handle_for_reading_does_not_write(store: Store) -> None:
    with Store.open(store.path, writable=False) as reader, pytest.raises(ReadOnly, match="open for reading"):
        reader.write()


def test_a_failure_before_the_commit_lets_the_session_try_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        if name == "commit-before":
            raise ZeroDivisionError

    with store.write() as session:
        put_people(session, [100])
        monkeypatch.setattr(failpoints, "hook", fail)
        with pytest.raises(ZeroDivisionError):
            session.commit()
        monkeypatch.setattr(failpoints, "hook", None)
        assert session.commit() == 2

    assert living(store) == {*range(20), 100}
    assert problems(store) == []


def test_an_interrupt_right_after_the_commit_does_not_zero_live_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(name: str) -> None:
        if name == "commit-after":
            raise KeyboardInterrupt

    monkeypatch.setattr(failpoints, "hook", interrupt)
    with pytest.raises(KeyboardInterrupt):
        add(store, [100])
    monkeypatch.setattr(failpoints, "hook", None)

    assert living(store) == {*range(20), 100}
    add(store, [101])
    assert problems(store) == []


def test_records_loaded_are_counted(store: Store) -> None:
    before = store.loads["samples"]
    with store.snapshot() as snapshot:
        snapshot.get("samples", [layout.id_key(1), layout.id_key(2), layout.id_key(999)])

    assert store.loads["samples"] - before == 2


def test_the_last_record_that_is_not_behind_a_key_is_found(store: Store) -> None:
    with store.write() as session:
        session.put_many("buckets", [(b"b", b"of b"), (b"d", b"of d")])
        session.commit()

    with store.snapshot() as snapshot:
        found = [snapshot.at_or_before("buckets", key) for key in (b"a", b"b", b"c", b"d", b"e")]
    assert found == [None, (b"b", b"of b"), (b"b", b"of b"), (b"d", b"of d"), (b"d", b"of d")]


@pytest.mark.parametrize(
    "keys", [[b"a", b"b", b"bb", b"c", b"d", b"e", b"f"], [b"c", b"f", b"bb", b"a", b"e", b"d", b"b"]]
)
def test_many_keys_at_once_find_what_each_finds_alone(store: Store, keys: list[bytes]) -> None:
    with store.write() as session:
        session.put_many("buckets", [(b"b", b"of b"), (b"d", b"of d")])
        session.commit()

    with store.snapshot() as snapshot:
        loads = store.loads["buckets"]
        near, values = snapshot.near("buckets", keys)
        assert store.loads["buckets"] - loads == 2
        alone = [snapshot.at_or_before("buckets", key) for key in keys]
    assert near == [found and found[0] for found in alone]
    assert values == {key: records.pack("buckets", key, b"of " + key) for key in (b"b", b"d")}
