"""Write docs/cli.md from the commands themselves.

    python tools/clidocs.py            write it
    python tools/clidocs.py --check    exit code 1 if it is not what would be written

Everything a command says of itself there is what `--help` says; only the words around it stand here.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from dynfrsdb.cli.app import EXIT_CODES, cli
from dynfrsdb.cli.shell import own

DOCUMENT = Path(__file__).parents[1] / "docs" / "cli.md"

_HEAD = """\
# The command line

<!-- Made by tools/clidocs.py from the commands. Change them, then run it. -->

    dynfrsdb VERB STORE ...

`dynfrsdb --help` lists the verbs, `dynfrsdb VERB --help` explains one. Verbs that look inside a store start without
the engine and answer at once; the first verb on a machine that needs the engine compiles its kernels, which takes a
minute or two, and says so.

## Output

Results go to stdout: as a table on a terminal, as JSON when piped or with `--json`, and as CSV with `--csv` where rows
are printed. Everything else (progress, notes, errors) goes to stderr. A reader of the output that goes away, as `head`
does, is no error.

## Exit codes

An error is one line on stderr: what, where, and what to do.

| code | means |
|---|---|
"""

_NODES = """
## Naming a node

A node is named by its tree, from 0 on, and the way down to it: one letter a step, `L` to the samples at or below the
threshold, `R` to the others, and `.` for the root. `LLR` is left, left, right. An error message names a node by its
number in binary (`0b1001`); that is understood as well.

## Completion

    eval "$(_DYNFRSDB_COMPLETE=bash_source dynfrsdb)"

in `.bashrc` completes verbs and options; `zsh_source` and `fish_source` are for those shells.
"""

_SHELL = """
Verbs are those of the command line that take a store, without STORE. Besides, there are:
"""

_SHELL_END = """
In a transaction, verbs that change a store and `predict` join it; verbs that look inside show the last commit. A change
that fails rolls the whole transaction back, and so does leaving. Lines may be piped in: the first that fails ends the
shell with its exit code. The history of a session is not written anywhere, because it may name people.
"""


def document() -> str:
    """The whole page."""
    parts = [_HEAD, *(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items()), _NODES, "\n## Verbs\n"]
    context = click.Context(cli, info_name="dynfrsdb")
    for name in cli.list_commands(context):
        verb = cli.get_command(context, name)
        assert verb is not None
        parts.extend(_explained(verb, context, "###"))
    return "".join(parts)


def _explained(verb: click.Command, above: click.Context, level: str) -> Iterator[str]:
    context = click.Context(verb, info_name=verb.name, parent=above)
    yield f"\n{level} {context.command_path.removeprefix('dynfrsdb ')}\n\n"
    if not isinstance(verb, click.Group):
        yield f"    {context.command_path} {' '.join(verb.collect_usage_pieces(context))}\n\n"
    yield inspect.cleandoc(verb.help or "").replace("\b\n", "") + "\n"
    yield from _options(verb, context)
    if isinstance(verb, click.Group):
        for name in verb.list_commands(context):
            below = verb.get_command(context, name)
            assert below is not None
            yield from _explained(below, context, level + "#")
    if verb.name == "shell":
        yield _SHELL
        yield from _own(context)
        yield _SHELL_END


def _options(verb: click.Command, context: click.Context) -> Iterator[str]:
    records = [param.get_help_record(context) for param in verb.params if isinstance(param, click.Option)]
    if any(records):
        yield "\n| option | |\n|---|---|\n"
    for record in records:
        if record is not None:
            yield f"| `{_cell(record[0])}` | {_cell(record[1])} |\n"


def _own(context: click.Context) -> Iterator[str]:
    yield "\n| in the shell | |\n|---|---|\n"
    for name, verb in own.commands.items():
        usage = " ".join((name, *verb.collect_usage_pieces(click.Context(verb, info_name=name))))
        yield f"| `{_cell(usage)}` | {_cell(inspect.cleandoc(verb.help or ''))} |\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write or check the document."""
    wanted = document()
    if "--check" not in sys.argv[1:]:
        DOCUMENT.write_text(wanted, encoding="utf-8")
    elif not DOCUMENT.exists() or DOCUMENT.read_text(encoding="utf-8") != wanted:
        sys.exit("docs/cli.md is not what the commands say; run 'python tools/clidocs.py'")


if __name__ == "__main__":
    main()
