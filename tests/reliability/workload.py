"""A small store of people that others break, and the processes that break it.

Person i has the row `values(i)`, the class `label(i)` and the subject `subject(i)`, which three people share. So from
an id alone a test knows every byte that must be there, or must be gone.

A worker is a forked child that inherits compiled kernels and works in milliseconds. It tells its parent, through a
pipe, what it is about to do and then what it has a receipt for:

    worker                      pipe                        the parent, after kill -9
    about to remove 7           {"begin": [[], [7]]}        7 may live or not
    receipt                     {"done": 1}                 7 is gone for ever

`Story` reads that pipe and says which states of the store are allowed.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dynfrsdb
from dynfrsdb_storage import failpoints
from tests.conftest import MEMORY

FEATURES = 4
PEOPLE = 240
EVERYBODY = set(range(PEOPLE))
TREES = 20
KILLED = -signal.SIGKILL
LENGTH = max(1, int(os.environ.get("DYNFRSDB_SOAK") or 1))
"""How many times as long as in CI the random tests run: more kills, more minutes."""
PATIENCE = 60.0 + 30.0 * LENGTH
"""Seconds after which a child that should long have ended counts as hung."""
Floats = npt.NDArray[np.float32]
Tell = Callable[[dict[str, Any]], None]


@cache
def seed() -> int:
    """The seed of this run: DYNFRSDB_SEED, or a new one."""
    return int(os.environ.get("DYNFRSDB_SEED") or secrets.randbelow(1 << 32))


def chance(name: str) -> random.Random:
    """A generator for one test; says how to repeat it."""
    print(f"{name}: repeat with DYNFRSDB_SEED={seed()}", flush=True)
    return random.Random(f"{name} {seed()}")


def values(ids: Iterable[int]) -> Floats:
    """The rows of people: recognisable, never zero, and with many ties."""
    i = np.fromiter(ids, np.int64)
    columns = [i * 7 % 1009 + 0.5, i * 13 % 31 + 1.0, i % 2 + 1.0, np.sqrt(i + 2.0)]
    return np.stack(columns, axis=1).astype(np.float32)


def label(id: int) -> str:
    """The class of a person: half a rule, half noise, so that trees are deep."""
    return "no" if (id * 7 % 1009 < 500) ^ (id * 2654435761 >> 7 & 3 == 0) else "yes"


def subject(id: int) -> str:
    """Whose sample it is."""
    return f"subject {id // 3}"


BATCH = values(range(100_000, 100_064))
"""The rows that everybody asks about."""


def new_store(path: Path, people: int = PEOPLE, **settings: Any) -> Path:
    """A closed store of people 0, 1, 2, ... with small buckets, so that a small store has nodes of every kind."""
    ids = range(people)
    given = {"n_estimators": TREES, "q": 0.2, "min_samples_split": 3, "seed": 11, "_bucket": 16, **settings}
    dynfrsdb.create(
        path, values(ids), [label(i) for i in ids], subjects=[subject(i) for i in ids], classes=["no", "yes"], **given
    ).close()
    return path


def add(to: dynfrsdb.Database | dynfrsdb.Transaction, ids: Sequence[int]) -> Any:
    """Add people."""
    return to.add(values(ids), [label(i) for i in ids], ids=list(ids), subjects=[subject(i) for i in ids])


def living(db: dynfrsdb.Database) -> set[int]:
    """The ids of all people in the store; each has its own row, class and subject."""
    with db._store.snapshot() as snapshot:
        ids = [int.from_bytes(key, "big") for key, _ in snapshot.scan("samples")]
    with db.snapshot() as pinned:
        for id in ids:
            sample = pinned.sample(id)
            assert sample.x.tobytes() == values([id]).tobytes()
            assert (sample.y, sample.has_subject) == (label(id), True)
    return set(ids)


def traces(path: Path, ids: Iterable[int]) -> list[int]:
    """Those people whose row is still somewhere in rows.bin."""
    data = b"".join(file.read_bytes() for file in path.glob("gen-*/rows.bin"))
    return [id for id in ids if values([id]).tobytes() in data]


def answer(db: Any, rows: Floats = BATCH) -> str:
    """The answers for a batch, bit for bit, as a short text."""
    return sha256(db.predict_proba(rows).tobytes()).hexdigest()[:16]


def fresh_answer(path: Path, ids: Iterable[int], rows: Floats = BATCH) -> str:
    """The answers of a store that never held anybody else, made at `path`."""
    kept = sorted(ids)
    labels, subjects = [label(i) for i in kept], [subject(i) for i in kept]
    with dynfrsdb.create(
        path,
        values(kept),
        labels,
        ids=kept,
        subjects=subjects,
        classes=["no", "yes"],
        n_estimators=TREES,
        q=0.2,
        min_samples_split=3,
        seed=11,
        _bucket=16,
    ) as db:
        return answer(db, rows)


class Child:
    """A forked process that does some work and tells its parent about it."""

    def __init__(self, work: Callable[[Tell], object]) -> None:
        ours, theirs = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            _die_with_parent()
            os.close(ours)
            _work(work, theirs)
        os.close(theirs)
        self._pipe = os.fdopen(ours, "rb")
        self.code: int | None = None

    def hear(self) -> dict[str, Any] | None:
        """The next thing it tells, or None when it has died. Waits."""
        line = self._pipe.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def rest(self) -> Iterator[dict[str, Any]]:
        """Everything that it tells until it ends."""
        while (said := self.hear()) is not None:
            yield said

    def kill(self) -> None:
        """kill -9."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Wait for it; returns 0, 1 for an exception, or minus the signal that killed it. One that hangs is killed."""
        deadline = time.monotonic() + PATIENCE
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.code = 97
            else:
                time.sleep(0.002)
        return self.code

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self.end()
        self._pipe.close()


