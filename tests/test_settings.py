"""Settings hold what F reads: checked once, stored whole, spelled the same for ever.

The bytes and keys frozen here are part of every store's digest: a test that fails means existing stores changed.
"""

import hashlib
import math
from typing import Any

import msgpack
import numpy as np
import pandas as pd
import pytest

from dynfrsdb.errors import InvalidInput
from dynfrsdb.settings import Settings

MINIMAL: dict[str, Any] = {"n_features": 14, "classes": ["no", "yes"], "seed": 1}
REGRESSION: dict[str, Any] = {"n_features": 14, "task": "regression", "target_step": 0.5, "seed": 1}


# The keys algorithm 1 derives from the seed bytes 00 01 .. 0f.
OCCUPANCY_KEY = 0x8876C528AD98C362
TREE_KEYS = [0xD81917866FC0D8DD, 0xC2B7005B9A17152E, 0x92431A5CDB907E58]


def make(**arguments: Any) -> Settings:
    return Settings.make(**(MINIMAL | arguments))


def refusal(**arguments: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        Settings.make(**arguments)
    return str(caught.value)


def test_the_defaults_are_those_of_create() -> None:
    settings = make()

    assert (settings.task, settings.criterion, settings.n_trees, settings.k) == ("classification", "gini", 100, 10)
    assert (settings.p, settings.s, settings.max_depth, settings.min_samples_split) == (4, 20, 20, 10)
    assert (settings.target_offset, settings.target_step, settings.bucket) == (0.0, 1.0, 128)
    assert (settings.feature_names, settings.from_data) == (None, ())
    assert (settings.n_classes, settings.mean_columns) == (2, 2)


def test_regression_considers_all_features_and_squared_error() -> None:
    settings = Settings.make(**REGRESSION)

    assert (settings.criterion, settings.p, settings.classes) == ("squared_error", 14, ())
    assert (settings.n_classes, settings.mean_columns) == (0, 1)


@pytest.mark.parametrize(
    ("q", "n_trees", "k"),
    [
        (0.1, 100, 10),
        (0.1, 7, 1),
        (0.1, 1, 1),
        (0.3, 10, 3),
        (0.07, 100, 7),
        (0.1, 250, 25),
        (0.5, 3, 2),
        (1, 65_535, 65_535),
    ],
)
def test_k_is_q_of_the_trees_rounded_up_whatever_floats_do(q: float, n_trees: int, k: int) -> None:
    assert make(q=q, n_estimators=n_trees).k == k


@pytest.mark.parametrize(
    ("max_features", "d", "p"),
    [
        (None, 1, 1),
        (None, 2, 2),
        ("sqrt", 9, 4),
        ("sqrt", 15, 4),
        ("sqrt", 16, 5),
        ("all", 14, 14),
        (3, 14, 3),
        (np.int64(14), 14, 14),
        (0.5, 15, 7),
        (1.0, 14, 14),
        (0.001, 14, 1),
    ],
)
def test_max_features_says_how_many_features_a_node_considers(max_features: Any, d: int, p: int) -> None:
    assert make(n_features=d, max_features=max_features).p == p


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"task": "ranking"}, "task='ranking' is not known; pass 'classification' or 'regression'"),
        ({"n_features": 0}, "n_features=0 is not a whole number from 1 to 65535"),
        ({"n_features": 65_536}, "n_features=65536 is not a whole number from 1 to 65535"),
        ({"n_features": 2.0}, "n_features=2.0 is not a whole number from 1 to 65535"),
        ({"n_features": None}, "n_features is not known; pass n_features=, feature_names= or samples"),
        ({"feature_names": ["a"]}, "there are 1 feature names for n_features=14; give each feature one name"),
        ({"feature_names": ["a", "a"]}, "feature_names[1] is 'a' again; give each feature its own name"),
        ({"feature_names": ["a", 1]}, "feature_names[1] is 1; names are non-empty strings"),
        ({"feature_names": [""]}, "feature_names[0] is ''; names are non-empty strings"),
        ({"feature_names": "ab"}, "feature_names='ab' is one string; pass a list with one name per feature"),
        ({"n_estimators": 0}, "n_estimators=0 is not a whole number from 1 to 65535"),
        ({"n_estimators": 65_536}, "n_estimators=65536 is not a whole number from 1 to 65535"),
        ({"n_estimators": True}, "n_estimators=True is not a whole number from 1 to 65535"),
        ({"q": 0}, "q=0 is not greater than 0 and at most 1"),
        ({"q": 1.01}, "q=1.01 is not greater than 0 and at most 1"),
        ({"q": math.nan}, "q=nan is not greater than 0 and at most 1"),
        ({"q": "0.1"}, "q='0.1' is not greater than 0 and at most 1"),
        ({"q": True}, "q=True is not greater than 0 and at most 1"),
        ({"max_depth": 57}, "max_depth=57 is not a whole number from 1 to 56"),
        ({"max_depth": None}, "max_depth=None is not a whole number from 1 to 56"),
        ({"n_thresholds": 0}, "n_thresholds=0 is not a whole number from 1 to 255"),
        ({"n_thresholds": 256}, "n_thresholds=256 is not a whole number from 1 to 255"),
        ({"min_samples_split": 1}, "min_samples_split=1 is not a whole number from 2 to 4294967295"),
        ({"max_features": 15}, "max_features=15 is not a whole number from 1 to 14"),
        ({"max_features": 0.0}, "max_features=0.0 is not greater than 0 and at most 1"),
        ({"max_features": 1.5}, "max_features=1.5 is not greater than 0 and at most 1"),
        ({"max_features": "log2"}, "max_features='log2' is not known; pass 'sqrt' or 'all'"),
        ({"max_features": True}, "max_features=True is neither a number nor one of 'sqrt', 'all'"),
        ({"max_features": [3]}, "max_features=[3] is not known; pass 'sqrt' or 'all'"),
        (
            {"criterion": "squared_error"},
            "criterion='squared_error' is not for classification; pass 'gini' or 'entropy'",
        ),
        ({"criterion": "mae"}, "criterion='mae' is not for classification; pass 'gini' or 'entropy'"),
        ({"classes": None}, "the classes are not known; pass classes= or samples with their y"),
        ({"classes": []}, "there are 0 classes; a store takes 1 to 65535"),
        ({"classes": range(65_536)}, "there are 65536 classes; a store takes 1 to 65535"),
        ({"classes": "ab"}, "classes='ab' is one string; pass a list of classes"),
        ({"classes": ["a", "b", "a"]}, "class 'a' is given twice; classes must differ (1, 1.0 and True are equal)"),
        ({"classes": [1, True]}, "class True is given twice; classes must differ (1, 1.0 and True are equal)"),
        ({"classes": [None]}, "class None cannot be stored; classes are str, 64-bit int, finite float or bool"),
        ({"classes": [math.inf]}, "class inf cannot be stored; classes are str, 64-bit int, finite float or bool"),
        ({"classes": [b"a"]}, "class b'a' cannot be stored; classes are str, 64-bit int, finite float or bool"),
        (
            {"classes": [2**63]},
            "class 9223372036854775808 cannot be stored; classes are str, 64-bit int, finite float or bool",
        ),
        (
            {"classes": ["\ud800"]},
            "class '\\ud800' cannot be stored; classes are str, 64-bit int, finite float or bool",
        ),
        (
            {"target_step": 0.1},
            "target_offset= and target_step= are for regression; leave them out or pass task='regression'",
        ),
        ({"bucket": 0}, "bucket=0 is not a whole number from 1 to 65535"),
        ({"seed": ""}, "seed is empty; pass an int, a non-empty str or bytes, or None for a random one"),
        ({"seed": 1.5}, "seed is of type float; pass an int, a non-empty str or bytes, or None for a random one"),
        ({"seed": True}, "seed is of type bool; pass an int, a non-empty str or bytes, or None for a random one"),
    ],
)
def test_a_bad_argument_is_named_with_what_is_allowed(bad: dict[str, Any], message: str) -> None:
    assert refusal(**(MINIMAL | bad)) == message


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"criterion": "gini"}, "criterion='gini' is not for regression; pass 'squared_error'"),
        ({"criterion": "entropy"}, "criterion='entropy' is not for regression; pass 'squared_error'"),
        ({"classes": [0, 1]}, "classes= is for classification; leave it out or pass task='classification'"),
        ({"target_step": 0}, "target_step=0 is not greater than 0"),
        ({"target_step": math.inf}, "target_step=inf is not greater than 0"),
        ({"target_offset": math.nan}, "target_offset=nan is not a finite number"),
        ({"target_offset": 10**400}, f"target_offset={10**400} is not a finite number"),
        (
            {"target_step": None},
            "target_step is not known; pass target_step=, the precision of targets, such as 0.01, or samples",
        ),
        (
            {"target_step": None, "target_offset": -1e308, "y": [1e308]},
            "y minus target_offset is too large for float64; pass a target_offset nearer the targets",
        ),
        ({"target_step": None, "y": [1, math.nan]}, "row 1 of y is NaN; dynfrsdb stores finite numbers only"),
    ],
)
def test_a_bad_argument_of_a_regression_is_named_too(bad: dict[str, Any], message: str) -> None:
    assert refusal(**(REGRESSION | bad)) == message


