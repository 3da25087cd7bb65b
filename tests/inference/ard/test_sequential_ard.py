"""Sequential ARD: its statistics, its steps, and where it ends."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize
from scipy.stats import multivariate_normal

from ardvark.inference.ard.gradient import log_slopes, moving_pull
from ardvark.inference.ard.sequential_ard import _statistics, sequential_ard
from ardvark.inference.ep.ep import EP
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import (
    Derivatives,
    GaussianSites,
    GraphSites,
    LogitSites,
    PoissonSites,
    ProbitSites,
)
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.posterior import condition

RNG_SEED = 47
ROWS, WEIGHTS = 40, 12
SIGNAL = np.array([1.5, 0.0, -2.0, 0.0, 0.0, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
TOLERANCE = 1e-6
approximate = Laplace().approximate


def make_model(kind="gaussian", seed=RNG_SEED):
    rng = np.random.default_rng(seed)
    projection = rng.normal(size=(ROWS, WEIGHTS))
    projection[:, 0] = 1.0  # a bias
    latent = projection @ SIGNAL
    sd = rng.uniform(0.5, 1.5, ROWS)
    noisy = latent + sd * rng.normal(size=ROWS)
    sign = np.where(noisy > 0, 1.0, -1.0)
    sites = {
        "gaussian": GaussianSites(noisy, sd**-2, -0.5 * np.log(2 * np.pi * sd**2)),
        "probit": ProbitSites(sign),
        "logit": LogitSites(sign),
        "student": student_sites(noisy),
    }
    return SiteModel(
        np.zeros(WEIGHTS), projection, 0.1 * np.ones(ROWS), sites[kind], np.ones(WEIGHTS)
    )


def student_sites(target, freedom=4.0):
    def derivatives(eta):
        r = target - eta
        q, k = freedom + r**2, freedom + 1.0
        return Derivatives(
            -0.5 * k * np.log1p(r**2 / freedom),
            k * r / q,
            -k * (freedom - r**2) / q**2,
            -2.0 * k * r * (3.0 * freedom - r**2) / q**3,
        )

    return GraphSites(lambda eta: derivatives(eta).value, derivatives)


def exact_evidence(model, precision):
    """Log evidence of Gaussian sites by the marginal normal density."""
    on = np.isfinite(precision)
    columns = model.projection[:, on]
    marginal = columns @ np.diag(1 / precision[on]) @ columns.T + np.diag(1 / model.sites.precision)
    return multivariate_normal(model.offset, marginal).logpdf(model.sites.mean)


def without(model, precision, tau, j):
    """C of all weights but j, by definition (variances, not precisions)."""
    others = np.isfinite(precision)
    others[j] = False
    columns = model.projection[:, others]
    return np.diag(1 / tau) + columns @ np.diag(1 / precision[others]) @ columns.T


@pytest.mark.parametrize("rows", [ROWS, 5])
def test_statistics_are_those_of_the_definition(rows):
    """For weights in and out of the model, in weight space and (5 rows) in function space."""
    whole = make_model()
    sites = GaussianSites(
        whole.sites.mean[:rows], whole.sites.precision[:rows], whole.sites.log_scale[:rows]
    )
    precision = np.where(np.arange(WEIGHTS) % 2, np.inf, 1.0 + np.arange(WEIGHTS))
    model = SiteModel(
        whole.mean, whole.projection[:rows], whole.offset[:rows], sites, precision=precision
    )
    r, u = _statistics(model, model.projection**2, precision, approximate(model))
    target, tau = sites.mean - model.offset, sites.precision
    for j in range(WEIGHTS):
        c, column = without(model, precision, tau, j), model.projection[:, j]
        np.testing.assert_allclose(r[j], column @ np.linalg.solve(c, column), rtol=1e-8)
        np.testing.assert_allclose(u[j], column @ np.linalg.solve(c, target), rtol=1e-8)


def test_printed_statistics_are_wrong():
    """Negative control: Qi's (17) as printed, second terms exchanged, is not the definition."""
    model = make_model()
    precision = np.where(np.arange(WEIGHTS) < 3, 2.0, np.inf)
    model = replace(model, precision=precision)
    fit = approximate(model)
    tau, target = model.sites.precision, model.sites.mean - model.offset
    active, column = model.projection[:, :3], model.projection[:, 5]
    covariance, mean = fit.posterior.covariance[:3, :3], fit.posterior.mean[:3]
    cross = column * tau @ active
    r, u = _statistics(model, model.projection**2, precision, fit)
    printed_r = column * tau @ column - cross @ mean
    printed_u = column * tau @ target - cross @ covariance @ cross
    assert abs(printed_r - r[5]) > 0.01 * abs(r[5])
    assert abs(printed_u - u[5]) > 0.01 * abs(u[5])


