"""The sum of a keyed hash over many rows: blake2b (RFC 7693), without the interpreter.

A store knows its set of samples as one number, the sum of a keyed hash of every row modulo 2^128. hashlib makes such a
hash in about a microsecond, most of which is Python around it, under the interpreter's lock; a build needs one for each
sample. Here a row takes as long as its bytes.

A keyed hash begins with a block of the key. It is the same for all rows, so it is mixed in once:

    begin(key)  ->  state                      sum over rows of  blake2b(row, key=key, digest_size=16)

Rows come as the slots of the rows file: 64-bit words, of which the first is not hashed (it is the slot's own hash), and
zeros behind the end."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dynfrsdb_engine.kernel import inner, kernel

DIGEST_BYTES = 16
BLOCK_BYTES, BLOCK_WORDS, ROUNDS = 128, 16, 12
Word: TypeAlias = np.uint64
Four: TypeAlias = tuple[Word, Word, Word, Word]
IV = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    np.uint64,
)
SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ],
    np.uint64,
)
"""Which word of a block is taken when, round by round; the last two rounds are the first two again."""
R16, R24, R32, R63, ALL = np.uint64(16), np.uint64(24), np.uint64(32), np.uint64(63), np.uint64(64)
NO, YES, ONE, ONES = np.uint64(0), np.uint64(1), np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)


@inner
def rotated(v: Word, by: Word) -> Word:
    """The bits of a word, turned to the right."""
    return (v >> by) | (v << (ALL - by))


@inner
def stir(a: Word, b: Word, c: Word, d: Word, x: Word, y: Word) -> Four:
    """Mix two words of a block into four of the state (G of the RFC)."""
    a = a + b + x
    d = rotated(d ^ a, R32)
    c = c + d
    b = rotated(b ^ c, R24)
    a = a + b + y
    d = rotated(d ^ a, R16)
    c = c + d
    b = rotated(b ^ c, R63)
    return a, b, c, d


@inner
def compress(h: npt.NDArray[np.uint64], m: npt.NDArray[np.uint64], so_far: Word, last: Word) -> None:
    """Mix the block `m` into the state `h`; `so_far` bytes were read with it, and it may be the last."""
    v0, v1, v2, v3, v4, v5, v6, v7 = h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]
    v8, v9, v10, v11, v12, v13 = IV[0], IV[1], IV[2], IV[3], IV[4] ^ so_far, IV[5]
    v14, v15 = IV[6] ^ (last * ONES), IV[7]
    for r in range(ROUNDS):
        s = SIGMA[r % 10]
        v0, v4, v8, v12 = stir(v0, v4, v8, v12, m[s[0]], m[s[1]])
        v1, v5, v9, v13 = stir(v1, v5, v9, v13, m[s[2]], m[s[3]])
        v2, v6, v10, v14 = stir(v2, v6, v10, v14, m[s[4]], m[s[5]])
        v3, v7, v11, v15 = stir(v3, v7, v11, v15, m[s[6]], m[s[7]])
        v0, v5, v10, v15 = stir(v0, v5, v10, v15, m[s[8]], m[s[9]])
        v1, v6, v11, v12 = stir(v1, v6, v11, v12, m[s[10]], m[s[11]])
        v2, v7, v8, v13 = stir(v2, v7, v8, v13, m[s[12]], m[s[13]])
        v3, v4, v9, v14 = stir(v3, v4, v9, v14, m[s[14]], m[s[15]])
    h[0], h[1], h[2], h[3] = h[0] ^ v0 ^ v8, h[1] ^ v1 ^ v9, h[2] ^ v2 ^ v10, h[3] ^ v3 ^ v11
    h[4], h[5], h[6], h[7] = h[4] ^ v4 ^ v12, h[5] ^ v5 ^ v13, h[6] ^ v6 ^ v14, h[7] ^ v7 ^ v15


@kernel
def sum_hashes(
    key: npt.NDArray[np.uint64], begin: npt.NDArray[np.uint64], slots: npt.NDArray[np.uint64], size: int
) -> tuple[Word, Word]:
    """The sum of the hashes of all rows, each of `size` bytes, as (low, high) half; `begin` is the state before the
    block of the key."""
    keyed, h, block = begin.copy(), np.empty(8, np.uint64), np.empty(BLOCK_WORDS, np.uint64)
    compress(keyed, key, np.uint64(BLOCK_BYTES), NO)
    low, high = np.uint64(0), np.uint64(0)
    for i in range(slots.shape[0]):
        for j in range(8):
            h[j] = keyed[j]
        for at in range(0, size, BLOCK_BYTES):
            for j in range(BLOCK_WORDS):
                word = 1 + at // 8 + j
                block[j] = slots[i, word] if word < slots.shape[1] else NO
            end = min(at + BLOCK_BYTES, size)
            compress(h, block, np.uint64(BLOCK_BYTES + end), YES if end == size else NO)
        low += h[0]
        high += h[1] + (ONE if low < h[0] else NO)
    return low, high


def sum_of_hashes(key: bytes, slots: npt.NDArray[np.uint64], size: int) -> int:
    """The sum, modulo 2^128, of blake2b(row, key=key, digest_size=16) over rows of `size` bytes."""
    block = np.frombuffer(key.ljust(BLOCK_BYTES, b"\0"), "<u8").astype(np.uint64)
    begin = IV.copy()
    begin[0] ^= np.uint64(0x01010000 | len(key) << 8 | DIGEST_BYTES)
    low, high = sum_hashes(block, begin, slots, size)
    return int(low) | int(high) << 64
