"""Simulation-based calibration of reversible jump on the mixture under P(t | x).

Subset and coefficients come from the prior, labels from P(t | x, Θ, I), and the chain is asked for
both: 24 rows, three inputs, two kernels, two classes, a ladder of four rungs. Ranked are the number
of inputs, the log likelihood at the truth, the probability of the first class and the largest
kernel probability; inclusions are events with probabilities. In `wrong_prior` the chain believes in
λ = 3 where the truth has λ = 1: it must be caught.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import softmax

import ardvark as av
from ardvark.diagnostics.calibration.checks import inclusion_calibration, places_summary
from ardvark.diagnostics.calibration.replication import rank
from ardvark.inference.mixture.background import Evidence
from ardvark.inference.mixture.conditional.chains import (
    Effort,
    fill_points,
    first_points,
    one_point,
    run_conditional_chains,
)
from ardvark.inference.mixture.conditional.density import Point
from ardvark.inference.mixture.kernels import Problem, add_input
from ardvark.inference.mixture.reading import read_mixture
from ardvark.inference.reversible_jump import Plan
from ardvark.models.subset import log_subset_prior
from ardvark.studies.experiments import Experiment, Numbers, Store
from ardvark.studies.validation.lane import Lane, stored

__all__ = ["LANE", "replications"]

ROWS, INPUTS, KERNELS, CLASSES = 24, 3, 2, 2
TOGETHER = 25  # replications of a unit: they share X
PLAN, EFFORT, RUNGS = Plan(300, 50, 20), Effort(4, 6), 4
LEAST_P = 1e-3


def _problem(rng: np.random.Generator) -> Problem:
    X = rng.normal(size=(ROWS, INPUTS))
    model = av.models.rbf_mixture(
        X, np.arange(ROWS) % CLASSES, n_kernels=KERNELS, target="conditional"
    )
    read = read_mixture(model, "reversible_jump", av.ReversibleJump())
    nothing = np.zeros(INPUTS)
    return read.problem(Evidence(nothing, nothing))


def _from_prior(rng: np.random.Generator, p: Problem) -> Point:
    points = first_points(rng, p, CLASSES, KERNELS, np.zeros(INPUTS, bool), 1)
    weight = np.exp(p.log_prior) * [1, 3, 3, 1]  # of a size: subsets of it are equally likely
    size = rng.choice(INPUTS + 1, p=weight / weight.sum())
    points.on[0, rng.permutation(INPUTS)[:size]] = True
    fill_points(rng, p, points)
    return one_point(points, 0)


def _log_classes(p: Problem, s: Point) -> Any:
    """Log P(t = k | x), (row, class)."""
    rows = np.zeros((KERNELS, ROWS))
    for j in np.flatnonzero(s.on):
        add_input(p.z[j], s.mean[j], s.tau[j], 1.0, rows)
    w = softmax(s.A)[:, None] * softmax(s.B, axis=1)
    joint = np.log(w @ np.exp(rows - rows.max(axis=0))).T
    return joint - np.logaddexp.reduce(joint, axis=1, keepdims=True)


def replications(number: int, expected: float) -> Numbers:
    """Ranks and inclusions of TOGETHER replications; the chain believes in λ = expected."""
    rng = np.random.default_rng([number, 2000])
    truth_of = _problem(rng)
    believed = truth_of._replace(log_prior=log_subset_prior(INPUTS, expected))
    found: dict[str, list[Any]] = {}
    for i in range(TOGETHER):
        truth = _from_prior(rng, truth_of)
        log_p = _log_classes(truth_of, truth)
        label = (rng.random(ROWS) < np.exp(log_p[:, 1])).astype(np.int64)
        chain = run_conditional_chains(
            believed._replace(label=label), CLASSES, KERNELS, PLAN, effort=EFFORT, rungs=RUNGS,
            chains=1, seed=1000 * number + i,
        )[0]  # fmt: skip
        s = chain.states
        log_t = chain.log_t[PLAN.thin - 1 :: PLAN.thin]
        largest = softmax(s.B, axis=2).max(axis=2)[:, 0]
        pairs = {
            "size": (s.on.sum(axis=1), truth.on.sum()),
            "log_t": (log_t, log_p[np.arange(ROWS), label].sum()),
            "class_probability": (softmax(s.A, axis=1)[:, 0], softmax(truth.A)[0]),
            "largest_kernel": (largest, softmax(truth.B, axis=1)[0].max()),
        }
        for name, (draws, value) in pairs.items():
            found.setdefault(name, []).append(float(rank(draws, value, rng)))
        found.setdefault("included", []).append(truth.on.astype(int).tolist())
        found.setdefault("probability", []).append(chain.visited.mean(axis=0).tolist())
    return found


EXPERIMENTS = (
    Experiment("right", "SBC", replications, {"expected": 1.0}, 20, 2),
    Experiment("wrong_prior", "SBC", replications, {"expected": 3.0}, 8, 2),
)


def summary(store: Store) -> dict[str, Any]:
    """Tests of uniform ranks and of inclusions, for the right chain and the wrong one."""
    found: dict[str, Any] = {}
    for experiment in EXPERIMENTS:
        units, seconds = stored(experiment, store)
        if not units:
            continue
        ranks = ("size", "log_t", "class_probability", "largest_kernel")
        places = {n: np.array([u for one in units for u in one[n]]) for n in ranks}
        included, probability = (
            np.array([row for one in units for row in one[n]]) for n in ("included", "probability")
        )
        found[experiment.name] = {
            "replications": len(included),
            "cpu_seconds": round(seconds, 1),
            "ranks": places_summary(places).round(4).to_dict(orient="index"),
            "inclusion": inclusion_calibration(included, probability).round(5).to_dict(),
        }
    return {"experiments": found}


def passed(found: Mapping[str, Any]) -> list[str]:
    """What must not be: a right chain that fails, a wrong one that passes."""
    problems = []
    for name, one in found["experiments"].items():
        least = min(one["inclusion"][key] for key in ("brier_p", "isotonic_p", "mean_p"))
        if (least < LEAST_P) == (name == "right"):
            problems.append(f"{name}: least p of the inclusions {least:.2g}")
    return problems


LANE = Lane("sbc_conditional_mixture", EXPERIMENTS, summary, passed)
