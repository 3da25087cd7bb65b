"""References of large models, held against each other at sizes where all of them can be made."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import ardvark as av
from ardvark.inference.graph.read import read_model
from ardvark.studies.speed.large import build
from ardvark.studies.speed.truth import models, moments, one_way, walks


def test_the_density_of_the_walk_is_that_of_the_model():
    """Its own coordinates change the volume, which is given, and nothing else."""
    points, rng = 30, np.random.default_rng(1)
    t = models.observed_counts(points)
    weight, force = walks.sites_of_walk(t, 0.05)
    log_p = build("walk", points).compile_logp(jacobian=True)
    gaps = []
    for log_s in (-3.0, -2.8, -3.3):
        x = np.append(rng.normal(size=points), log_s)
        total, _, v, jacobian = walks.walk_density(x, t, weight, force)
        gaps.append(total - jacobian - log_p({"v": v, "s_log__": x[-1]}))
    assert np.ptp(gaps) < 1e-8


def test_the_gradient_of_the_walk_is_that_of_its_density():
    points, rng = 12, np.random.default_rng(2)
    t = models.observed_counts(points)
    sites = walks.sites_of_walk(t, 0.05)
    x = np.append(rng.normal(size=points), -2.9)
    own = walks.walk_density(x, t, *sites)[1]
    steps = 1e-5 * np.eye(points + 1)
    ends = [[walks.walk_density(x + s, t, *sites)[0] for s in (h, -h)] for h in steps]
    assert_allclose(own, [(up - down) / 2e-5 for up, down in ends], atol=1e-6)


def test_kalmans_smoother_is_the_exact_posterior():
    t = models.walked(40)
    latent = read_model(models.gaussian_walk(40), sparse=True)
    fit = av.Laplace().approximate(latent.at({"s": np.array(0.3), "r": np.array(0.5)}))
    total, mean, variance = walks.smoother(t, 2.0, 0.3, 0.5)
    assert fit.log_evidence == pytest.approx(total, abs=1e-8)
    assert_allclose(fit.posterior.mean, mean, atol=1e-8)
    assert_allclose(fit.posterior.marginal_variance, variance, rtol=1e-8)


def test_quadrature_group_by_group_is_the_posterior():
    """EP at these fixed effects and this sd is within its own small error of the quadrature."""
    groups, x = 20, np.array([0.2, 0.5, -0.3, np.log(0.6)])
    model = one_way.OneWay(groups)
    total, places, share = model.parts(x)
    finer = one_way.OneWay(groups, nodes=51).parts(x)[0]
    assert_allclose(total, finer, atol=1e-7)
    latent = read_model(build("one_way", groups), weights="u", sparse=True)
    theta = {"a": x[0], "b": x[1:3], "s": np.exp(x[3])}
    fit = av.EP().approximate(latent.at({n: np.asarray(v) for n, v in theta.items()}))
    assert fit.log_evidence == pytest.approx(total.sum(), abs=0.02)
    mean = np.sum(share * places, axis=1)
    sd = np.sqrt(np.sum(share * places**2, axis=1) - mean**2)
    assert_allclose(fit.posterior.mean, mean, atol=5e-3)
    assert_allclose(np.sqrt(fit.posterior.marginal_variance), sd, rtol=5e-3)


def test_every_neighbour_is_one_of_both():
    """The map of Scotland is in one piece, so that the field has a density."""
    latent = read_model(models.lip(), sparse=True)
    assert latent.n_weights == 2 + 2 * 56
    assert latent.sparse is not None
    assert len(models.CASES.split()) == len(models.OUTDOORS.split()) == 56
    assert sum(map(int, models.CASES.split())) == 536


def test_errors_are_in_sds_of_the_truth():
    truth = moments.Moments({"u": np.zeros(2)}, {"u": np.full(2, 2.0)}, {"u": 0.2}, {"u": 0.0})
    own = moments.Moments({"u": np.array([0.0, 1.0])}, {"u": np.full(2, 4.0)}, {"u": 0}, {"u": 0})
    found = moments.errors(own, truth)["u"]
    assert found["mean_largest"] == 0.5 and found["mean_noise"] == 0.1
    assert found["sd_rms"] == pytest.approx(np.log(2.0))
