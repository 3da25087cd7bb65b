"""Sample-feature machines from graph to tree: VB, the RSFM, predictions, relevance, gamma."""

import warnings

import numpy as np
import pytest
import xarray as xr
from bilinear_task import bilinear
from contracts import logp

import ardvark as av
from ardvark.diagnostics.compare.psis import khat
from ardvark.inference.sample_feature.rsfm import rsfm
from ardvark.inference.sample_feature.run import invariants
from ardvark.inference.sample_feature.tree import basis_of, eta_of, target_of
from ardvark.models.sample_feature import gaussian

SEED = 64


def data(classes=False, rows=40, features=4):
    rng = np.random.default_rng(SEED)
    X = rng.uniform(-2, 2, (rows, features))
    f = 2 * np.sin(1.5 * X[:, 0]) + X[:, 1]
    t = f + 0.3 * rng.standard_normal(rows)
    return X, np.where(t > 0, "yes", "no") if classes else t


@pytest.fixture(scope="module")
def regression():
    X, t = data()
    model = av.models.sample_feature_regression(X, t)
    return model, av.fit(model, av.VB(), draws=500, random_seed=1)


@pytest.fixture(scope="module")
def classification():
    X, t = data(classes=True)
    model = av.models.sample_feature_classification(X, t)
    return model, av.fit(model, av.VB(), draws=500, random_seed=1)


def test_eta_of_arrays_is_the_graphs(regression):
    model, _ = regression
    rng = np.random.default_rng(1)
    w, lam = rng.standard_normal((2, 41)), rng.standard_normal((2, 5))
    eta = eta_of(basis_of(model), w, lam, np.arange(41), np.arange(5))
    graph = model["eta"].eval({model["w"]: w[0], model["lam"]: lam[0]}, mode="FAST_COMPILE")
    np.testing.assert_allclose(eta[0], graph, rtol=1e-12)
    # the ridge: (c w, lam / c) is the same function
    np.testing.assert_allclose(
        eta_of(basis_of(model), -3 * w, lam / -3, np.arange(41), np.arange(5)), eta, rtol=1e-12
    )


def test_tree_of_vb(regression):
    _, tree = regression
    posterior, fit = tree["posterior"], tree["fit"]
    assert set(posterior.data_vars) == {"w", "lam", "alpha_w", "alpha_lam", "beta"}
    assert tree.attrs["converged"] and tree.attrs["hyper"] == "posterior"
    assert "log_evidence" not in fit and "independent" in tree.attrs["caption"]
    assert fit["elbo"].sizes["iteration"] == fit["n_samples"].sizes["iteration"]
    active = fit["active"].values
    assert len(fit["mean_vector"]) == active.sum() < len(active)
    gone = ~active[:41]
    assert not posterior["w"].values[..., gone].any()
    assert np.isinf(tree["theta"]["alpha_w"].values[gone]).all()
    # over the weights that are left: the bound is the mean of log p - log q
    gap = tree["sample_stats"]["lp"] - tree["sample_stats"]["log_approximation"]
    error = float(gap.std()) / np.sqrt(gap.size)
    assert abs(float(gap.mean()) - float(fit["elbo"][-1])) < 4 * error
    assert np.isfinite(khat(tree))


def test_log_posterior_is_the_graphs_joint():
    X, t = data(rows=12)
    model = av.models.sample_feature_regression(X, t, a=2.0, b=1.0)
    tree = av.fit(model, av.VB(prune=None), draws=5, random_seed=1)
    point = {v: tree["posterior"][v].values[1, 2] for v in tree["posterior"].data_vars}
    joint = float(tree["sample_stats"]["lp"][1, 2])
    assert joint == pytest.approx(logp(model, point), rel=1e-9)


