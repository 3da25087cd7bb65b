"""The calibration record: how each method does on data simulated from a model's prior.

A JSON file beside this module, made by `python -m ardvark.studies.validation`, with the version
that made it and a SHA-256 over its entries. The report shows the entries of the reported model.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ardvark.errors import InputError

__all__ = ["PLACE", "calibration_record", "digest", "records_of"]

PLACE = Path(__file__).with_name("calibration_record.json")
FORMAT = 1
_AGAIN = "make it again by `python -m ardvark.studies.validation`, or restore it from the package"


def digest(entries: list[dict[str, Any]]) -> str:
    """SHA-256 of the entries, however they are laid out in the file."""
    text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def calibration_record(path: Path = PLACE) -> dict[str, Any]:
    """Read the record, and refuse one that was changed by hand; empty if there is none."""
    if not path.exists():
        return {"format": FORMAT, "version": "", "entries": []}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        entries, sha256 = record["entries"], record["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path.name} cannot be read as a calibration record ({error}): {_AGAIN}"
        ) from None
    if record.get("format") != FORMAT:
        was = record.get("format")
        raise InputError(f"{path.name} has format {was!r}, expected {FORMAT}: {_AGAIN}")
    if digest(entries) != sha256:
        raise InputError(
            f"{path.name} does not have the sum it names: it was changed by hand; {_AGAIN}"
        )
    return dict(record)


def records_of(model: str, path: Path = PLACE) -> list[dict[str, Any]]:
    """Entries of the record for a builder of the registry."""
    return [entry for entry in calibration_record(path)["entries"] if entry["model"] == model]
