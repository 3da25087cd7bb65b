"""Subsets of tiny problems under P(t | x): chains beside routes that share nothing with them.

    python -m ardvark.studies.validation --lane tiny_mixtures

| experiment | what is compared |
|---|---|
| 13 rows, 30 rows | share of each subset: chains, and draws from the prior until their error is small |
| no Jacobian | the same with a planted fault: HMC on log τ whose density has no Jacobian. It must be seen |
| as it is | the control of it: the same loop without the fault |
| evidences | log P(t | x, I) of each subset: SMC and the bridge from NUTS, beside draws from the prior |

Two classes, two kernels, three inputs, of which the first tells the classes apart, the second does so
less and the third does not. Errors of the reference are those of independent batches; errors of the
chains come from effective sizes. A total variation has an expectation even where both sides are
right: `noise`, 0.4 times the sum of the errors.
"""  # noqa: E501

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import logsumexp

import ardvark as av
from ardvark.errors import ConvergenceWarning
from ardvark.inference.mixture.background import Evidence
from ardvark.inference.mixture.conditional.chains import (
    Effort,
    first_points,
    one_point,
    run_conditional_chains,
    sweep,
)
from ardvark.inference.mixture.conditional.density import Metric, draw_rates, hmc, make_work
from ardvark.inference.mixture.conditional.jumps import MOVES
from ardvark.inference.mixture.kernels import Problem
from ardvark.inference.mixture.reading import Reading, read_mixture
from ardvark.inference.mixture.run_conditional import conditional_evidence
from ardvark.inference.reversible_jump import Plan
from ardvark.inference.samplers.chain_statistics import ess_of_labels
from ardvark.inference.sites.arrays import Array
from ardvark.studies.experiments import Experiment, Numbers, Store
from ardvark.studies.validation.lane import Lane, stored

__all__ = ["LANE", "distance", "evidences", "planted", "reference", "tiny"]

KERNELS, CLASSES, INPUTS = 2, 2, 3
SUBSETS = np.array(list(np.ndindex(*(2,) * INPUTS)), bool)
BATCH, LEAST, MOST = 100_000, 4, 25  # draws from the prior, batches
SMALL = 0.004  # noise of the reference at which its batches end
FAR, LARGEST_Z = 0.03, 4.5  # of 8 subsets of 25 problems: one false alarm in seven hundred runs
CHAINS = 4


def tiny(seed: int, rows: int = 13, included: Any = None) -> Any:
    """A model of few rows."""
    rng = np.random.default_rng(seed)
    t = np.arange(rows) % CLASSES
    X = rng.normal(size=(rows, INPUTS)) + np.outer(t, [1.5, 0.7, 0.0])
    return av.models.rbf_mixture(X, t, n_kernels=KERNELS, target="conditional", included=included)


def _read(model: Any) -> tuple[Reading, Problem]:
    read = read_mixture(model, "reversible_jump", av.ReversibleJump())
    return read, read.problem(Evidence(*np.zeros((2, INPUTS))))


# The reference ------------------------------------------------------------------------------------


def _from_prior(rng: np.random.Generator, p: Problem, number: int) -> tuple[Array, Array]:
    """Means and precisions (draw, input, kernel); rates below the floor are drawn again."""
    beta = np.zeros((number, INPUTS))
    while (low := beta <= p.floor).any():
        beta[low] = rng.gamma(p.g, np.broadcast_to(1 / p.h, beta.shape)[low])
    shape = (number, INPUTS, KERNELS)
    return rng.normal(size=shape), rng.gamma(p.shape, 1 / beta[..., None], size=shape)


def reference(model: Any, seed: int) -> tuple[Array, Array, Array]:
    """Log evidences by batches of draws from the prior (batch, subset), shares, their errors."""
    read, p = _read(model)
    rng = np.random.default_rng([seed, 13])
    found: list[Array] = []
    while len(found) < MOST:
        draws = _from_prior(rng, p, BATCH)
        own = int(rng.integers(2**31))
        found.append(conditional_evidence(read.z, read.label, read.prior, draws, SUBSETS, own)[0])
        share, error = _shares(np.array(found), p)
        if len(found) >= LEAST and _noise(error) < SMALL:
            break
    return np.array(found), share, error


