"""What can go wrong with a store, as exceptions.

There is one root, `Error`, and few leaves. Each leaf is also the builtin that a caller who has never heard of us
would catch: a missing store is a `FileNotFoundError`, a lock that did not come free in time a `TimeoutError`. A
message says what happened, where, and what to do about it, in that order; secrets (the seed) never appear in one.

No bare `lmdb.Error` leaves this layer: see `dynfrsdb_storage.env.translate`.
"""


class Error(Exception):
    """The root of everything dynfrsdb raises on purpose."""


class StoreNotFound(Error, FileNotFoundError):
    """There is nothing at that path."""


class StoreExists(Error, FileExistsError):
    """There is already something where a store was to be created; it was not touched."""


class UnsupportedFormat(Error, ValueError):
    """The path holds something else, or a store of a newer format than this version reads."""


class CorruptStore(Error, OSError):
    """The bytes are not what was written: a failed checksum, a truncated file, a store that was rolled back."""


class Locked(Error, TimeoutError):
    """Another process holds the writer lock (or a resource of the store) and did not give it up in time."""


class ReadOnly(Error, PermissionError):
    """A change was asked of a handle, or of files, that may only be read."""


class StoreFull(Error, OSError):
    """The disk (or the address space) has no room for the change; nothing was changed."""


class ClosedStore(Error, ValueError):
    """The handle, snapshot or session has ended; what it was asked for now needs a new one."""


class UnsupportedPlace(Error, OSError):
    """The file system or the process arrangement cannot keep a store safely (a network share, colliding pids)."""


class Unrestored(Error, RuntimeError):
    """A backup is being restored: removals that came after it are not applied yet, so nobody may look."""
