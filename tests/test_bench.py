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

import click
import pytest

pytest.importorskip("matplotlib", reason="needs the extra 'bench'")
from benchmark import measure_cpp
from benchmark.bare import Watch
from benchmark.data import PLANS, load
from benchmark.document import write
from benchmark.figures import Figure
from benchmark.results import Results, SetResult
from benchmark.targets import Targets
from benchmark.trial import Effort, Trial

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {
    *(
        "build",
        "build-2",
        "size",
        "removal-row",
        "removal-open",
        "removal-auto",
        "pages-auto",
        "removal-lazy",
        "pages-lazy",
    ),
    *("batch-100-floor", "batch-100", "batch-1%-floor", "batch-1%", "settled-lazy", "settled-auto", "query", "predict"),
    *("mixed-add", "mixed-remove", "mixed-query", "reader", "memory", "open", "start", "help", "info"),
}
"""What a run without the C++ yields."""
CPP = """\
from sys import argv
flags = dict(zip(argv[1::2], argv[2::2]))
assert open("Datasets/tiny/train.txt").readline() == "600 8\\n"
assert open("Datasets/tiny/test.txt").readline().endswith(" 8\\n")
assert " ".join(argv[1:11]) == "-data tiny -T 8 -k 2 -d 6 -s 5"
print("Build time:\t7ms")
if "-unl_time" in flags:
    print(f"Unlearned:\t{15 * int(flags['-unl_time'])} samples within {flags['-unl_time']} ms")
else:
    spent = 3 * int(flags["-unl_cnt"]) // (1 if flags["-dly"] == "0" else 6)
    print(f"Unlearned:\t{spent} ms for {flags['-unl_cnt']} samples")
"""
"""Reads what the paper's program reads, prints what it prints, and takes no time."""


def run_bench(*arguments: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(ROOT / part) for part in (".", "engine", "storage", "migrations"))
    command = [sys.executable, ROOT / "tools" / "bench.py", "--sets", "nowhere", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([str(part) for part in command], env=environment, stderr=subprocess.PIPE, text=True)


def bench(*arguments: object) -> None:
    done = run_bench(*arguments)
    assert done.returncode == 0, done.stderr


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


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


def test_what_the_cpp_says_becomes_figures_of_the_same_run(tmp_path: Path) -> None:
    """Times are per removal where samples go one by one, whole for batches, and the memory is its own, not ours."""
    one = trial(tmp_path)
    one.program = program(tmp_path / "dynfrs", CPP)

    measure_cpp.cpp(one)

    means = {name.removeprefix("the C++: "): figure.mean for name, figure in one.figures.items()}
    assert means.pop("memory") < 100e6
    assert means == pytest.approx(
        {"build": 0.007, "removal, lazy": 1 / 15e3, "removal, eager": 0.003, "batch of 100": 0.05, "batch of 1%": 0.003}
    )
    assert one.figures["the C++: build"].n == 4 * one.effort.batches


def test_a_time_in_which_every_sample_went_is_no_figure(tmp_path: Path) -> None:
    """The C++ stops early when nothing is left, and does not say when."""
    one = trial(tmp_path)
    one.program = program(tmp_path / "dynfrs", CPP.replace("{15 * int(flags['-unl_time'])}", "600"))

    measure_cpp.cpp(one)

    assert "the C++: removal, lazy" not in one.figures
    assert {"the C++: build", "the C++: removal, eager", "the C++: memory"} <= one.figures.keys()


def test_nothing_is_said_of_the_cpp_unless_it_was_given_and_knows_the_set(tmp_path: Path) -> None:
    """It is made for two classes, and it is not ours to keep."""
    alone, other = trial(tmp_path), Trial(load("letter", tmp_path), tmp_path, Effort.suited(0, quick=True))
    other.program = tmp_path / "is-not-even-looked-for"

    measure_cpp.cpp(alone)
    measure_cpp.cpp(other)

    assert not alone.figures
    assert not other.figures


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('hello')", "printed no line with 'Build time:' and milliseconds; is it the program of the paper?"),
        ("print('Build time: 7ms', end='')", "printed no line with 'Unlearned:' as -unl_time prints it"),
        ("raise SystemExit('no such set')", "ended with status 1: no such set"),
        ("import os; os.abort()", "ended with status -6: it did not say why"),
        ("import time; time.sleep(60)", "did not end within 0.5 s"),
    ],
)
def test_a_program_that_is_not_the_cpp_is_named(tmp_path: Path, text: str, message: str) -> None:
    """Whatever else somebody names, they read which program it was, with which set, and what was wrong."""
    path = program(tmp_path / "other", text)
    data = load("tiny", tmp_path)

    with pytest.raises(click.ClickException) as caught:
        measure_cpp.Program(path, data, tmp_path, patience=0.5 if "sleep" in text else 30).run("-unl_time", 1)

    assert caught.value.message.startswith(f"--cpp: '{path}', given the set 'tiny', ")
    assert message in caught.value.message


