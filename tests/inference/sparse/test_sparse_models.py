"""Sparse and dense readings of one model give one answer."""

import numpy as np
import pymc as pm
import pytest
from sparse_models import KINDS, sparse_design

import ardvark as av
from ardvark.inference.graph.read import read_model
from ardvark.inference.graph.sparse import SparseReading
from ardvark.inference.sparse.posterior import SparsePosterior

EQUAL = 1e-8


def moved(theta):
    return {name: np.asarray(value) * 1.1 for name, value in theta.items()}


def gap(one, other):
    """Largest difference, relative to one plus the size."""
    one, other = np.asarray(one), np.asarray(other)
    return np.max(np.abs(one - other) / (1.0 + np.abs(one)), initial=0.0)


def assert_equal(model, rules):
    dense, sparse = read_model(model), read_model(model, sparse=True)
    assert dense.sparse is None and isinstance(sparse.sparse, SparseReading)
    theta = moved(dense.initial_theta())
    for rule in rules:
        one, other = (rule.approximate(latent.at(theta)) for latent in (dense, sparse))
        assert isinstance(other.posterior, SparsePosterior)
        assert one.converged == other.converged
        for name in ("mean", "marginal_variance", "eta_mean", "eta_variance"):
            assert gap(getattr(one.posterior, name), getattr(other.posterior, name)) < EQUAL, name
        assert gap(one.log_evidence, other.log_evidence) < EQUAL
        slopes = [
            latent.pull(theta, rule.evidence_gradient(latent.at(theta), fit))
            for latent, fit in ((dense, one), (sparse, other))
        ]
        for name in dense.hyper:
            assert gap(slopes[0][name], slopes[1][name]) < EQUAL, name
    return one.posterior, other.posterior


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_is_dense(kind):
    rules = [av.Laplace()] if kind in ("walk", "autoregression") else [av.Laplace(), av.EP()]
    assert_equal(KINDS[kind](np.random.default_rng(3)), rules)


@pytest.mark.validate
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_sparse_is_dense_on_fifty_models(kind, seed):
    assert_equal(KINDS[kind](np.random.default_rng(100 + seed)), [av.Laplace(), av.EP()])


def test_draws_densities_and_new_rows():
    """What a posterior is asked for beside its moments, with a border and with a dense row."""
    rng = np.random.default_rng(5)
    for kind in ("one way", "field"):
        dense, sparse = assert_equal(KINDS[kind](np.random.default_rng(4)), [av.Laplace()])
        w = sparse.draws(6000, rng)
        error = np.sqrt(dense.marginal_variance / len(w))
        assert np.abs((w.mean(axis=0) - dense.mean) / error).max() < 5.0
        white = np.linalg.solve(np.linalg.cholesky(dense.covariance), (w - dense.mean).T)
        spread = white @ white.T / len(w) - np.eye(len(white))
        assert np.abs(spread).max() < 6.0 * np.sqrt(2.0 / len(w))
        assert gap(dense.log_density(w[:5]), sparse.log_density(w[:5])) < EQUAL
        assert gap(dense.covariance, sparse.covariance) < EQUAL
        assert gap(dense.cross_covariance, sparse.cross_covariance) < EQUAL
        rows = rng.normal(size=(3, len(dense.mean)))
        for one, other in zip(
            dense.predictive(rows, np.zeros(3)), sparse.predictive(rows, np.zeros(3)), strict=True
        ):
            assert gap(one, other) < EQUAL


def test_a_sparse_matrix_in_the_graph():
    model = sparse_design(np.random.default_rng(6))
    latent = read_model(model, sparse=True)
    theta = {"s": np.array(0.8)}
    rule = av.Laplace()
    fit = rule.approximate(latent.at(theta))
    slope = latent.pull(theta, rule.evidence_gradient(latent.at(theta), fit))["s"]
    step = 1e-4
    ends = [rule.approximate(latent.at({"s": 0.8 + s})).log_evidence for s in (step, -step)]
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6)


