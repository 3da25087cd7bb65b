"""`predict`: closed forms against draws and definitions; new rows are checked and scaled."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy.special import expit, ndtr

import ardvark as av
from ardvark.inference.beliefs import Average, in_blocks

RNG = np.random.default_rng(41)
X = RNG.normal(size=(50, 3)) * [1.0, 20.0, 0.1] + [0.0, 100.0, 5.0]
SCORE = (X[:, 0] + (X[:, 1] - 100) / 20) + 0.5 * RNG.normal(size=50)
LABEL = np.where(SCORE > 0, "yes", "no")
NEW = RNG.normal(size=(7, 3)) * [1.0, 20.0, 0.1] + [0.0, 100.0, 5.0]
NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module", params=["probit", "logit"])
def classifier(request):
    inputs = av.standardise(pd.DataFrame(X, columns=NAMES))
    model = av.models.ard_classification(inputs, LABEL, link=request.param, alpha=np.ones(4))
    return request.param, inputs, model, av.fit(model, "laplace", draws=4000, random_seed=1)


def moments(tree, rows):
    A = np.column_stack([np.ones(len(rows)), rows])
    fit = tree["fit"]
    return A @ fit.mean_vector.values, np.einsum("ni,ij,nj->n", A, fit.covariance_matrix.values, A)


def test_class_probabilities_are_the_integral_over_eta(classifier):
    link, inputs, model, tree = classifier
    p = av.predict(model, tree, NEW)
    assert p.dims == ("row", "class") and list(p["class"].values) == ["no", "yes"]
    mean, variance = moments(tree, inputs.scaling.apply(NEW))
    nodes, mass = np.polynomial.hermite_e.hermegauss(150)
    eta = mean + np.sqrt(variance) * nodes[:, None]
    expected = mass / mass.sum() @ (ndtr if link == "probit" else expit)(eta)
    np.testing.assert_allclose(p.sel({"class": "yes"}), expected, atol=1e-9)
    np.testing.assert_allclose(p.sum("class"), 1.0, atol=1e-12)


def test_draws_and_moments_agree(classifier):
    _, _, model, tree = classifier
    closed = av.predict(model, tree, NEW)
    sampled = tree.copy()
    del sampled["fit"]
    by_draws = av.predict(model, sampled, NEW)
    # 16000 draws are averaged; a probability has sd at most 1/2.
    assert np.abs(closed - by_draws).max() < 4 * 0.5 / np.sqrt(16000)
    assert np.abs(closed - by_draws).max() > 0  # two routes, not one


def test_every_draw_counts(classifier):
    """Every eighth of 16000 draws was taken: a probability was off by up to 0.004."""
    link, inputs, model, tree = classifier
    sampled = tree.copy()
    del sampled["fit"]
    draws = tree["posterior"].to_dataset().stack(sample=("chain", "draw"))
    eta = draws["bias"].values[:, None] + draws["w"].values.T @ inputs.scaling.apply(NEW).T
    expected = (ndtr if link == "probit" else expit)(eta).mean(axis=0)
    p = av.predict(model, sampled, NEW).sel({"class": "yes"})
    np.testing.assert_allclose(p, expected, rtol=1e-12)


def test_moments_over_blocks_are_those_of_all_draws():
    values = 1e6 + RNG.normal(size=(5003, 4))
    found = Average()
    for block in in_blocks({"values": values}):
        found.add(block["values"])
    np.testing.assert_allclose(found.mean, values.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(found.variance, values.var(axis=0), rtol=1e-8)


@pytest.mark.parametrize("build", [av.models.subset_regression, av.models.ard_regression])
def test_every_draw_counts_in_a_regression(build):
    target = SCORE + 3.0
    names = ["w", "bias", "sigma"]
    rng = np.random.default_rng(9)
    shape = (2, 2500)
    drawn = {
        "w": (("chain", "draw", "feature"), rng.normal(size=(*shape, 3))),
        "bias": (("chain", "draw"), rng.normal(size=shape)),
        "sigma": (("chain", "draw"), rng.gamma(3.0, size=shape)),
        "alpha": (("chain", "draw", "feature"), np.ones((*shape, 3))),
        "alpha_bias": (("chain", "draw"), np.ones(shape)),
        "included": (("chain", "draw", "feature"), np.ones((*shape, 3), int)),
    }
    tree = xr.DataTree(children={"posterior": xr.DataTree(xr.Dataset(drawn))})
    found = av.predict(build(av.standardise(X), target), tree, X[:5])
    w, bias, sigma = (drawn[name][1].reshape(5000, -1) for name in names)
    eta = bias + w @ np.asarray(av.standardise(X))[:5].T
    np.testing.assert_allclose(found.sel(statistic="mean"), eta.mean(axis=0), atol=1e-12)
    sd = np.sqrt(eta.var(axis=0) + np.mean(sigma**2))
    np.testing.assert_allclose(found.sel(statistic="sd"), sd, rtol=1e-10)


def test_a_table_with_names_is_held_against_the_coordinates_of_ones_own_graph():
    """Reordered columns of a DataFrame went into a user's `pm.Data` by their place."""
    with pm.Model(coords={"input": NAMES}) as model:
        inputs = pm.Data("inputs", X[:, :3], dims=("case", "input"))
        w = pm.Normal("w", 0, 1, dims="input")
        eta = pm.Deterministic("eta", inputs @ w)
        pm.Normal("t", eta, 1.0, observed=SCORE)
    tree = av.fit(model, "laplace", draws=10, random_seed=1)
    frame = pd.DataFrame(X, columns=NAMES)
    plain = av.predict(model, tree, X)
    xr.testing.assert_equal(av.predict(model, tree, frame), plain)
    xr.testing.assert_equal(av.predict(model, tree, {"inputs": frame}), plain)
    for rows in (frame[NAMES[::-1]], {"inputs": frame[NAMES[::-1]]}):
        with pytest.raises(av.errors.InputError, match="columns in another order"):
            av.predict(model, tree, rows)


