"""Hyperparameters integrated out of graphs: against quadrature, long NUTS, and by what is said."""

import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from scipy import stats

import ardvark as av
from ardvark.diagnostics.compare.psis import khat_and_error
from ardvark.diagnostics.plots.hyperparameters import marginals
from ardvark.errors import InputError
from ardvark.inference.approximate import Estimate, accuracy

sys.path.insert(0, str(Path(__file__).parents[2] / "references"))
from integrated import BUILDERS, STORED

REFERENCES = json.loads(STORED.read_text())
QUIET = {"random_seed": 1, "progressbar": False}
EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def flat(tree, name):
    values = tree["posterior"][name].values
    return values.reshape(-1, *values.shape[2:])


def check_moments(draws, mean, sd, effective, within=0.0):
    """Means within so many sds, and sds within twice that share, beside 4 Monte Carlo errors."""
    noise = 4.0 / np.sqrt(effective)
    assert np.abs((draws.mean(axis=0) - mean) / sd).max() < within + noise
    assert np.abs(np.log(draws.std(axis=0) / sd)).max() < 2 * within + noise


# One hyperparameter: eight schools by quadrature --------------------------------------------------


def eight_schools(prior=pm.HalfCauchy):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 5.0)
        tau = prior("tau", 5.0) if prior is pm.HalfCauchy else prior("tau")
        z = pm.Normal("z", 0.0, 1.0, shape=8)
        theta = pm.Deterministic("eta", mu + tau * z)
        pm.Normal("y", theta, pm.Data("error", ERROR), observed=pm.Data("effect", EFFECT))
    return model


def eight_schools_exactly():
    """Moments (mean, sd) of mu, tau and the first school, and the log evidence."""
    u = np.linspace(-14.0, 9.0, 20001)
    tau = np.exp(u)
    variance = ERROR**2 + tau[:, None] ** 2
    precision = 1 / 25 + (1 / variance).sum(axis=1)
    mu = (EFFECT / variance).sum(axis=1) / precision
    log_p = stats.norm.logpdf(EFFECT, 0.0, np.sqrt(variance)).sum(axis=1)
    log_p += -0.5 * np.log(25 * precision) + 0.5 * mu**2 * precision
    log_p += stats.halfcauchy.logpdf(tau, scale=5.0) + u
    evidence = np.log(np.trapezoid(np.exp(log_p - log_p.max()), u)) + log_p.max()
    weight = np.exp(log_p - evidence) * (u[1] - u[0])
    pull = tau**2 / (tau**2 + ERROR[0] ** 2)
    first = mu + pull * (EFFECT[0] - mu)
    spread = ERROR[0] ** 2 * pull + (1 - pull) ** 2 / precision

    def moments(mean, inner):
        centre = weight @ mean
        return centre, np.sqrt(weight @ (inner + mean**2) - centre**2)

    return moments(mu, 1 / precision), moments(tau, 0.0), moments(first, spread), evidence


@pytest.fixture(scope="module")
def schools():
    model = eight_schools()
    return model, av.fit(model, "ep", **QUIET)


def test_eight_schools_are_those_of_quadrature(schools):
    """They were mu 7.686 +- 0.000 and tau 0.005, converged: a scale that had gone to nothing."""
    _, tree = schools
    mu, tau, first, evidence = eight_schools_exactly()
    assert mu == pytest.approx((4.40, 3.32), abs=0.01) and tau[0] == pytest.approx(3.60, abs=0.01)
    check_moments(flat(tree, "mu"), *mu, 4000)
    # Stratified points, not random ones: the draws of tau have next to no Monte Carlo error.
    assert flat(tree, "tau").mean() == pytest.approx(tau[0], abs=0.02 * tau[1])
    assert flat(tree, "tau").std() == pytest.approx(tau[1], rel=0.03)
    school = flat(tree, "mu") + flat(tree, "tau") * flat(tree, "z")[:, 0]
    check_moments(school, *first, 4000)
    fit = tree["fit"]
    assert float(fit.log_evidence) == pytest.approx(evidence, abs=0.01)
    assert abs(float(fit.log_evidence) - evidence) < 3 * float(fit.log_evidence_node_error) + 1e-3