@pytest.mark.parametrize("which", ["regression", "classification"])
def test_predictions_by_moments_and_by_draws_agree(which, request):
    model, tree = request.getfixturevalue(which)
    X_new = np.random.default_rng(2).uniform(-2, 2, (30, 4))
    by_moments = av.predict(model, tree, X_new)
    by_draws = av.predict(model, tree.drop_nodes("fit"), X_new)
    # 1000 draws: means of eta to 0.03 of its sd; classes add eta's being no Gaussian
    np.testing.assert_allclose(by_moments, by_draws, atol=0.05)
    if which == "classification":
        assert by_moments["class"].values.tolist() == ["no", "yes"]
        np.testing.assert_allclose(by_moments.sum("class"), 1.0)
    else:
        f = 2 * np.sin(1.5 * X_new[:, 0]) + X_new[:, 1]
        assert np.sqrt(np.mean((by_moments.sel(statistic="mean") - f) ** 2)) < 0.4
        assert (by_moments.sel(statistic="sd") > 0.2).all()  # the noise is in it


def test_relevance_of_samples_and_features(regression):
    _, tree = regression
    features, samples = av.relevance(tree), av.relevance(tree, of="samples")
    assert list(features.index) == ["x0", "x1", "x2", "x3"] and features.index.name == "feature"
    assert set(features.index[features["rank"] <= 2]) == {"x0", "x1"}
    assert len(samples) == 40 and samples.index.name == "sample"
    assert samples["inclusion"].sum() == tree["fit"]["active"].values[1:41].sum()
    assert len(av.relevance(tree, of="weights")) == 46
    # without samples the features only make the constant: none is relevant
    alone = tree.copy()
    fit = alone["fit"].to_dataset()
    fit["active"] = fit["active"] & ~fit["weight"].str.match(r"w\[\d+\]")
    posterior = alone["posterior"].to_dataset()
    posterior["w"] = posterior["w"].where(posterior["sample_term"] == "constant", 0.0)
    alone = xr.DataTree.from_dict({"posterior": posterior, "fit": fit})
    alone.attrs = tree.attrs
    assert not av.relevance(alone)["relevance"].any()
    with pytest.raises(av.errors.InputError, match="sample-feature"):
        X, t = data()
        other = av.fit(av.models.ard_regression(X, t), "laplace", draws=5, random_seed=0)
        av.relevance(other, of="samples")


def test_the_largest_lam_is_positive(regression, classification):
    for _, tree in (regression, classification):
        lam = tree["posterior"]["lam"].mean(("chain", "draw")).values[1:]
        assert lam[np.argmax(np.abs(lam))] > 0


def test_fixed_hyperparameters(regression):
    model, tree = regression
    fixed = av.fit(model, av.VB(hyper=av.Fixed(tree)), draws=20, random_seed=1)
    assert fixed.attrs["hyper"] == "fixed" and not np.ptp(fixed["posterior"]["beta"].values)
    np.testing.assert_array_equal(fixed["fit"]["active"], tree["fit"]["active"])
    X_new = data()[0][:5]
    np.testing.assert_allclose(
        av.predict(model, fixed, X_new).sel(statistic="mean"),
        av.predict(model, tree, X_new).sel(statistic="mean"),
        atol=0.1,
    )
    with pytest.raises(av.errors.UnsupportedPair, match="posterior"):
        av.fit(model, av.VB(hyper=av.Evidence()))


@pytest.mark.parametrize("method", ["ep", "exact"])
def test_what_does_not_fit_is_refused_with_a_reason(regression, method):
    with pytest.raises(av.errors.UnsupportedPair, match="Use "):
        av.fit(regression[0], method)


def test_bad_arguments_are_named():
    X, t = data()
    for bad in ({"gamma": 0.0}, {"a": -1.0}, {"b": np.inf}, {"kernel": "rbf"}):
        with pytest.raises(av.errors.InputError, match=next(iter(bad))):
            av.models.sample_feature_regression(X, t, **bad)


def test_a_target_without_signal_is_predicted_by_its_mean():
    X, _ = data()
    rng = np.random.default_rng(3)
    model = av.models.sample_feature_regression(X, 3.0 + 1e-3 * rng.standard_normal(40))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", av.errors.AccuracyWarning)  # that the fit is a constant
        tree = av.fit(model, av.VB(starts=1), draws=5, random_seed=0)
    prediction = av.predict(model, tree, X[:4]).sel(statistic="mean")
    np.testing.assert_allclose(prediction, 3.0, atol=0.01)


