"""Small fits by `hyper=Sampled()`, and how two of them are compared."""

import numpy as np

import ardvark as av
from ardvark.inference.sampled.kernels import PROBIT

QUIET = {"progressbar": False, "random_seed": 3}


def small_data(n=25, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (1.5 * X[:, 0] + rng.normal(size=n) > 0).astype(int)


def z_of(one, two):
    """Difference of two chains' means of log alpha, w and w², in joint batch standard errors."""

    def summary(tree):
        p = tree["posterior"].dataset
        w, alpha = p["w"].values, p["alpha"].values
        values = np.concatenate([w, w**2, np.log(alpha)], axis=-1)
        values = values.reshape(-1, values.shape[-1])
        batches = values[: len(values) // 40 * 40].reshape(40, -1, values.shape[-1]).mean(axis=1)
        return batches.mean(axis=0), batches.var(axis=0, ddof=1) / 40

    (m1, v1), (m2, v2) = summary(one), summary(two)
    return np.abs(m1 - m2) / np.sqrt(v1 + v2)


def run(model, draws=6000, method=None, **sampled):
    settings = (method or av.EP)(hyper=av.Sampled(tune=200, **sampled))
    return av.fit(model, settings, draws=draws, chains=2, **QUIET)


def draw_labels(family, eta, rng):
    noise = rng.normal(size=eta.size) if family == PROBIT else rng.logistic(size=eta.size)
    return np.where(eta + noise > 0, 1.0, -1.0)


def functionals(w, alpha, A):
    """Ten bounded functions, so that heavy tails of w do not spoil the errors."""
    e = np.tanh(A @ w)
    return np.array([
        *np.tanh(w), *(1 / (1 + alpha)), np.tanh(w[0] * w[1]), e[0] * e[1], e.mean(), np.tanh(w @ w)
    ])  # fmt: skip
