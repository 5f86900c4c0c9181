"""docs/cli.md says what the commands say."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import click

from dynfrsdb.cli.app import FAMILIES, cli
from tests.cli.command import ROOT, environment


def test_the_document_is_made_from_the_commands() -> None:
    check = [sys.executable, str(ROOT / "tools" / "clidocs.py"), "--check"]

    done = subprocess.run(check, env=environment(), capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


def test_every_family_has_the_verbs_that_are_listed() -> None:
    found = {family: tuple(verb.name for verb in import_module(f"dynfrsdb.cli.{family}").VERBS) for family in FAMILIES}

    assert found == FAMILIES


def test_every_verb_and_option_explains_itself_in_a_line() -> None:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        verb = cli.get_command(context, name)
        assert verb is not None
        assert verb.help, name
        assert all(param.help for param in verb.params if isinstance(param, click.Option)), name
