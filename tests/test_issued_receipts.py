"""A receipt that is handed out can be checked by whoever gets it, and not a byte of it can be changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dynfrsdb
from dynfrsdb import proof
from tests.people import SHAPE, X, Y, changer, receipt_of

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """A private and a public key, in PEM files."""
    return key_pair(tmp_path / "signer")


def key_pair(stem: Path) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = ed25519.Ed25519PrivateKey.generate()
    private, public = stem.with_suffix(".key"), stem.with_suffix(".pub")
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def test_a_receipt_says_what_its_ledger_entry_says(path: Path) -> None:
    with changer(path) as db:
        receipt = receipt_of(db.forget("person 50", request_id="ticket 1"))
        uuid = db.info()["uuid"]
        document = json.loads(db.issue_receipt(receipt.sequence))

    said = {name: list(value) if isinstance(value, tuple) else value for name, value in receipt.as_dict().items()}
    assert document["entry"] == said
    assert (document["store"], document["algorithm"], document["version"]) == (uuid, 1, dynfrsdb.__version__)
    assert document["stage"] == "rows erased"


def test_the_stage_is_unlearned_while_a_reader_keeps_the_row(path: Path) -> None:
    with changer(path) as db:
        added = receipt_of(db.add(X[:1], Y[:1])).sequence
        with dynfrsdb.open(path) as reader, reader.snapshot():
            receipt = receipt_of(db.remove([5]))

            assert json.loads(db.issue_receipt(receipt.sequence))["stage"] == "unlearned"
        assert json.loads(db.issue_receipt(added))["stage"] is None


def test_a_receipt_is_checked_without_the_store_and_looked_up_with_it(path: Path, store_dir: Path) -> None:
    with changer(path) as db:
        receipt = receipt_of(db.forget("person 50"))
        file = store_dir / "receipt.json"
        file.write_text(db.issue_receipt(receipt.sequence))
    with dynfrsdb.create(store_dir / "other.forest", X, Y, **SHAPE) as other:
        other.remove([1])

    alone, there, elsewhere = (
        dynfrsdb.verify_receipt(file, store) for store in (None, path, store_dir / "other.forest")
    )

    assert (bool(alone), alone.sequence, alone.in_ledger, alone.signed_by) == (True, receipt.sequence, None, None)
    assert (bool(there), there.in_ledger) == (True, True)
    assert (bool(elsewhere), elsewhere.in_ledger) == (False, False)
    assert "another store" in elsewhere.problems[0]


def test_a_receipt_of_an_entry_that_is_gone_is_not_in_the_ledger(path: Path, store_dir: Path) -> None:
    """A copy of an older state has the uuid, but not the entry; later it has another one of that number."""
    with changer(path) as db:
        db.backup(store_dir / "copy.forest")
        text = db.issue_receipt(receipt_of(db.remove([5])).sequence).encode()

    assert "has no such entry" in proof.inspect(text, store_dir / "copy.forest").problems[0]
    with changer(store_dir / "copy.forest") as copy:
        copy.remove([6])
    assert "has no such entry" in proof.inspect(text, store_dir / "copy.forest").problems[0]


@pytest.mark.parametrize("signed", [False, True])
def test_a_changed_byte_fails(path: Path, keys: tuple[Path, Path], signed: bool) -> None:
    """Each byte of the file, to its neighbour and to a blank; none may go missing, and none may be put in."""
    with changer(path) as db:
        sequence = receipt_of(db.forget("person 50")).sequence
        text = db.issue_receipt(sequence, verify=True, key=keys[0] if signed else None).encode()
    assert proof.inspect(text)

    for place in range(len(text)):
        for byte in {text[place] ^ 1, 0x20} - {text[place]}:
            assert not proof.inspect(text[:place] + bytes([byte]) + text[place + 1 :]), text[place : place + 20]
    assert not proof.inspect(text[:-1])
    assert not proof.inspect(text + b"\n")
    assert not proof.inspect(b"")
    assert not proof.inspect(b"[" * 100_000)


def test_whoever_computes_the_hashes_anew_is_caught_by_the_store_and_by_the_signature(
    path: Path, keys: tuple[Path, Path]
) -> None:
    from dynfrsdb import chain
    from dynfrsdb_storage.ledger import entry_hash

    with changer(path) as db:
        text = db.issue_receipt(receipt_of(db.remove([5])).sequence, key=keys[0])
    document = json.loads(text)
    signature = document.pop("signature")
    del document["seal"]
    document["entry"]["removed"] = 100
    document["entry"]["hash"] = entry_hash(chain.from_json(document["entry"])).hex()
    forged = proof.sealed(document)
    with_signature = json.dumps({**json.loads(forged), "signature": signature}, indent=2) + "\n"

    assert proof.inspect(forged.encode())
    assert "has no such entry" in proof.inspect(forged.encode(), path).problems[0]
    assert "its signature does not fit" in proof.inspect(with_signature.encode()).problems[0]
    assert proof.inspect(forged.encode(), public_key=keys[1]).problems == ("it is not signed",)


def test_a_signature_says_who_signed(path: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    with changer(path) as db:
        text = db.issue_receipt(receipt_of(db.remove([5])).sequence, key=keys[0]).encode()
    _, other = key_pair(tmp_path / "other")

    good, wrong = proof.inspect(text, path, keys[1]), proof.inspect(text, path, other)

    assert (bool(good), good.signed_by) == (True, json.loads(text)["signature"]["public_key"])
    assert (bool(wrong), wrong.signed_by) == (False, None)
    assert wrong.problems == ("it is signed, but with another key than the given one",)


def test_what_verifying_found_can_be_attached(path: Path) -> None:
    with changer(path) as db:
        sequence = receipt_of(db.forget("person 50")).sequence
        text = db.issue_receipt(sequence, verify=True)
        verified = json.loads(text)["verified"]

        assert (verified["trees"], verified["differing"], verified["removed_ids_living"]) == (6, [], 0)
        assert verified["digest"] == db.digest()
        assert verified["sample_digest"] == db.info()["sample_digest"]
        assert verified["commit"] == db.info()["commit"]


def test_a_receipt_of_somebody_who_is_back_does_not_claim_their_absence(path: Path) -> None:
    with changer(path) as db:
        sequence = receipt_of(db.remove([5])).sequence
        db.add(X[5:6], Y[5:6], ids=[5])
        text = db.issue_receipt(sequence, verify=True)

    assert json.loads(text)["verified"]["removed_ids_living"] == 1
    assert "did not equal one built without" in proof.inspect(text.encode()).problems[0]


@pytest.mark.parametrize("number", [0, 99, -1, True, "2", 2.0])
def test_there_is_no_receipt_of_an_entry_that_is_not_there(path: Path, number: int) -> None:
    with changer(path) as db, pytest.raises(dynfrsdb.EntryNotFound, match="there is no entry"):
        db.issue_receipt(number)


def test_a_key_that_is_none_is_refused(path: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with changer(path) as db:
        for key in (tmp_path / "notes", tmp_path / "nowhere", keys[1]):
            with pytest.raises(dynfrsdb.InvalidInput):
                db.issue_receipt(1, key=key)
        text = db.issue_receipt(1).encode()
    for key in (tmp_path / "notes", tmp_path / "nowhere", keys[0]):
        with pytest.raises(dynfrsdb.InvalidInput):
            proof.inspect(text, public_key=key)
