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
    from dynfrsdb.api import create, open
    from dynfrsdb.audit import CheckReport, VerifyReport
    from dynfrsdb.database import Database
    from dynfrsdb.erasure import Erasure
    from dynfrsdb.errors import (
        ClosedStore,
        CorruptStore,
        EmptyForest,
        Error,
        InvalidInput,
        Locked,
        ReadOnly,
        RequestConflict,
        SampleExists,
        SampleNotFound,
        StoreExists,
        StoreFull,
        StoreNotFound,
        TransactionMisuse,
        UnsupportedFormat,
        UnsupportedPlace,
    )
    from dynfrsdb.needles import ScanReport
    from dynfrsdb.receipt import Plan, Receipt
    from dynfrsdb.snapshot import Sample, Snapshot
    from dynfrsdb.transaction import Transaction
    from dynfrsdb.vacuum import VacuumReport

__version__ = "0.1.0"

_HOMES = {
    "create": "api",
    "open": "api",
    "CheckReport": "audit",
    "VerifyReport": "audit",
    "Database": "database",
    "Erasure": "erasure",
    "Plan": "receipt",
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
    "Erasure",
    "Error",
    "InvalidInput",
    "Locked",
    "Plan",
    "ReadOnly",
    "Receipt",
    "RequestConflict",
    "Sample",
    "SampleExists",
    "SampleNotFound",
    "ScanReport",
    "Snapshot",
    "StoreExists",
    "StoreFull",
    "StoreNotFound",
    "Transaction",
    "TransactionMisuse",
    "UnsupportedFormat",
    "UnsupportedPlace",
    "VacuumReport",
    "VerifyReport",
    "create",
    "open",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dynfrsdb' has no attribute {name!r}")
    return getattr(import_module(f"dynfrsdb.{_HOMES.get(name, 'errors')}"), name)
