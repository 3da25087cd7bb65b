"""Settings of reversible jump: the posterior over subsets of the inputs, and all that they need.

A chain makes `sweeps` sweeps, the first `tune` of which are thrown away. A sweep updates the
coefficients of the present subset and tries `jumps` changes of it: the birth of an input, the death
of one, the exchange of two. Every sweep after tuning counts for the probabilities of the subsets;
`draws` of them, evenly spaced, are kept with all their coefficients.

How a family of models jumps is in `mixture/run.py` and `subset/run.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ardvark.errors import InputError
from ardvark.inference.running.until import check_until
from ardvark.inference.sites.settings import MethodSettings
from ardvark.models.checks import as_count, one_of, positive_integer

__all__ = ["PROPOSALS", "Plan", "ReversibleJump"]

PROPOSALS = ("data", "prior")


class Plan(NamedTuple):
    """The sweeps of one chain: `tune` thrown away, then `draws` times `thin`."""

    tune: int
    draws: int
    thin: int


@dataclass(frozen=True, slots=True)
class ReversibleJump(MethodSettings):
    """Settings of reversible jump.

    Parameters
    ----------
    hyper, weights, predictor
        As in `NUTS`.
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
        their prior, which is also correct but hardly ever accepted beyond small examples: it is
        there for comparison.
    rungs
        Mixtures: copies of a chain at lower powers of the likelihood, which move more freely and
        hand their states down; with the conditional target they keep larger subsets, too. 1 is no
        tempering; None is 1 for the joint target, 14 for the conditional one.
    scouts
        Mixtures, joint target: short chains from starts of their own that each chain sends out
        before it is tuned, shorter ones where `tune` is below 300. All chains then try to leap to
        the allocations that those of any chain have found, with subset and coefficients anew; 0 is
        no leaps.
    until, most_sweeps
        "converged": make more sweeps until the chains agree (R-hat <= 1.01 of the size and of every
        input): `sweeps`, and each time half as many again from the same seed, up to `most_sweeps`
        (None: eight times `sweeps`). None: `sweeps` and no more. An R-hat that decides when to stop
        is a little too good (`until.py`).
    """

    sweeps: int = 15000
    tune: int | None = None
    thin: int | None = None
    jumps: int | None = None
    proposals: str = "data"
    rungs: int | None = None
    scouts: int = 16
    until: str | None = None
    most_sweeps: int | None = None

    def __post_init__(self) -> None:
        positive_integer(self.sweeps, "sweeps")
        if self.tune is not None:
            as_count(self.tune, "tune")
        for name in ("thin", "jumps", "rungs"):
            if getattr(self, name) is not None:
                positive_integer(getattr(self, name), name)
        as_count(self.scouts, "scouts")
        one_of(self.proposals, PROPOSALS, "proposals")
        check_until(self.until, self.most_sweeps, "most_sweeps")
        if self.until is not None and self.thin is not None:
            raise InputError(
                f"thin={self.thin} fixes the number of sweeps, so until={self.until!r} has none to "
                f"add: give one of the two"
            )

    def plan(self, draws: int) -> Plan:
        """Give the sweeps of a chain that keeps `draws` of them."""
        tune = self.sweeps // 3 if self.tune is None else self.tune
        thin = max(1, (self.sweeps - tune) // draws) if self.thin is None else self.thin
        return Plan(tune, draws, thin)
