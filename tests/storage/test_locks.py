"""Locks: one writer at a time, and locks that die with their process, not with its children."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest

from dynfrsdb_storage import Store, layout, locks
from dynfrsdb_storage.errors import ClosedStore, Locked
from dynfrsdb_storage.locks import Lease, WriterLock, read_holder
from tests.storage.people import add, in_child, living, new_store, problems, put_people, python_path, remove


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a closed store of 20 people."""
    return new_store(tmp_path / "people.forest")


def sleeper() -> int:
    """A forked process that does nothing until it is killed (or a minute has passed)."""
    ready, tell = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(tell, b"!")
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    return pid


def test_the_lock_says_who_holds_it_and_what_was_acknowledged(path: Path) -> None:
    lock = WriterLock.acquire(path, 0, 'a "quoted" purpose')
    lock.acknowledge(7)
    holder = read_holder(path)
    lock.release(in_order=True)

    assert (holder.pid, holder.acknowledged, holder.purpose) == (os.getpid(), 7, "a 'quoted' purpose")
    assert (read_holder(path).pid, read_holder(path).acknowledged) == (0, 7)
    assert (path / "LOCK").stat().st_size == 512


def test_who_is_refused_while_the_lock_changes_hands_is_told_who_got_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one whose turn it is has not signed yet."""
    monkeypatch.setattr(locks, "_CHANGING_HANDS", 60.0)  # however slow this machine is
    turn = os.open(path / "CURRENT", os.O_RDONLY)
    fcntl.flock(turn, fcntl.LOCK_EX)
    signs = threading.Timer(0.02, (path / "LOCK").write_bytes, [locks._block(locks.Holder(pid=4711, host="a"))])
    signs.start()

    with pytest.raises(Locked, match=r"is being written by process 4711 on 'a' \(since \d+ s"):
        WriterLock.acquire(path, 0, "refused")

    signs.join()
    os.close(turn)


def test_a_long_purpose_keeps_the_block_in_its_size(path: Path) -> None:
    lock = WriterLock.acquire(path, 0, "\\é\n" * 500)
    lock.release(in_order=False)

    assert (path / "LOCK").stat().st_size == 512
    assert read_holder(path).pid == os.getpid()


def test_the_next_writer_knows_that_the_last_one_died(path: Path) -> None:
    assert in_child(lambda: (WriterLock.acquire(path, 0, "doomed"), os._exit(0))) == 0

    lock = WriterLock.acquire(path, 0, "next")

    assert lock.abandoned
    lock.release(in_order=True)
    lock = WriterLock.acquire(path, 0, "after that")
    assert not lock.abandoned
    lock.release(in_order=True)


def test_threads_of_one_handle_never_have_the_lock_together(path: Path) -> None:
    """They share the open files of the lock one after the other, never at once."""
    inside, met = [0], [0]

    def write() -> None:
        for _ in range(40):
            with store.write(timeout=60):
                inside[0] += 1
                met[0] = max(met[0], inside[0])
                time.sleep(0.0002)
                inside[0] -= 1

    with Store.open(path, writable=True) as store:
        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert met == [1]


def test_a_child_of_a_handle_that_keeps_lock_files_opens_its_own(path: Path) -> None:
    with Store.open(path, writable=True) as store:
        with store.write():
            pass

        def child() -> None:
            with store.write(timeout=0) as session:
                put_people(session, [100])
                session.commit()
                with pytest.raises(Locked):
                    WriterLock.acquire(path, 0, "other")

        assert in_child(child) == 0
        with store.write(timeout=0) as session:
            put_people(session, [101])
            session.commit()
        assert living(store) == {*range(20), 100, 101}


def test_a_lock_file_that_a_handle_kept_open_and_that_was_replaced_is_not_the_lock(path: Path) -> None:
    with Store.open(path, writable=True) as store:
        with store.write():
            pass
        (path / "LOCK.new").write_bytes((path / "LOCK").read_bytes())
        os.replace(path / "LOCK.new", path / "LOCK")
        lock = WriterLock.acquire(path, 0, "other")

        with pytest.raises(Locked):
            store.write(timeout=0).__enter__()

        lock.release(in_order=True)
        with store.write(timeout=0):
            pass


def test_a_handle_takes_its_turn_at_the_new_file_when_current_was_replaced(path: Path) -> None:
    with Store.open(path, writable=True) as store:
        with store.write():
            pass
        (path / "CURRENT.new").write_bytes((path / "CURRENT").read_bytes())
        os.replace(path / "CURRENT.new", path / "CURRENT")
        with store.write():
            pass  # here it notices

        turn = os.open(path / "CURRENT", os.O_RDONLY)
        fcntl.flock(turn, fcntl.LOCK_EX)
        with pytest.raises(Locked):
            store.write(timeout=0).__enter__()
        os.close(turn)


def test_what_another_writer_left_in_the_lock_is_read(path: Path) -> None:
    with Store.open(path, writable=True) as store:
        with store.write():
            pass
        assert in_child(lambda: (WriterLock.acquire(path, 0, "doomed"), os._exit(0))) == 0

        with store.write() as session:
            assert session._lock is not None
            assert session._lock.abandoned


def test_a_closed_handle_keeps_no_lock_files_open(path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))

    with Store.open(path, writable=True) as store, store.write():
        pass

    assert set(os.listdir("/proc/self/fd")) == before


def test_a_child_does_not_release_its_parents_lock(path: Path) -> None:
    with Store.open(path, writable=True) as store, store.write() as session:
        put_people(session, [100])

        def child() -> None:
            session.__exit__(None, None, None)
            store.close()

        assert in_child(child) == 0

        with pytest.raises(Locked):
            WriterLock.acquire(path, 0, "other")
        session.commit()
    with Store.open(path, writable=False) as store:
        assert living(store) == {*range(20), 100}
        assert problems(store) == []


def test_a_child_does_not_keep_its_parents_lock_alive(path: Path, tmp_path: Path) -> None:
    def parent() -> None:
        WriterLock.acquire(path, 0, "parent")
        (tmp_path / "pid").write_text(str(sleeper()))
        os._exit(0)

    assert in_child(parent) == 0

    try:
        WriterLock.acquire(path, 0, "next").release(in_order=True)
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_session_of_the_parent_is_not_the_childs(path: Path) -> None:
    with Store.open(path, writable=True) as store, store.write() as session:

        def child() -> None:
            with pytest.raises(ClosedStore, match="belongs to the parent process"):
                session.commit()
            with pytest.raises(ClosedStore, match="belongs to the parent process"):
                session.snapshot.get("samples", [b"x"])

        assert in_child(child) == 0


def test_a_handle_works_in_a_forked_child_and_still_in_the_parent(path: Path) -> None:
    with Store.open(path, writable=True) as store, store.snapshot() as snapshot:

        def child() -> None:
            assert living(store) == set(range(20))
            add(store, [100])
            assert living(store) == {*range(20), 100}
            grandchild = in_child(lambda: add(store, [101]))
            assert grandchild == 0
            store.close()

        assert in_child(child) == 0

        assert snapshot.count("samples") == 20
        assert living(store) == {*range(20), 100, 101}
        add(store, [102])
        assert problems(store) == []


FORKING_PROGRAM = """
import os, sys
from dynfrsdb_storage import Store
store = Store.open(sys.argv[1], writable=True)
snapshot = store.snapshot()
pid = os.fork()
if not pid:
    del store, snapshot
    sys.exit(0)  # a whole interpreter shutdown, destructors and all
