"""A Gaussian vector above a bound: independent exact draws, and the probability of the region.

    X ~ N(0, Sigma) given X > l,   P(X > l),   N dimensions, by minimax exponential tilting

Notation: Sigma = L L' in the order of the factor, D = diag(L), T = D^-1 L, X = L z. Coordinate k
of z is proposed from N(mu_k, 1) above T z = l / D, one after the other; with a_k the bound in units
of that proposal, the weight of a proposal is

    log weight = sum_k mu_k^2 / 2 - mu_k z_k + log Q(a_k),   Q(a) = P(N(0, 1) > a)

The tilt mu makes the largest weight as small as can be. Botev's 2N equations for it come down to
a concave problem in N unknowns: with mu minimised out, coordinate by coordinate,

    max_x  -|x|^2 / 2 + sum_k kappa(s_k),   s = T x - l / D > 0,   kappa(s) = min_a (s + a)^2 / 2 + log Q(a)

whose Newton matrix is I + T' W T, W = (1 - V) / V > 0 with V the variance of a normal above a. The
minimising a has r(a) = s, where r(a) = E(Z - a | Z > a); then mu = x - h(a), h = r + a, the hazard.

| formula                                                | code                |
|--------------------------------------------------------|---------------------|
| least likely bound first, Gibson et al. 1994            | _ordered_factor     |
| saddle point, Botev 2017                                | saddle              |
| sequential proposal and its weight, Genz, Botev 2017    | _propose            |
| accept with probability weight / bound, Botev 2017      | TruncatedNormal     |
| normal above a > 0 by an exponential, Robert 1995       | _excess             |

Botev 2017: J. R. Statist. Soc. B 79, 125-148. Robert 1995: Statistics and Computing 5, 121-125.
"""  # noqa: E501

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.special import logsumexp

from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import STOP, Watch, aside, unwatched
from ardvark.inference.sites.arrays import Array, Index

__all__ = ["Proposals", "TruncatedNormal", "draw_above", "log_mean", "standard_excess"]


HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
TAIL = 5.0  # beyond: continued fraction instead of erfc; the loss by r = h - a is two digits there
BLOCK = 1 << 20  # numbers in memory at a time while proposing
SHORT = 1e8  # operations of one call in the main thread: between two calls Ctrl-C is heard
MANY_ROWS = 300  # from here on the tilt is searched for in a thread of its own
MOST_TRIES = 10_000  # of a loop that ends by chance long before: only a NaN gets there


class Proposals(NamedTuple):
    """What a fixed number of proposals gave."""

    points: Array  # (accepted, N): independent draws of X given X > l
    log_weight: Array  # (proposals,): the mean weight is an unbiased estimate of P(X > l)