def _die_with_parent() -> None:
    """Nobody is left working when a test run is killed."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _work(work: Callable[[Tell], object], pipe: int) -> None:
    code = 1
    try:
        work(lambda said: _say(pipe, said))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _say(pipe: int, said: dict[str, Any]) -> None:
    """One line in one write, so that a line is heard whole or not at all; long ones are cut off by death only."""
    data = json.dumps(said).encode() + b"\n"
    while data:
        data = data[os.write(pipe, data) :]


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked process; returns 0, 1 for an exception, or minus the signal that killed it."""
    with Child(lambda tell: work()) as child:
        return child.end()


def elsewhere(work: Callable[[dynfrsdb.Database], object], path: Path) -> None:
    """Write to the store in another process, leaving tags."""

    def write() -> None:
        with dynfrsdb.open(path, "w", settle=None) as db:
            work(db)

    assert in_child(write) == 0


def die_at(point: str, visits: int = 1) -> None:
    """From now on, kill this process when it comes by a failpoint for the `visits`th time."""
    seen = 0

    def hook(name: str) -> None:
        nonlocal seen
        seen += name == point
        if seen == visits:
            os.kill(os.getpid(), signal.SIGKILL)

    failpoints.hook = hook


class Story:
    """Which states a store may be in, from what its workers told."""

    def __init__(self, live: Iterable[int]) -> None:
        self.live = set(live)
        self.unsure: tuple[set[int], set[int]] | None = None
        """What (comes, goes) with a transaction that was begun and never acknowledged."""
        self.gone: set[int] = set()
        """Who was removed, or never came to live: in the end no row of theirs may be left."""
        self.acknowledged = 0

    def hear(self, said: dict[str, Any]) -> None:
        """Take note of one thing that a worker told."""
        if "begin" in said:
            come, go = said["begin"]
            self.unsure = set(come), set(go)
        elif "done" in said:
            assert self.unsure is not None
            self._happened()
            self.acknowledged += 1

    def settle(self, found: set[int]) -> None:
        """Hold what is in the store against what may be there: all acknowledged, and the last one wholly or not."""
        if found != self.live and self.unsure is not None:
            self._happened()
        assert found == self.live
        if self.unsure is not None:
            self.gone |= self.unsure[0] - self.live
            self.unsure = None

    def _happened(self) -> None:
        assert self.unsure is not None
        come, go = self.unsure
        self.live = self.live - go | come
        self.gone = (self.gone | go) - self.live
        self.unsure = None


