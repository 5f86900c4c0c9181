"""Readers: any number of processes and threads that look while somebody writes.

They never wait for the writer nor it for them; they write nothing; they answer bit for bit what the writer answers; and
from commit to commit they read again only what changed.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import dynfrsdb
from dynfrsdb.errors import ClosedStore, ReadOnly
from dynfrsdb_engine import forest as engine_forest
from tests.reliability.workload import (
    EVERYBODY,
    PEOPLE,
    Child,
    Tell,
    add,
    answer,
    elsewhere,
    fresh_answer,
    living,
    new_store,
    traces,
    values,
)

ROWS = values(range(200_000, 200_400))


def content(path: Path) -> dict[str, str]:
    """A hash of every file of a store but lock.mdb, where readers leave their number."""
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "lock.mdb")
    return {str(file): sha256(file.read_bytes()).hexdigest() for file in files}


def test_a_reader_grows_tags_for_itself_and_answers_what_everybody_answers(path: Path, store_dir: Path) -> None:
    with dynfrsdb.open(path, "w", settle=None) as db:
        db.remove(range(0, 60, 2))
        assert db.info()["tags"] > 10

    before = content(path)
    with dynfrsdb.open(path) as reader:
        mine = answer(reader, ROWS)
        assert reader.info()["tags"] > 10
    assert content(path) == before

    expected = fresh_answer(store_dir / "fresh.forest", EVERYBODY - set(range(0, 60, 2)), ROWS)
    with dynfrsdb.open(path, "w", settle=None) as db:
        theirs = answer(db, ROWS)
        db.settle()
        settled = answer(db, ROWS)
    assert (mine, theirs, settled) == (expected, expected, expected)


def test_readers_in_other_processes_answer_bit_for_bit_what_the_writer_answers(path: Path) -> None:
    with dynfrsdb.open(path, "w", settle=None) as db:
        for round in range(6):
            db.remove([round * 7, round * 7 + 1])
            add(db, range(1000 + 10 * round, 1003 + 10 * round))

            def ask(tell: Tell) -> None:
                with dynfrsdb.open(path) as reader:
                    tell({"answer": answer(reader, ROWS)})

            with Child(ask) as one, Child(ask) as two:
                said = [one.hear(), two.hear()]
            assert said == [{"answer": answer(db, ROWS)}] * 2


def test_a_commit_that_lmdb_wrote_but_did_not_publish_yet_is_seen_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB writes its meta page first and then tells new snapshots: who asks in between is answered of the old commit,
    and must not take that for the answer of the new one."""
    with dynfrsdb.open(path, "w") as db, dynfrsdb.open(path) as reader:
        before = answer(db)
        unpublished = reader._store.snapshot()
        db.remove(range(60))
        with monkeypatch.context() as between:
            between.setattr(reader._store, "snapshot", lambda: unpublished)
            assert answer(reader) == before
        assert answer(reader) == answer(db) != before


def test_readers_do_not_wait_for_an_open_transaction_nor_it_for_them(path: Path) -> None:
    def ask(tell: Tell) -> None:
        with dynfrsdb.open(path) as reader, reader.snapshot() as pinned:
            tell({"answer": answer(reader), "pinned": answer(pinned)})
            time.sleep(600)

    with ExitStack() as stack, dynfrsdb.open(path, "w") as db:
        before = answer(db)
        with db.transaction() as txn:
            txn.remove([1, 2, 3])
            child = stack.enter_context(Child(ask))
            assert child.hear() == {"answer": before, "pinned": before}
            begin = time.monotonic()

        assert time.monotonic() - begin < 10
        assert living(db) == EVERYBODY - {1, 2, 3}


def test_a_reading_handle_refuses_to_write(path: Path) -> None:
    with dynfrsdb.open(path) as reader:
        for act in (lambda: reader.remove([1]), lambda: reader.settle(), lambda: add(reader, [1000])):
            with pytest.raises(ReadOnly, match="open it for writing"):
                act()


