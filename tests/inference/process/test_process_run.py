"""The trigonometric SVM by `fit`: routes agree, new rows, leave-one-out, relevance, refusals."""

import numpy as np
import pandas as pd
import pytest
from arviz_stats import ess

import ardvark as av
from ardvark.inference.graph.read import read_model
from ardvark.inference.laplace import Laplace
from ardvark.inference.process.run import process_of
from ardvark.studies.papers.chu2006 import evidence

RNG = np.random.default_rng(61)
X = pd.DataFrame(RNG.normal(size=(40, 3)), columns=["dose", "age", "noise"])
T = np.where(X["dose"] + 0.6 * X["age"] ** 2 + 0.4 * RNG.normal(size=40) > 0.5, "ill", "well")
X_NEW = RNG.normal(size=(6, 3))
KAPPA = {"kappa_0": 3.0, "kappa_a": np.array([0.5, 0.4, 0.05]), "kappa_b": 0.5}
QUIET = {"random_seed": 3, "progressbar": False}


@pytest.fixture(scope="module")
def model():
    return av.models.trigonometric_svm(X, T)


@pytest.fixture(scope="module")
def trees(model):
    at = {"hyper": av.Fixed(KAPPA)}
    return {
        "laplace": av.fit(model, av.Laplace(**at), **QUIET),
        "ep": av.fit(model, av.EP(**at), **QUIET),
        "slices": av.fit(model, av.EllipticalSlice(**at, thin=2), **QUIET),
    }


@pytest.fixture(scope="module")
def searched(model):
    return av.fit(model, av.Laplace(hyper=av.Evidence(start=("random", 4, 1))), **QUIET)


# --- the reading and the two Laplace routes ---------------------------------------------------


def test_the_graph_is_read_as_a_gaussian_times_trigonometric_sites(model):
    latent = read_model(model)
    assert latent.weights == ("f",) and latent.hyper == ("kappa_0", "kappa_a", "kappa_b")
    assert type(latent.sites(latent.initial_theta())).__name__ == "TrigonometricSites"
    assert latent.two_classes
    K = latent.at({name: np.asarray(v) for name, v in KAPPA.items()}).covariance
    np.testing.assert_allclose(K, process_of(model).matrices(KAPPA)[1], rtol=1e-12)


def test_support_vector_laplace_is_the_general_laplace(model, trees):
    latent = read_model(model)
    site_model = latent.at({name: np.asarray(v) for name, v in KAPPA.items()})
    general = Laplace().approximate(site_model)
    fit = trees["laplace"]["fit"]
    assert float(fit["log_evidence"]) == pytest.approx(general.log_evidence, abs=1e-9)
    np.testing.assert_allclose(fit["mean_vector"], general.posterior.mean, atol=1e-8)
    np.testing.assert_allclose(fit["covariance_matrix"], general.posterior.covariance, atol=1e-7)
    np.testing.assert_allclose(fit["site_precision"], general.site_precision, atol=1e-7)
    support = fit["support"].to_series()
    assert support.sum() == fit["support_vectors"] and support.index.name == "row"
    np.testing.assert_array_equal(support, fit["multiplier"] > 0)


def test_general_gradient_through_the_graph_is_the_one_on_the_support_vectors(model):
    latent, process = read_model(model), process_of(model)
    theta = {name: np.asarray(v) for name, v in KAPPA.items()}
    site_model = latent.at(theta)
    for rule in (Laplace(), av.EP()):
        fit = rule.approximate(site_model)
        cotangents = rule.evidence_gradient(site_model, fit)
        by_graph = latent.pull(theta, cotangents)
        plain = process.matrices(theta)[0]
        ours = process.gradient(cotangents.covariance, None, theta, plain)
        flat = np.concatenate([np.ravel(by_graph[n] * theta[n]) for n in latent.hyper])
        np.testing.assert_allclose(ours, flat, rtol=1e-8, atol=1e-10)


# --- against the reference --------------------------------------------------------------------


def test_ep_is_close_to_the_slices_and_laplace_is_not_far(trees):
    exact = trees["slices"].posterior["f"].values
    mean, sd = exact.mean(axis=(0, 1)), exact.std(axis=(0, 1))
    error = 4 * sd / np.sqrt(ess(exact))
    ep = trees["ep"]["fit"]["mean_vector"].values
    assert (np.abs(ep - mean) < error + 0.1 * sd).all()  # EP's own error: a tenth of an sd
    laplace = trees["laplace"]["fit"]["mean_vector"].values
    assert np.abs((laplace - mean) / sd).max() > 2 * np.abs((ep - mean) / sd).max()
    assert trees["slices"].attrs["converged"]


