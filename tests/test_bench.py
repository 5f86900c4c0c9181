"""The benchmark itself: it runs, it reports every target, and its partner writes what our commits write.

What it measures is not looked at here; a machine that runs tests has better things to do than to be fast.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra 'bench'")
from benchmark.bare import Watch
from benchmark.data import PLANS, load
from benchmark.figures import Figure
from benchmark.results import Results
from benchmark.targets import Targets
from benchmark.trial import Effort, Trial

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {
    *("build", "build-2", "size", "removal-open", "removal-auto", "pages-auto", "removal-lazy", "pages-lazy"),
    *("batch-100-floor", "batch-100", "batch-1%-floor", "batch-1%", "settled-lazy", "settled-auto", "query", "predict"),
    *("mixed-add", "mixed-remove", "mixed-query", "reader", "memory", "open", "start", "help", "info"),
}


def bench(*arguments: object) -> None:
    path = os.pathsep.join(str(ROOT / part) for part in (".", "engine", "storage", "migrations"))
    command = [sys.executable, ROOT / "tools" / "bench.py", "--sets", "nowhere", *arguments]
    subprocess.run([str(part) for part in command], env={**os.environ, "PYTHONPATH": path}, check=True)


def trial(directory: Path) -> Trial:
    return Trial(load("tiny", directory), directory, Effort.suited(0, quick=True))


def test_a_quick_run_reports_every_target_and_writes_the_document(tmp_path: Path) -> None:
    """One command measures everything, keeps it, and writes the document from it."""
    kept = tmp_path / "kept.json"

    bench("--quick", "--data", "tiny", "--json", kept, "--dir", tmp_path, "--docs", "--docs-dir", tmp_path / "docs")

    found: dict[str, Any] = json.loads(kept.read_text())["sets"]["tiny"]
    rows = {row["key"]: row for row in found["targets"]}
    assert set(rows) == TARGETS
    assert all(row["n"] >= 1 and row["ours"] > 0 for row in rows.values())
    assert found["figures"]["removal, auto: records that differ from bare LMDB at the end"]["most"] == 0
    text = (tmp_path / "docs" / "performance.md").read_text()
    pictures = {picture.name for picture in (tmp_path / "docs" / "pictures").iterdir()}
    assert all(f"| {row['what']} |" in text for row in rows.values())
    assert pictures == {"removals-per-second.svg", "queries-beside-a-writer.svg"}
    assert all(f"(pictures/{name})" in text for name in pictures)


@pytest.mark.parametrize("policy", ["auto", None])
def test_the_bare_partner_ends_with_the_records_of_the_store(tmp_path: Path, policy: str | None) -> None:
    """Replaying what was seen to change leaves the same records, in every database, as the commits themselves."""
    one = trial(tmp_path)
    with one.warm(policy) as db, Watch(db.path) as watch, one.bare() as bare:
        for ids in ([5], [17, 18, 19], one.ids(100, seed=9)):
            db.remove([id for id in ids if id in db])
            bare.apply(watch.change())
        db.settle()
        bare.apply(watch.change())

        assert bare.contents() == watch.contents()


def test_pages_are_counted_for_the_databases_that_a_commit_touched(tmp_path: Path) -> None:
    """A removal writes tree pages, its index, the ledger; it does not touch subjects or requests."""
    one = trial(tmp_path)
    with one.copy() as path, one.writer(path, None) as db, Watch(path) as watch:
        nothing = watch.change()
        db.remove([7])
        something = watch.change()

    touched = {name for name, pages in something.pages.items() if pages}
    assert not nothing.records
    assert not any(nothing.pages.values())
    assert {"buckets", "samples", "ledger", "meta", "pending", "roots"} <= touched
    assert not touched & {"subjects", "requests", "holds"}


def test_results_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    """What `--from` takes over is what `--json` kept."""
    kept = Results("2026-01-01", {"load": 0.1})
    one = trial(tmp_path)
    one.note("retrain", [1.0, 3.0])
    one.note("build", [0.5])
    kept.scale[88] = one.figures
    kept.write(tmp_path / "kept.json")

    found = Results.read(tmp_path / "kept.json")

    assert found == kept
    assert found.scale[88]["retrain"].median == 2.0


def test_a_target_is_met_on_the_right_side_of_its_limit() -> None:
    """Times must stay below their share of the retrain, rates must exceed their multiple of scikit-learn's."""
    figures = {
        "retrain": Figure.of([2.0]),
        "build": Figure.of([0.8, 0.9, 1.0]),
        "prediction": Figure.of([300.0], "rows/s"),
        "prediction: scikit-learn": Figure.of([100.0], "rows/s"),
        "open, cached": Figure.of([0.006]),
    }

    rows = {row.key: row for row in Targets("purchase", PLANS["purchase"].cpp, PLANS["purchase"].aims, figures).rows()}

    assert rows.keys() == {"build", "predict", "open"}
    assert (rows["build"].ratio, rows["build"].target, rows["build"].met) == (0.45, 0.45, True)
    assert (rows["predict"].ratio, rows["predict"].met) == (3.0, True)
    assert (rows["open"].ratio, rows["open"].ours, rows["open"].met) == (None, 0.006, False)
