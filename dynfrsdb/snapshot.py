"""A snapshot: one committed state of a store, fixed while it is held.

It sees what was there when it was taken, whatever is committed meanwhile. An old snapshot makes the file grow and
delays the erasure of removed rows, so it expires."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dynfrsdb import inputs
from dynfrsdb.errors import ClosedStore, CorruptStore, InvalidInput, SampleNotFound
from dynfrsdb.view import View, rows_of
from dynfrsdb_engine.hashing import occupancy
from dynfrsdb_engine.rows import gather_rows
from dynfrsdb_storage import Snapshot as StoredSnapshot
from dynfrsdb_storage import layout

if TYPE_CHECKING:
    from dynfrsdb.database import Database


@dataclass(frozen=True)
class Sample:
    """One live sample: its values, its class or target, whether it belongs to a subject, and the trees it lives in."""

    id: int
    x: npt.NDArray[np.float32]
    y: Any
    has_subject: bool
    trees: tuple[int, ...]


def confirm_index(snapshot: StoredSnapshot) -> None:
    """Before a sample is said not to be there: count the index against the counters, because a damaged page of it may
    have lost records. Walks over the whole index; that is the price of a wrong id."""
    snapshot.confirm("samples", int(snapshot.state["samples"]))


class Snapshot:
    """A committed state; made by `Database.snapshot`."""

    def __init__(self, db: Database, snapshot: StoredSnapshot, expires: float) -> None:
        self._db, self._snapshot, self._expires = db, snapshot, expires
        self._view: View | None = None

    @property
    def commit(self) -> int:
        """The number of the commit that is seen."""
        return self._open().commit

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The class, or the value, for each row of X."""
        return self._db._decide(self._answer, X)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """The class frequencies for each row of X."""
        return self._db._proba(self._answer, X)

    def sample(self, id: int) -> Sample:
        """One sample with its values."""
        number = inputs.one_id(id)
        payload = self._open().get("samples", [layout.id_key(number)])[0]
        if payload is None:
            confirm_index(self._open())
            raise SampleNotFound(f"sample {number} is not in '{self._db.path}'")
        settings, slot = self._db._settings, int.from_bytes(payload[:4], "little")
        X, y, ids = np.empty((1, settings.n_features), np.float32), np.empty(1, np.int64), np.empty(1, np.uint64)
        bad = gather_rows(rows_of(self._open()), np.array([slot], np.uint32), X, y, ids)
        if bad >= 0 or int(ids[0]) != number:
            raise CorruptStore(
                f"the row of sample {number} in '{self._db.path}' fails its hash. Run 'dynfrsdb check {self._db.path}'"
            )
        value = (
            settings.classes[y[0]] if settings.classes else settings.target_offset + settings.target_step * int(y[0])
        )
        return Sample(number, X[0], value, len(payload) > 4, self._trees(number))

    def _trees(self, id: int) -> tuple[int, ...]:
        spec = self._db._spec
        out, swaps = np.empty(spec.occupancy, np.int32), np.empty(spec.occupancy, np.int32)
        occupancy(spec.occupancy_key, np.uint64(id), spec.occupancy, np.arange(spec.trees, dtype=np.int32), swaps, out)
        return tuple(sorted(out.tolist()))

    def __contains__(self, id: object) -> bool:
        try:
            key = layout.id_key(inputs.one_id(id))
        except InvalidInput:
            return False
        return self._open().get("samples", [key])[0] is not None

    def __len__(self) -> int:
        return int(self._open().state["samples"])

    def _answer(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        snapshot = self._open()
        if self._view is None:
            self._view = View(self._db._store, self._db._spec, changeable=False)
        answer = self._view.answer(snapshot, rows)
        if snapshot.ended:
            raise ClosedStore("this snapshot has ended, because the store grew; take a new one")
        return answer

    def _open(self) -> StoredSnapshot:
        if time.monotonic() > self._expires:
            self._snapshot.close()
            raise ClosedStore("this snapshot has expired; take a new one, or pass a larger max_snapshot_age")
        return self._snapshot
