"""The outer loop: what happens to the hyperparameters θ while a Gaussian approximates the weights.

| choice | what it does |
|---|---|
| `Fixed(values)` | nothing: θ is given, by a mapping or by another fit's tree |
| `Evidence()` | maximises log p(t | θ): ARD precisions one at a time, the rest by gradient |

`Evidence` does not see the hyperprior (type-II maximum likelihood) unless `with_prior=True`;
then everything goes by gradient and no weight is pruned, since the sequential steps maximise the
evidence alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.approximation import Approximation, GaussianFit
from ardvark.inference.gaussian import SiteModel
from ardvark.inference.latent import LatentGaussian
from ardvark.inference.sequential_ard import ArdResult, sequential_ard
from ardvark.inference.sites import Array

__all__ = ["Evidence", "Fixed", "Settled", "fixed_values", "settle"]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Hyperparameters at given values: a mapping name → value, or the tree of another fit."""

    values: Any = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hyperparameters that maximise the evidence.

    Parameters
    ----------
    with_prior : bool
        Add the log density of the hyperprior (on the natural scale): a mode, not type-II ML.
    start : mapping, optional
        Values to start from, by name; the rest starts at the prior's support point. For an ARD
        precision an `inf` means that the weight starts outside the model. Default: sequential
        ARD starts with the one weight of the largest gain.
    tolerance : float
        Stop when a round gains less than this many nats.
    max_rounds : int
        Rounds of (ARD steps, gradient ascent on the rest).
    max_steps : int
        ARD steps, or gradient iterations, in a round.
    """

    with_prior: bool = False
    start: Mapping[str, Any] | None = None
    tolerance: float = 1e-6
    max_rounds: int = 50
    max_steps: int = 5000

    def __post_init__(self) -> None:
        if not (isinstance(self.tolerance, (int, float)) and 0 < self.tolerance < math.inf):
            raise InputError(f"tolerance must be a positive number, got {self.tolerance!r}")
        for name in ("max_rounds", "max_steps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a positive whole number, got {value!r}")


class Settled(NamedTuple):
    """Hyperparameters that were settled on, and the approximation there."""

    theta: dict[str, Array]
    model: SiteModel
    fit: GaussianFit
    converged: bool
    treatment: str  # "fixed" | "evidence"
    reason: str  # why not converged, or ""
    path: ArdResult | None = None


def settle(
    latent: LatentGaussian, method: Approximation, hyper: Any, tick: Callable[[str], None]
) -> Settled:
    """Settle the hyperparameters by `hyper` and approximate the weights there."""
    if hyper is None:
        hyper = Evidence() if latent.hyper else Fixed()
    if isinstance(hyper, Fixed):
        theta = fixed_values(hyper, latent.hyper)
        site_model = latent.at(theta)
        fit = method.approximate(site_model)
        return Settled(theta, site_model, fit, fit.converged, "fixed", "")
    if not isinstance(hyper, Evidence):
        raise UnsupportedPair(
            f"hyper={hyper!r} is no way to treat hyperparameters here; use Fixed(...) or Evidence()"
        )
    if not latent.hyper:
        raise UnsupportedPair(
            "hyper=Evidence() has nothing to optimise: the model has no free hyperparameter. "
            "Use Fixed()."
        )
    return _Ascent(latent, method, hyper, tick).run()


def fixed_values(hyper: Fixed, names: tuple[str, ...]) -> dict[str, Array]:
    """Values of the named hyperparameters from a mapping or from a tree's `fit` group."""
    values = hyper.values
    if values is None:
        values = {}
    elif hasattr(values, "children"):  # a DataTree
        if "fit" not in values.children:
            raise InputError(
                "Fixed(tree) needs a tree with a `fit` group, where an approximation keeps the "
                "hyperparameters it "
                "used; this tree has none. Give values by name: Fixed({'alpha': ...})."
            )
        values = {name: values["fit"][name].values for name in names if name in values["fit"]}
    elif not isinstance(values, Mapping):
        raise InputError(f"Fixed(values) takes a mapping or a tree, got {type(values).__name__}")
    missing = [name for name in names if name not in values]
    if missing:
        raise InputError(
            f"Fixed(values) lacks {', '.join(missing)}: the model's free hyperparameters are "
            f"{', '.join(names)}"
        )
    unknown = [name for name in values if name not in names]
    if unknown:
        raise InputError(
            f"Fixed(values) has {unknown[0]!r}, which is no free hyperparameter of the model; "
            f"these are "
            f"{', '.join(names) or 'none'}"
        )
    return {name: np.asarray(values[name], float) for name in names}