def test_what_no_argument_says_is_taken_from_the_samples_and_listed() -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0], "sex": [0, 1]})

    settings = Settings.make(X=frame, y=["yes", "no"], seed=1)

    assert (settings.n_features, settings.feature_names) == (2, ("age", "sex"))
    assert (settings.classes, settings.from_data) == (("no", "yes"), ("classes",))


def test_what_an_argument_says_is_not_taken_from_the_samples() -> None:
    settings = Settings.make(X=[[1.0]], y=["b"], classes=["b", "a"], seed=1)

    assert (settings.classes, settings.from_data) == (("b", "a"), ())


def test_samples_without_y_say_nothing_about_the_classes() -> None:
    assert refusal(X=[[1.0]]) == "the classes are not known; pass classes= or samples with their y"


def test_feature_names_give_the_number_of_features() -> None:
    assert Settings.make(feature_names=["a", "b", "c"], classes=[0, 1]).n_features == 3


@pytest.mark.parametrize(
    ("y", "offset", "step"),
    [
        ([1.0, -1.5], 0.0, 2.0**-35),
        ([0.75], 0.0, 2.0**-36),
        ([1000.0, 1001.0], 1000.0, 2.0**-35),
        ([5.0, 5.0], 5.0, 1.0),
        ([], 0.0, 1.0),
        ([1e-320], 0.0, 2.0**-1022),
    ],
)
def test_a_step_taken_from_targets_is_a_power_of_two_below_them(y: list[float], offset: float, step: float) -> None:
    settings = Settings.make(n_features=1, y=y, task="regression", target_offset=offset)

    assert (settings.target_step, settings.from_data) == (step, ("target_step",))


