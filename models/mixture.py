"""The classifier of Sykacek (2000): classes are mixtures of shared kernels on a subset of inputs.

    P ~ Dirichlet(1),   w_k ~ Dirichlet(1)          probabilities of the classes, of their kernels
    I ~ subset prior                                the inputs that the kernels describe
    β_j ~ Gamma(g, h_j) above (resolution R_j)²,  τ_jd ~ Gamma(shape, β_j),  m_jd ~ N(ξ_j, 1/κ_j)

    p(t_n = k, x_n) = P_k Σ_d w_kd Π_{j in I} N(x_nj; m_jd, 1/τ_jd) · Π_{j not in I} p0_j(x_nj)

The D kernels are shared by the classes, their probabilities are not. Allocations of rows to kernels
are summed out, and so are the classes of unlabelled rows (label -1).

An input outside the subset has a density p0_j of its own that does not depend on the classes: a
mixture of as many kernels with the same priors, or one Gaussian. The paper has no such term, so
that its ratios compare densities of different data, and an input written in other units changes
its probability from 0 to 1. With one Gaussian every input that is not Gaussian is relevant, whether
it separates the classes or not; hence the mixture.

What relevance means here. The joint density finds an input relevant also when it only helps to
describe the other inputs: two inputs that depend on each other, but not on the class, are in.
`target="conditional"` has P(t | x, Θ, I) instead, in which only inputs that separate the classes count;
its coefficients have no Gibbs updates, and the background is gone, since it cancels.

    Syk00                                here
    P_k, w_kd, (1)                       class_probability, kernel_probability
    m_d, σ_d^-2, β                       kernel_mean, kernel_precision, kernel_rate
    α, g, h, κ, ξ                        shape, g, h, 1/R², mid-range; h=None is 10/R², R the range
    λ, I                                 expected_inputs, included

The paper has no resolution, and then no posterior where values repeat: a kernel on enough equal
values has an evidence without bound, as β goes to 0. The least β gives kernels a least width.

All defaults follow the range of an input, over unlabelled rows too: no unit enters. The coefficients
of an input that is not used have their prior, so that the graph is one space for all subsets.
"""  # noqa: E501

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import gammaincc

from ardvark.errors import InputError
from ardvark.models.card import Card, remember
from ardvark.models.checks import (
    as_classes,
    as_inputs,
    non_negative,
    one_of,
    positive,
    positive_integer,
)
from ardvark.models.inputs import Array, Inputs
from ardvark.models.subset import subset_variable

__all__ = ["BACKGROUNDS", "TARGETS", "MixtureCard", "MixturePrior", "rbf_mixture"]

BACKGROUNDS = ("mixture", "gaussian")
TARGETS = ("joint", "conditional")
KERNEL_PARTS = ("class", "kernel", "kernel_mean", "kernel_precision")  # in the order of the logp
MOST_KERNELS = 10**7  # over all classes and inputs: beyond it memory ends before the build
LOG_2_PI = np.array(np.log(2 * np.pi))  # an array: a Python float is kept in 32 bits


@dataclass(frozen=True, slots=True, eq=False)
class MixturePrior:
    """The numbers of the prior, by input where they differ."""

    n_classes: int
    n_kernels: int
    n_background: int  # kernels of the background
    shape: float
    g: float
    h: Array  # (feature,)
    centre: Array  # ξ, mid-range
    spread: Array  # R, range: κ = 1/R²
    resolution: float  # β is above (resolution R)²
    expected_inputs: float


@dataclass(frozen=True, slots=True, eq=False)
class MixtureCard(Card):
    """The card of a mixture: its prior as numbers, which its own sampler needs."""

    prior: MixturePrior | None = None
    target: str = "joint"
    included: tuple[int, ...] | None = None  # a given subset; None: it belongs to the posterior


