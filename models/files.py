"""Data files: `.npz` on the search path `ARDVARK_DATA`, and CSV. Nothing is unpickled.

An `.npz` file has arrays `X` (n, d), `t` (n,) and, if known, `feature_names` (d,), `train_index`
and `test_index` (number of splits, rows).
"""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ardvark.errors import InputError
from ardvark.models.dataset import Arrays

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["named_files", "read_csv", "read_npz", "search_path"]

OPTIONAL = ("feature_names", "train_index", "test_index")


def search_path() -> list[Path]:
    """Folders named in ARDVARK_DATA, whether they exist or not."""
    return [Path(part) for part in os.environ.get("ARDVARK_DATA", "").split(os.pathsep) if part]


def named_files() -> Iterator[tuple[str, Path]]:
    """Give the `.npz` files of the search path; the first folder that has a name wins."""
    seen: set[str] = set()
    for folder in search_path():
        for path in sorted(folder.glob("*.npz")):
            if path.stem not in seen:
                seen.add(path.stem)
                yield path.stem, path


def read_npz(path: Path) -> Arrays:
    """Read the arrays of a data set, and no others."""
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            return {key: file[key] for key in ("X", "t", *OPTIONAL) if key in file.files}
    except FileNotFoundError:
        raise InputError(f"{path} was asked for: there is no such file.") from None
    except (ValueError, OSError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} cannot be read as an .npz file of plain arrays (nothing is unpickled): {error}"
        ) from error


def read_csv(path: Path) -> "pd.DataFrame":
    """Read a table whose first line names the columns."""
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
