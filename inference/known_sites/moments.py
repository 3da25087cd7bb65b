"""Moments of a known site times a Gaussian, in machine code.

For a row of `kernels.py` and a cavity N(m, v), with r = site(eta) N(eta; m, v):

    log Z = log ∫ r,   mean and variance of r / Z

| family                              | rule                                                      |
|-------------------------------------|-----------------------------------------------------------|
| GAUSSIAN                            | product of Gaussians, any sign of precision               |
| PROBIT, STEP                        | closed form, RW06 (3.58), (3.85), (3.86)                  |
| DOUBLE_EXPONENTIAL                  | two truncated Gaussians, one on each side of the kink     |
| LOGISTIC, EXPONENTIAL, STUDENT, BETA| trapezoidal rule in u, eta = centre + scale sinh(u)       |

The trapezoidal rule over the whole line converges geometrically for analytic functions (Trefethen &
Weideman 2014, theorem 5.1): halving the step squares the error. So the step is halved until old
nodes and new ones agree to `AGREE`, and the two together are then right to about its square. The
sinh places nodes in proportion to their distance from the centre: a narrow site in a wide cavity,
its edge, and heavy tails are all seen by few.

A Student-t site may leave two modes, one by its own mean and one by the cavity's; nodes are graded
around the narrower of those that count. RW06 is Rasmussen & Williams.
"""

from math import asinh, exp, isfinite, lgamma, log, log1p, sqrt

import numpy as np

from ardvark.inference.known_sites.kernels import (
    BASE_MEAN,
    BASE_PRECISION,
    BETA,
    CONSTANT,
    DOUBLE_EXPONENTIAL,
    EXPONENTIAL,
    GAUSSIAN,
    HALF_LOG_TWO_PI,
    LOGISTIC,
    PROBIT,
    STEP,
    STUDENT,
    log_base,
    log_beta,
    log_cdf,
    log_exponential,
    log_logistic,
    log_site,
    log_student,
    row_of,
    site_derivatives,
    truncation,
)
from ardvark.inference.running.machine_code import njit

__all__ = ["tilted_by_row", "tilted_site"]

AGREE = 1e-6  # of old nodes and new ones; together they are right to the square of it
HALVINGS = 11
INTERVALS = 9
SCALE = 3.0  # of the sinh, in widths of the mode
FIRST_END = 1.7  # of u, where a Gaussian is negligible then
END_STEP = 0.3
NEGLIGIBLE = 30.0  # nats below the top, where the sum may end
MODE_STEPS = 100  # Newton's, of which bisection may need many on a far edge
NO_WIDTH = 1e-200  # a variance below which eta is known: its square is not a number
FLAT = 1e-12  # of 1/v: a smaller precision of cavity without base is rounding


@njit(cache=True, error_model="numpy")
def tilted_site(code, row, m, v):  # type: ignore[no-untyped-def]
    """Log mass, mean and variance of a site times N(m, v).

    +inf and NaN where the product has no finite mass or variance.
    """
    if not (isfinite(m) and v >= 0.0):
        return np.nan, np.nan, np.nan
    if v < NO_WIDTH and code != STEP:
        return log_site(code, row, m), m, v
    b = row[BASE_PRECISION]
    if code == GAUSSIAN:
        return _gaussian(row, m, v)
    precision = 1.0 / v + b  # of the cavity without the base
    if abs(precision) <= FLAT / v:
        precision = 0.0
    if precision < 0.0 or (precision == 0.0 and not _has_variance(code, row)):
        return np.inf, np.nan, np.nan
    if code == DOUBLE_EXPONENTIAL:
        return _double_exponential(row, m, v, precision)
    if code == PROBIT or code == STEP:
        offset, mean, variance = row[CONSTANT], m, v
        if b != 0.0:
            gap = m - row[BASE_MEAN]
            offset -= 0.5 * (log1p(b * v) + b * gap * gap / (1.0 + b * v))
            mean, variance = (m / v + b * row[BASE_MEAN]) / precision, 1.0 / precision
        log_z, mean, variance = _probit(code, row, mean, variance)
        return offset + log_z, mean, variance
    if code == STUDENT and precision == 0.0:
        return _student_alone(row, m, v)
    return _by_nodes(code, row, m, v)


