"""Whole fits of sparse models: the trees of dense ones, and what a large tree leaves out."""

import numpy as np
import pymc as pm
import pytest

import ardvark as av
from ardvark.inference import approximate, tree
from ardvark.inference.hyper import integrated, run_integrated

HELD = av.Fixed({"s": 0.8})
QUIET = {"draws": 200, "chains": 2, "random_seed": 1, "progressbar": False}


@pytest.fixture(scope="module")
def groups():
    rng = np.random.default_rng(11)
    g, x = np.arange(120) % 20, rng.normal(size=120)
    t = rng.binomial(1, 1.0 / (1.0 + np.exp(-0.8 * rng.normal(size=20)[g] - 0.5 * x)))
    with pm.Model() as model:
        inputs, place = pm.Data("x", x), pm.Data("g", g)
        a, b, s = pm.Normal("a", 0, 2), pm.Normal("b", 0, 2), pm.HalfNormal("s", 1)
        u = pm.Normal("u", 0, 1, shape=20)
        eta = a + b * inputs + s * u[place]
        pm.Bernoulli("t", logit_p=eta, observed=t, shape=inputs.shape)
    return model


@pytest.mark.filterwarnings("ignore::ardvark.errors.AccuracyWarning")
@pytest.mark.parametrize("method", [av.Laplace, av.EP])
def test_a_sparse_fit_is_the_dense_fit(groups, method):
    new = {"x": np.array([0.3, -1.0]), "g": np.array([4, 7])}
    hyper = av.Evidence() if method is av.EP else av.Integrated(points=64)
    dense, sparse = (
        av.fit(groups, method(space=space, hyper=hyper), **QUIET) for space in ("weights", "sparse")
    )
    assert dense.attrs["converged"] == sparse.attrs["converged"] == 1
    for name in set(dense["fit"].data_vars) & {"log_evidence", "node_weight", "mean_vector", "s"}:
        np.testing.assert_allclose(
            sparse["fit"][name], dense["fit"][name], rtol=1e-5, atol=1e-6, err_msg=name
        )
    draws = [t["posterior"]["u"].stack(s=("chain", "draw")).values for t in (dense, sparse)]
    error = draws[0].std(axis=1) * np.sqrt(2.0 / draws[0].shape[1])
    assert np.abs((draws[0].mean(axis=1) - draws[1].mean(axis=1)) / error).max() < 5.0
    one, other = (av.predict(groups, t, new).values for t in (dense, sparse))
    np.testing.assert_allclose(other, one, atol=1e-6 if method is av.EP else 0.05)


@pytest.mark.filterwarnings("ignore::ardvark.errors.AccuracyWarning")
def test_a_large_tree_has_marginals_and_as_many_draws_as_it_can_hold(groups, monkeypatch):
    settings = av.Laplace(space="sparse", hyper=av.Evidence())
    whole = av.fit(groups, settings, **QUIET)
    monkeypatch.setattr(tree, "_LARGEST_COVARIANCE", 5)
    monkeypatch.setattr(approximate, "_LARGEST_TREE", 2 * 30 * (2 * 120 + 22))
    with pytest.warns(av.errors.AccuracyWarning, match="30 a chain are in the tree"):
        large = av.fit(groups, settings, **QUIET)
    assert large["posterior"].sizes["draw"] == 30
    assert "covariance_matrix" not in large["fit"]
    np.testing.assert_allclose(
        large["fit"]["variance_vector"], np.diag(whole["fit"]["covariance_matrix"]), rtol=1e-9
    )
    new = {"x": np.array([0.3, -1.0]), "g": np.array([4, 7])}
    one, other = (av.predict(groups, t, new).values for t in (whole, large))
    np.testing.assert_allclose(other, one, rtol=1e-7)


@pytest.mark.filterwarnings("ignore::ardvark.errors.AccuracyWarning")
def test_sites_of_very_many_rows_are_made_again(groups, monkeypatch):
    """With them or without, nodes and draws are the same; means and variances are in the tree."""
    settings = av.Laplace(space="sparse", hyper=av.Integrated(points=64))
    whole = av.fit(groups, settings, **QUIET)
    monkeypatch.setattr(integrated, "_KEPT_ROWS", 10)
    monkeypatch.setattr(run_integrated, "_LARGE", 5)
    large = av.fit(groups, settings, **QUIET)
    np.testing.assert_allclose(large["posterior"]["u"], whole["posterior"]["u"], atol=1e-6)
    draws = whole["posterior"]["u"].stack(s=("chain", "draw")).values
    named = dict(
        zip(large["fit"]["weight"].values, large["fit"]["weight_mean"].values, strict=True)
    )
    mean = np.array([named[f"u[{i}]"] for i in range(20)])
    assert np.abs((draws.mean(axis=1) - mean) / draws.std(axis=1)).max() < 5.0 / np.sqrt(400)
    assert np.all(large["fit"]["weight_variance"] > 0)


@pytest.mark.filterwarnings("ignore::ardvark.errors.AccuracyWarning")
def test_large_trees_are_compared_by_their_marginals_and_in_parts(groups, monkeypatch):
    """Few draws do not blur means and sds that are known; rows and weights go in parts."""
    from ardvark.diagnostics.compare import agreement, psis

    dense = {
        name: av.fit(groups, method(space="weights", hyper=HELD), **QUIET)
        for name, method in (("ep", av.EP), ("laplace", av.Laplace))
    }
    monkeypatch.setattr(tree, "_LARGEST_COVARIANCE", 5)
    sparse = {
        name: av.fit(groups, method(space="sparse", hyper=HELD), **QUIET)
        for name, method in (("ep", av.EP), ("laplace", av.Laplace))
    }
    found = agreement.agreement(sparse["laplace"], sparse["ep"])
    assert np.all(found["mean_error_mcse"] == 0.0)
    moments = [
        (t["fit"]["mean_vector"].values, np.sqrt(np.diag(t["fit"]["covariance_matrix"].values)))
        for t in (dense["laplace"], dense["ep"])
    ]
    order = [list(dense["ep"]["fit"]["rows"].values).index(name) for name in found.index]
    error = ((moments[0][0] - moments[1][0]) / moments[1][1])[order]
    np.testing.assert_allclose(found["mean_error"], error, atol=1e-6)
    ratio = np.log(moments[0][1] / moments[1][1])[order]
    np.testing.assert_allclose(found["log_sd_ratio"], ratio, atol=1e-6)

    whole = av.loo_table(sparse)
    cavities = [av.loo_table(trees).loc[("ep", "cavity"), "elpd"] for trees in (dense, sparse)]
    assert cavities[0] == pytest.approx(cavities[1], abs=1e-6)
    monkeypatch.setattr(psis, "MOST_NUMBERS", 400 * 50)
    monkeypatch.setattr(agreement, "MOST_NUMBERS", 800 * 3)
    parts = av.loo_table(sparse)
    for column in ("elpd", "se", "worst_row", "high_khat"):
        np.testing.assert_allclose(parts[column], whole[column], rtol=1e-10, atol=1e-12)
    again = agreement.agreement(sparse["laplace"], sparse["ep"])
    np.testing.assert_allclose(again["wasserstein"], found["wasserstein"], rtol=1e-12)
    assert av.compare(sparse, "ep").loc["laplace", "worst_mean_error"] == pytest.approx(
        np.abs(error).max(), abs=1e-6
    )
