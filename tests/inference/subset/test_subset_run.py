"""Subset models through the doors: fit, exact, predict, relevance, report, refusals."""

import json
import warnings

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit, ndtr
from subset_cases import data, regression, two_classes

import ardvark as av
from ardvark.errors import ConvergenceWarning, InputError, InputWarning, UnsupportedPair
from ardvark.inference.subset.run import _problems as subset_problems
from ardvark.inference.subset.run import with_excluded
from ardvark.models.subset import subset_classification, subset_regression

JUMP = av.ReversibleJump(sweeps=3000)
SHORT = {"draws": 250, "chains": 4, "random_seed": 3, "progressbar": False}


@pytest.fixture(scope="module")
def linear():
    model = regression()
    return model, av.fit(model, JUMP, **SHORT), av.fit(model, "exact", **SHORT)


def test_the_tree_has_its_groups(linear):
    model, tree, _ = linear
    assert tree.attrs["method"] == "reversible_jump" and tree.attrs["converged"]
    assert json.loads(tree.attrs["weights"]) == ["bias", "w_included"]
    posterior = tree["posterior"]
    assert [rv.name for rv in model.free_RVs] == ["included", "bias", "w", "sigma"]
    for name in ("included", "bias", "w", "sigma", "w_included"):
        assert np.isfinite(posterior[name]).all()
    np.testing.assert_allclose(posterior["w_included"], posterior["included"] * posterior["w"])
    assert tree["subsets"].attrs["sweeps"] == 4 * 2000
    assert float(tree["subsets"]["probability"].sum()) == pytest.approx(1)
    stats = tree["sample_stats"]
    assert set(stats["move"].values) == {"add", "delete", "exchange"}
    assert np.all(stats["accepted"] <= stats["tried"]) and np.all(stats["accepted"].sum("size") > 0)
    np.testing.assert_array_equal(
        tree["sample_stats"]["n_inputs"], posterior["included"].sum("feature")
    )


def test_log_likelihood_is_that_of_the_graph(linear):
    model, tree, _ = linear
    import xarray as xr

    some = xr.DataTree.from_dict({"posterior": tree["posterior"].dataset.isel(draw=slice(4))})
    with pm.pytensorf.pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"), model:
        pm.compute_log_likelihood(some, progressbar=False)
    np.testing.assert_allclose(
        tree["log_likelihood"]["t"].isel(draw=slice(4)), some["log_likelihood"]["t"], rtol=1e-10
    )


def test_sampler_and_enumeration_agree(linear):
    _, tree, exact = linear
    a = av.subsets(tree).set_index("features")
    b = av.subsets(exact).set_index("features")
    assert len(b) == 256 and b["probability"].sum() == pytest.approx(1)
    both = a.join(b, rsuffix="_exact")
    often = both[both["probability_exact"] > 0.01]
    assert np.all(np.abs(often["probability"] - often["probability_exact"]) < 4.5 * often["mcse"])
    inclusion = av.inclusion(tree)
    assert np.all(
        np.abs(inclusion["rao_blackwell"] - av.inclusion(exact)["counted"])
        < 5 * inclusion["mcse_rao_blackwell"] + 1e-3
    )
    assert exact["fit"]["log_evidence"].item() < 0


def test_predictions_are_averages_over_the_draws(linear):
    model, tree, exact = linear
    X_new = np.random.default_rng(1).normal(size=(3, 8))
    found = av.predict(model, tree, X_new)
    draws = tree["posterior"].to_dataset().stack(sample=("chain", "draw"))
    eta = draws["bias"].values + X_new @ draws["w_included"].transpose("feature", ...).values
    np.testing.assert_allclose(found.sel(statistic="mean"), eta.mean(axis=1))
    expected = np.sqrt(eta.var(axis=1) + np.mean(draws["sigma"].values ** 2))
    np.testing.assert_allclose(found.sel(statistic="sd"), expected)
    error = eta.std(axis=1) / np.sqrt(500)
    gap = found.sel(statistic="mean") - av.predict(model, exact, X_new).sel(statistic="mean")
    assert np.all(np.abs(gap) < 5 * error)


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_class_probabilities(link):
    X, score = data(60, 4, 5)
    labels = np.where(score > 0, "yes", "no")
    model = subset_classification(av.standardise(X), labels, link=link, slab="shared")
    tree = av.fit(model, JUMP, **SHORT)
    found = av.predict(model, tree, X[:4])  # raw rows: they are scaled as the model's were
    assert list(found["class"].values) == ["no", "yes"]
    np.testing.assert_allclose(found.sum("class"), 1)
    draws = tree["posterior"].to_dataset().stack(sample=("chain", "draw"))
    Z = model["X"].get_value()[:4]
    eta = draws["bias"].values + Z @ draws["w_included"].transpose("feature", ...).values
    probability = (ndtr if link == "probit" else expit)(eta).mean(axis=1)
    np.testing.assert_allclose(found.sel({"class": "yes"}), probability)
    rao = av.inclusion(tree)["rao_blackwell"]
    assert rao.isna().all() if link == "logit" else rao.notna().all()


