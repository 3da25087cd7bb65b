"""The true gradient of an evidence in ARD precisions, where sites move with the weights.

Under fixed sites the data give a weight information r and pull u (`sequential_ard.py`); its best
precision is where d L / d alpha = 0. Laplace's sites move with the mode, so the evidence has a
further part (RW06 (5.23)); with p = d log Z / d offset, less the score of fixed sites,

    d log Z / d alpha = (1/alpha - V - m² - 2 m s) / 2,     s = A'p / alpha    a weight that is in
    d log Z / d (1/alpha) = (u² - r + 2 u A'p) / 2          at 1/alpha = 0     a weight that is out

Both are those of fixed sites with u² + 2 u g for u²: `moving_pull`. A weight comes in only where
fixed sites want it too: on separable data with many inputs Laplace's own evidence takes in one
after the other (68 of 3000 for 72 rows, where EP has 12). All precisions together go uphill by
L-BFGS on their logarithms: `climb`.
"""

from dataclasses import replace

import numpy as np
import scipy  # loads its parts when they are used: a first fit without this search is 0.1 s shorter

from ardvark.inference.running.progress import Tick, no_tick
from ardvark.inference.sites.approximation import REJECTED, Approximation, GaussianFit
from ardvark.inference.sites.arrays import Array, Mask
from ardvark.inference.sites.model import SiteModel

__all__ = ["climb", "log_slopes", "moving_pull"]

REACH = 5.0  # that a climb moves the logarithm of a precision
STATIONARY = 1e-5  # slope in log alpha, nats, at which a climb ends


def log_slopes(model: SiteModel, rule: Approximation, fit: GaussianFit) -> Array:
    """Slope of the log evidence in log alpha (d,); 0 for weights that are out."""
    assert model.precision is not None
    slope = rule.evidence_gradient(model, fit).precision
    assert slope is not None
    on = np.isfinite(model.precision)
    return np.where(on, slope * np.where(on, model.precision, 0.0), 0.0)


def moving_pull(model: SiteModel, rule: Approximation, fit: GaussianFit, pull: Array) -> Array:
    """The pull of each weight (d,) that gives the evidence its true slope, given r."""
    assert model.precision is not None
    posterior = fit.posterior
    score = posterior.site_shift - posterior.site_precision * posterior.eta_mean
    moved = model.projection.T @ (rule.evidence_gradient(model, fit).offset - score)
    on = np.isfinite(model.precision)
    moved[on] /= model.precision[on] * posterior.marginal_variance[on]
    true = np.sqrt(np.maximum(pull**2 + 2.0 * pull * moved, 0.0))
    return np.where(on, true, np.minimum(true, np.abs(pull)))


def climb(
    model: SiteModel,
    rule: Approximation,
    free: Mask,
    bounds: tuple[Array, Array],
    max_steps: int,
    tick: Tick = no_tick,
) -> Array:
    """Precisions (d,) after an ascent of all that are free and in the model, together."""
    assert model.precision is not None
    on = np.isfinite(model.precision)
    chosen = free[on]
    if not chosen.any():
        return model.precision
    start = np.log(model.precision[on])
    columns = np.ascontiguousarray(model.projection[:, on])
    fixed = model.mean.copy()
    fixed[on] = 0.0
    offset = model.offset + model.projection @ fixed if fixed.any() else model.offset
    small = replace(
        model, mean=model.mean[on], projection=columns, offset=offset, precision=np.exp(start)
    )
    last: list[GaussianFit | None] = [None]

    def objective(u: Array) -> tuple[float, Array]:
        logs = start.copy()
        logs[chosen] = u
        here = replace(small, precision=np.exp(logs))
        try:
            fit = rule.approximate(here, last[0])
        except ValueError:  # the last fit's weights have no density here
            fit = rule.approximate(here, None)
        if not np.isfinite(fit.log_evidence):
            return REJECTED, np.zeros_like(u)  # the line search comes back from here
        last[0] = fit
        tick(f"log evidence {fit.log_evidence:.4f}")
        return -fit.log_evidence, -log_slopes(here, rule, fit)[chosen]

    low, high = (np.log(bound[on][chosen]) for bound in bounds)
    u = np.clip(start[chosen], low, high)
    found = scipy.optimize.minimize(
        objective,
        u,
        jac=True,
        method="L-BFGS-B",
        bounds=scipy.optimize.Bounds(np.maximum(u - REACH, low), np.minimum(u + REACH, high)),
        options={"maxiter": max_steps, "ftol": 1e-14, "gtol": STATIONARY},
    )
    if found.nit == 0:
        return model.precision
    precision, logs = model.precision.copy(), start.copy()
    logs[chosen] = found.x
    precision[on] = np.exp(logs)
    return precision
