"""What every graph of the zoo must do: plain checks, run on each variant of each registry line.

A check takes the `Case` (a variant of a registered model) and asserts. Models join by their line in
`ardvark.models.registry`; HAND_LOGP adds, by hand, what a graph's logp must be.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from arviz_stats import summary
from model_variants import builder, samples
from scipy import stats
from scipy.spatial.distance import cityblock, euclidean
from scipy.special import comb, log_expit, log_ndtr

from ardvark.inference.predict import predict
from ardvark.models.card import Card, card_of
from ardvark.models.covariances import ARDGaussian
from ardvark.models.inputs import Inputs
from ardvark.models.kernels import RBF, Laplacian, Linear, Polynomial, Spline, ThinPlate
from ardvark.models.registry import MODELS

CHEAP = {"mode": "FAST_COMPILE"}
N_NEW = 5
N_DRAWS = 60
IMPOSSIBLE_ROWS = ("trigonometric_svm",)  # a prior draw may give an observed row probability 0


@dataclass(frozen=True)
class Case:
    """One variant of a registered model."""

    name: str
    variant: str
    arguments: dict[str, Any]

    def build(self, **changes: Any) -> Any:
        return builder(self.name)(**(self.arguments | changes))

    def card(self, model: Any) -> Card:
        card = card_of(model)
        assert card is not None
        return card

    @cached_property
    def prior(self) -> Any:
        """Prior draws: compiled once for all checks."""
        return prior_tree(self.build())

    @cached_property
    def logp(self) -> Callable[[dict[str, Any]], float]:
        """The joint log density of the graph, compiled once too."""
        return logp_of(self.build())


@pytest.fixture(autouse=True)
def cheap_compilation() -> Iterator[None]:
    """For every test of a file that imports it."""
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        yield


def names(variables: Any) -> list[str]:
    return [variable.name for variable in variables]


def cases() -> Iterator[Case]:
    for name in MODELS:
        for variant, arguments in samples(name):
            yield Case(name, variant, arguments)


def prior_tree(model: Any) -> Any:
    with pytensor.config.change_flags(cxx=""), model:
        return pm.sample_prior_predictive(N_DRAWS, random_seed=3, compile_kwargs=CHEAP)


def as_posterior(prior: Any) -> Any:
    """The prior draws as a posterior; without constant_data PyMC would think that alpha changed."""
    groups = {"posterior": prior.prior.dataset, "constant_data": prior.constant_data.dataset}
    return xr.DataTree.from_dict(groups)


# --- the checks ------------------------------------------------------------------------------


def prior_predictive_is_finite_and_has_the_observed_shape(case: Case) -> None:
    model, tree = case.build(), case.prior
    for variable in (*model.free_RVs, *model.deterministics):
        assert np.isfinite(tree.prior[variable.name]).all(), variable.name
    for variable in model.observed_RVs:
        drawn = tree.prior_predictive[variable.name]
        assert np.isfinite(drawn).all()
        assert drawn.shape[2:] == tree.observed_data[variable.name].shape
        assert drawn.dims[2:] == model.named_vars_to_dims[variable.name]
        assert drawn.std() > 0


def graphviz_shows_every_variable(case: Case) -> None:
    model = case.build()
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        source = pm.model_to_graphviz(model).source
    for variable in (*model.basic_RVs, *model.deterministics, *model.data_vars):
        assert variable.name in source


def posterior_predictive_works_on_new_rows(case: Case) -> None:
    model = case.build()
    card = case.card(model)
    posterior = as_posterior(case.prior)
    X_new = np.random.default_rng(4).normal(size=(N_NEW, len(card.feature_names)))
    if card.family == "process":  # f belongs to its rows: PyMC refuses to carry it to others
        table = predict(model, posterior, X_new)
        assert table.dims == ("row", "class") and table.shape == (N_NEW, 2)
        np.testing.assert_allclose(table.sum("class"), 1.0)
        return
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"), model:
        pm.set_data(new_rows(model, card.new_data(X_new)), coords={"row": np.arange(N_NEW)})
        drawn = pm.sample_posterior_predictive(
            posterior, random_seed=5, progressbar=False, compile_kwargs=CHEAP
        )
    for variable in model.observed_RVs:
        values = drawn.posterior_predictive[variable.name]
        assert values.shape[:3] == (1, N_DRAWS, N_NEW)
        assert np.isfinite(values).all()


def new_rows(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The new inputs, and zeros for all other data that have rows (the observed)."""
    zeros = {
        data.name: np.zeros((N_NEW, *data.get_value().shape[1:]), dtype=data.dtype)
        for data in model.data_vars
        if model.named_vars_to_dims.get(data.name, ("",))[0] == "row"
    }
    return zeros | inputs


