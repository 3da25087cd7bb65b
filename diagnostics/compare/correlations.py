"""Correlations of an answer and of its reference: the largest difference, and what noise gives."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ardvark.diagnostics.reading import constant_columns

__all__ = ["CorrelationError", "correlation_error", "correlation_matrix"]

type Array = NDArray[np.float64]

MOST = 1000  # weights; the correlations of more are not looked at


class CorrelationError(NamedTuple):
    """Largest |r - r*|, the pair, both values, and the largest difference of two halves."""

    error: float
    pair: tuple[str, str] | None
    ours: float
    theirs: float
    null: float


def correlation_error(
    names: Sequence[str], ours: Array, theirs: Array, halves: tuple[Array, Array]
) -> CorrelationError:
    """Compare the correlations of draws (chain, draw, element), and of two halves of the reference.

    Elements that stand still in one of the two have no correlation and are left out.
    """
    usable = ~(constant_columns(ours) | constant_columns(theirs))
    usable &= np.isfinite(ours).all(axis=(0, 1)) & np.isfinite(theirs).all(axis=(0, 1))
    for half in halves:
        usable &= ~constant_columns(half)
    at = np.flatnonzero(usable)[:MOST]
    if at.size < 2:
        return CorrelationError(float("nan"), None, float("nan"), float("nan"), float("nan"))
    r, reference = correlation_matrix(ours[..., at]), correlation_matrix(theirs[..., at])
    null = np.abs(np.subtract(*(correlation_matrix(half[..., at]) for half in halves)))
    difference = np.abs(np.triu(r - reference, 1))
    i, j = np.unravel_index(int(difference.argmax()), difference.shape)
    pair = names[at[i]], names[at[j]]
    return CorrelationError(
        float(difference[i, j]), pair, float(r[i, j]), float(reference[i, j]), float(null.max())
    )


def correlation_matrix(draws: Array) -> Array:
    """Correlations of draws (chain, draw, element)."""
    return np.atleast_2d(np.corrcoef(draws.reshape(-1, draws.shape[2]), rowvar=False))
