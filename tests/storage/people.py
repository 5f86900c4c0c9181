"""A small store of people, for the tests of this folder.

Person i has the row `values(i)`, the label i % 3 and, if i is even, the subject i // 10. So from an id alone a test
knows every byte that must be there, or must be gone.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dynfrsdb_storage import Store, WriteSession, check_storage, create, layout, records
from dynfrsdb_storage.build import Builder

FEATURES = 5
TREES = 130
SEED = bytes(range(16))


def values(sample: int) -> npt.NDArray[np.float32]:
    """The row of a person: recognisable, and never zero."""
    return np.arange(1, FEATURES + 1, dtype=np.float32) * np.float32(0.5) + np.float32(sample)


def subject(sample: int) -> bytes:
    """The hash of the subject a person's sample belongs to, or b"" for none."""
    return b"" if sample % 2 else (sample // 10 + 1).to_bytes(16, "big")


def new_store(path: Path, people: int = 20) -> Path:
    """Create a store with people 0, 1, 2, ..."""

    def fill(builder: Builder) -> None:
        ids = np.arange(people)
        if people:
            builder.write_rows(ids, ids, ids % 3, np.stack([values(i) for i in range(people)]))
        builder.put_sorted(
            "samples", ((layout.id_key(i), records.sample_payload(i, subject(i))) for i in range(people))
        )
        owned = sorted(layout.subject_key(subject(i), i) for i in range(people) if subject(i))
        builder.put_sorted("subjects", ((key, b"") for key in owned))
        builder.append_ledger({"what": "create", "samples": people})
        builder.state["samples"] = people

    create(path, {"n_features": FEATURES, "n_trees": TREES, "seed": SEED}, {}, fill)
    return path


def put_people(session: WriteSession, ids: Iterable[int]) -> None:
    """Prepare the addition of people."""
    ids = list(ids)
    slots = session.reserve(len(ids))
    if ids:
        session.write_rows(slots, np.array(ids), np.array(ids) % 3, np.stack([values(i) for i in ids]))
    for slot, i in zip(slots.tolist(), ids, strict=True):
        session.put("samples", layout.id_key(i), records.sample_payload(slot, subject(i)))
        if subject(i):
            session.put("subjects", layout.subject_key(subject(i), i), b"")
    session.state["samples"] += len(ids)
    session.append_ledger({"what": "add", "samples": len(ids)})


def take_people(session: WriteSession, ids: Iterable[int]) -> None:
    """Prepare the removal of people."""
    ids = list(ids)
    found = session.snapshot.get("samples", [layout.id_key(i) for i in ids])
    session.release(np.array([records.parse_sample(payload)[0] for payload in found if payload is not None]))
    for i in ids:
        session.delete("samples", layout.id_key(i))
        if subject(i):
            session.delete("subjects", layout.subject_key(subject(i), i))
    session.state["samples"] -= len(ids)
    session.append_ledger({"what": "remove", "samples": len(ids)})


def add(store: Store, ids: Iterable[int]) -> int:
    """Add people in a session of its own; returns the number of the commit."""
    with store.write(purpose="add") as session:
        put_people(session, ids)
        return session.commit()


def remove(store: Store, ids: Iterable[int]) -> int:
    """Remove people in a session of its own, and wait until the disk has their erased rows, as far as no reader holds
    them back; returns the number of the commit."""
    with store.write(purpose="remove") as session:
        take_people(session, ids)
        number = session.commit()
    store.current().erasing.wait()
    return number


def living(store: Store) -> set[int]:
    """The ids of all people whose row is readable and right."""
    with store.snapshot() as snapshot:
        found = {layout.parse_id_key(key): records.parse_sample(value)[0] for key, value in snapshot.scan("samples")}
        ids, slots = np.array(list(found), np.uint64), np.array(list(found.values()), np.int64)
        rows = snapshot.rows
        assert not len(rows.bad(slots, ids))
        for i, slot in found.items():
            assert rows.floats[slot, 6 : 6 + FEATURES].tolist() == values(i).tolist()
        return set(found)


def problems(store: Store) -> list[str]:
    """What the audit says of a store."""
    with store.snapshot() as snapshot:
        return check_storage(snapshot)


def traces(path: Path, sample: int) -> int:
    """How many times the row of a person occurs in the store's rows.bin files."""
    return sum(file.read_bytes().count(values(sample).tobytes()) for file in path.glob("gen-*/rows.bin"))


def python_path() -> dict[str, str]:
    """The environment for a new interpreter that finds the packages this one found."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked process; returns 0, 1 for an exception, or minus the signal that killed it."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
