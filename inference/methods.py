"""The methods: each is declared here once, and nothing heavy is imported to read the table.

A declaration names the settings, the kind, and by family of models the function that fits or the
reason why none does:

    fit(model, name, settings, Run) -> groups of the tree, Facts for its root
    predict(model, tree, X_new, random_seed) -> DataArray, X_new being checked and scaled

A family is the shape that a graph has once its hyperparameters are given. Most models, and any
graph of a user, are a Gaussian block times scalar sites ("sites"); a model of another shape names
its family on its card. `ANY` stands for every family without an entry of its own.

Six kinds, for code that treats several methods alike:

* "gaussian": its settings have `approximate` and the adjoint of the evidence
  (`sites/approximation.py`); the hyperparameters are settled around it (`hyper/settle.py`).
* "exact": its settings have `sample(SiteModel)`, independent draws at fixed hyperparameters.
* "vb": a factorised approximation of weights and hyperparameters together.
* "sampler": draws from the posterior, hyperparameters included unless `hyper=Fixed(...)`.
* "slice": a Markov chain on the Gaussian block given its sites, at fixed hyperparameters.
* "jump": samples subsets of the inputs.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ardvark.errors import UnsupportedPair
from ardvark.loading import loading
from ardvark.models.card import card_of

__all__ = ["METHODS", "MethodEntry", "family_of", "fit_route", "prediction_route"]

ANY = "any"
_ROOT = "ardvark.inference."


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """The module of a method, what kind it is, and which families of models it fits."""

    home: str  # module of ardvark.inference
    settings: str  # name of its settings class
    kind: str
    fits: Mapping[str, str]  # family -> "module:function"
    refuses: Mapping[str, str] = field(default_factory=dict)  # family -> why, what to use instead
    sample: str = ""  # samplers: name of the function that draws

    def load(self, name: str) -> Any:
        """Give a name of the method's module."""
        return getattr(import_module(_ROOT + self.home), name)

    def made(self, settings: Any) -> bool:
        """Whether `settings` are of this method; nothing is imported, since theirs has been."""
        module = sys.modules.get(_ROOT + self.home)
        return module is not None and isinstance(settings, getattr(module, self.settings))


_SITES = {"sites": "approximate:fit_gaussian", "process": "process.run:fit_process"}
_SAMPLED = {
    ANY: "samplers.run:fit_sampler",
    "softmax": "softmax.run:sample_softmax",
    "process": "process.run:sample_process",
    "sample_feature": "sample_feature.run:fit_sampler",
    "mixture": "mixture.run_given:sample_mixture",
}
_TWO_CLASSES = "it has not been built for more than two classes. Use Laplace() or NUTS()."

METHODS: dict[str, MethodEntry] = {
    "laplace": MethodEntry(
        "laplace",
        "Laplace",
        "gaussian",
        _SITES
        | {
            "softmax": "softmax.run:fit_softmax",
            "sample_feature": "sample_feature.run:fit_laplace",
        },
    ),
    "ep": MethodEntry(
        "ep.ep",
        "EP",
        "gaussian",
        _SITES,
        {
            "softmax": "its sites are functions of one predictor each, and a softmax couples all K "
            "of a row. Use Laplace() or NUTS(), or two classes."
        },
    ),
    "vb": MethodEntry(
        "vb.vb",
        "VB",
        "vb",
        {
            "sites": "vb.run:fit_vb",
            "sample_feature": "sample_feature.run:fit_vb",
            "mixture": "mixture.run_given:fit_mean_field",
        },
        {"softmax": _TWO_CLASSES},
    ),
    "exact": MethodEntry(
        "exact.exact",
        "Exact",
        "exact",
        {
            "sites": "approximate:fit_exact",
            "subset": "subset.run:fit_subset_exact",
            "mixture": "mixture.run:fit_enumerated",
        },
        {
            "softmax": "no exact posterior of a softmax is known. Use NUTS(hyper=Fixed(...)) as a "
            "reference."
        },
    ),
    "nuts": MethodEntry("samplers.nuts", "NUTS", "sampler", _SAMPLED, sample="sample_nuts"),
    "smc": MethodEntry("samplers.smc", "SMC", "sampler", _SAMPLED, sample="sample_smc"),
    "elliptical_slice": MethodEntry(
        "samplers.elliptical_slice",
        "EllipticalSlice",
        "slice",
        {ANY: "samplers.run:fit_slices", "process": "process.run:slice_process"},
        {"softmax": _TWO_CLASSES},
    ),
    "reversible_jump": MethodEntry(
        "reversible_jump",
        "ReversibleJump",
        "jump",
        {"subset": "subset.run:fit_subset", "mixture": "mixture.run:fit_mixture"},
    ),
}

PREDICTIONS: dict[str, str] = {  # family -> "module:function"; "sites" is in predict.py
    "softmax": "softmax.run:predict_softmax",
    "process": "process.run:predict_process",
    "subset": "subset.run:predict_subset",
    "sample_feature": "sample_feature.run:predict",
    "mixture": "mixture.run:predict_mixture",
}


def family_of(model: Any) -> str:
    """Give the family of a model; a user's graph has no card and is read as sites."""
    card = card_of(model)
    return "sites" if card is None else card.family


def fit_route(name: str, model: Any) -> Callable[..., Any]:
    """Give the function that fits this model by this method, or say why there is none."""
    entry, family = METHODS[name], family_of(model)
    place = entry.fits.get(family) or entry.fits.get(ANY)
    if family in entry.refuses or place is None:
        reason = entry.refuses.get(family, "no such pair has been built.")
        what = (
            "more than two classes" if family == "softmax" else f"models of the family {family!r}"
        )
        raise UnsupportedPair(f"{name} does not fit {what}: {reason}")
    return _load(place)


def prediction_route(model: Any) -> Callable[..., Any] | None:
    """Give the function that predicts for a family other than "sites"."""
    place = PREDICTIONS.get(family_of(model))
    return None if place is None else _load(place)


def _load(place: str) -> Callable[..., Any]:
    module, function = place.split(":")
    with loading():
        loaded: Callable[..., Any] = getattr(import_module(_ROOT + module), function)
    return loaded
