"""The two RVM builders: names, priors, scales in the graph, relevance vectors, refusals."""

import gc
import weakref

import numpy as np
import pymc as pm
import pytensor
import pytest
from contracts import as_posterior, cheap_compilation, logp, names, prior_tree  # noqa: F401
from scipy import stats
from scipy.spatial.distance import cdist

import ardvark as av
from ardvark.errors import InputError
from ardvark.inference.laplace import Laplace
from ardvark.models import ard_regression, rvm_classification, rvm_regression
from ardvark.models.card import Precision, card_of

rng = np.random.default_rng(41)
N = 14
X = rng.normal(size=(N, 2))
TARGET = 3 + np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=N)
LABELS = np.where(X[:, 0] + 0.5 * rng.normal(size=N) > 0, "yes", "no")
OPEN = {"width": av.RBF(width=None), "input_scale": av.RBF(width=None, per_input=True)}


def log_evidence(model, **settings):
    return float(av.fit(model, Laplace(**settings), draws=5, random_seed=0)["fit"]["log_evidence"])


# --- the graph -------------------------------------------------------------------------------


def test_the_graph_names_rows_and_keeps_the_width():
    model = rvm_regression(X, TARGET, kernel=av.RBF(width=0.7))
    assert type(model) is pm.Model
    assert names(model.free_RVs) == ["alpha_bias", "bias", "alpha", "w", "sigma"]
    assert names(model.data_vars) == ["X", "width", "t_observed"]
    assert model["width"].get_value() == 0.7
    assert model.named_vars_to_dims["w"] == model.named_vars_to_dims["alpha"] == ("basis",)
    assert model.coords["basis"] == tuple(f"row{n}" for n in range(N))
    assert model.coords["feature"] == ("x0", "x1")
    no_width = rvm_classification(X, LABELS, kernel=av.kernels.Spline())
    assert names(no_width.data_vars) == ["X", "t_observed"]


def test_the_default_width_is_inferred():
    for model in (rvm_regression(X, TARGET), rvm_classification(X, LABELS)):
        assert names(model.free_RVs)[0] == "width"
        assert model["width"].ndim == 0
        assert card_of(model).task in ("regression", "binary")
    model = rvm_regression(X, TARGET, kernel=OPEN["input_scale"])
    assert model.named_vars_to_dims["input_scale"] == ("feature",)


def test_the_card_has_the_pairs_that_can_be_integrated_out():
    model = rvm_classification(av.standardise(X), LABELS)
    card = card_of(model)
    assert (card.builder, card.classes.tolist()) == ("rvm_classification", ["no", "yes"])
    np.testing.assert_allclose(card.scaling.centre, X.mean(axis=0))
    assert card.precisions == (
        Precision("bias", "alpha_bias", 2.0, 2 / N),
        Precision("w", "alpha", 2.0, 2 / N),
    )
    assert names(card.integrated().free_RVs) == ["width", "bias", "w"]
    assert set(card.new_data(X[:2])) == {"X"}
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None  # the card holds no model, and nor does the kernel


@pytest.mark.parametrize(("name", "power"), [("width", 1), ("input_scale", -2)])
def test_priors_of_scales_have_the_unit_of_the_inputs(name, power):
    plain, large = (
        pm.draw(rvm_regression(unit * X, TARGET, kernel=OPEN[name])[name], 4000, random_seed=1)
        for unit in (1, 1000)
    )
    np.testing.assert_allclose(large, plain * 1000.0**power, rtol=1e-9)
    typical = OPEN[name].scale(X).typical
    spread = OPEN[name].scale(X).spread
    z = np.log(plain / typical) / spread + spread / 2  # the mean, not the median, is typical
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("name", OPEN)
def test_searches_start_at_the_typical_scale(name):
    latent = av.read_model(rvm_regression(X, TARGET, kernel=OPEN[name]))
    np.testing.assert_allclose(
        latent.initial_theta()[name], OPEN[name].scale(X).typical, rtol=1e-12
    )
    assert latent.weights == ("bias", "w")
    assert set(latent.ard_precisions) == {"alpha_bias", "alpha"}


