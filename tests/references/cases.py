"""Small models whose posterior is kept as a reference: data, graph, names."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

import ardvark as av

FOLDER = __file__.rsplit("/", 1)[0]


class ReferenceCase(NamedTuple):
    build: Callable[[], Any]
    weights: tuple[str, ...]
    predictor: str = "eta"


def _inputs(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ np.linspace(1.2, -0.8, d), rng


def probit() -> Any:
    X, score, rng = _inputs(60, 5, 1)
    return av.models.ard_classification(
        X,
        (score + rng.normal(size=60) > 0).astype(int),
        alpha=np.array([1.0, 0.5, 1.0, 2.0, 1.0, 3.0]),
    )


def logit() -> Any:
    X, score, rng = _inputs(60, 5, 2)
    return av.models.ard_classification(
        X,
        (score + rng.logistic(size=60) > 0).astype(int),
        link="logit",
        alpha=np.array([1.0, 0.5, 1.0, 2.0, 1.0, 3.0]),
    )


def poisson() -> Any:
    """A count model in a user's own words."""
    X, score, rng = _inputs(50, 3, 3)
    visits = rng.poisson(np.exp(0.3 + 0.5 * score))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        level = pm.Normal("level", 0, 2)
        rate = pm.Deterministic("log_rate", level + X @ beta)
        pm.Poisson("visits", mu=pm.math.exp(rate), observed=visits)
    return model


def student() -> Any:
    """A robust regression in a user's own words; two gross outliers."""
    X, score, rng = _inputs(40, 3, 4)
    y = score + 0.3 * rng.normal(size=40)
    y[[3, 17]] += [6.0, -5.0]
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 2, shape=3)
        mu = pm.Deterministic("mu", pm.math.dot(X, slopes))
        pm.StudentT("y", nu=4, mu=mu, sigma=0.3, observed=y)
    return model


def softmax() -> Any:
    """Three classes on a kernel at 18 rows, precisions given."""
    X, score, rng = _inputs(18, 2, 5)
    t = np.digitize(score + rng.normal(size=18), [-0.7, 0.7])
    return av.models.rvm_classification(X, t, kernel=av.RBF(width=1.0), alpha=1.0)


def free_probit() -> Any:
    """Precisions inferred."""
    X, score, rng = _inputs(60, 5, 5)
    return av.models.ard_classification(X, (score + rng.normal(size=60) > 0).astype(int))


def free_logit() -> Any:
    """Precisions inferred."""
    X, score, rng = _inputs(60, 5, 6)
    t = (score + rng.logistic(size=60) > 0).astype(int)
    return av.models.ard_classification(X, t, link="logit")


def free_regression() -> Any:
    """Precisions and noise inferred."""
    X, score, rng = _inputs(40, 5, 7)
    return av.models.ard_regression(X, score + 0.8 * rng.normal(size=40))


CASES = {
    "probit": ReferenceCase(probit, ("bias", "w")),
    "logit": ReferenceCase(logit, ("bias", "w")),
    "poisson": ReferenceCase(poisson, ("beta", "level"), "log_rate"),
    "student": ReferenceCase(student, ("slopes",), "mu"),
}
SEVERAL_CLASSES = {"softmax": ReferenceCase(softmax, ("bias", "w"))}

FREE_CASES = {  # hyperparameters inferred too: for methods that take them into the posterior
    "free_probit": ReferenceCase(free_probit, ("bias", "w", "alpha_bias", "alpha")),
    "free_logit": ReferenceCase(free_logit, ("bias", "w", "alpha_bias", "alpha")),
    "free_regression": ReferenceCase(
        free_regression, ("bias", "w", "alpha_bias", "alpha", "sigma")
    ),
}
