"""Inputs: names and scaling survive sub-selection and nothing else; users' arrays stay theirs."""

import copy
import pickle
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr

from ardvark.errors import InputError, InputWarning
from ardvark.models.checks import as_inputs
from ardvark.models.data.datasets import load
from ardvark.models.inputs import Inputs, Scaling, scaled_like, standardise

RNG = np.random.default_rng(20)
TABLE = RNG.normal(3.0, 2.0, (12, 3))
NAMES = ("a", "b", "c")


@pytest.fixture
def X():
    return standardise(pd.DataFrame(TABLE, columns=list(NAMES)))


def plain(value):
    return type(value) is not Inputs


ACCEPTED = {
    "list": TABLE.tolist(),
    "tuple": tuple(map(tuple, TABLE)),
    "list of arrays": list(TABLE),
    "fortran": np.asfortranarray(TABLE),
    "strided": np.repeat(TABLE, 2, axis=1)[:, ::2],
    "frame": pd.DataFrame(TABLE),
    "matrix": np.asmatrix(TABLE),
}


@pytest.mark.parametrize("kind", ACCEPTED)
def test_whatever_holds_a_table_is_accepted(kind):
    inputs = as_inputs(ACCEPTED[kind])
    assert isinstance(inputs, Inputs) and inputs.flags.c_contiguous
    assert inputs.dtype == np.float64
    assert np.array_equal(inputs, TABLE)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64", "bool", ">f8"])
def test_every_real_dtype_becomes_float64(dtype):
    table = (TABLE > 3).astype(dtype)
    assert as_inputs(table).dtype == np.float64
    assert np.array_equal(as_inputs(table), TABLE > 3)


def test_mixed_frame_columns_become_numbers():
    frame = pd.DataFrame(
        {"i": [1, 2], "b": [True, False], "n": pd.array([3, 4], dtype="Int64"), "f": [0.5, 1.5]}
    )
    assert np.array_equal(as_inputs(frame), [[1, 1, 3, 0.5], [2, 0, 4, 1.5]])
    assert as_inputs(frame).feature_names == ("i", "b", "n", "f")


def test_the_users_array_is_neither_aliased_nor_changed():
    mine = TABLE.copy()
    mine.flags.writeable = False
    inputs = as_inputs(mine)
    inputs[0, 0] = 99.0
    assert not np.shares_memory(inputs, mine)
    assert np.array_equal(mine, TABLE)
    again = as_inputs(inputs)
    assert not np.shares_memory(again, inputs)


def test_default_names():
    assert as_inputs(TABLE).feature_names == ("x0", "x1", "x2")


@pytest.mark.parametrize(
    ("key", "names"),
    [
        (slice(2, 5), "abc"),
        (np.array([4, 1, 1]), "abc"),
        (TABLE[:, 0] > 3, "abc"),
        ((slice(None), [2, 0]), "ca"),
        ((slice(None), slice(1, None)), "bc"),
        ((Ellipsis, slice(None, None, -1)), "cba"),
        ((slice(None), np.array([True, False, True])), "ac"),
        (np.ix_([5, 0], [1, 2]), "bc"),
        ((slice(3, 4), slice(0, 1)), "a"),
    ],
)
def test_sub_tables_keep_their_names_and_scaling(X, key, names):
    part = X[key]
    assert part.feature_names == tuple(names)
    assert np.array_equal(part, np.asarray(X)[key])
    raw = part * part.scaling.scale + part.scaling.centre
    assert np.allclose(raw, TABLE[key], rtol=1e-14)


def test_a_key_that_scrambles_columns_gives_a_plain_array(X):
    rows, columns = np.array([[0, 1], [2, 3]]), np.array([[0, 1], [1, 0]])
    assert plain(X[rows, columns])
    assert np.array_equal(X[rows, columns], np.asarray(X)[rows, columns])


@pytest.mark.parametrize(
    "operation",
    [
        lambda X: X + 1,
        lambda X: -X,
        lambda X: X @ np.ones(3),
        lambda X: X.T @ X,
        lambda X: np.exp(X),
        lambda X: X.mean(axis=0),
        lambda X: X.sum(axis=1),
        lambda X: np.concatenate([X, X]),
        lambda X: np.linalg.svd(X)[0],
        lambda X: np.where(X > 0, X, 0.0),
        lambda X: X > 0,
        lambda X: X[:, 0],
        lambda X: X[0],
        lambda X: X[0, 0],
        lambda X: X[None],
        lambda X: X[X > 0],
        lambda X: np.asarray(X),
    ],
)
def test_what_is_no_sub_table_is_plain_and_right(X, operation):
    result = operation(X)
    assert plain(result)
    assert np.array_equal(result, operation(np.asarray(X)))


