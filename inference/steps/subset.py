"""`SubsetJump`: a PyMC step method that changes which inputs are in the model.

For any graph with a vector of 0 and 1 (Bernoulli, or the subset prior of `models/`). The graph
keeps a coefficient for every input, in or out (a product space), so a jump is an ordinary
Metropolis step on a space of fixed dimension, and every other variable can have any other step.

    pm.sample(step=[SubsetJump([included, w, bias])])     NUTS takes the rest by itself
    pm.sample(step=[SubsetJump([included])])              NUTS takes the coefficients too

One jump: an input at random changes sides, or one that is in and one that is out change places;
both choices are as likely back as forth. Then

- with Gaussian weights among `vars`, all of them are drawn anew from the Laplace or EP Gaussian of
  the *target* subset at the present hyperparameters, q(w | I', θ), and the jump is accepted with

      log r = logp(I', w', θ) - logp(I, w, θ) + log q(w | I, θ) - log q(w' | I', θ)

  (the weights of excluded inputs: q is their prior, and the terms cancel). The Gaussian is found
  from a cold start each time it is new, so it depends on I and θ alone; each step ends with such a
  draw at the present subset. The graph must be one that `read_model` reads once I and θ are given;
- with the vector alone, the coefficients stay as they are: those of an excluded input have been
  drawn from their prior by the other steps, so log r = logp(I', ...) - logp(I, ...). It works on
  every graph, and it mixes as badly as a prior is wide.

The chains of `pm.sample` start at one point when a step is given: pass `initvals`, one for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pymc.model import modelcontext

from ardvark.errors import InputError
from ardvark.inference.ep.ep import EP
from ardvark.inference.graph.read import read_model
from ardvark.inference.laplace import Laplace
from ardvark.inference.pymc_models.compile import compile_graph, quick
from ardvark.inference.sites.approximation import GaussianFit
from ardvark.inference.steps.contract import OwnStep
from ardvark.models.checks import one_of, positive_integer

__all__ = ["SubsetJump"]

GAUSSIANS = {"laplace": Laplace, "ep": EP}
EXCHANGES = 0.3  # share of the jumps
MOST_KEPT = 2000  # Gaussians; they are of use again as long as θ does not move


class SubsetJump(OwnStep):
    """Jumps between subsets of the inputs, see the module.

    Parameters
    ----------
    vars : list of variables
        The vector of indicators, and with it (or not) all the Gaussian weights of the predictor.
    approximation : "laplace" or "ep"
        The Gaussian that proposes weights.
    predictor : str
        Name of the affine predictor in the graph.
    jumps : int, optional
        Jumps in a step: 4 with weights, as many as there are inputs without.
    model, rng, compile_kwargs
        As PyMC's own steps have them.
    """

    name = "subset_jump"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "subset_accept": (np.float64, []),  # mean acceptance of the jumps of a step
        "subset_made": (np.int64, []),
        "subset_size": (np.int64, []),
    }
    default_tune_steps = 200
    example = "included, w, bias"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        approximation: str = "laplace",
        predictor: str | None = None,
        jumps: int | None = None,
        model: Any = None,
        compile_kwargs: dict[str, Any] | None = None,
        **common: Any,
    ) -> None:
        model = modelcontext(model)
        settings = GAUSSIANS[one_of(approximation, GAUSSIANS, "approximation")]
        values = model.values_to_rvs
        named = [model[v] if isinstance(v, str) else values.get(v, v) for v in vars or ()]
        super().__init__(None if vars is None else named, model=model, **common)
        discrete = [rv for rv in named if np.dtype(rv.dtype).kind in "biu" and rv.ndim == 1]
        if len(discrete) != 1:
            raise InputError(
                f"SubsetJump needs one vector of indicators among its vars, found {len(discrete)} "
                f"in {[rv.name for rv in named]}. Give SubsetJump([included]) or "
                "SubsetJump([included, *weights])."
            )
        self.included = model.rvs_to_values[discrete[0]].name
        self.logp = model.compile_logp(**(compile_kwargs or {}))
        weights = tuple(rv.name for rv in named if rv is not discrete[0])
        self.latent = None
        if weights:
            self.latent = read_model(model, weights=weights, predictor=predictor)
            self.approximation = settings(weights=weights, predictor=predictor)
            self._natural = _natural_values(model, self.latent.hyper)
            self._values = {name: model.rvs_to_values[model[name]].name for name in weights}
        self.jumps = None if jumps is None else positive_integer(jumps, "jumps")
        self._fits: dict[bytes, GaussianFit] = {}

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain; the data may have changed since the last one."""
        super().setup_chain(rng, tune, draws)
        self._fits = {}

    def step(self, point: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Try some jumps from `point`."""
        state = {name: np.array(value) for name, value in point.items()}
        theta = {} if self.latent is None else self._natural(state)
        log_p, log_q = float(self.logp(state)), self.log_proposal(state, theta)
        number = self.jumps or (len(state[self.included]) if self.latent is None else 4)
        accepted, made = 0.0, 0
        for jump in range(number + (self.latent is not None)):
            subset = state[self.included]
            if jump < number:
                _, subset = self.propose_subset(subset)
            trial = self.propose(state, subset, theta)
            new_p = float(self.logp(trial))
            new_q = self.log_proposal(trial, theta)
            log_ratio = new_p - log_p + log_q - new_q
            rate = np.exp(min(0.0, log_ratio)) if np.isfinite(new_p) else 0.0
            if jump < number:
                accepted += rate / number
            if self.rng.random() < rate:
                made += jump < number
                state, log_p, log_q = trial, new_p, new_q
        size = int(np.sum(state[self.included]))
        stats = {"subset_accept": accepted, "subset_made": int(made), "subset_size": size}
        return state, [stats]

    def propose_subset(self, subset: Any) -> tuple[str, Any]:
        """Propose a move and its end; the reverse move has the same probability."""
        new = subset.copy()
        if self.rng.random() >= EXCHANGES:
            j = self.rng.integers(len(subset))
            new[j] = 1 - new[j]
            return ("add" if new[j] else "delete"), new
        inside, outside = np.flatnonzero(subset), np.flatnonzero(subset == 0)
        if not len(inside) or not len(outside):
            return "none", new
        new[self.rng.choice(inside)], new[self.rng.choice(outside)] = 0, 1
        return "exchange", new

    def propose(self, state: dict[str, Any], subset: Any, theta: Any) -> dict[str, Any]:
        """Give the state with another subset and, where they are ours, new weights."""
        trial = dict(state)  # in the same order: PyMC records by position
        trial[self.included] = subset.astype(state[self.included].dtype)
        if self.latent is not None:
            w = self._fit(trial[self.included], theta).posterior.draws(1, self.rng)
            for name, value in self.latent.split(w).items():
                trial[self._values[name]] = value[0]
        return trial

    def log_proposal(self, state: dict[str, Any], theta: Any) -> float:
        """Log q(w | I, θ) of the weights of a state; 0 where they are not ours."""
        if self.latent is None:
            return 0.0
        w = np.concatenate([np.ravel(state[self._values[name]]) for name in self.latent.weights])
        return float(self._fit(state[self.included], theta).posterior.log_density(w))

    def _fit(self, subset: Any, theta: dict[str, Any]) -> GaussianFit:
        assert self.latent is not None
        key = b"".join(np.ascontiguousarray(v).tobytes() for v in (subset, *theta.values()))
        if key not in self._fits:
            if len(self._fits) >= MOST_KEPT:
                self._fits.clear()
            # No transform is put on a discrete variable: its value goes by its own name.
            site_model = self.latent.at({**theta, self.included: subset})
            self._fits[key] = self.approximation.approximate(site_model)
        return self._fits[key]


def _natural_values(model: Any, names: tuple[str, ...]) -> Any:
    """Compile point -> {name: value on its natural scale}, for the continuous hyperparameters."""
    hyper = [model[name] for name in names if np.dtype(model[name].dtype).kind == "f"]
    inputs = [model.rvs_to_values[rv] for rv in model.free_RVs]
    if not hyper:
        return lambda point: {}
    with quick():
        function = compile_graph(inputs, model.replace_rvs_by_values(hyper))
    order = [value.name for value in inputs]

    def natural(point: dict[str, Any]) -> dict[str, Any]:
        found = function(*(point[name] for name in order))
        return {rv.name: value for rv, value in zip(hyper, found, strict=True)}

    return natural
