"""Arrays for one value per threshold, of one candidate or of several, on the stack of the kernel that asks for them.

They are gone when it returns. An array of numpy's would cost an allocation, which takes as long as thirty hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

ROOM = 264
"""A candidate has at most 255 thresholds; rounded up to whole instructions, and one more."""

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

    def _reserve(number: Any) -> Any:
        @intrinsic
        def reserve(typing):
            array = types.Array(number, 1, "C")

            def lower(context, builder, signature, args):
                data = cgutils.alloca_once(builder, context.get_data_type(number), size=ROOM)
                size, item = (context.get_constant(types.intp, value) for value in (ROOM, number.bitwidth // 8))
                local = make_array(array)(context, builder)
                populate_array(local, data=data, shape=[size], strides=[item], itemsize=item, meminfo=None)
                return local._getvalue()

            return array(), lower

        return reserve

    local_floats, local_doubles = _reserve(types.float32), _reserve(types.float64)
    local_ints, local_words = _reserve(types.int32), _reserve(types.uint64)