class Spy:
    """Counts, by tree, what a handle reads and grows."""

    def __init__(self, db: dynfrsdb.Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: Counter[int] = Counter()
        self.grown: Counter[int] = Counter()
        shelf: Any = db._view._shelf
        records, grow = shelf.records, engine_forest.grow_work  # type: ignore[attr-defined]

        def spy_records(places: Any) -> Any:
            self.read.update(tree for tree, _, _ in places)
            return records(places)

        def spy_grow(spec: Any, rows: Any, work: Any, *more: Any) -> Any:
            self.grown.update(work.items["tree"][: work.nodes].tolist())
            return grow(spec, rows, work, *more)

        monkeypatch.setattr(shelf, "records", spy_records)
        monkeypatch.setattr(engine_forest, "grow_work", spy_grow)

    def forget(self) -> None:
        """Start counting again."""
        self.read.clear()
        self.grown.clear()


def trees_of(path: Path, id: int) -> set[int]:
    """The trees that a sample lives in."""
    with dynfrsdb.open(path) as db:
        return set(db.sample(id).trees)


@pytest.fixture
def large(store_dir: Path) -> Path:
    """A store of 100 trees."""
    return new_store(store_dir / "large.forest", people=1500, n_estimators=100, q=0.1)


def test_a_removal_reloads_nothing_of_the_trees_it_did_not_touch(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touched = trees_of(large, 700)
    with dynfrsdb.open(large) as reader:
        spy = Spy(reader, monkeypatch)
        reader.predict(ROWS)
        everything = spy.read.total()
        assert set(spy.read) == set(range(100))
        reader.predict(ROWS)
        assert spy.read.total() == everything
        spy.forget()
        before = dict(reader._store.loads)

        elsewhere(lambda db: db.remove([700]), large)
        reader.predict(ROWS)

        loaded = {name: count - before[name] for name, count in reader._store.loads.items()}
        assert len(touched) == 10
        assert set(spy.read) <= touched
        assert set(spy.grown) <= touched
        assert 0 < spy.read.total() < everything / 10
        assert loaded["nodes"] + loaded["buckets"] < everything / 10
        print(f"{everything} records in memory, {spy.read.total()} read again, {spy.grown.total()} tags grown")


def test_growth_under_an_unchanged_stamp_is_kept(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = trees_of(large, 700)
    other = next(id for id in range(1500) if len(first & trees_of(large, id)) == 0)
    second = trees_of(large, other)
    with dynfrsdb.open(large) as reader:
        spy = Spy(reader, monkeypatch)
        reader.predict(ROWS)
        elsewhere(lambda db: db.remove([700]), large)
        reader.predict(ROWS)
        assert set(spy.grown) & first
        spy.forget()

        elsewhere(lambda db: db.remove([other]), large)
        reader.predict(ROWS)
        assert set(spy.read) <= second
        assert set(spy.grown) <= second
        spy.forget()

        elsewhere(lambda db: db.settle(), large)
        mine = answer(reader, ROWS)
        assert spy.grown.total() == 0
        assert spy.read.total() <= 40
    with dynfrsdb.open(large) as cold:
        assert answer(cold, ROWS) == mine


def test_a_reader_far_behind_catches_up_at_once(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = list(range(100, 130))
    touched = set().union(*(trees_of(large, id) for id in gone[:3]))
    with dynfrsdb.open(large) as reader:
        reader.predict(ROWS)
        spy = Spy(reader, monkeypatch)
        for id in gone[:3]:
            elsewhere(lambda db, id=id: db.remove([id]), large)  # type: ignore[misc]
        reader.predict(ROWS)
        assert set(spy.read) <= touched

        elsewhere(lambda db: [db.remove([id]) for id in gone[3:]], large)
        mine = answer(reader, ROWS)

    with dynfrsdb.open(large) as cold:
        assert answer(cold, ROWS) == mine


def test_a_snapshot_stays_where_it_is_and_keeps_rows_from_being_erased(path: Path) -> None:
    with dynfrsdb.open(path) as reader, reader.snapshot() as pinned:
        before = answer(pinned, ROWS[:10])
        elsewhere(lambda db: [db.remove([5]), db.forget("subject 20"), db.remove(range(100, 140)), db.settle()], path)
        whole = answer(pinned, ROWS)

        assert answer(pinned, ROWS[:10]) == before
        assert pinned.sample(5).x.tobytes() == values([5]).tobytes()
        assert (len(pinned), 5 in pinned, 61 in pinned) == (PEOPLE, True, True)
        assert (len(reader), 5 in reader, 61 in reader) == (PEOPLE - 44, False, False)
        assert reader.info()["pending_erasures"] == 44
        assert answer(reader, ROWS) != whole
    elsewhere(lambda db: db.remove([6]), path)

    assert traces(path, [5, 6, 60, 61, 62, *range(100, 140)]) == []


def test_a_snapshot_expires(path: Path) -> None:
    with dynfrsdb.open(path) as reader, reader.snapshot(max_snapshot_age=0.05) as pinned:
        answer(pinned)
        time.sleep(0.1)
        with pytest.raises(ClosedStore, match="has expired; take a new one"):
            answer(pinned)


@pytest.mark.parametrize("mode", ["r", "w"])
def test_the_working_set_keeps_to_its_budget_and_answers_stay_right(large: Path, mode: str) -> None:
    with dynfrsdb.open(large) as free:
        answer(free, ROWS)
        everything = free._view.forest.size
    for budget in (everything // 2, everything // 20, 0):
        with dynfrsdb.open(large, mode, settle=None, cache_bytes=budget) as db, dynfrsdb.open(large) as free:
            for start in range(0, 400, 50):
                assert answer(db, ROWS[start : start + 50]) == answer(free, ROWS[start : start + 50])
                left = db._view.forest.size
                assert left <= max(budget, 100_000), f"{left} bytes in memory, {everything} without a budget"
            assert answer(db, ROWS) == answer(free, ROWS)


def test_a_writer_that_grows_tags_for_its_queries_keeps_to_its_budget(large: Path) -> None:
    with dynfrsdb.open(large, "w", settle=None) as free:
        answer(free, ROWS)
        budget = free._view.forest.size // 2
    with dynfrsdb.open(large, "w", settle=None, cache_bytes=budget) as db:
        for id in range(12):
            db.remove([id])
            assert db._view.forest.size <= budget
            answer(db, ROWS)
            assert db._view.has_growth(), "nothing was grown that has to stay until the next commit"


def test_what_was_used_least_lately_goes_first(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with dynfrsdb.open(large) as free:
        answer(free, ROWS)
        everything = free._view.forest.size
    with dynfrsdb.open(large, cache_bytes=everything * 3 // 4) as db:
        spy = Spy(db, monkeypatch)
        hot, again = ROWS[:1], 0
        answer(db, hot)
        for row in range(1, 400):
            answer(db, ROWS[row : row + 1])
            spy.forget()
            answer(db, hot)
            again += spy.read.total()
        assert again == 0
        answer(db, ROWS[1:2])
        assert spy.read.total() > 0, "nothing had to go"


def test_what_was_used_last_stays(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where half of the working set is more than the budget: then half of the rest goes, and not everything."""
    with dynfrsdb.open(large) as free:
        answer(free, ROWS)
        everything = free._view.forest.size
    with dynfrsdb.open(large, cache_bytes=everything * 3 // 4) as db:
        spy, again = Spy(db, monkeypatch), 0
        for start in range(5, 400, 5):
            answer(db, ROWS[:5])
            answer(db, ROWS[start : start + 5])
            spy.forget()
            answer(db, ROWS[start : start + 5])
            again += spy.read.total()
        assert again == 0
