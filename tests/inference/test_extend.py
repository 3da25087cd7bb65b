"""Groups that ArviZ's plots ask for."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import ardvark as av
from ardvark.errors import UnsupportedPair
from ardvark.inference.extend import more_groups, standardised, top_of_prior

rng = np.random.default_rng(20261120)
X = rng.normal(size=(30, 2))
Y = X @ [1.0, 0.0] + rng.normal(size=30)


@pytest.fixture(scope="module")
def exact():
    model = av.models.ard_regression(X, Y, alpha=1.0, noise=1.0)
    return av.fit(model, "exact", draws=500, random_seed=1, extend=True)


def test_predictive_draws_have_the_moments_of_the_model(exact):
    """Noise 1 about eta, and under the prior 1 + |x|² + 1 for a bias and two weights of sd 1."""
    posterior = exact["posterior"].to_dataset()
    eta = posterior["bias"] + posterior["w"].dot(xr.DataArray(X, dims=("row", "feature")))
    z = (exact["posterior_predictive"]["t"] - eta).values
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert abs(z.var() - 1) < 4 * np.sqrt(2 / z.size)
    before = exact["prior_predictive"]["t"].stack(s=("chain", "draw")).transpose("row", "s").values
    expected = 2 + np.square(X).sum(axis=1)
    ratio = before.var(axis=1) / expected
    assert np.abs(ratio - 1).max() < 5 * np.sqrt(2 / before.shape[1])


def test_log_prior_is_that_of_the_weights(exact):
    w = exact["posterior"]["w"].values
    found = exact["log_prior"]["w"].values
    np.testing.assert_allclose(found, -0.5 * w**2 - 0.5 * np.log(2 * np.pi), rtol=1e-12)


def test_arviz_takes_the_tree(exact):
    table = az.psense_summary(exact, var_names=["w"])
    assert table[["prior", "likelihood"]].notna().all(axis=None)
    assert np.isfinite(az.loo_pit(exact)["t"].values).all()
    group = exact["posterior"].attrs
    assert (group["inference_library"], "created_at" in exact.attrs) == ("ardvark", True)


def test_held_hyperparameters_are_no_prior_and_pruned_weights_count_as_nothing():
    model = av.models.ard_regression(X, Y)
    tree = av.fit(model, av.Laplace(hyper=av.Evidence()), draws=50, random_seed=1, extend=True)
    assert not tree["fit"]["active"].values.all()
    assert set(tree["log_prior"].data_vars) <= {"bias", "w"}
    assert all(np.isfinite(v.values).all() for v in tree["log_prior"].data_vars.values())


def test_draws_that_are_missing_are_refused(exact):
    """PyMC would take them from the prior."""
    model = av.models.ard_regression(X, Y, alpha=1.0, noise=1.0)
    with pytest.raises(UnsupportedPair, match="no draws of 'w'"):
        more_groups(model, exact["posterior"].to_dataset().drop_vars("w"), 1)


def test_an_input_that_is_out_of_the_subset_has_no_prior_density():
    model = av.models.subset_regression(X, Y, slab=1.0, noise=1.0)
    tree = av.fit(model, "reversible_jump", draws=100, random_seed=1, extend=True)
    included = tree["posterior"]["included"].values != 0
    log_prior = tree["log_prior"]["w"].values
    assert (log_prior[~included] == 0).all() and not included.all()
    w = tree["posterior"]["w"].values[included]
    np.testing.assert_allclose(log_prior[included], -0.5 * w**2 - 0.5 * np.log(2 * np.pi))


def hierarchy(centred):
    """Eight groups under a common scale, in either form, and a slope of prior N(0, 1)."""
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        slope = pm.Normal("slope")
        sigma = pm.HalfNormal("sigma", 1)
        if centred:
            theta = pm.Normal("theta", 0, tau, shape=8)
        else:
            theta = pm.Deterministic("theta", tau * pm.Normal("z", shape=8))
        pm.Normal("y", theta + slope * np.arange(8.0), sigma, observed=np.zeros(8))
    return model


def test_standardised_effects_are_no_top_of_the_prior():
    """Both forms are one model, so the same part of the prior is scaled; a slope is no effect."""
    assert standardised(hierarchy(False)) == {"z": ["tau"]}
    assert standardised(hierarchy(True)) == {}
    assert top_of_prior(hierarchy(True)) == ["tau", "slope", "sigma"]
    assert top_of_prior(hierarchy(False)) == ["tau", "slope", "sigma"]
    assert top_of_prior(hierarchy(False), ["z"]) == ["z"]  # at a given scale it is the top