# --- the three priors of the lecture ---------------------------------------------------------


def test_student_weights_are_the_marginal_of_the_ard_ones():
    student = rvm_regression(X, TARGET, kernel=av.RBF(1.0), prior="student")
    assert names(student.free_RVs) == ["bias", "w", "sigma"]
    assert (card_of(student).precisions, card_of(student).integrated) == ((), None)
    second = card_of(rvm_regression(X, TARGET, kernel=av.RBF(1.0))).integrated()
    point = {"bias": 0.4, "w": rng.normal(size=N), "sigma": 0.8}
    np.testing.assert_allclose(logp(student, point), logp(second, point), rtol=1e-12)


@pytest.mark.parametrize("kernel", [av.RBF(1.0), av.RBF(None)], ids=["given", "inferred"])
def test_student_weights_are_sites_over_a_gaussian(kernel):
    latent = av.read_model(rvm_regression(X, TARGET, kernel=kernel, prior="student"))
    assert [(part.kind, part.name) for part in latent.reading.rows] == [
        ("observed", "t"),
        ("prior", "bias"),
        ("prior", "w"),
    ]
    assert latent.weights == ("bias", "w") and latent.n_weights == N + 1


def test_one_precision_for_all_kernel_weights():
    model = rvm_regression(X, TARGET, kernel=av.RBF(1.0), prior="shared")
    assert names(model.free_RVs) == ["alpha_bias", "bias", "alpha", "w", "sigma"]
    assert model["alpha"].ndim == 0
    rate = 2 * TARGET.var() / np.square(av.RBF(1.0)(X, X)).sum(axis=1).mean()
    assert card_of(model).precisions == (Precision("bias", "alpha_bias", 2.0, pytest.approx(rate)),)
    assert names(card_of(model).integrated().free_RVs) == ["bias", "alpha", "w", "sigma"]
    alone = rvm_regression(X, TARGET, prior="shared", bias=False)
    assert card_of(alone).integrated is None
    tree = av.fit(model, Laplace(hyper=av.Evidence()), draws=5, random_seed=0)
    kept = tree["fit"]["active"].to_numpy()
    assert kept[1:].all()  # ridge regression is not sparse
    fixed = np.full(N, float(tree["theta"]["alpha"]))
    same = rvm_regression(
        X,
        TARGET,
        kernel=av.RBF(1.0),
        alpha=[float(tree["theta"]["alpha_bias"]), *fixed],
        noise=float(tree["theta"]["sigma"]),
    )
    assert log_evidence(same) == pytest.approx(float(tree["fit"]["log_evidence"]), rel=1e-9)


@pytest.mark.parametrize("kernel", [av.RBF(0.3), av.RBF(width=None), av.kernels.Spline(), np.inner])
def test_the_default_prior_has_the_sd_of_the_target_for_every_kernel(kernel):
    """E var(eta) = 2 var(t), whatever the kernel reaches and whatever its units."""
    model = rvm_regression(5 * X, 1000 * TARGET, kernel=kernel, bias=False)
    with pytensor.config.change_flags(cxx=""):
        drawn = pm.draw(model["eta"], 400, random_seed=1, mode="FAST_COMPILE")
    # half of a N(0, 2) lies within 0.95; tails are heavier, an open width is log-normal
    middle = np.quantile(np.abs(drawn), 0.5) / (1000 * TARGET.std())
    assert 0.3 < middle < 1.4


# --- the basis -------------------------------------------------------------------------------


def test_same_evidence_by_kernel_function_and_ard_basis():
    """One model, four ways to write it."""
    settings = {"alpha": np.linspace(0.5, 2, N + 1), "noise": 0.3}

    def bumps(rows, centres):
        return np.exp(-cdist(rows, centres, "sqeuclidean") / (2 * 0.9**2))

    models = [
        rvm_regression(X, TARGET, kernel=av.RBF(width=0.9), **settings),
        rvm_regression(X, TARGET, kernel=bumps, **settings),
        ard_regression(X, TARGET, basis=av.RBF(width=0.9), **settings),
    ]
    expected = log_evidence(models[0])
    for model in models[1:]:
        assert log_evidence(model) == pytest.approx(expected, rel=1e-10)
    free = rvm_regression(X, TARGET, **settings)
    found = log_evidence(free, hyper=av.Fixed({"width": 0.9}))
    assert found == pytest.approx(expected, rel=1e-10)


