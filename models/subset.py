"""Linear models over subsets of their inputs: a spike at zero and a Gaussian slab for each weight.

    included ~ p(I)                                   a subset, below
    w_j      ~ N(0, 1/alpha_j)                        the slab; of an excluded input: no data see it
    bias     ~ N(m0, s0²)                             always in, wide
    eta_n    = bias + sum_j included_j w_j x_nj
    t_n      ~ Bernoulli(Phi(eta_n)), Bernoulli(1/(1 + e^-eta_n)), or N(eta_n, sigma²)

The space has a fixed dimension (a product space): an excluded input keeps a weight, whose prior
given that it is excluded is the slab itself, so that the sum over `included` and the integral over
`w` are those of the model with fewer weights, and a jump between dimensions is an ordinary move.
`w_included` = included w is what acts on eta; `w` alone means nothing where an input is out, and in
the trees of `fit` it is 0 there.

    slab           precisions
    a number s     alpha_j = 1/s², as data
    "ard"          alpha_j ~ Gamma(a, b), one for each weight
    "shared"       alpha ~ Gamma(a, b), one for all weights

The default a = 2, b = 1 gives E[1/alpha] = 1, the variance of the default slab; in a regression
b is var(t), so that an inferred slab follows the units of t, as sigma ~ HalfNormal(sd of t) and the
bias do. A slab that is a number does not. The slab is what a subset pays for an input (a wide one
costs more than a narrow one, whatever the data), so it should fit the scale of the inputs:
standardise them.

The prior of a subset of d inputs: a truncated Poisson over its size, uniform within a size.

    p(I) = p(k) / C(d, k),    p(k) = (λ^k / k!) / Σ_{j=0..d} λ^j / j!,    k = |I|

`λ` is `expected_inputs`: the mean size, up to the truncation at d. This is the prior of one subset,
so no binomial coefficient is left for the jumps: the odds of one more input, summed over which
one, are λ / (k + 1). The empty subset has a place in it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import gammaln

from ardvark.models.card import Card, remember
from ardvark.models.checks import (
    as_binary,
    as_inputs,
    as_target,
    one_of,
    positive,
    target_scale,
    warn_about_columns,
)
from ardvark.models.inputs import Array, Inputs
from ardvark.models.likelihoods import LINKS, observe
from ardvark.models.tables import warn

__all__ = [
    "SubsetCard",
    "log_subset_prior",
    "subset_classification",
    "subset_regression",
    "subset_variable",
]

SLABS = ("ard", "shared")
NARROW = 30.0  # sd of t in units of what a weight of one slab explains
WIDE = 5.0  # sd of the bias: of a probit, or in units of the sd of t


@dataclass(frozen=True, slots=True)
class Slab:
    """The prior of an included weight; `kind` is "fixed" (precision) or one of SLABS (a, b)."""

    kind: str
    precision: float = 1.0
    a: float = 2.0
    b: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class SubsetCard(Card):
    """What a sampler of subsets needs to know, beside the data, of the graph it samples."""

    slab: Slab = field(kw_only=True)
    expected_inputs: float = field(kw_only=True)
    bias: tuple[float, float] = field(kw_only=True)  # mean, sd
    link: str = field(kw_only=True)  # "probit" | "logit" | "identity"
    noise: tuple[float, bool] = field(kw_only=True, default=(1.0, True))  # sd or its scale; fixed?


def subset_classification(
    X: Any,
    t: Any,
    *,
    link: str = "probit",
    slab: float | str = 1.0,
    expected_inputs: float = 1.0,
    a: float = 2.0,
    b: float = 1.0,
) -> Any:
    """Build the graph of a two-class linear model over subsets of its inputs.

    Parameters
    ----------
    X, t, link
        As in `ard_classification`.
    slab : number, "ard" or "shared"
        Prior sd of an included weight; or a Gamma precision for each weight, or one for all.
    expected_inputs : float
        The λ of the truncated Poisson prior over the number of inputs.
    a, b : float
        Shape and rate of the Gamma prior of the precisions, where they are inferred.
    """
    inputs = as_inputs(X)
    codes, classes = as_binary(t, len(inputs))
    distribution = LINKS[one_of(link, LINKS, "link")]
    card = SubsetCard(
        "subset_classification", "binary", inputs.feature_names, classes, inputs.scaling, _as_data,
        family="subset", slab=_the_slab(slab, a, b), bias=(0.0, WIDE), link=link,
        expected_inputs=positive(expected_inputs, "expected_inputs"),
    )  # fmt: skip
    return _graph(inputs, card, lambda eta: observe(distribution, codes, eta))


def subset_regression(
    X: Any,
    t: Any,
    *,
    slab: float | str = 1.0,
    expected_inputs: float = 1.0,
    noise: float | None = None,
    a: float = 2.0,
    b: float | None = None,
) -> Any:
    """Build the graph of a linear regression over subsets of its inputs.

    Parameters
    ----------
    X, t, noise
        As in `ard_regression`.
    slab : number, "ard" or "shared"
        Prior sd of an included weight, in the units of t for one unit of an input: it does not
        follow the data, so standardise both or give it in their units. Or a Gamma precision.
    a, b : float
        Shape and rate of that Gamma; `b=None` is var(t), which follows the units of t.
    expected_inputs
        As in `subset_classification`.
    """
    inputs = as_inputs(X)
    target = as_target(t, len(inputs))
    fixed = None if noise is None else positive(noise, "noise")
    spread = target_scale(target)
    if not isinstance(slab, str):
        _warn_about_slab(positive(slab, "slab"), spread, inputs)
    card = SubsetCard(
        "subset_regression", "regression", inputs.feature_names, None, inputs.scaling, _as_data,
        family="subset", slab=_the_slab(slab, a, spread**2 if b is None else b),
        bias=(float(target.mean()), WIDE * spread),
        expected_inputs=positive(expected_inputs, "expected_inputs"), link="identity",
        noise=(spread if fixed is None else fixed, fixed is not None),
    )  # fmt: skip

    def likelihood(eta: Any) -> Any:
        scale = np.array(card.noise[0])
        sigma = pm.Data("sigma", scale) if card.noise[1] else pm.HalfNormal("sigma", scale)
        return observe(pm.Normal, target, eta, sigma)

    return _graph(inputs, card, likelihood)


def _graph(inputs: Inputs, card: SubsetCard, likelihood: Callable[[Any], Any]) -> Any:
    warn_about_columns(inputs)
    values = np.array(inputs, dtype=np.float64)
    coords = {"row": np.arange(len(values)), "feature": card.feature_names}
    with pm.Model(coords=coords) as model:
        X = pm.Data("X", values, dims=("row", "feature"))
        included = subset_variable("included", values.shape[1], card.expected_inputs, "feature")
        alpha = _precisions(card.slab, values.shape[1])
        bias = pm.Normal("bias", *(np.array(number) for number in card.bias))
        w = pm.Normal("w", 0, sigma=alpha**-0.5, dims="feature")
        w_included = pm.Deterministic("w_included", included * w, dims="feature")
        likelihood(pm.Deterministic("eta", bias + X @ w_included, dims="row"))
    remember(model, card)
    return model


def _precisions(slab: Slab, n_inputs: int) -> Any:
    if slab.kind == "fixed":
        return pm.Data("alpha", np.full(n_inputs, slab.precision), dims="feature")
    # As arrays: PyTensor keeps a Python 2.0 in single precision.
    a, b = np.array(slab.a), np.array(slab.b)
    return pm.Gamma("alpha", a, b, dims="feature" if slab.kind == "ard" else None)


def _the_slab(slab: Any, a: float, b: float) -> Slab:
    shape, rate = positive(a, "a"), positive(b, "b")
    if isinstance(slab, str):
        return Slab(one_of(slab, SLABS, "slab"), a=shape, b=rate)
    return Slab("fixed", precision=positive(slab, "slab") ** -2)


def _warn_about_slab(slab: float, spread: float, inputs: Inputs) -> None:
    """Warn of a slab too narrow for the units of t: every input would seem of no use."""
    column = float(np.median(np.asarray(inputs).std(axis=0)))
    if column > 0 and spread > NARROW * slab * column:
        warn(
            f"slab={slab:.3g} is narrow: one prior sd of a weight moves t by {slab * column:.3g}, "
            f'whose sd is {spread:.3g}. Standardise X and t, or give slab="shared" or a wider one.'
        )


def _as_data(X: Array) -> dict[str, Array]:
    return {"X": np.asarray(X, dtype=np.float64)}


# The prior of a subset ----------------------------------------------------------------------------


def log_subset_prior(n_inputs: int, expected_inputs: float) -> Array:
    """Return log p(I) of a subset of each size 0..n_inputs."""
    size = np.arange(n_inputs + 1)
    log_subsets = gammaln(n_inputs + 1) - gammaln(size + 1) - gammaln(n_inputs - size + 1)
    return np.asarray(_log_sizes(size, expected_inputs) - log_subsets)


def subset_variable(name: str, n_inputs: int, expected_inputs: float, dims: str) -> Any:
    """Put a vector of 0 and 1 with this prior into the graph; it starts empty."""
    table = log_subset_prior(n_inputs, expected_inputs)
    sizes = np.exp(_log_sizes(np.arange(n_inputs + 1), expected_inputs))

    def logp(value: Any, probabilities: Any, ones: Any) -> Any:
        size = pt.cast(value, "int64").sum(axis=-1)
        binary = pt.all(pt.or_(pt.eq(value, 0), pt.eq(value, 1)), axis=-1)
        return pt.switch(binary, pt.constant(table)[pt.clip(size, 0, n_inputs)], -np.inf)

    def dist(probabilities: Any, ones: Any, size: Any) -> Any:
        number = pm.Categorical.dist(p=probabilities, size=size)
        noise = pm.Dirichlet.dist(a=ones, size=size)  # exchangeable: every order is as likely
        order = pt.argsort(pt.argsort(noise, axis=-1), axis=-1)
        return pt.cast(order < pt.expand_dims(number, -1), "int64")

    def support_point(rv: Any, size: Any, probabilities: Any, ones: Any) -> Any:
        return pt.zeros_like(rv)

    return pm.CustomDist(
        name,
        sizes,
        np.ones(n_inputs),
        logp=logp,
        dist=dist,
        support_point=support_point,
        signature="(s),(i)->(i)",
        class_name="Subset",
        dims=dims,
    )


def _log_sizes(size: Any, expected_inputs: float) -> Array:
    log_terms = size * np.log(expected_inputs) - gammaln(size + 1)
    return np.asarray(log_terms - np.logaddexp.reduce(log_terms))
