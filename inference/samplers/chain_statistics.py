"""R-hat and effective sample sizes of many quantities at once, to the digits of ArviZ.

    draws (chain, draw, element)  →  one number for each element

ArviZ takes elements one after the other, which for thousands of weights costs more than sampling
them. Here ranks are sorted together, and autocovariances are summed in machine code and only up to
the lag where Geyer's sequence ends; only elements whose sequence goes on after `MOST_LAGS` need a
Fourier transform.

| Vehtari, Gelman, Simpson, Carpenter & Buerkner 2021 | code |
|---|---|
| rank-normalised split R-hat, of values and of their distance from the median | `rhat` |
| effective sample size of normal scores; of indicators of two quantiles | `ess_bulk`, `ess_tail` |
"""

from __future__ import annotations

from collections.abc import Callable
from math import log10, sqrt

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

__all__ = ["ess_bulk", "ess_tail", "rhat"]

type Array = NDArray[np.float64]

MOST_LAGS = 400
BLOCK = 1 << 22  # numbers in memory at a time
LEAST_DRAWS = 4
FAST = {"contract", "reassoc"}


def rhat(draws: Array) -> Array:
    """Rank-normalised split R-hat, the larger of bulk and tail."""
    return _by_blocks(draws, _rhat_block)


def ess_bulk(draws: Array) -> Array:
    """Effective sample size of the normal scores."""
    return _by_blocks(draws, lambda block: _sizes(_scores(_split(block))))


def ess_tail(draws: Array) -> Array:
    """Effective sample size of the 5 % and the 95 % quantile, the smaller one."""
    return _by_blocks(draws, _tail_block)


def _by_blocks(draws: Array, statistic: Callable[[Array], Array]) -> Array:
    chains, length, elements = draws.shape
    found = np.full(elements, np.nan)
    if length < LEAST_DRAWS:
        return found
    whole = np.flatnonzero(~np.isnan(draws).any(axis=(0, 1)))
    step = max(1, BLOCK // (chains * length))
    for begin in range(0, whole.size, step):
        block = whole[begin : begin + step]
        found[block] = statistic(draws[:, :, block])
    return found


def _rhat_block(draws: Array) -> Array:
    split = _split(draws)
    with np.errstate(all="ignore"):  # infinite values have no distance: NaN, which fails the check
        folded = np.abs(split - np.median(split, axis=(1, 2), keepdims=True))
        # of two values each equally often, all are as far from the median: then the bulk counts
        larger: Array = np.fmax(_rhat(_scores(split)), _rhat(_scores(folded)))
    return larger


def _tail_block(draws: Array) -> Array:
    flat = np.moveaxis(draws, 2, 0).reshape(draws.shape[2], -1)
    sizes = []
    for limit in np.quantile(flat, (0.05, 0.95), axis=1):
        sizes.append(_sizes(_split((draws <= limit).astype(np.float64))))
    return np.minimum(sizes[0], sizes[1])


def _split(draws: Array) -> Array:
    """Half chains side by side, (element, half chain, draw)."""
    half = draws.shape[1] // 2
    both = np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])
    return np.ascontiguousarray(np.moveaxis(both, 2, 0), dtype=np.float64)


def _scores(split: Array) -> Array:
    """Normal scores of the ranks over all half chains; equal values share their mean rank."""
    elements, total = len(split), split[0].size
    flat = split.reshape(elements, total)
    rank = 0.5 * np.arange(2 * total + 1)
    with np.errstate(invalid="ignore"):  # rank 0 does not occur
        table = ndtri((rank - 0.375) / (total + 0.25))  # Blom 1958
    scores: Array = _ranked(flat, np.argsort(flat, axis=1), table)
    return scores.reshape(split.shape)


def _sizes(split: Array) -> Array:
    found: Array = _ess(split, np.empty((0, 0)), MOST_LAGS)
    slow = np.flatnonzero(found < 0.0)
    if slow.size:
        found[slow] = _ess(split[slow], _covariances(split[slow]), split.shape[2])
    return found


