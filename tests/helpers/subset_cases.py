"""Small subset problems, as graphs and as arrays, that several tests share."""

from itertools import product
from typing import Any

import numpy as np
from scipy import integrate, stats
from scipy.special import log_expit, log_ndtr

from ardvark.inference.subset.collapsed import Subsets
from ardvark.inference.subset.run import subset_problem
from ardvark.models.subset import subset_classification, subset_regression


def data(n_rows: int, n_inputs: int, seed: int) -> tuple[Any, Any]:
    """Inputs, two of them alike, and a noisy score."""
    rng = np.random.default_rng([7, seed])
    X = rng.normal(size=(n_rows, n_inputs))
    X[:, 1] = X[:, 0] + 0.4 * rng.normal(size=n_rows)
    return X, 0.5 * X[:, 0] - 0.4 * X[:, 2] + 0.8 * rng.normal(size=n_rows)


def regression(n_rows: int = 40, n_inputs: int = 8, seed: int = 1, **settings: Any) -> Any:
    X, score = data(n_rows, n_inputs, seed)
    return subset_regression(X, 3.0 + score, **({"expected_inputs": 2.0} | settings))


def two_classes(n_rows: int = 40, n_inputs: int = 4, seed: int = 2, **settings: Any) -> Any:
    X, score = data(n_rows, n_inputs, seed)
    t = (score > 0).astype(int)
    return subset_classification(X, t, **({"expected_inputs": 1.5} | settings))


def codes(included: Any) -> Any:
    """Indicators (..., d) as integers: bit j is input j."""
    return np.asarray(included).astype(int) @ (1 << np.arange(np.shape(included)[-1]))


def frequencies(visited: Any, n_inputs: int) -> tuple[Any, Any]:
    """Share of each of the 2^d subsets, and its batch-means error, from (chain, sweep, d)."""
    batches = np.concatenate([np.array_split(chain, 25) for chain in codes(visited)])
    share = np.array([np.bincount(b, minlength=2**n_inputs) / len(b) for b in batches])
    return share.mean(axis=0), share.std(axis=0, ddof=1) / np.sqrt(len(share))


def two_class_probabilities(problem: Subsets, probit: bool) -> Any:
    """P(I | t) of a two-class problem of 2 inputs, fixed slab, by the trapezoidal rule.

    The nodes are 0.14 apart, half a posterior sd or less: the error is below 1e-9.
    """
    log_site = log_ndtr if probit else log_expit
    x = np.arange(-5.6, 5.61, 0.14)
    found = np.zeros(4)
    for subset in product((0, 1), repeat=2):
        columns = [0, *(j + 1 for j in range(2) if subset[j])]
        grid = np.stack(np.meshgrid(*[x] * len(columns)), axis=-1).reshape(-1, len(columns))
        prior = stats.norm.logpdf(grid, 0, problem.alpha[columns] ** -0.5).sum(axis=1)
        log_t = np.zeros(len(grid))
        for row, sign in zip(problem.A[:, columns], problem.t, strict=True):
            log_t += log_site(sign * (grid @ row))
        value = np.logaddexp.reduce(prior + log_t) + len(columns) * np.log(0.14)
        value += problem.log_prior[sum(subset)]
        found[codes(np.array(subset))] = np.exp(value)
    return found / found.sum()


def evidence_by_hand(problem: Subsets, subset: Any) -> float:
    """Log p(t | I) of a regression, sigma integrated adaptively: scipy only."""
    columns = [0, *(j + 1 for j, on in enumerate(subset) if on)]
    A = problem.A[:, columns]
    prior = A @ np.diag(1 / problem.alpha[columns]) @ A.T

    def log_density(sigma: float) -> float:
        covariance = prior + sigma**2 * np.eye(len(A))
        return float(stats.multivariate_normal.logpdf(problem.t, cov=covariance))

    if problem.scale == 0.0:
        return log_density(problem.sigma)
    grid = np.linspace(0.05, 6, 400) * problem.scale
    top = max(log_density(s) for s in grid[::10])

    def integrand(sigma: float) -> float:
        half_normal = stats.halfnorm.pdf(sigma, scale=problem.scale)
        return float(np.exp(log_density(sigma) - top) * half_normal)

    value, _ = integrate.quad(integrand, 1e-3 * problem.scale, 8 * problem.scale, epsrel=1e-10)
    return float(np.log(value) + top)


__all__ = [
    "codes",
    "data",
    "evidence_by_hand",
    "frequencies",
    "regression",
    "subset_problem",
    "two_class_probabilities",
    "two_classes",
]
