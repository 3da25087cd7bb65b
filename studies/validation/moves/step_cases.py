"""Kernels on a graph, each as a `Kernel` of `joint.py`: step methods, slices, and θ given weights.

States are free variables on their natural scale. The graph draws its own data; a step sees them as
it would in `pm.sample`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from pymc.pytensorf import compile as compile_random
from pymc.pytensorf import find_rng_nodes, reseed_rngs
from pytensor.graph.replace import clone_replace

import ardvark as av
from ardvark.inference.graph.read import read_model
from ardvark.inference.pymc_models.compile import quick
from ardvark.inference.sampled.theta import ThetaSweep
from ardvark.inference.samplers.elliptical_slice import slice_sample
from ardvark.inference.sites.arrays import Array
from ardvark.studies.validation.moves.joint import Kernel, Rng
from ardvark.studies.validation.replicators import StepReplicator

__all__ = ["GRAPH_KERNELS"]

type Point = dict[str, Any]
ROWS, INPUTS = 8, 2


@dataclass(frozen=True)
class Graph:
    """A model with its simulator; `steps` makes the steps that move it."""

    model: Any
    steps: Callable[[Any], list[Any]]
    looked: tuple[str, ...]  # variables, each through a bounded function
    relabels: bool = False  # the mixture has its labels as data

    @cached_property
    def stepper(self) -> StepReplicator:
        """Scales, steps and the simulator of the prior."""
        return StepReplicator(self.model, "nuts", self.steps, False, 1, 1)

    @cached_property
    def _data(self) -> Any:
        """Data given the free variables."""
        inputs = [rv.type() for rv in self.model.free_RVs]
        replaced = dict(zip(self.model.free_RVs, inputs, strict=True))
        outputs = clone_replace(self.model.observed_RVs, replaced)
        with quick():
            function = compile_random(
                inputs, outputs, mode="FAST_COMPILE", on_unused_input="ignore"
            )
        return function, find_rng_nodes(outputs)

    def begin(self, rng: Rng) -> Point:
        """A draw of the prior."""
        seed = np.random.SeedSequence(int(rng.integers(2**63)))
        return dict(self.stepper.simulator.draw(seed)[0])

    def data(self, s: Point, rng: Rng) -> Point:
        """Data of a state; of the mixture its labels first."""
        found = {}
        if self.relabels:
            label = self.model["label"]
            p = s["class_probability"]
            drawn = rng.choice(len(p), label.get_value().shape, p=p)
            found["label"] = drawn.astype(label.dtype)
            label.set_value(found["label"])
        function, generators = self._data
        reseed_rngs(generators, [int(x) for x in rng.integers(2**32, size=4)])
        values = function(*(np.asarray(s[rv.name], rv.dtype) for rv in self.model.free_RVs))
        names = [rv.name for rv in self.model.observed_RVs]
        return found | dict(zip(names, map(np.array, values), strict=True))

    def move(self, s: Point, data: Point, rng: Rng) -> Point:
        """Each step once."""
        if self.relabels:
            self.model["label"].set_value(data["label"])
        stepper = self.stepper
        with stepper.simulator.observing({n: v for n, v in data.items() if n != "label"}):
            point = stepper.to_values(s)
            for step in stepper.steps:
                if hasattr(step, "setup_chain") and self._looks_at_data(step):
                    step.setup_chain(rng, 0, 1)
                step.rng = rng
                point, _ = step.step(point)
            return stepper.to_natural(point)

    @staticmethod
    def _looks_at_data(step: Any) -> bool:
        """Steps that keep what they made of the data until the next chain."""
        return type(step).__name__ in ("SubsetJump", "MixtureJump", "MixtureGibbs")

    def seen(self, s: Point, data: Point) -> Array:
        """Each variable by element, the likelihood, and a product with the data."""
        parts = [np.ravel(_bounded(name, s[name])) for name in self.looked]
        outer = [np.tanh(parts[0][0] * parts[0][-1])]
        first = np.ravel(next(iter(data.values())))[0]
        with self.stepper.simulator.observing({n: v for n, v in data.items() if n != "label"}):
            if self.relabels:
                self.model["label"].set_value(data["label"])
            likely = self.stepper.simulator.sums(s)["log_likelihood"]
        return np.concatenate(
            [*parts, outer, [np.tanh(likely / ROWS), np.tanh(first) * parts[0][0]]]
        )

    def kernel(self, move: Callable[..., Point] | None = None) -> Kernel:
        """Put the graph beside its steps, or beside another move."""
        return Kernel(self.begin, self.data, move or self.move, self.seen)


def _bounded(name: str, value: Any) -> Any:
    if name == "included" or name.endswith("probability"):
        return value
    positive = name.startswith(("alpha", "sigma", "tau", "scale"))
    return 1 / (1 + value) if positive else np.tanh(value)


# Models -------------------------------------------------------------------------------------------


def _inputs() -> Array:
    return np.random.default_rng(17).normal(size=(ROWS, INPUTS))


def _classes(link: str = "probit", **options: Any) -> Any:
    build = av.models.ard_classification
    return build(_inputs(), np.arange(ROWS) % 2, link=link, a=2.5, b=1.5, **options)


LOOKED = ("w", "bias", "alpha", "alpha_bias")


# Steps of a Gaussian block ------------------------------------------------------------------------


class _WrongGamma(av.steps.GammaGibbs):
    """A Gibbs step that has forgotten half a degree of freedom."""

    def step(self, point: Any) -> Any:
        moved, statistics = super().step(point)
        names = [value.name for value in self.vars]
        return {k: v + np.log(1.25) if k in names else v for k, v in moved.items()}, statistics


def _block_steps(kind: str, fault: str | None, model: Any, **options: Any) -> list[Any]:
    gibbs = _WrongGamma if fault == "precisions a quarter too large" else av.steps.GammaGibbs
    return [
        getattr(av.steps, kind)([model["bias"], model["w"]], **options),
        av.steps.ScaleStep([model["w"], model["alpha"]]),
        gibbs([model["alpha"], model["alpha_bias"]]),
    ]


def _block(kind: str, link: str, fault: str | None, **options: Any) -> Kernel:
    steps = partial(_block_steps, kind, fault, **options)
    return Graph(_classes(link), steps, LOOKED).kernel()


def _subset_jump(fault: str | None) -> Kernel:
    class Forgets(av.steps.SubsetJump):
        """Jumps that leave out the density of the proposed weights."""

        def log_proposal(self, state: Any, theta: Any) -> float:
            return 0.0

    build = av.models.subset_classification
    model = build(_inputs(), np.arange(ROWS) % 2, expected_inputs=1.0)
    jumps = Forgets if fault else av.steps.SubsetJump

    def steps(model: Any) -> list[Any]:
        return [jumps([model["included"], model["bias"], model["w"]])]

    return Graph(model, steps, ("w", "bias", "included")).kernel()


def _mixture_steps(fault: str | None) -> Kernel:
    class Forgets(av.steps.MixtureJump):
        """Jumps that have forgotten the prior of the subset."""

        def _look(self) -> None:
            super()._look()
            log_prior = np.zeros_like(self.problem.log_prior)
            self.problem = self.problem._replace(log_prior=log_prior)

    jumps = Forgets if fault else av.steps.MixtureJump
    options: dict[str, Any] = {"n_kernels": 2, "background": "gaussian", "expected_inputs": 0.7}
    model = av.models.rbf_mixture(_inputs(), np.arange(ROWS) % 2, **options)
    looked = ("class_probability", "included")
    graph = Graph(model, lambda m: [jumps(), av.steps.MixtureGibbs()], looked, relabels=True)
    return graph.kernel()


# The slice at given precisions, and θ given the weights ------------------------------------------


def _slice(link: str, fault: str | None) -> Kernel:
    graph = Graph(_classes(link, alpha=np.ones(INPUTS + 1)), lambda m: [], ("w", "bias"))
    latent = read_model(graph.model)
    settings = av.EllipticalSlice(tune=0, ellipse="prior")

    def move(s: Point, data: Point, rng: Rng) -> Point:
        labels = data
        if fault == "one label is wrong":
            labels = {name: np.append(1 - v[:1], v[1:]).astype(v.dtype) for name, v in data.items()}
        with graph.stepper.simulator.observing(labels):
            w = np.concatenate([np.ravel(s[name]) for name in latent.weights])
            found = slice_sample(latent.at({}), settings, 1, 1, rng, w[None])
        return dict(latent.split(found.weights[0, 0]))

    return graph.kernel(move)


def _theta(fault: str | None) -> Kernel:
    """Weights of a regression by EP's ellipse, σ by slices, precisions by Gibbs."""
    build = av.models.ard_regression
    X = _inputs()
    model = build(X, X[:, 0], a=2.5, b=1.5)
    graph = Graph(model, lambda m: [], (*LOOKED, "sigma"))
    latent = read_model(model)
    sweep = ThetaSweep(latent)
    rule = av.EP()

    def move(s: Point, data: Point, rng: Rng) -> Point:
        with graph.stepper.simulator.observing(data):
            theta = {name: s[name] for name in latent.hyper}
            w = rule.approximate(latent.at(theta)).posterior.draws(1, rng)[0]  # exact: Gaussian
            theta = sweep.move(w, theta, rng)
        if fault == "noise a tenth too large":
            theta["sigma"] = 1.1 * theta["sigma"]
        return dict(theta) | dict(latent.split(w))

    return graph.kernel(move)


QUARTER = "precisions a quarter too large"
GRAPH_KERNELS: dict[str, tuple[Any, tuple[str, ...], int]] = {
    "steps: EP, scale, Gibbs": (partial(_block, "EPStep", "probit"), (QUARTER,), 600),
    "steps: EP by independence": (
        partial(_block, "EPStep", "probit", kernel="independence"), (QUARTER,), 600
    ),
    "steps: Laplace, logit": (partial(_block, "LaplaceStep", "logit"), (QUARTER,), 600),
    "steps: VB, logit": (partial(_block, "VBStep", "logit"), (QUARTER,), 600),
    "steps: exact probit": (partial(_block, "ExactProbitStep", "probit"), (QUARTER,), 600),
    "steps: jumps over subsets": (_subset_jump, ("proposal density forgotten",), 600),
    "steps: mixture": (_mixture_steps, ("prior of the subset forgotten",), 600),
    "elliptical slice, probit": (partial(_slice, "probit"), ("one label is wrong",), 1200),
    "elliptical slice, logit": (partial(_slice, "logit"), ("one label is wrong",), 1200),
    "Sampled: slices of θ, regression": (_theta, ("noise a tenth too large",), 600),
}  # fmt: skip
