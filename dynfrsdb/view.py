"""A view: the forest of one store, as far as this process has it in memory, at one commit.

The engine's working set does not know commits or files. A view binds it to the store: it gives the engine records and
rows out of a snapshot, follows the store from commit to commit (what its stamps say is unchanged stays in memory), and
says in words what is wrong when the engine meets a record or row that cannot be right."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

import numpy as np
import numpy.typing as npt

from dynfrsdb.errors import CorruptStore, EmptyForest, Error
from dynfrsdb.settings import Settings
from dynfrsdb.shelf import Shelf, changed_records, clear, edit_lists, put_changed, put_roots
from dynfrsdb_engine.forest import BadRow, Damaged, Forest
from dynfrsdb_engine.rows import Rows, gather_rows
from dynfrsdb_engine.spec import Spec, make_spec
from dynfrsdb_engine.working import CLEARS, DIRTY_BUCKETS, DIRTY_NODES, TAGS
from dynfrsdb_storage import Snapshot, Store, WriteSession

NOWHERE = -1


def spec_of(settings: Settings) -> Spec:
    """The engine's form of the settings."""
    return make_spec(
        n_features=settings.n_features,
        p=settings.p,
        s=settings.s,
        n_classes=settings.n_classes,
        criterion=settings.criterion,
        max_depth=settings.max_depth,
        min_samples_split=settings.min_samples_split,
        bucket=settings.bucket,
        k=settings.k,
        offset=settings.target_offset,
        step=settings.target_step,
        occupancy_key=settings.occupancy_key(),
        tree_keys=settings.tree_keys(),
    )


def rows_of(snapshot: Snapshot) -> Rows:
    """The rows of a snapshot, as kernels take them."""
    rows = snapshot.rows
    return Rows(rows.words, rows.floats, rows.multipliers)


