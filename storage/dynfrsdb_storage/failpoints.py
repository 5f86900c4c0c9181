"""Named places where a test may stop the world.

A promise such as "nothing acknowledged is ever lost" is about the instants between two system calls. Each of those
instants has a name here, and the code passes through `failpoint(name)` when it gets there:

    reserve         commit                                             erase
    |               |                                                  |
    reservation-grow   rows-sync-before, rows-sync-after               erase-middle
                       map-grow (only when the map is full)
                       commit-before, commit-after, acknowledge-after

    build-fill, build-sync, build-rename: while a store is created
    current-switch: a new generation is complete, CURRENT still names the old one

    vacuum-begin, vacuum-rows, vacuum-built, vacuum-checked, (current-switch,) vacuum-switched: in this order
    migrate-alone: a step to another format is about to change records where they are; a step into a new generation
      goes through those of a vacuum but for vacuum-rows
    retire-zeroed, retire-unlinked: after each file of a generation that is being retired

Outside tests no hook is set and a failpoint costs one comparison. A test sets a hook that kills the process (or
raises) when the name it waits for comes by.
"""

from collections.abc import Callable

POINTS = (
    "reservation-grow",
    "rows-sync-before",
    "rows-sync-after",
    "map-grow",
    "commit-before",
    "commit-after",
    "acknowledge-after",
    "erase-middle",
    "build-fill",
    "build-sync",
    "build-rename",
    "current-switch",
    "vacuum-begin",
    "vacuum-rows",
    "vacuum-built",
    "vacuum-checked",
    "vacuum-switched",
    "migrate-alone",
    "retire-zeroed",
    "retire-unlinked",
)

hook: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """Tell the hook, if a test has set one, that the code is at `name`."""
    if hook is not None:
        hook(name)