def test_each_step_gains_exactly_what_it_promises():
    """Gaussian sites are fixed sites: promised gain = change of the evidence, never negative."""
    model = make_model()
    result = sequential_ard(model, approximate)
    evidence = np.array([step.log_evidence for step in result.path])
    promised = np.array([step.gain for step in result.path[1:]])
    np.testing.assert_allclose(np.diff(evidence), promised, atol=1e-9)
    assert np.all(promised > TOLERANCE) and len(promised) > 3
    for step in result.path:
        np.testing.assert_allclose(step.log_evidence, exact_evidence(model, step.precision))


@pytest.mark.parametrize("start", [None, np.ones(WEIGHTS, bool)])
def test_ends_where_no_scalar_search_gains(start):
    model = make_model()
    result = sequential_ard(model, approximate, start=start)
    assert result.converged
    best = exact_evidence(model, result.precision)
    grid = np.append(np.logspace(-6, 8, 60), np.inf)
    for j in range(WEIGHTS):
        for alpha in grid:
            tried = result.precision.copy()
            tried[j] = alpha
            assert exact_evidence(model, tried) < best + 2 * TOLERANCE
    assert result.path[-1].active[[0, 2, 5]].all()
    assert result.path[-1].active.sum() < WEIGHTS


def test_precision_of_a_lone_weight_is_the_closed_form():
    """One column, unit noise: alpha = s^2 / (q^2 - s), s = x'x, q = x'y."""
    rng = np.random.default_rng(RNG_SEED)
    x = rng.normal(size=20)
    y = 2.0 * x + rng.normal(size=20)
    model = SiteModel(
        np.zeros(1),
        x[:, None],
        np.zeros(20),
        GaussianSites(y, np.ones(20), np.zeros(20)),
        np.ones(1),
    )
    result = sequential_ard(model, approximate)
    s, q = x @ x, x @ y
    np.testing.assert_allclose(result.precision, s**2 / (q**2 - s), rtol=1e-10)
    assert [step.action for step in result.path] == ["start", "add"]


@pytest.mark.parametrize("kind", ["probit", "logit", "student"])
def test_ends_at_a_coordinate_wise_optimum_of_the_fixed_sites(kind):
    model = make_model(kind)
    result = sequential_ard(model, approximate)
    assert result.converged
    fit = result.fit

    def fixed_site_evidence(precision):
        posterior = condition(
            replace(model, precision=precision), fit.site_precision, fit.site_shift
        )
        shift = posterior.eta_mean - model.offset
        tau, nu = fit.site_precision, fit.site_shift
        score = nu - tau * model.offset
        return 0.5 * score @ shift - posterior.half_log_det  # up to a constant of the sites

    best = fixed_site_evidence(result.precision)
    for j in range(WEIGHTS):
        for alpha in np.append(np.logspace(-2, 6, 60), np.inf):
            tried = result.precision.copy()
            tried[j] = alpha
            assert fixed_site_evidence(tried) < best + 2 * TOLERANCE
    np.testing.assert_allclose(
        fit.log_evidence,
        approximate(replace(model, precision=result.precision)).log_evidence,
        rtol=1e-8,
    )


