"""Samples and subjects: what a store knows of one row, and of one person.

A subject's text is not in the store. Whoever knows it can ask: the keyed hash of the text is what samples are found
by, and what the ledger keeps when the person is forgotten.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import Any

from dynfrsdb import inputs
from dynfrsdb.errors import CorruptStore, SampleNotFound
from dynfrsdb.inside import chance, records
from dynfrsdb.inside.floats import shortest
from dynfrsdb.inside.nodes import Node, Trees, described
from dynfrsdb.inside.store import Inside, ledger
from dynfrsdb.secrets import Secrets
from dynfrsdb_storage import layout
from dynfrsdb_storage.records import parse_sample


def sample(inside: Inside, id: int) -> dict[str, Any]:
    """One live sample: its values, its class or target, its trees, and where in each of them it lies."""
    settings, path = inside.settings, inside.store.path
    payload = inside.snapshot.get("samples", [layout.id_key(id)])[0]
    if payload is None:
        inside.snapshot.confirm("samples", int(inside.snapshot.state["samples"]))
        raise SampleNotFound(f"sample {id} is not in '{path}'")
    slot, subject = parse_sample(payload)
    row = inside.snapshot.rows.row(slot, id)
    if row is None:
        raise CorruptStore(f"the row of sample {id} in '{path}' fails its hash. Run 'dynfrsdb check {path}'")
    (target,) = struct.unpack_from("<q", row, 16)
    x = struct.unpack_from(f"<{settings.n_features}f", row, layout.ROW_HEADER)
    occupied = chance.occupancy(settings, id)
    classes = settings.classes
    return {
        "id": id,
        "target": classes[target] if classes else settings.target_offset + settings.target_step * target,
        "has_subject": bool(subject),
        "subject_hash": subject.hex() or None,
        "trees": occupied,
        "places": [_place(inside, tree, x, slot) for tree in occupied],
        "features": {settings.feature_name(i): shortest(value) for i, value in enumerate(x)},
    }


def subject(inside: Inside, text: str | bytes) -> dict[str, Any]:
    """Whose samples are here, and in which changes this subject was forgotten."""
    hashed = Secrets(inside.settings).subject(inputs.one_subject(text))
    keys = inside.snapshot.scan("subjects", *layout.subject_range(hashed))
    ids = [layout.parse_subject_key(key)[1] for key, _ in keys]
    removals = (receipt for receipt in ledger(inside.snapshot) if receipt.removed)
    forgotten = [receipt.sequence for receipt in removals if hashed.hex() in receipt.subjects]
    if not ids:
        inside.snapshot.confirm("subjects")
    if not ids and not forgotten:
        raise SampleNotFound(f"no sample of this subject is in '{inside.store.path}'")
    return {"subject_hash": hashed.hex(), "samples": len(ids), "ids": ids, "forgotten_in": forgotten}


def _place(inside: Inside, tree: int, x: tuple[float, ...], slot: int) -> dict[str, Any]:
    """The leaf or tag of one tree where a row lies."""
    trees = inside.trees
    node = trees.root(tree)
    while node.kind == "split":
        assert node.feature is not None, "a split has a feature"
        node = trees.children(node)[x[node.feature] > node.threshold]
    if not _holds(trees, node, slot):
        store = inside.store.path
        raise CorruptStore(
            f"tree {tree}, node {node.path:#b} in '{store}' does not list a sample that belongs to it; "
            f"no answer was given. Run 'dynfrsdb check {store}'"
        )
    return {"tree": tree, **described(inside.settings, node)}


def _holds(trees: Trees, node: Node, slot: int) -> bool:
    if node.stored != "node":
        return slot in node.slots
    key = layout.node_key(node.tree, node.path)
    chunk = trees.snapshot.at_or_before("buckets", key + slot.to_bytes(4, "big"))
    if chunk is None or not chunk[0].startswith(key):
        return False
    slots = records.slots(chunk[1])
    at = bisect_left(slots, slot)
    return at < len(slots) and slots[at] == slot
