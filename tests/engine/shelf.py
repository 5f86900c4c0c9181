"""A forest whose records live in a dict: the engine's own test bed, without a store.

`Shelf` is a `Source` and takes what a commit would write, so that changes go through records again and again, as they
do on disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.commit import Changed
from dynfrsdb_engine.forest import Forest, Samples
from dynfrsdb_engine.jobs import Job, grow_jobs
from dynfrsdb_engine.rows import Rows
from dynfrsdb_engine.sealing import Sealed
from dynfrsdb_engine.source import Records
from dynfrsdb_engine.spec import Spec, make_spec
from tests import naive

GOLDEN = np.uint64(naive.GOLDEN)
SEEDS, CHUNK = (1, 2), 3
"""Where checksums begin, and how many slots of a long list are in a record: anything will do."""


def spec_of(settings: naive.Settings, bucket: int) -> Spec:
    """The engine's spec of the twin's settings."""
    return make_spec(
        n_features=settings.n_features,
        p=settings.p,
        s=settings.s,
        n_classes=settings.n_classes,
        criterion=settings.criterion,
        max_depth=settings.max_depth,
        min_samples_split=settings.min_samples_split,
        bucket=bucket,
        k=settings.k,
        offset=settings.target_offset,
        step=settings.target_step,
        occupancy_key=naive.occupancy_key(settings.seed),
        tree_keys=np.array([naive.tree_key(settings.seed, t) for t in range(settings.n_trees)], np.uint64),
    )


class RowTable:
    """Rows in memory, in the layout of the rows file."""

    def __init__(self, d: int, capacity: int) -> None:
        self.d = d
        self.words = np.zeros((capacity, (24 + 4 * d + 7) // 8), np.uint64)
        self.multipliers = np.array(
            [naive.mix((i + 1) * naive.GOLDEN % naive.WORD) | 1 for i in range(2 * self.words.shape[1] + 2)], np.uint64
        )

    def put(self, slot: int, sample: naive.Sample) -> None:
        line = self.words[slot]
        line[1], line[2] = sample.id, np.int64(sample.y).view(np.uint64)
        line.view(np.float32)[6 : 6 + self.d] = sample.x
        words = [int(word) for word in line[1:].view(np.uint32)]
        m = [int(multiplier) for multiplier in self.multipliers]
        line[0] = naive.mix((m[0] + slot * m[1] + sum(w * m[i + 2] for i, w in enumerate(words))) % naive.WORD) or 1

    @property
    def rows(self) -> Rows:
        return Rows(self.words, self.words.view(np.float32), self.multipliers)


def payloads(sealed: Sealed) -> Iterator[tuple[bytes, bytes]]:
    """Keys and payloads of sealed records, without checksums; large ones have zeros behind them."""
    begins = [0, *sealed.ends.tolist()]
    for key, begin, end in zip(sealed.keys, begins, begins[1:], strict=False):
        yield key.tobytes(), sealed.values[begin + 4 : end].tobytes()


def place_of(key: bytes) -> tuple[int, int]:
    """The (tree, path) in the key of a record."""
    depth = key[9]
    return int.from_bytes(key[:2], "big"), 1 << depth | int.from_bytes(key[2:9], "big") >> 56 - depth


def _is_below(place: tuple[int, int], tops: Sequence[tuple[int, int]]) -> bool:
    """Whether a place is one of `tops`, or below one of them."""
    tree, path = place
    return any((tree, path >> up) in tops for up in range(path.bit_length()))


class Shelf:
    """Records by (tree, path), and long lists."""

    def __init__(self, trees: int) -> None:
        empty = bytes([1, 0, 0, 0, *([0] * 8), 1, 0])
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.buckets: dict[tuple[int, int], bytes] = {}
        self.lists: dict[tuple[int, int], npt.NDArray[np.uint32]] = {}
        self.roots = np.zeros(trees, [("stamp", "i8"), ("n", "i8"), ("tags", "i1")])
        self.loads = 0
        self._empty = empty

    def plant_empty(self, regression: bool) -> None:
        leaf = bytes([0xFF, 0xFF, 0, 0]) + (bytes(8) if regression else bytes(2))
        for tree in range(len(self.roots)):
            self.buckets[tree, 1] = self._empty + leaf

    def records(self, places: Sequence[tuple[int, int, bool]]) -> Sequence[bytes]:
        self.loads += len(places)
        return [(self.buckets if bucket else self.nodes)[tree, path] for tree, path, bucket in places]

    def below(self, tops: Sequence[tuple[int, int]]) -> Records:
        trees, paths, buckets, payloads = zip(*sorted(self._below(tops)), strict=True)
        return Records(trees, paths, buckets, payloads)

    def _below(self, tops: Sequence[tuple[int, int]]) -> list[tuple[int, int, bool, bytes]]:
        found = [(*place, False, data) for place, data in self.nodes.items() if _is_below(place, tops)]
        return found + [(*place, True, data) for place, data in self.buckets.items() if _is_below(place, tops)]

    def long_lists(self, places: Sequence[tuple[int, int]]) -> list[npt.NDArray[np.uint32]]:
        return [self.lists[place] for place in places]

    def commit(self, forest: Forest) -> None:
        for entry in forest.cleared():
            self._clear(int(entry["tree"]), int(entry["path"]))
        for edit in forest.edits().edits:
            place = (int(edit["tree"]), int(edit["path"]))
            kept = self.lists[place][self.lists[place] != edit["slot"]]
            assert edit["sign"] > 0 or kept.size == self.lists[place].size - 1
            self.lists[place] = np.sort(np.append(kept, edit["slot"]) if edit["sign"] > 0 else kept).astype(np.uint32)
        self.put(forest.changed(SEEDS, CHUNK))
        forest.mark_clean()
        self.roots[:] = forest.w.roots

    def put(self, changed: Changed) -> None:
        self.nodes.update((place_of(key), payload) for key, payload in payloads(changed.nodes))
        lists: dict[tuple[int, int], bytes] = {}
        for key, payload in payloads(changed.buckets):
            place = place_of(key)
            if place in self.nodes:
                lists[place] = lists.get(place, b"") + payload
            else:
                self.buckets[place] = payload
        self.lists.update((place, np.frombuffer(slots, "<u4").astype(np.uint32)) for place, slots in lists.items())

    def _clear(self, tree: int, path: int) -> None:
        for its_tree, its_path, bucket, _ in self._below([(tree, path)]):
            (self.buckets if bucket else self.nodes).pop((its_tree, its_path))
            self.lists.pop((its_tree, its_path), None)


class ShelvedForest:
    """A forest on a shelf, driven by samples of the twin."""

    def __init__(self, settings: naive.Settings, bucket: int, capacity: int = 4096) -> None:
        self.settings, self.spec = settings, spec_of(settings, bucket)
        self.table = RowTable(settings.n_features, capacity)
        self.shelf = Shelf(settings.n_trees)
        self.shelf.plant_empty(settings.n_classes == 0)
        self.live: dict[int, tuple[int, naive.Sample]] = {}
        self.free = list(range(capacity - 1, -1, -1))
        self.commits = 0
        self.reload()

    def reload(self) -> None:
        """Forget the working set."""
        self.forest = Forest(self.spec, self.shelf, self.table.rows, changeable=True)
        self.forest.w.roots[:] = self.shelf.roots

    def change(self, removed: Sequence[int], added: Sequence[naive.Sample], commit: bool = True) -> None:
        ops: list[tuple[int, naive.Sample, int]] = [(*self.live.pop(id), -1) for id in removed]
        for sample in added:
            slot = self.free.pop()
            self.table.put(slot, sample)
            self.live[sample.id] = (slot, sample)
            ops.append((slot, sample, 1))
        if not ops:
            return
        self.commits += 1
        self.forest.change(
            Samples(
                np.array([sample.id for _, sample, _ in ops], np.uint64),
                np.array([sample.x for _, sample, _ in ops], np.float32).reshape(len(ops), -1),
                np.array([sample.y for _, sample, _ in ops], np.int64),
                np.array([slot for slot, _, _ in ops], np.uint32),
                np.array([sign for _, _, sign in ops], np.int8),
            ),
            self.commits,
        )
        if commit:
            self.shelf.commit(self.forest)
        for slot, _, sign in ops:
            if sign < 0 and commit:
                self.table.words[slot] = 0
                self.free.append(slot)

    def settle(self) -> None:
        self.forest.grow_tags(self.forest.tags())
        self.shelf.commit(self.forest)

    def samples(self) -> list[naive.Sample]:
        return [sample for _, sample in self.live.values()]

    def tree_digests(self) -> list[bytes]:
        """Digests of the settled forest, from the records on the shelf; changes nothing."""
        reader = Forest(self.spec, self.shelf, self.table.rows, changeable=False)
        reader.w.roots[:] = self.shelf.roots
        digests = []
        for tree in range(self.settings.n_trees):
            reader.load_tree(tree)
            digests.append(hashlib.sha256(reader.tree_bytes(tree)).digest())
        return digests

    def fresh_digests(self) -> list[bytes]:
        """Digests of a forest grown by the engine from the live samples alone."""
        fresh = Forest(self.spec, self.shelf, self.table.rows, changeable=False)
        digests = []
        for tree in range(self.settings.n_trees):
            slots = sorted(
                slot for slot, sample in self.live.values() if tree in naive.occupancy(self.settings, sample.id)
            )
            job = Job(tree, 1, 0, np.array(slots, np.uint32))
            fresh.plant(tree, grow_jobs(self.spec, self.table.rows, [job]))
            digests.append(hashlib.sha256(fresh.tree_bytes(tree)).digest())
        return digests
