"""`fit`: one door for every model and every method; it alone puts the layers together.

    pm.Model → read_model → SiteModel → method → GaussianFit or draws → tree

The hyperparameters are settled around an approximation (`hyper/settings.py`); a sampler takes them
into the posterior unless they are fixed. What a kind of method does with a family of models is
found by `routes.py`; for most it is in `approximate.py` and `samplers/run.py`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import AccuracyWarning, ConvergenceWarning, InputError, UnsupportedPair
from ardvark.inference.approximate import Run
from ardvark.inference.arguments import check_model
from ardvark.inference.extend import more_groups
from ardvark.inference.fit_until import fit_until
from ardvark.inference.graph.copies import private_copy, put_data
from ardvark.inference.graph.fingerprint import fingerprint
from ardvark.inference.methods import METHODS
from ardvark.inference.routes import family_of, fit_route
from ardvark.inference.threads import interruptible
from ardvark.inference.tree import assemble, data_groups, describe, versions
from ardvark.models.card import card_of
from ardvark.models.checks import Seed, as_flag, positive_integer, some_seed
from ardvark.models.registry import MODELS

__all__ = ["fit", "named_method"]

MOST_DRAWS = 10**9


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
        the list of trees. The model itself is not changed.
    extend : bool
        Also make `posterior_predictive`, `prior`, `prior_predictive` and `log_prior`, for ArviZ's
        plots of calibration and prior sensitivity. A second or so more for a thousand rows.

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
    check_model(model)
    _check_pair(model, name)
    more = as_flag(extend, "extend")
    if data is None:
        return _fit_one(model, name, settings, run, more)
    trees = []
    for values in _data_sets(data):
        _check_labels(model, values)
        with private_copy(model) as own:
            put_data(own, values)
            trees.append(_fit_one(own, name, settings, run, more))
    return trees


def _fit_one(model: Any, name: str, settings: Any, run: Run, extend: bool) -> xr.DataTree:
    begin = time.perf_counter()
    route = fit_route(METHODS[name].kind, model)
    if route is None:
        raise UnsupportedPair(f"{name} does not fit models of the family {family_of(model)!r}.")
    with interruptible():
        groups, facts = fit_until(route, model, name, settings, run)
    if facts.get("caution"):
        warnings.warn(f"{name}: {facts['caution']}", AccuracyWarning, stacklevel=4)
    if not facts["converged"]:
        warnings.warn(f"{name}: {facts['problems']}", ConvergenceWarning, stacklevel=4)
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


def _draws_and_chains(draws: Any, chains: Any) -> tuple[int, int]:
    draws, chains = positive_integer(draws, "draws"), positive_integer(chains, "chains")
    if draws * chains > MOST_DRAWS:
        raise InputError(
            f"draws={draws} in each of chains={chains} do not fit into memory: at most "
            f"{MOST_DRAWS} altogether"
        )
    return draws, chains


def _data_sets(data: Any) -> Iterator[Mapping[str, Any]]:
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
        return values

    if isinstance(data, Sequence):
        data = [checked(number, values) for number, values in enumerate(data)]
    return (checked(number, values) for number, values in enumerate(data))


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
