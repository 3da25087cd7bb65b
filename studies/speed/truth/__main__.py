"""Compare fits of many effects with what is known: `python -m ardvark.studies.speed.truth`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

import ardvark as av
from ardvark.studies.speed import record
from ardvark.studies.speed.large import PAGE, PATH, build, page
from ardvark.studies.speed.truth.models import gaussian_walk, lip
from ardvark.studies.speed.truth.moments import Moments, chain_facts, errors, fitted, kept
from ardvark.studies.speed.truth.one_way import one_way_truth
from ardvark.studies.speed.truth.walks import grid_of_walk, nuts_of_walk

KEYS = ("task", "effects", "contestant")
SIZES = {"lip": [56], "walk": [10_000], "gaussian_walk": [10_000], "one_way": [1000, 10_000]}
METHODS = {
    "EP": av.EP(hyper=av.Integrated()),
    "Laplace": av.Laplace(hyper=av.Integrated()),
    "Laplace, corrected": av.Laplace(hyper=av.Integrated(), corrected=True),
}


def _nuts_lip() -> dict[str, Any]:
    import nutpie

    compiled = nutpie.compile_pymc_model(lip())
    tree = nutpie.sample(
        compiled, draws=5000, tune=2000, chains=4, cores=1, seed=1, target_accept=0.95,
        progress_bar=False, save_warmup=False,
    )  # fmt: skip
    return chain_facts(tree, ["a", "b", "s", "r", "phi", "u"])


def _truth(task: str, effects: int) -> tuple[Moments, dict[str, Any]]:
    if task == "lip":
        return kept("lip", _nuts_lip)
    if task == "walk":
        return kept(f"walk_{effects}", lambda: nuts_of_walk(effects))
    return grid_of_walk(effects) if task == "gaussian_walk" else one_way_truth(effects)


TASKS: dict[str, Callable[[int], Any]] = {
    "lip": lip,
    "walk": lambda n: build("walk", n),
    "gaussian_walk": gaussian_walk,
    "one_way": lambda n: build("one_way", n),
}


def _rows(task: str, effects: int, methods: list[str]) -> list[dict[str, Any]]:
    truth, facts = _truth(task, effects)
    rows = []
    for name in methods:
        own, said = fitted(TASKS[task](effects), METHODS[name])
        rows.append({
            "task": task, "effects": effects, "contestant": name, **said,
            "reference": facts, "errors": errors(own, truth),
        })  # fmt: skip
    return rows


def main() -> None:
    """Compare what is asked for, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="+", choices=tuple(TASKS))
    parser.add_argument("--effects", nargs="*", type=int, help="sizes instead of the usual ones")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    asked = parser.parse_args()
    for task in asked.tasks:
        for effects in asked.effects or SIZES[task]:
            load = os.getloadavg()[0]
            rows = _rows(task, effects, asked.methods)
            sys.stdout.write("".join(f"{row}\n" for row in rows))
            record.write(PATH, "truth", rows, KEYS, load)
    PAGE.write_text(page(record.read(PATH)))


if __name__ == "__main__":
    main()
