"""`shell`: a prompt with the same verbs, and transactions over several of them.

    bank.forest> tree 3 --depth 2
    bank.forest> begin
    bank.forest*> forget --subject "person 17"
    bank.forest*> predict rows.csv
    bank.forest*> commit

A line is a command of `dynfrsdb` without STORE, and is run by the same code. Outside a transaction each changing verb
is a transaction of its own. After `begin`, verbs that change and `predict` join the open transaction; verbs that look
inside show the last commit, as they would to any other process. A change that fails in a transaction rolls all of it
back, so that what is committed is never part of what was typed.

Lines may also be piped in. Then the first that fails ends the shell, with its exit code.

The history of a session is not written anywhere: it may name people.
"""

from __future__ import annotations

import cmd
import contextlib
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dynfrsdb.cli import app, opening, options
from dynfrsdb.cli.interrupt import Interrupted, Postponed
from dynfrsdb.cli.output import emit, note, properties

if TYPE_CHECKING:
    from dynfrsdb.database import Database
    from dynfrsdb.receipt import Plan
    from dynfrsdb.transaction import Transaction

_LEAVE = ("exit", "quit", "EOF")


@click.command()
@options.store
@click.pass_context
def shell(ctx: click.Context, store: Path) -> None:
    """A prompt with these verbs and transactions.

    Verbs are those of the command line, without STORE; `begin`, `commit` and `rollback` make several one change.
    """
    from dynfrsdb.inside.store import info, look

    found = look(store, info)
    at_terminal = sys.stdin.isatty()
    if at_terminal:
        click.echo(f"{store}: {found['samples']:,} samples in {found['trees']:,} trees, commit {found['commit']:,}")
        click.echo("help lists the verbs, begin opens a transaction, exit leaves")
    ctx.exit(Shell(store, at_terminal).run())


