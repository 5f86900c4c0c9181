"""Frozen values of `algorithm 1`.

They were computed apart from the twin, by a C program (hashes, shuffles, thresholds, X) and by OpenSSL's keyed BLAKE2b
(keys), and must come out of the twin, of kernels and of FORMAT.md alike.
All use the seed 00 01 .. 0f. A path of 2^56 is the leftmost node at the greatest depth.

    SPLITMIX_VECTORS   published outputs of splitmix64 seeded with 1234567: step(1234567 + i*GOLDEN, 0)
    KEY_VECTORS        (purpose, tree, key)
    HASH_VECTORS       (key, path, feature, i, hash)
    OCCUPANCY_VECTORS  (id, T, k, the trees in the order the shuffle gives them)
    ORDER_VECTORS      (key, path, d, feature order)
    THRESHOLD_VECTORS  (key, path, feature, bits of lo, bits of hi, bits of the four thresholds)
    X_VECTORS          (m, X(m))
    GAIN_VECTORS       (nL, SL, nR, SR, score of regression as a hex float)
    TREE_DIGESTS       criterion -> tree digests of `golden_forest`, as golden values
"""

from tests.naive import Criterion

SEED = bytes(range(16))
OCCUPANCY_KEY = 0x8876C528AD98C362
TREE_0 = 0xD81917866FC0D8DD
TREE_1 = 0xC2B7005B9A17152E
TREE_6 = 0x99B4AFB454AA2AB6

SPLITMIX_VECTORS = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]
KEY_VECTORS = [
    (b"occupancy", 0, OCCUPANCY_KEY),
    (b"tree", 0, TREE_0),
    (b"tree", 1, TREE_1),
    (b"tree", 6, TREE_6),
]
HASH_VECTORS = [
    (0, 1, 0, 0, 0xB18A02F46D8D86C3),
    (TREE_0, 1, 0, 0, 0x28697E985A9F5BA9),
    (TREE_0, 1, 0, 1, 0xA465F5E774D01EB7),
    (TREE_0, 2, 3, 4, 0xBB66F2BD31E796C3),
    (TREE_1, 1, 65535, 0, 0x5E4D58B4FB33E4C0),
    (2**64 - 1, 2**57 - 1, 65534, 254, 0x4D8DD779238BC0DF),
    (0x123456789ABCDEF0, 2**56, 7, 29, 0xC4409646E5EB6392),
]
OCCUPANCY_VECTORS = [
    (0, 7, 3, [3, 0, 6]),
    (1, 7, 3, [4, 3, 5]),
    (41, 7, 3, [5, 6, 3]),
    (2**64 - 1, 7, 3, [5, 0, 2]),
    (0, 10, 10, [4, 5, 8, 7, 2, 1, 0, 6, 3, 9]),
    (12345, 100, 10, [17, 52, 30, 98, 47, 64, 18, 88, 36, 19]),
    (5, 1, 1, [0]),
]
ORDER_VECTORS = [
    (TREE_0, 1, 5, [2, 3, 4, 0, 1]),
    (TREE_0, 2, 5, [3, 2, 4, 0, 1]),
    (TREE_0, 3, 5, [4, 1, 2, 0, 3]),
    (TREE_1, 1, 5, [1, 2, 0, 3, 4]),
    (TREE_1, 2**56, 8, [2, 4, 1, 5, 0, 6, 7, 3]),
    (TREE_6, 1, 1, [0]),
]
THRESHOLD_VECTORS = [
    (TREE_0, 1, 0, 0x00000000, 0x3F800000, [0x3E21A5FA, 0x3E26BE47, 0x3F2465F6, 0x3F29ABFB]),
    (TREE_0, 2, 3, 0xBFC00000, 0x40100000, [0xBF85AF6E, 0xBF17FDE6, 0xBE9DDE4B, 0x3FD4D177]),
    (TREE_1, 1, 0, 0x00000000, 0x00000001, [0x00000000, 0x00000000, 0x00000000, 0x00000000]),
    (TREE_1, 1, 1, 0x80000001, 0x00000001, [0x80000001, 0x00000000, 0x00000000, 0x00000000]),
    (TREE_1, 5, 2, 0xFF7FFFFF, 0x7F7FFFFF, [0x7E7DFE3F, 0x7F39F85A, 0x7F5E8F98, 0x7F75AE3A]),
    (TREE_1, 1, 3, 0x3F800000, 0x3F800001, [0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000]),
    (TREE_6, 9, 4, 0xFE967699, 0x00000000, [0xFE903FE8, 0xFE3C6B18, 0xFDDC40EA, 0xFD7F1D4A]),
    (TREE_6, 1, 5, 0x4B800000, 0x4B800002, [0x4B800001, 0x4B800001, 0x4B800001, 0x4B800001]),
]
X_VECTORS = [
    (0, 0),
    (1, 0),
    (2, 33554432),
    (3, 79773774),
    (5, 194777445),
    (7, 329697199),
    (10, 557327051),
    (1000, 167198115553),
    (65535, 17591893404738),
    (65536, 17592186044416),
    (123456789, 55674322791842876),
    (4294967295, 2305843008652618633),
]
GAIN_VECTORS = [
    (1, 3, 2, 1, "0x1.9p+3"),
    (5, 35, 2, 14, "0x0p+0"),
    (2, 1099511627775, 3, -1099511627775, "0x1.0aaaaaaaa8955p+82"),
    (13402, 11304654841824465, 1, 0, "0x1.ecf9bc7610ef2p+92"),
    (30351, 12388846951962925, 24986, 23051544038781874, "0x1.3c95a05c69564p+107"),
]
# From a second implementation of F, in C++; the twin agreed with it on 3,450 forests of nasty data.
TREE_DIGESTS: dict[Criterion, list[str]] = {
    "gini": [
        "c588f996a4db22bd5f064214a80600bccc25576f26d6e86f25affb591efa8ed4",
        "77356359317ac9bf77b8e9f3c227440012c42c36a7e0a5d120b6727bd5d93be7",
        "50a235afa46ad5ef1618e638d44c014507d8c31355b56109bb8c69dff949fae8",
    ],
    "entropy": [
        "585514d04f4aa7b24d5f0e2989cf7051c358efaa17b49625ae2807e0781b5659",
        "d252f5ca43cbf069cd85ef3c956f7b359d8f1e2f01481198bd5db555563542a0",
        "b8000e617ea3751e5dcb283dc9fe1a86e2e25540974be6854e10c43886ffa138",
    ],
    "squared_error": [
        "a6a75165fba59bd56205aeab5360ee81cd5341386bc72fac4156288fa37173ae",
        "3e727ed9f93e80eeb053b816dd23eed437310371c1903d0838058d0c1ce6b424",
        "113fd9b9ecfb41b252c4476c02e03575687cbbd3822d2921bd82dbe2fb39c109",
    ],
}
