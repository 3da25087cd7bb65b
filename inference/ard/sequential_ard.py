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
| decomposition before (15)                   | `kernels.py`; print lacks the logarithms     |
| (15), (16)                                  | `kernels.py`                                 |
| (17), excluded: R_j, U_j                    | `_statistics`; the second terms are exchanged in |
|                                             | print, and C has variances, not precisions       |
| (17), included: r_j, u_j                    | 1/V_jj - alpha_j, m_j/V_jj: the same, more exact |
| section 3.4, steps 1 and 2                  | `sequential_ard`                                 |

What a step maximises is the evidence under *fixed* sites: for Gaussian sites that is the evidence
and it never falls; for others it has the same gradient in EP, and the path records it. In
Laplace it has not, since the mode moves: with `rule` the true gradient is followed to the end.
A path that comes back to where it was goes on with shorter steps, accepted by the evidence itself.
On separable data the precisions would drift to zero without end: hence the lower bound.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ardvark.inference.ard.gradient import climb, moving_pull
from ardvark.inference.ard.kernels import best_precisions
from ardvark.inference.running.progress import Tick, no_tick
from ardvark.inference.sites.approximation import Approximation, GaussianFit, RunOfSteps
from ardvark.inference.sites.arrays import Array, Index, Mask
from ardvark.inference.sites.likelihoods import GaussianSites
from ardvark.inference.sites.model import SiteModel

__all__ = [
    "BOUNDS",
    "ArdResult",
    "ArdStep",
    "precision_bounds",
    "sequential_ard",
    "start_precisions",
]

BOUNDS = (1e-6, 1e12)  # times x²/η²; on separable data precisions drift down without end

Approximate = Callable[[SiteModel, GaussianFit | None], GaussianFit]


