"""Settings of reversible jump: the posterior over subsets of the inputs, and all that they need.

A chain makes `sweeps` sweeps, the first `tune` of which are thrown away. A sweep updates the
coefficients of the present subset and tries `jumps` changes of it: the birth of an input, the death
of one, the exchange of two. Every sweep after tuning counts for the probabilities of the subsets;
`draws` of them, evenly spaced, are kept with all their coefficients.

How a family of models jumps is in `mixture_runs.py` and `subset_runs.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ardvark.models.checks import as_count, one_of, positive_integer

__all__ = ["PROPOSALS", "Plan", "ReversibleJump"]

PROPOSALS = ("data", "prior")


class Plan(NamedTuple):
    """The sweeps of one chain: `tune` thrown away, then `draws` times `thin`."""

    tune: int
    draws: int
    thin: int


@dataclass(frozen=True, slots=True)
class ReversibleJump:
    """Settings of reversible jump.

    Parameters
    ----------
    hyper
        `None`: the hyperparameters belong to the posterior; `Fixed(...)`: they are given.
    weights, predictor
        Names in the graph, when they are not the usual ones.
    sweeps
        Sweeps of a chain, tuning included; more where `draws` asks for more.
    tune
        Sweeps thrown away; `None` is a third of `sweeps`.
    thin
        Sweeps between two stored draws; `None` spreads `draws` over the sweeps that are left.
    jumps
        Changes of the subset tried in each sweep; `None` leaves it to the family of the model.
    proposals
        "data": coefficients of a new input come from what the data say of them; "prior": from
        their prior, which is right too and hopeless beyond toys: it is there to compare with.
    rungs
        Mixtures: copies of a chain at lower powers of the likelihood, which move more freely and
        hand their states down. 1 is no tempering.
    scouts
        Mixtures: short chains from starts of their own that each chain sends out before it is
        tuned. All chains then try to leap to the allocations that those of any chain have found,
        with subset and coefficients anew; 0 is no leaps.
    """

    hyper: Any = None
    weights: str | tuple[str, ...] | None = None
    predictor: str = "eta"
    sweeps: int = 15000
    tune: int | None = None
    thin: int | None = None
    jumps: int | None = None
    proposals: str = "data"
    rungs: int = 1
    scouts: int = 16

    def __post_init__(self) -> None:
        positive_integer(self.sweeps, "sweeps")
        if self.tune is not None:
            as_count(self.tune, "tune")
        for name in ("thin", "jumps"):
            if getattr(self, name) is not None:
                positive_integer(getattr(self, name), name)
        positive_integer(self.rungs, "rungs")
        as_count(self.scouts, "scouts")
        one_of(self.proposals, PROPOSALS, "proposals")

    def plan(self, draws: int) -> Plan:
        """Give the sweeps of a chain that keeps `draws` of them."""
        tune = self.sweeps // 3 if self.tune is None else self.tune
        thin = max(1, (self.sweeps - tune) // draws) if self.thin is None else self.thin
        return Plan(tune, draws, thin)
