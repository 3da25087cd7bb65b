"""The numbers of a family from a few values of its log site, in closed form or by one root.

Values v_j at equally spaced x_j, all rows at once; a row whose values are not of the family gets
numbers that do not reproduce them, or NaN, and the caller checks. D² is the second difference, h
the step, L(u) = log(1 + exp u), σ its slope.

| family                              | what gives its numbers                                    |
|-------------------------------------|-----------------------------------------------------------|
| a log σ(u) + b log σ(-u), u = x + c | D² = -(a + b) log(1 + (2 cosh h - 2) σ(u) σ(-u)): c first |
| a x - exp(s x + c)                  | log(-D²) is a line of slope s                             |
| log Phi(s x + c), log σ(s x + c)    | the inverse of the link is a line                         |
| log σ(s x - l) + log σ(u - s x)     | exp(-v) = A + B e^(sx) + C e^(-sx): a recurrence gives s  |
| Beta                                | v(x) - v(-x) = φl (2σ(x) - 1); φ by v(x) + v(-x)          |
| Gaussian                            | a parabola through three points, again around its top     |
| Student-t                           | exp(-2v/k) is a parabola: k where its D⁴ is zero          |
| double exponential                  | two lines and where they meet                             |

Exponents and slopes within `SNAP` of 1 (or a count of an integer, a shift of 0) are taken as that:
graphs have constants in single precision.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln, ndtri_exp

from ardvark.inference.known_sites import known as sites_of
from ardvark.inference.known_sites.kernels import (
    BETA,
    CONSTANT,
    DOUBLE_EXPONENTIAL,
    EXPONENTIAL,
    GAUSSIAN,
    LOGISTIC,
    PROBIT,
    STUDENT,
)
from ardvark.inference.known_sites.known import KnownSites
from ardvark.inference.sites.arrays import Array

__all__ = [
    "BEND",
    "BY_GRID",
    "BY_PLACE",
    "FLAT",
    "GRID",
    "Family",
    "Values",
    "own_places",
    "parabolas",
    "parabolas_again",
]

Flags = NDArray[np.bool_]
GRID = 0.6 * np.arange(-6.5, 7.0)  # even, and off zero, where a user's site may be special
STEP = 0.6
SNAP = 3e-6
PLACE = np.linspace(-1.0, 1.0, 13)
MOST_LOOKS = 40  # at a site with a location, from the grid to its own top
BLURRED = 1e-8  # bend of three points, relative to their values: less is rounding


class Values(NamedTuple):
    """Log sites (Q, N) at points eta (Q, N); of own places eta = centre + reach PLACE."""

    eta: Array
    log: Array
    centre: Array = np.zeros(0)
    reach: Array = np.ones(0)


@dataclass(frozen=True, slots=True)
class Family:
    """How to solve for the numbers of one family, and where else to compare its values."""

    code: int
    solve: Callable[[Values], KnownSites]
    far: Callable[[KnownSites], Array]


def _snapped(value: Array, to: Array | float, size: Array | float = 1.0) -> Array:
    return np.asarray(np.where(np.abs(value - to) <= SNAP * size, to, value))


def _at(values: Array, index: NDArray[np.intp]) -> Array:
    return np.asarray(np.take_along_axis(values, index[None], axis=0)[0])


def _seen(bend: Array, values: Array) -> Array:
    """Second differences, NaN in rows where all of them may be rounding."""
    blurred = np.abs(bend).max(axis=0) <= BLURRED * np.abs(values).max(axis=0)
    return np.where(blurred, np.nan, bend)


def _root(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Where a function changes sign between low and high, row by row: bisection and secants."""
    f_low, f_high = function(low), function(high)
    side = np.zeros_like(low)
    for _ in range(80):
        middle = (low * f_high - high * f_low) / (f_high - f_low)
        middle = np.where((middle > low) & (middle < high), middle, 0.5 * (low + high))
        value = function(middle)
        right = (value > 0) == (f_high > 0)
        # Illinois: an end that stays counts half, else a bent function would hold it for ever.
        f_low = np.where(right, np.where(side > 0, 0.5 * f_low, f_low), value)
        f_high = np.where(right, value, np.where(side < 0, 0.5 * f_high, f_high))
        low, high = np.where(right, low, middle), np.where(right, middle, high)
        side = np.where(right, 1.0, -1.0)
        if np.all((np.abs(value) < 1e-14) | (high - low < 1e-13) | np.isnan(value)):
            break
    return np.asarray(middle)