class ArdStep(NamedTuple):
    """One step of the path: what was done, and where it led."""

    action: str  # "start", "add", "re-estimate", "delete"
    weight: int  # its index; -1 for "start"
    gain: float  # promised under fixed sites, in nats
    log_evidence: float  # after the sites were approximated anew
    size: int  # d
    on: Index  # weights in the model after this step ...
    values: Array  # ... and their precisions: a path of many steps stays small
    info: Mapping[str, float]  # what the approximation says of itself there, leave-one-out too

    @classmethod
    def at(
        cls, action: str, weight: int, gain: float, precision: Array, fit: GaussianFit
    ) -> "ArdStep":
        """The step that led to `precision` and `fit`."""
        on = np.flatnonzero(np.isfinite(precision))
        evidence = fit.log_evidence
        return cls(action, weight, gain, evidence, precision.size, on, precision[on], fit.info)

    @property
    def precision(self) -> Array:
        """Precisions after this step (d,), inf = not in the model."""
        precision = np.full(self.size, np.inf)
        precision[self.on] = self.values
        return precision

    @property
    def active(self) -> Mask:
        """Weights in the model after this step (d,)."""
        active = np.zeros(self.size, bool)
        active[self.on] = True
        return active


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
    bounds: tuple[float, float] | None = None,
    rule: Approximation | None = None,
    runs: Callable[..., RunOfSteps | None] | None = None,
    tick: Tick = no_tick,
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
    start, start_precision
        Optimised weights that are active at first (by default none), and their precision (None:
        the model's own).
    tolerance, max_steps
        Stop when no single change gains more (nats); after so many changes not converged.
    bounds
        Least and largest precision; beyond the largest a weight is deleted. None: `BOUNDS` in
        units of the data (`precision_bounds`).
    rule
        The approximation with its gradient: steps then follow the true slope of the evidence, each
        is accepted by the evidence itself, and the end is stationary in all precisions together
        (`gradient.py`). Without it sites are taken as fixed.
    runs
        `run_of_steps` of the approximation, which makes many of the same steps in one call.
    """
    free = np.ones(model.mean.size, bool) if optimised is None else np.asarray(optimised, bool)
    precision = start_precisions(model, free, start, start_precision)
    fit = approximate(replace(model, precision=precision), None)
    if not np.isfinite(fit.log_evidence):
        raise ValueError(
            f"sequential ARD cannot begin: the log evidence at its start is {fit.log_evidence}. "
            f"Look for rows that the likelihood calls impossible."
        )
    path = [ArdStep.at("start", -1, 0.0, precision, fit)]
    limits = precision_bounds(model, bounds)
    promises = _Promises(model, free, limits, tolerance, rule)
    seen, careful = {_state(path[0].on, path[0].values)}, rule is not None
    idle = False  # a climb has gained nothing since the last step
    while True:
        run = None
        if runs is not None and not careful and promises.rival is not None:
            floor, room = max(promises.rival, tolerance), max_steps + 1 - len(path)
            run = runs(replace(model, precision=precision), fit, free, limits, floor, room)
        if run is not None and run.weight.size:
            for last, step in enumerate(_steps_of(run, precision)):  # noqa: B007
                path.append(step)
                state = _state(step.on, step.values)
                careful = state in seen
                seen.add(state)
                if careful:  # the rest of the run is not taken
                    break
            precision, fit = path[-1].precision, run.fit_after(last)
            tick(f"step {len(path) - 1}, log evidence {fit.log_evidence:.4f}")
            continue
        weight, wanted, gain = promises.largest(precision, fit)
        settled = gain <= tolerance
        # An active weight is re-estimated together with all others, once the active set is known.
        together = settled or (np.isfinite(wanted) and np.isfinite(precision[weight]))
        if rule is not None and together and not idle and len(path) <= max_steps:
            there = climb(replace(model, precision=precision), rule, free, limits, max_steps, tick)
            found = _refit(replace(model, precision=there), approximate, fit)
            risen = found.log_evidence - fit.log_evidence
            idle = not risen > tolerance
            if risen >= 0.0 and there is not precision:
                precision, fit = there, found
                path.append(ArdStep.at("re-estimate", -1, risen, precision, fit))
            continue
        if settled or len(path) > max_steps:
            return ArdResult(precision, fit, path, bool(settled and fit.converged))
        tries = _tries(float(precision[weight]), wanted)
        moved = _move(model, approximate, fit, precision, weight, tries if careful else tries[:1])
        if moved is None:
            promises.blocked[weight] = True
            continue
        promises.blocked[:] = False
        action = _name_of(precision[weight], moved[0][weight])
        if action != "re-estimate":
            promises.rival = None
        precision, fit = moved
        idle = False
        path.append(ArdStep.at(action, weight, gain, precision, fit))
        state = _state(path[-1].on, path[-1].values)
        careful = careful or state in seen
        seen.add(state)
        tick(f"step {len(path) - 1}, log evidence {fit.log_evidence:.4f}")


def precision_bounds(
    model: SiteModel, bounds: tuple[float, float] | None = None
) -> tuple[Array, Array]:
    """Least and largest precision of each weight: as given, or `BOUNDS` times mean x² / η².

    η has the scale of the target for Gaussian sites, and scale 1 for all others.
    """
    ones = np.ones(model.mean.size)
    if bounds is not None:
        return bounds[0] * ones, bounds[1] * ones
    eta = 1.0
    if isinstance(model.sites, GaussianSites):
        eta = float(np.mean(np.square(model.sites.mean - model.offset))) or 1.0
    scale = np.mean(np.square(model.projection), axis=0) / eta
    scale = np.where(scale > 0, scale, 1.0)
    return BOUNDS[0] * scale, BOUNDS[1] * scale


class _Promises:
    """The change of one precision that gains most under fixed sites.

    Weights that are in need no product with all columns. They alone are looked at while one of them
    promises more than the best of the others did, and all again before one of the others moves.
    """

    def __init__(
        self,
        model: SiteModel,
        free: Mask,
        bounds: tuple[Array, Array],
        tolerance: float,
        rule: Approximation | None = None,
    ) -> None:
        self.model, self.free, self.bounds, self.tolerance = model, free, bounds, tolerance
        self.rule = rule
        self.squares = np.square(model.projection)
        self.blocked = np.zeros_like(free)  # a gain that no step keeps, until another weight moves
        self.rival: float | None = None  # best promise of a weight that is out, when last seen

    def largest(self, precision: Array, fit: GaussianFit) -> tuple[int, float, float]:
        """Weight, the precision it should have, and the gain; the first of equals."""
        if self.rival is not None and self.rule is None:
            on = np.flatnonzero(self.free & np.isfinite(precision))
            found = self._among(on, precision, *_inside(precision, fit, on))
            if found[2] > max(self.rival, self.tolerance):
                return found
        everything = np.arange(precision.size)
        r, u = _statistics(self.model, self.squares, precision, fit)
        if self.rule is not None:
            u = moving_pull(replace(self.model, precision=precision), self.rule, fit, u)
        out = np.flatnonzero(~np.isfinite(precision))
        self.rival = self._among(out, precision, r[out], u[out])[2]
        return self._among(everything, precision, r, u)

    def _among(
        self, weights: Index, precision: Array, r: Array, u: Array
    ) -> tuple[int, float, float]:
        free = self.free[weights] & ~self.blocked[weights]
        least, largest = (bound[weights] for bound in self.bounds)
        best, gains = best_precisions(precision[weights], free, r, u, least, largest)
        if not gains.size:
            return 0, np.inf, -np.inf
        first = int(np.argmax(gains))
        return int(weights[first]), float(best[first]), float(gains[first])


def _state(on: Index, precision: Array) -> bytes:
    """Rounded log precisions of the active weights: a key, to see whether a state comes back."""
    with np.errstate(divide="ignore"):
        return np.round(np.log(precision), 6).tobytes() + on.tobytes()


def _steps_of(run: RunOfSteps, precision: Array) -> list[ArdStep]:
    """The steps of a run, which leaves the same weights in the model."""
    on, numbers = np.flatnonzero(np.isfinite(precision)), (run.weight, run.gain, run.log_evidence)
    rows = zip(*(column.tolist() for column in numbers), run.precision, run.info, strict=True)
    return [
        ArdStep("re-estimate", weight, gain, evidence, precision.size, on, values, info)
        for weight, gain, evidence, values, info in rows
    ]


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


def _statistics(
    model: SiteModel, squares: Array, precision: Array, fit: GaussianFit
) -> tuple[Array, Array]:
    """Information r and pull u of every weight: one O(N d k) product, nothing d x d."""
    found = fit.posterior.information_and_pull(model.projection, squares)
    information, pull = found  # Qi04 (17), as corrected
    on = np.flatnonzero(np.isfinite(precision))
    information[on], pull[on] = _inside(precision, fit, on)
    return information, pull


def _inside(precision: Array, fit: GaussianFit, on: Index) -> tuple[Array, Array]:
    """Information and pull of weights that are in, from their own marginals."""
    variance = fit.posterior.marginal_variance[on]
    return 1.0 / variance - precision[on], fit.posterior.mean[on] / variance


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
