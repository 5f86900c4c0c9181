"""Generations: handles follow CURRENT by themselves, and an old generation stays as long as someone uses it."""

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dynfrsdb_storage import Builder, Store, build_generation, failpoints, layout, records
from dynfrsdb_storage.directory import open_current, read_current, retire, switch_current
from dynfrsdb_storage.errors import CorruptStore
from dynfrsdb_storage.locks import WriterLock
from tests.storage.people import add, in_child, living, new_store, problems, values


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a closed store of 20 people."""
    return new_store(tmp_path / "people.forest")


def rebuild(path: Path, name: str = "gen-0002") -> None:
    """Build a second generation with the same people, as a vacuum would."""
    with Store.open(path, writable=False) as store, store.snapshot() as snapshot:
        samples = list(snapshot.scan("samples"))
        state: dict[str, Any] = {"commit": snapshot.commit + 1, "samples": len(samples)}

        def fill(builder: Builder) -> None:
            for slot, (key, payload) in enumerate(samples):
                i = layout.parse_id_key(key)
                builder.write_rows([slot], [i], [i % 3], values(i)[None])  # type: ignore[arg-type]
                subject = records.parse_sample(payload)[1]
                builder.put("samples", key, records.sample_payload(slot, subject))
                if subject:
                    builder.put("subjects", layout.subject_key(subject, i), b"")

        build_generation(path / name, snapshot.generation.identity, snapshot.settings, state, fill)


def test_handles_move_to_the_new_generation_by_themselves(path: Path) -> None:
    with Store.open(path, writable=True) as store, Store.open(path, writable=False) as reader:
        rebuild(path)
        before = reader.newest()
        assert not reader.moved()

        switch_current(path, "gen-0002")

        assert reader.moved()
        assert living(reader) == set(range(20))
        assert reader.newest() != before
        assert reader.info()["generation"] == 2
        assert add(store, [100]) == 3
        assert living(reader) == {*range(20), 100}
        assert problems(reader) == []


def test_a_snapshot_of_the_old_generation_stays_readable_and_keeps_it_alive(path: Path) -> None:
    with Store.open(path, writable=False) as reader:
        snapshot = reader.snapshot()
        rebuild(path)
        switch_current(path, "gen-0002")
        assert living(reader) == set(range(20))

        assert snapshot.count("samples") == 20
        assert not retire(path, "gen-0001", shutil.rmtree)
        snapshot.close()
        assert retire(path, "gen-0001", shutil.rmtree)

        assert living(reader) == set(range(20))
        assert not (path / "gen-0001").exists()


def test_the_live_generation_is_never_retired(path: Path) -> None:
    with pytest.raises(ValueError, match="is the live one"):
        retire(path, "gen-0001", shutil.rmtree)


def test_a_writer_that_waited_for_a_switch_writes_to_the_new_generation(path: Path) -> None:
    """With LMDB's own lock alone, this change would go to the old generation and be lost with it."""
    with Store.open(path, writable=True) as store:
        lock = WriterLock.acquire(path, 0, "vacuum")
        waiting = threading.Thread(target=add, args=(store, [100]))
        waiting.start()
        time.sleep(0.05)
        rebuild(path)
        switch_current(path, "gen-0002")
        lock.acknowledge(2)
        lock.release(in_order=True)
        waiting.join()

    assert not (path / "gen-0001").exists()
    with Store.open(path, writable=False) as store:
        assert living(store) == {*range(20), 100}
        assert problems(store) == []


def test_a_switch_that_dies_half_way_leaves_the_old_generation_live(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuild(path)

    def die(name: str) -> None:
        if name == "current-switch":
            raise SystemExit

    monkeypatch.setattr(failpoints, "hook", die)
    assert in_child(lambda: switch_current(path, "gen-0002")) == 1
    monkeypatch.setattr(failpoints, "hook", None)

    assert read_current(path) == "gen-0001"
    switch_current(path, "gen-0002")
    assert read_current(path) == "gen-0002"
    assert sorted(entry.name for entry in path.iterdir()) == ["CURRENT", "LOCK", "gen-0001", "gen-0002"]


def test_a_current_that_names_nothing_is_corrupt(path: Path) -> None:
    (path / "CURRENT").write_text("../elsewhere\n")

    with pytest.raises(CorruptStore, match="names no generation"):
        open_current(path, writable=False)

    (path / "CURRENT").write_text("gen-0009\n")
    with pytest.raises(CorruptStore, match="lost its generation 'gen-0009'"):
        open_current(path, writable=False)
