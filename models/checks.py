"""The one validation module: targets, settings, and (from `inputs`) tables of inputs.

Every failure is an `InputError` that names the argument and the first bad place (rows count from
0), raised before any graph is built. Decisions made once for all models: one class only is an
error, one row is legal where a target of one row is (regression); missing values are refused, since
PyMC would impute them silently, unless a model accepts unlabelled rows.
"""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ardvark.errors import InputError
from ardvark.models.inputs import Inputs
from ardvark.models.inputs import as_inputs as as_table
from ardvark.models.tables import (
    Array,
    as_array,
    as_numeric,
    is_extreme,
    is_number,
    listed,
    refuse_extreme_scales,
    warn,
)

__all__ = [
    "Seed",
    "as_binary",
    "as_classes",
    "as_count",
    "as_flag",
    "as_inputs",
    "as_precisions",
    "as_seed",
    "as_target",
    "fraction",
    "integer_from",
    "missing_values",
    "non_negative",
    "one_of",
    "positive",
    "positive_integer",
    "some_seed",
    "target_scale",
    "warn_about_columns",
]

type IntArray = npt.NDArray[np.int64]
type ClassArray = npt.NDArray[Any]
type Seed = int | np.random.Generator | np.random.SeedSequence | None

WILD_SCALES = 1e3  # ratio of the largest to the smallest standard deviation of the columns
FAR_FROM_ONE = 1e7  # beyond this scale of inputs, or its inverse, no default prior is meant
LARGEST_INTEGER = 2.0**53  # beyond it a float64 no longer holds every integer


# --- inputs ----------------------------------------------------------------------------------


def as_inputs(X: Any, *, argument: str = "X") -> Inputs:
    """Check a table of numbers and copy it, refusing scales that double precision cannot square."""
    inputs = as_table(X, argument=argument)
    refuse_extreme_scales(np.asarray(inputs), inputs.feature_names, argument)
    return inputs


# --- targets ---------------------------------------------------------------------------------


def as_binary(t: Any, n_rows: int, *, argument: str = "t") -> tuple[IntArray, ClassArray]:
    """Code two class labels as 0 and 1; the classes are in `np.unique` order.

    Labels are integers (as floats too), booleans or strings. The second class is the positive one.
    """
    codes, classes = as_classes(t, n_rows, argument=argument)
    if len(classes) > 2:
        others = models_for("multiclass")
        raise InputError(
            f"{argument} has {len(classes)} classes ({listed(classes.tolist())}), this model takes "
            f"two. Merge them into two{'; more than two: ' + others if others else ''}."
        )
    return codes, classes


def models_for(task: str) -> str:
    """Names of the models for a task."""
    from ardvark.models.registry import MODELS

    return ", ".join(name for name, entry in MODELS.items() if task in entry.tasks)


def as_classes(
    t: Any, n_rows: int, *, argument: str = "t", unlabelled: bool = False
) -> tuple[IntArray, ClassArray]:
    """Code class labels as 0..K-1 in `np.unique` order; with `unlabelled`, NaN or None is -1."""
    labels = _as_column(t, n_rows, argument, expected="one class label per row")
    missing = missing_values(labels)
    if missing.any() and not unlabelled:
        raise InputError(
            f"{argument} has a missing label at row {np.argmax(missing)} "
            f"({_count(missing)}): remove the row, this model takes labelled rows only."
        )
    if missing.all():
        raise InputError(f"{argument} has no label at all: {len(labels)} rows, each one missing.")
    known = _as_labels(labels[~missing], np.flatnonzero(~missing), argument)
    classes, known_codes = np.unique(known, return_inverse=True)
    if len(classes) < 2:
        raise InputError(
            f"{argument} has one class only ({classes[0]!s}, {len(known)} rows): two are needed."
        )
    codes = np.full(len(labels), -1, dtype=np.int64)
    codes[~missing] = known_codes
    return codes, classes


def as_target(t: Any, n_rows: int, *, argument: str = "t") -> Array:
    """Check a real-valued target: one finite number per row."""
    column = _as_column(t, n_rows, argument, expected="one number per row")
    if column.dtype.kind in "OUS":
        missing = missing_values(column)
        odd = [row for row, value in enumerate(column) if not (missing[row] or is_number(value))]
        if odd:
            raise InputError(
                f"{argument} has {_shown(column[odd[0]])} at row {odd[0]}: a regression target is "
                f"numeric. For class labels use a classification model."
            )
        column = np.where(missing, np.nan, column)
    if column.dtype.kind not in "biufO":
        raise InputError(
            f"{argument} has dtype {column.dtype}: a regression target is one real number per row."
        )
    target = column.astype(np.float64)
    bad = ~np.isfinite(target)
    if bad.any():
        row = int(np.argmax(bad))
        value = "NaN" if np.isnan(target[row]) else target[row]
        raise InputError(
            f"{argument} has {value} at row {row} ({_count(bad)} not finite). Remove the row: "
            f"Ardvark does not impute."
        )
    size = np.abs(target).max()
    if is_extreme(size):
        raise InputError(
            f"{argument} has a size of {size:.3g}: powers and sums of such numbers leave double "
            f"precision. Change its unit."
        )
    return target