def rbf_mixture(
    X: Any,
    t: Any,
    *,
    n_kernels: int = 6,
    background: str = "mixture",
    target: str = "joint",
    shape: float = 2.0,
    g: float = 0.2,
    h: Any = None,
    resolution: float = 0.1,
    expected_inputs: float = 1.0,
    included: Any = None,
) -> Any:
    """Build the graph of class-conditional mixtures of shared kernels on a subset of the inputs.

    Parameters
    ----------
    X : (N, d) table
        Array, DataFrame or `Inputs`; the names of its columns become coordinates.
    t : N labels of two or more classes
        NaN or None marks an unlabelled row: it still informs the density of the inputs.
    n_kernels : int
        Kernels, shared by the classes.
    background : "mixture" or "gaussian"
        Density of an input outside the subset.
    target : "joint" or "conditional"
        Density of labels and inputs, or of the labels given the inputs.
    shape, g, h : float
        Gamma(shape, β) for precisions, Gamma(g, h) for β; `h=None` is 10/R² by input.
    resolution : float
        Share of an input's range below which kernels do not distinguish values; 0: none.
    expected_inputs : float
        Rate of the Poisson prior over the size of the subset.
    included : list of names or indices, optional
        A given subset: the graph then has continuous variables only, for NUTS and SMC. It is a model
        of the labels and these inputs, p(t, x_I) or P(t | x_I); the other inputs are not in it. Under
        the joint target the evidences of two subsets compare once the background's log evidence of
        the inputs that each leaves out is added (`fit.log_background` of reversible jump).
    """  # noqa: E501
    inputs = as_inputs(X)
    label, classes = as_classes(t, len(inputs), unlabelled=True)
    numbers = {
        "shape": positive(shape, "shape"),
        "g": positive(g, "g"),
        "resolution": non_negative(resolution, "resolution"),
        "expected_inputs": positive(expected_inputs, "expected_inputs"),
    }
    prior = _prior(inputs, len(classes), n_kernels, background, h, numbers)
    if prior.resolution == 0:
        _refuse_repeated_values(inputs, prior)
    target = one_of(target, TARGETS, "target")
    if included is not None:
        return _given_subset(inputs, label, classes, prior, target, _chosen(included, inputs))
    coords = {
        "row": np.arange(len(inputs)),
        "feature": list(inputs.feature_names),
        "class": list(classes.tolist()),
        "kernel": np.arange(prior.n_kernels),
        "background_kernel": np.arange(prior.n_background),
    }
    with pm.Model(coords=coords) as model:
        data = pm.Data("X", np.asarray(inputs), dims=("row", "feature"))
        labels = pm.Data("label", label, dims="row")
        parts = _class_variables(prior) | _kernel_variables(prior, "kernel", "kernel")
        included = subset_variable(
            "included", inputs.shape[1], prior.expected_inputs, dims="feature"
        )
        if target == "joint":
            parts |= _kernel_variables(prior, "background", "background_kernel")
            parts["background"] = _background_probability(prior)
            _observe_joint(labels, parts, included, data)
        else:
            _observe_labels(labels, parts, included, data)
    remember(model, _card(inputs, classes, prior, target))
    return model


def _given_subset(
    inputs: Inputs,
    label: Any,
    classes: Any,
    prior: MixturePrior,
    target: str,
    chosen: tuple[int, ...],
) -> Any:
    """The graph of some inputs; the others stay in the data, so that new rows have all columns."""
    columns = np.array(chosen)
    own = replace(
        prior, h=prior.h[columns], centre=prior.centre[columns], spread=prior.spread[columns]
    )
    coords = {
        "row": np.arange(len(inputs)),
        "feature": list(inputs.feature_names),
        "used": [inputs.feature_names[j] for j in chosen],
        "class": list(classes.tolist()),
        "kernel": np.arange(prior.n_kernels),
    }
    with pm.Model(coords=coords) as model:
        data = pm.Data("X", np.asarray(inputs), dims=("row", "feature"))
        labels = pm.Data("label", label, dims="row")
        parts = _class_variables(own) | _kernel_variables(own, "kernel", "kernel", "used")
        if target == "joint":
            pm.CustomDist(
                "x",
                labels,
                *(parts[name] for name in KERNEL_PARTS),
                logp=_used_logp,
                dist=_used_draw,
                signature="(),(k),(k,d),(i,d),(i,d)->(i)",
                class_name="RBFMixture",
                observed=data[:, columns],
                dims=("row", "used"),
            )
        else:
            _observe_labels(labels, parts, np.ones(len(chosen), int), data[:, columns])
    more = ("nuts", "smc", "vb") if target == "joint" else ("nuts", "smc")
    card = _card(inputs, classes, prior, target)
    remember(model, replace(card, included=chosen, more_methods=more))
    return model


def _card(inputs: Inputs, classes: Any, prior: MixturePrior, target: str) -> MixtureCard:
    return MixtureCard(
        "rbf_mixture",
        "multiclass",
        inputs.feature_names,
        classes,
        inputs.scaling,
        _new_data,
        family="mixture",
        prior=prior,
        target=target,
    )


def _chosen(included: Any, inputs: Inputs) -> tuple[int, ...]:
    """Columns of a given subset, in the order of X."""
    names = list(inputs.feature_names)
    wanted = [included] if isinstance(included, (str, int)) else list(included)
    found = []
    for item in wanted:
        index = names.index(item) if isinstance(item, str) and item in names else item
        if isinstance(index, (bool, np.bool_)) or not isinstance(index, (int, np.integer)):
            raise InputError(f"included: {item!r} is no input; they are {', '.join(names[:9])}")
        if not 0 <= index < len(names):
            raise InputError(f"included: {item} is no index of {len(names)} inputs")
        found.append(int(index))
    if not found or len(set(found)) < len(found):
        raise InputError(f"included must name at least one input, and none twice, got {found}")
    return tuple(sorted(found))


