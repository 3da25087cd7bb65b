"""Six models of posteriordb, whose reference draws were made by Stan.

`posteriordb.json` has the data and Stan's moments, `diamonds.npz` the diamonds as integers; both
under the licence beside them. Indices of Stan's names begin at 1.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from own_models.case import block

__all__ = ["STAN", "stan_moments"]

FOLDER = Path(__file__).parent
STORED: dict[str, Any] = json.loads((FOLDER / "posteriordb.json").read_text())

STAN = {  # our case → its entry
    "eight_schools": "eight_schools",
    "eight_schools_centred": "eight_schools",
    "gp_poisson_stan": "gp_pois_regr",
    "correlated_regression_stan": "sblrc",
    "kilpisjarvi_stan": "kilpisjarvi_mod",
    "diamonds_stan": "diamonds",
    "autoregression_stan": "arK",
}


def stan_moments(name: str) -> dict[str, dict[str, float]]:
    """Stan's moments of a case, by PyMC's names: indices from 0."""
    entry = STORED[STAN[name]]["reference"]
    return {_from_zero(parameter): moments for parameter, moments in entry.items()}


def _from_zero(parameter: str) -> str:
    name, _, index = parameter.partition("[")
    return f"{name}[{int(index[:-1]) - 1}]" if index else name


def _data(name: str) -> dict[str, Any]:
    return {
        key: np.array(value) if isinstance(value, list) else value
        for key, value in STORED[name]["data"].items()
    }


@block("a process written out: f = chol(K) z under a Poisson", also=("f",), target_accept=0.95)
def gp_poisson_stan() -> None:
    data = _data("gp_pois_regr")
    distance = data["x"][:, None] - data["x"]
    rho = pm.Gamma("rho", 25, 4)
    alpha = pm.HalfNormal("alpha", 2)
    K = alpha**2 * pm.math.exp(-(distance**2) / (2 * rho**2)) + 1e-10 * np.eye(data["N"])
    f_tilde = pm.Normal("f_tilde", 0, 1, shape=data["N"])
    f = pm.Deterministic("f", pt.linalg.cholesky(K) @ f_tilde)
    pm.Poisson("k", mu=pm.math.exp(f), observed=data["k"])


@block("correlated columns, a coefficient of each")
def correlated_regression_stan() -> None:
    data = _data("sblrc")
    beta = pm.Normal("beta", 0, 10, shape=data["D"])
    sigma = pm.HalfNormal("sigma", 10)
    pm.Normal("y", mu=pm.math.dot(data["X"], beta), sigma=sigma, observed=data["y"])


def _kilpisjarvi_centred() -> Any:
    """The same posterior in terms of the level at the mean year: NUTS needs no long trees."""
    data = _data("kilpisjarvi_mod")
    middle = data["x"].mean()
    with pm.Model() as model:
        beta = pm.Normal("beta", data["pmubeta"], data["psbeta"])
        level = pm.Normal("level", data["pmualpha"] + middle * beta, data["psalpha"])
        pm.Deterministic("alpha", level - middle * beta)
        sigma = pm.HalfFlat("sigma")
        pm.Normal("y", level + beta * (data["x"] - middle), sigma, observed=data["y"])
    return model


@block("a flat prior of the noise; inputs far from zero", twin=_kilpisjarvi_centred)
def kilpisjarvi_stan() -> None:
    data = _data("kilpisjarvi_mod")
    alpha = pm.Normal("alpha", data["pmualpha"], data["psalpha"])
    beta = pm.Normal("beta", data["pmubeta"], data["psbeta"])
    sigma = pm.HalfFlat("sigma")
    pm.Normal("y", alpha + beta * data["x"], sigma, observed=data["y"])


def _contrasts(levels: int) -> np.ndarray:
    """Orthonormal polynomials without the constant, as R has them for ordered factors."""
    middle = np.arange(levels) - (levels - 1) / 2
    Q, R = np.linalg.qr(np.vander(middle, increasing=True))
    return (Q * np.sign(np.diag(R)))[:, 1:]


def _diamonds() -> tuple[np.ndarray, np.ndarray]:
    with np.load(FOLDER / "diamonds.npz") as stored:
        table = {name: stored[name].astype(int) for name in stored.files}
    carat = table["carat"][:, None] / 100
    size = np.log(np.column_stack([table[side] for side in "xyz"]) / 100)
    factors = [_contrasts(n)[table[name]] for name, n in (("cut", 5), ("color", 7), ("clarity", 8))]
    return np.hstack([carat, size, *factors, carat * size]), np.log(table["price"])


def _diamonds_rotated() -> Any:
    """The same posterior by coefficients u of orthogonal columns: b = R⁻¹ u."""
    X, y = _diamonds()
    Q, R = np.linalg.qr(X - X.mean(axis=0))
    scale = np.sqrt(len(y))
    with pm.Model() as model:
        u = pm.Flat("u", shape=24)
        b = pm.Deterministic("b", (np.linalg.inv(R) * scale) @ u)
        pm.Potential("prior_of_b", -0.5 * (b**2).sum())
        intercept = pm.StudentT("Intercept", nu=3, mu=8, sigma=10)
        sigma = pm.HalfStudentT("sigma", nu=3, sigma=10)
        pm.Normal("y", intercept + (Q * scale) @ u, sigma, observed=y)
    return model


@block("5000 rows, 24 centred columns, Student-t prior of the intercept", twin=_diamonds_rotated)
def diamonds_stan() -> None:
    X, y = _diamonds()
    b = pm.Normal("b", 0, 1, shape=24)
    intercept = pm.StudentT("Intercept", nu=3, mu=8, sigma=10)
    sigma = pm.HalfStudentT("sigma", nu=3, sigma=10)
    pm.Normal("y", intercept + (X - X.mean(axis=0)) @ b, sigma, observed=y)


@block("autoregression on lagged columns, built by a loop over lags")
def autoregression_stan() -> None:
    data = _data("arK")
    y, K = data["y"], data["K"]
    alpha = pm.Normal("alpha", 0, 10)
    beta = pm.Normal("beta", 0, 10, shape=K)
    sigma = pm.HalfCauchy("sigma", 2.5)
    mu = alpha
    for k in range(K):
        mu = mu + beta[k] * y[K - k - 1 : len(y) - k - 1]
    pm.Normal("y", mu, sigma, observed=y[K:])