# By the grid ------------------------------------------------------------------------------------


def _counts(view: Values) -> KnownSites:
    """Binomial and negative binomial: a u - (a + b) L(u), u = x + c."""
    x, v = view.eta, view.log
    bend = -np.diff(v, 2, axis=0)  # D² at x[1:-1]
    lift = 2.0 * np.cosh(STEP) - 2.0

    def shape(u: Array) -> Array:
        return np.asarray(np.log1p(lift * expit(u) * expit(-u)))

    left, right = 2, len(GRID) - 5  # of the second differences: x = -2.1 and 2.1
    target = np.log(bend[right]) - np.log(bend[left])

    def off(c: Array) -> Array:
        ratio = np.log(shape(x[1 + right] + c)) - np.log(shape(x[1 + left] + c))
        return np.asarray(ratio - target)

    most = np.full(v.shape[1], 30.0)
    even = np.abs(target) <= 1e-7
    shift = np.zeros_like(most) if even.all() else np.where(even, 0.0, _root(off, -most, most))
    shift = _snapped(shift, 0.0)
    top = np.argmax(bend, axis=0)
    total = _at(_seen(bend, v), top) / _at(shape(x[1:-1] + shift), top)
    lines = v + total * np.logaddexp(0.0, x + shift)
    a = (lines[-1] - lines[0]) / (x[-1] - x[0])
    a = _snapped(a, np.round(a), 1.0 + np.abs(a))
    b = _snapped(total - a, np.round(total - a), 1.0 + total)
    constant = np.mean(lines - a * (x + shift), axis=0)
    a = np.where((a >= 0) & (b >= 0), a, np.nan)
    return sites_of.logistic(a, b, 1.0, shift, _snapped(constant, 0.0))


def _exponential(view: Values) -> KnownSites:
    """Poisson and Gamma with log link and their kin: log(-D²) is a line."""
    x, v = view.eta, view.log
    bend = _seen(-np.diff(v, 2, axis=0), v)
    rises = bend[-1] > bend[0]
    near, next_ = (np.where(rises, a, b) for a, b in ((len(GRID) - 3, 0), (len(GRID) - 4, 1)))
    slope = np.log(_at(bend, near) / _at(bend, next_)) / np.where(rises, STEP, -STEP)
    slope = np.where(rises, _snapped(slope, 1.0, 10.0), _snapped(slope, -1.0, 10.0))
    shift = np.log(_at(bend, near) / (2.0 * np.cosh(slope * STEP) - 2.0))
    shift = shift - slope * _at(x, near + 1)
    lines = v + np.exp(slope * x + shift)
    first, second = (np.where(rises, i, len(GRID) - 1 - i) for i in (0, 7))
    a = (_at(lines, second) - _at(lines, first)) / (_at(x, second) - _at(x, first))
    a = _snapped(a, np.round(a), 1.0 + np.abs(a))
    constant = _at(lines, first) - a * _at(x, first)
    return sites_of.exponential(a, slope, shift, constant)


def _line(x: Array, v: Array, u: Array) -> tuple[Array, Array]:
    """Slope and intercept of u through the two points where the log site is nearest to -1."""
    rank = np.where(np.isfinite(u) & (v < 0), np.abs(np.log(-v)), np.inf)
    order = np.argsort(rank, axis=0)[:2]
    (x_0, x_1), (u_0, u_1) = (np.take_along_axis(part, order, axis=0) for part in (x, u))
    slope = (u_1 - u_0) / (x_1 - x_0)
    slope = _snapped(slope, np.sign(slope), 10.0)
    return slope, _snapped(u_0 - slope * x_0, 0.0, 10.0)


def _probit(view: Values) -> KnownSites:
    return sites_of.probit(*_line(view.eta, view.log, ndtri_exp(np.minimum(view.log, 0.0))))


