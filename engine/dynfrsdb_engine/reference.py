"""Pass a named tuple of arrays from kernel to kernel as one address.

numba hands a named tuple over field by field, and an array as seven numbers or more: a working set is over a hundred
arguments at every call, slow to compile and slow to run. A kernel that Python calls takes its tuples as they are and
turns each into a reference once, with `refer`; everything it calls gets an address and loads what it reads. A tuple
inside a tuple is reached through the same address.

A reference must not outlive the call that made it. What is read through it counts no owners: the arrays belong to the
caller, who holds them until the kernel returns."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, TypeVar

from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model

T = TypeVar("T")


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
    struct = builder.bitcast(address, context.get_value_type(reference.target).as_pointer())
    place = builder.gep(struct, [cgutils.int32_t(0), cgutils.int32_t(index)], inbounds=True)
    if isinstance(kind, types.BaseNamedTuple):
        return builder.bitcast(place, cgutils.voidptr_t)
    value = builder.load(place)
    if isinstance(kind, types.Array):
        owner = context.get_value_type(types.MemInfoPointer(types.voidptr))
        return builder.insert_value(value, owner(None), 0)
    return value
