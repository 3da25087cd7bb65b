"""Families found by value: every family, every group, and strangers that must not be taken."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, gammaln, log_expit, log_ndtr

from ardvark.inference.known_sites import kernels
from ardvark.inference.known_sites.known import KnownSites
from ardvark.inference.known_sites.recognition import Group, recognise
from ardvark.inference.known_sites.stacked import StackedSites
from ardvark.inference.sites.likelihoods import (
    Derivatives,
    GaussianSites,
    GraphSites,
    LogitSites,
    PoissonSites,
)

RNG = np.random.default_rng(23)
N = 40
SIGN = np.where(RNG.random(N) < 0.5, -1.0, 1.0)
COUNT = RNG.poisson(4.0, N).astype(float)
TARGET = 2.0 * RNG.normal(size=N)
POSITIVE = RNG.gamma(2.0, size=N)
SHARE = RNG.beta(2.0, 3.0, size=N)
SD = np.exp(RNG.normal(size=N))
CATEGORY = RNG.integers(0, 5, N)
CUTS = np.array([-np.inf, -1.2, -0.1, 0.9, 2.5, np.inf])
ETA = 3.0 * RNG.normal(size=(60, N))


def negative_binomial(eta, size):
    constant = gammaln(COUNT + size) - gammaln(size) - gammaln(COUNT + 1.0)
    u = eta - np.log(size)
    return constant + COUNT * log_expit(u) + size * log_expit(-u)


FAMILIES = {
    "logit with slopes": (kernels.LOGISTIC, lambda eta: log_expit(SIGN * eta / SD)),
    "logit scaled to look like a probit": (
        kernels.LOGISTIC,
        lambda eta: log_expit(1.702 * eta * SIGN),
    ),
    "probit with slopes": (kernels.PROBIT, lambda eta: log_ndtr(SIGN * eta / SD)),
    "probit with a shift": (kernels.PROBIT, lambda eta: log_ndtr(SIGN * (1.01 * eta + 0.4))),
    "binomial": (kernels.LOGISTIC, lambda eta: stats.binom.logpmf(COUNT, 30, expit(eta))),
    "negative binomial": (kernels.LOGISTIC, lambda eta: negative_binomial(eta, 3.7)),
    "negative binomial, nearly Poisson": (
        kernels.LOGISTIC,
        lambda eta: negative_binomial(eta, 1e5),
    ),
    "negative binomial, exposures": (
        kernels.LOGISTIC,
        lambda eta: negative_binomial(eta + TARGET, 0.1),
    ),
    "Gamma": (
        kernels.EXPONENTIAL,
        lambda eta: stats.gamma.logpdf(POSITIVE, 2.3, scale=np.exp(eta)),
    ),
    "Weibull": (
        kernels.EXPONENTIAL,
        lambda eta: stats.weibull_min.logpdf(POSITIVE, 1.7, scale=np.exp(eta)),
    ),
    "censored Weibull": (kernels.EXPONENTIAL, lambda eta: -((POSITIVE / np.exp(eta)) ** 1.7)),
    "Gumbel": (kernels.EXPONENTIAL, lambda eta: stats.gumbel_r.logpdf(TARGET, eta, 1.3)),
    "Student": (kernels.STUDENT, lambda eta: stats.t.logpdf(TARGET, 4.0, eta, 0.8)),
    "Student, sd of each row": (kernels.STUDENT, lambda eta: stats.t.logpdf(TARGET, 4.3, eta, SD)),
    "far Student": (kernels.STUDENT, lambda eta: stats.t.logpdf(1e4 * TARGET, 3.0, eta, 1.0)),
    "very wide Student": (kernels.STUDENT, lambda eta: stats.t.logpdf(TARGET, 3.0, eta, 1e5)),
    "Cauchy": (kernels.STUDENT, lambda eta: stats.cauchy.logpdf(TARGET, eta, 0.03)),
    "double exponential": (
        kernels.DOUBLE_EXPONENTIAL,
        lambda eta: stats.laplace.logpdf(TARGET, eta, 0.7),
    ),
    "far double exponential": (kernels.DOUBLE_EXPONENTIAL, lambda eta: -np.abs(1e4 * TARGET - eta)),
    "quantile regression": (
        kernels.DOUBLE_EXPONENTIAL,
        lambda eta: -np.where(TARGET > eta, 0.3 * (TARGET - eta), 0.7 * (eta - TARGET)),
    ),
    "logistic density": (kernels.LOGISTIC, lambda eta: stats.logistic.logpdf(TARGET, eta, 0.37)),
    "Beta": (
        kernels.BETA,
        lambda eta: stats.beta.logpdf(SHARE, 7.3 * expit(eta), 7.3 * expit(-eta)),
    ),
    "Beta, precise": (
        kernels.BETA,
        lambda eta: stats.beta.logpdf(SHARE, 730 * expit(eta), 730 * expit(-eta)),
    ),
    "ordered logit": (
        kernels.LOGISTIC,
        lambda eta: np.log(expit(CUTS[CATEGORY + 1] - eta) - expit(CUTS[CATEGORY] - eta)),
    ),
    "flat": (kernels.GAUSSIAN, lambda eta: 0 * eta * SIGN + 0.3),
    "upside down": (kernels.GAUSSIAN, lambda eta: 0.3 * (eta - TARGET) ** 2),
}

STRANGERS = {
    "zero-inflated Poisson": lambda eta: np.log(
        0.3 * (COUNT == 0) + 0.7 * stats.poisson.pmf(COUNT, np.exp(eta))
    ),
    "von Mises": lambda eta: stats.vonmises.logpdf(TARGET, 2.0, eta),
    "one row with lapses": lambda eta: np.where(
        np.arange(N) == 7, np.log(1e-3 + 0.998 * expit(eta)), log_expit(SIGN * eta)
    ),
    "Student-t of an exponential": lambda eta: stats.t.logpdf(POSITIVE, 4.0, np.exp(eta), 1.0),
    "quartic": lambda eta: -((eta - TARGET) ** 4),
    "logit, slightly tempered": lambda eta: 0.999 * log_expit(SIGN * eta),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_found_with_its_values(name):
    code, log_site = FAMILIES[name]
    found = recognise(log_site, N)
    assert isinstance(found, KnownSites)
    assert set(found.code) == {code}
    expected = log_site(ETA)
    np.testing.assert_allclose(found.log(ETA), expected, rtol=1e-6, atol=1e-6)
    again = recognise(log_site, N, hint=found)
    assert isinstance(again, KnownSites)
    np.testing.assert_allclose(again.log(ETA), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", STRANGERS)
def test_strangers_stay_strangers(name):
    with np.errstate(all="ignore"):
        found = recognise(STRANGERS[name], N)
    assert found is None or not isinstance(found, LogitSites)
    if name == "logit, slightly tempered":  # a Bernoulli to the power 0.999 has a family: say so
        assert isinstance(found, KnownSites) and np.allclose(found.table[:, :2].sum(axis=1), 0.999)
    else:
        assert found is None


def test_rows_of_several_families_stand_in_one_table():
    def log_site(eta):
        return np.where(SIGN > 0, log_ndtr(eta), stats.t.logpdf(TARGET, 4.0, eta, 0.5))

    found = recognise(log_site, N)
    assert isinstance(found, KnownSites)
    np.testing.assert_array_equal(found.code == kernels.PROBIT, SIGN > 0)
    np.testing.assert_allclose(found.log(ETA), log_site(ETA), rtol=1e-9, atol=1e-9)


def test_constants_in_single_precision_are_seen_through():
    """What a graph with float32 constants gives: off by 1e-8 to 3e-7 relative."""
    third, half = float(np.float32(1 / 3)), float(np.float32(0.1))
    found = recognise(lambda eta: stats.t.logpdf(TARGET, 1 / third, eta, half), N)
    assert isinstance(found, KnownSites) and set(found.code) == {kernels.STUDENT}
    rounded = recognise(lambda eta: log_expit(SIGN * eta) * (1 + 3e-8), N)
    assert type(rounded) is LogitSites


def test_a_hint_saves_evaluations_and_changes_nothing():
    def count_calls(hint):
        calls = 0

        def log_site(eta):
            nonlocal calls
            calls += 1
            return stats.t.logpdf(1e4 * TARGET, 3.3, eta, 1.1)

        return recognise(log_site, N, hint=hint), calls

    before = recognise(lambda eta: stats.t.logpdf(1e4 * TARGET, 3.0, eta, 1.0), N)
    (cold, many), (warm, few) = count_calls(None), count_calls(before)
    assert few <= 4 < many
    np.testing.assert_allclose(warm.table, cold.table, rtol=1e-7)
    unknown = GraphSites(STRANGERS["von Mises"], lambda eta: None)
    assert count_calls(unknown) == (None, 1)


@pytest.mark.parametrize("factor", [0.02, 0.7, 50.0])
def test_parabolas_are_found_again_with_two_looks(factor):
    calls = 0

    def log_site(eta):
        nonlocal calls
        calls += 1
        return stats.norm.logpdf(TARGET, eta, factor * SD)

    hint = recognise(lambda eta: stats.norm.logpdf(TARGET, eta, SD), N)
    assert isinstance(hint, GaussianSites)
    calls = 0
    found = recognise(log_site, N, hint=hint)
    assert isinstance(found, GaussianSites) and calls == 2
    np.testing.assert_allclose(found.mean, TARGET, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.precision, (factor * SD) ** -2.0, rtol=1e-9)
    np.testing.assert_allclose(found.log(ETA), log_site(ETA), rtol=1e-9, atol=1e-9)


OTHERS = {
    "elsewhere": lambda eta: stats.norm.logpdf(TARGET + 0.1, eta, SD),
    "a thousand times as wide": lambda eta: stats.norm.logpdf(TARGET, eta, 1000.0 * SD),
    "no parabola far out": lambda eta: stats.t.logpdf(TARGET, 300.0, eta, SD),
    "one row is another family": lambda eta: np.where(
        np.arange(N) == 3, log_ndtr(eta), stats.norm.logpdf(TARGET, eta, SD)
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_hint_of_parabolas_does_not_make_one(name):
    hint = recognise(lambda eta: stats.norm.logpdf(TARGET, eta, SD), N)
    cold, warm = (recognise(OTHERS[name], N, hint=h) for h in (None, hint))
    assert type(warm) is type(cold)
    np.testing.assert_allclose(warm.log(ETA), OTHERS[name](ETA), rtol=1e-6, atol=1e-6)


def test_a_hint_of_heavy_tails_does_not_give_a_logit_a_kink():
    """Rows without a top were followed outwards until a logit looked like a double exponential."""

    def log_site(eta):
        return np.where(np.arange(N) < 10, stats.t.logpdf(eta, 5.0), log_expit(SIGN * eta))

    cold = recognise(log_site, N)
    warm = recognise(log_site, N, hint=cold)
    assert set(cold.code) == {kernels.STUDENT, kernels.LOGISTIC}
    np.testing.assert_array_equal(warm.code, cold.code)
    np.testing.assert_allclose(warm.table, cold.table, rtol=1e-6, atol=1e-9)


# Groups ---------------------------------------------------------------------------------------

HALF = N // 2
FIRST, SECOND = slice(0, HALF), slice(HALF, N)


def two_groups(first, second):
    def log_site(eta):
        with np.errstate(all="ignore"):
            return np.concatenate([first(eta)[..., FIRST], second(eta)[..., SECOND]], axis=-1)

    return log_site


def other(log_site):
    """A factory as the reader of a graph has one."""

    def make(rows):
        def log(eta):
            full = np.zeros((*eta.shape[:-1], N))
            full[..., rows] = eta
            return log_site(full)[..., rows]

        return GraphSites(log, lambda eta: Derivatives(log(eta), eta, eta, eta))

    return make


def test_known_groups_fuse_and_unknown_ones_are_made():
    logit, poisson = (lambda eta: log_expit(SIGN * eta)), (
        lambda eta: stats.poisson.logpmf(COUNT, np.exp(eta))
    )  # fmt: skip
    fused = recognise(two_groups(logit, poisson), N, [FIRST, SECOND])
    assert isinstance(fused, KnownSites)
    assert set(fused.code[FIRST]) == {kernels.LOGISTIC}
    assert set(fused.code[SECOND]) == {kernels.EXPONENTIAL}
    assert type(recognise(two_groups(logit, logit), N, [FIRST, SECOND])) is LogitSites

    mixed = two_groups(logit, STRANGERS["von Mises"])
    assert recognise(mixed, N, [FIRST, SECOND]) is None
    stacked = recognise(mixed, N, [FIRST, SECOND], other(mixed))
    assert isinstance(stacked, StackedSites)
    assert [type(sites) for _, sites in stacked.parts] == [LogitSites, GraphSites]
    np.testing.assert_allclose(stacked.log(ETA), mixed(ETA), rtol=1e-9)
    again = recognise(mixed, N, [FIRST, SECOND], other(mixed), hint=stacked)
    assert isinstance(again, StackedSites) and type(again.parts[0][1]) is LogitSites
    nothing = two_groups(STRANGERS["von Mises"], STRANGERS["quartic"])
    assert recognise(nothing, N, [FIRST, SECOND], other(nothing)) is None


@pytest.mark.parametrize("name", ["Student", "double exponential", "logistic density", "flat"])
def test_a_prior_over_a_base_is_found_behind_it(name):
    code, prior = FAMILIES[name]
    base_mean, base_variance = 0.4, 2.5

    def log_site(eta):
        return prior(eta) - stats.norm.logpdf(eta, base_mean, base_variance**0.5)

    both = two_groups(lambda eta: stats.poisson.logpmf(COUNT, np.exp(eta)), log_site)
    groups = [Group(FIRST), Group(SECOND, (base_mean, base_variance))]
    found = recognise(both, N, groups)
    assert isinstance(found, KnownSites)
    assert set(found.code[SECOND]) == {code}
    np.testing.assert_allclose(found.log(ETA), both(ETA), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        found.table[SECOND, kernels.BASE_PRECISION], -1 / base_variance, rtol=1e-14
    )
    assert not found.table[FIRST, kernels.BASE_PRECISION].any()


def test_groups_must_be_all_rows_once():
    for groups in ([slice(0, 10), slice(12, N)], [slice(0, 10), slice(8, N)]):
        with pytest.raises(ValueError, match="without gap or overlap"):
            recognise(lambda eta: log_expit(SIGN * eta), N, groups)


def test_the_classes_of_one_family_keep_their_names():
    assert type(recognise(lambda eta: stats.norm.logpdf(TARGET, eta, SD), N)) is GaussianSites
    found = recognise(lambda eta: stats.poisson.logpmf(COUNT, np.exp(eta + TARGET)), N)
    assert type(found) is PoissonSites
    np.testing.assert_array_equal(found.count, COUNT)
