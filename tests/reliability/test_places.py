"""Where a store can live and who may use it: clear errors everywhere else, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dynfrsdb
from tests.reliability.workload import BATCH, add, answer, in_child, new_store

NOBODY = 65_534
NFS = 0x6969
PATIENCE = 240
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount, or become another user")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(store_dir: Path) -> Path:
    return new_store(store_dir / "people.forest", 60)


def as_nobody(work: Callable[[], object]) -> int:
    """Run `work` in a forked process of another user; returns its exit code."""

    def become() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        work()

    return in_child(become)


def refuses(kind: type[dynfrsdb.Error], words: str, act: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=words):
        act()


def test_a_store_is_private_whatever_the_umask(store_dir: Path) -> None:
    before = os.umask(0)
    try:
        path = new_store(store_dir / "open.forest", 30)
        with dynfrsdb.open(path, "w") as db:
            add(db, [100])
            db.backup(store_dir / "copy.forest")
    finally:
        os.umask(before)

    for store in (path, store_dir / "copy.forest"):
        modes = {entry.stat().st_mode & 0o777 for entry in [store, *store.rglob("*")] if entry.is_dir()}
        assert modes == {0o700}
        assert {entry.stat().st_mode & 0o777 for entry in store.rglob("*") if entry.is_file()} == {0o600}


@needs_root
def test_a_private_store_is_refused_to_another_user(path: Path, store_dir: Path) -> None:
    store_dir.chmod(0o755)

    def look() -> None:
        for mode in ("r", "w"):
            refuses(
                dynfrsdb.ReadOnly,
                "may not be read by this user; change its permissions",
                partial(dynfrsdb.open, path, mode),
            )

    assert as_nobody(look) == 0


@needs_root
def test_a_directory_that_may_not_be_written_takes_no_store(path: Path, store_dir: Path) -> None:
    store_dir.chmod(0o755)
    for entry in [path, *path.rglob("*")]:
        entry.chmod(0o755 if entry.is_dir() else 0o666 if entry.name == "lock.mdb" else 0o644)
    with dynfrsdb.open(path) as db:
        answer(db)  # has this process load its kernels, while it may
    words = "may not use .*new.forest.*change its permissions"

    def try_it() -> None:
        with dynfrsdb.open(path) as db:
            assert db.predict(BATCH).shape == (64,)
            refuses(dynfrsdb.ReadOnly, words, lambda: db.backup(store_dir / "new.forest"))
        refuses(dynfrsdb.ReadOnly, words, lambda: dynfrsdb.create(store_dir / "new.forest", [[1.0], [2.0]], [0, 1]))
        refuses(dynfrsdb.ReadOnly, "may not be written by this user", lambda: dynfrsdb.open(path, "w"))

    assert as_nobody(try_it) == 0
    assert [entry.name for entry in store_dir.iterdir()] == ["people.forest"]


def test_places_that_are_none_are_told_apart(path: Path, store_dir: Path) -> None:
    (store_dir / "file").write_text("mine")
    (store_dir / "empty").mkdir()
    (store_dir / "loop").symlink_to("loop")
    (store_dir / "dangling").symlink_to("nowhere")
    opening: list[tuple[str, type[dynfrsdb.Error], str]] = [
        ("missing", dynfrsdb.StoreNotFound, "there is no store at .*create one"),
        ("missing/deeper", dynfrsdb.StoreNotFound, "there is no store at"),
        ("file", dynfrsdb.UnsupportedFormat, "is not a dynfrsdb store"),
        ("file/deeper", dynfrsdb.StoreNotFound, "there is no store at"),
        ("empty", dynfrsdb.UnsupportedFormat, "is not a dynfrsdb store"),
        ("loop", dynfrsdb.UnsupportedPlace, "in circles through symbolic links"),
        ("loop/deeper", dynfrsdb.UnsupportedPlace, "in circles through symbolic links"),
        ("dangling", dynfrsdb.StoreNotFound, "there is no store at"),
        ("x" * 300, dynfrsdb.UnsupportedPlace, "too long.*choose another path"),
    ]
    making: list[tuple[str, type[dynfrsdb.Error], str]] = [
        ("missing/deeper", dynfrsdb.StoreNotFound, "there is no directory .*create it first"),
        ("file", dynfrsdb.StoreExists, "exists already"),
        ("file/deeper", dynfrsdb.StoreNotFound, "there is no directory"),
        ("empty", dynfrsdb.StoreExists, "exists already"),
        ("loop", dynfrsdb.StoreExists, "exists already"),
        ("loop/deeper", dynfrsdb.StoreNotFound, "there is no directory"),
        ("dangling", dynfrsdb.StoreExists, "exists already"),
        ("x" * 300, dynfrsdb.UnsupportedPlace, "too long.*choose another path"),
        ("x" * 250, dynfrsdb.UnsupportedPlace, "too long.*choose another path"),
    ]
    before = sorted(entry.name for entry in store_dir.iterdir())

    for name, kind, words in opening:
        for mode in ("r", "w"):
            refuses(kind, words, partial(dynfrsdb.open, store_dir / name, mode))
    with dynfrsdb.open(path) as db:
        for name, kind, words in making:
            refuses(kind, words, partial(dynfrsdb.create, store_dir / name, [[1.0], [2.0]], [0, 1]))
            refuses(kind, words, partial(db.backup, store_dir / name))

    assert sorted(entry.name for entry in store_dir.iterdir()) == before
    assert (store_dir / "file").read_text() == "mine"


def test_a_store_may_be_reached_through_a_symbolic_link(path: Path, store_dir: Path) -> None:
    (store_dir / "link").symlink_to(path, target_is_directory=True)

    with dynfrsdb.open(store_dir / "link", "w") as linked, dynfrsdb.open(path) as db:
        add(linked, [1000])
        assert 1000 in db
        assert linked.digest() == db.digest()


def test_a_network_file_system_is_refused_by_name(path: Path, store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its locks and maps are not those of one machine. Faked: what statfs reports."""
    with dynfrsdb.open(path) as db:
        monkeypatch.setattr("dynfrsdb_storage.disk._statfs_type", lambda place: NFS)
        words = r"network file system \(nfs\); put the store on a local disk"

        refuses(dynfrsdb.UnsupportedPlace, words, lambda: dynfrsdb.open(path))
        refuses(dynfrsdb.UnsupportedPlace, words, lambda: dynfrsdb.open(path, "w"))
        refuses(dynfrsdb.UnsupportedPlace, words, lambda: db.backup(store_dir / "copy.forest"))
        refuses(
            dynfrsdb.UnsupportedPlace, words, lambda: dynfrsdb.create(store_dir / "new.forest", [[1.0], [2.0]], [0, 1])
        )

    assert [entry.name for entry in store_dir.iterdir()] == ["people.forest"]


