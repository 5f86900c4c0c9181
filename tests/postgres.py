"""A real PostgreSQL for tests: one server per test process, one fresh database per test.

The server listens on a socket in its own directory, where everybody may come in as `postgres`, and on loopback, where a
password is asked for. It never syncs, and it ends with the process of the tests, however that ends. Where there is no
PostgreSQL to start, the tests that ask for one are skipped and say why.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from glob import glob
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from dynfrsdb import sql

MEMORY = Path("/dev/shm")
PASSWORD = "correct horse"
NOBODY = 65534
PATIENCE = 30
"""Seconds for a server to start on a busy machine."""
_PR_SET_PDEATHSIG = 1


class Server:
    """A running server."""

    def __init__(self, place: Path, port: int) -> None:
        self.place, self.port = place, port
        self._numbers = count(1)
        self._binaries = _binaries()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = list(
            map(str, (self._binaries / "postgres", "-D", self.place / "data", "-k", self.place, "-p", self.port))
        )
        quick = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off", "max_connections=60")
        options = [part for each in (*quick, "listen_addresses=127.0.0.1") for part in ("-c", each)]
        with open(self.place / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*command, *options], stdout=log, stderr=log, preexec_fn=_end_with_parent, **_unprivileged()
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self.place / 'log').read_text()}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: at once, without waiting for its clients."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None

    def url(self, database: str) -> str:
        """A database, through the socket."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.place}&port={self.port}"

    def url_with_password(self, database: str, password: str = PASSWORD) -> str:
        """A database, through loopback."""
        return f"postgresql+psycopg://postgres:{password}@127.0.0.1:{self.port}/{database}"

    def fresh(self) -> str:
        """The name of a new, empty database."""
        name = f"test_{next(self._numbers)}"
        self.execute("postgres", f"CREATE DATABASE {name}")
        return name

    def execute(self, database: str, *statements: str) -> None:
        """Run statements, each by itself."""
        engine = create_engine(self.url(database), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()

    def _answers(self) -> bool:
        try:
            self.execute("postgres", "SELECT 1")
        except Exception:
            return False
        return True


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The server of this test process; skips where there is none."""
    pytest.importorskip("psycopg", reason="psycopg is not installed, so PostgreSQL cannot be asked")
    binaries = _binaries()
    if not (binaries / "postgres").exists():
        pytest.skip("PostgreSQL is not installed here (no initdb in PATH nor under /usr/lib/postgresql)")
    place = Path(tempfile.mkdtemp(prefix="dynfrsdb-pg-", dir=MEMORY if MEMORY.is_dir() else None))
    server = Server(place, _free_port())
    try:
        try:
            _prepare(binaries, place)
            server.start()
        except (OSError, subprocess.SubprocessError, RuntimeError) as error:
            pytest.skip(f"PostgreSQL is installed but cannot be started here: {error}")
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(place)


@pytest.fixture
def postgres(postgres_server: Server) -> Iterator[str]:
    """The URL of a fresh database; connections that our engines keep are closed behind the test."""
    yield postgres_server.url(postgres_server.fresh())
    sql.dispose()


def _prepare(binaries: Path, place: Path) -> None:
    password = place / "password"
    password.write_text(PASSWORD)
    if os.geteuid() == 0:
        for each in (place, password):
            os.chown(each, NOBODY, NOBODY)
    ways = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}", "--username=postgres"]
    subprocess.run(
        [str(binaries / "initdb"), "-D", str(place / "data"), "--no-sync", "--encoding=UTF8", "--locale=C", *ways],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=place,
        **_unprivileged(),
    )


def _unprivileged() -> dict[str, Any]:
    """PostgreSQL does not run as root."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _binaries() -> Path:
    found = shutil.which("initdb")
    places = [str(Path(found).resolve().parent)] if found else []
    return Path(([*places, *sorted(glob("/usr/lib/postgresql/*/bin"))] or ["/nowhere"])[-1])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
