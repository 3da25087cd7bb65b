"""Which function fits, and which predicts: by the kind of the method and the family of the model.

A family is the shape that a graph has once its hyperparameters are given. Most of the zoo, and any
graph of a user, is a Gaussian block times scalar sites ("sites"). A model of another shape names
its family on its card, and gets a line here for each kind of method that fits it in a way of its
own; where there is no such line the kind's own function for any graph is taken, if there is one.

    fit(model, name, settings, run) -> groups of the tree, facts for its root
    predict(model, tree, X_new, random_seed) -> DataArray, X_new being checked and scaled
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ardvark.models.card import card_of

__all__ = ["FITS", "PREDICTIONS", "family_of", "fit_route", "prediction_route"]

ANY = "any"

FITS: dict[tuple[str, str], str] = {  # (kind of method, family of model) -> module:function
    ("gaussian", "sites"): "approximate:fit_gaussian",
    ("exact", "sites"): "approximate:fit_exact",
    ("vb", "sites"): "vb.run:fit_vb",
    ("gaussian", "bilinear"): "sample_feature.run:fit_laplace",  # the registry refuses EP
    ("vb", "bilinear"): "sample_feature.run:fit_vb",
    ("sampler", "bilinear"): "sample_feature.run_sampling:fit_sampler",
    ("jump", "mixture"): "mixture.run:fit_mixture",
    ("exact", "mixture"): "mixture.run:fit_enumerated",
    ("sampler", ANY): "samplers.run:fit_sampler",
    ("slice", ANY): "samplers.run_slices:fit_slices",
    ("gaussian", "softmax"): "softmax.run:fit_softmax",
    ("exact", "softmax"): "softmax.run:refuse_softmax",
    ("slice", "softmax"): "softmax.run:refuse_softmax",
    ("vb", "softmax"): "softmax.run:refuse_softmax",
    ("sampler", "softmax"): "softmax.run:sample_softmax",
    ("gaussian", "process"): "process.run:fit_process",
    ("sampler", "process"): "process.run:sample_process",
    ("slice", "process"): "process.run:slice_process",
    ("jump", "subset"): "subset.run:fit_subset",
    ("exact", "subset"): "subset.run:fit_subset_exact",
}

PREDICTIONS: dict[str, str] = {  # family of model -> module:function; "sites" is in predict.py
    "softmax": "softmax.run:predict_softmax",
    "process": "process.run:predict_process",
    "subset": "subset.run:predict_subset",
    "bilinear": "sample_feature.run_predict:predict",
    "mixture": "mixture.run:predict_mixture",
}


def family_of(model: Any) -> str:
    """Give the family of a model; a user's graph has no card and is read as sites."""
    card = card_of(model)
    return "sites" if card is None else card.family


def fit_route(kind: str, model: Any) -> Callable[..., Any] | None:
    """Give the function that fits this model by methods of this kind, None if there is none."""
    place = FITS.get((kind, family_of(model))) or FITS.get((kind, ANY))
    return None if place is None else _load(place)


def prediction_route(model: Any) -> Callable[..., Any] | None:
    """Give the function that predicts for a family other than "sites"."""
    place = PREDICTIONS.get(family_of(model))
    return None if place is None else _load(place)


def _load(place: str) -> Callable[..., Any]:
    module, function = place.split(":")
    loaded: Callable[..., Any] = getattr(import_module(f"ardvark.inference.{module}"), function)
    return loaded