@njit(cache=True, error_model="numpy")
def _has_variance(code, row):  # type: ignore[no-untyped-def]
    """Whether the family alone, without any Gaussian, is a density with a variance."""
    if code == LOGISTIC:
        return row[0] > 0.0 and row[1] > 0.0
    if code == EXPONENTIAL:
        return row[0] * row[1] > 0.0
    if code == STUDENT:
        return row[2] > 3.0
    if code == DOUBLE_EXPONENTIAL:
        return row[1] > 0.0 and row[2] > 0.0
    return code == BETA


@njit(cache=True, error_model="numpy")
def _gaussian(row, m, v):  # type: ignore[no-untyped-def]
    """Product of the site, its base and the cavity, at the top of the three."""
    p, mu, b, base = row[1], row[0], row[BASE_PRECISION], row[BASE_MEAN]
    total = 1.0 + (p + b) * v
    if not total > 0.0:
        return np.inf, np.nan, np.nan
    shift = v * (p * (mu - m) + b * (base - m)) / total
    top = m + shift
    height = p * (top - mu) ** 2 + b * (top - base) ** 2 + shift * shift / v
    return row[CONSTANT] - 0.5 * (log1p((p + b) * v) + height), top, v / total


@njit(cache=True, error_model="numpy")
def _probit(code, row, m, v):  # type: ignore[no-untyped-def]
    slope, shift, noise = row[0], row[1], 1.0
    if code == STEP:
        shift = noise = 0.0
    scale = sqrt(noise + slope * slope * v)
    z = (slope * m + shift) / scale  # RW06 (3.58)
    h, _, slack = truncation(z)
    variance = v * (noise + slope * slope * v * slack) / (scale * scale)  # RW06 (3.86)
    return log_cdf(z, h), m + slope * v * h / scale, variance  # RW06 (3.85)


@njit(cache=True, error_model="numpy")
def _log_reciprocal_hazard(z):  # type: ignore[no-untyped-def]
    """Log of Phi(z) / N(z)."""
    h = truncation(z)[0]
    return -log(h) if z < 5.0 else 0.5 * z * z + HALF_LOG_TWO_PI + log_cdf(z, h)


@njit(cache=True, error_model="numpy")
def _double_exponential(row, m, v, precision):  # type: ignore[no-untyped-def]
    """Each side of the kink is a Gaussian cut off there: ∫_0^∞ exp(-½ P r² + g r) dr."""
    mu, above, below = row[0], row[1], row[2]
    b, base = row[BASE_PRECISION], row[BASE_MEAN]
    pull = (m - mu) / v + b * (base - mu)  # of cavity and base at the kink
    # A precision far below the squared rates is none: the sides are exponentials.
    root = sqrt(max(precision, 1e-20 * min((pull - above) ** 2, (pull + below) ** 2)))
    z_up, z_down = (pull - above) / root, (-pull - below) / root
    log_up, log_down = _log_reciprocal_hazard(z_up), _log_reciprocal_hazard(z_down)
    top = max(log_up, log_down)
    total = exp(log_up - top) + exp(log_down - top)
    up, down = exp(log_up - top) / total, exp(log_down - top) / total
    mean_up, var_up = _positive_part(z_up)
    mean_down, var_down = _positive_part(z_down)
    gap = mean_up + mean_down
    height = -0.5 * ((mu - m) ** 2 / v + b * (mu - base) ** 2) + row[CONSTANT]
    log_z = height + top + log(total) - log(root) - HALF_LOG_TWO_PI - 0.5 * log(v)
    variance = (up * var_up + down * var_down + up * down * gap * gap) / (root * root)
    return log_z, mu + (up * mean_up - down * mean_down) / root, variance


@njit(cache=True, error_model="numpy")
def _positive_part(z):  # type: ignore[no-untyped-def]
    """Mean and variance of N(z, 1) above zero."""
    h, c, slack = truncation(z)
    return c / h if z <= -2.0 else z + h, slack


