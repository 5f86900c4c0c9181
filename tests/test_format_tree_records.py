"""FORMAT.md and the engine say the same about tree records.

The tables are held against the constants, the bytes shown against a store made here. Then every record of stores of all
kinds is read by `Reader`, which knows only what the document says, and must come out even: no byte left over, every
number what the others say.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynfrsdb
from dynfrsdb import shelf
from dynfrsdb_engine import records
from dynfrsdb_storage import layout
from tests.vectors import HASH_VECTORS, KEY_VECTORS, OCCUPANCY_VECTORS, ORDER_VECTORS, THRESHOLD_VECTORS, X_VECTORS

DOCUMENT = (Path(__file__).parents[1] / "storage" / "FORMAT.md").read_text()
TREE_RECORDS = DOCUMENT.split("\n### Tree records\n", 1)[1].split("\n## ", 1)[0]


def tables(text: str) -> list[list[list[str]]]:
    """All tables of a text, as cells, without their heads."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[[cell.strip() for cell in line.strip("|\n").split("|")] for line in one.splitlines()[2:]] for one in found]


def fields(text: str, head: str, size: int) -> dict[str, int]:
    """Where the fields of a header of `size` bytes begin, by the first table behind a heading."""
    table = tables(text.split(f"\n#### {head}\n", 1)[1])[0]
    return {row[2]: int(row[0]) for row in table if row[0].isdigit() and int(row[0]) < size}


def shown(sentence: str) -> bytes:
    """The bytes of the indented lines behind a sentence; what stands behind five blanks is a remark."""
    block = DOCUMENT.split(sentence, 1)[1].split("\n\n", 2)[1]
    return bytes.fromhex("".join(line.strip().split("     ")[0] for line in block.splitlines()))


def payloads(db: dynfrsdb.Database, database: str) -> dict[bytes, bytes]:
    with db._store.snapshot() as snapshot:
        return dict(snapshot.scan(database))


