"""Log density of weights and hyperparameters together, with its gradient, in machine code.

A point x holds the weights first, then the hyperparameters φ on an unconstrained scale:

    log p(x) = Σ_n site_n(eta_n) + Σ_k single_k(x_k) + Σ_j log N(r_j; 0, 1 / p_j) + constant
    eta = A z + o,   z_j = x_j exp(u),   r = B x - m,   p_j = precision_j exp(u),   u = S x + s

Every scale is the exponential of something linear in x, a *level* u: a precision on its log scale,
the sd of a group, the noise, the scale of a non-centred block. An index of -1 stands for no level.
A precision α ~ Gamma(a, b) that the rows of a group share may be integrated out,

    Π_j N(r_j; 0, 1 / (α p_j)) -> b^a Γ(a + n/2) / Γ(a) · (b + ½ Σ_j p_j r_j²)^-(a + n/2)

(one row: a Student-t), and is drawn afterwards from Gamma(a + n/2, b + ½ Σ_j p_j r_j²).

| here                        | meaning                                                      |
|-----------------------------|--------------------------------------------------------------|
| `Rows`                      | A, o, the sites of eta and the levels of columns and noise   |
| `Singles`                   | sites of one coordinate each: priors                         |
| `Normals`, `Groups`         | Gaussian rows of the prior; precisions that are integrated   |
| `Sparse`                    | B and S, row by row                                          |
| `pack` (in `packed.py`)     | all of it as two blocks of memory, whose address can be told |
| `LOG_DENSITY`               | C function of a point and that address: no interpreter       |
"""

import ctypes
from math import exp, log
from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

from ardvark.inference.known_sites.kernels import (
    LOGISTIC,
    PROBIT,
    log_site,
    row_of,
    site_derivatives,
)
from ardvark.inference.known_sites.many_rows import (
    add_log_cdf,
    add_log_sigmoid,
    split_cdf,
    split_sigmoid,
)
from ardvark.inference.known_sites.packed import Packed, unpacked
from ardvark.inference.sites.arrays import Array

__all__ = [
    "COPY",
    "LOG_DENSITY",
    "gradient_at",
    "group_rates",
    "log_rows",
]

_SMALL, _LARGE = 1e-100, 1e100  # a product beyond these takes no more factors
NOT_FINITE = 3  # what nutpie takes for a point it may not go to


@njit(cache=True, error_model="numpy")
def _times(matrix, x):  # type: ignore[no-untyped-def]
    """Matrix x, of a `Sparse`."""
    found = np.empty(len(matrix.start) - 1)
    for i in range(len(found)):
        total = 0.0
        for k in range(matrix.start[i], matrix.start[i + 1]):
            total += matrix.value[k] * x[matrix.at[k]]
        found[i] = total
    return found


@njit(cache=True, error_model="numpy")
def _add_transposed(matrix, force, gradient):  # type: ignore[no-untyped-def]
    """Gradient += matrix' force, of a `Sparse`."""
    for i in range(len(force)):
        for k in range(matrix.start[i], matrix.start[i + 1]):
            gradient[matrix.at[k]] += matrix.value[k] * force[i]


@njit(cache=True, error_model="numpy")
def _levels(density, x):  # type: ignore[no-untyped-def]
    """U = S x + s."""
    u = _times(density.levels, x)
    for k in range(len(u)):
        u[k] += density.shift[k]
    return u


# Four rows at a time: a number of x is loaded once for four products, as fast as BLAS and without
# its threads. Sums may be taken in any order, or no processor would take several terms at once.
_ANY_ORDER = {"reassoc", "contract", "nsz"}


@njit(cache=True, error_model="numpy", fastmath=_ANY_ORDER)
def _predictor(rows, z):  # type: ignore[no-untyped-def]
    """A z + o."""
    projection, thin = rows.projection, rows.thin
    n, d = projection.shape
    eta = rows.offset.copy()
    for i in range(len(thin.start) - 1):
        for k in range(thin.start[i], thin.start[i + 1]):
            eta[i] += thin.value[k] * z[thin.at[k]]
    fours = n - n % 4
    for i in range(0, fours, 4):
        a, b, c, e = 0.0, 0.0, 0.0, 0.0
        for j in range(d):
            a += projection[i, j] * z[j]
            b += projection[i + 1, j] * z[j]
            c += projection[i + 2, j] * z[j]
            e += projection[i + 3, j] * z[j]
        eta[i] += a
        eta[i + 1] += b
        eta[i + 2] += c
        eta[i + 3] += e
    for i in range(fours, n):
        a = 0.0
        for j in range(d):
            a += projection[i, j] * z[j]
        eta[i] += a
    return eta