def _logit(view: Values) -> KnownSites:
    below = -np.minimum(view.log, 0.0)
    u = -(below + np.log(-np.expm1(-below)))  # -log(exp(-v) - 1)
    return sites_of.logistic(1.0, 0.0, *_line(view.eta, view.log, u))


def _band(view: Values) -> KnownSites:
    """Categories of an ordered logit, and the logistic density: exp(-v) = A + B z + C / z."""
    x, v = view.eta, view.log
    step = x[1] - x[0]
    top = v.max(axis=0)
    inverse = np.exp(top - v)
    rise = np.diff(inverse, axis=0)
    best = 1 + np.argmax(np.abs(rise[1:-1]), axis=0)
    ratio = (_at(rise, best + 1) + _at(rise, best - 1)) / (2.0 * _at(rise, best))
    slope = np.arccosh(ratio) / step
    slope = _snapped(slope, 1.0, 10.0)
    z = np.exp(slope * x)
    ends = np.stack([np.zeros_like(best), np.argmax(v, axis=0), np.full_like(best, len(x) - 1)])
    ends[1] = np.clip(ends[1], 1, len(x) - 2)
    rows = [np.take_along_axis(part, ends, axis=0) for part in (np.ones_like(z), z, 1.0 / z)]
    system = np.stack(rows, axis=-1).transpose(1, 0, 2)  # (N, 3 points, 3 terms)
    right = np.take_along_axis(inverse, ends, axis=0).T
    usable = np.isfinite(system).all(axis=(1, 2)) & (np.abs(np.linalg.det(
        np.where(np.isfinite(system), system, 0.0))) > 0)  # fmt: skip
    coefficients = np.full((len(right), 3), np.nan)
    coefficients[usable] = np.linalg.solve(system[usable], right[usable, :, None])[..., 0]
    A, B, C = coefficients.T
    K = 0.5 * (A + np.sqrt(np.maximum(A * A - 4.0 * B * C, 0.0)))
    lower, upper = np.log(C / K), np.log(K / B)
    found = sites_of.band(lower, upper, slope)
    found.table[:, CONSTANT] = top - np.log(K)
    return found


def _beta(view: Values) -> KnownSites:
    """Odd part in eta: φl; even part: φ."""
    x, v = view.eta, view.log
    half = len(GRID) // 2
    odd, even = v - v[::-1], v + v[::-1]
    tilt = odd[-1] / np.tanh(0.5 * x[-1])

    def off(log_phi: Array) -> Array:
        phi = np.exp(log_phi)
        sums = [gammaln(phi * expit(x[j])) + gammaln(phi * expit(-x[j])) for j in (half, -1)]
        return np.asarray(2.0 * (sums[0] - sums[1]) - (even[-1] - even[half]))

    most = np.full(v.shape[1], 14.0)
    phi = np.exp(_root(off, -most, most))
    height = tilt * expit(x[half]) - gammaln(phi * expit(x[half])) - gammaln(phi * expit(-x[half]))
    found = sites_of.beta(np.full(v.shape[1], 0.5), phi)
    found.table[:, 1], found.table[:, CONSTANT] = tilt, v[half] - height
    return found


def _flat(view: Values) -> KnownSites:
    return sites_of.gaussian(0.0, 0.0, view.log[0])


# By its own place -------------------------------------------------------------------------------


