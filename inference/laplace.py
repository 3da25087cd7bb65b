"""Laplace: each site is replaced by its quadratic expansion at the joint mode.

    psi(w) = sum_n l_n(eta_n) - (w - m0)' P0 (w - m0) / 2,   eta = A w + o
    log Z  = psi(w_hat) - 1/2 log |I + K W|,                 W = -l''(eta_hat)

| formula                                               | code                       |
|-------------------------------------------------------|----------------------------|
| Newton step = posterior under sites (W, W eta + l'),   |                            |
| RW06 (3.18)                                            | _search                    |
| log evidence, RW06 (3.32)                              | Laplace.approximate        |
| its gradient, with the mode's own move, RW06 (5.21-24) | Laplace.evidence_gradient  |
| E[w] - w_hat = V A' (third var(eta)) / 2, first order  | Laplace.completed          |
| what the evidence leaves out                           | sites/higher_order.py      |

RW06 is Rasmussen & Williams, Gaussian Processes for Machine Learning. The Newton step is always
`sites/model.py`'s conditioning, so it costs O(N d^2) or O(N^2 d), whichever is less.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ardvark.inference.sites.approximation import Approximation, Cotangents, GaussianFit
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.higher_order import laplace_evidence_error
from ardvark.inference.sites.likelihoods import Derivatives
from ardvark.inference.sites.model import Prior, SiteModel
from ardvark.inference.sites.posterior import SPACES, Posterior, condition
from ardvark.inference.sites.settings import MethodSettings
from ardvark.inference.sites.softmax import SoftmaxSites
from ardvark.models.checks import as_flag, one_of, positive, positive_integer

__all__ = ["Laplace"]

MOST_ROWS = 500  # beyond, what the evidence leaves out is not cheap to have at every node
MOST_PRODUCTS = 10**8  # rows² weights


class _State(NamedTuple):
    """A point of the search; every array but the derivatives is affine in the weights."""

    deviation: Array  # w - m0 of the active weights
    force: Array  # P0 (w - m0)
    eta: Array
    sites: Derivatives
    psi: float


@dataclass(frozen=True, slots=True)
class Laplace(MethodSettings, Approximation):
    """Laplace's approximation.

    Parameters
    ----------
    hyper, weights, predictor
        As in `EP`.
    tolerance
        Stop when a Newton step promises less than this, relative to 1 + |psi|.
    max_iterations
        Newton steps before the fit is returned with `converged=False`.
    space
        "weights", "functions", "sparse", or "auto": the cheapest.
    corrected
        Take the mean of the weights to first order (third derivatives of the sites), not their
        mode: this moves `mean_vector`, `site_shift` and the draws. The covariance, the evidence
        and what is searched by it stay Laplace's. With `hyper=Integrated()` the means are moved at
        each node, and the nodes are weighed by the evidence to second order where that is small.
        The shift is computed in any case: `mean_correction` in the `fit` group.
    """

    tolerance: float = 1e-10
    max_iterations: int = 100
    space: str = "auto"
    corrected: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        positive(self.tolerance, "tolerance")
        positive_integer(self.max_iterations, "max_iterations")
        one_of(self.space, SPACES, "space")
        as_flag(self.corrected, "corrected")

    def approximate(
        self, model: SiteModel, warm: GaussianFit | None = None, *, start: Array | None = None
    ) -> GaussianFit:
        """Gaussian posterior of `model`, searched from `start`, a `warm` fit or the prior mean."""
        prior = model.prior()
        if start is None and warm is not None:
            start = np.where(prior.on, warm.posterior.mean, model.mean)
        state, iterations, decrement, stationary = self._search(prior, _begin(prior, start))
        posterior, indefinite = _expand(prior, state, self.space)
        curvature = -state.sites.second
        curvature = np.maximum(curvature, 0.0) if indefinite else curvature
        slope = np.abs(_gradient(prior, state)) * np.sqrt(posterior.marginal_variance[prior.on])
        return GaussianFit(
            posterior=posterior,
            log_evidence=state.psi - posterior.half_log_det,  # RW06 (3.32)
            iterations=iterations,
            converged=stationary and not indefinite,
            site_precision=curvature,
            site_shift=curvature * state.eta + state.sites.first,
            info={
                "gradient_norm": float(slope.max(initial=0.0)),
                "decrement": decrement,
                "indefinite": float(indefinite),
            },
        )

    def _search(self, prior: Prior, state: _State) -> tuple[_State, int, float, bool]:
        """Newton with backtracking: last state, steps, last decrement, whether it converged."""
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

    def completed(self, model: SiteModel, fit: GaussianFit) -> GaussianFit:
        """Estimate the shift of the means from the mode; move them by it if `corrected`.

        To first order E[w] = w_hat + V A' pull, pull = third * var(eta) / 2 (Tierney, Kass & Kadane
        1989; the centre of R-INLA's simplified Laplace): what `pull` does in the sites' shifts.
        """
        if not fit.converged:
            return fit
        eta = model.predictor(fit.posterior.mean)
        pull = _skewness_pull(model, fit.posterior, eta, model.sites.derivatives(eta))
        if not np.isfinite(pull).all():
            return fit
        fit = fit.assessed(fit.posterior.pulled(model.projection.T @ pull))
        if not self.corrected:
            return fit
        shift = fit.site_shift + pull
        moved = condition(model, fit.site_precision, shift, self.space)
        info = fit.info | {"mean_corrected": 1.0}
        return fit._replace(posterior=moved, site_shift=shift, info=info)

    def assessed(self, model: SiteModel, fit: GaussianFit) -> GaussianFit:
        """Complete the fit, and estimate what its evidence leaves out where that is cheap."""
        rows, weights = model.projection.shape
        found = self.completed(model, fit)
        if not fit.converged or isinstance(model.sites, SoftmaxSites):
            return found
        if rows > MOST_ROWS or rows**2 * weights > MOST_PRODUCTS:
            return found
        error = laplace_evidence_error(model, fit.posterior, model.predictor(fit.posterior.mean))
        if not np.isfinite(error):
            return found
        return found._replace(info=found.info | {"log_evidence_correction": error})

    def evidence_gradient(self, model: SiteModel, fit: GaussianFit) -> Cotangents:
        """Adjoints of `fit.log_evidence`, exact: the mode moves with the hyperparameters."""
        if model.sparse:
            return _sparse_gradient(model, fit)
        posterior, prior = fit.posterior, fit.posterior.prior
        coupled = isinstance(model.sites, SoftmaxSites)  # then the posterior has rows of its own
        eta = model.predictor(posterior.mean) if coupled else posterior.eta_mean
        site = model.sites.derivatives(eta)
        deviation = posterior.mean - model.mean  # delta
        cross, pull, second_times = _curvature(model, posterior, eta, site)
        moved = pull @ cross  # u = V A' pull
        eta_moved = model.projection @ moved
        offset = site.first + pull + second_times(eta_moved)
        projection = np.outer(offset, posterior.mean) + np.outer(site.first, moved)
        projection += second_times(cross)
        precision = covariance = None
        if model.precision is not None:
            second_moment = deviation**2 + posterior.marginal_variance
            precision = 0.5 / model.precision - 0.5 * second_moment - moved * deviation
            precision[~prior.on] = 0.0  # an inactive weight stays inactive
        else:
            force = model.projection.T @ site.first  # b = P0 delta
            force_moved = model.projection.T @ (pull + second_times(eta_moved))  # P0 u
            both = np.outer(force_moved, force)
            covariance = 0.5 * (np.outer(force, force) + both + both.T - posterior.information)
        return Cotangents(
            mean=model.projection.T @ offset,
            precision=precision,
            covariance=covariance,
            projection=projection,
            offset=offset,
            site_eta=eta[None, :],
            site_value=np.ones((1, offset.size)),
            site_first=eta_moved[None, :],
            site_second=0.5 * posterior.eta_variance[None, :],
        )


def _sparse_gradient(model: SiteModel, fit: GaussianFit) -> Cotangents:
    """The same of sparse rows, at their entries alone."""
    from ardvark.inference.sparse.posterior import row_cotangents  # of sparse models only

    posterior = fit.posterior
    eta = posterior.eta_mean
    site = model.sites.derivatives(eta)
    pull = _skewness_pull(model, posterior, eta, site)
    rows, eta_moved = row_cotangents(posterior, site.first, site.second, pull)
    return Cotangents(
        offset=rows.shift[-len(eta) :],
        site_eta=eta[None, :],
        site_value=np.ones((1, eta.size)),
        site_first=eta_moved[None, :],
        site_second=0.5 * posterior.eta_variance[None, :],
        rows=rows,
    )


def _curvature(
    model: SiteModel, posterior: Posterior, eta: Array, site: Derivatives
) -> tuple[Array, Array, Callable[[Array], Array]]:
    """A V, d(-half_log_det)/d eta, and the product of the sites' second derivative with columns."""
    sites, pull = model.sites, _skewness_pull(model, posterior, eta, site)
    if not isinstance(sites, SoftmaxSites):
        second = site.second
        return (
            posterior.cross_covariance,
            pull,
            lambda x: (second if x.ndim == 1 else second[:, None]) * x,
        )
    chances = sites.chances(eta)
    cross = model.projection @ posterior.covariance
    return cross, pull, lambda x: -sites.curvature_times(chances, x)


def _skewness_pull(model: SiteModel, posterior: Posterior, eta: Array, site: Derivatives) -> Array:
    """d(-half_log_det)/d eta at the mode: how third derivatives pull at the mean."""
    sites = model.sites
    if not isinstance(sites, SoftmaxSites):
        return np.asarray(0.5 * posterior.eta_variance * site.third)
    cross = model.projection @ posterior.covariance
    by_row = (*sites.counts.shape, -1)
    blocks = cross.reshape(by_row) @ np.swapaxes(model.projection.reshape(by_row), 1, 2)
    return sites.pull(sites.chances(eta), blocks)


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
    """Posterior under the sites' expansions, and whether curvatures were clipped at zero."""
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
    force = target.prior.projection.T @ (
        target.site_shift - target.site_precision * target.eta_mean
    )
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
