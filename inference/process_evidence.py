"""Hyperparameters of a Gaussian process classifier with the trigonometric likelihood, by evidence.

    u = log of every parameter of the covariance that is free

| rule            | evidence                            | what it costs                            |
|-----------------|-------------------------------------|------------------------------------------|
| Laplace         | Chu06 (15), on the support vectors  | O(N² d + s³ + s² d), s support vectors   |
| any other (EP)  | its own, on all rows                | what the rule costs, and O(N² d)         |

The support-vector route is climbed twice: first with the jumps of (15) drawn out (`RAMP`), from
where the starts run together, then as it is, accepted by value.

With hundreds of features a start that weighs all of them alike explains nothing, and the evidence
then rises fastest towards no function at all: κ_0 → 0, log evidence N ln ½, a dead end. A climb
that ends there is made again, first in κ_a alone, with κ_0 and κ_b held.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.approximation import Approximation, GaussianFit
from ardvark.inference.evidence_search import End, Objective, Optima, climb, search, weigh
from ardvark.inference.gaussian import SiteModel
from ardvark.inference.sites import Array
from ardvark.inference.svm_evidence import relevance_of, support_evidence
from ardvark.inference.trigonometric import TrigonometricSites
from ardvark.models.covariances import Covariance
from ardvark.models.kernels import Scale

__all__ = ["Found", "Process", "Theta", "maximise", "random_starts", "site_model"]

RAMP = 0.2  # half width of the ramp, in units of the margin; 0.1 to 0.5 end close to each other
NO_BETTER = 1.0  # nats above N ln ½ up to which a fit is no better than a coin
HELD_STEPS = 50  # of a climb with the scales held: it is to point the way, not to arrive
REACH = 14.0  # a parameter may leave its typical value by this much in the log
SPREAD = 1.0  # sd of a random start in the log
FIRST = {"kappa_0": 1.0, "kappa_b": 10.0}  # where the paper starts, Chu06 section 4

type Theta = Mapping[str, Array]


@dataclass(frozen=True)
class Process:
    """Rows, labels, and the parameters of a covariance, free or given."""

    X: Array
    sign: Array  # ±1
    covariance: Covariance
    parameters: tuple[Scale, ...]

    @classmethod
    def of(cls, X: Array, sign: Array, covariance: Covariance) -> "Process":
        """Take every parameter that the covariance leaves open as free."""
        return cls(X, sign, covariance, covariance.parameters(X))

    def given(self, values: Theta) -> "Process":
        """The same with other values of the parameters that are given."""
        known = tuple(
            replace(s, value=np.asarray(values[s.name])) if s.value is not None else s
            for s in self.parameters
        )
        return replace(self, parameters=known)

    @cached_property
    def free(self) -> tuple[Scale, ...]:
        """The parameters that a search may move."""
        return tuple(scale for scale in self.parameters if scale.value is None)

    def flat(self, theta: Theta) -> Array:
        """Logarithms of the free parameters, one after the other."""
        return np.concatenate([np.log(np.ravel(theta[scale.name])) for scale in self.free])

    def theta(self, u: Array) -> dict[str, Array]:
        """The free parameters by name."""
        sizes = np.cumsum([scale.typical.size for scale in self.free])[:-1]
        parts = zip(self.free, np.split(np.exp(u), sizes), strict=True)
        return {scale.name: part.reshape(scale.typical.shape) for scale, part in parts}

    def kappa(self, theta: Theta) -> dict[str, Array]:
        """All parameters by name, the given ones too."""
        given = {s.name: s.value for s in self.parameters if s.value is not None}
        return {**given, **{name: np.asarray(value) for name, value in theta.items()}}

    @cached_property
    def typical(self) -> dict[str, Array]:
        """Typical values of the free parameters."""
        return {scale.name: scale.typical for scale in self.free}

    def matrices(self, kappa: Theta) -> tuple[Array, Array]:
        """Covariance of the rows, without and with its jitter."""
        plain = np.asarray(self.covariance(self.X, self.X, kappa))
        jittered = plain.copy()
        jittered.flat[:: len(plain) + 1] += self.covariance.jitter
        return plain, jittered

    def gradient(self, adjoint: Array, rows: Any, kappa: Theta, plain: Array) -> Array:
        """Gradient in u from the adjoint of the covariance of some rows."""
        part = plain[np.ix_(rows, rows)] if rows is not None else plain
        X = self.X[rows] if rows is not None else self.X
        pulled = self.covariance.pull(adjoint, X, kappa, part)
        return np.concatenate([np.ravel(pulled[s.name] * kappa[s.name]) for s in self.free])


def site_model(process: Process, covariance: Array) -> SiteModel:
    """The process as Gaussian block times sites: A = I."""
    rows = len(process.sign)
    nothing = np.zeros(rows)
    sites = TrigonometricSites(process.sign)
    return SiteModel(nothing, np.eye(rows), nothing, sites, covariance=covariance)


class Found(NamedTuple):
    """The optima, and the free parameters at each of them, the best first."""

    optima: Optima
    theta: list[dict[str, Array]]


def maximise(
    process: Process,
    rule: Approximation | None = None,
    *,
    starts: Sequence[Theta],
    log_prior: Callable[[Theta], tuple[float, Mapping[str, Array]]] | None = None,
    tolerance: float = 1e-6,
    max_steps: int = 5000,
    max_rounds: int = 50,
    workers: int = 1,
    tick: Callable[[str], None] = lambda text: None,
) -> Found:
    """Maximise the evidence from each start: on the support vectors, or by another rule.

    `log_prior` adds a hyperprior: its log density in the parameters, and the gradient by name.
    """
    low = process.flat(process.typical) - REACH
    bounds = low, low + 2 * REACH

    def one(start: Theta) -> End:
        objectives = (
            [_by_support(process, RAMP), _by_support(process, 0.0)]
            if rule is None
            else [_by_rule(process, rule)]
        )
        if log_prior:
            objectives = [_with_prior(process, each, log_prior) for each in objectives]

        def through(u: Array) -> End:
            for stage, objective in enumerate(objectives):
                final = stage == len(objectives) - 1
                end = climb(
                    objective, u, bounds, tolerance=tolerance, max_steps=max_steps,
                    max_rounds=max_rounds if final else 1, jumps=rule is None and final,
                )  # fmt: skip
                u = end.u
            return end

        u = np.clip(process.flat(start), *bounds)
        end = through(u)
        if end.value < NO_BETTER - np.log(2.0) * len(process.sign):
            again = through(_with_scales_held(process, objectives[0], u, bounds))
            end = max(end, again, key=lambda one: one.value)
        tick(f"log evidence {end.value:.4f}")
        return end

    ends = search([partial(one, start) for start in starts], workers)
    kappa_a = np.array([process.kappa(process.theta(end.u))["kappa_a"] for end in ends])
    optima = weigh(ends, relevance_of(kappa_a, process.X))
    return Found(optima, [process.theta(end.u) for end in optima.ends])


def random_starts(process: Process, count: int, seed: int = 0) -> list[dict[str, Array]]:
    """The paper's start, κ_a all typical, and then with κ_a scattered around that."""
    rng = np.random.default_rng(seed)
    starts = []
    for number in range(count):
        start = {n: np.array(FIRST.get(n, value)) for n, value in process.typical.items()}
        for name in start:
            if number and name not in FIRST:
                noise = rng.standard_normal(start[name].shape)
                start[name] = start[name] * np.exp(SPREAD * noise)
        starts.append(start)
    return starts