@pytest.mark.parametrize("kind", ["gaussian", "probit"])
def test_permuted_columns_give_a_permuted_answer(kind):
    model = make_model(kind)
    order = np.random.default_rng(RNG_SEED).permutation(WEIGHTS)
    plain = sequential_ard(model, approximate)
    permuted = sequential_ard(replace(model, projection=model.projection[:, order]), approximate)
    np.testing.assert_allclose(permuted.precision, plain.precision[order], rtol=1e-6)
    np.testing.assert_allclose(
        permuted.fit.posterior.mean, plain.fit.posterior.mean[order], atol=1e-7
    )


@pytest.mark.parametrize("kind", ["gaussian", "probit"])
def test_flipped_column_flips_its_weight(kind):
    model = make_model(kind)
    flip = np.where(np.arange(WEIGHTS) % 2 == 0, -1.0, 1.0)
    plain = sequential_ard(model, approximate)
    flipped = sequential_ard(replace(model, projection=model.projection * flip), approximate)
    np.testing.assert_allclose(flipped.precision, plain.precision, rtol=1e-6)
    np.testing.assert_allclose(
        flipped.fit.posterior.mean, flip * plain.fit.posterior.mean, atol=1e-7
    )


def test_fixed_weights_keep_their_precision_and_their_place():
    model = make_model("probit")
    precision = model.precision.copy()
    precision[[7, 8]] = [123.0, np.inf]  # 8 is off, and not ours to switch on
    optimised = ~np.isin(np.arange(WEIGHTS), [7, 8])
    result = sequential_ard(replace(model, precision=precision), approximate, optimised=optimised)
    np.testing.assert_array_equal(result.precision[[7, 8]], [123.0, np.inf])
    assert all(step.active[7] for step in result.path)
    assert result.fit.posterior.marginal_variance[7] > 0


def test_fixed_weights_may_have_a_prior_mean():
    """A fixed weight with a mean acts as an offset: same statistics as with that offset."""
    model = make_model()
    optimised = np.arange(WEIGHTS) > 0
    mean = np.where(optimised, 0.0, 1.5)
    precision = np.where(optimised, 1.0, 1e9)
    moved = sequential_ard(
        replace(model, mean=mean, precision=precision), approximate, optimised=optimised
    )
    shifted = replace(model, offset=model.offset + 1.5, precision=precision)
    other = sequential_ard(shifted, approximate, optimised=optimised)
    np.testing.assert_allclose(moved.precision, other.precision, rtol=1e-5)


def test_nothing_to_find_leaves_an_empty_model():
    model = make_model()
    quiet = GaussianSites(model.offset, np.ones(ROWS), np.zeros(ROWS))  # target = offset exactly
    result = sequential_ard(replace(model, sites=quiet), approximate)
    assert result.converged
    assert result.steps == 0
    assert np.isinf(result.precision).all()
    full = sequential_ard(
        replace(model, sites=quiet), approximate, start=np.ones(WEIGHTS, bool), start_precision=2.0
    )
    assert np.isinf(full.precision).all()
    assert {step.action for step in full.path[1:]} == {"delete"}


def test_bias_left_out_at_the_start_comes_back():
    """Ninety per cent of one class: the bias must be found, wherever the search begins."""
    rng = np.random.default_rng(RNG_SEED)
    projection = np.column_stack([np.ones(200), rng.normal(size=(200, 3))])
    sign = np.where(projection[:, 1] + 1.8 + rng.normal(size=200) > 0, 1.0, -1.0)
    model = SiteModel(np.zeros(4), projection, np.zeros(200), ProbitSites(sign), np.ones(4))
    for start in (None, np.array([False, True, True, True])):
        result = sequential_ard(model, approximate, start=start)
        assert result.path[-1].active[0]
        assert abs(result.fit.posterior.mean[0] - 1.8) < 4 * np.sqrt(
            result.fit.posterior.marginal_variance[0]
        )


