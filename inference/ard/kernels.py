"""The best precision of every weight and what it gains, in machine code: most of them gain nothing.

L(alpha) = (u² / (alpha + r) - log(1 + r / alpha)) / 2      the weight in, against out
alpha*   = r² / (u² - r) if u² > r, else inf                Qi04 (15), (16)
"""

import math

import numpy as np

from ardvark.inference.running.machine_code import njit
from ardvark.inference.sites.arrays import Array, Mask

__all__ = ["best_precisions"]


@njit(cache=True)
def best_precisions(
    precision: Array, free: Mask, r: Array, u: Array, least: Array, largest: Array
) -> tuple[Array, Array]:
    """Best precision of each weight, the others fixed, and its gain; weights not free: -inf.

    Where r <= 0 (possible only for sites that are not log-concave) the fixed-site evidence has no
    maximum: such a weight is left as it is.
    """
    size = precision.size
    best, gains = np.full(size, np.inf), np.full(size, -np.inf)
    for j in range(size):
        if not free[j] or not r[j] > 0.0:
            continue
        gain, relevance = 0.0, u[j] * u[j] - r[j]
        if relevance > 0.0:
            alpha = max(r[j] * (r[j] / relevance), least[j])  # Qi04 (15); r² alone may overflow
            if alpha <= largest[j]:
                best[j] = alpha
                gain = 0.5 * (u[j] * u[j] / (alpha + r[j]) - math.log1p(r[j] / alpha))
        if precision[j] < np.inf:
            now = precision[j]
            gain -= 0.5 * (u[j] * u[j] / (now + r[j]) - math.log1p(r[j] / now))
        gains[j] = gain
    return best, gains
