"""The relevance sample-feature machine by type-II maximum likelihood: the alternative to VB.

Mohsenzadeh, Sheikhzadeh, Reza, Bathaee & Kalayeh 2013 (RSFM), as Mir17 describe it: given lam the
model is an RVM in w, given w one in lam. Each side in turn gets Laplace's approximation (exact for
Gaussian noise), its precisions the fixed point of the evidence, and weights whose precision
exceeds a limit leave. The other side enters by its mode alone: what VB takes into account and this
does not is its covariance.

| step                                        | formula                                        |
|---------------------------------------------|------------------------------------------------|
| w, lam                                      | `Laplace.approximate`                          |
| alpha_i = gamma_i / mu_i², gamma_i = 1 - alpha_i Sigma_ii | Tip01 (16), (17)                 |
| 1/beta = |t - y|² / (N - sum gamma)         | Tip01 (18)                                     |
| limit on alpha                              | at the gauge max |lam| = 1, kept in every sweep |
"""

from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.laplace import Laplace
from ardvark.inference.running.progress import Tick, no_tick
from ardvark.inference.sample_feature.vb import State
from ardvark.inference.sites.approximation import GaussianFit
from ardvark.inference.sites.arrays import Array, Index
from ardvark.inference.sites.likelihoods import GaussianSites, LogitSites, Sites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.vb.blocks import GaussianBlock, Known
from ardvark.inference.vb.rows import GaussianRows, GivenNoise, LogisticRows, Rows

__all__ = ["RsfmFit", "rsfm", "rsfm_state"]

_LIMIT = 1e6  # precision beyond which a weight leaves: its sd is a thousandth of a kernel's height
_LEAST_NOISE = 1e-6  # of the variance of t: 1/beta never falls below
_MOST_SWEEPS = 500
_STILL = 1e-5  # change of the fitted values, as a share of their size, at which the sweeps end
_CHUNK = 2**24  # numbers of the basis at a time


class Side(NamedTuple):
    """One of the two blocks of weights."""

    kept: Index  # what is in the model, 0 = the constant
    mean: Array
    covariance: Array
    alpha: Array

    def scaled(self, c: float) -> "Side":
        """The same weights times c."""
        return Side(self.kept, c * self.mean, c**2 * self.covariance, self.alpha / c**2)

    @property
    def block(self) -> GaussianBlock:
        """As a Gaussian that can be drawn from."""
        return GaussianBlock.of(self.mean, self.covariance)


class RsfmFit(NamedTuple):
    """Both blocks at the end, and the noise precision (NaN for classes)."""

    w: Side
    lam: Side
    beta: float
    sweeps: int
    converged: bool
    change: float  # of the fitted values in the last sweep, as a share of their size


def rsfm(
    basis: Any,
    target: Array,
    *,
    classes: bool,
    alpha_w: Array | None = None,
    alpha_lam: Array | None = None,
    beta: float | None = None,
    tick: Tick = no_tick,
) -> RsfmFit:
    """Alternate between the two sides.

    Parameters
    ----------
    target
        Real values, or signs ±1 with `classes`.
    alpha_w, alpha_lam, beta
        Given hyperparameters; without them the evidence sets them.
    """
    rows, n_features, n_samples = basis.shape
    free = alpha_w is None or alpha_lam is None
    w = _start(n_samples, np.zeros(n_samples), alpha_w)
    lam = _start(n_features, np.full(n_features, 1.0 / n_features), alpha_lam)
    spread = float(np.var(target)) or 1.0
    noise = 1.0 / spread if beta is None else beta
    fitted, change, sweep = np.zeros(rows), np.inf, 0
    while sweep < _MOST_SWEEPS and change > _STILL:
        sweep += 1
        sites: Sites = LogitSites(target) if classes else _gaussian(target, noise)
        design = _design(basis, w.kept, lam, by="lam")
        w, determined = _side(design, sites, w, alpha_w is None)
        design = _design(basis, lam.kept, w, by="w")
        lam, _ = _side(design, sites, lam, alpha_lam is None)
        before, fitted = fitted, _design(basis, lam.kept, w, by="w") @ lam.mean
        if not classes and beta is None:
            left = np.sum((target - fitted) ** 2) / max(rows - determined, 1.0)
            noise = 1.0 / max(float(left), _LEAST_NOISE * spread)  # Tip01 (18)
        if free and (largest := np.abs(lam.mean).max(initial=0.0)) > 0:
            w, lam = w.scaled(largest), lam.scaled(1.0 / largest)
        change = float(np.sqrt(np.mean((fitted - before) ** 2) / max(np.mean(fitted**2), 1e-300)))
        tick(f"sweep {sweep}, {len(w.kept)} samples, {len(lam.kept)} features")
    return RsfmFit(w, lam, np.nan if classes else noise, sweep, change <= _STILL, change)


def rsfm_state(fit: RsfmFit, target: Array, classes: bool) -> State:
    """Give the end as a state of VB whose precisions are known, for moments and draws."""
    rows: Rows = (
        LogisticRows(target, np.ones_like(target))
        if classes
        else GaussianRows(target, GivenNoise(fit.beta))
    )
    return State(
        fit.w.block,
        fit.lam.block,
        Known(fit.w.alpha),
        Known(fit.lam.alpha),
        rows,
        fit.w.kept,
        fit.lam.kept,
    )


def _start(size: int, mean: Array, given: Array | None) -> Side:
    alpha = np.ones(size) if given is None else np.broadcast_to(given, size)
    index = np.flatnonzero(np.isfinite(alpha))
    return Side(index, mean[index], np.eye(len(index)), alpha[index])


def _gaussian(target: Array, beta: float) -> GaussianSites:
    precision = np.full_like(target, beta)
    return GaussianSites(target, precision, 0.5 * np.log(precision / (2.0 * np.pi)))


def _side(design: Array, sites: Sites, side: Side, free: bool) -> tuple[Side, float]:
    """Approximate one block given the other, then its precisions; how many are determined."""
    size = len(side.kept)
    model = SiteModel(np.zeros(size), design, np.zeros(len(design)), sites, side.alpha)
    fit: GaussianFit = Laplace().approximate(model, start=side.mean)
    mean, covariance = fit.posterior.mean, fit.posterior.covariance
    gamma = np.clip(1.0 - side.alpha * covariance.diagonal(), 1e-12, 1.0)
    if not free:
        return Side(side.kept, mean, covariance, side.alpha), float(gamma.sum())
    with np.errstate(divide="ignore"):
        alpha = gamma / mean**2  # Tip01 (16)
    keep = alpha < _LIMIT
    keep[np.argmin(alpha)] = True  # a side without weights would be no model at all
    alpha = np.minimum(alpha, _LIMIT)
    return (
        Side(side.kept[keep], mean[keep], covariance[np.ix_(keep, keep)], alpha[keep]),
        float(gamma.sum()),
    )


def _design(basis: Any, index: Index, other: Side, *, by: str) -> Array:
    """Phi_n times the mean of the other block: (rows, weights of this one)."""
    rows = basis.shape[0]
    step = max(1, _CHUNK // (len(index) * len(other.kept)))
    parts = []
    for start in range(0, rows, step):
        chunk = slice(start, start + step)
        if by == "lam":
            parts.append(np.matmul(other.mean, basis.block(chunk, other.kept, index)))
        else:
            parts.append(basis.block(chunk, index, other.kept) @ other.mean)
    return np.concatenate(parts)
