"""Known sites: densities, derivatives and moments against independent references."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, gammaln

from ardvark.errors import UnsupportedPair
from ardvark.inference.known_sites import known as k
from ardvark.inference.known_sites.kernels import polygammas
from ardvark.inference.known_sites.known import KnownSites
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import (
    GaussianSites,
    GraphSites,
    LogitSites,
    PoissonSites,
    ProbitSites,
    StepSites,
)
from ardvark.inference.sites.model import SiteModel

RNG_SEED = 17
GRID = np.array([-6.0, -2.2, -0.4, 0.3, 1.7, 5.0])[:, None]
NODES, WEIGHTS = np.polynomial.legendre.leggauss(30)

# Sites and the log density that they must be, from another library.
COUNT, TARGET, SHARE = np.array([0, 3, 40]), np.array([-0.4, 1.0, 3.0]), np.array([0.03, 0.5, 0.9])
FAMILIES = {
    "binomial": (
        k.logistic(COUNT, 50 - COUNT, constant=np.log([1, 19600, 10272278170])),
        lambda eta: stats.binom.logpmf(COUNT, 50, expit(eta)),
    ),
    "negative binomial": (
        k.logistic(
            COUNT,
            2.5,
            shift=0.3 - np.log(2.5),
            constant=gammaln(COUNT + 2.5) - gammaln(2.5) - gammaln(COUNT + 1.0),
        ),
        lambda eta: stats.nbinom.logpmf(COUNT, 2.5, 2.5 / (2.5 + np.exp(eta + 0.3))),
    ),
    "ordered logit": (
        k.band([-1.0, 0.2, 0.4], [0.5, 0.3, 7.0]),
        lambda eta: np.log(expit(eta - [-1.0, 0.2, 0.4]) - expit(eta - [0.5, 0.3, 7.0])),
    ),
    "probit with slopes": (
        k.probit([0.3, -2.0, 5.0], [0.1, 1.0, -2.0]),
        lambda eta: stats.norm.logcdf([0.3, -2.0, 5.0] * eta + [0.1, 1.0, -2.0]),
    ),
    "Gamma": (
        k.exponential(-2.5, -1.0, np.log(2.5 * np.array([0.2, 1.0, 9.0])),
                      stats.gamma.logpdf([0.2, 1.0, 9.0], 2.5, scale=1 / 2.5)
                      + 2.5 * np.array([0.2, 1.0, 9.0])),
        lambda eta: stats.gamma.logpdf([0.2, 1.0, 9.0], 2.5, scale=np.exp(eta) / 2.5),
    ),
    "Student": (
        k.student(TARGET, [0.1, 1.0, 3.0], [1.0, 4.0, 30.0]),
        lambda eta: stats.t.logpdf(eta, [1.0, 4.0, 30.0], TARGET, [0.1, 1.0, 3.0]),
    ),
    "double exponential": (
        k.double_exponential(TARGET, [0.3, 1.0, 20.0]),
        lambda eta: stats.laplace.logpdf(eta, TARGET, 1 / np.array([0.3, 1.0, 20.0])),
    ),
    "logistic density": (
        k.logistic(1.0, 1.0, 2.0, -2.0 * TARGET, np.log(2.0)),
        lambda eta: stats.logistic.logpdf(eta, TARGET, 0.5),
    ),
    "Beta": (
        k.beta(SHARE, [0.5, 6.0, 200.0]),
        lambda eta: stats.beta.logpdf(
            SHARE, [0.5, 6.0, 200.0] * expit(eta), [0.5, 6.0, 200.0] * expit(-eta)
        ),
    ),
}  # fmt: skip
SMOOTH = [name for name in FAMILIES if name != "double exponential"]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_log_is_that_of_the_density(name):
    sites, reference = FAMILIES[name]
    with np.errstate(divide="ignore"):
        expected = reference(GRID)
    np.testing.assert_allclose(sites.log(GRID * np.ones(3)), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", SMOOTH)
def test_each_derivative_is_the_slope_of_the_one_before_it(name):
    sites, step = FAMILIES[name][0].over(0.3, 4.0), 1e-5
    for point in GRID:
        at, up, down = (
            sites.derivatives(np.full(3, point[0] + shift)) for shift in (0.0, step, -step)
        )
        for order in range(3):
            numeric = (up[order] - down[order]) / (2 * step)
            np.testing.assert_allclose(at[order + 1], numeric, rtol=1e-6, atol=1e-7)


def test_derivatives_of_log_gamma():
    from scipy.special import polygamma

    for x in (1e-5, 0.03, 0.5, 1.0, 3.3, 11.9, 12.0, 40.0, 1e8):
        np.testing.assert_allclose(polygammas(x), polygamma([0, 1, 2], x), rtol=1e-13)


def reference_moments(log_site, mean, variance, places):
    """Gauss-Legendre on panels that grow geometrically away from each of some places."""
    sd = np.sqrt(variance)
    steps = 1e-6 * sd * 1.6 ** np.arange(36)  # to 13 sd
    edges = np.unique(np.concatenate([[p, *(p - steps), *(p + steps)] for p in (mean, *places)]))
    edges = edges[np.abs(edges - mean) <= 13 * sd + np.max(np.abs(np.array(places) - mean))]
    half = 0.5 * np.diff(edges)
    x = (edges[:-1] + half)[:, None] + half[:, None] * NODES
    height = log_site(x) - 0.5 * (x - mean) ** 2 / variance
    mass = half[:, None] * WEIGHTS * np.exp(height - height.max())
    centre = np.sum(mass * x) / mass.sum()
    log_z = np.log(mass.sum()) + height.max() - 0.5 * np.log(2 * np.pi * variance)
    return log_z, centre, np.sum(mass * (x - centre) ** 2) / mass.sum()


@pytest.mark.parametrize("variance", [1e-4, 0.3, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("name", FAMILIES)
def test_tilted_moments_at_any_width(name, variance):
    """From a cavity that hardly sees the site to one that is thousands of times as wide."""
    sites = FAMILIES[name][0]
    for shift in (-2.5, 0.0, 1.5):
        mean = np.array([-0.3, 0.2, 0.8]) + shift * np.sqrt(variance)
        found = sites.tilted(mean, np.full(3, variance))
        for n in range(3):
            one = sites.part(slice(n, n + 1))
            places = (one.table[0, 0] if name in ("Student", "double exponential") else 0.0, 3.0)
            exact = reference_moments(
                lambda x, s=one: s.log(x.reshape(-1, 1)).reshape(x.shape), mean[n], variance, places
            )
            sd = np.sqrt(exact[2])
            np.testing.assert_allclose(found.log_z[n], exact[0], rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose((found.mean[n] - exact[1]) / sd, 0.0, atol=1e-8)
            np.testing.assert_allclose(found.variance[n] / exact[2], 1.0, atol=2e-8)


@pytest.mark.parametrize(
    ("site", "sigma", "nu"), [(12.0, 1.0, 4.0), (8.0, 1e-3, 1.0), (-5.0, 0.02, 2.5)]
)
def test_a_student_site_that_leaves_two_modes(site, sigma, nu):
    sites = k.student(site, sigma, nu)
    for variance in (1.0, 6.5):
        found = sites.tilted(np.zeros(1), np.full(1, variance))
        exact = reference_moments(
            lambda x: stats.t.logpdf(x, nu, site, sigma), 0.0, variance, (site,)
        )
        np.testing.assert_allclose(np.ravel(found), exact, rtol=1e-8)


@pytest.mark.parametrize("name", ["Student", "double exponential", "logistic density"])
def test_a_prior_divided_by_its_base(name):
    """Site times base is the prior, whatever the base: the moments do not depend on it."""
    prior = FAMILIES[name][0]
    mean, variance = np.array([0.3, -1.0, 2.0]), np.array([0.2, 1.5, 4.0])
    plain = prior.tilted(mean, variance)
    for base_mean, base_variance in ((0.0, 9.0), (-3.0, 50.0), (1.0, 1e4)):
        sites = prior.over(base_mean, base_variance)
        np.testing.assert_allclose(
            sites.log(GRID * np.ones(3)) + stats.norm.logpdf(GRID, base_mean, base_variance**0.5),
            prior.log(GRID * np.ones(3)), rtol=1e-11, atol=1e-11,
        )  # fmt: skip
        precision = 1 / variance + 1 / base_variance  # N(mean, variance) as base times a cavity
        cavity = (mean / variance + base_mean / base_variance) / precision
        found = sites.tilted(cavity, 1 / precision)
        np.testing.assert_allclose(found.mean, plain.mean, rtol=1e-8)
        np.testing.assert_allclose(found.variance, plain.variance, rtol=1e-8)
    with pytest.raises(ValueError, match="base already"):
        sites.over(0.0, 1.0)


def test_a_cavity_that_is_the_base_leaves_the_prior_itself():
    base_mean, base_variance = 0.7, 9.0
    at_base = (np.array([base_mean]), np.array([base_variance]))
    for prior, mean, variance in (
        (k.student(0.3, 2.0, 5.0), 0.3, 4.0 * 5.0 / 3.0),
        (k.double_exponential(0.3, 0.5), 0.3, 8.0),
        (k.logistic(1.0, 1.0, 2.0, -0.6, np.log(2.0)), 0.3, np.pi**2 / 12),
    ):
        found = prior.over(base_mean, base_variance).tilted(*at_base)
        np.testing.assert_allclose(np.ravel(found), [0.0, mean, variance], rtol=1e-7, atol=1e-9)
    cauchy = k.student(0.0, 1.0, 1.0).over(base_mean, base_variance)
    assert np.isposinf(cauchy.tilted(*at_base).log_z) and np.isnan(cauchy.tilted(*at_base).mean)
    wider = cauchy.tilted(at_base[0], 1.01 * at_base[1])  # the base is not even in the cavity
    assert np.isposinf(wider.log_z)


def test_a_flat_prior_is_one_over_its_base():
    flat = k.gaussian(0.0, 0.0).over(1.0, 4.0)
    found = flat.tilted(np.array([1.5]), np.array([2.0]))  # N(1.5, 2) / N(1, 4) = N(2, 4) c
    np.testing.assert_allclose([found.mean[0], found.variance[0]], [2.0, 4.0])
    x = np.linspace(-60, 60, 200_001)
    mass = np.exp(flat.log(x[:, None])[:, 0] + stats.norm.logpdf(x, 1.5, 2**0.5))
    np.testing.assert_allclose(found.log_z[0], np.log(mass.sum() * (x[1] - x[0])), rtol=1e-10)
    assert np.isposinf(flat.tilted(np.array([1.5]), np.array([4.0])).log_z)


@pytest.mark.parametrize(
    "sites",
    [
        ProbitSites(np.array([1.0, -1.0, 1.0])),
        LogitSites(np.array([1.0, -1.0, 1.0])),
        StepSites(np.array([1.0, -1.0, 1.0])),
        GaussianSites(np.array([0.3, -2.0, 1.0]), np.array([0.5, 2.0, 7.0]), np.full(3, -1.0)),
        PoissonSites(np.array([0.0, 3.0, 11.0]), 0.5),
    ],
)
def test_the_closed_classes_as_known_sites(sites):
    same = k.known(sites, 3)
    assert isinstance(same, KnownSites)
    mean, variance = np.array([0.4, -1.2, 0.8]), np.array([0.6, 0.4, 30.0])
    if not isinstance(sites, StepSites):
        for ours, theirs in zip(same.derivatives(mean), sites.derivatives(mean), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-13)
    for ours, theirs in zip(same.tilted(mean, variance), sites.tilted(mean, variance), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    assert k.known(GraphSites(sites.log, lambda eta: None), 3) is None


def test_the_generic_route_agrees():
    """`GraphSites` knows nothing but the log: its own nodes against the families'."""
    mean, variance = np.array([0.3, -0.5, 1.0]), np.array([0.5, 2.0, 1.0])
    for name in SMOOTH:
        sites = FAMILIES[name][0]
        generic = GraphSites(sites.log, sites.derivatives)
        for ours, theirs in zip(
            sites.tilted(mean, variance), generic.tilted(mean, variance), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9, err_msg=name)


