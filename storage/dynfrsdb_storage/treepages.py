"""A page of LMDB's trees, as bytes.

    HEADER      number, padding, kind, lower, upper
    offsets     two bytes for each record, from behind the header up to `lower`; in the order of their keys
    ...         free
    records     from `upper` to the end, in any order

A record in a leaf is (size, flags, size of the key, key, value); a long value has pages of its own, and in its place
stands the number of the first. A record in a branch has the number of a page where a leaf's has size and flags.

Nothing here is believed: whatever leads out of the page raises Unsound.
"""

import struct
from itertools import islice
from mmap import mmap
from operator import lt
from typing import TYPE_CHECKING, TypeAlias

from dynfrsdb_storage.layout import PAGE_BYTES, PAGE_HEADER

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from dynfrsdb_storage import lazynumpy as np

Numbers: TypeAlias = "npt.NDArray[np.uint64]"
HEADER = struct.Struct("<QHHHH")
BRANCH, LEAF, LONG = 1, 2, 4
"""Kinds of pages; LONG is the first one of a long value."""
FEWEST = {BRANCH: 2, LEAF: 1}
"""Records that a page of each kind has at least."""
LONG_VALUE, SUBTREE = 1, 2
"""Flags of a record in a leaf."""
_NODE = struct.Struct("<HHHH")
_OFFSET = struct.Struct("<H")
_LAST_NODE = PAGE_BYTES - _NODE.size


class Unsound(Exception):
    """A page is not what it should be."""


def free_bytes(page: bytes, number: int) -> int:
    """How many bytes of a tree page are free, by its header, if that can be right."""
    if len(page) < PAGE_HEADER:
        raise Unsound(f"page {number} does not exist")
    own, _, flags, lower, upper = HEADER.unpack_from(page)
    if (
        own != number
        or flags not in FEWEST
        or lower % 2
        or not PAGE_HEADER + 2 * FEWEST[flags] <= lower <= upper <= PAGE_BYTES
    ):
        raise Unsound(f"page {number} has a bad header")
    free: int = upper - lower
    return free


