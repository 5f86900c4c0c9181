"""The demo: a person is forgotten while others read.

The data is scikit-learn's breast cancer set; that two rows in a row belong to one person is made up. The story:

    1. build a store of everybody
    2. two processes keep predicting the same batch, and note which commit they saw and what the answer was
    3. one person is forgotten in a transaction, which stays open until both readers have answered during it
    4. readers saw the forest with the person, then the one without, and nothing between
    5. every tree equals one grown from the survivors
    6. a store that never saw the person has the same digest and gives the same answers, bit for bit

An answer is compared by its hash, over all bits of all probabilities. Each claim is tried, not just made: if one does
not hold, the demo says so and fails.

Readers are real processes, and they always end: when they are told to, when their time is up, or when the demo has gone
away.
"""

from __future__ import annotations

import hashlib
import multiprocessing as mp
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import dynfrsdb
from dynfrsdb.build import Progress
from dynfrsdb.errors import Error, MissingExtra

PERSON = "patient 141"
READERS = 2
PATIENCE = 300.0
"""Seconds that a reader lives at most, and that we wait for one; it may have to compile kernels."""
ANSWERS = 3
"""Answers of each reader that we wait for in each part of the story."""

_SHOWN = ("sequence", "time", "removed", "samples", "trees", "nodes", "tagged", "digest_before", "digest_after")

Matrix = npt.NDArray[np.float64]
Bars = Callable[[], AbstractContextManager[Progress | None]]


class DemoFailed(Error):
    """The demo could not be carried through."""


class Patients(NamedTuple):
    """The data: two rows of `X` in a row belong to one person."""

    X: Matrix
    y: npt.NDArray[np.int64]
    names: list[str]
    people: list[str]

    def without(self, person: str) -> npt.NDArray[np.intp]:
        """Rows of everybody else."""
        return np.flatnonzero([each != person for each in self.people])


class Look(NamedTuple):
    """Equal answers in a row: the commit a reader saw, the hash of the answer, and how many times."""

    commit: int
    answer: str
    times: int


def tell(path: Path | None, keep: bool, bars: Bars) -> bool:
    """Tell the story with a store at `path`; returns whether every claim held."""
    patients = _load()
    story = _Story(Console(highlight=False))
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dynfrsdb-demo-")))
        home = Path(tempfile.mkdtemp(prefix="dynfrsdb-demo-")) if keep and path is None else scratch
        store = path or home / "patients.forest"
        db = stack.enter_context(_built(store, patients, np.arange(len(patients.X)), bars))
        if not keep:
            stack.callback(shutil.rmtree, store, ignore_errors=True)
        people, trees = len(set(patients.people)), db.info()["trees"]
        story.say(f"built a forest of {len(db)} samples of {people} people in {trees} trees")
        _forget_while_others_read(db, patients, story)
        _compare_with_a_fresh_store(db, patients, scratch / "never-saw-them.forest", story)
        if keep:
            story.say(f"the store is in '{store}'; try: dynfrsdb info {store}")
    return story.end()


def _load() -> Patients:
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as error:
        raise MissingExtra(
            "the demo needs scikit-learn, which is not installed; run: pip install 'dynfrsdb[demo]'"
        ) from error
    data = load_breast_cancer()
    people = [f"patient {row // 2}" for row in range(len(data.data))]
    return Patients(data.data, data.target, [str(name) for name in data.feature_names], people)


@contextmanager
def _built(path: Path, patients: Patients, rows: npt.NDArray[np.intp], bars: Bars) -> Iterator[dynfrsdb.Database]:
    """A store of some of the rows. Seed and settings are always the same, so it depends on nothing but the rows."""
    with bars() as progress:
        db = dynfrsdb.create(
            path,
            patients.X[rows],
            patients.y[rows],
            ids=rows,
            subjects=[patients.people[row] for row in rows],
            feature_names=patients.names,
            classes=[0, 1],
            q=0.5,  # 50 of 100 trees each: with 569 samples the default 10 would make small trees
            seed="the seed of the demo",
            progress=progress,
        )
    with db:
        yield db


