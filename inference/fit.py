"""`fit`: the entry for every model and every method; it alone puts the layers together.

    pm.Model → read_model → SiteModel → method → GaussianFit or draws → tree

The hyperparameters are settled around an approximation (`hyper/settle.py`); a sampler takes them
into the posterior unless they are fixed. What a kind of method does with a family of models is
found by `methods.py`; for most it is in `approximate.py` and `samplers/run.py`.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import AccuracyWarning, ConvergenceWarning, InputError, UnsupportedPair
from ardvark.inference.arguments import check_model
from ardvark.inference.extend import more_groups
from ardvark.inference.facts import Answer, Run
from ardvark.inference.methods import METHODS, family_of, fit_route
from ardvark.inference.pymc_models.copies import (
    private_copy,
    put_data,
    require_one_length,
    rows_fit,
)
from ardvark.inference.pymc_models.fingerprint import fingerprint
from ardvark.inference.pymc_models.travel import Carried
from ardvark.inference.running.executor import check_executor, run_tasks
from ardvark.inference.running.progress import progress
from ardvark.inference.running.threads import interruptible
from ardvark.inference.running.until import looks_at, spent
from ardvark.inference.samplers.convergence import mixed
from ardvark.inference.tree import assemble, data_groups, describe, versions
from ardvark.models.card import card_of
from ardvark.models.checks import Seed, as_flag, positive_integer, some_seed
from ardvark.models.inputs import as_inputs
from ardvark.models.registry import MODELS
from ardvark.models.tables import refuse_other_columns

__all__ = ["fit", "named_method"]

MOST_DRAWS = 10**9
HERE = (os.path.dirname(__file__),)  # warnings point to the line of the caller


def fit(
    model: Any,
    method: Any = "laplace",
    *,
    draws: int = 1000,
    chains: int = 4,
    random_seed: Seed = None,
    progressbar: bool = True,
    data: Iterable[Mapping[str, Any]] | None = None,
    extend: bool = False,
    executor: Any = None,
) -> Any:
    """Fit a model by a method; the answer is an ArviZ tree.

    Parameters
    ----------
    model : pm.Model, or a model of bambi
        From `av.models`, or your own: a Gaussian block, an affine predictor, an elementwise
        likelihood.
    method : settings or str
        `av.Laplace()`, `av.NUTS(hyper=av.Fixed(tree))`, ... or a name with default settings.
    draws, chains : int
        Draws per chain. Approximations give independent draws in as many pseudo-chains.
    random_seed : int, Generator or SeedSequence, optional
        Same seed, same result. Without one a seed is drawn. The integer that was used, also of a
        NumPy Generator, is recorded in the tree.
    progressbar : bool
        Show what takes longer than two seconds.
    data : iterable of mappings, optional
        Fit each set of values (name of a `pm.Data` → array) on the same compiled graph, and give
        the list of trees. The model itself is not changed.
    extend : bool
        Also make `posterior_predictive`, `prior`, `prior_predictive` and `log_prior`, for ArviZ's
        plots of calibration and prior sensitivity. A second or so more for a thousand rows.

    executor : int, Dask Client, address or concurrent.futures' Executor, optional
        What runs the fits of `data=`: 2 for two processes, `"tcp://..."` for a cluster. The trees
        are the same (`inference/running/executor.py`).

    Returns
    -------
    xr.DataTree, or a list of them with `data=`
    """
    name, settings = named_method(method)
    run = Run(
        *_draws_and_chains(draws, chains),
        some_seed(random_seed),
        as_flag(progressbar, "progressbar"),
    )
    model = check_model(model)
    _check_pair(model, name)
    more = as_flag(extend, "extend")
    where = check_executor(executor)
    if data is None:
        return _fit_one(model, name, settings, run, more)
    with progress("fit", run.progressbar and where is not None) as tick:
        inner = run if where is None else run._replace(progressbar=False)
        return run_tasks(
            partial(_fit_values, Carried(model), name, settings, inner, more),
            _data_sets(data, model),
            where,
            done=lambda number, tree: tick(f"data set {number + 1} is done"),
        )


def _fit_values(
    carried: Carried, name: str, settings: Any, run: Run, extend: bool, values: Mapping[str, Any]
) -> xr.DataTree:
    with private_copy(carried.model) as own:
        put_data(own, values)
        require_one_length(own)
        return _fit_one(own, name, settings, run, extend)


def _fit_one(model: Any, name: str, settings: Any, run: Run, extend: bool) -> xr.DataTree:
    begin = time.perf_counter()
    _check_correction(model, settings)
    route = fit_route(name, model)
    with interruptible():
        groups, facts = _fit_until(route, model, name, settings, run)
    if facts.caution:
        warnings.warn(f"{name}: {facts.caution}", AccuracyWarning, skip_file_prefixes=HERE)
    if not facts.converged:
        said = f"{name}: {'; '.join(facts.problems)}"
        warnings.warn(said, ConvergenceWarning, skip_file_prefixes=HERE)
    if extend:
        groups |= more_groups(model, groups["posterior"], run.seed)
    card = card_of(model)
    attributes = {
        "method": name,
        "model": card.builder if card else "user graph",
        "fingerprint": fingerprint(model),
        "settings": describe(settings),
        "random_seed": run.seed,
        "versions": versions(),
        "seconds": time.perf_counter() - begin,
        **facts.attributes(),
    }
    return assemble({**groups, **data_groups(model)}, attributes)


def _check_correction(model: Any, settings: Any) -> None:
    """Refuse `corrected=True` where no mean would be moved by it."""
    if not getattr(settings, "corrected", False):
        return
    family, hyper = family_of(model), type(settings.hyper).__name__
    if family != "sites" or hyper == "Sampled":
        where = f"hyper={hyper}()" if hyper == "Sampled" else f"a model of the family {family!r}"
        raise UnsupportedPair(
            f"Laplace(corrected=True): not for {where}, where no mean would be moved by it. Leave "
            f"corrected out."
        )


def _fit_until(
    route: Callable[..., Answer], model: Any, name: str, settings: Any, run: Run
) -> Answer:
    """Fit; longer and longer until the checks pass where the settings ask for it."""
    plan = settings.hyper if hasattr(settings.hyper, "until") else settings
    # NUTS continues its own chains, unless it is checked by what it did not draw.
    continues = METHODS[name].kind == "sampler" and family_of(model) != "sample_feature"
    if getattr(plan, "until", None) is None or continues:
        return route(model, name, settings, run)
    what = "sweeps" if hasattr(plan, "most_sweeps") else "draws"
    first = plan.sweeps if what == "sweeps" else run.draws
    lengths = looks_at(first, plan.until, getattr(plan, f"most_{what}"))
    problems: tuple[str, ...] = ()
    for length in lengths:
        if what == "sweeps":
            settings = replace(settings, sweeps=length)
        else:
            run = run._replace(draws=length)
        groups, facts = route(model, name, settings, run)
        if facts.converged or mixed(facts.sampler, run.chains):
            break
    else:
        problems = (spent(length, what),)
    numbers = {**facts.sampler, what: length, f"most_{what}": lengths[-1]}
    return groups, replace(facts, problems=(*facts.problems, *problems), sampler=numbers)


# What was asked for ---------------------------------------------------------------------------


def named_method(method: Any) -> tuple[str, Any]:
    """Give the name of a method and its settings, from either."""
    if isinstance(method, str):
        name = method.lower()
        if name not in METHODS:
            raise InputError(f"method {method!r} is unknown; known: {', '.join(METHODS)}")
        return name, METHODS[name].load(METHODS[name].settings)()
    for name, entry in METHODS.items():
        if entry.made(method):
            return name, method
    raise InputError(
        f"method must be a name or settings such as "
        f"{', '.join(e.settings + '()' for e in METHODS.values())}; "
        f"got {method!r}"
    )


def _draws_and_chains(draws: Any, chains: Any) -> tuple[int, int]:
    draws, chains = positive_integer(draws, "draws"), positive_integer(chains, "chains")
    if draws * chains > MOST_DRAWS:
        raise InputError(
            f"draws={draws} in each of chains={chains} do not fit into memory: at most "
            f"{MOST_DRAWS} altogether"
        )
    return draws, chains


def _data_sets(data: Any, model: Any) -> Iterator[Mapping[str, Any]]:
    """Give the sets of values; of a list all are looked at before the first is fitted."""
    if isinstance(data, Mapping | str) or not isinstance(data, Iterable):
        raise InputError(
            f"data must be a list of mappings name → array, one for each fit; got "
            f"{'one mapping' if isinstance(data, Mapping) else type(data).__name__}"
        )

    def checked(number: int, values: Any) -> Mapping[str, Any]:
        if not isinstance(values, Mapping):
            raise InputError(
                f"data[{number}] must be a mapping name → array, got {type(values).__name__}"
            )
        _check_columns(model, values)
        _check_labels(model, values)
        _check_shapes(model, number, values)
        return values

    if isinstance(data, Sequence):
        data = [checked(number, values) for number, values in enumerate(data)]
    return (checked(number, values) for number, values in enumerate(data))


def _check_columns(model: Any, values: Mapping[str, Any]) -> None:
    """Refuse new inputs of a model of the zoo whose columns are not its own, in its order."""
    card = card_of(model)
    if card is not None and "X" in values:
        X = as_inputs(values["X"], argument="data: X")
        refuse_other_columns(X.feature_names, card.feature_names, "data: X")


def _check_shapes(model: Any, number: int, values: Mapping[str, Any]) -> None:
    """Refuse values of another shape with which the observed rows do not fit their predictor."""
    held = {v.name: np.shape(v.get_value()) for v in model.data_vars}
    new = {n: np.shape(v) for n, v in values.items() if n in held and np.shape(v) != held[n]}
    if not new or card_of(model) is not None:  # whose dims tell
        return
    with private_copy(model) as own:
        put_data(own, values)
        require_one_length(own)
        if rows_fit(own):
            return
    said = ", ".join(
        f"{name} has the shape {new[name]} (in the model {held[name]})" for name in new
    )
    kept = [f"{name} {shape}" for name, shape in held.items() if name not in values]
    rest = f"; what is not given keeps its shape: {', '.join(kept)}" if kept else ""
    raise InputError(f"data[{number}]: {said}, and so the model cannot be computed{rest}")


def _check_labels(model: Any, values: Mapping[str, Any]) -> None:
    """Refuse new labels that are no codes of the classes."""
    card = card_of(model)
    if card is None or card.classes is None or "t_observed" not in values:
        return
    codes = np.unique(np.asarray(values["t_observed"]))
    if card.task == "multiclass" and not np.isin(codes, np.arange(len(card.classes))).all():
        raise InputError(
            f"data: t_observed must hold the codes 0 to {len(card.classes) - 1} of the classes, "
            f"found {codes[:5].tolist()}"
        )
    if card.task != "binary":
        return
    if not np.isin(codes, (0, 1)).all():
        raise InputError(
            f"data: t_observed must hold the codes 0 and 1 (for {card.classes[0]!r} and "
            f"{card.classes[1]!r}), found {codes[:5].tolist()}"
        )


def _check_pair(model: Any, name: str) -> None:
    card = card_of(model)
    if card is None or name in (*MODELS[card.builder].methods, *card.more_methods):
        return
    entry = MODELS[card.builder]
    reason = entry.reasons.get(name, "no such pair has been built.")
    fits = ", ".join(m for m in entry.methods if m in METHODS)
    raise UnsupportedPair(f"{name} does not fit {card.builder}: {reason} It is fitted by {fits}.")
