"""Maximise the evidence of a graph: rounds of ARD steps and gradient ascent on the rest.

    θ = (precisions that are a weight's own, everything else)

The first kind goes by `sequential_ard` and can become infinite (the weight is pruned); its steps
hold sites fixed, so where these move with the weights (Laplace) it ends with steps along the true
gradient. The second goes by L-BFGS on the real line with the gradient of `graph/adjoint.py`.
`Predictive` walks the path of the first kind once more, at the settled rest, and takes the step
with the best criterion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.ard.fixed_point import fixed_point_ard
from ardvark.inference.ard.gaussian_ard import ACTIONS, GaussianArd, gaussian_ard
from ardvark.inference.ard.gradient import log_slopes
from ardvark.inference.ard.sequential_ard import ArdResult, ArdStep, sequential_ard
from ardvark.inference.graph.chart import Chart, discrete_hyper
from ardvark.inference.graph.conjugacy import noise_of
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.hyper.descend import descend, descend_carefully, ends
from ardvark.inference.hyper.integrated import FAILURES
from ardvark.inference.hyper.settings import UNCONSTRAINED, Evidence, Predictive
from ardvark.inference.hyper.settle import Settled
from ardvark.inference.hyper.starts import SCALE_FACTORS, active_at_start
from ardvark.inference.pytensor_graphs.affine import depends
from ardvark.inference.running.progress import Tick
from ardvark.inference.sites.approximation import REJECTED, Approximation, GaussianFit
from ardvark.inference.sites.arrays import Array, Mask
from ardvark.inference.sites.likelihoods import GaussianSites
from ardvark.inference.sites.model import SiteModel
from ardvark.models.card import card_of

__all__ = ["Ascent"]

_SHORT = "the gradient ascent stopped short. Raise max_steps, or change start."
_INSTEAD = ". Use Integrated(), which takes the priors in, or fix the value with Fixed(...)."
_FLAT = 1e-3  # slope in log alpha, nats, at which steps that gain 1e-6 nats may well end


class Ascent:
    """The search for hyperparameters, from each start that was asked for."""

    def __init__(
        self,
        latent: LatentGaussian,
        method: Approximation,
        settings: Evidence | Predictive,
        tick: Tick,
    ) -> None:
        self.latent, self.method, self.settings, self.tick = latent, method, settings, tick
        self.with_prior = settings.with_prior if isinstance(settings, Evidence) else False
        # Sparse arrays have no steps of single weights: everything goes by gradient.
        self.ard = {} if self.with_prior or latent.sparse else latent.ard_precisions
        self.rest = tuple(name for name in latent.hyper if name not in self.ard)
        self.theta: dict[str, Array] = {}
        self.sites_move = False  # so much that the steps of fixed sites end off the optimum
        self._path_rule = method.loosened()
        algorithm = settings.algorithm if isinstance(settings, Evidence) else "sequential"
        self.one_by_one = algorithm == "sequential"
        self._search: Callable[..., ArdResult] = partial(fixed_point_ard, algorithm=algorithm)
        if self.one_by_one:
            self._search = partial(sequential_ard, runs=self._path_rule.run_of_steps)
        self.optimised = np.zeros(latent.n_weights, bool)
        for block in self.ard.values():
            self.optimised[latent.blocks[block]] = True
        self._refuse()
        # Gaussian noise has a route of its own, much faster, to the same optimum.
        fast = isinstance(settings, Evidence) and self.one_by_one and self.ard
        centred = not latent.prior(latent.initial_theta())[0].any()
        self.any_noise = noise_of(latent, self.rest)
        self.noise = self.any_noise if fast and centred else None

    def _refuse(self) -> None:
        name = type(self.settings).__name__
        if discrete := discrete_hyper(self.latent):
            raise UnsupportedPair(
                f"hyper={name}() cannot optimise the discrete {discrete[0]!r}; fix it with "
                f"Fixed(...), or use NUTS()"
            )
        if isinstance(self.settings, Predictive) and not self.ard:
            raise UnsupportedPair(
                "hyper=Predictive() chooses weights by their own precisions, and this model has "
                "none that are free. Use Evidence()."
            )

    def run(self) -> Settled:
        """The best end over all starts."""
        starts = self.settings.start
        if starts is None:
            starts = self._best_scales()
        ends = [self._from(s) for s in (starts if isinstance(starts, list) else [starts])]
        return ends[_least([loss for loss, _ in ends], "the end of every start")][1]

    def _best_scales(self) -> dict[str, Array] | None:
        """Kernel scales from which a first walk of ARD steps reaches the largest evidence."""
        factors = SCALE_FACTORS[: getattr(self.settings, "starts", 1)]
        support, inputs = self.latent.initial_theta(), self.latent.reading.theta
        of_name = dict(zip(self.latent.hyper, inputs, strict=True))
        eta = self.latent.reading.eta
        scales = [n for n in self.rest if depends(eta, [of_name[n]]) and np.all(support[n] > 0)]
        if not self.ard or not scales or len(factors) == 1:
            return None
        losses, starts = [], [{name: f * support[name] for name in scales} for f in factors]
        for start in starts:
            self.theta = {**support, **self._initial_noise(), **start}
            losses.append(-self._walk(start).fit.log_evidence)
        return starts[_least(losses, "the evidence at every start")]

    def _walk(self, start: Any, first: bool = True) -> ArdResult:
        if self.noise is not None:
            return self._gaussian_steps(start)
        return self._ard_steps(start) if first or not self.sites_move else self._true_steps()

    def _from(self, start: Any) -> tuple[float, Settled]:
        """What is to be small at the end, and the end."""
        self.theta = {**self.latent.initial_theta(), **self._initial_noise(), **self._given(start)}
        settled = self._rounds(start)
        if isinstance(self.settings, Predictive):
            return self._choose(start, settled)
        return -settled.fit.log_evidence - self._log_prior(), settled

    def _log_prior(self) -> float:
        """What the prior adds to the log evidence in the search, at the end."""
        if not self.with_prior:
            return 0.0
        extra = self.latent.adjoint.log_prior(self.theta)[0]
        if self.with_prior == UNCONSTRAINED:
            chart = self.latent.adjoint.chart(self.rest, self.theta)
            extra += chart.log_jacobian(chart.to_line(self.theta))[0]
        return extra

    def _initial_noise(self) -> dict[str, Array]:
        """Gaussian noise starts at a tenth of its typical value.

        Where all of t is taken for noise at first, few weights are worth their place, and the
        search may end right there: thin plates on sinc end 80 nats below the optimum.
        """
        start = self.latent.initial_theta()
        if not self.ard or not isinstance(self.latent.sites(start), GaussianSites):
            return {}
        cut = self.latent.reading.cut
        inputs = dict(zip(self.latent.hyper, self.latent.reading.theta, strict=True))
        noise = [n for n in self.rest if depends(cut, [inputs[n]]) and np.all(start[n] > 0)]
        return {name: start[name] / 10.0 for name in noise}

    def _given(self, start: Any) -> dict[str, Array]:
        if not isinstance(start, Mapping):
            return {}
        unknown = [name for name in start if name not in self.latent.hyper]
        if unknown:
            raise InputError(
                f"start has {unknown[0]!r}, which is no free hyperparameter; these are "
                f"{', '.join(self.latent.hyper)}"
            )
        return {name: np.asarray(value, float) for name, value in start.items()}

    # Rounds --------------------------------------------------------------------------------------

    def _rounds(self, start: Any) -> Settled:
        others = [n for n in self.rest if self.noise is None or n != self.noise.name]
        rounds = self.settings.max_rounds if self.ard and others else 1
        path, best, gain = None, -math.inf, math.inf
        site_model = fit = None
        for number in range(rounds):
            stopped = ""
            if self.ard:
                path = self._walk(start if number == 0 else self.theta, first=number == 0)
                fit, site_model = path.fit, self.latent.at(self.theta)
                if not path.converged:
                    stopped = f"the ARD steps stopped after {path.steps}. Raise max_steps."
            if others:
                site_model, fit, wrong = self._climb(fit)
                stopped = wrong or stopped
            assert site_model is not None and fit is not None
            gain, best = fit.log_evidence - best, fit.log_evidence
            self.tick(f"round {number + 1}, log evidence {best:.4f}")
            if gain < self.settings.tolerance:
                break
        if not stopped and rounds > 1 and gain >= self.settings.tolerance:
            stopped = f"round {rounds} still gained {gain:.2g} nats. Raise max_rounds."
        assert site_model is not None and fit is not None
        converged = not stopped and fit.converged
        reason = stopped if fit.converged else ""  # else the approximation itself is the reason
        treatment = "mode" if self.with_prior == UNCONSTRAINED else "evidence"
        return Settled(self.theta, site_model, fit, converged, treatment, reason, path)

    def _ard_steps(self, start: Any) -> ArdResult:
        """Sequential steps on all ARD precisions at once; θ is updated in place."""
        result = self._path(start)
        self._set_precisions(result.precision)
        site_model = self.latent.at(self.theta)
        if self._path_rule is not self.method:
            result = result._replace(fit=self.method.approximate(site_model, result.fit))
        if isinstance(self.settings, Predictive) or not result.converged:
            return result
        slopes = log_slopes(site_model, self.method, result.fit)[self.optimised]
        self.sites_move = bool(np.abs(slopes).max(initial=0.0) > _FLAT)
        if not self.sites_move:
            return result
        end = self._true_steps()
        return end._replace(path=[*result.path, *end.path[1:]])

    def _true_steps(self) -> ArdResult:
        """From here to where the evidence itself is stationary: the steps took sites as fixed."""
        site_model = self.latent.at(self.theta)
        assert site_model.precision is not None
        on = self.optimised & np.isfinite(site_model.precision)
        result = sequential_ard(
            site_model,
            self.method.approximate,
            optimised=self.optimised if self.one_by_one else on,
            start=on,
            tolerance=self.settings.tolerance,
            max_steps=self.settings.max_steps,
            rule=self.method,
            tick=self.tick,
        )
        self._set_precisions(result.precision)
        return result

    def _gaussian_steps(self, start: Any) -> ArdResult:
        """The same and the noise, by `gaussian_ard`."""
        assert self.noise is not None
        site_model, sd = self.latent.at(self.theta), self.noise.sd(self.theta)
        assert site_model.precision is not None
        active, begin = self._active(start, site_model)
        precision = site_model.precision
        if begin is not None:
            precision = np.where(self.optimised, begin, precision)
        given = isinstance(start, Mapping) and self.noise.name in start
        found = gaussian_ard(
            site_model.projection,
            self.noise.target - site_model.offset,
            noise=None if self.noise.name else sd,
            optimised=self.optimised,
            precision=precision,
            start=active,
            start_noise=sd if given else None,
            tolerance=self.settings.tolerance,
            max_steps=self.settings.max_steps,
            tick=self.tick,
        )
        self._set_precisions(found.precision)
        if self.noise.name:
            self.theta[self.noise.name] = np.array(found.noise**self.noise.power)
        fit = self.method.approximate(self.latent.at(self.theta))
        return _path_of(found, fit, active)

    def _active(self, start: Any, site_model: SiteModel) -> tuple[Any, float | None]:
        if isinstance(start, Mapping) and not any(name in start for name in self.ard):
            start = "empty"  # it says something of the rest only
        return active_at_start(start, site_model, self.optimised)

    def _path(self, start: Any) -> ArdResult:
        site_model = self.latent.at(self.theta)
        active, precision = self._active(start, site_model)
        return self._search(
            site_model,
            self._path_rule.approximate,
            optimised=self.optimised,
            start=active,
            start_precision=precision,
            tolerance=self.settings.tolerance,
            max_steps=self.settings.max_steps,
            tick=self.tick,
        )

    def _set_precisions(self, precision: Array) -> None:
        for name, block in self.ard.items():
            shape = np.shape(self.theta[name])
            self.theta[name] = precision[self.latent.blocks[block]].reshape(shape)

    def _choose(self, start: Any, settled: Settled) -> tuple[float, Settled]:
        """Walk the path at the settled rest, and take the step of the best criterion."""
        assert isinstance(self.settings, Predictive)
        path = settled.path
        if self.rest:  # the rounds ended on a path from a warm start
            first = {name: self.latent.initial_theta()[name] for name in self.ard}
            self.theta = {**settled.theta, **first, **self._given(start)}
            self.theta |= {name: settled.theta[name] for name in self.rest}
            path = self._path(start)
        assert path is not None
        scores = [self.settings.of(step) for step in path.path]
        chosen = _least(scores, "the criterion at every step")
        self._set_precisions(path.path[chosen].precision)
        site_model = self.latent.at(self.theta)
        fit = self.method.approximate(site_model)
        converged = settled.converged and fit.converged
        return scores[chosen], Settled(
            self.theta, site_model, fit, converged, "predictive", settled.reason, path, chosen
        )

    def _climb(self, fit: GaussianFit | None) -> tuple[SiteModel, GaussianFit, str]:
        """L-BFGS on the real line over every θ that is no ARD precision; "" or what is wrong."""
        latent = self.latent
        chart = latent.adjoint.chart(self.rest, self.theta)
        last = [fit]  # each evaluation starts from the one before

        def objective(u: Array) -> tuple[float, Array]:
            theta = chart.from_line(u)
            site_model = latent.at(theta)
            try:
                now = self.method.approximate(site_model, last[0])
            except FAILURES:
                if not own:
                    raise
                return REJECTED, np.zeros_like(u)
            if not np.isfinite(now.log_evidence):
                return REJECTED, np.zeros_like(u)  # the line search comes back from here
            last[0] = now
            cotangents = self.method.evidence_gradient(site_model, now)
            gradient = latent.pull(theta, cotangents)
            value = now.log_evidence
            if self.with_prior:
                log_prior, prior_gradient = latent.adjoint.log_prior(theta)
                value += log_prior
                gradient = {name: gradient[name] + prior_gradient[name] for name in gradient}
            self.tick(f"log evidence {value:.4f}")
            slope = chart.pull(u, gradient)
            if self.with_prior == UNCONSTRAINED:
                log_jacobian, jacobian_slope = chart.log_jacobian(u)
                value, slope = value + log_jacobian, slope + jacobian_slope
            return -value, -slope

        own = card_of(latent.model) is None
        low, high = self._noise_bounds(chart)
        start = np.clip(chart.to_line(self.theta), low, high)
        steps, tolerance = self.settings.max_steps, self.settings.tolerance
        if own and not np.isfinite([low, high]).any():
            end = descend_carefully(objective, start, steps)
        else:
            end = descend(objective, start, low, high, steps, tolerance)
        self.theta = chart.from_line(end.u)
        site_model = latent.at(self.theta)
        fit = self.method.approximate(site_model, last[0])
        if not end.success:
            return site_model, fit, _SHORT
        if not own:  # a kernel of `av.models` may do without an input
            return site_model, fit, ""
        wrong = ends(lambda u: objective(u)[0], start, end, chart.labels, low, high)
        return site_model, fit, "; ".join(wrong) and "; ".join(wrong) + _INSTEAD

    def _noise_bounds(self, chart: Chart) -> tuple[Array, Array]:
        """Bounds on the real line: Gaussian noise stays above what the target can resolve."""
        low, high = np.full(chart.size, -np.inf), np.full(chart.size, np.inf)
        noise = self.any_noise
        if noise is not None and noise.name:
            if not noise.target.any():
                raise InputError(
                    f"the target is zero everywhere: its noise has no scale, and {noise.name} no "
                    f"best value. Fix the noise."
                )
            side = low if noise.power > 0 else high
            least = chart.to_line({**self.theta, noise.name: noise.least})
            place = chart.labels.index(noise.name)  # a scalar
            side[place] = least[place]
        return low, high


def _least(numbers: list[float], what: str) -> int:
    """Index of the smallest number, the first of equals; NaN never wins."""
    values = np.where(np.isnan(numbers), np.inf, numbers)
    if not np.any(values < np.inf):
        raise InputError(f"{what} is NaN or infinite: there is nothing to choose from")
    return int(np.argmin(values))


def _path_of(found: GaussianArd, fit: GaussianFit, first: Mask | None) -> ArdResult:
    """The path in the form of the general route; precisions are known at its two ends only."""
    size = found.precision.size
    on = set() if first is None else set(np.flatnonzero(first).tolist())
    steps = []
    for action, weight, evidence in zip(
        found.path.action, found.path.weight, found.path.log_evidence, strict=True
    ):
        name = ACTIONS[int(action)]
        if name == "add":
            on.add(int(weight))
        elif name == "delete":
            on.discard(int(weight))
        where = np.array(sorted(on), dtype=np.intp)
        unknown = np.full(where.size, np.nan)
        action = "re-estimate" if name == "all" else name
        steps.append(
            ArdStep(action, int(weight), np.nan, float(evidence), size, where, unknown, {})
        )
    end = ArdStep.at(steps[-1].action, steps[-1].weight, np.nan, found.precision, fit)
    return ArdResult(found.precision, fit, [*steps[:-1], end], found.converged and fit.converged)
