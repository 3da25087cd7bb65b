"""Settings that every method has: how hyperparameters are treated, and the names in the graph."""

from dataclasses import dataclass
from typing import Any

__all__ = ["MethodSettings"]


@dataclass(frozen=True, slots=True)
class MethodSettings:
    """The first three settings of every method; each class says what its `hyper` may be.

    Parameters
    ----------
    hyper
        How hyperparameters are treated; None is the method's own way.
    weights, predictor
        Names in the graph; None = every Gaussian block that enters the predictor.
    """

    hyper: Any = None
    weights: str | tuple[str, ...] | None = None
    predictor: str | None = None
