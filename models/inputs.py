"""Input matrices that know their columns: `Inputs`, how anything becomes one, how it is scaled.

An `Inputs` is an (N, d) float array with `feature_names` and, once standardised, the `Scaling` that
made it. Sub-selection keeps both, arithmetic gives a plain array (the names would be wrong). Every
refusal is an `InputError` that names the argument and the first bad place; rows count from 0.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ardvark.errors import InputError
from ardvark.models.tables import (
    Array,
    as_frame,
    as_numeric,
    default_names,
    frame_values,
    listed,
    refuse_control_characters,
    refuse_huge_values,
    refuse_non_finite_table,
    refuse_other_columns,
    refuse_other_than_table,
    refuse_repeated_names,
    table_place,
    warn,
)

__all__ = ["Array", "Inputs", "Scaling", "as_inputs", "scaled_like", "standardise"]


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """Column-wise shift and scale: x -> (x - centre) / scale."""

    centre: Array
    scale: Array

    def apply(self, X: npt.ArrayLike) -> Array:
        """Scale raw rows."""
        return (np.asarray(X, dtype=float) - self.centre) / self.scale

    def select(self, columns: npt.NDArray[np.intp]) -> "Scaling":
        """Return the scaling of some columns."""
        return Scaling(self.centre[columns], self.scale[columns])

    def then(self, later: "Scaling") -> "Scaling":
        """Return the one scaling that equals this one followed by `later`."""
        return Scaling(self.centre + self.scale * later.centre, self.scale * later.scale)

    def same_as(self, other: "Scaling | None") -> bool:
        """Whether both are the same for every column, to the last bit."""
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
        # The same key on a table of column numbers shows which column each value came from.
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


def as_inputs(X: Any, *, argument: str = "X") -> Inputs:
    """Check a table of numbers (array, nested list, DataFrame, `Inputs`) and copy it.

    The names of its columns are those of a pandas, polars, pyarrow or modin table, of an xarray
    Dataset's variables, or the coordinate of an xarray DataArray's second dimension.

    Raises
    ------
    InputError
        Names the argument and the first bad place.
    """
    scaling = None
    frame = as_frame(X, argument)
    if frame is not None:
        refuse_other_than_table(frame.shape, argument)
        names = tuple(str(name) for name in frame.columns)
        values = frame_values(frame, names, argument)
    else:
        values = as_numeric(X, argument, table_place, expected="an (N, d) table of numbers")
        refuse_other_than_table(values.shape, argument)
        names = default_names(values.shape[1])
        if isinstance(X, Inputs) and len(X.feature_names) == values.shape[1]:
            names, scaling = X.feature_names, X.scaling
    refuse_repeated_names(names, argument)
    refuse_control_characters(names, argument)
    refuse_non_finite_table(values, names, argument)
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
    try:
        used = np.asarray(X) if rows is None else np.asarray(X)[rows]
    except IndexError as error:
        raise InputError(f"rows does not select rows of X, which has {len(X)}: {error}.") from error
    if used.ndim != 2 or not len(used):
        raise InputError(
            f"rows must select at least one row of X by an index array, a mask or a slice, "
            f"got {rows!r}."
        )
    constant = np.ptp(used, axis=0) == 0
    if constant.any():
        names = [name for name, flat in zip(X.feature_names, constant, strict=True) if flat]
        warn(f"X has constant columns, they are centred but not scaled: {listed(names)}.")
    unit = _units(used)
    scaling = Scaling(
        np.where(constant, used[0], (used / unit).mean(axis=0) * unit),
        np.where(constant, 1.0, (used / unit).std(axis=0) * unit),
    )
    combined = scaling if X.scaling is None else X.scaling.then(scaling)
    return Inputs(scaling.apply(X), X.feature_names, combined)


def _units(values: Array) -> Array:
    """A power of two near the size of columns whose squares leave double precision, else 1."""
    size = np.abs(values).max(axis=0)
    extreme = (size > 1e100) | ((size > 0) & (size < 1e-100))
    return np.where(extreme, np.exp2(np.frexp(size)[1].clip(-1020, 1020)), 1.0)


def scaled_like(X_new: Any, scaling: Scaling | None, feature_names: Sequence[str]) -> Array:
    """Check new rows against a model's columns and put them on the model's scale.

    Rows that already carry this very scaling are left alone, all others are scaled. Columns are
    never re-ordered. Names are compared if both sides have names of their own.
    """
    X = as_inputs(X_new, argument="X_new")
    refuse_other_columns(X.feature_names, tuple(feature_names))
    if X.scaling is None:
        rows = np.array(X) if scaling is None else scaling.apply(X)
        refuse_huge_values(rows, tuple(feature_names), "X_new")
        return rows
    if not X.scaling.same_as(scaling):
        model = "raw inputs" if scaling is None else "inputs standardised with other statistics"
        raise InputError(
            f"X_new was standardised, but the model was built on {model}. Give raw rows, or rows "
            f"of the table the model was built on (np.asarray(X_new) forgets the scaling)."
        )
    return np.array(X)
