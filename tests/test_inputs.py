"""What callers pass comes out as the store keeps it, or is refused with a message that says where and what to do.

Every message is compared whole: it is what a person reads at three in the morning, and part of the public face.
"""

import math
import warnings
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dynfrsdb import inputs
from dynfrsdb.errors import Error, InvalidInput
from dynfrsdb.settings import Settings

CLASSIFICATION = Settings.make(n_features=2, classes=["no", "yes"], seed=1)
NUMBERED = Settings.make(n_features=2, classes=[0, 1, 2], seed=1)
REGRESSION = Settings.make(n_features=2, task="regression", target_offset=10.0, target_step=0.5, seed=1)


def refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        call(*arguments)
    assert isinstance(caught.value, Error)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


@pytest.mark.parametrize(
    "X",
    [
        [[1, 2.5], [0, 3]],
        ((1, 2.5), (0, 3)),
        [np.array([1, 2.5]), np.array([0.0, 3.0])],
        np.array([[1, 2.5], [0, 3]], np.float64),
        np.asfortranarray(np.array([[1, 2.5], [0, 3]], np.float32)),
        np.array([[1, 2.5], [0, 3]], np.float16),
        np.array([[1, 2.5], [0, 3]], np.longdouble),
        np.array([[1, 2.5], [0, 3]], object),
        [[Decimal(1), Decimal("2.5")], [Fraction(0), 3]],
        pd.DataFrame({"a": [True, False], "b": [2.5, 3.0]}),
        pd.DataFrame({"a": [1, 0], "b": [2.5, 3.0]}, dtype="Float64"),
        pd.DataFrame({"a": [1, 0], "b": [2.5, 3.0]}, dtype=object),
    ],
)
def test_features_come_in_many_forms_and_leave_as_one(X: Any) -> None:
    x = inputs.features(X, 2)

    assert x.tolist() == [[1.0, 2.5], [0.0, 3.0]]
    assert x.dtype == np.float32
    assert x.flags.c_contiguous


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64", "bool"])
def test_features_may_be_whole_numbers_of_any_size(dtype: str) -> None:
    assert inputs.features(np.array([[1, 0]], dtype), 2).tolist() == [[1.0, 0.0]]


def test_features_are_a_copy_that_the_caller_cannot_change() -> None:
    X = np.zeros((1, 2), np.float32)

    x = inputs.features(X, 2)
    X[0, 0] = 7.0

    assert x[0, 0] == 0.0


def test_features_are_rounded_to_the_nearest_float32() -> None:
    assert inputs.features([[0.1, 16777217.0]], 2).tolist() == [[0.10000000149011612, 16777216.0]]


def test_negative_zero_becomes_zero_and_so_does_what_rounds_to_it() -> None:
    x = inputs.features([[-0.0, -1e-60]], 2)

    assert x.view(np.uint32).tolist() == [[0, 0]]


def test_subnormal_features_are_kept() -> None:
    assert inputs.features([[1e-45, -1e-45]], 2).view(np.uint32).tolist() == [[1, 0x80000001]]


