"""`MixtureGibbs`, `MixtureJump`: the updates and the jumps of Syk00 as PyMC step methods.

For the graph of `rbf_mixture` with its joint target, in `pm.sample`:

    pm.sample(step=[MixtureGibbs(model=model), MixtureJump(model=model)], model=model)

Allocations of rows to kernels are summed out of the graph. Each step draws them first, given the
point, and forgets them in the end: so each leaves the graph's posterior as it is, and so do the two
in turn, with other steps between them or without.

| step | moves | how |
|---|---|---|
| `MixtureGibbs` | class and kernel probabilities, kernel means, precisions, rates | Syk00 (3) |
| `MixtureJump` | `included`, what is born and dies with an input, backgrounds | Syk00 (5), (6) |

The graph has kernel coefficients for an input outside the subset and a background for one inside:
they have their prior, from which each step draws those that are its own.

The background of an excluded input is integrated out of a jump: its evidence log p0(x_j) is a number
(`mixture/background.py`), known to `evidence_error` nats. Given x_j its coefficients depend on nothing
else, so the step carries a Gibbs chain of them for every input along, in or out; the point shows it
for those that are out. These chains are part of the state of the step.
"""  # noqa: E501

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pymc.model import modelcontext
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from scipy.special import softmax

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.mixture.background import BackgroundPrior, Evidence, gibbs, mixture_evidence
from ardvark.inference.mixture.background import slices as first_allocations
from ardvark.inference.mixture.chains import empty_state
from ardvark.inference.mixture.kernels import (
    Problem,
    State,
    allocate,
    fill_priors,
    gibbs_sweep,
    jump,
    log_rows,
    rung,
)
from ardvark.inference.mixture.reading import reading_of
from ardvark.inference.sites.arrays import Array
from ardvark.inference.steps.contract import OwnStep
from ardvark.models.checks import positive_integer

__all__ = ["MixtureGibbs", "MixtureJump"]

KERNELS = ("kernel_mean", "kernel_precision", "kernel_rate")
BACKGROUND = ("background_mean", "background_precision", "background_rate")
N_MOVES = 3
FIRST_SWEEPS = 200  # of a background before it is first shown


@dataclass_state
class MixtureJumpState(StepMethodState):  # type: ignore[misc]
    """The backgrounds of all inputs: see the module."""

    allocation: Any
    probability: Any
    precision: Any
    mean: Any
    rate: Any


class _Values:
    """Between a point of PyMC and states in the units of z."""

    def __init__(self, model: Any, name: str) -> None:
        self.read = reading_of(model, name)
        if self.read.target != "joint":
            raise UnsupportedPair(
                f"{name}: P(t | x) has no Gibbs updates: it takes the joint target. Use "
                "av.fit(model, av.ReversibleJump()), or SubsetJump([included]) with NUTS."
            )
        self.value = {rv.name: model.rvs_to_values[rv].name for rv in model.free_RVs}
        prior = self.read.prior
        self.floor = (prior.resolution * prior.spread) ** 2

    def state(self, point: dict[str, Any]) -> State:
        """Give the state of a point, allocations to be drawn."""
        prior = self.read.prior
        n_inputs, n_rows = self.read.z.shape
        s = rung(empty_state((1,), prior.n_classes, prior.n_kernels, n_inputs, n_rows), 0)
        spread = prior.spread[:, None]
        s.on[:], s.c[:] = point[self.value["included"]] > 0, self.read.label
        s.P[:] = _simplex(point[self.value["class_probability"]])
        s.w[:] = _simplex(point[self.value["kernel_probability"]])
        s.mean[:] = (point[self.value["kernel_mean"]] - prior.centre[:, None]) / spread
        s.tau[:] = np.exp(point[self.value["kernel_precision"]]) * spread**2
        s.beta[:] = (np.exp(point[self.value["kernel_rate"]]) + self.floor) / prior.spread**2
        return s

    def coefficients(self, names: tuple[str, ...], mean: Array, tau: Array, beta: Array) -> Any:
        """Give values of PyMC for means, precisions and rates."""
        prior = self.read.prior
        spread = prior.spread[:, None]
        above = np.maximum(beta * prior.spread**2 - self.floor, 1e-300)
        parts = (prior.centre[:, None] + spread * mean, np.log(tau / spread**2), np.log(above))
        return {self.value[name]: part for name, part in zip(names, parts, strict=True)}


def _from_prior(rng: Any, p: Problem, n_kernels: int) -> tuple[Array, Array, Array]:
    """Means, precisions and rates of every input."""
    mean, tau, beta = np.empty((len(p.z), n_kernels)), np.empty((len(p.z), n_kernels)), np.copy(p.h)
    fill_priors(rng, p, mean, tau, beta)
    return mean, tau, beta


def _simplex(value: Array) -> Array:
    """Probabilities of PyMC's value of them."""
    return np.asarray(softmax(np.append(value, -value.sum(-1, keepdims=True), axis=-1), axis=-1))


def _unsimplex(probability: Array) -> Array:
    log_p = np.log(np.maximum(probability, 1e-300))
    return np.asarray(log_p[..., :-1] - log_p.mean(axis=-1, keepdims=True))


