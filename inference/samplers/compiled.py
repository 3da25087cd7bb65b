"""NUTS on a graph that is compiled: by nutpie, or by PyMC where a variable is discrete.

What nutpie compiles (6 to 10 s) is kept beside the `pm.Model`. The next call, also after
`pm.set_data` with another number of rows, only hands the new data over (0.2 ms). For this no
variable with the row dimension is stored: predictors are computed from the draws afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from ardvark.errors import UnsupportedPair
from ardvark.inference.pymc_models.compile import kept_with, quick
from ardvark.inference.pymc_models.forms import (
    dims_of,
    form_to_sample,
    length_known,
    names_to_store,
    recover_precisions,
)
from ardvark.inference.samplers.nutpie_chains import Asked, Draws, draws_of, run_nutpie
from ardvark.inference.sites.arrays import Array

__all__ = ["Graph", "choose_sampler"]

HALVINGS = 30  # of a jitter that leads where nothing is possible


class Graph:
    """The graph itself, compiled by nutpie or sampled by PyMC."""

    def __init__(
        self,
        model: Any,
        settings: Any,
        start: Mapping[str, Any],
        var_names: Sequence[str] | None,
    ) -> None:
        self.form = form = form_to_sample(model, settings.form)
        self.start = {n: value for n, value in start.items() if n in form.model.named_vars}
        self.names = names_to_store(form, model, settings.predictor)
        self.names += [
            n for n in var_names or () if n not in self.names and n in form.model.named_vars
        ]
        self.sampler = choose_sampler(form.model, settings.sampler)
        if self.sampler == "pymc" and settings.metric != "diagonal":
            raise UnsupportedPair(
                f"NUTS(metric={settings.metric!r}) is a metric of nutpie's, and PyMC samples here "
                f"(it was asked for, or a variable is discrete). Leave metric out."
            )
        self.info = {"sampler": self.sampler, "density": "graph", "form": form.name}

    def draw(self, asked: Asked, rng: np.random.Generator) -> Draws:
        """Draw the variables of the graph, and the precisions that are missing in it."""
        run = _with_nutpie if self.sampler == "nutpie" else _with_pymc
        posterior, sample_stats = run(self.form.model, self.names, self.start, asked, rng)
        recovered = recover_precisions(posterior, self.form.precisions, rng)
        return posterior.merge(recovered), sample_stats


def choose_sampler(model: Any, sampler: str) -> str:
    """Nutpie where it can be used: it knows continuous variables only."""
    discrete = [rv.name for rv in model.free_RVs if not _continuous(rv)]
    if discrete and sampler == "nutpie":
        raise UnsupportedPair(
            f"nutpie samples continuous variables only; {', '.join(discrete)} is discrete. "
            'Use NUTS(sampler="auto").'
        )
    return ("pymc" if discrete else "nutpie") if sampler == "auto" else sampler


def _continuous(rv: Any) -> bool:
    return str(rv.dtype).startswith("float")


# ----------------------------------------------------------------------------------------- nutpie


def _compiled(model: Any, names: list[str]) -> Any:
    """Give the model compiled by nutpie, with the data the model holds now."""
    import nutpie

    kept: dict[Any, Any] = kept_with(model, "compiled by nutpie", dict)
    tied_to = _signature(model, names)
    if tied_to not in kept:
        compiled = nutpie.compile_pymc_model(model, var_names=names)
        # Shared variables without a name cannot be handed over: such a model is never kept.
        if all(variable.name for variable in compiled.shared_var_keys):
            kept.clear()  # code for other lengths of the data is large, and seldom wanted again
            kept[tied_to] = compiled
        return compiled
    compiled = kept[tied_to]
    return compiled.with_data(**{v.name: v.get_value() for v in compiled.shared_var_keys})


def _signature(model: Any, names: list[str]) -> Any:
    """List what compiled code is tied to: stored variables, and the lengths they may have."""
    loose = not all(length_known(model[name], dims_of(model, name)) for name in names)
    tied = {dim for name in names for dim in dims_of(model, name)}
    labelled = sorted(dim for dim in tied if model.coords.get(dim))
    lengths = tuple((dim, len(model.coords[dim])) for dim in labelled)
    shapes = {}
    for shared in model.data_vars:
        shape = shared.get_value(borrow=True).shape
        dims = dims_of(model, shared.name) or (None,) * len(shape)
        shapes[shared.name] = tuple(
            size if loose or dim is None or dim in tied else None
            for size, dim in zip(shape, dims, strict=True)
        )
    return tuple(sorted(names)), lengths, tuple(shapes.items())


def _with_nutpie(
    model: Any,
    names: list[str],
    start: dict[str, Any],
    asked: Asked,
    rng: np.random.Generator,
) -> Draws:
    compiled = _compiled(model, names)
    if start:
        compiled = replace(compiled, initial_point_func=_jittered_around(model, start))
    sample = partial(run_nutpie, asked=asked, seed=int(rng.integers(2**31)))
    try:
        tree = sample(compiled)
    except RuntimeError as error:
        if "initialization points failed" not in str(error):
            raise
        drawn_in = _jittered_around(model, start, possible=True)
        tree = sample(replace(compiled, initial_point_func=drawn_in))
    return draws_of(tree)


def _jittered_around(model: Any, start: dict[str, Any], possible: bool = False) -> Any:
    """Make a function of the seed: the start in nutpie's flat unconstrained space, jittered.

    With `possible` a jittered start of probability zero is drawn in towards the start itself: a
    likelihood that is zero beyond a margin leaves no other.
    """
    from pymc.initial_point import make_initial_point_fn

    point = make_initial_point_fn(model=model, overrides=start, jitter_rvs=set(model.free_RVs))
    lock = Lock()  # the chains' threads share one compiled function
    if possible:
        with quick():
            centre = make_initial_point_fn(model=model, overrides=start, jitter_rvs=set())(0)
            log_density = model.compile_logp(mode="FAST_COMPILE")

    def flat(seed: Any) -> Array:
        with lock:
            values = point(seed)
            for _ in range(HALVINGS if possible else 0):
                if np.isfinite(log_density(values)):
                    break
                values = {name: (values[name] + centre[name]) / 2 for name in values}
            return np.concatenate([np.ravel(value) for value in values.values()]).astype(float)

    return flat


# ------------------------------------------------------------------------------------------- PyMC


def _with_pymc(
    model: Any,
    names: list[str],
    start: dict[str, Any],
    asked: Asked,
    rng: np.random.Generator,
) -> Draws:
    import pymc as pm
    from pymc.initial_point import make_initial_point_fn

    options = asked.options
    continuous = {rv for rv in model.free_RVs if _continuous(rv)}
    starts: Any = start or None
    if len(continuous) < len(model.free_RVs):  # PyMC would start all chains at one point
        point = make_initial_point_fn(
            model=model, overrides=start, jitter_rvs=continuous, return_transformed=False
        )
        starts = [point(int(seed)) for seed in rng.integers(2**31, size=options["chains"])]
    if not continuous:  # no step would take it
        options = {name: value for name, value in options.items() if name != "target_accept"}
    tree = pm.sample(
        model=model,
        **options,
        random_seed=int(rng.integers(2**31)),
        nuts_sampler="pymc",
        init="jitter+adapt_diag",
        initvals=starts,
        var_names=names,
        progressbar=asked.progressbar,
        quiet=not asked.progressbar,
        compute_convergence_checks=False,
    )
    return draws_of(tree)