def _new_data(X_new: Array) -> dict[str, Array]:
    return {"X": X_new, "label": np.full(len(X_new), -1)}


def _prior(
    inputs: Inputs,
    n_classes: int,
    n_kernels: int,
    background: str,
    h: Any,
    numbers: dict[str, float],
) -> MixturePrior:
    kernels = positive_integer(n_kernels, "n_kernels")
    if kernels * inputs.shape[1] * n_classes > MOST_KERNELS:
        raise InputError(
            f"n_kernels={kernels} in each of {n_classes} classes and {inputs.shape[1]} inputs are "
            f"too many: at most {MOST_KERNELS} altogether."
        )
    low, high = np.min(inputs, axis=0), np.max(inputs, axis=0)
    spread = high - low
    if not (spread > 0).all():
        name = inputs.feature_names[int(np.argmin(spread))]
        raise InputError(
            f"X has a constant column, {name!r}: its range is the scale of its kernels, and it can "
            f"carry no information. Remove it."
        )
    return MixturePrior(
        n_classes=n_classes,
        n_kernels=kernels,
        n_background=kernels if one_of(background, BACKGROUNDS, "background") == "mixture" else 1,
        h=10 / spread**2 if h is None else np.full(len(spread), positive(h, "h")),
        centre=(low + high) / 2,
        spread=spread,
        **numbers,
    )


def _refuse_repeated_values(inputs: Inputs, prior: MixturePrior) -> None:
    """Refuse a column with so many equal values that its evidence has no bound."""
    most = [np.unique(column, return_counts=True)[1].max() for column in np.asarray(inputs).T]
    worst = int(np.argmax(most))
    others = max(prior.n_kernels, prior.n_background) - 1
    if (most[worst] - 1) / 2 >= prior.g + prior.shape * others:
        raise InputError(
            f"X has the same value {most[worst]} times in {inputs.feature_names[worst]!r}: with "
            f"resolution=0 a kernel on it has an evidence without bound. Give a resolution > 0."
        )


# --- the variables ----------------------------------------------------------------------------


def _class_variables(prior: MixturePrior) -> dict[str, Any]:
    ones = np.ones((prior.n_classes, prior.n_kernels))
    return {
        "class": pm.Dirichlet("class_probability", ones[:, 0], dims="class"),
        "kernel": pm.Dirichlet("kernel_probability", ones, dims=("class", "kernel")),
    }


def _kernel_variables(
    prior: MixturePrior, name: str, dim: str, inputs: str = "feature"
) -> dict[str, Any]:
    a = np.array(prior.shape)
    dims = (inputs, dim)
    rate = _rate(f"{name}_rate", prior, inputs)
    return {
        f"{name}_precision": pm.Gamma(f"{name}_precision", a, rate[:, None], dims=dims),
        f"{name}_mean": pm.Normal(
            f"{name}_mean", prior.centre[:, None], sigma=prior.spread[:, None], dims=dims
        ),
    }


def _rate(name: str, prior: MixturePrior, inputs: str) -> Any:
    """β above its least value; the loop of pm.Truncated takes minutes to compile."""
    if prior.resolution == 0:
        return pm.Gamma(name, np.array(prior.g), prior.h, dims=inputs)
    floor = (prior.resolution * prior.spread) ** 2
    mass = gammaincc(prior.g, prior.h * floor)

    def logp(value: Any, g: Any, h: Any) -> Any:
        density = g * pt.log(h) - pt.gammaln(g) + (g - 1) * pt.log(value) - h * value
        return pt.switch(value > floor, density - np.log(mass), -np.inf)

    def dist(g: Any, h: Any, size: Any) -> Any:
        return pt.gammainccinv(g, pm.Uniform.dist(np.zeros_like(mass), mass)) / h

    return pm.CustomDist(
        name,
        np.array(prior.g),
        prior.h,
        logp=logp,
        dist=dist,
        support_point=lambda rv, size, g, h: pt.constant(floor + prior.g / prior.h),
        transform=pm.distributions.transforms.Interval(
            bounds_fn=lambda *_: (pt.constant(floor), None)
        ),
        class_name="GammaAbove",
        dims=inputs,
    )


