"""The joint density on arrays: against direct sums, quadrature and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma, norm

from ardvark.inference.known_sites import known, packed
from ardvark.inference.known_sites.joint_density import gradient_at, group_rates, log_rows
from ardvark.inference.known_sites.known import KnownSites
from ardvark.inference.known_sites.packed import (
    Groups,
    JointDensity,
    Normals,
    Rows,
    Singles,
    Sparse,
    pack,
)

ROWS, WEIGHTS = 7, 3
rng = np.random.default_rng(7)
A, OFFSET = rng.normal(size=(ROWS, WEIGHTS)), rng.normal(size=ROWS)
TARGET, MEAN = rng.normal(size=ROWS), np.array([0.0, 0.4, -0.2])


def sites_of_all_kinds() -> KnownSites:
    parts = [
        known.gaussian(TARGET[:3], [0.5, 2.0, 1.0]),
        known.logistic([2.0, 1.0], [1.0, 0.0]),
        known.probit([1.0]),
        known.exponential([3.0]),
    ]
    return KnownSites(
        np.concatenate([p.code for p in parts]), np.concatenate([p.table for p in parts])
    )


def density_of_all_parts(sites: KnownSites | None = None) -> JointDensity:
    """Three weights and two φ: the noise of three rows, a scale of the first column and row."""
    sites = sites_of_all_kinds() if sites is None else sites
    noise = np.where(np.arange(ROWS) < 3, 0, -1) if np.any(sites.code == 0) else np.full(ROWS, -1)
    chained = np.array([[1.0, 0.0, 0.0], [-0.5, 1.0, 0.0], [0.0, 0.0, 1.0]])
    i, j = np.nonzero(chained)
    singles = known.exponential([2.0, 1.5], 1.0, 0.3)
    return JointDensity(
        Rows(A, OFFSET, sites.code, sites.table, noise, np.array([1, -1, -1])),
        Singles(np.array([3, 4]), singles.code, singles.table),
        Normals(
            Sparse(np.array([0, 1, 3, 4]), j, chained[i, j]), MEAN, np.array([1.5, 0.7, 1.0]),
            np.array([2, -1, -1]), np.array([-1, -1, 0]),
        ),
        Groups(np.array([2.0]), np.array([0.6]), np.array([1.0])),
        Sparse(np.array([0, 1, 2, 4]), np.array([3, 4, 3, 4]), np.array([-2.0, 1.0, 1.0, -0.5])),
        np.array([0.1, -0.2, 0.3]), np.array([0.25]),
    )  # fmt: skip


def by_hand(x: Any) -> float:
    """The formula of the module's first lines, written out."""
    u = np.array([-2 * x[3] + 0.1, x[4] - 0.2, x[3] - 0.5 * x[4] + 0.3])
    z = x[:3] * [np.exp(u[1]), 1.0, 1.0]
    eta = A @ z + OFFSET
    sites = sites_of_all_kinds()
    rows = sites.log(eta)
    precision = np.array([0.5, 2.0, 1.0]) * np.exp(u[0])
    rows[:3] = 0.5 * u[0] - 0.5 * precision * (eta[:3] - TARGET[:3]) ** 2
    r = np.array([x[0], x[1] - 0.5 * x[0], x[2]]) - MEAN
    prior = 0.5 * u[2] - 0.75 * np.exp(u[2]) * r[0] ** 2 - 0.35 * r[1] ** 2
    prior -= 2.5 * np.log(0.6 + 0.5 * r[2] ** 2)
    singles = 2.0 * x[3] - np.exp(x[3] + 0.3) + 1.5 * x[4] - np.exp(x[4] + 0.3)
    return float(rows.sum() + prior + singles + 0.25)


def points() -> Any:
    return np.random.default_rng(3).normal(0.0, 0.8, (6, WEIGHTS + 2))


def test_value_by_hand() -> None:
    packed = pack(density_of_all_parts())
    for x in points():
        np.testing.assert_allclose(gradient_at(packed, x)[0], by_hand(x), rtol=1e-12)


