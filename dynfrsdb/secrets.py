"""Keyed hashes: how the store knows people without knowing their names.

    subject    16 bytes under which a subject's samples are found; its text is not stored
    id         16 bytes that stand for a removed id in the ledger
    samples    the sample set as one number: the sum of a keyed hash of every live row, modulo 2^128. Adding and
               removing samples adds and subtracts, so the digest after a change costs nothing but the change.
    request    16 bytes that stand for a request id, and for what the request asked for
    reason     16 bytes that stand for the reason of a hold in the ledger: reasons name people, too

All keys come from the store's seed, which is never printed.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from dynfrsdb.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from dynfrsdb_storage import lazynumpy as np

HASH_BYTES = 16
MODULUS = 1 << 128
_PURPOSES = (b"subject", b"id", b"samples", b"request", b"reason")


class Secrets:
    """The keyed hashes of one store."""

    def __init__(self, settings: Settings) -> None:
        self._keys = {purpose: settings.secret(purpose) for purpose in _PURPOSES}
        self._samples = blake2b(key=self._keys[b"samples"], digest_size=HASH_BYTES)

    def _hash(self, purpose: bytes, data: bytes) -> bytes:
        return blake2b(data, key=self._keys[purpose], digest_size=HASH_BYTES).digest()

    def subject(self, subject: bytes) -> bytes:
        """The hash under which a subject's samples are kept."""
        return self._hash(b"subject", subject)

    def id(self, sample: int) -> bytes:
        """What stands for an id in the ledger."""
        return self._hash(b"id", sample.to_bytes(8, "little"))

    def request(self, data: bytes) -> bytes:
        """What stands for a request id, or for the operations of a request."""
        return self._hash(b"request", data)

    def reason(self, text: str) -> bytes:
        """What stands for the reason of a hold in the ledger."""
        return self._hash(b"reason", text.encode())

    @property
    def key_of_samples(self) -> bytes:
        """The key of the hashes that `samples` adds up."""
        return self._keys[b"samples"]

    def samples(self, ids: npt.NDArray[np.uint64], y: npt.NDArray[np.int64], X: npt.NDArray[np.float32]) -> int:
        """The part of the sample-set digest that these samples contribute."""
        data, width, sum_of = _lines(ids, y, X), 16 + 4 * X.shape[1], 0
        for start in range(0, len(data), width):
            row = self._samples.copy()
            row.update(data[start : start + width])
            sum_of += int.from_bytes(row.digest(), "little")
        return sum_of % MODULUS


def _lines(ids: npt.NDArray[np.uint64], y: npt.NDArray[np.int64], X: npt.NDArray[np.float32]) -> bytes:
    """Samples as bytes, one behind the other: id, target, features."""
    if len(ids) == 1:  # as most transactions have it: no arrays, each of which costs as much as the hash
        number, target = int(ids[0]).to_bytes(8, "little"), int(y[0]).to_bytes(8, "little", signed=True)
        return number + target + X.astype("<f4", copy=False).tobytes()
    columns = ids.astype("<u8")[:, None], y.astype("<i8")[:, None], np.ascontiguousarray(X, "<f4")
    return np.concatenate([column.view("<u4") for column in columns], axis=1).tobytes()
