"""What each byte of data.mdb is: held against what LMDB itself says is there."""

import random
from pathlib import Path

import pytest

from dynfrsdb_storage import Store, layout
from dynfrsdb_storage.extents import Extents, leftovers, scrub
from tests.storage.people import add, new_store, problems, remove

LARGE = 5000


@pytest.fixture
def worn(tmp_path: Path) -> Path:
    """A store after many changes, with values of all sizes: small ones, odd ones, and some with pages of their own."""
    path, dice = new_store(tmp_path / "people.forest", 200), random.Random(1)
    with Store.open(path, writable=True) as store:
        for round in range(30):
            add(store, range(1000 + 20 * round, 1020 + 20 * round))
            remove(store, range(1000 + 20 * round, 1000 + 20 * round + dice.randint(1, 19)))
            with store.write() as session:
                for path_bits in range(1, 40):
                    size = dice.choice([1, 30, 31, 900, LARGE, 3 * LARGE])
                    session.put("nodes", layout.node_key(round % 5, path_bits), dice.randbytes(size))
                session.delete_range("nodes", *layout.tree_range((round + 1) % 5))
                session.commit()
    return path


def data_file(path: Path) -> Path:
    return path / "gen-0001" / layout.DATA_FILE


def test_live_records_are_all_there_with_their_sizes_and_nothing_else_is(worn: Path) -> None:
    extents = Extents(data_file(worn))
    with Store.open(worn, writable=False) as store, store.snapshot() as snapshot:
        stored = {(name, key): value for name in layout.DATABASES for key, value in snapshot.scan_raw(name)}

    content, found = data_file(worn).read_bytes(), {}
    for extent in extents._all:
        if extent.database and content[extent.start : extent.end].endswith(
            stored.get((extent.database, extent.key), b"!")
        ):
            found[extent.database, extent.key] = extent.end - extent.start
    large = {place for place, value in stored.items() if len(value) > layout.INLINE_LIMIT}

    assert len(large) > 20
    assert found.keys() == stored.keys()
    for (name, key), value in stored.items():
        header = layout.PAGE_HEADER if (name, key) in large else 8 + len(key)
        assert found[name, key] == header + len(value)
    owned = extents.size - sum(end - start for start, end in extents.gaps())
    assert owned == sum(extent.end - extent.start for extent in extents._all), "extents do not overlap"


def test_scrubbing_takes_nothing_but_leftovers(worn: Path) -> None:
    with Store.open(worn, writable=False) as store, store.snapshot() as snapshot:
        before = [list(snapshot.scan_raw(name)) for name in layout.DATABASES]
    assert sum(end - start for start, end in leftovers(data_file(worn))) > 10 * layout.PAGE_BYTES

    assert scrub(data_file(worn)) > 0

    assert leftovers(data_file(worn)) == []
    assert scrub(data_file(worn)) == 0
    (worn / "LOCK").write_bytes(b"")  # it holds a checksum of whole pages
    with Store.open(worn, writable=True) as store:
        with store.snapshot() as snapshot:
            assert [list(snapshot.scan_raw(name)) for name in layout.DATABASES] == before
        assert problems(store) == []
        add(store, range(5000, 5100))
        remove(store, range(5000, 5100))
        assert problems(store) == []


def test_one_byte_in_a_free_place_is_a_leftover(worn: Path) -> None:
    scrub(data_file(worn))
    gaps = list(Extents(data_file(worn)).gaps())
    dice = random.Random(2)
    for start, end in dice.sample(gaps, 20):
        at = dice.randrange(start, end)
        with open(data_file(worn), "r+b") as file:
            file.seek(at)
            file.write(b"\1")

            file.flush()
            assert leftovers(data_file(worn)) == [(start, end)]

            file.seek(at)
            file.write(b"\0")


def test_every_byte_is_of_one_record_or_of_none(worn: Path) -> None:
    extents = Extents(data_file(worn))
    gaps = list(extents.gaps())

    for start, end in random.Random(3).sample(gaps, 50):
        assert extents.at(start) is extents.at(end - 1) is None
        before, behind = extents.at(start - 1), extents.at(end)
        assert before is not None
        assert before.end == start
        assert end == extents.size or (behind is not None and behind.start == end)
