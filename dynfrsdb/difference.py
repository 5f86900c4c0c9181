"""What a store and a source have in common, and what not, some thousands of samples at a time.

    source, by id      3   4       6   9        a row: features, target, subject
    store, by id       3   4*  5       9        * with other values

    difference         4 to be replaced, 5 to go, 6 to come, 3 and 9 unchanged

A row is unchanged if features and target are the same bit for bit, once encoded, and the subject has the same hash. The
store's row is held against its own hash first, so damage is an error and never a change.

Comparing needs no lock: a difference is a guess about the newest commit, to be looked at again by whoever acts on it
(`dynfrsdb.syncing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb.encoding import Block
from dynfrsdb.loading import Ids
from dynfrsdb.view import in_words, read_rows
from dynfrsdb_storage import Snapshot, layout
from dynfrsdb_storage.records import parse_sample

AT_ONCE = 8192
Places = npt.NDArray[np.intp]


class Wanted(NamedTuple):
    """Samples as a source has them, in the order of their ids."""

    ids: Ids
    X: Block
    y: npt.NDArray[np.int64]
    labels: Sequence[Any] | npt.NDArray[np.float64]
    """The targets again, as `Transaction.add` takes them."""
    names: Sequence[bytes | None]
    """Whose samples they are, likewise."""
    subjects: Sequence[bytes]
    """And the hashes of these; b"" for a sample that belongs to nobody."""

    def some(self, places: Places) -> Wanted:
        """Those at some places."""
        labels = [self.labels[at] for at in places]
        names, subjects = [self.names[at] for at in places], [self.subjects[at] for at in places]
        return Wanted(self.ids[places], self.X[places], self.y[places], labels, names, subjects)

    @classmethod
    def all(cls, parts: Sequence[Wanted]) -> Wanted:
        """Several one after the other; at least one."""
        ids, X, y = (np.concatenate([part[at] for part in parts]) for at in range(3))
        labels = [each for part in parts for each in part.labels]
        names = [each for part in parts for each in part.names]
        return cls(ids, X, y, labels, names, [each for part in parts for each in part.subjects])


class Stored(NamedTuple):
    """Samples as the store has them: where, and whose."""

    ids: Ids
    slots: npt.NDArray[np.uint32]
    subjects: list[bytes]


class Difference(NamedTuple):
    """What differs among the samples with ids up to `last`."""

    comes: Places
    """Where among the wanted those are that the store does not have."""
    changes: Places
    """Where among the wanted those are that it has otherwise."""
    changes_of: list[bytes]
    """Whose those are now, in the store."""
    goes: Ids
    """Those in the store that are not wanted."""
    goes_of: list[bytes]
    unchanged: int
    last: int


def difference(snapshot: Snapshot, wanted: Wanted, first: int, last: int) -> Difference:
    """Compare the samples with first <= id <= last, or as many of them as are looked at in one go."""
    found = list(islice(snapshot.scan("samples", layout.id_key(first), layout.id_key(last)), AT_ONCE))
    if len(found) == AT_ONCE:
        last = layout.parse_id_key(found[-1][0])
    parsed = [parse_sample(payload) for _, payload in found]
    stored = Stored(
        np.frombuffer(b"".join(key for key, _ in found), ">u8").astype(np.uint64),
        np.array([slot for slot, _ in parsed], np.uint32),
        [subject for _, subject in parsed],
    )
    low = int(np.searchsorted(wanted.ids, np.uint64(first), "left"))
    high = int(np.searchsorted(wanted.ids, np.uint64(last), "right"))
    here = np.arange(low, high)
    kept = np.isin(wanted.ids[low:high], stored.ids, assume_unique=True)
    there = np.isin(stored.ids, wanted.ids[low:high], assume_unique=True)
    both, at = here[kept], np.flatnonzero(there)
    with in_words(snapshot.generation.store):
        same = unchanged(snapshot, wanted, both, stored, at)
    gone = np.flatnonzero(~there)
    return Difference(
        here[~kept],
        both[~same],
        [stored.subjects[each] for each in at[~same]],
        stored.ids[gone],
        [stored.subjects[each] for each in gone],
        int(same.sum()),
        last,
    )


def unchanged(snapshot: Snapshot, wanted: Wanted, places: Places, stored: Stored, at: Places) -> npt.NDArray[np.bool_]:
    """Which of the wanted samples the store has exactly so; `at` says where among the stored each is."""
    X, y = read_rows(snapshot, stored.slots[at], stored.ids[at], wanted.X.shape[1])
    whose = np.array(
        [wanted.subjects[mine] == stored.subjects[its] for mine, its in zip(places, at, strict=True)], bool
    )
    same: npt.NDArray[np.bool_] = (wanted.X[places] == X).all(axis=1) & (y == wanted.y[places]) & whose
    return same