def log_likelihood_is_one_finite_number_per_row(case: Case) -> None:
    model = case.build()
    tree = as_posterior(case.prior)
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"), model:
        pm.compute_log_likelihood(tree, progressbar=False)
    for variable in model.observed_RVs:
        values = tree.log_likelihood[variable.name]
        assert values.dims[:3] == ("chain", "draw", "row")
        assert is_possible(case, values.to_numpy())


def is_possible(case: Case, log_probability: Any) -> bool:
    """Finite, or where a margin makes some rows impossible at least a number below infinity."""
    if case.name in IMPOSSIBLE_ROWS:
        return bool((log_probability < np.inf).all())  # NaN is not
    return bool(np.isfinite(log_probability).all())


def summary_has_a_line_for_each_number(case: Case) -> None:
    model, tree = case.build(), case.prior
    names = [variable.name for variable in model.free_RVs]
    table = summary(tree, group="prior", var_names=names, kind="stats")
    assert len(table) == sum(tree.prior[name][0, 0].size for name in names)
    assert np.isfinite(table.to_numpy(dtype=float)).all()


def hyperparameters_can_be_fixed_by_do(case: Case) -> None:
    model = case.build()
    free = {variable.name for variable in model.free_RVs}
    hyper = {pair.name for pair in case.card(model).precisions} | ({"sigma"} & free)
    hyper |= {name for name in free if name.startswith("kappa_")}
    point = case.prior.prior.isel(chain=0, draw=0)
    fixed = pm.do(model, {name: point[name].to_numpy() for name in hyper})
    assert {variable.name for variable in fixed.free_RVs} == free - hyper
    assert hyper <= {variable.name for variable in fixed.data_vars}
    log_p = logp(fixed, {n: point[n].to_numpy() for n in free - hyper})
    assert is_possible(case, np.array(log_p))


def feature_names_are_coordinates(case: Case) -> None:
    X = case.arguments["X"]
    names = tuple(f"input {j}" for j in range(X.shape[1]))
    model = case.build(X=Inputs(X, names))
    assert model.coords["feature"] == names == case.card(model).feature_names
    for variable in (*model.free_RVs, *model.deterministics):
        for dim in model.named_vars_to_dims.get(variable.name, ()):
            assert model.coords[dim] is not None


def no_term_but_the_named_ones(case: Case) -> None:
    """No Potential (prior predictive sampling ignores it), no initial value (it blocks pm.do)."""
    model = case.build()
    assert not model.potentials
    assert set(model.rvs_to_initial_values.values()) <= {None}


def second_form_has_the_same_marginal_prior(case: Case) -> None:
    model = case.build()
    card = case.card(model)
    if card.integrated is None:
        assert card.precisions == ()
        return
    second = card.integrated()
    gone = {pair.name for pair in card.precisions}
    names = [variable.name for variable in model.free_RVs]
    assert [v.name for v in second.free_RVs] == [name for name in names if name not in gone]
    point = {v.name: np.full(v.shape.eval(mode="FAST_COMPILE"), 0.7) for v in second.free_RVs}
    expected = logp(second, point)
    for pair in card.precisions:  # the factor p(alpha | w) turns the joint into the marginal
        w = point[pair.weights]
        alpha = np.full(w.shape, 1.3)
        conditional = stats.gamma(pair.shape + 0.5, scale=1 / (pair.rate + w**2 / 2))
        expected += conditional.logpdf(alpha).sum()
        point[pair.name] = alpha
    np.testing.assert_allclose(case.logp(point), expected, rtol=1e-12)


CHECKS: tuple[Callable[[Case], None], ...] = (
    prior_predictive_is_finite_and_has_the_observed_shape,
    graphviz_shows_every_variable,
    posterior_predictive_works_on_new_rows,
    log_likelihood_is_one_finite_number_per_row,
    summary_has_a_line_for_each_number,
    hyperparameters_can_be_fixed_by_do,
    feature_names_are_coordinates,
    no_term_but_the_named_ones,
    second_form_has_the_same_marginal_prior,
)


