"""The trigonometric likelihood: as sites, as a distribution, and its moments under a Gaussian."""

from itertools import pairwise

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.integrate import quad

from ardvark.inference.known_sites.recognition import recognise
from ardvark.inference.sites.likelihoods import GraphSites, ProbitSites
from ardvark.inference.sites.trigonometric import TrigonometricSites
from ardvark.models.likelihoods import log_cos_squared, trigonometric

PLUS = TrigonometricSites(np.array([1.0]))
GRID = np.concatenate([np.linspace(-1.5, 1.5, 3001), 1 - np.logspace(-12, -1, 30)])


def compiled(inputs, outputs):
    with pytensor.config.change_flags(cxx=""):
        return pytensor.function(inputs, outputs, mode="FAST_COMPILE")


# --- the function itself ---------------------------------------------------------------------


def test_the_two_classes_sum_to_one():
    total = np.exp(PLUS.log(GRID)) + np.exp(TrigonometricSites(np.array([-1.0])).log(GRID))
    np.testing.assert_allclose(total, 1.0, rtol=0, atol=1e-15)


def test_values_of_the_paper():
    # Chu06 (7) as printed, and its two flat sides
    inside = np.linspace(-0.99, 0.99, 101)
    np.testing.assert_allclose(np.exp(PLUS.log(inside)), np.cos(np.pi / 4 * (1 - inside)) ** 2)
    assert PLUS.log(np.array([1.0, 1.5, 40.0])).tolist() == [0.0, 0.0, 0.0]
    assert PLUS.log(np.array([-1.0, -1.5, -40.0])).tolist() == [-np.inf] * 3


def test_ends_of_the_margin_keep_their_digits():
    small = np.array([1e-12, 1e-9, 1e-5])
    # near +1 the loss is (π ξ/4)², near -1 the probability is (π u/4)²; next terms are of 4th order
    np.testing.assert_allclose(
        PLUS.log(1 - small), -((np.pi / 4 * (1 - (1 - small))) ** 2), rtol=1e-9
    )
    u = 1 + (small - 1)
    np.testing.assert_allclose(PLUS.log(small - 1), 2 * np.log(np.pi / 4 * u), rtol=1e-9)


def test_derivatives_are_those_of_the_log():
    eta, h = np.linspace(-0.93, 0.93, 41), 1e-5
    for sign in (1.0, -1.0):
        sites = TrigonometricSites(np.full(eta.size, sign))
        here = sites.derivatives(eta)
        above, below = sites.derivatives(eta + h), sites.derivatives(eta - h)
        for order in range(3):
            slope = (above[order] - below[order]) / (2 * h)
            np.testing.assert_allclose(here[order + 1], slope, rtol=2e-6, atol=1e-8)
    beyond = PLUS.derivatives(np.array([1.0, 2.0]))
    assert not any(part.any() for part in beyond)


def test_graph_has_the_same_value_and_slope():
    z = pt.vector("z")
    value, slope = compiled([z], [log_cos_squared(z), pt.grad(log_cos_squared(z).sum(), z)])(GRID)
    ours = PLUS.derivatives(GRID)
    np.testing.assert_allclose(value, ours.value, rtol=1e-13, atol=1e-300)
    inside = GRID > -1
    np.testing.assert_allclose(slope[inside], ours.first[inside], rtol=1e-9, atol=1e-9)
    assert (slope[~inside] == 0).all()  # not NaN: 0 times inf


def test_draws_have_the_right_frequency():
    eta = np.array([-2.0, -0.5, 0.0, 0.7, 3.0])
    with pytensor.config.change_flags(cxx=""):
        with pm.Model():
            t = trigonometric("t", eta)
        drawn = pm.draw(t, 4000, random_seed=1, mode="FAST_COMPILE")
    p = np.exp(PLUS.log(eta))
    error = np.sqrt(p * (1 - p) / 4000)
    assert (np.abs(drawn.mean(axis=0) - p) <= 4 * error).all()
    assert set(np.unique(drawn)) == {0, 1}


# --- moments under a Gaussian ----------------------------------------------------------------