def _background_probability(prior: MixturePrior) -> Any:
    ones = np.ones((len(prior.centre), prior.n_background))
    dims = ("feature", "background_kernel")
    if prior.n_background == 1:
        return pm.Data("background_probability", ones, dims=dims)
    return pm.Dirichlet("background_probability", ones, dims=dims)


# --- what is observed -------------------------------------------------------------------------


def _observe_joint(labels: Any, parts: dict[str, Any], included: Any, data: Any) -> None:
    order = (*KERNEL_PARTS, "background", "background_mean", "background_precision")
    pm.CustomDist(
        "x",
        labels,
        *(parts[name] for name in order),
        included,
        logp=_joint_logp,
        dist=_joint_draw,
        signature="(),(k),(k,d),(i,d),(i,d),(i,b),(i,b),(i,b),(i)->(i)",
        class_name="RBFMixture",
        observed=data,
        dims=("row", "feature"),
    )


def _joint_logp(
    x: Any, label: Any, P: Any, w: Any, mean: Any, tau: Any, v: Any, mean0: Any, tau0: Any, on: Any
) -> Any:
    row = _row_logp(label, _log_classes(x, P, w, mean, tau, on))
    background = _logsumexp(pt.log(v) + _log_normal(x, mean0, tau0))
    return row + (background * (1 - on)).sum(axis=-1)


def _used_logp(x: Any, label: Any, P: Any, w: Any, mean: Any, tau: Any) -> Any:
    return _row_logp(label, _log_classes(x, P, w, mean, tau, None))


def _row_logp(label: Any, joint: Any) -> Any:
    """Log density of each row: of its class and inputs, or of its inputs if it is unlabelled."""
    return pt.switch(label < 0, _logsumexp(joint), _of_own_class(label, joint))  # Syk00 (2)


def _of_own_class(label: Any, joint: Any) -> Any:
    return pt.take_along_axis(joint, pt.maximum(label, 0)[:, None], axis=1)[:, 0]


def _used_draw(label: Any, P: Any, w: Any, mean: Any, tau: Any, size: Any) -> Any:
    k = pt.switch(label < 0, pm.Categorical.dist(p=P, shape=label.shape), label)
    d = pm.Categorical.dist(p=w[k])
    return pm.Normal.dist(mean.T[d], tau.T[d] ** -0.5)


def _joint_draw(
    label: Any, P: Any, w: Any, mean: Any, tau: Any, v: Any, mean0: Any, tau0: Any, on: Any,
    size: Any,
) -> Any:  # fmt: skip
    inside = _used_draw(label, P, w, mean, tau, size)
    z = pm.Categorical.dist(p=v, shape=inside.shape)
    column = pt.arange(mean0.shape[0])
    outside = pm.Normal.dist(mean0[column, z], tau0[column, z] ** -0.5)
    return pt.switch(on, inside, outside)


def _observe_labels(labels: Any, parts: dict[str, Any], included: Any, data: Any) -> None:
    pm.CustomDist(
        "t",
        data,
        *(parts[name] for name in KERNEL_PARTS),
        included,
        logp=_label_logp,
        dist=_label_draw,
        signature="(i),(k),(k,d),(i,d),(i,d),(i)->()",
        class_name="RBFMixtureClass",
        observed=labels,
        dims="row",
    )


def _label_logp(label: Any, x: Any, P: Any, w: Any, mean: Any, tau: Any, on: Any) -> Any:
    joint = _log_classes(x, P, w, mean, tau, on)
    return pt.switch(label < 0, 0, _of_own_class(label, joint) - _logsumexp(joint))


def _label_draw(x: Any, P: Any, w: Any, mean: Any, tau: Any, on: Any, size: Any) -> Any:
    joint = _log_classes(x, P, w, mean, tau, on)
    return pm.Categorical.dist(p=pt.exp(joint - _logsumexp(joint)[:, None]))


def _log_classes(x: Any, P: Any, w: Any, mean: Any, tau: Any, on: Any) -> Any:
    """Return log P_k Σ_d w_kd N(x_nI; m_d, 1/τ_d), (row, class)."""
    inputs = _log_normal(x, mean, tau)
    kernels = (inputs if on is None else inputs * on[:, None]).sum(axis=-2)  # (row, kernel)
    return pt.log(P) + _logsumexp(pt.log(w) + kernels[:, None, :])  # Syk00 (1)


def _log_normal(x: Any, mean: Any, tau: Any) -> Any:
    return (pt.log(tau) - LOG_2_PI - tau * (x[..., None] - mean) ** 2) / 2


def _logsumexp(values: Any) -> Any:
    # Written out: PyTensor's is safe only once a rewrite has seen it.
    top = values.max(axis=-1)
    return top + pt.log(pt.exp(values - top[..., None]).sum(axis=-1))
