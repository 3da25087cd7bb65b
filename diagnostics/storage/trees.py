"""Trees on disk: written whole, with checksums; read only if they are what was written.

The file `checksums.json` in a store has the SHA-256 of every other file. It is no part of the zarr
format: `xr.open_datatree` reads the store as ever. zarr takes a chunk that is not there for one
that was never written and gives its fill value, so without checksums damage is not seen. A store
without them (of `tree.to_zarr`) is read; whoever reads it can ask `has_checksums`.

A zarr store may name a codec that unpickles, which runs whatever code its author wrote. The codecs
of every array are therefore read from the JSON first, and only known ones are accepted. The
newest zarr refuses such codecs by default too; an environment variable would change that.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ardvark.diagnostics.storage.atomic import replacing
from ardvark.errors import InputError

__all__ = ["DamagedTree", "has_checksums", "read_tree", "refuse_mixed", "trees_in", "write_tree"]

CHECKSUMS = "checksums.json"
BLOCK = 4096  # bytes of the disk that the smallest file takes; an array has two files or more
METADATA = ("zarr.json", ".zarray", ".zmetadata", ".zgroup", ".zattrs")
CODECS = frozenset(
    {"bytes", "zstd", "gzip", "zlib", "blosc", "lz4", "crc32c", "transpose", "sharding_indexed"}
    | {"vlen-utf8", "vlen-bytes"}
)
PLACES = ("codecs", "index_codecs", "filters", "compressor", "compressors", "serializer")


class DamagedTree(InputError):
    """A stored tree is not what was written: the message names the first file or group."""


def write_tree(tree: xr.DataTree, path: Path) -> Path:
    """Store a tree with its checksums; it is there as a whole or not at all."""
    if path.exists():
        raise FileExistsError(f"{path} exists already: remove it or choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = sum(len(node.dataset.variables) for node in tree.subtree)
    with replacing(path, tree.nbytes + 2 * BLOCK * arrays) as partial:
        with warnings.catch_warnings():  # text, and the table of contents, are zarr's own so far
            warnings.filterwarnings("ignore", module="zarr")
            tree.to_zarr(partial)
        sums = {name: _sum(partial / name) for name in sorted(_files(partial))}
        (partial / CHECKSUMS).write_text(json.dumps(sums, indent=0), encoding="utf-8")
    return path


def read_tree(path: Path) -> xr.DataTree:
    """Load a tree that `write_tree` or `tree.to_zarr` stored; what is damaged is named."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such tree; `ardvark fit` stores them")
    if not path.is_dir() or not any((path / name).exists() for name in (*METADATA, CHECKSUMS)):
        raise InputError(f"{path}: this is no zarr tree; `ardvark fit` and tree.to_zarr make them")
    _check_sums(path)
    _check_codecs(path)
    _check_groups(path)
    try:
        tree = xr.open_datatree(path, engine="zarr").load()
    except Exception as error:  # whatever a damaged store makes of a decoder
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise DamagedTree(f"{path}: the tree is damaged and cannot be read ({why[0]})") from error
    if "posterior" not in tree.children:
        raise InputError(f"{path}: the tree has no posterior, so it is not the tree of a fit")
    return tree


def has_checksums(path: Path) -> bool:
    """Whether damage to a stored tree would be detected."""
    return (path / CHECKSUMS).is_file()


def trees_in(folder: Path) -> dict[str, xr.DataTree]:
    """Load every tree of a folder, by file name."""
    paths = sorted(path for path in folder.glob("*.zarr") if not path.name.startswith("."))
    if not paths:
        raise InputError(f"{folder}: there is no tree (*.zarr) in it; `ardvark fit` stores them")
    return {path.stem: read_tree(path) for path in paths}


def refuse_mixed(trees: Mapping[str, xr.DataTree], folder: Path) -> None:
    """Refuse trees that were fitted to different rows, naming two of them."""
    first = next(iter(trees))
    for name, tree in trees.items():
        for group in ("observed_data", "constant_data"):
            if group not in tree.children or group not in trees[first].children:
                continue
            ours, theirs = trees[first][group].to_dataset(), tree[group].to_dataset()
            for variable in sorted(set(map(str, ours)) & set(map(str, theirs))):
                one, other = ours[variable].values, theirs[variable].values
                if not np.array_equal(one, other):
                    how = f"{one.shape} against {other.shape}" if one.shape != other.shape else ""
                    raise InputError(
                        f"{folder}: {first} and {name} were fitted to different data "
                        f"({variable} differs{', ' if how else ''}{how}): keep the trees of each "
                        "data set in a folder of their own"
                    )


# What was written, and what is there --------------------------------------------------------------


def _files(path: Path) -> set[str]:
    """Names of the files of a store, but its checksums and what a file browser leaves."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != ".DS_Store")
    return {file.relative_to(path).as_posix() for file in files} - {CHECKSUMS}


def _sum(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _check_sums(path: Path) -> None:
    """Hold every file against the checksums, if there are any."""
    if not has_checksums(path):
        return
    try:
        sums = json.loads((path / CHECKSUMS).read_text(encoding="utf-8"))
        sums = {str(name): str(value) for name, value in sums.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise DamagedTree(f"{path / CHECKSUMS}: damaged, it holds no checksums ({error})") from None
    found = _files(path)
    for name in sums:
        group = name.partition("/")[0]
        if name not in found:
            whole = not (path / group).exists()
            what = f"the group {group!r}" if whole and "/" in name else f"the file {name!r}"
            raise DamagedTree(f"{path}: the tree is damaged, {what} is missing")
        if _sum(path / name) != sums[name]:
            raise _changed(path, name, "differs from what was written")
    if found - sums.keys():
        raise _changed(path, min(found - sums.keys()), "was not written with it")


def _changed(path: Path, name: str, how: str) -> DamagedTree:
    return DamagedTree(
        f"{path}: the tree is damaged, the file {name!r} {how} (SHA-256). If you changed it "
        f"yourself, remove {CHECKSUMS} in it"
    )


def _check_groups(path: Path) -> None:
    """See that every group and array of the store's table of contents is there."""
    top = path / "zarr.json"
    contents = json.loads(top.read_text(encoding="utf-8")) if top.is_file() else {}
    listed = contents.get("consolidated_metadata") if isinstance(contents, dict) else None
    nodes = listed.get("metadata") if isinstance(listed, dict) else None
    for name, node in sorted(nodes.items()) if isinstance(nodes, dict) else ():
        if not (path / name / "zarr.json").is_file():
            kind = node.get("node_type", "part") if isinstance(node, dict) else "part"
            raise DamagedTree(f"{path}: the tree is damaged, the {kind} {name!r} is missing")


def _check_codecs(path: Path) -> None:
    for name in METADATA:
        for file in path.rglob(name):
            try:
                found = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise DamagedTree(f"{file}: damaged, it is no JSON ({error})") from None
            for codec in _codecs(found):
                if codec not in CODECS:
                    raise InputError(
                        f"{file}: an array is stored by {codec!r}. Only arrays and JSON are read; "
                        "other codecs could run code."
                    )


def _codecs(value: Any) -> Iterator[str]:
    """Names of all codecs, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from _codecs(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in PLACES:
                for codec in item if isinstance(item, list) else [item]:
                    if isinstance(codec, dict):
                        yield str(codec.get("name", codec.get("id")))
                    elif codec is not None:
                        yield str(codec)
            yield from _codecs(item)
