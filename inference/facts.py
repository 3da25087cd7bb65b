"""What a fit is asked for, and what it says of itself: the same few words for every method.

fit(model, name, settings, Run) -> groups of the tree, Facts for its root
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

__all__ = ["Answer", "Facts", "Run"]

type Answer = tuple[dict[str, Any], Facts]


class Run(NamedTuple):
    """What a fit was asked for, beside model and method."""

    draws: int
    chains: int
    seed: int
    progressbar: bool

    def by_chain(self, values: Any) -> Any:
        """Values (S, ...) of all draws as (chain, draw, ...)."""
        return values.reshape((self.chains, self.draws, *values.shape[1:]))


@dataclass(frozen=True, slots=True)
class Facts:
    """How a posterior was made, and its problems; the root attributes of its tree.

    A `caption` says what a reader must know of a posterior that is not the whole model's.
    """

    hyper: str  # what became of the hyperparameters: "posterior", "fixed", "evidence", ...
    weights: Sequence[str] = ()  # names
    caption: str = ""
    problems: Sequence[str] = ()  # why the fit has not converged, in words and numbers
    caution: str = ""  # about accuracy; says nothing about convergence
    sampler: Mapping[str, Any] = field(default_factory=dict)  # numbers of a Markov chain
    extra: Mapping[str, Any] = field(default_factory=dict)  # of one method or family alone

    @property
    def converged(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def with_extra(self, **attributes: Any) -> Facts:
        """Add attributes of one method or family."""
        return replace(self, extra={**self.extra, **attributes})

    def attributes(self) -> dict[str, Any]:
        """Give the root attributes."""
        numbers = {"sampler": dict(self.sampler)} if self.sampler else {}
        return {
            "hyper": self.hyper,
            "caption": self.caption,
            "weights": list(self.weights),
            "converged": self.converged,
            "problems": "; ".join(self.problems),
            "caution": self.caution,
            **numbers,
            **self.extra,
        }