def parabolas(
    evaluate: Callable[[Array], Array], grid: Values, wanted: Flags
) -> tuple[Values, KnownSites, Array]:
    """Parabola through three points, again 3 sd around its own top, until it stays.

    Each look from its own top keeps the digits of a narrow site far away from the grid, and tells a
    wide Student-t or a straight line from a parabola. Where three points lie so close that their
    bend is rounding (a target in the millions), they are drawn apart first. Gives the last look,
    the parabolas, and points at which both must agree.
    """
    x, v = grid.eta, grid.log
    size = np.ptp(v, axis=0) + np.abs(v).max(axis=0)
    wanted = wanted & np.all(np.abs(np.diff(v, 3, axis=0)) <= 1e-6 * size, axis=0)
    mean, reach = x[7].copy(), np.full(v.shape[1], 2 * STEP * 3)
    three, looks = v[[1, 7, 13]], np.zeros(v.shape[1])
    precision, top = np.full((2, v.shape[1]), np.nan)
    for _ in range(MOST_LOOKS if wanted.any() else 0):
        bend = -(three[0] - 2 * three[1] + three[2])
        blurred = np.abs(bend) < BLURRED * np.abs(three).max(axis=0)
        new = bend / reach**2
        shift = (three[2] - three[0]) / (2 * reach) / new
        settled = ~blurred & (looks >= 3) & (np.abs(shift) <= 1e-4 * reach)
        moves = wanted & ~settled & ~blurred
        precision = np.where(wanted & ~blurred, new, precision)
        top = np.where(wanted & ~blurred, three[1] + 0.5 * new * shift**2, top)
        mean = np.where(wanted & ~blurred, mean + shift, mean)
        reach = np.where(moves, 3.0 / np.sqrt(np.abs(new)), reach)
        reach = np.where(wanted & blurred, 100.0 * reach, reach)
        looks = looks + ~blurred
        three = evaluate(mean + reach * np.array([-1.0, 0.0, 1.0])[:, None])
        wanted &= np.isfinite(three).all(axis=0)
        if not np.any(wanted & ~settled):
            break
    precision = np.where(wanted & settled, precision, np.nan) if looks.any() else precision
    points = mean + reach * np.array([-1.0, 0.0, 1.0])[:, None]
    far = mean + reach * np.array([-3.0, -0.3, 0.3, 3.0])[:, None]
    sites = sites_of.gaussian(mean, precision, top)
    return Values(points, three), sites, np.concatenate([far, grid.eta])


def parabolas_again(
    evaluate: Callable[[Array], Array], before: KnownSites
) -> tuple[Values, KnownSites, Array]:
    """Parabola through three points around the top of the one before; what gives NaN is none.

    The top is to be where it was, and the width within a factor of a hundred: then one look has
    nine digits (a test), for which `parabolas` takes several.
    """
    mean, reach = before.table[:, 0], 3.0 / np.sqrt(before.table[:, 1])
    points = mean + reach * np.array([-1.0, 0.0, 1.0])[:, None]
    three = evaluate(points)
    bend = -(three[0] - 2 * three[1] + three[2])
    precision = bend / reach**2
    shift = (three[2] - three[0]) / (2 * reach) / precision
    ratio = precision / before.table[:, 1]
    near = (np.abs(shift) <= 1e-4 * reach) & (ratio >= 1e-4) & (ratio <= 1e4)
    near &= np.abs(bend) >= BLURRED * np.abs(three).max(axis=0)
    precision = np.where(near, precision, np.nan)
    sites = sites_of.gaussian(mean + shift, precision, three[1] + 0.5 * precision * shift**2)
    far = mean + 3.0 / np.sqrt(precision) * np.array([-3.0, -0.3, 0.3, 3.0])[:, None]
    grid = np.broadcast_to(GRID[:, None], (len(GRID), len(mean)))
    return Values(points, three), sites, np.concatenate([far, grid])


def own_places(evaluate: Callable[[Array], Array], wanted: Flags, before: KnownSites) -> Values:
    """Values on a grid of each row's own, where its top is inside and its ends are 1 to 8 below."""
    count = len(wanted)
    centre, reach = np.zeros(count), np.full(count, GRID[-1])
    is_student = before.code == STUDENT
    placed = is_student | (before.code == DOUBLE_EXPONENTIAL)
    width = np.where(is_student, np.sqrt(np.abs(before.table[:, 1])), 2.0 / before.table[:, 1])
    centre, reach = np.where(placed, before.table[:, 0], centre), np.where(placed, width, reach)
    going = wanted.copy()
    for _ in range(MOST_LOOKS):
        v = evaluate(centre + reach * PLACE[:, None])
        best = np.argmax(np.where(np.isfinite(v), v, -np.inf), axis=0)
        drop = v.max(axis=0) - np.maximum(v[0], v[-1])
        going &= np.isfinite(v).all(axis=0)
        outside = (best == 0) | (best == len(PLACE) - 1)
        inside = ~outside & (drop >= 1.0) & (drop <= 8.0) & (np.abs(best - 6) <= 1)
        going &= ~inside
        if not going.any():
            break
        moved = going & (best != 6)
        centre = np.where(moved, centre + reach * PLACE[best], centre)
        grows, shrinks = going & (outside | (drop < 1.0)), going & ~outside & (drop > 8.0)
        reach = np.where(grows, 2.0 * reach, np.where(shrinks, 0.4 * reach, reach))
    return Values(centre + reach * PLACE[:, None], v, centre, reach)