def test_rows_already_scaled_are_not_scaled_again(classifier):
    _, inputs, model, tree = classifier
    raw = av.predict(model, tree, X[:5])
    scaled = av.predict(model, tree, inputs[:5])
    xr.testing.assert_allclose(raw, scaled)
    frame = av.predict(model, tree, pd.DataFrame(X[:5], columns=NAMES))
    xr.testing.assert_allclose(raw, frame)


def test_the_model_keeps_its_own_data(classifier):
    _, _, model, tree = classifier
    before = model["X"].get_value().copy()
    av.predict(model, tree, NEW)
    np.testing.assert_array_equal(model["X"].get_value(), before)
    assert len(model.coords["row"]) == 50
    with pytest.raises(av.errors.InputError):
        av.predict(model, tree, NEW[:, :2])
    np.testing.assert_array_equal(model["X"].get_value(), before)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (NEW[:, :2], "X_new has 2 columns, the model has 3"),
        (NEW[0], "X_new must have 2 dimensions"),
        (np.where(NEW > 100, np.nan, NEW), "X_new has NaN at row"),
        (pd.DataFrame(NEW, columns=["b", "a", "c"]), "another order"),
        (pd.DataFrame(NEW, columns=["a", "b", "z"]), "'z' is where the model has 'c'"),
        ([["x", "y", "z"]], "X_new has 'x'"),
    ],
)
def test_bad_rows_are_refused_by_name(classifier, rows, message):
    _, _, model, tree = classifier
    with pytest.raises(av.errors.InputError, match=message):
        av.predict(model, tree, rows)


def test_a_tree_of_another_model_is_refused(classifier):
    _, _, _, tree = classifier
    other = av.models.ard_classification(X[:, :2], LABEL, alpha=np.ones(3))
    with pytest.raises(av.errors.InputError, match="another model"):
        av.predict(other, tree, NEW[:, :2])


