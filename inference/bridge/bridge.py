"""Bridge sampling: the evidence of an unnormalised density from draws of it (MW96).

    p(x) = p*(x) / Z,   q a normalised Gaussian,   l = log p* - log q

Half of the draws fit q; the other half x_1..x_n and as many draws y_1..y_m of q are the two banks
of the bridge, and Z is the fixed point of

    Z = [ 1/m Σ e^l(y) / (s1 e^l(y) + s2 Z) ] / [ 1/n Σ 1 / (s1 e^l(x) + s2 Z) ],   s1 = n/(n+m)

in logarithms throughout. Markov chains count by their effective number n, in s1 and in the error.

| source                                                    | code                                 |
|-----------------------------------------------------------|--------------------------------------|
| MW96: optimal bridge, fixed point                         | `meet`                               |
| Frühwirth-Schnatter 2004, section 3.4: relative error     | `relative_error`                     |
| Meng & Schilling 2002: warp-III, p* made symmetric        | `Symmetric`                          |

Warp-III puts ½ (p*(x) + p*(2μ - x)) in the place of p*: the same Z, and no skewness left to bridge.
The error is one of log Z to first order; it knows nothing of a mode that no draw has seen.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from ardvark.inference.running.machine_code import njit
from ardvark.inference.sites.arrays import Array

__all__ = ["Bridged", "bridge_evidence", "meet", "relative_error"]

LogDensity = Callable[[Array], Array]  # (n, d) -> (n,)
Effective = Callable[[Array], float]  # a quantity (chain, draw) -> its effective number of draws
MAX_ITERATIONS = 1000
TOLERANCE = 1e-10  # of log Z


class Orders(Protocol):
    """Linear maps of a vector that keep volumes, and that a density does not see."""

    def __len__(self) -> int:
        """How many."""

    def moved(self, x: Array) -> Iterable[Array]:
        """Give draws (n, d) under each of them."""


class Bridged(NamedTuple):
    """Log evidence, its error in nats, and how it was found."""

    log_evidence: float
    error: float
    effective: float  # draws of the posterior's bank
    overlap: float  # mean share of q in the mixture of both banks, at posterior draws; 0 = none


def bridge_evidence(
    log_density: LogDensity,
    draws: Array,
    rng: np.random.Generator,
    *,
    effective: Effective,
    warp: bool = False,
    orders: Orders | None = None,
) -> Bridged:
    """Estimate log Z of exp(log_density) from draws (chain, draw, d) of its normalised density.

    `orders`: maps that the density does not see, which the proposal then does not see either.
    """
    half = draws.shape[1] // 2
    size = draws.shape[2]
    fitted = draws[:, :half].reshape(-1, size)
    bank = draws[:, half:]
    if len(fitted) <= 2 * size:
        raise ValueError(
            f"{2 * len(fitted)} draws are too few to fit a Gaussian in {size} dimensions: "
            f"draw at least {4 * size + 4}"
        )
    q = Proposal(fitted, orders)
    target = Symmetric(log_density, q.mean) if warp else log_density

    def log_ratio(x: Array) -> Array:
        return np.asarray(target(x) - q.log_density(x))

    ours = log_ratio(bank.reshape(-1, size)).reshape(bank.shape[:2])
    theirs = log_ratio(q.draw(ours.size, rng))
    n = min(max(effective(ours), 1.0), float(ours.size))
    log_z = meet(ours.ravel(), theirs, n / (n + theirs.size))
    error, overlap = relative_error(ours, theirs, log_z, n / (n + theirs.size), effective)
    return Bridged(log_z, error, n, overlap)


class Proposal:
    """The Gaussian with mean and covariance of draws (n, d), or its average over orders.

    A draw need not be moved to another order: its ratio to the target is the same in all of them.
    """

    def __init__(self, draws: Array, orders: Orders | None = None) -> None:
        self.orders = orders
        self.mean = draws.mean(axis=0)
        covariance = np.atleast_2d(np.cov(draws, rowvar=False))
        self.factor = np.linalg.cholesky(covariance)

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """Independent draws (n, d)."""
        return self.mean + rng.standard_normal((n, self.mean.size)) @ self.factor.T

    def log_density(self, x: Array) -> Array:
        """Log q at (n, d)."""
        if self.orders is None:
            return self._gaussian(x)
        total = np.full(len(x), -np.inf)
        for moved in self.orders.moved(x):
            np.logaddexp(total, self._gaussian(moved), out=total)
        return np.asarray(total - math.log(len(self.orders)))

    def _gaussian(self, x: Array) -> Array:
        z = solve_triangular(self.factor, (x - self.mean).T, lower=True)
        constant = np.log(np.diag(self.factor)).sum() + 0.5 * self.mean.size * math.log(2 * math.pi)
        return np.asarray(-0.5 * np.square(z).sum(axis=0) - constant)


class Symmetric:
    """The density made symmetric about a point: the same integral."""

    def __init__(self, log_density: LogDensity, centre: Array) -> None:
        self.log_density, self.centre = log_density, centre

    def __call__(self, x: Array) -> Array:
        """Log ½ (p*(x) + p*(2μ - x))."""
        both = self.log_density(np.concatenate([x, 2.0 * self.centre - x]))
        return np.asarray(np.logaddexp(both[: len(x)], both[len(x) :]) - math.log(2.0))


@njit(cache=True, nogil=True, error_model="numpy")
def meet(ours: Array, theirs: Array, share: float = 0.5) -> float:
    """Fixed point log Z from log p* - log q at draws of p and of q; `share` is s1 of p's draws."""
    log_s1, log_s2 = math.log(share), math.log1p(-share)
    log_z = np.median(ours)
    for _ in range(MAX_ITERATIONS):
        above = theirs - np.logaddexp(log_s1 + theirs, log_s2 + log_z)
        below = -np.logaddexp(log_s1 + ours, log_s2 + log_z)
        peak, floor = above.max(), below.max()
        new = peak + math.log(np.exp(above - peak).mean())
        new -= floor + math.log(np.exp(below - floor).mean())
        if abs(new - log_z) < TOLERANCE:
            return float(new)
        log_z = new
    return float(log_z)


def relative_error(
    ours: Array, theirs: Array, log_z: float, share: float, effective: Effective
) -> tuple[float, float]:
    """Error of log Z, and the overlap of the two densities; `ours` is (chain, draw)."""
    log_s1, log_s2 = math.log(share), math.log1p(-share)
    one = np.exp(theirs - np.logaddexp(log_s1 + theirs, log_s2 + log_z))  # p / (s1 p + s2 q), of q
    two = np.exp(log_z - np.logaddexp(log_s1 + ours, log_s2 + log_z))  # q / (s1 p + s2 q), of p
    variance = one.var() / one.mean() ** 2 / one.size
    if two.var() > 0:
        variance += two.var() / two.mean() ** 2 / min(max(effective(two), 1.0), two.size)
    return math.sqrt(variance), float(two.mean())