def _shares(by_batch: Array, p: Problem) -> tuple[Array, Array]:
    """Leave-one-batch-out errors: a share is a ratio of means."""
    prior = p.log_prior[SUBSETS.sum(axis=1)]

    def shares(batches: Array) -> Array:
        weight = logsumexp(batches, axis=0) + prior
        return np.asarray(np.exp(weight - logsumexp(weight)))

    number = len(by_batch)
    if number < 2:
        return shares(by_batch), np.ones(len(SUBSETS))
    without = np.array([shares(np.delete(by_batch, b, axis=0)) for b in range(number)])
    return shares(by_batch), np.sqrt((number - 1) * without.var(axis=0))


def _noise(*errors: Array) -> float:
    """The total variation to be expected between two sides that are right, E|z| / 2 = 0.4."""
    return float(0.4 * np.sqrt(np.sum(np.square(errors), axis=0)).sum())


# The chains ---------------------------------------------------------------------------------------


def _compared(visited: Array, model: Any, seed: int) -> Numbers:
    """Chains (chain, sweep, input) beside the reference."""
    by_batch, exact, error = reference(model, seed)
    code = visited @ (1 << np.arange(INPUTS)[::-1])
    found = np.bincount(code.ravel(), minlength=len(SUBSETS)) / code.size
    own = np.sqrt(found * (1 - found) / ess_of_labels(code, len(SUBSETS)))
    return {
        "total_variation": np.abs(found - exact).sum() / 2,
        "noise": _noise(error, own),
        "noise_reference": _noise(error),
        "z": np.max(np.abs(found - exact) / np.hypot(error, own)),
        "draws_of_the_prior": BATCH * len(by_batch),
        "found": found,
        "exact": exact,
    }


def distance(number: int, rows: int, sweeps: int) -> Numbers:
    """Chains with a ladder of two rungs, as `ReversibleJump(rungs=2)` has them."""
    model = tiny(number, rows)
    chains = run_conditional_chains(
        _read(model)[1], CLASSES, KERNELS, Plan(1000, 1, sweeps),
        effort=Effort(3, 8), rungs=2, chains=CHAINS, seed=number + 1,
    )  # fmt: skip
    return _compared(np.stack([chain.visited for chain in chains]), model, number)