def test_classes_become_plain_python_values() -> None:
    settings = make(classes=[np.int8(3), np.str_("x"), np.float32(0.5), np.bool_(True), -0.0])

    assert [type(label) for label in settings.classes] == [int, str, float, bool, float]
    assert math.copysign(1.0, settings.classes[-1]) == 1.0  # type: ignore[arg-type]


def test_a_seed_is_told_apart_by_type_and_value() -> None:
    seeds = [1, -1, 2**200, "1", b"1", "1 ", "int:1", "\ud800"]

    assert len({make(seed=seed).seed for seed in seeds}) == len(seeds)
    assert all(len(make(seed=seed).seed) == 16 for seed in seeds)


def test_a_given_seed_always_becomes_the_same_bytes() -> None:
    assert make(seed=255).seed == hashlib.blake2b(b"int:ff", digest_size=16).digest()
    assert make(seed="ff").seed == hashlib.blake2b(b"str:ff", digest_size=16).digest()
    assert make(seed=b"ff").seed == hashlib.blake2b(b"bytes:ff", digest_size=16).digest()
    assert make(seed=np.int64(255)).seed == make(seed=255).seed


def test_no_seed_means_a_new_one_each_time() -> None:
    assert make(seed=None).seed != make(seed=None).seed


def test_the_seed_is_never_printed() -> None:
    settings = make(seed="correct horse")

    shown = repr(settings) + str(settings)

    assert "seed" not in shown
    assert "horse" not in shown
    assert repr(settings.seed) not in shown


