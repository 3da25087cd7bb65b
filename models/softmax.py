"""More than two classes: a softmax over one linear predictor per class.

    alpha_kj ~ Gamma(a, b)     w_kj | alpha_kj ~ N(0, 1/alpha_kj)     (each bias_k has its own pair)
    eta_nk = bias_k + phi(x_n)'w_k                                    rows n, classes k = 1 ... K
    p(t_n = k) = exp(eta_nk) / sum_l exp(eta_nl)

All K columns have weights. The same number added to every eta_nk changes no probability, so the
likelihood alone leaves one direction open; the prior closes it, since it is the same for each class
and prefers the sum over classes to be zero. Differences of two columns are what the data inform;
weights of one class are to be read against the mean of all. A class taken as the base would be
identified by the likelihood, but its prior would depend on which class that is.

The names are those of two classes, with a dim `class` more: `w` and `alpha` (class, basis), `bias`
and `alpha_bias` (class), `eta` (row, class). With two classes this graph would be the logit's with
w = w_1 - w_0, whose prior variance is 1/alpha_0 + 1/alpha_1.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm

from ardvark.errors import InputError
from ardvark.models.ard import (
    WeightPrior,
    Weights,
    card_for,
    scale_in_graph,
    with_precisions,
)
from ardvark.models.checks import as_precisions
from ardvark.models.inputs import Array, Inputs
from ardvark.models.kernels import Design
from ardvark.models.likelihoods import softmax

__all__ = ["softmax_graph"]


def softmax_graph(
    builder: str,
    inputs: Inputs,
    codes: Any,
    classes: Any,
    design_of: Callable[[Inputs], Design],
    weights: Weights,
) -> Any:
    """Build the graph of several classes, coded 0 ... K - 1."""
    design = design_of(inputs)
    labels = tuple(label.item() if hasattr(label, "item") else label for label in classes)

    def build(prior: WeightPrior) -> Any:
        with pm.Model(coords={**design.coords, "class": labels}) as model:
            eta = _predictors(design, prior, weights.bias)
            t_observed = pm.Data("t_observed", codes, dims="row")
            softmax("t", eta, observed=t_observed, dims="row")
        return model

    def split(alpha: Any, design: Design, bias: bool) -> dict[str, Array]:
        return _precisions(alpha, design, bias, labels)

    card = card_for(builder, "multiclass", inputs, design, classes)
    card = replace(card, family="softmax", design=design)
    return with_precisions(build, card, design, weights, split)


def _predictors(design: Design, prior: WeightPrior, bias: bool) -> Any:
    data = pm.Data(design.data, design.values, dims=("row", design.columns))
    scales = () if design.scale is None else (scale_in_graph(design.scale),)
    intercepts = prior("bias", dims=("class",)) if bias else 0
    w = prior("w", dims=("class", design.weights))
    eta = intercepts + design.basis_functions(data, *scales) @ w.T
    return pm.Deterministic("eta", eta, dims=("row", "class"))


def _precisions(
    alpha: Any, design: Design, bias: bool, classes: tuple[Any, ...]
) -> dict[str, Array]:
    """One precision per weight, the bias first: for all classes alike, or a line for each."""
    names = ("bias", *design.names) if bias else design.names
    if np.ndim(alpha) < 2:
        table = np.tile(as_precisions(alpha, names), (len(classes), 1))
    else:
        if len(alpha) != len(classes):
            raise InputError(
                f"alpha has {len(alpha)} lines, t has {len(classes)} classes: give one precision "
                f"per weight, or one line of them for each class."
            )
        lines = zip(alpha, classes, strict=True)
        table = np.stack([as_precisions(a, names, argument=f"alpha[{c}]") for a, c in lines])
    if np.isinf(table).all():
        raise InputError(
            f"alpha is inf at each of its {table.size} places, which switches every weight off: at "
            f"least one finite precision is needed."
        )
    return {"bias": table[:, 0], "w": table[:, 1:]} if bias else {"w": table}