@njit(cache=True, error_model="numpy")
def _student_alone(row, m, v):  # type: ignore[no-untyped-def]
    """The cavity is the base: what is left is the Student-t itself."""
    mu, w, k = row[0], row[1], row[2]
    b, base = row[BASE_PRECISION], row[BASE_MEAN]
    slope = m / v + b * base  # nothing but rounding, else there is no mass
    if abs(slope) * sqrt(v) > 1e3 * FLAT * (abs(m) + abs(base) + sqrt(v)) / sqrt(v):
        return np.inf, np.nan, np.nan
    mass = 0.5 * log(np.pi * w) + _log_gamma_ratio(k)
    height = -0.5 * (m * m / v + b * base * base)
    log_z = row[CONSTANT] + mass + height - HALF_LOG_TWO_PI - 0.5 * log(v)
    return log_z, mu, w / (k - 3.0)


@njit(cache=True, error_model="numpy")
def _log_gamma_ratio(k):  # type: ignore[no-untyped-def]
    """Log Γ((k - 1)/2) - log Γ(k/2)."""
    return lgamma(0.5 * (k - 1.0)) - lgamma(0.5 * k)


@njit(cache=True, error_model="numpy")
def _log_family(code, row, eta):  # type: ignore[no-untyped-def]
    """Log site of the families that need nodes: a shorter list is quicker."""
    if code == LOGISTIC:
        return log_logistic(row, eta)
    if code == EXPONENTIAL:
        return log_exponential(row, eta)
    if code == STUDENT:
        return log_student(row, eta)
    return log_beta(row, eta)


@njit(cache=True, error_model="numpy")
def _height(code, row, m, half, centre, away):  # type: ignore[no-untyped-def]
    """Log density at centre + away, but for its constant; `away` may be less than eta resolves."""
    eta, deviation = centre + away, (centre - m) + away
    return _log_family(code, row, eta) + log_base(row, eta) - half * deviation * deviation


@njit(cache=True, error_model="numpy")
def _mode(code, row, m, v, start):  # type: ignore[no-untyped-def]
    """A maximum of the tilted density, to a tenth of its width, and that width."""
    eta, width, low, high = start, sqrt(v), -np.inf, np.inf
    for _ in range(MODE_STEPS):
        first, second, _ = site_derivatives(code, row, eta)
        first -= (eta - m) / v
        second -= 1.0 / v
        if first > 0.0:
            low = eta
        else:
            high = eta
        if second < 0.0:
            width = 1.0 / sqrt(-second)
            step = -first / second
        else:
            step = width if first > 0.0 else -width
        if abs(step) <= 0.3 * width and second < 0.0:
            return eta + step, width
        eta += step
        if not low < eta < high:
            if isfinite(low) and isfinite(high):
                eta = 0.5 * (low + high)
                if high - low <= 1e-12 * (abs(low) + abs(high)):
                    return eta, width
            elif not isfinite(eta):
                return np.nan, width
    return eta, width


@njit(cache=True, error_model="numpy")
def _start(code, row, m, v):  # type: ignore[no-untyped-def]
    """Where Newton's steps begin: from there they neither overflow nor jump too far."""
    if code == EXPONENTIAL:  # its mode is on this side of the start, so steps never cross it
        slope, bend = row[1], -row[2] / row[1]
        return bend + log(max(1.0, (abs(row[0]) + abs(m - bend) / v) / abs(slope))) / slope
    b = row[BASE_PRECISION]
    if b == 0.0:
        return m
    if code == STUDENT:
        return (m + v * b * row[BASE_MEAN]) / (1.0 + v * b)
    return _feature(code, row)[0]


@njit(cache=True, error_model="numpy")
def _feature(code, row):  # type: ignore[no-untyped-def]
    """Where a site bends most, and on what scale: its edge or its own mode."""
    if code == STUDENT:
        return row[0], sqrt(row[1] / row[2])
    if code == EXPONENTIAL:
        slope = row[1]
        bend = log(max(1.0, abs(row[0] / slope)))
        return (bend - row[2]) / slope, 2.0 / abs(slope)
    if code == LOGISTIC:
        a, b, slope = row[0], row[1], row[2]
        shift = 0.5 * (row[3] + row[4])
        if a == 0.0 or b == 0.0:
            shift = row[4] if a == 0.0 else row[3]
        return (log(max(a, 1.0) / max(b, 1.0)) - shift) / slope, 2.0 / abs(slope)
    return 0.0, np.inf