def test_widths_are_compared_on_one_graph():
    settings = {"alpha": np.ones(N + 1), "noise": 0.3}
    model = rvm_regression(X, TARGET, kernel=av.RBF(width="median"), **settings)
    trees = av.fit(model, "laplace", draws=5, random_seed=0, data=[{"width": 0.4}, {"width": 0.9}])
    for tree, width in zip(trees, (0.4, 0.9), strict=True):
        alone = rvm_regression(X, TARGET, kernel=av.RBF(width), **settings)
        assert float(tree["fit"]["log_evidence"]) == pytest.approx(log_evidence(alone), rel=1e-10)
        assert float(tree["constant_data"]["width"]) == width


@pytest.mark.parametrize(
    "kernel", [*OPEN.values(), av.kernels.Laplacian("median"), av.kernels.ThinPlate()]
)
def test_new_rows_use_the_posterior_draws_and_the_training_centres(kernel):
    model = rvm_regression(X, TARGET, kernel=kernel)
    draws, X_new = prior_tree(model), rng.normal(size=(4, 2))
    with model:
        pm.set_data(
            {**card_of(model).new_data(X_new), "t_observed": np.zeros(4)},
            coords={"row": range(4)},
        )
        predicted = pm.sample_posterior_predictive(
            as_posterior(draws),
            var_names=["eta"],
            random_seed=1,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        ).posterior_predictive
    design = draws.prior.isel(chain=0)
    name = kernel.scale(X).name
    for draw in (0, 31):
        one = design.isel(draw=draw)
        scale = one[name].to_numpy() if name in one else kernel.scale(X).value
        eta = kernel(X_new, X, scale) @ one["w"].to_numpy() + float(one["bias"])
        np.testing.assert_allclose(predicted["eta"].to_numpy()[0, draw], eta, rtol=1e-9)


# --- the evidence of the scales --------------------------------------------------------------


@pytest.mark.parametrize("task", ["regression", "binary"])
@pytest.mark.parametrize("name", OPEN)
def test_gradient_of_the_evidence_in_the_scales(name, task):
    """Central differences; for two classes the implicit move of the mode is in it too."""
    if task == "regression":
        model = rvm_regression(X, TARGET, kernel=OPEN[name])
    else:
        model = rvm_classification(X, LABELS, kernel=OPEN[name])
    latent, method = av.read_model(model), Laplace(tolerance=1e-12)
    theta = {**latent.initial_theta(), "alpha": np.linspace(0.5, 3.0, N)}
    site_model = latent.at(theta)
    fit = method.approximate(site_model)
    gradient = latent.pull(theta, method.evidence_gradient(site_model, fit))
    scale = np.atleast_1d(theta[name])
    for k, value in enumerate(scale):
        step = 1e-4 * value * np.eye(scale.size)[k]
        up, down = (
            method.approximate(
                latent.at({**theta, name: (scale + sign * step).reshape(theta[name].shape)})
            ).log_evidence
            for sign in (1, -1)
        )
        slope = (up - down) / (2e-4 * value)
        assert np.ravel(gradient[name])[k] == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_gradient_in_the_input_scales_is_the_closed_form():
    """D = [(t - Phi m) m' - Phi S]/sigma², d/d eta_k = -sum D Phi (x_nk - x_mk)² (no bias)."""
    model = rvm_regression(X, TARGET, kernel=OPEN["input_scale"], bias=False, noise=0.4)
    latent, method = av.read_model(model), Laplace()
    alpha, eta = np.linspace(0.5, 3.0, N), np.array([0.6, 0.2])
    theta = {"alpha": alpha, "input_scale": eta}
    site_model = latent.at(theta)
    gradient = latent.pull(
        theta, method.evidence_gradient(site_model, method.approximate(site_model))
    )["input_scale"]
    squares = (X[:, None, :] - X[None, :, :]) ** 2
    Phi = np.exp(-(squares @ eta))
    S = np.linalg.inv(np.diag(alpha) + Phi.T @ Phi / 0.4**2)
    m = S @ Phi.T @ TARGET / 0.4**2
    D = (np.outer(TARGET - Phi @ m, m) - Phi @ S) / 0.4**2
    expected = -np.einsum("nm,nm,nmk->k", D, Phi, squares)
    np.testing.assert_allclose(gradient, expected, rtol=1e-7)


