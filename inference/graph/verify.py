"""Check by number what was read of a graph: no silent wrong answer.

1. Separable: move the rows whose index has bit b set, then those where it is not; the others
   must not move. Any two rows differ in some bit, so 2 log2 N evaluations see every pair.
2. Affine: η at three random points equals A w + o.
3. Sites plus prior equal the model's own log density at three points, where it is finite: a link
   such as 1/η or a margin has a domain, which random points miss, so these are then moved to where
   η is near its prior mean, or near 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg.lapack import dpocon, dpotrf
from scipy.sparse.linalg import lsqr

from ardvark.errors import UnreadableModel
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import Prior, SiteModel
from ardvark.inference.sites.posterior import condition

__all__ = ["verify"]

_TOLERANCE = 1e-9  # relative: what is read must be the model, not nearly the model
_POINTS = 3
_INFINITE = "not finite"


def verify(latent: LatentGaussian) -> None:
    """Raise `UnreadableModel` if the reading is not the model."""
    rng = np.random.default_rng(20261116)
    theta = latent.initial_theta()
    if not latent.reading.rows[0].coupled:  # what a softmax couples is held against its formula
        _separable(latent, theta, rng)
    site_model = latent.at(theta)
    prior = site_model.prior()
    drawn = _prior_points(site_model, prior, rng)
    _affine(latent, site_model.predictor(drawn), latent.eta_at(drawn, theta))
    points = _inside(latent, theta, site_model, drawn)
    _density(latent, theta, prior, points, latent.eta_at(points, theta))


def _fault(look: Callable[[bool], str]) -> str:
    """What is wrong with the graph compiled as it is written, and still wrong with all rewrites.

    The former takes a fifth of the time, but PyTensor's rewrites save digits: a fault counts if it
    is there with them too.
    """
    return look(True) and look(False)


def _not_finite(values: Array) -> str:
    return "" if np.isfinite(values).all() else _INFINITE


def _inside(
    latent: LatentGaussian, theta: dict[str, Array], site_model: SiteModel, drawn: Array
) -> Array:
    """Points at which all sites are finite: these, or as near to η at the prior mean, or to 1."""
    for as_written in (True, False):
        for points in _candidates(site_model, drawn):
            eta = latent.eta_at(points, theta)
            if not _not_finite(latent.log_sites(eta, theta, as_written)):
                return points
    return points


def _candidates(site_model: SiteModel, drawn: Array) -> Iterator[Array]:
    yield drawn
    off = drawn - site_model.mean
    spread = np.abs(site_model.projection @ off.T).max()
    near = site_model.mean + 0.1 / max(spread, 0.1) * off
    yield near
    yield near + _towards_one(site_model)


def _prior_points(site_model: SiteModel, prior: Prior, rng: np.random.Generator) -> Array:
    """Random weights from the prior."""
    if site_model.sparse:
        nothing = np.zeros(len(site_model.offset))
        return condition(prior, nothing, nothing).draws(_POINTS, rng)
    points = np.tile(site_model.mean, (_POINTS, 1))
    points[:, prior.on] += prior.coloured(rng.standard_normal((_POINTS, int(prior.on.sum()))))
    return points


def _towards_one(site_model: SiteModel) -> Array:
    """What leads from the prior mean to where the predictor is as near one as it can be."""
    aim = 1.0 - site_model.predictor(site_model.mean)
    if site_model.sparse:
        return np.asarray(lsqr(site_model.projection, aim)[0])
    return np.asarray(np.linalg.lstsq(site_model.projection, aim, rcond=None)[0])


def _separable(latent: LatentGaussian, theta: dict[str, Array], rng: np.random.Generator) -> None:
    [eta] = latent.eta_at(rng.standard_normal((1, latent.n_weights)), theta)
    rows, what = len(eta), f"log p({latent.observed} | {latent.predictor})"
    index = np.arange(rows)
    masks = [
        (index >> bit) & 1 == wanted
        for bit in range(max(1, (rows - 1).bit_length()))
        for wanted in (0, 1)
    ]
    shifts = [np.where(mask, rng.uniform(0.3, 0.6, rows), 0.0) for mask in masks]

    def look(as_written: bool, eta: Array) -> str:
        try:
            reference = latent.log_sites(eta[None, :], theta, as_written)
        except UnreadableModel:
            raise
        except ValueError as error:  # shapes that do not broadcast
            raise UnreadableModel(
                f"{what} is not separable, one number per row of {latent.predictor!r}: {error}"
            ) from error
        if reference.shape != (1, rows):
            return (
                f"{what} has shape {reference.shape[1:]} for {rows} rows of {latent.predictor!r}: "
                f"not separable, it must be one number per row"
            )
        infinite = _not_finite(reference)
        for mask, shift in zip(masks, shifts, strict=True):
            now = latent.log_sites((eta + shift)[None, :], theta, as_written)
            infinite = infinite or _not_finite(now)
            # Rounding only: an unmoved row is computed from the same numbers.
            same = np.isclose(now[0], reference[0], rtol=1e-10, atol=1e-12, equal_nan=True)
            if (unlike := np.flatnonzero(~same & ~mask)).size:
                return (
                    f"{what} is not separable over rows: row {unlike[0]} moves when "
                    f"{latent.predictor!r} moves in other rows"
                )
        return infinite if as_written else ""  # a link may have a domain

    fault = look(True, eta)
    if fault == _INFINITE:  # a margin, say, has a domain
        fault = look(True, 0.3 * eta / max(np.abs(eta).max(), 0.3))
    if fault and (fault := look(False, eta)):
        raise UnreadableModel(fault)


def _affine(latent: LatentGaussian, mapped: Array, eta: Array) -> None:
    if not np.isfinite(eta).all():
        raise UnreadableModel(
            f"the predictor is not finite at the starting values of "
            f"{', '.join(latent.hyper) or 'the data'}: give these another initval="
        )
    scale = 1 + np.abs(eta).max()
    if not np.allclose(mapped, eta, rtol=_TOLERANCE, atol=_TOLERANCE * scale):
        point, row = np.unravel_index(np.argmax(np.abs(mapped - eta)), eta.shape)
        raise UnreadableModel(
            f"the predictor {latent.predictor!r} is not affine in {', '.join(latent.weights)}: row "
            f"{row} is {eta[point, row]:.6g} at a random point, an affine map gives "
            f"{mapped[point, row]:.6g}"
        )


def _condition_number(covariance: Array) -> float:
    """Estimate of the condition number, from a Cholesky factor where there is one: O(N³/3)."""
    lower, failed = dpotrf(covariance, lower=1)
    if failed:
        return float(np.linalg.cond(covariance))
    inverse, _ = dpocon(lower, np.abs(covariance).sum(axis=0).max(), uplo="L")
    return float(1.0 / max(inverse, 1e-300))


def _density(
    latent: LatentGaussian, theta: dict[str, Array], prior: Prior, points: Array, eta: Array
) -> None:
    """Sites plus prior against the model's own density."""
    slack = 0.0
    if prior.model.covariance is not None:  # what a log density can know of an ill-conditioned K,
        # or of a precision that was inverted to get it (random walks, ICAR)
        slack = 1e-12 * _condition_number(prior.model.covariance)

    def look(as_written: bool) -> str:
        read = latent.log_sites(eta, theta, as_written).sum(axis=1) + prior.log_density(points)
        own = np.array([latent.log_density(w, theta, as_written) for w in points])
        if as_written and _not_finite(own):
            return _INFINITE
        with np.errstate(invalid="ignore"):  # both may be -inf
            gaps = np.where(read == own, 0.0, read - own)
        tolerance = _TOLERANCE * (1 + np.abs(own[np.isfinite(own)]).max(initial=0.0)) + slack
        # PyTensor keeps a Python constant such as 2.5 in float32 and takes its log there, so the
        # model's own density is off by a constant of some 1e-8 per weight. A gap that moves is a
        # fault.
        if np.ptp(gaps) <= tolerance and abs(gaps[0]) <= tolerance + 1e-6 * latent.n_weights:
            return ""
        return (
            f"sites and prior differ from the model's own log density by "
            f"{', '.join(f'{gap:.3g}' for gap in gaps)} at {_POINTS} points: this graph holds "
            f"something that the reader does not see"
        )

    if fault := _fault(look):
        raise UnreadableModel(fault)
