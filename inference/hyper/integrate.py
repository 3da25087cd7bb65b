"""Integrate a density of a few hyperparameters: weighted points, and its integral.

The density f(φ) is dear (an approximation of all weights at each φ), smooth, and nearly Gaussian in
the coordinates z of `axes.py`. Points come from a proposal q that follows it, and have the weights

    w_i = f(φ_i) / q(φ_i),        log ∫ f dφ ≈ log mean w_i

so that what a proposal misses in shape, the weights mend, and their tail (k-hat) says how well.

| dimensions | proposal | code |
|---|---|---|
| 1, 2 | f itself, interpolated on a grid that reaches 9 nats below the mode | `_by_grid` |
| 3 and more | mixtures of t's, each fitted to the weighted points of all before | `_by_rounds` |

The second is population Monte Carlo (Cappé, Guillin, Marin & Robert 2004): rounds of points, each
from a proposal made of the rounds before. Points are scrambled Sobol' ones.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator, RectBivariateSpline
from scipy.linalg import solve_triangular
from scipy.special import chdtri, gammaln, logsumexp, ndtri
from scipy.stats import qmc

from ardvark.inference.hyper.axes import Axes, Value
from ardvark.inference.hyper.pareto import allocate, smooth
from ardvark.inference.running.progress import Tick
from ardvark.inference.sites.arrays import Array

__all__ = ["Integral", "integrate"]

_DEPTH = 9.0  # nats below the mode at which a grid ends
_FARTHEST = 16  # steps along an axis
_STEP = {1: 0.5, 2: 1.0}  # of a grid, in z, by dimension
_CELLS = {1: 4000, 2: 200}  # of the interpolated density along an axis
_EDGE = 1e-3  # mass at the edge of a grid that makes it grow
_GROWN = 6  # times at most
_BOTTOM = 40.0  # nats: lower is as good as nothing
_FLATTENED = 0.85  # power of the density from which points are drawn: its tails are met more often
_FREEDOM = 5.0  # of the Student t
_WIDER = 1.5  # than the points it is fitted to
_ROUNDS = 8
_ENOUGH = 1.0  # effective points, as a share of those asked for
_MOVED = 0.05  # of a mean in sds, or of a log sd, from round to round: less is settled
_KERNELS = 200  # draws of the points around which narrow components stand


class Integral(NamedTuple):
    """Weighted points, and what they say of themselves."""

    phi: Array  # (K, d)
    log_density: Array  # (K,) log f
    log_weight: Array  # (K,) normalised
    log_integral: float
    error: float  # of the log integral
    k_hat: float  # of the weights
    effective: float  # size of the weighted sample
    edge: float  # mass at the edge of a grid; NaN without one


def integrate(
    value: Value, axes: Axes, *, points: int, rng: np.random.Generator, tick: Tick
) -> Integral:
    """Integrate exp(value) with about so many points."""
    size = 2 ** max(3, math.ceil(math.log2(points)))
    if axes.mode.size <= 2:
        return _by_grid(value, axes, size, rng, tick)
    return _by_rounds(value, axes, size, rng, tick)


def _weighted(
    phi: Array, log_density: Array, log_q: Array, edge: float, other: float | None = None
) -> Integral:
    """Weigh the points; `other` is the integral by another rule."""
    log_ratio = log_density - log_q
    total = float(logsumexp(log_ratio) - math.log(log_ratio.size))
    smoothed = smooth(log_ratio)
    relative = np.exp(log_ratio - total)
    error = float(relative.std(ddof=1) / math.sqrt(relative.size))
    if other is not None:
        error = max(abs(other - total), error / math.sqrt(relative.size))
    effective = float(np.exp(-logsumexp(2.0 * smoothed.log_weight)))
    return Integral(
        phi, log_density, smoothed.log_weight, total, error, smoothed.k_hat, effective, edge
    )


# One and two dimensions ---------------------------------------------------------------------------


def _by_grid(value: Value, axes: Axes, size: int, rng: np.random.Generator, tick: Tick) -> Integral:
    seen: dict[tuple[float, ...], float] = {}

    def at(z: tuple[float, ...]) -> float:
        if z not in seen:
            tick(f"grid of hyperparameters, point {len(seen) + 1}")
            seen[z] = value(axes.phi(np.array(z)))
        return seen[z]

    lines = _reach(at, axes.mode.size)
    for _ in range(_GROWN):
        table = _table(at, lines)
        grown, edge = _grown(lines, table)
        if edge <= _EDGE or grown == lines:
            break
        lines = grown
    cells, density = _interpolated(lines, _table(at, lines))
    density = density + axes.log_volume(np.stack(np.meshgrid(*cells, indexing="ij"), axis=-1))
    other = float(logsumexp(density) + sum(math.log(c[1] - c[0]) for c in cells))
    z, log_q = _from_cells(cells, _FLATTENED * density, size, rng)
    phi, log_f = axes.phi(z), np.empty(size)
    for i, point in enumerate(phi):
        tick(f"hyperparameters, point {i + 1} of {size}")
        log_f[i] = value(point)
    return _weighted(phi, log_f, log_q - axes.log_volume(z), edge, other)


def _reach(at: Callable[[tuple[float, ...]], float], d: int) -> list[list[float]]:
    """Points along each axis, as far as the density goes."""
    step, top, lines = _STEP[d], at((0.0,) * d), list[list[float]]()
    for j in range(d):
        line = [0.0]
        for side in (-1.0, 1.0):
            for k in range(1, _FARTHEST * (3 - d) + 1):
                z = side * k * step
                line.append(z)
                if at(tuple(z if i == j else 0.0 for i in range(d))) < top - _DEPTH:
                    break
        lines.append(sorted(line))
    return lines


def _table(at: Callable[[tuple[float, ...]], float], lines: list[list[float]]) -> Array:
    """Log density on the grid; nothing lower than what is as good as nothing."""
    table = np.empty([len(line) for line in lines])
    for place in np.ndindex(table.shape):
        table[place] = at(tuple(line[i] for line, i in zip(lines, place, strict=True)))
    return np.maximum(table, table.max() - _BOTTOM)


def _grown(lines: list[list[float]], table: Array) -> tuple[list[list[float]], float]:
    """The grid with one more point wherever mass stands at its edge, and that mass."""
    mass = np.exp(table - logsumexp(table))
    grown, worst = list[list[float]](), 0.0
    for j, line in enumerate(lines):
        step = line[1] - line[0]
        first, last = (float(np.take(mass, place, axis=j).sum()) for place in (0, -1))
        worst = max(worst, first, last)
        before = [line[0] - step] if first > _EDGE else []
        after = [line[-1] + step] if last > _EDGE else []
        grown.append([*before, *line, *after])
    return grown, worst


def _interpolated(lines: list[list[float]], table: Array) -> tuple[list[Array], Array]:
    """Middles of fine cells along each axis, and the log density there."""
    cells = list[Array]()
    for line in lines:
        count = _CELLS[len(lines)]
        width = (line[-1] - line[0]) / count
        cells.append(np.asarray(line[0] + width * (np.arange(count) + 0.5), float))
    if len(lines) == 1:
        return cells, np.asarray(PchipInterpolator(lines[0], table)(cells[0]))
    order = [min(3, len(line) - 1) for line in lines]
    surface = RectBivariateSpline(lines[0], lines[1], table, kx=order[0], ky=order[1])
    return cells, np.asarray(np.minimum(surface(*cells), table.max() + 1.0))


def _from_cells(
    cells: list[Array], log_density: Array, size: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Points z (size, d) from a density that is constant in each cell, and its log there."""
    d = len(cells)
    uniform = qmc.Sobol(d, rng=rng).random_base2(int(math.log2(size)))
    mass = np.exp(log_density - logsumexp(log_density)).reshape(cells[0].size, -1)
    first, inside = _inverse(np.cumsum(mass.sum(axis=1)), uniform[:, 0])
    places, offsets = [first], [inside]
    if d == 2:
        rows = np.cumsum(mass, axis=1)[first]
        found = [_inverse(row, u[None]) for row, u in zip(rows, uniform[:, 1], strict=True)]
        places.append(np.concatenate([place for place, _ in found]))
        offsets.append(np.concatenate([offset for _, offset in found]))
    widths = [line[1] - line[0] for line in cells]
    parts = zip(cells, places, offsets, widths, strict=True)
    z = np.stack([line[i] + w * (share - 0.5) for line, i, share, w in parts], axis=1)
    chosen = mass[first, places[1] if d == 2 else 0]
    return z, np.log(chosen) - sum(math.log(w) for w in widths)


