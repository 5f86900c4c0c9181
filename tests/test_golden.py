"""Golden digests: small forests whose every bit was written down once.

They notice what no comparison inside one process can: a CPU, a numba or a numpy that computes another bit than the
machine on which they were made. The digests were made by the naive twin, not by the engine; its own golden trees are in
test_naive.py. A digest changes only together with the number of the algorithm; then `python -m tests.test_golden`
writes them anew.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import dynfrsdb
from dynfrsdb.settings import Settings
from tests import nasty
from tests.survivors import Nursery

GOLDEN = Path(__file__).parent / "golden" / "digests.json"
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"n_estimators": 5, "q": 0.4, "n_thresholds": 10, "min_samples_split": 2},
    "one deep tree": {"n_estimators": 1, "q": 1.0, "n_thresholds": 1, "min_samples_split": 2, "max_depth": 56},
    "all in all": {
        "n_estimators": 3,
        "q": 1.0,
        "n_thresholds": 30,
        "min_samples_split": 10,
        "max_features": "all",
        "max_depth": 4,
    },
}
KINDS: dict[str, tuple[nasty.Task, dict[str, Any]]] = {
    "binary gini": ("binary", {"classes": [0, 1], "criterion": "gini"}),
    "binary entropy": ("binary", {"classes": [0, 1], "criterion": "entropy"}),
    "multiclass gini": ("multiclass", {"classes": list(range(5)), "criterion": "gini"}),
    "multiclass entropy": ("multiclass", {"classes": list(range(5)), "criterion": "entropy"}),
    "regression": ("regression", {"task": "regression", "target_offset": 1e6, "target_step": 2.0**-20}),
}


def values(task: nasty.Task, arguments: dict[str, Any], y: nasty.Ints) -> list[Any]:
    """Targets as a caller has them."""
    if task != "regression":
        return list(y.tolist())
    return [arguments["target_offset"] + arguments["target_step"] * v for v in y.tolist()]


def create(folder: Path, kind: str, shape: str) -> tuple[dynfrsdb.Database, nasty.Data, list[Any]]:
    """A store of the first 50 samples, all the samples, and their targets."""
    task, arguments = KINDS[kind]
    data = nasty.make(11, task, n=60, d=6)
    y = values(task, arguments, data.y)
    db = dynfrsdb.create(
        folder / f"{kind} {shape}", data.rows[:50], y[:50], seed="golden", **arguments, **SHAPES[shape]
    )
    return db, data, y


def means_of(db: dynfrsdb.Database, rows: nasty.Floats) -> list[float]:
    """Probabilities or values, one after the other."""
    return list((db.predict_proba(rows) if db.classes else db.predict(rows)).ravel().tolist())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_golden_forests_keep_their_digests_and_answers(store_dir: Path, kind: str, shape: str) -> None:
    golden = json.loads(GOLDEN.read_text())[kind][shape]
    db, data, y = create(store_dir, kind, shape)

    with db:
        db.add(data.rows[50:], y[50:], ids=range(1000, 1010))
        db.remove(range(10, 20))

        assert db.digest() == golden["digest"]
        assert [value.hex() for value in means_of(db, data.rows[:4])] == golden["answers"]


def by_the_twin(settings: Settings, data: nasty.Data) -> dict[str, Any]:
    """Digest and answers of the survivors, from the definition."""
    samples = data.samples()
    live = [*samples[:10], *samples[20:50], *(sample._replace(id=sample.id + 950) for sample in samples[50:])]
    nursery = Nursery(settings)
    forest = nursery.twin(live)
    means = [forest.predict_proba(row) if settings.classes else [forest.predict_value(row)] for row in data.rows[:4]]
    return {"digest": nursery.twin_digest(live), "answers": [value.hex() for row in means for value in row]}


def write_golden() -> None:
    """Write the file anew."""
    made: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    with tempfile.TemporaryDirectory() as place:
        for kind in KINDS:
            for shape in SHAPES:
                db, data, _ = create(Path(place), kind, shape)
                with db:
                    made[kind][shape] = by_the_twin(db._settings, data)
    GOLDEN.write_text(json.dumps(made, indent=2) + "\n")


if __name__ == "__main__":
    write_golden()