def test_arithmetic_in_place_forgets_the_names(X):
    X -= 1
    assert plain(X)


@pytest.mark.parametrize("view", [lambda X: X.T, lambda X: X.reshape(3, 12), lambda X: X.ravel()])
def test_views_of_another_layout_have_no_names(X, view):
    assert view(X).feature_names == () and view(X).scaling is None


@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, Inputs.copy, lambda X: pickle.loads(pickle.dumps(X))]
)
def test_copies_are_complete(X, clone):
    twin = clone(X)
    assert twin.feature_names == NAMES and twin.scaling.same_as(X.scaling)
    assert np.array_equal(twin, X) and not np.shares_memory(twin, X)


def test_a_repr_is_an_array_repr(X):
    assert repr(X).startswith("Inputs([[")


def test_standardise_gives_zero_mean_and_unit_sd(X):
    assert np.allclose(X.mean(axis=0), 0, atol=1e-14)
    assert np.allclose(X.std(axis=0), 1, rtol=1e-14)
    assert np.allclose(X.scaling.apply(TABLE), X, rtol=1e-14)


@pytest.mark.parametrize("rows", [np.arange(6), slice(0, 6), np.arange(12) < 6])
def test_statistics_come_from_the_training_rows(rows):
    X = standardise(TABLE, rows=rows)
    assert np.allclose(X[:6].mean(axis=0), 0, atol=1e-14)
    assert np.array_equal(X.scaling.centre, TABLE[:6].mean(axis=0))
    assert abs(X[6:].mean(axis=0)).max() > 1e-3


def test_standardising_twice_is_one_scaling_of_the_raw_rows(X):
    twice = standardise(X[:5])
    assert np.allclose(twice.scaling.apply(TABLE[:5]), twice, atol=1e-13)


def test_a_constant_column_is_centred_with_a_warning():
    table = np.column_stack([TABLE, np.full(12, 0.1)])
    with pytest.warns(InputWarning, match=r"constant columns.*'x3'") as caught:
        X = standardise(table)
    assert np.array_equal(X[:, 3], np.zeros(12))
    assert X.scaling.scale[3] == 1.0
    assert caught[0].filename == __file__


@pytest.mark.parametrize("rows", [[], 3, slice(0, 0)])
def test_rows_must_be_rows(rows):
    with pytest.raises(InputError, match="rows must select at least one row of X"):
        standardise(TABLE, rows=rows)


def test_raw_rows_are_scaled_like_the_model(X):
    assert np.allclose(scaled_like(TABLE, X.scaling, NAMES), X, rtol=1e-14)
    frame = pd.DataFrame(TABLE, columns=list(NAMES))
    assert np.allclose(scaled_like(frame, X.scaling, NAMES), X, rtol=1e-14)


def test_rows_on_the_models_scale_are_left_alone(X):
    part = scaled_like(X[3:7], X.scaling, NAMES)
    assert plain(part) and np.array_equal(part, np.asarray(X)[3:7])


def test_no_scaling_means_none():
    assert np.array_equal(scaled_like(TABLE, None, NAMES), TABLE)


@pytest.mark.parametrize("model_scaling", [None, Scaling(np.zeros(3), np.ones(3))])
def test_another_scaling_is_refused(X, model_scaling):
    with pytest.raises(InputError, match=r"X_new was standardised, but the model"):
        scaled_like(X, model_scaling, NAMES)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("ab", r"X_new has 2 columns, the model has 3: 'a', 'b', 'c'"),
        ("acb", r"another order: 'c' is where the model has 'b' \(column 1\)"),
        ("abz", r"other columns than the model: 'z' is where the model has 'c' \(column 2\)"),
    ],
)
def test_other_columns_are_refused(X, names, message):
    frame = pd.DataFrame(TABLE[:, : len(names)], columns=list(names))
    with pytest.raises(InputError, match=message):
        scaled_like(frame, X.scaling, NAMES)


def test_columns_without_names_go_by_position():
    frame = pd.DataFrame(TABLE, columns=list("pqr"))
    assert np.array_equal(scaled_like(frame, None, ("x0", "x1", "x2")), TABLE)
    assert np.array_equal(scaled_like(as_inputs(TABLE), None, NAMES), TABLE)


