"""Values with pages of their own: whatever is flipped in where they are and how long they are, a reader lives.

LMDB's binding touches all of a value before anybody has seen how long it is. A length that leads behind the end of the
file would be SIGBUS.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.reliability.workload import chance
from tests.reliability.wounds import DATA, PAGE, Flip, Wounded, offsets, read, wounded

FLIPS = 60


@pytest.fixture(scope="module")
def store() -> Iterator[Wounded]:
    """So many thresholds that a node takes several pages."""
    with wounded(n_thresholds=250) as made:
        yield made


def long_values(store: Wounded) -> list[tuple[int, int, int]]:
    """The places of each long value's length, of its page number, and of its first page."""
    found = []
    for number in store.pages["leaf"]:
        page = store.raw[DATA][number * PAGE : (number + 1) * PAGE]
        for at in offsets(page):
            _, _, flags, key_size = struct.unpack_from("<HHHH", page, at)
            if flags & 1:
                content = at + 8 + key_size
                there = int.from_bytes(page[content : content + 8], "little")
                found.append((number * PAGE + at, number * PAGE + content, there * PAGE))
    return found


def test_no_flip_in_where_and_how_long_a_value_is_kills_a_reader(store: Wounded) -> None:
    dice = chance("long values")
    values = long_values(store)
    assert len(values) > 20
    seen: Counter[str] = Counter()
    bad = []

    for i in range(FLIPS):
        length, pointer, header = dice.choice(values)
        at = dice.choice([length + dice.randrange(4), pointer + dice.randrange(8), header + dice.randrange(16)])
        flip: Flip = (DATA, at, 1 << dice.randrange(8))
        with store.changed(DATA, at, store.flipped(flip)):
            outcome = read(store, i)
        seen[outcome] += 1
        if outcome not in ("right", "error"):
            bad.append((flip, outcome))

    print(dict(seen))
    assert not bad
    assert seen["error"] > FLIPS // 2