class Worker:
    """Changes a store at random, in one process, and tells about every step."""

    def __init__(self, db: dynfrsdb.Database, live: Iterable[int], dice: random.Random, tell: Tell) -> None:
        self._db, self._live, self._dice, self._tell = db, sorted(live), dice, tell
        self._next = max([*self._live, 1000]) + 1

    def step(self) -> None:
        """Do one thing."""
        kinds = [self.add, self.remove, self.forget, self.replace, self.look, self.settle, self.add_many]
        self._dice.choices(kinds, weights=[6, 8, 4, 4, 2, 2, 1])[0]()

    def add(self, count: int | None = None) -> None:
        """Add a few people."""
        new = self._fresh(count or self._dice.randint(1, 5))
        self._told(new, [], lambda txn: add(txn, new))

    def add_many(self) -> None:
        """Add more people than there are reserved slots, and remove most of them again."""
        new = self._fresh(1100)
        self._told(new, [], lambda txn: add(txn, new))
        going = new[20:]
        self._told([], going, lambda txn: txn.remove(going))

    def remove(self) -> None:
        """Remove a few people."""
        if len(self._live) < 40:
            return self.add(20)
        going = self._dice.sample(self._live, self._dice.randint(1, 4))
        self._told([], going, lambda txn: txn.remove(going))

    def forget(self) -> None:
        """Forget a subject."""
        if len(self._live) < 40:
            return self.add(20)
        name = subject(self._dice.choice(self._live))
        going = [id for id in self._live if subject(id) == name]
        self._told([], going, lambda txn: txn.forget(name))

    def replace(self) -> None:
        """Remove and add in one transaction; one of those removed comes back in it."""
        if len(self._live) < 40:
            return self.add(20)
        going, new = self._dice.sample(self._live, 3), self._fresh(3)

        def act(txn: dynfrsdb.Transaction) -> None:
            txn.remove(going)
            add(txn, [*new, going[0]])
            txn.predict(BATCH[:4])

        self._told(new, going[1:], act)

    def look(self) -> None:
        """Query, which grows tags in memory."""
        self._db.predict(BATCH)

    def settle(self) -> None:
        """Write what queries have grown, and everything else that is tagged."""
        self._db.settle()
        self._tell({"settled": 1})

    def _fresh(self, count: int) -> list[int]:
        first, self._next = self._next, self._next + count
        return list(range(first, first + count))

    def _told(self, come: list[int], go: list[int], act: Callable[[dynfrsdb.Transaction], object]) -> None:
        self._tell({"begin": [come, go]})
        with self._db.transaction() as txn:
            act(txn)
        assert txn.receipt is not None
        self._tell({"done": txn.receipt.sequence})
        self._live = sorted({*self._live, *come} - {*go})


@cache
def warm() -> None:
    """Compile, or load, every kernel that children will need, so that they start in milliseconds."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as place:
        path = new_store(Path(place, "warm.forest"))
        for settle in ("auto", None):
            with dynfrsdb.open(path, "w", settle=settle) as db, dynfrsdb.open(path) as reader:
                first = 1000 if settle else 2000
                for cache_bytes in (1 << 30, 0):
                    reader._cache_bytes = cache_bytes
                    answer(reader)
                    worker = Worker(db, range(PEOPLE), random.Random(1), lambda said: None)
                    worker._next, first = first, first + 100
                    worker.add()
                    answer(reader)
                    with db.transaction() as txn:
                        txn.remove([PEOPLE - 1 if settle else PEOPLE - 2] if cache_bytes else [first - 100])
                        txn.predict(BATCH)
                    answer(reader)
                    db.settle()
                    answer(reader)
                assert db.check()
                assert db.verify()
        shutil.rmtree(path)
