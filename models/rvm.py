"""The relevance vector machine: the linear models of `ard.py` on a kernel at each training row.

    eta_n = bias + sum_m w_m k(x_n, x_m)          w_m has its own precision alpha_m

Rows whose weight keeps a finite precision are the relevance vectors. The basis is part of the
graph, so that it follows its data to new rows, and its weights carry the names of the rows.

    Tipping, lecture 3 (and 2001)           here
    K(x, x_n), w_0, w_n                     kernel, bias, w
    alpha_n, sigma²                         alpha, sigma (standard deviation)
    "independent alpha"                     prior="ard"       one alpha_m ~ Gamma(a, b) per weight
    its marginal, a Student-t               prior="student"   the same with every alpha gone
    "single alpha"                          prior="shared"    one alpha ~ Gamma(a, b) for all w
    eta in exp(-eta |x - x_n|²)             width: eta = 1 / (2 width²)
    eta_k of the η-RVR                      input_scale, by RBF(width=None, per_input=True)

An inferred width is log-normal, its mean m the median distance of the training rows, its log with
sd 1: 95 % lie in (0.085 m, 4.3 m). An inferred input_scale has sd 2 in the log and the mean
1/(4 d var(x_k)), at which two rows are exp(-1/2) alike on average and no input is preferred; its
median is a seventh of that, as if few inputs mattered. Both are free of units and both means are
where `Evidence()` starts. A width that is not inferred is `pm.Data`: it stands in `constant_data`
of a result, and `av.fit(model, data=[{"width": s}, ...])` compares widths on one compiled graph.
The default is to infer: no rule is right for all data (on the sinc the median distance is too wide,
RMS error 0.11 at best against 0.04).

More than two classes have a softmax over one linear predictor per class:

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

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm

from ardvark.errors import InputError
from ardvark.models.ard import (
    WeightPrior,
    Weights,
    card_for,
    predictor,
    refuse_all_off,
    regression_graph,
    two_class_graph,
    with_precisions,
)
from ardvark.models.checks import as_classes, as_inputs, as_precisions, one_of
from ardvark.models.inputs import Array, Inputs
from ardvark.models.kernels import RBF, Design, centred_on_rows
from ardvark.models.likelihoods import LINKS, observe, softmax

__all__ = ["rvm_classification", "rvm_regression"]

DEFAULT_KERNEL = RBF(width=None)


def rvm_regression(
    X: Any,
    t: Any,
    *,
    kernel: Any = DEFAULT_KERNEL,
    bias: bool = True,
    alpha: Any = None,
    a: float = 2.0,
    b: float | None = None,
    noise: float | None = None,
    prior: str = "ard",
) -> Any:
    """Build the graph of a relevance vector regression with Gaussian noise.

    Parameters
    ----------
    X : (N, d) table
        Array, DataFrame or `Inputs`. Data are not rescaled: a kernel sees distances, so inputs
        of different units want `av.standardise` or `per_input=True`.
    t : N numbers
    kernel : kernel object or function k(X, centres)
        `RBF`, `Laplacian`, `Linear`, `Polynomial`, `Spline`, `ThinPlate`, or a function of two
        tables that gives (N, M); it need not be positive definite. A width of None is inferred,
        "median" is the median distance of the rows of X, a number is itself.
    bias : bool
        Whether there is a constant weight, with its own precision.
    alpha : None or one precision per weight
        None infers them; numbers fix them, the bias first, then one per row; inf = switched off.
    a, b : float
        Shape and rate of the Gamma hyperprior; `b=None` is 2 var(t)/s with s the squares of the
        kernels, summed and averaged over the rows (at the typical width, if it is inferred): eta
        has a prior sd near 1.4 sd(t), in any units and for any kernel.
    noise
        As in `ard_regression`.
    prior : "ard", "student" or "shared"
        One precision per weight; the same integrated out, a Student-t for each weight; one
        precision for all weights but the bias, which is not sparse.
    """
    weights = Weights(bias, alpha, a, b, prior)
    design_of = partial(centred_on_rows, kernel=kernel)
    return regression_graph("rvm_regression", X, t, design_of, noise, weights)


def rvm_classification(
    X: Any,
    t: Any,
    *,
    kernel: Any = DEFAULT_KERNEL,
    link: str = "logit",
    bias: bool = True,
    alpha: Any = None,
    a: float = 2.0,
    b: float | None = None,
    prior: str = "ard",
) -> Any:
    """Build the graph of a relevance vector classifier: logit or probit, or softmax for K > 2.

    Parameters
    ----------
    X : (N, d) table
    t : N labels
        Integers, booleans or strings, in `np.unique` order. Of two classes the second is the
        positive one; more than two have one predictor each, and `w`, `alpha`, `bias` and `eta`
        a dim `class`.
    link : "logit" or "probit"
        Of two classes; more than two have the softmax, which is the logit's.
    alpha : None or precisions
        As in `rvm_regression`; with K > 2 classes for all of them alike, or a line for each.
    a, b : float
        Shape and rate of the Gamma hyperprior; `b=None` is 2/N.
    kernel, bias, prior
        As in `rvm_regression`.
    """
    weights = Weights(bias, alpha, a, b, prior)
    inputs = as_inputs(X)
    codes, classes = as_classes(t, len(inputs))
    design_of = partial(centred_on_rows, kernel=kernel)
    if len(classes) == 2:
        return two_class_graph("rvm_classification", inputs, t, design_of, link, weights)
    if one_of(link, LINKS, "link") != "logit":
        raise InputError(
            f"link={link!r} is for two classes, t has {len(classes)}: these have a softmax, which "
            f"is link='logit'. Leave link out, or merge the classes into two."
        )
    return _softmax_graph(inputs, codes, classes, design_of(inputs), weights)


# More than two classes ----------------------------------------------------------------------------


def _softmax_graph(
    inputs: Inputs,
    codes: Any,
    classes: Any,
    design: Design,
    weights: Weights,
) -> Any:
    """Build the graph of several classes, coded 0 ... K - 1."""
    labels = tuple(label.item() if hasattr(label, "item") else label for label in classes)

    def build(prior: WeightPrior) -> Any:
        with pm.Model(coords={**design.coords, "class": labels}) as model:
            observe(softmax, codes, predictor(design, prior, weights.bias, ("class",)))
        return model

    def split(alpha: Any, design: Design, bias: bool) -> dict[str, Array]:
        return _precisions(alpha, design, bias, labels)

    card = card_for("rvm_classification", "multiclass", inputs, design, classes)
    card = replace(card, family="softmax", design=design)
    return with_precisions(build, card, design, weights, split)


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
    refuse_all_off(table)
    return {"bias": table[:, 0], "w": table[:, 1:]} if bias else {"w": table}
