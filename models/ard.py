"""Linear models with automatic relevance determination: one prior precision per weight.

    alpha_j ~ Gamma(a, b)       w_j | alpha_j ~ N(0, 1/alpha_j)       (the bias has its own pair)
    eta_n   = bias + phi(x_n)'w
    t_n     ~ Bernoulli(Phi(eta_n))            probit
              Bernoulli(1/(1 + e^-eta_n))      logit
              N(eta_n, sigma²)                 regression

A large alpha_j switches its weight off; alpha_j = inf does so exactly.

    paper                                   here
    w, a constant among the inputs          bias, w              Qi, Minka, Picard & Ghahramani 2004
    Psi(t w'phi(x)), t = ±1                 probit(eta), t = 0/1                             Qi 2004
    alpha, its Gamma hyperprior             alpha_bias, alpha, a, b                     Tipping 2001
    sigma², the noise variance              sigma (standard deviation)                  Tipping 2001

Prior choices. `a=2`, `b=2/d`, d weights besides the bias: E[1/alpha] = b/(a - 1) = 2/d and so
var(eta) = 2/d (1 + sum_j phi_j²), near 2 for inputs of unit scale, whatever d is: with an sd of 1.4
a probit or a logit is neither flat nor certain (`a=b=1e-6` is the papers' flat prior).
In a regression eta is in the units of t and `b = 2 var(t)/d`: a prior sd of 1.4 sd(t). Of a kernel
or another basis d is not the number of its functions but sum_j mean_n phi_j(x_n)²: a narrow kernel
reaches few rows, and each row few kernels.
`sigma ~ HalfNormal(sd of t)`: all of t may be noise, or none of it. So the default fit
follows the units of t: c t has c times the weights and the noise, and nothing else changes. (A
constant t has no sd, its size stands for it, and 1 for a t of zeros. New values given by
`pm.set_data` or `fit(data=...)` keep the prior of the t that the graph was built on.) Data are
never rescaled here.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from ardvark.errors import InputError
from ardvark.models.card import Card, Precision, remember
from ardvark.models.checks import (
    as_binary,
    as_flag,
    as_inputs,
    as_precisions,
    as_target,
    one_of,
    positive,
    target_scale,
    warn_about_columns,
)
from ardvark.models.inputs import Array, Inputs
from ardvark.models.kernels import Basis, Design, Scale, basis_size, expand
from ardvark.models.likelihoods import LINKS, observe

__all__ = ["ard_classification", "ard_regression"]

type WeightPrior = Callable[..., Any]  # (name, dims=None) -> the weights, within a pm.Model


def ard_classification(
    X: Any,
    t: Any,
    *,
    link: str = "probit",
    basis: Basis = None,
    bias: bool = True,
    alpha: Any = None,
    a: float = 2.0,
    b: float | None = None,
) -> Any:
    """Build the graph of a two-class linear model with ARD weights.

    Parameters
    ----------
    X : (N, d) table
        Array, DataFrame or `Inputs`; the names of its columns become coordinates.
    t : N labels of two classes
        Integers, booleans or strings; the second in `np.unique` order is the positive class.
    link : "probit" or "logit"
    basis : None, kernel or callable
        The inputs themselves; a kernel centred on each training row; a function X -> Phi.
    bias : bool
        Whether there is a constant weight, with its own precision.
    alpha : None or one precision per weight
        None infers them; numbers fix them, the bias first, inf = this weight is switched off.
    a, b : float
        Shape and rate of the Gamma hyperprior; `b=None` is 2/d.
    """
    weights = Weights(bias, alpha, a, b)
    design_of = partial(_design, basis=basis)
    return two_class_graph("ard_classification", X, t, design_of, link, weights)


def ard_regression(
    X: Any,
    t: Any,
    *,
    basis: Basis = None,
    bias: bool = True,
    alpha: Any = None,
    a: float = 2.0,
    b: float | None = None,
    noise: float | None = None,
) -> Any:
    """Build the graph of a linear regression with ARD weights and Gaussian noise.

    Parameters
    ----------
    X : (N, d) table
        Array, DataFrame or `Inputs`; the names of its columns become coordinates.
    t : N numbers
    noise : None or float
        The noise sd: None infers it (`sigma`, half-normal with the sd of t), a number fixes it.
    a, b : float
        Shape and rate of the Gamma hyperprior; `b=None` is 2 var(t)/d, which follows the units of
        t: eta has a prior sd near 1.4 sd(t) for inputs of unit scale, and for any other basis (d
        is then the sum of its mean squares).
    basis, bias, alpha
        As in `ard_classification`.
    """
    weights = Weights(bias, alpha, a, b)
    design_of = partial(_design, basis=basis)
    return regression_graph("ard_regression", X, t, design_of, noise, weights)


def _design(inputs: Inputs, basis: Basis) -> Design:
    design = expand(inputs, basis)
    if basis is None:
        warn_about_columns(inputs)
    return design


# --- the graphs, for every basis and every prior of the weights ------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The arguments of a builder about its weights; `prior` is a name in PRIORS."""

    bias: bool
    alpha: Any
    a: float
    b: float | None
    prior: str = "ard"


