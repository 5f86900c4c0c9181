"""An encoding comes back from a store as it went in, and is no part of the forest."""

from __future__ import annotations

from collections import Counter

import msgpack
import numpy as np
import pytest

from dynfrsdb.encoding import BOOLEAN, CATEGORY, NUMBER, Coded, Encoding
from dynfrsdb.settings import Settings
from dynfrsdb.tables import Batch, Column

ENCODING = Encoding(
    (
        Coded("age", NUMBER, impute=40.0),
        Coded("job", CATEGORY, ("clerk", "cook"), impute="cook"),
        Coded("smoker", BOOLEAN),
    ),
    target="sick",
    subject="name",
)


def batch(**columns: Column) -> Batch:
    size = len(next(iter(columns.values())))
    return Batch("t", columns, size, 0, lambda row: f"'t', row {row}")


def test_an_encoding_survives_its_record() -> None:
    stored = msgpack.unpackb(msgpack.packb(ENCODING.record()))

    assert Encoding.from_record(stored) == ENCODING


def test_settings_carry_it_and_say_that_categories_are_from_data() -> None:
    settings = Settings.make(feature_names=ENCODING.feature_names, classes=[0, 1], seed=1, encoding=ENCODING.record())

    assert Settings.from_record(settings.record()) == settings
    assert settings.from_data == ("categories",)


def test_what_becomes_of_columns_is_part_of_the_digest() -> None:
    record = ENCODING.record()
    other_value = {**record, "columns": [{**column, "impute": 7.0} for column in record["columns"]]}
    other_target = {**record, "target": "something else"}
    own, none, imputing, renamed = (
        Settings.make(n_features=4, classes=[0, 1], seed=1, encoding=each).canonical()
        for each in (record, None, other_value, other_target)
    )

    assert len({own, none, imputing}) == 3
    assert renamed == own


def test_settings_written_before_there_were_encodings_are_read() -> None:
    record = Settings.make(n_features=4, classes=[0, 1], seed=1).record()
    del record["encoding"]

    assert Settings.from_record(record).encoding is None


@pytest.mark.parametrize(
    "columns",
    [
        {"age": ("30", "", "-0"), "job": ("cook", "pilot", "NA"), "smoker": ("true", "FALSE", "1")},
        {"age": [30, None, -0.0], "job": ["cook", "pilot", None], "smoker": [True, False, 1]},
        {"age": np.array([30, np.nan, -0.0]), "job": ["cook", "pilot", None], "smoker": np.array([True, False, True])},
    ],
)
def test_text_values_and_arrays_give_the_same_features(columns: dict[str, Column]) -> None:
    out, unknown = np.full((3, 4), 9, np.float32), Counter[str]()

    ENCODING.encode(batch(**columns), out, unknown)

    assert out.tolist() == [[30, 0, 1, 1], [40, 0, 0, 0], [0, 0, 1, 1]]
    assert not np.signbit(out).any()
    assert unknown == {"job": 1}


def test_numbers_that_are_names_are_spelt_the_same_in_every_format() -> None:
    encoding = Encoding((Coded("zone", CATEGORY, ("3",)),))
    kinds: list[Column] = [("3", "4"), [3, 4], [3.0, 4.0], np.array([3, 4]), np.array([3.0, 4.0])]

    for cells in kinds:
        out = np.empty((2, 1), np.float32)
        encoding.encode(batch(zone=cells), out, Counter())
        assert out.tolist() == [[1], [0]]