def gathered_rows(
    snapshot: Snapshot, slots: npt.NDArray[np.uint32], n_features: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Features, targets and ids of rows, each checked against its hash."""
    X = np.empty((slots.size, n_features), np.float32)
    y, ids = np.empty(slots.size, np.int64), np.empty(slots.size, np.uint64)
    bad = gather_rows(rows_of(snapshot), slots, X, y, ids)
    if bad >= 0:
        raise BadRow(int(slots[bad]))
    return X, y, ids


def read_rows(
    snapshot: Snapshot, slots: npt.NDArray[np.uint32], ids: npt.NDArray[np.uint64], n_features: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Features and targets of samples, each checked against its hash and its id."""
    X, y, found = gathered_rows(snapshot, slots, n_features)
    if found.tobytes() != ids.tobytes():
        raise BadRow(int(slots[np.flatnonzero(found != ids)[0]]))
    return X, y


def in_words(path: object) -> InWords:
    """A block that turns what the engine finds damaged into an error that names the store and what to do."""
    return InWords(path)


class InWords:
    """See `in_words`. Every change goes through several, so it is no generator."""

    __slots__ = ("_path",)

    def __init__(self, path: object) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _put_in_words(self._path, error)


def _put_in_words(path: object, error: BaseException | None) -> None:
    """Raise what the engine found damaged, if that is what ended a block, as an error that names the store."""
    if isinstance(error, Damaged | BadRow):
        raise _said(path, error) from error


def _said(path: object, found: Damaged | BadRow) -> CorruptStore:
    what = (
        f"the row in slot {found.slot} of '{path}' fails its hash"
        if isinstance(found, BadRow)
        else f"tree {found.tree}, node {found.path:#b} in '{path}' {found.what}"
    )
    return CorruptStore(f"{what}; nothing was answered or changed. Run 'dynfrsdb check {path}'")


class _At:
    """See `View.at`. Every change goes through several, so it is no generator."""

    __slots__ = ("_changing", "_snapshot", "_view")

    def __init__(self, view: View, snapshot: Snapshot, changing: bool) -> None:
        self._view, self._snapshot, self._changing = view, snapshot, changing

    def __enter__(self) -> Forest:
        try:
            return self._view._reach(self._snapshot, self._changing)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._view._let_go()
        _put_in_words(self._view.store.path, error)


class View:
    """The forest of one store at one commit. Not for several threads at once."""

    def __init__(self, store: Store, spec: Spec, *, changeable: bool) -> None:
        self.store, self.spec = store, spec
        self._changeable = changeable
        self._shelf = Shelf()
        self._start()

    def _start(self) -> None:
        rows = Rows(np.zeros((0, 1), np.uint64), np.zeros((0, 2), np.float32), np.zeros(4, np.uint64))
        self.forest = Forest(self.spec, self._shelf, rows, changeable=self._changeable)
        self.commit = NOWHERE
        self.changing = False
        """Whether the working set is ahead of the store, with changes of an open transaction."""
        self._generation = NOWHERE
        self._settled = NOWHERE
        self._roots = self.forest.w.roots.copy()
        self.place = NOWHERE
        """The snapshot that the view was last at. If `Store.newest` says the same, nothing was committed since."""

    def forget(self) -> None:
        """Empty the working set."""
        self._start()

    def at(self, snapshot: Snapshot, changing: bool = False) -> AbstractContextManager[Forest]:
        """The forest of this snapshot, with records and rows within reach."""
        return _At(self, snapshot, changing)

    def _reach(self, snapshot: Snapshot, changing: bool) -> Forest:
        """Begin a block at a snapshot."""
        self._shelf.snapshot = snapshot
        self._follow(snapshot)
        self.forest.rows = rows_of(snapshot)
        self.changing = self.changing or changing
        return self.forest

    def _let_go(self) -> None:
        """End it."""
        self._shelf.snapshot = None

    def within(self, snapshot: Snapshot) -> AbstractContextManager[Forest]:
        """The forest inside a transaction: at its snapshot to begin with, then changed by it."""
        if self.changing:
            self.commit = snapshot.commit  # a reservation may have been committed meanwhile; it changes no tree
        return self.at(snapshot, changing=True)

    def _follow(self, snapshot: Snapshot) -> None:
        """Move to the commit of a snapshot, letting go of what changed on the way."""
        if self.commit == snapshot.commit and self._generation == snapshot.generation.number:
            self.place = snapshot.place
            return
        stamps, n, tags = snapshot.roots()
        settled = int(snapshot.state["settled"])
        others_settled = settled != self._settled
        if self._generation != snapshot.generation.number or (self._changeable and others_settled):
            self._start()
        elif self._changeable:
            self.forest.drop_changes()
            self.forest.w.roots[:] = self._roots
        try:
            self.forest.follow(stamps, n, tags, others_settled)
        except BaseException:
            self._start()
            raise
        self._at(snapshot)

    def _at(self, snapshot: Snapshot) -> None:
        self.commit, self._generation = snapshot.commit, snapshot.generation.number
        self.place = snapshot.place
        self._settled = int(snapshot.state["settled"])
        self._roots = self.forest.w.roots.copy()
        self.forest.w.top[TAGS] = 0

    def committed(self, snapshot: Snapshot, budget: int) -> None:
        """Everything in the working set was written by the commit that this snapshot shows: it can shrink now."""
        self.forest.mark_clean()
        self.changing = False
        self._at(snapshot)
        self.shrink(budget)

    def passed_over(self, commit: int, snapshot: Snapshot) -> None:
        """If we are at `commit`: the one after it, which this snapshot shows, has changed no tree; we are there too."""
        if self.commit == commit and self._generation == snapshot.generation.number and not self.changing:
            self.commit, self.place = snapshot.commit, snapshot.place

    def roll_back(self, snapshot: Snapshot) -> None:
        """Let go of everything that a transaction changed in memory; if that cannot be done, of everything."""
        if self.changing:
            try:
                self.forest.drop_changes()
                self.forest.set_roots(*snapshot.roots())
                self.changing = False
                self._at(snapshot)
            except BaseException as error:
                self._start()
                if not isinstance(error, Error):
                    raise

    def write_to(self, session: WriteSession) -> None:
        """Put everything that changed in the working set into the session's next commit."""
        forest = self.forest
        cleared = forest.cleared()
        if cleared.size:
            clear(session, zip(cleared["tree"].tolist(), cleared["path"].tolist(), strict=True))
        with in_words(self.store.path):
            edit_lists(session, forest.edits())
        changed = changed_records(forest)
        put_changed(session, changed)
        put_roots(session, forest.w.roots, self._roots)
        session.state["tags"] += int(forest.w.top[TAGS])
        if changed.stamp <= session.snapshot.commit:
            session.state["settled"] += 1  # a tag was grown, which no stamp tells other processes

    def has_growth(self) -> bool:
        """Whether the working set holds anything that the store does not: tags grown just now, or by a query before."""
        top = self.forest.w.top
        return bool(top[CLEARS] or top[DIRTY_NODES] or top[DIRTY_BUCKETS])

    def shrink(self, budget: int) -> None:
        """Stay within a budget of memory, if nothing waits to be written."""
        if not self.changing and not (self._changeable and self.has_growth()):
            self.forest.shrink(budget)

    def answer(self, snapshot: Snapshot, X: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """The answers of a snapshot. If it ends meanwhile, they are void, and so is what was loaded and grown."""
        try:
            with self.at(snapshot):
                return self.predict(X)
        finally:
            if snapshot.ended:
                self.forget()

    def predict(self, X: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Mean answers for rows of features; inside `at`, or when everything needed is in memory."""
        if self.forest.is_empty:
            raise EmptyForest(f"'{self.store.path}' holds no samples; add some first")
        return self.forest.predict(X)
