"""Arrays for one value per threshold, of one candidate or of several, on the stack of the kernel that asks for them.

They are gone when it returns. An array of numpy's would cost an allocation, which takes as long as thirty hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dynfrsdb_engine.kernel import inlined

ROOM = 264
"""A candidate has at most 255 thresholds; rounded up to whole instructions, and one more."""


def _reserve(number: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def reserve(typing: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return cgutils.alloca_once(builder, context.get_data_type(number), size=ROOM)

        return types.CPointer(number)(), lower

    return reserve


_floats, _doubles = _reserve(types.float32), _reserve(types.float64)
_ints, _words = _reserve(types.int32), _reserve(types.uint64)

if TYPE_CHECKING:

    def local_floats() -> npt.NDArray[np.float32]:
        """In a kernel: room for `ROOM` numbers."""

    def local_doubles() -> npt.NDArray[np.float64]:
        """In a kernel: room for `ROOM` numbers."""

    def local_ints() -> npt.NDArray[np.int32]:
        """In a kernel: room for `ROOM` numbers."""

    def local_words() -> npt.NDArray[np.uint64]:
        """In a kernel: room for `ROOM` numbers."""
else:

    @inlined
    def local_floats():
        return numba.carray(_floats(), ROOM)

    @inlined
    def local_doubles():
        return numba.carray(_doubles(), ROOM)

    @inlined
    def local_ints():
        return numba.carray(_ints(), ROOM)

    @inlined
    def local_words():
        return numba.carray(_words(), ROOM)
