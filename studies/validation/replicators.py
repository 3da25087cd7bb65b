"""Replications that `av.sbc` does not have: step methods, and a mixture that draws its labels."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ardvark.diagnostics.calibration.replication import Point, Replicator
from ardvark.errors import InputError

__all__ = ["JointMixture", "SlowStepReplicator", "StepMixture", "StepReplicator", "WithoutSigns"]

TUNE = 50


class StepReplicator(Replicator):
    """Chains of step methods as `pm.sample` runs them, without compiling for each data set.

    `settings` makes the steps of a model. Each chain starts at a draw of the prior, and the steps
    are told of each new chain (`setup_chain`), as PyMC tells them.
    A variable that no step moves would stay where its chain began, so each must have one. The steps
    serve all chains, so they must not remember: of PyMC's own only such as do not tune.
    """

    thin: ClassVar[int] = 1

    @property
    def by_arrays(self) -> bool:
        """Never: the steps are what is tried."""
        return False

    @cached_property
    def steps(self) -> list[Any]:
        """The steps of the model, in their order."""
        import pytensor

        with self.model, pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
            steps = list(self.settings(self.model))
        moved = {value.name for step in steps for value in step.vars}
        if left := [v.name for v in self.model.value_vars if v.name not in moved]:
            raise InputError(f"no step moves {', '.join(left)}")
        return steps

    @cached_property
    def scales(self) -> tuple[Any, Any]:
        """Functions to the scale on which PyMC samples, and from it."""
        import pytensor

        model = self.model
        inputs = [rv.type() for rv in model.free_RVs]
        values = []
        for rv, x in zip(model.free_RVs, inputs, strict=True):
            transform = model.rvs_to_transforms[rv]
            values.append(x if transform is None else transform.forward(x, *rv.owner.inputs))
        with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
            return pytensor.function(inputs, values), model.compile_fn(
                model.replace_rvs_by_values(model.free_RVs), inputs=model.value_vars, point_fn=False
            )

    def _fitted(self, truth: Point, seed: int, rng: np.random.Generator) -> dict[str, Any]:
        streams = np.random.SeedSequence(seed).spawn(2 * self.chains)
        chains = [self._chain(streams[2 * k], streams[2 * k + 1]) for k in range(self.chains)]
        stacked = {name: np.stack([chain[name] for chain in chains]) for name in chains[0]}
        return self.placed(stacked, truth, rng) | {"converged": True}

    def _chain(self, start: Any, moves: Any) -> dict[str, Any]:
        point = self.to_values(self.simulator.draw(start)[0])
        for step, stream in zip(self.steps, moves.spawn(len(self.steps)), strict=True):
            step.setup_chain(np.random.default_rng(stream), TUNE, self.draws)
            step.rng = np.random.default_rng(stream)
        kept = []
        for sweep in range(TUNE + self.thin * self.draws):
            for step in self.steps:
                point, _ = step.step(point)
            if sweep >= TUNE and (sweep - TUNE) % self.thin == 0:
                kept.append(self.to_natural(point))
        return {name: np.stack([one[name] for one in kept]) for name in kept[0]}

    def to_values(self, truth: Point) -> dict[str, Any]:
        """A point of the free variables as PyMC's samplers have it."""
        model = self.model
        inputs = [np.asarray(truth[rv.name], rv.dtype) for rv in model.free_RVs]
        values = [model.rvs_to_values[rv] for rv in model.free_RVs]
        found = {v.name: x for v, x in zip(values, self.scales[0](*inputs), strict=True)}
        return {value.name: found[value.name] for value in model.value_vars}

    def to_natural(self, point: dict[str, Any]) -> dict[str, Any]:
        """The way back."""
        natural = self.scales[1](*(point[value.name] for value in self.model.value_vars))
        return {rv.name: x for rv, x in zip(self.model.free_RVs, natural, strict=True)}


class SlowStepReplicator(StepReplicator):
    """Steps that mix slowly: four sweeps for each draw that is kept."""

    thin = 4


class JointMixture(Replicator):
    """A mixture whose labels are drawn too, where x is given its label.

    The graph of the joint density has labels as data and P(label) in its density. P meets x only by
    the labels, so labels of a P are drawn first, then all else given them.
    """

    def simulated(self, seed: np.random.SeedSequence) -> tuple[Point, Point]:
        """Labels first, then the rest."""
        first, second, third = seed.spawn(3)
        if "x" not in self.simulator.places:  # the conditional target draws its labels itself
            return self.simulator.draw(second)
        p = self.simulator.draw(first)[0]["class_probability"]
        rng = np.random.default_rng(third)
        label = self.model["label"].get_value()
        self.model["label"].set_value(rng.choice(len(p), label.shape, p=p).astype(label.dtype))
        truth, data = self.simulator.draw(second)
        return truth | {"class_probability": p}, data

    def ranked(self, names: Collection[str]) -> Collection[str]:
        """What all kernels share: they are told apart by their number alone."""
        return [name for name in names if name in ("class_probability", "included")]


class WithoutSigns(Replicator):
    """Products of w and lam, each known up to its sign: what does not depend on it is ranked."""

    def ranked(self, names: Collection[str]) -> Collection[str]:
        """The precisions and the noise; the predictor and the sums come in any case."""
        return [name for name in names if name.startswith("alpha") or name == "beta"]


class StepMixture(StepReplicator, JointMixture):
    """Steps of a mixture."""

    thin = 2
