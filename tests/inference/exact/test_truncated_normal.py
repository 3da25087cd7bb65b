"""Truncated normals: special functions, the tilt, probabilities of regions, and exact draws."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erfcx, log_ndtr
from scipy.stats import kstest, multivariate_normal, truncnorm

from ardvark.inference.exact import truncated_normal
from ardvark.inference.exact.truncated_normal import TruncatedNormal, log_mean, standard_excess

RNG_SEED = 17
SIGMAS = 4.5  # two-sided 7e-6 per comparison, some hundred comparisons with fixed seeds


def random_region(rows, seed=RNG_SEED, spread=1.0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(rows, rows + 2))
    covariance = 0.3 * np.eye(rows) + spread * root @ root.T / rows
    return covariance, rng.normal(size=rows)


def equicorrelated(rows, correlation):
    return correlation * np.ones((rows, rows)) + (1.0 - correlation) * np.eye(rows)


def equicorrelated_moments(rows, correlation, lower):
    """Log P(X > lower), E X_1 and E X_1^2 given X > lower, by quadrature over the shared part."""
    left, noise = np.sqrt(correlation), np.sqrt(1.0 - correlation)

    def log_integrand(u):
        return rows * log_ndtr((left * u - lower) / noise) - 0.5 * u**2 - 0.5 * np.log(2 * np.pi)

    grid = np.linspace(-20, 60, 4001)
    top = log_integrand(grid).max()
    centre = grid[np.argmax(log_integrand(grid))]

    def integral(moment):
        def integrand(u):
            return moment(u) * np.exp(log_integrand(u) - top)

        return quad(integrand, centre - 12, centre + 12, epsabs=1e-13, epsrel=1e-11, limit=500)[0]

    def bound(u):
        return (lower - left * u) / noise

    def hazard(u):
        return np.sqrt(2 / np.pi) / erfcx(bound(u) / np.sqrt(2))

    mass = integral(lambda u: 1.0)
    first = integral(lambda u: left * u + noise * hazard(u)) / mass
    second = integral(
        lambda u: (
            (left * u) ** 2
            + 2 * left * u * noise * hazard(u)
            + noise**2 * (1 + bound(u) * hazard(u))
        )
    )
    return np.log(mass) + top, first, second / mass


def z_score(values, truth):
    return (values.mean() - truth) / (values.std(ddof=1) / np.sqrt(values.size))


class TestUnivariate:
    def test_log_tail_probability(self):
        for a in (-30.0, -9.0, -5.0, -1.0, 0.0, 1.0, 4.99, 5.01, 20.0, 34.9, 35.1, 1e3, 1e7):
            assert truncated_normal._log_upper(a) == pytest.approx(log_ndtr(-a), rel=1e-13)

    def test_hazard_and_moments_agree_where_the_formulas_meet(self):
        below, above = (np.array(truncated_normal._upper(a)) for a in (5.0 - 1e-13, 5.0))
        # r = h - a loses two of sixteen digits at 5, the variance two more
        assert np.all(np.abs(below / above - 1.0) < [1e-12, 1e-11, 1e-10])
        hazard = np.sqrt(2 / np.pi) / erfcx(5.0 / np.sqrt(2))
        assert above[0] == pytest.approx(hazard, rel=1e-14)

    def test_far_tail_keeps_its_digits(self):
        hazard, excess, variance = truncated_normal._upper(1e6)
        assert hazard == pytest.approx(1e6, rel=1e-11)
        assert excess == pytest.approx(1e-6 * (1 - 2e-12), rel=1e-14)
        assert variance == pytest.approx(1e-12 * (1 - 6e-12), rel=1e-13)

    def test_barrier_inverts_the_mean_excess(self):
        slack = np.array([1e-7, 1e-3, 0.05, 0.19, 0.5, np.sqrt(2 / np.pi), 2.0, 7.0, 40.0])
        kappa, slope, variance = truncated_normal._barrier(slack)
        for s, h, v in zip(slack, slope, variance, strict=True):
            hazard, excess, spread = truncated_normal._upper(h - s)
            assert (hazard, spread) == pytest.approx((h, v), rel=1e-6)  # h - s cancels at large s
            assert excess == pytest.approx(s, rel=1e-8)
        steps = 1e-5 * slack
        up, down = (truncated_normal._barrier(slack + sign * steps)[0] for sign in (1, -1))
        np.testing.assert_allclose((up - down) / (2 * steps), slope, rtol=1e-6, atol=1e-9)
        assert kappa[5] == pytest.approx(0.5 * slack[5] ** 2 - np.log(2), rel=1e-12)  # a = 0

    @pytest.mark.parametrize("a", [-9.0, -1.0, -1e-9, 0.0, 0.4, 3.0, 20.0])
    def test_draws_have_the_distribution(self, a):
        rng = np.random.default_rng(RNG_SEED)
        excess = standard_excess(np.full(20_000, a), rng)
        assert excess.min() > 0
        test = kstest(excess + a, truncnorm(a, np.inf).cdf)
        assert test.pvalue > 1e-4

    def test_draws_in_the_far_tail(self):
        rng = np.random.default_rng(RNG_SEED)
        a = 1e9  # the excess is exponential with rate a, to 1e-18
        excess = a * standard_excess(np.full(20_000, a), rng)
        assert kstest(excess, "expon").pvalue > 1e-4


class TestTilt:
    @pytest.mark.parametrize("rows", [1, 2, 7, 30])
    def test_solves_botevs_equations(self, rows):
        """psi(x, mu) has zero slope in x and in mu: the 2N equations, written as in the paper."""
        covariance, lower = random_region(rows, seed=rows)
        region = TruncatedNormal(covariance, lower)
        below = region._rows - np.eye(rows)
        tilt, x, score = region._tilt, np.zeros(rows), np.zeros(rows)
        value = 0.0
        for k in range(rows):
            a = region._bound[k] - tilt[k] - below[k] @ x
            score[k] = np.sqrt(2 / np.pi) / erfcx(a / np.sqrt(2))
            x[k] = tilt[k] + score[k]
            value += 0.5 * tilt[k] ** 2 - x[k] * tilt[k] + log_ndtr(-a)
        np.testing.assert_allclose(below.T @ score, tilt, atol=1e-9)
        assert value == pytest.approx(region.log_bound, rel=1e-11)

    def test_factor_is_the_covariance(self):
        covariance, lower = random_region(12)
        region = TruncatedNormal(covariance, lower)
        factor = region._scale[:, None] * region._rows
        order = np.ix_(region._order, region._order)
        np.testing.assert_allclose(factor @ factor.T, covariance[order], rtol=1e-12, atol=1e-13)

    def test_order_of_the_rows_does_not_matter(self):
        covariance, lower = random_region(12)
        mixed = np.random.default_rng(RNG_SEED).permutation(12)
        one = TruncatedNormal(covariance, lower).log_bound
        other = TruncatedNormal(covariance[np.ix_(mixed, mixed)], lower[mixed]).log_bound
        assert one == pytest.approx(other, abs=1e-10)

    def test_hard_regions(self):
        """Signal to noise 1e-3 to 1e4, bounds up to 1e3 sd: a tilt, and no weight above it."""
        rng = np.random.default_rng(RNG_SEED)
        for _ in range(150):
            rows, rank = rng.integers(1, 40, size=2)
            root = rng.normal(size=(rows, rank)) * 10 ** rng.uniform(-3, 4)
            covariance = np.eye(rows) + root @ root.T
            lower = rng.normal(size=rows) * 10 ** rng.uniform(-3, 3)
            region = TruncatedNormal(covariance, lower)
            points, log_weight = region.propose(20, rng)
            assert np.isfinite(log_weight).all() and np.all(points >= lower)
            assert log_weight.max() <= region.log_bound + 1e-9 * (1 + abs(region.log_bound))

    def test_refuses_what_is_no_region(self):
        with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
            TruncatedNormal(np.array([[1.0, 2.0], [2.0, 1.0]]), np.zeros(2))
        with pytest.raises(ValueError, match="1 that are not finite"):
            TruncatedNormal(np.eye(2), np.array([0.0, -np.inf]))
        with pytest.raises(ValueError, match=r"\(2, 2\)"):
            TruncatedNormal(np.eye(2), np.zeros(3))


class TestProbability:
    @pytest.mark.parametrize("rows", [1, 2, 5, 20, 80])
    def test_equicorrelated_half(self, rows):
        region = TruncatedNormal(equicorrelated(rows, 0.5), np.zeros(rows))
        value, error = region.log_probability(10_000, np.random.default_rng(RNG_SEED))
        assert abs(value + np.log(rows + 1)) <= SIGMAS * error + 1e-12
        assert error < 0.01

    @pytest.mark.parametrize("correlation", [-0.95, -0.3, 0.6, 0.999])
    def test_quadrant(self, correlation):
        covariance = np.array([[4.0, 2.0 * correlation], [2.0 * correlation, 1.0]])
        region = TruncatedNormal(covariance, np.zeros(2))
        value, error = region.log_probability(10_000, np.random.default_rng(RNG_SEED))
        truth = np.log(0.25 + np.arcsin(correlation) / (2 * np.pi))
        assert abs(value - truth) <= SIGMAS * error + 1e-9

    @pytest.mark.parametrize("rows", [2, 3, 4])
    def test_against_scipy(self, rows):
        covariance, lower = random_region(rows, seed=rows)
        region = TruncatedNormal(covariance, lower)
        value, error = region.log_probability(20_000, np.random.default_rng(RNG_SEED))
        normal = multivariate_normal(np.zeros(rows), covariance, abseps=1e-8, releps=1e-8, seed=1)
        assert abs(value - np.log(normal.cdf(-lower))) <= SIGMAS * error + 1e-4  # scipy's own error

    def test_independent_rows_have_no_error(self):
        lower = np.array([-3.0, 0.0, 2.0, 45.0])
        region = TruncatedNormal(np.diag([1.0, 4.0, 9.0, 1.0]), lower)
        value, error = region.log_probability(10, np.random.default_rng(RNG_SEED))
        truth = log_ndtr(-lower / [1.0, 2.0, 3.0, 1.0]).sum()
        assert (value, error) == pytest.approx((truth, 0.0), rel=1e-12, abs=1e-12)

    @pytest.mark.parametrize("lower", [-1.0, 3.0, 12.0])
    def test_tail(self, lower):
        truth, _, _ = equicorrelated_moments(15, 0.4, lower)
        region = TruncatedNormal(equicorrelated(15, 0.4), np.full(15, lower))
        value, error = region.log_probability(10_000, np.random.default_rng(RNG_SEED))
        assert abs(value - truth) <= SIGMAS * error
        assert error < 0.01

    def test_unbiased_on_the_natural_scale(self):
        """Ten proposals at a time: the mean of the estimates is the probability."""
        region = TruncatedNormal(equicorrelated(40, 0.5), np.zeros(40))
        rng = np.random.default_rng(RNG_SEED)
        estimates = np.exp([region.log_probability(10, rng)[0] for _ in range(1000)])
        assert estimates.std() * 41 > 0.1  # else there would be nothing to see
        assert abs(z_score(estimates, 1.0 / 41.0)) < 4.0

    def test_log_mean(self):
        value, error = log_mean(np.log([1.0, 2.0, 3.0]) - 1000.0)
        assert (value, error) == pytest.approx(
            (np.log(2.0) - 1000.0, 0.5 / np.sqrt(3.0)), rel=1e-12
        )


class TestDraws:
    def discrepancy(self, region, lower):
        draws = region.draws(10_000, np.random.default_rng(RNG_SEED))
        assert draws.shape == (10_000, 15) and np.all(draws > lower)
        _, first, second = equicorrelated_moments(15, 0.4, lower)
        scores = [z_score(draws.mean(axis=1), first), z_score((draws**2).mean(axis=1), second)]
        return np.abs(scores).max()

    @pytest.mark.parametrize("lower", [-1.0, 0.5, 6.0])
    def test_moments(self, lower):
        region = TruncatedNormal(equicorrelated(15, 0.4), np.full(15, lower))
        assert self.discrepancy(region, lower) < SIGMAS

    @pytest.mark.parametrize("lower", [-1.0, 0.5, 6.0])
    def test_negative_control_without_rejection(self, lower):
        region = TruncatedNormal(equicorrelated(15, 0.4), np.full(15, lower))
        region.log_bound -= 5.0  # all but a few are accepted
        assert self.discrepancy(region, lower) > SIGMAS

    def test_every_coordinate_of_an_uneven_region(self):
        """Against brute force: normals, of which those in the region are kept."""
        covariance, lower = random_region(4, seed=3)
        lower = lower - 1.0  # likely enough for brute force
        rng = np.random.default_rng(RNG_SEED)
        brute = rng.multivariate_normal(np.zeros(4), covariance, size=400_000)
        brute = brute[np.all(brute > lower, axis=1)]
        draws = TruncatedNormal(covariance, lower).draws(20_000, rng)
        assert len(brute) > 5000
        for moment in (lambda x: x, lambda x: x**2, lambda x: x * np.roll(x, 1, axis=1)):
            one, other = moment(draws), moment(brute)
            error = np.sqrt(one.var(axis=0) / len(one) + other.var(axis=0) / len(other))
            assert np.abs((one.mean(axis=0) - other.mean(axis=0)) / error).max() < SIGMAS

    def test_share_of_accepted_is_what_the_weights_say(self):
        region = TruncatedNormal(equicorrelated(40, 0.5), np.zeros(40))
        points, log_weight = region.propose(20_000, np.random.default_rng(RNG_SEED))
        expected = np.exp(-region.log_bound) / 41.0
        error = np.sqrt(expected * (1 - expected) / 20_000)
        assert abs(len(points) / log_weight.size - expected) < SIGMAS * error

    def test_same_seed_same_draws_whatever_the_block(self, monkeypatch):
        covariance, lower = random_region(6)
        region = TruncatedNormal(covariance, lower)
        once = region.propose(500, np.random.default_rng(1))
        monkeypatch.setattr(truncated_normal, "BLOCK", 6 * 7)
        again = region.propose(500, np.random.default_rng(1))
        np.testing.assert_array_equal(once.points, again.points)
        np.testing.assert_array_equal(once.log_weight, again.log_weight)
        other = region.propose(500, np.random.default_rng(2))
        assert not np.array_equal(once.log_weight, other.log_weight)
