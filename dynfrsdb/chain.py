"""The ledger outside its store: heads to keep elsewhere, and entries as lines of JSON.

A store can vouch for its ledger only as far as the ledger goes: whoever can write the files can cut the end off, or put
an older copy in place, and set the counters accordingly. So the **head** is for keeping elsewhere:

    17:9f0c...      the number of the last entry and its hash, which covers every entry before it

and `since(head)` answers either with what came after, or says that entry 17 is gone or another one.

An exported entry is a JSON object on a line of its own, with the fields of the record in their order, so that anybody
can compute its hash again. msgpack knows bytes, JSON does not; all bytes in an entry are 16 or 32 long and no text
looks like their hexadecimal digits, so this is the rule, both ways:

    a string of 32 or 64 digits 0-9 a-f     bytes
    any other string                        text
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dynfrsdb import documents
from dynfrsdb.errors import CorruptStore, InvalidInput
from dynfrsdb_storage import Snapshot
from dynfrsdb_storage.ledger import FIRST_PREV, Entry, broken_links
from dynfrsdb_storage.records import unframe

_BYTES = re.compile("(?:[0-9a-f]{32}){1,2}")
_HEAD = re.compile("([0-9]{1,19}):([0-9a-f]{64})")


def to_json(value: Any) -> Any:
    """An entry, or a part of one, in types JSON has."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: to_json(each) for name, each in value.items()}
    return [to_json(each) for each in value] if isinstance(value, (list, tuple)) else value


def from_json(value: Any) -> Any:
    """What `to_json` was given."""
    if isinstance(value, str) and _BYTES.fullmatch(value):
        return bytes.fromhex(value)
    if isinstance(value, dict):
        return {name: from_json(each) for name, each in value.items()}
    return [from_json(each) for each in value] if isinstance(value, list) else value


def head(snapshot: Snapshot) -> str:
    """The end of the ledger, to be kept elsewhere."""
    return f"{snapshot.state['sequence']}:{snapshot.state['head'].hex()}"


def entries(snapshot: Snapshot) -> list[Entry]:
    """The whole ledger, its chain checked."""
    snapshot.confirm("ledger", int(snapshot.state["sequence"]))
    found: list[Entry] = [unframe(payload) for _, payload in snapshot.scan("ledger")]
    broken = broken_links(found, snapshot.state["sequence"], snapshot.state["head"])
    if broken:
        raise CorruptStore(
            f"the ledger of '{snapshot.generation.store}' is not what was written: {broken[0]}; restore the store from "
            "a backup"
        )
    return found


def since(snapshot: Snapshot, kept: str) -> list[Entry]:
    """The entries behind a head that was kept, or an error if the ledger does not continue it."""
    number, digest = parse_head(kept)
    found = entries(snapshot)
    if number > len(found):
        raise CorruptStore(
            f"the ledger of '{snapshot.generation.store}' ends with entry {len(found)}, but the head is that of entry "
            f"{number}: it was cut short or rolled back. Put the newest data back, or restore a backup with "
            "'dynfrsdb restore'"
        )
    if (found[number - 1]["hash"] if number else FIRST_PREV) != digest:
        raise CorruptStore(
            f"entry {number} in the ledger of '{snapshot.generation.store}' is not the one that the head names: the "
            "ledger was written anew, or is that of another store"
        )
    return found[number:]


def parse_head(text: Any) -> tuple[int, bytes]:
    """The (number, hash) of a head."""
    found = _HEAD.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise InvalidInput(f"{text!r} is not a head; it looks like '17:' and 64 hexadecimal digits")
    return int(found[1]), bytes.fromhex(found[2])


def line(entry: Entry) -> str:
    """An entry as one line of an export."""
    return json.dumps(to_json(entry), ensure_ascii=False, separators=(",", ":")) + "\n"


def export(found: Iterable[Entry], file: Path) -> None:
    """Write entries to a file."""
    documents.write(file, "".join(map(line, found)))


def read_export(file: Path) -> list[Entry]:
    """The entries of an export: a chain without gaps, that need not begin with entry 1."""
    found: list[Entry] = []
    for number, text in enumerate(_lines(file), 1):
        try:
            entry = from_json(json.loads(text))
            fits = isinstance(entry, dict) and type(entry["sequence"]) is int and isinstance(entry["hash"], bytes)
            fits = fits and isinstance(entry["prev"], bytes)
        except (ValueError, KeyError):
            fits = False
        if not fits:
            raise InvalidInput(f"line {number} of '{file}' is not an entry of a ledger; export it again")
        found.append(entry)
    broken = broken_links(found, found[-1]["sequence"], found[-1]["hash"], found[0]["sequence"] - 1, found[0]["prev"])
    if broken:
        raise CorruptStore(f"'{file}' is not what was exported: {broken[0]}")
    return found


def _lines(file: Path) -> list[str]:
    try:
        return documents.read(file).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise InvalidInput(f"'{file}' is not text; it must be an exported ledger") from None
