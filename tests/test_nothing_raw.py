"""No name, no id, no seed and no key leaves the store: not in its ledger, nor in receipts, exports or errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dynfrsdb
from dynfrsdb.settings import Settings
from tests.people import X, Y

NAME = "Wilhelmina Featherstonehaugh"
SEED = "correct horse battery staple"
ID = 7_346_182_950
REASON = "the matter of Featherstonehaugh against the bank"
REQUEST = "ticket of wilhelmina@example.org"


def secrets_of(db: dynfrsdb.Database) -> list[str]:
    """Everything that must not be found, in every spelling that we can think of."""
    settings: Settings = db._settings
    names = [NAME, "Featherstonehaugh", REASON, REQUEST, SEED]
    keys = [settings.seed, *(settings.secret(purpose) for purpose in (b"subject", b"id", b"request", b"samples"))]
    numbers = [str(ID), f"{ID:x}", ID.to_bytes(8, "little").hex(), ID.to_bytes(8, "big").hex()]
    return [
        *names,
        *(name.encode().hex() for name in names),
        *(key.hex() for key in keys),
        *(str(key)[2:-1] for key in keys),
        *numbers,
    ]


def written(db: dynfrsdb.Database, folder: Path) -> dict[str, str]:
    """Everything that leaves the store."""
    db.export_ledger(folder / "ledger.jsonl")
    receipts = [db.issue_receipt(each.sequence, verify=True) for each in db.ledger()]
    with db._store.snapshot() as snapshot:
        records = [payload.decode("latin-1") + payload.hex() for _, payload in snapshot.scan("ledger")]
    return {
        "export": (folder / "ledger.jsonl").read_text(),
        "receipts": "".join(receipts),
        "ledger": str(db.ledger()) + json.dumps([each.as_dict() for each in db.ledger()]),
        "records": "".join(records),
        "waiting": str(db.waiting()),
        "info": str(db.info()),
    }


def test_nothing_raw_leaves_the_store(store_dir: Path) -> None:
    with dynfrsdb.create(
        store_dir / "people.forest", X[:60], Y[:60], n_estimators=4, q=0.5, seed=SEED, _bucket=8
    ) as db:
        db.add(X[60:62], Y[60:62], ids=[ID, 1000], subjects=[NAME, "Jane"], request_id=REQUEST)
        hold = db.hold(NAME, REASON)
        with pytest.raises(dynfrsdb.Held) as refused:
            db.forget(NAME)
        db.release(hold.sequence)
        queued = db.forget_later(NAME, "7d", request_id="later " + REQUEST)
        texts = written(db, store_dir)
        db.cancel(queued.sequence)
        db.suppress("refuse")
        db.forget(NAME, request_id="now " + REQUEST)
        with pytest.raises(dynfrsdb.Suppressed) as suppressed:
            db.add(X[:1], Y[:1], subjects=[NAME])
        db.unsuppress(NAME)
        texts |= {f"later {name}": text for name, text in written(db, store_dir).items()}
        texts["refusals"] = str(refused.value).replace(REASON, "") + str(suppressed.value)
        forbidden = secrets_of(db)

        found = [(name, each) for name, text in texts.items() for each in forbidden if each.lower() in text.lower()]

        assert found == []
        assert np.all([db._secrets.subject(NAME.encode()).hex() in texts[name] for name in ("export", "receipts")])


def test_the_search_finds_what_is_there(store_dir: Path) -> None:
    """Whoever holds the list of holds sees the reason: the test above would see it in the ledger."""
    with dynfrsdb.create(store_dir / "people.forest", X, Y, subjects=[NAME] * 300, n_estimators=4, seed=SEED) as db:
        db.hold(NAME, REASON)

        assert [each for each in secrets_of(db) if each in str(db.holds())] == ["Featherstonehaugh", REASON]
