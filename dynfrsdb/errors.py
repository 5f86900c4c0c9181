"""Errors: what a caller of dynfrsdb may want to catch.

Every error is a `dynfrsdb.Error`, and each leaf is also the builtin a caller expects, so `except KeyError` around a
removal works without knowing this module. The root lives in the storage layer, because errors of the disk are raised
there and must share it.
"""

from dynfrsdb_storage.errors import (
    ClosedStore,
    CorruptStore,
    Error,
    Locked,
    ReadOnly,
    StoreExists,
    StoreFull,
    StoreNotFound,
    Unrestored,
    UnsupportedFormat,
    UnsupportedPlace,
)


class InvalidInput(Error, ValueError):
    """An argument cannot be what it has to be; the message names it, the row and column, and what is allowed."""


class SampleNotFound(Error, KeyError):
    """No live sample has this id, or none belongs to this subject."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # KeyError would put the message in quotes


class PlaceNotFound(Error, LookupError):
    """There is no such tree, or no such node in it."""


class SampleExists(Error, ValueError):
    """A live sample already has this id."""


class EmptyForest(Error, ValueError):
    """There is no sample to predict from."""


class RequestConflict(Error, ValueError):
    """A request id was used before, for something else."""


class Held(Error, PermissionError):
    """A sample of a subject that is held was to be removed; the message gives the reason."""


class Suppressed(Error, ValueError):
    """A sample of a subject that was forgotten was to be added, and the store is told to refuse that."""


class EntryNotFound(Error, KeyError):
    """No ledger entry, hold or waiting request has this number."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class MissingExtra(Error, ImportError):
    """What was asked for needs a package that is not installed; the message says which extra brings it."""


class Unreachable(Error, ConnectionError):
    """A database outside the store cannot be reached, or went away in the middle; trying again later may help."""


class TransactionMisuse(Error, RuntimeError):
    """A transaction is used outside its `with` block, or begun inside another of the same handle."""


__all__ = [
    "ClosedStore",
    "CorruptStore",
    "EmptyForest",
    "EntryNotFound",
    "Error",
    "Held",
    "InvalidInput",
    "Locked",
    "MissingExtra",
    "PlaceNotFound",
    "ReadOnly",
    "RequestConflict",
    "SampleExists",
    "SampleNotFound",
    "StoreExists",
    "StoreFull",
    "StoreNotFound",
    "Suppressed",
    "TransactionMisuse",
    "Unreachable",
    "Unrestored",
    "UnsupportedFormat",
    "UnsupportedPlace",
]