def test_a_wrong_program_ends_a_run_before_anything_is_measured(tmp_path: Path) -> None:
    """Nobody waits for the measures of a set to learn that the last of them cannot be made."""
    path = program(tmp_path / "other", "")
    path.write_text("no program at all")

    done = run_bench("--data", "tiny", "--dir", tmp_path, "--json", tmp_path / "kept.json", "--cpp", path)

    assert done.returncode == 1
    assert f"Error: --cpp: '{path}', given the set 'tiny', could not be started: OSError" in done.stderr
    assert "Traceback" not in done.stderr
    assert "tiny: " not in done.stderr
    assert not (tmp_path / "kept.json").exists()


def test_the_cpp_of_this_run_goes_before_its_figures_from_elsewhere() -> None:
    """Batches and removals in a row are held against what was measured, the other targets stay what they are."""
    figures = {
        "retrain": Figure.of([1.0]),
        "batch of 100, lazy": Figure.of([0.03]),
        "batch of 100, lazy: bare LMDB": Figure.of([0.01]),
        "removal, before commit": Figure.of([0.0003]),
        "removal, before commit: in a row": Figure.of([0.0001, 0.0002]),
    }
    measured = {
        "the C++: batch of 100": Figure.of([0.009, 0.010, 0.014]),
        "the C++: removal, lazy": Figure.of([0.0001, 0.0001, 0.0004]),
    }

    def rows(found: dict[str, Figure]) -> dict[str, Any]:
        return {
            row.key: row for row in Targets("purchase", PLANS["purchase"].cpp, PLANS["purchase"].aims, found).rows()
        }

    without, beside = rows(figures), rows(figures | measured)

    assert beside.keys() - without.keys() == {"removal-cpp"}
    assert without["batch-100-floor"].partner_value == pytest.approx(0.015 + 0.026)
    assert beside["batch-100-floor"].partner_value == pytest.approx(0.015 + 0.011)
    assert (without["batch-100-floor"].met, beside["batch-100-floor"].met) == (True, False)
    assert beside["removal-cpp"].ratio == pytest.approx(0.75)
    assert (beside["removal-cpp"].target, beside["removal-cpp"].met) == (1.0, True)
    assert beside["removal-open"] == without["removal-open"]


@pytest.mark.parametrize("measured", [True, False])
def test_the_document_says_where_the_cpp_was_measured(tmp_path: Path, measured: bool) -> None:
    """Beside ours, with a section of its own, or elsewhere; read back from what was kept, it says the same."""
    one = trial(tmp_path)
    one.note("retrain", 0.5)
    one.note("store size", 6e6, "B")
    if measured:
        one.program = program(tmp_path / "dynfrs", CPP)
        measure_cpp.cpp(one)
    machine = dict.fromkeys(
        ("cpu", "cores", "filesystem", "system", "python", "numpy", "numba", "lmdb", "sklearn"), "x"
    )
    results = Results("2026-01-01", {**machine, "memory": 1, "load": 0.0, "pages counted for ten": 10})
    results.sets["purchase"] = SetResult(one.data.words, 600, one.figures)
    results.write(tmp_path / "kept.json")

    text = write(results, tmp_path / "docs").read_text()
    words = " ".join(text.split())

    assert write(Results.read(tmp_path / "kept.json"), tmp_path / "again").read_text() == text
    assert ("For `purchase` it ran in the same run as ours" in words) == measured
    assert ("Its figures were measured elsewhere" in words) != measured
    assert ("## Beside the C++" in text) == measured
    assert (
        "| purchase | one removal that leaves nothing for later |  | 3 ms | 1 |  | 0.006x | 0.0014x |" in text
    ) == measured