def _forget_while_others_read(db: dynfrsdb.Database, patients: Patients, story: _Story) -> None:
    before, old = db.refresh(), fingerprint(db.predict_proba(patients.X))
    with Readers(db.path, patients.X) as readers:
        readers.wait_for_answers()
        story.say(f"{READERS} processes keep asking for all {len(patients.X)} people")
        with db.transaction() as txn:
            count = txn.forget(PERSON)
            within = fingerprint(txn.predict_proba(patients.X))
            readers.wait_for_answers()
        after, new = db.refresh(), fingerprint(db.predict_proba(patients.X))
        readers.wait_for_answers()
        looks = readers.stop()
    story.say(f"forgot [bold]{PERSON}[/], {count} samples, in a transaction; what the readers saw:")
    story.show_looks(looks, old, new)
    story.claim("forgetting them changed the answer", old != new)
    problems = wrong_looks(looks, before, old, after, new)
    story.claim("readers saw the old forest, then the new one, and nothing between", not problems, problems)
    story.claim("inside the transaction the answer was already the new one", within == new)
    if txn.receipt is not None:
        story.show_receipt(txn.receipt)


def _compare_with_a_fresh_store(db: dynfrsdb.Database, patients: Patients, path: Path, story: _Story) -> None:
    report = db.verify()
    story.claim(f"all {len(report.trees)} trees equal trees grown from the survivors", bool(report))
    with _built(path, patients, patients.without(PERSON), suppress_bars) as fresh:
        digest, expected = db.digest(), fresh.digest()
        same = db.predict_proba(patients.X).tobytes() == fresh.predict_proba(patients.X).tobytes()
    story.say(f"digest of the store               {digest[:32]}...")
    story.say(f"digest of one that never saw them {expected[:32]}...")
    story.claim("the store equals one that never saw them, bit for bit", digest == expected and same)


@contextmanager
def suppress_bars() -> Iterator[None]:
    """No progress bar."""
    yield None


def fingerprint(answer: Matrix) -> str:
    """A hash of every bit of an answer."""
    return hashlib.sha256(np.ascontiguousarray(answer).tobytes()).hexdigest()


def wrong_looks(readers: Sequence[Sequence[Look]], before: int, old: str, after: int, new: str) -> list[str]:
    """What readers saw that they must not have; `old` holds up to commit `before`, `new` from commit `after` on."""
    problems = []
    for number, looks in enumerate(readers, 1):
        answers = [look.answer for look in looks]
        if not {old, new} <= set(answers):
            problems.append(f"reader {number} did not see both states")
        if not set(answers) <= {old, new}:
            problems.append(f"reader {number} saw a state that never was")
        if new in answers and old in answers[answers.index(new) :]:
            problems.append(f"reader {number} went back to the old state")
        if any(
            (look.commit <= before and look.answer == new) or (look.commit >= after and look.answer == old)
            for look in looks
        ):
            problems.append(f"reader {number} gave an answer that is not its commit's")
    return problems


class Readers:
    """Processes that keep predicting; a context manager that leaves none behind."""

    def __init__(self, path: Path, batch: Matrix) -> None:
        self._context = mp.get_context("spawn")
        self._stop = self._context.Event()
        self._counts = [self._context.Value("Q", 0) for _ in range(READERS)]
        self._pipes = [self._context.Pipe(duplex=False) for _ in range(READERS)]
        self._processes = [
            self._context.Process(target=_keep_reading, args=(str(path), batch, self._stop, count, sender), daemon=True)
            for count, (_, sender) in zip(self._counts, self._pipes, strict=True)
        ]

    def __enter__(self) -> Readers:
        try:
            with _interrupts_postponed():
                for process in self._processes:
                    process.start()
        except BaseException:
            self._end(at_once=True)
            raise
        for _, sender in self._pipes:
            sender.close()
        return self

    def wait_for_answers(self) -> None:
        """Wait until every reader has given a few more answers."""
        goals = [count.value + ANSWERS for count in self._counts]
        deadline = time.monotonic() + PATIENCE
        while any(count.value < goal for count, goal in zip(self._counts, goals, strict=True)):
            if any(process.exitcode is not None for process in self._processes):
                raise DemoFailed(
                    "a reader process ended early; run the demo again, and report it if that happens twice"
                )
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"a reader process gave no answer within {PATIENCE:.0f} s; run the demo on a less busy machine"
                )
            time.sleep(0.01)

    def stop(self) -> list[list[Look]]:
        """Tell the readers to end; returns what each of them saw."""
        self._stop.set()
        seen = []
        for receiver, _ in self._pipes:
            if not receiver.poll(30):
                raise DemoFailed("a reader process does not end; run the demo again")
            try:
                seen.append(receiver.recv())
            except EOFError as error:
                raise DemoFailed("a reader process ended without a word; run the demo again") from error
        return seen

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(at_once=kind is not None)

    def _end(self, at_once: bool) -> None:
        """Leave no reader behind: ask, then insist. Ending a reader at any moment harms nothing: it only reads."""
        self._stop.set()
        for process in self._processes:
            if process.pid is None:
                continue
            process.join(0 if at_once else 3)
            for insist in (process.terminate, process.kill):
                if process.exitcode is None:
                    insist()
                    process.join(3)