def two_class_graph(
    builder: str,
    X: Any,
    t: Any,
    design_of: Callable[[Inputs], Design],
    link: str,
    weights: Weights,
) -> Any:
    """Build the graph of two classes: t ~ Bernoulli(link(eta))."""
    inputs = as_inputs(X)
    codes, classes = as_binary(t, len(inputs))
    distribution = LINKS[one_of(link, LINKS, "link")]
    design = design_of(inputs)

    def build(prior: WeightPrior) -> Any:
        with pm.Model(coords=design.coords) as model:
            observe(distribution, codes, predictor(design, prior, weights.bias))
        return model

    card = card_for(builder, "binary", inputs, design, classes)
    return with_precisions(build, card, design, weights)


def regression_graph(
    builder: str,
    X: Any,
    t: Any,
    design_of: Callable[[Inputs], Design],
    noise: float | None,
    weights: Weights,
) -> Any:
    """Build the graph of a real target: t ~ N(eta, sigma²)."""
    inputs = as_inputs(X)
    target = as_target(t, len(inputs))
    design = design_of(inputs)
    sigma_fixed = None if noise is None else positive(noise, "noise")
    spread = np.array(target_scale(target))

    def build(prior: WeightPrior) -> Any:
        with pm.Model(coords=design.coords) as model:
            eta = predictor(design, prior, weights.bias)
            known = sigma_fixed is not None
            sigma = pm.Data("sigma", sigma_fixed) if known else pm.HalfNormal("sigma", spread)
            observe(pm.Normal, target, eta, sigma)
        return model

    card = card_for(builder, "regression", inputs, design, None)
    rate = 2 * float(spread) ** 2 / basis_size(design)
    return with_precisions(build, card, design, weights, default_rate=rate)


def predictor(design: Design, prior: WeightPrior, bias: bool, by: tuple[str, ...] = ()) -> Any:
    """Put eta into the graph; `by` is the dim of its columns, if there are several."""
    data = pm.Data(design.data, design.values, dims=("row", design.columns))
    scales = () if design.scale is None else (scale_in_graph(design.scale),)
    intercept = prior("bias", dims=by or None) if bias else 0
    w = prior("w", dims=(*by, design.weights))
    eta = intercept + design.basis_functions(data, *scales) @ (w.T if by else w)
    return pm.Deterministic("eta", eta, dims=("row", *by))


def scale_in_graph(scale: Scale) -> Any:
    if scale.value is not None:
        return pm.Data(scale.name, scale.value, dims=scale.dims)
    # The mean of the log-normal, where searches start, is the typical value.
    mu = np.log(scale.typical) - scale.spread**2 / 2
    return pm.LogNormal(scale.name, mu, *doubles(scale.spread), dims=scale.dims)


# --- the priors of a weight -------------------------------------------------------------------


def gamma_precisions(
    shape: float, rate: float, *, shared: bool = False, alpha_name: str | None = None
) -> WeightPrior:
    """Return w ~ N(0, 1/alpha) with alpha ~ Gamma(shape, rate), for each weight or one for all."""
    a, b = doubles(shape, rate)

    def prior(name: str, dims: Any = None) -> Any:
        alpha = pm.Gamma(alpha_name or precision_name(name), a, b, dims=None if shared else dims)
        return pm.Normal(name, 0, sigma=alpha**-0.5, dims=dims)

    return prior


def integrated_precisions(shape: float, rate: float) -> WeightPrior:
    """Return the same w with alpha integrated out: Student-t, 2a degrees of freedom, sqrt(b/a)."""
    nu, scale = doubles(2 * shape, np.sqrt(rate / shape))

    def prior(name: str, dims: Any = None) -> Any:
        return pm.StudentT(name, nu=nu, mu=0, sigma=scale, dims=dims)

    return prior


type _OfBlocks = dict[str, Callable[[float, float], WeightPrior]]

_GAMMA: _OfBlocks = {"bias": gamma_precisions, "w": gamma_precisions}
_SHARED: _OfBlocks = {"w": partial(gamma_precisions, shared=True)}
_STUDENT: _OfBlocks = {"bias": integrated_precisions, "w": integrated_precisions}

