"""Where should a feature selection stop? Rules held against simulated data whose truth is known.

    python -m ardvark.studies.papers.stopping       # five kinds of data, five of each: some minutes

Each data set has a few features that matter, sometimes copies mixed of them, and noise. They are
ranked by relevance, the cross-validated SVM is tried on the top 1, 2, ... of them, and every rule
chooses a set from that one path. It is judged by what no rule has seen: the error of the chosen
machine on 2000 fresh rows, and which of the features matter.

| rule                | chosen set                                                                |
|---------------------|---------------------------------------------------------------------------|
| table 1             | the one before the first that is significantly worse than the best so far |
| smallest            | smallest that is not significantly worse than the best of the walk, which |
|                     | ends after `patience` features in vain                                    |
| best                | that of the least loss                                                    |

Significant: one or two standard errors of the paired difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.running.executor import run_tasks
from ardvark.inference.selection.svm import GridSVM, decide
from ardvark.inference.selection.walk import ByRelevance, Path, Score, excess, forward
from ardvark.inference.sites.arrays import Array

__all__ = ["KINDS", "RULES", "Simulated", "compare_rules", "simulate"]

FRESH = 2000  # rows that judge
MOST = 12  # features of a path


class Simulated(NamedTuple):
    """Rows to learn from, rows to judge by, and the features that matter."""

    X: Array
    sign: Array
    X_new: Array
    sign_new: Array
    real: frozenset[int]


def _linear(X: Array) -> Array:
    return np.asarray(X[:, :3] @ [1.5, -1.0, 0.7])


def _crossed(X: Array) -> Array:
    return np.asarray(2.0 * X[:, 0] * X[:, 1] + X[:, 2])


def _radial(X: Array) -> Array:
    return np.asarray(np.square(X[:, :4]).sum(axis=1) - 3.36)  # its median


def _parity(X: Array) -> Array:
    return np.asarray(3.0 * np.prod(np.sign(X[:, :3]) * np.sqrt(np.abs(X[:, :3])), axis=1))


def _corners(X: Array) -> Array:
    """Clusters at the corners of a cube, as Madelon has: labels of corners by the parity of two."""
    corner = np.where(X[:, :3] > 0, 1.0, -1.0)
    return np.asarray(corner[:, 0] * corner[:, 1] + 0.8 * corner[:, 2])


KINDS: dict[str, tuple[Callable[[Array], Array], int, int, int]] = {  # rows, real, copies
    "linear": (_linear, 120, 3, 0),
    "crossed": (_crossed, 150, 3, 0),
    "radial": (_radial, 200, 4, 0),
    "parity": (_parity, 300, 3, 0),
    "corners": (_corners, 250, 3, 4),
}


def simulate(kind: str, seed: int, features: int = 20) -> Simulated:
    """Draw one data set; features are shuffled."""
    signal, rows, real, copies = KINDS[kind]
    rng = np.random.default_rng([list(KINDS).index(kind), seed])
    X = rng.normal(size=(rows + FRESH, features))
    if copies:
        mix = rng.normal(size=(real, copies))
        X[:, real : real + copies] = X[:, :real] @ mix / np.sqrt(np.square(mix).sum(axis=0))
        X[:, real : real + copies] += 0.3 * rng.normal(size=(rows + FRESH, copies))
    sign = np.where(signal(X) + 0.3 * rng.normal(size=rows + FRESH) > 0, 1.0, -1.0)
    order = rng.permutation(features)
    places = frozenset(np.flatnonzero(order < real + copies).tolist())
    X = X[:, order]
    return Simulated(X[:rows], sign[:rows], X[rows:], sign[rows:], places)


def _table_1(path: Path, significance: float) -> int:
    best = path.scores[0]
    for k, score in enumerate(path.scores):
        best = min(best, score, key=lambda one: one.loss)
        if excess(score, best) > significance:
            return k - 1
    return len(path.scores) - 1


def _smallest(path: Path, significance: float, patience: int) -> int:
    found = 0
    for k in range(1, len(path.scores) + 1):
        found = _as_good(path.scores[:k], significance)
        if k - 1 - found >= patience:
            break
    return found


def _as_good(scores: tuple[Score, ...], significance: float) -> int:
    best = min(scores, key=lambda one: one.loss)
    return next(k for k, score in enumerate(scores) if excess(score, best) <= significance)


RULES: dict[str, Callable[[Path], int]] = {
    **{f"table 1, {s:g} se": partial(_table_1, significance=s) for s in (1.0, 2.0)},
    **{
        f"smallest, {s:g} se, patience {p}": partial(_smallest, significance=s, patience=p)
        for s in (1.0, 2.0)
        for p in (1, 3, 5, MOST)
    },
    "best": lambda path: int(np.argmin(path.losses)),
}


def compare_rules(kind: str, seed: int) -> dict[str, Any]:
    """Walk one path to its end, and let every rule choose from it."""
    data = simulate(kind, seed)
    ranking = ByRelevance(3, seed)(data.X, data.sign)
    learner = GridSVM(repeats=4, seed=seed)
    path = forward(data.X, data.sign, ranking.order, learner, most=MOST, beyond=True)
    chosen = {}
    for name, rule in RULES.items():
        step = rule(path)
        columns = path.subsets[step]
        f = decide(data.X[:, columns], data.sign, data.X_new[:, columns], path.scores[step].setting)
        right = len(data.real & set(columns.tolist()))
        error = float(np.mean(f * data.sign_new <= 0))
        chosen[name] = {
            "error": error, "features": len(columns), "noise": len(columns) - right,
        }  # fmt: skip
    losses = path.losses.round(3).tolist()
    return {"kind": kind, "seed": seed, "losses": losses, "chosen": chosen}


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each rule over all data sets: error in % above that of the best rule there, and sizes."""
    least = [min(one["error"] for one in run["chosen"].values()) for run in runs]
    table = []
    for name in RULES:
        taken = [run["chosen"][name] for run in runs]
        above = 100 * np.array([t["error"] - low for t, low in zip(taken, least, strict=True)])
        table.append({
            "rule": name,
            "error_above_best": round(float(above.mean()), 2),
            "standard_error": round(float(above.std(ddof=1) / np.sqrt(len(above))), 2),
            "worst": round(float(above.max()), 2),
            "features": round(float(np.mean([t["features"] for t in taken])), 2),
            "noise": round(float(np.mean([t["noise"] for t in taken])), 2),
        })  # fmt: skip
    return table


def main(arguments: list[str] | None = None) -> None:
    """Command line: one JSON line per data set, then one per rule."""
    parser = argparse.ArgumentParser(description="Stopping rules of a feature selection.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args(arguments)
    cases = [(kind, seed) for seed in range(asked.seeds) for kind in KINDS]

    def told(number: int, found: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()

    runs = run_tasks(lambda case: compare_rules(*case), cases, asked.jobs, done=told)
    for row in summary(runs):
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
