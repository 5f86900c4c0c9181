"""One request, many stores: forget somebody everywhere.

    1  catalog    the request, with a keyed hash of the subject
    2  store      does it hold the subject?                                    for each store
    3  catalog    pending, or not held
    4  store      one transaction: all samples of the subject, under the request id
    5  catalog    what the ledger of the store says

A store is changed in step 4 only, and knows the request by its id: asked again, it gives the same receipt. So whoever
dies, wherever: the same command goes on. Between 4 and 5 the store is ahead, and the next contact with it, by anybody,
brings that in. A store that could not be asked, or refused, or did not hold the subject, is asked again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from dynfrsdb import holds, inputs
from dynfrsdb.catalog import contact, registry
from dynfrsdb.catalog.contact import Unreached, note_problem
from dynfrsdb.catalog.handle import Catalog, put_new, there
from dynfrsdb.catalog.projection import (
    DONE,
    NOT_HELD,
    PENDING,
    REFUSED,
    UNREACHABLE,
    Seen,
    asked,
    note_removal,
    project,
    removal,
    see,
    write,
)
from dynfrsdb.catalog.tables import LONGEST_REQUEST, ForgetRequest, Outcome, Registered
from dynfrsdb.errors import Error, Held, InvalidInput, RequestConflict, SampleNotFound, StoreNotFound
from dynfrsdb.inside.store import Inside, look
from dynfrsdb.receipt import now
from dynfrsdb.request import request_bytes
from dynfrsdb.secrets import Secrets
from dynfrsdb_storage import Snapshot, layout

Opener = Callable[[Path, str], AbstractContextManager[Any]]
"""What opens a store for writing: `dynfrsdb.Database`, or one that says when kernels have to be compiled."""


class Here(NamedTuple):
    """A subject in one store: the hashes it and the request are known by, its samples, and what holds them."""

    hash: str
    request: str
    samples: int
    holds: tuple[holds.Hold, ...]


class Refused(NamedTuple):
    """Why a store did not do it: as the catalog keeps it, and for the eyes of who asked."""

    outcome: str
    kept: str
    said: str


def find(catalog: Catalog, subject: Any, request_id: str) -> dict[str, int | str]:
    """How many samples of a subject each store has, by uuid; or why it cannot be asked. Writes nothing."""
    name, request = inputs.one_subject(subject), _request(request_id)
    found: dict[str, int | str] = {}
    with catalog.reading() as session:
        for store in registry.registered(session):
            try:
                found[store.uuid] = contact.reach(store, lambda inside: in_store(inside, name, request)).samples
            except Unreached as error:
                found[store.uuid] = str(error)
    return found


def forget(
    catalog: Catalog,
    subject: Any,
    request_id: str,
    opener: Opener,
    *,
    keep_subject: bool = False,
    timeout: float = 30.0,
) -> dict[str, str]:
    """Forget a subject in every registered store that holds it.

    What became of it is in the catalog afterwards (report.py); returns what there is to say about stores, by uuid.
    Raises RequestConflict if the request was made for another subject."""
    wish = _Wish(catalog, inputs.one_subject(subject), _request(request_id), opener, timeout)
    with catalog.reading() as session:
        uuids = [each.uuid for each in registry.registered(session)]
    if not uuids:
        raise StoreNotFound("no store is registered; 'dynfrsdb catalog register STORE' registers one")
    wish.note(_kept(wish.subject) if keep_subject else None)
    said = {uuid: wish.ask(uuid) for uuid in uuids}
    return {uuid: words for uuid, words in said.items() if words}


def in_store(inside: Inside, subject: bytes, request: str) -> Here:
    """A subject and a request, as one store knows them."""
    secrets, snapshot = Secrets(inside.settings), inside.snapshot
    hashed = secrets.subject(subject)
    samples = _count(snapshot, hashed)
    standing = tuple(each for each in holds.listed(snapshot) if each.subject == hashed.hex() and each.in_force)
    return Here(hashed.hex(), secrets.request(request_bytes(request)).hex(), samples, standing)


def _count(snapshot: Snapshot, hashed: bytes) -> int:
    snapshot.confirm_pages("subjects")  # or a page that lost records would have us say that nobody is there
    samples = sum(1 for _ in snapshot.scan("subjects", *layout.subject_range(hashed)))
    if not samples:
        snapshot.confirm("subjects")
    return samples


class _Wish:
    """One request, on its way through the stores."""

    def __init__(self, catalog: Catalog, subject: bytes, request: str, opener: Opener, timeout: float) -> None:
        self._catalog, self.subject, self._request = catalog, subject, request
        self._opener, self._timeout = opener, timeout

    def note(self, kept: str | None) -> None:
        """Write the request down, or find it again."""
        hashed = self._catalog.subject_hash(self.subject)
        with self._catalog.writing("noting the request") as session:
            if session.get(ForgetRequest, self._request) is None:
                put_new(session, ForgetRequest(request=self._request, subject_hash=hashed, made=now()))
            noted = there(session, ForgetRequest, self._request)
            if noted.subject_hash != hashed:
                raise RequestConflict(
                    f"request '{self._request}' was made for somebody else; use a new id, nothing was changed"
                )
            if kept is not None:
                noted.subject = kept

    def ask(self, uuid: str) -> str | None:
        """Have one store forget the subject, if it holds it; returns what there is to say about it."""
        try:
            path, samples, done = self._look(uuid)
            if done:
                return f"{samples} samples of the subject came after this; make a new request" if samples else None
            refusal = self._forget(path) if samples else None
            if samples and refusal is None:
                self._bring_in(uuid)
        except Unreached as error:
            refusal = Refused(UNREACHABLE, str(error), str(error))
        if refusal is not None:
            self._note(uuid, refusal)
        return None if refusal is None else refusal.said

    def _look(self, uuid: str) -> tuple[Path, int, bool]:
        """Bring a store in and note whether it holds the subject; where it is, how many samples of the subject it has,
        and whether it has carried out the request."""
        with self._catalog.writing("noting a store") as session:
            store = there(session, Registered, uuid, locked=True)
            requests, since = asked(session, store), (store.sequence, store.head)

            def ask(inside: Inside) -> tuple[Seen, Here]:
                return see(inside, since, requests), in_store(inside, self.subject, self._request)

            seen, here = contact.reach(store, ask)
            outcome = self._outcome(session, uuid)
            outcome.subject, outcome.tried = here.hash, now()
            write(session, store, seen)
            removed = removal(session, uuid, here.request, here.hash)
            if removed is not None:
                note_removal(outcome, removed.sequence, removed.hash, removed.removed, removed.time)
            else:
                outcome.outcome, outcome.why = PENDING if here.samples else NOT_HELD, None
            return Path(store.path), here.samples, removed is not None

    def _forget(self, path: Path) -> Refused | None:
        try:
            with self._opener(path, "w") as db:
                db.forget(self.subject, request_id=self._request, timeout=self._timeout)
        except Held as error:
            return Refused(REFUSED, self._held(path), str(error))
        except RequestConflict as error:
            return Refused(REFUSED, str(error), str(error))
        except SampleNotFound:
            return Refused(NOT_HELD, "", "")  # somebody was faster
        except (Error, OSError) as error:
            return Refused(UNREACHABLE, str(error), str(error))
        return None

    def _held(self, path: Path) -> str:
        """Who holds the subject, without the reasons, which may name people."""
        try:
            standing = look(path, lambda inside: in_store(inside, self.subject, self._request)).holds
        except (Error, OSError):
            standing = ()
        each = [f"hold {hold.number}{f' until {hold.until}' if hold.until else ''}" for hold in standing]
        return f"held by {', '.join(each) or 'a hold that has just ended'}; 'dynfrsdb hold list {path}' has the reason"

    def _bring_in(self, uuid: str) -> None:
        with self._catalog.writing("noting what a store did") as session:
            project(session, there(session, Registered, uuid, locked=True))

    def _note(self, uuid: str, refusal: Refused) -> None:
        """Note what a store said, unless its ledger says otherwise: an error may come after the commit."""
        with self._catalog.writing("noting what a store said") as session:
            store = there(session, Registered, uuid, locked=True)
            outcome = self._outcome(session, uuid)
            outcome.tried = now()
            try:
                project(session, store)
            except Unreached as error:
                note_problem(store, error)
            if outcome.outcome != DONE:
                outcome.outcome, outcome.why = refusal.outcome, refusal.kept or None

    def _outcome(self, session: Session, uuid: str) -> Outcome:
        """The row of this request in one store; the row of the store must be locked."""
        found = session.get(Outcome, (self._request, uuid))
        if found is None:
            found = Outcome(request=self._request, store=uuid, outcome=PENDING, tried=now())
            session.add(found)
            session.flush()
        return found


def _request(request_id: Any) -> str:
    """A request id that every database can hold."""
    if not isinstance(request_id, str) or not request_id.strip() or not request_id.isprintable():
        raise InvalidInput(f"request id {request_id!r} is not a line of text")
    if len(request_id) > LONGEST_REQUEST:
        raise InvalidInput(f"the request id has {len(request_id)} characters; at most {LONGEST_REQUEST} are kept")
    return request_id


def _kept(subject: bytes) -> str:
    try:
        text = subject.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidInput("this subject is no text, so it cannot be kept; leave --keep-subject out")
    return text
