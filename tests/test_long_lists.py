"""Long lists are edited by chunk, and a chunk is written as two only when it has become too large."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dynfrsdb.shelf import CHUNK, MOST, Shelf, edit_lists
from dynfrsdb_engine.chunks import Edits
from dynfrsdb_engine.source import Damaged
from dynfrsdb_engine.working import EDIT
from dynfrsdb_storage import Store, WriteSession, layout, records
from tests.storage.people import new_store

TREE, PATH, FIRST = 2, 0b101, 1000
OTHER = 0b100
"""A node whose records come right before those of the one at PATH."""


def edits_of(changes: Sequence[tuple[int, int, int]]) -> Edits:
    """Slots that come (1) or go (-1), each in a list: (path, slot, sign)."""
    edits = np.zeros(len(changes), EDIT)
    edits["tree"], edits["path"] = TREE, [path for path, _, _ in changes]
    edits["slot"], edits["sign"] = [slot for _, slot, _ in changes], [sign for _, _, sign in changes]
    keys = b"".join(layout.bucket_key(TREE, path, slot) for path, slot, _ in changes)
    return Edits(edits, np.frombuffer(keys, np.uint8).reshape(len(changes), -1))


def put_list(session: WriteSession, path: int, slots: Sequence[int], size: int = CHUNK) -> None:
    """A long list in chunks of `size` slots."""
    for at in range(0, len(slots), size):
        chunk = np.array(slots[at : at + size], "<u4")
        session.put("buckets", layout.bucket_key(TREE, path, slots[at]), chunk.tobytes())


@pytest.mark.parametrize(
    ("size", "slot", "sign", "sizes"),
    [
        (MOST, FIRST, -1, [MOST - 1]),
        (MOST, FIRST + 7, -1, [MOST - 1]),
        (CHUNK, FIRST - 1, 1, [CHUNK + 1]),
        (MOST, FIRST - 1, 1, [238, 237]),
        (MOST, FIRST + MOST, 1, [238, 237]),
        (1, FIRST, -1, []),
    ],
    ids=["first goes", "one goes", "one before comes", "too many, before", "too many, behind", "last goes"],
)
def test_a_chunk_stays_one_until_it_is_too_large(
    tmp_path: Path, size: int, slot: int, sign: int, sizes: list[int]
) -> None:
    slots = set(range(FIRST, FIRST + size))
    with Store.open(new_store(tmp_path / "people.forest"), writable=True) as store, store.write() as session:
        put_list(session, PATH, sorted(slots), size)
        session.commit()

        edit_lists(session, edits_of([(PATH, slot, sign)]))
        session.commit()

        shelf = Shelf()
        shelf.snapshot = session.snapshot
        assert shelf.long_lists([(TREE, PATH)])[0].tolist() == sorted(slots ^ {slot})
        found = session.snapshot.scan(
            "buckets", layout.bucket_key(TREE, PATH), layout.node_key(TREE, PATH) + b"\xff" * 4
        )
        assert [len(payload) // 4 for _, payload in found] == sizes


@pytest.mark.parametrize("seed", range(8))
def test_many_edits_of_several_lists_in_any_order_are_all_made(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lists = {path: set(map(int, FIRST + rng.permutation(5_000)[:2_000])) for path in (OTHER, PATH)}
    after = {path: set(slots) for path, slots in lists.items()}
    changes: list[tuple[int, int, int]] = []
    for path in rng.choice([OTHER, PATH], 900).tolist():
        slot = FIRST - 100 + int(rng.integers(5_200))
        if all((path, slot) != change[:2] for change in changes):
            changes.append((path, slot, -1 if slot in lists[path] else 1))
            after[path] ^= {slot}
    with Store.open(new_store(tmp_path / "people.forest"), writable=True) as store, store.write() as session:
        for path, slots in lists.items():
            put_list(session, path, sorted(slots))
        session.commit()

        edit_lists(session, edits_of(changes))
        session.commit()

        shelf = Shelf()
        shelf.snapshot = session.snapshot
        found = shelf.long_lists([(TREE, OTHER), (TREE, PATH)])
        assert [slots.tolist() for slots in found] == [sorted(after[OTHER]), sorted(after[PATH])]
        chunks = [(key[-4:], chunk[3::-1]) for key, chunk in session.snapshot.scan("buckets")]
        assert all(named == first for named, first in chunks)


@pytest.mark.parametrize(("slot", "signs"), [(FIRST + 900, (1, -1)), (FIRST + 5, (-1, 1))], ids=["comes", "goes"])
def test_a_slot_that_changes_twice_changes_in_that_order(tmp_path: Path, slot: int, signs: tuple[int, int]) -> None:
    slots = list(range(FIRST, FIRST + 300))
    with Store.open(new_store(tmp_path / "people.forest"), writable=True) as store, store.write() as session:
        put_list(session, PATH, slots)
        session.commit()

        edit_lists(session, edits_of([(PATH, slot, sign) for sign in signs]))
        session.commit()

        shelf = Shelf()
        shelf.snapshot = session.snapshot
        assert shelf.long_lists([(TREE, PATH)])[0].tolist() == slots


def test_a_slot_that_comes_before_a_list_leaves_the_list_before_it_alone(tmp_path: Path) -> None:
    with Store.open(new_store(tmp_path / "people.forest"), writable=True) as store, store.write() as session:
        put_list(session, OTHER, range(FIRST, FIRST + 300))
        put_list(session, PATH, range(FIRST, FIRST + 300))
        session.commit()

        edit_lists(session, edits_of([(PATH, FIRST - 1, 1)]))
        session.commit()

        found = [(key, len(chunk) // 4) for key, chunk in session.snapshot.scan("buckets")]
    assert found == [(layout.bucket_key(TREE, OTHER, FIRST), 300), (layout.bucket_key(TREE, PATH, FIRST - 1), 301)]


def test_a_chunk_that_fails_its_checksum_is_not_written_on(tmp_path: Path) -> None:
    chunk = np.arange(FIRST, FIRST + 300, dtype="<u4").tobytes()
    key = layout.bucket_key(TREE, PATH, FIRST)
    with Store.open(new_store(tmp_path / "people.forest"), writable=True) as store, store.write() as session:
        bad = bytearray(records.pack("buckets", key, chunk))
        bad[700] ^= 4
        sealed = np.frombuffer(key, np.uint8).reshape(1, -1), np.frombuffer(bytes(bad), np.uint8), np.array([len(bad)])
        session.put_sealed("buckets", sealed)
        session.commit()

        with pytest.raises(Damaged, match="fails its checksum") as caught:
            edit_lists(session, edits_of([(PATH, FIRST + 5, -1)]))
    assert (caught.value.tree, caught.value.path) == (TREE, PATH)


@pytest.mark.parametrize(("slot", "sign"), [(FIRST + 5, 1), (FIRST + 301, -1)], ids=["there already", "not there"])
def test_an_edit_that_does_not_fit_its_list_is_damage(tmp_path: Path, slot: int, sign: int) -> None:
    with Store.open(new_store(tmp_path / "people.forest"), writable=True) as store, store.write() as session:
        put_list(session, PATH, range(FIRST, FIRST + 300))
        session.commit()

        with pytest.raises(Damaged, match="does not list the samples that belong to it"):
            edit_lists(session, edits_of([(PATH, slot, sign)]))