os.waitpid(pid, 0)
assert [reader["pid"] for reader in store.info()["readers"]] == [os.getpid()] * 2
"""


def test_a_childs_exit_leaves_its_parents_snapshot_protected(path: Path) -> None:
    """A child that tidied up the inherited LMDB environment would clear its parent's place in the reader table."""
    subprocess.run([sys.executable, "-c", FORKING_PROGRAM, path], check=True, timeout=60, env=python_path())


def test_a_lease_is_shared_by_readers_and_excludes_the_remover(path: Path) -> None:
    file = path / "gen-0001/LEASE"
    one, two = Lease.take(file), Lease.take(file)
    assert one is not None
    assert two is not None

    assert Lease.take(file, exclusive=True) is None
    one.release()
    two.release()
    alone = Lease.take(file, exclusive=True)
    assert alone is not None
    assert Lease.take(file) is None
    alone.release()


def test_a_sleeping_child_does_not_keep_its_parents_lease(path: Path) -> None:
    store = Store.open(path, writable=False)
    pid = sleeper()
    try:
        store.close()
        alone = Lease.take(path / "gen-0001/LEASE", exclusive=True)
        assert alone is not None
        alone.release()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_lock_file_that_was_replaced_is_not_taken_for_the_lock(path: Path) -> None:
    block = (path / "LOCK").read_bytes()
    lock = WriterLock.acquire(path, 0, "first")
    (path / "LOCK").unlink()
    (path / "LOCK").write_bytes(block)

    other = WriterLock.acquire(path, 1, "second")

    assert not other.abandoned
    other.release(in_order=True)
    lock.release(in_order=True)


def test_a_lock_with_fields_of_another_version_is_good(path: Path) -> None:
    """Fields come and go; what this version does not know says nothing to it."""
    with Store.open(path, writable=True) as store:
        remove(store, [3])
    said = json.loads((path / "LOCK").read_bytes()[9:])
    said["free_list"] = said.pop("free_sum")
    body = json.dumps(said).encode()
    (path / "LOCK").write_bytes((b"%08x %s" % (zlib.crc32(body), body)).ljust(layout.LOCK_BYTES - 1) + b"\n")

    with Store.open(path, writable=True) as store:
        remove(store, [4])
        assert living(store) == set(range(20)) - {3, 4}
