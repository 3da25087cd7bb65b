"""All ARD precisions at once: MacKay's fixed point and EM, for any rule that gives Gaussian sites.

    gamma_j = 1 - alpha_j V_jj                     well-determinedness of w_j
    MacKay:   alpha_j <- gamma_j / m_j²            quick, no promise to climb
    EM:       alpha_j <- 1 / (m_j² + V_jj)         climbs (Gaussian sites), slowly

Both have the fixed points of the evidence under fixed sites, as the sequential steps do; they start
with every weight and can only prune. Slower than the sequential steps, kept to compare with them.

| Tipping, lecture on sparse Bayesian models | code |
|---|---|
| re-estimation of alpha, gamma | `UPDATES["mackay"]` |
| the EM remark | `UPDATES["em"]` |
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ardvark.inference.ard.sequential_ard import (
    Approximate,
    ArdResult,
    ArdStep,
    precision_bounds,
    start_precisions,
)
from ardvark.inference.running.progress import Tick, no_tick
from ardvark.inference.sites.arrays import Array, Mask
from ardvark.inference.sites.model import SiteModel

__all__ = ["UPDATES", "fixed_point_ard", "updated"]

Update = Callable[[Array, Array, Array], Array]  # alpha, mean, variance → alpha

UPDATES: dict[str, Update] = {
    "mackay": lambda alpha, mean, variance: np.maximum(1.0 - alpha * variance, 0.0) / mean**2,
    "em": lambda alpha, mean, variance: 1.0 / (mean**2 + variance),
}


def fixed_point_ard(
    model: SiteModel,
    approximate: Approximate,
    *,
    algorithm: str,
    optimised: Mask | None = None,
    start: Mask | None = None,
    start_precision: float | None = None,
    tolerance: float = 1e-6,
    max_steps: int = 5000,
    bounds: tuple[float, float] | None = None,
    tick: Tick = no_tick,
) -> ArdResult:
    """Update every precision in each step until none moves; arguments as in `sequential_ard`.

    `tolerance` is on the change of log alpha, as long as the weight matters: one that is on its way
    out may drift. A step of the path has action "mackay" or "em" and weight -1.
    """
    free = np.ones(model.mean.size, bool) if optimised is None else np.asarray(optimised, bool)
    everything = free if start is None else start
    precision = start_precisions(model, free, everything, start_precision)
    fit = approximate(replace(model, precision=precision), None)
    path = [ArdStep.at("start", -1, 0.0, precision, fit)]
    least, largest = precision_bounds(model, bounds)
    while True:
        on = free & np.isfinite(precision)
        moments = fit.posterior.mean[on], fit.posterior.marginal_variance[on]
        wanted, worst = updated(algorithm, precision[on], *moments, (least[on], largest[on]))
        settled = worst <= tolerance
        if settled or len(path) > max_steps:
            return ArdResult(precision, fit, path, bool(settled and fit.converged))
        precision = precision.copy()
        precision[on] = wanted
        before = fit.log_evidence
        fit = approximate(replace(model, precision=precision), fit)
        gain = fit.log_evidence - before
        path.append(ArdStep.at(algorithm, -1, gain, precision, fit))
        tick(f"step {len(path) - 1}, log evidence {fit.log_evidence:.4f}")


def updated(
    algorithm: str, alpha: Array, mean: Array, variance: Array, bounds: tuple[Array, Array]
) -> tuple[Array, float]:
    """Precisions after a step, inf = pruned, and the largest change of log alpha times gamma."""
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = UPDATES[algorithm](alpha, mean, variance)
        wanted = np.maximum(np.where(np.isnan(wanted), np.inf, wanted), bounds[0])
        wanted[wanted > bounds[1]] = np.inf
        gamma = np.clip(1.0 - alpha * variance, 0.0, 1.0)
        change = np.abs(np.log(wanted / alpha)) * gamma
    return wanted, float(np.nanmax(change, initial=0.0))