@njit(cache=True, error_model="numpy", fastmath=_ANY_ORDER)
def _pulled_back(rows, slope):  # type: ignore[no-untyped-def]
    """A' slope."""
    projection, thin = rows.projection, rows.thin
    n, d = projection.shape
    found = np.zeros(d)
    for i in range(len(thin.start) - 1):
        for k in range(thin.start[i], thin.start[i + 1]):
            found[thin.at[k]] += thin.value[k] * slope[i]
    fours = n - n % 4
    for i in range(0, fours, 4):
        a, b, c, e = slope[i], slope[i + 1], slope[i + 2], slope[i + 3]
        for j in range(d):
            found[j] += (
                a * projection[i, j] + b * projection[i + 1, j]
                + c * projection[i + 2, j] + e * projection[i + 3, j]
            )  # fmt: skip
    for i in range(fours, n):
        for j in range(d):
            found[j] += slope[i] * projection[i, j]
    return found


@njit(cache=True, error_model="numpy")
def _add_normals(normals, groups, x, u, at, gradient):  # type: ignore[no-untyped-def]
    """Prior of the rows r = B x - m; `at` is the slope in every level, and is added to."""
    r = _times(normals.matrix, x)
    force, square = np.empty(len(r)), np.zeros(len(groups.shape))
    value = 0.0
    for j in range(len(r)):
        level, group = normals.level[j], normals.group[j]
        r[j] -= normals.mean[j]
        force[j] = normals.precision[j] * r[j]
        if level >= 0:
            force[j] *= exp(u[level])
            value += 0.5 * u[level]
            at[level] += 0.5
        if group >= 0:
            square[group] += force[j] * r[j]
    value -= _log_rates(groups, square)
    for j in range(len(r)):
        level, group = normals.level[j], normals.group[j]
        if group >= 0:
            force[j] *= square[group]
        else:
            value -= 0.5 * force[j] * r[j]
        if level >= 0:
            at[level] -= 0.5 * force[j] * r[j]
        force[j] = -force[j]
    _add_transposed(normals.matrix, force, gradient)
    return value


@njit(cache=True, error_model="numpy")
def _log_rates(groups, square):  # type: ignore[no-untyped-def]
    """Σ (a + n/2) log(b + ½ square); each square is overwritten by the mean of its precision.

    Groups of one shape, as the weights of a block have it, share a logarithm: that of a product.
    """
    value, product, before = 0.0, 1.0, 0.0
    for g in range(len(square)):
        shape, rate = groups.shape[g] + 0.5 * groups.size[g], groups.rate[g] + 0.5 * square[g]
        if shape != before or not _SMALL < product < _LARGE:
            value += before * log(product)
            product, before = 1.0, shape
        product *= rate
        square[g] = shape / rate
    return value + before * log(product)


@njit(cache=True, error_model="numpy")
def _scaled(columns, u, x):  # type: ignore[no-untyped-def]
    """Z, the weights with the scales of their columns."""
    z = x[: len(columns)].copy()
    for j in range(len(z)):
        if columns[j] >= 0:
            z[j] *= exp(u[columns[j]])
    return z


@njit(cache=True, error_model="numpy")
def _noisy(row, u):  # type: ignore[no-untyped-def]
    """Row of a Gaussian whose precision is exp(u) times what the table says."""
    return (row[0], row[1] * exp(u), row[2], row[3], row[4], row[5] + 0.5 * u, row[6], row[7])


@njit(cache=True, error_model="numpy")
def _add_sites(rows, eta, u, at):  # type: ignore[no-untyped-def]
    """Σ log sites of rows of any family; each eta is overwritten by the slope."""
    value = 0.0
    for n in range(len(eta)):
        row, noise = row_of(rows.table, n), rows.noise[n]
        if noise >= 0:
            row = _noisy(row, u[noise])
            gap = eta[n] - row[0]
            at[noise] += 0.5 - 0.5 * row[1] * gap * gap
        value += log_site(rows.code[n], row, eta[n])
        eta[n] = site_derivatives(rows.code[n], row, eta[n])[0]
    return value


@njit(cache=True, error_model="numpy")
def _add_rows(rows, link, x, u, at, gradient):  # type: ignore[no-untyped-def]
    """Log likelihood; like `_add_normals`."""
    z = _scaled(rows.columns, u, x)
    eta = _predictor(rows, z)
    if link == LOGISTIC:
        value = add_log_sigmoid(eta)
    elif link == PROBIT:
        value = add_log_cdf(eta)
    else:
        value = _add_sites(rows, eta, u, at)
    force = _pulled_back(rows, eta)
    for j in range(len(z)):
        level = rows.columns[j]
        if level >= 0:
            at[level] += force[j] * z[j]
            force[j] *= exp(u[level])
        gradient[j] += force[j]
    return value


@njit(cache=True, error_model="numpy")
def _evaluate(density, x, gradient):  # type: ignore[no-untyped-def]
    """Log density; its gradient is written into `gradient`."""
    gradient[:] = 0.0
    u = _levels(density, x)
    at = np.zeros(len(u))
    value = density.constant[0]
    value += _add_normals(density.normals, density.groups, x, u, at, gradient)
    singles = density.singles
    for k in range(len(singles.at)):
        j = singles.at[k]
        row = row_of(singles.table, k)
        value += log_site(singles.code[k], row, x[j])
        gradient[j] += site_derivatives(singles.code[k], row, x[j])[0]
    value += _add_rows(density.rows, density.link, x, u, at, gradient)
    _add_transposed(density.levels, at, gradient)
    return value


