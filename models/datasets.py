"""The data door: `load` gives a `Dataset` by name, from a file or from a DataFrame.

A name is looked for in this order: embedded (scikit-learn's `wine` and `wdbc`), simulators, `.npz`
files in the folders of the search path `ARDVARK_DATA`, downloads. Only the last needs a network.
Nothing is scaled and nothing is unpickled.
"""

import difflib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ardvark.errors import InputError
from ardvark.models.checks import one_of
from ardvark.models.dataset import USER, Arrays, Dataset, checked, from_frame
from ardvark.models.download import ORIGINS, REMOTE, Origin, cache_folder, fetch
from ardvark.models.files import named_files, read_csv, read_npz, search_path
from ardvark.models.simulators import SIMULATORS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["datasets", "load"]

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
        return from_frame("user data", data, target, task)
    path = Path(data)
    if path.name.endswith((".csv", ".csv.gz")):
        _refuse_settings(path.name, settings)
        return from_frame(path.name.removesuffix(".gz")[:-4], read_csv(path), target, task)
    name = str(data)
    if target is not None:
        raise InputError(f"target is for a CSV file or a DataFrame, {name!r} has its own target.")
    if name in SIMULATORS:
        return _simulate(name, task, settings)
    _refuse_settings(name, settings)
    if name in EMBEDDED:
        return checked(name, _embedded(name), EMBEDDED[name], task)
    if path.suffix == ".npz":
        return checked(path.stem, read_npz(path), USER, task)
    if name in (files := dict(named_files())):
        return checked(name, read_npz(files[name]), ORIGINS.get(name, USER), task)
    if name in REMOTE:
        return checked(name, fetch(name), REMOTE[name].origin, task)
    raise _unknown(name)


def datasets() -> "pd.DataFrame":
    """List what can be loaded: one row a set, with its size, origin and licence.

    `available` is False for a download that is not in the cache yet, and for an unreadable file.
    """
    import pandas as pd

    rows = [_line(load(name), "scikit-learn") for name in EMBEDDED]
    rows += [_line(load(name), "simulator") for name in SIMULATORS]
    rows += [_file_line(name, path) for name, path in named_files() if name not in KNOWN_OFFLINE]
    here = {row["name"] for row in rows}
    rows += [_remote_line(name) for name in REMOTE if name not in here]
    table = pd.DataFrame(rows)
    whole = {column: "Int64" for column in ("rows", "inputs", "classes", "splits")}
    return table.astype(whole)[[*LISTED]]


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
    return checked(name, arrays, origin, task or simulator.task, truth=truth)


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
    known = list(dict.fromkeys([*KNOWN_OFFLINE, *(name for name, _ in named_files()), *REMOTE]))
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    folders = [f"{folder}{'' if folder.is_dir() else ' (not found)'}" for folder in search_path()]
    return InputError(
        f"No data set is called {name!r}.{hint} Known: {', '.join(known)}. Others: put {name}.npz "
        f"into a folder and name the folder in ARDVARK_DATA (now: {', '.join(folders) or 'unset'})."
    )
