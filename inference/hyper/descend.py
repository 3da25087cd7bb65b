"""Descent on the real line by L-BFGS, and what its end is worth.

A function of a scale may fall without end as log θ goes to plus or minus infinity: the search then
stops where nothing changes any more, which is no minimum. `ends` looks one unit (a factor e of a
scale) to either side of the place where a search has stopped, and names the coordinates in which
the function is flat there.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from ardvark.inference.sites.arrays import Array

__all__ = ["Descent", "descend", "descend_carefully", "ends"]

_REACH = 5.0  # on the real line, for one stretch of the search
_STRETCHES = 6
_NO_STEP = 2  # what L-BFGS-B says when its line search finds no lower point
_FIRST, _LEAST = 1.0, 1e-4  # reaches of a careful search
_FARTHEST = 40.0  # from zero: nothing is found beyond
_GAIN = 1e-8  # nats in a stretch: less is rounding
_LEVEL = 1e-3  # nats in one unit: less is flat
_STILL = 1e-6  # less is no move
_NAMED = 3  # coordinates in one message
_STEEP = 1e-2  # slope, nats in a unit, that is none at a minimum

type Objective = Callable[[Array], tuple[float, Array]]


class Descent(NamedTuple):
    """Where a search has ended."""

    u: Array
    value: float
    gradient: Array
    success: bool


def descend(
    objective: Objective, u: Array, low: Array, high: Array, max_steps: int, tolerance: float
) -> Descent:
    """Minimise from u within bounds, in stretches: far out, sites degenerate."""
    success, before = False, math.inf
    for _ in range(_STRETCHES):
        # Never further than e^5 times at once.
        box = np.maximum(u - _REACH, low), np.minimum(u + _REACH, high)
        found = _within(objective, u, *box, max_steps)
        moved, u = np.abs(found.x - u).max(), found.x
        # A line search that finds nothing from a fresh start has met the rounding.
        idle = found.status == _NO_STEP and before - found.fun < tolerance
        success, before = bool(found.success) or idle, found.fun
        if moved < _REACH and (success or found.status != _NO_STEP):
            break
    return Descent(u, float(found.fun), np.asarray(found.jac, float), success)


def descend_carefully(objective: Objective, u: Array, max_steps: int) -> Descent:
    """Minimise from u where much of the space may have no value at all.

    The first step of L-BFGS is as long as the gradient: it is kept within a box, which shrinks
    where the line search finds nothing and grows again where the search is held up by it.
    """
    reach, value, gradient, left = _FIRST, math.inf, np.full(u.size, np.inf), max_steps
    while left > 0:
        found = _within(objective, u, u - reach, u + reach, left)
        moved, left = float(np.abs(found.x - u).max()), left - max(found.nit, 1)
        gained = math.inf if value == math.inf else value - found.fun
        u, value, gradient = found.x, float(found.fun), np.asarray(found.jac, float)
        at_bound = moved >= reach * (1.0 - 1e-9)
        if np.abs(u).max() > _FARTHEST:
            break
        if not at_bound and (found.success or (moved > 0 and gained < _GAIN)):
            return Descent(u, value, gradient, True)
        reach = min(2.0 * reach, _REACH) if moved > 0 else 0.25 * reach
        if reach < _LEAST:
            break
    return Descent(u, value, gradient, bool(np.abs(gradient).max() < _STEEP))


def _within(objective: Objective, u: Array, low: Array, high: Array, steps: int) -> Any:
    """One call of L-BFGS."""
    bounds, options = optimize.Bounds(low, high), {"maxiter": steps, "ftol": 1e-12, "gtol": 1e-6}
    return optimize.minimize(
        objective, u, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )


def ends(
    value: Callable[[Array], float],
    start: Array,
    end: Descent,
    labels: Sequence[str],
    low: Array,
    high: Array,
) -> list[str]:
    """Sentences on an end that is no minimum inside; none where all is well.

    `value` is what was minimised, without its gradient. A few coordinates are named.
    """
    norm = float(np.abs(end.gradient).max(initial=0.0))
    if np.abs(end.u - start).max(initial=0.0) < _STILL and norm > _STEEP:
        return [f"the search ended where it began, where the gradient has a norm of {norm:.2g}"]
    found = []
    for i, label in enumerate(labels):
        onward = 1.0 if end.u[i] > start[i] else -1.0
        for side in (onward, -onward):
            there = end.u.copy()
            there[i] += side
            if not low[i] <= there[i] <= high[i]:
                continue
            change = value(there) - end.value
            if abs(change) < _LEVEL:
                way = "grows" if side > 0 else "falls"
                found.append(
                    f"{label} has no best value: the function is flat as it {way} without end on "
                    f"the unconstrained scale (it is at {end.u[i]:.3g}, a unit further changes "
                    f"{abs(change):.1g} nats; the gradient has a norm of {norm:.2g})"
                )
                break
        if len(found) >= _NAMED:
            break
    return found
