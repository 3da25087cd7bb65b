"""Families of sites in machine code: the log site and its derivatives, row by row.

A row is a code and eight numbers of `table`, so that rows of different families stand in one array:

    log site(eta) = family(eta; row[:5]) + row[CONSTANT] - ½ b (eta - m)²

with m, b = row[BASE_MEAN], row[BASE_PRECISION]. The last term is zero for a likelihood.
The prior of a weight that is no Gaussian is a site over a Gaussian base N(m, s²): it is divided by
the base, so b = -1/s² and the constant has ½ log(2π s²).

| code               | family(eta), u = slope eta + shift        | numbers of a row                |
|--------------------|-------------------------------------------|---------------------------------|
| GAUSSIAN           | -½ precision (eta - mean)²                | mean, precision (any sign)      |
| PROBIT             | log Phi(u)                                | slope, shift                    |
| STEP               | 0 where sign eta > 0, else -inf           | sign                            |
| LOGISTIC           | a log σ(s eta + c) + b log σ(-s eta - e)  | a, b, s, c, e                   |
| EXPONENTIAL        | a eta - exp(u)                            | a, slope, shift                 |
| STUDENT            | -½ k log(1 + (eta - mean)² / w)           | mean, w = ν σ², k = ν + 1       |
| DOUBLE_EXPONENTIAL | -above (r)₊ - below (-r)₊, r = eta - mean | mean, above, below              |
| BETA               | φl μ - log Γ(φμ) - log Γ(φ(1-μ)), μ=σ(eta)| φ, φl = φ logit(t)              |

LOGISTIC is the Bernoulli, the binomial (a successes, b failures), the negative binomial with log
link (a = count, b = dispersion, c = e = -log dispersion), the logistic density (a = b = 1) and each
category of an ordered logit: σ(x) - σ(y) = σ(x) σ(-y) (1 - exp(y - x)). EXPONENTIAL is the Poisson
with log link (a = count), the Gamma, exponential and Weibull regressions with log link (slope < 0)
and the Gumbel density. STUDENT with k = 2 is the Cauchy, DOUBLE_EXPONENTIAL with above = below the
Laplace density, else that of a quantile regression.

| formula                                                                  | code         |
|--------------------------------------------------------------------------|--------------|
| h(-x) = x + 1/(x + 2/(x + 3/(x + ...))), Abramowitz & Stegun 26.2.14      | `truncation` |
| log Γ', Γ'' ...: recurrence and series, Abramowitz & Stegun 6.3.18, 6.4.11| `polygammas` |
"""

from math import erfc, exp, lgamma, log, log1p, pi, sqrt

import numpy as np

from ardvark.inference.running.machine_code import njit

__all__ = [
    "BASE_MEAN",
    "BASE_PRECISION",
    "BETA",
    "COLUMNS",
    "CONSTANT",
    "DOUBLE_EXPONENTIAL",
    "EXPONENTIAL",
    "GAUSSIAN",
    "LOGISTIC",
    "PROBIT",
    "STEP",
    "STUDENT",
    "derivatives_by_row",
    "log_base",
    "log_beta",
    "log_by_row",
    "log_cdf",
    "log_exponential",
    "log_logistic",
    "log_site",
    "log_student",
    "polygammas",
    "row_of",
    "site_derivatives",
    "truncation",
]

GAUSSIAN, PROBIT, STEP, LOGISTIC, EXPONENTIAL, STUDENT, DOUBLE_EXPONENTIAL, BETA = range(8)
CONSTANT, BASE_MEAN, BASE_PRECISION, COLUMNS = 5, 6, 7, 8
SQRT_HALF, SQRT_TWO_OVER_PI, HALF_LOG_TWO_PI = sqrt(0.5), sqrt(2.0 / pi), 0.5 * log(2 * pi)
LARGEST_EXPONENT = 700.0  # exp of more is not finite


@njit(cache=True, error_model="numpy")
def truncation(z):  # type: ignore[no-untyped-def]
    """H = N(z) / Phi(z), c = h (z + h) and 1 - c, each to full relative accuracy."""
    if not z <= -2.0:  # NaN too: the loop below would not end
        h = SQRT_TWO_OVER_PI * exp(-0.5 * z * z) / erfc(-SQRT_HALF * z)
        c = h * (z + h)
        return h, c, 1.0 - c
    x = -z  # Abramowitz & Stegun 26.2.14: h = x + 1 / (x + e), e = 2 / (x + 3 / (x + ...))
    terms = int(20.0 + 240.0 / (x * x))
    rest = 0.5 * (sqrt(x * x + 4.0 * terms) - x)
    for k in range(terms, 1, -1):
        rest = k / (x + rest)
    delta = 1.0 / (x + rest)
    return x + delta, (x + delta) * delta, delta * (rest - delta)


@njit(cache=True, error_model="numpy")
def log_cdf(z, h):  # type: ignore[no-untyped-def]
    """Log Phi(z), with h of `truncation`, which is needed below -2 only."""
    if z > 0.0:
        return log1p(-0.5 * erfc(SQRT_HALF * z))
    if z > -2.0:
        return log(0.5 * erfc(-SQRT_HALF * z))
    return -0.5 * z * z - HALF_LOG_TWO_PI - log(h)


