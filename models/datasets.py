"""The data door: `load` gives a `Dataset` by name, from a file or from a DataFrame.

A name is looked for in this order: embedded (scikit-learn's `wine` and `wdbc`), simulators, `.npz`
files in the folders of the search path `ARDVARK_DATA`, downloads. Only the last needs a network.
An `.npz` file has arrays `X` (n, d), `t` (n,) and, if known, `feature_names` (d,), `train_index`
and `test_index` (number of splits, rows). Nothing is scaled and nothing is unpickled.
"""

import difflib
import inspect
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ardvark.errors import InputError
from ardvark.models.checks import as_binary, as_classes, as_target, missing_values, one_of
from ardvark.models.download import ORIGINS, REMOTE, Origin, cache_folder, fetch
from ardvark.models.inputs import Inputs, as_inputs, is_number
from ardvark.models.simulators import SIMULATORS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Dataset", "Split", "datasets", "load"]

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


def load(
    data: "str | Path | pd.DataFrame",
    *,
    target: str | None = None,
    task: str | None = None,
    **settings: Any,
) -> Dataset:
    """Load a data set by name, from a `.csv`, `.csv.gz` or `.npz` file, or from a DataFrame.

    Parameters
    ----------
    data : str, Path or DataFrame
        A name that `datasets()` lists, the path of a file, or a table.
    target : str, optional
        Column to predict (CSV and DataFrame only); the last one by default.
    task : "binary", "multiclass" or "regression", optional
        Inferred if not given: text, booleans and up to two whole numbers are classes; up to ten
        whole numbers are too, if there are ten rows for each; the rest is regression.
    **settings
        Settings of a simulator: `n`, `n_test`, `noise`, `seed`, ...
    """
    if not isinstance(data, str | Path):
        _refuse_settings("a DataFrame", settings)
        return _from_frame("user data", data, target, task)
    path = Path(data)
    if path.name.endswith((".csv", ".csv.gz")):
        _refuse_settings(path.name, settings)
        return _from_frame(path.name.removesuffix(".gz")[:-4], _read_csv(path), target, task)
    name = str(data)
    if target is not None:
        raise InputError(f"target is for a CSV file or a DataFrame, {name!r} has its own target.")
    if name in SIMULATORS:
        return _simulate(name, task, settings)
    _refuse_settings(name, settings)
    if name in EMBEDDED:
        return _checked(name, _embedded(name), EMBEDDED[name], task)
    if path.suffix == ".npz":
        return _checked(path.stem, _read_npz(path), USER, task)
    if name in (files := dict(_files())):
        return _checked(name, _read_npz(files[name]), ORIGINS.get(name, USER), task)
    if name in REMOTE:
        return _checked(name, fetch(name), REMOTE[name].origin, task)
    raise _unknown(name)


def datasets() -> "pd.DataFrame":
    """List what can be loaded: one row a set, with its size, origin and licence.

    `available` is False for a download that is not in the cache yet, and for an unreadable file.
    """
    import pandas as pd

    rows = [_line(load(name), "scikit-learn") for name in EMBEDDED]
    rows += [_line(load(name), "simulator") for name in SIMULATORS]
    rows += [_file_line(name, path) for name, path in _files() if name not in KNOWN_OFFLINE]
    here = {row["name"] for row in rows}
    rows += [_remote_line(name) for name in REMOTE if name not in here]
    table = pd.DataFrame(rows)
    whole = {column: "Int64" for column in ("rows", "inputs", "classes", "splits")}
    return table.astype(whole)[[*LISTED]]


# --- sources ---------------------------------------------------------------------------------

EMBEDDED = {
    "wine": Origin("scikit-learn load_wine (UCI)", "BSD-3-Clause", "cultivar 0, 1 or 2"),
    "wdbc": Origin(
        "scikit-learn load_breast_cancer (UCI)", "BSD-3-Clause", "0 = malignant, 1 = benign"
    ),
}
KNOWN_OFFLINE = (*EMBEDDED, *SIMULATORS)
LISTED = (
    "name",
    "task",
    "rows",
    "inputs",
    "classes",
    "splits",
    "origin",
    "available",
    "source",
    "licence",
)


def _embedded(name: str) -> Arrays:
    from sklearn.datasets import load_breast_cancer, load_wine

    bunch = {"wine": load_wine, "wdbc": load_breast_cancer}[name]()
    return {"X": bunch.data, "t": bunch.target, "feature_names": np.array(bunch.feature_names)}


def _simulate(name: str, task: str | None, settings: dict[str, Any]) -> Dataset:
    simulator = SIMULATORS[name]
    known = inspect.signature(simulator.draw).parameters
    for setting in settings:
        one_of(setting, known, f"a setting of {name!r}")
    X, t, n, truth = simulator.draw(**settings)
    arrays = {"X": X, "t": t}
    if n < len(X):
        arrays |= {"train_index": np.arange(n), "test_index": np.arange(n, len(X))}
    summary = (inspect.getdoc(simulator.draw) or "").splitlines()[0]
    origin = Origin(simulator.source, "Apache-2.0 (simulated)", summary)
    return _checked(name, arrays, origin, task or simulator.task, truth=truth)


def _folders() -> list[Path]:
    return [Path(part) for part in os.environ.get("ARDVARK_DATA", "").split(os.pathsep) if part]