class Shell(cmd.Cmd):
    """The loop; `cmd` brings line editing, history and completion with it."""

    def __init__(self, store: Path, at_terminal: bool) -> None:
        super().__init__()
        self._store, self._at_terminal = store, at_terminal
        self._open: _Open | None = None
        self._failed = False
        self._code = 0
        self.use_rawinput = at_terminal

    @property
    def prompt(self) -> str:  # type: ignore[override]
        """The store's name; a star while a transaction is open."""
        return f"{self._store.name}{'*' if self._open else ''}> " if self._at_terminal else ""

    def run(self) -> int:
        """Read and carry out lines until the end; returns the exit code."""
        with contextlib.suppress(ImportError):
            import readline

            readline.set_completer_delims(" \t\n")
        try:
            while not self._finished():
                pass
        finally:
            left_open = self._open is not None
            self._roll_back()
        if left_open:
            note("the open transaction was rolled back; nothing of it was committed")
        return app.REFUSED if left_open and not self._code and not self._at_terminal else self._code

    def _finished(self) -> bool:
        """Whether the loop has come to its end, and not only to a Ctrl-C at the prompt."""
        try:
            self.cmdloop()
        except KeyboardInterrupt:
            click.echo()
            if not self._at_terminal:
                self._code = app.INTERRUPTED
                return True
            return False
        return True

    def onecmd(self, line: str) -> bool:
        """Carry out one line; true ends the loop."""
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            note(f"{str(error).lower()}; close it, or put a backslash before it")
            return self._ends_with(app.USAGE)
        if not words:
            return False
        if words[0] in _LEAVE:
            if words[0] == "EOF" and self._at_terminal:
                click.echo()
            return True
        return self._ends_with(self._carry_out(words))

    def _ends_with(self, code: int) -> bool:
        """Whether a line with this exit code ends the shell: any failure does, unless a person can go on."""
        if self._at_terminal and code != app.PIPE_CLOSED:
            return False
        self._code = code
        return code != app.FINE

    def _carry_out(self, words: list[str]) -> int:
        before = signal.getsignal(signal.SIGINT)
        try:
            if words[0] in own.commands:
                return app.carry_out(own, words, "", obj=self)
            arguments = self._with_store(words)
            if arguments is None:
                note(f"'{words[0]}' is no verb of the shell; 'help' lists those")
                return app.USAGE
            return app.run(arguments)
        finally:
            signal.signal(signal.SIGINT, before)  # a verb that commits keeps Ctrl-C waiting, and does not give it back
            if self._failed:
                self._failed = False
                note("the transaction was rolled back; nothing of it was committed")

    def _with_store(self, words: list[str]) -> list[str] | None:
        """The same as a command line, with STORE where its verb takes it; None for a verb that takes none."""
        verb: click.Command | None = None
        for at in range(1, len(words) + 1):
            group, verb = verb, _verb(words[:at])
            if verb is None:
                usual = getattr(group, "usual", None)
                return None if usual is None else self._with_store([*words[: at - 1], usual, *words[at - 1 :]])
            if _takes_store(verb):
                return [*words[:at], str(self._store), *words[at:]]
            if _looks_up(verb):
                return [*words[:at], "--store", str(self._store), *words[at:]]
        return None

    # Transactions

    def begin(self, request_id: str | None, timeout: float) -> None:
        """Open a transaction."""
        from dynfrsdb.errors import TransactionMisuse

        if self._open is not None:
            raise TransactionMisuse("a transaction is open already; commit it or roll it back first")
        db = opening.database(self._store, "w")
        try:
            transaction = db.transaction(request_id, timeout)
            transaction.__enter__()
        except BaseException:
            db.close()
            raise
        self._open = opening.joined = _Open(self, db, transaction)

    def commit(self, as_json: bool) -> None:
        """Commit the open transaction and print its receipt."""
        held, interrupts = self._the_open(), Postponed()
        opening.joined = None
        interrupts.begin()
        self._open = None
        with contextlib.closing(held.db):
            held.transaction.__exit__(None, None, None)
            receipt = held.transaction.receipt
        result = None if receipt is None else {**receipt.as_dict(), "replayed": held.transaction.replayed}
        emit(result, lambda: properties(result) if result else "nothing was changed", as_json)
        options.tell_catalog(self._store)
        if interrupts.came:
            raise Interrupted(
                f"interrupted too late to stop it: this is committed as change {receipt.sequence}"
                if receipt is not None
                else "interrupted; there was nothing to commit"
            )

    def roll_back(self) -> None:
        """Let go of the open transaction."""
        self._the_open()
        self._roll_back()

    def fail(self) -> None:
        """A change did not succeed: let go of everything."""
        self._roll_back()
        self._failed = True

    def _the_open(self) -> _Open:
        from dynfrsdb.errors import TransactionMisuse

        if self._open is None:
            raise TransactionMisuse("no transaction is open; begin one first")
        return self._open

    def _roll_back(self) -> None:
        if self._open is not None:
            held, self._open, opening.joined = self._open, None, None
            with contextlib.closing(held.db):
                held.transaction.__exit__(_RolledBack, _RolledBack(), None)

    # Completion

    def completenames(self, text: str, *ignored: Any) -> list[str]:
        """Verbs that begin with what is typed."""
        return [f"{name} " for name in (*_names(), *own.commands, "exit") if name.startswith(text)]

    def completedefault(self, text: str, line: str, begidx: int, endidx: int) -> list[str]:
        """Options of the verb, its sub-verbs, or verbs after help."""
        words = line[:begidx].split()
        if words == ["help"]:
            return self.completenames(text)
        named = (_verb(words[:at]) for at in range(len(words), 0, -1))
        verb = own.commands.get(words[0]) or next((found for found in named if found is not None), None)
        if isinstance(verb, click.Group):
            return [f"{name} " for name in verb.commands if name.startswith(text)]
        params = [param for param in verb.params if isinstance(param, click.Option)] if verb else []
        return [f"{name} " for param in params for name in param.opts if name.startswith(text or "-")]

    complete_help = completedefault


class _RolledBack(Exception):
    """Ends a transaction without a commit."""


class _SoFar(NamedTuple):
    """What a transaction would do if it were committed now."""

    plan: Plan

    def as_dict(self) -> dict[str, Any]:
        return {**self.plan.as_dict(), "committed": False}