def planted(number: int, fault: bool, sweeps: int) -> Numbers:
    """Sweeps one by one, HMC with or without the Jacobian τ of log τ: a - 1 for a."""
    model = tiny(number)
    p = _read(model)[1]
    wrong = p._replace(shape=p.shape - 1) if fault else p
    rows = p.z.shape[1]
    metric = Metric(
        np.array([0.6, 0.0, 0.0]), np.full((INPUTS + 1, 2), 4.0),
        np.zeros((INPUTS + 1, 2)), np.zeros(INPUTS + 1),
    )  # fmt: skip
    still, work = metric._replace(step=np.zeros(3)), make_work(CLASSES, KERNELS, INPUTS, rows)
    chance, counts = np.full(INPUTS, 1 / INPUTS), np.zeros((2, len(MOVES), INPUTS + 1), np.int64)
    visited = np.empty((CHAINS, sweeps, INPUTS), bool)
    for chain in range(CHAINS):
        rng = np.random.default_rng([number, chain])
        on = np.arange(INPUTS) < chain
        s = one_point(first_points(rng, p, CLASSES, KERNELS, on, 1), 0)
        for i in range(sweeps):
            hmc(rng, wrong, s, metric, 8, work)
            draw_rates(rng, p, s)
            sweep(rng, p, s, still, chance, Effort(3, 1), counts, work)
            visited[chain, i] = s.on
    return _compared(visited[:, sweeps // 20 :], model, number)


# Evidences of given subsets -----------------------------------------------------------------------

GIVEN = (0b110, 0b111, 0b100, 0b001)  # codes of the subsets
SMC: dict[str, Any] = {"kernel": "random_walk", "threshold": 0.8, "correlation_threshold": 0.001}


def evidences(number: int, rows: int, seed: int = 0) -> Numbers:
    """Log evidence of one subset by three routes, each with its error."""
    code = GIVEN[number]
    on = SUBSETS[code]
    by_batch, _, _ = reference(tiny(seed, rows), seed)
    of_subset = by_batch[:, code]
    exact = logsumexp(of_subset) - np.log(len(of_subset))
    error = np.exp(of_subset - exact).std(ddof=1) / np.sqrt(len(of_subset))
    model = tiny(seed, rows, np.flatnonzero(on).tolist())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        smc = av.fit(model, av.SMC(**SMC), draws=2000, random_seed=number + 1, progressbar=False)[
            "fit"
        ]
        nuts = av.fit(
            model, av.NUTS(tune=500), draws=1000, chains=2, random_seed=number + 1,
            progressbar=False,
        )  # fmt: skip
    bridged = av.diagnostics.bridge(model, nuts)
    return {
        "subset": "".join(map(str, on.astype(int))),
        "exact": exact,
        "exact_error": error,
        "smc": smc.log_evidence.item(),
        "smc_error": smc.log_evidence_error.item(),
        "bridge": bridged.log_evidence,
        "bridge_error": bridged.error,
    }


# The lane -----------------------------------------------------------------------------------------

FAULT = "no Jacobian"
EXPERIMENTS = (
    Experiment("13 rows", "subsets", distance, {"rows": 13, "sweeps": 30_000}, 20),
    Experiment("30 rows", "subsets", distance, {"rows": 30, "sweeps": 30_000}, 1, 0),
    Experiment("as it is", "fault", planted, {"fault": False, "sweeps": 20_000}, 3),
    Experiment(FAULT, "fault", planted, {"fault": True, "sweeps": 20_000}, 3),
    Experiment("evidences 13", "evidences", evidences, {"rows": 13}, 4, 0),
    Experiment("evidences 30", "evidences", evidences, {"rows": 30}, 4, 0),
)


def summary(store: Store) -> dict[str, Any]:
    """All units of each experiment, and the worst of them."""
    found: dict[str, Any] = {}
    for experiment in EXPERIMENTS:
        units, seconds = stored(experiment, store)
        if not units:
            continue
        one = {"of": experiment.full, "cpu_seconds": round(seconds, 1)}
        if experiment.place != "evidences":
            for name in ("total_variation", "noise", "z"):
                one[name] = round(max(unit[name] for unit in units), 4)
        found[experiment.name] = one | {"units": [_rounded(unit) for unit in units]}
    return {"far": FAR, "largest_z": LARGEST_Z, "experiments": found}


def _rounded(unit: Numbers) -> Numbers:
    return {k: v if isinstance(v, str) else np.round(v, 5).tolist() for k, v in unit.items()}


def passed(found: Mapping[str, Any]) -> list[str]:
    """Chains that are far from the reference, a fault that is not, evidences that differ."""
    problems = []
    for name, one in found["experiments"].items():
        for number, unit in enumerate(one["units"]):
            if "subset" in unit:
                problems += [f"{name}, {unit['subset']}: {text}" for text in _differing(unit)]
                continue
            seen = unit["total_variation"] > FAR or unit["z"] > LARGEST_Z
            if seen != (name == FAULT):
                distance = f"{unit['total_variation']:.3f}, |z| {unit['z']:.1f}"
                problems.append(f"{name}, problem {number}: total variation {distance}")
    return problems


def _differing(unit: Mapping[str, Any]) -> list[str]:
    said = []
    for route in ("smc", "bridge"):
        gap = abs(unit[route] - unit["exact"])
        z = gap / math.hypot(unit[f"{route}_error"], unit["exact_error"])
        if z > LARGEST_Z:
            said.append(f"{route} is {gap:.2f} nats off, |z| {z:.1f}")
    return said


LANE = Lane("tiny_mixtures", EXPERIMENTS, summary, passed)
