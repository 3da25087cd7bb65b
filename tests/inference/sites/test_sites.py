"""Sites: accuracy in the tails, derivatives, moments, and recognition by value."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erf, expit, gammaln, log_ndtr
from scipy.stats import norm, poisson

from ardvark.errors import UnsupportedPair
from ardvark.inference.known_sites.recognition import recognise
from ardvark.inference.sites.likelihoods import (
    Derivatives,
    GaussianSites,
    GraphSites,
    LogitSites,
    PoissonSites,
    ProbitSites,
    StepSites,
)
from ardvark.inference.sites.quadrature import is_multimodal, quadrature_tilted, tilted_nodes

RNG_SEED = 11
PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899863"
)
SIGN = np.where(np.random.default_rng(RNG_SEED).random(20) < 0.5, -1.0, 1.0)

CLOSED = {
    "probit": ProbitSites(np.array([1.0, -1.0, 1.0])),
    "logit": LogitSites(np.array([1.0, -1.0, 1.0])),
    "gaussian": GaussianSites(
        np.array([0.3, -2.0, 1.0]), np.array([0.5, 2.0, 7.0]), np.array([-1.0, 0.0, 0.4])
    ),
    "poisson": PoissonSites(np.array([0.0, 3.0, 11.0]), np.array([0.0, 0.5, -1.0])),
}


def probit_reference(z):
    """Log Phi and three derivatives to 70 digits: power series, or in the tail a long fraction."""
    with localcontext() as context:
        context.prec = 100
        z = Decimal(repr(float(z)))
        density = (-z * z / 2).exp() / (2 * PI).sqrt()
        if z < -6:
            rest = Decimal(0)
            for k in range(3000, 0, -1):
                rest = k / (rest - z)
            h = rest - z
            cdf = density / h
        else:
            term = total = z
            k = 1
            while abs(term) > Decimal(10) ** -95:
                term = term * z * z / (2 * k + 1)
                total += term
                k += 1
            cdf = Decimal("0.5") + density * total
            h = density / cdf
        return cdf.ln(), h, -h * (h + z), h * ((z + h) * (z + 2 * h) - 1)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    "z", [-300, -100, -37.5, -20, -8.3, -6, -3, -2.0001, -2, -1.9, -0.5, 0, 0.5, 1, 3, 8, 12]
)
def test_probit_to_twelve_digits(z, sign):
    found = ProbitSites(np.array([sign])).derivatives(np.array([sign * float(z)]))
    for value, exact, odd in zip(found, probit_reference(z), (1, sign, 1, sign), strict=True):
        np.testing.assert_allclose(value[0], odd * float(exact), rtol=1e-12)


def test_probit_far_out_is_finite():
    found = ProbitSites(np.ones(4)).derivatives(np.array([-1e4, -300.0, 300.0, 1e4]))
    assert all(np.isfinite(part).all() for part in found)
    np.testing.assert_allclose(found.first[:2], [1e4, 300.0], rtol=2e-5)
    np.testing.assert_allclose(found.second[:2], -1.0, rtol=2e-5)
    assert found.first[2:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", CLOSED)
def test_each_derivative_is_the_slope_of_the_one_before(name):
    """At a thousand points."""
    sites, step = CLOSED[name], 1e-5
    eta = np.random.default_rng(7).uniform(-5.0, 5.0, (334, 3))
    at, up, down = (sites.derivatives(eta + shift) for shift in (0.0, step, -step))
    for order in range(3):
        numeric = (up[order] - down[order]) / (2 * step)
        np.testing.assert_allclose(at[order + 1], numeric, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(at.value, sites.log(eta), rtol=1e-14)


@pytest.mark.parametrize("name", CLOSED)
def test_tilted_moments_against_integration(name):
    sites = CLOSED[name]
    mean, variance = np.array([0.4, -1.2, 0.8]), np.array([0.6, 1.4, 0.9])
    tilted = sites.tilted(mean, variance)
    for n in range(3):

        def density(x, n=n):
            sites_at = sites.log(np.full(3, x))[n]
            return np.exp(sites_at) * norm.pdf(x, mean[n], np.sqrt(variance[n]))

        moments = [
            quad(lambda x, k=k: x**k * density(x), -14, 14, epsabs=1e-13, limit=200)[0]
            for k in range(3)
        ]
        centre = moments[1] / moments[0]
        np.testing.assert_allclose(tilted.log_z[n], np.log(moments[0]), rtol=1e-8)
        np.testing.assert_allclose(tilted.mean[n], centre, rtol=1e-8)
        np.testing.assert_allclose(
            tilted.variance[n], moments[2] / moments[0] - centre**2, rtol=1e-8
        )


@pytest.mark.parametrize("name", ["probit", "gaussian"])
def test_quadrature_agrees_with_the_closed_form(name):
    sites, mean, variance = CLOSED[name], np.array([0.4, -1.2, 0.8]), np.array([0.6, 0.4, 0.3])
    for closed, by_nodes in zip(
        sites.tilted(mean, variance), quadrature_tilted(sites.log, mean, variance), strict=True
    ):
        np.testing.assert_allclose(by_nodes, closed, rtol=1e-9)


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (-3.0, 20.0), (2.0, 100.0)])
def test_quadrature_finds_a_narrow_site_in_a_wide_gaussian(mean, variance):
    """A count of 100 leaves a tenth of a unit: plain nodes miss it by a factor e and more."""
    grid = mean + np.sqrt(variance) * np.linspace(-9, 9, 200_001)
    log_joint = PoissonSites(np.array(100.0)).log(grid) + norm.logpdf(grid, mean, variance**0.5)
    mass = np.exp(log_joint - log_joint.max())
    centre = np.average(grid, weights=mass)
    tilted = PoissonSites(np.array([100.0])).tilted(np.array([mean]), np.array([variance]))
    log_z = np.log(mass.sum() * (grid[1] - grid[0])) + log_joint.max()
    np.testing.assert_allclose(tilted.log_z, log_z, rtol=1e-8)
    np.testing.assert_allclose(tilted.mean, centre, rtol=1e-8)
    np.testing.assert_allclose(
        tilted.variance, np.average((grid - centre) ** 2, weights=mass), rtol=1e-7
    )


@pytest.mark.parametrize("variance", [1e-4, 0.1, 1.0, 10.0, 100.0, 1e4, 1e6, 1e8])
def test_quadrature_is_right_for_any_width(variance):
    """From a Gaussian much narrower than the site's edge to one that sees a step."""
    mean = np.array([0.0, 0.5, -3.0, 10.0, -30.0, 300.0, 2.0])
    sites, wide = ProbitSites(np.ones(7)), np.full(7, variance)
    closed, found = sites.tilted(mean, wide), quadrature_tilted(sites.log, mean, wide)
    np.testing.assert_allclose(found.log_z, closed.log_z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.mean, closed.mean, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found.variance, closed.variance, rtol=1e-10)