def _covariances(split: Array) -> Array:
    """Autocovariances at every lag, mean over the half chains."""
    length = split.shape[2]
    size = next_fast_len(2 * length, real=True)
    waves = rfft(split - split.mean(axis=2, keepdims=True), size, axis=2)
    power: Array = irfft(np.mean(np.abs(waves) ** 2, axis=1) / length, size, axis=1)
    return power[:, :length]


@njit(cache=True, error_model="numpy")
def _ranked(flat, order, table):  # type: ignore[no-untyped-def]
    scores = np.empty_like(flat)
    elements, total = flat.shape
    for e in range(elements):
        first = 0
        while first < total:
            last = first
            while last + 1 < total and flat[e, order[e, last + 1]] == flat[e, order[e, first]]:
                last += 1
            for i in range(first, last + 1):
                scores[e, order[e, i]] = table[first + last + 2]  # twice the mean rank
            first = last + 1
    return scores


@njit(cache=True, error_model="numpy")
def _rhat(split):  # type: ignore[no-untyped-def]
    elements, chains, length = split.shape
    found = np.empty(elements)
    means = np.empty(chains)
    for e in range(elements):
        within = 0.0
        for c in range(chains):
            means[c] = np.mean(split[e, c])
            within += np.sum((split[e, c] - means[c]) ** 2) / (length - 1)
        within /= chains
        between = length * np.sum((means - np.mean(means)) ** 2) / (chains - 1)
        found[e] = sqrt((between / within + length - 1) / length)
    return found


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _covariance(split, lag, known):  # type: ignore[no-untyped-def]
    """Autocovariance at a lag, mean over the centred half chains; looked up where it is known."""
    if len(known):
        return known[lag]
    chains, length = split.shape
    total = 0.0
    for c in range(chains):
        for i in range(length - lag):
            total += split[c, i] * split[c, i + lag]
    return total / (length * chains)


@njit(cache=True, error_model="numpy")
def _ess(split, known, most_lags):  # type: ignore[no-untyped-def]
    """Geyer's initial monotone sequence as ArviZ has it; -1 where it is longer than `most_lags`.

    `known` has the autocovariances of every element and lag, or nothing: they are then summed.
    """
    elements, chains, length = split.shape
    found, rho = np.empty(elements), np.zeros(length)
    for e in range(elements):
        one = split[e].copy()
        if np.max(one) - np.min(one) < 1e-15:
            found[e] = one.size
            continue
        means = np.empty(chains)
        for c in range(chains):
            means[c] = np.mean(one[c])
            one[c] -= means[c]
        at = known[e] if len(known) else np.empty(0)
        within = _covariance(one, 0, at) * length / (length - 1.0)
        plus = within * (length - 1.0) / length
        if chains > 1:
            plus += np.sum((means - np.mean(means)) ** 2) / (chains - 1)
        rho[:] = 0.0
        even, odd = 1.0, 1.0 - (within - _covariance(one, 1, at)) / plus
        rho[0], rho[1] = even, odd
        t = 1
        while t < length - 3 and even + odd > 0.0 and t < most_lags:
            even = 1.0 - (within - _covariance(one, t + 1, at)) / plus
            odd = 1.0 - (within - _covariance(one, t + 2, at)) / plus
            if even + odd >= 0.0:
                rho[t + 1], rho[t + 2] = even, odd
            t += 2
        if t < length - 3 and even + odd > 0.0:
            found[e] = -1.0
            continue
        last = t - 2
        if even > 0.0:
            rho[last + 1] = even
        for i in range(1, last - 1, 2):
            if rho[i + 1] + rho[i + 2] > rho[i - 1] + rho[i]:
                rho[i + 1] = 0.5 * (rho[i - 1] + rho[i])
                rho[i + 2] = rho[i + 1]
        time = -1.0 + 2.0 * np.sum(rho[: last + 1]) + np.sum(rho[last + 1 : last + 2])
        size = chains * length
        found[e] = size / max(time, 1.0 / log10(size)) if np.isfinite(time) else np.nan
    return found