@pytest.mark.parametrize(
    "settings",
    [
        make(),
        make(n_features=2, feature_names=["a", "b"], classes=[True, 2, 3.5, "x"], max_features=0.5, q=1, bucket=16),
        Settings.make(n_features=1, y=[1.5], task="regression", target_offset=3),
    ],
)
def test_settings_survive_the_store(settings: Settings) -> None:
    stored = msgpack.unpackb(msgpack.packb(settings.record()))

    back = Settings.from_record(stored | {"uuid": "added by the store"})

    assert back == settings
    assert back.canonical() == settings.canonical()


def test_the_record_has_what_storage_looks_for() -> None:
    record = make().record()

    assert (record["n_trees"], record["n_features"], len(record["seed"])) == (100, 14, 16)


def test_canonical_bytes_are_frozen() -> None:
    assert make().canonical().hex() == (
        "9c"  # an array of 12
        "ae636c617373696669636174696f6e"  # "classification"
        "a467696e69"  # "gini"
        "64" "0a" "04" "14" "14" "0a" "0e"  # n_trees, k, p, s, max_depth, min_samples_split, n_features
        "92a26e6fa3796573"  # ["no", "yes"]
        "cb0000000000000000"  # target_offset 0.0
        "cb3ff0000000000000"  # target_step 1.0
    )  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [{"seed": 2}, {"feature_names": list("abcdefghijklmn")}, {"bucket": 64}, {"q": 0.0999}],
)
def test_canonical_bytes_leave_out_what_f_does_not_read(other: dict[str, Any]) -> None:
    assert make(**other).canonical() == make().canonical()


@pytest.mark.parametrize(
    "other",
    [
        {"criterion": "entropy"},
        {"n_estimators": 99},
        {"q": 0.2},
        {"max_features": 5},
        {"n_thresholds": 21},
        {"max_depth": 21},
        {"min_samples_split": 11},
        {"n_features": 15},
        {"classes": ["yes", "no"]},
        {"classes": ["no", "yes", "maybe"]},
    ],
)
def test_canonical_bytes_tell_apart_whatever_f_reads(other: dict[str, Any]) -> None:
    assert make(**other).canonical() != make().canonical()


def test_classes_of_different_type_are_different_settings() -> None:
    spellings = {make(classes=classes).canonical() for classes in ([0, 1], [0.0, 1.0], [False, True], ["0", "1"])}

    assert len(spellings) == 4


def test_regression_targets_enter_the_canonical_bytes() -> None:
    first = Settings.make(**REGRESSION)

    assert Settings.make(**(REGRESSION | {"target_step": 0.25})).canonical() != first.canonical()
    assert Settings.make(**(REGRESSION | {"target_offset": 1})).canonical() != first.canonical()


def test_keys_are_those_of_algorithm_1() -> None:
    """Frozen vectors for the seed 00 01 .. 0f, computed with a blake2b written out from RFC 7693."""
    settings = Settings.from_record(make(n_estimators=3).record() | {"seed": bytes(range(16))})

    assert settings.occupancy_key() == OCCUPANCY_KEY
    assert settings.tree_keys().tolist() == TREE_KEYS
    assert settings.tree_keys().dtype == np.uint64


def test_secrets_differ_by_purpose_and_have_32_bytes() -> None:
    settings = make()

    assert len(settings.secret(b"subjects")) == 32
    assert settings.secret(b"subjects") != settings.secret(b"ledger")
    assert settings.secret(b"subjects") == hashlib.blake2b(b"subjects", key=settings.seed, digest_size=32).digest()
