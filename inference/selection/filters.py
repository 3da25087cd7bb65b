"""Filters: how well each feature tells two classes apart, without any model.

| paper                   | code           |                                                   |
|-------------------------|----------------|---------------------------------------------------|
| Chu06 (20), Golub 1999   | `fisher_score` | blind to what only several features tell together |
| Kira & Rendell 1992      | `relief`       | sees neighbours in all features, noise ones too   |

RELIEF here goes through every row instead of a random sample of them, so it has no seed. The
difference in a feature is in units of its range, and squared as in the paper.
"""

import numpy as np
from scipy.spatial.distance import cdist

from ardvark.inference.sites.arrays import Array

__all__ = ["fisher_score", "relief"]

BLOCK = 256  # rows whose distances are held at a time


def fisher_score(X: Array, sign: Array) -> Array:
    """Distance of the class means over the sum of the class sds; 0 for a constant column."""
    first, second = X[sign < 0], X[sign > 0]
    apart = np.abs(second.mean(axis=0) - first.mean(axis=0))
    spread = second.std(axis=0) + first.std(axis=0)
    with np.errstate(divide="ignore"):
        told = np.where(apart > 0, np.inf, 0.0)  # no spread: classes apart for sure, or constant
        return np.divide(apart, spread, out=told, where=spread > 0)  # Chu06 (20)


def relief(X: Array, sign: Array) -> Array:
    """Mean squared difference to the nearest row of the other class, minus that of the own."""
    width = np.ptp(X, axis=0)
    scaled = X / np.where(width > 0, width, 1.0)
    score = np.zeros(X.shape[1])
    for begin in range(0, len(X), BLOCK):
        rows = np.arange(begin, min(begin + BLOCK, len(X)))
        distance = cdist(scaled[rows], scaled, "sqeuclidean")
        distance[np.arange(len(rows)), rows] = np.inf
        same = sign[rows, None] == sign
        hit = np.argmin(np.where(same, distance, np.inf), axis=1)
        miss = np.argmin(np.where(same, np.inf, distance), axis=1)
        score += np.square(scaled[rows] - scaled[miss]).sum(axis=0)
        score -= np.square(scaled[rows] - scaled[hit]).sum(axis=0)
    return score / len(X)
