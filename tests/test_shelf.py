"""Where records lie: what a shelf brings of a store."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dynfrsdb.shelf import Shelf
from dynfrsdb_storage import Store, layout
from tests.storage.people import new_store

NODES = {(1, 0b1): b"root", (1, 0b10): b"split", (1, 0b101): b"leaf with a list", (2, 0b11): b"another tree"}
BUCKETS = {(1, 0b11): b"beside it", (1, 0b100): b"bucket", (2, 0b110): b"its bucket"}


def test_what_is_below_several_nodes_comes_nodes_first_and_without_lists(tmp_path: Path) -> None:
    with Store.open(new_store(tmp_path / "people.forest"), writable=True) as store, store.write() as session:
        session.put_many("nodes", [(layout.node_key(*place), data) for place, data in NODES.items()])
        session.put_many("buckets", [(layout.bucket_key(*place), data) for place, data in BUCKETS.items()])
        session.put("buckets", layout.bucket_key(1, 0b101, 17), b"a chunk of its list")
        session.commit()
        shelf = Shelf()
        shelf.snapshot = session.snapshot

        found = shelf.below([(1, 0b10), (2, 0b11)])

    places = list(zip(np.asarray(found.trees).tolist(), np.asarray(found.paths).tolist(), strict=True))
    assert places == [(1, 0b10), (1, 0b101), (2, 0b11), (1, 0b100), (2, 0b110)]
    assert np.asarray(found.buckets).tolist() == [False, False, False, True, True]
    assert found.payloads == [{**NODES, **BUCKETS}[place] for place in places]