class TruncatedNormal:
    """N(0, covariance) given X > lower.

    Attributes
    ----------
    log_bound
        Least upper bound of the log weights; P(X > lower) / exp(log_bound) is the acceptance.
    iterations
        Newton steps to the tilt.
    """

    def __init__(self, covariance: Array, lower: Array) -> None:
        rows = len(lower)
        if covariance.shape != (rows, rows) or not np.isfinite(lower).all():
            raise ValueError(
                f"covariance must be (N, N) and lower N finite numbers; found {covariance.shape} "
                f"and {lower.shape} with {np.sum(~np.isfinite(lower))} that are not finite"
            )
        self.lower = np.asarray(lower, dtype=np.float64)
        matrix = np.array(covariance, dtype=np.float64, order="C")
        listens = aside if rows > MANY_ROWS else _at_once
        factor, self._order, start, slack = listens(
            lambda watch: _ordered_factor(matrix, self.lower, watch)
        )
        self._scale = np.diag(factor).copy()
        if not np.all(self._scale > 0):  # NaN too
            raise np.linalg.LinAlgError("the covariance is not positive definite")
        self._rows = factor / self._scale[:, None]  # T
        self._bound = self.lower[self._order] / self._scale
        self._tilt, self.log_bound, self.iterations, gap = listens(
            lambda watch: saddle(self._rows, start, slack, watch)
        )
        self._short = max(1, int(SHORT / max(1, rows) ** 2))
        if gap != 0.0:  # NaN too
            raise np.linalg.LinAlgError(
                f"the tilt was not found: Newton's method stopped {gap:.2g} nats before its end. "
                "The covariance is too close to singular."
            )

    def propose(self, n: int, rng: np.random.Generator) -> Proposals:
        """Make n proposals: all their weights, and the points that are accepted."""
        log_weight, kept = np.empty(n), [np.empty((0, self.lower.size))]
        block = max(1, min(BLOCK // max(1, self.lower.size), self._short))
        for begin in range(0, n, block):
            part = log_weight[begin : begin + block]
            excess = np.empty((part.size, self.lower.size))
            accepted = _propose(
                self._rows, self._bound, self._tilt, self.log_bound, rng, part, excess
            )
            points = np.empty((accepted, self.lower.size))
            points[:, self._order] = excess[:accepted] * self._scale
            kept.append(points + self.lower)
        return Proposals(np.concatenate(kept), log_weight)

    def propose_until(self, n: int, rng: np.random.Generator, acceptance: float) -> Proposals:
        """Propose until n points are accepted; the number of proposals then depends on chance.

        `acceptance` is what to expect: a wrong value costs time, and nothing else.
        """
        batches, missing = [Proposals(np.empty((0, self.lower.size)), np.empty(0))], n
        while missing > 0:
            wanted = missing / max(acceptance, 1e-12)
            batch = self.propose(math.ceil(min(wanted + 3.0 * math.sqrt(wanted), 1e6)), rng)
            batches.append(Proposals(batch.points[:missing], batch.log_weight))
            missing -= len(batches[-1].points)
        points, log_weights = zip(*batches, strict=True)
        return Proposals(np.concatenate(points), np.concatenate(log_weights))

    def first(self, rng: np.random.Generator, limit: int = 1_000_000) -> tuple[Array, int]:
        """Give one draw (N,), and the number of proposals that it took."""
        excess, tried, found = np.empty((1, self.lower.size)), 0, False
        while tried < limit and not found:
            part = min(self._short, limit - tried)
            more = _first(
                self._rows, self._bound, self._tilt, self.log_bound, rng, excess[0], part,
                unwatched(),
            )  # fmt: skip
            found = more <= part
            tried += min(more, part)
        if not found:
            raise RuntimeError(
                f"none of {limit} proposals from a normal above its bounds was accepted: exact "
                f"draws are too slow here ({self.lower.size} rows). Use EP or NUTS."
            )
        point = np.empty(self.lower.size)
        point[self._order] = excess[0] * self._scale
        return point + self.lower, tried

    def draws(self, n: int, rng: np.random.Generator, pilot: int = 100) -> Array:
        """Independent draws (n, N)."""
        first = self.propose(pilot, rng)
        acceptance = math.exp(log_mean(first.log_weight)[0] - self.log_bound)
        rest = self.propose_until(n - len(first.points), rng, acceptance)
        return np.concatenate([first.points, rest.points])[:n]

    def log_probability(self, n: int, rng: np.random.Generator) -> tuple[float, float]:
        """Log of an unbiased estimate of P(X > lower) by n proposals, and its standard error."""
        return log_mean(self.propose(n, rng).log_weight)


def log_mean(log_weight: Array) -> tuple[float, float]:
    """Log of the mean weight and, to first order, the standard error of this log."""
    value = float(logsumexp(log_weight)) - math.log(log_weight.size)
    spread = float(np.std(np.exp(log_weight - value)))
    return value, spread / math.sqrt(max(log_weight.size - 1, 1))


def _at_once[T](work: Callable[[Watch], T]) -> T:
    return work(unwatched())


def _compiled[F: Callable[..., Any]](function: F) -> F:
    return cast(F, njit(cache=True, nogil=True, error_model="numpy")(function))


def _compiled_loosely[F: Callable[..., Any]](function: F) -> F:
    """Compile with sums in any order, so that they vectorise."""
    loose = {"reassoc", "contract"}
    return cast(F, njit(cache=True, nogil=True, error_model="numpy", fastmath=loose)(function))


# The tilt -------------------------------------------------------------------------------------


@_compiled
def saddle(rows: Array, x: Array, slack: Array, watch: Watch) -> tuple[Array, float, int, float]:
    """Tilt, value and Newton steps of the concave problem, from an x of slack s > 0.

    The last number is 0, or the nats that were missing where Newton's method stopped.
    """
    kappa, hazard, variance = _barrier(slack)
    value = np.sum(kappa) - 0.5 * np.dot(x, x)
    gain = np.inf
    for iteration in range(200):
        if watch[STOP]:
            break
        step = _newton_step(rows, x, slack, hazard, variance)
        slack_step = np.dot(rows, step)
        gain = 0.5 * np.dot(np.dot(hazard, rows) - x, step)
        if gain <= 1e-13 * (1.0 + abs(value)):
            # One more full step squares the error that is left: where the weights hardly vary, a
            # tilt that is only nearly right would let some of them pass the bound.
            x, slack = x + step, slack + slack_step
            if np.all(slack > 0.0):
                kappa, hazard, _ = _barrier(slack)
                return x - hazard, np.sum(kappa) - 0.5 * np.dot(x, x), iteration + 1, 0.0
            break
        size = 1.0
        for k in range(slack.size):
            if slack_step[k] < 0.0:
                size = min(size, -0.95 * slack[k] / slack_step[k])
        while size > 1e-10:
            moved, slack_moved = x + size * step, slack + size * slack_step
            kappa, hazard_moved, variance_moved = _barrier(slack_moved)
            found = np.sum(kappa) - 0.5 * np.dot(moved, moved)
            if found >= value + 0.1 * size * gain - 1e-13 * (1.0 + abs(value)):
                break
            size *= 0.5
        if size <= 1e-10:
            break
        x, slack, value, hazard, variance = moved, slack_moved, found, hazard_moved, variance_moved
    return x, value, 0, max(gain, 1e-300)


@_compiled
def _newton_step(rows: Array, x: Array, slack: Array, hazard: Array, variance: Array) -> Array:
    """(I + T'WT)^-1 (T'h - x): normal equations, or least squares where they are too coarse."""
    size = x.size
    root = np.sqrt(hazard * slack / variance)  # 1 - V = h s, without cancellation
    half = root.reshape(-1, 1) * rows
    matrix = np.dot(half.T, half)
    largest = 0.0  # a positive definite matrix has its largest entry on the diagonal
    for k in range(size):
        matrix[k, k] += 1.0
        largest = max(largest, matrix[k, k])
    if largest < 1e10:
        return solve_factored(np.linalg.cholesky(matrix), np.dot(hazard, rows) - x)
    tall = np.concatenate((half, np.eye(size)))
    target = np.concatenate((np.sqrt(hazard * variance / slack), -x))
    step: Array = np.linalg.lstsq(tall, target)[0]
    return step


@_compiled
def solve_factored(lower: Array, right: Array) -> Array:
    """Solve L L' x = right."""
    size = right.size
    x = right.copy()
    for k in range(size):
        x[k] = (x[k] - _dot(lower[k], x, k)) / lower[k, k]
    for k in range(size - 1, -1, -1):
        x[k] /= lower[k, k]
        for j in range(k):
            x[j] -= lower[k, j] * x[k]
    return x


# Univariate, in the log domain ------------------------------------------------------------------


@_compiled
def _upper(a: float) -> tuple[float, float, float]:
    """Of a normal above a: h = N(a) / Q(a), r = h - a, and the variance V = 1 - h r."""
    if a < TAIL:
        hazard = math.exp(-0.5 * a * a - HALF_LOG_2PI) / (0.5 * math.erfc(a * math.sqrt(0.5)))
        excess = hazard - a
        return hazard, excess, 1.0 - hazard * excess
    rest = 0.0
    for k in range(40, 1, -1):
        rest = k / (a + rest)  # Abramowitz & Stegun 26.2.14
    excess = 1.0 / (a + rest)
    return a + excess, excess, (rest - excess) * excess


@_compiled
def _log_upper(a: float) -> float:
    """Log Q(a)."""
    if a < -1.0:
        return math.log1p(-0.5 * math.erfc(-a * math.sqrt(0.5)))
    if a < 35.0:
        return math.log(0.5 * math.erfc(a * math.sqrt(0.5)))
    return -0.5 * a * a - HALF_LOG_2PI - math.log(_upper(a)[0])


@_compiled
def _barrier(slack: Array) -> tuple[Array, Array, Array]:
    """Kappa(s), its slope h(a), and V(a), where r(a) = s."""
    kappa, slope, variance = np.empty_like(slack), np.empty_like(slack), np.empty_like(slack)
    for k in range(slack.size):
        s = slack[k]
        # Below the root, since r(a) > (sqrt(a^2 + 8) - a) / 4 (Sampford 1953) and r(a) > -a,
        a = max(1.0 / s - 2.0 * s, -s)
        hazard, excess, spread = _upper(a)
        for _ in range(60):  # so Newton's method climbs to it: r is convex, r' = -V
            step = (excess - s) / spread
            a += step
            hazard, excess, spread = _upper(a)
            if step <= 1e-14 * (1.0 + abs(a)):
                break
        slope[k], variance[k] = hazard, spread
        if a < TAIL:
            kappa[k] = 0.5 * (s + a) ** 2 + _log_upper(a)
        else:  # the squares cancel
            kappa[k] = s * (a + 0.5 * s) - HALF_LOG_2PI - math.log(hazard)
    return kappa, slope, variance


@_compiled
def _excess(a: float, rng: np.random.Generator) -> float:
    """Z - a for Z ~ N(0, 1) given Z > a; NaN if a is no number."""
    if a <= 0.0:
        for _ in range(MOST_TRIES):
            excess = rng.standard_normal() - a
            if excess > 0.0:
                return excess
    rate = 0.5 * (a + math.sqrt(a * a + 4.0))
    lag = 2.0 / (a + math.sqrt(a * a + 4.0))  # rate - a, without cancellation
    for _ in range(MOST_TRIES):
        excess = rng.standard_exponential() / rate
        if 2.0 * rng.standard_exponential() >= (excess - lag) ** 2:
            return excess
    return np.nan


@_compiled
def standard_excess(lower: Array, rng: np.random.Generator) -> Array:
    """Independent Z - lower for Z ~ N(0, 1) given Z > lower, for any finite lower (N,)."""
    excess = np.empty_like(lower)
    for k in range(lower.size):
        excess[k] = _excess(lower[k], rng)
    return excess


# Loops over coordinates -------------------------------------------------------------------------


@_compiled_loosely
def _dot(left: Array, right: Array, length: int) -> float:
    total = 0.0
    for j in range(length):
        total += left[j] * right[j]
    return total


@_compiled
def _ordered_factor(
    covariance: Array, lower: Array, watch: Watch
) -> tuple[Array, Index, Array, Array]:
    """Cholesky factor with the least likely bound first, its order, a feasible z and its slack.

    Each step takes the variable whose bound is least likely to be met given that the ones before
    are at their conditional means.
    """
    rows = lower.size
    factor, order = np.zeros((rows, rows)), np.arange(rows)
    mean, slack = np.empty(rows), np.empty(rows)
    variance, shift = np.diag(covariance).copy(), np.zeros(rows)
    for k in range(rows):
        if watch[STOP]:
            break
        worst, hardest = k, -np.inf
        for i in range(k, rows):
            if not variance[i] > 0.0:
                factor[k, k] = np.nan
                return factor, order, mean, slack
            hardness = (lower[order[i]] - shift[i]) / math.sqrt(variance[i])
            if hardness > hardest:
                worst, hardest = i, hardness
        if worst != k:
            order[k], order[worst] = order[worst], order[k]
            variance[worst], shift[worst] = variance[k], shift[k]
            for j in range(k):
                factor[k, j], factor[worst, j] = factor[worst, j], factor[k, j]
        pivot = order[k]
        scale = math.sqrt(covariance[pivot, pivot] - _dot(factor[k], factor[k], k))
        factor[k, k] = scale
        slack[k] = _upper(hardest)[1]
        mean[k] = hardest + slack[k]
        for i in range(k + 1, rows):
            entry = (covariance[pivot, order[i]] - _dot(factor[i], factor[k], k)) / scale
            factor[i, k] = entry
            variance[i] -= entry * entry
            shift[i] += entry * mean[k]
    return factor, order, mean, slack


@_compiled
def _proposal(
    rows: Array, bound: Array, tilt: Array, rng: np.random.Generator, z: Array, excess: Array
) -> float:
    """Propose once: T z - l / D is left in `excess`; the log weight."""
    total = 0.0
    for k in range(bound.size):
        a = bound[k] - _dot(rows[k], z, k) - tilt[k]
        excess[k] = _excess(a, rng)
        z[k] = a + excess[k] + tilt[k]
        total += tilt[k] * (0.5 * tilt[k] - z[k]) + _log_upper(a)
    return total


@_compiled
def _first(
    rows: Array,
    bound: Array,
    tilt: Array,
    log_bound: float,
    rng: np.random.Generator,
    excess: Array,
    limit: int,
    watch: Watch,
) -> int:
    """Propose until one is accepted, left in `excess`; the number tried, limit + 1 if none was."""
    z = np.empty_like(bound)
    for tried in range(1, limit + 1):
        weight = _proposal(rows, bound, tilt, rng, z, excess)
        if watch[STOP] or math.isnan(weight):
            break
        if weight + rng.standard_exponential() >= log_bound:
            return tried
    return limit + 1


@_compiled
def _propose(
    rows: Array,
    bound: Array,
    tilt: Array,
    log_bound: float,
    rng: np.random.Generator,
    log_weight: Array,
    excess: Array,
) -> int:
    """Fill `log_weight`; the first rows of `excess` = T z - l / D are the accepted, counted."""
    accepted, z = 0, np.empty_like(bound)
    for i in range(log_weight.size):
        log_weight[i] = _proposal(rows, bound, tilt, rng, z, excess[accepted])
        if log_weight[i] + rng.standard_exponential() >= log_bound:  # -log(uniform)
            accepted += 1
    return accepted


@_compiled
def draw_above(
    covariance: Array, lower: Array, rng: np.random.Generator, limit: int, watch: Watch
) -> tuple[Array, int, bool]:
    """One draw of X (N,), the proposals that it took, and whether there was one at all.

    `TruncatedNormal.first` without its object: the covariance is used once.
    """
    factor, order, start, slack = _ordered_factor(covariance, lower, watch)
    scale = np.diag(factor).copy()
    point, excess = np.empty_like(lower), np.empty_like(lower)
    if not np.all(scale > 0.0):
        return point, 0, False
    rows = factor / scale.reshape(-1, 1)
    tilt, log_bound, _, gap = saddle(rows, start, slack, watch)
    if gap != 0.0:
        return point, 0, False
    tried = _first(rows, lower[order] / scale, tilt, log_bound, rng, excess, limit, watch)
    for k in range(lower.size):
        point[order[k]] = excess[k] * scale[k] + lower[order[k]]
    return point, tried, tried <= limit