def _student(view: Values) -> KnownSites:
    """exp(-2v/k) is a parabola: its fourth difference is zero at the right k only."""
    v = view.log - view.log[6]
    stencil = np.array([1.0, -4.0, 6.0, -4.0, 1.0])

    def off(log_k: Array) -> Array:
        k = np.exp(log_k)
        return np.asarray(k * np.tensordot(stencil, np.expm1(-2.0 * v[::3] / k), axes=1))

    count = v.shape[1]
    k = np.exp(_root(off, np.full(count, np.log(1.0 + 1e-3)), np.full(count, np.log(1e6))))
    k = _snapped(k, np.round(k), k)
    first, last = (np.expm1(-2.0 * v[j] / k) for j in (0, 12))
    tilt, bend = 0.5 * (last - first), 0.5 * (last + first)  # 1 + tilt t + bend t²
    shift = -0.5 * tilt / bend
    w = view.reach**2 * (1.0 - 0.25 * tilt**2 / bend) / bend
    found = sites_of.student(view.centre + view.reach * shift, 1.0, k - 1.0)
    found.table[:, 1] = w
    height = -0.5 * k * np.log1p((view.reach * shift) ** 2 / w)
    found.table[:, CONSTANT] = view.log[6] - height
    return found


def _double_exponential(view: Values) -> KnownSites:
    v, step = view.log, view.reach * (PLACE[1] - PLACE[0])
    below, above = (v[1] - v[0]) / step, (v[-2] - v[-1]) / step
    # below (x - x_0) + v_0 = -above (x - x_1) + v_1
    mean = (v[-1] - v[0] + above * view.eta[-1] + below * view.eta[0]) / (above + below)
    found = sites_of.double_exponential(mean, above, below)
    found.table[:, CONSTANT] = v[0] + below * (mean - view.eta[0])
    return found


def _logistic_density(view: Values) -> KnownSites:
    """Like a category, in units of its own place."""
    found = _band(Values(np.broadcast_to(PLACE[:, None], view.eta.shape), view.log))
    slope = found.table[:, 2] / view.reach
    found.table[:, 2] = slope
    found.table[:, 3:5] -= (slope * view.centre)[:, None]
    return found


def _around_bend(slope: int, shift: int, u: Array) -> Callable[[KnownSites], Array]:
    """Points where slope eta + shift, of these columns, is u: a straight piece is no family."""
    return lambda sites: (u[:, None] - sites.table[:, shift]) / sites.table[:, slope]


def _around_bends(sites: KnownSites) -> Array:
    """Points around both ends of a band."""
    u = np.array([-3.0, 3.0])[:, None, None]
    return np.asarray(((u - sites.table[:, 3:5].T) / sites.table[:, 2]).reshape(4, -1))


def _wide(sites: KnownSites) -> Array:
    return np.array([-8.0, -5.0, 5.0, 8.0])[:, None] * np.ones(len(sites.code))


def _very_wide(sites: KnownSites) -> Array:
    return np.array([-1e3, -30.0, 30.0, 1e3])[:, None] * np.ones(len(sites.code))


BEND = np.array([-3.0, -1.0, 1.0, 3.0])  # a probit written as (1 + erf) / 2 is noise further out
BY_GRID = (
    Family(LOGISTIC, _counts, _around_bend(2, 3, np.array([-9.0, -4.0, 4.0, 9.0]))),
    Family(EXPONENTIAL, _exponential, _around_bend(1, 2, np.array([-9.0, -5.0, -1.0, 2.0]))),
    Family(PROBIT, _probit, _around_bend(0, 1, BEND)),
    Family(LOGISTIC, _logit, _around_bend(2, 3, BEND)),
    Family(LOGISTIC, _band, _around_bends),
    Family(BETA, _beta, _wide),
)
FLAT = Family(GAUSSIAN, _flat, _very_wide)
BY_PLACE = (_student, _double_exponential, _logistic_density)
