"""Data files: `.npz` on the search path `ARDVARK_DATA`, and CSV. Nothing is unpickled.

An `.npz` file has arrays `X` (n, d), `t` (n,) and, if known, `feature_names` (d,), `train_index`
and `test_index` (number of splits, rows). What an array claims to be is held against the file
before memory is taken for it.
"""

import csv
import gzip
import math
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ardvark.errors import InputError
from ardvark.models.data.dataset import Arrays
from ardvark.models.tables import warn

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Claim", "claims", "named_files", "read_csv", "read_npz", "search_path"]

ARRAYS = ("X", "t", "feature_names", "train_index", "test_index")
DEFLATE_MOST = 1032  # times that a compressed stream can grow
UNNAMED = re.compile(r"(Unnamed: \d+)?\s*")  # an index that pandas or R wrote with the table
# An unknown compression is a NotImplementedError, a password a RuntimeError.
READING_FAILS = (
    *(ValueError, OSError, EOFError, TypeError, MemoryError, RuntimeError),
    zipfile.BadZipFile,
)


class Claim(NamedTuple):
    """The header of a stored array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Memory that the array would take."""
        return math.prod(self.shape) * self.dtype.itemsize


def search_path() -> list[Path]:
    """Folders named in ARDVARK_DATA, whether they exist or not."""
    return [Path(part) for part in os.environ.get("ARDVARK_DATA", "").split(os.pathsep) if part]


def named_files() -> Iterator[tuple[str, Path]]:
    """Return the `.npz` files of the search path; the first folder that has a name is used."""
    seen: set[str] = set()
    for folder in search_path():
        for path in sorted(folder.glob("*.npz")):
            if path.stem not in seen:
                seen.add(path.stem)
                yield path.stem, path


def claims(path: Path) -> dict[str, Claim]:
    """Read the headers of a file's arrays and nothing else; a wrong header is refused."""
    try:
        with path.open("rb") as handle, zipfile.ZipFile(handle) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            return {key: _claim(archive, members[key]) for key in ARRAYS if key in members}
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except READING_FAILS as error:
        raise _unreadable(path, error) from error


def read_npz(path: Path, keys: Sequence[str] = ARRAYS) -> Arrays:
    """Read the arrays of a data set, and no others."""
    there = claims(path)
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            return {key: file[key] for key in keys if key in there}
    except READING_FAILS as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: BaseException) -> InputError:
    return InputError(
        f"{path} cannot be read as an .npz file of plain arrays (nothing is unpickled): "
        f"{str(error) or type(error).__name__}"
    )


def _claim(archive: zipfile.ZipFile, name: str) -> Claim:
    """Read one header; what it claims must be what the archive holds, and can hold."""
    member = archive.getinfo(name)
    with archive.open(member) as stream:
        shape, dtype, length = _header(stream)
    claim = Claim(shape, dtype)
    key = name.removesuffix(".npy")
    if dtype.hasobject:
        raise ValueError(f"{key} holds Python objects")
    if claim.nbytes != member.file_size - length:
        raise ValueError(
            f"{key} claims the shape {shape}, {claim.nbytes} bytes; the file has "
            f"{member.file_size - length}"
        )
    if member.file_size > DEFLATE_MOST * member.compress_size + length:
        raise ValueError(
            f"{key} claims {member.file_size} bytes, {member.compress_size} bytes cannot hold them"
        )
    return claim


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"arrays of the format {version} are not plain")
    read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    shape, _, dtype = read[version[0]](stream)
    return shape, dtype, stream.tell()


def read_csv(path: Path) -> "pd.DataFrame":
    """Read a table whose first line names the columns."""
    import pandas as pd

    try:
        names = _first_line(path)
        frame = pd.read_csv(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except (ValueError, OSError, EOFError, csv.Error) as error:
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
    _refuse_repeated(names, path)
    return _without_index(frame, names, path)


def _first_line(path: Path) -> list[str]:
    """Return the names as they are written: pandas numbers repeated ones."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        return next((row for row in csv.reader(file) if row), [])


def _refuse_repeated(names: Sequence[str], path: Path) -> None:
    twice = next((name for name in names if name.strip() and names.count(name) > 1), None)
    if twice is not None:
        columns = [column for column, name in enumerate(names) if name == twice]
        raise InputError(f"{path} has several columns named {twice!r} ({columns}): rename them.")


def _without_index(frame: "pd.DataFrame", names: Sequence[str], path: Path) -> "pd.DataFrame":
    """Drop a first column that only counts the rows; refuse other columns without a name."""
    unnamed = [column for column, name in enumerate(names) if UNNAMED.fullmatch(name)]
    if unnamed[:1] == [0] and len(names) == len(frame.columns):
        first = frame.iloc[:, 0].to_numpy()
        counts = np.arange(len(frame))
        if first.dtype.kind in "iu" and any(np.array_equal(first, counts + k) for k in (0, 1)):
            warn(
                f"{path}: the first column has no name and counts the rows: taken for the table's "
                "index and left out. Name it if it is an input."
            )
            frame, unnamed = frame.iloc[:, 1:], unnamed[1:]
    if unnamed:
        raise InputError(
            f"{path} has no name for column {unnamed[0]}: name it, or remove it if it is an index."
        )
    return frame


def _is_numeral(name: Any) -> bool:
    try:
        return bool(np.isfinite(float(name)))
    except ValueError:
        return False