@pytest.mark.parametrize("X", [[], (), np.empty((0, 2)), np.empty((0, 2), object), pd.DataFrame({"a": [], "b": []})])
def test_no_samples_are_samples_too(X: Any) -> None:
    assert inputs.features(X, 2).shape == (0, 2)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[1, 2], [3, math.nan]], "row 1, column 'age' is NaN; dynfrsdb stores finite numbers only"),
        ([[1, 2], [-math.inf, 3]], "row 1, column 'city' is infinite; dynfrsdb stores finite numbers only"),
        ([[1, 1e39]], "row 0, column 'age' is too large for float32; dynfrsdb stores finite numbers only"),
        ([[1, -3.4028236e38]], "row 0, column 'age' is too large for float32; dynfrsdb stores finite numbers only"),
        ([[1, 10**400]], "row 0, column 'age' is too large for float64; dynfrsdb stores finite numbers only"),
        ([[1, 2], ["Rome", 2]], "row 1, column 'city' is of type str, not a number"),
        ([["1", "2"]], "row 0, column 'city' is of type str, not a number"),
        (np.array([["1", "2"]]), "row 0, column 'city' is of type str_, not a number"),
        (np.array([[1, "2"]], object), "row 0, column 'age' is of type str, not a number"),
        ([[1, 2j]], "row 0, column 'age' is of type complex, not a number"),
        ([[1, None]], "row 0, column 'age' is missing; dynfrsdb stores finite numbers only"),
        ([[1, pd.NA]], "row 0, column 'age' is missing; dynfrsdb stores finite numbers only"),
        ([[1, 2], [3, [4]]], "row 1, column 'age' is of type list, not a number"),
        (np.array([["2020-01-01"] * 2], "M8[D]"), "row 0, column 'city' is of type datetime64, not a number"),
        ([[1, 2], [1, 2, 3]], "row 1 has 3 features, this store takes 2"),
        ([[1, 2, 3]], "row 0 has 3 features, this store takes 2"),
        (np.zeros((5, 1)), "row 0 has 1 features, this store takes 2"),
        ([["a", "b", "c"]], "row 0 has 3 features, this store takes 2"),
        ([1, 2], "X has 1 dimension; pass a 2-D array, one row per sample"),
        (["a", "b"], "X has 1 dimension; pass a 2-D array, one row per sample"),
        ([1, [2, 3]], "X has 1 dimension; pass a 2-D array, one row per sample"),
        (7, "X has 0 dimensions; pass a 2-D array, one row per sample"),
        (None, "X has 0 dimensions; pass a 2-D array, one row per sample"),
        ("ab", "X has 0 dimensions; pass a 2-D array, one row per sample"),
        (np.zeros((1, 2, 3)), "X has 3 dimensions; pass a 2-D array, one row per sample"),
        (
            np.ma.masked_array(np.zeros((1, 2)), mask=[[True, False]]),
            "X is a masked array; fill the masked cells and pass a plain array",
        ),
    ],
)
def test_features_are_refused_by_row_and_column(X: Any, message: str) -> None:
    assert refusal(inputs.features, X, 2, ("city", "age")) == message


def test_columns_without_names_are_counted_from_0() -> None:
    message = refusal(inputs.features, [[1, 2], [3, math.nan]], 2)

    assert message == "row 1, column 1 is NaN; dynfrsdb stores finite numbers only"


def test_a_sparse_matrix_is_refused_with_the_call_that_helps() -> None:
    sparse = pytest.importorskip("scipy.sparse")

    assert refusal(inputs.features, sparse.eye(2).tocsr(), 2) == "X is a sparse matrix; pass X.toarray()"


def test_a_frame_with_the_stores_columns_is_taken() -> None:
    frame = pd.DataFrame({"city": [1], "age": [2]})

    assert inputs.features(frame, 2, ("city", "age")).tolist() == [[1.0, 2.0]]


def test_a_frame_whose_columns_are_only_numbered_is_taken_like_an_array() -> None:
    assert inputs.features(pd.DataFrame([[1, 2]]), 2, ("city", "age")).tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["age", "city"], "column 0 of X is 'age', this store expects 'city' there"),
        (["city", "Age"], "column 1 of X is 'Age', this store expects 'age' there"),
        (["city", 1], "column 1 of X is named 1; column names must all be strings, or none"),
        (["city"], "row 0 has 1 features, this store takes 2"),
        (["city", "age", "sex"], "row 0 has 3 features, this store takes 2"),
    ],
)
def test_a_frame_with_other_columns_is_refused_and_never_reordered(columns: list[Any], message: str) -> None:
    frame = pd.DataFrame([range(len(columns))], columns=columns)

    assert refusal(inputs.features, frame, 2, ("city", "age")) == message


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "boolean"])
def test_a_missing_value_in_a_nullable_column_is_refused(dtype: str) -> None:
    frame = pd.DataFrame({"city": pd.array([1, 1], dtype), "age": pd.array([1, None], dtype)})

    message = refusal(inputs.features, frame, 2, ("city", "age"))

    assert message in {
        "row 1, column 'age' is missing; dynfrsdb stores finite numbers only",
        "row 1, column 'age' is NaN; dynfrsdb stores finite numbers only",
    }


def test_a_refusal_never_shows_a_features_value() -> None:
    assert "Rosebud" not in refusal(inputs.features, [["Rosebud", 1]], 2)


def test_refusing_leaks_no_numpy_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        refusal(inputs.features, [[1e300, 1], [math.nan, 2]], 2)
        refusal(inputs.targets, [1e308], 1, REGRESSION)


