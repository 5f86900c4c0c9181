"""32-bit floats, which is what a store keeps, in Python's 64-bit ones."""

from __future__ import annotations

import struct

_FLOAT = struct.Struct("<f")
_BITS = struct.Struct("<i")


def rounded(value: float) -> float:
    """The nearest 32-bit float, ties to even."""
    result: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return result


def below(value: float) -> float:
    """The largest 32-bit float that is less than this one."""
    if value == 0.0:
        return -(2.0**-149)
    bits: int = _BITS.unpack(_FLOAT.pack(value))[0]
    result: float = _FLOAT.unpack(_BITS.pack(bits - 1 if value > 0 else bits + 1))[0]
    return result


def shortest(value: float) -> float:
    """The number with the fewest digits that rounds to this 32-bit float: 0.1 for what is really 0.10000000149."""
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if abs(short) <= _LARGEST and rounded(short) == value:
            return short
    return float(f"{value:.9g}")


_LARGEST = _FLOAT.unpack(b"\xff\xff\x7f\x7f")[0]