def test_quadrature_finds_kinks_and_edges():
    """A double exponential, whose moments are known, and the step."""
    mean, variance = np.array([-2.0, 0.3, 7.0]), np.array([0.5, 4.0, 30.0])
    found = quadrature_tilted(lambda eta: -np.abs(eta), mean, variance)
    sd = np.sqrt(variance)
    left = mean + 0.5 * variance + log_ndtr(-(mean + variance) / sd)
    right = -mean + 0.5 * variance + log_ndtr((mean - variance) / sd)
    np.testing.assert_allclose(found.log_z, np.logaddexp(left, right), atol=1e-11)
    centre = expit(right - left) * -variance + expit(left - right) * variance + mean
    np.testing.assert_allclose(found.mean, centre, atol=1e-10)
    step = StepSites(np.array([1.0, -1.0, -1.0]))
    for closed, by_nodes in zip(
        step.tilted(mean, variance), quadrature_tilted(step.log, mean, variance), strict=True
    ):
        np.testing.assert_allclose(by_nodes, closed, rtol=1e-9)


def test_a_site_that_outgrows_the_gaussian_is_told_apart():
    tilted = quadrature_tilted(lambda eta: eta**2, np.zeros(2), np.array([0.4, 0.6]))
    np.testing.assert_allclose(tilted.log_z[0], -0.5 * np.log(1 - 0.8), rtol=1e-10)
    assert np.isposinf(tilted.log_z[1]) and np.isnan(tilted.mean[1])
    lost = quadrature_tilted(lambda eta: np.full(eta.shape, np.nan), np.zeros(1), np.ones(1))
    assert np.isnan(lost.log_z).all() and np.isnan(lost.variance).all()