def test_the_tree_says_what_was_done(schools):
    _, tree = schools
    assert tree.attrs["hyper"] == "integrated" and tree.attrs["converged"]
    assert "integrated out" in tree.attrs["caption"] and tree.attrs["problems"] == ""
    assert tree.attrs["k_hat"] == -np.inf  # the likelihood is Gaussian: nothing is approximated
    assert "held" not in tree["posterior"]["tau"].attrs
    fit = tree["fit"].dataset
    assert fit.node_weight.sum() == pytest.approx(1.0)
    at = tree["theta_nodes"].tau
    assert fit.sizes["node"] == at.size == 128
    np.testing.assert_allclose(np.log(at), fit.node_phi.sel(unconstrained="tau"), rtol=1e-12)
    ratio = tree["sample_stats"].lp - tree["sample_stats"].log_approximation
    np.testing.assert_allclose(ratio, fit.log_evidence, atol=1e-6)


def named(name, dim="school"):
    with pm.Model(coords={dim: ["d", "c", "b", "a"]}) as model:
        scale = pm.HalfNormal(name, 1.0, dims=dim)
        centre = pm.Normal("centre", 0.0, 1.0)
        effect = pm.Normal("effect", 0.0, scale, dims=dim)
        pm.Normal("y", centre + effect, 0.5, observed=[0.3, -1.2, 2.4, 0.8])
    return model


HYPER = [
    av.Evidence(with_prior="unconstrained"),
    av.Integrated(points=32),
]  # few: only names differ


@cache
def plain(hyper):
    return av.fit(named("scale"), av.Laplace(hyper=hyper), **QUIET)


@pytest.mark.parametrize("hyper", HYPER)
@pytest.mark.parametrize("name", ["phi", "weight", "log_evidence", "iterations", "theta"])
def test_a_hyperparameter_may_be_called_like_something_in_the_tree(name, hyper):
    """Of `weight` xarray made an error after the fit, `phi` hid the nodes."""
    tree, usual = av.fit(named(name), av.Laplace(hyper=hyper), **QUIET), plain(hyper)
    for values, expected in zip(tree["fit"].values(), usual["fit"].values(), strict=True):
        np.testing.assert_array_equal(values, expected)
    for group in {"theta", "theta_nodes"} & set(tree.children):
        np.testing.assert_array_equal(tree[group][name], usual[group]["scale"])
    held = av.fit(named(name), av.Laplace(hyper=av.Fixed(tree)), **QUIET)
    np.testing.assert_array_equal(held["theta"][name], tree["theta"][name])
    for one, other in zip(marginals(tree).values(), marginals(usual).values(), strict=True):
        np.testing.assert_array_equal(one.values, other.values)


@pytest.mark.parametrize("hyper", HYPER)
@pytest.mark.parametrize("dim", ["weight", "rows", "row", "unconstrained", "iteration"])
def test_a_dim_may_be_called_like_one_of_the_tree(dim, hyper):
    """Labels of the graph's `weight` were aligned with the fit's: NaN in what was kept."""
    tree, usual = av.fit(named("scale", dim), av.Laplace(hyper=hyper), **QUIET), plain(hyper)
    np.testing.assert_array_equal(tree["theta"].scale, usual["theta"].scale)
    assert tree["fit"].sizes == usual["fit"].sizes
    for name, values in usual["fit"].data_vars.items():
        np.testing.assert_array_equal(tree["fit"][name], values, err_msg=str(name))


def test_a_dim_of_hyperparameters_called_node_is_refused_before_the_fit():
    """The tree has the points of the integration along `node`."""
    with pytest.raises(InputError, match=r"'scale' has a dim 'node'.*another name"):
        av.fit(named("scale", "node"), av.Laplace(hyper=av.Integrated()), **QUIET)