@pytest.mark.parametrize(
    ("X", "d"), [([[1, 2, 3]], 3), (np.zeros((0, 4)), 4), (pd.DataFrame({"a": [1]}), 1), ([(1, 2), (3,)], 2)]
)
def test_the_width_of_samples_is_that_of_their_first_row(X: Any, d: int) -> None:
    assert inputs.width(X) == d


@pytest.mark.parametrize(("X", "n"), [([1, 2], "1 dimension"), ([], "1 dimension"), (3, "0 dimensions")])
def test_what_is_no_matrix_has_no_width(X: Any, n: str) -> None:
    assert refusal(inputs.width, X) == f"X has {n}; pass a 2-D array, one row per sample"


@pytest.mark.parametrize(
    "y", [["yes", "no", "yes"], np.array(["yes", "no", "yes"]), pd.Series(["yes", "no", "yes"]), ("yes", "no", "yes")]
)
def test_a_label_becomes_its_place_in_the_class_list(y: Any) -> None:
    indices = inputs.targets(y, 3, CLASSIFICATION)

    assert indices.tolist() == [1, 0, 1]
    assert indices.dtype == np.int64


@pytest.mark.parametrize("y", [[2, 0], [2.0, False], np.array([2, 0], np.uint8), np.array([2.0, 0.0], np.float32)])
def test_equal_numbers_are_the_same_label(y: Any) -> None:
    assert inputs.targets(y, 2, NUMBERED).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["no", "maybe"], "row 1 of y is 'maybe', which is not a class of this store; its classes are 'no', 'yes'"),
        (["no", 1], "row 1 of y is 1, which is not a class of this store; its classes are 'no', 'yes'"),
        (["no", None], "row 1 of y is missing; every sample needs a class"),
        (["no", math.nan], "row 1 of y is missing; every sample needs a class"),
        (["no", pd.NA], "row 1 of y is missing; every sample needs a class"),
        (["no", ["yes"]], "row 1 of y is of type list; pass one class per sample"),
        (["no"], "y has 1 entries for 2 rows of X; pass one per row"),
        ([["no"], ["yes"]], "row 0 of y is of type list; pass one class per sample"),
        (np.array([["no"], ["yes"]]), "y has 2 dimensions; pass one target per sample"),
        (pd.DataFrame({"y": ["no", "yes"]}), "y has 2 dimensions; pass one target per sample"),
        (None, "y is missing; pass one target per sample"),
        ("no", "y is of type str; pass a list with one target per sample"),
        (3, "y is of type int; pass a list with one target per sample"),
    ],
)
def test_labels_are_refused_by_row(y: Any, message: str) -> None:
    assert refusal(inputs.targets, y, 2, CLASSIFICATION) == message


def test_of_many_classes_a_refusal_lists_ten() -> None:
    settings = Settings.make(n_features=1, classes=range(26), seed=1)

    message = refusal(inputs.targets, [99], 1, settings)

    known = "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... (26 in all)"
    assert message == f"row 0 of y is 99, which is not a class of this store; its classes are {known}"


@pytest.mark.parametrize("y", [[10.0, 11.0, 9.5], np.array([10, 11, 9.5], np.float32), pd.Series([10, 11, 9.5])])
def test_a_number_becomes_steps_from_the_offset(y: Any) -> None:
    steps = inputs.targets(y, 3, REGRESSION)

    assert steps.tolist() == [0, 2, -1]
    assert steps.dtype == np.int64


def test_halves_go_to_the_even_step() -> None:
    assert inputs.targets([10.25, 10.75, 11.25, 9.75], 4, REGRESSION).tolist() == [0, 2, 2, 0]


