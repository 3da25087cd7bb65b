"""Which graph a sampler runs on, what it stores, and how the answer becomes one of the model.

A model whose builder offers an `integrated` form (see `models.card`) is sampled with its Gamma
precisions integrated out, and they are drawn afterwards from their exact conditional:

    alpha ~ Gamma(a, b),  w | alpha ~ N(0, 1/alpha)                      as written
    w ~ StudentT(2a, scale sqrt(b/a))                                    what is sampled
    alpha | w ~ Gamma(a + 1/2, b + w²/2)                                 `recover_precisions`

A Gaussian process is sampled `whitened`: f = L(κ) white, white ~ N(0, I), so that f and the κ of
its covariance do not hold each other fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.pymc_models.compile import SETTINGS, kept_with
from ardvark.inference.pymc_models.copies import copy_data
from ardvark.models.card import card_of

if TYPE_CHECKING:
    from ardvark.models.card import Precision

__all__ = [
    "FORMS",
    "Form",
    "check_known",
    "check_names",
    "dims_of",
    "form_to_sample",
    "gaussian_form",
    "in_order_of",
    "length_known",
    "names_to_store",
    "recover_precisions",
    "stored_names",
]

FORMS = ("auto", "integrated", "whitened", "as_written")


class Form(NamedTuple):
    """The graph that is sampled and the precisions that are missing in it."""

    model: Any
    precisions: tuple[Precision, ...]
    name: str


def form_to_sample(model: Any, form: str) -> Form:
    """Give the second form of `model` with the model's present data, or `model` itself."""
    if not model.free_RVs:
        raise UnsupportedPair("The model has no free variable: there is nothing to sample.")
    card = card_of(model)
    offered = {} if card is None else {"integrated": card.integrated, "whitened": card.whitened}
    name, build = next(((n, b) for n, b in offered.items() if b is not None), ("", None))
    if form in ("integrated", "whitened") and form != name:
        other = f"its other form is {name!r}" if name else "it has no second form"
        what = "the precisions integrated out" if form == "integrated" else "its function whitened"
        raise UnsupportedPair(
            f"form={form!r} was asked, but there is no form with {what} for this model: {other}. "
            f'Use form="auto".'
        )
    if card is None or build is None or form == "as_written":
        return Form(model, (), "as_written")
    return Form(_second(model, name, build), tuple(card.precisions), name)


def gaussian_form(model: Any) -> Any:
    """Give the graph with Gaussian weights: given the weights, their prior no longer matters."""
    card = card_of(model)
    if card is None or card.gaussian is None:
        return model
    return _second(model, "gaussian", card.gaussian)


def _second(model: Any, name: str, build: Callable[[], Any]) -> Any:
    """Give another form of `model`, built once, with the data the model holds now."""
    with SETTINGS:
        other = kept_with(model, ("form", name), build)
        copy_data(model, other)
    return other


def names_to_store(form: Form, model: Any, predictor: str | None) -> list[str]:
    """What a sampler keeps: all that `model` calls free too, in whatever form it was sampled."""
    names = stored_names(form.model, predictor)
    known = form.model.named_vars
    return names + [v.name for v in model.free_RVs if v.name in known and v.name not in names]


def recover_precisions(
    posterior: xr.Dataset, card_precisions: Sequence[Precision], rng: np.random.Generator
) -> xr.Dataset:
    """Draw alpha | w ~ Gamma(a + 1/2, rate b + w²/2) for every draw of w, with w's dims."""
    recovered = {}
    for precision in card_precisions:
        weight = posterior[precision.weights]
        recovered[precision.name] = weight.copy(data=precision.draw_given(weight.values, rng))
    return xr.Dataset(recovered)


def dims_of(model: Any, name: str) -> tuple[Any, ...]:
    """Give the named dims of a variable; empty if it has none."""
    return tuple(model.named_vars_to_dims.get(name) or ())


def stored_names(model: Any, predictor: str | None) -> list[str]:
    """Free variables and Deterministics whose length cannot change with the number of rows.

    The predictor of a model of `av.models` can be computed from the rest; in a user's own graph it
    is a quantity that was named to be looked at.
    """
    hidden = None if card_of(model) is None else predictor or "eta"
    rows = {dim for rv in model.observed_RVs for dim in dims_of(model, rv.name)[:1]}
    names = [rv.name for rv in model.free_RVs]
    for variable in model.deterministics:
        dims = dims_of(model, variable.name)
        if variable.name != hidden and not rows & set(dims) and length_known(variable, dims):
            names.append(variable.name)
    return names


def length_known(variable: Any, dims: tuple[Any, ...]) -> bool:
    """Tell whether a variable's shape is settled by dims or by its type, not by data alone."""
    lengths = variable.type.shape
    named = dims or (None,) * len(lengths)
    return all(d is not None or n is not None for d, n in zip(named, lengths, strict=True))


def in_order_of(model: Any, posterior: xr.Dataset, var_names: Sequence[str] | None) -> xr.Dataset:
    """Put the variables in the order of the model, with its present coordinates."""
    known = [v.name for v in model.unobserved_RVs if v.name in posterior]
    posterior = posterior[list(var_names) if var_names is not None else known]
    coords = {dim: list(model.coords[dim]) for dim in posterior.dims if model.coords.get(dim)}
    return posterior.assign_coords(coords)


# ------------------------------------------------------------------------------- checks of settings


def check_known(model: Any, names: Sequence[str]) -> None:
    """Refuse names that are no unobserved variables of the model."""
    known = [variable.name for variable in model.unobserved_RVs]
    for name in names:
        if name not in known:
            raise InputError(f"The model has no variable {name!r}. It has: {', '.join(known)}.")


def check_names(weights: Any, predictor: Any) -> None:
    """Refuse `weights` and `predictor` that cannot be names of variables."""
    names = (weights,) if isinstance(weights, str) else weights
    if names is not None and not (
        isinstance(names, tuple) and names and all(isinstance(name, str) for name in names)
    ):
        raise InputError(f"weights must be a name, a tuple of names or None, got {weights!r}.")
    if predictor is not None and not isinstance(predictor, str):
        raise InputError(f"predictor must be the name of a variable, got {predictor!r}.")
