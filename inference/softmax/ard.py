"""Precisions of a softmax model by its own Laplace evidence: fixed points and gradient.

    "mackay", "em":   the updates of `ard/fixed_point.py`, K classes at a time
    `ascend`:         L-BFGS on the logs, with the exact gradient of the evidence

The fixed points are those of the evidence under a fixed curvature; the gradient has the term that
they lack, the move of the curvature with the mode, so the two do not end at the same place.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from ardvark.inference.ard.fixed_point import updated
from ardvark.inference.ard.sequential_ard import BOUNDS
from ardvark.inference.running.progress import Tick, no_tick
from ardvark.inference.sites.arrays import Array
from ardvark.inference.softmax.laplace import MultinomialFit
from ardvark.inference.softmax.model import SoftmaxModel

__all__ = ["Climb", "ascend", "fixed_point_softmax", "softmax_bounds"]

_FLAT = 1e-5  # slope in a log, relative to 1 + |value|

Fit = Callable[[SoftmaxModel, Array | None], MultinomialFit]  # model, weights to start from


class Climb(NamedTuple):
    """Where a search over precisions has ended."""

    precision: Array  # (K, d), inf = pruned
    fit: MultinomialFit
    steps: int
    converged: bool


def softmax_bounds(projection: Array) -> tuple[Array, Array]:
    """Least and largest precision of each column: `BOUNDS` times mean phi²."""
    scale = np.mean(np.square(projection), axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return BOUNDS[0] * scale, BOUNDS[1] * scale


def fixed_point_softmax(
    model: SoftmaxModel,
    fit: Fit,
    *,
    algorithm: str,
    tolerance: float = 1e-6,
    max_steps: int = 5000,
    tick: Tick = no_tick,
) -> Climb:
    """Update every precision in each step until none that matters moves; weights only leave.

    `tolerance` is on the change of log alpha times gamma.
    """
    shape, limits = model.precision.shape, softmax_bounds(model.projection)
    least, largest = (np.broadcast_to(limit, shape) for limit in limits)
    found = fit(model, None)
    for step in range(max_steps + 1):
        on, alpha = found.model.on, found.model.precision
        moments = found.mean[on], found.marginal_variance[on]
        wanted, worst = updated(algorithm, alpha[on], *moments, (least[on], largest[on]))
        settled = worst <= tolerance
        if settled or step == max_steps or np.isinf(wanted).all():
            return Climb(alpha, found, step, bool(settled and found.converged))
        precision = np.full(alpha.shape, np.inf)
        precision[on] = wanted
        found = fit(replace(model, precision=precision), found.mean)
        tick(f"step {step + 1}, log evidence {found.log_evidence:.4f}")
    raise AssertionError("the loop returns")


def ascend(
    value_and_gradient: Callable[[Array], tuple[float, Array]],
    start: Array,
    bounds: list[tuple[float, float]],
    *,
    tolerance: float,
    max_steps: int,
) -> tuple[Array, bool]:
    """Maximise over logarithms: the end, and whether it converged."""

    def minus(x: Array) -> tuple[float, Array]:
        value, gradient = value_and_gradient(x)
        return -value, -gradient

    size = 1.0 + abs(value_and_gradient(start)[0])
    end = minimize(
        minus,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"ftol": 0.1 * tolerance / size, "gtol": 1e-7 * size, "maxiter": max_steps},
    )
    low, high = np.array(bounds).T
    blocked = ((end.x <= low) & (end.jac > 0)) | ((end.x >= high) & (end.jac < 0))
    slope = float(np.abs(np.where(blocked, 0.0, end.jac)).max(initial=0.0))
    # A line search that fails where the slope is rounding has found the top all the same.
    return np.asarray(end.x), bool(end.status == 0 or slope <= _FLAT * size)