def test_targets_fill_40_bits_and_no_more() -> None:
    largest = 10.0 + (2**40 - 1) * 0.5

    assert inputs.targets([largest, 20.0 - largest], 2, REGRESSION).tolist() == [2**40 - 1, 1 - 2**40]
    assert refusal(inputs.targets, [10.0, largest + 0.5], 2, REGRESSION) == (
        "row 1 of y is 5.49756e+11 or more away from target_offset=10, too far for target_step=0.5; "
        "create the store with a larger target_step"
    )


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0, math.nan], "row 1 of y is NaN; dynfrsdb stores finite numbers only"),
        ([1.0, -math.inf], "row 1 of y is infinite; dynfrsdb stores finite numbers only"),
        ([1.0, None], "row 1 of y is missing; dynfrsdb stores finite numbers only"),
        ([1.0, "2"], "row 1 of y is of type str, not a number"),
        ([1.0, [2]], "row 1 of y is of type list, not a number"),
        ([1.0, 10**400], "row 1 of y is too large for float64; dynfrsdb stores finite numbers only"),
        ([1.0, 2.0, 3.0], "y has 3 entries for 2 rows of X; pass one per row"),
        ([[1.0], [2.0]], "y has 2 dimensions; pass one target per sample"),
        (
            np.ma.masked_array([1.0, 2.0], mask=[True, False]),
            "y is a masked array; fill the masked cells and pass a plain array",
        ),
        (None, "y is missing; pass one target per sample"),
        (1.0, "y is of type float; pass a list with one target per sample"),
    ],
)
def test_numbers_are_refused_by_row(y: Any, message: str) -> None:
    assert refusal(inputs.targets, y, 2, REGRESSION) == message


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (["b", "a", "b"], ("a", "b")),
        (np.array([3, 1, 3], np.int8), (1, 3)),
        (np.array([True, False]), (False, True)),
        (pd.Series([2.0, 1.0]), (1.0, 2.0)),
    ],
)
def test_the_classes_in_labels_are_ascending_python_values(y: Any, classes: tuple[Any, ...]) -> None:
    found = inputs.classes_in(y)

    assert found == classes
    assert [type(label) for label in found] == [type(label) for label in classes]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", 1], "the labels in y are of types int, str, which have no common order; pass classes="),
        (["a", None], "row 1 of y is missing; every sample needs a class"),
        ([1.0, 2.0, math.nan], "row 2 of y is missing; every sample needs a class"),
        (["a", ["b"]], "row 1 of y is of type list; pass one class per sample"),
    ],
)
def test_classes_are_not_taken_from_labels_that_are_none(y: Any, message: str) -> None:
    assert refusal(inputs.classes_in, y) == message


@pytest.mark.parametrize(
    "given",
    [
        [5, 0],
        (5, 0),
        np.array([5, 0], np.int8),
        np.array([5, 0], np.uint64),
        np.array([5, 0], object),
        [np.int64(5), np.uint8(0)],
        pd.Series([5, 0]),
        pd.Series([5, 0], dtype="Int64"),
        range(5, -1, -5),
    ],
)
def test_ids_come_in_many_forms_and_leave_as_uint64(given: Any) -> None:
    numeric = inputs.ids(given, 2)

    assert numeric.tolist() == [5, 0]
    assert numeric.dtype == np.uint64


def test_the_largest_ids_are_kept_exactly_beside_small_ones() -> None:
    assert inputs.ids([2**64 - 1, 1, 2**63], 3).tolist() == [2**64 - 1, 1, 2**63]


def test_ids_without_a_count_may_be_any_number_of_ids() -> None:
    assert inputs.ids([], None).tolist() == []
    assert inputs.ids({3}, None).tolist() == [3]


def test_a_single_whole_number_is_a_list_of_one_id() -> None:
    assert inputs.ids(7, None).tolist() == [7]
    assert inputs.ids(np.int32(7), 1).tolist() == [7]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, -1], "row 1 of ids is -1; ids are whole numbers from 0 to 2**64 - 1"),
        (np.array([1, -1]), "row 1 of ids is -1; ids are whole numbers from 0 to 2**64 - 1"),
        ([1, 2**64], "row 1 of ids is 18446744073709551616; ids are whole numbers from 0 to 2**64 - 1"),
        ([1, True], "row 1 of ids is of type bool; ids are whole numbers from 0 to 2**64 - 1"),
        (np.array([True, False]), "row 0 of ids is of type bool; ids are whole numbers from 0 to 2**64 - 1"),
        ([1, 2.0], "row 1 of ids is of type float; ids are whole numbers from 0 to 2**64 - 1"),
        (np.array([1.0, 2.0]), "row 0 of ids is of type float; ids are whole numbers from 0 to 2**64 - 1"),
        ([1, "2"], "row 1 of ids is of type str; ids are whole numbers from 0 to 2**64 - 1"),
        ([1, None], "row 1 of ids is of type NoneType; ids are whole numbers from 0 to 2**64 - 1"),
        ([1], "ids has 1 entries for 2 rows of X; pass one per row"),
        ([[1], [2]], "row 0 of ids is of type list; ids are whole numbers from 0 to 2**64 - 1"),
        (np.array([[1], [2]]), "ids has 2 dimensions; pass one id per sample"),
        ("12", "ids is of type str; pass a list with one id per sample"),
        (True, "ids is of type bool; pass a list with one id per sample"),
        (1.5, "ids is of type float; pass a list with one id per sample"),
        (None, "ids is missing; pass one id per sample"),
    ],
)
def test_ids_are_refused_by_row(given: Any, message: str) -> None:
    assert refusal(inputs.ids, given, 2) == message


