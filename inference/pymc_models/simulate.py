"""Draws from a model's prior and of its data, and the scalar summaries of a point.

Simulation-based calibration needs many data sets of one graph: everything is compiled once, every
replication has a seed of its own, and simulated data take the place of the observed ones in the
`pm.Data` that the likelihood reads, so that nothing is compiled again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from pymc.pytensorf import compile as compile_random
from pymc.pytensorf import find_rng_nodes, reseed_rngs
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from ardvark.errors import InputError
from ardvark.inference.pymc_models.at_draws import at_draws, log_terms
from ardvark.inference.pymc_models.compile import built_once, quick
from ardvark.inference.sites.arrays import Array

__all__ = ["Simulator"]


class Simulator:
    """The generative side of a `pm.Model`: (θ, w, t) ~ p(θ) p(w | θ) p(t | w, θ)."""

    def __init__(self, model: Any, predictor: str | None = None) -> None:
        if model.potentials:
            name = model.potentials[0].name
            raise InputError(
                f"the model has the potential {name!r}, so its prior cannot be simulated: write "
                f"that term as a prior, or as the likelihood of an observed variable"
            )
        self.model = model
        self.free = [rv.name for rv in model.free_RVs]
        self.places = {rv.name: _place_of(model, rv) for rv in model.observed_RVs}
        # In `av.models` the predictor is called `eta`.
        known = [name for name in (predictor, "eta") if name in model.named_vars]
        self.predictor = known[0] if known else None

    def draw(self, seed: np.random.SeedSequence) -> tuple[dict[str, Array], dict[str, Array]]:
        """One draw of the free variables and of the data; the same seed, the same draw."""
        function, generators = self._draw
        reseed_rngs(generators, seed.generate_state(4).tolist())
        values = [np.array(value) for value in function()]
        split = len(self.free)
        free = dict(zip(self.free, values[:split], strict=True))
        return free, dict(zip(self.places, values[split:], strict=True))

    @contextmanager
    def observing(self, data: Mapping[str, Array]) -> Iterator[None]:
        """Put simulated data in the place of the observed, and the observed back afterwards."""
        before = {name: place.get_value() for name, place in self.places.items()}
        try:
            for name, value in data.items():
                place = self.places[name]
                place.set_value(np.asarray(value).astype(place.dtype).reshape(before[name].shape))
            yield
        finally:
            for name, value in before.items():
                self.places[name].set_value(value)

    def sums(self, point: Mapping[str, Array]) -> dict[str, float]:
        """Log prior, log likelihood of the present data and the first predictor, at one point."""
        draws = {name: np.asarray(point[name])[None] for name in self.free}
        return {name: float(values[0]) for name, values in self.sums_at(draws).items()}

    def sums_at(self, draws: Mapping[str, Array]) -> dict[str, Array]:
        """The same (S,) at draws (S, ...)."""
        found = at_draws(self.model, ("sums", self.predictor), self._terms, draws)
        rows = [values.reshape((len(values), -1)) for values in found]
        split, seen = len(self.free), len(self.free) + len(self.places)
        parts = {"log_prior": rows[:split], "log_likelihood": rows[split:seen]}
        sums = {n: np.sum([v.sum(axis=1) for v in part], axis=0) for n, part in parts.items()}
        if self.predictor is not None:
            sums["first_predictor"] = rows[seen][:, 0]
        return sums

    @built_once
    def _draw(self) -> tuple[Callable[[], list[Array]], list[Any]]:
        variables = [*self.model.free_RVs, *self.model.observed_RVs]
        with quick():
            function = compile_random([], variables, mode="FAST_COMPILE")
        return function, find_rng_nodes(variables)

    def _terms(self, values: Mapping[Any, Any]) -> list[Any]:
        priors, likelihoods = log_terms(self.model, values)
        eta = [self.model[self.predictor]] if self.predictor is not None else []
        return [*priors, *likelihoods, *clone_replace(eta, dict(values))]


def _place_of(model: Any, rv: Any) -> Any:
    """Find the `pm.Data` that holds the observed values of a variable."""
    shared = [v for v in ancestors([model.rvs_to_values[rv]]) if isinstance(v, SharedVariable)]
    if len(shared) != 1:
        raise InputError(
            f"the observed {rv.name!r} must be held by one pm.Data, so that simulated values can "
            f"take its place; found {len(shared)}. Write observed=pm.Data('t_observed', t)."
        )
    return shared[0]