# --- logp by the graph and by hand -----------------------------------------------------------


def logp(model: Any, point: dict[str, Any]) -> float:
    return logp_of(model)(point)


def logp_of(model: Any) -> Callable[[dict[str, Any]], float]:
    """The graph's joint log density at natural values (no Jacobian)."""
    with pytensor.config.change_flags(cxx=""):
        return partial(logp_at, model, model.compile_logp(jacobian=False, **CHEAP))


def logp_at(model: Any, function: Any, point: dict[str, Any]) -> float:
    values = {}
    for variable in model.free_RVs:
        value = model.rvs_to_values[variable]
        natural = np.asarray(point[variable.name])
        transform = model.rvs_to_transforms[variable]
        if transform is not None and not value.name.endswith("log__"):
            forward = transform.forward(natural, *variable.owner.inputs)
            natural = forward.eval(mode="FAST_COMPILE")
        values[value.name] = np.log(natural) if value.name.endswith("log__") else natural
    return float(function(values))


def ard_logp(task: str, point: dict[str, Any], *, X: Any, t: Any, **settings: Any) -> float:
    """log p(alpha) + log p(w | alpha) + log p(t | eta), loops and scipy only."""
    Phi = basis_by_hand(settings.get("basis"), X)
    size = X.shape[1] if settings.get("basis") is None else np.sum(Phi**2) / len(X)
    return linear_logp(task, point, Phi, t, size, **settings)


def rvm_logp(task: str, point: dict[str, Any], *, X: Any, t: Any, **settings: Any) -> float:
    """The same on a kernel of the training rows, whose open scale has a log-normal prior."""
    kernel = settings.get("kernel", RBF(width=None))
    total, scale = 0.0, getattr(kernel, "width", None)
    typical = None
    if "width" in point:
        distance = cityblock if isinstance(kernel, Laplacian) else euclidean
        typical = np.median([distance(x, c) for i, x in enumerate(X) for c in X[:i]])
        scale = float(point["width"])
        total += stats.lognorm.logpdf(scale, 1, scale=typical * np.exp(-1 / 2))
    if "input_scale" in point:
        scale = point["input_scale"]
        typical = 1 / (4 * X.shape[1] * np.var(X, axis=0))
        total += stats.lognorm.logpdf(scale, 2, scale=typical * np.exp(-2)).sum()
    if isinstance(scale, str):  # "median"
        scale = np.median([cityblock(x, c) for i, x in enumerate(X) for c in X[:i]])
    Phi = np.array([[kernel_by_hand(kernel, x, c, scale) for c in X] for x in X])
    if task == "multiclass":
        return total + softmax_logp(point, Phi, t, **settings)
    at = scale if typical is None else typical
    size = sum(kernel_by_hand(kernel, x, c, at) ** 2 for c in X for x in X) / len(X)
    return total + linear_logp(task, point, Phi, t, size, **({"link": "logit"} | settings))


def linear_logp(
    task: str, point: dict[str, Any], Phi: Any, t: Any, size: float, prior: str = "ard",
    **settings: Any,
) -> float:  # fmt: skip
    default = 2 * np.var(t) / size if task == "regression" else 2 / Phi.shape[1]
    a, b = settings.get("a", 2.0), settings.get("b") or default
    fixed = settings.get("alpha")
    bias = settings.get("bias", True)
    weights, total = [0.0] * (Phi.shape[1] + 1), 0.0
    w_given = list(np.atleast_1d(point["w_active"] if "w_active" in point else point["w"]))
    for j in range(0 if bias else 1, Phi.shape[1] + 1):
        if prior == "student":
            weights[j] = w_given.pop(0) if j else float(point["bias"])
            total += stats.t.logpdf(weights[j], 2 * a, scale=(b / a) ** 0.5)
            continue
        block = "alpha" if j else "alpha_bias"
        one_for_all = prior == "shared" and j > 0
        place = 0 if one_for_all else max(j - 1, 0)
        alpha = np.ravel(point[block])[place] if fixed is None else fixed[j]
        if np.isinf(alpha):
            continue
        weights[j] = w_given.pop(0) if j else float(point["bias"])
        total += stats.norm.logpdf(weights[j], 0, alpha**-0.5)
        new = fixed is None and not (one_for_all and j > 1)
        total += stats.gamma.logpdf(alpha, a, scale=1 / b) if new else 0.0
    eta = [weights[0] + sum(p * w for p, w in zip(row, weights[1:], strict=True)) for row in Phi]
    return float(total + observed_logp(task, point, t, eta, settings))


