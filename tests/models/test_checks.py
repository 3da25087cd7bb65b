"""Bad inputs are refused by name and place; legal oddities are warned about by name."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from ardvark.errors import InputError, InputWarning
from ardvark.models.checks import (
    as_binary,
    as_classes,
    as_inputs,
    as_precisions,
    as_seed,
    as_target,
    one_of,
    positive,
    positive_integer,
    some_seed,
    target_scale,
    warn_about_columns,
)

RNG = np.random.default_rng(21)
TABLE = RNG.normal(size=(5, 3))
BITS = np.array([0, 1, 1, 0, 1])


def table_with(value, row=3, column=2):
    table = TABLE.copy()
    table[row, column] = value
    return table


def frame_with(name, column):
    return pd.DataFrame(TABLE, columns=["a", "b", "c"]).assign(**{name: column})


BAD_INPUTS = {
    "none": (None, "X is None"),
    "scalar": (3.0, "X must have 2 dimensions .* got 0"),
    "string": ("abc", "X must be .*table of numbers, got str"),
    "dict": ({"a": 1}, "X must be .*table of numbers, got dict"),
    "one dimension": (TABLE[:, 0], r"X must have 2 dimensions .* got 1 .*X\[:, None\]"),
    "three dimensions": (TABLE[None], r"X must have 2 dimensions .* shape \(1, 5, 3\)"),
    "no rows": (TABLE[:0], r"X has 0 rows \(shape \(0, 3\)\)"),
    "no columns": (TABLE[:, :0], r"X has 0 columns \(shape \(5, 0\)\)"),
    "empty list": ([], "X must have 2 dimensions"),
    "empty frame": (pd.DataFrame(), "X has 0 rows"),
    "nan": (table_with(np.nan), r"X has NaN at row 3, column 'x2' \(1 such value\)"),
    "inf": (table_with(np.inf), r"X has inf at row 3, column 'x2' \(1 such value\)"),
    "minus inf": (table_with(-np.inf, 0, 1), "X has -inf at row 0, column 'x1'"),
    "float32 nan": (table_with(np.nan).astype("float32"), "X has NaN at row 3, column 'x2'"),
    "all-nan column": (frame_with("b", np.nan), "X has NaN in every row of column 'b'"),
    "nan in a frame": (
        frame_with("b", [1, np.nan, 2, np.nan, 3]),
        r"X has NaN at row 1, column 'b' \(2 such values\)",
    ),
    "NA in a frame": (
        frame_with("b", pd.array([1, 2, None, 4, 5], dtype="Int64")),
        "X has NaN at row 2, column 'b'",
    ),
    "object": (TABLE.astype(object), r"X has dtype object .* give X.astype\(float\)"),
    "none inside": ([[1.0, 2.0], [None, 3.0]], r"X has None \(NoneType\) at row 1, column 'x0'"),
    "string inside": ([[1, 2], [3, "a"]], r"X has 'a' \(str\) at row 1, column 'x1'"),
    "strings": (np.array([["a", "b"]]), "X has .*'a'.* at row 0, column 'x0'"),
    "string column": (
        frame_with("b", ["u", "v", "w", "x", "y"]),
        "X has a column that is not numeric: 'b' .* with 'u' at row 0",
    ),
    "mixed column": (
        frame_with("c", [1, 2, "?", 4, 5]),
        r"X has a column that is not numeric: 'c' .* with '\?' at row 2",
    ),
    "category column": (
        frame_with("c", pd.Categorical(list("uvuvu"))),
        "X has a column that is not numeric: 'c' has dtype category with 'u' at row 0",
    ),
    "complex": (TABLE.astype(complex), "X has dtype complex128"),
    "complex column": (frame_with("a", np.full(5, 1j)), "not numeric: 'a' has dtype complex128"),
    "datetime": (np.full((2, 2), np.datetime64("2020-01-01")), "X has dtype datetime64"),
    "datetime column": (
        frame_with("a", pd.date_range("2020-01-01", periods=5)),
        "not numeric: 'a' has dtype datetime64.* at row 0",
    ),
    "date objects": (
        [[1.0, datetime.date(2020, 1, 1)]],
        r"X has datetime.date\(2020, 1, 1\) \(date\) at row 0, column 'x1'",
    ),
    "masked": (
        np.ma.masked_invalid(table_with(np.nan)),
        r"X is a masked array with 1 masked values, the first at index \(3, 2\)",
    ),
    "ragged": ([[1, 2], [3, 4, 5]], "X is ragged: row 0 has 2 values, row 1 has 3"),
    "ragged depth": ([[1, 2], 3], "X is ragged: row 0 has 2 values, row 1 has no"),
    "sparse matrix": (scipy.sparse.csr_matrix(TABLE), r"X is sparse .* give X.toarray\(\)"),
    "sparse array": (scipy.sparse.coo_array(TABLE), r"X is sparse .* give X.toarray\(\)"),
    "duplicate names": (
        pd.DataFrame(TABLE, columns=["a", "b", "a"]),
        r"X has two columns named 'a' \(columns 0 and 2\)",
    ),
    "names equal as text": (
        pd.DataFrame(TABLE, columns=[0, "0", 1]),
        r"X has two columns named '0' \(columns 0 and 1\)",
    ),
    "structured": (np.zeros(3, dtype=[("a", float)]), "X has dtype"),
}


@pytest.mark.parametrize("kind", BAD_INPUTS)
def test_bad_inputs(kind):
    value, message = BAD_INPUTS[kind]
    with pytest.raises(InputError, match=message):
        as_inputs(value)


def test_the_argument_goes_by_its_own_name():
    with pytest.raises(InputError, match="X_new has NaN at row 3"):
        as_inputs(table_with(np.nan), argument="X_new")


BAD_LABELS = {
    "none": (None, "t is None"),
    "scalar": (1, "t must be one class label per row, got int"),
    "string": ("abcde", "t must be one class label per row, got str"),
    "too short": (BITS[:4], "t has 4 values, X has 5 rows"),
    "too long": ([0, 1, 0, 1, 0, 1], "t has 6 values, X has 5 rows"),
    "empty": ([], "t is empty"),
    "two dimensions": (BITS[:, None], r"t must have 1 dimension .* \(5, 1\).*t.ravel\(\)"),
    "one-hot": (np.eye(5)[:, :2], r"t must have 1 dimension .* shape \(5, 2\)\.$"),
    "one-column frame": (pd.DataFrame({"t": BITS}), "t must have 1 dimension"),
    "nan": ([0, 1, np.nan, 0, np.nan], r"t has a missing label at row 2 \(2 such values\)"),
    "none inside": (["a", "b", None, "a", "b"], "t has a missing label at row 2"),
    "NA inside": (pd.Series([0, 1, 1, 0, None], dtype="Int64"), "missing label at row 4"),
    "one class": (np.ones(5, int), r"t has one class only \(1, 5 rows\)"),
    "fractions": ([0.2, 0.7, 0.2, 0.7, 0.7], "t has 0.2 at row 0, which is no class label"),
    "late fraction": ([0, 1, 1, 0.5, 0], "t has 0.5 at row 3, which is no class label"),
    "inf": ([0, 1, np.inf, 0, 1], "t has inf at row 2, which is no class label"),
    "three classes": (
        [0, 1, 2, 0, 1],
        r"t has 3 classes .*this model takes two\. Merge them into two",
    ),
    "mixed types": ([0, 1, "a", 0, 1], r"t has 'a' \(str\) at row 2: labels are all"),
    "complex": (BITS.astype(complex), "t has dtype complex128"),
    "datetime": (np.full(5, np.datetime64("2020")), "t has dtype datetime64"),
    "masked": (np.ma.masked_equal(BITS, 0), "t is a masked array with 2 masked values"),
    "ragged": ([0, [1, 2], 0, 1, 1], "t is ragged"),
    "sparse": (scipy.sparse.csr_array(BITS), "t is sparse"),
}


@pytest.mark.parametrize("kind", BAD_LABELS)
def test_bad_binary_labels(kind):
    value, message = BAD_LABELS[kind]
    with pytest.raises(InputError, match=message):
        as_binary(value, 5)


def test_one_row_has_one_class():
    with pytest.raises(InputError, match="t has one class only"):
        as_binary([1], 1)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (BITS, [0, 1]),
        (BITS.tolist(), [0, 1]),
        (2.0 * BITS - 1, [-1, 1]),
        (BITS.astype(bool), [False, True]),
        (BITS.astype(bool).astype(object), [False, True]),
        (np.array(["m", "w"])[BITS], ["m", "w"]),
        (["m", "w", "w", "m", "w"], ["m", "w"]),
        (pd.Series(["m", "w", "w", "m", "w"], index=range(5, 10)), ["m", "w"]),
        (pd.Categorical(["m", "w", "w", "m", "w"], categories=["w", "m"]), ["m", "w"]),
        (pd.array(BITS, dtype="Int64"), [0, 1]),
        (BITS.astype(np.uint8), [0, 1]),
    ],
)
def test_two_classes_are_coded_in_unique_order(labels, classes):
    codes, found = as_binary(labels, 5)
    assert np.array_equal(codes, BITS) and codes.dtype == np.int64
    assert found.tolist() == classes


def test_several_classes_and_unlabelled_rows():
    codes, classes = as_classes(["b", None, "c", "a", np.nan], 5, unlabelled=True)
    assert codes.tolist() == [1, -1, 2, 0, -1] and classes.tolist() == ["a", "b", "c"]
    codes, classes = as_classes([3, np.nan, 7.0], 3, unlabelled=True)
    assert codes.tolist() == [0, -1, 1] and classes.tolist() == [3, 7]
    with pytest.raises(InputError, match="t has no label at all"):
        as_classes([np.nan, np.nan], 2, unlabelled=True)
    with pytest.raises(InputError, match="t has a missing label at row 1"):
        as_classes([3, np.nan, 7.0], 3)


BAD_TARGETS = {
    "none": (None, "t is None"),
    "strings": (["a", "b", "c", "d", "e"], r"t has 'a' \(str\) at row 0: a regression target"),
    "string array": (np.array(list("abcde")), "t has .*'a'.* at row 0: a regression target"),
    "late string": ([1.0, 2.0, 3.0, "x", 5.0], "t has 'x' .* at row 3"),
    "nan": ([1, 2, np.nan, 4, 5], r"t has NaN at row 2 \(1 such value not finite\)"),
    "none inside": ([1.0, None, 3.0, 4.0, 5.0], "t has NaN at row 1"),
    "inf": ([1, np.inf, -np.inf, 4, 5], r"t has inf at row 1 \(2 such values not finite\)"),
    "two dimensions": (TABLE, "t must have 1 dimension"),
    "length": ([1.0], "t has 1 values, X has 5 rows"),
    "complex": (np.ones(5, complex), "t has dtype complex128"),
    "timedelta": (np.ones(5, "timedelta64[s]"), "t has dtype timedelta64"),
    "empty": (np.array([]), "t is empty"),
}


@pytest.mark.parametrize("kind", BAD_TARGETS)
def test_bad_regression_targets(kind):
    value, message = BAD_TARGETS[kind]
    with pytest.raises(InputError, match=message):
        as_target(value, 5)


@pytest.mark.parametrize(
    "target", [[1, 2], np.array([1, 2], np.float32), pd.Series([1, 2]), np.array([1, 2], object)]
)
def test_targets_become_new_float64_arrays(target):
    found = as_target(target, 2)
    assert found.dtype == np.float64 and found.tolist() == [1.0, 2.0]
    assert not np.shares_memory(found, np.asarray(target))


def test_one_row_is_enough_for_a_regression():
    assert as_target([2.5], 1).tolist() == [2.5] and as_inputs([[1.0]]).shape == (1, 1)


WEIGHTS = ("bias", "x0", "x1")


@pytest.mark.parametrize(
    ("alpha", "message"),
    [
        ([1.0, 2.0], r"alpha has shape \(2,\), there are 3 weights \('bias', 'x0', 'x1'\)"),
        (np.ones((3, 1)), r"alpha has shape \(3, 1\)"),
        ([1.0, -1.0, 2.0], r"alpha is -1.0 at index 1 \(weight 'x0'\)"),
        ([1.0, 2.0, 0.0], r"alpha is 0.0 at index 2 \(weight 'x1'\)"),
        ([np.nan, 2.0, 1.0], r"alpha is nan at index 0 \(weight 'bias'\)"),
        (["a", 1.0, 2.0], r"alpha has 'a' \(str\) at index 0"),
        (None, "alpha is None"),
    ],
)
def test_bad_precisions(alpha, message):
    with pytest.raises(InputError, match=message):
        as_precisions(alpha, WEIGHTS)


def test_precisions():
    assert as_precisions([1, np.inf, 2], WEIGHTS).tolist() == [1.0, np.inf, 2.0]
    assert as_precisions(3, WEIGHTS).tolist() == [3.0] * 3


@pytest.mark.parametrize("value", [-1.0, 0, np.nan, np.inf, "1", None, True, [1.0], 1j])
def test_a_scale_is_a_positive_number(value):
    with pytest.raises(InputError, match="noise must be a finite number > 0, got"):
        positive(value, "noise")
    assert positive(np.float32(2), "noise") == 2.0


@pytest.mark.parametrize("value", [0, -3, 2.0, np.nan, "5", None, True])
def test_a_count_is_a_positive_integer(value):
    with pytest.raises(InputError, match="draws must be an integer >= 1, got"):
        positive_integer(value, "draws")
    assert positive_integer(np.int64(7), "draws") == 7


@pytest.mark.parametrize("value", ["a", -1, 1.5, True, 2**63, np.random.RandomState(0), [1]])
def test_a_seed_is_none_or_an_integer(value):
    with pytest.raises(InputError, match=r"random_seed must be None, an integer .*Generator"):
        as_seed(value)
    assert as_seed(None) is None and as_seed(np.uint32(5)) == 5


def test_a_generator_is_a_seed():
    """It was refused, though PyMC takes it."""
    one, two = (np.random.default_rng(3) for _ in range(2))
    first = as_seed(one)
    assert isinstance(first, int) and 0 <= first < 2**32
    assert first == as_seed(two) and first != as_seed(one)  # it moves on
    source = np.random.SeedSequence(5)
    assert as_seed(source) == as_seed(source) == as_seed(np.random.SeedSequence(5))
    assert as_seed(source) != as_seed(np.random.SeedSequence(6))
    assert some_seed(7) == 7 and some_seed(None) != some_seed(None)


@pytest.mark.parametrize("value", ["probti", None, 3, ["probit"]])
def test_unknown_names_list_the_known_ones(value):
    with pytest.raises(InputError, match="link must be one of 'probit', 'logit', got"):
        one_of(value, ("probit", "logit"), "link")
    assert one_of("logit", ("probit", "logit"), "link") == "logit"


def test_a_near_miss_is_suggested():
    with pytest.raises(InputError, match="Did you mean 'probit'"):
        one_of("probti", {"probit": 1, "logit": 2}, "link")


def warnings_about(table):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_about_columns(as_inputs(table))
    assert all(record.category is InputWarning for record in caught)
    return [str(record.message) for record in caught]


def test_ordinary_columns_are_not_warned_about():
    assert warnings_about(TABLE) == []
    assert warnings_about(TABLE[:1]) == []


def test_constant_columns_are_named():
    (message,) = warnings_about(np.column_stack([TABLE, np.full(5, 0.1), np.zeros(5)]))
    assert "constant columns" in message and "'x3', 'x4'" in message


def test_duplicate_columns_are_named_with_their_twin():
    table = np.column_stack([TABLE, TABLE[:, 1]])
    (message,) = warnings_about(table)
    assert "duplicate columns" in message and "x3 = x1" in message
    zeros = np.array([0.0, 1, 2, 3, 4])
    assert "x1 = x0" in warnings_about(np.column_stack([zeros, np.where(zeros, zeros, -0.0)]))[0]


@pytest.mark.parametrize(
    ("factor", "said"),
    [(1e1, None), (1e6, "very different"), (1e50, "far from unit"), (1e-50, "far from unit")],
)
def test_wild_scales_are_named(factor, said):
    messages = warnings_about(TABLE * [1.0, 1.0, factor])
    assert len(messages) == (said is not None)
    assert all(f"{said} scale" in text and "'x2'" in text for text in messages)


def test_long_lists_are_cut():
    assert "and 15 more" in warnings_about(np.column_stack([TABLE[:, :1], np.ones((5, 20))]))[0]


def test_a_constant_target_has_the_target_scale_its_size():
    """The sd of 0.1, 0.1, ... is 1e-17, which is no scale of anything."""
    assert target_scale(np.full(24, 0.1)) == 0.1
    assert target_scale(np.zeros(3)) == 1.0
    assert target_scale(np.array([1.0, 3.0])) == 1.0