def target_scale(t: Array) -> float:
    """Return the unit of a target, in which priors are measured.

    Its sd, or its size where it is constant but for rounding.
    """
    sd, size = float(t.std()), float(np.abs(t).max())
    return sd if sd > 1e-12 * size else size or 1.0


def _as_column(t: Any, n_rows: int, argument: str, expected: str) -> npt.NDArray[Any]:
    column = as_array(t, argument, expected)
    if column.ndim == 0:
        raise InputError(f"{argument} must be {expected}, got {type(t).__name__}.")
    if column.ndim > 1:
        advice = f" Give {argument}.ravel()." if column.size == len(column) else ""
        raise InputError(
            f"{argument} must have 1 dimension ({expected}), got {column.ndim} with shape "
            f"{column.shape}.{advice}"
        )
    if len(column) == 0:
        raise InputError(f"{argument} is empty: {expected} is needed.")
    if len(column) != n_rows:
        raise InputError(f"{argument} has {len(column)} values, X has {n_rows} rows.")
    if isinstance(t, list | tuple) and column.dtype.kind in "US":
        return np.array(t, dtype=object)  # [1, "a"] has become ["1", "a"]: keep what was given
    return column


def _as_labels(labels: npt.NDArray[Any], rows: npt.NDArray[np.intp], argument: str) -> ClassArray:
    """Convert labels to a type that np.unique can sort: integers, booleans or strings."""
    kind = labels.dtype.kind
    if kind == "O":
        is_text = np.array([isinstance(label, str) for label in labels])
        is_real = np.array([is_number(label) for label in labels])
        if is_text.all():
            return labels.astype(str)
        if not is_real.all():
            odd = int(np.argmin(is_real if is_real[0] else is_text))
            raise InputError(
                f"{argument} has {_shown(labels[odd])} at row {rows[odd]}: labels are all "
                f"integers, all booleans or all strings."
            )
        all_bool = all(isinstance(label, bool | np.bool_) for label in labels)
        labels = labels.astype(bool if all_bool else np.float64)
        kind = labels.dtype.kind
    if kind == "f":
        odd_rows = (labels != np.round(labels)) | (np.abs(labels) > LARGEST_INTEGER)
        if odd_rows.any():
            odd = int(np.argmax(odd_rows))
            raise InputError(
                f"{argument} has {labels[odd]} at row {rows[odd]}, which is no class label: labels "
                f"are integers, booleans or strings. For a real target: "
                f"{models_for('regression')}."
            )
        return labels.astype(np.int64)
    if kind not in "biuUS":
        raise InputError(
            f"{argument} has dtype {labels.dtype}: labels are integers, booleans or strings."
        )
    return labels


