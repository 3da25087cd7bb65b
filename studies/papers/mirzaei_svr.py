"""Support vector regression on all inputs or on chosen ones: the rivals of Mirzaei et al. 2017.

| machine          | inputs of the SVR                                                             |
|------------------|-------------------------------------------------------------------------------|
| svr              | all                                                                           |
| rfe_gau, rfe_lap | what recursive elimination leaves: an SVR of C = 1 and a Gaussian or Laplace  |
|                  | kernel drops the input whose absence lowers its |w|² least (Guyon et al. 2002;|
|                  | the paper only cites it)                                                      |
| slcca            | the first by their weight in the canonical correlation of all inputs with the |
|                  | target ("Sample Label Canonical Correlation Analysis"); for one target this   |
|                  | is the direction of least squares                                             |
| slcca_each       | the first by the canonical correlation of each input alone with the target,   |
|                  | the other reading of "rank the features according to their canonical          |
|                  | correlation with labels"                                                      |

How many inputs, C, gamma and epsilon are those of the least error on the validation rows, by every
second point of the paper's grid. Inputs are standardised. HSFS and RSLCCA are not here: the text
has their names and one setting of each, and says neither what is maximised nor what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from ardvark.inference.sites.arrays import Array
from ardvark.studies.papers.mirzaei_data import Part

__all__ = ["RIVALS", "Answer", "every_svr"]

type Inputs = tuple[int, ...]  # numbers of columns


class Answer(NamedTuple):
    """Predictor at new rows, and what the machine is made of."""

    predictor: Callable[[Array], Array]
    samples: int
    features: Inputs
    converged: bool
    elbo: float = math.nan


def every_svr(name: str, part: Part) -> tuple[list[Answer], list[tuple[Any, ...]]]:
    """An SVR on every set of inputs that a rival considers, at every point of the grid."""
    settings = list(product(RIVALS[name](part), _grid()))
    kind = "lap" if name == "rfe_lap" else "gau"
    tried = [_svr_on(kept, kind, part, *setting) for kept, setting in settings]
    return tried, [setting for _, setting in settings]


def _grid() -> list[tuple[float, float, float]]:
    powers = (range(-2, 7, 2), range(-6, 3, 2), range(-5, 2, 2))
    C, gamma, epsilon = ([2.0**k for k in p] for p in powers)
    return [(c, g, e) for c in C for g in gamma for e in epsilon]


def _svr_on(kept: Inputs, kind: str, part: Part, C: float, gamma: float, epsilon: float) -> Answer:
    """An SVR on some standardised inputs."""
    from sklearn.svm import SVR

    columns = list(kept)
    centre, scale = part.X.mean(axis=0), _scale(part.X)

    def inputs(X: Array) -> Array:
        return np.asarray(((X - centre) / scale)[:, columns])

    Z = inputs(part.X)
    fitted = SVR(kernel="precomputed", C=C, epsilon=epsilon).fit(
        _similar(kind, Z, Z, gamma), part.t
    )
    return Answer(
        lambda X: np.asarray(fitted.predict(_similar(kind, inputs(X), Z, gamma))),
        len(fitted.support_), kept, True,
    )  # fmt: skip


def _scale(X: Array) -> Array:
    scale = X.std(axis=0)
    return np.where(scale > 0, scale, 1.0)


def _similar(kind: str, X: Array, Z: Array, gamma: float) -> Array:
    return np.asarray(np.exp(-gamma * cdist(X, Z, "sqeuclidean" if kind == "gau" else "cityblock")))


# --- which inputs ---------------------------------------------------------------------------------


def _all(part: Part) -> list[Inputs]:
    return [tuple(range(part.X.shape[1]))]


def _eliminated(kind: str, part: Part) -> list[Inputs]:
    """Inputs that are left when the one that matters least to |w|² goes, one after the other."""
    from sklearn.svm import SVR

    Z = (part.X - part.X.mean(axis=0)) / _scale(part.X)
    kept, gamma = list(range(Z.shape[1])), 1.0 / Z.shape[1]
    power = 2 if kind == "gau" else 1
    left = [tuple(kept)]
    while len(kept) > 1:
        fitted = SVR(kernel="precomputed").fit(
            K := _similar(kind, Z[:, kept], Z[:, kept], gamma), part.t
        )
        on, a = fitted.support_, fitted.dual_coef_[0]
        small = K[np.ix_(on, on)]
        apart = [np.abs(Z[on, None, j] - Z[None, on, j]) ** power for j in kept]
        change = [a @ (small - small * np.exp(gamma * d)) @ a for d in apart]
        kept.pop(int(np.argmin(change)))
        left.append(tuple(kept))
    return left


def _correlated(together: bool, part: Part) -> list[Inputs]:
    """The first k inputs, for every k, by their canonical correlation with the target.

    With one target the canonical direction of the inputs is S⁻¹ c: S their covariance, c that with
    the target. Least squares of least norm has it also where S has no inverse.
    """
    Z = (part.X - part.X.mean(axis=0)) / _scale(part.X)
    t = part.t - part.t.mean()
    weight = np.linalg.lstsq(Z, t, rcond=None)[0] if together else Z.T @ t
    order = np.argsort(-np.abs(weight), kind="stable").tolist()
    return [tuple(order[:k]) for k in range(1, len(order) + 1)]


RIVALS: dict[str, Callable[[Part], list[Inputs]]] = {
    "svr": _all,
    "rfe_gau": lambda part: _eliminated("gau", part),
    "rfe_lap": lambda part: _eliminated("lap", part),
    "slcca": lambda part: _correlated(True, part),
    "slcca_each": lambda part: _correlated(False, part),
}