def _with_scales_held(
    process: Process, objective: Objective, u: Array, bounds: tuple[Array, Array]
) -> Array:
    """Where a climb in κ_a alone leads."""
    moved = np.repeat([s.name == "kappa_a" for s in process.free],
                      [s.typical.size for s in process.free])  # fmt: skip
    held = np.where(moved, bounds[0], u), np.where(moved, bounds[1], u)
    return climb(objective, u, held, max_steps=HELD_STEPS, max_rounds=1, jumps=False).u


def _by_support(process: Process, ramp: float) -> Objective:
    alpha: Array | None = None

    def objective(u: Array) -> tuple[float, Array]:
        nonlocal alpha
        kappa = process.kappa(process.theta(u))
        plain, jittered = process.matrices(kappa)
        found = support_evidence(jittered, process.sign, alpha, ramp=ramp)
        alpha = found.mode.alpha
        return found.log_evidence, process.gradient(found.adjoint, found.rows, kappa, plain)

    return objective


def _by_rule(process: Process, rule: Approximation) -> Objective:
    last: GaussianFit | None = None

    def objective(u: Array) -> tuple[float, Array]:
        nonlocal last
        kappa = process.kappa(process.theta(u))
        plain, jittered = process.matrices(kappa)
        model = site_model(process, jittered)
        fit = rule.approximate(model, last)
        if not np.isfinite(fit.log_evidence):
            return -np.inf, np.zeros_like(u)
        last = fit
        adjoint = rule.evidence_gradient(model, fit).covariance
        assert adjoint is not None
        return fit.log_evidence, process.gradient(adjoint, None, kappa, plain)

    return objective


def _with_prior(
    process: Process,
    objective: Objective,
    log_prior: Callable[[Theta], tuple[float, Mapping[str, Array]]],
) -> Objective:
    """Add the hyperprior, a density on the natural scale with its gradient there."""

    def both(u: Array) -> tuple[float, Array]:
        value, gradient = objective(u)
        theta = process.theta(u)
        extra, slope = log_prior(theta)
        steps = [np.ravel(slope[s.name] * theta[s.name]) for s in process.free]
        return value + extra, gradient + np.concatenate(steps)

    return both
