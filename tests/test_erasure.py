"""Stages of a removal: what each of them promises, byte by byte, and who holds it back."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import dynfrsdb
from tests.people import SHAPE, changer, receipt_of
from tests.reliability.workload import Child, Tell

DIMENSIONS = 8
MARKED = range(100, 112)


def marker(id: int) -> bytes:
    """32 bytes that are nowhere else: eight finite floats without a zero byte, made of the id."""
    dice = random.Random(f"marker {id}")
    words = [bytes([dice.randint(1, 255), dice.randint(1, 255), dice.randint(1, 255), 0x41]) for _ in range(DIMENSIONS)]
    return b"".join(words)


def rows(ids: Iterable[int]) -> npt.NDArray[np.float32]:
    return np.array([np.frombuffer(marker(id), "<f4") for id in ids])


def name(id: int) -> str:
    return f"somebody called {id * 7919:08d}"


def found(path: Path, ids: Iterable[int] = MARKED) -> dict[str, int]:
    """How many of the marked rows are in each kind of file, read plainly."""
    counts: dict[str, int] = {}
    for file in path.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            counts[file.name] = counts.get(file.name, 0) + sum(marker(id) in data for id in ids)
    return {file: count for file, count in counts.items() if count}


def needle_file(path: Path, ids: Iterable[int] = MARKED, **more: object) -> Path:
    lines = [{"x": np.frombuffer(marker(id), "<f4").tolist(), "subject": name(id), **more} for id in ids]
    file = path / "needles.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture
def marked(store_dir: Path) -> Path:
    """A store in which some people's rows are markers."""
    dice = np.random.default_rng(4)
    X = dice.normal(size=(300, DIMENSIONS)).astype(np.float32)
    X[list(MARKED)] = rows(MARKED)
    labels, subjects = (X[:, 0] > 0).astype(int), [name(id) for id in range(300)]
    path = store_dir / "marked.forest"
    dynfrsdb.create(path, X, labels, subjects=subjects, classes=[0, 1], **{**SHAPE, "n_features": None}).close()
    return path


def remove_the_marked(path: Path) -> None:
    """Remove them one by one among hundreds of other changes."""
    dice, others = np.random.default_rng(5), iter(range(1000, 2000))
    with changer(path) as db:
        for id in MARKED:
            for _ in range(12):
                new = next(others)
                db.add(dice.normal(size=(1, DIMENSIONS)), [new % 2], ids=[new], subjects=[name(new)])
                db.remove([new - 1] if new % 3 == 0 and new - 1 in db else [new])
            db.forget(name(id))


def test_markers_are_found_until_they_are_erased_and_nowhere_after(marked: Path, store_dir: Path) -> None:
    """The keyed hash of a subject stays in LMDB's free pages when its index entry is gone: there a scan finds it."""
    needles = needle_file(store_dir)
    with dynfrsdb.open(marked) as db:
        assert found(marked) == {"rows.bin": len(MARKED)}
        whole = [hit for hit in db.scan(needles).hits if hit.what == "row"]
        assert [(hit.place, hit.belongs) for hit in whole] == [("live", f"the row of sample {id}") for id in MARKED]

    remove_the_marked(marked)

    with changer(marked) as db:
        assert {each.stage for each in db.erasure_status()} == {"rows erased"}
        assert found(marked) == {}
        before = db.scan(needles)
        assert not before
        assert {hit.file.partition("/")[2] for hit in before.leftovers} == {"data.mdb"}
        assert {hit.what for hit in before.leftovers} == {"hash of a subject"}
        assert any("which is free: once record" in hit.belongs for hit in before.leftovers)
        assert len(MARKED) in {hit.line for hit in before.leftovers}, "nothing has reused the pages of the last one yet"

        assert db.vacuum()

        after = db.scan(needles)
        assert {each.stage for each in db.erasure_status()} == {"erased"}
        assert after
        assert {(hit.place, hit.what) for hit in after.hits} == {("receipt", "hash of a subject")}
        assert len({hit.line for hit in after.hits}) == len(MARKED)


def test_ids_are_left_in_free_pages_until_a_vacuum(marked: Path, store_dir: Path) -> None:
    big = [0x1122334455667700 + i for i in range(20)]
    needles = store_dir / "needles.jsonl"
    needles.write_text("".join(json.dumps({"id": id}) + "\n" for id in [*big, 5]))
    with changer(marked) as db:
        db.add(np.ones((20, DIMENSIONS)), [1] * 20, ids=big)
        assert {hit.place for hit in db.scan(needles).hits} >= {"live"}
        db.remove(big)
        db.add(np.ones((1, DIMENSIONS)), [1])

        before = db.scan(needles)
        assert before.too_plain == 3
        assert before.leftovers
        db.vacuum()

        assert [hit for hit in db.scan(needles).hits if hit.place != "receipt"] == []


