"""Random models with sparse structure, small enough that dense arrays give the same answer.

Each is a function of a random generator; `KINDS` has them by name.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.sparse
import pytensor.tensor as pt
import scipy.sparse

__all__ = ["KINDS"]

LIKELIHOODS = ("logit", "poisson", "gaussian")


def observe(rng: Any, eta: Any, truth: Any, likelihood: str) -> None:
    """One observed variable of the model that is being built."""
    if likelihood == "logit":
        t = rng.binomial(1, 1.0 / (1.0 + np.exp(-truth)))
        pm.Bernoulli("t", logit_p=eta, observed=t)
    elif likelihood == "poisson":
        t = rng.poisson(np.exp(np.clip(truth, -3.0, 2.5)))
        pm.Poisson("t", mu=pm.math.exp(eta), observed=t)
    else:
        noise = pm.HalfNormal("noise", 1.0)
        pm.Normal("t", eta, noise, observed=truth + rng.normal(size=len(truth)))


def _pick(rng: Any) -> str:
    return LIKELIHOODS[rng.integers(3)]


def _groups(rng: Any, rows: int, groups: int) -> Any:
    return rng.permutation(np.arange(rows) % groups)


def one_way(rng: Any) -> Any:
    """Random intercepts, centred: the mean of the prior is a weight."""
    groups, rows = int(rng.integers(8, 40)), int(rng.integers(60, 140))
    g, X = _groups(rng, rows, groups), rng.normal(size=(rows, 2))
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0.3, 2.0), pm.HalfNormal("s", 1.0)
        b = pm.Normal("b", 0.0, 2.0, shape=2)
        u = pm.Normal("u", mu, s, shape=groups)
        observe(rng, u[g] + X @ b, rng.normal(size=groups)[g] + X @ [0.5, -0.3], _pick(rng))
    return model


def not_centred(rng: Any) -> Any:
    """Random intercepts and slopes under scales: the projection moves with them."""
    groups, rows = int(rng.integers(8, 30)), int(rng.integers(60, 140))
    g, x = _groups(rng, rows, groups), rng.normal(size=rows)
    with pm.Model() as model:
        a, s = pm.Normal("a", 0.0, 3.0), pm.HalfNormal("s", 1.0, shape=2)
        z = pm.Normal("z", 0.0, 1.0, shape=(groups, 2))
        eta = a + s[0] * z[g, 0] + s[1] * z[g, 1] * x
        observe(rng, eta, 0.7 * rng.normal(size=groups)[g] + 0.4 * x, _pick(rng))
    return model


def crossed(rng: Any) -> Any:
    """Two crossed factors with a fixed effect and an offset."""
    rows, sizes = int(rng.integers(80, 160)), rng.integers(6, 25, size=2)
    g, h = (_groups(rng, rows, int(n)) for n in sizes)
    x = rng.normal(size=rows)
    with pm.Model() as model:
        s, r = pm.HalfNormal("s", 1.0), pm.Gamma("r", 2.0, 2.0)
        b = pm.Normal("b", 0.0, 1.0)
        u = pm.Normal("u", 0.0, s, shape=int(sizes[0]))
        v = pm.Normal("v", 0.0, r, shape=int(sizes[1]))
        truth = 0.5 * rng.normal(size=sizes[0])[g] + 0.5 * rng.normal(size=sizes[1])[h]
        observe(rng, 0.2 + b * x + u[g] + v[h], truth, _pick(rng))
    return model


def nested(rng: Any) -> Any:
    """Groups within larger groups: a chain of Normals."""
    outer, inner, rows = 5, int(rng.integers(12, 30)), int(rng.integers(80, 140))
    place, g = np.arange(inner) % outer, _groups(rng, rows, inner)
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 2.0)
        s, r = pm.HalfNormal("s", 1.0), pm.HalfNormal("r", 1.0)
        upper = pm.Normal("upper", a, r, shape=outer)
        lower = pm.Normal("lower", upper[place], s, shape=inner)
        observe(rng, lower[g], rng.normal(size=inner)[g], _pick(rng))
    return model


def slopes(rng: Any) -> Any:
    """Correlated intercepts and slopes by a multivariate normal."""
    groups, rows = int(rng.integers(8, 25)), int(rng.integers(80, 140))
    g, x = _groups(rng, rows, groups), rng.normal(size=rows)
    with pm.Model() as model:
        s, rho = pm.HalfNormal("s", 1.0, shape=2), pm.Beta("rho", 4.0, 4.0)
        cross = (2.0 * rho - 1.0) * s[0] * s[1]
        covariance = pt.stack([pt.stack([s[0] ** 2, cross]), pt.stack([cross, s[1] ** 2])])
        b = pm.Normal("b", 0.0, 2.0, shape=2)
        u = pm.MvNormal("u", mu=b, cov=covariance, shape=(groups, 2))
        observe(rng, u[g, 0] + u[g, 1] * x, rng.normal(size=groups)[g], _pick(rng))
    return model


def walk(rng: Any) -> Any:
    """A Gaussian random walk with a fixed effect."""
    size = int(rng.integers(30, 90))
    x = rng.normal(size=size)
    with pm.Model() as model:
        s = pm.HalfNormal("s", 0.5)
        b = pm.Normal("b", 0.0, 1.0)
        v = pm.GaussianRandomWalk(
            "v", mu=0.05, sigma=s, init_dist=pm.Normal.dist(0.5, 1.0), shape=size
        )
        observe(rng, v + b * x, np.cumsum(0.3 * rng.normal(size=size)), _pick(rng))
    return model


def autoregression(rng: Any) -> Any:
    """An autoregression of second order with a constant."""
    size = int(rng.integers(30, 90))
    with pm.Model() as model:
        rho, s = pm.Normal("rho", [0.1, 0.5, 0.2], 0.1, shape=3), pm.HalfNormal("s", 0.5)
        v = pm.AR("v", rho=rho, sigma=s, constant=True, init_dist=pm.Normal.dist(0, 1), shape=size)
        observe(rng, v, 0.5 * np.sin(np.arange(size) / 5.0), _pick(rng))
    return model


def lattice(side: int) -> Any:
    """Neighbours on a square of so many places a side."""
    place = np.arange(side**2).reshape(side, side)
    W = np.zeros((side**2, side**2), int)
    for one, other in ((place[1:], place[:-1]), (place[:, 1:], place[:, :-1])):
        W[one.ravel(), other.ravel()] = W[other.ravel(), one.ravel()] = 1
    return W


def field(rng: Any) -> Any:
    """BYM: an intrinsic field of neighbours on a lattice and effects without structure."""
    side = int(rng.integers(8, 11))
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1.0)
        s, r = pm.HalfNormal("s", 1.0), pm.HalfNormal("r", 1.0)
        phi = pm.ICAR("phi", W=lattice(side), sigma=s, zero_sum_stdev=0.01)
        u = pm.Normal("u", 0.0, 1.0, shape=side**2)
        observe(rng, a + phi + r * u, 0.4 * rng.normal(size=side**2), _pick(rng))
    return model


def proper_field(rng: Any) -> Any:
    """A proper field of neighbours, whose mean is a weight; neighbours may repel each other."""
    side = int(rng.integers(8, 11))
    with pm.Model() as model:
        a, tau = pm.Normal("a", 0.0, 1.0), pm.Gamma("tau", 4.0, 2.0)
        alpha = pm.Uniform("alpha", -0.9, 0.9, initval=rng.choice([-0.5, 0.6]))
        phi = pm.CAR("phi", mu=a * np.ones(side**2), W=lattice(side), alpha=alpha, tau=tau)
        observe(rng, phi, 0.4 * rng.normal(size=side**2), _pick(rng))
    return model


def heavy_tails(rng: Any) -> Any:
    """Effects with Student-t priors, which are sites of their own."""
    groups, rows = int(rng.integers(8, 30)), int(rng.integers(60, 120))
    g = _groups(rng, rows, groups)
    with pm.Model() as model:
        a, s = pm.Normal("a", 0.0, 2.0), pm.HalfNormal("s", 1.0)
        u = pm.StudentT("u", nu=5.0, mu=0.0, sigma=s, shape=groups)
        observe(rng, a + u[g], 0.7 * rng.normal(size=groups)[g], "logit")
    return model


def design(rng: Any) -> Any:
    """A design with many zeros as a dense constant."""
    rows, columns = int(rng.integers(80, 140)), int(rng.integers(20, 40))
    X = rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < 3.0 / columns)
    with pm.Model() as model:
        s, a = pm.HalfNormal("s", 1.0), pm.Normal("a", 0.0, 1.0)
        b = pm.Normal("b", 0.0, s, shape=columns)
        observe(rng, a + pm.math.dot(X, b), X @ rng.normal(size=columns), _pick(rng))
    return model


def sparse_design(rng: Any) -> Any:
    """The same as a sparse matrix, which only a sparse reading can evaluate."""
    rows, columns = 90, 25
    X = scipy.sparse.random(rows, columns, 0.1, format="csr", random_state=rng)
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0)
        b = pm.Normal("b", 0.0, s, shape=columns)
        eta = pytensor.sparse.structured_dot(pytensor.sparse.as_sparse(X), b[:, None])[:, 0]
        observe(rng, eta, X @ rng.normal(size=columns), "poisson")
    return model


KINDS: dict[str, Callable[[Any], Any]] = {
    "one way": one_way,
    "not centred": not_centred,
    "crossed": crossed,
    "nested": nested,
    "slopes": slopes,
    "walk": walk,
    "autoregression": autoregression,
    "field": field,
    "proper field": proper_field,
    "heavy tails": heavy_tails,
    "design": design,
}
