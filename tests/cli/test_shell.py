"""The shell: the same verbs, and transactions over several of them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import dynfrsdb
from tests.cli.command import COMMAND, PATIENCE, Ran, environment, read_terminal
from tests.cli.command import dynfrsdb as command
from tests.cli.conftest import make_store


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return make_store(tmp_path / "own.forest")


def test_several_verbs_in_a_transaction_are_one_change(own: Path) -> None:
    ran = _typed(own, "begin", 'forget --subject "person 3"', "remove --id 20", "sample 20", "commit", "info")

    forgotten, removed, sample, receipt, info = _documents(ran)
    assert (ran.code, ran.err) == (0, "")
    assert (forgotten["removed"], removed["removed"], removed["committed"]) == (2, 3, False)
    assert sample["id"] == 20  # verbs that look inside see the last commit
    assert (receipt["sequence"], receipt["removed"], info["samples"]) == (2, 3, 57)
    assert command("ledger", own).data[1]["hash"] == receipt["hash"]


def test_rolling_back_changes_nothing(own: Path) -> None:
    before = command("info", own).data

    ran = _typed(own, "begin", "remove --id 20", "rollback", "# and that is all")

    assert ran.code == 0
    assert command("info", own).data == before


def test_a_change_that_fails_rolls_the_whole_transaction_back(own: Path) -> None:
    ran = _typed(own, "begin", "remove --id 20", "forget --subject nobody", "commit")

    assert ran.code == 5
    assert ran.err.splitlines() == [
        f"dynfrsdb: no sample of this subject is in '{own}'",
        "dynfrsdb: the transaction was rolled back; nothing of it was committed",
    ]
    with dynfrsdb.open(own) as db:
        assert (20 in db, len(db.ledger())) == (True, 1)


def test_leaving_with_an_open_transaction_commits_nothing_and_says_so(own: Path) -> None:
    ran = _typed(own, "begin", "remove --id 20")

    assert (ran.code, ran.error) == (3, "dynfrsdb: the open transaction was rolled back; nothing of it was committed")
    with dynfrsdb.open(own, "w") as db:
        assert 20 in db
        db.remove([20])  # the writer lock is free


def test_a_request_may_be_a_whole_transaction(own: Path) -> None:
    asked = ("begin --request-id ticket", "remove --id 20", "remove --id 21", "commit")

    first, again = _documents(_typed(own, *asked))[-1], _documents(_typed(own, *asked))[-1]

    assert (first.pop("replayed"), again.pop("replayed")) == (False, True)
    assert first == again


def test_without_begin_each_verb_is_a_change_of_its_own(own: Path) -> None:
    first, second = _documents(_typed(own, "remove --id 20", "remove --id 21"))

    assert (first["removed"], second["removed"]) == (1, 1)
    assert first["hash"] != second["hash"]


def test_receipts_are_issued_and_checked_without_naming_the_store(own: Path, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"

    ran = _typed(own, "remove --id 20", "receipt 2", f"receipt issue 2 --out {file}", f"receipt verify {file}")

    removed, receipt, report = _documents(ran)
    assert (ran.code, ran.err) == (0, "")
    assert isinstance(receipt["entry"], dict)
    assert (receipt["entry"]["sequence"], receipt["entry"]["hash"]) == (2, removed["hash"])
    assert (report["ok"], report["in_ledger"]) == (True, True)


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("commit", 3, "no transaction is open; begin one first"),
        ("begin\nbegin", 3, "a transaction is open already"),
        ("begin\nremove --id 3 --dry-run", 3, "leave --dry-run out"),
        ("begin\nremove --id 3 --request-id a", 3, "pass --request-id to begin"),
        ("begin\nremove --id 3 --receipt /tmp/never", 2, "has no --receipt"),
        ("begin\nsettle", 3, "finish it first, then settle"),
        ("demo", 2, "'demo' is no verb of the shell"),
        ("shell", 2, "'shell' is no verb of the shell"),
        ("bogus", 2, "'bogus' is no verb of the shell"),
        ("forget --subject 'person", 2, "no closing quotation"),
        ("begin --bogus", 2, "see 'begin --help'"),
        ("tree 99", 5, "there is no tree 99"),
    ],
)
def test_a_line_that_fails_ends_a_script_with_its_code(own: Path, line: str, code: int, words: str) -> None:
    ran = _typed(own, line, "remove --id 1")

    assert ran.code == code
    assert words in ran.err.splitlines()[0]
    assert "Traceback" not in ran.err
    with dynfrsdb.open(own) as db:
        assert len(db) == 60


def test_a_store_that_is_not_there_has_no_shell(tmp_path: Path) -> None:
    assert _typed(tmp_path / "nowhere.forest", "info").code == 5


class Terminal:
    """A shell at a terminal, with somebody who types."""

    def __init__(self, store: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._seen = ""

        def own_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*COMMAND, "shell", str(store)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(TERM="dumb"),
            start_new_session=True,
            preexec_fn=own_terminal,
        )
        os.close(theirs)

    def type(self, keys: str, until: str) -> str:
        """Type, and wait until something is shown; returns what was shown."""
        os.write(self._ours, keys.encode())
        return self.wait(until)

    def wait(self, until: str) -> str:
        """What is shown up to and with `until`."""
        deadline = time.monotonic() + PATIENCE
        while until not in self._seen:
            assert select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))[0], self._seen
            self._seen += read_terminal(self._ours).decode()
        shown, _, self._seen = self._seen.partition(until)
        return shown + until

    def interrupt(self, until: str) -> None:
        """Press Ctrl-C until something is shown: Python may miss one at the moment when it begins to read."""
        for _ in range(6):
            os.write(self._ours, b"\x03")
            deadline = time.monotonic() + PATIENCE / 6
            while until not in self._seen and time.monotonic() < deadline:
                if select.select([self._ours], [], [], 1.0)[0]:
                    self._seen += read_terminal(self._ours).decode()
            if until in self._seen:
                self._seen = self._seen.rpartition(until)[2]
                return
        raise AssertionError(self._seen)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(own: Path) -> Iterator[Terminal]:
    shell = Terminal(own)
    shell.wait("own.forest> ")
    yield shell
    shell.close()


def test_a_person_gets_a_prompt_that_shows_a_transaction_and_completes(terminal: Terminal) -> None:
    assert "█" in terminal.type("imp\t--to\t 2\r", "own.forest> ")
    terminal.type("begin\r", "own.forest*> ")
    assert "no such option" in terminal.type("info --bogus\r", "own.forest*> ")
    terminal.type("rollb\t\r", "own.forest> ")
    assert "begin" in terminal.type("help\r", "own.forest> ")
    terminal.type("\x04", "\r\n")

    assert terminal.process.wait(PATIENCE) == 0


def test_ctrl_c_at_the_prompt_only_drops_the_line(terminal: Terminal, own: Path) -> None:
    terminal.type("begin\r", "own.forest*> ")
    terminal.type("remove --id 20\r", "own.forest*> ")
    terminal.type("remove --id 2", "--id 2")
    terminal.interrupt("own.forest*> ")
    assert "sequence" in terminal.type("commit\r", "own.forest> ")

    with dynfrsdb.open(own) as db:
        assert (20 in db, 2 in db, len(db)) == (False, True, 59)


def _typed(store: Path, *lines: str) -> Ran:
    done = subprocess.run(
        [*COMMAND, "shell", str(store)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        env=environment(),
        timeout=PATIENCE,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def _documents(ran: Ran) -> list[dict[str, object]]:
    """The JSON documents that verbs printed one after another."""
    decoder, found, rest = json.JSONDecoder(), [], ran.out.lstrip()
    while rest:
        document, end = decoder.raw_decode(rest)
        found.append(document)
        rest = rest[end:].lstrip()
    return found
