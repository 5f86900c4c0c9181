"""The floor of what durability costs: the same records, written by a plain LMDB transaction.

What a commit wrote is found out by looking, not by asking it: a copy of the store makes the same change, and its LMDB
file is compared before and after. A record that differs was put, one that is missing was deleted. The partner starts
from the same file and repeats exactly that, in one synced py-lmdb transaction with our options. It knows no forest, no
index, no ledger, and does not erase rows; a removal that takes 1.0x of it would cost nothing but its commit.

    store ---copy---> watched: remove 17   -> nodes 3|0b101 put, buckets 3|0b1011 deleted, ...
      |`-----copy---> measured: remove 17        in turns with
       `-----copy---> bare: the same puts and deletes

LMDB never changes a page in place, so the pages of a database that were not there before a commit are the ones that
the commit wrote for it: that is how pages are told apart by database. (strace sees one page more now and then, which
LMDB took and gave back within the commit.)
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lmdb

from dynfrsdb_storage import Store, layout, pages

TREES = ("nodes", "buckets")
"""The databases that hold the forest."""
Contents = dict[str, dict[bytes, bytes]]


class Change(NamedTuple):
    """What one commit did to LMDB: records by database, and how many pages it wrote for each."""

    puts: dict[str, list[tuple[bytes, bytes]]]
    deletes: dict[str, list[bytes]]
    pages: dict[str, int]

    @property
    def records(self) -> int:
        """Records put and deleted."""
        return sum(map(len, self.puts.values())) + sum(map(len, self.deletes.values()))

    @property
    def tree_records(self) -> int:
        """Records of the forest put and deleted."""
        return sum(len(part.get(name, ())) for part in (self.puts, self.deletes) for name in TREES)

    @property
    def tree_pages(self) -> int:
        """Pages written for the forest."""
        return sum(self.pages[name] for name in TREES)


class Watch:
    """Looks at a store's LMDB file between commits; a context manager."""

    def __init__(self, path: Path) -> None:
        self._store = Store.open(path, writable=False)
        self._before, self._pages_before = self.contents(), self._pages()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def change(self) -> Change:
        """What was committed since the last look."""
        before, numbers_before = self._before, self._pages_before
        after, numbers = self._before, self._pages_before = self.contents(), self._pages()
        puts = {name: [pair for pair in after[name].items() if before[name].get(pair[0]) != pair[1]] for name in after}
        deletes = {name: [key for key in before[name] if key not in after[name]] for name in after}
        written = {name: len(numbers[name] - numbers_before.get(name, set())) for name in numbers}
        return Change(puts, deletes, written)

    def contents(self) -> Contents:
        """All records of the newest commit."""
        generation = self._store.current()
        with generation.env.begin() as txn:
            return {name: _records(txn, database) for name, database in generation.databases.items()}

    def _pages(self) -> dict[str, set[int]]:
        """The numbers of all pages of each database, and of what is LMDB's own."""
        file = self._store.current().directory / layout.DATA_FILE
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            meta = pages.newest(descriptor, str(self._store.path))
            free, main = meta.roots
            roots = {key.decode(): root for key, root in _databases(_page(descriptor, main, meta.page_size))}
            named = {**roots, "free list": free}
            found = {name: set(_walk(descriptor, root, meta)) for name, root in named.items()}
            return {**found, "root and meta page": {main, -meta.transaction}}
        finally:
            os.close(descriptor)


def _page(descriptor: int, number: int, size: int) -> bytes:
    return os.pread(descriptor, size, number * size)


def _nodes(page: bytes) -> Iterator[tuple[int, int, int]]:
    """The (first field, flags, offset of the key) of each entry of a page; in a branch all of it names a child."""
    lower = pages.HEADER.unpack_from(page)[3]
    for (at,) in struct.iter_unpack("<H", page[layout.PAGE_HEADER : lower]):
        low, high, flags, _ = pages.NODE.unpack_from(page, at)
        yield low | high << 16, flags, at


def _databases(main: bytes) -> Iterator[tuple[bytes, int]]:
    """The name and the root of each database; the page that lists them is one leaf."""
    for _, flags, at in _nodes(main):
        if flags & pages.SUBTREE:
            key = at + pages.NODE.size
            value = key + pages.NODE.unpack_from(main, at)[3]
            yield main[key:value], pages.TREE.unpack_from(main, value)[7]


def _walk(descriptor: int, root: int, meta: pages.Meta) -> Iterator[int]:
    """All pages of one tree, with those that hold long values."""
    waiting = [] if root == pages.NO_PAGE else [root]
    while waiting:
        yield (number := waiting.pop())
        page = _page(descriptor, number, meta.page_size)
        if pages.HEADER.unpack_from(page)[2] & pages.BRANCH:
            waiting += [low | flags << 32 for low, flags, _ in _nodes(page)]
            continue
        for _, flags, at in _nodes(page):
            if flags & pages.BIG:
                value = at + pages.NODE.size + pages.NODE.unpack_from(page, at)[3]
                first = int.from_bytes(page[value : value + 8], "little")
                count = int.from_bytes(_page(descriptor, first, meta.page_size)[12:16], "little")
                yield from range(first, first + count)


class Bare:
    """Plain LMDB on a copy of a store's file; a context manager."""

    def __init__(self, store: Path, directory: Path) -> None:
        directory.mkdir()
        (data,) = store.glob(f"gen-*/{layout.DATA_FILE}")
        file = Path(shutil.copy(data, directory))
        with file.open("r+b") as handle:
            os.posix_fallocate(handle.fileno(), 0, file.stat().st_size + layout.KEEP_ALLOCATED)
            os.fsync(handle.fileno())
        self._env = lmdb.open(
            str(directory),
            map_size=0,
            create=False,
            mode=0o700,
            max_readers=layout.MAX_READERS,
            max_dbs=len(layout.DATABASES) + 3,
            max_spare_txns=1,
            lib_version=0,
        )
        self._databases = {name: self._env.open_db(name.encode(), create=False) for name in layout.DATABASES}

    def __enter__(self) -> Bare:
        return self

    def __exit__(self, *_: object) -> None:
        self._env.close()

    def apply(self, change: Change) -> None:
        """Make the same change durable."""
        with self._env.begin(write=True) as txn:
            for name, keys in change.deletes.items():
                for key in keys:
                    txn.delete(key, db=self._databases[name])
            for name, pairs in change.puts.items():
                if pairs:
                    with txn.cursor(db=self._databases[name]) as cursor:
                        cursor.putmulti(pairs)

    def contents(self) -> Contents:
        """All records."""
        with self._env.begin() as txn:
            return {name: _records(txn, database) for name, database in self._databases.items()}


def differing(one: Contents, other: Contents) -> int:
    """In how many records two forests differ."""
    return sum(len(one[name].items() ^ other[name].items()) for name in TREES)


def _records(txn: lmdb.Transaction, database: Any) -> dict[bytes, bytes]:
    return {bytes(key): bytes(value) for key, value in txn.cursor(db=database)}
