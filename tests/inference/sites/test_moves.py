"""Kernels that move a block: each leaves the exact conditional alone, and a wrong one is seen."""

import numpy as np
import pytest
from scipy.special import log_ndtr

from ardvark.errors import UnsupportedPair
from ardvark.inference.ep.ep import EP
from ardvark.inference.exact.exact import Exact
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import GaussianSites, GraphSites, LogitSites, ProbitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.moves import KERNELS, approximate_or_prior, log_ratio, move_block
from ardvark.inference.sites.posterior import condition
from ardvark.inference.vb.bound import Bound

DRAWS = 6000


def probit_model(kind="weights"):
    """Two weights, twelve rows: few enough for a grid, enough for a skewed posterior."""
    rng = np.random.default_rng(5)
    A = rng.normal(size=(12, 2))
    sign = np.where(A @ [2.0, -0.5] + 0.5 * rng.normal(size=12) > 0, 1.0, -1.0)
    offset = 0.3 * rng.normal(size=12) if kind == "offset" else np.zeros(12)
    if kind == "dense":  # the block is the predictor itself, as in a Gaussian process
        K = np.array([[1.5, 0.9], [0.9, 1.2]])
        return SiteModel(np.zeros(2), A, offset, ProbitSites(sign), covariance=K)
    return SiteModel(np.array([0.2, -0.1]), A, offset, ProbitSites(sign), np.array([0.3, 0.5]))


def moments_by_grid(model):
    """Mean and sd of both weights on a fine grid: the truth."""
    axis = np.linspace(-9.0, 9.0, 601)
    w = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    log = model.log_joint(w)
    p = np.exp(log - log.max())
    p /= p.sum()
    mean = p @ w
    return mean, np.sqrt(p @ (w - mean) ** 2)


def z_scores(draws, truth):
    """Errors of means and of mean squares in Monte Carlo standard errors, by 40 batches."""
    mean, sd = truth
    values = np.concatenate([draws - mean, (draws - mean) ** 2 - sd**2], axis=1)
    batches = values.reshape(40, -1, values.shape[1]).mean(axis=1)
    return batches.mean(axis=0) / (batches.std(axis=0, ddof=1) / np.sqrt(40))


def chain(model, q_of, kernel, freedom=None, seed=1, draws=DRAWS):
    rng, w, kept = np.random.default_rng(seed), np.zeros(2), np.empty((draws, 2))
    for i in range(draws):
        w = move_block(model, q_of(w), w, rng, kernel, freedom).weights
        kept[i] = w
    return kept


@pytest.mark.parametrize("kind", ["weights", "offset", "dense"])
@pytest.mark.parametrize(("kernel", "freedom"), [
    ("elliptical", None), ("elliptical", 6.0), ("independence", None), ("independence", 6.0),
])  # fmt: skip
def test_exact_kernels_keep_the_posterior(kind, kernel, freedom):
    model = probit_model(kind)
    q = EP().approximate(model).posterior
    draws = chain(model, lambda w: q, kernel, freedom)
    assert np.abs(z_scores(draws, moments_by_grid(model))).max() < 4


@pytest.mark.parametrize("rule", [EP(max_sweeps=1), Laplace(max_iterations=1), Bound()])
def test_a_rule_that_has_not_converged_is_as_exact(rule):
    model = probit_model()
    q, found = approximate_or_prior(rule, model)
    assert found
    draws = chain(model, lambda w: q, "elliptical")
    assert np.abs(z_scores(draws, moments_by_grid(model))).max() < 4


def test_drawing_from_a_poor_approximation_is_seen():
    """The control of the ratio: without it the chain has the moments of q."""
    model = probit_model()
    none = np.zeros(12)
    prior = condition(model, none, none)
    draws = chain(model, lambda w: prior, "draw")
    assert np.abs(z_scores(draws, moments_by_grid(model))).max() > 10


def test_an_approximation_that_depends_on_the_state_is_seen():
    """The control of the cold start: q expanded at the present weights is not a function of θ."""
    model = probit_model()

    def q_here(w):
        site = model.sites.derivatives(model.predictor(w))
        return condition(model, -site.second, site.first - site.second * model.predictor(w))

    draws = chain(model, q_here, "elliptical")
    assert np.abs(z_scores(draws, moments_by_grid(model))).max() > 5


