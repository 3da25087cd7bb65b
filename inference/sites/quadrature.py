"""Moments of a site times a Gaussian by adaptive quadrature, whatever the site is.

A bracket around the mass is found first, wide or narrow, near the Gaussian or far from it; then
Gauss-Kronrod panels (10 and 21 points) are halved where the two rules differ, all rows together.
Improper products (infinite or no mass) and those with several modes are reported as such.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from ardvark.inference.sites.arrays import Array, Mask

__all__ = ["Tilted", "is_multimodal", "quadrature_tilted", "tilted_nodes"]


QUADRATURE_TOLERANCE = 1e-12  # of each panel, relative to the whole
PANELS = 6  # of 21 nodes: enough for a Gaussian at once


class Tilted(NamedTuple):
    """Log mass, mean and variance of site * N(eta; mean, variance)."""

    log_z: Array
    mean: Array
    variance: Array


class _Nodes(NamedTuple):
    """Nodes of each row: eta = mean + sd x, and each node's share of the tilted mass."""

    x: Array  # (Q, ..., N)
    share: Array  # sums to one over Q; NaN where there is no proper tilted distribution
    log_z: Array  # (..., N)


def quadrature_tilted(log_site: Callable[[Array], Array], mean: Array, variance: Array) -> Tilted:
    """Moments of site * N(mean, variance) by adaptive quadrature, about 1e-12 where it is smooth.

    A site that is zero everywhere gives log_z = -inf, one that outgrows the Gaussian +inf, and one
    that is not a number NaN; the moments are NaN then.
    """
    mean, variance = np.broadcast_arrays(np.asarray(mean, float), np.asarray(variance, float))
    x, share, log_z = _nodes(log_site, mean, variance)
    centre = np.sum(share * x, axis=0)
    spread = np.sum(share * (x - centre) ** 2, axis=0)
    return Tilted(log_z, mean + np.sqrt(variance) * centre, variance * spread)


def tilted_nodes(
    log_site: Callable[[Array], Array], mean: Array, variance: Array
) -> tuple[Array, Array]:
    """Nodes eta (Q, N) and weights (Q, N), one in sum over Q, of site * N(mean, variance)."""
    x, share, _ = _nodes(log_site, mean, variance)
    return mean + np.sqrt(variance) * x, share


def is_multimodal(log_site: Callable[[Array], Array], mean: Array, variance: Array) -> Mask:
    """Rows (N,) whose tilted density has two clear peaks.

    Two peaks: a dip of 0.01 nats between them, and neither is more than 20 nats below the other.
    """
    log_density = _log_density(log_site, mean, variance)
    low, high, _ = _bracket(log_density, mean.shape)
    height = log_density(low + (high - low) * np.linspace(0, 1, 301)[:, None])
    left = np.maximum.accumulate(height, axis=0)
    right = np.maximum.accumulate(height[::-1], axis=0)[::-1]
    shore = np.minimum(left, right)
    with np.errstate(invalid="ignore"):
        return np.any((shore - height > 0.01) & (shore > height.max(axis=0) - 20.0), axis=0)


def _log_density(
    log_site: Callable[[Array], Array], mean: Array, variance: Array
) -> Callable[[Array], Array]:
    """Log of site times Gaussian, but for its constant, at x = (eta - mean) / sd (Q, ..., N)."""
    sd = np.sqrt(variance)

    def log_density(x: Array) -> Array:
        eta = mean + sd * x
        with np.errstate(all="ignore"):
            height = log_site(eta.reshape(-1, mean.shape[-1])).reshape(eta.shape)
        return np.asarray(height - 0.5 * x**2)

    return log_density


def _bracket(
    log_density: Callable[[Array], Array], shape: tuple[int, ...]
) -> tuple[Array, Array, Array]:
    """Ends of where it is above e^-45 of its top, and the top: widen, or zoom, until they stay.

    A top of +inf says that there is no end to widening, NaN that the site is no number.
    """
    grid = np.linspace(0.0, 1.0, 25).reshape((-1,) + (1,) * len(shape))
    low, high = np.full(shape, -12.0), np.full(shape, 12.0)
    for _ in range(60):
        height = log_density(low + (high - low) * grid)
        top = height.max(axis=0)  # NaN if any is
        with np.errstate(invalid="ignore"):
            kept = height >= top - 45.0
        first = np.argmax(kept, axis=0)
        last = 24 - np.argmax(kept[::-1], axis=0)
        lost = ~np.isfinite(top)
        step = (high - low) / 24
        widened = (first == 0) | (last == 24)
        below = np.where(first == 0, low - 24 * step, low + (first - 1) * step)
        above = np.where(last == 24, high + 24 * step, low + (last + 1) * step)
        below, above = (
            np.where(last == 24, np.minimum(below, low), below),
            np.where(first == 0, np.maximum(above, high), above),
        )
        stays = lost | (~widened & (above - below > 0.5 * (high - low)))
        low, high = np.where(lost, low, below), np.where(lost, high, above)
        if stays.all():
            return low, high, top
    return low, high, np.where(stays, top, np.inf)