def test_regression_sd_includes_the_noise():
    inputs = av.standardise(X)
    t = SCORE.copy()
    model = av.models.ard_regression(inputs, t, alpha=np.full(4, 0.5), noise=0.4)
    tree = av.fit(model, "laplace", draws=4000, random_seed=1)
    p = av.predict(model, tree, NEW)
    assert p.dims == ("row", "statistic") and list(p.statistic.values) == ["mean", "sd"]
    mean, variance = moments(tree, inputs.scaling.apply(NEW))
    np.testing.assert_allclose(p.sel(statistic="mean"), mean, atol=1e-12)
    np.testing.assert_allclose(p.sel(statistic="sd"), np.sqrt(variance + 0.16), atol=1e-10)
    del tree["fit"]
    by_draws = av.predict(model, tree, NEW)
    error = np.abs(by_draws.sel(statistic="mean") - mean) / np.sqrt(variance / 2000)
    assert error.max() < 4
    np.testing.assert_allclose(by_draws.sel(statistic="sd"), p.sel(statistic="sd"), rtol=0.02)


def test_inferred_noise_is_each_draws_own():
    model = av.models.ard_regression(X[:, :1], SCORE)
    tree = av.fit(model, "laplace", draws=500, random_seed=1)
    sigma = tree["theta"].sigma.item()
    p = av.predict(model, tree, NEW[:, :1])
    assert (p.sel(statistic="sd") > sigma).all()


def test_kernel_basis_predicts_new_rows():
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(-6, 6, 40))[:, None]
    t = np.sinc(x[:, 0] / np.pi) + 0.05 * rng.normal(size=40)
    model = av.models.ard_regression(x, t, basis=av.RBF(width=1.5))
    tree = av.fit(model, "laplace", draws=200, random_seed=0)
    grid = np.linspace(-5, 5, 30)[:, None]
    p = av.predict(model, tree, grid)
    error = p.sel(statistic="mean") - np.sinc(grid[:, 0] / np.pi)
    assert np.sqrt((error**2).mean()) < 0.06  # about the noise; the function's own sd is 0.37
    assert tree["fit"].active.sum() < 20


def user_poisson(n=60):
    rng = np.random.default_rng(5)
    z = rng.normal(size=(n, 2))
    y = rng.poisson(np.exp(0.5 + z @ [0.8, -0.4]))
    with pm.Model(coords={"obs": np.arange(n)}) as model:
        data = pm.Data("z", z, dims=("obs", None))
        seen = pm.Data("y_seen", y, dims="obs")
        beta = pm.Normal("beta", 0, 1, shape=2)
        level = pm.Normal("level", 0, 2)
        lin = pm.Deterministic("lin", level + data @ beta, dims="obs")
        pm.Poisson("y", mu=pm.math.exp(lin), observed=seen, dims="obs")
    return model, z, y


@pytest.mark.filterwarnings("ignore:laplace. the approx:ardvark.errors.AccuracyWarning")
def test_a_users_own_likelihood_is_predicted_by_simulation(caplog):
    caplog.set_level("INFO", "pymc.sampling.forward")
    model, _, _ = user_poisson()
    tree = av.fit(model, av.Laplace(predictor="lin"), draws=1000, random_seed=0)
    new = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, -1.0]])
    p = av.predict(model, tree, new)
    A = np.column_stack([new, np.ones(3)])
    fit = tree["fit"].sel(
        rows=["beta[0]", "beta[1]", "level"], columns=["beta[0]", "beta[1]", "level"]
    )
    mean = A @ fit.mean_vector.values
    variance = np.einsum("ni,ij,nj->n", A, fit.covariance_matrix.values, A)
    expected = np.exp(mean + variance / 2)  # of a lognormal rate
    sd = np.sqrt(expected + expected**2 * np.expm1(variance))
    assert np.abs((p.sel(statistic="mean") - expected) / (sd / np.sqrt(4000))).max() < 4
    np.testing.assert_allclose(p.sel(statistic="sd"), sd, rtol=0.1)
    assert len(model.coords["obs"]) == 60 and model["y_seen"].get_value().shape == (60,)
    assert "Sampling: [y]" not in caplog.text


def test_constant_inputs_cannot_be_predicted_from():
    rng = np.random.default_rng(6)
    z = rng.normal(size=(20, 2))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        eta = pm.Deterministic("eta", z @ beta)
        pm.Normal("y", eta, 1.0, observed=rng.normal(size=20))
    tree = av.fit(model, "laplace", draws=10, random_seed=0)
    with pytest.raises(av.errors.InputError, match=r"inputs are constants, wrap them in pm\.Data"):
        av.predict(model, tree, z[:3])