def test_a_wrong_pattern_is_seen(monkeypatch):
    """Planted fault: an entry is taken out of the pattern."""
    from ardvark.inference.graph import sparse

    def thinned(*arguments):
        pattern = original(*arguments)
        pattern.data[-1] = 0.0
        pattern.eliminate_zeros()
        return pattern

    original = sparse.pattern_of
    monkeypatch.setattr(sparse, "pattern_of", thinned)
    with pytest.raises(av.errors.UnreadableModel, match="off by"):
        read_model(KINDS["crossed"](np.random.default_rng(1)), sparse=True)


def test_what_has_no_sparse_arrays_says_why():
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        z = pm.Normal("z", 0.0, 1.0, shape=30)
        pm.Poisson("t", pm.math.exp(pm.math.cumsum(z) * 0.1), observed=rng.poisson(1.0, 30))
    with pytest.raises(av.errors.UnreadableModel, match="CumOp"):
        read_model(model, sparse=True)
    with pytest.raises(av.errors.InputError, match="sequential"):
        av.EP(updates="sequential").approximate(
            read_model(KINDS["one way"](rng), sparse=True).at({"s": 1.0, "noise": 1.0})
        )


def kalman(t, start, step, noise):
    """Log density of a random walk seen under noise, and its last filtered mean and variance."""
    mean, variance, total = 0.0, start**2, 0.0
    for n, value in enumerate(t):
        variance += step**2 if n else 0.0
        spread = variance + noise**2
        total -= 0.5 * (np.log(2.0 * np.pi * spread) + (value - mean) ** 2 / spread)
        mean, variance = mean + variance / spread * (value - mean), variance * noise**2 / spread
    return total, mean, variance


def test_a_long_walk_against_the_kalman_filter():
    rng = np.random.default_rng(9)
    size = 3000
    t = np.cumsum(0.3 * rng.normal(size=size)) + 0.5 * rng.normal(size=size)
    with pm.Model() as model:
        v = pm.GaussianRandomWalk("v", sigma=0.3, init_dist=pm.Normal.dist(0, 2.0), shape=size)
        pm.Normal("t", v, 0.5, observed=t)
    fit = av.Laplace().approximate(read_model(model, sparse=True).at())
    total, mean, variance = kalman(t, 2.0, 0.3, 0.5)
    # PyTensor keeps 0.3 in single precision: 1e-8 of each of 3000 terms
    assert fit.log_evidence == pytest.approx(total, rel=1e-7)
    assert fit.posterior.mean[-1] == pytest.approx(mean, rel=1e-6)
    assert fit.posterior.marginal_variance[-1] == pytest.approx(variance, rel=1e-6)


def test_lip_cancer():
    """The model of areas whose fit by EP is held against long NUTS in the table of own models."""
    from own_models.textbook import lip_cancer_like

    assert_equal(lip_cancer_like(), [av.Laplace(), av.EP()])


def test_dense_arrays_that_are_too_large_are_not_begun():
    with pm.Model() as model:
        s = pm.HalfNormal("s", 0.1)
        v = pm.GaussianRandomWalk("v", sigma=s, init_dist=pm.Normal.dist(0, 1), shape=6000)
        pm.Poisson("t", pm.math.exp(v), observed=np.ones(6000, int))
    with pytest.raises(av.errors.UnreadableModel, match="6000 weights are too large"):
        read_model(model)
    assert read_model(model, sparse=None).sparse is not None


def test_small_models_stay_dense_and_large_ones_do_not():
    rng = np.random.default_rng(8)
    small = KINDS["one way"](rng)
    assert read_model(small, sparse=None).sparse is None
    groups = 400
    g = np.arange(4000) % groups
    with pm.Model() as large:
        u = pm.Normal("u", 0.0, 1.0, shape=groups)
        pm.Poisson("t", pm.math.exp(u[g]), observed=rng.poisson(1.0, len(g)))
    latent = read_model(large, sparse=None)
    assert latent.sparse is not None
    assert "400 weights eliminated sparsely" in repr(latent)