def missing_values(labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Mark None, NaN, NaT and pandas' NA."""
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind != "O":
        return np.zeros(len(labels), dtype=bool)
    return np.array(
        [
            label is None
            or type(label).__name__ in ("NAType", "NaTType")
            or (isinstance(label, float) and label != label)
            for label in labels
        ],
        dtype=bool,
    )


def _shown(value: Any) -> str:
    return f"{value!r} ({type(value).__name__})"


def _count(bad: npt.NDArray[np.bool_]) -> str:
    number = np.count_nonzero(bad)
    return f"{number} such value{'s' if number > 1 else ''}"


# --- settings --------------------------------------------------------------------------------


def as_precisions(alpha: Any, names: Sequence[str], *, argument: str = "alpha") -> Array:
    """Check fixed prior precisions: one per weight (or one number for all), > 0, inf = off."""
    values = as_numeric(
        alpha, argument, lambda where: f"index {where[0]}", expected="one precision per weight"
    )
    if values.ndim == 0:
        values = np.full(len(names), float(values))
    if values.shape != (len(names),):
        raise InputError(
            f"{argument} has shape {values.shape}, there are {len(names)} weights "
            f"({listed(names)}): give one precision per weight."
        )
    bad = ~(values > 0)
    if bad.any():
        index = int(np.argmax(bad))
        raise InputError(
            f"{argument} is {values[index]} at index {index} (weight {names[index]!r}): a "
            f"precision must be > 0; inf switches the weight off."
        )
    return values


def positive(value: Any, argument: str) -> float:
    """Check a finite number > 0."""
    if not is_number(value) or isinstance(value, bool | np.bool_) or not 0 < value < np.inf:
        raise InputError(f"{argument} must be a finite number > 0, got {value!r}.")
    return float(value)


def non_negative(value: Any, argument: str) -> float:
    """Check a finite number >= 0."""
    if not is_number(value) or isinstance(value, bool | np.bool_) or not 0 <= value < np.inf:
        raise InputError(f"{argument} must be a finite number >= 0, got {value!r}.")
    return float(value)


def positive_integer(value: Any, argument: str) -> int:
    """Check an integer >= 1."""
    return integer_from(1, value, argument)


def as_count(value: Any, argument: str) -> int:
    """Check an integer >= 0."""
    return integer_from(0, value, argument)


def integer_from(least: int, value: Any, argument: str) -> int:
    """Check an integer that is not too small; machine code counts up to 2**63."""
    if not _is_integer(value) or value < least:
        raise InputError(f"{argument} must be an integer >= {least}, got {value!r}.")
    if value >= 2**63:
        raise InputError(f"{argument} must be an integer below 2**63, got {value!r}.")
    return int(value)


def fraction(value: Any, argument: str) -> float:
    """Check a number between 0 and 1, both excluded."""
    if isinstance(value, bool) or not is_number(value) or not 0 < value < 1:
        raise InputError(f"{argument} must lie between 0 and 1, got {value!r}.")
    return float(value)


def as_flag(value: Any, argument: str) -> bool:
    """Check True or False: text and numbers are neither."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{argument} must be True or False, got {value!r}.")
    return bool(value)


def as_seed(random_seed: Any, argument: str = "random_seed") -> int | None:
    """Return a seed as an integer, or None.

    A NumPy Generator gives its next number, so it moves on with every call; a SeedSequence always
    gives the same. Both can be written down then, as any other seed.
    """
    if random_seed is None:
        return None
    if isinstance(random_seed, np.random.Generator):
        return int(random_seed.integers(2**32))
    if isinstance(random_seed, np.random.SeedSequence):
        return int(random_seed.generate_state(1)[0])
    if not _is_integer(random_seed) or not 0 <= random_seed < 2**63:
        raise InputError(
            f"{argument} must be None, an integer from 0 to 2**63 - 1, a NumPy Generator or a "
            f"SeedSequence, got {random_seed!r}."
        )
    return int(random_seed)


def some_seed(random_seed: Any) -> int:
    """Return a seed as an integer, a fresh one for None."""
    seed = as_seed(random_seed)
    return int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed


def one_of(value: Any, choices: Iterable[str], argument: str) -> str:
    """Check a name against the names that are known."""
    known = tuple(choices)
    if isinstance(value, str) and value in known:
        return value
    near = difflib.get_close_matches(value, known, n=1) if isinstance(value, str) else []
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(f"{argument} must be one of {listed(known, len(known))}, got {value!r}.{hint}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


# --- legal columns that need attention ------------------------------------------------


def warn_about_columns(X: Inputs) -> None:
    """Warn, once each, about constant columns, duplicate columns and wildly different scales."""
    names, values = X.feature_names, np.asarray(X)
    varies = (values != values[0]).any(axis=0)
    if not varies.all() and len(values) > 1:
        constant = [names[column] for column in np.flatnonzero(~varies)]
        warn(f"X has constant columns, which only repeat the bias: {listed(constant)}.")
    first_with: dict[bytes, int] = {}
    pairs: list[str] = []
    for column in np.flatnonzero(varies):
        earlier = first_with.setdefault((values[:, column] + 0.0).tobytes(), int(column))
        if earlier != column:
            pairs.append(f"{names[column]} = {names[earlier]}")
    if pairs:
        warn(f"X has duplicate columns, whose weights share one effect: {listed(pairs)}.")
    if not varies.any():
        return
    scales, kept = values[:, varies].std(axis=0), np.flatnonzero(varies)
    low, high = np.argmin(scales), np.argmax(scales)
    far = [c for c in (low, high) if not 1 / FAR_FROM_ONE <= scales[c] <= FAR_FROM_ONE]
    if far:
        warn(
            f"X has a column far from unit scale: sd {scales[far[0]]:.3g} of "
            f"{names[kept[far[0]]]!r}. Default priors and kernels are not useful there (only "
            f"Evidence() is free of units): see ardvark.standardise."
        )
    elif scales[high] > WILD_SCALES * scales[low]:
        warn(
            f"X has columns on very different scales: sd {scales[low]:.3g} of "
            f"{names[kept[low]]!r}, sd {scales[high]:.3g} of {names[kept[high]]!r}. One prior for "
            f"all weights fits inputs of one scale: see ardvark.standardise."
        )
