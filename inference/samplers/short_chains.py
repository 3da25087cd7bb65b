"""Many short Markov chains at a time, each from its own start: elliptical slices of any density.

    f ~ N(m, S) L(f),   L(f) = p*(f) / N(f; m, S)

Any Gaussian will do for the ellipse (Nishihara, Murray & Adams 2014): the chains leave p alone
whatever m and S are; those of an approximation only make the steps long. S is widened by WIDER, for
the tails of the ellipse must not be the lighter ones. The chains advance together: one call of the
density for all of them.
"""

from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

from ardvark.inference.sites.arrays import Array

__all__ = ["short_chains"]

WIDER = 1.3  # of the sds


def short_chains(
    log_density: Callable[[Array], Array],
    starts: Array,
    steps: int,
    rng: np.random.Generator,
    *,
    mean: Array,
    covariance: Array,
) -> Array:
    """Advance chains from `starts` (n, d) by `steps`; a start without density stays where it is."""
    factor = WIDER * np.linalg.cholesky(np.atleast_2d(covariance))

    def log_rest(x: Array) -> Array:
        z = solve_triangular(factor, (x - mean).T, lower=True)
        value = log_density(x) + 0.5 * np.square(z).sum(axis=0)
        return np.where(np.isnan(value), -np.inf, value)

    x = starts.copy()
    height = log_rest(x)
    for _ in range(steps):
        across = rng.standard_normal(x.shape) @ factor.T
        x, height = _step(log_rest, x, mean, across, height, rng)
    return x


def _step(
    log_rest: Callable[[Array], Array],
    x: Array,
    mean: Array,
    across: Array,
    height: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """One new place on the ellipse of each chain."""
    n = len(x)
    threshold = height + np.log(rng.random(n))
    angle = 2.0 * np.pi * rng.random(n)
    low, high = angle - 2.0 * np.pi, angle.copy()
    new, level = x.copy(), height.copy()
    left = np.flatnonzero(np.isfinite(threshold))
    while left.size:
        cosine, sine = np.cos(angle[left])[:, None], np.sin(angle[left])[:, None]
        tried = mean + cosine * (x[left] - mean) + sine * across[left]
        value = log_rest(tried)
        good = value > threshold[left]
        new[left[good]], level[left[good]] = tried[good], value[good]
        left = left[~good]
        below = angle[left] < 0  # shrink to the side of the rejected angle
        low[left[below]] = angle[left[below]]
        high[left[~below]] = angle[left[~below]]
        angle[left] = low[left] + (high - low)[left] * rng.random(left.size)
    return new, level
