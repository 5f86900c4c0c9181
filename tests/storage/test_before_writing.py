"""Whatever page a write transaction changes was looked at before."""

import random
from pathlib import Path

import pytest

from dynfrsdb_storage import Store, WriteSession, before_writing, layout
from dynfrsdb_storage.guard import Known
from tests.storage.people import new_store

TREES, DEEPEST = 40, 9


def keys_of(draw: random.Random, count: int) -> list[bytes]:
    """Keys of nodes anywhere in the forest."""
    return [layout.node_key(draw.randrange(TREES), draw.randrange(1, 1 << DEEPEST)) for _ in range(count)]


def change(session: WriteSession, draw: random.Random, puts: int, cuts: int) -> None:
    """Put nodes of all sizes and delete subtrees, anywhere."""
    session.put_many("nodes", [(key, bytes(draw.randrange(20, 1500))) for key in keys_of(draw, puts)])
    for key in keys_of(draw, cuts):
        session.delete_range("nodes", *layout.subtree_range(*layout.parse_node_key(key)))


def pages_of(session: WriteSession) -> set[int]:
    """All pages of `nodes`."""
    guard, known = session._generation._guard, session.snapshot._known
    tree = guard.tree(known, "nodes")
    level = [] if tree is None else [tree.root]
    found = set(level)
    for _ in range(0 if tree is None else tree.depth - 1):
        level = [child for number in level for child in guard._branch(known, number)[1]]
        found.update(level)
    return found


def looked_at(known: Known) -> set[int]:
    return {*known.branches, *known.leaves, *known.pages, *known.headers}


@pytest.mark.parametrize("few", [0, 20, 1000], ids=["whole branches", "both", "step by step"])
def test_what_a_commit_changes_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(before_writing, "_FEW", few)
    draw = random.Random(few)
    store = new_store(tmp_path / "people.forest")
    judged = 0
    for puts, cuts in [(4000, 0), (3, 0), (0, 1), (0, 4), (400, 2), (5, 40), (30, 30), (2500, 3), (0, 200), (50, 5)]:
        with Store.open(store, writable=True) as opened, opened.write() as session:
            before, known = pages_of(session), session.snapshot._known
            change(session, draw, puts, cuts)
            session.commit()

            changed = before - pages_of(session)
            assert changed <= looked_at(known)
            judged += len(changed)
    assert judged > 1000