def test_of_equal_columns_the_first_is_taken():
    model = make_model()
    projection = model.projection.copy()
    projection[:, 9] = projection[:, 2]
    result = sequential_ard(replace(model, projection=projection), approximate)
    assert result.converged
    assert result.path[1].weight == 2
    assert not result.path[1].active[9]


def test_lower_bound_holds_on_separable_data():
    """Laplace would go down to 0.31 here (EP without end): a bound above that is where it stops."""
    x = np.concatenate([np.linspace(-3, -1, 10), np.linspace(1, 3, 10)])
    model = SiteModel(np.zeros(1), x[:, None], np.zeros(20), ProbitSites(np.sign(x)), np.ones(1))
    for bound in (3.0, 1.0):
        result = sequential_ard(model, approximate, bounds=(bound, 1e12))
        assert result.converged
        assert result.precision.tolist() == [bound]
    free = sequential_ard(model, approximate)
    assert 1e-6 <= free.precision[0] < 1.0
    assert np.isfinite(free.fit.log_evidence)


def random_problem(seed):
    """Logit, probit and Poisson rows on a few inputs of many, correlated or not."""
    rng = np.random.default_rng(seed)
    rows, inputs = int(rng.integers(20, 120)), int(rng.integers(1, 25))
    columns = rng.normal(size=(rows, inputs))
    if seed % 2:
        columns = columns @ rng.normal(size=(inputs, inputs)) / np.sqrt(inputs)
    columns = np.column_stack([np.ones(rows), columns])
    eta = columns @ np.where(rng.random(inputs + 1) < 0.3, 1.5 * rng.normal(size=inputs + 1), 0.0)
    sign = np.where(eta + rng.logistic(size=rows) > 0, 1.0, -1.0)
    count = rng.poisson(np.exp(np.clip(0.4 * eta, -5.0, 4.0))).astype(float)
    sites = (LogitSites(sign), ProbitSites(sign), PoissonSites(count))[seed % 3]
    return SiteModel(np.zeros(inputs + 1), columns, np.zeros(rows), sites, np.ones(inputs + 1))


def slopes_at(rule, model, precision):
    here = replace(model, precision=precision)
    fit = rule.approximate(here)
    return fit.log_evidence, log_slopes(here, rule, fit)


@pytest.mark.parametrize("seed", range(24))
def test_with_the_rule_the_end_is_stationary_in_the_evidence_itself(seed):
    """Laplace's sites move with the weights: the steps of fixed sites ended at slopes of 0.1."""
    rule, model = Laplace(), random_problem(seed)
    found = sequential_ard(model, rule.approximate, rule=rule)
    assert found.converged
    evidence, slopes = slopes_at(rule, model, found.precision)
    assert np.abs(slopes).max(initial=0.0) < 1e-4
    on = np.isfinite(found.precision)
    if not on.any():
        return

    def minus_evidence(logs):
        precision = np.full(on.size, np.inf)
        precision[on] = np.exp(logs)
        value, gradient = slopes_at(rule, model, precision)
        return -value, -gradient[on]

    best = optimize.minimize(minus_evidence, np.log(found.precision[on]), jac=True, method="BFGS")
    assert -best.fun < evidence + 1e-6
    for j in np.flatnonzero(on):  # and none of them is better out
        without_it = np.where(np.arange(on.size) == j, np.inf, found.precision)
        assert slopes_at(rule, model, without_it)[0] < evidence + TOLERANCE


def test_steps_of_fixed_sites_end_elsewhere():
    """Negative control: without the rule the end is not stationary."""
    rule, model = Laplace(), random_problem(0)
    found = sequential_ard(model, rule.approximate)
    assert np.abs(slopes_at(rule, model, found.precision)[1]).max() > 1e-2


