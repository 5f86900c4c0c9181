"""The checksum of records, CRC-32 as zlib has it, in kernels.

A checksum is what is left of the bytes, read as one long polynomial, when it is divided by another of degree 32. Tables
do that, sixteen bytes at a time. Processors that multiply polynomials do most of it in two instructions: sixteen bytes
that stand sixteen before the end are worth as much as their product with x^128, less multiples of the divisor, in
sixteen bytes. So all are folded into the last sixteen, and these go through the tables.

    |  a  |  b  |  c  |  rest   ->   |  b + a x^128  |  c  |  rest   ->   |  c + ...  |  rest   ->   tables
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from dynfrsdb_engine.kernel import inner
from dynfrsdb_engine.unaligned import get64

POLYNOMIAL = 0xEDB88320
"""The divisor without its highest term; lowest bit first, as everything here."""
ONES, BYTE, EIGHT, ONE = np.uint64(0xFFFFFFFF), np.uint64(0xFF), np.uint64(8), np.uint64(1)
BLOCK, ENOUGH = 16, 48
"""Bytes that are folded at once, and from which on it is worth while."""


def _tables() -> npt.NDArray[np.uint32]:
    """Line k: what a byte does to a checksum if k more bytes follow it."""
    table = np.arange(256, dtype=np.uint64)
    for _ in range(8):
        table = (table >> ONE) ^ (table & ONE) * np.uint64(POLYNOMIAL)
    lines = [table]
    for _ in range(15):
        lines.append((lines[-1] >> EIGHT) ^ table[lines[-1] & BYTE])
    return np.stack(lines).astype(np.uint32)


T = _tables()


def _power(n: int) -> int:
    """What is left of x^n, moved by one bit: a product of two such numbers is one bit short."""
    rest = 1 << 31
    for _ in range(n):
        rest = rest >> 1 ^ (POLYNOMIAL if rest & 1 else 0)
    return rest << 1


def _can_multiply() -> bool:
    """Whether kernels are compiled for a processor that multiplies polynomials."""
    if config.CPU_NAME or config.CPU_FEATURES is not None:
        return False
    try:
        return bool(binding.get_host_cpu_features().get("pclmul"))
    except RuntimeError:
        return False


MULTIPLIES = _can_multiply()
WORD, PAIR = ir.IntType(64), ir.VectorType(ir.IntType(64), 2)
FACTORS = ir.Constant(PAIR, [_power(128 + 32), _power(128 - 32)])
FIRST, SECOND = ir.Constant(ir.IntType(8), 0x00), ir.Constant(ir.IntType(8), 0x11)
"""Which halves are multiplied: both first ones, or both second ones."""


@intrinsic  # type: ignore[untyped-decorator]
def _fold(typing: Any, data: Any, at: Any, blocks: Any, crc: Any) -> Any:
    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(PAIR, [PAIR, PAIR, ir.IntType(8)]), "llvm.x86.pclmulqdq"
        )
        begin = builder.gep(make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        block = builder.bitcast(begin, PAIR.as_pointer())
        started = builder.insert_element(ir.Constant(PAIR, None), args[3], ir.IntType(32)(0))
        folded = cgutils.alloca_once_value(builder, builder.xor(builder.load(block, align=1), started))
        with cgutils.for_range_slice(builder, WORD(1), args[2], WORD(1)) as (i, _):
            so_far = builder.load(folded)
            ahead = [builder.call(product, [so_far, FACTORS, half]) for half in (FIRST, SECOND)]
            here = builder.load(builder.gep(block, [i]), align=1)
            builder.store(builder.xor(builder.xor(*ahead), here), folded)
        both = builder.load(folded)
        words = [builder.extract_element(both, ir.IntType(32)(i)) for i in range(2)]
        return context.make_tuple(builder, signature.return_type, words)

    return types.UniTuple(types.uint64, 2)(data, types.int64, types.int64, types.uint64), lower


@inner
def of_word(line: int, w: np.uint64) -> np.uint64:
    """What eight bytes do to a checksum if `line` more follow them."""
    high = T[line + 7, w & BYTE] ^ T[line + 6, (w >> EIGHT) & BYTE]
    high ^= T[line + 5, (w >> np.uint64(16)) & BYTE] ^ T[line + 4, (w >> np.uint64(24)) & BYTE]
    low = T[line + 3, (w >> np.uint64(32)) & BYTE] ^ T[line + 2, (w >> np.uint64(40)) & BYTE]
    low ^= T[line + 1, (w >> np.uint64(48)) & BYTE] ^ T[line, w >> np.uint64(56)]
    return np.uint64(high ^ low)


@inner
def by_tables(c: np.uint64, data: npt.NDArray[np.uint8], at: int, end: int) -> np.uint64:
    """What `data[at:end]` makes of a checksum whose bits are inverted."""
    while at + BLOCK <= end:
        c = of_word(8, np.uint64(get64(data, at)) ^ c) ^ of_word(0, np.uint64(get64(data, at + 8)))
        at += BLOCK
    if at + 8 <= end:
        c = of_word(0, np.uint64(get64(data, at)) ^ c)
        at += 8
    while at < end:
        c = np.uint64(T[0, (c ^ np.uint64(data[at])) & BYTE]) ^ (c >> EIGHT)
        at += 1
    return c


@inner
def by_folding(c: np.uint64, data: npt.NDArray[np.uint8], at: int, end: int) -> np.uint64:
    """The same, where the processor multiplies polynomials."""
    if end - at >= ENOUGH:
        blocks = (end - at) // BLOCK
        first, second = _fold(data, at, blocks, c)
        c = of_word(8, first) ^ of_word(0, second)
        at += blocks * BLOCK
    return by_tables(c, data, at, end)


best = by_folding if MULTIPLIES else by_tables


@inner
def crc32(crc: np.uint64, data: npt.NDArray[np.uint8], at: int, end: int) -> np.uint64:
    """The checksum `crc` after `data[at:end]`."""
    return best(crc ^ ONES, data, at, end) ^ ONES
