"""Sequential ARD: add, re-estimate or delete one weight at a time, whichever gains most evidence.

For any rule (Laplace, EP, ...) that turns the likelihood into Gaussian sites exp(-tau eta^2/2 +
nu eta). With the sites held fixed, the log evidence as a function of one precision alpha_j is

    log p(D | alpha) = log p(D | alpha_j = inf) + L_j(alpha_j),
    L_j(alpha) = (log alpha - log(alpha + r_j) + u_j^2 / (alpha + r_j)) / 2

where r_j and u_j are the information and the pull of the data on w_j without its own prior. After
each step the sites are approximated anew, on the active columns only. Every weight is a candidate
at every step, so one that was deleted too early (a bias, say) comes back.

| Qi, Minka, Picard & Ghahramani 2004        | code                                             |
|--------------------------------------------|--------------------------------------------------|
| decomposition before (15)                   | `_gain`; the logarithms are missing in print     |
| (15), (16)                                  | `_best_precisions`                               |
| (17), excluded: R_j, U_j                    | `_statistics`; the second terms are exchanged in |
|                                             | print, and C has variances, not precisions       |
| (17), included: r_j, u_j                    | 1/V_jj - alpha_j, m_j/V_jj: the same, more exact |
| section 3.4, steps 1 and 2                  | `sequential_ard`                                 |

What a step maximises is the evidence under *fixed* sites: for Gaussian sites that is the evidence
and it never falls; for others it has the same gradient in EP, and the record of the path tells.
A path that comes back to where it was goes on with shorter steps, accepted by the evidence itself.
On separable data the precisions would drift to zero without end: hence the lower bound.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ardvark.inference.approximation import GaussianFit
from ardvark.inference.gaussian import SiteModel
from ardvark.inference.sites import Array

__all__ = ["BOUNDS", "ArdResult", "ArdStep", "sequential_ard", "start_precisions"]

BOUNDS = (1e-6, 1e12)  # on separable data precisions drift down without end

Mask = NDArray[np.bool_]
Approximate = Callable[[SiteModel, GaussianFit | None], GaussianFit]


class ArdStep(NamedTuple):
    """One step of the path: what was done, and where it led."""

    action: str  # "start", "add", "re-estimate", "delete"
    weight: int  # its index; -1 for "start"
    gain: float  # promised under fixed sites, in nats
    log_evidence: float  # after the sites were approximated anew
    precision: Array  # (d,), inf = not in the model
    info: Mapping[str, float]  # what the approximation says of itself there, leave-one-out too

    @property
    def active(self) -> Mask:
        """Weights in the model after this step (d,)."""
        return np.isfinite(self.precision)


class ArdResult(NamedTuple):
    """Precisions at which no single change gains more than the tolerance, and how they came."""

    precision: Array  # (d,), inf = pruned
    fit: GaussianFit
    path: list[ArdStep]
    converged: bool

    @property
    def steps(self) -> int:
        """Changes made."""
        return len(self.path) - 1


def sequential_ard(
    model: SiteModel,
    approximate: Approximate,
    *,
    optimised: Mask | None = None,
    start: Mask | None = None,
    start_precision: float | None = None,
    tolerance: float = 1e-6,
    max_steps: int = 1000,
    bounds: tuple[float, float] = BOUNDS,
    tick: Callable[[str], None] | None = None,
) -> ArdResult:
    """Maximise the evidence over the precisions of `optimised` weights, one at a time.

    Parameters
    ----------
    model
        Diagonal prior; the optimised weights must have prior mean zero.
    approximate
        Maps a model and a fit to start from (or None) to a Gaussian fit.
    optimised
        Weights whose precision is free (all by default). The others keep theirs, and their place.
    start
        Optimised weights that are active at first; by default none, so that the first step adds
        the one with the largest gain, from sites expanded at the offset and the fixed weights.
    start_precision
        Precision of those weights; None = the model's own.
    tolerance
        Stop when no single change gains more (nats).
    max_steps
        Changes before the result is returned with `converged=False`.
    bounds
        Least and largest precision; beyond the largest a weight is deleted.
    tick
        Told of each step.
    """
    free = np.ones(model.mean.size, bool) if optimised is None else np.asarray(optimised, bool)
    precision = start_precisions(model, free, start, start_precision)
    fit = approximate(replace(model, precision=precision), None)
    path = [ArdStep("start", -1, 0.0, fit.log_evidence, precision, fit.info)]
    seen, careful = {_state(precision)}, False
    blocked = np.zeros_like(free)  # promised a gain that no step keeps, until another weight moves
    while True:
        best, gains = _best_precisions(precision, free, *_statistics(model, precision, fit), bounds)
        gains[blocked] = -np.inf
        weight = int(np.argmax(gains)) if gains.size else 0  # the first of equals
        settled = not gains.size or gains[weight] <= tolerance
        if settled or len(path) > max_steps:
            return ArdResult(precision, fit, path, bool(settled and fit.converged))
        tries = _tries(float(precision[weight]), float(best[weight]))
        moved = _move(model, approximate, fit, precision, weight, tries if careful else tries[:1])
        if moved is None:
            blocked[weight] = True
            continue
        blocked[:] = False
        careful = careful or _state(moved[0]) in seen
        seen.add(_state(moved[0]))
        action = _name_of(precision[weight], moved[0][weight])
        precision, fit = moved
        gain = float(gains[weight])
        path.append(ArdStep(action, weight, gain, fit.log_evidence, precision, fit.info))
        if tick is not None:
            tick(f"step {len(path) - 1}, log evidence {fit.log_evidence:.4f}")


def _state(precision: Array) -> bytes:
    """What a step leads to, up to the rounding of a warm start."""
    with np.errstate(divide="ignore"):
        return (
            np.round(np.log(precision[np.isfinite(precision)]), 6).tobytes()
            + np.packbits(np.isfinite(precision)).tobytes()
        )


def _move(
    model: SiteModel,
    approximate: Approximate,
    fit: GaussianFit,
    precision: Array,
    weight: int,
    tries: list[float],
) -> tuple[Array, GaussianFit] | None:
    """Move one precision to the first of `tries` at which the evidence does not fall.

    A single try is taken as it is. Fixed sites promise the right direction but not how far: sites
    move with the weights, and full steps may add and delete one weight for ever.
    """
    least = fit.log_evidence - 1e-10 * (1.0 + abs(fit.log_evidence))
    for value in tries:
        trial = precision.copy()
        trial[weight] = value
        found = _refit(replace(model, precision=trial), approximate, fit)
        if len(tries) == 1 or found.log_evidence >= least:
            return trial, found
    return None


def _tries(now: float, wanted: float) -> list[float]:
    """The full step, then shorter ones in the log of the precision."""
    if np.isinf(now):
        return [wanted, *(wanted * 8.0**k for k in range(1, 6))]
    if np.isinf(wanted):
        return [wanted, *(now * 4.0**k for k in (4, 2, 1, 0.5))]
    return [wanted, *(now * (wanted / now) ** (0.5**k) for k in range(1, 6))]


def start_precisions(
    model: SiteModel, free: Mask, start: Mask | None, start_precision: float | None
) -> Array:
    """Check what is asked and give the precisions to start from, inf = out."""
    if model.precision is None:
        raise ValueError("sequential ARD needs a diagonal prior: one precision per weight")
    if np.any(model.mean[free] != 0):
        first = int(np.flatnonzero(free & (model.mean != 0))[0])
        raise ValueError(
            f"sequential ARD needs prior mean zero for weights it may prune; weight {first} has "
            f"{model.mean[first]:.4g}. Leave it out of `optimised` or move its mean to the offset."
        )
    active = np.zeros_like(free) if start is None else np.asarray(start, bool) & free
    begin = model.precision if start_precision is None else np.full(free.size, start_precision)
    if not np.all(np.isfinite(begin[active]) & (begin[active] > 0)):
        raise ValueError("weights that are active at the start need a finite precision above zero")
    return np.where(free, np.where(active, begin, np.inf), model.precision)


def _statistics(model: SiteModel, precision: Array, fit: GaussianFit) -> tuple[Array, Array]:
    """Information r and pull u of every weight: one O(N d k) product, nothing d x d."""
    posterior = fit.posterior
    information = posterior.site_information(model.projection)  # Qi (17), R_j as corrected
    score = fit.site_shift - fit.site_precision * posterior.eta_mean
    pull = model.projection.T @ score  # Qi (17), U_j as corrected
    on = np.isfinite(precision)
    variance = posterior.marginal_variance[on]
    information[on] = 1.0 / variance - precision[on]
    pull[on] = posterior.mean[on] / variance
    return information, pull


def _best_precisions(
    precision: Array, free: Mask, r: Array, u: Array, bounds: tuple[float, float]
) -> tuple[Array, Array]:
    """Best precision of each weight, the others fixed, and what it gains; fixed weights: -inf.

    Where r <= 0 (possible only for sites that are not log-concave) the fixed-site evidence has no
    maximum: such a weight is left as it is.
    """
    usable = free & (r > 0)
    relevance = u**2 - r  # eta_j
    wanted = usable & (relevance > 0)
    best = np.full_like(precision, np.inf)  # Qi (16)
    best[wanted] = np.maximum(r[wanted] ** 2 / relevance[wanted], bounds[0])  # Qi (15)
    best[best > bounds[1]] = np.inf
    gains = np.full_like(precision, -np.inf)
    gains[usable] = (_gain(best, r, u) - _gain(precision, r, u))[usable]
    return best, gains


def _gain(alpha: Array, r: Array, u: Array) -> Array:
    """L(alpha), relative to the weight being out; corrected form of the line before Qi (15)."""
    on = np.isfinite(alpha) & (alpha + r > 0)
    alpha, r, u = np.where(on, alpha, 1.0), np.where(on, r, 0.0), np.where(on, u, 0.0)
    return np.asarray(0.5 * (u**2 / (alpha + r) - np.log1p(r / alpha)))


def _name_of(before: float, after: float) -> str:
    if np.isinf(before):
        return "add"
    return "delete" if np.isinf(after) else "re-estimate"


def _refit(model: SiteModel, approximate: Approximate, fit: GaussianFit) -> GaussianFit:
    """Approximate from the last fit, or afresh where its weights have no density now."""
    try:
        return approximate(model, fit)
    except ValueError:
        return approximate(model, None)
