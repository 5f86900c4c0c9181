"""The command line: `dynfrsdb VERB STORE ...`.

A verb parses its arguments, makes one call of the library, and prints what came back. What verbs have in common is in
one place each:

    app         the group of verbs; what an error or Ctrl-C becomes: one line, and an exit code
    options     arguments and options that several verbs take
    output      tables on a terminal, JSON everywhere else; progress bars
    interrupt   Ctrl-C around a commit
    opening     a store with its engine; says so when kernels have to be compiled
    evidence    receipts as files

    load        create
    look        info, ledger, readers
    people      sample, subject
    trees       tree, node, importances
    ask         predict
    change      add, remove, forget
    sync        sync
    holds       hold, requests, suppress
    prove       receipt, restore
    keep        check, verify, digest, settle, backup
    erase       erasures, vacuum, scan
    catalog     catalog
    migrate     migrate
    doctor      doctor
    shell       shell
    story       demo

    treepicture, page, charts     a tree as SVG, a store as HTML

A new family of verbs is a new module with a line in `app`; `tools/clidocs.py` puts it into docs/cli.md.

Importing numba takes longer than most verbs' work, and importing numpy longer than most looks inside. So no module here
imports the library at its top: verbs do when they run. Those that look inside go through `dynfrsdb.inside`, which needs
no engine, and neither they nor `--help`, `backup`, `erasures` and `scan` import numba; numpy comes in only where rows
have to be counted.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line with this process's arguments and end the process."""
    try:
        from dynfrsdb.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130  # before any verb began
    sys.exit(code)