def test_an_id_given_twice_is_named_with_both_rows() -> None:
    message = refusal(inputs.ids, [9, 4, 8, 9, 4, 9], 6)

    assert message == "id 9 is given twice, in rows 0 and 3; give each sample its own id"


def test_one_id_is_a_whole_number() -> None:
    assert inputs.one_id(np.uint64(2**64 - 1)) == 2**64 - 1
    assert refusal(inputs.one_id, "7") == "the id is of type str; ids are whole numbers from 0 to 2**64 - 1"
    assert refusal(inputs.one_id, True) == "the id is of type bool; ids are whole numbers from 0 to 2**64 - 1"
    assert refusal(inputs.one_id, -1) == "the id is -1; ids are whole numbers from 0 to 2**64 - 1"


def test_subjects_are_text_bytes_or_nobody() -> None:
    given = ["ann", b"\xff\x00", None, "Zoë"]

    assert inputs.subjects(given, 4) == [b"ann", b"\xff\x00", b"", b"Zo\xc3\xab"]
    assert inputs.subjects(np.array(["ann", "bob"]), 2) == [b"ann", b"bob"]
    assert inputs.subjects(pd.Series(["ann", "bob"]), 2) == [b"ann", b"bob"]


def test_no_subjects_at_all_stay_none() -> None:
    assert inputs.subjects(None, 3) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["ann", ""], "row 1 of subjects is empty; pass None for a sample that belongs to nobody"),
        (["ann", b""], "row 1 of subjects is empty; pass None for a sample that belongs to nobody"),
        (["ann", math.nan], "row 1 of subjects is NaN; pass None for a sample that belongs to nobody"),
        (["ann", 7], "row 1 of subjects is of type int; subjects are str or bytes"),
        (["ann", "\ud800"], "row 1 of subjects is not valid Unicode text; pass it as bytes"),
        (["ann"], "subjects has 1 entries for 2 rows of X; pass one per row"),
        ("ann", "subjects is of type str; pass a list with one subject per sample"),
        (7, "subjects is of type int; pass a list with one subject per sample"),
    ],
)
def test_subjects_are_refused_by_row(given: Any, message: str) -> None:
    assert refusal(inputs.subjects, given, 2) == message


def test_one_subject_is_text_or_bytes_and_somebody() -> None:
    assert inputs.one_subject("ann") == inputs.one_subject(b"ann") == b"ann"
    assert refusal(inputs.one_subject, 7) == "the subject is of type int; subjects are str or bytes"
    assert refusal(inputs.one_subject, "") == "the subject is empty; name the person to forget"
    assert refusal(inputs.one_subject, None) == "the subject is of type NoneType; subjects are str or bytes"


def test_a_store_holds_no_more_than_its_sums_can() -> None:
    inputs.refuse_too_much(REGRESSION, inputs.MAX_SAMPLES, inputs.TARGET_SUM_LIMIT - 1)
    inputs.refuse_too_much(NUMBERED, 1, inputs.TARGET_SUM_LIMIT)  # classes are counted, not summed up

    assert refusal(inputs.refuse_too_much, NUMBERED, inputs.MAX_SAMPLES + 1, 0) == (
        "a store holds at most 3037000499 samples"
    )
    assert refusal(inputs.refuse_too_much, REGRESSION, 1, inputs.TARGET_SUM_LIMIT) == (
        "the targets of all samples together are too large for exact sums; use a larger target_step"
    )