@njit(cache=True, error_model="numpy")
def _log_sigmoid(z):  # type: ignore[no-untyped-def]
    """Log σ(z) to 1e-16 absolute: no branch and no log1p, which take four times as long."""
    return min(z, 0.0) - log(1.0 + exp(-abs(z)))


@njit(cache=True, error_model="numpy")
def polygammas(x):  # type: ignore[no-untyped-def]
    """First three derivatives of log Γ at x > 0, to 1e-13 of the largest term."""
    first = second = third = 0.0
    while x < 12.0:
        first -= 1.0 / x
        second += 1.0 / (x * x)
        third -= 2.0 / (x * x * x)
        x += 1.0
    r = 1.0 / (x * x)
    first += log(x) - 0.5 / x  # Abramowitz & Stegun 6.3.18
    first -= r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132)))))
    odd = 1 / 6 - r * (1 / 30 - r * (1 / 42 - r * (1 / 30 - r * (5 / 66 - r * 691 / 2730))))
    second += (1.0 + 0.5 / x + r * odd) / x  # Abramowitz & Stegun 6.4.12
    odd = 1 / 2 - r * (1 / 6 - r * (1 / 6 - r * (3 / 10 - r * (5 / 6 - r * 691 / 210))))
    third -= (1.0 + 1.0 / x + r * odd) * r  # Abramowitz & Stegun 6.4.13
    return first, second, third


