"""A reader that moves to a newer commit meets a record that a lost write left as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

import dynfrsdb
from dynfrsdb_storage import Store, layout
from tests.people import X, changer

ROOT = layout.node_key(0, 1)


def root_record(path: Path) -> bytes:
    with Store.open(path, writable=False) as store, store.snapshot() as snapshot:
        (payload,) = snapshot.get("nodes", [ROOT])
    assert payload is not None
    return payload


def put_root(path: Path, payload: bytes) -> None:
    with Store.open(path, writable=True) as store, store.write() as session:
        session.put("nodes", ROOT, payload)
        session.commit()


def test_a_reader_names_the_store_and_the_stale_record_and_answers_again_once_it_is_mended(path: Path) -> None:
    """Its checksum is good; what is above it says that it is of another commit. The reader is not left half way."""
    with dynfrsdb.open(path) as reader:
        reader.predict_proba(X)
        stale = root_record(path)
        with changer(path) as db:
            db.remove(range(40))
            expected = db.predict_proba(X)
        good = root_record(path)
        assert good != stale
        put_root(path, stale)

        with pytest.raises(dynfrsdb.CorruptStore, match=rf"tree 0, node 0b1 in '{path}' is not of the commit that"):
            reader.predict_proba(X)

        put_root(path, good)
        assert reader.predict_proba(X).tobytes() == expected.tobytes()
