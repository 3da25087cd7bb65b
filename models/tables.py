"""From anything to a table of finite numbers, or a refusal that names the first bad place.

Every refusal is an `InputError` that names the argument; rows count from 0.
"""

import os
import sys
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ardvark.errors import InputError, InputWarning

__all__ = [
    "Array",
    "as_array",
    "as_frame",
    "as_numeric",
    "default_names",
    "frame_values",
    "is_extreme",
    "is_number",
    "listed",
    "refuse_control_characters",
    "refuse_extreme_scales",
    "refuse_huge_values",
    "refuse_non_finite_table",
    "refuse_other_columns",
    "refuse_other_than_table",
    "refuse_repeated_names",
    "table_place",
    "warn",
]

type Array = npt.NDArray[np.float64]

EXTREME = 1e60  # beyond it, either way, fourth powers summed over rows leave double precision
_CHANGE_UNIT = "Change its unit, or use ardvark.standardise."
PACKAGE_FOLDER = os.path.dirname(__file__)
BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # turn text around


def warn(message: str) -> None:
    """Issue an `InputWarning` that points at the caller's line outside this folder."""
    warnings.warn(message, InputWarning, skip_file_prefixes=(PACKAGE_FOLDER,))


def listed(names: Sequence[Any], limit: int = 5) -> str:
    """List a few names for a message."""
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def default_names(n_columns: int) -> tuple[str, ...]:
    """Name columns that came without names: x0, x1, ..."""
    return tuple(f"x{column}" for column in range(n_columns))


# --- conversion to numbers -----------------------------------------------------------------


def as_numeric(values: Any, argument: str, place: Any, *, expected: str) -> Array:
    """Turn array-likes into float64 numbers of any shape, refusing what is not real numbers."""
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
    """Whether values are real numbers, NaN included."""
    return isinstance(value, int | float | np.integer | np.floating | np.bool_)


def _rows_of(values: Any) -> Iterator[Any]:
    for row in values:
        try:
            yield np.asarray(row)
        except (ValueError, TypeError):
            yield list(row)[:0]


# --- tables that know their columns ----------------------------------------------------------


def as_frame(values: Any, argument: str) -> Any:
    """Return a table with names, of whatever library, as a narwhals DataFrame; None for all else.

    pandas, polars, pyarrow, modin and what else narwhals knows; an xarray Dataset of columns; an
    xarray DataArray whose second dimension has a coordinate, which is then the names.
    """
    if values is None or isinstance(values, np.ndarray | list | tuple | str):
        return None
    import narwhals.stable.v2 as nw

    native = _as_known_table(values, argument)
    try:
        frame = nw.from_native(native, pass_through=True)
        named = isinstance(frame, nw.DataFrame) and frame.columns is not None
    except nw.exceptions.DuplicateError:
        names = native.column_names if hasattr(native, "column_names") else native.columns
        refuse_repeated_names(tuple(map(str, names)), argument)
        raise
    if isinstance(frame, nw.LazyFrame):
        raise InputError(f"{argument} is a lazy table: give {argument}.collect().")
    return frame if named else None


def _as_known_table(values: Any, argument: str) -> Any:
    """Convert a table that narwhals does not know; other values are returned unchanged."""
    xarray, pyarrow = sys.modules.get("xarray"), sys.modules.get("pyarrow")  # None: not theirs
    if pyarrow is not None and isinstance(values, pyarrow.RecordBatch):
        return pyarrow.Table.from_batches([values])
    if xarray is None:
        return values
    if isinstance(values, xarray.Dataset):
        if len(values.sizes) != 1 or any(v.ndim != 1 for v in values.data_vars.values()):
            raise InputError(
                f"{argument} is an xarray Dataset with dimensions {dict(values.sizes)}: as a table "
                f"it must have variables of one and the same dimension, the columns."
            )
        return values.reset_coords(drop=True).to_dataframe()
    named = isinstance(values, xarray.DataArray) and values.ndim == 2
    return values.to_pandas() if named and values.dims[1] in values.coords else values


def frame_values(frame: Any, names: tuple[str, ...], argument: str) -> Array:
    """Turn a narwhals DataFrame into numbers, naming the first column that holds something else."""
    values = np.empty(frame.shape)
    for column, (name, series) in enumerate(zip(names, frame.iter_columns(), strict=True)):
        numbers = _numbers(series)
        if numbers is None:
            raise InputError(
                f"{argument} has a column that is not numeric: {name!r} has {_what_is_odd(series)}."
                f" Code it as numbers or drop it."
            )
        values[:, column] = numbers
    return values


