"""Exact: closed form for Gaussian sites, independent draws and evidence for probit sites."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp
from scipy.stats import multivariate_normal

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.exact import exact
from ardvark.inference.exact.exact import Exact
from ardvark.inference.exact.truncated_normal import TruncatedNormal
from ardvark.inference.sites.likelihoods import GaussianSites, LogitSites, ProbitSites
from ardvark.inference.sites.model import SiteModel

RNG_SEED = 23
SIGMAS = 4.5  # two-sided 7e-6 per comparison, some hundred comparisons with fixed seeds
DRAWS = 20_000


def small_model(case):
    """A probit problem with at most two weights that are on, as the grid can integrate it."""
    rng = np.random.default_rng(RNG_SEED)
    rows, weights = {"one": (8, 1), "one_row": (1, 2), "off": (10, 3)}.get(case, (12, 2))
    projection = rng.normal(size=(rows, weights))
    sign = np.where(projection[:, 0] + 0.8 * rng.normal(size=rows) > 0, 1.0, -1.0)
    model = SiteModel(
        mean=0.4 * rng.normal(size=weights),
        projection=projection,
        offset=0.3 * rng.normal(size=rows),
        sites=ProbitSites(sign),
        precision=rng.uniform(0.5, 3.0, weights),
    )
    if case == "off":
        precision = model.precision.copy()
        precision[1] = np.inf
        return replace(model, precision=precision)
    if case == "dense":
        return replace(model, precision=None, covariance=np.array([[1.0, 0.6], [0.6, 0.7]]))
    if case == "separable":
        sign = np.where(projection[:, 0] > 0, 1.0, -1.0)
        return replace(model, sites=ProbitSites(sign), precision=np.array([0.01, 0.1]))
    if case == "steep":  # towards the step function
        return replace(model, sites=ProbitSites(2.5 * sign))
    return model


CASES = ("one", "one_row", "plain", "off", "dense", "separable", "steep")


def on_a_grid(model, points=801, reach=9.0):
    """Log evidence, mean and second moments of the weights that are on, by the trapezium rule."""
    on = np.ones(model.mean.size, bool) if model.precision is None else model.precision < np.inf
    covariance = model.covariance if model.precision is None else np.diag(1 / model.precision[on])
    root = np.linalg.cholesky(covariance)
    axis = np.linspace(-reach, reach, points)
    white = np.stack(np.meshgrid(*[axis] * int(on.sum()), indexing="ij"), -1)
    white = white.reshape(-1, int(on.sum()))
    weights = np.tile(model.mean, (len(white), 1))
    weights[:, on] += white @ root.T
    log_terms = -0.5 * np.sum(white**2 + np.log(2 * np.pi), axis=1)
    log_terms += log_ndtr(model.sites.sign * model.predictor(weights)).sum(axis=1)
    log_terms += on.sum() * np.log(axis[1] - axis[0])
    log_evidence = logsumexp(log_terms)
    share, live = np.exp(log_terms - log_evidence), weights[:, on]
    return log_evidence, share @ live, np.einsum("g,gi,gj->ij", share, live, live), on


def discrepancy(model, seed=RNG_SEED, draws=DRAWS):
    """Largest error of evidence, means and second moments in Monte Carlo standard errors."""
    sampled = Exact().sample(model, draws, np.random.default_rng(seed))
    log_evidence, mean, second, on = on_a_grid(model)
    assert sampled.weights.shape == (draws, model.mean.size)
    np.testing.assert_array_equal(sampled.weights[:, ~on] - model.mean[~on], 0.0)
    live = sampled.weights[:, on]
    products = np.einsum("ni,nj->nij", live, live)
    errors = [
        (live.mean(axis=0) - mean) / (live.std(axis=0) / np.sqrt(draws)),
        (products.mean(axis=0) - second) / (products.std(axis=0) / np.sqrt(draws)),
        (sampled.log_evidence - log_evidence) / (sampled.log_evidence_error + 1e-10),
    ]
    return max(np.abs(error).max() for error in errors)


def wide_model(rows, weights, seed=0):
    rng = np.random.default_rng(seed)
    projection = rng.normal(size=(rows, weights))
    truth = rng.normal(size=weights)
    sign = np.where(projection @ truth + rng.normal(size=rows) > 0, 1.0, -1.0)
    return SiteModel(
        np.zeros(weights), projection, np.zeros(rows), ProbitSites(sign), np.ones(weights)
    )


def score_discrepancy(model, weights):
    """Any d: E(score) = 0 and E((w - m0) score') = -I under the posterior, along directions."""
    slope = model.sites.derivatives(model.predictor(weights)).first
    score = slope @ model.projection - (weights - model.mean) * model.precision
    rng = np.random.default_rng(RNG_SEED)
    directions = np.concatenate([rng.normal(size=(10, model.mean.size)), model.projection[:10]])
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    along, pull = (weights - model.mean) @ directions.T, score @ directions.T
    errors = []
    for values, truth in ((pull, 0.0), (along * pull, -1.0)):
        mcse = values.std(axis=0) / np.sqrt(len(values))
        errors.append(np.abs((values.mean(axis=0) - truth) / mcse).max())
    return max(errors)


class TestProbit:
    @pytest.mark.parametrize("case", CASES)
    def test_against_a_grid(self, case):
        assert discrepancy(small_model(case)) < SIGMAS

    def test_one_row_has_its_evidence_without_error(self):
        model = small_model("one_row")
        sampled = Exact().sample(model, 10, np.random.default_rng(RNG_SEED))
        variance = model.projection[0] ** 2 @ (1 / model.precision)
        z = model.sites.sign * model.predictor(model.mean) / np.sqrt(1 + variance)
        assert sampled.log_evidence == pytest.approx(log_ndtr(z)[0], rel=1e-12)
        assert sampled.log_evidence_error < 1e-12

    @pytest.mark.parametrize(("rows", "weights"), [(60, 2000), (30, 12)])
    def test_score_identities_in_many_dimensions(self, rows, weights):
        model = wide_model(rows, weights)
        if weights < rows:  # not hopeless, and not centred
            model = replace(
                model, precision=np.linspace(5, 40, weights), mean=np.full(weights, 0.1)
            )
        sampled = Exact().sample(model, 4000, np.random.default_rng(RNG_SEED))
        assert score_discrepancy(model, sampled.weights) < SIGMAS

    def test_all_weights_off(self):
        model = replace(small_model("plain"), precision=np.full(2, np.inf))
        sampled = Exact().sample(model, 5, np.random.default_rng(RNG_SEED))
        truth = model.sites.log(model.predictor(model.mean)).sum()
        assert sampled.log_evidence == pytest.approx(truth, rel=1e-12)
        np.testing.assert_array_equal(sampled.weights, np.tile(model.mean, (5, 1)))

    def test_no_rows_leave_the_prior(self):
        model = SiteModel(
            np.array([0.5, -1.0]), np.zeros((0, 2)), np.zeros(0), ProbitSites(np.zeros(0)),
            precision=np.array([4.0, 1.0]),
        )  # fmt: skip
        sampled = Exact().sample(model, DRAWS, np.random.default_rng(RNG_SEED))
        assert sampled.log_evidence == 0.0
        errors = (sampled.weights.mean(axis=0) - model.mean) * np.sqrt(model.precision * DRAWS)
        assert np.abs(errors).max() < SIGMAS

    def test_evidence_alone(self):
        model = small_model("plain")
        sampled = Exact(pilot=5000).sample(model, 0, np.random.default_rng(RNG_SEED))
        assert sampled.weights.shape == (0, 2)
        error = abs(sampled.log_evidence - on_a_grid(model)[0])
        assert error < SIGMAS * sampled.log_evidence_error
        assert 0.5 * 5000 < sampled.info["effective_proposals"] <= 5000

    def test_evidence_is_unbiased_on_the_natural_scale(self):
        model, settings = small_model("separable"), Exact(pilot=5)
        rng = np.random.default_rng(RNG_SEED)
        truth = on_a_grid(model)[0]
        ratio = np.exp([settings.sample(model, 1, rng).log_evidence - truth for _ in range(1000)])
        assert ratio.std() > 0.1  # else there would be nothing to see
        assert abs(ratio.mean() - 1.0) < 4.0 * ratio.std() / np.sqrt(ratio.size)

    def test_evidence_error_is_the_spread_between_seeds(self):
        model = wide_model(40, 60)
        runs = [Exact().sample(model, 1, np.random.default_rng(seed)) for seed in range(60)]
        spread = np.std([run.log_evidence for run in runs], ddof=1)
        error = np.mean([run.log_evidence_error for run in runs])
        assert 0.65 < spread / error < 1.45  # chi with 59 degrees: sd 9 %, times 4

    def test_same_seed_same_draws(self):
        model = wide_model(10, 30)
        one, two, other = (
            Exact().sample(model, 50, np.random.default_rng(seed)) for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(one.weights, two.weights)
        assert one.log_evidence == two.log_evidence
        assert not np.array_equal(one.weights, other.weights)

    def test_draws_are_independent(self):
        weights = Exact().sample(small_model("plain"), DRAWS, np.random.default_rng(1)).weights
        centred = weights - weights.mean(axis=0)
        lagged = np.mean(centred[1:] * centred[:-1], axis=0) / centred.var(axis=0)
        assert np.abs(lagged).max() < SIGMAS / np.sqrt(DRAWS)

    def test_proposals_are_counted(self):
        run = Exact(pilot=100).sample(small_model("plain"), 3000, np.random.default_rng(1))
        assert run.info["evidence_proposals"] == 3000
        expected = 3000 / run.info["acceptance"]
        spread = np.sqrt(expected * (1 - run.info["acceptance"])) / run.info["acceptance"]
        assert abs(run.info["proposals"] - expected) < 6 * spread + 3 * np.sqrt(expected)
        assert run.log_evidence < run.info["log_bound"]
        assert run.fit is None


class TestNegativeControls:
    """Planted faults: the very comparison that passes above must fail."""

    def test_noise_forgotten(self, monkeypatch):
        def without_noise(covariance, lower):
            return TruncatedNormal(covariance - 0.9 * np.eye(len(lower)), lower)

        monkeypatch.setattr(exact, "TruncatedNormal", without_noise)
        assert discrepancy(small_model("plain")) > SIGMAS

    def test_signs_forgotten(self, monkeypatch):
        right = exact._weights_given

        def unsigned(surplus, prior, sign, covariance, rng):
            return right(surplus, prior, np.ones_like(sign), covariance, rng)

        monkeypatch.setattr(exact, "_weights_given", unsigned)
        assert discrepancy(small_model("plain")) > SIGMAS
        model = wide_model(60, 2000)
        weights = Exact().sample(model, 4000, np.random.default_rng(RNG_SEED)).weights
        assert score_discrepancy(model, weights) > SIGMAS

    def test_offset_forgotten(self, monkeypatch):
        def centred(covariance, lower):
            return TruncatedNormal(covariance, np.zeros_like(lower))

        monkeypatch.setattr(exact, "TruncatedNormal", centred)
        assert discrepancy(small_model("plain")) > SIGMAS

    def test_prior_alone(self):
        model = wide_model(60, 2000)
        weights = np.random.default_rng(RNG_SEED).normal(size=(4000, 2000))
        assert score_discrepancy(model, weights) > SIGMAS


class TestGaussian:
    @pytest.mark.parametrize("shape", [(25, 4), (6, 15)])
    @pytest.mark.parametrize("dense", [False, True])
    def test_closed_form(self, shape, dense):
        rng = np.random.default_rng(RNG_SEED)
        rows, weights = shape
        root = rng.normal(size=(weights, weights + 2))
        covariance = root @ root.T / weights if dense else np.diag(rng.uniform(0.2, 2.0, weights))
        projection, offset = rng.normal(size=shape), rng.normal(size=rows)
        mean, target = rng.normal(size=weights), rng.normal(size=rows)
        noise = rng.uniform(0.3, 2.0, rows)
        log_scale = -0.5 * np.log(2 * np.pi * noise)
        model = SiteModel(
            mean, projection, offset, GaussianSites(target, 1 / noise, log_scale),
            precision=None if dense else 1 / np.diag(covariance),
            covariance=covariance if dense else None,
        )  # fmt: skip
        sampled = Exact().sample(model, DRAWS, rng)
        predictive = projection @ covariance @ projection.T + np.diag(noise)
        truth = multivariate_normal(projection @ mean + offset, predictive).logpdf(target)
        gain = np.linalg.solve(predictive, projection @ covariance).T
        centre = mean + gain @ (target - offset - projection @ mean)
        sd = np.sqrt(np.diag(covariance - gain @ projection @ covariance))
        assert sampled.log_evidence == pytest.approx(truth, rel=1e-10)
        assert sampled.log_evidence_error == 0.0
        np.testing.assert_allclose(sampled.fit.posterior.mean, centre, rtol=1e-9, atol=1e-10)
        errors = (sampled.weights.mean(axis=0) - centre) / (sd / np.sqrt(DRAWS))
        assert np.abs(errors).max() < SIGMAS
        ratio = sampled.weights.std(axis=0) / sd
        assert np.abs(ratio - 1).max() < SIGMAS / np.sqrt(2 * DRAWS)

    def test_weight_off(self):
        sites = GaussianSites(np.array([1.0, -0.5]), np.array([2.0, 3.0]), np.zeros(2))
        projection = np.array([[1.0, 5.0], [0.3, -2.0]])
        precision = np.array([1.5, np.inf])
        model = SiteModel(np.array([0.2, 0.7]), projection, np.zeros(2), sites, precision)
        less = SiteModel(
            model.mean[:1], projection[:, :1], 0.7 * projection[:, 1], sites, precision[:1]
        )
        one, other = (Exact().sample(m, 3, np.random.default_rng(1)) for m in (model, less))
        assert one.log_evidence == pytest.approx(other.log_evidence, rel=1e-12)
        np.testing.assert_array_equal(one.weights[:, 1], 0.7)


class TestRefusals:
    def test_hopeless_acceptance(self):
        model = wide_model(100, 50)
        with pytest.raises(UnsupportedPair, match=r"acceptance of \d.\de-\d+ for 100 rows and 50"):
            Exact().sample(model, 1000, np.random.default_rng(RNG_SEED))

    def test_a_prior_too_wide_for_its_arithmetic(self):
        model = small_model("plain")
        wide = replace(model, projection=model.projection * 1e9)
        with pytest.raises(UnsupportedPair, match=r"sd of the predictor is up to \d.*scale"):
            Exact().sample(wide, 3, np.random.default_rng(RNG_SEED))

    def test_refusal_can_be_switched_off(self):
        model = wide_model(60, 40)
        with pytest.raises(UnsupportedPair, match="NUTS or EP"):
            Exact(min_acceptance=0.5).sample(model, 3, np.random.default_rng(RNG_SEED))
        sampled = Exact(min_acceptance=0.0).sample(model, 3, np.random.default_rng(RNG_SEED))
        assert np.isfinite(sampled.weights).all()

    def test_other_sites(self):
        model = replace(small_model("plain"), sites=LogitSites(np.ones(12)))
        with pytest.raises(UnsupportedPair, match=r"LogitSites.*GaussianSites, ProbitSites.*NUTS"):
            Exact().sample(model, 10, np.random.default_rng(1))

    @pytest.mark.parametrize(
        "wrong", [{"min_acceptance": 1.0}, {"min_acceptance": np.nan}, {"pilot": 1}, {"pilot": 2.5}]
    )
    def test_settings(self, wrong):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Exact(**wrong)


class TestCost:
    @pytest.mark.parametrize(("rows", "low", "high"), [(60, 0.88, 0.93), (200, 0.29, 0.37)])
    def test_acceptance_at_d_2000(self, rows, low, high):
        """Over twelve random data sets: 0.90 to 0.91, and 0.32 to 0.34."""
        run = Exact().sample(wide_model(rows, 2000), 1, np.random.default_rng(RNG_SEED))
        assert low < run.info["acceptance"] < high

    def test_no_matrix_of_weights_by_weights(self):
        model = wide_model(36, 7129)
        Exact().sample(wide_model(3, 5), 1, np.random.default_rng(1))  # compiled
        tracemalloc.start()
        sampled = Exact().sample(model, 200, np.random.default_rng(1))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # The answer, A K, and a few blocks of draws; d x d alone would be 400 MB.
        assert peak < sampled.weights.nbytes + 6 * model.projection.nbytes + 20e6