@contextmanager
def _interrupts_postponed() -> Iterator[None]:
    """Start processes that never see Ctrl-C, which reaches the whole process group, and lose none that is meant for us.

    A blocked signal stays blocked in processes started meanwhile. But it is blocked in this thread only, and another
    thread may get it; so it is noted, and raised when every process is known and can be ended.
    """
    came = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if came:
        raise KeyboardInterrupt


def _keep_reading(path: str, batch: Matrix, stop: Any, count: Any, results: Connection) -> None:
    """What a reader process does."""
    parent, deadline = os.getppid(), time.monotonic() + PATIENCE
    looks: list[Look] = []
    with dynfrsdb.open(path) as db:
        while not stop.is_set() and time.monotonic() < deadline and os.getppid() == parent:
            with db.snapshot() as snapshot:
                commit, answer = snapshot.commit, fingerprint(snapshot.predict_proba(batch))
            if looks and looks[-1][:2] == (commit, answer):
                looks[-1] = looks[-1]._replace(times=looks[-1].times + 1)
            else:
                looks.append(Look(commit, answer, 1))
            count.value += 1
    with suppress(OSError):
        results.send(looks)


class _Story:
    """What the person in front of the terminal sees, and whether all of it was true."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._broken = 0

    def say(self, text: str) -> None:
        self._console.print(f"  {text}", soft_wrap=True)

    def claim(self, text: str, held: bool, problems: Sequence[str] = ()) -> None:
        mark = "[bold green]yes[/]" if held else "[bold red]NO[/] "
        self._console.print(
            f"{mark} {text}" if held else f"{mark} {text}: {'; '.join(problems) or 'it is not so'}", soft_wrap=True
        )
        self._broken += not held

    def show_looks(self, readers: Sequence[Sequence[Look]], old: str, new: str) -> None:
        table = Table("reader", "commit", "answer", "times", box=None, pad_edge=False)
        for number, looks in enumerate(readers, 1):
            for look in looks:
                state = {old: "old", new: "new"}.get(look.answer, "neither")
                table.add_row(str(number), str(look.commit), f"{look.answer[:12]} ({state})", str(look.times))
        self._indented(table)

    def show_receipt(self, receipt: dynfrsdb.Receipt) -> None:
        self.say("the receipt, as the ledger has it:")
        table = Table(box=None, show_header=False, pad_edge=False)
        shown = receipt.as_dict()
        for name in _SHOWN:
            table.add_row(name.replace("_", " "), str(shown[name]))
        table.add_row("hash", shown["hash"][:32] + "...")
        self._indented(table)

    def end(self) -> bool:
        """The last line; returns whether every claim held."""
        self._console.print(
            "[bold]every claim held[/]" if not self._broken else f"[bold red]{self._broken} claims did not hold[/]"
        )
        return not self._broken

    def _indented(self, table: Table) -> None:
        from rich.padding import Padding

        self._console.print(Padding(table, (0, 0, 0, 4), expand=False))
