"""The relevance sample-feature machine: a kernel for each feature around each sample, both sparse.

    eta_n = w' Phi_n lam      Phi_n[i, j] = K(x_nj, x_ij), 1 where i = 0 or j = 0
    w_i ~ N(0, 1/alpha_w_i)   lam_j ~ N(0, 1/alpha_lam_j)      precisions ~ Gamma(a, b)
    t_n ~ N(eta_n, 1/beta), beta ~ Gamma(a, b)                 regression
          Bernoulli(1/(1 + e^-eta_n))                          two classes

    Mirzaei, Mohsenzadeh & Sheikhzadeh 2017      here
    w, lambda (1); alpha_w, alpha_lambda (3)     w, lam; alpha_w, alpha_lam
    beta, a precision                            beta
    K(x, y) = exp(-gamma (x - y)²) (2)           kernel=gaussian, gamma
    Gamma(a, b) (10), b a rate                   a, b

The weights are shared: every feature sees its kernels with the same w. Row 0 and column 0 are
constants, so the constant can be made in many ways, and eta does not change under
(w, lam) -> (c w, lam / c): weights mean nothing by themselves, their products do.

`a = b = 1e-6` is the paper's prior, flat in the logarithm. It is proper in name only: its draws
under- and overflow, so a prior predictive, NUTS and SMC want another (`a=2, b=1`), and NUTS small
steps (`target_accept=0.99`).
It does not follow the units of t either, nor do the starts of VB: measured on one data set, an sd
of 0.001 gives 1.7 times the noise of the same t with sd 1, and an sd of 1000 ends with all of t
called noise. Standardise t; a target far from unit scale is warned of.
`gamma` is `pm.Data`: `av.fit(model, data=[{"gamma": g}, ...])` compares widths on one graph, and
`av.search_gamma` chooses one.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from ardvark.errors import InputError
from ardvark.models.ard import WeightPrior, doubles, gamma_precisions, integrated_precisions
from ardvark.models.card import Card, Precision, remember
from ardvark.models.checks import (
    as_binary,
    as_inputs,
    as_target,
    positive,
    warn_about_columns,
)
from ardvark.models.inputs import Array, Inputs
from ardvark.models.likelihoods import LINKS, observe
from ardvark.models.tables import warn

__all__ = [
    "gaussian",
    "sample_feature_classification",
    "sample_feature_regression",
]

ODD_TARGET = 30.0  # root mean square of t beyond which fits are known to go wrong
CONSTANT = "constant"  # what sample 0 and feature 0 are called

type FeatureKernel = Callable[[Any, Any, Any], Any]  # (x, centre, gamma), elementwise


def gaussian(x: Any, centre: Any, gamma: Any) -> Any:
    """exp(-gamma (x - c)²), of NumPy arrays or PyTensor variables."""
    distance = -gamma * (x - centre) ** 2
    symbolic = hasattr(distance, "owner")
    return pt.exp(distance) if symbolic else np.exp(distance)


@dataclass(frozen=True, slots=True, eq=False)
class SampleFeatureCard(Card):
    """A card that also knows what the arrays of the machine are made of."""

    kernel: FeatureKernel = gaussian
    a: float = 1e-6
    b: float = 1e-6


def sample_feature_regression(
    X: Any,
    t: Any,
    *,
    gamma: float = 1.0,
    kernel: FeatureKernel = gaussian,
    a: float = 1e-6,
    b: float = 1e-6,
) -> Any:
    """Build the graph of a regression that is sparse in samples and in features.

    Parameters
    ----------
    X : (N, L) table
        Array, DataFrame or `Inputs`. Every feature has the same `gamma`: `av.standardise` inputs
        of different units.
    t : N numbers
    gamma : float
        exp(-gamma (x - x')²): the kernel's width is 1/sqrt(2 gamma).
    kernel : function (x, centre, gamma), elementwise
        In place of the Gaussian; of NumPy arrays and of PyTensor variables alike.
    a, b : float
        Shape and rate of the Gamma priors of all precisions, the noise's too.
    """
    inputs = as_inputs(X)
    target = as_target(t, len(inputs))
    _warn_about_units(target)
    card = _card("sample_feature_regression", "regression", inputs, None, kernel, a, b)

    def likelihood(eta: Any) -> Any:
        beta = pm.Gamma("beta", *doubles(card.a, card.b))
        return observe(pm.Normal, target, eta, beta**-0.5)

    return _build(inputs, gamma, card, likelihood)


def sample_feature_classification(
    X: Any,
    t: Any,
    *,
    gamma: float = 1.0,
    kernel: FeatureKernel = gaussian,
    a: float = 1e-6,
    b: float = 1e-6,
) -> Any:
    """Build the graph of a two-class machine that is sparse in samples and in features.

    Parameters
    ----------
    X : (N, L) table
    t : N labels of two classes
        Integers, booleans or strings; the second in `np.unique` order is the positive class.
    gamma, kernel, a, b
        As in `sample_feature_regression`; there is no noise.
    """
    inputs = as_inputs(X)
    codes, classes = as_binary(t, len(inputs))
    card = _card("sample_feature_classification", "binary", inputs, classes, kernel, a, b)
    return _build(inputs, gamma, card, lambda eta: observe(LINKS["logit"], codes, eta))


def _card(
    builder: str, task: str, inputs: Inputs, classes: Any, kernel: Any, a: float, b: float
) -> SampleFeatureCard:
    warn_about_columns(inputs)
    if not callable(kernel):
        raise InputError(f"kernel must be a function (x, centre, gamma), got {kernel!r}.")
    return SampleFeatureCard(
        builder,
        task,
        inputs.feature_names,
        classes,
        inputs.scaling,
        lambda X_new: {"X": np.asarray(X_new, float)},
        family="sample_feature",
        kernel=kernel,
        a=positive(a, "a"),
        b=positive(b, "b"),
    )


def _warn_about_units(t: Array) -> None:
    """Warn of a target far from unit scale, for which neither prior nor starts are meant."""
    size = float(np.sqrt(np.mean(np.square(t))))
    if size > 0 and not 1 / ODD_TARGET <= size <= ODD_TARGET:
        warn(
            f"t has a root mean square of {size:.3g}; the priors of this machine, and where its "
            f"fits start, are meant for targets near 1. Standardise t."
        )


def _build(
    inputs: Inputs, gamma: float, card: SampleFeatureCard, likelihood: Callable[[Any], Any]
) -> Any:
    """Build the graph with Gamma precisions; its second form has them integrated out."""
    width = positive(gamma, "gamma")

    def build(prior: WeightPrior) -> Any:
        with pm.Model(coords=_coords(inputs)) as model:
            eta = _predictor(inputs, width, card.kernel, prior)
            likelihood(pm.Deterministic("eta", eta, dims="row"))
        return model

    def with_precisions(name: str, dims: Any = None) -> Any:
        return gamma_precisions(card.a, card.b, alpha_name=f"alpha_{name}")(name, dims)

    model = build(with_precisions)
    pairs = tuple(Precision(name, f"alpha_{name}", card.a, card.b) for name in ("w", "lam"))
    remember(
        model,
        dataclasses.replace(card, precisions=pairs),
        integrated=lambda: build(integrated_precisions(card.a, card.b)),
    )
    return model


def _coords(inputs: Inputs) -> dict[str, Any]:
    rows = range(len(inputs))
    return {
        "row": rows,
        "feature": inputs.feature_names,
        "centre": rows,
        "sample_term": (CONSTANT, *map(str, rows)),
        "feature_term": (CONSTANT, *inputs.feature_names),
    }


def _predictor(inputs: Inputs, gamma: float, kernel: FeatureKernel, prior: WeightPrior) -> Any:
    """Return w' Phi_n lam without the constants' row and column of ones."""
    values = np.asarray(inputs, float)
    X = pm.Data("X", values, dims=("row", "feature"))
    centres = pm.Data("centres", values, dims=("centre", "feature"))
    width = pm.Data("gamma", np.array(gamma))
    w, lam = prior("w", "sample_term"), prior("lam", "feature_term")
    K = kernel(X[:, None, :], centres[None, :, :], width)  # row, centre, feature
    smooth = pt.dot(pt.dot(K, lam[1:]), w[1:])
    return w[0] * lam.sum() + lam[0] * w[1:].sum() + smooth