def headers_of_many(pages: mmap, numbers: Numbers) -> Numbers:
    """The headers of these pages, two words each, out of a file's first pages."""
    return np.frombuffer(pages, "<u8").reshape(-1, PAGE_BYTES // 8)[numbers, : PAGE_HEADER // 8]


def free_bytes_of_many(headers: Numbers, numbers: Numbers) -> list[int]:
    """As `free_bytes`, for many pages at once, each with two words of header."""
    own, rest = headers.T
    kind, lower, upper = (rest >> 16) & 0xFFFF, (rest >> 32) & 0xFFFF, rest >> 48
    least = PAGE_HEADER + 2 * np.where(kind == BRANCH, FEWEST[BRANCH], FEWEST[LEAF])
    good = (own == numbers) & ((kind == BRANCH) | (kind == LEAF))
    good &= (lower % 2 == 0) & (least <= lower) & (lower <= upper) & (upper <= PAGE_BYTES)
    if not good.all():
        raise Unsound(f"page {numbers[good.argmin()]} has a bad header")
    free: list[int] = (upper - lower).tolist()
    return free


def search(page: bytes, number: int, key: bytes) -> tuple[int, int]:
    """Which record LMDB's search for `key` ends at, step by step as LMDB does it, and how many there are.

    In a branch that is the child to take. In a leaf, -1 stands before the first record.
    """
    count = (HEADER.unpack_from(page)[3] - PAGE_HEADER) // 2
    low, high = 1 if page[10] & BRANCH else 0, count - 1
    while low <= high:
        middle = (low + high) >> 1
        place = PAGE_HEADER + 2 * middle
        at = page[place] | page[place + 1] << 8
        if at > _LAST_NODE:
            raise Unsound(f"a record of page {number} is not in it")
        end = at + 8 + (page[at + 6] | page[at + 7] << 8)
        if end > PAGE_BYTES:
            raise Unsound(f"a record of page {number} is longer than the page")
        found = page[at + 8 : end]
        if found == key:
            return middle, count
        if found < key:
            low = middle + 1
        else:
            high = middle - 1
    return low - 1, count


def child_of(page: bytes, number: int, i: int) -> tuple[bytes, int]:
    """The key and the page number of a child of a branch."""
    (at,) = _OFFSET.unpack_from(page, PAGE_HEADER + 2 * i)
    if at > _LAST_NODE:
        raise Unsound(f"a record of page {number} is not in it")
    low, middle, high, key_size = _NODE.unpack_from(page, at)
    return page[at + 8 : at + 8 + key_size], low | middle << 16 | high << 32


def value_of(page: bytes, number: int, key: bytes) -> tuple[int, int] | None:
    """The first page and the size of the long value that LMDB finds for `key` in a leaf; None if it finds a short one,
    or nothing."""
    if not page[10] & LEAF:
        raise Unsound(f"page {number} is no leaf")
    value = place_of(page, number, key)
    if value is None:
        return None
    low, high, flags, _ = _NODE.unpack_from(page, value - len(key) - _NODE.size)
    size = low | high << 16
    if value + (8 if flags & LONG_VALUE else size) > PAGE_BYTES:
        raise Unsound(f"a record of page {number} is longer than the page")
    return (number_at(page, value), size) if flags & LONG_VALUE else None


def place_of(page: bytes, number: int, key: bytes) -> int | None:
    """Where the value begins that LMDB finds for `key` in a leaf; None if it finds nothing."""
    i, _ = search(page, number, key)
    if i < 0:
        return None
    begin = _OFFSET.unpack_from(page, PAGE_HEADER + 2 * i)[0] + _NODE.size
    value = begin + _NODE.unpack_from(page, begin - _NODE.size)[3]
    return int(value) if page[begin:value] == key else None


def number_at(page: bytes, at: int) -> int:
    """A page number inside a page."""
    return int.from_bytes(page[at : at + 8], "little")


def records_of(page: bytes, number: int) -> list[tuple[int, bytes, int, int]]:
    """The (offset of the value, key, size, flags) of each record of a leaf."""
    found, total, upper = [], 0, HEADER.unpack_from(page)[4]
    for at in offsets_of(page, number):
        low, high, flags, key_size = _NODE.unpack_from(page, at)
        begin, size = at + 8, low | high << 16
        value = begin + key_size
        end = value + (8 if flags & LONG_VALUE else size)
        if end > PAGE_BYTES:
            raise Unsound(f"a record of page {number} is longer than the page")
        total += (end - at + 1) & ~1
        found.append((value, page[begin:value], size, flags))
    if total != PAGE_BYTES - upper:
        raise Unsound(f"page {number} has lost records")
    return found


def children_of(page: bytes, number: int) -> tuple[list[bytes], list[int]]:
    """The keys of a branch, the first one empty, and the pages that they lead to; in the list of free pages keys are
    numbers, so whether they ascend is not asked here."""
    keys, children, total, upper = [], [], 0, HEADER.unpack_from(page)[4]
    unpack = _NODE.unpack_from
    for at in offsets_of(page, number):
        low, middle, high, key_size = unpack(page, at)
        end = at + 8 + key_size
        if end > PAGE_BYTES:
            raise Unsound(f"a record of page {number} is longer than the page")
        total += (end - at + 1) & ~1
        keys.append(page[at + 8 : end])
        children.append(low | middle << 16 | high << 32)
    if total != PAGE_BYTES - upper:
        raise Unsound(f"page {number} has lost records")
    keys[0] = b""
    return keys, children


def offsets_of(page: bytes, number: int) -> tuple[int, ...]:
    """Where the records of a page begin, in the order of their keys."""
    _, _, _, lower, upper = HEADER.unpack_from(page)
    offsets = struct.unpack_from(f"<{(lower - PAGE_HEADER) // 2}H", page, PAGE_HEADER)
    if min(offsets) < upper or max(offsets) > _LAST_NODE:
        raise Unsound(f"a record of page {number} is not in it")
    return offsets


def refuse_unordered(keys: list[bytes], number: int) -> None:
    """Raise unless keys ascend."""
    if not all(map(lt, keys, islice(keys, 1, None))):
        raise Unsound(f"the keys of page {number} do not ascend")
