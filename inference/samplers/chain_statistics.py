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
| of the values themselves; of shares of draws | `ess_mean`, `ess_of_labels` |
| Monte Carlo errors of a mean, and of an sd by the fourth moment | `mcse_mean`, `mcse_sd` |
"""

from __future__ import annotations

from collections.abc import Callable
from math import log10, sqrt

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from ardvark.inference.running.machine_code import njit
from ardvark.inference.sites.arrays import Array, Index

__all__ = [
    "LEAST_DRAWS",
    "ess_bulk",
    "ess_mean",
    "ess_of_labels",
    "ess_tail",
    "mcse_mean",
    "mcse_sd",
    "rhat",
]

MOST_LAGS = 402
FIRST_LAGS = 8  # most sequences end there; then twice as many, and so on
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


def ess_mean(draws: Array) -> Array:
    """Effective sample size of the mean."""
    return _by_blocks(draws, lambda block: _sizes(_split(block)))


def mcse_mean(draws: Array) -> Array:
    """Monte Carlo error of the mean."""
    return np.asarray(draws.std(axis=(0, 1), ddof=1) / np.sqrt(ess_mean(draws)))


def mcse_sd(draws: Array) -> Array:
    """Monte Carlo error of the sd, from that of the variance."""
    squares = np.square(draws - draws.mean(axis=(0, 1)))
    variance = squares.mean(axis=(0, 1))
    error = (np.square(squares).mean(axis=(0, 1)) - variance**2) / ess_mean(squares)
    return np.asarray(np.sqrt(error / variance / 4))


def ess_of_labels(labels: Index, count: int) -> Array:
    """Effective sample size of the share of each label 0 ... count-1 in (chain, draw) labels.

    That is `ess_mean` of the indicators `labels == k`, at the cost of one indicator and not of all.
    """
    chains, length = labels.shape
    if length < LEAST_DRAWS:
        return np.full(count, np.nan)
    half = length // 2
    split = np.concatenate([labels[:, :half], labels[:, length - half :]]).ravel()
    ends = np.concatenate([[0], np.cumsum(np.bincount(split, minlength=count))])
    found: Array = _ess_visits(np.argsort(split, kind="stable"), ends, 2 * chains, half, MOST_LAGS)
    for k in np.flatnonzero(found < 0.0):  # few: a label that is so persistent is a frequent one
        found[k] = _sizes((split == k).astype(np.float64).reshape(1, 2 * chains, half))[0]
    return found


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
    found: Array = _ess(split, MOST_LAGS)
    slow = np.flatnonzero(found < 0.0)
    if slow.size:
        found[slow] = _ess_known(split[slow].mean(axis=2), _covariances(split[slow]))
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
def _covariance(centred, lag):  # type: ignore[no-untyped-def]
    """Autocovariance at a lag, mean over the half chains."""
    chains, length = centred.shape
    total = 0.0
    for c in range(chains):
        for i in range(length - lag):
            total += centred[c, i] * centred[c, i + lag]
    return total / (length * chains)


@njit(cache=True, error_model="numpy")
def _visit_covariance(at, means, length, lag):  # type: ignore[no-untyped-def]
    """Autocovariance of an indicator that is 1 at the places `at` of all half chains in a row."""
    total, j = 0.0, 0
    for i in range(len(at)):
        chain, place = divmod(at[i], length)
        while j < len(at) and at[j] < at[i] + lag:
            j += 1
        if place + lag < length:
            total -= means[chain]
            if j < len(at) and at[j] == at[i] + lag:
                total += 1.0
        if place >= lag:
            total -= means[chain]
    return (total + (length - lag) * np.sum(means**2)) / (length * len(means))


@njit(cache=True, error_model="numpy")
def _ess(split, most_lags):  # type: ignore[no-untyped-def]
    """Effective size of every element; -1 where Geyer's sequence is longer than `most_lags`."""
    elements, chains, length = split.shape
    found, covariance = np.empty(elements), np.empty(min(length, most_lags))
    means = np.empty(chains)
    for e in range(elements):
        one = split[e].copy()
        if np.max(one) - np.min(one) < 1e-15:
            found[e] = one.size
            continue
        for c in range(chains):
            means[c] = np.mean(one[c])
            one[c] -= means[c]
        found[e], known = -1.0, 0
        while found[e] < 0.0 and known < len(covariance):
            more = min(max(FIRST_LAGS, 2 * known), len(covariance))
            for lag in range(known, more):
                covariance[lag] = _covariance(one, lag)
            known = more
            found[e] = _geyer(covariance[:known], means, length)
    return found


@njit(cache=True, error_model="numpy")
def _ess_visits(at, ends, chains, length, most_lags):  # type: ignore[no-untyped-def]
    """As `_ess`, of indicators: that of label k is 1 at the places `at[ends[k] : ends[k + 1]]`."""
    found, covariance = np.empty(len(ends) - 1), np.empty(min(length, most_lags))
    for k in range(len(found)):
        one = at[ends[k] : ends[k + 1]]
        if len(one) == 0 or len(one) == chains * length:
            found[k] = chains * length
            continue
        means = np.zeros(chains)
        for i in range(len(one)):
            means[one[i] // length] += 1.0 / length
        found[k], known = -1.0, 0
        while found[k] < 0.0 and known < len(covariance):
            more = min(max(FIRST_LAGS, 2 * known), len(covariance))
            for lag in range(known, more):
                covariance[lag] = _visit_covariance(one, means, length, lag)
            known = more
            found[k] = _geyer(covariance[:known], means, length)
    return found


@njit(cache=True, error_model="numpy")
def _ess_known(means, covariances):  # type: ignore[no-untyped-def]
    found = np.empty(len(means))
    for e in range(len(means)):
        found[e] = _geyer(covariances[e], means[e], covariances.shape[1])
    return found


@njit(cache=True, error_model="numpy")
def _geyer(covariance, means, length):  # type: ignore[no-untyped-def]
    """Geyer's initial monotone sequence as ArviZ has it; -1 where it needs more lags than given."""
    chains = len(means)
    within = covariance[0] * length / (length - 1.0)
    plus = within * (length - 1.0) / length
    if chains > 1:
        plus += np.sum((means - np.mean(means)) ** 2) / (chains - 1)
    rho = np.zeros(len(covariance) + 1)
    even, odd = 1.0, 1.0 - (within - covariance[1]) / plus
    rho[0], rho[1] = even, odd
    t = 1
    while t < length - 3 and even + odd > 0.0 and t + 2 < len(covariance):
        even = 1.0 - (within - covariance[t + 1]) / plus
        odd = 1.0 - (within - covariance[t + 2]) / plus
        if even + odd >= 0.0:
            rho[t + 1], rho[t + 2] = even, odd
        t += 2
    if t < length - 3 and even + odd > 0.0:
        return -1.0
    last = t - 2
    if even > 0.0:
        rho[last + 1] = even
    for i in range(1, last - 1, 2):
        if rho[i + 1] + rho[i + 2] > rho[i - 1] + rho[i]:
            rho[i + 1] = 0.5 * (rho[i - 1] + rho[i])
            rho[i + 2] = rho[i + 1]
    time = -1.0 + 2.0 * np.sum(rho[: last + 1]) + np.sum(rho[last + 1 : last + 2])
    size = chains * length
    return size / max(time, 1.0 / log10(size)) if np.isfinite(time) else np.nan