class Reader:
    """Takes little-endian numbers off the front of a payload."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> list[Any]:
        values = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return list(values)

    def one(self, form: str) -> Any:
        return self.take(form)[0]

    def over(self) -> bool:
        """Whether nothing but padding is left."""
        return not any(self.data[self.at :]) and (self.at == len(self.data) or len(self.data) > layout.INLINE_LIMIT - 4)


def read_lines(reader: Reader, count: str, classes: int, lines: int) -> list[list[int]]:
    return [reader.take(count * classes if classes else f"{count}q") for _ in range(lines)]


def read_split(data: bytes, classes: int, features: int, thresholds: int) -> tuple[int, int, list[list[int]]]:
    """The (n, n left, sizes of each candidate's left side) of a split record."""
    reader = Reader(data)
    kind, flags, m, n, *_, n_left, _, feature, best, cut, zero, valued = reader.take("BBHIqqqIfHHBBH")
    assert (kind, zero) == (records.SPLIT, 0)
    count = "I" if n > 0xFFFF else "H"
    assert bool(flags & records.WIDE) == (n > 0xFFFF)
    assert classes == 0 or sum(reader.take(count * classes)) == n
    if not classes:
        reader.take("qqq" + count * 2)
    sides = []
    for c in range(m):
        own, form, lo, hi, at_lo, at_hi = reader.take("HBff" + count * 2)
        assert (own == feature) == (c == best)
        assert lo < hi
        assert (form == records.TWO_VALUED) == (at_lo + at_hi == n)
        lines = read_lines(reader, count, classes, 1 if form == records.TWO_VALUED else thresholds)
        sides.append(np.cumsum([sum(line) if classes else line[0] for line in lines]).tolist())
        assert form != records.TWO_VALUED or sides[-1] == [at_lo]
        assert c != best or sides[-1][cut] == n_left
    if flags & records.BITMAP:
        reader.take("B" * ((features + 7) // 8))
    else:
        reader.take("H" * reader.one("H"))
    reader.take("Hf" * valued)
    assert reader.over()
    return n, n_left, sides


def read_bucket(data: bytes, classes: int) -> list[int]:
    """The slots of a bucket."""
    reader = Reader(data)
    kind, zero, n, _, nodes = reader.take("BBHqH")
    slots = reader.take("I" * n)
    assert kind in (records.SPLIT, records.TAG)
    assert zero == 0
    in_leaves = 0
    for _ in range(nodes):
        if reader.one("H") != records.LEAF_MARK:
            reader.one("f")
            continue
        size = reader.one("H")
        pairs = reader.take("HH" * reader.one("H")) if classes else []
        assert not classes or sum(pairs[1::2]) == size
        if not classes:
            reader.one("q")
        in_leaves += size
    assert in_leaves == (n if kind == records.SPLIT else 0)
    assert reader.over()
    return slots


def read_list_head(data: bytes, classes: int) -> int:
    """The n of a leaf or a tag with a long list."""
    reader = Reader(data)
    kind, zero, m, n, _ = reader.take("BBHIq")
    assert zero == 0
    if kind == records.LEAF:
        pairs = reader.take("HI" * m) if classes else reader.take("q")
        assert not classes or sum(pairs[1::2]) == n
    assert reader.over()
    return int(n)


def sizes(db: dynfrsdb.Database, classes: int, features: int, thresholds: int) -> Iterator[tuple[int, int]]:
    """For each tree, the samples that its lists and buckets hold; reads every record on the way."""
    nodes, buckets = payloads(db, "nodes"), payloads(db, "buckets")
    held: dict[int, list[int]] = {}
    for key, data in buckets.items():
        in_list = key[:10] in nodes
        slots = np.frombuffer(data, "<u4").tolist() if in_list else read_bucket(data, classes)
        assert not in_list or (slots == sorted(slots) and key[10:] == slots[0].to_bytes(4, "big"))
        assert not in_list or len(slots) <= shelf.MOST
        held.setdefault(layout.parse_node_key(key)[0], []).extend(slots)
    for key, data in nodes.items():
        if data[0] == records.SPLIT:
            read_split(data, classes, features, thresholds)
        else:
            mine = [len(chunk) // 4 for place, chunk in buckets.items() if place[:10] == key]
            assert read_list_head(data, classes) == sum(mine)
    for tree, slots in held.items():
        yield tree, len(set(slots)) if len(set(slots)) == len(slots) else -1


def example(path: Path) -> dynfrsdb.Database:
    """The store of the document's example."""
    i = np.arange(12)
    X = np.stack([i * i % 13 / 2, i % 3 == 0, 0 * i, 0 * i + 7], axis=1).astype(np.float32)
    y = ((i > 5) != (i % 4 == 1)).astype(int)
    small: dict[str, Any] = {"n_estimators": 1, "q": 1.0, "max_features": 2, "n_thresholds": 2, "max_depth": 4}
    return dynfrsdb.create(path, X, y, seed=1, min_samples_split=2, _bucket=4, **small)


def test_every_constant_of_a_tree_record_is_in_the_document() -> None:
    listed = {row[0]: int(row[1], 0) for row in tables(TREE_RECORDS)[0]}

    found = {name: getattr(records, name, None) or getattr(shelf, name) for name in listed}
    others = {
        name
        for name, value in vars(records).items()
        if re.fullmatch("[A-Z_]+", name) and isinstance(value, int | np.integer)
    }

    assert listed == found
    assert others <= set(listed)


def test_header_offsets_are_those_of_the_tables() -> None:
    split = fields(TREE_RECORDS, "split", records.SPLIT_HEADER)
    listed = fields(TREE_RECORDS, "leaf and tag", records.LIST_HEADER)
    bucket = fields(TREE_RECORDS, "bucket", records.BUCKET_HEADER)

    assert split["stamp"] == listed["stamp"] == records.AT_STAMP
    assert (split["left stamp"], split["right stamp"]) == (records.AT_LEFT_STAMP, records.AT_RIGHT_STAMP)
    assert bucket["stamp"] == records.BUCKET_STAMP
    assert split == {
        **{"kind": 0, "flags": 1, "m": 2, "n": 4, "stamp": 8, "left stamp": 16, "right stamp": 24, "n left": 32},
        **{"threshold": 36, "feature": 40, "best": 42, "cut": 44, "": 45, "valued": 46},
    }


def test_the_records_in_hex_are_the_records_we_write(tmp_path: Path) -> None:
    with example(tmp_path / "example.forest") as db:
        nodes, buckets = payloads(db, "nodes"), payloads(db, "buckets")

    assert nodes[layout.node_key(0, 0b1)] == shown("The root, in `nodes`")
    assert buckets[layout.bucket_key(0, 0b111)] == shown("And the bucket at path 0b111")


@pytest.mark.parametrize("task", ["binary", "many classes", "regression"])
def test_every_record_can_be_read_by_the_document_alone(tmp_path: Path, task: str) -> None:
    random = np.random.default_rng(3)
    X = np.round(random.normal(size=(3000, 11)), 1)
    X[:, 3] = X[:, 3] > 0
    X[:, 4] = 0.0
    X[:2900, 5:8] = 1.5
    X[:2900, 8:] = 0.0
    classes = {"binary": 2, "many classes": 9, "regression": 0}[task]
    y = np.where(X[:, 3] > 0, X[:, 0] * 3, X[:, 1] > 1.0)
    y = np.abs(y).astype(int) % classes if classes else y
    kind = "classification" if classes else "regression"
    shape: dict[str, Any] = {"n_estimators": 4, "q": 0.5, "max_depth": 6, "n_thresholds": 7, "task": kind, "seed": 5}

    with dynfrsdb.create(tmp_path / "people.forest", X, y, _bucket=20, **shape) as db:
        fresh = dict(sizes(db, classes, 11, 7))
    with dynfrsdb.open(tmp_path / "people.forest", "w", settle=None) as db:
        db.remove(range(0, 400, 3))
        tagged = dict(sizes(db, classes, 11, 7))
        kinds = {data[0] for data in payloads(db, "nodes").values()}

    assert kinds == {records.SPLIT, records.LEAF, records.TAG}
    assert sum(fresh.values()) == 2 * 3000
    assert sum(tagged.values()) == 2 * (3000 - 134)


def test_the_vectors_in_the_document_are_those_of_the_twin() -> None:
    text = DOCUMENT.split("\n## Algorithm 1\n", 1)[1].split("\n## ", 1)[0]
    known = {f"0x{key:016X}" for _, _, key in KEY_VECTORS} | {f"0x{vector[4]:016X}" for vector in HASH_VECTORS}
    known |= {" ".join(map(str, vector[3])) for vector in [*OCCUPANCY_VECTORS, *ORDER_VECTORS]}
    known |= {" ".join(f"0x{bits:08X}" for bits in vector[5]) for vector in THRESHOLD_VECTORS}
    known |= {str(value) for _, value in X_VECTORS}

    listed = [row[2] for row in tables(text)[0]]

    assert len(listed) == 15
    assert set(listed) <= known
