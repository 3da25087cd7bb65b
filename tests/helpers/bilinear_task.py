"""A regression that a sample-feature machine has made: what its fits must find is known."""

from typing import NamedTuple

import numpy as np

from ardvark.inference.sites.arrays import Array


class Bilinear(NamedTuple):
    """Training and test rows, and the weights that made them."""

    X: Array
    t: Array
    X_test: Array
    f_test: Array  # without noise
    w: Array  # of samples
    lam: Array  # of features


def bilinear() -> Bilinear:
    """Give t = sum_ij w_i lam_j exp(-(x_j - x_ij)²) + noise: 8 samples and 3 features matter."""
    rng = np.random.default_rng(606)
    X, X_test = rng.uniform(-2, 2, (100, 10)), rng.uniform(-2, 2, (500, 10))
    w, lam = np.zeros(100), np.zeros(10)
    sizes = rng.choice([-1.0, 1.0], 8) * rng.uniform(1, 2, 8)
    w[rng.choice(100, 8, replace=False)] = sizes
    lam[:3] = [1.5, 1.0, 0.7]
    f, f_test = (
        np.exp(-((Z[:, None, :3] - X[None, :, :3]) ** 2)) @ lam[:3] @ w for Z in (X, X_test)
    )
    return Bilinear(X, f + 0.1 * rng.standard_normal(100), X_test, f_test, w, lam)