@njit(cache=True, error_model="numpy")
def row_of(table, n):  # type: ignore[no-untyped-def]
    """Row n as a tuple, which costs nothing to hand on."""
    return (
        table[n, 0], table[n, 1], table[n, 2], table[n, 3],
        table[n, 4], table[n, 5], table[n, 6], table[n, 7],
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
def log_logistic(row, eta):  # type: ignore[no-untyped-def]
    """Log σ(u)^a σ(-u)^b, but for its constant; a zero exponent is most rows of a Bernoulli."""
    u, value = row[2] * eta, 0.0
    if row[0] != 0.0:
        value += row[0] * _log_sigmoid(u + row[3])
    if row[1] != 0.0:
        value += row[1] * _log_sigmoid(-u - row[4])
    return value


@njit(cache=True, error_model="numpy")
def log_exponential(row, eta):  # type: ignore[no-untyped-def]
    """A eta - exp(u), but for its constant."""
    return row[0] * eta - exp(row[1] * eta + row[2])


@njit(cache=True, error_model="numpy")
def log_student(row, eta):  # type: ignore[no-untyped-def]
    """Student-t, but for its constant."""
    return -0.5 * row[2] * log1p((eta - row[0]) ** 2 / row[1])


@njit(cache=True, error_model="numpy")
def log_beta(row, eta):  # type: ignore[no-untyped-def]
    """Beta of mean σ(eta), but for its constant; log Γ(x) as log Γ(1 + x) - log x."""
    mu, rest = _mean_and_rest(eta)
    phi = row[0]
    value = row[1] * mu - lgamma(1.0 + phi * mu) - lgamma(1.0 + phi * rest)
    return value + 2.0 * log(phi) - abs(eta) - 2.0 * log1p(exp(-abs(eta)))


@njit(cache=True, error_model="numpy")
def log_base(row, eta):  # type: ignore[no-untyped-def]
    """Constant of a row, and minus the log of its base."""
    gap = eta - row[BASE_MEAN]
    return row[CONSTANT] - 0.5 * row[BASE_PRECISION] * gap * gap


@njit(cache=True, error_model="numpy")
def log_site(code, row, eta):  # type: ignore[no-untyped-def]
    """Log site of a row."""
    value = log_base(row, eta)
    if code == LOGISTIC:
        value += log_logistic(row, eta)
    elif code == EXPONENTIAL:
        value += log_exponential(row, eta)
    elif code == GAUSSIAN:
        value -= 0.5 * row[1] * (eta - row[0]) ** 2
    elif code == PROBIT:
        z = row[0] * eta + row[1]
        value += log_cdf(z, truncation(z)[0] if z <= -2.0 else 0.0)
    elif code == STUDENT:
        value += log_student(row, eta)
    elif code == DOUBLE_EXPONENTIAL:
        r = eta - row[0]
        value -= row[1] * r if r > 0.0 else -row[2] * r
    elif code == BETA:
        value += log_beta(row, eta)
    elif not row[0] * eta > 0.0:  # STEP
        value = -np.inf
    return value


@njit(cache=True, error_model="numpy")
def _mean_and_rest(eta):  # type: ignore[no-untyped-def]
    """σ(eta) and 1 - σ(eta), neither ever zero."""
    small = exp(-min(abs(eta), LARGEST_EXPONENT))
    if eta > 0.0:
        return 1.0 / (1.0 + small), small / (1.0 + small)
    return small / (1.0 + small), 1.0 / (1.0 + small)


@njit(cache=True, error_model="numpy")
def site_derivatives(code, row, eta):  # type: ignore[no-untyped-def]
    """First three derivatives of the log site of a row; zeros of a STEP, one side of a kink."""
    b = row[BASE_PRECISION]
    first, second, third = -b * (eta - row[BASE_MEAN]), -b, 0.0
    if code == LOGISTIC:
        s = row[2]
        if row[0] != 0.0:
            p, q = _mean_and_rest(s * eta + row[3])
            first += row[0] * s * q
            second -= row[0] * s * s * p * q
            third += row[0] * s * s * s * p * q * (p - q)
        if row[1] != 0.0:
            p, q = _mean_and_rest(-s * eta - row[4])
            first -= row[1] * s * q
            second -= row[1] * s * s * p * q
            third -= row[1] * s * s * s * p * q * (p - q)
    elif code == EXPONENTIAL:
        s = row[1]
        rate = exp(s * eta + row[2])
        first += row[0] - s * rate
        second -= s * s * rate
        third -= s * s * s * rate
    elif code == GAUSSIAN:
        first -= row[1] * (eta - row[0])
        second -= row[1]
    elif code == PROBIT:
        s = row[0]
        z = s * eta + row[1]
        h, c, slack = truncation(z)
        first += s * h
        second -= s * s * c
        third += s * s * s * _third_of_probit(z, h, c, slack)
    elif code == STUDENT:
        r, w, k = eta - row[0], row[1], row[2]
        q = w + r * r
        first -= k * r / q
        second -= k * (w - r * r) / (q * q)
        third += 2.0 * k * r * (3.0 * w - r * r) / (q * q * q)
    elif code == DOUBLE_EXPONENTIAL:
        first -= row[1] if eta > row[0] else -row[2]
    elif code == BETA:
        one, two, three = _beta_derivatives(row[0], row[1], eta)
        first, second, third = first + one, second + two, third + three
    return first, second, third


@njit(cache=True, error_model="numpy")
def _third_of_probit(z, h, c, slack):  # type: ignore[no-untyped-def]
    """H ((z + h)(z + 2h) - 1): the slope of h (z + h), with its sign; RW06 (3.16) once more."""
    if z > -2.0:
        return h * ((z + h) * (z + 2.0 * h) - 1.0)
    x = -z  # e_k = (k + 1) / (x + e_(k+1)); the difference of e_2 and e_1 is written out
    terms = int(20.0 + 240.0 / (x * x))
    rest = 0.5 * (sqrt(x * x + 4.0 * terms) - x)
    for k in range(terms, 3, -1):
        rest = k / (x + rest)
    second = 3.0 / (x + rest)
    first = 2.0 / (x + second)
    rise = (x + 3.0 * second - 2.0 * rest) / ((x + second) * (x + rest))
    return c * 2.0 * rise / ((x + first) * (x + second))


@njit(cache=True, error_model="numpy")
def _log_gamma_in_log(x):  # type: ignore[no-untyped-def]
    """First three derivatives of log Γ(x) in log x: finite for any small x."""
    one, two, three = polygammas(x + 1.0)
    one, two, three = x * one - 1.0, x * x * two + 1.0, x * x * x * three - 2.0
    return one, one + two, one + 3.0 * two + three


@njit(cache=True, error_model="numpy")
def _beta_derivatives(phi, tilt, eta):  # type: ignore[no-untyped-def]
    """Of φl μ and of both log Γ, each by its own log: d log(φμ) = 1 - μ, d log(φ(1-μ)) = -μ."""
    mu, rest = _mean_and_rest(eta)
    both, slant = mu * rest, rest - mu
    first, second, third = tilt * both, tilt * both * slant, tilt * both * (1.0 - 6.0 * both)
    for part in range(2):
        sign, m, r = (1.0, mu, rest) if part == 0 else (-1.0, rest, mu)
        one, two, three = _log_gamma_in_log(phi * m)
        first -= sign * one * r
        second -= two * r * r - one * both
        third -= sign * (three * r * r * r - 3.0 * two * r * both + one * both * (m - r))
    return first, second, third


@njit(cache=True, error_model="numpy", nogil=True)
def log_by_row(code, table, eta):  # type: ignore[no-untyped-def]
    """Log sites of eta (Q, N)."""
    value = np.empty(eta.shape)
    for q in range(len(eta)):
        for n in range(len(code)):
            value[q, n] = log_site(code[n], row_of(table, n), eta[q, n])
    return value


@njit(cache=True, error_model="numpy", nogil=True)
def derivatives_by_row(code, table, eta):  # type: ignore[no-untyped-def]
    """First three derivatives (3, Q, N) at eta (Q, N)."""
    found = np.empty((3, *eta.shape))
    for q in range(eta.shape[0]):
        for n in range(len(code)):
            found[0, q, n], found[1, q, n], found[2, q, n] = site_derivatives(
                code[n], row_of(table, n), eta[q, n]
            )
    return found
