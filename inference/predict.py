"""`predict`: what a fitted model says of new rows.

A Gaussian approximation N(m, V) gives η* ~ N(a'm + o, a'Va) in closed form, and the probability
of a class is the normaliser of its site under that Gaussian: the tilted moment that the sites
know already. Draws of a sampler are averaged, each with its own hyperparameters.

| task | statistic |
|---|---|
| two classes | ∫ p(t = k | η) q(η) dη, for each class k |
| Gaussian noise | E η and sqrt(var η + σ²): the sd includes the noise |
| any other likelihood | mean and sd of posterior predictive draws |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.arguments import check_model, check_tree
from ardvark.inference.beliefs import Beliefs, GaussianBelief, class_table, row_table
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.stored import theta_of
from ardvark.inference.methods import family_of, prediction_route
from ardvark.inference.pymc_models.compile import quick
from ardvark.inference.pymc_models.copies import private_copy, put_data
from ardvark.inference.pymc_models.fingerprint import require_model
from ardvark.inference.pymc_models.forms import gaussian_form
from ardvark.inference.running.progress import silent
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.posterior import Posterior, condition
from ardvark.models.card import card_of
from ardvark.models.checks import Seed, as_flag, some_seed
from ardvark.models.inputs import Inputs, as_inputs, scaled_like
from ardvark.models.tables import as_frame, refuse_other_columns

__all__ = ["predict"]

_SHAPE_WORDS = ("shape", "broadcast", "dimension", "mismatch")


def predict(
    model: Any,
    tree: xr.DataTree,
    X_new: Any,
    *,
    weights: str | tuple[str, ...] | None = None,
    predictor: str | None = None,
    bayes_point: bool = False,
    random_seed: Seed = 0,
) -> xr.DataArray:
    """Predict the target at new rows.

    Parameters
    ----------
    model : pm.Model
        The model that was fitted; its inputs must be `pm.Data`.
    tree : xr.DataTree
        What `fit` gave.
    X_new : table or mapping
        New rows. Raw rows are put on the scale of the model if it was built on standardised
        inputs. For your own graph: the array for its one `pm.Data` in the predictor, or a
        mapping name → array.
    weights, predictor : optional
        Names in the graph, when they differ from those of the fit.
    bayes_point : bool
        Predict at the posterior mean of η, as if it were known: Qi04 (3) instead of (2).
    random_seed : int, Generator or SeedSequence
        For likelihoods that are neither two-class nor Gaussian, where the answer is made of draws.

    Returns
    -------
    xr.DataArray
        Classes: (row, class) probabilities. Otherwise (row, statistic) with mean and sd.
    """
    check_tree(tree)
    model = check_model(model)
    as_flag(bayes_point, "bayes_point")
    require_model(model, {"tree": tree})
    _require_settings(model, tree)
    route, seed = prediction_route(model), some_seed(random_seed)
    if route is not None:
        if bayes_point:
            raise UnsupportedPair(
                f"bayes_point=True: not for {family_of(model)!r} models, which "
                "have no affine predictor whose mean could be taken"
            )
        return _by_family(route, model, tree, X_new, seed)
    settings = json.loads(tree.attrs.get("settings", "{}"))
    names = weights if weights is not None else settings.get("weights")
    with private_copy(gaussian_form(model)) as own:
        latent = read_model(
            own,
            weights=tuple(names) if isinstance(names, list) else names,
            predictor=predictor or settings.get("predictor"),
            sparse={"auto": None, "sparse": True}.get(settings.get("space", ""), False),
        )
        belief = _own_posterior(own, latent, tree)
        values = _new_values(own, latent, X_new)
        put_data(own, values)
        with _readable_shapes(latent):
            return _prediction(latent, tree, values, bayes_point, seed, belief)


def _prediction(
    latent: LatentGaussian,
    tree: xr.DataTree,
    values: Mapping[str, Array],
    bayes_point: bool,
    seed: int,
    posterior: Posterior | None = None,
) -> xr.DataArray:
    """Predict at the data that the model of `latent` holds."""
    gaussian = "mean_vector" in tree.children.get("fit", {})
    belief: GaussianBelief | Beliefs = (
        GaussianBelief(latent, tree, posterior) if gaussian else Beliefs(latent, tree)
    )
    if bayes_point:
        belief = belief.at_its_mean()
    if latent.two_classes:
        positive = belief.probability(1)
        return class_table(latent.model, np.stack([1.0 - positive, positive], axis=1))
    moments = belief.gaussian_noise()
    if moments is None:
        moments = _by_simulation(latent, tree, values, seed)
    return row_table(np.stack(moments, axis=1), "statistic", ["mean", "sd"])


def _own_posterior(model: Any, latent: LatentGaussian, tree: xr.DataTree) -> Posterior | None:
    """The Gaussian of a tree that holds variances alone, made again from its sites and its data."""
    if "variance_vector" not in tree.children.get("fit", {}):
        return None
    fit = tree["fit"].to_dataset()
    data = tree["constant_data"].data_vars if "constant_data" in tree.children else {}
    put_data(model, {n: data[n].values for n in latent.predictor_data if n in data})
    theta = theta_of(tree, latent.hyper)
    found = condition(latent.at(theta), fit["site_precision"].values, fit["site_shift"].values)
    if not np.allclose(found.mean, fit["mean_vector"].values, rtol=1e-6, atol=1e-6):
        raise InputError("tree: its weights are not those of its sites; fit the model again")
    return found


def _require_settings(model: Any, tree: xr.DataTree) -> None:
    """Refuse a tree of `fit(data=...)` that was given another noise, other centres and the like."""
    fitted = tree["constant_data"].data_vars if "constant_data" in tree.children else {}
    rows = {d for rv in model.observed_RVs for d in model.named_vars_to_dims.get(rv.name) or ()}
    for variable in model.data_vars:
        name, dims = variable.name, model.named_vars_to_dims.get(variable.name) or ()
        if name not in fitted or rows & set(dims) or (variable.ndim and not dims):
            continue
        if not np.array_equal(fitted[name].values, variable.get_value()):
            raise InputError(
                f"model: it holds another {name!r} than the tree was fitted with; give it the "
                f"tree's by model.set_data({name!r}, ...)"
            )


def _by_family(
    route: Callable[..., xr.DataArray], model: Any, tree: xr.DataTree, X_new: Any, seed: int
) -> xr.DataArray:
    """Predict for a model of another shape than a Gaussian block times scalar sites."""
    card = card_of(model)
    assert card is not None  # only a card names another family
    return route(model, tree, scaled_like(X_new, card.scaling, card.feature_names), seed)


@contextmanager
def _readable_shapes(latent: LatentGaussian) -> Iterator[None]:
    """Say what to do when part of the graph keeps the length of the old rows."""
    try:
        yield
    except (AssertionError, ValueError) as error:
        if isinstance(error, InputError) or not any(w in str(error).lower() for w in _SHAPE_WORDS):
            raise
        raise InputError(
            f"part of the model keeps its number of rows whatever the inputs are: give the "
            f"observed {latent.observed!r} and all else that has one value per row as a pm.Data, "
            f"and new values of it in X_new ({error})"
        ) from error


def _new_values(model: Any, latent: LatentGaussian, X_new: Any) -> dict[str, Array]:
    if latent.predictor in latent.weights:
        raise UnsupportedPair(
            f"the predictor {latent.predictor!r} is itself the Gaussian block: new rows would "
            f"need its covariance "
            f"with the old ones, which the graph does not hold"
        )
    card = card_of(model)
    if card is not None:
        return card.new_data(scaled_like(X_new, card.scaling, card.feature_names))
    feeding = latent.predictor_data
    if isinstance(X_new, Mapping) and as_frame(X_new, "X_new") is None:
        return {
            name: np.atleast_1d(_own_values(model, name, value)) for name, value in X_new.items()
        }
    if len(feeding) != 1:
        found = ", ".join(feeding) or "none: its inputs are constants, wrap them in pm.Data"
        raise InputError(
            f"X_new must be a mapping name → array for this graph: the pm.Data in "
            f"{latent.predictor!r} are {found}"
        )
    return {feeding[0]: np.asarray(_own_values(model, feeding[0], X_new), float)}


def _own_values(model: Any, name: str, values: Any) -> Any:
    """New values for a `pm.Data` of a user's graph; a table's names are held against its dim's."""
    if not isinstance(values, Inputs) and as_frame(values, "X_new") is None:
        return np.asarray(values)
    X = as_inputs(values, argument="X_new")
    dims: tuple[str, ...] = tuple(model.named_vars_to_dims.get(name) or ())
    if len(dims) == 2 and model.coords.get(dims[1]) is not None:
        refuse_other_columns(X.feature_names, tuple(map(str, model.coords[dims[1]])))
    return np.asarray(X)


def _by_simulation(
    latent: LatentGaussian, tree: xr.DataTree, values: Mapping[str, Array], seed: int
) -> tuple[Array, Array]:
    """Mean and sd of posterior predictive draws, for likelihoods without a closed form."""
    import pymc as pm

    model = latent.model
    rows = max(len(value) for value in values.values())
    fillers = {
        v.name: np.zeros((rows, *v.get_value().shape[1:]), v.dtype) for v in latent.observed_data
    }
    put_data(model, fillers)
    with quick(), silent("pymc.sampling.forward"):
        drawn = pm.sample_posterior_predictive(
            tree,
            model=model,
            var_names=[latent.observed],
            random_seed=seed,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
    samples = drawn["posterior_predictive"][latent.observed]
    if samples.shape[-1] != rows:
        raise InputError(
            f"the likelihood keeps {samples.shape[-1]} rows whatever the inputs are: give it "
            f"the observed values "
            f"as a pm.Data, or leave out shape="
        )
    return samples.mean(("chain", "draw")).values, samples.std(("chain", "draw")).values
