"""Move a Gaussian block by a Markov kernel that leaves its exact conditional alone.

The target is p(w | θ, t), proportional to N(w; m0, K) prod_n site_n(eta_n). An approximation q has
the same prior and Gaussian sites, so that their ratio depends on the N predictors alone:

    p(w) / q(w) ∝ prod_n site_n(eta_n) / exp(-tau_n eta_n²/2 + nu_n eta_n)

and each trial costs O(N), whatever the number of weights and whatever else is in the model.

| kernel           | move                                                    | exact |
|------------------|---------------------------------------------------------|-------|
| `elliptical`     | slice on the ellipse through w and a draw of q           | yes   |
| `independence`   | Metropolis-Hastings, proposals from q or a Student-t     | yes   |
| `draw`           | a draw of q itself                                       | no    |

Elliptical slice sampling: Murray, Adams & MacKay 2010; with q from EP: Fagan, Bhandari &
Cunningham 2016; with a Student-t: Nishihara, Murray & Adams 2014. Where the target has heavier
tails than q the ratio grows without bound, and a chain that starts, or gets, far out would hardly
move: `freedom` gives q the tails of a Student-t. Both exact kernels only ask that q be a function
of θ and the data: it need not have converged, but must not depend on w or on earlier draws.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.sites.approximation import Approximation
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.posterior import Posterior, condition

__all__ = ["KERNELS", "Moved", "approximate_or_prior", "log_ratio", "move_block", "slice_angles"]

_MOST_TRIALS = 500  # the bracket has shrunk to nothing long before: only a NaN gets here


class Moved(NamedTuple):
    """Where a kernel has led."""

    weights: Array
    trials: int  # evaluations of the sites
    acceptance: float  # probability of acceptance; 1 for kernels that never reject
    moved: bool


def approximate_or_prior(rule: Approximation, model: SiteModel) -> tuple[Posterior, bool]:
    """Give q by the rule, from a cold start; the prior, and False, where it finds no Gaussian."""
    try:
        q = rule.approximate(model).posterior
        if np.isfinite(q.mean).all():
            return q, True
    except np.linalg.LinAlgError:
        pass
    none = np.zeros(len(model.offset))
    return condition(model, none, none), False


def log_ratio(model: SiteModel, q: Posterior, eta: Array) -> float:
    """Log p(w) / q(w), up to a constant, as a function of the predictors (N,)."""
    gaussian = eta * (q.site_shift - 0.5 * q.site_precision * eta)
    return float(np.sum(model.sites.log(eta)) - np.sum(gaussian))


def move_block(
    model: SiteModel,
    q: Posterior,
    weights: Array,
    rng: np.random.Generator,
    kernel: str = "elliptical",
    freedom: float | None = None,
) -> Moved:
    """Move `weights` (d,) by the kernel; with `freedom` q has the tails of a Student-t."""
    return KERNELS[kernel](model, q, weights, rng, freedom)


def _elliptical(
    model: SiteModel, q: Posterior, weights: Array, rng: np.random.Generator, freedom: float | None
) -> Moved:
    here, there = weights - q.mean, q.draws(1, rng)[0] - q.mean
    tails = _Tails(q, here, there, freedom, rng)
    there = tails.scale * there
    eta_here, eta_there = model.projection @ here, model.projection @ there

    def log_weight(cosine: Array, sine: Array, left: Any = None) -> Array:
        cos, sin = float(cosine[0]), float(sine[0])
        eta = cos * eta_here + sin * eta_there + q.eta_mean
        return np.array([log_ratio(model, q, eta) + tails.log_ratio(cos, sin)])

    height = log_weight(np.ones(1), np.zeros(1))
    (cos,), (sin,), _, trials = slice_angles(log_weight, height, rng)
    moved = q.mean + cos * here + sin * there
    return Moved(moved, trials, 1.0, sin != 0.0)


def slice_angles(
    log_weight: Callable[[Array, Array, Any], Array], height: Array, rng: np.random.Generator
) -> tuple[Array, Array, Array, int]:
    """One new angle on the ellipse of each chain: cosines, sines, log weights there, and trials.

    `log_weight(cosine, sine, left)` is of the chains `left` alone, at an angle each; `height` is of
    all of them where they are, at cosine 1.
    """
    chains = len(height)
    threshold = height - rng.standard_exponential(chains)  # MAM10 step 2
    angle = 2.0 * np.pi * rng.random(chains)  # MAM10 step 3
    low, high = angle - 2.0 * np.pi, angle.copy()
    new, left = np.array(height), np.arange(chains)
    for trial in range(1, _MOST_TRIALS):
        found = log_weight(np.cos(angle[left]), np.sin(angle[left]), left)  # MAM10 step 4
        good = found >= threshold[left]
        new[left[good]] = found[good]
        left = left[~good]
        if not left.size:
            return np.cos(angle), np.sin(angle), new, trial
        below = angle[left] < 0  # MAM10 step 8: shrink to the side of the rejected angle
        low[left[below]] = angle[left[below]]
        high[left[~below]] = angle[left[~below]]
        angle[left] = low[left] + (high - low)[left] * rng.random(left.size)
    angle[left] = 0.0
    return np.cos(angle), np.sin(angle), new, _MOST_TRIALS


class _Tails:
    """The Student-t with q's mean and shape, as a Gaussian of random scale given the weights.

    On the ellipse cos(angle) here + sin(angle) there its log density needs three numbers.
    """

    def __init__(
        self,
        q: Posterior,
        here: Array,
        there: Array,
        freedom: float | None,
        rng: np.random.Generator,
    ) -> None:
        self.freedom, self.scale = freedom, 1.0
        if freedom is None:
            return
        self.k = int(q.prior.on.sum())
        peak, points = q.log_density(q.mean), q.mean + np.stack([here, there, here + there])
        self.here, self.there, both = 2.0 * (peak - q.log_density(points))
        self.cross = 0.5 * (both - self.here - self.there)
        # s | w is inverse Gamma((freedom + k) / 2, (freedom + Q) / 2), Nishihara et al. 2014 (9)
        chi_square = rng.chisquare(freedom + self.k)
        self.scale = math.sqrt((freedom + self.here) / chi_square)

    def log_ratio(self, cos: float, sin: float) -> float:
        """Log of q over the Student-t, up to a constant."""
        if self.freedom is None:
            return 0.0
        sin = sin * self.scale
        quadratic = cos**2 * self.here + 2.0 * cos * sin * self.cross + sin**2 * self.there
        return _t_over_gaussian(quadratic, self.freedom, self.k)


def _t_over_gaussian(quadratic: float, freedom: float, k: int) -> float:
    """Log N(w; m, V) / t(w; m, V), up to a constant, from (w - m)' V^-1 (w - m)."""
    return 0.5 * (freedom + k) * math.log1p(quadratic / freedom) - 0.5 * quadratic