def _or_one(value: Array) -> Array:
    return np.where(value > 0, value, 1.0)


def _nodes(log_site: Callable[[Array], Array], mean: Array, variance: Array) -> _Nodes:
    """Gauss-Kronrod panels, halved where the two rules differ, all rows together in each round."""
    log_density = _log_density(log_site, mean, variance)
    low, high, top = _bracket(log_density, mean.shape)
    lost, found = ~np.isfinite(top), top
    top = np.where(lost, 0.0, top)
    points, kronrod, gauss = (part.reshape((-1,) + (1,) * (low.ndim + 1)) for part in _kronrod())
    edges = low + (high - low) * np.linspace(0, 1, PANELS + 1).reshape((-1,) + (1,) * low.ndim)
    begin, end = edges[:-1], edges[1:]
    live = np.ones(begin.shape, bool)  # panels of this round; rows have different numbers of them
    nodes, masses = [], []
    safe = centre = spread = np.ones(low.shape)  # mass, mean and variance, from the first round
    for depth in range(48):
        half = 0.5 * (end - begin)
        x = begin + half * (1.0 + points)  # (21, panels, ..., N)
        height = log_density(x.reshape(-1, *low.shape)).reshape(x.shape)
        with np.errstate(invalid="ignore", over="ignore"):
            density = np.where(live & ~lost, np.exp(height - top), 0.0) * half
        mass = kronrod * density
        if depth == 0:
            safe = _or_one(mass.sum(axis=(0, 1)))
            centre = (mass * x).sum(axis=(0, 1)) / safe
            spread = _or_one((mass * (x - centre) ** 2).sum(axis=(0, 1)) / safe)
        weighted = (kronrod - gauss) * density * (1.0 + (x - centre) ** 2 / spread)
        error = np.abs(weighted.sum(axis=0)) / safe
        if depth < 2:  # the better rule is better than this, unless there is a kink
            error = np.minimum(error, (200.0 * error) ** 1.5)
        rough = live & (error > QUADRATURE_TOLERANCE)
        most = int(rough.sum(axis=0).max(initial=0))
        if most > 4 * PANELS:  # noise in the site itself, which no halving mends
            rough, most = np.zeros_like(rough), 0
        nodes.append(x.reshape(-1, *low.shape))
        masses.append(np.where(rough, 0.0, mass).reshape(-1, *low.shape))
        if most == 0:
            break
        order = np.argsort(~rough, axis=0, kind="stable")[:most]
        begin, end = (np.take_along_axis(side, order, axis=0) for side in (begin, end))
        live = np.tile(np.take_along_axis(rough, order, axis=0), (2,) + (1,) * low.ndim)
        middle = 0.5 * (begin + end)
        begin, end = np.concatenate([begin, middle]), np.concatenate([middle, end])
    x, mass = np.concatenate(nodes), np.concatenate(masses)
    total = mass.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_z = np.log(total) + top - 0.5 * np.log(2 * np.pi)
        return _Nodes(x, mass / total, np.where(lost, found, log_z))


@cache
def _kronrod() -> tuple[Array, Array, Array]:
    """Points of the 21-point Kronrod rule on [-1, 1], its weights, and those of 10-point Gauss."""
    half = np.array([
        [0.995657163025808080735527280689003, 0.011694638867371874278064396062192],
        [0.973906528517171720077964012084452, 0.032558162307964727478818972459390],
        [0.930157491355708226001207180059508, 0.054755896574351996031381300244580],
        [0.865063366688984510732096688423493, 0.075039674810919952767043140916190],
        [0.780817726586416897063717578345042, 0.093125454583697605535065465083366],
        [0.679409568299024406234327365114874, 0.109387158802297641899210590325805],
        [0.562757134668604683339000099272694, 0.123491976262065851077958109585166],
        [0.433395394129247190799265943165784, 0.134709217311473325928054001771707],
        [0.294392862701460198131126603103866, 0.142775938577060080797094273138717],
        [0.148874338981631210884826001129720, 0.147739104901338491374841515972068],
        [0.0, 0.149445554002916905664936468389821],
    ])  # fmt: skip
    points = np.concatenate([-half[:, 0], half[-2::-1, 0]])
    kronrod = np.concatenate([half[:, 1], half[-2::-1, 1]])
    gauss = np.zeros(21)
    gauss[1::2] = np.polynomial.legendre.leggauss(10)[1]
    return points, kronrod, gauss
