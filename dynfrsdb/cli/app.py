"""The group of all verbs, and what becomes of errors.

    exit code   means
    0           fine
    1           a check failed: the store, or a claim of the demo, is not what it should be
    2           the command was not used as it is meant to be
    3           refused: nothing was changed
    4           locked: another process is writing
    5           not found: the store, the sample, the subject, or what has a number
    70          a bug in dynfrsdb
    130         interrupted by Ctrl-C

Whatever goes wrong is said in one line on stderr. A traceback is never shown: for a user's mistake it is noise, and for
a bug it is there for the asking (DYNFRSDB_TRACEBACK=1). A reader of our output that goes away, as `head` does, is no
error and hears nothing.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

import dynfrsdb
from dynfrsdb.cli import ask, change, doctor, erase, holds, keep, load, look, prove, story
from dynfrsdb.cli.interrupt import Interrupted

FINE, FAILED, USAGE, REFUSED, LOCKED, NOT_FOUND, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 5, 70, 130
PIPE_CLOSED = 141
"""What a shell reports for a process that a closed pipe has ended."""


class _PipeClosed(Exception):
    """Nobody reads our output any more."""


class _Verbs(click.Group):
    """The group; keeps Ctrl-C and a closed pipe from click, which would turn both into exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except KeyboardInterrupt:
            raise Interrupted("interrupted; nothing was committed") from None
        except BrokenPipeError:
            raise _PipeClosed from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of their families, not of the alphabet


@click.group(cls=_Verbs, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(dynfrsdb.__version__, prog_name="dynfrsdb")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A database whose content is a random forest that can forget.

    Output is a table on a terminal and JSON when piped or with --json.

    Exit codes: 0 fine, 1 check failed, 2 usage, 3 refused, 4 locked, 5 not found.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _family in (load, look, ask, change, holds, prove, keep, erase, doctor, story):
    for _verb in _family.VERBS:
        cli.add_command(_verb)


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    try:
        code = cli.main(list(arguments), prog_name="dynfrsdb", standalone_mode=False)
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
    from dynfrsdb import errors  # brings LMDB and numpy along, which `--help` can do without

    match error:
        case errors.Locked():
            return LOCKED
        case errors.StoreNotFound() | errors.SampleNotFound() | errors.EntryNotFound():
            return NOT_FOUND
        case errors.CorruptStore():
            return FAILED
        case errors.Error() | OSError():
            return REFUSED
    return BUG


def _explain(error: Exception) -> int:
    code = exit_code(error)
    if os.environ.get("DYNFRSDB_TRACEBACK"):
        traceback.print_exception(error)
    if code == BUG:
        what = f"{type(error).__name__}: {error}"
        _say(f"this is a bug: {what}; run it again with DYNFRSDB_TRACEBACK=1 and report what it says")
    else:
        _say(str(error).replace("pass timeout=", "pass --timeout"))
    return code


def _usage(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    hint = f"; see '{context.command_path} --help'" if context is not None else ""
    return message[:1].lower() + message[1:] + hint


def _say(message: str) -> None:
    click.echo("dynfrsdb: " + " ".join(message.split()), err=True)
