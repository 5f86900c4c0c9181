"""Hashes that are summed without the interpreter are those of hashlib."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest

from dynfrsdb_engine.keyed import sum_of_hashes


@pytest.mark.parametrize("size", [20, 24, 100, 124, 128, 132, 256, 260, 2416])
@pytest.mark.parametrize("rows", [0, 1, 2, 37])
def test_the_sum_over_rows_is_that_of_their_keyed_hashes(size: int, rows: int) -> None:
    rng, words = np.random.default_rng([size, rows]), -(-size // 8)
    key, lines = rng.bytes(32), [rng.bytes(size) for _ in range(rows)]
    wanted = sum(int.from_bytes(blake2b(line, key=key, digest_size=16).digest(), "little") for line in lines)
    slots = b"".join(rng.bytes(8) + line.ljust(8 * words, b"\0") for line in lines)

    found = sum_of_hashes(key, np.frombuffer(slots, np.uint64).reshape(rows, 1 + words), size)

    assert found == wanted % (1 << 128)
