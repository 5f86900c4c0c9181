"""Long lists are edited by chunk, and a chunk is written as two only when it has become too large."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dynfrsdb.shelf import CHUNK, MOST, Shelf, edit_lists
from dynfrsdb_engine.chunks import Edits
from dynfrsdb_engine.working import EDIT
from dynfrsdb_storage import Store, layout
from tests.storage.people import new_store

TREE, PATH, FIRST = 2, 0b101, 1000


def edit(slot: int, sign: int) -> Edits:
    """One slot that comes or goes."""
    edits = np.zeros(1, EDIT)
    edits["tree"], edits["path"], edits["slot"], edits["sign"] = TREE, PATH, slot, sign
    return Edits(edits, np.frombuffer(layout.bucket_key(TREE, PATH, slot), np.uint8).reshape(1, -1))


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
        session.put("buckets", layout.bucket_key(TREE, PATH, FIRST), np.array(sorted(slots), "<u4").tobytes())
        session.commit()

        edit_lists(session, edit(slot, sign))
        session.commit()

        shelf = Shelf()
        shelf.snapshot = session.snapshot
        assert shelf.long_lists([(TREE, PATH)])[0].tolist() == sorted(slots ^ {slot})
        found = session.snapshot.scan(
            "buckets", layout.bucket_key(TREE, PATH), layout.node_key(TREE, PATH) + b"\xff" * 4
        )
        assert [len(payload) // 4 for _, payload in found] == sizes
