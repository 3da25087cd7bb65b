"""The basis and its factors: two ways to the same moments, and what has no factors."""

import numpy as np
import pytest

from ardvark.inference.sample_feature import moments as bilinear_moments
from ardvark.inference.sample_feature import vb as vb_bilinear
from ardvark.inference.sample_feature.basis import KernelBasis
from ardvark.inference.sample_feature.moments import Direct, Factored, moments_of
from ardvark.inference.sample_feature.search import ascend
from ardvark.inference.sample_feature.vb import elbo
from ardvark.inference.vb.blocks import Gamma, GaussianBlock
from ardvark.inference.vb.rows import GammaNoise, GaussianRows, LogisticRows, Parabola
from ardvark.models.sample_feature import gaussian

RNG_SEED = 62
FLAT = Gamma(np.array(1e-6), np.array(1e-6))


def rational(x, centre, gamma):
    return 1.0 / (1.0 + gamma * (x - centre) ** 2)


def distance(x, centre, gamma):
    """No covariance: zero on the diagonal."""
    return gamma * np.abs(x - centre)


def lopsided(x, centre, gamma):
    """Not even symmetric."""
    return np.exp(-gamma * (x - centre) ** 2) * (1.0 + 0.1 * np.tanh(x))


def inputs(rows=80, features=5):
    rng = np.random.default_rng([RNG_SEED, rows])
    X = rng.standard_normal((rows, features))
    X[:, 0] = rng.integers(0, 4, rows)  # few values, many ties
    X[:, 1] = 2.5  # constant
    X[:, 2] = rng.uniform(-10, 10, rows)
    return X


def law(size, rng):
    root = np.triu(0.2 * rng.standard_normal((size, size)), 1)
    root += np.diag(rng.uniform(0.2, 1, size))
    return GaussianBlock(rng.standard_normal(size), root, float(np.log(np.diag(root)).sum()))


@pytest.mark.parametrize("kernel", [gaussian, rational])
@pytest.mark.parametrize("gamma", [0.02, 0.5, 2.0])
def test_factors_are_the_basis(kernel, gamma):
    X = inputs()
    basis = KernelBasis(kernel, X, X.copy(), gamma)
    found = basis.factors
    phi = basis.block(slice(None), np.arange(6), np.arange(81))
    for j in range(6):
        own = found.feature == j
        np.testing.assert_allclose(
            found.left[:, own] @ found.right[:, own].T, phi[:, j], rtol=0, atol=1e-11
        )
    ranks = np.bincount(found.feature)
    assert ranks[0] == 1 and ranks[1] <= 4 + 1 and ranks[2] == 1 + 1  # constant, values, constant


@pytest.mark.parametrize(("kernel", "gamma"), [(distance, 1.0), (lopsided, 1.0), (gaussian, 1e4)])
def test_a_basis_without_narrow_factors_has_none(kernel, gamma):
    X = inputs()
    basis = KernelBasis(kernel, X, X, gamma)
    assert basis.factors is None
    assert isinstance(moments_of(basis, np.arange(81), np.arange(6), 256.0), Direct)


def test_other_rows_than_the_centres_have_no_factors():
    X = inputs()
    assert KernelBasis(gaussian, X[:40], X, 0.5).factors is None


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("pruned", [False, True])
def test_two_ways_to_the_same_moments(varying, pruned):
    rng = np.random.default_rng(RNG_SEED)
    X = inputs()
    basis = KernelBasis(gaussian, X, X, 0.3)
    samples = np.array([0, 3, 4, 17, 30, 31, 50, 66, 79, 80]) if pruned else np.arange(81)
    features = np.array([1, 3, 4]) if pruned else np.arange(6)
    w, lam = law(len(samples), rng), law(len(features), rng)
    c = rng.uniform(0.1, 2, 80) if varying else np.full(80, 1.7)
    parabola = Parabola(np.zeros(80), rng.standard_normal(80), c)
    ways = [
        moments_of(basis, samples, features, memory, factored)
        for memory, factored in ((256.0, False), (0.05, False), (256.0, True))
    ]
    if not pruned:
        assert isinstance(ways[2], Factored)
    expected = ways[0].by_w(lam, parabola), ways[0].by_lam(w)
    for way in ways[1:]:
        precision, shift = way.by_w(lam, parabola)
        np.testing.assert_allclose(np.tril(precision), np.tril(expected[0][0]), rtol=1e-9)
        np.testing.assert_allclose(shift, expected[0][1], rtol=1e-9, atol=1e-9)
        for got, wanted in zip(way.by_lam(w), expected[1], strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


def test_many_samples_are_factored_and_few_are_not():
    X = inputs(rows=300)
    basis = KernelBasis(gaussian, X, X, 0.3)
    assert isinstance(moments_of(basis, np.arange(301), np.arange(6), 256.0), Factored)
    assert isinstance(moments_of(basis, np.arange(0, 301, 30), np.arange(6), 256.0), Direct)


@pytest.mark.parametrize("classes", [False, True])
def test_the_factored_ascent_never_falls_and_ends_where_the_direct_one_does(classes, monkeypatch):
    rng = np.random.default_rng(RNG_SEED + classes)
    X = inputs(rows=60)
    basis = KernelBasis(gaussian, X, X, 0.3)
    eta = np.sin(X[:, 2]) + X[:, 3]
    if classes:
        rows = LogisticRows(np.where(eta + rng.logistic(size=60) > 0, 1.0, -1.0), np.ones(60))
    else:
        t = eta + 0.3 * rng.standard_normal(60)
        rows = GaussianRows(t, GammaNoise(FLAT, Gamma(np.array(1.0), np.array(t.var()))))
    steps, ends = [], []

    def watch(name, state):
        steps.append(elbo(basis, state, FLAT))

    for factored in (True, False):

        def chosen(*arguments, way=factored):
            return bilinear_moments.moments_of(*arguments, way)

        monkeypatch.setattr(vb_bilinear, "moments_of", chosen)
        seen = watch if factored else None
        fit = ascend(basis, rows, FLAT, pruning=None, starts=1, max_sweeps=15, watch=seen)
        ends.append(fit.elbo)
    fall = np.diff(steps) / (1.0 + np.abs(steps[1:]))
    assert len(steps) > 100 and fall.min() > -1e-9
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-7)


def test_a_wrong_factor_is_noticed():
    """The control of the check: spoil one column, and the factors are not used."""
    X = inputs()

    def spoilt(x, centre, gamma):
        value = np.array(gaussian(x, centre, gamma))
        value[np.broadcast_to((x != centre) & (np.abs(x - centre) > 1.0), value.shape)] *= 1 + 1e-6
        return value

    assert KernelBasis(gaussian, X, X, 0.3).factors is not None
    assert KernelBasis(spoilt, X, X, 0.3).factors is None