def test_relevance_shows_the_inclusion(linear):
    _, tree, _ = linear
    table = av.relevance(tree)
    assert list(table.index) == [f"x{j}" for j in range(8)]
    np.testing.assert_allclose(
        table["inclusion"], tree["posterior"]["included"].mean(("chain", "draw"))
    )
    np.testing.assert_allclose(table["precision"], 1.0)


def test_a_report_can_be_written(linear, tmp_path):
    model, tree, exact = linear
    av.report({"jump": tree, "exact": exact}, tmp_path / "report.html", model=model)
    assert "reversible_jump" in (tmp_path / "report.html").read_text()


def test_a_tree_can_be_stored(linear, tmp_path):
    import xarray as xr

    _, tree, _ = linear
    tree.to_zarr(tmp_path / "tree.zarr", consolidated=False)
    again = xr.open_datatree(tmp_path / "tree.zarr", engine="zarr", consolidated=False)
    assert av.subsets(again).equals(av.subsets(tree))


def test_fixed_hyperparameters():
    model = regression(slab="ard")
    alpha = np.linspace(0.5, 2, 8)
    fixed = av.Fixed({"alpha": alpha, "sigma": 0.8})
    tree = av.fit(model, av.ReversibleJump(sweeps=3000, hyper=fixed), **SHORT)
    assert tree.attrs["hyper"] == "fixed" and "fixed hyperparameters" in tree.attrs["caption"]
    np.testing.assert_array_equal(tree["posterior"]["alpha"][2, 5], alpha)
    assert np.all(tree["posterior"]["sigma"] == 0.8)
    exact = av.fit(model, av.Exact(hyper=fixed), **SHORT)
    written = subset_regression(
        model["X"].get_value(), model["t_observed"].get_value(), noise=0.8, expected_inputs=2.0
    )
    written.set_data("alpha", alpha)
    same = av.fit(written, "exact", **SHORT)
    assert exact["fit"]["log_evidence"].item() == pytest.approx(same["fit"]["log_evidence"].item())
    with pytest.raises(InputError, match="shape"):
        av.fit(model, av.ReversibleJump(hyper=av.Fixed({"alpha": 1.0, "sigma": 1.0})), **SHORT)
    with pytest.raises(UnsupportedPair, match="into the posterior"):
        av.fit(model, av.ReversibleJump(hyper=av.Evidence()), **SHORT)


def test_other_data_on_the_same_graph():
    model = regression(noise=0.8)
    t = model["t_observed"].get_value()
    first, second = av.fit(
        model, "exact", data=[{"t_observed": t}, {"t_observed": t[::-1]}], **SHORT
    )
    assert first["fit"]["log_evidence"].item() != second["fit"]["log_evidence"].item()
    own = av.fit(model, "exact", **SHORT)
    assert own["fit"]["log_evidence"].item() == first["fit"]["log_evidence"].item()


def test_what_is_not_there_is_refused():
    with pytest.raises(UnsupportedPair, match="the limit is 12 inputs"):
        av.fit(two_classes(40, 13), "exact", **SHORT)
    with pytest.raises(UnsupportedPair, match="slab='ard'"):
        av.fit(regression(slab="ard"), "exact", **SHORT)
    with pytest.raises(UnsupportedPair, match="limit is 15"):
        av.fit(regression(40, 16), "exact", **SHORT)
    with pytest.raises(UnsupportedPair, match="mixture over subsets"):
        av.fit(two_classes(), "ep", **SHORT)
    with pytest.raises(UnsupportedPair, match="proposals"):
        av.fit(two_classes(), av.ReversibleJump(proposals="prior"), **SHORT)
    model = two_classes()
    with model:
        pm.Potential("more", -(model["bias"] ** 2))
    with pytest.raises(UnsupportedPair, match="'more' since"):
        av.fit(model, JUMP, **SHORT)
    with pytest.raises(InputError, match="slab must be one of"):
        regression(slab="ards")
    with pytest.raises(InputError, match="slab must be a finite number > 0"):
        regression(slab=-1.0)
    with pytest.raises(InputError, match="expected_inputs"):
        regression(expected_inputs=0)


def test_a_slab_in_other_units_is_pointed_out():
    X, score = data(30, 3, 4)
    with pytest.warns(InputWarning, match="slab=1 is narrow"):
        subset_regression(X, 1000.0 * score)
    subset_regression(X, 1000.0 * score, slab=1000.0)  # no warning: it would be an error here