def test_predictions_agree_by_formula_and_by_draws(model, trees):
    tables = {name: av.predict(model, tree, X_NEW) for name, tree in trees.items()}
    for table in tables.values():
        assert list(table["class"].values) == ["ill", "well"]
        np.testing.assert_allclose(table.sum("class"), 1.0)
    np.testing.assert_allclose(tables["ep"], tables["slices"], atol=0.02)
    # the same Gaussian, by (1.7) and by its own draws
    for name in ("ep", "laplace"):
        drawn = trees[name].copy()
        del drawn["fit"]
        by_draws = av.predict(model, drawn, X_NEW)
        np.testing.assert_allclose(tables[name], by_draws, atol=0.02)
    # where a training row is asked again, its own posterior answers
    again = av.predict(model, trees["ep"], X.to_numpy()[:4])
    f = trees["ep"].posterior["f"].values[..., :4]
    p = (1 + np.sin(np.pi / 2 * np.clip(f, -1, 1))) / 2
    np.testing.assert_allclose(again.sel({"class": "well"}), p.mean(axis=(0, 1)), atol=0.02)


def test_cavity_leave_one_out_is_that_of_fits_without_the_row(model, trees):
    for method in ("ep", "laplace"):
        rule = {"ep": av.EP, "laplace": av.Laplace}[method](hyper=av.Fixed(KAPPA))
        loo, errors = trees[method]["fit"]["loo_probability"].values, []
        for row in (0, 7, 14, 21, 28, 35):
            rest = np.arange(40) != row
            less = av.models.trigonometric_svm(X[rest], T[rest])
            tree = av.fit(less, rule, draws=4, chains=2, **QUIET)
            p = av.predict(less, tree, X.to_numpy()[[row]]).sel({"class": T[row]}).item()
            errors.append(abs(loo[row] - p))
        assert np.mean(errors) < {"ep": 0.015, "laplace": 0.03}[method]  # free, not exact
        assert max(errors) < 0.08
    with np.errstate(all="raise"):
        table = av.compare(
            {"ep": trees["ep"], "slices": trees["slices"]}, reference="slices", detail=True
        )
    cavity = trees["ep"]["fit"]["log_loo_probability"].values.sum()
    assert table.loc["ep", "elpd_loo"] == pytest.approx(cavity)
    assert np.isnan(table.loc["slices", "elpd_loo"])  # importance sampling would be wrong here


def test_ep_evidence_on_small_problems():
    for kappa_0, allowed in ((0.5, 0.05), (2.0, 0.05), (30.0, 0.2)):
        rows = [evidence(seed, rows=5, kappa_0=kappa_0, draws=20_000) for seed in range(10)]
        ep, laplace, noise = (
            max(abs(row[name]) for row in rows) for name in ("ep", "laplace", "monte_carlo_error")
        )
        assert ep < allowed + 3 * noise
        assert laplace > 3 * ep


# --- evidence, relevance ----------------------------------------------------------------------


def test_evidence_keeps_its_optima_and_ranks_the_features(model, searched):
    optima = searched["optima"].dataset
    assert float(optima["log_evidence"][0]) == pytest.approx(float(searched["fit"]["log_evidence"]))
    assert (np.diff(optima["log_evidence"]) <= 0).all()
    assert optima["found"].sum() == 4 and optima["weight"].sum() == pytest.approx(1.0)
    table = av.relevance(searched)
    assert list(table.columns) == ["kappa", "relevance", "sd", "rank"]
    assert table.loc["noise", "rank"] == 3 and table["relevance"].sum() == pytest.approx(1.0)
    np.testing.assert_allclose(table["relevance"], optima["expected_relevance"])
    assert "maximising the evidence" in searched.attrs["caption"]
    rows = av.relevance(searched, of="weights")
    assert len(rows) == 40
    fixed = av.fit(model, av.Laplace(hyper=av.Fixed(searched)), **QUIET)
    assert float(fixed["fit"]["log_evidence"]) == pytest.approx(
        float(searched["fit"]["log_evidence"]), abs=1e-9
    )
    assert av.relevance(fixed)["sd"].eq(0).all()


def test_the_prior_is_seen_when_asked(model, searched):
    tree = av.fit(model, av.Laplace(hyper=av.Evidence(with_prior=True, start=[{}])), **QUIET)
    assert float(tree["fit"]["log_evidence"]) < float(searched["fit"]["log_evidence"])
    assert tree["theta"]["kappa_a"].min() > searched["theta"]["kappa_a"].min()


def test_starts_are_taken_and_refused(model):
    given = [{"kappa_0": 2.0}, {"kappa_a": 0.3}, ("random", 2, 5)]
    tree = av.fit(model, av.Laplace(hyper=av.Evidence(start=given)), draws=4, **QUIET)
    assert tree["optima"]["found"].sum() == 4
    for start, word in (("empty", "('random', k)"), ({"alpha": 1.0}, "no free hyperparameter")):
        with pytest.raises(
            av.errors.InputError, match=word.replace("(", r"\(").replace(")", r"\)")
        ):
            av.fit(model, av.Laplace(hyper=av.Evidence(start=start)), **QUIET)