@pytest.fixture
def frozen(path: Path, store_dir: Path) -> Iterator[Path]:
    """The store on a file system that is mounted read-only, readable by everybody."""
    for entry in [store_dir, path, *path.rglob("*")]:
        entry.chmod(0o755 if entry.is_dir() else 0o644)
    mount = store_dir / "mount"
    mount.mkdir()
    if subprocess.run(["mount", "--bind", path, mount], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a file system")
    subprocess.run(["mount", "-o", "remount,ro,bind", mount], check=True)
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)
    mount.rmdir()


@needs_root
def test_a_store_on_a_read_only_file_system_can_be_read(frozen: Path, path: Path) -> None:
    with dynfrsdb.open(path) as db:
        expected, digest = answer(db), db.digest()

    def read() -> None:
        with dynfrsdb.open(frozen) as db:
            assert (answer(db), db.digest()) == (expected, digest)
            assert db.check().problems == ()
            assert db.info()["readers"] == []
        refuses(dynfrsdb.ReadOnly, "may not be written", lambda: dynfrsdb.open(frozen, "w"))

    assert in_child(read) == 0
    assert as_nobody(read) == 0


QUERY = """
import sys, dynfrsdb
from dynfrsdb_engine.kernel import CACHED
with dynfrsdb.open(sys.argv[1]) as db:
    print(CACHED, db.predict([[1.0, 2.0, 1.0, 3.0]]).tolist())
"""


@needs_root
def test_a_user_without_a_home_in_a_read_only_place_can_query(frozen: Path, path: Path) -> None:
    """Kernels are compiled in memory, because there is nowhere to keep them: some 10 s on an idle core."""
    with dynfrsdb.open(path) as db:
        expected = db.predict([[1.0, 2.0, 1.0, 3.0]]).tolist()
    command = [*stranger(), sys.executable, "-B", "-c", QUERY, str(frozen)]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": python_path(),
        "DYNFRSDB_KERNEL_CACHE": str(frozen / "cache"),
    }

    started = time.monotonic()
    done = subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    print(f"import, compile in memory and query: {time.monotonic() - started:.1f} s")
    assert done.stderr == ""
    assert done.stdout == f"False {expected}\n"


def stranger() -> list[str]:
    """How to run this interpreter as a user that the machine has never heard of and that may write nowhere."""
    if not shutil.which("setpriv"):
        pytest.skip("there is no setpriv here, to become another user with")
    become = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"]
    # The interpreter may lie where only root may look.
    look = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    probe = [sys.executable, "-c", "import sys; sys.exit(sys.base_prefix != sys.argv[1])", sys.base_prefix]
    for command in (become, [*become, *look]):
        if not subprocess.run([*command, *probe], capture_output=True, check=False, cwd="/").returncode:
            return command
    pytest.skip("another user cannot run this interpreter")


CONTAINER = """
import os, sys, dynfrsdb
try:
    db = dynfrsdb.open(sys.argv[1], sys.argv[2])
except dynfrsdb.UnsupportedPlace as error:
    print("refused:", error)
else:
    print("open as", os.getpid(), flush=True)
    with db.snapshot():
        sys.stdin.read()
    print(len(db))
"""


@needs_root
def test_two_containers_whose_processes_have_one_pid_are_told_what_to_do(path: Path) -> None:
    if not shutil.which("unshare") or subprocess.run(["unshare", "--pid", "--fork", "true"], check=False).returncode:
        pytest.skip("this machine does not let us make pid namespaces")
    environment = {**os.environ, "PYTHONPATH": python_path()}
    inside = ["unshare", "--pid", "--fork", sys.executable, "-c", CONTAINER, str(path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}

    with subprocess.Popen([*inside, "r"], **pipes) as first:
        assert first.stdout is not None
        assert first.stdin is not None
        assert first.stdout.readline() == "open as 1\n"
        for mode in ("r", "w"):
            second = subprocess.run([*inside, mode], capture_output=True, text=True, env=environment, check=True)
            assert "in another container by a process with the same pid" in second.stdout
            assert "share one pid namespace, or run each with an init" in second.stdout
        # A process with another pid is welcome meanwhile, from whichever namespace.
        with dynfrsdb.open(path, "w") as db:
            add(db, [1000])
            assert [reader["lag"] for reader in db.info()["readers"] if reader["pid"] == 1] == [1]
        first.stdin.close()
        assert first.stdout.readline() == "61\n"
    after = subprocess.run([*inside, "w"], capture_output=True, text=True, env=environment, check=True, input="")
    assert after.stdout == "open as 1\n61\n"


def python_path() -> str:
    return os.pathsep.join(str(ROOT / part) for part in (".", "storage", "engine", "migrations"))
