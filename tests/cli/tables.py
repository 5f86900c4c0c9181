"""Files of made-up people, written the ways people write files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from pathlib import Path
from typing import Any

Row = dict[str, Any]
COLUMNS = ("id", "name", "age", "job", "smoker", "sick")
SETTINGS = ("--target", "sick", "--id", "id", "--subject", "name", "--n-estimators", 7, "--q", 0.5, "--seed", 3)


def people(count: int = 200, first: int = 0) -> list[Row]:
    """People with ids that are not consecutive, two rows each; one job in twenty is somebody's own."""
    dice = random.Random(first)
    return [
        {
            "id": 10 * number + 3,
            "name": f"person {number // 2}",
            "age": dice.randint(180, 900) / 10,
            "job": dice.choice(("cook", "clerk, senior", "nurse")) if number % 20 else f"owner of {number}",
            "smoker": dice.random() < 0.5,
            "sick": dice.choice(("no", "yes")),
        }
        for number in range(first, first + count)
    ]


def write_csv(path: Path, rows: list[Row], delimiter: str = ",") -> Path:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows({k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()} for row in rows)
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_jsonl(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_text(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
