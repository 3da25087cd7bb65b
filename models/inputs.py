"""Input matrices that know their columns: `Inputs`, how anything becomes one, how it is scaled.

An `Inputs` is an (N, d) float array with `feature_names` and, once standardised, the `Scaling` that
made it. Sub-selection keeps both, arithmetic gives a plain array (the names would be a lie). Every
refusal is an `InputError` that names the argument and the first bad place; rows count from 0.
"""

import dataclasses
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ardvark.errors import InputError, InputWarning

__all__ = ["Array", "Inputs", "Scaling", "as_inputs", "scaled_like", "standardise"]

type Array = npt.NDArray[np.float64]

PACKAGE_FOLDER = os.path.dirname(__file__)


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """Column-wise shift and scale: x -> (x - centre) / scale."""

    centre: Array
    scale: Array

    def apply(self, X: npt.ArrayLike) -> Array:
        """Scale raw rows."""
        return (np.asarray(X, dtype=float) - self.centre) / self.scale

    def select(self, columns: npt.NDArray[np.intp]) -> "Scaling":
        """Give the scaling of some columns."""
        return Scaling(self.centre[columns], self.scale[columns])

    def then(self, later: "Scaling") -> "Scaling":
        """Give the one scaling that equals this one followed by `later`."""
        return Scaling(self.centre + self.scale * later.centre, self.scale * later.scale)

    def same_as(self, other: "Scaling | None") -> bool:
        """Tell whether both do the same to every column, to the last bit."""
        return other is not None and (
            np.array_equal(self.centre, other.centre) and np.array_equal(self.scale, other.scale)
        )


