"""The golden stores of the current format: made once, checked in, opened by every version that comes after.

    python tools/golden.py            writes tests/golden/format-N.tar.xz, N being the format of this version
    python tools/golden.py --again    also if there is one already

The archive holds two small stores that have lived a little, and `expected.json`: what they answer, to the last bit. A
store of an older format cannot be made again, so its archive stays as it is for ever; `tests/test_golden_stores.py`
opens and migrates all of them. The archive of the current format may be made again until that format is released.

    people.forest    classes, made from a table with text, so with an encoding; subjects, holds, a waiting request,
                     suppression, tags, rows that came and went, a generation that a vacuum made
    values.forest    a regression made from arrays
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np

import dynfrsdb
from dynfrsdb.loading import create_from, prepare
from dynfrsdb.survey import Wishes
from dynfrsdb.tables import open_table
from dynfrsdb_storage import layout
from dynfrsdb_storage.locks import first_block, read_holder

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"
SHAPE: dict[str, Any] = {"n_estimators": 6, "q": 0.5, "min_samples_split": 2, "n_thresholds": 5, "seed": "golden"}
BUCKET = 8
"""Small, so that small stores have nodes, buckets and long lists."""
COLOURS = ("blue", "green", "red")


@click.command()
@click.option("--again", is_flag=True, help="Replace the archive of this format.")
def main(again: bool) -> None:
    """Write the golden stores of this version's format."""
    archive = GOLDEN / f"format-{layout.FORMAT}.tar.xz"
    if archive.exists() and not again:
        raise click.ClickException(f"'{archive}' is there; pass --again unless that format was released")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        expected = {"people.forest": _people(folder), "values.forest": _values(folder)}
        (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        for name in expected:  # without the host and the process that made it
            (folder / name / layout.LOCK_FILE).write_bytes(first_block(read_holder(folder / name).acknowledged))
        _pack(folder, ["expected.json", *expected], archive)
    click.echo(f"{archive}: {archive.stat().st_size:,} bytes")


def _people(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    table = folder / "people.csv"
    lines = [
        f"{number},person {number % 60},{rng.normal():.4f},{COLOURS[rng.integers(3)]},{rng.integers(5)}"
        for number in range(180)
    ]
    wanted = [f"{line},{'yes' if float(line.split(',')[2]) + rng.normal() > 0 else 'no'}" for line in lines]
    table.write_text("\n".join(["id,who,weight,colour,visits,bought", *wanted]) + "\n")
    path, wishes = folder / "people.forest", Wishes(target="bought", id="id", subject="who")
    create_from(path, prepare(path, open_table(table, None, None), wishes, bucket=BUCKET, **SHAPE))
    X = np.concatenate([rng.normal(size=(8, 1)), np.eye(3)[rng.integers(3, size=8)], rng.integers(5, size=(8, 1))], 1)
    with dynfrsdb.open(path, "w", settle=None) as db:
        db.suppress("skip")
        db.forget("person 7", request_id="ticket 1")
        db.vacuum()
        db.hold("person 8", reason="a dispute")
        db.forget_later("person 9", after="36500d")
        db.forget("person 10")
        db.add(X[:3], ["yes", "no", "yes"], ids=[900, 901, 902], subjects=["person 11", None, "person 12"])
        db.remove([1, 2, 3], request_id="ticket 2")
        assert db.info()["tags"]
        assert db.info()["nodes"]
    return _expected(path, X)


def _values(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 3))
    y = (X[:, 0] * 10 + X[:, 1]).round(2)
    path = folder / "values.forest"
    with dynfrsdb.create(path, X, y, task="regression", target_step=0.01, _bucket=BUCKET, **SHAPE) as db:
        db.remove(range(0, 150, 7))
    return _expected(path, rng.normal(size=(8, 3)))


def _expected(path: Path, X: Any) -> dict[str, Any]:
    asked = np.asarray(X, np.float32)
    with dynfrsdb.open(path) as db:
        answers = db.predict_proba(asked) if db.classes else db.predict(asked)
        assert db.check()
        assert db.verify()
        return {
            "samples": len(db),
            "digest": db.digest(),
            "ledger_head": db.ledger_head(),
            "holds": len(db.holds()),
            "waiting": len(db.waiting()),
            "asked": asked.tolist(),
            "answers": [value.hex() for value in answers.ravel().tolist()],
        }


def _pack(folder: Path, names: list[str], archive: Path) -> None:
    """Put files into an archive without what is of this machine: owners and times."""
    with tarfile.open(archive, "w:xz") as packed:
        for name in names:
            for file in sorted((folder / name).rglob("*")) if (folder / name).is_dir() else [folder / name]:
                entry = tarfile.TarInfo(str(file.relative_to(folder)))
                entry.mode = 0o700 if file.is_dir() else 0o600
                entry.type = tarfile.DIRTYPE if file.is_dir() else tarfile.REGTYPE
                content = b"" if file.is_dir() else file.read_bytes()
                entry.size = len(content)
                packed.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    main()
