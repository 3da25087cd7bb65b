"""Experiments as data: what is repeated, how often, and where the numbers are kept.

    Experiment        a unit of work, its settings, how many partitions the paper had
    unit(number, **settings) -> {name: number}        a pure function: data, partition, method, seed
    Store             one JSON file for each unit that is done, named by a hash of its inputs
    run               the units that are not in the store, by an executor (`running/executor.py`)

What the units of a store say together is in `summaries.py`.

A unit is written whole or not at all the moment it is done: a run that was killed goes on where it
was and ends in the same bytes. CPU seconds are kept beside, since they are never the same.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ardvark.diagnostics.storage.atomic import write_text
from ardvark.errors import ConvergenceWarning, InputWarning
from ardvark.inference.running.executor import run_tasks

__all__ = [
    "PAPERS",
    "Anova",
    "Claim",
    "Experiment",
    "Numbers",
    "Store",
    "Unit",
    "experiments_of",
    "run",
    "say",
    "share",
]

PAPERS = ("qi2004", "tipping2001", "usps", "chu2006", "madelon", "mirzaei2017", "sykacek2000")
DECIDES = ("ardvark", "numpy", "scipy", "scikit-learn")  # packages whose versions name a unit
USUAL = 10  # partitions, unless fewer or all are asked for

type Numbers = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One unit for each of `full` partitions, with the same settings."""

    name: str
    place: str  # in the paper
    unit: Callable[..., Numbers]  # of a module: unit(number, **settings)
    settings: Mapping[str, Any]
    full: int  # as many as the paper has, or as there are
    quick: int = 1
    version: int = 1  # counted up when the numbers of the unit change

    def units(self, count: int) -> list[Unit]:
        """The first so many."""
        return [Unit(self, number) for number in range(min(count, self.full))]


class Claim(NamedTuple):
    """The paper says that `first` is larger than `second`, each "experiment:number", paired."""

    text: str
    first: str
    second: str


class Anova(NamedTuple):
    """The paper compares several numbers, each "experiment:number", by an analysis of variance."""

    text: str
    sides: tuple[str, ...]


class Unit(NamedTuple):
    """One partition of an experiment."""

    experiment: Experiment
    number: int

    @property
    def inputs(self) -> dict[str, Any]:
        """All that its numbers depend on."""
        experiment = self.experiment
        return {
            "unit": f"{experiment.unit.__module__}.{experiment.unit.__qualname__}",
            "settings": dict(experiment.settings),
            "number": self.number,
            "version": experiment.version,
            "packages": _versions(),
        }

    @property
    def key(self) -> str:
        """The name of its file."""
        text = json.dumps(self.inputs, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def __call__(self) -> Numbers:
        """Run it. An error is a result too: it would come again."""
        with warnings.catch_warnings():
            for counted in (ConvergenceWarning, InputWarning):  # `converged` is in the numbers
                warnings.simplefilter("ignore", counted)
            try:
                found = self.experiment.unit(self.number, **self.experiment.settings)
            except (ArithmeticError, ValueError, RuntimeError) as error:
                return {"failed": f"{type(error).__name__}: {error}"}
        return {name: _plain(value) for name, value in found.items()}


def say(text: str) -> None:
    """Write a line at once, whoever reads it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def share(wrong: Any, name: str = "error") -> dict[str, float]:
    """A share in per cent, with its standard error."""
    p = float(np.mean(wrong))
    return {name: 100 * p, f"{name}_se": 100 * math.sqrt(p * (1 - p) / len(wrong))}


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in DECIDES}


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def experiments_of(study: str) -> tuple[tuple[Experiment, ...], tuple[Claim | Anova, ...]]:
    """The experiments of a paper, and what it claims about them."""
    module = import_module(f"ardvark.studies.papers.{study}")
    return module.EXPERIMENTS, getattr(module, "CLAIMS", ())


# Keeping ----------------------------------------------------------------------------------------


class Store:
    """A folder of units that are done."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def get(self, unit: Unit) -> Numbers | None:
        """The numbers of a unit, None if it was not run."""
        path = self.folder / f"{unit.key}.json"
        if not path.exists():
            return None
        numbers: Numbers = json.loads(path.read_text(encoding="utf-8"))["numbers"]
        return numbers

    def put(self, unit: Unit, numbers: Numbers, seconds: float) -> None:
        """Keep the numbers of a unit, and the CPU seconds that they took."""
        times = self.folder / "cpu_seconds"
        times.mkdir(parents=True, exist_ok=True)
        (times / unit.key).write_text(f"{seconds:.3f}\n")
        record = {"experiment": unit.experiment.name, **unit.inputs, "numbers": numbers}
        text = json.dumps(record, sort_keys=True, allow_nan=False) + "\n"
        write_text(self.folder / f"{unit.key}.json", text)

    def seconds(self, unit: Unit) -> float:
        """CPU seconds that a unit took; 0 if nobody knows."""
        path = self.folder / "cpu_seconds" / unit.key
        return float(path.read_text()) if path.exists() else 0.0


def _timed(unit: Unit) -> tuple[Numbers, float]:
    begin = time.process_time()
    return unit(), time.process_time() - begin


def run(
    units: Iterable[Unit],
    store: Store,
    executor: Any = None,
    tick: Callable[[int, Unit], None] | None = None,
) -> int:
    """Run the units that are not in the store and keep each; how many that were."""
    todo = [unit for unit in units if store.get(unit) is None]
    done = 0

    def keep(number: int, result: tuple[Numbers, float]) -> None:
        nonlocal done
        done += 1
        store.put(todo[number], *result)
        if tick is not None:
            tick(done, todo[number])

    run_tasks(_timed, todo, executor, done=keep)
    return done