def reference_moments(mean, variance):
    """log mass, mean, variance by adaptive quadrature in pieces, scaled by the largest value."""
    sd = np.sqrt(variance)
    top = max(
        (PLUS.log(np.array([z]))[0] - (z - mean) ** 2 / (2 * variance))
        for z in np.concatenate([np.linspace(-0.9999, 1, 20001), [max(1.0, mean)]])
    )

    def density(z, power, centre):
        log_p = PLUS.log(np.array([z]))[0] - (z - mean) ** 2 / (2 * variance) - top
        return (z - centre) ** power * np.exp(log_p)

    far = max(1.0, mean) + 12 * sd
    cuts = [-1.0, *sorted({z for z in mean + sd * np.arange(-10, 11, 2.0) if -1 < z < far} | {1.0})]
    cuts = sorted({*cuts, *(-1 + 2.0 ** -np.arange(12)), far})

    def integral(power, centre):
        pieces = pairwise(cuts)
        return sum(
            quad(density, a, b, args=(power, centre), epsabs=0, epsrel=1e-12)[0]
            for a, b in pieces
            if b > a
        )

    mass = integral(0, 0.0)
    centre = integral(1, 0.0) / mass
    log_mass = np.log(mass) + top - 0.5 * np.log(2 * np.pi * variance)
    return log_mass, centre, integral(2, centre) / mass


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("mean", [-4.0, -1.2, 0.0, 0.6, 1.0, 2.5])
@pytest.mark.parametrize("variance", [0.003, 0.4, 9.0])
def test_moments_agree_with_adaptive_quadrature(mean, variance):
    log_z, centre, spread = reference_moments(mean, variance)
    ours = PLUS.tilted(np.array([mean]), np.array([variance]))
    assert ours.log_z[0] == pytest.approx(log_z, abs=1e-10)
    assert abs(ours.mean[0] - centre) <= 1e-9 * np.sqrt(spread)
    assert ours.variance[0] == pytest.approx(spread, rel=1e-8)


def test_moments_of_the_other_class_are_mirrored():
    mean, variance = np.linspace(-3, 3, 13), np.full(13, 0.7)
    plus = TrigonometricSites(np.ones(13)).tilted(mean, variance)
    minus = TrigonometricSites(-np.ones(13)).tilted(-mean, variance)
    np.testing.assert_allclose(minus.log_z, plus.log_z, rtol=1e-14)
    np.testing.assert_allclose(minus.mean, -plus.mean, rtol=1e-14)


def test_masses_of_the_two_classes_sum_to_one():
    mean, variance = np.meshgrid(np.linspace(-6, 6, 25), [1e-8, 1e-3, 0.5, 7.0, 1e6])
    masses = [TrigonometricSites(np.array(s)).tilted(mean, variance).log_z for s in (1.0, -1.0)]
    np.testing.assert_allclose(np.exp(masses[0]) + np.exp(masses[1]), 1.0, atol=1e-13)


def test_gauss_hermite_is_not_good_enough():
    # why the margin has nodes of its own: the kinks leave a plain rule at 1e-4
    x, w = np.polynomial.hermite_e.hermegauss(32)
    mean, variance = 0.4, 2.0
    plain = np.log(np.sum(w * np.exp(PLUS.log(mean + np.sqrt(variance) * x))) / w.sum())
    ours = PLUS.tilted(np.array([mean]), np.array([variance])).log_z[0]
    assert 1e-5 < abs(plain - ours) < 1e-2


def test_nodes_give_the_moments_inside_the_margin():
    mean, variance = np.array([-0.5, 0.2, 1.4]), np.array([0.3, 1.0, 2.0])
    sites = TrigonometricSites(np.array([1.0, -1.0, 1.0]))
    eta, share = sites.nodes(mean, variance)
    np.testing.assert_allclose(share.sum(axis=0), 1.0, rtol=1e-13)
    np.testing.assert_allclose(
        (share * eta).sum(axis=0), sites.tilted(mean, variance).mean, rtol=1e-12
    )


# --- recognition by value --------------------------------------------------------------------


def test_it_is_recognised_by_value_and_only_it():
    sign = np.array([1.0, -1.0, 1.0, -1.0])
    found = recognise(TrigonometricSites(sign).log, 4)
    assert isinstance(found, TrigonometricSites)
    np.testing.assert_array_equal(found.sign, sign)
    wider = recognise(lambda eta: TrigonometricSites(sign).log(eta / 1.02), 4)
    assert wider is None
    tempered = recognise(lambda eta: 0.999 * TrigonometricSites(sign).log(eta), 4)
    assert tempered is None
    with np.errstate(divide="ignore"):
        step = recognise(lambda eta: np.log((sign * eta > 0).astype(float)), 4)
    assert step is None
    assert isinstance(recognise(ProbitSites(sign).log, 4), ProbitSites)


def test_quadrature_of_any_graph_agrees():
    sites = TrigonometricSites(np.array([1.0, -1.0]))
    general = GraphSites(sites.log, sites.derivatives)
    mean, variance = np.array([0.3, -0.8]), np.array([1.5, 0.6])
    for ours, theirs in zip(
        sites.tilted(mean, variance), general.tilted(mean, variance), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
