"""What lanes have in common: units by turns within a budget, and a file of results with its origin.

A lane has experiments; each turn runs the next unit where it narrows the errors most for its time.
With n replications of c seconds each, the sum of the variances is the least for the time spent if
n √c is the same everywhere, so the smallest comes next: the cheap ones first, the fewest first,
every one gets something, and a run with more time fills up what is there.

A store is a folder of one machine and ends with it. Units that are dear to run are kept beside the
results too, as JSON lines: what all units of an experiment share, and each unit with the commit at
which it was run. A lane first gives its store what is there, and at its end writes there what its
store has: a run on another machine adds replications instead of beginning again. Units of other
settings or of another version of their experiment are replaced; versions of packages may differ.
"""

from __future__ import annotations

import json
import lzma
import math
import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ardvark.diagnostics.storage.atomic import replacing, write_text
from ardvark.studies.experiments import Experiment, Numbers, Store, Unit, run

__all__ = [
    "RESULTS",
    "Lane",
    "commit",
    "fill",
    "read_units",
    "stored",
    "take_units",
    "write_lane",
    "write_units",
]

RESULTS = Path(__file__).parents[1] / "results" / "validation"
PACKAGES = ("ardvark", "pymc", "pytensor", "numpy", "scipy", "numba", "arviz", "nutpie", "xarray")


@dataclass(frozen=True, slots=True)
class Lane:
    """Experiments, and what all that is stored of them says."""

    name: str
    experiments: Sequence[Experiment]
    summary: Callable[[Store], dict[str, Any]]
    passed: Callable[[Mapping[str, Any]], list[str]]  # of a summary: what must not be, in words
    after: Callable[[Mapping[str, Any]], None] = field(default=lambda found: None)
    patience: Callable[[Experiment], float] = field(default=lambda experiment: 0.0)
    """How far n √c of the others may go before an experiment has its first unit."""
    quick_minutes: float = 2.0  # CPU minutes of the quick form
    joined: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]] = field(
        default=lambda found, earlier: dict(found)
    )
    """What is found, with what earlier results have more of: a store may be new, the record not."""
    keeps: Callable[[Experiment], bool] = field(default=lambda experiment: False)
    """Whether the units of an experiment are kept beside the results."""


def stored(experiment: Experiment, store: Store) -> tuple[list[Numbers], float]:
    """What is there of an experiment, in its order, and the CPU seconds it took."""
    units = experiment.units(experiment.full)
    found = [(numbers, store.seconds(u)) for u in units if (numbers := store.get(u)) is not None]
    return [numbers for numbers, _ in found], sum(seconds for _, seconds in found)


def fill(
    lane: Lane,
    store: Store,
    executor: Any = None,
    *,
    only: str = "",
    minutes: float | None = None,
    quick: bool = False,
    told: Callable[[str], None] = lambda text: None,
) -> str:
    """Run what is missing, where it tells most for its time, until the CPU minutes are used up.

    Says how far it came.
    """
    taken = {e.name: e for e in lane.experiments if only in e.name}
    wanted = {name: e.units(e.quick if quick else e.full) for name, e in taken.items()}
    todo = {name: [u for u in units if store.get(u) is None] for name, units in wanted.items()}
    told_by = {
        name: _information(lane, taken[name], units, store) for name, units in wanted.items()
    }
    used, turn = 0.0, max(1, executor if isinstance(executor, int) else 1)
    while any(todo.values()) and (minutes is None or used < 60 * minutes):
        due = sorted((name for name in todo if todo[name]), key=lambda name: told_by[name])[:turn]
        units = [todo[name].pop(0) for name in due]
        begin = time.monotonic()
        run(units, store, executor)
        for name, unit in zip(due, units, strict=True):
            told_by[name] = _information(lane, taken[name], wanted[name], store)
            used += store.seconds(unit)
        left = sum(len(units) for units in todo.values())
        told(f"{due[0]}  {time.monotonic() - begin:.1f} s, {used:.0f} CPU s, {left} units left")
    every, left = (sum(map(len, units.values())) for units in (wanted, todo))
    form = " of the quick form" if quick else ""
    return f"{lane.name}: {every - left} of {every} units{form} are there, {used:.0f} CPU s"


def _information(lane: Lane, experiment: Experiment, units: Sequence[Unit], store: Store) -> float:
    """Give n √c, c being that of the cheapest unit, which had nothing to compile."""
    seconds = [store.seconds(unit) for unit in units if store.get(unit) is not None]
    if not seconds:
        return lane.patience(experiment)
    batch = float(experiment.settings.get("batch", 1))
    return len(seconds) * batch * math.sqrt(max(min(seconds), 1e-3) / batch)


@cache
def commit() -> str:
    """The commit of this code; "" where it is not a checkout."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def write_lane(name: str, found: Mapping[str, Any], command: str, folder: Path = RESULTS) -> Path:
    """Keep a summary, with when and by what it was made."""
    made = {
        "lane": name,
        "command": command,
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    text = json.dumps(made | dict(found), indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")
    return path


# Units beside the results -------------------------------------------------------------------------


def take_units(experiment: Experiment, store: Store, folder: Path) -> None:
    """Give a store the units that were kept and that it has not."""
    for one in read_units(experiment, folder):
        unit = Unit(experiment, one["number"])
        if store.get(unit) is None:
            store.put(unit, one["numbers"], one["seconds"])


def write_units(experiment: Experiment, store: Store, folder: Path) -> None:
    """Keep the units of a store with those that were kept before, but no failures: tried again."""
    earlier = {one["number"]: one for one in read_units(experiment, folder)}
    found = dict(earlier)
    for unit in experiment.units(experiment.full):
        numbers = store.get(unit)
        if unit.number not in found and numbers is not None and not _failed(numbers):
            seconds = store.seconds(unit)
            found[unit.number] = {"number": unit.number, "seconds": seconds, "numbers": numbers}
    if found.keys() == earlier.keys():
        return  # the bytes stay
    lines = [_shared(experiment), *(found[number] for number in sorted(found))]
    text = "".join(json.dumps(line, sort_keys=True, allow_nan=False) + "\n" for line in lines)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(_place(experiment, folder)) as partial:
        partial.write_bytes(lzma.compress(text.encode()))


def read_units(experiment: Experiment, folder: Path) -> list[dict[str, Any]]:
    """Units that were kept of an experiment as it is today: number, seconds, numbers."""
    if not (path := _place(experiment, folder)).exists():
        return []
    shared, *units = map(json.loads, lzma.decompress(path.read_bytes()).decode().splitlines())
    return units if shared == _shared(experiment) else []


def _place(experiment: Experiment, folder: Path) -> Path:
    name = experiment.name.partition("/")[2]
    return folder / f"{re.sub('[^A-Za-z0-9]+', '-', name).strip('-')}.json.xz"


def _shared(experiment: Experiment) -> dict[str, Any]:
    """What the numbers of a unit depend on, but for its number and the packages."""
    inputs = Unit(experiment, 0).inputs
    return {name: inputs[name] for name in ("unit", "settings", "version")}


def _failed(numbers: dict[str, Any]) -> bool:
    return "failed" in numbers or any("failed" in one for one in numbers.get("records", ()))
