"""Elliptical slice sampling: a Gaussian block under any sites, nothing tuned, nothing rejected.

    f ~ N(m, S) L(f),   ν ~ N(0, S),   log y = log L(f) + log U(0, 1)
    f' = m + (f - m) cos φ + ν sin φ,   φ drawn from a bracket that shrinks towards 0 until
                                        log L(f') > log y

| source                                             | code                                        |
|----------------------------------------------------|---------------------------------------------|
| Murray, Adams & MacKay 2010 (MAM10), figure 2:      | `slice_angles` of `sites/moves.py`, all    |
| ellipse, threshold, angle, shrinking bracket        | chains together                            |
| Nishihara, Murray & Adams 2014: any Gaussian will   | `slice_sample`: N(m, S) is the prior, or   |
| do for the ellipse, L is the rest of the target     | prior times a share of EP's Gaussian sites |

Sites that are zero on part of the line are no trouble: such points are never above the threshold.
That makes it the reference for the trigonometric SVM, where gradient samplers diverge. The target
is exact whatever the ellipse; EP's only makes successive draws less alike. The chains advance
together: one product for all of them, one call of the sites.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.ep.ep import EP
from ardvark.inference.running.until import check_until
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import Prior, SiteModel
from ardvark.inference.sites.moves import slice_angles
from ardvark.inference.sites.posterior import Posterior, condition
from ardvark.inference.sites.settings import MethodSettings
from ardvark.models.checks import as_count, one_of, positive_integer

__all__ = ["EllipticalSlice", "SliceDraws", "slice_sample"]

ELLIPSES = ("posterior", "prior")
BLOCK = 256  # draws of ν made at once, per chain
SHARE = 0.8  # of EP's sites in the ellipse: its tails must not be lighter than the target's


@dataclass(frozen=True, slots=True)
class EllipticalSlice(MethodSettings):
    """Settings of elliptical slice sampling.

    Parameters
    ----------
    hyper
        `Fixed(...)`: the hyperparameters are given, by a mapping or another fit's tree. None: the
        model has none that are free. Free ones are refused: `EP(hyper=Sampled())` draws them.
    weights, predictor
        As in `EP`.
    ellipse
        "posterior": ellipses of the prior times a share of EP's Gaussian sites; "prior": the
        original algorithm, slow where the data say much.
    tune
        Sweeps per chain that are thrown away.
    thin
        Sweeps for each draw that is kept.
    until, most_draws
        As in `NUTS`, with the longer chains run again from the same seed.
    """

    ellipse: str = "posterior"
    tune: int = 200
    thin: int = 1
    until: str | None = None
    most_draws: int | None = None

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        one_of(self.ellipse, ELLIPSES, "ellipse")
        as_count(self.tune, "tune")
        positive_integer(self.thin, "thin")
        check_until(self.until, self.most_draws)


class SliceDraws(NamedTuple):
    """Draws of the weights (chain, draw, d), and evaluations of the sites per sweep."""

    weights: Array
    evaluations: float


def slice_sample(
    model: SiteModel,
    settings: EllipticalSlice,
    draws: int,
    chains: int,
    rng: np.random.Generator,
    begin: Array | None = None,
) -> SliceDraws:
    """Draw from N(w; m0, K) times sites; `begin` (chain, weight) says where chains start."""
    prior = Prior(model)
    ellipse = _ellipse(prior, settings.ellipse)
    tau, nu = ellipse.site_precision, ellipse.site_shift

    def log_rest(eta: Array) -> Array:
        """What the target has and the ellipse has not."""
        return np.asarray((model.sites.log(eta) - eta * (nu - 0.5 * tau * eta)).sum(axis=-1))

    centre = ellipse.eta_mean
    w, eta = _start(model, prior, ellipse, chains)
    if begin is not None:
        w, eta = begin, model.predictor(begin)
    height = log_rest(eta)
    if not np.isfinite(height).all():
        raise ValueError(
            "the likelihood is zero at the prior mean, where the slices begin. Use NUTS()."
        )
    kept = np.empty((chains, draws, w.shape[1]))
    evaluations, total = 0, settings.tune + draws * settings.thin
    for sweep in range(total):
        step = sweep % BLOCK
        if step == 0:
            count = min(BLOCK, total - sweep)
            block = ellipse.draws(count * chains, rng).reshape(count, chains, -1) - ellipse.mean
            projected = block @ model.projection.T
        there, here = projected[step], eta - centre

        def log_weight(
            cosine: Array, sine: Array, left: Any, there: Array = there, here: Array = here
        ) -> Array:
            return log_rest(centre + sine[:, None] * there[left] + cosine[:, None] * here[left])

        cosine, sine, height, spent = slice_angles(log_weight, height, rng)
        w = ellipse.mean + sine[:, None] * block[step] + cosine[:, None] * (w - ellipse.mean)
        eta = centre + sine[:, None] * there + cosine[:, None] * here
        evaluations += spent
        place, left = divmod(sweep - settings.tune, settings.thin)
        if sweep >= settings.tune and left == settings.thin - 1:
            kept[:, place] = w
    return SliceDraws(kept, evaluations / total)


def _ellipse(prior: Prior, kind: str) -> Posterior:
    """The Gaussian of the ellipses: the prior times a share of the sites that EP finds."""
    nothing = np.zeros(len(prior.eta_mean))
    if kind == "posterior" and prior.on.any():
        try:
            fit = EP(tolerance=1e-6).approximate(prior.model)
        except np.linalg.LinAlgError:  # sites without an EP: the prior's ellipse will do
            return condition(prior, nothing, nothing, "auto")
        tau = SHARE * np.maximum(fit.site_precision, 0.0)
        if fit.converged:
            return condition(prior, tau, np.where(tau > 0, SHARE * fit.site_shift, 0.0), "auto")
    return condition(prior, nothing, nothing, "auto")


def _start(model: SiteModel, prior: Prior, ellipse: Posterior, chains: int) -> tuple[Array, Array]:
    """Begin at the centre of the ellipse, or at the prior mean where that has no probability."""
    mean, eta = ellipse.mean, ellipse.eta_mean
    if not np.isfinite(model.sites.log(eta)).all():
        mean, eta = model.mean, prior.eta_mean
    return np.tile(mean, (chains, 1)), np.tile(eta, (chains, 1))
