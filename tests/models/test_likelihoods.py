"""Probit and logit: values and derivatives far out, draws, and every backend."""

from decimal import Decimal, localcontext
from math import isfinite

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import expit, log_ndtr, ndtr

from ardvark.models.likelihoods import LINKS

rng = np.random.default_rng(202)

PROBIT_POINTS = np.array(
    [-300.0, -100, -38.5, -20, -8.4, -5, -2, -1.0001, -1, -0.9999, -0.3, 0, 0.5, 1, 3, 8.3, 20, 30]
)
LOGIT_POINTS = np.array([-700.0, -300, -40, -37, -18, -5, -0.1, 0, 0.1, 5, 18, 33.3, 37, 40, 300])
DIGITS = 450  # Phi(30) differs from 1 in the 198th digit


@pytest.fixture(autouse=True)
def no_c_compiler():
    with pytensor.config.change_flags(cxx=""):
        yield


def exact_probit(z: float) -> tuple[float, float, float]:
    """log Phi and its first two derivatives with 450 digits: series inside 1, fraction outside."""
    with localcontext() as context:
        context.prec = DIGITS
        x = Decimal(z)
        density = (-x * x / 2).exp() / (2 * pi()).sqrt()
        if abs(x) <= 1:
            term = total = x
            for k in range(1, 400):
                term *= x * x / (2 * k + 1)
                total += term
            probability = Decimal("0.5") + density * total
        else:
            fraction = abs(x)
            for k in range(20_000 if abs(x) < 3 else 2_000, 0, -1):
                fraction = abs(x) + k / fraction
            tail = density / fraction
            probability = 1 - tail if x > 0 else tail
        ratio = density / probability
        return float(probability.ln()), float(ratio), float(-ratio * (x + ratio))


def exact_logit(z: float) -> tuple[float, float, float]:
    with localcontext() as context:
        context.prec = DIGITS
        p = 1 / (1 + (-Decimal(z)).exp())
        return float(p.ln()), float(1 - p), float(-p * (1 - p))


def pi() -> Decimal:
    """Gauss and Legendre: the digits double each time."""
    a, b, t, p = Decimal(1), 1 / Decimal(2).sqrt(), Decimal("0.25"), Decimal(1)
    for _ in range(10):
        mean = (a + b) / 2
        a, b, t, p = mean, (a * b).sqrt(), t - p * (a - mean) ** 2, 2 * p
    return (a + b) ** 2 / (4 * t)


def graph_of(link: str):
    """Inputs eta and t, outputs log p and two derivatives, through the distribution itself."""
    eta, t = pt.vector("eta"), pt.lvector("t")
    with pm.Model():
        rv = LINKS[link]("t", eta)
    value = pm.logp(rv, t)
    first = pt.grad(value.sum(), eta)
    return [eta, t], [value, first, pt.grad(first.sum(), eta)]


@pytest.fixture(scope="module")
def compiled():
    with pytensor.config.change_flags(cxx=""):
        return {link: pytensor.function(*graph_of(link), mode="FAST_COMPILE") for link in LINKS}


CASES = {"probit": (PROBIT_POINTS, exact_probit), "logit": (LOGIT_POINTS, exact_logit)}


@pytest.mark.parametrize("link", CASES)
@pytest.mark.parametrize("t", [0, 1])
def test_value_and_derivatives_are_right_far_out(compiled, link, t):
    points, exact = CASES[link]
    reference = np.array([exact(z) for z in points]).T
    eta = points if t == 1 else -points
    value, first, second = compiled[link](eta, np.full(eta.size, t))
    np.testing.assert_allclose(value, reference[0], rtol=1e-12, atol=0)
    np.testing.assert_allclose(first * (2 * t - 1), reference[1], rtol=1e-12, atol=1e-300)
    # erfcx'' loses z² in relative precision: 1e-16 · 300² is 1e-11.
    np.testing.assert_allclose(second, reference[2], rtol=0, atol=1e-10)


def test_reference_agrees_with_scipy():
    reference = np.array([exact_probit(z)[0] for z in PROBIT_POINTS])
    np.testing.assert_allclose(reference, log_ndtr(PROBIT_POINTS), rtol=1e-13)


