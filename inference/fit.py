"""`fit`: one door for every model and every method; it alone puts the layers together.

    pm.Model → read_model → SiteModel → method → GaussianFit or draws → tree

The hyperparameters are settled around an approximation (`hyper.py`); a sampler takes them into the
posterior unless they are fixed. What a kind of method does with a family of models is found by
`routes.py`; for most it is in `runs.py` and `sampling.py`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import AccuracyWarning, ConvergenceWarning, InputError, UnsupportedPair
from ardvark.inference.compile import replaced_data
from ardvark.inference.methods import METHODS
from ardvark.inference.routes import family_of, fit_route
from ardvark.inference.runs import Run
from ardvark.inference.threads import interruptible
from ardvark.inference.tree import assemble, data_groups, describe, versions
from ardvark.models.card import card_of
from ardvark.models.checks import Seed, positive_integer, some_seed
from ardvark.models.registry import MODELS

__all__ = ["fit", "named_method"]


def fit(
    model: Any,
    method: Any = "laplace",
    *,
    draws: int = 1000,
    chains: int = 4,
    random_seed: Seed = None,
    progressbar: bool = True,
    data: Iterable[Mapping[str, Any]] | None = None,
) -> Any:
    """Fit a model by a method; the answer is an ArviZ tree.

    Parameters
    ----------
    model : pm.Model
        From the zoo, or your own: a Gaussian block, an affine predictor, an elementwise likelihood.
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
        the list of trees. The model's own data come back afterwards.

    Returns
    -------
    xr.DataTree, or a list of them with `data=`
    """
    name, settings = named_method(method)
    run = Run(
        positive_integer(draws, "draws"),
        positive_integer(chains, "chains"),
        some_seed(random_seed),
        bool(progressbar),
    )
    _check_model(model)
    _check_pair(model, name)
    if data is None:
        return _fit_one(model, name, settings, run)
    if isinstance(data, Mapping):
        raise InputError("data must be a list of mappings name → array, one for each fit; got one")
    trees = []
    for values in data:
        _check_labels(model, values)
        with replaced_data(model, values):
            trees.append(_fit_one(model, name, settings, run))
    return trees


def _fit_one(model: Any, name: str, settings: Any, run: Run) -> xr.DataTree:
    begin = time.perf_counter()
    route = fit_route(METHODS[name].kind, model)
    if route is None:
        raise UnsupportedPair(f"{name} does not fit models of the family {family_of(model)!r}.")
    with interruptible():
        groups, facts = route(model, name, settings, run)
    if facts.get("caution"):
        warnings.warn(f"{name}: {facts['caution']}", AccuracyWarning, stacklevel=4)
    if not facts["converged"]:
        warnings.warn(f"{name}: {facts['problems']}", ConvergenceWarning, stacklevel=4)
    card = card_of(model)
    attributes = {
        "method": name,
        "model": card.builder if card else "user graph",
        "settings": describe(settings),
        "random_seed": run.seed,
        "versions": versions(),
        "seconds": time.perf_counter() - begin,
        **facts,
    }
    return assemble({**groups, **data_groups(model)}, attributes)


# What was asked for ---------------------------------------------------------------------------


def named_method(method: Any) -> tuple[str, Any]:
    """Give the name of a method and its settings, from either."""
    if isinstance(method, str):
        name = method.lower()
        if name not in METHODS:
            raise InputError(f"method {method!r} is unknown; known: {', '.join(METHODS)}")
        return name, METHODS[name].load(METHODS[name].settings)()
    for name, entry in METHODS.items():
        if type(method).__name__ == entry.settings:
            return name, method
    raise InputError(
        f"method must be a name or settings such as "
        f"{', '.join(e.settings + '()' for e in METHODS.values())}; "
        f"got {method!r}"
    )


def _check_model(model: Any) -> None:
    if not hasattr(model, "free_RVs"):
        raise InputError(f"model must be a pm.Model, got {type(model).__name__}")


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
    if card is None or name in MODELS[card.builder].methods:
        return
    entry = MODELS[card.builder]
    reason = entry.reasons.get(name, "no such pair has been built.")
    fits = ", ".join(m for m in entry.methods if m in METHODS)
    raise UnsupportedPair(f"{name} does not fit {card.builder}: {reason} It is fitted by {fits}.")