def test_ratio_is_constant_where_the_sites_are_gaussian():
    rng = np.random.default_rng(2)
    sites = GaussianSites(rng.normal(size=7), np.full(7, 2.0), np.zeros(7))
    model = SiteModel(np.zeros(3), rng.normal(size=(7, 3)), np.zeros(7), sites, np.ones(3))
    q = Laplace().approximate(model).posterior
    ratios = [log_ratio(model, q, model.predictor(w)) for w in rng.normal(size=(5, 3))]
    assert np.ptp(ratios) < 1e-10
    moved = move_block(model, q, np.zeros(3), rng, "independence")
    assert moved.moved and moved.acceptance == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("kind", ["weights", "offset", "dense"])
def test_ratio_equals_the_difference_of_full_log_densities(kind):
    """Beside the sites' own formula: target minus q over all weights, at two points."""
    model = probit_model(kind)
    q = EP(max_sweeps=2).approximate(model).posterior
    one, two = np.array([0.4, -1.0]), np.array([2.0, 0.3])
    full = [float(model.log_joint(w) - q.log_density(w)) for w in (one, two)]
    short = [log_ratio(model, q, model.predictor(w)) for w in (one, two)]
    assert full[0] - full[1] == pytest.approx(short[0] - short[1], abs=1e-10)


@pytest.mark.parametrize("kind", ["offset", "dense"])
def test_a_trial_costs_one_look_at_the_sites(kind):
    """N predictors, once for the level and once a trial: no density of all weights."""
    model, seen = probit_model(kind), []
    sign = model.sites.sign

    def log(eta):
        seen.append(np.shape(eta))
        return log_ndtr(sign * eta)

    q = EP().approximate(model).posterior
    sites = GraphSites(log, lambda eta: None)
    watched = SiteModel(
        model.mean, model.projection, model.offset, sites, model.precision, model.covariance
    )
    moved = move_block(watched, q, np.zeros(2), np.random.default_rng(8), "elliptical", 6.0)
    assert seen == [(12,)] * (moved.trials + 1)


def test_a_rule_without_an_answer_leaves_the_prior():
    """A log site that is convex enough has no Gaussian: the slice goes on with the prior."""
    model = probit_model()
    sign = model.sites.sign

    class Hopeless:
        def approximate(self, model, warm=None):
            raise np.linalg.LinAlgError

    sites = GraphSites(lambda eta: log_ndtr(sign * eta), lambda eta: None)
    model = SiteModel(model.mean, model.projection, model.offset, sites, model.precision)
    q, found = approximate_or_prior(Hopeless(), model)
    assert not found and not q.site_precision.any()
    draws = chain(model, lambda w: q, "elliptical")
    assert np.abs(z_scores(draws, moments_by_grid(model))).max() < 4


def test_same_seed_same_moves():
    model = probit_model()
    q = EP().approximate(model).posterior
    for kernel in KERNELS:
        runs = [chain(model, lambda w: q, kernel, seed=3, draws=40) for _ in range(2)]
        assert np.array_equal(*runs)


# The bound as a rule ------------------------------------------------------------------------------


def test_bound_of_gaussian_sites_is_exact():
    rng = np.random.default_rng(6)
    sites = GaussianSites(rng.normal(size=7), np.full(7, 2.0), np.full(7, 0.3))
    model = SiteModel(np.ones(3), rng.normal(size=(7, 3)), rng.normal(size=7), sites, np.ones(3))
    fit, truth = Bound().approximate(model), Exact().sample(model, 0, rng)
    assert truth.fit is not None
    assert np.allclose(fit.posterior.mean, truth.fit.posterior.mean, atol=1e-10)
    assert fit.log_evidence == pytest.approx(truth.log_evidence, abs=1e-10)


@pytest.mark.parametrize("family", [ProbitSites, LogitSites])
def test_bound_is_below_the_evidence_and_its_gaussian_too_narrow(family):
    model = probit_model()
    sites = family(model.sites.sign)
    model = SiteModel(model.mean, model.projection, model.offset, sites, model.precision)
    fit = Bound(tolerance=1e-8, max_iterations=2000).approximate(model)
    axis = np.linspace(-12.0, 12.0, 601)
    w = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    log = model.log_joint(w)
    evidence = np.log(np.exp(log - log.max()).sum() * (axis[1] - axis[0]) ** 2) + log.max()
    assert fit.converged
    assert evidence - 0.2 * 12 < fit.log_evidence < evidence  # Albert & Chib: 0.13 nats a row here
    assert (np.sqrt(fit.posterior.marginal_variance) < moments_by_grid(model)[1]).all()


def test_no_bound_for_other_sites():
    model = probit_model()
    sites = GraphSites(lambda eta: -(eta**4), lambda eta: None)
    other = SiteModel(model.mean, model.projection, model.offset, sites, model.precision)
    with pytest.raises(UnsupportedPair, match="no bound is known"):
        Bound().approximate(other)
