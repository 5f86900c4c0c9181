"""Keys sort as they should, and a row's hash is the one of the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynfrsdb_storage import layout

MASK = (1 << 64) - 1
paths = st.integers(0, layout.MAX_DEPTH).flatmap(lambda depth: st.integers(1 << depth, (2 << depth) - 1))
trees = st.integers(0, 65_535)


def preorder(path: int, depth: int) -> list[int]:
    """All paths of a full tree in pre-order, by the definition."""
    if path.bit_length() > depth:
        return [path]
    return [path, *preorder(2 * path, depth), *preorder(2 * path + 1, depth)]


def is_below(path: int, ancestor: int) -> bool:
    """Whether `path` is `ancestor` or below it."""
    while path > ancestor:
        path >>= 1
    return path == ancestor


def plain_mix(z: int) -> int:
    """The mix of algorithm 1 on Python integers."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def plain_row_hash(slot: int, words: list[int]) -> int:
    """The row hash on Python integers, from the definition."""
    factor = [plain_mix((i + 1) * 0x9E3779B97F4A7C15 & MASK) | 1 for i in range(len(words) + 2)]
    total = factor[0] + slot * factor[1] + sum(word * factor[i + 2] for i, word in enumerate(words))
    return plain_mix(total & MASK) or 1


def test_sorted_keys_are_the_tree_in_preorder() -> None:
    expected = preorder(1, 6)

    by_key = sorted(expected, key=lambda path: layout.node_key(7, path))

    assert by_key == expected


@given(trees, paths)
def test_a_key_gives_back_its_tree_and_path(tree: int, path: int) -> None:
    assert layout.parse_node_key(layout.node_key(tree, path)) == (tree, path)
    assert layout.parse_bucket_key(layout.bucket_key(tree, path, 99)) == (tree, path, 99)


@given(st.lists(st.tuples(trees, paths), min_size=1))
def test_many_keys_at_once_are_the_same_keys(nodes: list[tuple[int, int]]) -> None:
    of_trees = np.array([tree for tree, _ in nodes])
    of_paths = np.array([path for _, path in nodes], np.uint64)

    keys = layout.node_keys(of_trees, of_paths)

    assert keys == [layout.node_key(*node) for node in nodes]
    assert list(zip(*map(np.ndarray.tolist, layout.parse_node_keys(keys)), strict=True)) == nodes


@given(paths, paths, st.integers(0, 2**32 - 1))
def test_a_subtree_is_one_range_of_keys(path: int, top: int, chunk: int) -> None:
    first, last = layout.subtree_range(5, top)

    assert (first <= layout.node_key(5, path) <= last) == is_below(path, top)
    assert (first <= layout.bucket_key(5, path, chunk) <= last) == is_below(path, top)
    assert not first <= layout.node_key(6, path) <= last


def test_a_path_that_is_too_deep_is_refused() -> None:
    with pytest.raises(ValueError, match="depth 57"):
        layout.node_key(0, 1 << 57)
    with pytest.raises(ValueError, match="depth 0 to 56"):
        layout.node_keys(np.zeros(1), np.array([1 << 57], np.uint64))


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_ids_sort_as_numbers(ids: list[int]) -> None:
    assert sorted(layout.id_keys(np.array(ids, np.uint64))) == [layout.id_key(i) for i in sorted(ids)]


@given(st.integers(1, 9), st.integers(0, 2**32 - 1), st.data())
def test_the_row_hash_is_the_one_of_the_definition(features: int, slot: int, data: st.DataObject) -> None:
    words = layout.slot_bytes(features) // 8
    row = data.draw(st.lists(st.integers(0, MASK), min_size=words, max_size=words))
    halves = [half for word in row[1:] for half in (word & 0xFFFFFFFF, word >> 32)]

    found = layout.row_hashes(np.array([slot], np.uint32), np.array([row], np.uint64))

    assert found.tolist() == [plain_row_hash(slot, halves)]
    assert layout.row_hash(slot, np.array(row, "<u8").tobytes()) == plain_row_hash(slot, halves)
    assert len(layout.row_multipliers(features)) == len(halves) + 2


def test_the_row_hash_never_changes() -> None:
    """A frozen value: stores that exist carry it."""
    row = np.array([[0, 41, 2, 0x3F800000_40000000]], np.uint64)

    assert layout.row_hashes(np.array([7]), row).tolist() == [plain_row_hash(7, [41, 0, 2, 0, 0x40000000, 0x3F800000])]
    assert layout.row_hashes(np.array([7]), row).tolist() == [0x95EE7916BE140D98]


def test_the_hash_of_many_rows_is_the_hash_of_each() -> None:
    """Rows are hashed in chunks; no row may fall between two."""
    words = np.random.default_rng(1).integers(0, 1 << 63, (5000, 60), np.uint64)
    slots = np.arange(5000)

    together = layout.row_hashes(slots, words)

    assert together[4999] == layout.row_hashes(slots[4999:], words[4999:])[0]
    assert together[2203] == layout.row_hashes(slots[2203:2204], words[2203:2204])[0]