def test_two_tops_are_seen_where_there_are_two():
    far = np.array([0.0, 6.0, 12.0])
    wide = np.array([1.0, 1.0, 6.5])
    found = is_multimodal(lambda eta: -2.5 * np.log1p((eta - far) ** 2 / 2), np.zeros(3), wide)
    assert found.tolist() == [False, False, True]
    for sites in CLOSED.values():
        assert not is_multimodal(sites.log, np.zeros(3), np.full(3, 9.0)).any()


def test_nodes_carry_expectations():
    sites, mean, variance = (
        CLOSED["logit"],
        np.array([0.4, -1.2, 0.8]),
        np.array([0.6, 14.0, 300.0]),
    )
    eta, share = tilted_nodes(sites.log, mean, variance)
    tilted = sites.tilted(mean, variance)
    np.testing.assert_allclose(share.sum(axis=0), 1.0, rtol=1e-13)
    np.testing.assert_allclose((share * eta).sum(axis=0), tilted.mean, rtol=1e-12)
    assert share.min() >= 0


def test_a_step_has_moments_but_no_derivatives():
    step = StepSites(np.array([1.0, -1.0]))
    assert step.log(np.array([2.0, 2.0])).tolist() == [0.0, -np.inf]
    np.testing.assert_allclose(step.tilted(np.zeros(2), np.ones(2)).log_z, np.log(0.5))
    with pytest.raises(UnsupportedPair, match="no derivatives"):
        step.derivatives(np.zeros(2))


def test_probit_tilted_variance_does_not_cancel():
    """Far in the tail the variance tends to that of the site's own parabola, v / (1 + v)."""
    tilted = ProbitSites(np.ones(1)).tilted(np.array([-1e7]), np.array([1e6]))
    np.testing.assert_allclose(tilted.variance, 1e6 / (1e6 + 1), rtol=0.02)
    assert tilted.variance[0] > 0


def test_tilted_broadcasts_over_leading_axes():
    mean, variance = np.zeros((4, 3)), np.ones((4, 3))
    for sites in CLOSED.values():
        tilted = sites.tilted(mean, variance)
        assert tilted.mean.shape == (4, 3)
        np.testing.assert_allclose(tilted.mean[1], sites.tilted(mean[0], variance[0]).mean)


def test_a_site_that_is_zero_everywhere_is_told_apart():
    tilted = quadrature_tilted(lambda eta: np.full(eta.shape, -np.inf), np.zeros(2), np.ones(2))
    assert np.all(np.isneginf(tilted.log_z))
    assert np.isnan(tilted.mean).all()


def test_graph_sites_wrap_callables():
    closed = CLOSED["logit"]
    sites = GraphSites(closed.log, closed.derivatives)
    eta = np.array([0.1, -0.4, 2.0])
    assert isinstance(sites.derivatives(eta), Derivatives)
    np.testing.assert_array_equal(sites.log(eta), closed.log(eta))
    np.testing.assert_allclose(
        sites.tilted(eta, np.ones(3)).mean, closed.tilted(eta, np.ones(3)).mean, rtol=1e-14
    )


@pytest.mark.parametrize("rows", [None, 20])
@pytest.mark.parametrize("family", [ProbitSites, LogitSites])
def test_binary_sites_are_recognised(family, rows):
    found = recognise(lambda eta: family(SIGN).log(eta), rows)
    assert type(found) is family
    np.testing.assert_array_equal(found.sign, SIGN)


