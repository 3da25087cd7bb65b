"""The climb of a mean-field ascent from one start: sweeps, leaps, pruning, an end.

Three sweeps are extrapolated, and a leap is kept only if the bound is higher there. Weights may leave
after a warm-up, or once the ascent has settled.
"""  # noqa: E501

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.sites.arrays import Array
from ardvark.inference.vb.vb import Pruning

__all__ = ["Climb", "Climber", "climb"]

_CALM = 3  # sweeps in a row that must gain less than the tolerance
_LONGEST = 64.0  # leap, in sweeps or so


class Climber(ABC):
    """Coordinate ascent; whatever a sweep changes is an attribute that it sets anew."""

    state: Any
    watch: Callable[[str, Any], None] | None = None

    @abstractmethod
    def sweep(self) -> float:
        """Update every block; gives the bound."""

    @abstractmethod
    def bound(self) -> float:
        """The ELBO, every constant and hyperprior in it."""

    @abstractmethod
    def place(self) -> Array:
        """The coordinates of a leap: what a sweep starts from; empty where there are none."""

    @abstractmethod
    def go_to(self, place: Array) -> None:
        """Take these coordinates."""

    @abstractmethod
    def prune(self, pruning: Pruning) -> bool:
        """Drop what is small beside the largest; tell whether anything went."""

    def tell(self, name: str) -> None:
        """Show the state after an update to whoever watches."""
        if self.watch is not None:
            self.watch(name, self.state)

    def leap(self, path: list[Array], before: float) -> float:
        """Extrapolate three sweeps, sweep from there, and stay only if the ELBO is higher."""
        first, second = path[1] - path[0], path[2] - 2.0 * path[1] + path[0]
        length = min(float(np.linalg.norm(first) / max(np.linalg.norm(second), 1e-300)), _LONGEST)
        if length <= 1.0:
            return before
        here = dict(vars(self))
        self.watch = None  # a trial is no step
        self.go_to(path[0] + 2.0 * length * first + length**2 * second)  # Var08, scheme S3
        bound = self.sweep()
        if not bound > before:
            vars(self).update(here)
            return before
        self.watch = here["watch"]
        self.tell("leap")
        return bound


class Climb(NamedTuple):
    """How a climb went."""

    elbo: Array  # by sweep
    converged: bool
    gain: float  # of the last sweep, as a share of the ELBO


def climb(
    ascent: Climber,
    pruning: Pruning | None,
    tolerance: float,
    max_sweeps: int,
    told: Callable[[int, float], None],
) -> Climb:
    """Sweep until three sweeps in a row have gained next to nothing; `told` hears of each."""
    path, places, calm, gain = list[float](), list[Array](), 0, np.inf
    while len(path) < max_sweeps and calm < _CALM:
        bound = ascent.sweep()
        place = ascent.place()
        places = [*places, place] if place.size else []
        if len(places) == 3:
            bound, places = ascent.leap(places, bound), []
        if path:
            gain = (bound - path[-1]) / (1.0 + abs(bound))
            calm = calm + 1 if gain < tolerance else 0
        warm = pruning is not None and (len(path) + 1 >= pruning.warm_up or calm >= _CALM)
        if pruning is not None and warm and ascent.prune(pruning):
            calm, gain, places = -1, np.inf, []
            bound = ascent.bound()
        path.append(bound)
        told(len(path), bound)
    return Climb(np.array(path), calm >= _CALM, gain)