def test_selection_is_silent(X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert X[:, ["abc".index("b")]].feature_names == ("b",)


# --- tables of other libraries ----------------------------------------------------------------


def columns_of(names):
    return {name: TABLE[:, NAMES.index(name)] for name in names}


def as_data_array(names):
    values = np.column_stack(list(columns_of(names).values()))
    return xr.DataArray(values, dims=("case", "input"), coords={"input": list(names)})


def as_dataset(names):
    return xr.Dataset({name: ("case", values) for name, values in columns_of(names).items()})


TABLES = {
    "pandas": lambda names: pd.DataFrame(columns_of(names)),
    "polars": lambda names: pl.DataFrame(columns_of(names)),
    "pyarrow": lambda names: pa.table(columns_of(names)),
    "record batch": lambda names: pa.record_batch(columns_of(names)),
    "xarray coordinate": as_data_array,
    "xarray dataset": as_dataset,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_every_kind_of_table_keeps_its_names(table):
    """pyarrow and polars tables and coordinates of xarray lost their names."""
    inputs = as_inputs(table(NAMES))
    assert inputs.feature_names == NAMES
    assert np.array_equal(inputs, TABLE)
    assert standardise(table(NAMES)).feature_names == NAMES
    loaded = load(table(NAMES), target="b")
    assert loaded.feature_names == ("a", "c") and np.array_equal(loaded.t, TABLE[:, 1])


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_columns_in_another_order_are_refused_whatever_the_table(table, X):
    """Columns without names were taken by their place: a probability moved by 0.91."""
    assert np.allclose(scaled_like(table(NAMES), X.scaling, NAMES), X, rtol=1e-14)
    with pytest.raises(InputError, match="columns in another order: 'c' is where"):
        scaled_like(table(NAMES[::-1]), X.scaling, NAMES)


def test_an_xarray_without_a_coordinate_has_default_names():
    assert as_inputs(xr.DataArray(TABLE)).feature_names == ("x0", "x1", "x2")
    rows = xr.DataArray(TABLE, dims=("r", "c"), coords={"r": np.arange(12)})
    assert as_inputs(rows).feature_names == ("x0", "x1", "x2")


def test_columns_of_every_number_are_taken():
    one = [Decimal("1.5"), Decimal("2.5")]
    assert np.array_equal(
        as_inputs(pl.DataFrame({"d": one, "b": [True, False]})), [[1.5, 1], [2.5, 0]]
    )
    assert np.array_equal(as_inputs(pa.table({"d": one})), [[1.5], [2.5]])
    frame = pd.DataFrame({"s": pd.arrays.SparseArray([0.0, 1.0]), "l": np.ones(2, np.longdouble)})
    assert np.array_equal(as_inputs(frame), [[0, 1], [1, 1]])


BAD_TABLES = {
    "polars text": (pl.DataFrame({"a": [1], "b": ["u"]}), "'b' has dtype String with 'u' at row 0"),
    "arrow text": (pa.table({"a": [1], "b": ["u"]}), "'b' has dtype string with 'u' at row 0"),
    "polars lists": (pl.DataFrame({"a": [[1, 2]]}), r"'a' has dtype List\(Int64\)"),
    "polars null": (pl.DataFrame({"a": [1, None]}), "NaN at row 1, column 'a'"),
    "arrow null": (pa.table({"a": [1, None], "b": [1, 2]}), "NaN at row 1, column 'a'"),
    "arrow nulls": (pa.table({"a": [None, None]}), "'a' has dtype null with None at row 0"),
    "polars nulls": (pl.DataFrame({"a": [None, None]}), "NaN in every row of column 'a'"),
    "lazy": (pl.DataFrame({"a": [1]}).lazy(), r"X is a lazy table: give X.collect\(\)"),
    "arrow names twice": (
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
        r"two columns named 'a' \(columns 0 and 1\)",
    ),
    "xarray names twice": (
        xr.DataArray(np.ones((2, 2)), dims=("r", "c"), coords={"c": ["a", "a"]}),
        r"two columns named 'a' \(columns 0 and 1\)",
    ),
    "two dimensions": (
        xr.Dataset({"a": ("r", [1, 2]), "b": (("r", "q"), [[1], [2]])}),
        "X is an xarray Dataset with dimensions",
    ),
    "empty polars": (pl.DataFrame(), "X has 0 rows"),
    "series": (pl.Series([1, 2]), "X must have 2 dimensions"),
}


@pytest.mark.parametrize(("table", "message"), BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_bad_tables_are_refused_by_name(table, message):
    with pytest.raises(InputError, match=message):
        as_inputs(table)


@pytest.mark.parametrize("rows", ["x", [99]])
def test_rows_that_are_none_of_the_table_are_refused(rows):
    """These were IndexErrors."""
    with pytest.raises(InputError, match="rows does not select rows of X, which has 12"):
        standardise(TABLE, rows=rows)
