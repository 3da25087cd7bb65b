"""`fit`: the tree's schema, exactness in the Gaussian limit, refusals, seeds, compiled "
"functions kept."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import ardvark as av
from ardvark.diagnostics.calibration.scores import calibration_curve
from ardvark.inference.methods import METHODS
from ardvark.inference.pymc_models import compile as compiling

RNG = np.random.default_rng(11)
X = RNG.normal(size=(40, 4))
W = np.array([1.5, -1.0, 0.0, 0.0])
LABEL = (X @ W + 1.5 * RNG.normal(size=40) > 0).astype(int)  # not separable
TARGET = X @ W + 0.3 * RNG.normal(size=40)
ALPHA = np.array([2.0, 0.5, 3.0, 1.0, 0.7])  # product is not 1: a lost determinant would show


def exact_regression(X, t, alpha, noise):
    """Posterior mean, covariance and log evidence of linear regression, from the definition."""
    A = np.column_stack([np.ones(len(X)), X])
    V = np.linalg.inv(np.diag(alpha) + A.T @ A / noise**2)
    m = V @ A.T @ t / noise**2
    C = noise**2 * np.eye(len(X)) + A @ np.diag(1 / alpha) @ A.T
    evidence = -0.5 * (
        len(t) * np.log(2 * np.pi) + np.linalg.slogdet(C)[1] + t @ np.linalg.solve(C, t)
    )
    return m, V, evidence


@pytest.mark.parametrize("space", ["weights", "functions", "auto"])
@pytest.mark.parametrize("d", [4, 60], ids=["d < N", "d > N"])
def test_laplace_is_exact_for_gaussian_noise(space, d):
    rng = np.random.default_rng(3)
    inputs, alpha = rng.normal(size=(20, d)), rng.uniform(0.3, 3.0, d + 1)
    t = inputs[:, 0] + 0.2 * rng.normal(size=20)
    model = av.models.ard_regression(inputs, t, alpha=alpha, noise=0.3)
    tree = av.fit(model, av.Laplace(space=space), draws=10, random_seed=0)
    mean, covariance, evidence = exact_regression(inputs, t, alpha, 0.3)
    np.testing.assert_allclose(tree["fit"].mean_vector, mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(tree["fit"].covariance_matrix, covariance, rtol=0, atol=1e-10)
    assert tree["fit"].log_evidence.item() == pytest.approx(evidence, abs=1e-10)


@pytest.fixture(scope="module")
def classification():
    return av.models.ard_classification(X, LABEL)


@pytest.fixture(scope="module")
def laplace(classification):
    return av.fit(classification, "laplace", draws=500, random_seed=5)


def test_the_tree_has_the_promised_groups_and_names(laplace):
    assert set(laplace.children) == {
        "posterior",
        "log_likelihood",
        "sample_stats",
        "theta",
        "fit",
        "selection_path",
        "observed_data",
        "constant_data",
    }
    posterior = laplace["posterior"]
    assert posterior.attrs["sampling_kind"] == "iid"
    assert dict(posterior.w.sizes) == {"chain": 4, "draw": 500, "feature": 4}
    assert list(posterior.feature.values) == ["x0", "x1", "x2", "x3"]
    assert laplace["log_likelihood"].t.dims == ("chain", "draw", "row")
    fit = laplace["fit"]
    assert list(fit.weight.values) == ["bias", "w[x0]", "w[x1]", "w[x2]", "w[x3]"]
    assert list(fit.rows.values) == list(fit.weight.values[fit.active.values])
    assert np.isinf(laplace["theta"].alpha.values[~fit.active.values[1:]]).all()
    for name in ("method", "settings", "random_seed", "versions", "seconds", "converged"):
        assert name in laplace.attrs
    assert json.loads(laplace.attrs["versions"])["pymc"] == pm.__version__
    assert laplace.attrs["hyper"] == "evidence" and "type-II" in laplace.attrs["caption"]


def test_a_tree_survives_its_store(laplace, tmp_path):
    laplace.to_zarr(tmp_path / "tree.zarr", consolidated=False)
    back = xr.open_datatree(tmp_path / "tree.zarr", engine="zarr", consolidated=False)
    assert back.attrs == laplace.attrs
    for name in laplace.children:
        xr.testing.assert_equal(back[name].to_dataset().load(), laplace[name].to_dataset())


def test_fixed_hyperparameters_are_in_the_posterior_too(classification, laplace):
    alpha = laplace["posterior"].alpha
    assert (alpha == laplace["theta"].alpha).all()
    again = av.fit(classification, av.Laplace(hyper=av.Fixed(laplace)), draws=10, random_seed=0)
    assert again["fit"].log_evidence.item() == pytest.approx(
        laplace["fit"].log_evidence.item(), abs=1e-9
    )
    assert again.attrs["hyper"] == "fixed"


def test_draws_have_the_moments_of_the_fit(laplace):
    fit, w = laplace["fit"], laplace["posterior"]
    names = [n for n in fit.rows.values if n != "bias"]
    draws = np.stack([w.w.sel(feature=n[2:-1]).values.ravel() for n in names], axis=1)
    chosen = fit.sel(rows=names, columns=names)
    sd = np.sqrt(np.diag(chosen.covariance_matrix))
    error = (draws.mean(axis=0) - chosen.mean_vector.values) / (sd / np.sqrt(len(draws)))
    assert np.abs(error).max() < 4  # Monte Carlo errors
    spread = (draws.std(axis=0) / sd - 1) * np.sqrt(2 * len(draws))
    assert np.abs(spread).max() < 4


def test_log_likelihood_is_the_models_own(classification, laplace):
    posterior = laplace["posterior"].to_dataset().isel(draw=slice(0, 4))
    with compiling.quick():
        own = pm.compute_log_likelihood(
            xr.DataTree.from_dict({"posterior": posterior}),
            model=classification,
            extend_inferencedata=False,
            progressbar=False,
        )
    ours = laplace["log_likelihood"].t.isel(draw=slice(0, 4))
    np.testing.assert_allclose(ours, own.t, rtol=1e-10)


def test_same_seed_same_tree_and_another_seed_another(classification, laplace):
    same = av.fit(classification, "laplace", draws=500, random_seed=5)
    xr.testing.assert_identical(same["posterior"].to_dataset(), laplace["posterior"].to_dataset())
    other = av.fit(classification, "laplace", draws=500, random_seed=6)
    assert not np.allclose(other["posterior"].w, laplace["posterior"].w)


def test_without_a_seed_one_is_drawn_and_recorded(classification):
    first = av.fit(classification, "laplace", draws=5)
    again = av.fit(classification, "laplace", draws=5, random_seed=first.attrs["random_seed"])
    np.testing.assert_array_equal(first["posterior"].w, again["posterior"].w)


@pytest.mark.parametrize("source", [np.random.default_rng, np.random.SeedSequence])
def test_numpys_sources_of_randomness_are_seeds(classification, laplace, source):
    """A Generator was refused, though PyMC takes it; what it gave stands in the tree."""
    first = av.fit(classification, "laplace", draws=5, random_seed=source(4))
    seed = first.attrs["random_seed"]
    assert isinstance(seed, int)
    again = av.fit(classification, "laplace", draws=5, random_seed=seed)
    assert first["posterior"].to_dataset().equals(again["posterior"].to_dataset())
    X = np.zeros((2, classification["X"].get_value().shape[1]))
    assert av.predict(classification, laplace, X, random_seed=source(4)).shape == (2, 2)
    curve = calibration_curve([0.2, 0.7, 0.9], [0, 1, 1], random_seed=source(4))
    assert np.array_equal(
        curve.lower, calibration_curve([0.2, 0.7, 0.9], [0, 1, 1], random_seed=seed).lower
    )


def test_a_second_fit_compiles_nothing(classification, laplace, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("compiled again")

    monkeypatch.setattr("ardvark.inference.graph.compiled.compile_graph", refuse)
    monkeypatch.setattr("ardvark.inference.graph.adjoint.compile_graph", refuse)
    monkeypatch.setattr("pytensor.function", refuse)
    av.fit(classification, "laplace", draws=5, random_seed=0)
    fresh = av.models.ard_classification(X, LABEL)  # the control: a new graph must compile
    with pytest.raises(AssertionError, match="compiled again"):
        av.fit(fresh, "laplace", draws=5, random_seed=0)


def test_many_data_sets_on_one_graph_equal_fits_of_their_own():
    model = av.models.ard_classification(X, LABEL, alpha=ALPHA)
    parts = [slice(0, 25), slice(10, 40)]
    sets = [{"X": X[rows], "t_observed": LABEL[rows]} for rows in parts]
    trees = av.fit(model, "laplace", draws=5, random_seed=0, data=sets)
    for tree, rows in zip(trees, parts, strict=True):
        own = av.fit(
            av.models.ard_classification(X[rows], LABEL[rows], alpha=ALPHA),
            "laplace",
            draws=5,
            random_seed=0,
        )
        assert tree["fit"].log_evidence.item() == pytest.approx(
            own["fit"].log_evidence.item(), abs=1e-10
        )
        assert tree["observed_data"].sizes["row"] == len(X[rows])
    assert model["X"].get_value().shape == X.shape and len(model.coords["row"]) == 40


def test_permuting_features_permutes_the_answer(laplace):
    order = [2, 0, 3, 1]
    other = av.fit(
        av.models.ard_classification(X[:, order], LABEL), "laplace", draws=5, random_seed=0
    )
    np.testing.assert_allclose(
        other["theta"].alpha, laplace["theta"].alpha.values[order], rtol=1e-4
    )
    np.testing.assert_allclose(
        other["fit"].log_evidence.item(), laplace["fit"].log_evidence.item(), atol=1e-6
    )


def test_flipping_a_column_flips_its_weight(classification, laplace):
    flipped = X * np.array([-1.0, 1.0, 1.0, 1.0])
    other = av.fit(av.models.ard_classification(flipped, LABEL), "laplace", draws=5, random_seed=0)
    signs = np.where(laplace["fit"].rows.values == "w[x0]", -1.0, 1.0)
    np.testing.assert_allclose(
        other["fit"].mean_vector, signs * laplace["fit"].mean_vector, atol=1e-6
    )


def test_weights_switched_off_stay_exact_zeros():
    alpha = np.array([1.0, 1.0, np.inf, 2.0, np.inf])
    tree = av.fit(
        av.models.ard_regression(X, TARGET, alpha=alpha, noise=0.3),
        "laplace",
        draws=20,
        random_seed=0,
    )
    w = tree["posterior"].w
    assert (w.sel(feature=["x1", "x3"]) == 0).all() and (w.sel(feature=["x0", "x2"]).std() > 0)


def test_more_weights_than_a_dense_covariance_holds(monkeypatch):
    rng = np.random.default_rng(8)
    wide = rng.normal(size=(15, 60))
    labels = (wide[:, 0] > 0).astype(int)
    model = av.models.ard_classification(wide, labels, alpha=np.full(61, 50.0))
    dense = av.fit(model, "laplace", draws=5, random_seed=0)
    monkeypatch.setattr("ardvark.inference.tree._LARGEST_COVARIANCE", 20)
    factored = av.fit(model, "laplace", draws=5, random_seed=0)
    fit = factored["fit"]
    assert "covariance_matrix" not in fit and fit.covariance_factor.shape == (61, 15)
    rebuilt = (
        np.diag(fit.covariance_diagonal)
        - fit.covariance_factor.values @ fit.covariance_factor.values.T
    )
    np.testing.assert_allclose(rebuilt, dense["fit"].covariance_matrix, atol=1e-14)
    new = rng.normal(size=(6, 60))
    np.testing.assert_allclose(
        av.predict(model, factored, new), av.predict(model, dense, new), atol=1e-12
    )


# Refusals
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "advi"}, r"method 'advi' is unknown; known: laplace, ep, vb, exact, nuts, smc"),
        ({"method": 3}, r"method must be a name or settings"),
        ({"draws": 0}, r"draws .* got 0"),
        ({"chains": -1}, r"chains .* got -1"),
        ({"random_seed": "a"}, r"random_seed"),
        ({"random_seed": -1}, r"random_seed"),
        ({"random_seed": 1.5}, r"random_seed"),
        (
            {"method": av.Laplace(hyper=av.Fixed({"alpha": np.ones(4)}))},
            r"Fixed\(values\) lacks alpha_bias",
        ),
        (
            {"method": av.Laplace(hyper=av.Fixed({"alpha": np.ones(3), "alpha_bias": 1.0}))},
            r"theta\['alpha'\] has shape \(3,\), the model's alpha has \(4,\)",
        ),
        (
            {
                "method": av.Laplace(
                    hyper=av.Fixed({"alpha": np.ones(4), "alpha_bias": 1.0, "beta": 1.0})
                )
            },
            r"'beta', which is no free hyperparameter",
        ),
        ({"method": av.Laplace(hyper=av.Fixed(7))}, r"takes a mapping or a tree"),
        ({"method": av.Laplace(hyper=av.Evidence(start={"beta": 1.0}))}, r"start has 'beta'"),
        ({"data": [{"Z": X}]}, r"no pm.Data named 'Z'; it has"),
    ],
)
def test_bad_settings_are_refused_by_name(classification, arguments, message):
    with pytest.raises(av.errors.InputError, match=message):
        av.fit(classification, **{"draws": 10, **arguments})


def test_what_is_no_model_is_refused():
    with pytest.raises(
        av.errors.InputError, match=r"model must be a pm.Model or a model of bambi, got ndarray"
    ):
        av.fit(X, "laplace")


@pytest.mark.parametrize("settings", [{"tolerance": 0}, {"max_rounds": 0}, {"max_steps": 2.5}])
def test_bad_settings_of_evidence(settings):
    with pytest.raises(av.errors.InputError, match=next(iter(settings))):
        av.Evidence(**settings)


def test_samplers_refuse_evidence(classification):
    with pytest.raises(
        av.errors.UnsupportedPair, match=r"nuts with hyper=Evidence\(\).*Fixed\(tree\)"
    ):
        av.fit(classification, av.NUTS(hyper=av.Evidence()))


def test_evidence_needs_something_to_optimise():
    model = av.models.ard_classification(X, LABEL, alpha=ALPHA)
    with pytest.raises(av.errors.UnsupportedPair, match="no free hyperparameter"):
        av.fit(model, av.Laplace(hyper=av.Evidence()))


def test_a_fit_that_stops_short_says_so(classification):
    with pytest.warns(av.errors.ConvergenceWarning, match="not converged"):
        tree = av.fit(
            classification, av.Laplace(hyper=av.Evidence(max_steps=1)), draws=10, random_seed=0
        )
    assert tree.attrs["converged"] == 0 and "not converged" in tree.attrs["problems"]


def test_every_method_has_settings_with_the_common_names():
    for entry in METHODS.values():
        names = {f.name for f in dataclasses.fields(entry.load(entry.settings))}
        assert {"hyper", "weights", "predictor"} <= names


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_the_laplace_path_imports_no_heavy_package(link):
    code = (
        "import numpy as np, sys\n"
        "sys.modules |= {'dask': None, 'sparse': None}  # xarray loads them where they are\n"
        "import ardvark as av\n"
        "X = np.random.default_rng(0).normal(size=(20, 2))\n"
        f"model = av.models.ard_classification(X, X[:, 0] > 0, link={link!r}, alpha=[1.0] * 3)\n"
        "av.fit(model, 'laplace', draws=5, random_seed=0)\n"
        "heavy = {'arviz', 'arviz_stats', 'arviz_plots', 'nutpie', 'matplotlib', 'sklearn'}\n"
        "heavy = (heavy | {'numba', 'scipy.optimize'}) & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
