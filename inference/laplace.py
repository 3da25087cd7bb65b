"""Laplace: each site is replaced by its quadratic expansion at the joint mode.

    psi(w) = sum_n l_n(eta_n) - (w - m0)' P0 (w - m0) / 2,   eta = A w + o
    log Z  = psi(w_hat) - 1/2 log |I + K W|,                 W = -l''(eta_hat)

| formula                                               | code                       |
|-------------------------------------------------------|----------------------------|
| Newton step = posterior under sites (W, W eta + l'),   |                            |
| RW06 (3.18)                                            | _search                    |
| log evidence, RW06 (3.32)                              | Laplace.approximate        |
| its gradient, with the mode's own move, RW06 (5.21-24) | Laplace.evidence_gradient  |

RW06 is Rasmussen & Williams, Gaussian Processes for Machine Learning. The Newton step is always
`sites/model.py`'s conditioning, so it costs O(N d^2) or O(N^2 d), whichever is less.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ardvark.errors import InputError
from ardvark.inference.sites.approximation import Cotangents, GaussianFit
from ardvark.inference.sites.likelihoods import Array, Derivatives
from ardvark.inference.sites.model import Prior, SiteModel
from ardvark.inference.sites.posterior import SPACES, Posterior, condition

__all__ = ["Laplace"]


class _State(NamedTuple):
    """A point of the search; every array but the derivatives is affine in the weights."""

    deviation: Array  # w - m0 of the weights that are on
    force: Array  # P0 (w - m0)
    eta: Array
    sites: Derivatives
    psi: float


@dataclass(frozen=True, slots=True)
class Laplace:
    """Laplace's approximation.

    Parameters
    ----------
    hyper
        How hyperparameters are treated; None = by evidence if the graph has free ones.
    weights, predictor
        Names in the graph; None = every Gaussian block that enters the predictor.
    tolerance
        Stop when a Newton step promises less than this, relative to 1 + |psi|.
    max_iterations
        Newton steps before the fit is returned with `converged=False`.
    space
        "weights", "functions", or "auto": the cheaper one.
    """

    hyper: Any = None
    weights: str | tuple[str, ...] | None = None
    predictor: str = "eta"
    tolerance: float = 1e-10
    max_iterations: int = 100
    space: str = "auto"

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        if not (np.isfinite(self.tolerance) and self.tolerance > 0):
            raise InputError(f"tolerance must be a finite number above 0; found {self.tolerance!r}")
        whole = isinstance(self.max_iterations, int | np.integer)
        if not whole or isinstance(self.max_iterations, bool) or self.max_iterations < 1:
            raise InputError(
                f"max_iterations must be an integer of at least 1; found {self.max_iterations!r}"
            )
        if self.space not in SPACES:
            raise InputError(f"space must be one of {', '.join(SPACES)}; found {self.space!r}")

    def approximate(
        self, model: SiteModel, warm: GaussianFit | None = None, *, start: Array | None = None
    ) -> GaussianFit:
        """Gaussian posterior of `model`, searched from `start`, a `warm` fit or the prior mean."""
        prior = Prior(model)
        if start is None and warm is not None:
            start = np.where(prior.on, warm.posterior.mean, model.mean)
        state, iterations, decrement, stationary = self._search(prior, _begin(prior, start))
        posterior, indefinite = _expand(prior, state, self.space)
        slope = np.abs(_gradient(prior, state)) * np.sqrt(posterior.marginal_variance[prior.on])
        return GaussianFit(
            posterior=posterior,
            log_evidence=state.psi - posterior.half_log_det,  # RW06 (3.32)
            iterations=iterations,
            converged=stationary and not indefinite,
            site_precision=posterior.site_precision,
            site_shift=posterior.site_shift,
            info={
                "gradient_norm": float(slope.max(initial=0.0)),
                "decrement": decrement,
                "indefinite": float(indefinite),
            },
        )

    def _search(self, prior: Prior, state: _State) -> tuple[_State, int, float, bool]:
        """Newton with backtracking: last state, steps taken, last decrement, and if it settled."""
        decrement = np.inf
        for iteration in range(self.max_iterations + 1):
            target, _ = _expand(prior, state, self.space)
            direction = target.mean[prior.on] - prior.mean - state.deviation
            slope = float(_gradient(prior, state) @ direction)
            decrement = 0.5 * abs(slope)
            if decrement <= self.tolerance * (1.0 + abs(state.psi)):
                # One more full step squares the error that is left, and costs nothing.
                last = _step(prior, state, target, direction, 1.0)
                if last is not None and last.psi >= state.psi - _rounding(state.psi):
                    state = last
                return state, iteration, decrement, True
            moved = None
            if iteration < self.max_iterations:
                moved = _line_search(prior, state, target, direction, slope)
            if moved is None:
                break
            state = moved
        return state, iteration, decrement, False

    def completed(self, fit: GaussianFit) -> GaussianFit:
        """Nothing is left for the end."""
        return fit

    def evidence_gradient(self, model: SiteModel, fit: GaussianFit) -> Cotangents:
        """Adjoints of `fit.log_evidence`, exact: the mode moves with the hyperparameters."""
        posterior, prior = fit.posterior, fit.posterior.prior
        site = model.sites.derivatives(posterior.eta_mean)
        deviation = posterior.mean - model.mean  # delta
        cross = posterior.cross_covariance  # A V
        pull = 0.5 * posterior.eta_variance * site.third  # d(-half_log_det)/d eta
        moved = pull @ cross  # u = V A' pull
        eta_moved = model.projection @ moved
        offset = site.first + pull + site.second * eta_moved
        projection = np.outer(offset, posterior.mean) + np.outer(site.first, moved)
        projection += site.second[:, None] * cross
        precision = covariance = None
        if model.precision is not None:
            second_moment = deviation**2 + posterior.marginal_variance
            precision = 0.5 / model.precision - 0.5 * second_moment - moved * deviation
            precision[~prior.on] = 0.0  # a weight that is off stays off
        else:
            force = model.projection.T @ site.first  # b = P0 delta
            force_moved = model.projection.T @ (pull + site.second * eta_moved)  # P0 u
            both = np.outer(force_moved, force)
            covariance = 0.5 * (np.outer(force, force) + both + both.T - posterior.information)
        return Cotangents(
            mean=model.projection.T @ offset,
            precision=precision,
            covariance=covariance,
            projection=projection,
            offset=offset,
            site_eta=posterior.eta_mean[None, :],
            site_value=np.ones((1, offset.size)),
            site_first=eta_moved[None, :],
            site_second=0.5 * posterior.eta_variance[None, :],
        )


def _evaluate(prior: Prior, deviation: Array, force: Array, eta: Array) -> _State | None:
    """State at a point, or None where psi or a derivative is not finite."""
    with np.errstate(all="ignore"):
        sites = prior.model.sites.derivatives(eta)
    psi = float(np.sum(sites.value) - 0.5 * (deviation @ force))
    usable = np.isfinite(psi) and np.isfinite(sites.first).all() and np.isfinite(sites.second).all()
    return _State(deviation, force, eta, sites, psi) if usable else None


def _begin(prior: Prior, start: Array | None) -> _State:
    weights = prior.model.mean if start is None else np.asarray(start, dtype=np.float64)
    if weights.shape != prior.model.mean.shape:
        raise ValueError(f"start must be {prior.model.mean.shape}; found {weights.shape}")
    deviation = weights[prior.on] - prior.mean
    force = prior.force(deviation) if deviation.any() else np.zeros_like(deviation)
    eta = prior.eta_mean + prior.projection @ deviation
    state = _evaluate(prior, deviation, force, eta)
    if state is None:
        with np.errstate(all="ignore"):
            site = prior.model.sites.derivatives(eta)
        row = int(np.argmin(np.isfinite(site.value + site.first + site.second)))
        place = "the prior mean" if start is None else "`start`"
        raise ValueError(
            f"Laplace cannot begin at {place}: the log posterior or its curvature is not finite "
            f"there (see row {row}, eta = {eta[row]:.4g}). Give weights of finite density as start."
        )
    return state


def _gradient(prior: Prior, state: _State) -> Array:
    return np.asarray(prior.projection.T @ state.sites.first - state.force)


def _expand(prior: Prior, state: _State, space: str) -> tuple[Posterior, bool]:
    """Posterior under the sites' expansions, and if curvatures had to be clipped for it."""
    curvature = -state.sites.second
    try:
        shift = curvature * state.eta + state.sites.first  # RW06 (3.18)
        return condition(prior, curvature, shift, space), False
    except np.linalg.LinAlgError:
        if np.all(curvature >= 0):
            raise
    curvature = np.maximum(curvature, 0.0)
    return condition(prior, curvature, curvature * state.eta + state.sites.first, space), True


def _step(
    prior: Prior, state: _State, target: Posterior, direction: Array, size: float
) -> _State | None:
    eta = state.eta + size * (prior.projection @ direction)
    # The target's own force is A'(nu - tau eta): no inverse of a dense K is needed.
    force = prior.projection.T @ (target.site_shift - target.site_precision * target.eta_mean)
    force = state.force + size * (force - state.force)
    return _evaluate(prior, state.deviation + size * direction, force, eta)


def _line_search(
    prior: Prior, state: _State, target: Posterior, direction: Array, slope: float
) -> _State | None:
    """First of the steps 1, 1/2, 1/4, ... that gains enough; None if none does."""
    size = 1.0
    while size > 1e-12:
        moved = _step(prior, state, target, direction, size)
        least = state.psi + 1e-4 * size * slope - _rounding(state.psi)
        if moved is not None and moved.psi >= least:
            return moved
        size *= 0.5
    return None


def _rounding(psi: float) -> float:
    return 1e-13 * (1.0 + abs(psi))
