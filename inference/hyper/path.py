"""Along the path of ARD steps: what each model on it would have said of a test set.

The path of a fit (`selection_path`) keeps the precisions of every step. `path_errors` fits the
weights at each of them, by the method of the tree and from the step before, and predicts.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import InputError
from ardvark.inference.arguments import check_model, check_tree
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.stored import theta_of
from ardvark.inference.methods import METHODS
from ardvark.inference.pymc_models.copies import private_copy, put_data
from ardvark.models.card import card_of
from ardvark.models.inputs import scaled_like

__all__ = ["path_errors"]


def path_errors(model: Any, tree: xr.DataTree, X_test: Any, t_test: Any) -> xr.Dataset:
    """Test error and mean test log probability of every step of a classification path.

    Parameters
    ----------
    model : pm.Model
        A two-class model of `av.models`, with the training data that were fitted.
    tree : xr.DataTree
        A fit with a `selection_path`.
    X_test, t_test
        Rows and labels that the fit has not seen.

    Returns
    -------
    xr.Dataset
        `error` and `log_probability`, by step.
    """
    check_tree(tree, group=None)
    model = check_model(model)
    card = card_of(model)
    if "selection_path" not in tree.children or card is None or card.task != "binary":
        raise InputError(
            f"path_errors needs a two-class model of av.models and a tree with a selection_path, "
            f"found {'no such model' if card is None else card.task} and the groups "
            f"{', '.join(tree.children)}. Fit with EP(hyper=Evidence()) or EP(hyper=Predictive())"
        )
    assert card.classes is not None
    labels = np.searchsorted(card.classes, np.asarray(t_test))
    rows = scaled_like(X_test, card.scaling, card.feature_names)
    if labels.shape != (len(rows),) or not np.isin(np.asarray(t_test), card.classes).all():
        raise InputError(
            f"t_test must be {len(rows)} labels of the classes {list(card.classes)}, got "
            f"{labels.size}: {np.unique(np.asarray(t_test))[:5].tolist()} ..."
        )
    latent = read_model(model)
    blocks = {block: name for name, block in latent.ard_precisions.items()}
    entry = METHODS[tree.attrs["method"]]
    kind = entry.load(entry.settings)
    kept = {f.name for f in fields(kind)} - {"hyper", "weights"}
    asked = json.loads(tree.attrs["settings"])
    settings = kind(**{name: value for name, value in asked.items() if name in kept})
    theta = theta_of(tree, latent.hyper)
    with private_copy(model) as own:
        new = read_model(own)
        put_data(own, card.new_data(rows))
        projection, offset = new.affine_map(theta)
        wanted = new.sites(theta, observed=labels)
    fit, error, log_probability = None, [], []
    for precision in tree["selection_path"].precision.values:
        for block, name in blocks.items():
            theta[name] = precision[latent.blocks[block]].reshape(latent.shapes[name])
        fit = settings.approximate(latent.at(theta), fit)
        mean, variance = fit.posterior.predictive(projection, offset)
        log_p = wanted.tilted(mean, np.maximum(variance, 1e-300)).log_z
        wrong = np.where(np.isclose(log_p, np.log(0.5), atol=1e-12), 0.5, log_p < np.log(0.5))
        error.append(wrong.mean())
        log_probability.append(log_p.mean())
    return xr.Dataset({"error": ("step", error), "log_probability": ("step", log_probability)})