def observed_logp(task: str, point: dict[str, Any], t: Any, eta: Any, settings: Any) -> float:
    """log p(t | eta), with the prior of the noise where it is inferred."""
    if task == "regression":
        sigma = settings.get("noise") or float(point["sigma"])
        inferred = settings.get("noise") is None
        prior = stats.halfnorm.logpdf(sigma, scale=np.std(t)) if inferred else 0.0
        return float(prior + stats.norm.logpdf(t, eta, sigma).sum())
    log_link = {"probit": log_ndtr, "logit": log_expit}[settings.get("link", "probit")]
    return float(log_link((2 * np.asarray(t) - 1) * eta).sum())


def softmax_logp(
    point: dict[str, Any], Phi: Any, t: Any, prior: str = "ard", **settings: Any
) -> float:
    """log p(alpha) + log p(w | alpha) + log p(t | eta) over classes, weights and rows, in loops."""
    a, b = settings.get("a", 2.0), settings.get("b") or 2 / Phi.shape[1]
    classes, bias = len(set(t)), settings.get("bias", True)
    fixed = settings.get("alpha")
    given = {name: list(np.ravel(point[name])) for name in point}
    total, eta = 0.0, np.zeros((len(t), classes))
    for k in range(classes):
        for j in range(0 if bias else 1, Phi.shape[1] + 1):
            block, alpha = ("w", "alpha") if j else ("bias", "alpha_bias")
            draws = given.get(f"{block}_active", given.get(block))
            if fixed is not None:
                precision = np.broadcast_to(fixed, (classes, Phi.shape[1] + 1))[k, j]
                if np.isinf(precision):
                    continue
            elif prior != "student":
                one_for_all = prior == "shared" and j > 0
                precision = given[alpha][0] if one_for_all else given[alpha].pop(0)
                first = not one_for_all or (k, j) == (0, 1)
                total += stats.gamma.logpdf(precision, a, scale=1 / b) if first else 0.0
            weight = draws.pop(0)
            eta[:, k] += weight * (Phi[:, j - 1] if j else 1.0)
            if prior == "student":
                total += stats.t.logpdf(weight, 2 * a, scale=(b / a) ** 0.5)
            else:
                total += stats.norm.logpdf(weight, 0, precision**-0.5)
    for n, label in enumerate(t):
        total += eta[n, label] - np.log(np.exp(eta[n]).sum())
    return float(total)


def basis_by_hand(basis: Any, X: Any) -> Any:
    if basis is None:
        return X
    if isinstance(basis, RBF):
        return np.array([[np.exp(-sum((x - c) ** 2) / 2 / basis.width**2) for c in X] for x in X])
    if isinstance(basis, Polynomial):
        return np.array([[(sum(x * c) + basis.offset) ** basis.degree for c in X] for x in X])
    return basis(X)


def kernel_by_hand(kernel: Any, x: Any, c: Any, scale: Any) -> float:
    """One value, of one row and one centre."""
    if isinstance(kernel, RBF):
        rate = scale if kernel.per_input else 1 / (2 * scale**2)
        return float(np.exp(-np.sum(rate * (x - c) ** 2)))
    if isinstance(kernel, Laplacian):
        return float(np.exp(-cityblock(x, c) / scale))
    if isinstance(kernel, ThinPlate):
        r = euclidean(x, c) / scale
        return r**2 * np.log(r) if r > 0 else 0.0
    if isinstance(kernel, Linear):
        return float(x @ c)
    if isinstance(kernel, Spline):
        product = 1.0
        for u, v in zip(x, c, strict=True):
            m = min(u, v)
            product *= 1 + u * v + u * v * m - (u + v) / 2 * m**2 + m**3 / 3
        return product
    return float(kernel(x[None, :], c[None, :])[0, 0])


