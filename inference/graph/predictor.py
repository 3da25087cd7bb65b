"""The predictor of each target, once it is given which variables are the members of the block.

    targets      observed variables, and potentials
    parts        for each target the predictor: a node that is affine in the members, and through
                 which alone they reach it

The predictor of a target is a node that lies on every path from the members to it: the number of
paths through the node is the number of all paths. Of those that are affine the highest with one
number for each element of the data is taken.

Random variables of the model are leaves: the walk never passes from one to its parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pymc.logprob.utils import replace_rvs_by_values
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, walk_toposort

from ardvark.inference.graph.priors import described, kind, locations_and_rest
from ardvark.inference.pymc_models.compile import compile_graph
from ardvark.inference.pytensor_graphs.affine import Notes, operation, parents
from ardvark.inference.pytensor_graphs.rebuild import lifted

__all__ = ["Look", "Members", "Part", "Targets", "is_zero"]

_VIEWS = {"DimShuffle", "ExpandDims", "Squeeze", "SpecifyShape", "ViewOp", "Cast", "Identity"}
_SCALINGS = {"Neg", "Mul", "TrueDiv", *_VIEWS}
_COUPLING = {"Scan", "CumOp", "SortOp", "Softmax", "LogSoftmax"}

type Members = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """An observed variable, or the terms of a potential, and their predictor."""

    name: str
    term: Any
    predictor: Any
    equal: tuple[Any, ...]  # every node that is the same expression as the predictor, itself first
    observed: Any  # the observed variable; None for a potential
    shape: tuple[int, ...]  # of the predictor, which may have to be broadcast to it
    coupled: bool = False  # a softmax over the last axis of the predictor


class Targets:
    """The targets that members must reach, and the shapes of the nodes between."""

    def __init__(self, model: Any, start: Mapping[str, Any], predictor: str | None) -> None:
        self.model, self.start, self.predictor = model, start, predictor
        self.all = [*model.observed_RVs, *model.potentials]
        self.leaves = frozenset(model.basic_RVs)
        behind = set(ancestors(self.all))
        self.needed = [rv for rv in model.free_RVs if rv in behind]
        self._shapes: dict[Any, tuple[int, ...]] = {}

    def shape(self, variable: Any) -> tuple[int, ...]:
        """Shape at the data that are there now."""
        return self.shapes([variable])[variable]

    def shapes(self, variables: Iterable[Any]) -> dict[Any, tuple[int, ...]]:
        """Shapes of several; those that no type tells are computed together."""
        asked = dict.fromkeys(variables)
        open_ = [v for v in asked if None in v.type.shape and v not in self._shapes]
        if open_:
            self._shapes.update(zip(open_, self._evaluated(open_), strict=True))
        return {v: self._shapes.get(v, tuple(v.type.shape)) for v in asked}

    def _evaluated(self, variables: list[Any]) -> list[tuple[int, ...]]:
        inputs = {rv: rv.type(name=rv.name) for rv in self.model.free_RVs}
        values = {**inputs, **{rv: self.model.rvs_to_values[rv] for rv in self.model.observed_RVs}}
        nodes = replace_rvs_by_values(variables, rvs_to_values=values, rvs_to_transforms={})
        shape = compile_graph(list(inputs.values()), [node.shape for node in nodes])
        found = shape(*(np.asarray(self.start[rv.name], rv.dtype) for rv in inputs))
        return [tuple(map(int, one)) for one in found]


class Look:
    """A graph as it looks when given variables are the members."""

    def __init__(self, targets: Targets, members: Members) -> None:
        self.targets, self.members = targets, members
        self.notes = Notes(members, targets.leaves)
        self._parts: dict[Any, Part | str | None] = {}

    @property
    def parts(self) -> list[Part]:
        """The parts of all targets that hold members."""
        found = [self.part(target) for target in self.targets.all]
        return [part for part in found if isinstance(part, Part)]

    def fits(self) -> bool:
        """Whether all members can stay."""
        found = [self.part(target) for target in self.targets.all]
        return not any(isinstance(part, str) for part in found) and not self.in_priors()

    def inside(self, nodes: Iterable[Any]) -> set[Any]:
        """Members that nodes depend on."""
        return {rv for node in nodes for rv in self.notes[node].held}

    def _entries(self, target: Any) -> list[Any]:
        """Where the walk begins: parameters of an observed variable, or a potential."""
        observed = target in self.targets.leaves
        nodes = target.owner.inputs if observed else [target]
        return [node for node in nodes if self.notes[node].held]

    def held(self, target: Any) -> list[Any]:
        """Members that a target holds, in the order of the model."""
        inside = self.inside(self._entries(target))
        return [rv for rv in self.members if rv in inside]

    def cuts(self, target: Any) -> list[set[Any]]:
        """What the highest affine nodes of a target hold, each set once; then single members."""
        found: dict[frozenset[Any], None] = {}
        seen: set[Any] = set()
        todo = list(reversed(self._entries(target)))
        while todo:
            node = todo.pop()
            note = self.notes[node]
            if node in seen or not note.held:
                continue
            seen.add(node)
            if note.fault is None:
                found[note.held] = None
            else:
                todo += reversed(parents(node.owner))
        return [set(held) for held in found]

    # The predictor ----------------------------------------------------------------------------

    def part(self, target: Any) -> Part | str | None:
        """The part of a target, why there is none, or None: it holds no members."""
        if target not in self._parts:
            found = None
            if self._entries(target):
                observed = target in self.targets.leaves
                found = self._observed(target) if observed else self._potential(target)
            self._parts[target] = found
        return self._parts[target]

    def _observed(self, rv: Any) -> Part | str | None:
        found = self._by_element(rv)
        return (self._by_class(rv) or found) if isinstance(found, str) else found

    def _by_element(self, rv: Any) -> Part | str | None:
        if _density_of(rv).owner.op.ndim_supp > 0:
            return (
                f"{described(rv)} is one density of several elements together, not separable: "
                f"sites need one number per element of the data"
            )
        if self.targets.predictor is not None and self._uses_named(rv):
            return self._named(rv)
        term = lifted(rv, self.notes)
        wanted = self.targets.shape(self.targets.model.rvs_to_values[rv])
        entries = [node for node in term.owner.inputs if self.notes[node].held]
        common = self._common(entries)
        if not common:
            faults = [fault for node in entries if (fault := self.notes[node].fault) is not None]
            where = f"through {faults[0]}" if faults else "as another parameter"
            return f"it reaches {rv.name!r} past an affine predictor, {where}"
        node = self._of_shape(common, wanted)
        if node is not None and (through := self._in_the_way(entries, node, wanted)):
            return (
                f"between its predictor and {described(rv)} is {through}, which is no function of "
                f"each element alone"
            )
        if node is not None:
            return self._part(rv.name, term, node, rv, wanted)
        found = self.targets.shape(common[0])
        softmax = ": one of several for each row" if kind(rv) == "CategoricalRV" else ""
        return (
            f"the predictor of {described(rv)} has shape {found}, the data {wanted}{softmax}: not "
            f"separable, sites need one number per element of the data"
        )

    def _by_class(self, rv: Any) -> Part | None:
        """The part of one class of several, or of counts of classes: a predictor for each class."""
        if kind(rv) not in ("CategoricalRV", "MultinomialRV"):
            return None
        entries = self._entries(rv)
        wanted = self.targets.shape(self.targets.model.rvs_to_values[rv])
        shapes = self.targets.shapes(self._common(entries))
        rows = wanted if kind(rv) == "CategoricalRV" else wanted[:-1]
        if len(rows) != 1:
            return None
        classes = self.targets.shape(rv.owner.op.dist_params(rv.owner)[-1])[-1]
        wide = [n for n, shape in shapes.items() if shape == (*rows, classes)]
        return self._part(rv.name, rv, wide[0], rv, shapes[wide[0]], True) if wide else None

    def _part(
        self,
        name: str,
        term: Any,
        node: Any,
        rv: Any,
        shape: tuple[int, ...],
        coupled: bool = False,
    ) -> Part:
        entries = [term] if rv is None else term.owner.inputs
        equal = self._equal([i for i in entries if self.notes[i].held], self.notes[node].number)
        same = (node, *(v for v in equal if v is not node))
        return Part(name, term, node, same, rv, shape, coupled)

    def _equal(self, entries: list[Any], number: int) -> list[Any]:
        return [v for v in self._order(entries) if self.notes[v].number == number]

    def _in_the_way(self, entries: list[Any], node: Any, wanted: tuple[int, ...]) -> str | None:
        """An operation after the predictor that couples rows, or that cannot take more of them."""
        number, full = self.notes[node].number, self.targets.shape(node) == wanted
        behind = Notes(self._equal(entries, number), self.targets.leaves)
        for v in self._order(entries):
            if not behind[v].held or v in behind.on:
                continue
            name = operation(v.owner.op)
            elementwise = type(v.owner.op).__name__ == "Elemwise" or name in _VIEWS
            if name in _COUPLING or not (full or elementwise or hasattr(v.owner.op, "ndim_supp")):
                return name
        return None

    def _uses_named(self, rv: Any) -> bool:
        eta = self.targets.model[self.targets.predictor]
        return eta in set(ancestors(rv.owner.inputs, blockers=self.targets.leaves))

    def _named(self, rv: Any) -> Part | str | None:
        """The part with the predictor that was asked for."""
        model, name = self.targets.model, self.targets.predictor
        eta = model[name]
        entries = self._entries(rv)
        beside = Notes(self.members, {*self.targets.leaves, eta})
        past = {m for node in entries for m in beside[node].held} - {eta}
        if past:
            return (
                f"{', '.join(sorted(m.name for m in past))} reaches {rv.name!r} past the predictor "
                f"{name!r}: the likelihood may hold the weights only through it"
            )
        if (fault := self.notes[eta].fault) is not None:
            held = ", ".join(described(m) for m in self.members if m in self.notes[eta].held)
            return (
                f"the predictor {name!r} is not affine in {held}: it passes through {fault}. Name "
                f"one block with weights="
            )
        wanted = self.targets.shape(model.rvs_to_values[rv])
        return self._part(rv.name, rv, eta, rv, wanted)

    def _potential(self, potential: Any) -> Part | str:
        term = lifted(_summed(potential), self.notes)
        wanted = self.targets.shape(term)
        common = self._common([term])
        node = next((n for n in common if self.targets.shape(n) == wanted), None)
        if node is not None:
            return self._part(potential.name, term, node, None, wanted)
        return (
            f"the potential {potential.name!r} holds it in a way that is no site: it must be "
            f"elementwise in one affine expression. Write it as a distribution"
        )

    def _order(self, entries: list[Any]) -> list[Any]:
        """Nodes between the members and some entries that hold members, inputs first."""
        return list(walk_toposort(entries, self._above))

    def _above(self, v: Any) -> list[Any]:
        if v in self.targets.leaves or v.owner is None:
            return []
        return [i for i in parents(v.owner) if self.notes[i].held]

    def _common(self, entries: list[Any]) -> list[Any]:
        """Affine nodes that lie on every path from the members to the entries, highest first."""
        order = self._order(entries)
        above = {v: self._above(v) for v in order}
        to_members: dict[Any, int] = {}
        for v in order:
            to_members[v] = sum(to_members[i] for i in above[v]) if above[v] else 1
        from_data: Counter[Any] = Counter(entries)
        through: Counter[int] = Counter()
        for v in reversed(order):
            through[self.notes[v].number] += from_data[v] * to_members[v]
            for i in above[v]:
                from_data[i] += from_data[v]
        every = sum(to_members[v] for v in entries)
        notes = self.notes
        common = [v for v in reversed(order) if through[notes[v].number] == every]
        return [v for v in common if notes[v].fault is None]

    def _of_shape(self, chain: list[Any], wanted: tuple[int, ...]) -> Any:
        """The node to cut at: one number for each element of the data, by name if it has one."""
        shapes = self.targets.shapes(chain)
        full = [node for node in chain if shapes[node] == wanted]
        if full:
            same = self._elementwise(full)
            named = [n for n in same if self.targets.model.named_vars.get(n.name) is n]
            return named[0] if named else self._unscaled(same)
        fitting = [n for n in chain if _broadcasts(shapes[n], wanted)]
        return max(fitting, key=lambda n: len(shapes[n]), default=None)

    def _elementwise(self, chain: list[Any]) -> list[Any]:
        """The first nodes of a chain, as long as each is an elementwise image of the next."""
        same = chain[:1]
        for lower in chain[1:]:
            node = same[-1].owner
            elementwise = type(node.op).__name__ == "Elemwise" or operation(node.op) in _VIEWS
            if not elementwise or lower not in node.inputs:
                break
            same.append(lower)
        return same

    def _unscaled(self, chain: list[Any]) -> Any:
        """Take constant factors off: -eta / sqrt(2) of a written-out probit is eta."""
        node = chain[0]
        for lower in chain[1:]:
            others = [i for i in node.owner.inputs if i is not lower]
            if operation(node.owner.op) not in _SCALINGS or not all(map(_is_number, others)):
                break
            node = lower
        return node

    # Priors -----------------------------------------------------------------------------------

    def in_priors(self) -> dict[Any, str]:
        """Members that enter the prior of another variable in a way that is not affine."""
        leaving: dict[Any, str] = {}
        for rv in self.targets.needed:
            if rv in self.members:
                locations, rest = locations_and_rest(rv)
                bad = self.inside([*rest, *(n for n in locations if self.notes[n].fault)])
            else:
                bad = self.inside(rv.owner.inputs)
            how = "not as an affine mean" if rv in self.members else "which is a hyperparameter"
            reason = f"the prior of {rv.name!r} depends on it, {how}"
            leaving |= {m: reason for m in self.members if m in bad and m is not rv}
        return leaving

    def reaching(self) -> set[Any]:
        """Members that enter a predictor, or the prior mean of one that does."""
        found = self.inside(part.predictor for part in self.parts)
        todo = list(found)
        while todo:
            locations, _ = locations_and_rest(todo.pop())
            more = self.inside(locations) - found
            found |= more
            todo += more
        return found


def _summed(potential: Any) -> Any:
    """Terms whose sum a potential is: -sum(f(x)) is the sum of -f(x)."""
    term, factor = potential, 1.0
    while term.owner is not None and term.ndim == 0:
        name, inputs = operation(term.owner.op), term.owner.inputs
        numbers = [i for i in inputs if _is_number(i)]
        if name == "Neg":
            factor = -factor
        elif name == "Mul" and len(numbers) == len(inputs) - 1:
            factor *= float(np.prod([_number(i) for i in numbers]))
        elif name not in {"Sum", "Identity", *_VIEWS}:
            break
        [term] = [i for i in inputs if i not in numbers][:1]
    return term if factor == 1.0 else factor * term


def _density_of(rv: Any) -> Any:
    """The variable itself, of one that counts for more rows than it has (total_size=)."""
    while not hasattr(rv.owner.op, "ndim_supp"):
        rv = rv.owner.inputs[0]
    return rv


def _broadcasts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    if len(shape) > len(wanted):
        return False
    tail = wanted[len(wanted) - len(shape) :]
    return all(n in (1, m) for n, m in zip(shape, tail, strict=True))


def _is_number(variable: Any) -> bool:
    return _number(variable) is not None


def is_zero(variable: Any) -> bool:
    """Whether a node is the constant zero."""
    return bool(_number(variable) == 0.0)


def _number(variable: Any) -> Any:
    """The value of a scalar constant, or of an expression of such (sqrt(2)); None if it is none."""
    while variable.owner is not None and operation(variable.owner.op) in _VIEWS:
        variable = variable.owner.inputs[0]
    if variable.owner is None:
        known = isinstance(variable, Constant) and np.size(variable.data) == 1
        return float(np.squeeze(variable.data)) if known else None
    op, inputs = variable.owner.op, variable.owner.inputs
    if type(op).__name__ != "Elemwise" or not all(map(_is_number, inputs)):
        return None
    return float(op.scalar_op.impl(*map(_number, inputs)))
