"""Trees on disk: read only what holds arrays and JSON, and say clearly what does not.

A zarr store may name a codec that unpickles, which runs whatever code its author wrote. The codecs
of every array are therefore read from the JSON first, and only known ones are let through. The
newest zarr refuses such codecs by default too; an environment variable would change that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xarray as xr

from ardvark.errors import InputError

__all__ = ["read_tree", "trees_in"]

METADATA = ("zarr.json", ".zarray", ".zmetadata", ".zgroup", ".zattrs")
CODECS = frozenset(
    {"bytes", "zstd", "gzip", "zlib", "blosc", "lz4", "crc32c", "transpose", "sharding_indexed"}
    | {"vlen-utf8", "vlen-bytes"}
)
PLACES = ("codecs", "index_codecs", "filters", "compressor", "compressors", "serializer")


def read_tree(path: Path) -> xr.DataTree:
    """Load a tree that `ardvark fit` stored; a file that is none is named and left alone."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such tree; `ardvark fit` stores them")
    if not path.is_dir() or not any((path / name).exists() for name in METADATA):
        raise InputError(f"{path}: this is no zarr tree")
    _check_codecs(path)
    try:
        tree = xr.open_datatree(path, engine="zarr").load()
    except Exception as error:  # whatever a damaged store makes of a decoder
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{path}: the tree is damaged and cannot be read ({why[0]})") from error
    if "posterior" not in tree.children:
        raise InputError(f"{path}: the tree has no posterior, so it is not the tree of a fit")
    return tree


def trees_in(folder: Path) -> dict[str, xr.DataTree]:
    """Load every tree of a folder, by file name."""
    paths = sorted(path for path in folder.glob("*.zarr") if not path.name.startswith("."))
    if not paths:
        raise InputError(f"{folder}: there is no tree (*.zarr) in it; `ardvark fit` stores them")
    return {path.stem: read_tree(path) for path in paths}


def _check_codecs(path: Path) -> None:
    for name in METADATA:
        for file in path.rglob(name):
            try:
                found = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise InputError(f"{file}: damaged, it is no JSON ({error})") from None
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