# ------------------------------------------------------------------------- functions for callers


def gradient_at(packed: Packed, x: Array) -> tuple[float, Array]:
    """Log density and gradient at one point, by the very function that nutpie calls."""
    x, value = np.ascontiguousarray(x, dtype=np.float64), ctypes.c_double()
    gradient, address = np.empty(len(x)), packed.address
    at, to = (array.ctypes.data_as(_DOUBLES) for array in (x, gradient))
    LOG_DENSITY.ctypes(len(x), at, to, ctypes.byref(value), address.ctypes.data)
    return value.value, gradient


@njit(cache=True, error_model="numpy", nogil=True)
def _log_rows(sizes, whole, real, x):  # type: ignore[no-untyped-def]
    """Log sites of rows of any family."""
    density = unpacked(sizes, whole, real)
    rows = density.rows
    found = np.empty((len(x), len(rows.code)))
    for i in range(len(x)):
        u = _levels(density, x[i])
        eta = _predictor(rows, _scaled(rows.columns, u, x[i]))
        for n in range(len(eta)):
            row = row_of(rows.table, n)
            if rows.noise[n] >= 0:
                row = _noisy(row, u[rows.noise[n]])
            found[i, n] = log_site(rows.code[n], row, eta[n])
    return found


@njit(cache=True, error_model="numpy", nogil=True)
def _split_rows(sizes, whole, real, x):  # type: ignore[no-untyped-def]
    """Rows of one link: log site = line + log factor."""
    density = unpacked(sizes, whole, real)
    rows = density.rows
    line, factor = np.empty((2, len(x), len(rows.code)))
    for i in range(len(x)):
        u = _levels(density, x[i])
        eta = _predictor(rows, _scaled(rows.columns, u, x[i]))
        if density.link == LOGISTIC:
            split_sigmoid(eta, factor[i], line[i])
        else:
            split_cdf(eta, factor[i], line[i])
    return line, factor


def log_rows(packed: Packed, x: Array) -> Array:
    """Log sites of the rows (..., N) at points x (..., n)."""
    flat = np.ascontiguousarray(x.reshape(-1, x.shape[-1]), dtype=np.float64)
    if packed.sizes[-1] < 0:
        found = _log_rows(*packed, flat)
    else:
        found, factor = _split_rows(*packed, flat)
        found += np.log(factor, out=factor)  # NumPy takes several at a time
    return np.asarray(found.reshape((*x.shape[:-1], -1)))


@njit(cache=True, error_model="numpy", nogil=True)
def _group_rates(sizes, whole, real, x):  # type: ignore[no-untyped-def]
    density = unpacked(sizes, whole, real)
    normals = density.normals
    found = np.empty((len(x), len(density.groups.rate)))
    for i in range(len(x)):
        u = _levels(density, x[i])
        r = _times(normals.matrix, x[i]) - normals.mean
        found[i] = density.groups.rate
        for j in range(len(r)):
            if normals.group[j] >= 0:
                scale = 1.0 if normals.level[j] < 0 else exp(u[normals.level[j]])
                found[i, normals.group[j]] += 0.5 * normals.precision[j] * scale * r[j] * r[j]
    return found


def group_rates(packed: Packed, x: Array) -> Array:
    """Rates b + ½ Σ_j p_j r_j² (..., G) of the precisions that are integrated out, given x."""
    flat = np.ascontiguousarray(x.reshape(-1, x.shape[-1]), dtype=np.float64)
    return np.asarray(_group_rates(*packed, flat).reshape((*x.shape[:-1], -1)))


def _make_pointer(typing_context: Any, address: Any) -> Any:
    """Make a pointer of an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


_pointer: Any = intrinsic(_make_pointer)
_DOUBLES = ctypes.POINTER(ctypes.c_double)
_REAL: Any = types.CPointer(types.float64)  # type: ignore[no-untyped-call]


@cfunc(types.int64(types.uint64, _REAL, _REAL, _REAL, types.voidptr), cache=True)
def LOG_DENSITY(size, x_at, gradient_to, value_to, address):  # type: ignore[no-untyped-def]
    """Log density and gradient for nutpie; `address` is that of a `Packed.address`."""
    blocks = carray(address, 3, np.int64)
    sizes = carray(_pointer(blocks[0]), 14, np.int64)
    whole = carray(_pointer(blocks[1]), sizes[8], np.int64)
    real = carray(_pointer(blocks[2]), sizes[9], np.float64)
    x, gradient = carray(x_at, size), carray(gradient_to, size)
    value = _evaluate(unpacked(sizes, whole, real), x, gradient)
    carray(value_to, 1)[0] = value
    finite = np.isfinite(value) and np.all(np.isfinite(gradient))
    return 0 if finite else NOT_FINITE


@cfunc(types.int64(types.uint64, types.uint64, _REAL, _REAL, types.voidptr), cache=True)
def COPY(size, stored, x_at, stored_to, _address):  # type: ignore[no-untyped-def]
    """What nutpie stores of a point: the point itself."""
    carray(stored_to, stored)[:] = carray(x_at, size)
    return 0
