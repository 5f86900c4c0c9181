"""dynfrsdb: a database whose content is a random forest.

    import dynfrsdb
    db = dynfrsdb.create("patients.forest", X, y, ids=ids, subjects=subjects)
    with db.transaction() as txn:
        txn.forget("person 17")
    txn.receipt
    db.predict(X)

Everything else hangs on these two functions; see `Database`. Names are looked up when they are used, so that importing
the package stays cheap for the command line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynfrsdb.api import create, open, restore
    from dynfrsdb.audit import CheckReport, VerifyReport
    from dynfrsdb.database import Database
    from dynfrsdb.erasure import Erasure
    from dynfrsdb.errors import (
        ClosedStore,
        CorruptStore,
        EmptyForest,
        EntryNotFound,
        Error,
        Held,
        InvalidInput,
        Locked,
        MissingExtra,
        PlaceNotFound,
        ReadOnly,
        RequestConflict,
        SampleExists,
        SampleNotFound,
        StoreExists,
        StoreFull,
        StoreNotFound,
        Suppressed,
        TransactionMisuse,
        Unreachable,
        Unrestored,
        UnsupportedFormat,
        UnsupportedPlace,
    )
    from dynfrsdb.explain import Explanation
    from dynfrsdb.holds import Hold
    from dynfrsdb.later import Outcome, Waiting
    from dynfrsdb.migrating import Migration, migrate
    from dynfrsdb.needles import ScanReport
    from dynfrsdb.proof import ReceiptReport, verify_receipt
    from dynfrsdb.receipt import Plan, Receipt
    from dynfrsdb.restoring import Restored
    from dynfrsdb.snapshot import Sample, Snapshot
    from dynfrsdb.transaction import Transaction
    from dynfrsdb.vacuum import VacuumReport

__version__ = "0.1.0"

_HOMES = {
    "create": "api",
    "open": "api",
    "restore": "api",
    "CheckReport": "audit",
    "VerifyReport": "audit",
    "Database": "database",
    "Explanation": "explain",
    "Erasure": "erasure",
    "Hold": "holds",
    "Migration": "migrating",
    "migrate": "migrating",
    "Outcome": "later",
    "Plan": "receipt",
    "ReceiptReport": "proof",
    "Restored": "restoring",
    "Waiting": "later",
    "verify_receipt": "proof",
    "Receipt": "receipt",
    "Sample": "snapshot",
    "ScanReport": "needles",
    "Snapshot": "snapshot",
    "Transaction": "transaction",
    "VacuumReport": "vacuum",
}

__all__ = [
    "CheckReport",
    "ClosedStore",
    "CorruptStore",
    "Database",
    "EmptyForest",
    "EntryNotFound",
    "Erasure",
    "Error",
    "Explanation",
    "Held",
    "Hold",
    "InvalidInput",
    "Locked",
    "Migration",
    "MissingExtra",
    "Outcome",
    "PlaceNotFound",
    "Plan",
    "ReadOnly",
    "Receipt",
    "ReceiptReport",
    "RequestConflict",
    "Restored",
    "Sample",
    "SampleExists",
    "SampleNotFound",
    "ScanReport",
    "Snapshot",
    "StoreExists",
    "StoreFull",
    "StoreNotFound",
    "Suppressed",
    "Transaction",
    "TransactionMisuse",
    "Unreachable",
    "Unrestored",
    "UnsupportedFormat",
    "UnsupportedPlace",
    "VacuumReport",
    "VerifyReport",
    "Waiting",
    "create",
    "migrate",
    "open",
    "restore",
    "verify_receipt",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dynfrsdb' has no attribute {name!r}")
    return getattr(import_module(f"dynfrsdb.{_HOMES.get(name, 'errors')}"), name)
