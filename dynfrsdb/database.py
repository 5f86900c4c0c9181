"""The handle: what `create` and `open` give.

Reading calls see the newest commit. The handle keeps one working set; a call begins with a cheap look at whether
anything was committed, and only what changed is read again. While a transaction of the same handle is ahead of the
store, reading calls use a second working set, so they see the last commit and never half a change."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dynfrsdb import inputs
from dynfrsdb.audit import CheckReport, VerifyReport, check, digest, verify
from dynfrsdb.backup import backup
from dynfrsdb.build import Progress
from dynfrsdb.duties import Duties
from dynfrsdb.erasure import Erasure, erasures
from dynfrsdb.errors import Error, InvalidInput, TransactionMisuse
from dynfrsdb.explain import Explainer, Explanation
from dynfrsdb.gate import Gate
from dynfrsdb.inside.store import Inside, info, ledger
from dynfrsdb.needles import ScanReport, scan
from dynfrsdb.needles import read as read_needles
from dynfrsdb.receipt import Plan, Receipt
from dynfrsdb.secrets import Secrets
from dynfrsdb.settings import Settings
from dynfrsdb.settle import Settler, erase, settle
from dynfrsdb.snapshot import Sample, Snapshot
from dynfrsdb.transaction import Transaction
from dynfrsdb.vacuum import VacuumReport, vacuum
from dynfrsdb.view import View, spec_of
from dynfrsdb_storage import Snapshot as StoredSnapshot
from dynfrsdb_storage import Store, WriteSession

CACHE_BYTES = 512 << 20
"""Memory that a working set may take before what was used least lately is dropped."""
SMALL = AT_ONCE = 8_192
"""Tags are grown before the commit that made them, the smallest first, if together they have no more samples."""
TINY = 512
"""Unless those with at most this many have more than that: such a batch leaves all of them to the background."""
Answer = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float64]]
Result = TypeVar("Result")


class Database(Duties):
    """An open store; a context manager. May be used by several threads."""

    def __init__(
        self,
        path: Path | str,
        mode: str = "r",
        settle: str | None = "auto",
        cache_bytes: int = CACHE_BYTES,
        _restoring: bool = False,
    ) -> None:
        if not isinstance(mode, str) or mode not in ("r", "w"):
            raise InvalidInput(f"mode={mode!r} is not known; pass 'r' to read or 'w' to write")
        if settle is not None and (not isinstance(settle, str) or settle != "auto"):
            raise InvalidInput(f"settle={settle!r} is not known; pass 'auto' or None")
        if isinstance(cache_bytes, bool) or not isinstance(cache_bytes, int) or cache_bytes < 0:
            raise InvalidInput(f"cache_bytes={cache_bytes!r} is not a whole number of bytes")
        self.mode, self._settle, self._cache_bytes = mode, settle, cache_bytes
        self._store = Store.open(inputs.place(path), writable=mode == "w", restoring=_restoring)
        with self._store.snapshot() as snapshot:
            self._settings = Settings.from_record(snapshot.settings)
        self._spec = spec_of(self._settings)
        self._secrets = Secrets(self._settings)
        self._view = View(self._store, self._spec, changeable=mode == "w")
        self._reader: View | None = None
        self._gate = Gate()
        self._writing = threading.Lock()
        self._writer: tuple[int, Transaction] | None = None
        self._settler = Settler(self) if mode == "w" and settle == "auto" else None
        _handles.add(self)

    @property
    def path(self) -> Path:
        """Where the store is."""
        return self._store.path

    # Changing

    def transaction(self, request_id: str | bytes | None = None, timeout: float = 30) -> Transaction:
        """A transaction, to be used in a `with` block; waits up to `timeout` seconds for other writers."""
        return Transaction(self, request_id, timeout, "transaction")

    def add(
        self,
        X: Any,
        y: Any,
        ids: Any = None,
        subjects: Any = None,
        *,
        request_id: str | bytes | None = None,
        timeout: float = 30,
        dry_run: bool = False,
    ) -> Receipt | Plan:
        """Add samples in a transaction of their own; the receipt's `ids` are theirs."""
        return self._once(lambda txn: txn.add(X, y, ids, subjects), request_id, timeout, dry_run)

    def remove(
        self, ids: Any, *, request_id: str | bytes | None = None, timeout: float = 30, dry_run: bool = False
    ) -> Receipt | Plan:
        """Remove samples by id in a transaction of their own."""
        return self._once(lambda txn: txn.remove(ids), request_id, timeout, dry_run)

    def forget(
        self, subject: Any, *, request_id: str | bytes | None = None, timeout: float = 30, dry_run: bool = False
    ) -> Receipt | Plan:
        """Remove all samples of one subject in a transaction of their own."""
        return self._once(lambda txn: txn.forget(subject), request_id, timeout, dry_run)

    def _once(
        self, act: Callable[[Transaction], Any], request_id: Any, timeout: float, dry_run: bool
    ) -> Receipt | Plan | Any:
        dry_run = inputs.flag(dry_run, "dry_run")
        transaction = Transaction(self, request_id, timeout, "transaction", rehearses=dry_run)
        if not dry_run:
            with transaction:
                act(transaction)
            return transaction.receipt
        try:
            with transaction:
                act(transaction)
                raise _Planned(transaction._plan())
        except _Planned as planned:
            return planned.plan

    def settle(self, limit: int | None = None, *, timeout: float = 30, progress: Progress | None = None) -> int:
        """Grow tagged nodes and write them, in small transactions; returns how many. Changes no answer.

        `limit` stops after about that many samples below tags.
        """
        self._refuse_inside("settle")
        most = None if limit is None else inputs.count(limit, "limit", 0)
        return settle(self, most, inputs.seconds(timeout, "timeout"), inputs.callback(progress))

    def vacuum(self, progress: Progress | None = None, *, timeout: float = 30, dry_run: bool = False) -> VacuumReport:
        """Rebuild the store from its live samples, so that nothing of removed ones is left in any of its files.

        Readers go on meanwhile, writers wait. The report is true if the old files are gone; otherwise it names the
        processes that still have them open. `dry_run=True` only says how much free space it takes.
        """
        self._refuse_inside("vacuum")
        return vacuum(
            self, inputs.seconds(timeout, "timeout"), inputs.callback(progress), inputs.flag(dry_run, "dry_run")
        )

    def erasure_status(self) -> list[Erasure]:
        """All changes that removed samples: which stage each has reached, when, and who holds it back."""
        if self.mode == "w" and self._writer is None:
            with suppress(Error):  # another writer will note what was reached
                erase(self)
        return self._newest(lambda stored: erasures(self._store, stored))

    def scan(self, needles: Path | str, progress: Progress | None = None) -> ScanReport:
        """Look for the bytes of people in every file of the store; `needles` is a file of JSON lines (needles.py)."""
        wanted = read_needles(inputs.place(needles, "needles"), self._settings)
        report = inputs.callback(progress)
        return self._newest(lambda stored: scan(stored, wanted, report))

    # Asking

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The class, or the value, for each row of X."""
        return self._decide(self._answer, X)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """The class frequencies for each row of X, one column per class."""
        return self._proba(self._answer, X)

    def explain(self, X: Any) -> list[Explanation]:
        """The class, or the value, for each row of X, and by how much each feature moved it there."""
        rows = self._rows(X)

        def ask(stored: StoredSnapshot) -> list[Explanation]:
            means = View(self._store, self._spec, changeable=False).answer(stored, rows)
            return Explainer(self._settings, self._spec, stored).explain(rows, means)

        return self._newest(ask)

    @contextmanager
    def snapshot(self, max_snapshot_age: float = 60.0) -> Iterator[Snapshot]:
        """The newest commit, fixed while the block lasts, but no longer than `max_snapshot_age` seconds."""
        age = inputs.seconds(max_snapshot_age, "max_snapshot_age")
        with self._store.snapshot() as snapshot:
            yield Snapshot(self, snapshot, time.monotonic() + age)

    def sample(self, id: int) -> Sample:
        """One sample with its values."""
        return self._newest(lambda stored: Snapshot(self, stored, math.inf).sample(id))

    def __contains__(self, id: object) -> bool:
        return self._newest(lambda stored: id in Snapshot(self, stored, math.inf))

    def __len__(self) -> int:
        return self._newest(lambda stored: int(stored.state["samples"]))

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes, in the order of the columns of `predict_proba`."""
        return self._settings.classes

    # Looking inside

    def info(self) -> dict[str, Any]:
        """Sizes, counts, settings and readers."""
        return self._newest(lambda stored: info(Inside(self._store, stored, self._settings)))

    def ledger(self) -> list[Receipt]:
        """All changes, oldest first."""
        return self._newest(ledger)

    def digest(self) -> str:
        """The hash of the settled forest: equal digests, equal forests."""
        return self._newest(lambda stored: digest(self._store, stored, self._settings))

    def check(self, progress: Progress | None = None) -> CheckReport:
        """Look at everything and recount everything; the report is true if all is well and lists what is not."""
        report = inputs.callback(progress)
        return self._newest(lambda stored: check(stored, self._settings, report))

    def verify(self, trees: int | None = None, progress: Progress | None = None) -> VerifyReport:
        """Grow trees again from the live samples and compare digests; `trees` takes a random few."""
        few = None if trees is None else inputs.count(trees, "trees", 1)
        report = inputs.callback(progress)
        return self._newest(lambda stored: verify(self._store, stored, self._settings, few, report))

    def backup(self, dest: Path | str, progress: Progress | None = None, *, timeout: float = 30) -> int:
        """Copy the newest commit to `dest`, a new store, while this one is in use; returns the commit's number.

        `dest` appears when it is complete. It has this store's uuid, seed and samples, and none that were removed. A
        handle for writing first notes in the ledger that there will be a copy.
        """
        if self.mode == "w":
            self._refuse_inside("make a backup")
        wait = inputs.seconds(timeout, "timeout")
        return backup(self._store, inputs.place(dest, "dest"), inputs.callback(progress), wait)

    def refresh(self) -> int:
        """Move to the newest commit now; returns its number."""
        with self._gate.alone():
            return self._newest(self._move)

    def _move(self, stored: StoredSnapshot) -> int:
        if not self._view.changing:
            with self._view.at(stored):
                pass
        return stored.commit

    def close(self) -> None:
        """Close the handle; waits for a transaction that another thread has open on it."""
        self._refuse_inside("close the handle")
        if self._settler is not None:
            self._settler.stop()
        with self._writing:
            self._store.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Database, (str(self.path), self.mode, self._settle, self._cache_bytes)

    def __repr__(self) -> str:
        return f"dynfrsdb.open({str(self.path)!r}, mode={self.mode!r})"

    def _born_by_fork(self) -> None:
        """In a forked child: the locks may be held by threads that are not here, and transactions are the parent's."""
        if self._gate.occupied or self._view.changing:
            self._view.forget()
            self._reader = None
        self._gate, self._writing, self._writer = Gate(), threading.Lock(), None
        if self._settler is not None:
            self._settler = Settler(self)

    # For transactions, snapshots and settling

    def _answer(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        answer = self._answer_if_ready(rows)
        if answer is not None:
            return answer
        with self._gate.alone():
            view = self._committed_view()
            answer = self._newest(lambda stored: view.answer(stored, rows))
            view.shrink(self._cache_bytes)
            return answer

    def _newest(self, ask: Callable[[StoredSnapshot], Result]) -> Result:
        """Ask the newest commit, and again if that ended meanwhile.

        A snapshot ends when this process has to enlarge its map of a store that grew: it may miss records then, and
        rows that it saw may be erased or belong to others."""
        while True:
            with self._store.snapshot() as stored:
                try:
                    found = ask(stored)
                except Error:
                    if not stored.ended:
                        raise
                else:
                    if not stored.ended:
                        return found

    def _answer_if_ready(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64] | None:
        """The answer, if nothing was committed since the last one and everything needed is in memory."""
        with self._gate.shared():
            view = self._view
            if view.changing or view.place != self._store.newest() or self._store.moved():
                return None
            return view.forest.predict_if_ready(rows)

    def _committed_view(self) -> View:
        """The view that shows the newest commit: not the one that an open transaction has changed."""
        if not self._view.changing:
            return self._view
        if self._reader is None:
            self._reader = View(self._store, self._spec, changeable=False)
        return self._reader

    def _rows(self, X: Any) -> npt.NDArray[np.float32]:
        return inputs.features(X, self._settings.n_features, self._settings.feature_names)

    def _proba(self, answer: Answer, X: Any) -> npt.NDArray[np.float64]:
        if not self._settings.classes:
            raise InvalidInput("this is a regression; use predict")
        return answer(self._rows(X))

    def _decide(self, answer: Answer, X: Any) -> npt.NDArray[Any]:
        means = answer(self._rows(X))
        if not self._settings.classes:
            return means[:, 0]
        labels: npt.NDArray[Any] = np.array(self._settings.classes)
        chosen: npt.NDArray[Any] = labels[means.argmax(axis=1)]
        return chosen

    def _refuse_inside(self, what: str) -> None:
        """Raise if this thread has a transaction open on this handle: what it asks for would wait for itself."""
        if self._writer is not None and self._writer[0] == threading.get_ident():
            raise TransactionMisuse(f"this handle has a transaction open already; finish it first, then {what}")

    def _begin(self, transaction: Transaction) -> None:
        mine = threading.get_ident()
        self._refuse_inside("begin another")
        if not self._writing.acquire(timeout=max(0.0, transaction._timeout)):
            raise TransactionMisuse(
                f"another thread has a transaction open on this handle (waited {transaction._timeout} s); "
                "try again or pass timeout="
            )
        self._writer = (mine, transaction)

    def _end(self, transaction: Transaction) -> None:
        if self._writer is not None and self._writer[1] is transaction:
            self._writer = None
            self._writing.release()
            if self._settler is not None:
                self._settler.wake()

    def _settle_small(self, session: WriteSession) -> None:
        """Grow the small tags of the open transaction, so that readers never meet them."""
        if self._settle == "auto":
            with self._view.within(session.snapshot) as forest:
                tags = forest.dirty_tags(session.number, SMALL)
                forest.grow_tags(tags if tags["n"].sum() <= AT_ONCE else _smallest(tags))


def _smallest(tags: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """The smallest tags, as many as have no more than `AT_ONCE` samples together; none, if those that are tiny have
    more."""
    tags = tags[np.argsort(tags["n"], kind="stable")]
    together, tiny = np.cumsum(tags["n"]), np.count_nonzero(tags["n"] <= TINY)
    if tiny and together[tiny - 1] > AT_ONCE:
        return tags[:0]
    return tags[together <= AT_ONCE]


class _Planned(Exception):
    """Carries a plan out of a transaction that must not commit."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan


_handles: weakref.WeakSet[Database] = weakref.WeakSet()


def _born_by_fork() -> None:
    for handle in _handles:
        handle._born_by_fork()


os.register_at_fork(after_in_child=_born_by_fork)