@pytest.mark.parametrize("make", [sites_of_all_kinds, lambda: known.probit(np.ones(ROWS), 0.3)])
def test_a_projection_taken_entry_by_entry_is_the_same(make: Any, monkeypatch: Any) -> None:
    density = density_of_all_parts(make())
    holes = A * (np.arange(A.size).reshape(A.shape) % 3 > 0)
    density = density._replace(rows=density.rows._replace(projection=holes))
    full = pack(density)
    monkeypatch.setattr(packed, "THIN", 1.0)
    thin = pack(density)
    assert thin.real.size < full.real.size
    for x in points():
        one, other = gradient_at(full, x), gradient_at(thin, x)
        np.testing.assert_allclose(other[0], one[0], rtol=1e-12)
        np.testing.assert_allclose(other[1], one[1], rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(log_rows(thin, x), log_rows(full, x), rtol=1e-11, atol=1e-12)


def logit_rows() -> KnownSites:
    return known.logistic(1.0, 0.0, np.where(TARGET > 0, 1.0, -1.0))


def probit_rows() -> KnownSites:
    return known.probit(np.where(TARGET > 0, 1.0, -1.0), 0.3)


@pytest.mark.parametrize("make", [sites_of_all_kinds, logit_rows, probit_rows])
def test_gradient_is_the_slope_and_rows_are_the_likelihood(make: Any) -> None:
    density = density_of_all_parts(make())
    packed, step = pack(density), 1e-6
    alone = pack(density._replace(rows=density.rows._replace(code=np.zeros(ROWS, int),
                 table=np.zeros((ROWS, 8)), noise=np.full(ROWS, -1))))  # fmt: skip
    for x in points():
        value, gradient = gradient_at(packed, x)
        ends = [[gradient_at(packed, x + s * step * e)[0] for s in (1, -1)] for e in np.eye(len(x))]
        slope = np.diff(np.array(ends)[:, ::-1], axis=1)[:, 0] / (2 * step)
        np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-7)
        rest = gradient_at(alone, x)[0]
        np.testing.assert_allclose(log_rows(packed, x).sum(), value - rest, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 9])
def test_any_number_of_rows(rows: int) -> None:
    X, x = rng.normal(size=(rows, 2)), np.array([0.3, -0.7])
    sites = known.probit(np.ones(rows))
    nothing = np.zeros(0)
    whole = nothing.astype(np.int64)
    density = JointDensity(
        Rows(X, np.zeros(rows), sites.code, sites.table, np.full(rows, -1), np.full(2, -1)),
        Singles(whole, whole, np.zeros((0, 8))),
        Normals(Sparse(np.arange(3), np.arange(2), np.ones(2)), np.zeros(2), np.ones(2),
                np.full(2, -1), np.full(2, -1)),
        Groups(nothing, nothing, nothing),
        Sparse(np.zeros(1, dtype=np.int64), whole, nothing), nothing, np.zeros(1),
    )  # fmt: skip
    value, gradient = gradient_at(pack(density), x)
    expected = norm.logcdf(X @ x).sum() - 0.5 * x @ x
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    slope = X.T @ np.exp(norm.logpdf(X @ x) - norm.logcdf(X @ x)) - x
    np.testing.assert_allclose(gradient, slope, rtol=1e-11)


def test_a_group_is_its_integral_over_the_precision() -> None:
    """By quadrature over α of two rows that share it; the rate given x is that of its Gamma."""
    a, b, precision = 1.7, 0.4, np.array([1.5, 0.7])
    nothing, x = np.zeros(0), np.array([0.9, -0.3])
    whole = nothing.astype(np.int64)
    density = JointDensity(
        Rows(np.zeros((0, 2)), nothing, whole, np.zeros((0, 8)), whole, np.full(2, -1)),
        Singles(whole, whole, np.zeros((0, 8))),
        Normals(Sparse(np.arange(3), np.arange(2), np.ones(2)), np.zeros(2), precision,
                np.full(2, -1), np.zeros(2, dtype=np.int64)),
        Groups(np.array([a]), np.array([b]), np.array([2.0])),
        Sparse(np.zeros(1, dtype=np.int64), whole, nothing), nothing, np.zeros(1),
    )  # fmt: skip

    def integral(w: Any) -> float:
        def integrand(alpha: float) -> float:
            sd = 1.0 / np.sqrt(alpha * precision)
            return float(gamma.pdf(alpha, a, scale=1 / b) * np.prod(norm.pdf(w, 0.0, sd)))

        return float(np.log(quad(integrand, 0.0, np.inf, epsabs=0, epsrel=1e-10)[0]))

    packed = pack(density)
    ours = [gradient_at(packed, w)[0] for w in (x, 3 * x)]
    np.testing.assert_allclose(np.diff(ours)[0], integral(3 * x) - integral(x), rtol=1e-8)
    np.testing.assert_allclose(group_rates(packed, x)[0], b + 0.5 * np.sum(precision * x**2))
