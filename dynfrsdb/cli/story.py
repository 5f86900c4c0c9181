"""`demo`: the two-minute story."""

from __future__ import annotations

from pathlib import Path

import click

from dynfrsdb.cli.interrupt import Interrupted
from dynfrsdb.cli.opening import compile_ahead
from dynfrsdb.cli.output import progress


@click.command()
@click.option(
    "--path", type=click.Path(path_type=Path), help="Where to make the store; by default in a temporary directory."
)
@click.option("--keep", is_flag=True, help="Leave the store there, to look around in.")
@click.pass_context
def demo(ctx: click.Context, path: Path | None, keep: bool) -> None:
    """Build a forest, forget a person while others read, and prove it.

    Exit code 1 if any claim it makes does not hold.
    """
    from dynfrsdb.demo import tell

    try:
        compile_ahead()
        held = tell(path, keep, progress)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; the readers were stopped" + ("" if keep else " and the demo's store was removed")
        ) from None
    ctx.exit(0 if held else 1)


VERBS = (demo,)
