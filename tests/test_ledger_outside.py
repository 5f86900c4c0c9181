"""A head that was kept elsewhere, and an exported ledger, tell what the store itself could hide."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

import dynfrsdb
from dynfrsdb import chain
from dynfrsdb_storage import WriteSession, layout
from dynfrsdb_storage.ledger import entry_hash, link
from dynfrsdb_storage.records import frame, unframe
from tests.people import X, Y, changer


def live(db: dynfrsdb.Database) -> None:
    """Entries of every kind."""
    db.hold("person 1", "a reason", "2999-01-01")
    db.remove([5, 6], request_id="r")
    db.forget_later("person 9", "7d")
    db.suppress("skip")
    db.forget("person 7")
    db.add(X[:2], Y[:2], subjects=["person 7", None])
    db.unsuppress("person 7")
    db.release(db.holds()[0].number)
    db.cancel(db.waiting()[0].number)


def test_since_a_head_tells_what_came_after_it(path: Path) -> None:
    with changer(path) as db:
        beginning = db.ledger_head()
        live(db)
        middle = db.ledger_head()
        db.remove([8])

        assert db.ledger_since("0:" + "0" * 64) == db.ledger()
        assert db.ledger_since(beginning) == db.ledger()[1:]
        assert [receipt.removed for receipt in db.ledger_since(middle) if receipt.kind == "change"] == [1]
        assert db.ledger_since(db.ledger_head()) == []


def test_an_older_copy_put_in_place_is_noticed(path: Path, store_dir: Path) -> None:
    """The copy brings its own LOCK, so it opens; only who kept the head can tell."""
    shutil.copytree(path, store_dir / "old.forest")
    with changer(path) as db:
        db.remove([5])
        head = db.ledger_head()
    shutil.rmtree(path)
    shutil.copytree(store_dir / "old.forest", path)

    with changer(path) as db:
        with pytest.raises(dynfrsdb.CorruptStore, match="cut short or rolled back"):
            db.ledger_since(head)
        db.remove([6])
        db.remove([7])
        with pytest.raises(dynfrsdb.CorruptStore, match=r"not the one that the head names"):
            db.ledger_since(head)


def _cut(session: WriteSession) -> None:
    """Drop the last entry, and make the counters fit."""
    last = int(session.state["sequence"])
    (before,) = session.snapshot.get("ledger", [layout.sequence_key(last - 1)])
    assert before is not None
    session.delete("ledger", layout.sequence_key(last))
    session.state.update(sequence=last - 1, head=unframe(before)["hash"])


def _rewrite(session: WriteSession) -> None:
    """Change an entry, link all that follow anew, and make the counters fit."""
    prev = bytes(32)
    for key, payload in list(session.snapshot.scan("ledger")):
        entry = unframe(payload)
        said = {name: value for name, value in entry.items() if name not in ("sequence", "prev", "hash")}
        if entry["sequence"] == 2:
            said["removed"] += 1
        linked = link(said, entry["sequence"], prev)
        session.put("ledger", key, frame(linked))
        prev = linked["hash"]
    session.state["head"] = prev


@pytest.mark.parametrize(("forge", "words"), [(_cut, "cut short|written anew"), (_rewrite, "written anew")])
def test_a_forgery_that_fits_its_counters_passes_check_but_not_the_head(
    path: Path, forge: Callable[[WriteSession], None], words: str
) -> None:
    with changer(path) as db:
        db.remove([5])
        db.remove([6])
        head = db.ledger_head()
        with db._store.write() as session:
            forge(session)
            session.commit()

        assert db.check().problems == ()
        with pytest.raises(dynfrsdb.CorruptStore, match=words):
            db.ledger_since(head)


def test_an_edited_entry_is_found_by_check_and_by_whoever_reads_the_ledger(path: Path) -> None:
    with changer(path) as db:
        db.remove([5])
        head = db.ledger_head()
        with db._store.write() as session:
            (payload,) = session.snapshot.get("ledger", [layout.sequence_key(2)])
            assert payload is not None
            session.put("ledger", layout.sequence_key(2), frame({**unframe(payload), "removed": 0}))
            session.commit()

        assert "ledger entry 2 was changed" in db.check().problems
        with pytest.raises(dynfrsdb.CorruptStore, match="ledger entry 2 was changed"):
            db.ledger_since(head)
        with pytest.raises(dynfrsdb.CorruptStore, match="ledger entry 2 was changed"):
            db.export_ledger(path.parent / "ledger.jsonl")


def test_an_exported_entry_is_enough_to_compute_its_hash(path: Path) -> None:
    """By the rule of the documents and nothing of ours."""

    def bytes_again(value: Any) -> Any:
        if isinstance(value, list):
            return [bytes_again(each) for each in value]
        looks = isinstance(value, str) and len(value) in (32, 64) and set(value) <= set("0123456789abcdef")
        return bytes.fromhex(value) if looks else value

    with changer(path) as db:
        live(db)
        count = db.export_ledger(path.parent / "ledger.jsonl")
        head = db.ledger_head()

    lines = (path.parent / "ledger.jsonl").read_text().splitlines()
    prev = bytes(32)
    for line in lines:
        entry = {name: bytes_again(value) for name, value in json.loads(line).items()}
        claimed = entry.pop("hash")
        assert entry["prev"] == prev
        prev = hashlib.sha256(prev + msgpack.packb(entry, use_bin_type=True)).digest()
        assert claimed == prev
    assert (len(lines), head) == (count, f"{count}:{prev.hex()}")


def test_an_export_since_a_head_is_the_rest(path: Path) -> None:
    with changer(path) as db:
        db.remove([5])
        head = db.ledger_head()
        db.remove([6])
        whole, rest = path.parent / "whole.jsonl", path.parent / "rest.jsonl"
        db.export_ledger(whole)
        db.export_ledger(rest, since=head)

    assert chain.read_export(whole)[2:] == chain.read_export(rest)
    assert whole.read_text().endswith(rest.read_text())


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda text: text.replace('"removed":2', '"removed":1'), dynfrsdb.CorruptStore, "entry 3 was changed"),
        (lambda text: "".join(text.splitlines(True)[::2]), dynfrsdb.CorruptStore, "says it is number 3"),
        (lambda text: text[:-9], dynfrsdb.InvalidInput, r"line \d+ of .* is not an entry"),
        (lambda text: "", dynfrsdb.InvalidInput, "line 1 of .* is not an entry"),
        (lambda text: "[]\n" + text, dynfrsdb.InvalidInput, "line 1 of"),
        (lambda text: '{"sequence": 1}\n', dynfrsdb.InvalidInput, "line 1 of"),
    ],
)
def test_a_damaged_export_is_refused(
    path: Path, change: Callable[[str], str], error: type[Exception], words: str
) -> None:
    file = path.parent / "ledger.jsonl"
    with changer(path) as db:
        live(db)
        db.export_ledger(file)
    before = file.read_text()
    file.write_text(change(before))
    assert file.read_text() != before

    with pytest.raises(error, match=words):
        chain.read_export(file)


@pytest.mark.parametrize("head", ["", "17", "17:abc", "x:" + "0" * 64, None, 17])
def test_a_head_that_is_none_is_refused(path: Path, head: Any) -> None:
    with changer(path) as db, pytest.raises(dynfrsdb.InvalidInput, match="is not a head"):
        db.ledger_since(head)


def test_every_kind_of_entry_and_its_fields_are_in_the_format_document(path: Path, store_dir: Path) -> None:
    document = (Path(__file__).parents[1] / "storage" / "FORMAT.md").read_text()
    fields = document.split("\n### ledger\n", 1)[1].split("\n### ", 1)[0]
    fields += document.split("A ledger entry has, besides", 1)[1].split("\nMoments are text", 1)[0]
    with changer(path) as db:
        live(db)
        db.backup(store_dir / "copy.forest")
        db.remove([20])
        db.export_ledger(store_dir / "ledger.jsonl")
    dynfrsdb.restore(store_dir / "copy.forest", store_dir / "ledger.jsonl")

    with dynfrsdb.open(store_dir / "copy.forest") as db:
        kinds = {entry.kind for entry in db.ledger()}
        names = {name for entry in db.ledger() for name in entry.as_dict()}
    assert kinds >= {
        "create",
        "change",
        "hold",
        "release",
        "queue",
        "cancel",
        "suppression",
        "lift",
        "backup",
        "restore",
    }
    assert {each for each in kinds | names if f"`{each}`" not in fields} == set()


def test_the_hash_of_an_entry_depends_on_every_field(path: Path) -> None:
    with changer(path) as db:
        live(db)
        with db._store.snapshot() as snapshot:
            entries = chain.entries(snapshot)

    for entry in entries:
        for name in entry.keys() - {"hash"}:
            other = {**entry, name: b"\1" * 32 if name == "prev" else ["other"]}
            assert entry_hash(other) != entry["hash"]
