"""Inside a bucket thresholds are scored unsorted, as they are drawn: the split is the one that the definition gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dynfrsdb_engine.score import INFINITE
from dynfrsdb_engine.search import challenge
from tests import naive
from tests.engine.doors import door

challenged = door(challenge)
KEY, PATH, SEED = 77, 13, bytes(16)
KINDS: dict[str, Callable[[np.random.Generator, int], npt.NDArray[Any]]] = {
    "any values": lambda chance, n: chance.normal(size=n),
    "few values": lambda chance, n: chance.integers(-1, 3, n).astype(float),
    "two values": lambda chance, n: np.where(chance.random(n) < 0.3, -2.5, 0.0),
    "two values at first": lambda chance, n: np.where(np.arange(n) < n // 2, 1.0, chance.integers(1, 4, n)),
    "huge values": lambda chance, n: chance.normal(size=n) * 3e37,
    "tiny values": lambda chance, n: chance.integers(-3, 4, n) * 1e-45,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("s", [1, 5, 8, 30, 31, 32, 33, 255])
def test_a_feature_inside_a_bucket_has_the_split_of_the_definition(s: int, kind: str) -> None:
    """The same score, to the last bit; of equal ones the lowest threshold; and nothing if somebody else scored less."""
    chance, settings = np.random.default_rng(s), naive.Settings(SEED, 1, 1, 1, s, 9, 2, "gini", 1, 2)
    feature_hash = np.uint64(naive.step(naive.step(KEY, PATH), 0))
    for n in (2, 3, 10, 64, 128, 128, 100):
        values = KINDS[kind](chance, n).astype(np.float32) + np.float32(0.0)
        values[:2] = values.min(), values.max() + np.float32(1.0)
        targets = chance.integers(0, 2, n)
        samples = naive.as_samples(values[:, None].tolist(), targets.tolist(), range(n))
        found = naive.candidates(settings, KEY, PATH, samples)
        _, wanted = naive.best_split(settings, samples, found)
        left, right = (naive.tally(settings, side) for side in naive.divide(samples, 0, wanted))
        score = np.float64(naive.score("gini", left, right)).view(np.uint64)

        weights, totals = (targets << 16 | 1).astype(np.int32), np.bincount(targets, minlength=2)
        least, greatest = values.min(), values.max()
        given = feature_hash, least, greatest, values, weights, totals, s

        its, cut = challenged(*given, INFINITE)
        beaten, _ = challenged(*given, score)

        assert np.uint64(its) == score
        assert np.float32(cut).tobytes() == wanted.tobytes()
        assert np.uint64(beaten) >= score
