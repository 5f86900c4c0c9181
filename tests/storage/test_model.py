"""The storage layer against a model: a set of people, and what each snapshot saw.

Whatever happens (additions, removals, roll-backs, crashes, snapshots held for long, reopened handles), the store
holds the people of the model, every snapshot what it held when it was taken, the audit finds nothing, and no byte of
a person that was removed is left once no snapshot can see it.
"""

import os
import shutil
import signal
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from dynfrsdb_storage import Snapshot, Store, failpoints
from tests.storage.people import add, in_child, living, new_store, problems, put_people, remove, take_people, traces

sizes = st.sampled_from([1, 2, 7, 1500])


class People(RuleBasedStateMachine):
    """Rules that change store and model alike."""

    snapshots = Bundle("snapshots")

    @initialize(people=st.integers(0, 5))
    def begin(self, people: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store.open(new_store(self.folder / "people.forest", people), writable=True)
        self.people = set(range(people))
        self.next = people
        self.gone: set[int] = set()
        self.held: list[tuple[Snapshot, set[int]]] = []

    def newcomers(self, size: int) -> range:
        self.next += size
        return range(self.next - size, self.next)

    def some(self, data: st.DataObject) -> set[int]:
        """Some people. What is drawn does not depend on who is there: after a crash that is a matter of instants, and a
        history must be the same when it is played again."""
        picks, people = data.draw(st.sets(st.integers(0, 9_999), max_size=20)), sorted(self.people)
        return {people[pick % len(people)] for pick in picks} if people else set()

    @rule(size=sizes)
    def add(self, size: int) -> None:
        new = self.newcomers(size)
        add(self.store, new)
        self.people |= set(new)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        some = self.some(data)
        remove(self.store, some)
        self.people -= some
        self.gone |= some

    @rule(data=st.data(), size=sizes)
    def change_twice_in_one_session(self, data: st.DataObject, size: int) -> None:
        some, new = self.some(data), self.newcomers(size)
        with self.store.write() as session:
            take_people(session, some)
            session.commit()
            put_people(session, new)
            session.commit()
        self.people = self.people - some | set(new)
        self.gone |= some

    @rule(data=st.data(), size=sizes)
    def roll_back(self, data: st.DataObject, size: int) -> None:
        some, new = self.some(data), self.newcomers(size)
        with self.store.write() as session:
            take_people(session, some)
            put_people(session, new)
        self.gone |= set(new)

    @rule(data=st.data(), size=sizes, point=st.sampled_from(failpoints.POINTS[:8]))
    def crash(self, data: st.DataObject, size: int, point: str) -> None:
        some, new = self.some(data), self.newcomers(size)

        def work() -> None:
            failpoints.hook = lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == point else None
            with self.store.write() as session:
                take_people(session, some)
                put_people(session, new)
                session.commit()

        assert in_child(work) in (0, -signal.SIGKILL)
        now, changed = living(self.store), self.people - some | set(new)
        assert now in (self.people, changed)
        self.gone |= some if now == changed else set(new)
        self.people = now
        remove(self.store, [])

    @rule(target=snapshots)
    def take_snapshot(self) -> tuple[Snapshot, int, set[int]]:
        snapshot = self.store.snapshot()
        return snapshot, snapshot.commit, set(self.people)

    @rule(held=consumes(snapshots))
    def end_snapshot(self, held: tuple[Snapshot, int, set[int]]) -> None:
        snapshot, commit, people = held
        assert snapshot.commit == commit
        assert {int.from_bytes(key, "big") for key, _ in snapshot.scan("samples")} == people
        snapshot.close()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store.open(self.folder / "people.forest", writable=True)

    @rule()
    def erase(self) -> None:
        if self.store.erase_pending() == 0:
            for person in sorted(self.gone)[:30]:
                assert traces(self.store.path, person) == 0

    @invariant()
    def the_store_holds_the_people_of_the_model(self) -> None:
        assert living(self.store) == self.people

    @invariant()
    def the_audit_finds_nothing(self) -> None:
        assert problems(self.store) == []

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)


People.TestCase.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPeople = People.TestCase