def test_a_search_cut_short_says_so(model):
    with pytest.warns(av.errors.ConvergenceWarning, match="search stopped after"):
        hyper = av.Evidence(max_steps=3, start=[{}])
        tree = av.fit(model, av.Laplace(hyper=hyper), draws=4, **QUIET)
    assert not tree.attrs["converged"]


def test_given_parameters_stay_where_they_are():
    kernel = av.ARDLinear(kappa_b=2.0)
    model = av.models.trigonometric_svm(X, T, kernel=kernel)
    tree = av.fit(model, av.EP(), draws=4, **QUIET)
    assert float(tree["theta"]["kappa_b"]) == 2.0 and "kappa_b" not in tree["optima"]
    assert av.predict(model, tree, X_NEW).shape == (6, 2)
    all_given = av.models.trigonometric_svm(X, T, kernel=av.ARDGaussian(1.0, 0.2, 1.0))
    tree = av.fit(all_given, "laplace", draws=4, **QUIET)
    assert tree.attrs["hyper"] == "fixed" and "optima" not in tree.children
    assert av.relevance(tree)["relevance"].sum() == pytest.approx(1.0)


def test_what_cannot_be_done_is_refused_with_a_way_out(model):
    with pytest.raises(av.errors.UnsupportedPair, match="neither Gaussian nor probit"):
        av.fit(model, "exact", **QUIET)
    with pytest.raises(av.errors.UnsupportedPair, match="Fixed"):
        ard = av.models.ard_classification(X.to_numpy(), T)
        av.fit(ard, "elliptical_slice", **QUIET)
    with pytest.raises(av.errors.UnsupportedPair, match="Predictive"):
        av.fit(model, av.EP(hyper=av.Predictive()), **QUIET)
    with pytest.raises(av.errors.InputError, match="kernel must be a covariance"):
        av.models.trigonometric_svm(X, T, kernel=av.RBF(width=1.0))


def test_other_data_on_the_same_graph(model):
    swapped = {"X": X.to_numpy()[::-1].copy(), "t_observed": (T == "well").astype(int)[::-1].copy()}
    rule = av.EP(hyper=av.Fixed(KAPPA))
    [one, two] = av.fit(model, rule, data=[{}, swapped], draws=4, **QUIET)
    assert float(one["fit"]["log_evidence"]) == pytest.approx(float(two["fit"]["log_evidence"]))
    np.testing.assert_allclose(
        av.predict(model, one, X_NEW), av.predict(model, two, X_NEW), atol=1e-7
    )


def test_slices_fit_other_models_too():
    ard = av.models.ard_classification(X.to_numpy(), T, alpha=[1.0] * 4)
    slices = av.fit(ard, av.EllipticalSlice(), **QUIET)
    exact = av.fit(ard, "exact", **QUIET)
    draws, truth = (tree.posterior["w"].values for tree in (slices, exact))
    error = np.hypot(
        draws.std(axis=(0, 1)) / np.sqrt(ess(draws)), truth.std(axis=(0, 1)) / 4000**0.5
    )
    assert (np.abs(draws.mean(axis=(0, 1)) - truth.mean(axis=(0, 1))) < 4 * error).all()


# --- samplers of the whole graph: they compile for a while ------------------------------------


@pytest.mark.validate
@pytest.mark.filterwarnings("ignore::ardvark.errors.ConvergenceWarning")
def test_nuts_at_given_parameters_agrees_with_the_slices(model, trees):
    nuts = av.fit(model, av.NUTS(hyper=av.Fixed(KAPPA), tune=500), draws=500, **QUIET)
    draws, truth = (tree.posterior["f"].values for tree in (nuts, trees["slices"]))
    error = np.hypot(*(d.std(axis=(0, 1)) / np.sqrt(ess(d)) for d in (draws, truth)))
    assert (np.abs(draws.mean(axis=(0, 1)) - truth.mean(axis=(0, 1))) < 5 * error).all()


@pytest.mark.validate
@pytest.mark.filterwarnings("ignore::ardvark.errors.ConvergenceWarning")
def test_nuts_starts_where_every_jittered_start_is_impossible():
    rng = np.random.default_rng(62)
    many = rng.normal(size=(200, 2))
    t = (many[:, 0] + 0.5 * rng.normal(size=200) > 0).astype(int)
    kernel = av.ARDGaussian(20.0, 0.5, 1.0)
    tree = av.fit(
        av.models.trigonometric_svm(many, t, kernel=kernel),
        av.NUTS(tune=100),
        draws=20,
        chains=2,
        **QUIET,
    )
    assert np.isfinite(tree["log_likelihood"]["t"]).all()
    assert tree.posterior["f"].shape == (2, 20, 200) and "white" not in tree.posterior
