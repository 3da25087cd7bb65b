"""Synthetic tasks for the speeds: fixed seeds, so every contestant gets the same arrays.

sparse_probit   N = 500, d = 50: a plain linear probit, ten weights that matter
wide            N = 36, d = 7129 (leukaemia's shape) or 62 x 2000 (colon's): latent factors make
                columns correlate, twenty columns are shifted between the classes
curved          N = 400, d = 13: four inputs matter, each in a way that no line can follow
sinc            sin(x)/x on (-10, 10) with noise of sd 0.1: a kernel exp(-|x - c|²/9) at each row
ripley          two classes of two Gaussians each in the plane: exp(-4 |x - c|²) at each row
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ardvark.inference.sites.arrays import Array, Index

__all__ = [
    "WORKLOADS",
    "KernelTask",
    "Task",
    "curved",
    "ripley",
    "sinc",
    "sparse_probit",
    "wide",
]


class Task(NamedTuple):
    """Training and test rows of a two-class task, and the columns that matter."""

    X: Array
    t: Index  # 0 or 1
    X_test: Array
    t_test: Index
    informative: Index


class KernelTask(NamedTuple):
    """Rows for a machine with a kernel exp(-gamma |x - c|²) at each of them, and a constant."""

    X: Array
    t: NDArray[Any]
    X_test: Array
    t_test: NDArray[Any]  # without noise
    gamma: float


def sparse_probit(
    rows: int = 500, features: int = 50, relevant: int = 10, tests: int = 2000, seed: int = 101
) -> Task:
    """Linear probit: the first weights are ±(0.5 … 1.5), the rest zero."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, features))
    w = np.zeros(features)
    w[:relevant] = rng.choice([-1.0, 1.0], relevant) * np.linspace(0.5, 1.5, relevant)
    t = (rng.random(rows) < ndtr(X @ w)).astype(np.int64)
    X_test = rng.standard_normal((tests, features))
    t_test = (rng.random(tests) < ndtr(X_test @ w)).astype(np.int64)
    return Task(X, t, X_test, t_test, np.arange(relevant))


def wide(
    rows: int, features: int, informative: int = 20, factors: int = 5, tests: int = 400
) -> Task:
    """Gene-expression shape; columns standardised with the moments of the training rows."""
    rng = np.random.default_rng(202 + features)
    loadings = rng.standard_normal((factors, features)) * (rng.random((factors, features)) < 0.2)
    columns = rng.choice(features, informative, replace=False)
    shift = rng.choice([-1.0, 1.0], informative) * 1.6

    def draw(n: int) -> tuple[Array, Index]:
        t = np.arange(n) % 2
        rng.shuffle(t)
        X = rng.standard_normal((n, factors)) @ loadings + rng.standard_normal((n, features))
        X[:, columns] += np.where(t[:, None] == 1, shift, 0.0)
        return X, t

    X, t = draw(rows)
    X_test, t_test = draw(tests)
    centre, scale = X.mean(axis=0), X.std(axis=0)
    return Task((X - centre) / scale, t, (X_test - centre) / scale, t_test, columns)


def curved(rows: int = 400, features: int = 13, tests: int = 1000, seed: int = 505) -> Task:
    """Probit of a sine, a product and a square of the first four inputs."""
    rng = np.random.default_rng(seed + rows)

    def predictor(X: Array) -> Array:
        bends = 2.5 * np.sin(1.5 * X[:, 0]) + 2.0 * X[:, 1] * X[:, 2] + 1.5 * (X[:, 3] ** 2 - 1.0)
        return np.asarray(bends)

    X, X_test = rng.standard_normal((rows, features)), rng.standard_normal((tests, features))
    t = (rng.random(rows) < ndtr(predictor(X))).astype(np.int64)
    t_test = (rng.random(tests) < ndtr(predictor(X_test))).astype(np.int64)
    return Task(X, t, X_test, t_test, np.arange(4))


def sinc(rows: int, noise: float = 0.1) -> KernelTask:
    """Regression of one input; the test rows are a grid."""
    rng = np.random.default_rng(303 + rows)
    X = np.sort(rng.uniform(-10, 10, rows))[:, None]
    grid = np.linspace(-10, 10, 1000)[:, None]
    signal = np.sinc(X[:, 0] / np.pi)
    t = signal + noise * rng.standard_normal(rows)
    return KernelTask(X, t, grid, np.sinc(grid[:, 0] / np.pi), 1 / 9)


def ripley(rows: int, tests: int = 2000) -> KernelTask:
    """Two overlapping classes, each a mixture of two round Gaussians of variance 0.03."""
    rng = np.random.default_rng(404 + rows)
    centres = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])

    def draw(n: int) -> tuple[Array, Index]:
        t = np.arange(n) % 2
        rng.shuffle(t)
        middle = centres[t, rng.integers(0, 2, n)]
        return middle + math.sqrt(0.03) * rng.standard_normal((n, 2)), t

    return KernelTask(*draw(rows), *draw(tests), 4.0)


WORKLOADS: dict[str, Callable[..., Task | KernelTask]] = {
    "sparse_probit": sparse_probit,
    "wide": wide,
    "curved": curved,
    "sinc": sinc,
    "ripley": ripley,
}