def test_chains_that_have_not_met_are_reported():
    """A target without noise: from where it starts a chain of two sweeps goes nowhere else."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 30))
    X[:, 1:] = X[:, :1] + 1e-3 * rng.normal(size=(50, 29))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tree = av.fit(
            subset_regression(X, X[:, 0], noise=1e-2, slab=100.0, expected_inputs=5.0),
            av.ReversibleJump(sweeps=24, tune=0, jumps=1),
            **SHORT | {"draws": 24},
        )
    assert not tree.attrs["converged"]
    assert "chains disagree" in tree.attrs["problems"]
    with pytest.warns(ConvergenceWarning, match="disagree"):
        assert av.diagnostics.subset_diagnostics(tree).problems


@pytest.mark.parametrize("method", ["exact", av.ReversibleJump(sweeps=600)])
@pytest.mark.filterwarnings("ignore::ardvark.errors.ConvergenceWarning")
def test_a_target_without_noise_is_said_to_leave_none(method):
    """There is no posterior: the density grows without end as sigma falls. It was silent."""
    X = np.random.default_rng(4).normal(size=(30, 4))
    with pytest.warns(av.errors.AccuracyWarning, match="1 inputs .* nothing is left for noise"):
        tree = av.fit(subset_regression(X, X[:, 0] + 1e-7), method, **SHORT | {"draws": 20})
    assert "Fix the noise" in tree.attrs["caution"]
    noisy = X[:, 0] + 1e-3 * X[:, 1] * X[:, 2]
    for model in (subset_regression(X, X[:, 0], noise=0.1), subset_regression(X, noisy)):
        assert not av.fit(model, "exact", **SHORT).attrs.get("caution")


def test_one_chain_that_stays_in_one_subset_proves_nothing():
    """It was called converged: where nothing moves there is no R-hat."""
    stays = np.ones((2, 10, 3), bool)
    assert subset_problems(stays, {}, ["a", "b", "c"])[0] == []
    (said,), _ = subset_problems(stays[:1], {}, ["a", "b", "c"])
    assert said.startswith("One chain only")


@pytest.mark.validate
def test_the_slow_control_is_pymcs_own_sampler():
    model = regression(30, 3, noise=0.8)
    exact = av.inclusion(av.fit(model, "exact", **SHORT))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tree = av.fit(
            model, av.NUTS(tune=1000), draws=3000, chains=2, random_seed=1, progressbar=False
        )
    table = av.inclusion(tree)
    assert np.all(np.abs(table["counted"] - exact["counted"]) < 4 * table["mcse"])


def test_an_inferred_slab_follows_the_unit_of_the_target():
    """b was 1 whatever t was measured in: at 1000 t no input was found."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(40, 4))
    t = X @ [1.0, 0.0, 0.3, 0.0] + 0.5 * rng.normal(size=40)
    found = []
    for unit in (1.0, 1e-3, 1e3):
        model = av.models.subset_regression(X, unit * t, slab="shared")
        tree = av.fit(model, av.ReversibleJump(sweeps=1500), draws=500, random_seed=1)
        weights = tree["posterior"]["w_included"].mean(("chain", "draw")).values
        found.append(np.append(weights / unit, av.inclusion(tree)["rao_blackwell"]))
    np.testing.assert_allclose(found[1:], [found[0]] * 2, atol=1e-6)


@pytest.mark.parametrize("slab", [0.5, "ard", "shared"])
def test_a_weight_that_is_out_is_zero(slab):
    """It was a draw from the prior, which `az.summary` took for an answer."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(40, 4))
    model = av.models.subset_regression(X, X[:, 0] + rng.normal(size=40), slab=slab)
    tree = av.fit(model, av.ReversibleJump(sweeps=3000), draws=1000, random_seed=1)
    posterior = tree["posterior"]
    out = posterior["included"].values == 0
    assert out.any() and not posterior["w"].values[out].any()
    assert (posterior["w"].values[~out] != 0).all()
    draws = {
        name: values.values.reshape(4000, *values.shape[2:])
        for name, values in posterior.data_vars.items()
        if name in ("included", "w", "alpha")
    }
    whole = with_excluded(model, draws, rng)
    np.testing.assert_array_equal(whole["w"][~out.reshape(4000, -1)], draws["w"][draws["w"] != 0])
    alpha = draws.get("alpha", np.full(1, 4.0))
    z = whole["w"] * np.sqrt(alpha if alpha.ndim == 2 else alpha[:, None])
    z = z[out.reshape(4000, -1)]
    assert abs(z.mean()) < 4 / np.sqrt(len(z)) and abs(z.var() - 1) < 4 * np.sqrt(2 / len(z))


def test_excluded_weights_of_an_enumeration_are_zero_too(linear):
    _, _, exact = linear
    posterior = exact["posterior"]
    assert not posterior["w"].values[posterior["included"].values == 0].any()
    np.testing.assert_array_equal(posterior["w"], posterior["w_included"])