def test_moments_broadcast_and_small_variances_leave_eta_known():
    sites = FAMILIES["negative binomial"][0]
    found = sites.tilted(np.zeros((2, 4, 3)), np.ones(3))
    assert found.mean.shape == (2, 4, 3)
    for variance in (0.0, 1e-300, 1e-18):
        still = sites.tilted(np.full(3, 0.4), np.full(3, variance))
        np.testing.assert_allclose(still.log_z, sites.log(np.full(3, 0.4)), rtol=1e-12)
        np.testing.assert_allclose(still.variance, variance, rtol=1e-9)


def test_traits():
    sites = KnownSites(
        np.concatenate([FAMILIES[n][0].code[:1] for n in FAMILIES]),
        np.concatenate([FAMILIES[n][0].table[:1] for n in FAMILIES]),
    )
    kinked = np.array([n == "double exponential" for n in FAMILIES])
    np.testing.assert_array_equal(sites.smooth, ~kinked)
    concave = np.array([n not in ("Student", "Beta") for n in FAMILIES])
    np.testing.assert_array_equal(sites.log_concave, concave)
    assert not sites.over(0.0, 1.0).log_concave.any()
    assert not k.gaussian(0.0, -1.0).log_concave.any() and k.gaussian(0.0, 0.0).log_concave.all()


def test_laplace_refuses_a_kink_and_names_the_remedy():
    model = SiteModel(
        np.zeros(1), np.ones((1, 1)), np.zeros(1), k.double_exponential(0.5, 1.0), np.ones(1)
    )
    with pytest.raises(UnsupportedPair, match=r"1 of 1 sites have a kink.*EP\(\) or NUTS\(\)"):
        Laplace().approximate(model)
