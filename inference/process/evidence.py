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

With thousands of rows an evaluation takes half a second and a climb hundreds of them. There every
start first climbs on a random part of the rows, where a step costs a tenth, and then a little on
all rows; only the best few are followed to their end. The others are dropped: by (18) an optimum
ten nats lower has no weight.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.process.search import End, Objective, Optima, climb, search, weigh
from ardvark.inference.process.support import relevance_of, support_evidence
from ardvark.inference.running.executor import run_tasks
from ardvark.inference.running.progress import Tick, no_tick
from ardvark.inference.running.threads import Watch
from ardvark.inference.sites.approximation import Approximation, GaussianFit
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.trigonometric import TrigonometricSites
from ardvark.models.covariances import Covariance
from ardvark.models.kernels import Scale

__all__ = ["Found", "Process", "Theta", "maximise", "random_starts", "site_model"]

RAMP = 0.2  # half width of the ramp, in units of the margin; 0.1 to 0.5 end close to each other
NO_BETTER = 1.0  # nats above N ln ½ up to which a fit is no better than a coin
HELD_STEPS = 50  # of a climb with the scales held: it is to point the way, not to arrive
MANY_ROWS = 1200  # beyond, starts are screened:
SOME_ROWS, SOME_STEPS = 700, 60  # each climbs so many steps on so many rows,
LOOK_STEPS = 20  # some more on all rows,
KEPT = 3  # and the best of them go on
RAMP_TOLERANCE = 1e-4  # nats, at which that climb may end: it only leads to where the next begins
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
    dropped: int = 0  # starts that were not followed to their end


type LogPrior = Callable[[Theta], tuple[float, Mapping[str, Array]]]


def maximise(
    process: Process,
    rule: Approximation | None = None,
    *,
    starts: Sequence[Theta],
    log_prior: LogPrior | None = None,
    tolerance: float = 1e-6,
    max_steps: int = 5000,
    max_rounds: int = 50,
    workers: int = 1,
    executor: Any = None,
    tick: Tick = no_tick,
) -> Found:
    """Maximise the evidence from each start: on the support vectors, or by another rule.

    `log_prior` adds a hyperprior: its log density in the parameters, and the gradient by name.
    The starts are followed in so many threads (`workers`), or by an `executor`.
    """
    way = _Way(process, rule, log_prior, tolerance, max_steps, max_rounds)

    def climbed(climb_of: Callable[..., End], tasks: Sequence[Any], said: str) -> list[End]:
        def done(number: int, end: End) -> None:
            tick(said.format(end.value, number))

        if executor is not None:
            return run_tasks(partial(climb_of, way), tasks, executor, done=done)
        return search([partial(climb_of, way, task) for task in tasks], workers, done)

    places = [np.clip(process.flat(start), *way.bounds) for start in starts]
    if rule is None and len(process.sign) > MANY_ROWS:
        ends = climbed(_near, list(enumerate(places)), "start {1}: log evidence {0:.1f} so far")
        places = [end.u for end in sorted(ends, key=lambda end: -end.value)[:KEPT]]
    ends = climbed(_followed, places, "log evidence {0:.4f}")
    kappa_a = np.array([process.kappa(process.theta(end.u))["kappa_a"] for end in ends])
    optima = weigh(ends, relevance_of(kappa_a, process.X))
    theta = [process.theta(end.u) for end in optima.ends]
    return Found(optima, theta, len(starts) - len(places))


@dataclass(frozen=True)
class _Way:
    """How a climb goes: what it follows, within which bounds, for how long."""

    process: Process
    rule: Approximation | None
    log_prior: LogPrior | None
    tolerance: float
    max_steps: int
    max_rounds: int
    watch: Watch | None = None

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """Least and largest u."""
        low = self.process.flat(self.process.typical) - REACH
        return low, low + 2 * REACH

    def objective(self, ramp: float) -> Objective:
        """The evidence in u, its jumps drawn out by a ramp."""
        rule = self.rule
        one = _by_rule(self.process, rule) if rule else _by_support(self.process, ramp)
        return _with_prior(self.process, one, self.log_prior) if self.log_prior else one

    def along_ramp(self, u: Array) -> End:
        """Climb without jumps, as a guide."""
        return climb(
            self.objective(RAMP), u, self.bounds, max_steps=self.max_steps, max_rounds=1,
            tolerance=max(self.tolerance, RAMP_TOLERANCE), jumps=False, watch=self.watch,
        )  # fmt: skip

    def whole(self, u: Array) -> End:
        """Climb the evidence as it is; on the support vectors along the ramp before."""
        if self.rule is None:
            u = self.along_ramp(u).u
        return climb(
            self.objective(0.0), u, self.bounds, max_steps=self.max_steps,
            max_rounds=self.max_rounds, tolerance=self.tolerance, jumps=self.rule is None,
            watch=self.watch,
        )  # fmt: skip

    def alive(self, u: Array, stage: Callable[[Array], End]) -> End:
        """Go through a stage, and if it ends at no function at all, again with the scales held."""
        end = stage(u)
        if end.value < NO_BETTER - np.log(2.0) * len(self.process.sign):
            end = max(end, stage(self._with_scales_held(u)), key=lambda one: one.value)
        return end

    def _with_scales_held(self, u: Array) -> Array:
        """The end of a short climb in κ_a alone."""
        free = self.process.free
        moved = np.repeat([s.name == "kappa_a" for s in free], [s.typical.size for s in free])
        low, high = (np.where(moved, side, u) for side in self.bounds)
        objective = self.objective(RAMP)
        return climb(
            objective, u, (low, high), max_steps=HELD_STEPS, max_rounds=1, jumps=False,
            watch=self.watch,
        ).u  # fmt: skip

    def on_some(self, number: int) -> "_Way":
        """The same on a random part of the rows, and shorter."""
        rows = np.random.default_rng(number).permutation(len(self.process.sign))[:SOME_ROWS]
        part = replace(self.process, X=self.process.X[rows], sign=self.process.sign[rows])
        return replace(self, process=part, max_steps=min(SOME_STEPS, self.max_steps))


def _followed(way: _Way, u: Array, watch: Watch | None = None) -> End:
    """Climb from a start to the end."""
    watched = replace(way, watch=watch)
    return watched.alive(u, watched.whole)


def _near(way: _Way, start: tuple[int, Array], watch: Watch | None = None) -> End:
    """Climb from a start on few rows, then a few steps on all of them."""
    watched = replace(way, watch=watch)
    some = watched.on_some(start[0])
    u = some.alive(start[1], some.along_ramp).u
    return replace(watched, max_steps=LOOK_STEPS).along_ramp(u)


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