class Inputs(np.ndarray[tuple[int, ...], np.dtype[np.float64]]):
    """An (N, d) float64 array, C order, that remembers `feature_names` and `scaling`.

    `X[rows]` and `X[rows, columns]` keep (and sub-select) both. Whatever is no sub-table of X
    (a sum, one column, a product) is a plain array.
    """

    feature_names: tuple[str, ...]
    scaling: Scaling | None

    def __new__(
        cls,
        values: npt.ArrayLike,
        feature_names: Sequence[str] | None = None,
        scaling: Scaling | None = None,
    ) -> Self:
        """Copy the values of a table: nothing is checked here, `as_inputs` does that."""
        inputs = np.array(values, dtype=np.float64, order="C").view(cls)
        names = default_names(inputs.shape[1]) if feature_names is None else feature_names
        inputs.feature_names, inputs.scaling = tuple(names), scaling
        return inputs

    def __array_finalize__(self, source: Any) -> None:
        self.feature_names, self.scaling = (), None

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        kwargs = {key: _plain(value) for key, value in kwargs.items()}
        return getattr(ufunc, method)(*_plain(args), **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _plain(super().__array_function__(function, types, args, kwargs))

    def __getitem__(self, key: Any) -> Any:
        part = self.view(np.ndarray)[key]
        if self.ndim != 2 or np.ndim(part) != 2 or not len(part) or not self.feature_names:
            return part
        # The same key on a table of column numbers tells which column each value came from.
        columns = np.broadcast_to(np.arange(self.shape[1]), self.shape)[key]
        if not (columns == columns[0]).all():
            return part
        names = [self.feature_names[column] for column in columns[0]]
        return Inputs(part, names, self.scaling and self.scaling.select(columns[0]))

    def copy(self, order: Any = "C") -> Self:
        """Copy values, names and scaling."""
        return type(self)(self.view(np.ndarray), self.feature_names, self.scaling)

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Self:
        return self.copy()

    def __reduce__(self) -> Any:
        return type(self), (np.array(self), self.feature_names, self.scaling)


def _plain(value: Any) -> Any:
    """Strip the names off every `Inputs` in a value or a tuple or list of values."""
    if isinstance(value, Inputs):
        return value.view(np.ndarray)
    if hasattr(value, "_fields"):  # the named tuples of np.linalg
        return type(value)(*map(_plain, value))
    if type(value) in (tuple, list):
        return type(value)(map(_plain, value))
    return value


def default_names(n_columns: int) -> tuple[str, ...]:
    """Name columns that came without names: x0, x1, ..."""
    return tuple(f"x{column}" for column in range(n_columns))


def listed(names: Sequence[Any], limit: int = 5) -> str:
    """List a few names for a message."""
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def as_inputs(X: Any, *, argument: str = "X") -> Inputs:
    """Check a table of numbers (array, nested list, DataFrame, `Inputs`) and copy it.

    Raises
    ------
    InputError
        Names the argument and the first bad place.
    """
    scaling = None
    if _is_frame(X):
        _refuse_other_than_table(X, argument)
        names = tuple(str(name) for name in X.columns)
        values = _frame_values(X, names, argument)
    else:
        values = as_numeric(X, argument, _table_place, expected="an (N, d) table of numbers")
        _refuse_other_than_table(values, argument)
        names = default_names(values.shape[1])
        if isinstance(X, Inputs) and len(X.feature_names) == values.shape[1]:
            names, scaling = X.feature_names, X.scaling
    _refuse_repeated_names(names, argument)
    _refuse_non_finite_table(values, names, argument)
    return Inputs(values, names, scaling)


def standardise(data: Any, *, rows: Any = None) -> Any:
    """Centre each column and divide it by its standard deviation; `predict` remembers how.

    Parameters
    ----------
    data : table or Dataset
        A table gives `Inputs`, a Dataset gives a Dataset.
    rows : index array, mask or slice, optional
        The (training) rows that mean and standard deviation are taken from; all by default.

    A column that is constant in these rows is centred only, with an `InputWarning`.
    """
    if dataclasses.is_dataclass(data) and not isinstance(data, type) and hasattr(data, "X"):
        return dataclasses.replace(data, X=standardise(data.X, rows=rows))
    X = as_inputs(data)
    used = np.asarray(X) if rows is None else np.asarray(X)[rows]
    if used.ndim != 2 or not len(used):
        raise InputError(
            f"rows must select at least one row of X by an index array, a mask or a slice, "
            f"got {rows!r}."
        )
    constant = np.ptp(used, axis=0) == 0
    if constant.any():
        names = [name for name, flat in zip(X.feature_names, constant, strict=True) if flat]
        warn(f"X has constant columns, they are centred but not scaled: {listed(names)}.")
    scaling = Scaling(
        np.where(constant, used[0], used.mean(axis=0)), np.where(constant, 1.0, used.std(axis=0))
    )
    combined = scaling if X.scaling is None else X.scaling.then(scaling)
    return Inputs(scaling.apply(X), X.feature_names, combined)


def scaled_like(X_new: Any, scaling: Scaling | None, feature_names: Sequence[str]) -> Array:
    """Check new rows against a model's columns and put them on the model's scale.

    Rows that already carry this very scaling are left alone, all others are scaled. Columns are
    never re-ordered. Names are compared if both sides have names of their own.
    """
    X = as_inputs(X_new, argument="X_new")
    _refuse_other_columns(X.feature_names, tuple(feature_names))
    if X.scaling is None:
        return np.array(X) if scaling is None else scaling.apply(X)
    if not X.scaling.same_as(scaling):
        model = "raw inputs" if scaling is None else "inputs standardised with other statistics"
        raise InputError(
            f"X_new was standardised, but the model was built on {model}. Give raw rows, or rows "
            f"of the table the model was built on (np.asarray(X_new) forgets the scaling)."
        )
    return np.array(X)


def warn(message: str) -> None:
    """Issue an `InputWarning` that points at the caller's line outside this folder."""
    warnings.warn(message, InputWarning, skip_file_prefixes=(PACKAGE_FOLDER,))


# --- conversion to numbers -------------------------------------------------------------------


def as_numeric(values: Any, argument: str, place: Any, *, expected: str) -> Array:
    """Turn array-likes into float64 numbers of any shape, refusing what holds no real numbers."""
    array = as_array(values, argument, expected)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    if array.ndim == 0:
        raise InputError(f"{argument} must be {expected}, got {type(values).__name__}.")
    if array.size == 0:
        return np.empty(array.shape)  # no bad place: the shape is refused where it matters
    if array.dtype.kind in "OUS":
        # A list of mixed types has become strings: look at what was really given.
        given = np.array(values, dtype=object) if isinstance(values, list | tuple) else array
        for where, value in np.ndenumerate(given):
            if not is_number(value):
                raise InputError(
                    f"{argument} has {value!r} ({type(value).__name__}) at {place(where)}: "
                    f"{argument} must be {expected}."
                )
        raise InputError(
            f"{argument} has dtype {array.dtype} though every value is a number: "
            f"give {argument}.astype(float)."
        )
    raise InputError(f"{argument} has dtype {array.dtype}: {argument} must be {expected}.")


def as_array(values: Any, argument: str, expected: str) -> npt.NDArray[Any]:
    """Turn array-likes into an array, refusing None, sparse, masked and ragged ones."""
    if values is None:
        raise InputError(f"{argument} is None: {argument} must be {expected}.")
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        raise InputError(
            f"{argument} is sparse ({type(values).__name__}), sparse matrices are not supported: "
            f"give {argument}.toarray()."
        )
    if isinstance(values, np.ma.MaskedArray):
        masked = np.argwhere(np.ma.getmaskarray(values))
        first = f", the first at index {tuple(map(int, masked[0]))}" if len(masked) else ""
        raise InputError(
            f"{argument} is a masked array with {len(masked)} masked values{first}. Ardvark does "
            f"not impute: remove these rows, then give np.asarray({argument})."
        )
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        lengths = [np.size(row) if np.ndim(row) else "no" for row in _rows_of(values)]
        odd = next((row for row, length in enumerate(lengths) if length != lengths[0]), None)
        found = (
            f"row 0 has {lengths[0]} values, row {odd} has {lengths[odd]}"
            if odd is not None
            else str(error)
        )
        raise InputError(
            f"{argument} is ragged: {found}. {argument} must be {expected}."
        ) from error


def is_number(value: Any) -> bool:
    """Tell real numbers (with their NaN) from everything else."""
    return isinstance(value, int | float | np.integer | np.floating | np.bool_)


def _rows_of(values: Any) -> Iterator[Any]:
    for row in values:
        try:
            yield np.asarray(row)
        except (ValueError, TypeError):
            yield list(row)[:0]


def _is_frame(X: Any) -> bool:
    return all(hasattr(X, name) for name in ("columns", "dtypes", "iloc"))


def _frame_values(frame: Any, names: tuple[str, ...], argument: str) -> Array:
    """Turn a DataFrame into numbers, naming the first column that holds something else."""
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    values = np.empty(frame.shape)
    for column, name in enumerate(names):
        series = frame.iloc[:, column]
        if is_numeric_dtype(series.dtype) and not is_complex_dtype(series.dtype):
            values[:, column] = series.to_numpy(dtype=np.float64, na_value=np.nan)
            continue
        odd = next((row for row, value in enumerate(series) if not is_number(value)), None)
        found = "" if odd is None else f" with {series.iloc[odd]!r} at row {odd}"
        raise InputError(
            f"{argument} has a column that is not numeric: {name!r} has dtype {series.dtype}"
            f"{found}. Code it as numbers or drop it."
        )
    return values


# --- refusals --------------------------------------------------------------------------------


def _table_place(where: tuple[int, ...]) -> str:
    return f"row {where[0]}, column 'x{where[1]}'" if len(where) == 2 else f"index {where}"


def _refuse_other_than_table(values: Any, argument: str) -> None:
    advice = {0: "", 1: f" For one column give {argument}[:, None], for one row {argument}[None]."}
    if values.ndim != 2:
        raise InputError(
            f"{argument} must have 2 dimensions (rows, columns), got {values.ndim} with shape "
            f"{values.shape}.{advice.get(values.ndim, '')}"
        )
    for axis, name in enumerate(("rows", "columns")):
        if values.shape[axis] == 0:
            raise InputError(f"{argument} has 0 {name} (shape {values.shape}): it is empty.")


def _refuse_repeated_names(names: tuple[str, ...], argument: str) -> None:
    seen: dict[str, int] = {}
    for column, name in enumerate(names):
        if name in seen:
            raise InputError(
                f"{argument} has two columns named {name!r} (columns {seen[name]} and {column}): "
                f"rename or drop one."
            )
        seen[name] = column


def _refuse_non_finite_table(values: Array, names: tuple[str, ...], argument: str) -> None:
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    empty = np.flatnonzero(np.isnan(values).all(axis=0))
    if empty.size and len(values) > 1:
        raise InputError(
            f"{argument} has NaN in every row of column {names[empty[0]]!r}: drop the column."
        )
    row, column = np.argwhere(bad)[0]
    value = values[row, column]
    same = np.isnan(values) if np.isnan(value) else values == value
    raise InputError(
        f"{argument} has {'NaN' if np.isnan(value) else value} at row {row}, column "
        f"{names[column]!r} ({np.count_nonzero(same)} such value"
        f"{'s' if np.count_nonzero(same) > 1 else ''}). Remove or impute the row: Ardvark does "
        f"not impute."
    )


def _refuse_other_columns(names: tuple[str, ...], expected: tuple[str, ...]) -> None:
    if len(names) != len(expected):
        raise InputError(
            f"X_new has {len(names)} columns, the model has {len(expected)}: {listed(expected)}."
        )
    unnamed = default_names(len(names))
    if names == expected or unnamed in (names, expected):
        return
    column = next(i for i, pair in enumerate(zip(names, expected, strict=True)) if len({*pair}) > 1)
    found = f"{names[column]!r} is where the model has {expected[column]!r} (column {column})"
    if set(names) == set(expected):
        raise InputError(
            f"X_new has the model's columns in another order: {found}. Columns are never "
            f"re-ordered silently: give X_new[list(feature_names)]."
        )
    raise InputError(f"X_new has other columns than the model: {found}.")