def _independence(
    model: SiteModel, q: Posterior, weights: Array, rng: np.random.Generator, freedom: float | None
) -> Moved:
    deviation = q.draws(1, rng)[0] - q.mean
    if freedom is not None:
        deviation = deviation * math.sqrt(freedom / rng.chisquare(freedom))
    proposed = q.mean + deviation
    new, old = (_log_weight(model, q, w, freedom) for w in (proposed, weights))
    acceptance = math.exp(min(0.0, new - old)) if math.isfinite(new) else 0.0
    accepted = bool(rng.uniform() < acceptance)
    return Moved(proposed if accepted else weights, 1, acceptance, accepted)


def _log_weight(model: SiteModel, q: Posterior, weights: Array, freedom: float | None) -> float:
    """Log of target over proposal, up to a constant."""
    weight = log_ratio(model, q, model.predictor(weights))
    if freedom is None:
        return weight
    quadratic = 2.0 * float(q.log_density(q.mean) - q.log_density(weights))
    k = int(q.prior.on.sum())
    return weight + _t_over_gaussian(quadratic, freedom, k)


def _draw(
    model: SiteModel, q: Posterior, weights: Array, rng: np.random.Generator, freedom: float | None
) -> Moved:
    return Moved(q.draws(1, rng)[0], 0, 1.0, True)


KERNELS: dict[str, Callable[..., Moved]] = {
    "elliptical": _elliptical,
    "independence": _independence,
    "draw": _draw,
}