# --- fits ------------------------------------------------------------------------------------


def test_sinc_keeps_few_rows_and_finds_the_curve():
    data = av.load("sinc")
    split = data.splits[0]
    model = rvm_regression(data.X[split.train], data.t[split.train], kernel=av.RBF(width=3.0))
    tree = av.fit(model, Laplace(hyper=av.Evidence()), draws=5, random_seed=0)
    table = av.relevance(tree)
    vectors = table.index[table["inclusion"] == 1]
    assert 4 <= len(vectors) <= 10  # published: 6.7 on average
    assert set(vectors) <= set(model.coords["basis"])
    predicted = av.predict(model, tree, data.X[split.test]).to_numpy()
    error = predicted[:, 0] - data.truth["signal"][split.test]
    assert np.sqrt(np.mean(error**2)) < 0.05  # 0.034 on average, half the noise at most


def test_scales_of_the_inputs_tell_which_input_matters():
    """The target is a function of x0 alone."""
    inputs = np.random.default_rng(5).uniform(-2, 2, size=(40, 2))
    target = np.sin(2 * inputs[:, 0])
    model = rvm_regression(inputs, target, kernel=OPEN["input_scale"], noise=0.1)
    tree = av.fit(model, Laplace(hyper=av.Evidence()), draws=5, random_seed=0)
    first, second = tree["theta"]["input_scale"].to_numpy()
    assert first > 30 * second
    assert tree["theta"]["input_scale"].coords["feature"].to_numpy().tolist() == ["x0", "x1"]


@pytest.mark.parametrize(
    "table",
    [X[:1], X[:2], np.repeat(X[:3], 3, axis=0), np.ones((4, 2)), 1e6 + 1e-3 * X],
    ids=["one row", "two rows", "duplicates", "one point", "far away"],
)
@pytest.mark.parametrize("name", OPEN)
def test_degenerate_tables_have_a_finite_density(table, name):
    model = rvm_regression(table, np.arange(len(table)), kernel=OPEN[name])
    with model:
        assert all(np.isfinite(value) for value in model.point_logps().values())


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": av.RBF}, "kernel must be a kernel object"),
        ({"kernel": "rbf"}, "Kernels: RBF, Laplacian"),
        ({"prior": "lasso"}, "prior must be one of 'ard', 'student', 'shared', got 'lasso'"),
        ({"prior": "student", "alpha": 1.0}, "alpha fixes the precisions, prior='student'"),
        ({"prior": "shared", "alpha": 1.0}, "alpha fixes the precisions, prior='shared'"),
        ({"alpha": [1.0, 2.0]}, f"{N + 1} weights"),
        ({"bias": 1}, "bias must be True or False"),
        ({"a": -1}, "a must be a finite number > 0"),
    ],
)
@pytest.mark.parametrize("build", [rvm_classification, rvm_regression])
def test_bad_settings_are_refused_by_name(build, settings, message):
    t = LABELS if build is rvm_classification else TARGET
    with pytest.raises(InputError, match=message):
        build(X, t, **settings)


def test_bad_targets_are_refused_by_name():
    with pytest.raises(InputError, match="t has one class only"):
        rvm_classification(X, np.zeros(N, int))
    with pytest.raises(InputError, match="noise must be a finite number > 0"):
        rvm_regression(X, TARGET, noise=-1)