def test_lp_is_the_density_of_the_graph(schools):
    model, tree = schools
    posterior = tree["posterior"].isel(chain=0, draw=3)
    tau = float(posterior.tau)
    point = {"mu": posterior.mu.values, "tau_log__": np.log(tau), "z": posterior.z.values}
    with pytensor.config.change_flags(cxx=""):
        expected = model.compile_logp(mode="FAST_COMPILE")(point) - np.log(tau)  # natural scale
    found = float(tree["sample_stats"].lp.isel(chain=0, draw=3))
    assert found == pytest.approx(float(expected), abs=1e-4)  # PyTensor's float32 constants


def test_same_seed_same_draws_and_other_data(schools):
    model, tree = schools
    again, other = av.fit(model, "ep", data=[{"effect": EFFECT}, {"effect": 3.0 * EFFECT}], **QUIET)
    np.testing.assert_array_equal(again["posterior"].tau.values, tree["posterior"].tau.values)
    assert flat(other, "tau").mean() > 2 * flat(tree, "tau").mean()


def test_a_fixed_value_is_the_mode(schools):
    model, tree = schools
    held = av.fit(model, av.Laplace(hyper=av.Fixed(tree)), **QUIET)
    assert held.attrs["hyper"] == "fixed" and float(held["theta"].tau) == float(tree["theta"].tau)


def test_predictions_and_pages_take_the_tree(schools):
    model, tree = schools
    predicted = av.predict(model, tree, {"error": ERROR})
    sd = predicted.sel(statistic="sd").values
    assert (sd > ERROR).all() and (sd < np.hypot(ERROR, 20.0)).all()
    table = av.summary(tree)
    assert "tau" in table.index and "integrated out" in str(av.show(tree))


def test_the_tree_can_be_stored(schools, tmp_path):
    _, tree = schools
    tree.to_zarr(tmp_path / "schools.zarr", consolidated=False)
    again = xr.open_datatree(tmp_path / "schools.zarr", engine="zarr", consolidated=False)
    assert again.attrs["hyper"] == "integrated" and again.attrs["k_hat"] == tree.attrs["k_hat"]
    np.testing.assert_array_equal(again["fit"].node_weight, tree["fit"].node_weight)


def test_an_improper_prior_has_a_posterior_and_no_evidence():
    tree = av.fit(eight_schools(pm.HalfFlat), "laplace", **QUIET)
    assert tree.attrs["hyper"] == "integrated" and tree.attrs["converged"]
    assert np.isnan(tree["fit"].log_evidence) and "improper" in tree.attrs["caption"]
    u = np.linspace(-14.0, 9.0, 20001)
    variance = ERROR**2 + np.exp(2 * u)[:, None]
    precision = 1 / 25 + (1 / variance).sum(axis=1)
    pull = (EFFECT / variance).sum(axis=1)
    log_p = -0.5 * np.log(variance).sum(axis=1) - 0.5 * (EFFECT**2 / variance).sum(axis=1)
    log_p += -0.5 * np.log(precision) + 0.5 * pull**2 / precision + u
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    assert np.log(flat(tree, "tau")).mean() == pytest.approx(weight @ u, abs=0.03)


# More hyperparameters -----------------------------------------------------------------------------