class _MixtureStep(OwnStep):
    """What the two have in common: their variables are those that the graph has."""

    moves: ClassVar[tuple[str, ...]] = ()

    def __init__(self, vars: Any = None, *, model: Any = None, **common: Any) -> None:
        model = modelcontext(model)
        self.values = _Values(model, type(self).__name__)
        names = [name for name in self.moves if name in self.values.value]
        if vars is not None:
            given = {v if isinstance(v, str) else v.name for v in vars}
            given = {n for n in names if {n, self.values.value[n]} & given}
            if given != set(names):
                raise InputError(
                    f"{type(self).__name__} moves {', '.join(names)} together. Leave vars out."
                )
        super().__init__([model[name] for name in names], model=model, **common)
        self.model = model

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain; the data may have changed since the last one."""
        super().setup_chain(rng, tune, draws)
        fresh = _Values(self.model, type(self).__name__)
        old = self.values.read
        if not (
            np.array_equal(fresh.read.z, old.z) and np.array_equal(fresh.read.label, old.label)
        ):
            self.values = fresh
            self._look()

    def _look(self) -> None:
        """Compute what depends on the data."""


class MixtureGibbs(_MixtureStep):
    """Gibbs updates at the present subset, Syk00 (3); see the module.

    Parameters
    ----------
    vars : list of variables, optional
        All that it moves: class_probability, kernel_probability, kernel_mean, kernel_precision,
        kernel_rate.
    model, rng
        As PyMC's own steps have them.
    """

    name = "mixture_gibbs"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {}
    moves = ("class_probability", "kernel_probability", *KERNELS)

    def step(self, point: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Draw allocations, then all else given them."""
        values, read = self.values, self.values.read
        s = values.state(point)
        none = np.zeros(len(read.z))
        problem = read.problem(Evidence(none, none))
        gibbs_sweep(self.rng, problem, s, np.empty((read.prior.n_kernels, read.z.shape[1])))
        fresh = _from_prior(self.rng, problem, read.prior.n_kernels)
        on = s.on[:, None]
        return point | values.coefficients(
            KERNELS,
            np.where(on, s.mean, fresh[0]),
            np.where(on, s.tau, fresh[1]),
            np.where(s.on, s.beta, fresh[2]),
        ) | {
            values.value["class_probability"]: _unsimplex(s.P),
            values.value["kernel_probability"]: _unsimplex(s.w),
        }, [{}]  # fmt: skip


class MixtureJump(_MixtureStep):
    """Births, deaths and exchanges of inputs, Syk00 (5) and (6); see the module.

    Parameters
    ----------
    vars : list of variables, optional
        All that it moves: included, kernel_mean, kernel_precision, kernel_rate and the variables
        of the background.
    jumps : int, optional
        Jumps in a step: as many as there are inputs.
    model, rng
        As PyMC's own steps have them.
    """

    name = "mixture_jump"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "subset_accept": (np.float64, []),  # share of the jumps of a step that were made
        "subset_made": (np.int64, []),
        "subset_size": (np.int64, []),
    }
    _state_class = MixtureJumpState
    moves = ("included", *KERNELS, "background_probability", *BACKGROUND)

    def __init__(self, vars: Any = None, *, jumps: int | None = None, **options: Any) -> None:
        super().__init__(vars, **options)
        self.jumps = None if jumps is None else positive_integer(jumps, "jumps")
        self._look()

    def _look(self) -> None:
        read = self.values.read
        prior, shape = read.prior, (len(read.z), read.prior.n_background)
        floor = max(prior.resolution**2, 1e-300)
        evidence = mixture_evidence(
            read.z, prior.n_background, prior.shape, prior.g, read.h, floor, 0
        )
        self.problem = read.problem(evidence)
        self.evidence_error = float(evidence.error.max())
        self.allocation = np.zeros(read.z.shape, np.int64)
        self.probability, self.precision = np.ones(shape), np.ones(shape)
        self.mean, self.rate = np.zeros(shape), np.full(shape[0], -1.0)  # -1: not begun

    def step(self, point: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Draw allocations, jump, and draw what a subset leaves to its prior."""
        values, p, prior = self.values, self.problem, self.values.read.prior
        s = values.state(point)
        rows = np.empty((prior.n_kernels, p.z.shape[1]))
        log_rows(p, s, rows)
        allocate(self.rng, p.label, s, rows)
        number = self.jumps or len(p.z)
        made = 0
        for _ in range(number):
            made += jump(self.rng, p, s, int(self.rng.random() * N_MOVES), True, rows)
        self._sweep_backgrounds()
        fresh = _from_prior(self.rng, p, prior.n_kernels)
        other = _from_prior(self.rng, p, prior.n_background)
        on = s.on[:, None]
        new = point | {values.value["included"]: s.on.astype(point[values.value["included"]].dtype)}
        new |= values.coefficients(
            KERNELS, np.where(on, s.mean, fresh[0]), np.where(on, s.tau, fresh[1]),
            np.where(s.on, s.beta, fresh[2]),
        )  # fmt: skip
        new |= values.coefficients(
            BACKGROUND, np.where(on, other[0], self.mean), np.where(on, other[1], self.precision),
            np.where(s.on, other[2], self.rate),
        )  # fmt: skip
        if prior.n_background > 1:
            flat = self.rng.dirichlet(np.ones(prior.n_background), size=len(p.z))
            shown = np.where(on, flat, self.probability)
            new[values.value["background_probability"]] = _unsimplex(shown)
        size = int(s.on.sum())
        return new, [
            {"subset_accept": made / number, "subset_made": int(made), "subset_size": size}
        ]

    def _sweep_backgrounds(self) -> None:
        """Draw the background of every input given its values, in or out."""
        p = self.problem
        for j in range(len(p.z)):
            prior = BackgroundPrior(p.shape, p.g, p.h[j], p.floor, p.log_p_beta[j])
            begun = self.rate[j] >= 0
            if not begun:
                self.allocation[j] = first_allocations(self.rng, p.z[j], len(self.mean[j]))
            self.rate[j] = gibbs(
                self.rng, p.z[j], prior, 1 if begun else FIRST_SWEEPS, self.allocation[j],
                self.probability[j], self.precision[j], self.mean[j], self.rate[j],
            )  # fmt: skip
