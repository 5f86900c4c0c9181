"""Reading LMDB's file before LMDB does.

LMDB maps its file and believes it. If the file was cut short, the first touch of a missing page is SIGBUS, which
kills the process without a word; if it is empty, LMDB silently makes it a new, empty database. So before a file is
mapped we read its two meta pages ourselves and compare the file's length with what they say.

    page 0, page 1:  header 16 bytes | magic u32, version u32, address u64, map size u64,
                     free tree 48 bytes, main tree 48 bytes, last page u64, transaction u64

The newer meta page counts. One honest case makes the file shorter than its last page: LMDB does not write a page that
a transaction took at the end of the file and gave back before its commit. Then, and only then, we follow the trees by
hand and look whether every page that is referred to exists.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dynfrsdb_storage.errors import CorruptStore, UnsupportedFormat

_MAGIC = 0xBEEFC0DE
_VERSION = 1
META = struct.Struct("<IIQQ48s48sQQ")
TREE = struct.Struct("<IHHQQQQQ")
HEADER = struct.Struct("<QHHHH")
NODE = struct.Struct("<HHHH")
NO_PAGE = 0xFFFFFFFFFFFFFFFF
_PAGE_SIZES = [1 << power for power in range(9, 17)]
BRANCH, LEAF = 0x01, 0x02
BIG, SUBTREE = 0x01, 0x02


@dataclass(frozen=True)
class Meta:
    """What a meta page says of the file."""

    page_size: int
    last_page: int
    transaction: int
    map_size: int
    roots: tuple[int, int]


def check_length(path: Path, store: str) -> Meta:
    """Raise unless `path` is an LMDB file of the version we use, and as long as its newer meta page says."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise CorruptStore(f"'{store}' has lost its file '{path.name}'; restore the store from a backup") from error
    try:
        meta = newest(descriptor, store)
        size = os.fstat(descriptor).st_size
        if size < (meta.last_page + 1) * meta.page_size and _furthest(descriptor, meta) * meta.page_size >= size:
            raise _truncated(store)
        return meta
    except struct.error as error:
        raise CorruptStore(f"the data file of '{store}' is damaged; restore the store from a backup") from error
    finally:
        os.close(descriptor)


def newest(descriptor: int, store: str) -> Meta:
    """What the newer meta page of an open data.mdb says."""
    head = os.pread(descriptor, 4096, 0)
    if len(head) < 16 + META.size:
        raise _truncated(store)
    first = _parse(head[16:])
    if first is None:
        raise UnsupportedFormat(f"the data file of '{store}' is not an LMDB 0.9 file; restore the store from a backup")
    second = _parse(os.pread(descriptor, META.size, first.page_size + 16))
    if second is None:
        raise _truncated(store)
    return max(first, second, key=lambda meta: meta.transaction)


def _parse(raw: bytes) -> Meta | None:
    if len(raw) < META.size:
        return None
    magic, version, _, map_size, free, main, last_page, transaction = META.unpack_from(raw)
    if (magic, version) != (_MAGIC, _VERSION):
        return None
    page_size = TREE.unpack(free)[0]
    if page_size not in _PAGE_SIZES:
        return None
    return Meta(page_size, last_page, transaction, map_size, (TREE.unpack(free)[7], TREE.unpack(main)[7]))


def _truncated(store: str) -> CorruptStore:
    return CorruptStore(f"the data file of '{store}' is shorter than it says; restore the store from a backup")


def _furthest(descriptor: int, meta: Meta) -> int:
    """The last page that the trees refer to. Reads all their pages: only for a file that looks too short."""
    furthest, seen = 1, set[int]()
    waiting = [root for root in meta.roots if root != NO_PAGE]
    while waiting:
        number = waiting.pop()
        furthest = max(furthest, number)
        if number > meta.last_page:
            continue
        page = os.pread(descriptor, meta.page_size, number * meta.page_size)
        if number in seen or len(page) < meta.page_size:
            continue
        seen.add(number)
        for child, is_tree in _references(page):
            if is_tree or child > meta.last_page:
                waiting.append(child)
            else:
                header = os.pread(descriptor, HEADER.size, child * meta.page_size)
                pages = int.from_bytes(header[12:16], "little") if len(header) == HEADER.size else 1
                furthest = max(furthest, child + pages - 1)
    return furthest


def _references(page: bytes) -> Iterator[tuple[int, bool]]:
    """The (page number, whether it is a tree page) of all pages that one tree page refers to."""
    _, _, flags, lower, _ = HEADER.unpack_from(page)
    for i in range((lower - HEADER.size) // 2):
        at = int.from_bytes(page[16 + 2 * i : 18 + 2 * i], "little")
        low, high, node_flags, key_size = NODE.unpack_from(page, at)
        data = at + NODE.size + key_size
        if flags & BRANCH:
            yield low | high << 16 | node_flags << 32, True
        elif flags & LEAF and node_flags & BIG:
            yield int.from_bytes(page[data : data + 8], "little"), False
        elif flags & LEAF and node_flags & SUBTREE:
            root = TREE.unpack_from(page, data)[7]
            if root != NO_PAGE:
                yield root, True


def leaf_records(page: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The (offset, key, value) of records in a page that is, or once was, a leaf; what cannot be one is left out."""
    _, _, flags, lower, _ = HEADER.unpack_from(page)
    if flags & (BRANCH | LEAF) != LEAF or not HEADER.size < lower <= len(page):
        return
    for i in range((lower - HEADER.size) // 2):
        at = int.from_bytes(page[16 + 2 * i : 18 + 2 * i], "little")
        if HEADER.size <= at <= len(page) - NODE.size:
            low, high, node_flags, key_size = NODE.unpack_from(page, at)
            data = at + NODE.size + key_size
            if not node_flags & (BIG | SUBTREE) and data + (low | high << 16) <= len(page):
                yield at, page[data - key_size : data], page[data : data + (low | high << 16)]