def svm_logp(task: str, point: dict[str, Any], *, X: Any, t: Any, kernel: Any = None) -> float:
    """log p(kappa) + log N(f; 0, K) + log p(t | f), loops and scipy only."""
    kernel = kernel or ARDGaussian()
    total, kappa, d = 0.0, {}, X.shape[1]
    for name in kernel.NAMES:
        fixed = getattr(kernel, name)
        kappa[name] = np.broadcast_to(
            point[name] if fixed is None else fixed, d if name == "kappa_a" else ()
        )
        if fixed is None and name == "kappa_a":
            medians = np.exp(-2.0) / (d * np.var(X, axis=0))  # mean 1/(d var), sd 2 in the log
            total += stats.lognorm.logpdf(kappa[name], 2, scale=medians).sum()
        elif fixed is None:
            total += stats.lognorm.logpdf(kappa[name], 1.5)
    a, b = kappa["kappa_a"], kappa["kappa_b"]
    K = [[(x * a) @ z + b for z in X] for x in X]
    if isinstance(kernel, ARDGaussian):
        K = [[kappa["kappa_0"] * np.exp(-0.5 * a @ (x - z) ** 2) + b for z in X] for x in X]
    K = np.array(K) + kernel.jitter * np.eye(len(X))
    total += stats.multivariate_normal(np.zeros(len(X)), K, allow_singular=True).logpdf(point["f"])
    margin = (2 * np.asarray(t) - 1) * point["f"]
    for z in margin:
        p = 0.0 if z <= -1 else 1.0 if z >= 1 else np.cos(np.pi / 4 * (1 - z)) ** 2
        total += np.log(p) if p > 0 else -np.inf
    return float(total)


def subset_logp(task: str, point: dict[str, Any], *, X: Any, t: Any, **settings: Any) -> float:
    """log p(I) + log p(alpha) + log p(bias) + log p(w | alpha) + log p(t | I, w)."""
    d, rate, slab = X.shape[1], settings.get("expected_inputs", 1.0), settings.get("slab", 1.0)
    a, b = settings.get("a", 2.0), settings.get("b", np.var(t) if task == "regression" else 1.0)
    size = int(np.sum(point["included"]))
    total = stats.poisson.logpmf(size, rate) - stats.poisson.logcdf(d, rate) - np.log(comb(d, size))
    alpha = np.broadcast_to(1 / slab**2 if isinstance(slab, float) else point["alpha"], d)
    if isinstance(slab, str):
        total += stats.gamma.logpdf(np.ravel(point["alpha"]), a, scale=1 / b).sum()
    centre, spread = (np.mean(t), 5 * np.std(t)) if task == "regression" else (0.0, 5.0)
    total += stats.norm.logpdf(point["bias"], centre, spread)
    total += stats.norm.logpdf(point["w"], 0, alpha**-0.5).sum()
    eta = [
        point["bias"]
        + sum(w * x for x, w, on in zip(row, point["w"], point["included"], strict=True) if on)
        for row in X
    ]
    return float(total + observed_logp(task, point, t, eta, settings))


def sample_feature_logp(
    task: str, point: dict[str, Any], *, X: Any, t: Any, **settings: Any
) -> float:
    """Every term and every product by a loop over samples and features."""
    a, b, gamma = settings["a"], settings["b"], settings.get("gamma", 1.0)
    kernel = settings.get("kernel", lambda x, c, g: np.exp(-g * (x - c) ** 2))
    total = 0.0
    for name in ("w", "lam"):
        for weight, alpha in zip(point[name], point[f"alpha_{name}"], strict=True):
            total += stats.norm.logpdf(weight, 0, alpha**-0.5)
            total += stats.gamma.logpdf(alpha, a, scale=1 / b)
    eta = np.zeros(len(X))
    for n, x in enumerate(X):
        for i, w in enumerate(point["w"]):
            for j, lam in enumerate(point["lam"]):
                phi = kernel(x[j - 1], X[i - 1, j - 1], gamma) if i and j else 1.0
                eta[n] += w * lam * phi
    if task == "regression":
        beta = float(point["beta"])
        total += stats.gamma.logpdf(beta, a, scale=1 / b)
        return float(total + stats.norm.logpdf(t, eta, beta**-0.5).sum())
    return float(total + log_expit((2 * np.asarray(t) - 1) * eta).sum())


HAND_LOGP: dict[str, Callable[..., float]] = {
    "ard_classification": ard_logp,
    "ard_regression": ard_logp,
    "rvm_classification": rvm_logp,
    "rvm_regression": rvm_logp,
    "trigonometric_svm": svm_logp,
    "subset_classification": subset_logp,
    "subset_regression": subset_logp,
    "sample_feature_classification": sample_feature_logp,
    "sample_feature_regression": sample_feature_logp,
}