@pytest.mark.parametrize("link", LINKS)
def test_nothing_is_nan_beyond_any_sensible_eta(compiled, link):
    eta = np.array([-1e6, -1e4, -1e3, -709, -38, 0, 38, 709, 1e3, 1e4, 1e6])
    for t in (0, 1):
        for output in compiled[link](eta, np.full(eta.size, t)):
            assert np.isfinite(output).all()


def test_stock_probit_fails_where_ours_does_not():
    """The control: if the stock route were right, this file would not be needed."""
    eta = np.array([-40.0])
    p = pm.math.invprobit(pt.constant(eta))
    stock = pm.logp(pm.Bernoulli.dist(p=p), np.array([1])).eval(mode="FAST_COMPILE")
    assert not np.isfinite(stock).all()
    assert isfinite(exact_probit(-40.0)[0])


def test_values_that_are_no_class_are_impossible(compiled):
    for link in LINKS:
        value, first, _ = compiled[link](np.zeros(3), np.array([-1, 2, 7]))
        assert np.isneginf(value).all()
        assert (first == 0).all()


@pytest.mark.parametrize("link", LINKS)
def test_probabilities_of_both_classes_sum_to_one(compiled, link):
    eta = np.linspace(-9, 9, 37)
    both = sum(np.exp(compiled[link](eta, np.full(eta.size, t))[0]) for t in (0, 1))
    np.testing.assert_allclose(both, 1, rtol=1e-14)


@pytest.mark.parametrize(("link", "probability"), [("probit", ndtr), ("logit", expit)])
def test_draws_are_bernoulli_with_the_right_shape(link, probability):
    eta = np.array([-2.0, -0.5, 0.0, 1.5])
    n = 4000
    with pm.Model():
        rv = LINKS[link]("t", eta)
        wide = LINKS[link]("wide", eta, shape=(5, 4))
        single = LINKS[link]("single", 0.3)
    draws, wide_draws, single_draws = pm.draw(
        [rv, wide, single], draws=n, random_seed=7, mode="FAST_COMPILE"
    )
    assert draws.shape == (n, 4)
    assert wide_draws.shape == (n, 5, 4)
    assert single_draws.shape == (n,)
    assert draws.dtype == np.int64
    assert set(np.unique(draws)) == {0, 1}
    p = probability(eta)
    z = (draws.mean(axis=0) - p) / np.sqrt(p * (1 - p) / n)
    assert np.abs(z).max() < 4  # four standard errors: 1 in 4000 for four draws
    assert np.abs(np.corrcoef(wide_draws[:, :, 2].T) - np.eye(5)).max() < 5 / np.sqrt(n)


def test_names_show_in_print_and_graph():
    with pm.Model() as model:
        LINKS["probit"]("t", pm.Normal("eta"), observed=1)
        LINKS["logit"]("s", model["eta"], observed=1)
    source = pm.model_to_graphviz(model).source
    assert "Probit" in source
    assert "Logit" in source


def test_numba_gives_the_same_without_object_mode(compiled):
    """One compile for both links, logp, gradient and draws: object mode would warn, so fail."""
    inputs, outputs, drawn = [], [], []
    for link in LINKS:
        (eta, t), (value, first, _) = graph_of(link)
        inputs += [eta, t]
        outputs += [value, first]
        with pm.Model():
            drawn.append(LINKS[link]("t", eta))
    function = pytensor.function(inputs, [*outputs, *drawn], mode="NUMBA")
    t = rng.integers(0, 2, LOGIT_POINTS.size)
    results = function(*(2 * [LOGIT_POINTS, t]))
    far = np.abs(LOGIT_POINTS) > 40
    for position, link in enumerate(LINKS):
        expected = compiled[link](LOGIT_POINTS, t)
        np.testing.assert_allclose(results[2 * position], expected[0], rtol=1e-13)
        np.testing.assert_allclose(results[2 * position + 1], expected[1], rtol=1e-12, atol=1e-300)
        assert (results[4 + position][far] == (LOGIT_POINTS[far] > 0)).all()  # draws
