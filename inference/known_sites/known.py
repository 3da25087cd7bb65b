"""Sites of known families, each row its own: derivatives and moments in machine code.

A `KnownSites` is an array of codes and a table of numbers (`kernels.py` says what they mean), so
that rows of several likelihoods and of non-Gaussian priors stand in one array, and a sweep of EP
never leaves machine code. The constructors below give the columns their names.

| distribution of t (or prior of eta)                          | constructor                      |
|--------------------------------------------------------------|----------------------------------|
| Bernoulli, binomial with logit link                          | `logistic(successes, failures)`  |
| negative binomial with log link, mean exp(eta)               | `logistic(count, size, ...)`     |
| ordered logit, between two cut points                        | `band(lower, upper)`             |
| Poisson with log link                                        | `exponential(count, 1, shift)`   |
| Gamma with log link                                          | `exponential(-shape, -1, ...)`   |
| Student-t, Cauchy                                            | `student(mean, sigma, nu)`       |
| Laplace (double exponential)                                 | `double_exponential(mean, rate)` |
| Beta with logit mean                                         | `beta(target, phi)`              |
| logistic density                                             | `logistic(1, 1, 1 / s, -mu / s)` |
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logit

from ardvark.errors import UnsupportedPair
from ardvark.inference.known_sites.kernels import (
    BASE_MEAN,
    BASE_PRECISION,
    BETA,
    COLUMNS,
    CONSTANT,
    DOUBLE_EXPONENTIAL,
    EXPONENTIAL,
    GAUSSIAN,
    LOGISTIC,
    PROBIT,
    STEP,
    STUDENT,
    derivatives_by_row,
    log_by_row,
)
from ardvark.inference.known_sites.moments import tilted_by_row
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import (
    Derivatives,
    GaussianSites,
    LogitSites,
    PoissonSites,
    ProbitSites,
    Sites,
    StepSites,
)
from ardvark.inference.sites.quadrature import Tilted

__all__ = [
    "KnownSites",
    "band",
    "beta",
    "double_exponential",
    "exponential",
    "gaussian",
    "known",
    "logistic",
    "probit",
    "student",
]

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]
KINKED = (STEP, DOUBLE_EXPONENTIAL)


@dataclass(frozen=True, slots=True, eq=False)
class KnownSites:
    """Rows of known families: `code` (N,) and `table` (N, 8), see `kernels.py`."""

    code: Codes
    table: Array

    def log(self, eta: Array, /) -> Array:
        """Log site at eta (..., N)."""
        eta = np.asarray(eta, dtype=np.float64)
        flat = np.ascontiguousarray(eta.reshape(-1, len(self.code)))
        return np.asarray(log_by_row(self.code, self.table, flat).reshape(eta.shape))

    def derivatives(self, eta: Array, /) -> Derivatives:
        """Log site and three derivatives; refused where a site has a kink."""
        if not self.smooth.all():
            raise UnsupportedPair(
                f"{np.sum(~self.smooth)} of {len(self.code)} sites have a kink (a double "
                f"exponential or a step), so Laplace's expansion does not exist there. Use EP() "
                f"or NUTS()."
            )
        return self.expansion(eta)

    def expansion(self, eta: Array, /) -> Derivatives:
        """Like `derivatives`, with those of one side at a kink: for rows whose eta is known."""
        eta = np.asarray(eta, dtype=np.float64)
        flat = np.ascontiguousarray(eta.reshape(-1, len(self.code)))
        found = derivatives_by_row(self.code, self.table, flat)
        return Derivatives(self.log(eta), *(part.reshape(eta.shape) for part in found))

    def tilted(self, mean: Array, variance: Array, /) -> Tilted:
        """Moments of the site times N(mean, variance)."""
        mean, variance = np.broadcast_arrays(np.asarray(mean, float), np.asarray(variance, float))
        flat = (np.ascontiguousarray(x.reshape(-1, len(self.code))) for x in (mean, variance))
        found = tilted_by_row(self.code, self.table, *flat)
        return Tilted(*(part.reshape(mean.shape) for part in found))

    @property
    def smooth(self) -> Flags:
        """Rows with derivatives everywhere."""
        return ~np.isin(self.code, KINKED)

    @property
    def log_concave(self) -> Flags:
        """Rows whose log site is concave, so that no Gaussian site has a negative precision."""
        falls = np.where(self.code == GAUSSIAN, self.table[:, 1] >= 0, True)
        falls &= ~np.isin(self.code, (STUDENT, BETA))
        return np.asarray(falls & (self.table[:, BASE_PRECISION] >= 0))

    def over(self, mean: ArrayLike, variance: ArrayLike) -> "KnownSites":
        """These sites divided by N(eta; mean, variance): priors over a Gaussian base."""
        if np.any(self.table[:, BASE_PRECISION] != 0):
            raise ValueError("these sites are divided by a base already; give the sites alone")
        table, variance = self.table.copy(), np.asarray(variance, float)
        table[:, BASE_MEAN] = mean
        table[:, BASE_PRECISION] = -1.0 / variance
        table[:, CONSTANT] += 0.5 * np.log(2.0 * np.pi * variance)
        return KnownSites(self.code, table)

    def part(self, rows: slice | Flags) -> "KnownSites":
        """Some of the rows."""
        return KnownSites(self.code[rows], self.table[rows])


def _of(code: int, *columns: ArrayLike, constant: ArrayLike = 0.0) -> KnownSites:
    shape = np.broadcast_shapes((1,), *(np.shape(c) for c in (*columns, constant)))
    table = np.zeros((*shape, COLUMNS))
    for j, column in enumerate(columns):
        table[:, j] = column
    table[:, CONSTANT] = constant
    return KnownSites(np.full(shape, code), table)


def gaussian(mean: ArrayLike, precision: ArrayLike, constant: ArrayLike = 0.0) -> KnownSites:
    """exp(constant - precision (eta - mean)² / 2), of any sign of precision; 0 is a flat site."""
    return _of(GAUSSIAN, mean, precision, constant=constant)


def probit(slope: ArrayLike, shift: ArrayLike = 0.0, constant: ArrayLike = 0.0) -> KnownSites:
    """Phi(slope eta + shift)."""
    return _of(PROBIT, slope, shift, constant=constant)


def logistic(
    a: ArrayLike,
    b: ArrayLike,
    slope: ArrayLike = 1.0,
    shift: ArrayLike = 0.0,
    constant: ArrayLike = 0.0,
) -> KnownSites:
    """σ(u)^a σ(-u)^b, u = slope eta + shift."""
    return _of(LOGISTIC, a, b, slope, shift, shift, constant=constant)


def band(lower: ArrayLike, upper: ArrayLike, slope: ArrayLike = 1.0) -> KnownSites:
    """σ(slope eta - lower) - σ(slope eta - upper): a category of an ordered logit."""
    lower, upper = np.asarray(lower, float), np.asarray(upper, float)
    constant = np.log(-np.expm1(lower - upper))
    return _of(LOGISTIC, 1.0, 1.0, slope, -lower, -upper, constant=constant)


def exponential(
    a: ArrayLike, slope: ArrayLike = 1.0, shift: ArrayLike = 0.0, constant: ArrayLike = 0.0
) -> KnownSites:
    """exp(constant + a eta - exp(slope eta + shift))."""
    return _of(EXPONENTIAL, a, slope, shift, constant=constant)


def student(mean: ArrayLike, sigma: ArrayLike, nu: ArrayLike) -> KnownSites:
    """Student-t density with location `mean`; nu = 1 is the Cauchy."""
    nu, sigma = np.asarray(nu, float), np.asarray(sigma, float)
    constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu * sigma**2)
    return _of(STUDENT, mean, nu * sigma**2, nu + 1.0, constant=constant)


def double_exponential(
    mean: ArrayLike, above: ArrayLike, below: ArrayLike | None = None
) -> KnownSites:
    """Normalised density that falls at rate `above` over its mean and at rate `below` under it."""
    above = np.asarray(above, float)
    below = above if below is None else np.asarray(below, float)
    constant = np.log(above * below / (above + below))
    return _of(DOUBLE_EXPONENTIAL, mean, above, below, constant=constant)


def beta(target: ArrayLike, phi: ArrayLike) -> KnownSites:
    """Beta density of a target in (0, 1) with mean σ(eta) and precision phi."""
    target, phi = np.asarray(target, float), np.asarray(phi, float)
    constant = gammaln(phi) - np.log(target) + (phi - 1.0) * np.log1p(-target)
    return _of(BETA, phi, phi * logit(target), constant=constant)


def known(sites: Sites, rows: int) -> KnownSites | None:
    """The same sites as a `KnownSites` of so many rows; None where there is no such family."""
    if isinstance(sites, KnownSites):
        return sites
    if isinstance(sites, ProbitSites):
        found = probit(sites.sign)
    elif isinstance(sites, LogitSites):
        found = logistic(1.0, 0.0, sites.sign)
    elif isinstance(sites, StepSites):
        found = _of(STEP, sites.sign)
    elif isinstance(sites, GaussianSites):
        found = gaussian(sites.mean, sites.precision, sites.log_scale)
    elif isinstance(sites, PoissonSites):
        constant = sites.count * sites.log_exposure - gammaln(sites.count + 1.0)
        found = exponential(sites.count, 1.0, sites.log_exposure, constant)
    else:
        return None
    # Copies: a view of a broadcast cannot be written to, which is another type to numba.
    code = np.array(np.broadcast_to(found.code, rows))
    return KnownSites(code, np.array(np.broadcast_to(found.table, (rows, COLUMNS))))
