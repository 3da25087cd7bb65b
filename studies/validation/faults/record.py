"""The record of the planted faults, with the table that the site shows."""

import json
from pathlib import Path
from typing import Any

from ardvark.studies.validation.faults import FAULTS
from ardvark.studies.validation.faults.plant import CAUGHT
from ardvark.studies.validation.lane import RESULTS, commit, write_lane

__all__ = ["read_record", "table", "write_record"]

COMMAND = "python -m ardvark.studies.validation.faults"


def read_record(folder: Path = RESULTS) -> dict[str, Any]:
    """Read the last record; an empty one if there is none."""
    place = folder / "faults.json"
    if not place.exists():
        return {"faults": []}
    found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return found


def write_record(lines: list[dict[str, Any]], control: Any, folder: Path = RESULTS) -> None:
    """Write who caught what, and the table made of it."""
    record = {
        "planted": len(lines),
        "caught": sum(line["verdict"] == CAUGHT for line in lines),
        "at_this_commit": sum(line.get("commit") == commit() for line in lines),
        "control": control,
        "faults": lines,
        "tables": {"caught": table(lines)},
    }
    write_lane("faults", record, COMMAND, folder)


def table(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Give the table of the site."""
    known = {fault.name: fault for fault in FAULTS}
    rows = []
    for line in lines:
        if (fault := known.get(line["name"])) is None:
            continue
        test = "**none**"
        if line["verdict"] == CAUGHT:
            test = f"`{line['by'].split(' - ')[0].rsplit('/', 1)[-1].replace('|', ' ')}`"
        rows.append([fault.area, fault.name, fault.origin, f"`{fault.file}`", test])
    return {
        "caption": "Each fault is put into a copy of the code alone; the last column is the test "
        "that then failed first",
        "command": COMMAND,
        "columns": ["area", "fault", "where it comes from", "file", "caught by"],
        "rows": rows,
    }
