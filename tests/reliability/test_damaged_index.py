"""A damaged index: nobody is said to be unknown, and nobody is forgotten in part."""

from __future__ import annotations

import os
import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import dynfrsdb
from tests.reliability.workload import subject, values
from tests.reliability.wounds import DATA, PAGE, Wounded, offsets, wounded


@pytest.fixture(scope="module")
def store() -> Iterator[Wounded]:
    with wounded() as made:
        yield made


def hide_the_last_of_each_page(store: Wounded, path: Path, database: str) -> list[bytes]:
    """Make every leaf page of a database forget its last record; returns the keys of those."""
    hidden = []
    with open(path / DATA, "r+b", buffering=0) as file:
        for number in store.pages[database]:
            page = store.raw[DATA][number * PAGE : (number + 1) * PAGE]
            nodes = offsets(page)
            size = int.from_bytes(page[nodes[-1] + 6 : nodes[-1] + 8], "little")
            os.pwrite(file.fileno(), (14 + 2 * len(nodes)).to_bytes(2, "little"), number * PAGE + 12)
            hidden.append(page[nodes[-1] + 8 : nodes[-1] + 8 + size])
    return hidden


def test_a_sample_that_the_index_has_lost_is_not_said_to_be_unknown(store: Wounded, store_dir: Path) -> None:
    """A removal must never be answered with "not found" while the sample is still in the forest."""
    path = Path(shutil.copytree(store.path, store_dir / "people.forest"))
    hidden = [int.from_bytes(key, "big") for key in hide_the_last_of_each_page(store, path, "samples")]
    assert set(hidden) <= store.live

    with dynfrsdb.open(path, "w", settle=None) as db:
        with pytest.raises(dynfrsdb.CorruptStore, match=r"'samples' in .* is damaged \(page \d+ has lost records\)"):
            db.remove([hidden[0]])
        with pytest.raises(dynfrsdb.CorruptStore, match=r"'samples' in .* is damaged \(page \d+ has lost records\)"):
            db.sample(hidden[0])
        assert not db.check()


def test_a_subject_that_the_index_has_lost_is_not_said_to_be_unknown(store: Wounded, store_dir: Path) -> None:
    path = Path(shutil.copytree(store.path, store_dir / "people.forest"))
    hidden = [int.from_bytes(key[16:], "big") for key in hide_the_last_of_each_page(store, path, "subjects")]
    whole = next(id for id in hidden if id in store.live)
    others = [id for id in store.live if subject(id) == subject(whole) and id != whole]

    with dynfrsdb.open(path, "w", settle=None) as db:
        db.remove(others)
        with pytest.raises(dynfrsdb.CorruptStore, match=r"'subjects' in .* has \d+ records, there should be"):
            db.forget(subject(whole))


def test_a_subject_of_whom_the_index_lost_a_part_is_not_forgotten_in_part(store: Wounded, store_dir: Path) -> None:
    path = Path(shutil.copytree(store.path, store_dir / "people.forest"))
    hidden = {int.from_bytes(key[16:], "big") for key in hide_the_last_of_each_page(store, path, "subjects")}
    part = next(id for id in hidden if any(subject(o) == subject(id) for o in store.live - hidden))

    with dynfrsdb.open(path, "w", settle=None) as db:
        with pytest.raises(
            dynfrsdb.CorruptStore, match=r"'subjects' in .* there should be \d+; nothing was .* changed"
        ):
            db.forget(subject(part))
        assert len(db) == len(store.live)


def test_a_lost_write_to_the_index_of_subjects_does_not_forget_in_part(store: Wounded, store_dir: Path) -> None:
    """An older page is sound, but those who came since are not on it."""
    old = (store.older / DATA).read_bytes()
    new = [id for id in store.live if id >= 5040]
    path = Path(shutil.copytree(store.path, store_dir / "people.forest"))
    seen: Counter[str] = Counter()
    for number in store.pages["subjects"]:
        here = slice(number * PAGE, (number + 1) * PAGE)
        if old[here] == store.raw[DATA][here]:
            continue
        for id in new:
            shutil.copyfile(store.path / DATA, path / DATA)
            with open(path / DATA, "r+b", buffering=0) as file:
                os.pwrite(file.fileno(), old[here], number * PAGE)
            with dynfrsdb.open(path, "w", settle=None) as db:
                try:
                    plan = db.forget(subject(id), dry_run=True)
                except dynfrsdb.CorruptStore:
                    seen["error"] += 1
                else:
                    assert plan.removed == sum(subject(other) == subject(id) for other in store.live)
                    seen["right"] += 1

    assert seen["error"]


def test_a_misled_search_is_noticed(store: Wounded) -> None:
    """A flipped bit in a key of a branch page sends searches to the wrong leaf."""
    found: Counter[str] = Counter()
    for number in store.pages["branch"]:
        page = store.raw[DATA][number * PAGE : (number + 1) * PAGE]
        nodes = offsets(page)
        if struct.unpack_from("<H", page, nodes[1] + 6)[0] != 8:
            continue
        for at in nodes[1:]:
            low_byte = number * PAGE + at + 8 + 7
            with (
                store.changed(DATA, low_byte, bytes([store.raw[DATA][low_byte] ^ 0x10])),
                dynfrsdb.open(store.path) as db,
            ):
                for id in sorted(store.live)[::5]:
                    try:
                        assert db.sample(id).x.tobytes() == values([id]).tobytes()
                        found["right"] += 1
                    except dynfrsdb.CorruptStore:
                        found["error"] += 1

    assert found["error"]
