"""Find the Gaussian block of a graph.

    members      free variables whose prior is Gaussian, or a Gaussian times a site
    parts        for each target the predictor (`predictor.py`)
    hyper        every other free variable that the data depend on
    marginalised free variables that nothing observed depends on (imputed values): drawn afterwards

Where a target has no predictor, some members must leave the block: they become hyperparameters,
with a reason, and as many Gaussian dimensions stay as can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pymc.initial_point import make_initial_point_expression, make_initial_point_fn
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.traversal import ancestors

from ardvark.errors import UnreadableModel
from ardvark.inference.graph.predictor import Look, Members, Part, Targets
from ardvark.inference.graph.priors import described, is_member_kind
from ardvark.inference.pymc_models.compile import compile_graph, quick

__all__ = ["Found", "find_block", "start_of"]


@dataclass(slots=True)
class Found:
    """What a search has found; `reasons` says why a candidate is no member."""

    members: list[Any]
    parts: list[Part]
    hyper: list[Any]
    marginalised: list[Any]
    reasons: dict[str, str] = field(default_factory=dict)


def start_of(model: Any) -> dict[str, Any]:
    """Support points of the free variables on their natural scale."""
    with quick():
        points = make_initial_point_expression(
            free_rvs=model.free_RVs,
            rvs_to_transforms=model.rvs_to_transforms,
            initval_strategies=model.rvs_to_initial_values,
        )
        if rvs_in_graph(points):  # a start that is drawn from the prior
            return dict(make_initial_point_fn(model=model, return_transformed=False)(0))
        return dict(
            zip((rv.name for rv in model.free_RVs), compile_graph([], points)(), strict=True)
        )


def find_block(
    model: Any,
    start: Mapping[str, Any],
    names: tuple[str, ...] | None = None,
    predictor: str | None = None,
) -> Found:
    """Find members, predictors and hyperparameters; `names` and `predictor` override the search."""
    return _Search(model, start, names, predictor).run()


class _Search:
    def __init__(
        self,
        model: Any,
        start: Mapping[str, Any],
        names: tuple[str, ...] | None,
        predictor: str | None,
    ) -> None:
        self.model, self.start, self.predictor, self.names = model, start, predictor, names
        self.targets = Targets(model, start, predictor)
        self.needed = self.targets.needed
        self.reasons: dict[str, str] = {}
        self._looks: dict[Members, Look] = {}

    def run(self) -> Found:
        """Remove members until all fit; then restore those that fit without the others."""
        members = self._candidates()
        if self.predictor is not None:
            self._check_predictor()
        while members and (leaving := self._misfits(members)):
            members = self._without(members, leaving)
        members = self._restored(members)
        reached = self.at(members).reaching()
        if stray := {rv: "it enters no predictor" for rv in members if rv not in reached}:
            members = self._without(members, stray)
        if not members:
            raise UnreadableModel(self._nothing_left())
        hyper = [rv for rv in self.needed if rv not in members]
        rest = [rv for rv in self.model.free_RVs if rv not in self.needed]
        return Found(list(members), self.at(members).parts, hyper, rest, self.reasons)

    def at(self, members: Iterable[Any]) -> Look:
        """The graph as it looks with these members."""
        key = tuple(members)
        if key not in self._looks:
            self._looks[key] = Look(self.targets, key)
        return self._looks[key]

    def size(self, members: Iterable[Any]) -> int:
        """Number of scalars."""
        return sum(int(np.size(self.start[rv.name])) for rv in members)

    def _candidates(self) -> Members:
        if self.names is None:
            return tuple(rv for rv in self.needed if is_member_kind(self.model, rv))
        known = {rv.name: rv for rv in self.model.free_RVs}
        for name in self.names:
            if name not in known:
                listed = ", ".join(map(described, self.model.free_RVs))
                raise UnreadableModel(
                    f"weights={name!r} is no free variable of the model; it has {listed}"
                )
            if not is_member_kind(self.model, known[name]):
                raise UnreadableModel(_not_gaussian(self.model, known[name]))
        return tuple(rv for rv in self.model.free_RVs if rv.name in self.names)

    def _check_predictor(self) -> None:
        model, name = self.model, self.predictor
        if name not in model.named_vars:
            known = ", ".join(d.name for d in model.deterministics) or "none"
            raise UnreadableModel(
                f"the model has no variable {name!r} to take as predictor; its deterministics: "
                f"{known}. Leave predictor= out, and it is found."
            )
        used = [rv for rv in model.observed_RVs if model[name] in set(ancestors(rv.owner.inputs))]
        if not used:
            observed = ", ".join(repr(rv.name) for rv in model.observed_RVs)
            raise UnreadableModel(
                f"{observed} does not use the variable {name!r}: write the likelihood with the "
                f"Deterministic itself, or leave predictor= out, and it is found"
            )

    # Members that leave -----------------------------------------------------------------------

    def _misfits(self, members: Members) -> dict[Any, str]:
        """Members that must leave, with the reason."""
        look = self.at(members)
        leaving: dict[Any, str] = {}
        for target in self.targets.all:
            if isinstance(reason := look.part(target), str):
                kept = self._most(target, look)
                leaving |= {rv: reason for rv in look.held(target) if rv not in kept}
        return leaving | look.in_priors()

    def _most(self, target: Any, look: Look) -> Members:
        """The members of a target that can stay: most Gaussian dimensions, begun at each cut."""
        held = sorted(look.held(target), key=lambda rv: self.size([rv]), reverse=True)
        best: Members = ()
        for cut in look.cuts(target):
            kept: Members = ()
            for rv in sorted(held, key=lambda rv: rv not in cut):
                more = tuple(m for m in look.members if m in kept or m is rv)
                if not isinstance(self.at(more).part(target), str):
                    kept = more
            if self.size(kept) > self.size(best):
                best = kept
        return best

    def _without(self, members: Members, leaving: Mapping[Any, str]) -> Members:
        rv, reason = next(iter(leaving.items()))
        if self.names is not None:
            raise UnreadableModel(f"{described(rv)} cannot be a weight: {reason}")
        self.reasons |= {rv.name: reason for rv, reason in leaving.items()}
        return tuple(rv for rv in members if rv not in leaving)

    def _restored(self, members: Members) -> Members:
        dropped = [rv for rv in self.needed if rv.name in self.reasons]
        for rv in sorted(dropped, key=lambda rv: self.size([rv]), reverse=True):
            more = tuple(m for m in self.needed if m in members or m is rv)
            if self.at(more).fits():
                members = more
                del self.reasons[rv.name]
        return members

    def _nothing_left(self) -> str:
        if not self.needed:
            return "no free variable reaches an observed variable: there is nothing to infer"
        why = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items())
        found = ", ".join(map(described, self.needed))
        return (
            f"no free variable with a Gaussian prior enters the data through an affine predictor; "
            f"found {found}{f' ({why})' if why else ''}. Use NUTS, which takes any graph."
        )


def _not_gaussian(model: Any, rv: Any) -> str:
    if rv.type.dtype.startswith(("int", "uint", "bool")):
        return f"{described(rv)} is discrete: weights must have a Gaussian prior"
    if model.rvs_to_transforms[rv] is not None:
        return (
            f"{described(rv)} has a transform ({type(model.rvs_to_transforms[rv]).__name__}), so "
            f"its prior is not Gaussian: it can be a hyperparameter only. Leave it out of weights="
        )
    return f"{described(rv)} has no Gaussian prior, nor one that a site over a Gaussian can hold"
