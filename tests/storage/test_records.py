"""A record comes back as it was written, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynfrsdb_storage import layout, records
from dynfrsdb_storage.errors import CorruptStore

KEY = layout.node_key(3, 0b1011)


@given(st.integers(0, 20_000))
def test_a_value_is_small_or_fills_its_pages(length: int) -> None:
    size = len(records.pack("nodes", KEY, bytes(length)))

    assert size == length + 4 if length + 4 <= 1900 else (size + 16) % 4096 == 0
    assert length + 4 <= size < length + 4 + 4096


@given(st.binary(max_size=9000))
def test_a_payload_comes_back_with_nothing_but_zeros_behind_it(payload: bytes) -> None:
    back = records.unpack("nodes", KEY, records.pack("nodes", KEY, payload))

    assert back is not None
    assert back[: len(payload)] == payload
    assert not any(back[len(payload) :])


@given(st.binary(min_size=1, max_size=5000), st.data())
def test_any_flipped_bit_is_noticed(payload: bytes, data: st.DataObject) -> None:
    value = bytearray(records.pack("nodes", KEY, payload))
    bit = data.draw(st.integers(0, 8 * len(value) - 1))

    value[bit // 8] ^= 1 << bit % 8

    assert records.unpack("nodes", KEY, bytes(value)) is None


def test_a_good_record_in_the_wrong_place_is_noticed() -> None:
    value = records.pack("nodes", KEY, b"payload")

    assert records.unpack("nodes", layout.node_key(3, 0b1010), value) is None
    assert records.unpack("buckets", KEY, value) is None
    assert records.unpack("nodes", KEY, b"") is None


@given(st.integers(0, 9000))
def test_a_framed_message_has_its_exact_length(length: int) -> None:
    payload = records.unpack("ledger", b"k", records.pack("ledger", b"k", records.frame({"text": "x" * length})))

    assert payload is not None
    assert records.unframe(payload) == {"text": "x" * length}


def test_a_frame_that_claims_too_much_is_corrupt() -> None:
    with pytest.raises(CorruptStore, match="says it has 99 bytes but holds 1"):
        records.unframe((99).to_bytes(4, "little") + b"x")


def test_a_sample_knows_its_slot_and_subject() -> None:
    assert records.parse_sample(records.sample_payload(7)) == (7, b"")
    assert records.parse_sample(records.sample_payload(7, bytes(16))) == (7, bytes(16))
    with pytest.raises(ValueError, match="16 bytes, this one 3"):
        records.sample_payload(7, b"abc")


@pytest.mark.parametrize(
    ("database", "key", "words"),
    [
        ("nodes", KEY, "tree 3, node 0b1011"),
        ("buckets", layout.bucket_key(3, 0b1011, 8), "tree 3, bucket 0b1011"),
        ("samples", layout.id_key(41), "the record of sample 41"),
        ("ledger", layout.sequence_key(7), "ledger entry 7"),
        ("roots", layout.roots_key(1), "the roots of trees 128 to 255"),
        ("meta", b"state", "the store's state record"),
        ("pending", b"\x01", "record 01 of 'pending'"),
    ],
)
def test_a_record_has_a_name_in_words(database: str, key: bytes, words: str) -> None:
    assert records.describe(database, key) == words
