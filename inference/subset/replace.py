"""A probit's member is replaced by an input like it, its latent utilities integrated out.

Given the utilities z of a nearly separable problem, the member with a large weight can hardly be
replaced, even by a column that says the same: z has been drawn around it. This move does not hold
z. A random included input i leaves; the one that replaces it is drawn by likeness to it,

    c(j | i) = c_ij / Σ_l c_il,  l outside,       c_ij = corr(x_i, x_j)² + LEAST

and all weights come from the Student-t of the target subset's Laplace fit (`laplace_fit.py`) at
the present precisions. The size stays, so the prior of the subset is in no ratio:

    log r = log p(t, w' | I') - log p(t, w | I) + log q(w | I) - log q(w' | I')
            + log c(i | j) - log c(j | i)

The utilities are drawn anew from the weights right after it.
"""

from math import exp, log
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.running.machine_code import njit
from ardvark.inference.sites.arrays import Array, Index
from ardvark.inference.subset.laplace_fit import (
    FIXED,
    Fit,
    Slab,
    draw_weights,
    laplace,
    log_joint,
    log_proposal,
)

__all__ = ["Room", "likeness", "log_choice", "replace_member"]

LEAST = 0.02
ROUGH = 1e-2  # squared length of the last step of a fit: any function of I and alpha proposes


class Room(NamedTuple):
    """Arrays that a replacement writes in."""

    fit: Fit
    members: Index
    weights: Array


def likeness(A: Any) -> Any:
    """Give c for all pairs of columns of A, the first of which is the constant."""
    near = np.zeros((A.shape[1], A.shape[1]))
    centred = A[:, 1:] - A[:, 1:].mean(axis=0)
    centred /= np.maximum(np.sqrt((centred**2).sum(axis=0)), 1e-300)
    near[1:, 1:] = (centred.T @ centred) ** 2 + LEAST
    return near


@njit(cache=True, nogil=True, error_model="numpy")
def log_choice(i, j, place, near):  # type: ignore[no-untyped-def]
    """Log c(j | i) where i is about to leave: l runs over the excluded inputs."""
    total = 0.0
    for m in range(1, near.shape[0]):
        if place[m] < 0:
            total += near[i, m]
    return log(near[i, j] / total)


@njit(cache=True, nogil=True, error_model="numpy")
def replace_member(k, f, weights, data, alpha, near, room, rng):  # type: ignore[no-untyped-def]
    """Try it once; members, places and weights are changed if it is accepted."""
    members, place, fit, slab = f.members, f.place, room.fit, Slab(FIXED, 1.0, 1.0)
    other, trial = room.members, room.weights
    at = 1 + int(rng.random() * (k - 1))
    i = members[at]
    total = 0.0
    for m in range(1, near.shape[0]):
        if place[m] < 0:
            total += near[i, m]
    left, j = rng.random() * total, -1
    for m in range(1, near.shape[0]):
        if place[m] < 0:
            j = m
            left -= near[i, m]
            if left < 0.0:
                break
    laplace(k, members, data, alpha, slab, fit, ROUGH)
    log_r = log_proposal(k, weights, fit.mode, fit.L) - log_choice(i, j, place, near)
    log_r -= log_joint(k, weights, members, data, alpha, slab)
    other[:k] = members[:k]
    other[at] = j
    laplace(k, other, data, alpha, slab, fit, ROUGH)
    draw_weights(k, fit.mode, fit.L, fit.white, trial, rng)
    log_r += log_joint(k, trial, other, data, alpha, slab)
    log_r -= log_proposal(k, trial, fit.mode, fit.L)
    place[i], place[j] = -1, at
    log_r += log_choice(j, i, place, near)
    if log_r >= 0.0 or rng.random() < exp(log_r):
        members[at] = j
        weights[:k] = trial[:k]
        return True
    place[i], place[j] = at, -1
    return False
