"""Loading data: `load` returns a `Dataset` by name, from a file or from a DataFrame.

A name is looked for in this order: embedded (scikit-learn's `wine` and `wdbc`), simulators, `.npz`
files in the folders of the search path `ARDVARK_DATA`, downloads. Only the last needs a network.
Nothing is scaled and nothing is unpickled.
"""

import difflib
import inspect
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ardvark.errors import InputError
from ardvark.models.checks import one_of
from ardvark.models.data.dataset import USER, Arrays, Dataset, checked, from_frame, infer_task
from ardvark.models.data.download import ORIGINS, REMOTE, Origin, cache_folder, fetch
from ardvark.models.data.files import claims, named_files, read_csv, read_npz, search_path
from ardvark.models.data.simulators import SIMULATORS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["datasets", "load", "names_at_hand", "names_to_download"]

EMBEDDED = {
    "wine": Origin("scikit-learn load_wine (UCI)", "BSD-3-Clause", "cultivar 0, 1 or 2"),
    "wdbc": Origin(
        "scikit-learn load_breast_cancer (UCI)", "BSD-3-Clause", "0 = malignant, 1 = benign"
    ),
}
KNOWN_OFFLINE = (*EMBEDDED, *SIMULATORS)
READ_TO_LIST = 2**24  # bytes of a target that are read to find its task
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

    `available` is False for a download that is not in the cache yet, and for a file whose headers
    are not those of a data set. Of a file only the headers and the target are read here: `load`
    looks at every number.
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
    origin = ORIGINS.get(name, USER)
    try:
        return _blank(name, "file", origin.source, origin.licence) | _outline(path)
    except InputError:
        return _blank(name, "file", f"unreadable: {path.name}", "")


def _outline(path: Path) -> dict[str, Any]:
    """Sizes and task of a file, by its headers and its target."""
    there = claims(path)
    shapes = {key: claim.shape for key, claim in there.items()}
    X, t = shapes.get("X", ()), shapes.get("t", ())
    splits = [shapes[key] for key in ("train_index", "test_index") if key in shapes]
    wrong = len(X) != 2 or t != X[:1] or shapes.get("feature_names", X[1:]) != X[1:]
    wrong = wrong or any(there[k].dtype.kind not in "iu" for k in shapes if k.endswith("_index"))
    if wrong or len({shape[:-1] for shape in splits}) > 1:
        raise InputError(f"{path}: the arrays do not belong together: {shapes}")
    found: dict[str, Any] = {"rows": X[0], "inputs": X[1], "available": True}
    found["splits"] = (math.prod(splits[0][:-1])) if len(splits) == 2 else 0
    if there["t"].nbytes <= READ_TO_LIST:
        target = read_npz(path, ["t"])["t"]
        found["task"] = infer_task(target)
        found["classes"] = None if found["task"] == "regression" else len(np.unique(target))
    return found


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


def names_at_hand() -> list[str]:
    """Names that `load` finds without a network."""
    names = (*KNOWN_OFFLINE, *(name for name, _ in named_files()))
    cached = (n for n, remote in REMOTE.items() if (cache_folder() / remote.file_name).is_file())
    return list(dict.fromkeys((*names, *cached)))


def names_to_download() -> list[str]:
    """Names that `load` must fetch first."""
    here = set(names_at_hand())
    return [name for name in REMOTE if name not in here]


def _unknown(name: str) -> InputError:
    here, away = names_at_hand(), names_to_download()
    near = [f"{match!r}" for match in difflib.get_close_matches(name, here, n=1)]
    near += [f"{m!r} (to be downloaded)" for m in difflib.get_close_matches(name, away, n=1)]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    folders = [f"{folder}{'' if folder.is_dir() else ' (not found)'}" for folder in search_path()]
    return InputError(
        f"No data set is called {name!r}.{hint} Known: {', '.join([*here, *away])}. Others: put "
        f"{name}.npz into a folder and name the folder in ARDVARK_DATA (now: "
        f"{', '.join(folders) or 'unset'})."
    )