def test_inexact_probit_is_recognised():
    """0.5 (1 + erf) with a loss of 2e-7, as in a graph that a user writes."""

    def log_site(eta):
        p = 0.5 * (1 + erf(eta / np.sqrt(2)))
        return np.log(np.where(SIGN > 0, p, 1 - p)) * (1 + 2e-7)

    assert type(recognise(log_site)) is ProbitSites


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_gaussian_sites_are_recognised(scale):
    rng = np.random.default_rng(RNG_SEED)
    target, sd = 50 * rng.normal(size=20), scale * rng.uniform(0.5, 2.0, 20)
    found = recognise(lambda eta: norm.logpdf(target, 2 * eta - 1, sd))  # a slope is no obstacle
    assert type(found) is GaussianSites
    np.testing.assert_allclose(found.mean, (target + 1) / 2, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.precision, 4 / sd**2, rtol=1e-5)
    eta = rng.normal(size=20)
    np.testing.assert_allclose(
        found.log(eta), norm.logpdf(target, 2 * eta - 1, sd), rtol=1e-6, atol=1e-6
    )


def test_poisson_sites_are_recognised():
    counts, exposure = np.array([0, 1, 7, 250]), np.array([1.0, 2.0, 0.3, 9.0])
    found = recognise(lambda eta: poisson.logpmf(counts, exposure * np.exp(eta)))
    assert type(found) is PoissonSites
    np.testing.assert_array_equal(found.count, counts)
    np.testing.assert_allclose(found.log_exposure, np.log(exposure), atol=1e-6)


STRANGERS = {
    "probit with lapses": lambda eta: np.log(1e-3 + 0.998 * norm.cdf(eta)) + 0 * SIGN,
    "binomial, probit link": lambda eta: 3 * norm.logcdf(eta) + 2 * norm.logcdf(-eta) + 0 * SIGN,
    "Poisson, square link": lambda eta: 3 * np.log(eta**2) - eta**2 - gammaln(4) + 0 * SIGN,
    "straight line": lambda eta: 0.3 * eta + 0.1 + 0 * SIGN,
    "bounded support": lambda eta: np.log(np.maximum(1 - eta, 0)) + 0 * SIGN,
    "not a number": lambda eta: np.full((len(eta), 3), np.nan),
    "no rows": lambda eta: np.zeros((len(eta), 0)),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_strangers_are_not_recognised(name):
    assert recognise(STRANGERS[name]) is None


def test_no_straight_line_is_taken_for_a_parabola():
    """Rounding gives a line some curvature: half of these have a positive one."""
    rng = np.random.default_rng(RNG_SEED)
    for slope, height in rng.normal(size=(300, 2)):
        assert recognise(lambda eta, a=slope, b=height: a * eta + b) is None


def test_the_right_strangers_would_be_recognised():
    """Control: the same list's tools, without the disturbance, are found."""
    assert recognise(lambda eta: norm.logcdf(eta + 0 * SIGN)) is not None
    assert recognise(lambda eta: norm.logpdf(SIGN, eta, 1e5)) is not None


@pytest.mark.parametrize("scale", [1e-50, 1e-20, 1.0, 1e8, 1e20, 1e50])
def test_a_gaussian_of_any_unit_is_recognised(scale):
    """Beyond 1e8 three points of a fixed grid differ by rounding only: the site went unnamed."""
    target, sd = scale * np.array([-0.7, 0.0, 1.3]), scale * np.array([0.2, 1.0, 3.0])
    found = recognise(lambda eta: -0.5 * ((eta - target) / sd) ** 2 - np.log(sd), rows=3)
    assert isinstance(found, GaussianSites)
    np.testing.assert_allclose(found.mean, target, atol=1e-7 * scale)
    np.testing.assert_allclose(found.precision, sd**-2.0, rtol=1e-7)
    np.testing.assert_allclose(found.log_scale, -np.log(sd), atol=1e-7)