@pytest.mark.parametrize("seed", [0, 1, 2, 5])
def test_ep_needs_no_rule_to_be_stationary(seed):
    """Its evidence does not change with its sites, so fixed sites have the true slope."""
    rule, model = EP(), random_problem(seed)
    found = sequential_ard(model, rule.approximate)
    # a step gains g²/2h, h near 1/4, so steps of 1e-6 nats leave slopes of 1e-3
    assert np.abs(slopes_at(rule, model, found.precision)[1]).max(initial=0.0) < 2e-3


def test_true_slopes_of_weights_in_and_out():
    """Against differences: in log alpha for weights that are in, in 1/alpha at 0 for others."""
    rule, model = Laplace(), random_problem(0)
    precision = np.where(np.arange(model.mean.size) % 3 == 0, 2.0, np.inf)
    here = replace(model, precision=precision)
    fit = rule.approximate(here)
    r, u = _statistics(here, here.projection**2, precision, fit)
    slopes = log_slopes(here, rule, fit)
    for j in range(precision.size):
        tried = [precision.copy() for _ in range(2)]
        if np.isfinite(precision[j]):
            tried[0][j], tried[1][j] = 2.0 * np.exp(1e-4), 2.0 * np.exp(-1e-4)
            up, down = (slopes_at(rule, model, p)[0] for p in tried)
            assert slopes[j] == pytest.approx((up - down) / 2e-4, abs=1e-6)
        elif u[j] ** 2 > r[j]:  # where fixed sites want it: else the smaller of the two is taken
            tried[0][j] = 1e6
            rise = (slopes_at(rule, model, tried[0])[0] - fit.log_evidence) * 1e6
            true = moving_pull(here, rule, fit, u)[j]
            assert true == pytest.approx(min(np.sqrt(r[j] + 2 * rise), abs(u[j])), rel=1e-3)


def test_too_few_steps_are_recorded():
    result = sequential_ard(make_model("probit"), approximate, max_steps=2)
    assert result.steps == 2
    assert not result.converged


def test_shuffled_labels_find_next_to_nothing():
    """Negative control: with the link to the inputs cut, fewer weights than the truth stay."""
    model = make_model("probit")
    rng = np.random.default_rng(RNG_SEED + 1)
    weights = []
    for _ in range(5):
        sites = ProbitSites(rng.permutation(model.sites.sign))
        result = sequential_ard(replace(model, sites=sites), approximate)
        weights.append(np.abs(result.fit.posterior.mean[1:]).max())
    honest = sequential_ard(model, approximate)
    assert np.median(weights) < 0.5 * np.abs(honest.fit.posterior.mean[1:]).max()


def test_models_it_cannot_prune_are_refused():
    model = make_model()
    with pytest.raises(ValueError, match=r"weight 3 has 0\.5"):
        sequential_ard(
            replace(model, mean=np.where(np.arange(WEIGHTS) == 3, 0.5, 0.0)), approximate
        )
    dense = replace(model, precision=None, covariance=np.eye(WEIGHTS))
    with pytest.raises(ValueError, match="diagonal prior"):
        sequential_ard(dense, approximate)
    with pytest.raises(ValueError, match="finite precision"):
        sequential_ard(
            replace(model, precision=np.full(WEIGHTS, np.inf)),
            approximate,
            start=np.ones(WEIGHTS, bool),
        )


def test_a_path_that_runs_in_a_circle_is_led_out_of_it():
    """EP's sites move so far with one weight that full steps add and delete it for ever."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(12):
        x = rng.normal(size=(30, 150))
        sign = np.sign(x[:, 0] + 0.3 * rng.normal(size=30))
        model = SiteModel(np.zeros(150), x, np.zeros(30), ProbitSites(sign), np.ones(150))
        result = sequential_ard(model, EP().approximate, tolerance=1e-4, max_steps=600)
        found.append((result.converged, result.steps))
    assert all(converged for converged, _ in found), found