def test_a_fit_of_constants_alone_is_said_so():
    X, t = data(rows=12)
    model = av.models.sample_feature_regression(X, t)
    off, on = np.full(13, np.inf), np.full(5, np.inf)
    off[0], on[0] = 1.0, 1.0
    values = {"alpha_w": off, "alpha_lam": on, "beta": 1.0}
    with pytest.warns(av.errors.AccuracyWarning, match="the fit is a constant"):
        tree = av.fit(model, av.VB(hyper=av.Fixed(values)), draws=5, random_seed=0)
    assert not av.relevance(tree)["relevance"].any()


# --- the RSFM -------------------------------------------------------------------------------------


def test_rsfm_is_an_rvm_when_one_side_is_given():
    """lam given: what is left is a linear model in w, and its posterior is known."""
    X, t = data(rows=15)
    model = av.models.sample_feature_regression(X, t)
    basis, (target, _) = basis_of(model), target_of(model)
    fit = rsfm(basis, target, classes=False, alpha_w=np.ones(16), alpha_lam=np.ones(5), beta=4.0)
    design = basis.block(slice(None), np.arange(5), np.arange(16)).transpose(0, 2, 1) @ fit.lam.mean
    covariance = np.linalg.inv(4.0 * design.T @ design + np.eye(16))
    np.testing.assert_allclose(fit.w.mean, 4.0 * covariance @ design.T @ target, atol=1e-3)
    np.testing.assert_allclose(fit.w.covariance, covariance, atol=1e-3)
    assert fit.converged


@pytest.mark.parametrize("classes", [False, True])
def test_rsfm_by_laplace(classes):
    X, t = data(classes)
    build = av.models.sample_feature_classification if classes else None
    model = (build or av.models.sample_feature_regression)(X, t)
    tree = av.fit(model, av.Laplace(), draws=20, random_seed=1)
    assert tree.attrs["hyper"] == "evidence" and "type-II" in tree.attrs["caption"]
    assert tree.attrs["converged"]
    table = av.relevance(tree)
    assert {"x0", "x1"} <= set(table.index[table["inclusion"] > 0])
    assert len(tree["fit"]["mean_vector"]) < 25
    with pytest.raises(av.errors.UnsupportedPair, match="RSFM"):
        av.fit(model, av.Laplace(hyper=av.Predictive()))


# --- gamma ----------------------------------------------------------------------------------------


def test_gamma_by_each_rule():
    X, t = data(rows=60)
    model = av.models.sample_feature_regression(X[:40], t[:40])
    grid, quick = (0.001, 0.5, 60.0), av.VB(starts=1)
    found = {
        "elbo": av.search_gamma(model, quick, by="elbo", gammas=grid),
        "validation": av.search_gamma(
            model, quick, by="validation", validation=(X[40:], t[40:]), gammas=grid
        ),
        "cv": av.search_gamma(model, av.Laplace(), by="cv", folds=3, gammas=grid),
    }
    assert {rule: search.gamma for rule, search in found.items()} == dict.fromkeys(found, 0.5)
    assert list(found["elbo"].table.index) == list(grid)
    assert (found["elbo"].table["score"] == -found["elbo"].table["elbo"]).all()
    assert float(model["gamma"].get_value()) == 1.0  # the model is not changed


def test_gamma_search_refuses():
    X, t = data(rows=12)
    model = av.models.sample_feature_regression(X, t)
    with pytest.raises(av.errors.UnsupportedPair, match="no ELBO"):
        av.search_gamma(model, av.Laplace(), by="elbo")
    with pytest.raises(av.errors.InputError, match="validation"):
        av.search_gamma(model, by="validation")
    with pytest.raises(av.errors.InputError, match="gammas"):
        av.search_gamma(model, gammas=())
    with pytest.raises(av.errors.UnsupportedPair, match="sample_feature"):
        av.search_gamma(av.models.ard_regression(X, t))
    with pytest.raises(av.errors.InputError, match="by must"):
        av.search_gamma(model, by="evidence")


