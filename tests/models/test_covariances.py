"""ARD covariances: by hand, in a graph, their gradients, and what they refuse."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from ardvark.errors import InputError
from ardvark.models.covariances import ARDGaussian, ARDLinear

RNG = np.random.default_rng(31)
X = RNG.normal(size=(7, 3))
Z = RNG.normal(size=(4, 3))
KAPPA = {"kappa_0": np.array(1.7), "kappa_a": np.array([0.5, 2.0, 0.1]), "kappa_b": np.array(0.3)}
BOTH = (ARDGaussian(), ARDLinear())


def of(covariance):
    return {name: KAPPA[name] for name in covariance.NAMES}


def by_hand(covariance, x, z):
    a, b = KAPPA["kappa_a"], KAPPA["kappa_b"]
    if isinstance(covariance, ARDLinear):
        return sum(a * x * z) + b
    return KAPPA["kappa_0"] * np.exp(-0.5 * sum(a * (x - z) ** 2)) + b


@pytest.mark.parametrize("covariance", BOTH, ids=lambda c: c.name)
def test_values_by_hand_and_in_a_graph(covariance):
    expected = np.array([[by_hand(covariance, x, z) for z in Z] for x in X])
    np.testing.assert_allclose(covariance(X, Z, of(covariance)), expected, rtol=1e-13)
    inputs = {name: pt.as_tensor(value) for name, value in of(covariance).items()}
    with pytensor.config.change_flags(cxx=""):
        graph = covariance(pt.as_tensor(X), pt.as_tensor(Z), inputs).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(graph, expected, rtol=1e-13)
    train = covariance.train(X, of(covariance), np.eye(7))
    np.testing.assert_allclose(
        train.diagonal(), covariance.variance(X, of(covariance)) + covariance.jitter, rtol=1e-13
    )
    assert np.linalg.eigvalsh(train).min() > 0


@pytest.mark.parametrize("covariance", BOTH, ids=lambda c: c.name)
def test_pull_is_the_gradient_of_the_contraction(covariance):
    G = RNG.normal(size=(7, 7))
    G = G + G.T
    kappa = of(covariance)
    pulled = covariance.pull(G, X, kappa, covariance(X, X, kappa))
    for name in covariance.NAMES:
        for place in np.ndindex(kappa[name].shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = {n: v.copy() for n, v in kappa.items()}
                moved[name][place] += step
                ends.append((G * covariance(X, X, moved)).sum())
            assert pulled[name][place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-7)


def test_parameters_are_given_or_typical():
    kappa_0, kappa_a, kappa_b = ARDGaussian(kappa_a=0.5, kappa_b=2.0).parameters(X)
    assert kappa_0.value is None and kappa_b.value == 2.0
    assert kappa_a.value.tolist() == [0.5] * 3
    free = ARDGaussian().parameters(100 * X)[1]
    # two rows are exp(-1) alike on average, whatever the unit of the columns
    assert np.sum(free.typical * (100 * X).var(axis=0)) == pytest.approx(1.0)
    constant = ARDGaussian().parameters(np.ones((5, 2)))[1]
    assert np.isfinite(constant.typical).all()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: ARDGaussian(kappa_0=-1.0), "kappa_0 must be a finite number > 0"),
        (lambda: ARDGaussian(kappa_a=[1.0, 0.0]), "at feature 1 it is 0.0"),
        (lambda: ARDGaussian(kappa_a=[[1.0]]), "one per feature"),
        (lambda: ARDLinear(kappa_b="wide"), "kappa_b"),
        (lambda: ARDLinear(jitter=0.0), "jitter"),
        (lambda: ARDLinear(kappa_a=[1.0, 2.0]).parameters(X), "2 values, X has 3 features"),
    ],
)
def test_bad_settings_are_named(make, word):
    with pytest.raises(InputError, match=word):
        make()