class _Ascent:
    """Rounds of sequential ARD steps and gradient ascent until a round gains nothing."""

    def __init__(
        self,
        latent: LatentGaussian,
        method: Approximation,
        settings: Evidence,
        tick: Callable[[str], None],
    ) -> None:
        discrete = [n for n in latent.hyper if latent.model[n].dtype.startswith(("int", "bool"))]
        if discrete:
            raise UnsupportedPair(
                f"hyper=Evidence() cannot optimise the discrete {discrete[0]!r}; fix it with "
                f"Fixed(...), or use NUTS()"
            )
        self.latent, self.method, self.settings, self.tick = latent, method, settings, tick
        self.theta = {**latent.initial_theta(), **self._start()}
        self.ard = {} if settings.with_prior else latent.ard_precisions
        self.rest = tuple(name for name in latent.hyper if name not in self.ard)

    def _start(self) -> dict[str, Array]:
        start = dict(self.settings.start or {})
        unknown = [name for name in start if name not in self.latent.hyper]
        if unknown:
            raise InputError(
                f"start has {unknown[0]!r}, which is no free hyperparameter; these are "
                f"{', '.join(self.latent.hyper)}"
            )
        return {name: np.asarray(value, float) for name, value in start.items()}

    def run(self) -> Settled:
        rounds = self.settings.max_rounds if self.ard and self.rest else 1
        path, best, gain, ok = None, -math.inf, math.inf, True
        site_model = fit = None
        for number in range(rounds):
            ok = True
            if self.ard:
                path = self._ard_steps(first=number == 0)
                ok, fit = path.converged, path.fit
                site_model = self.latent.at(self.theta)
            if self.rest:
                site_model, fit, climbed = self._climb(fit)
                ok = ok and climbed
            assert site_model is not None and fit is not None
            gain, best = fit.log_evidence - best, fit.log_evidence
            self.tick(f"round {number + 1}, log evidence {best:.4f}")
            if gain < self.settings.tolerance:
                break
        settled = ok and (rounds == 1 or gain < self.settings.tolerance)
        reason = "" if settled else f"the last round still gained {gain:.2g} nats"
        assert site_model is not None and fit is not None
        return Settled(
            self.theta, site_model, fit, settled and fit.converged, "evidence", reason, path
        )

    def _ard_steps(self, first: bool) -> ArdResult:
        """Sequential steps on all ARD precisions at once; θ is updated in place."""
        site_model = self.latent.at(self.theta)
        optimised = np.zeros(self.latent.n_weights, bool)
        for block in self.ard.values():
            optimised[self.latent.blocks[block]] = True
        assert site_model.precision is not None
        given = {name for name in self.settings.start or {} if name in self.ard}
        warm = not first or bool(given)
        result = sequential_ard(
            site_model,
            self.method.approximate,
            optimised=optimised,
            start=(optimised & np.isfinite(site_model.precision)) if warm else None,
            tolerance=self.settings.tolerance,
            max_steps=self.settings.max_steps,
        )
        for name, block in self.ard.items():
            shape = np.shape(self.theta[name])
            self.theta[name] = result.precision[self.latent.blocks[block]].reshape(shape)
        return result

    def _climb(self, fit: GaussianFit | None) -> tuple[SiteModel, GaussianFit, bool]:
        """L-BFGS on the real line over every θ that is no ARD precision."""
        latent = self.latent
        shapes = {name: np.shape(self.theta[name]) for name in self.rest}
        sizes = [int(np.prod(shapes[name])) for name in self.rest]
        cuts = np.cumsum(sizes)[:-1]
        held = latent.adjoint.unconstrain(self.theta)
        last = [fit]  # each evaluation starts from the one before

        def at(u: Array) -> tuple[dict[str, Array], dict[str, Array]]:
            parts = zip(self.rest, np.split(u, cuts), strict=True)
            free = {**held, **{name: part.reshape(shapes[name]) for name, part in parts}}
            theta, slope = latent.adjoint.constrain(free)
            return {**theta, **{name: self.theta[name] for name in self.ard}}, slope

        def objective(u: Array) -> tuple[float, Array]:
            theta, slope = at(u)
            site_model = latent.at(theta)
            now = last[0] = self.method.approximate(site_model, last[0])
            cotangents = self.method.evidence_gradient(site_model, now)
            gradient = latent.pull(theta, cotangents)
            value = now.log_evidence
            if self.settings.with_prior:
                log_prior, prior_gradient = latent.adjoint.log_prior(theta)
                value += log_prior
                gradient = {name: gradient[name] + prior_gradient[name] for name in gradient}
            self.tick(f"log evidence {value:.4f}")
            flat = [np.ravel(gradient[name] * slope[name]) for name in self.rest]
            return -value, -np.concatenate(flat)

        u0 = np.concatenate([np.ravel(held[name]) for name in self.rest])
        found = optimize.minimize(
            objective,
            u0,
            jac=True,
            method="L-BFGS-B",
            bounds=[
                (u - 25.0, u + 25.0) for u in u0
            ],  # e^25: beyond this a scale is zero or infinite
            options={"maxiter": self.settings.max_steps, "ftol": 1e-12, "gtol": 1e-6},
        )
        self.theta, _ = at(found.x)
        site_model = latent.at(self.theta)
        return site_model, self.method.approximate(site_model, last[0]), bool(found.success)
