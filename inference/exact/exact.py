"""The exact posterior of the weights at fixed hyperparameters: independent draws, no Markov chain.

    w ~ N(m0, K),   eta = A w + o,   p(t_n | eta_n) Gaussian, or Phi(s_n eta_n)

* Gaussian sites: the posterior is Gaussian and its evidence is known.
* Probit sites: with utilities y = s eta + e, e ~ N(0, I), the data say that y > 0. So y is a
  Gaussian above a bound, and the posterior of w, a unified skew-normal, is Gaussian given y:

      y ~ N(s eta0, G) given y > 0,   G = I + s A K A' s,   eta0 = A m0 + o
      w | y: w0 + K A's G^-1 (y - y0),   w0 ~ N(m0, K),   y0 = s (A w0 + o) + e
      p(t) = P(y > 0)

| formula                                                        | code                     |
|----------------------------------------------------------------|--------------------------|
| posterior and evidence of the probit, Durante 2019              | _probit                  |
| y above its bound, P(y > 0): minimax tilting, Botev 2017        | truncated_normal.py      |
| w given y: a prior draw, corrected by its own data (Matheron)   | _weights_given           |

Durante 2019: Biometrika 106, 765-779. A draw costs O(N d) beside its proposals of O(N^2) each, and
no d x d matrix is made. More weights than rows go well, and so do very few weights. In between,
under a weak prior, nearly every proposal is rejected (about one in 10 000 is left for 100 rows, 50
standardised inputs and unit precisions): a pilot measures this, and `UnsupportedPair` is raised
before time is lost.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.exact.truncated_normal import TruncatedNormal, log_mean
from ardvark.inference.sites.approximation import GaussianFit
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import GaussianSites, ProbitSites
from ardvark.inference.sites.model import Prior, SiteModel
from ardvark.inference.sites.posterior import condition
from ardvark.inference.sites.settings import MethodSettings
from ardvark.models.checks import integer_from

__all__ = ["Exact", "ExactDraws", "draw_probit"]

BLOCK = 64  # draws of w in the making at a time: they stay in the cache


class ExactDraws(NamedTuple):
    """Independent draws from the exact posterior, and its evidence.

    For probit sites exp(log_evidence) is unbiased, `log_evidence_error` is the standard error of
    its log, and `info` has `acceptance`, `proposals` (in all), `evidence_proposals` (a number fixed
    beforehand), `effective_proposals` (of equal weight that would do as well; below some hundred
    the error itself is unsure), `log_bound` (no log evidence is above it) and `newton_steps`.
    """

    weights: Array  # (draws, d)
    log_evidence: float
    log_evidence_error: float
    info: dict[str, float]
    fit: GaussianFit | None  # where the posterior is Gaussian


@dataclass(frozen=True, slots=True)
class Exact(MethodSettings):
    """The exact posterior at fixed hyperparameters, for Gaussian and probit likelihoods.

    Parameters
    ----------
    hyper
        `Fixed(...)`: hyperparameters are given; None if the graph has none that are free.
    weights, predictor
        As in `EP`.
    min_acceptance
        Refuse if the pilot accepts a smaller share of its proposals; 0 = never refuse.
    pilot
        Proposals of the pilot. The evidence comes from the first max(pilot, draws) proposals.
    """

    min_acceptance: float = 1e-3
    pilot: int = 2000

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        if not 0.0 <= self.min_acceptance < 1.0:
            raise InputError(f"min_acceptance must be in [0, 1); found {self.min_acceptance!r}")
        integer_from(2, self.pilot, "pilot")

    def sample(self, model: SiteModel, draws: int, rng: np.random.Generator) -> ExactDraws:
        """Give independent draws of the weights; `draws=0` gives the evidence alone.

        The same state of `rng` gives the same draws.
        """
        for family, route in ROUTES.items():
            if isinstance(model.sites, family):
                return route(self, model, draws, rng)
        known = ", ".join(family.__name__ for family in ROUTES)
        raise UnsupportedPair(
            f"Exact: no exact posterior is known for {type(model.sites).__name__}; it is for "
            f"{known}. Use NUTS (exact up to Monte Carlo error) or EP."
        )


def _gaussian(
    settings: Exact, model: SiteModel, draws: int, rng: np.random.Generator
) -> ExactDraws:
    sites, prior = model.sites, Prior(model)
    assert isinstance(sites, GaussianSites)
    precision = np.broadcast_to(sites.precision, model.offset.shape).astype(np.float64)
    posterior = condition(prior, precision, precision * sites.mean)
    deviation = posterior.mean[prior.on] - prior.mean
    pull = precision * (sites.mean - posterior.eta_mean)  # A'pull = K^-1 deviation
    misfit = 0.5 * float(pull @ (prior.projection @ deviation))
    log_sites = float(np.sum(sites.log(posterior.eta_mean)))
    log_evidence = log_sites - misfit - posterior.half_log_det  # RW06 (3.32), here exact
    fit = GaussianFit(
        posterior=posterior,
        log_evidence=log_evidence,
        iterations=1,
        converged=True,
        site_precision=posterior.site_precision,
        site_shift=posterior.site_shift,
        info={},
    )
    return ExactDraws(posterior.draws(draws, rng), log_evidence, 0.0, {"acceptance": 1.0}, fit)


def _probit(settings: Exact, model: SiteModel, draws: int, rng: np.random.Generator) -> ExactDraws:
    prior, sign, covariance, region = _utilities(model)
    first = region.propose(settings.pilot, rng)
    acceptance = math.exp(log_mean(first.log_weight)[0] - region.log_bound)
    if acceptance < settings.min_acceptance:
        raise UnsupportedPair(_too_few_accepted(settings, model, draws, acceptance))
    second = region.propose(max(0, draws - settings.pilot), rng)  # never depends on the first
    log_weight = np.concatenate([first.log_weight, second.log_weight])
    log_evidence, error = log_mean(log_weight)
    acceptance = math.exp(log_evidence - region.log_bound)
    found = len(first.points) + len(second.points)
    rest = region.propose_until(draws - found, rng, acceptance)
    surplus = np.concatenate([first.points, second.points, rest.points])[:draws]
    info = {
        "acceptance": acceptance,
        "proposals": float(log_weight.size + rest.log_weight.size),
        "evidence_proposals": float(log_weight.size),
        "effective_proposals": 1.0 / (error**2 + 1.0 / log_weight.size),
        "log_bound": region.log_bound,
        "newton_steps": float(region.iterations),
    }
    weights = _weights_given(surplus, prior, sign, covariance, rng)
    return ExactDraws(weights, log_evidence, error, info, None)


def draw_probit(model: SiteModel, rng: np.random.Generator) -> tuple[Array, int]:
    """One exact draw of the weights (d,), and the proposals that it took."""
    prior, sign, covariance, region = _utilities(model)
    surplus, proposals = region.first(rng)
    return _weights_given(surplus[None, :], prior, sign, covariance, rng)[0], proposals


def _utilities(model: SiteModel) -> tuple[Prior, Array, Array, TruncatedNormal]:
    """Prior, signs, covariance G of the signed utilities, and the region of y - s eta0."""
    sites, prior = model.sites, Prior(model)
    assert isinstance(sites, ProbitSites)
    sign = np.broadcast_to(sites.sign, model.offset.shape)
    covariance = sign[:, None] * prior.eta_covariance * sign
    covariance[np.diag_indices_from(covariance)] += 1.0
    try:
        region = TruncatedNormal(covariance, -sign * prior.eta_mean)
    except np.linalg.LinAlgError as error:
        widest = math.sqrt(float(np.diag(covariance).max()))
        raise UnsupportedPair(
            f"Exact: {error}. The prior sd of the predictor is up to {widest:.3g}, beside noise of "
            "1: give the columns of X a common scale, or a larger precision, or use NUTS or EP."
        ) from error
    return prior, sign, covariance, region


def _weights_given(
    surplus: Array, prior: Prior, sign: Array, covariance: Array, rng: np.random.Generator
) -> Array:
    """Draw w for each row of surplus = y - s eta0 (draws, N)."""
    factor = cho_factor(covariance, lower=True)
    weights = np.tile(prior.model.mean, (len(surplus), 1))
    on: Any = slice(None) if prior.on.all() else prior.on  # a slice is added to in place
    for begin in range(0, len(surplus), BLOCK):
        told = surplus[begin : begin + BLOCK]
        before = prior.coloured(rng.standard_normal((len(told), prior.mean.size)))
        simulated = sign * (before @ prior.projection.T) + rng.standard_normal(told.shape)
        pull = sign * cho_solve(factor, (told - simulated).T).T
        weights[begin : begin + BLOCK, on] += before + pull @ prior.cross  # Matheron
    return weights


def _too_few_accepted(settings: Exact, model: SiteModel, draws: int, acceptance: float) -> str:
    rows, weights = model.projection.shape
    return (
        f"Exact: a pilot of {settings.pilot} proposals finds an acceptance of {acceptance:.1e} for "
        f"{rows} rows and {weights} weights, so {draws} draws would take about "
        f"{draws / max(acceptance, 1e-300):.1e} proposals. Exact draws are for more weights than "
        "rows, very few weights, or strong priors: use NUTS or EP here, or lower min_acceptance "
        f"(now {settings.min_acceptance:g})."
    )


ROUTES: dict[type, Callable[[Exact, SiteModel, int, np.random.Generator], ExactDraws]] = {
    GaussianSites: _gaussian,
    ProbitSites: _probit,
}