def test_own_kernel_reaches_the_arrays():
    X, t = data(rows=20)

    def cauchy(x, c, gamma):
        return 1.0 / (1.0 + gamma * (x - c) ** 2)

    model = av.models.sample_feature_regression(X, t, kernel=cauchy, gamma=2.0)
    block = basis_of(model).block(slice(0, 1), np.arange(5), np.arange(21))
    assert block[0, 2, 4] == pytest.approx(1 / (1 + 2 * (X[0, 1] - X[3, 1]) ** 2))
    assert gaussian(np.array(1.0), np.array(0.0), 2.0) == pytest.approx(np.exp(-2))


def test_invariants_do_not_see_scale_and_sign(regression):
    _, tree = regression
    posterior = tree["posterior"].to_dataset()
    moved = posterior.assign(w=-2 * posterior["w"], lam=posterior["lam"] / -2)
    np.testing.assert_allclose(invariants(posterior), invariants(moved), rtol=1e-12)
    assert invariants(posterior).dims == ("chain", "draw", "sample_term", "feature_term")


def test_answers_are_compared_by_products(regression):
    """The same answer with other weights is no error; another answer is."""
    _, tree = regression
    moved = tree.copy()
    posterior = tree["posterior"].to_dataset()
    moved["posterior"] = xr.DataTree(
        posterior.assign(w=-2 * posterior["w"], lam=posterior["lam"] / -2)
    )
    row = av.compare({"a": moved, "b": tree}, reference="b", detail=True).loc["a"]
    assert row["worst_mean_error"] == pytest.approx(0.0, abs=1e-9)
    assert row["worst_sd_ratio"] == pytest.approx(1.0)
    assert str(row["worst_mean_error_at"]).startswith("product[")
    moved["posterior"] = xr.DataTree(posterior.assign(w=2 * posterior["w"]))
    assert (
        av.compare({"a": moved, "b": tree}, reference="b", detail=True).loc["a", "worst_mean_error"]
        > 1
    )


@pytest.mark.validate
def test_against_nuts_in_function_space():
    """Predictions agree to 0.19 of their sd; the products' sds are too small, down to 0.38."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (15, 2))
    t = 2 * np.sin(1.5 * X[:, 0]) + 0.3 * rng.standard_normal(15)
    model = av.models.sample_feature_regression(X, t, a=2.0, b=0.5)
    sampler = av.NUTS(tune=1500, target_accept=0.99)
    nuts = av.fit(model, sampler, draws=1500, random_seed=1, progressbar=False)
    vb = av.fit(model, av.VB(prune=None), random_seed=1)
    assert nuts.attrs["converged"], nuts.attrs["problems"]
    lam = nuts["posterior"]["lam"].values[..., 1:]
    assert (lam[..., np.argmax(np.abs(lam).mean(axis=(0, 1)))] >= 0).all()  # the sign is folded
    X_new = rng.uniform(-2, 2, (100, 2))
    theirs, ours = av.predict(model, nuts, X_new), av.predict(model, vb, X_new)
    sd = theirs.sel(statistic="sd")
    assert (np.abs((ours - theirs).sel(statistic="mean")) / sd).max() < 0.3
    assert np.abs(np.log(ours.sel(statistic="sd") / sd)).max() < 0.2
    row = av.compare({"vb": vb, "nuts": nuts}, reference="nuts", detail=True).loc["vb"]
    assert row["worst_mean_error"] < 0.35
    assert 0.25 < row["worst_sd_ratio"] < 0.9


def test_benchmark_through_the_door():
    task = bilinear()
    model = av.models.sample_feature_regression(task.X, task.t)
    with pytest.warns(av.errors.AccuracyWarning, match="one alone ends at the best"):
        tree = av.fit(model, av.VB(), draws=100, random_seed=0)
    error = av.predict(model, tree, task.X_test).sel(statistic="mean") - task.f_test
    assert float(np.sqrt((error**2).mean())) < 0.10
    table = av.relevance(tree)
    assert list(table.index[table["inclusion"] > 0]) == ["x0", "x1", "x2"]
