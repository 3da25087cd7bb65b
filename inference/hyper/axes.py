"""The mode of a density of φ, and coordinates z in which it is nearly a standard normal.

    φ = mode + V (s ∘ z),   V = H^(-1/2),   H = minus the Hessian at the mode

V is the symmetric root, of which each axis is as near to its own coordinate of φ as can be: the
skewness of a density of scales is along these. s_j, one on each side of zero, is how far the log
density reaches along axis j: a nat lower at z_j = sqrt 2, as a Gaussian is (Martins,
Simpson, Lindgren & Rue 2013, section 3.2, where V has eigenvectors).

In: `objective`, minus the log density with its gradient, and `value`, the log density alone; either
gives what counts as nothing (`REJECTED`, -inf) where there is none.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ardvark.inference.hyper.descend import Descent, Objective, descend_carefully
from ardvark.inference.sites.approximation import REJECTED
from ardvark.inference.sites.arrays import Array

__all__ = ["Axes", "Mode", "axes_at", "find_mode"]

type Value = Callable[[Array], float]

_STARTS = 30  # tried before it is said that there is none
_STEP = 1e-2  # of the differences, on the unconstrained scale
_LONGEST = 5.0  # sd on the unconstrained scale beyond which a density is flat
_SHORTEST = 1e-4
_LOOKS = 5  # at each side of an axis
_FACTOR = 2.0  # by which a length changes at most from look to look
_MAX_STEPS = 500


class Mode(NamedTuple):
    """Where the density is highest, from where the search began."""

    start: Array
    end: Descent


@dataclass(frozen=True, slots=True)
class Axes:
    """Standardised coordinates around a mode."""

    mode: Array
    vectors: Array  # V (d, d), one axis in each column
    below: Array  # (d,) lengths for z < 0
    above: Array  # (d,) lengths for z >= 0

    def lengths(self, z: Array) -> Array:
        """Lengths on the side where each coordinate is."""
        return np.where(z < 0, self.below, self.above)

    def phi(self, z: Array) -> Array:
        """Points (..., d) on the unconstrained scale."""
        return np.asarray(self.mode + (z * self.lengths(z)) @ self.vectors.T)

    def log_volume(self, z: Array) -> Array:
        """Log |dφ/dz|."""
        constant = np.linalg.slogdet(self.vectors)[1]
        return np.asarray(constant + np.log(self.lengths(z)).sum(axis=-1))


def find_mode(objective: Objective, start: Array, rng: np.random.Generator) -> Mode | None:
    """Search from `start`, and from around it where that fails; None: nothing is finite."""
    found: list[Mode] = []
    for trial in range(_STARTS):
        at = start if trial == 0 else start + rng.standard_normal(start.size)
        if not objective(at)[0] < REJECTED:
            continue
        end = descend_carefully(objective, at, _MAX_STEPS)
        found.append(Mode(at, end))
        if end.success or len(found) == 3:
            break
    return min(found, key=lambda mode: mode.end.value) if found else None


def axes_at(mode: Array, objective: Objective, value: Value) -> Axes:
    """Axes by the Hessian, their lengths by how far the density reaches on each side."""
    d = mode.size
    curvature = np.zeros((d, d))
    for j, step in enumerate(_STEP * np.eye(d)):
        up, down = objective(mode + step), objective(mode - step)
        if max(up[0], down[0]) < REJECTED:
            curvature[:, j] = (up[1] - down[1]) / (2.0 * _STEP)
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    sd = 1.0 / np.sqrt(np.clip(values, _LONGEST**-2, _SHORTEST**-2))
    root = (vectors * sd) @ vectors.T
    top = value(mode)
    sides = [[_length(value, top, mode, sign * axis) for axis in root.T] for sign in (-1.0, 1.0)]
    return Axes(mode, root, np.array(sides[0]), np.array(sides[1]))


def _length(value: Value, top: float, mode: Array, axis: Array) -> float:
    """How many times along the axis the density has fallen by about a nat, over sqrt 2."""
    length = 1.0
    for _ in range(_LOOKS):
        drop = top - value(mode + math.sqrt(2.0) * length * axis)
        factor = 1.0 / math.sqrt(drop) if drop > 0 else _FACTOR
        length *= float(np.clip(factor, 1.0 / _FACTOR, _FACTOR))
        if 0.5 <= drop <= 2.0:
            break
    return length
