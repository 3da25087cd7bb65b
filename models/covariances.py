"""Covariance functions of a Gaussian process with one relevance parameter per feature.

    ARDGaussian   kappa_0 exp(-1/2 sum_l kappa_a,l (x_l - z_l)²) + kappa_b                Chu06 (2)
    ARDLinear     sum_l kappa_a,l x_l z_l + kappa_b                                       Chu06 (3)

Each has a `jitter` on the diagonal of the training rows (the paper's footnote 4). A parameter that
is None is inferred, a number (one per feature for `kappa_a`, or one for all) fixes it.

A covariance is called with rows and a mapping of its parameters, NumPy arrays or PyTensor
variables; `pull` contracts a symmetric matrix with the derivative in every parameter, for all
features together by one matrix product: O(s² d), never a matrix per feature. PyMC is not needed.

Inferred parameters are log-normal. `kappa_0` and `kappa_b` have median 1 and sd 1.5 in the log: the
likelihood is settled at |f| = 1, so a variance of f between 1/20 and 20 is all there is to say.
`kappa_a,l` has mean 1/(d var(x_l)), where two rows are exp(-1) alike on average (for the linear
covariance: where f has variance 1), and sd 2 in the log: free of units, no feature preferred.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ardvark.errors import InputError
from ardvark.models.checks import positive
from ardvark.models.inputs import Array
from ardvark.models.kernels import Scale
from ardvark.models.tables import is_number

__all__ = ["ARDGaussian", "ARDLinear", "Covariance"]

SPREAD_SCALE = 1.5  # sd of log kappa_0 and log kappa_b
SPREAD_ARD = 2.0  # sd of each log kappa_a


class Covariance(ABC):
    """What the two have in common: which parameters there are, and which are given."""

    __slots__ = ()
    NAMES: ClassVar[tuple[str, ...]]
    jitter: float

    def __post_init__(self) -> None:
        for name in (*self.NAMES, "jitter"):
            value = getattr(self, name)
            if name == "kappa_a" and value is not None and not is_number(value):
                object.__setattr__(self, name, _positive_vector(value))
            elif value is not None:
                object.__setattr__(self, name, positive(value, name))

    def parameters(self, X: Array) -> tuple[Scale, ...]:
        """Return each parameter on these training rows: its value, or what is typical of it."""
        features = X.shape[1]
        variance = X.var(axis=0)
        share = 1.0 / (features * np.where(variance > 0, variance, 1.0))
        one = np.array(np.exp(SPREAD_SCALE**2 / 2))  # mean of the log-normal of median 1
        found = []
        for name in self.NAMES:
            if name == "kappa_a":
                value = _for_each(self.kappa_a, features)  # type: ignore[attr-defined]
                found.append(Scale(name, value, share, SPREAD_ARD, "feature"))
            else:
                value = getattr(self, name)
                fixed = None if value is None else np.array(value)
                found.append(Scale(name, fixed, one, SPREAD_SCALE))
        return tuple(found)

    def train(self, X: Any, kappa: Mapping[str, Any], eye: Any) -> Any:
        """Covariance of the training rows with themselves, jitter included."""
        return self(X, X, kappa) + self.jitter * eye

    @abstractmethod
    def __call__(self, X: Any, Z: Any, kappa: Mapping[str, Any]) -> Any:
        """Return Cov[f(x_n), f(z_m)], (N, M)."""

    @abstractmethod
    def variance(self, X: Array, kappa: Mapping[str, Array]) -> Array:
        """Return Cov[f(x_n), f(x_n)] without jitter, (N,)."""

    @abstractmethod
    def pull(self, G: Array, X: Array, kappa: Mapping[str, Array], K: Array) -> dict[str, Array]:
        """Gradient of sum(G * Cov[X, X]) in each parameter; K is the covariance without jitter.

        G is symmetric (s, s).
        """


@dataclass(frozen=True, slots=True)
class ARDGaussian(Covariance):
    """Gaussian covariance, one inverse squared length per feature: Chu06 (2)."""

    kappa_0: float | None = None
    kappa_a: Any = None
    kappa_b: float | None = None
    jitter: float = 1e-8
    name: ClassVar[str] = "ard_gaussian"
    NAMES: ClassVar[tuple[str, ...]] = ("kappa_0", "kappa_a", "kappa_b")

    def __call__(self, X: Any, Z: Any, kappa: Mapping[str, Any]) -> Any:
        """Return kappa_0 exp(-1/2 sum_l kappa_a,l (x_l - z_l)²) + kappa_b, (N, M)."""
        xp = _library(X, Z, *kappa.values())
        weighted = X * kappa["kappa_a"]
        left = (weighted * X).sum(axis=1)[:, None] / 2
        right = (Z * kappa["kappa_a"] * Z).sum(axis=1) / 2
        exponent = xp.minimum(weighted @ Z.T - left - right, 0)  # minus half the squared distance
        return kappa["kappa_0"] * xp.exp(exponent) + kappa["kappa_b"]  # Chu06 (2)

    def variance(self, X: Array, kappa: Mapping[str, Array]) -> Array:
        """Return kappa_0 + kappa_b for each row."""
        return np.full(len(X), float(kappa["kappa_0"] + kappa["kappa_b"]))

    def pull(self, G: Array, X: Array, kappa: Mapping[str, Array], K: Array) -> dict[str, Array]:
        """d/d kappa_a,l = -1/2 sum_ij B_ij (x_il - x_jl)², B = G * (K - kappa_b)."""
        B = G * (K - kappa["kappa_b"])
        squares = 2 * B.sum(axis=1) @ np.square(X) - 2 * np.sum(X * (B @ X), axis=0)
        return {
            "kappa_0": np.asarray(B.sum() / kappa["kappa_0"]),
            "kappa_a": -0.5 * squares,
            "kappa_b": np.asarray(G.sum()),
        }


@dataclass(frozen=True, slots=True)
class ARDLinear(Covariance):
    """Linear covariance, one prior variance per weight: Chu06 (3)."""

    kappa_a: Any = None
    kappa_b: float | None = None
    jitter: float = 1e-8
    name: ClassVar[str] = "ard_linear"
    NAMES: ClassVar[tuple[str, ...]] = ("kappa_a", "kappa_b")

    def __call__(self, X: Any, Z: Any, kappa: Mapping[str, Any]) -> Any:
        """Return sum_l kappa_a,l x_l z_l + kappa_b, (N, M)."""
        return (X * kappa["kappa_a"]) @ Z.T + kappa["kappa_b"]  # Chu06 (3)

    def variance(self, X: Array, kappa: Mapping[str, Array]) -> Array:
        """Return the variance of f at each row."""
        return np.asarray(np.square(X) @ kappa["kappa_a"] + kappa["kappa_b"])

    def pull(self, G: Array, X: Array, kappa: Mapping[str, Array], K: Array) -> dict[str, Array]:
        """d/d kappa_a,l = x_l' G x_l."""
        return {"kappa_a": np.sum(X * (G @ X), axis=0), "kappa_b": np.asarray(G.sum())}


def _for_each(kappa_a: Any, features: int) -> Array | None:
    if kappa_a is None:
        return None
    values = np.asarray(kappa_a, dtype=np.float64)
    if values.ndim == 1 and len(values) != features:
        raise InputError(
            f"kappa_a has {len(values)} values, X has {features} features: give one number for "
            f"each, or one for all."
        )
    return np.array(np.broadcast_to(values, features))


def _positive_vector(values: Any) -> tuple[float, ...]:
    """Check one number per feature; a tuple, so that settings can be compared and stored."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise InputError(f"kappa_a must be a number or one per feature, got shape {array.shape}.")
    bad = ~(np.isfinite(array) & (array > 0))
    if bad.any():
        place = int(np.argmax(bad))
        raise InputError(
            f"kappa_a must be finite and > 0; at feature {place} it is {array[place]}."
        )
    return tuple(map(float, array))


def _library(*arrays: Any) -> Any:
    if all(isinstance(array, np.ndarray | np.number) or is_number(array) for array in arrays):
        return np
    import pytensor.tensor as pt

    return pt
