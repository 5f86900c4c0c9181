"""Checksums in kernels are those of zlib, on processors that multiply polynomials and by tables alone."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from dynfrsdb_engine.checksum import ENOUGH, ONES, by_tables, crc32
from tests.engine.doors import door

checksum, tables = door(crc32), door(by_tables)
SIZES = [*range(20), *range(ENOUGH - 1, ENOUGH + 18), 255, 700, 4096]


@pytest.mark.parametrize("seed", [0, 12345, 0xFFFFFFFF])
@pytest.mark.parametrize("begin", [0, 1, 5])
def test_the_checksum_is_that_of_zlib_from_any_byte_on(begin: int, seed: int) -> None:
    for size in SIZES:
        data = np.random.default_rng(size).bytes(begin + size + 3)
        wanted = zlib.crc32(data[begin : begin + size], seed)
        place = np.frombuffer(data, np.uint8), begin, begin + size

        assert checksum(np.uint64(seed), *place) == wanted
        assert tables(np.uint64(seed) ^ ONES, *place) ^ ONES == wanted
