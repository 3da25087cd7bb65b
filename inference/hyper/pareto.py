"""Pareto-smoothed importance sampling: weights whose largest are replaced by expected ones.

The M largest of S weights are fitted by a generalised Pareto distribution of shape k and scale s,

    p(x) = 1/s (1 + k x / s)^(-1/k - 1)      x: excess over the (M + 1)-th largest

and replaced by its quantiles at (i - 1/2) / M. Above k = 0.7 no practical number of draws will do.

The standard error of k is that of maximum likelihood, (1 + k) / √M for k > -1/2, shrunk as k is
by the prior at 1/2. Over seeds k-hat varies by as much (`test_pareto`); a spread over batches of
the draws, whose tails are shorter, is a third too small.

| paper | code |
|---|---|
| Vehtari, Simpson, Gelman, Yao & Gabry 2024, section 3 and appendix | `smooth` |
| Zhang & Stephens 2009, section 4: b = -k/s by its posterior mean | `_shape_and_scale` |
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ardvark.inference.sites.arrays import Array

__all__ = ["HIGH", "Smoothed", "allocate", "smooth"]

HIGH = 0.7  # k-hat above which importance sampling is not to be relied on
_EXACT = 1e-6  # log weights that vary by less are constant
_FEWEST = 5  # weights in a tail that can be fitted
_PRIOR = 10  # excesses that the prior of the shape is worth


class Smoothed(NamedTuple):
    """Log weights that sum to one, and the shape of their tail."""

    log_weight: Array
    k_hat: float  # -inf: constant weights; inf: a weight is no number; NaN: too few to tell
    error: float = math.nan  # standard error of k-hat; NaN where it is no estimate


def smooth(log_weight: Array) -> Smoothed:
    """Smooth the largest weights; -inf is a weight of zero."""
    values = np.asarray(log_weight, float)
    finite = values[np.isfinite(values)]
    if np.isnan(values).any() or np.isposinf(values).any() or finite.size == 0:
        return Smoothed(np.full(values.shape, -math.log(max(values.size, 1))), math.inf)
    if finite.size == values.size and np.ptp(values) < _EXACT:
        return Smoothed(values - logsumexp(values), -math.inf)
    values = values - finite.max()
    tail = math.ceil(min(0.2 * values.size, 3.0 * math.sqrt(values.size)))  # M
    order = np.argsort(values, kind="stable")[-tail - 1 :]
    cut, largest = values[order[0]], order[1:]
    if tail < _FEWEST or not np.isfinite(cut) or values[largest[0]] <= cut:
        return Smoothed(values - logsumexp(values), math.nan if tail < _FEWEST else -math.inf)
    excess = np.exp(values[largest]) - math.exp(cut)
    shape, scale = _shape_and_scale(excess)
    share = (np.arange(tail) + 0.5) / tail
    quantile = -np.log1p(-share) if shape == 0 else np.expm1(-shape * np.log1p(-share)) / shape
    values[largest] = np.minimum(np.log(scale * quantile + math.exp(cut)), 0.0)
    return Smoothed(values - logsumexp(values), shape, _error(shape, tail))


def _shape_and_scale(excess: Array) -> tuple[float, float]:
    """Shape k and scale s of a generalised Pareto; excess is sorted and positive."""
    n = excess.size
    grid = np.arange(1, 30 + int(math.sqrt(n)) + 1)
    quarter = excess[max(int(n / 4 + 0.5), 1) - 1]
    b = 1.0 / excess[-1] + (1.0 - np.sqrt(grid.size / (grid - 0.5))) / (
        3.0 * quarter
    )  # their (4.2)
    k = np.log1p(-np.outer(b, excess)).mean(axis=1)
    log_likelihood = n * (np.log(-b / k) - k - 1.0)  # the profile
    weight = np.exp(log_likelihood - logsumexp(log_likelihood))
    best = float(weight @ b)
    shape = float(np.log1p(-best * excess).mean())
    scale = -shape / best
    return (n * shape + _PRIOR * 0.5) / (n + _PRIOR), scale  # a weak prior at 1/2


def _error(shape: float, n: int) -> float:
    """Standard error of a shape from n excesses."""
    return (1.0 + max(shape, -0.5)) / math.sqrt(n) * n / (n + _PRIOR)


def allocate(log_weight: Array, draws: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """How often each of the weighted points is taken, by systematic resampling."""
    edges = np.cumsum(np.exp(log_weight))
    marks = (np.arange(draws) + rng.random()) / draws
    places = np.searchsorted(edges / edges[-1], marks, side="right")
    found = np.bincount(np.minimum(places, edges.size - 1), minlength=edges.size)
    return found.astype(np.intp)
