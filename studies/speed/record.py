"""The record of speeds, `studies/results/bench.json`: rows, and what they were measured on.

A run replaces its own rows and leaves those of other runs. Each row has the machine, the versions,
the commit and the time of its own run, and the load: how many processors others kept busy while it
was measured. A row with `loaded` true was measured while other work ran, so its CPU seconds are too
large; ratios suffer less.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["PATH", "Others", "machine", "read", "write"]

PATH = Path(__file__).parents[1] / "results" / "bench.json"
QUIET = 0.1  # of each processor: what others may use of a machine that is called quiet
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


class Others:
    """How many processors other work has kept busy since this was made.

    The load average would count our own work, and what ended a minute ago. Where the machine does
    not tell how busy it was, the load average before the beginning is taken.
    """

    def __init__(self) -> None:
        self._average = os.getloadavg()[0]
        self._begin = time.perf_counter(), _busy(), _own()

    def load(self) -> float:
        """Processors, on average over the time until now."""
        wall, busy, own = self._begin
        now = _busy()
        if now is None or busy is None:
            return self._average
        return max(0.0, (now - busy - _own() + own) / (time.perf_counter() - wall))


def _busy() -> float | None:
    """CPU seconds that all work on this machine has used."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0].split()
    except OSError:
        return None
    user, nice, system, _, _, *interrupts = map(int, first[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """CPU seconds of this process and its children, of those too that are still at work."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used) + _living(os.getpid())


def _living(parent: int) -> float:
    """CPU seconds of all that a process has started and that runs."""
    ticks: dict[int, list[tuple[int, int]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            after_name = path.read_text().rpartition(")")[2].split()
            times = sum(map(int, after_name[11:15]))  # its own, and of its children that ended
            ticks.setdefault(int(after_name[1]), []).append((int(path.parent.name), times))
    total, parents = 0, [parent]
    while parents:
        for child, times in ticks.get(parents.pop(), ()):
            total += times
            parents.append(child)
    return total / os.sysconf("SC_CLK_TCK")


def read(path: Path = PATH) -> dict[str, list[Row]]:
    """Rows by table; none where there is no file."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(
    path: Path, table: str, rows: Sequence[Mapping[str, Any]], keys: Sequence[str], load: float
) -> None:
    """Put rows into a table of the record, in place of those with the same keys."""
    record, on = read(path), machine() | {"load": round(load, 2)}
    loaded = load > QUIET * (os.cpu_count() or 1)
    new = [{**row, "loaded": loaded, "measured": on} for row in rows]
    replaced = {tuple(row[k] for k in keys) for row in new}
    kept = [row for row in record.get(table, []) if tuple(row[k] for k in keys) not in replaced]
    record[table] = kept + new
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n")
