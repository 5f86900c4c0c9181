"""Pass a named tuple of arrays to kernels, and from kernel to kernel, as one address.

numba hands a named tuple over field by field, and an array as seven numbers or more: a working set is over a hundred
arguments at every call, slow to compile and slow to run. So kernels give each other a reference, which is an address,
and load what they read through it. A tuple inside a tuple is reached through the same address.

    Python           WORKING = Layout(an example)      held = WORKING.hold(w)      mark_clean(held.address)
    a kernel         w = working_at(address)           where working_at = WORKING.reader()
    inside one       w = refer(a small tuple)          that Python handed over as it is

A reference must not outlive the call that made it. What is read through it counts no owners: the arrays belong to the
caller, who holds them until the kernel returns. Behind an address nothing is checked any more, so `hold` is where the
types of arrays are held against the example's."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model

T = TypeVar("T", bound=tuple[Any, ...])
OWNERS = (0, 0)
"""Of an array that a kernel borrows: none."""
WORD = 1 << 64


class Reference(types.Type):  # type: ignore[misc]
    """The address of a named tuple."""

    def __init__(self, target: types.BaseNamedTuple) -> None:
        self.target = target
        super().__init__(name=f"Reference({target})")

    @property
    def mangling_args(self) -> tuple[str, tuple[()]]:
        """A short name for symbols; the full one lists every field of every array."""
        return f"Reference{zlib.crc32(self.name.encode()):08x}", ()

    def field(self, name: str) -> tuple[int, types.Type]:
        """Where a field is, and its type."""
        index = self.target.fields.index(name)
        return index, self.target.types[index]


register_model(Reference)(models.OpaqueModel)


class Address(int, Generic[T]):
    """Where a kernel finds a tuple of type T; for type checkers, it is a plain number."""


class Held(Generic[T]):
    """A tuple and the words that kernels find at its address. Both live as long as this."""

    __slots__ = ("_words", "address", "value")

    def __init__(self, value: T, words: list[int]) -> None:
        self.value = value
        self._words = np.array(words, np.uint64)
        self.address: Address[T] = self._words.ctypes.data  # type: ignore[assignment]


class Layout(Generic[T]):
    """How the tuples of one type look in memory: as numba lays them out, taken from an example."""

    def __init__(self, example: T) -> None:
        self._type = numba.typeof(example)
        self._like = example

    def hold(self, value: T) -> Held[T]:
        """The tuple as kernels take it; TypeError if its arrays are not like the example's."""
        words: list[int] = []
        _write(value, self._like, words)
        return Held(value, words)

    def reader(self) -> Callable[[Address[T]], T]:
        """For kernels: the tuple at an address."""
        target = Reference(self._type)

        @intrinsic  # type: ignore[untyped-decorator]
        def read(typing: Any, address: Any) -> Any:
            def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return builder.inttoptr(args[0], cgutils.voidptr_t)

            return target(types.intp), lower

        found: Callable[[Address[T]], T] = read
        return found


def _write(value: tuple[Any, ...], like: tuple[Any, ...], words: list[int]) -> None:
    for item, known in zip(value, like, strict=True):
        if isinstance(known, np.ndarray):
            if item.dtype != known.dtype or item.ndim != known.ndim or not item.flags.c_contiguous:
                raise TypeError(f"an array of {item.dtype}, {item.ndim}-d, stands where kernels expect {known.dtype}")
            words += OWNERS
            words += (item.size, item.itemsize, item.ctypes.data, *item.shape, *item.strides)
        elif isinstance(known, tuple):
            _write(item, known, words)
        elif isinstance(known, float):
            words.append(int.from_bytes(struct.pack("<d", item), "little"))
        else:
            words.append(int(item) % WORD)


if TYPE_CHECKING:

    def refer(value: T) -> T:
        """In a kernel: the same tuple by its address; a reference stays what it is."""
else:

    @intrinsic
    def refer(typing, value):
        if isinstance(value, Reference):
            return value(value), lambda context, builder, signature, args: args[0]

        def store(context, builder, signature, args):
            return builder.bitcast(cgutils.alloca_once_value(builder, args[0]), cgutils.voidptr_t)

        return Reference(value)(value), store


@infer_getattr
class _Fields(AttributeTemplate):  # type: ignore[misc]
    key = Reference

    def generic_resolve(self, reference: Reference, name: str) -> types.Type | None:
        if name not in reference.target.fields:
            return None
        _, kind = reference.field(name)
        return Reference(kind) if isinstance(kind, types.BaseNamedTuple) else kind


@lower_getattr_generic(Reference)  # type: ignore[untyped-decorator]
def _read_field(context: Any, builder: Any, reference: Reference, address: Any, name: str) -> Any:
    index, kind = reference.field(name)
    struct_type = context.get_value_type(reference.target)
    place = builder.gep(
        builder.bitcast(address, struct_type.as_pointer()), [cgutils.int32_t(0), cgutils.int32_t(index)], inbounds=True
    )
    if isinstance(kind, types.BaseNamedTuple):
        return builder.bitcast(place, cgutils.voidptr_t)
    value = builder.load(place)
    if isinstance(kind, types.Array):
        owner = context.get_value_type(types.MemInfoPointer(types.voidptr))
        return builder.insert_value(value, owner(None), 0)
    return value
