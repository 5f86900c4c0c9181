"""All live samples of a snapshot, for who writes them anew: a backup, a vacuum, a migration.

What is copied is checked: the index against the counters, each row against its hash and its id. Damage ends the copy
with an error that names it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb_storage import layout
from dynfrsdb_storage.errors import CorruptStore
from dynfrsdb_storage.read import Snapshot
from dynfrsdb_storage.records import parse_sample

ROWS_AT_ONCE = 65_536


class Live(NamedTuple):
    """Live samples: where they are, and whose."""

    ids: npt.NDArray[np.uint64]
    slots: npt.NDArray[np.uint32]
    subjects: list[bytes]


def live_samples(snapshot: Snapshot) -> Live:
    """All live samples, in the order of their ids."""
    ids, slots, subjects = array("Q"), array("L"), []
    for key, payload in snapshot.scan("samples"):
        slot, subject = parse_sample(payload)
        ids.append(layout.parse_id_key(key))
        slots.append(slot)
        subjects.append(subject)
    if len(ids) != snapshot.state["samples"]:
        raise damaged(snapshot, f"the index has {len(ids)} samples, the counters say {snapshot.state['samples']}")
    return Live(np.array(ids, np.uint64), np.array(slots, np.uint32), subjects)


def checked_rows(
    snapshot: Snapshot, ids: npt.NDArray[np.uint64], slots: npt.NDArray[np.uint32]
) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """Copies of the rows of samples, in the order given, as (position of the first, words), many at a time."""
    rows = snapshot.rows
    for first in range(0, ids.size, ROWS_AT_ONCE):
        wanted, places = ids[first : first + ROWS_AT_ONCE], slots[first : first + ROWS_AT_ONCE]
        words = rows.words[places]  # a copy: what is checked is what is written
        wrong = (words[:, 0] != layout.row_hashes(places, words, rows.multipliers)) | (words[:, 1] != wanted)
        if wrong.any():
            raise damaged(snapshot, f"the row of sample {wanted[wrong.argmax()]} fails its hash")
        yield first, words


def features(snapshot: Snapshot, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float32]:
    """The features of rows."""
    return words.view(np.float32)[:, 6 : 6 + snapshot.generation.n_features]


def damaged(snapshot: Snapshot, what: str) -> CorruptStore:
    """The error for a store that cannot be copied."""
    place = snapshot.generation.store
    return CorruptStore(f"'{place}' is damaged: {what}; nothing was copied. Run 'dynfrsdb check {place}'")