def _files() -> Iterator[tuple[str, Path]]:
    """Give the `.npz` files of the search path; the first folder that has a name wins."""
    seen: set[str] = set()
    for folder in _folders():
        for path in sorted(folder.glob("*.npz")):
            if path.stem not in seen:
                seen.add(path.stem)
                yield path.stem, path


def _read_npz(path: Path) -> Arrays:
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            return {key: file[key] for key in ("X", "t", *OPTIONAL) if key in file.files}
    except FileNotFoundError:
        raise InputError(f"{path} was asked for: there is no such file.") from None
    except (ValueError, OSError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} cannot be read as an .npz file of plain arrays (nothing is unpickled): {error}"
        ) from error


OPTIONAL = ("feature_names", "train_index", "test_index")


def _read_csv(path: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        frame = pd.read_csv(path)
    except FileNotFoundError:
        raise InputError(f"{path} was asked for: there is no such file.") from None
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}") from error
    if len(frame.columns) < 2:
        raise InputError(
            f"{path} has one column only ({str(frame.columns[0])!r}): inputs and a target are "
            f"needed. Is the separator a comma?"
        )
    if all(_is_numeral(name) for name in frame.columns):
        raise InputError(
            f"{path} has numbers in its first line ({', '.join(map(str, frame.columns[:3]))}, ...):"
            f" the first line must hold the names of the columns."
        )
    return frame


def _is_numeral(name: Any) -> bool:
    try:
        return bool(np.isfinite(float(name)))
    except ValueError:
        return False


def _from_frame(name: str, frame: Any, target: str | None, task: str | None) -> Dataset:
    if not (hasattr(frame, "columns") and hasattr(frame, "iloc")):
        raise InputError(
            f"data must be a name, the path of a file or a DataFrame, got {type(frame).__name__}."
        )
    columns = list(frame.columns)
    if not columns:
        raise InputError(f"{name} has no columns: inputs and a target are needed.")
    wanted = columns[-1] if target is None else target
    if columns.count(wanted) != 1:
        found = "no column" if wanted not in columns else "several columns"
        raise InputError(f"target is {wanted!r}, {name} has {found} of that name: {columns}.")
    X = frame.drop(columns=wanted)
    t = np.asarray(frame[wanted])
    return _checked(name, {"X": X, "t": t}, USER, task, target_name=str(wanted))


# --- from arrays to a Dataset ------------------------------------------------------------------


def _checked(
    name: str,
    arrays: Mapping[str, Any],
    origin: Origin,
    task: str | None,
    target_name: str = "t",
    truth: Arrays | None = None,
) -> Dataset:
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
    """Check the target and tell its task; class labels become whole numbers, text or booleans."""
    chosen = infer_task(t) if task is None else one_of(task, TASKS, "task")
    if chosen == "regression":
        return as_target(t, n_rows, argument=target_name), chosen
    read = as_binary if chosen == "binary" else as_classes
    codes, classes = read(t, n_rows, argument=target_name)
    return classes[codes], chosen


def infer_task(t: Any) -> str:
    """Tell classes from real numbers: by type, then by how many whole numbers there are."""
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


# --- the list, and what is not on it ---------------------------------------------------------


def _line(data: Dataset, origin: str) -> dict[str, Any]:
    return {
        "name": data.name,
        "task": data.task,
        "rows": data.X.shape[0],
        "inputs": data.X.shape[1],
        "classes": None if data.classes is None else len(data.classes),
        "splits": len(data.splits),
        "origin": origin,
        "available": True,
        "source": data.source,
        "licence": data.licence,
    }


def _file_line(name: str, path: Path) -> dict[str, Any]:
    try:
        return _line(load(name), "file")
    except InputError:
        return _blank(name, "file", f"unreadable: {path.name}", "")


def _remote_line(name: str) -> dict[str, Any]:
    remote = REMOTE[name]
    task = {0: "regression", 2: "binary"}.get(remote.classes, "multiclass")
    return _blank(name, "download", remote.origin.source, remote.origin.licence) | {
        "task": task,
        "rows": remote.rows,
        "inputs": remote.inputs,
        "classes": remote.classes or None,
        "available": (cache_folder() / remote.file_name).is_file(),
    }


def _blank(name: str, origin: str, source: str, licence: str) -> dict[str, Any]:
    line = dict.fromkeys(LISTED)
    return line | {
        "name": name,
        "origin": origin,
        "available": False,
        "source": source,
        "licence": licence,
    }


def _refuse_settings(name: str, settings: Mapping[str, Any]) -> None:
    if settings:
        raise InputError(
            f"{', '.join(settings)}: only a simulator ({', '.join(SIMULATORS)}) has settings, "
            f"{name!r} is none."
        )


def _unknown(name: str) -> InputError:
    known = list(dict.fromkeys([*KNOWN_OFFLINE, *(name for name, _ in _files()), *REMOTE]))
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    folders = [f"{folder}{'' if folder.is_dir() else ' (not found)'}" for folder in _folders()]
    return InputError(
        f"No data set is called {name!r}.{hint} Known: {', '.join(known)}. Others: put {name}.npz "
        f"into a folder and name the folder in ARDVARK_DATA (now: {', '.join(folders) or 'unset'})."
    )
