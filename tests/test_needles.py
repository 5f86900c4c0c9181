"""Searching for needles: nothing is missed, whatever the bytes around it and wherever a piece ends."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import dynfrsdb
from dynfrsdb import needles
from dynfrsdb.needles import Needle, _Search


@pytest.mark.parametrize("piece", [64, 100, 4096])
def test_every_occurrence_is_found(tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held against `bytes.find`, with needles of all lengths, among zeros, repeated bytes and each other."""
    monkeypatch.setattr(needles, "AT_ONCE", piece)
    dice = random.Random(piece)
    wanted = [Needle(dice.randbytes(dice.randint(6, 60)), i, "bytes") for i in range(40)]
    wanted += [Needle(b"\0\0\0" + dice.randbytes(6) + b"\0\0", 40, "bytes"), Needle(b"\7" * 9, 41, "bytes")]
    parts = [dice.choice([dice.choice(wanted).data, bytes(dice.randint(0, 90)), b"\7" * 11, b"x"]) for _ in range(400)]
    data = b"".join(parts)
    (tmp_path / "hay").write_bytes(data)

    found = sorted((offset, needle.line) for offset, needle in _Search(wanted).file(tmp_path / "hay"))

    assert found == sorted((at, each.line) for each in wanted for at in every(data, each.data))
    assert len(found) > 200


def every(data: bytes, needle: bytes) -> list[int]:
    return [at for at in range(len(data)) if data.startswith(needle, at)]


def test_a_part_of_a_row_is_found_and_its_length_is_told(path: Path, tmp_path: Path) -> None:
    with dynfrsdb.open(path) as db:
        row = db.sample(3).x
        wide = tmp_path / "wide.forest"
        with dynfrsdb.create(wide, [[*row, *row[::-1]]] * 2, [0, 1], classes=[0, 1]) as other:
            (tmp_path / "needles").write_text(json.dumps({"x": [1.5, *row.tolist()[1:], *row[::-1].tolist()]}))
            report = other.scan(tmp_path / "needles")

    assert {(hit.what, hit.size, hit.place) for hit in report.hits} == {("part of a row", 28, "live")}
    assert [hit.belongs for hit in report.hits] == ["the row of sample 0", "the row of sample 1"]


def test_plain_parts_are_left_out_and_counted(path: Path, tmp_path: Path) -> None:
    (tmp_path / "needles").write_text('{"x": [0, 0, 0, 0], "id": 5, "subject": "ab", "hex": "0102030405060708"}')

    with dynfrsdb.open(path) as db:
        report = db.scan(tmp_path / "needles")

    assert report.too_plain == 5  # the row; three forms of the id; the subject's text
    assert report.needles == 2  # the subject's hash; the bytes
    assert (report.hits, bool(report)) == ((), True)
