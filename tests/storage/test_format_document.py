"""FORMAT.md and layout.py say the same, and the bytes it shows are the bytes we write."""

import re
from pathlib import Path

import numpy as np

from dynfrsdb_storage import Store, layout, records
from dynfrsdb_storage.locks import Holder
from tests.storage.people import new_store

DOCUMENT = (Path(__file__).parents[2] / "storage" / "FORMAT.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The cells of the first table behind a heading, without its head."""
    lines = DOCUMENT.split(f"\n{heading}\n", 1)[1].split("\n|", 1)[1].split("\n\n", 1)[0].splitlines()
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


def hex_behind(text: str) -> bytes:
    """The indented line of hexadecimal behind a sentence."""
    line = DOCUMENT.split(text, 1)[1].split("\n\n    ", 1)[1].split("\n", 1)[0]
    return bytes.fromhex(line)


def test_every_constant_is_in_the_document_with_its_value() -> None:
    listed = {name: int(value, 0) for name, value in table("## Constants")}
    files = {"READERS_FILE_BYTES"}  # follows from MAX_READERS, and is LMDB's

    constants = {
        name: value
        for name, value in vars(layout).items()
        if re.fullmatch("[A-Z][A-Z_0-9]+", name) and type(value) is int
    }

    assert {name: value for name, value in constants.items() if name not in files} == listed


def test_every_database_is_in_the_key_table_in_order() -> None:
    assert tuple(row[0] for row in table("## Keys")) == layout.DATABASES


def test_key_sizes_are_those_of_the_table() -> None:
    sizes = {row[0]: row[2] for row in table("## Keys")}

    assert int(sizes["samples"]) == len(layout.id_key(1))
    assert int(sizes["subjects"]) == len(layout.subject_key(bytes(16), 1))
    assert int(sizes["roots"]) == len(layout.roots_key(1))
    assert int(sizes["nodes"]) == len(layout.node_key(1, 1)) == layout.NODE_KEY_BYTES
    assert int(sizes["buckets"]) == len(layout.bucket_key(1, 1)) == layout.BUCKET_KEY_BYTES
    assert int(sizes["reserved"]) == len(layout.reserved_key(1))
    assert int(sizes["pending"]) == len(layout.pending_key(1, 1))
    assert int(sizes["ledger"]) == len(layout.sequence_key(1))
    assert int(sizes["holds"]) == len(layout.subject_key(bytes(16), 1))
    assert int(sizes["queue"]) == len(layout.queue_key(1, 1))
    assert int(sizes["suppression"]) == layout.SUBJECT_BYTES


def test_the_record_in_hex_is_the_record_we_write() -> None:
    shown = hex_behind("Sample 41 in slot 7 of the subject")

    assert records.pack("samples", layout.id_key(41), records.sample_payload(7, bytes(range(16)))) == shown


def test_the_row_in_hex_is_the_row_we_write(tmp_path: Path) -> None:
    from dynfrsdb_storage.rows import RowWriter

    writer = RowWriter(tmp_path / "rows.bin", n_features=2, create=True)
    writer.write(np.array([7]), np.array([41]), np.array([2]), np.array([[2.0, 1.0]]))
    writer.close()

    assert (tmp_path / "rows.bin").read_bytes()[7 * layout.slot_bytes(2) :] == hex_behind("Sample 41 with y = 2")


def test_row_offsets_are_those_of_the_table() -> None:
    offsets = {row[2]: row[0] for row in table("## Row slots")}

    assert [int(offsets[name]) for name in ("hash", "id", "y", "x")] == [0, 8, 16, layout.ROW_HEADER]


def test_every_file_and_counter_of_a_store_is_in_the_document(tmp_path: Path) -> None:
    path = new_store(tmp_path / "people.forest")
    files = {row[0] for row in table("## Files")}
    counters = {name.strip(" `") for row in table("### meta") if row[0] == "state" for name in row[1].split(",")}

    assert {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()} == files
    with Store.open(path, writable=False) as store, store.snapshot() as snapshot:
        assert set(snapshot.state) == counters
    assert all(f"`{field}`" in DOCUMENT for field in Holder._fields)