def test_two_hyperparameters_and_the_evidence_of_both():
    """A scale and a noise: against a fine grid of the exact Gaussian evidence."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(25, 4))
    t = X @ np.array([0.8, -0.6, 0.3, 0.0]) + 0.5 * rng.normal(size=25)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        sigma = pm.Gamma("sigma", 2.0, 2.0)
        z = pm.Normal("z", 0.0, 1.0, shape=4)
        eta = pm.Deterministic("eta", scale * (X @ z))
        pm.Normal("t", eta, sigma, observed=t)
    tree = av.fit(model, "laplace", **QUIET)
    a, b = np.meshgrid(np.linspace(-5.0, 2.5, 151), np.linspace(-2.0, 1.0, 151), indexing="ij")
    values, vectors = np.linalg.eigh(X @ X.T)
    turned = (vectors.T @ t) ** 2
    variance = np.exp(2 * a)[..., None] * np.maximum(values, 0.0) + np.exp(2 * b)[..., None]
    log_p = -0.5 * (np.log(2 * np.pi * variance) + turned / variance).sum(axis=-1)
    log_p += stats.halfnorm.logpdf(np.exp(a)) + a
    log_p += stats.gamma.logpdf(np.exp(b), 2.0, scale=0.5) + b
    cell = (a[1, 0] - a[0, 0]) * (b[0, 1] - b[0, 0])
    evidence = np.log(np.exp(log_p - log_p.max()).sum() * cell) + log_p.max()
    weight = np.exp(log_p - evidence) * cell
    for name, u in (("scale", a), ("sigma", b)):
        mean, found = (weight * u).sum(), np.log(flat(tree, name))
        sd = np.sqrt((weight * (u - mean) ** 2).sum())
        assert found.mean() == pytest.approx(mean, abs=0.05 * sd)
        assert found.std() == pytest.approx(sd, rel=0.05)
    assert float(tree["fit"].log_evidence) == pytest.approx(evidence, abs=0.02)


def test_five_precisions_that_are_independent():
    """Orthogonal inputs and a known noise: each precision has a posterior of its own."""
    rng = np.random.default_rng(7)
    X = np.linalg.qr(rng.normal(size=(20, 5)))[0] * np.sqrt(20.0)
    t = X @ np.array([1.0, -0.6, 0.3, 0.1, 0.0]) + 0.7 * rng.normal(size=20)
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0, shape=5)
        w = pm.Normal("w", 0.0, tau=alpha, shape=5)
        eta = pm.Deterministic("eta", X @ w)
        pm.Normal("t", eta, 0.7, observed=t)
    tree = av.fit(model, "laplace", **QUIET)
    assert tree.attrs["hyper"] == "integrated" and tree.attrs["converged"]
    u = np.linspace(-8.0, 4.0, 4001)
    estimate = X.T @ t / 20.0
    found = np.log(flat(tree, "alpha"))
    total = stats.norm.logpdf(t, 0.0, 0.7).sum()
    for j in range(5):
        sd = np.sqrt(np.exp(-u) + 0.49 / 20.0)
        log_p = stats.norm.logpdf(estimate[j], 0.0, sd) - stats.norm.logpdf(
            estimate[j], 0.0, np.sqrt(0.49 / 20.0)
        )
        log_p += stats.gamma.logpdf(np.exp(u), 2.0) + u
        evidence = np.log(np.trapezoid(np.exp(log_p), u))
        weight = np.exp(log_p - evidence) * (u[1] - u[0])
        mean = weight @ u
        spread = np.sqrt(weight @ (u - mean) ** 2)
        assert found[:, j].mean() == pytest.approx(mean, abs=0.1 * spread)
        assert found[:, j].std() == pytest.approx(spread, rel=0.1)
        total += evidence
    error = float(tree["fit"].log_evidence_node_error)
    assert abs(float(tree["fit"].log_evidence) - total) < 4 * error and error < 0.06


# Against long NUTS --------------------------------------------------------------------------------


def check_against_nuts(name, tree, within):
    for variable, truth in REFERENCES[name].items():
        draws = flat(tree, variable).reshape(4000, -1)
        check_moments(draws, np.array(truth["mean"]), np.array(truth["sd"]), 4000, within)


def test_a_random_intercept_by_ep_is_that_of_nuts():
    model = BUILDERS["random_intercept"]()
    tree = av.fit(model, "ep", **QUIET)
    check_against_nuts("random_intercept", tree, 0.03)
    assert tree.attrs["converged"] and 0.3 < tree.attrs["k_hat"] < 0.75
    # The control: Laplace's means are known to be off by more on such data.
    with pytest.warns(av.errors.AccuracyWarning, match="mean of slope is off by 0.3"):
        laplace = av.fit(model, "laplace", **QUIET)
    truth = REFERENCES["random_intercept"]["slope"]
    off = (truth["mean"][0] - flat(laplace, "slope").mean()) / truth["sd"][0]
    assert off > 0.2
    assert float(laplace["fit"].mean_shift) == pytest.approx(off, abs=0.05)


def test_laplace_corrected_at_each_node_is_that_of_nuts():
    model = BUILDERS["random_intercept"]()
    tree = av.fit(model, av.Laplace(corrected=True), **QUIET)
    check_against_nuts("random_intercept", tree, 0.06)
    assert not tree.attrs["caution"] and tree["fit"].node_log_evidence_correction.values.any()


def test_ordered_cut_points_move_and_are_those_of_nuts():
    """They stayed at their initval, labelled as set by maximising the evidence."""
    model = BUILDERS["ordinal"]()
    tree = av.fit(model, "laplace", **QUIET)
    assert tree.attrs["converged"] and tree["fit"].sizes["unconstrained"] == 3
    assert (np.diff(flat(tree, "cuts"), axis=1) > 0).all()
    check_against_nuts("ordinal", tree, 0.1)
    with pytest.warns(av.errors.AccuracyWarning, match=r"off by 0\.1"):
        point = av.fit(model, av.Laplace(hyper=av.Evidence()), **QUIET)
    cuts = point["theta"].cuts.values
    assert np.abs(cuts - [-1.0, 0.0, 1.0]).min() > 0.1 and point.attrs["converged"]


def test_a_simplex_of_shares_is_that_of_nuts():
    """A Dirichlet has one number less on the unconstrained scale: it could not be fitted at all."""
    tree = av.fit(BUILDERS["shared_variance"](), "laplace", **QUIET)
    assert tree.attrs["converged"] and tree["fit"].sizes["unconstrained"] == 4
    np.testing.assert_allclose(flat(tree, "share").sum(axis=1), 1.0)
    check_against_nuts("shared_variance", tree, 0.1)


def test_draws_resampled_towards_the_posterior():
    model = BUILDERS["random_intercept"]()
    tree = av.fit(model, av.Laplace(hyper=av.Integrated(correct=True)), **QUIET)
    assert not tree.attrs["caution"]  # what was off has been mended
    assert "log_approximation" not in tree["sample_stats"] and "resampled" in tree.attrs["caption"]
    truth = REFERENCES["random_intercept"]["slope"]
    # A quarter of 16000 weighted draws: an effective size of at least 1000.
    check_moments(flat(tree, "slope"), truth["mean"][0], truth["sd"][0], 1000)


def test_an_approximation_says_how_far_off_it_is():
    assert accuracy(Estimate(), np.nan) == "" and accuracy(Estimate(0.05, "w"), 0.5) == ""
    assert "mean of w is off by 0.23 sd" in accuracy(Estimate(0.23, "w"), 0.5)
    assert "0.85" in accuracy(Estimate(), 0.85)
    assert "0.85 ± 0.20 (within its error of 0.7)" in accuracy(Estimate(), 0.85, 0.2)
    assert "sd of w is off by 12%" in accuracy(Estimate(0.0, "w", 0.12, "w"), 0.5)
    assert "hyperparameter s is off by 0.30" in accuracy(
        Estimate(theta_shift=0.3, theta_of="s"), 0.5
    )
    assert accuracy(Estimate(0.23, "w", moved=True), 0.5) == ""  # a tenth of that is left
    assert "moved by 0.70 sd" in accuracy(Estimate(0.7, "w", moved=True), 0.5)
    rng = np.random.default_rng(2)
    X = rng.normal(size=(15, 6))
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 5.0, shape=6)
        eta = pm.Deterministic("eta", X @ w)
        pm.Bernoulli("t", logit_p=eta, observed=(X[:, 0] > 0).astype(int))
    with pytest.warns(av.errors.AccuracyWarning, match=r"mean of w\[0\] is off by .*k-hat"):
        tree = av.fit(model, "laplace", **QUIET)
    assert tree.attrs["k_hat"] > 0.7 and "NUTS" in tree.attrs["caution"]
    assert khat_and_error(tree) == (tree.attrs["k_hat"], tree.attrs["k_hat_se"])  # as `compare`


# Defaults, refusals, and ends that are none -------------------------------------------------------


def no_group_effect():
    """Groups whose means are equal: the evidence is largest where their scale is zero."""
    group = np.repeat(np.arange(6), 4)
    t = np.tile([-1.0, -0.3, 0.3, 1.0], 6)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1.0)
        z = pm.Normal("z", 0.0, 1.0, shape=6)
        eta = pm.Deterministic("eta", tau * z[group])
        pm.Normal("t", eta, 0.8, observed=t)
    return model


def test_a_collapsed_scale_is_named_and_integration_does_not_collapse():
    model = no_group_effect()
    with pytest.warns(av.errors.ConvergenceWarning, match="tau has no best value"):
        tree = av.fit(model, av.Laplace(hyper=av.Evidence()), **QUIET)
    assert not tree.attrs["converged"] and "norm" in tree.attrs["problems"]
    whole = av.fit(model, "laplace", **QUIET)
    u = np.linspace(-14.0, 3.0, 8001)
    variance = 0.64 / 4 + np.exp(2 * u)
    log_p = -0.5 * 6 * np.log(variance) - 0.5 * np.exp(2 * u) + u  # every group's mean is zero
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    mean = weight @ u
    sd = np.sqrt(weight @ (u - mean) ** 2)
    assert np.log(flat(whole, "tau")).mean() == pytest.approx(mean, abs=0.03 * sd)


def many():
    rng = np.random.default_rng(12)
    X = rng.normal(size=(30, 11))
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0, shape=11)
        z = pm.Normal("z", 0.0, 1.0, shape=11)
        eta = pm.Deterministic("eta", X @ (scale * z))
        pm.Normal("t", eta, 0.5, observed=X[:, 0] + 0.5 * rng.normal(size=30))
    return model


def test_many_hyperparameters_are_set_to_their_mode():
    tree = av.fit(many(), "laplace", **QUIET)
    assert tree.attrs["hyper"] == "mode" and tree.attrs["converged"]
    assert "mode" in tree.attrs["caption"] and tree["posterior"]["scale"].attrs["held"] == "mode"
    scale = tree["theta"].scale.values
    assert (scale > 0.2).all()  # on the natural scale the mode of a useless input's is zero
    asked = av.Laplace(hyper=av.Evidence(with_prior="unconstrained"))
    again = av.fit(many(), asked, **QUIET)
    np.testing.assert_allclose(again["theta"].scale.values, scale, rtol=1e-6)


def test_the_zoo_keeps_its_evidence():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20, 2))
    t = X[:, 0] + 0.5 * rng.normal(size=20)
    tree = av.fit(av.models.ard_regression(X, t), "laplace", draws=5, **QUIET)
    assert tree.attrs["hyper"] == "evidence"


def test_what_cannot_be_integrated_is_refused():
    with pytest.raises(av.errors.InputError, match="points must be an integer >= 32"):
        av.Integrated(points=2)
    with pytest.raises(av.errors.InputError, match="with_prior"):
        av.Evidence(with_prior="natural")
    with pm.Model() as plain:
        w = pm.Normal("w", 0.0, 1.0, shape=2)
        eta = pm.Deterministic("eta", np.eye(2) @ w)
        pm.Normal("t", eta, 1.0, observed=np.zeros(2))
    with pytest.raises(av.errors.UnsupportedPair, match="nothing to integrate"):
        av.fit(plain, av.Laplace(hyper=av.Integrated()), **QUIET)
    with pm.Model() as discrete:
        k = pm.Poisson("k", 3.0)
        w = pm.Normal("w", 0.0, 1.0 + k, shape=2)
        eta = pm.Deterministic("eta", np.eye(2) @ w)
        pm.Normal("t", eta, 1.0, observed=np.zeros(2))
    with pytest.raises(av.errors.UnsupportedPair, match="discrete 'k'"):
        av.fit(discrete, "laplace", **QUIET)
