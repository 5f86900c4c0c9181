"""Look at records one at a time.

What a place in a tree says, in plain Python. For audits and for people; never on a hot path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.jobs import Growth
from dynfrsdb_engine.records import (
    AT_LEFT_STAMP,
    AT_RIGHT_STAMP,
    AT_STAMP,
    BUCKET_HEADER,
    BUCKET_STAMP,
    LEFT_TAGS,
    LIST_HEADER,
    RIGHT_TAGS,
    SPLIT,
    SPLIT_HEADER,
    TAG,
)
from dynfrsdb_engine.spec import Spec


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


@dataclass(frozen=True)
class Place:
    """One record: its kind, size and stamps, and the bytes that are a function of its samples alone."""

    tree: int
    path: int
    bucket: bool
    split: bool
    tagged: bool
    n: int
    stamp: int
    left_stamp: int
    right_stamp: int
    left_tags: bool
    right_tags: bool
    slots: npt.NDArray[np.uint32]
    body: bytes

    @classmethod
    def read(cls, spec: Spec, tree: int, path: int, data: bytes, bucket: bool) -> Place:
        """Read a record; a long list must be given with `with_list`."""
        if bucket:
            n = int.from_bytes(data[2:4], "little")
            end = BUCKET_HEADER + 4 * n
            slots = np.frombuffer(data, "<u4", n, BUCKET_HEADER)
            tagged = data[0] == TAG
            stamp = _u64(data, BUCKET_STAMP)
            return cls(
                tree,
                path,
                True,
                False,
                tagged,
                n,
                stamp,
                0,
                0,
                False,
                False,
                slots,
                data[12:14] + data[end:].rstrip(b"\0"),
            )
        n, none = int.from_bytes(data[4:8], "little"), np.empty(0, np.uint32)
        split, tagged = data[0] == SPLIT, data[0] == TAG
        if not split:
            body = data[2:4] + data[LIST_HEADER:].rstrip(b"\0")
            return cls(tree, path, False, False, tagged, n, _u64(data, AT_STAMP), 0, 0, False, False, none, body)
        flags = bytes([data[1] & ~(LEFT_TAGS | RIGHT_TAGS)])
        return cls(
            tree,
            path,
            False,
            True,
            False,
            n,
            _u64(data, AT_STAMP),
            _u64(data, AT_LEFT_STAMP),
            _u64(data, AT_RIGHT_STAMP),
            bool(data[1] & LEFT_TAGS),
            bool(data[1] & RIGHT_TAGS),
            none,
            flags + data[2:4] + data[32:].rstrip(b"\0"),
        )

    def with_list(self, slots: npt.NDArray[np.uint32]) -> Place:
        """The same with its long list."""
        return replace(self, slots=slots)

    def difference(self, other: Place) -> str:
        """What is different from a record of the same samples, in words; empty if nothing."""
        if self.split != other.split or self.bucket != other.bucket:
            return "is a split where its samples make none" if self.split else "is no split where its samples make one"
        if self.n != other.n:
            return f"says it has {self.n} samples, but has {other.n}"
        if not np.array_equal(self.slots, other.slots):
            return "does not list the samples that belong to it"
        if self.body == other.body:
            return ""
        if not self.split:
            return "has other counts, or another small tree, than its samples make"
        mine, its = self.body[3:], other.body[3:]
        cut = SPLIT_HEADER - 32
        if mine[:cut] != its[:cut]:
            return "has another best split than its samples make"
        return "has other counts, ranges or constants than its samples make"


def places(spec: Spec, growth: Growth) -> Iterator[Place]:
    """The records of a growth, with their lists."""
    for record in growth.records:
        data = growth.data[record["at"] : record["at"] + record["size"]].tobytes()
        place = Place.read(spec, int(record["tree"]), int(record["path"]), data, bool(record["bucket"]))
        lists = growth.lists[record["list_at"] : record["list_at"] + record["list_size"]]
        yield place.with_list(lists) if record["list_size"] else place