def test_a_row_that_a_reader_may_still_see_waits_and_the_reader_is_named(marked: Path, store_dir: Path) -> None:
    def look(tell: Tell) -> None:
        with dynfrsdb.open(marked) as db, db.snapshot():
            tell({"looking": 1})
            time.sleep(60)

    with Child(look) as reader, changer(marked) as db:
        assert reader.hear() == {"looking": 1}
        db.remove([100])
        db.remove([0])

        first, second = db.erasure_status()

        assert (first.stage, second.stage) == ("unlearned", "unlearned")
        assert {holder.pid for holder in (*first.held_by, *second.held_by)} == {reader.pid}
        assert found(marked, [100]) == {"rows.bin": 1}
        (hit,) = [hit for hit in db.scan(needle_file(store_dir, [100])).hits if hit.what == "row"]
        assert (hit.place, hit.belongs) == ("waiting", f"a row that entry {first.sequence} of the ledger removed")

        reader.kill()
        reader.end()
        after = db.erasure_status()

        assert [each.stage for each in after] == ["rows erased"] * 2
        assert all(each.remedy == f"dynfrsdb vacuum {marked}" for each in after)
        assert found(marked, [100]) == {}


def test_a_row_in_an_old_generation_that_a_reader_holds_is_not_called_erased(marked: Path) -> None:
    """The new generation has no such row and nothing pending; the old one still has it."""

    def look(tell: Tell) -> None:
        with dynfrsdb.open(marked) as db, db.snapshot():
            tell({"looking": 1})
            time.sleep(60)

    with Child(look) as reader, changer(marked) as db:
        assert reader.hear() == {"looking": 1}
        sequence = receipt_of(db.remove([100])).sequence

        assert not db.vacuum()

        (status,) = db.erasure_status()
        assert (status.stage, [holder.pid for holder in status.held_by]) == ("unlearned", [reader.pid])
        assert json.loads(db.issue_receipt(sequence))["stage"] == "unlearned"
        assert found(marked, [100]) == {"rows.bin": 1}

        reader.kill()
        reader.end()
        (status,) = db.erasure_status()

        assert (status.stage, status.held_by) == ("erased", ())
        assert json.loads(db.issue_receipt(sequence))["stage"] == "erased"
        assert found(marked, [100]) == {}


def test_each_stage_is_a_ledger_entry_with_its_time(marked: Path) -> None:
    with changer(marked) as db:
        db.remove([100], request_id="request 7")
        db.erasure_status()
        db.vacuum()
        (status,) = db.erasure_status()
        entries = {entry.kind: entry for entry in db.ledger()}

        assert [entry.kind for entry in db.ledger()] == ["create", "change", "rows erased", "vacuum", "erased"]
        assert (status.unlearned, status.rows_erased, status.erased) == tuple(
            entries[kind].time for kind in ("change", "rows erased", "erased")
        )
        assert status.unlearned <= (status.rows_erased or "") <= (status.erased or "")
        assert (status.request, status.removed) == (entries["change"].request, 1)
        assert (status.held_by, status.remedy) == ((), None)
        assert db.check().problems == ()


def test_what_is_removed_after_a_vacuum_begins_at_the_first_stage_again(marked: Path) -> None:
    with changer(marked) as db:
        db.remove([100])
        db.vacuum()
        db.remove([101])

        assert [each.stage for each in db.erasure_status()] == ["erased", "rows erased"]


def test_an_idle_writer_notes_the_stage_by_itself(marked: Path) -> None:
    with dynfrsdb.open(marked, "w", settle="auto") as db, dynfrsdb.open(marked) as reader:
        db.remove([100])
        for _ in range(500):
            if [entry.kind for entry in reader.ledger()][-1] == "rows erased":
                break
            time.sleep(0.02)

        assert [each.stage for each in reader.erasure_status()] == ["rows erased"]


def test_closing_notes_the_stage(marked: Path) -> None:
    with changer(marked) as db:
        db.remove([100])
    with dynfrsdb.open(marked) as reader:
        assert [each.stage for each in reader.erasure_status()] == ["rows erased"]


def test_an_old_generation_stays_until_its_last_process_has_let_go(marked: Path) -> None:
    asked = marked.parent / "asked"

    def linger(tell: Tell) -> None:
        with dynfrsdb.open(marked) as db:
            tell({"open": 1})
            while not asked.exists():
                time.sleep(0.01)
            tell({"samples": len(db)})
            time.sleep(60)

    with Child(linger) as reader, changer(marked) as db:
        assert reader.hear() == {"open": 1}
        db.remove([100])

        report = db.vacuum()

        assert (bool(report), report.held_by) == (False, (reader.pid,))
        (status,) = db.erasure_status()
        assert (status.stage, [holder.pid for holder in status.held_by]) == ("rows erased", [reader.pid])
        assert (marked / "gen-0001").exists()

        asked.touch()
        assert reader.hear() == {"samples": 299}
        (status,) = db.erasure_status()

        assert status.stage == "erased"
        assert sorted(each.name for each in marked.iterdir()) == ["CURRENT", "LOCK", "gen-0002"]