def _inverse(cumulative: Array, uniform: Array) -> tuple[Array, Array]:
    """Cell in which each level of a cumulative sum is reached, and how far inside."""
    level = uniform * cumulative[-1]
    place = np.minimum(np.searchsorted(cumulative, level, side="right"), cumulative.size - 1)
    below = np.where(place > 0, cumulative[place - 1], 0.0)
    width = cumulative[place] - below
    return place, np.clip((level - below) / np.where(width > 0, width, 1.0), 0.0, 1.0)


# More dimensions ----------------------------------------------------------------------------------


class _Students(NamedTuple):
    """A mixture of multivariate t's in z that differ in their means and two scales.

    Half of the mass is one wide component; the other half stands around weighted points, a kernel
    estimate of the density, which follows it where no single t does.
    """

    mean: Array  # (d,)
    factor: Array  # lower Cholesky factor of the scale matrix
    centres: Array  # (m, d) of the narrow components; m = 0: all mass in the wide one
    share: Array  # (m,)
    narrow: float  # times `factor`

    def draws(self, size: int, rng: np.random.Generator) -> Array:
        d = self.mean.size
        uniform = qmc.Sobol(d + 2, rng=rng).random_base2(int(math.log2(size)))
        uniform = np.clip(uniform, 1e-12, 1.0 - 1e-12)
        stretch = np.sqrt(_FREEDOM / chdtri(_FREEDOM, uniform[:, :1]))
        step = (ndtri(uniform[:, 2:]) * stretch) @ self.factor.T
        if not self.share.size:
            return np.asarray(self.mean + step)
        wide = uniform[:, 1] < 0.5
        edges = np.cumsum(self.share)
        place = np.searchsorted(edges / edges[-1], np.abs(2.0 * uniform[:, 1] - 1.0))
        near = self.centres[np.minimum(place, edges.size - 1)] + self.narrow * step
        return np.asarray(np.where(wide[:, None], self.mean + step, near))

    def log_density(self, z: Array) -> Array:
        wide = _log_student(z - self.mean, self.factor)
        if not self.share.size:
            return wide
        near = np.array([_log_student(z - c, self.narrow * self.factor) for c in self.centres])
        kernels = logsumexp(near + np.log(self.share)[:, None], axis=0)
        return np.asarray(np.logaddexp(wide, kernels) - math.log(2.0))


