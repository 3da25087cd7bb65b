"""A `Dataset`, and how arrays or a DataFrame become one: checked, named, with its task."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ardvark.errors import InputError
from ardvark.models.checks import as_binary, as_classes, as_target, missing_values, one_of
from ardvark.models.data.download import Origin
from ardvark.models.inputs import Inputs, as_inputs
from ardvark.models.tables import as_frame, is_number

__all__ = ["USER", "Arrays", "Dataset", "Split", "checked", "from_frame", "infer_task"]

type Arrays = Mapping[str, npt.NDArray[Any]]

TASKS = ("binary", "multiclass", "regression")
MOST_CLASSES = 10  # integers with more distinct values are taken for a real target
ROWS_PER_CLASS = 10
USER = Origin("user", "the user's own", "")


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Row numbers of one partition."""

    train: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Dataset:
    """Inputs with names, a target, published splits, and where it all comes from."""

    name: str
    X: Inputs
    t: npt.NDArray[Any]
    task: str
    splits: tuple[Split, ...] = ()
    source: str = ""
    licence: str = ""
    description: str = ""
    target_name: str = "t"
    truth: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of X."""
        return self.X.feature_names

    @property
    def classes(self) -> npt.NDArray[Any] | None:
        """Class labels in `np.unique` order; None for regression."""
        return None if self.task == "regression" else np.unique(self.t)

    def __repr__(self) -> str:
        rows, inputs = self.X.shape
        classes = "" if self.classes is None else f", {len(self.classes)} classes"
        splits = f", {len(self.splits)} split{'s' if len(self.splits) > 1 else ''}"
        return (
            f"Dataset({self.name!r}: {self.task}, {rows} rows, {inputs} inputs{classes}"
            f"{splits if self.splits else ''})"
        )


def checked(
    name: str,
    arrays: Mapping[str, Any],
    origin: Origin,
    task: str | None,
    target_name: str = "t",
    truth: Arrays | None = None,
) -> Dataset:
    """Make a Dataset of `X`, `t` and perhaps `feature_names`, `train_index`, `test_index`."""
    for key in ("X", "t"):
        if key not in arrays:
            raise InputError(f"Data set {name!r} has no array {key!r}: X and t are needed.")
    try:
        X = as_inputs(arrays["X"])
        if "feature_names" in arrays:
            X = _named(X, arrays["feature_names"])
        t, found = _as_task(arrays["t"], len(X), target_name, task)
        splits = _as_splits(arrays, len(X))
    except InputError as error:
        raise InputError(f"Data set {name!r}: {error}") from None
    return Dataset(
        name,
        X,
        t,
        found,
        splits,
        origin.source,
        origin.licence,
        origin.description,
        target_name,
        truth or {},
    )


def from_frame(name: str, table: Any, target: str | None, task: str | None) -> Dataset:
    """Make a Dataset of a table; the target is its last column unless named."""
    frame = as_frame(table, name)
    if frame is None:
        raise InputError(
            f"data must be a name, the path of a file or a DataFrame, got {type(table).__name__}."
        )
    columns = list(frame.columns)
    if not columns:
        raise InputError(f"{name} has no columns: inputs and a target are needed.")
    wanted = columns[-1] if target is None else target
    if wanted not in columns:
        raise InputError(f"target is {wanted!r}, {name} has no column of that name: {columns}.")
    X, t = frame.drop(wanted).to_native(), frame.get_column(wanted).to_numpy()
    return checked(name, {"X": X, "t": t}, USER, task, target_name=str(wanted))


def _named(X: Inputs, names: npt.NDArray[Any]) -> Inputs:
    if names.shape != X.shape[1:]:
        raise InputError(
            f"feature_names has shape {names.shape}, X has {X.shape[1]} columns: one name each."
        )
    named = Inputs(X, [str(name) for name in names])
    return as_inputs(named)


def _as_task(
    t: Any, n_rows: int, target_name: str, task: str | None
) -> tuple[npt.NDArray[Any], str]:
    """Check the target and find its task; class labels become whole numbers, text or booleans."""
    chosen = infer_task(t) if task is None else one_of(task, TASKS, "task")
    if chosen == "regression":
        return as_target(t, n_rows, argument=target_name), chosen
    read = as_binary if chosen == "binary" else as_classes
    codes, classes = read(t, n_rows, argument=target_name)
    return classes[codes], chosen


def infer_task(t: Any) -> str:
    """The task of a target: by its type, then by how many different whole numbers it has."""
    values = np.asarray(t)
    if values.dtype.kind in "OUS" and values.ndim == 1:
        known = values[~missing_values(values)]
        if not all(is_number(value) for value in known):
            return "multiclass" if len(set(map(str, known))) > 2 else "binary"
        values = known.astype(float)
    if values.dtype.kind not in "biuf" or not values.size:
        return "regression"
    distinct = np.unique(values[np.isfinite(values)])
    whole = bool((distinct == np.round(distinct)).all())
    if whole and len(distinct) <= 2:
        return "binary"
    few = len(distinct) <= MOST_CLASSES and len(distinct) * ROWS_PER_CLASS <= values.size
    return "multiclass" if whole and few else "regression"


def _as_splits(arrays: Mapping[str, Any], n_rows: int) -> tuple[Split, ...]:
    if "train_index" not in arrays or "test_index" not in arrays:
        return ()
    train, test = (_as_rows(arrays[key], key, n_rows) for key in ("train_index", "test_index"))
    if len(train) != len(test):
        raise InputError(f"train_index has {len(train)} splits, test_index has {len(test)}.")
    for number, (left, right) in enumerate(zip(train, test, strict=True)):
        if not left.size:
            raise InputError(f"split {number} has no training rows.")
        for key, rows in (("train_index", left), ("test_index", right)):
            values, counts = np.unique(rows, return_counts=True)
            if (counts > 1).any():
                raise InputError(f"split {number} has row {values[counts > 1][0]} twice in {key}.")
        both = np.intersect1d(left, right)
        if both.size:
            raise InputError(f"split {number} has row {both[0]} both in train and test.")
    return tuple(Split(left, right) for left, right in zip(train, test, strict=True))


def _as_rows(index: npt.NDArray[Any], key: str, n_rows: int) -> npt.NDArray[np.int64]:
    if index.dtype.kind not in "iu" or index.ndim not in (1, 2):
        raise InputError(f"{key} must hold row numbers (split, row), got {index.dtype}.")
    if index.size and not 0 <= index.min() <= index.max() < n_rows:
        raise InputError(f"{key} has row {index.max()} or {index.min()}, X has {n_rows} rows.")
    return np.atleast_2d(index).astype(np.int64)