class _Open:
    """An open transaction; verbs are given it in place of a handle. What it does not know better, the handle does."""

    def __init__(self, shell: Shell, db: Database, transaction: Transaction) -> None:
        self._shell, self.db, self.transaction = shell, db, transaction
        self.predict, self.predict_proba = transaction.predict, transaction.predict_proba

    def __getattr__(self, name: str) -> Any:
        return getattr(self.db, name)

    def __enter__(self) -> _Open:
        return self

    def __exit__(self, *ignored: object) -> None:
        """Verbs close what they opened; this stays open."""

    def _once(self, act: Callable[[Transaction], Any], request_id: Any, timeout: float, dry_run: bool) -> _SoFar:
        """Do something more in the transaction; what comes of all so far, if it were committed now."""
        from dynfrsdb.errors import TransactionMisuse

        if dry_run:
            raise TransactionMisuse("a transaction changes nothing before it is committed; leave --dry-run out")
        if request_id is not None:
            raise TransactionMisuse("the request is the whole transaction; pass --request-id to begin")
        try:
            act(self.transaction)
            return _SoFar(self.transaction._plan())
        except BaseException:
            self._shell.fail()
            raise

    def explain(self, X: Any) -> Any:
        """Not of a transaction."""
        from dynfrsdb.errors import TransactionMisuse

        raise TransactionMisuse("explanations are of the last commit; commit or roll back first")


def _names() -> list[str]:
    """Verbs that take a store."""
    names = app.cli.list_commands(click.Context(app.cli))
    return [name for name in names if name != "shell" and any(map(_takes_store, _commands(name)))]


def _commands(name: str) -> list[click.Command]:
    verb = _verb([name])
    return list(verb.commands.values()) if isinstance(verb, click.Group) else [verb] if verb is not None else []


def _verb(words: list[str]) -> click.Command | None:
    """The command that words name: a verb, or one of its sub-verbs."""
    found: click.Command | None = app.cli
    for word in words:
        if not isinstance(found, click.Group) or word == "shell":
            return None
        found = found.get_command(click.Context(found), word)
    return found


def _takes_store(verb: click.Command) -> bool:
    """Whether the first argument is a store, or a place where one may be."""
    first = next((param for param in verb.params if isinstance(param, click.Argument)), None)
    return first is not None and first.name in ("store", "place")


def _looks_up(verb: click.Command) -> bool:
    """Whether a store may be named with an option."""
    return any(isinstance(param, click.Option) and param.name == "store" for param in verb.params)


@click.group(cls=app.Group)
def own() -> None:
    """What only the shell has."""


@own.command()
@click.option("--request-id", metavar="TEXT", help="A name for this request, as for verbs that change.")
@options.timeout
@click.pass_obj
def begin(shell: Shell, request_id: str | None, timeout: float) -> None:
    """Open a transaction; waits for other writers."""
    shell.begin(request_id, timeout)


@own.command()
@options.as_json
@click.pass_obj
def commit(shell: Shell, as_json: bool) -> None:
    """Commit the open transaction and print its receipt."""
    shell.commit(as_json)


@own.command()
@click.pass_obj
def rollback(shell: Shell) -> None:
    """Let go of the open transaction; nothing is changed."""
    shell.roll_back()


@own.command("help")
@click.argument("verb", nargs=-1)
def help_(verb: tuple[str, ...]) -> int:
    """List the verbs, or explain one."""
    if verb and verb[0] in own.commands:
        return app.carry_out(own, [*verb, "--help"], "")
    if verb:
        return app.run([*verb, "--help"])
    rows = [(name, command.get_short_help_str(80)) for name in _names() for command in [_verb([name])] if command]
    rows += [(name, command.get_short_help_str(80)) for name, command in own.commands.items()]
    formatter = click.HelpFormatter()
    formatter.write_dl([*rows, ("exit", "Leave; an open transaction is rolled back.")])
    click.echo(formatter.getvalue(), nl=False)
    return app.FINE


VERBS = (shell,)
