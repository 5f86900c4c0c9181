"""Whatever page a write transaction changes was looked at before."""

import faulthandler
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dynfrsdb_storage import Store, WriteSession, before_writing, layout
from dynfrsdb_storage.errors import CorruptStore
from dynfrsdb_storage.guard import _MANY, Guard, Known, Tree
from dynfrsdb_storage.treepages import HEADER, Unsound, free_bytes, free_bytes_of_many, offsets_of
from tests.storage.people import in_child, new_store

TREES, DEEPEST = 40, 9
PATIENCE = 60
"""Seconds after which what should have ended counts as hung."""


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


@pytest.fixture(params=[(0, 0), (20, 0), (1000, 0), (20, 16_384)], ids=["branches", "both", "steps", "everything"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The ways to look: at whole branches, step by step, and at everything that is not too large."""
    few, affordable = request.param
    monkeypatch.setattr(before_writing, "_FEW", few)
    monkeypatch.setattr(before_writing, "_AFFORDABLE", affordable)
    return int(few)


def test_what_a_commit_changes_was_looked_at(tmp_path: Path, few: int) -> None:
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


def wither(session: WriteSession, draw: random.Random, live: list[bytes]) -> None:
    """Delete runs of `live` nodes, here and there in few places, so that pages become nearly empty and are joined."""
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(8) * len(live) // 8 + draw.randrange(20)
        run = live[at : at + draw.choice([1, 1, 3, 9, 40])]
        for key in run:
            session.delete("nodes", key)
        del live[at : at + len(run)]


def test_what_one_process_has_looked_at_is_enough_for_its_next_commits(tmp_path: Path, few: int) -> None:
    """What was a neighbour's neighbour in one commit may be joined with in the next."""
    draw = random.Random(few)
    path = new_store(tmp_path / "people.forest")
    live = sorted(set(keys_of(draw, 6000)))
    with Store.open(path, writable=True) as store, store.write() as session:
        session.put_many("nodes", [(key, bytes(draw.choice([20, 60, 400, 1500]))) for key in live])
        session.commit()
        pages = len(pages_of(session))
    looked, ours, judged = set[int](), set[int](), 0
    with Store.open(path, writable=True) as store:
        while len(live) > 100:
            with store.write() as session:
                before, known = pages_of(session), session.snapshot._known
                wither(session, draw, live)
                session.commit()
                after = pages_of(session)
            looked |= looked_at(known)
            changed = before - after - ours  # pages that this process has made are sound
            assert changed <= looked
            judged += len(changed)
            ours |= after - before
    assert judged > pages * 9 // 10, "the others are there still"


def test_who_writes_again_and_again_looks_at_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = new_store(tmp_path / "people.forest")
    draw = random.Random(4)
    with Store.open(path, writable=True) as store, store.write() as session:
        change(session, draw, 4000, 0)
        session.commit()
    looked: list[Tree] = []
    look_at_all = Guard.look_at_all

    def noted(guard: Guard, known: Known, tree: Tree) -> None:
        looked.append(tree)
        look_at_all(guard, known, tree)

    monkeypatch.setattr(Guard, "look_at_all", noted)

    with Store.open(path, writable=True) as store:
        counts = []
        for _ in range(40):
            before = len(looked)
            with store.write() as session:
                session.put_many("nodes", [(key, b"again") for key in keys_of(draw, 20)])
                session.commit()
            counts.append(len(looked) - before)

    assert counts[0] < 3, "the counters and the like are one page each; nodes are many"
    assert sum(counts[1:]) == 1


def test_a_bad_page_stops_only_who_writes_there(tmp_path: Path) -> None:
    path = new_store(tmp_path / "people.forest")
    keys = sorted(set(keys_of(random.Random(5), 3000)))
    with Store.open(path, writable=True) as store, store.write() as session:
        session.put_many("nodes", [(key, bytes(600)) for key in keys])
        session.commit()
        guard, known = session._generation._guard, session.snapshot._known
        tree = guard.tree(known, "nodes")
        assert tree is not None
        number, _ = guard._way_down(known, tree, keys[-1], tree.depth - 1)
    with open(path / "gen-0001/data.mdb", "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), b"\xff", number * layout.PAGE_BYTES + 10)

    with Store.open(path, writable=True) as store:
        for first in range(0, 1500, 100):
            with store.write() as session:
                session.put_many("nodes", [(key, bytes(500)) for key in keys[first : first + 100]])
                session.commit()
        with store.write() as session:
            session.put("nodes", keys[-1], bytes(500))
            with pytest.raises(CorruptStore, match=f"page {number} has a bad header"):
                session.commit()


def test_a_file_that_lost_its_end_is_refused_and_not_mapped(tmp_path: Path) -> None:
    """Who reads a map behind the end of its file dies."""
    path = new_store(tmp_path / "people.forest")
    with Store.open(path, writable=True) as store:
        with store.write() as session:
            change(session, random.Random(1), 3000, 0)
            session.commit()
        with store.snapshot() as snapshot:
            guard, known = snapshot.generation._guard, snapshot._known
            tree = guard.tree(known, "nodes")
            assert tree is not None
            guard.look_at_all(known, tree)
            assert tree.leaves >= _MANY
            whole = Path(shutil.copy(path / "gen-0001/data.mdb", tmp_path))
    cut = Guard(whole)
    os.truncate(whole, max(known.headers) * layout.PAGE_BYTES)

    try:
        with pytest.raises(Unsound, match=f"page {max(known.headers)} does not exist"):
            cut.look_at_all(replace(known, headers={}), tree)
    finally:
        cut.close()


def judgement(free: Callable[[bytes, int], int], header: bytes, number: int) -> int | str:
    """The free bytes of a page, or what is wrong with it."""
    try:
        return free(header, number)
    except Unsound as error:
        return str(error)


def in_company(header: bytes, number: int) -> int:
    """As `free_bytes`, judged as one of many."""
    return free_bytes_of_many(np.frombuffer(header, "<u8").reshape(1, 2), np.array([number], np.uint64))[0]


def test_headers_are_judged_alike_one_by_one_and_together() -> None:
    draw = random.Random(6)
    judged = {True: 0, False: 0}
    for _ in range(3000):
        number = draw.randrange(2, 1 << 40)
        lower = 16 + 2 * draw.randrange(4)
        good = bytearray(HEADER.pack(number, 0, draw.choice([1, 2]), lower, draw.randrange(lower, 4097)))
        if draw.random() < 0.7:
            good[draw.randrange(16)] ^= 1 << draw.randrange(8)

        alone = judgement(free_bytes, bytes(good), number)
        together = judgement(in_company, bytes(good), number)

        assert alone == together
        judged[isinstance(alone, int)] += 1
    assert min(judged.values()) > 500


def test_keys_of_a_branch_that_lead_back_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who goes on from where a child ends would otherwise come by the same children for ever."""
    monkeypatch.setattr(before_writing, "_FEW", 1000)
    monkeypatch.setattr(before_writing, "_AFFORDABLE", 0)
    path = new_store(tmp_path / "people.forest")
    with Store.open(path, writable=True) as store:
        with store.write() as session:
            change(session, random.Random(1), 600, 0)
            session.commit()
        with store.snapshot() as snapshot:
            guard, known = snapshot.generation._guard, snapshot._known
            tree = guard.tree(known, "nodes")
            assert tree is not None
            assert tree.depth == 2
            number, page = tree.root, guard.page(tree.root, known.last_page)
    nodes = offsets_of(page, number)

    def look() -> None:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        refused = []
        for at in nodes[2:]:
            with open(path / "gen-0001/data.mdb", "r+b", buffering=0) as file:
                os.pwrite(file.fileno(), bytes(4), number * layout.PAGE_BYTES + at + 8)
            with Store.open(path, writable=True) as store, store.snapshot() as snapshot:
                try:
                    snapshot.look_before_writing({"nodes": ([], [(b"", b"\xff" * 12)])})
                except CorruptStore as error:
                    refused.append(str(error))
            with open(path / "gen-0001/data.mdb", "r+b", buffering=0) as file:
                os.pwrite(file.fileno(), page, number * layout.PAGE_BYTES)
        assert all(f"the keys of page {number} do not ascend" in words for words in refused)
        assert len(refused) > len(nodes) // 4

    assert len(nodes) > 10
    assert in_child(look) == 0
