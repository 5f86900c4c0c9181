"""The command line: `dynfrsdb VERB STORE ...`.

A verb parses its arguments, makes one call of the library, and prints what came back. What verbs have in common is in
one place each:

    app         the group of verbs; what an error or Ctrl-C becomes: one line, and an exit code
    options     arguments and options that several verbs take
    output      tables on a terminal, JSON everywhere else; progress bars
    interrupt   Ctrl-C around a commit
    opening     a store with its engine; says so when kernels have to be compiled
    peek        a store without its engine
    evidence    receipts as files

    load        create
    look        info, ledger, sample
    ask         predict
    change      add, remove, forget
    holds       hold, requests, suppress
    prove       receipt, restore
    keep        check, verify, digest, settle, backup
    erase       erasures, vacuum, scan
    doctor      doctor
    story       demo

A new family of verbs is a new module with a line in `app`.

Importing numba takes longer than most verbs' work. So no module here imports the engine at its top: verbs that need it
import it when they run, and `--help`, `info`, `ledger`, `sample`, `backup`, `erasures` and
`scan` never do.
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
