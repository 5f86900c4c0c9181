"""Many processes and threads at once: readers never see anything but a whole commit, and a growing map hurts nobody."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from dynfrsdb_storage import Store, layout
from dynfrsdb_storage.errors import ClosedStore
from tests.storage.people import add, in_child, living, new_store, problems, put_people, take_people

SECONDS = 1.5


def replace_people(path: Path, first: int) -> None:
    """For a while, replace ten people by ten others, again and again, starting with `first`."""
    deadline = time.monotonic() + SECONDS
    with Store.open(path, writable=True) as store:
        at = first
        while time.monotonic() < deadline:
            with store.write() as session:
                put_people(session, range(at, at + 10))
                if at > first:
                    take_people(session, range(at - 10, at))
                session.commit()
            at += 10


def watch(path: Path) -> None:
    """For a while, check that every snapshot holds whole groups of ten with their rows."""
    deadline = time.monotonic() + SECONDS
    with Store.open(path, writable=False) as store:
        while time.monotonic() < deadline:
            people = living(store)
            assert set(range(20)) <= people
            assert len(people) % 10 == 0


def test_readers_see_whole_commits_while_two_writers_replace_everything(tmp_path: Path) -> None:
    path = new_store(tmp_path / "people.forest")
    jobs = [partial(replace_people, path, 1000), partial(replace_people, path, 10**6), partial(watch, path)]

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(in_child, jobs)) == [0, 0, 0]

    with Store.open(path, writable=True) as store:
        assert len(living(store)) == 40
        assert problems(store) == []


def test_a_reader_follows_when_another_process_grows_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynfrsdb_storage.env.FIRST_MAP", 1 << 20)
    path = new_store(tmp_path / "people.forest")

    def grow() -> None:
        with Store.open(path, writable=True) as store, store.write() as session:
            session.put_many("buckets", [(layout.bucket_key(1, 1, i), bytes(3000)) for i in range(1000)])
            session.commit()

    with Store.open(path, writable=False) as reader, Store.open(path, writable=True) as writer:
        assert reader.info()["map_size"] == 1 << 20
        assert in_child(grow) == 0
        with reader.snapshot() as snapshot:
            assert snapshot.count("buckets") == 1000
        assert in_child(grow) == 0
        add(writer, [100])
        assert living(reader) == {*range(20), 100}


def test_threads_may_read_while_the_map_grows_under_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Growing replaces the memory that readers look at: a snapshot may end with an error, but never with a crash."""
    monkeypatch.setattr("dynfrsdb_storage.env.FIRST_MAP", 1 << 20)
    store = Store.open(new_store(tmp_path / "people.forest", people=300), writable=True)
    done = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        while not done.is_set():
            try:
                assert len(living(store)) == 300
            except ClosedStore:
                continue
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(6):
        with store.write() as session:
            pairs = [(layout.bucket_key(1, 1, i << 16 | j), bytes(3000)) for j in range(300 << i)]
            session.put_many("buckets", pairs)
            session.commit()
        with store.write() as session:
            take_people(session, [i])
            put_people(session, [1000 + i])
            session.commit()
    done.set()
    for thread in threads:
        thread.join()

    assert failures == []
    assert store.info()["map_size"] >= 32 << 20
    assert problems(store) == []
    store.close()
