"""A missed mode: a reference marginal with two peaks, one of them nearly empty in the answer.

The density of the reference's draws (a kernel estimate with Silverman's width) is cut at its
deepest valley. Two peaks are two modes if the valley is less than VALLEY of the lower peak and each
side holds at least SHARE of the draws: noise makes shallow valleys, heavy tails light bumps. A mode
is missed where the answer has less than EMPTY of the reference's mass.
"""

from typing import NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter1d

from ardvark.inference.sites.arrays import Array

__all__ = ["MissedMode", "missed_mode", "valley"]


VALLEY = 0.5
SHARE = 0.05
EMPTY = 0.2
CELLS = 512
DISTINCT = 20  # values; fewer are no density, as those of an indicator


class MissedMode(NamedTuple):
    """Which element, where the mode is, its mass in the reference and in the answer."""

    element: int
    place: float
    reference_share: float
    share: float


def missed_mode(ours: Array, theirs: Array) -> MissedMode | None:
    """Find the heaviest mode of the reference that an answer misses; draws (chain, draw, element).

    Parameters
    ----------
    ours, theirs
        Draws of the answer and of the reference, the same elements in the same order.
    """
    found = []
    for k in range(theirs.shape[2]):
        reference, answer = theirs[:, :, k].ravel(), ours[:, :, k].ravel()
        cut = valley(reference)
        if cut is None or not np.isfinite(answer).all():
            continue
        above, above_here = reference > cut, answer > cut
        for side, side_here in ((above, above_here), (~above, ~above_here)):
            held, share = float(side.mean()), float(side_here.mean())
            if share < EMPTY * held:
                found.append(MissedMode(k, float(reference[side].mean()), held, share))
    return max(found, key=lambda mode: mode.reference_share, default=None)


def valley(draws: Array) -> float | None:
    """Where the density of draws (n,) has a valley between two modes; None if it has one mode."""
    if not np.isfinite(draws).all() or np.unique(draws).size < DISTINCT:
        return None
    low, high = np.quantile(draws, (0.001, 0.999))
    quarter, three = np.quantile(draws, (0.25, 0.75))
    spread = min(draws.std(), (three - quarter) / 1.34) or draws.std()
    if not high > low or spread == 0:
        return None
    width = 0.9 * spread * draws.size**-0.2
    counts, edges = np.histogram(draws, CELLS, (low - 3 * width, high + 3 * width))
    density = gaussian_filter1d(counts.astype(float), width / (edges[1] - edges[0]))
    left = np.maximum.accumulate(density)
    right = np.maximum.accumulate(density[::-1])[::-1]
    mass = np.cumsum(counts) / draws.size
    inside = (mass >= SHARE) & (mass <= 1 - SHARE)
    depth = np.full(CELLS, np.inf)
    depth[inside] = density[inside] / np.minimum(left, right)[inside]
    deepest = int(np.argmin(depth))
    return float(edges[deepest + 1]) if depth[deepest] < VALLEY else None
