"""What a handle offers to those who answer for a store: holds, waiting requests, suppression, receipts, the ledger.

The work is done in modules of their own, without the engine where that is possible, so that the command line can do
without it as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dynfrsdb import chain, holds, inputs, later, proof, suppression
from dynfrsdb.audit import verify
from dynfrsdb.build import Progress
from dynfrsdb.holds import Hold
from dynfrsdb.later import Outcome, Waiting
from dynfrsdb.receipt import Receipt, receipt_of
from dynfrsdb.secrets import Secrets
from dynfrsdb.settings import Settings
from dynfrsdb_storage import Snapshot, Store

if TYPE_CHECKING:
    from dynfrsdb.database import Database

Result = TypeVar("Result")


class Duties:
    """A part of `Database`."""

    _store: Store
    _secrets: Secrets
    _settings: Settings

    if TYPE_CHECKING:

        def _newest(self, ask: Callable[[Snapshot], Result]) -> Result: ...

        def _refuse_inside(self, what: str) -> None: ...

    # Holds

    def hold(self, subject: Any, reason: str, until: Any = None, *, timeout: float = 30) -> Receipt:
        """Keep a subject's samples from being removed, until a date or until released; `sequence` is its number."""
        wait = self._alone("place a hold", timeout)
        return holds.place(self._store, self._secrets, inputs.one_subject(subject), reason, until, wait)

    def holds(self) -> list[Hold]:
        """All holds, in the order they were placed."""
        return self._newest(holds.listed)

    def release(self, number: int, *, timeout: float = 30) -> Receipt:
        """End a hold."""
        wait = self._alone("release a hold", timeout)
        return holds.release(self._store, inputs.count(number, "number", 1), wait)

    # Requests that wait

    def forget_later(self, subject: Any, after: Any, *, request_id: Any = None, timeout: float = 30) -> Receipt:
        """Queue a request to forget a subject when a delay is over ("7d", seconds, a timedelta)."""
        wait = self._alone("queue a request", timeout)
        subjects = [inputs.one_subject(subject)]
        return later.enqueue(self._store, self._secrets, subjects, after, request_id, wait)

    def waiting(self) -> list[Waiting]:
        """All requests that wait, the next one first."""
        return self._newest(later.listed)

    def cancel(self, number: int, *, timeout: float = 30) -> Receipt:
        """Take a waiting request off the queue."""
        wait = self._alone("cancel a request", timeout)
        return later.cancel(self._store, inputs.count(number, "number", 1), wait)

    def run_due(self, *, timeout: float = 30) -> list[Outcome]:
        """Carry out the waiting requests that are due; those of subjects that are held stay."""
        wait = self._alone("carry out requests", timeout)
        return later.run_due(cast("Database", self), wait)

    # Suppression

    def suppress(self, mode: str, *, timeout: float = 30) -> Receipt:
        """What `add` does with samples of forgotten subjects: "off" takes them, "refuse" raises, "skip" leaves them
        out and counts them."""
        return suppression.switch(self._store, mode, self._alone("change the suppression", timeout))

    def unsuppress(self, subject: Any, *, timeout: float = 30) -> Receipt:
        """Take a subject off the suppression list: the person wants to come back."""
        wait = self._alone("change the suppression", timeout)
        return suppression.lift(self._store, self._secrets, inputs.one_subject(subject), wait)

    # Evidence

    def issue_receipt(
        self,
        sequence: int,
        *,
        verify: bool = False,
        trees: int | None = None,
        key: Path | str | None = None,
        progress: Progress | None = None,
    ) -> str:
        """The receipt of one ledger entry as a document to hand out, in JSON.

        `verify` also grows trees again (`trees`: a random few) and puts the outcome in. `key`, the PEM file of an
        Ed25519 private key, signs it."""
        few = None if trees is None else inputs.count(trees, "trees", 1)
        report = inputs.callback(progress)
        return self._newest(lambda stored: self._issue(stored, sequence, verify, few, key, report))

    def _issue(self, stored: Snapshot, sequence: int, verified: bool, trees: Any, key: Any, progress: Any) -> str:
        document = proof.issue(self._store, stored, sequence)
        if verified:
            report = verify(self._store, stored, self._settings, trees, progress)
            proof.attach(document, report, stored, self._secrets)
        return proof.sealed(document, key)

    def ledger_head(self) -> str:
        """The end of the ledger, to be kept elsewhere."""
        return self._newest(chain.head)

    def ledger_since(self, head: str) -> list[Receipt]:
        """The entries behind a head that was kept; CorruptStore if the ledger does not continue it."""
        return [receipt_of(entry) for entry in self._newest(lambda stored: chain.since(stored, head))]

    def export_ledger(self, file: Path | str, since: str | None = None) -> int:
        """Write the ledger, or what came since a head, as lines of JSON; returns how many."""
        entries = self._newest(lambda stored: chain.entries(stored) if since is None else chain.since(stored, since))
        chain.export(entries, inputs.place(file, "file"))
        return len(entries)

    def _alone(self, what: str, timeout: float) -> float:
        """The seconds to wait for the writer lock, once it is sure that this thread does not hold it itself."""
        self._refuse_inside(what)
        return inputs.seconds(timeout, "timeout")
