"""The group of all verbs, and what becomes of errors.

Whatever goes wrong is said in one line on stderr. A traceback is never shown: for a user's mistake it is noise, and for
a bug it is there for the asking (DYNFRSDB_TRACEBACK=1). A reader of our output that goes away, as `head` does, is no
error and hears nothing.

A verb's module is imported when the verb is asked for, by name or by `--help`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

import dynfrsdb
from dynfrsdb.cli.interrupt import Interrupted

FINE, FAILED, USAGE, REFUSED, LOCKED, NOT_FOUND, UNREACHABLE, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 70, 130
PIPE_CLOSED = 141
"""What a shell reports for a process that a closed pipe has ended."""

EXIT_CODES = {
    FINE: "fine",
    FAILED: "a check failed: the store, or a claim of the demo, is not what it should be",
    USAGE: "the command was not used as it is meant to be",
    REFUSED: "refused: nothing was changed",
    LOCKED: "locked: another process is writing",
    NOT_FOUND: "not found: the store, the sample, the subject, the tree, the node, or what has a number",
    UNREACHABLE: "unreachable: a database outside the store, or a store that the catalog knows",
    BUG: "a bug in dynfrsdb",
    INTERRUPTED: "interrupted by Ctrl-C; what was and was not committed is said",
    PIPE_CLOSED: "nobody reads the output any more",
}

FAMILIES = {
    "load": ("create",),
    "look": ("info", "ledger", "readers"),
    "people": ("sample", "subject"),
    "trees": ("tree", "node", "importances"),
    "ask": ("predict",),
    "change": ("add", "remove", "forget"),
    "sync": ("sync",),
    "holds": ("hold", "requests", "suppress"),
    "prove": ("receipt", "restore"),
    "keep": ("check", "verify", "digest", "settle", "backup"),
    "erase": ("erasures", "vacuum", "scan"),
    "catalog": ("catalog",),
    "migrate": ("migrate",),
    "doctor": ("doctor",),
    "shell": ("shell",),
    "story": ("demo",),
}
"""Which module has which verbs; a new verb is a name here and in the VERBS of its module."""


class _PipeClosed(Exception):
    """Nobody reads our output any more."""


class Group(click.Group):
    """A group of verbs; keeps Ctrl-C and a closed pipe from click, which would turn both into exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except KeyboardInterrupt:
            raise Interrupted("interrupted; nothing was committed") from None
        except BrokenPipeError:
            raise _PipeClosed from None


class _Verbs(Group):
    """All verbs, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in FAMILIES.values() for name in names]  # by family, not by the alphabet

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for family, names in FAMILIES.items():
            if cmd_name in names:
                verbs: Sequence[click.Command] = import_module(f"dynfrsdb.cli.{family}").VERBS
                return next(verb for verb in verbs if verb.name == cmd_name)
        return None


@click.group(cls=_Verbs, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(dynfrsdb.__version__, prog_name="dynfrsdb")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A database whose content is a random forest that can forget.

    Output is a table on a terminal and JSON when piped or with --json.

    Exit codes: 0 fine, 1 check failed, 2 usage, 3 refused, 4 locked, 5 not found,
    6 unreachable.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    return carry_out(cli, arguments, "dynfrsdb")


def carry_out(group: Group, arguments: Sequence[str], name: str, **context: Any) -> int:
    """Run one command of a group and say what goes wrong; returns the exit code."""
    try:
        code = group.main(list(arguments), prog_name=name, standalone_mode=False, **context)
        return code if isinstance(code, int) else FINE
    except click.ClickException as error:
        _say(_usage(error))
        return error.exit_code
    except Interrupted as interrupted:
        _say(str(interrupted))
        return INTERRUPTED
    except _PipeClosed:
        # What is still buffered would raise again when the interpreter flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        return _explain(error)


def exit_code(error: Exception) -> int:
    """The exit code that says what kind of error it is."""
    from dynfrsdb import errors  # brings LMDB along, which `--help` can do without

    match error:
        case errors.Locked():
            return LOCKED
        case errors.StoreNotFound() | errors.SampleNotFound() | errors.EntryNotFound() | errors.PlaceNotFound():
            return NOT_FOUND
        case errors.CorruptStore():
            return FAILED
        case errors.Unreachable():
            return UNREACHABLE
        case errors.Error() | OSError():
            return REFUSED
    return BUG


def _explain(error: Exception) -> int:
    code = exit_code(error)
    if os.environ.get("DYNFRSDB_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    if code == BUG:
        what = f"{type(error).__name__}: {error}"
        _say(f"this is a bug: {what}; run it again with DYNFRSDB_TRACEBACK=1 and report what it says")
    else:
        _say(_words(error).replace("pass timeout=", "pass --timeout"))
    return code


def _words(error: Exception) -> str:
    """What an error says; one of the system's without its number and with its file first."""
    from dynfrsdb.errors import Error

    if not isinstance(error, OSError) or isinstance(error, Error) or not error.strerror:
        return str(error)
    reason = error.strerror[:1].lower() + error.strerror[1:]
    return f"'{os.fsdecode(error.filename)}': {reason}" if error.filename is not None else reason


def _usage(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    hint = f"; see '{context.command_path.strip()} --help'" if context is not None else ""
    return message[:1].lower() + message[1:] + hint


def _say(message: str) -> None:
    click.echo("dynfrsdb: " + " ".join(message.split()), err=True)