def _numbers(series: Any) -> npt.NDArray[Any] | None:
    """Return the real numbers of a column with NaN for what is missing; None if it has others."""
    import narwhals.stable.v2 as nw

    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        return np.asarray(series.cast(nw.Float64).to_numpy())
    if series.dtype != nw.Unknown:
        return None
    values = np.asarray(series.to_numpy())  # long doubles, sparse columns, polars' all-null
    return values if values.dtype.kind in "biuf" else None


def _what_is_odd(series: Any) -> str:
    native = series.to_native()
    values = series.to_list()
    odd = next((row for row, value in enumerate(values) if not is_number(value)), None)
    kind = native.dtype if hasattr(native, "dtype") else native.type
    return f"dtype {kind}" + ("" if odd is None else f" with {values[odd]!r} at row {odd}")


# --- refusals --------------------------------------------------------------------------------


def table_place(where: tuple[int, ...]) -> str:
    """The place of a value in a table without names."""
    return f"row {where[0]}, column 'x{where[1]}'" if len(where) == 2 else f"index {where}"


def refuse_other_than_table(shape: tuple[int, ...], argument: str) -> None:
    """Refuse a shape that has not two dimensions, or no rows, or no columns."""
    advice = {0: "", 1: f" For one column give {argument}[:, None], for one row {argument}[None]."}
    if len(shape) != 2:
        raise InputError(
            f"{argument} must have 2 dimensions (rows, columns), got {len(shape)} with shape "
            f"{shape}.{advice.get(len(shape), '')}"
        )
    for axis, name in enumerate(("rows", "columns")):
        if shape[axis] == 0:
            raise InputError(f"{argument} has 0 {name} (shape {shape}): it is empty.")


def refuse_repeated_names(names: tuple[str, ...], argument: str) -> None:
    """Refuse two columns of one name."""
    seen: dict[str, int] = {}
    for column, name in enumerate(names):
        if name in seen:
            raise InputError(
                f"{argument} has two columns named {name!r} (columns {seen[name]} and {column}): "
                f"rename or drop one."
            )
        seen[name] = column


def refuse_control_characters(names: Sequence[str], argument: str) -> None:
    """Refuse names that would steer a terminal or a page instead of being shown."""
    for column, name in enumerate(names):
        bad = (unicodedata.category(c) in ("Cc", "Zl", "Zp") or c in BIDI for c in name)
        if not name.isprintable() and any(bad):
            raise InputError(
                f"{argument} has a control character in the name of column {column}, {name!a}: "
                f"rename it."
            )


def refuse_non_finite_table(values: Array, names: tuple[str, ...], argument: str) -> None:
    """Refuse NaN and infinities, naming the first."""
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


def is_extreme(size: Any) -> Any:
    """Which sizes have powers whose sum over rows overflows or underflows."""
    return (size > EXTREME) | ((size > 0) & (size < 1 / EXTREME))


def refuse_extreme_scales(values: Array, names: tuple[str, ...], argument: str) -> None:
    """Refuse columns so large or so small that their powers overflow or vanish."""
    sizes = np.abs(values).max(axis=0)
    small = np.flatnonzero((sizes > 0) & (sizes < 1 / EXTREME))
    if small.size:
        raise InputError(
            f"{argument} has a column {names[small[0]]!r} of size {sizes[small[0]]:.3g}: its "
            f"powers leave double precision. {_CHANGE_UNIT}"
        )
    refuse_huge_values(values, names, argument)


def refuse_huge_values(values: Array, names: tuple[str, ...], argument: str) -> None:
    """Refuse values whose powers, summed over rows, overflow; new rows may well be small."""
    bad = np.argwhere(np.abs(values) > EXTREME)
    if bad.size:
        row, column = bad[0]
        raise InputError(
            f"{argument} has {values[row, column]:.3g} at row {row}, column {names[column]!r}: "
            f"powers and sums of such numbers leave double precision. {_CHANGE_UNIT}"
        )


def refuse_other_columns(
    names: tuple[str, ...], expected: tuple[str, ...], argument: str = "X_new"
) -> None:
    """Refuse new rows whose columns are not those of the model, in its order."""
    if len(names) != len(expected):
        raise InputError(
            f"{argument} has {len(names)} columns, the model has {len(expected)}: "
            f"{listed(expected)}."
        )
    unnamed = default_names(len(names))
    permuted = set(names) == set(expected) and names != expected
    if not permuted and (names == expected or unnamed in (names, expected)):
        return
    column = next(i for i, pair in enumerate(zip(names, expected, strict=True)) if len({*pair}) > 1)
    found = f"{names[column]!r} is where the model has {expected[column]!r} (column {column})"
    if permuted:
        raise InputError(
            f"{argument} has the model's columns in another order: {found}. Columns are never "
            f"re-ordered silently: give {argument}[list(feature_names)]."
        )
    raise InputError(f"{argument} has other columns than the model: {found}.")
