"""Where a store can live: full disks, network shares, other users, other containers."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynfrsdb_storage import Store, layout
from dynfrsdb_storage.disk import network_kind
from dynfrsdb_storage.errors import ReadOnly, StoreFull
from tests.full_disk import can_mount, fill_up, make_room, run_injected, small_disk
from tests.storage.people import add, in_child, living, new_store, problems, python_path, remove, traces

NOBODY = 65_534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user, or make a pid namespace")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    with small_disk(tmp_path) as made:
        yield made


def test_removals_go_through_on_a_full_disk(disk: Path) -> None:
    with Store.open(new_store(disk / "people.forest", people=200), writable=True) as store:
        remove(store, [0])
        fill_up(disk)

        for i in range(1, 150):
            remove(store, [i])

        assert living(store) == set(range(150, 200))
        assert traces(store.path, 77) == 0
        assert problems(store) == []


def test_a_full_disk_refuses_an_addition_and_changes_nothing(disk: Path) -> None:
    with Store.open(new_store(disk / "people.forest"), writable=True) as store:
        add(store, [100])
        fill_up(disk)

        with pytest.raises(StoreFull, match="nothing was changed"):
            add(store, range(1000, 200_000))
        assert living(store) == {*range(20), 100}
        assert problems(store) == []

        make_room(disk)
        add(store, range(1000, 1500))
        assert len(living(store)) == 521
        assert problems(store) == []


def test_a_full_disk_refuses_records_and_changes_nothing(disk: Path) -> None:
    with Store.open(new_store(disk / "people.forest"), writable=True) as store:
        add(store, [100])
        fill_up(disk)

        with store.write() as session:
            session.put_many("buckets", [(layout.bucket_key(1, 1, i), bytes(4000)) for i in range(25_000)])
            with pytest.raises(StoreFull, match="no room left"):
                session.commit()

        assert living(store) == {*range(20), 100}
        assert problems(store) == []
        add(store, [101])


def test_creating_on_a_full_disk_leaves_nothing(disk: Path) -> None:
    fill_up(disk)

    with pytest.raises(StoreFull):
        new_store(disk / "people.forest")

    assert [entry.name for entry in disk.iterdir()] == ["filler"]


def test_space_is_kept_behind_the_data_without_changing_its_size(tmp_path: Path) -> None:
    with Store.open(new_store(tmp_path / "people.forest"), writable=True) as store:
        add(store, [100])
        info = (store.path / "gen-0001/data.mdb").stat()

    assert info.st_size < 1 << 20
    if info.st_blocks * 512 < layout.KEEP_ALLOCATED:
        pytest.skip("this file system cannot keep space behind a file")


@pytest.mark.skipif(can_mount(), reason="the tests above had a disk to fill")
def test_an_injected_full_disk_is_met_in_the_same_way(store_dir: Path) -> None:
    said = run_injected(Path(__file__), "full_disk and not injected", store_dir)

    assert re.search(r"^\d+ passed", said, re.MULTILINE), said
    assert not re.search("failed|error|skipped", said), said


@pytest.mark.parametrize(
    ("magic", "kind"), [(0x6969, "nfs"), (0xFF534D42, "cifs"), (0x01021997, "9p"), (0xEF53, None), (None, None)]
)
def test_network_file_systems_are_known_by_their_number(magic: int | None, kind: str | None, tmp_path: Path) -> None:
    assert network_kind(magic, tmp_path) == kind


def open_to_all(path: Path) -> None:
    """Let everyone read, and write nothing but lock.mdb."""
    for parent in path.parents:
        if parent.name.startswith(("pytest-", "popen-", "test_")):
            parent.chmod(0o755)
    for entry in [path, *path.rglob("*")]:
        entry.chmod(0o755 if entry.is_dir() else 0o666 if entry.name == "lock.mdb" else 0o644)


@needs_root
def test_a_reader_needs_write_permission_to_nothing_but_the_lock_file(tmp_path: Path) -> None:
    path = new_store(tmp_path / "people.forest")
    open_to_all(path)

    def read_as_nobody() -> None:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        with Store.open(path, writable=False) as store:
            assert living(store) == set(range(20))
            assert problems(store) == []
        with pytest.raises(ReadOnly, match="may not be written by this user"):
            Store.open(path, writable=True)

    assert in_child(read_as_nobody) == 0


CONTAINER_PROGRAM = """
import sys, time
from dynfrsdb_storage import Store
from dynfrsdb_storage.errors import UnsupportedPlace
try:
    store = Store.open(sys.argv[1], writable=False)
except UnsupportedPlace as error:
    print("refused:", error)
else:
    print("open", flush=True)
    sys.stdin.read()
"""


@needs_root
def test_two_containers_with_the_same_pid_are_told_so(tmp_path: Path) -> None:
    path = new_store(tmp_path / "people.forest")
    if not shutil.which("unshare") or subprocess.run(["unshare", "-p", "-f", "true"], check=False).returncode:
        pytest.skip("this machine does not let us make pid namespaces")
    command = ["unshare", "-p", "-f", sys.executable, "-c", CONTAINER_PROGRAM, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": python_path()}
    with subprocess.Popen(command, **pipes) as first:  # type: ignore[call-overload]
        assert first.stdout.readline() == "open\n"

        second = subprocess.run(command, capture_output=True, text=True, check=True, env=python_path(), timeout=60)

        first.stdin.close()
    assert "refused" in second.stdout
    assert "in another container by a process with the same pid as this one" in second.stdout
