"""Receipts to hand out: a ledger entry in a document of its own, that can be checked without the store.

    dynfrsdb_receipt   1, the form of this document
    store              its uuid, with format and algorithm, and the version that issued the receipt
    issued             when
    entry              the ledger entry, every field: times, counts, keyed hashes, digests, prev and hash
    stage              of a removal: how far its erasure had come when the receipt was issued
    verified           if asked for: trees were grown again from the live samples, and equal those of the store
    seal               sha256 of all the above
    signature          if there was a key: Ed25519 over all the above

What is shown, and by what:

    alone              nothing was changed by accident: `entry.hash` is the hash of the entry, and the seal fits;
                       whoever wants to deceive can compute both anew
    with a signature   whoever has the private key issued it as it is
    with the store     the entry is in its ledger, whose chain is whole

The file is the exact bytes that were issued: one that reads the same to JSON but differs in a single space is refused.

There is no raw identifier in it, no seed and no key. Needs no engine, except to verify trees; `cryptography` (the extra
`sign`) is imported only for signatures."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dynfrsdb
from dynfrsdb import chain, documents
from dynfrsdb.erasure import UNLEARNED
from dynfrsdb.errors import EntryNotFound, InvalidInput, MissingExtra
from dynfrsdb.receipt import now
from dynfrsdb_storage import Snapshot, Store, layout
from dynfrsdb_storage.ledger import Entry, entry_hash
from dynfrsdb_storage.stages import ERASED, ROWS_ERASED, is_vacuumed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from dynfrsdb.audit import VerifyReport
    from dynfrsdb.secrets import Secrets

FORM = 1
Document = dict[str, Any]


@dataclass(frozen=True)
class ReceiptReport:
    """What checking a receipt found; true if all is well."""

    problems: tuple[str, ...]
    store: str | None
    sequence: int | None
    signed_by: str | None
    """The public key that the signature fits, in hexadecimal, or None without a good signature."""
    in_ledger: bool | None
    """Whether the store's ledger has the entry; None if no store was asked."""

    def __bool__(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {"ok": bool(self), **self.__dict__, "problems": list(self.problems)}


def issue(store: Store, snapshot: Snapshot, sequence: Any) -> Document:
    """The receipt of one ledger entry, not sealed yet."""
    entry = entry_at(snapshot, sequence)
    identity = snapshot.generation.identity
    return {
        "dynfrsdb_receipt": FORM,
        "store": identity["uuid"].hex(),
        "format": identity["format"],
        "algorithm": identity["algorithm"],
        "version": dynfrsdb.__version__,
        "issued": now(),
        "entry": chain.to_json(entry),
        "stage": stage_of(store, snapshot, entry),
    }


def stage_of(store: Store, snapshot: Snapshot, entry: Entry) -> str | None:
    """How far the erasure of what an entry removed has come; None if it removed nothing."""
    if not entry.get("removed"):
        return None
    if snapshot.state.get("erased", 0) >= entry["sequence"]:
        return ERASED
    if snapshot.state.get("rows_erased", 0) >= entry["sequence"]:
        return ROWS_ERASED
    # After a vacuum nothing is pending here, but rows may be left in a generation that somebody still has open.
    waits = is_vacuumed(snapshot.state) or store.info()["pending_erasures"]
    return UNLEARNED if waits else ROWS_ERASED


def attach(document: Document, report: VerifyReport, snapshot: Snapshot, secrets: Secrets) -> None:
    """Put into a receipt what verifying found at the commit of this snapshot."""
    removed = set(document["entry"].get("removed_ids", ()))
    living = (secrets.id(layout.parse_id_key(key)).hex() for key, _ in snapshot.scan("samples"))
    document["verified"] = {
        "time": now(),
        "commit": snapshot.commit,
        "sample_digest": snapshot.state["digest"].hex(),
        "trees": len(report.trees),
        "differing": list(report.differing),
        "digest": report.digest,
        "removed_ids_living": sum(each in removed for each in living),
    }


def sealed(document: Document, key: Path | str | None = None) -> str:
    """The text of a finished receipt; with the PEM file of a private key, signed."""
    whole = {**document, "seal": _seal(document)}
    if key is not None:
        private = private_key(Path(key))
        public = private.public_key().public_bytes_raw().hex()
        whole["signature"] = {"algorithm": "Ed25519", "public_key": public}
        whole["signature"]["value"] = private.sign(_spelt(whole).encode()).hex()
    return _spelt(whole)


def verify_receipt(
    file: Path | str, store: Path | str | None = None, public_key: Path | str | None = None
) -> ReceiptReport:
    """Check a receipt in a file: by itself, against a public key (a PEM file), and against a store."""
    from dynfrsdb import inputs  # numpy comes with it, which nobody needs who only looks

    places = {"store": store, "public_key": public_key}
    given = {name: None if path is None else inputs.place(path, name) for name, path in places.items()}
    return inspect(documents.read(inputs.place(file, "file")), **given)


def inspect(text: bytes, store: Path | str | None = None, public_key: Path | str | None = None) -> ReceiptReport:
    """Check the text of a receipt."""
    expected = None if public_key is None else load_public_key(Path(public_key))
    try:
        document = json.loads(text)
        entry = chain.from_json(document["entry"])
        uuid, sequence = document["store"], entry["sequence"]
        problems = _flaws(document, entry)
        if _spelt(document).encode() != text:
            problems.append("the file is not, byte for byte, what was issued")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return ReceiptReport(("this is not a receipt",), None, None, None, None)
    signed_by, flaws = _signer(document, expected)
    problems += flaws
    in_ledger = None
    if store is not None:
        missing = _not_in(Path(store), uuid, entry)
        in_ledger = not missing
        problems += missing
    return ReceiptReport(tuple(problems), uuid, sequence, signed_by, in_ledger)


def entry_at(snapshot: Snapshot, sequence: Any) -> Entry:
    """The ledger entry with this number, out of a chain that is whole."""
    last = int(snapshot.state["sequence"])
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 1 <= sequence <= last:
        raise EntryNotFound(
            f"there is no entry {sequence} in the ledger of '{snapshot.generation.store}'; it has {last}"
        )
    return chain.entries(snapshot)[sequence - 1]


def private_key(file: Path) -> Ed25519PrivateKey:
    """The private key in a PEM file without a password."""
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content, key = documents.read(file), None
    with suppress(ValueError, TypeError):
        key = load_pem_private_key(content, None)
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(
            f"'{file}' holds no Ed25519 private key without a password; make one with "
            "'openssl genpkey -algorithm ed25519'"
        )
    return key


def load_public_key(file: Path) -> Ed25519PublicKey:
    """The public key in a PEM file."""
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content, key = documents.read(file), None
    with suppress(ValueError):
        key = load_pem_public_key(content)
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInput(f"'{file}' holds no Ed25519 public key; get it with 'openssl pkey -in KEY -pubout'")
    return key


def _flaws(document: Document, entry: Entry) -> list[str]:
    """What is wrong with a receipt in itself, but for its signature."""
    problems = []
    if document["dynfrsdb_receipt"] != FORM:
        problems.append("it has a form that this version does not know")
    if entry["hash"] != entry_hash(entry):
        problems.append("the hash of its entry does not fit: the entry was changed")
    body = {name: value for name, value in document.items() if name not in ("seal", "signature")}
    if document["seal"] != _seal(body):
        problems.append("its seal does not fit: it was changed")
    verified = document.get("verified")
    if verified is not None and (verified["differing"] or verified["removed_ids_living"]):
        problems.append("it says itself that the forest did not equal one built without the removed samples")
    return problems


def _signer(document: Document, expected: Ed25519PublicKey | None) -> tuple[str | None, list[str]]:
    """The public key of a good signature, and what is wrong."""
    given = document.get("signature")
    if given is None:
        return None, [] if expected is None else ["it is not signed"]
    _need_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signed = {name: value for name, value in document.items() if name != "signature"}
    signed["signature"] = {name: value for name, value in given.items() if name != "value"}
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(given["public_key"]))
        public.verify(bytes.fromhex(given["value"]), _spelt(signed).encode())
    except (InvalidSignature, ValueError, KeyError, TypeError):
        return None, ["its signature does not fit: it was changed, or signed by somebody else"]
    if expected is not None and public.public_bytes_raw() != expected.public_bytes_raw():
        return None, ["it is signed, but with another key than the given one"]
    return given["public_key"], []


def _not_in(path: Path, uuid: str, entry: Entry) -> list[str]:
    """Why an entry is not in the ledger of a store; empty if it is."""
    with Store.open(path, writable=False) as store, store.snapshot() as snapshot:
        if snapshot.generation.identity["uuid"].hex() != uuid:
            return [f"it is a receipt of another store than '{path}'"]
        found = chain.entries(snapshot)
    number = entry["sequence"]
    there = type(number) is int and 1 <= number <= len(found) and found[number - 1] == entry
    return [] if there else [f"the ledger of '{path}' has no such entry {number}"]


def _seal(document: Document) -> str:
    return hashlib.sha256(_spelt(document).encode()).hexdigest()


def _spelt(document: Document) -> str:
    """The one way in which a document is written."""
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _need_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise MissingExtra("signatures need the package 'cryptography'; pip install 'dynfrsdb[sign]'")