@njit(cache=True, error_model="numpy")
def _by_nodes(code, row, m, v):  # type: ignore[no-untyped-def]
    """Centre, scale and ends of the nodes, then the trapezoidal rule."""
    half = 0.5 / v
    start = _start(code, row, m, v)
    centre, width = _mode(code, row, m, v, start)
    if not isfinite(centre):
        return np.nan, np.nan, np.nan
    top = _height(code, row, m, half, centre, 0.0)
    place, bend = _feature(code, row)
    other = np.nan
    scale = SCALE * width
    if bend < 0.5 * width:
        height = _height(code, row, m, half, place, 0.0)
        gain = height + log(bend / width) - top  # of what is there over what is at the mode
        if gain > -NEGLIGIBLE:
            other = centre if gain < NEGLIGIBLE else np.nan
            centre, scale, top = place, 1.5 * bend, max(top, height)
    low, high, intervals = -FIRST_END, FIRST_END, float(INTERVALS)
    if isfinite(other):
        mode = asinh((other - centre) / scale)
        low, high = min(low, mode), max(high, mode)
    low = _end(code, row, m, half, centre, scale, top, low, -END_STEP)
    high = _end(code, row, m, half, centre, scale, top, high, END_STEP)
    if isfinite(other):  # nodes near the mode no further apart than its width
        intervals = max(intervals, (high - low) * abs(other - centre) / width)
    return _trapezoid(code, row, m, v, centre, scale, top, low, high, int(intervals))


@njit(cache=True, error_model="numpy")
def _end(code, row, m, half, centre, scale, top, u, step):  # type: ignore[no-untyped-def]
    """First u on this side where the density, with a second moment's weight, is negligible."""
    rise, fall, grow, shrink = 0.5 * exp(u), 0.5 * exp(-u), exp(step), exp(-step)
    while abs(u) < 300.0:
        height = _height(code, row, m, half, centre, scale * (rise - fall)) - top
        if not height + 3.0 * abs(u) > -NEGLIGIBLE:
            break
        u += step
        rise *= grow
        fall *= shrink
    return u


@njit(cache=True, error_model="numpy")
def _sums(code, row, m, half, centre, scale, top, u, step, count):  # type: ignore[no-untyped-def]
    """Sums of density, times x and times x², x = sinh(u), over nodes u, u + step, ..."""
    total = first = second = 0.0
    rise, fall, grow, shrink = 0.5 * exp(u), 0.5 * exp(-u), exp(step), exp(-step)
    for _ in range(count):
        x = rise - fall
        height = _height(code, row, m, half, centre, scale * x)
        weight = exp(height - top) * (rise + fall)
        total += weight
        first += weight * x
        second += weight * x * x
        rise *= grow
        fall *= shrink
    return total, first, second


@njit(cache=True, error_model="numpy")
def _trapezoid(code, row, m, v, centre, scale, top, low, high, intervals):  # type: ignore[no-untyped-def]
    half, step = 0.5 / v, (high - low) / intervals
    total, first, second = _sums(code, row, m, half, centre, scale, top, low, step, intervals + 1)
    for _ in range(HALVINGS):
        a, b, c = _sums(code, row, m, half, centre, scale, top, low + 0.5 * step, step, intervals)
        close = (
            abs(a - total) <= AGREE * total
            and abs(b - first) <= AGREE * sqrt(total * second)
            and abs(c - second) <= AGREE * second
        )
        total, first, second = total + a, first + b, second + c
        step, intervals = 0.5 * step, 2 * intervals
        if close:
            shift = first / total
            log_z = log(total * step * scale) + top - HALF_LOG_TWO_PI - 0.5 * log(v)
            spread = scale * scale * (second / total - shift * shift)
            return log_z, centre + scale * shift, spread
    return np.nan, np.nan, np.nan


@njit(cache=True, error_model="numpy", nogil=True)
def tilted_by_row(code, table, mean, variance):  # type: ignore[no-untyped-def]
    """Log masses, means and variances (3, Q, N) for cavities (Q, N)."""
    found = np.empty((3, *mean.shape))
    for q in range(mean.shape[0]):
        for n in range(len(code)):
            found[0, q, n], found[1, q, n], found[2, q, n] = tilted_site(
                code[n], row_of(table, n), mean[q, n], variance[q, n]
            )
    return found