def _log_student(deviation: Array, factor: Array) -> Array:
    d = len(factor)
    white = solve_triangular(factor, deviation.T, lower=True)
    constant = gammaln((_FREEDOM + d) / 2) - gammaln(_FREEDOM / 2)
    constant -= 0.5 * d * math.log(_FREEDOM * math.pi) + np.log(np.diag(factor)).sum()
    return np.asarray(
        constant - 0.5 * (_FREEDOM + d) * np.log1p(np.square(white).sum(axis=0) / _FREEDOM)
    )


def _by_rounds(
    value: Value, axes: Axes, size: int, rng: np.random.Generator, tick: Tick
) -> Integral:
    d = axes.mode.size
    proposal = _Students(np.zeros(d), _WIDER * np.eye(d), np.empty((0, d)), np.empty(0), 1.0)
    z, log_f, log_q = np.empty((0, d)), np.empty(0), np.empty(0)
    before: tuple[Array, Array] | None = None
    for number in range(1, _ROUNDS + 1):
        fresh = proposal.draws(size, rng)
        found = np.empty(size)
        for i, point in enumerate(axes.phi(fresh)):
            tick(f"hyperparameters, round {number}, point {i + 1} of {size}")
            found[i] = value(point)
        z, log_f = np.concatenate([z, fresh]), np.concatenate([log_f, found])
        log_q = np.concatenate([log_q, proposal.log_density(fresh) - axes.log_volume(fresh)])
        result = _weighted(axes.phi(z), log_f, log_q - _log_share(log_f - log_q, size), math.nan)
        now = _moments(result)
        settled = before is not None and _alike(before, now)
        if settled and result.effective >= _ENOUGH * size:
            break
        before = now
        proposal = _fitted(z, result, proposal, rng)
    return result


def _log_share(log_ratio: Array, size: int) -> Array:
    """Share of each point's round in the whole, over that of all alike: by its effective size.

    A point has a weight by its own round's proposal, which knew nothing of it: against a mixture
    of all, in which later ones stand where the first points were, the integral would be too small.
    """
    by_round = log_ratio.reshape(-1, size)
    effective = np.exp(2.0 * logsumexp(by_round, axis=1) - logsumexp(2.0 * by_round, axis=1))
    return np.repeat(np.log(effective * len(effective) / effective.sum()), size)


def _moments(result: Integral) -> tuple[Array, Array]:
    weight, points = np.exp(result.log_weight), result.phi
    mean = weight @ points
    return mean, np.sqrt(weight @ (points - mean) ** 2)


def _alike(before: tuple[Array, Array], now: tuple[Array, Array]) -> bool:
    """Whether another round has moved no mean and no sd by much."""
    shift = np.abs(now[0] - before[0]) / now[1]
    return bool(shift.max() < _MOVED and np.abs(np.log(now[1] / before[1])).max() < _MOVED)


def _fitted(z: Array, result: Integral, last: _Students, rng: np.random.Generator) -> _Students:
    """A mixture with the moments of the weighted points, as far as these are known."""
    d, weight = z.shape[1], np.exp(result.log_weight)
    mean = weight @ z
    covariance = (z - mean).T @ ((z - mean) * weight[:, None])
    trust = result.effective / (result.effective + 2.0 * d)
    scale = covariance * (_FREEDOM - 2.0) / _FREEDOM * _WIDER**2
    scale = trust * scale + (1.0 - trust) * (last.factor @ last.factor.T)
    mean = trust * mean + (1.0 - trust) * last.mean
    count = allocate(result.log_weight, _KERNELS, rng)
    on = np.flatnonzero(count)
    narrow = result.effective ** (-1.0 / (d + 4))  # Silverman's rule
    return _Students(mean, np.linalg.cholesky(scale), z[on], count[on] / count.sum(), narrow)