# name → the prior of each block as written, and with what can be integrated out integrated out
PRIORS: dict[str, tuple[_OfBlocks, _OfBlocks]] = {
    "ard": (_GAMMA, _STUDENT),
    "student": (_STUDENT, _STUDENT),
    "shared": (_GAMMA | _SHARED, _STUDENT | _SHARED),
}


def fixed_precisions(precisions: dict[str, Array]) -> WeightPrior:
    """Return w ~ N(0, 1/alpha) with alpha as data; an infinite alpha leaves an exact 0."""

    def prior(name: str, dims: Any = None) -> Any:
        value = np.asarray(precisions[name])
        alpha = pm.Data(precision_name(name), value, dims=dims)
        active = np.flatnonzero(np.isfinite(value))
        if active.size == value.size:
            return pm.Normal(name, 0, sigma=alpha**-0.5, dims=dims)
        if active.size == 0:
            return pm.Deterministic(name, pt.zeros(value.shape), dims=dims)
        model = pm.modelcontext(None)
        axes = [model.coords[dim] for dim in ((dims,) if isinstance(dims, str) else dims)]
        labels = [", ".join(map(str, label)) for label in product(*axes)]
        on = "active" if name == "w" else f"active_{name}"
        model.add_coord(on, [labels[j] for j in active])
        w_active = pm.Normal(f"{name}_active", 0, sigma=alpha.ravel()[active] ** -0.5, dims=on)
        place = np.full(value.size, active.size)  # each weight's in (w_active, 0)
        place[active] = np.arange(active.size)
        all_weights = pm.math.concatenate([w_active, [0.0]])[place.reshape(value.shape)]
        return pm.Deterministic(name, all_weights, dims=dims)

    return prior


def precision_name(weights: str) -> str:
    """Name the precisions of a block: `alpha` for `w`, `alpha_bias` for `bias`."""
    return "alpha" if weights == "w" else f"alpha_{weights}"


def doubles(*values: float) -> tuple[Array, ...]:
    # PyTensor keeps a Python 2.0 in single precision, and then its gammaln and log too.
    return tuple(np.array(value, dtype=np.float64) for value in values)


# --- what both graphs have around them --------------------------------------------------------


def card_for(builder: str, task: str, inputs: Inputs, design: Design, classes: Any) -> Card:
    return Card(builder, task, inputs.feature_names, classes, inputs.scaling, design.new_data)


def with_precisions(
    build: Callable[[WeightPrior], Any],
    card: Card,
    design: Design,
    weights: Weights,
    split: Callable[[Any, Design, bool], dict[str, Array]] | None = None,
    default_rate: float | None = None,
) -> Any:
    """Check the precisions, build the graph with the prior they ask for, remember its card.

    `split` gives the precisions of each block from what was asked; `default_rate` is b=None.
    """
    as_flag(weights.bias, "bias")
    shape = positive(weights.a, "a")
    default = 2 / len(design.names) if default_rate is None else default_rate
    rate = default if weights.b is None else positive(weights.b, "b")
    kind = one_of(weights.prior, PRIORS, "prior")
    if weights.alpha is not None:
        if kind != "ard":
            raise InputError(
                f"alpha fixes the precisions, prior={kind!r} says how they are inferred: give one "
                f"of the two. alpha=1.0 gives every weight the same."
            )
        model = build(fixed_precisions((split or _split)(weights.alpha, design, weights.bias)))
        remember(model, card)
        return model
    written, other = PRIORS[kind]
    model = build(_by_block(written, shape, rate))
    pairs = tuple(
        Precision(block, precision_name(block), shape, rate)
        for block in (("bias", "w") if weights.bias else ("w",))
        if written[block] is not other[block]
    )
    forms: dict[str, Callable[[], Any]] = {}
    if pairs:
        forms["integrated"] = lambda: build(_by_block(other, shape, rate))
    elif kind == "student":
        unit = {"bias": np.array(1.0), "w": np.ones(len(design.names))}
        forms["gaussian"] = lambda: build(fixed_precisions(unit))
    remember(model, dataclasses.replace(card, precisions=pairs), **forms)
    return model


def _by_block(priors: _OfBlocks, shape: float, rate: float) -> WeightPrior:
    of_block = {block: make(shape, rate) for block, make in priors.items()}
    return lambda name, dims=None: of_block[name](name, dims)


def refuse_all_off(precisions: Array) -> None:
    if np.isinf(precisions).all():
        raise InputError(
            f"alpha is inf at each of its {precisions.size} places, which switches every weight "
            f"off: at least one finite precision is needed."
        )


def _split(alpha: Any, design: Design, bias: bool) -> dict[str, Array]:
    names = ("bias", *design.names) if bias else design.names
    precisions = as_precisions(alpha, names)
    refuse_all_off(precisions)
    if not bias:
        return {"w": precisions}
    return {"bias": precisions[0], "w": precisions[1:]}
