"""The record of speeds, `studies/results/bench.json`: rows, and what they were measured on.

A run replaces its own rows and leaves those of other runs. Each row has the machine, the versions,
the commit and the time of its own run, and the load before it: a row with `loaded` true was
measured while other work ran, so its CPU seconds are too large; ratios suffer less.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["PATH", "machine", "read", "write"]

PATH = Path(__file__).parents[1] / "results" / "bench.json"
PACKAGES = ("ardvark", "numpy", "scipy", "numba", "pymc", "pytensor", "nutpie", "arviz")

Row = dict[str, Any]


def processor() -> str:
    """The model of the CPU, by its own name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine() -> Row:
    """What a figure depends on."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "commit": done.stdout.strip() or "none",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def read(path: Path = PATH) -> dict[str, list[Row]]:
    """Rows by table; none where there is no file."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(
    path: Path, table: str, rows: Sequence[Mapping[str, Any]], keys: Sequence[str], load: float
) -> None:
    """Put rows into a table of the record, in place of those with the same keys."""
    record, on = read(path), machine() | {"load": round(load, 1)}
    loaded = load > 0.75 * (os.cpu_count() or 1)
    new = [{**row, "loaded": loaded, "measured": on} for row in rows]
    replaced = {tuple(row[k] for k in keys) for row in new}
    kept = [row for row in record.get(table, []) if tuple(row[k] for k in keys) not in replaced]
    record[table] = kept + new
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n")
