"""Exact sweeps in machine code: algebra of the collapsed move, Geweke's test, planted faults."""

import numpy as np
import pytest
from sampled_cases import draw_labels, functionals, run, small_data, z_of
from scipy.stats import gamma, kstwobign, logistic, multivariate_normal, norm

import ardvark as av
from ardvark.inference.exact.truncated_normal import TruncatedNormal, draw_above
from ardvark.inference.running.threads import unwatched
from ardvark.inference.sampled.exact_kernels import (
    LARGEST,
    _draw_precisions_without,
    _draw_weights,
    _log_kolmogorov,
    _log_precision,
    _log_variance,
    _utilities,
    run_exact_chain,
)
from ardvark.inference.sampled.kernels import (
    LOGIT,
    PROBIT,
    Plan,
    State,
    draw_precisions,
    problem_of,
    store_of,
)

UNWATCHED = unwatched()
N, D, A_SHAPE, B_RATE = 6, 3, 2.5, 1.5
ROWS = np.random.default_rng(12).normal(size=(N, D))
OFFSET = np.random.default_rng(14).normal(size=N)


def problem(n=12, d=30, seed=0):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(n, d))
    return B, np.ascontiguousarray(B.T), rng.gamma(1.0, size=d), rng.normal(size=n) * 5.0, rng


# Algebra ------------------------------------------------------------------------------------------


def test_density_of_a_precision_is_that_of_the_utilities():
    """Two routes: the rank-one formula, and the Gaussian of y with prior and Jacobian of log."""
    B, _, alpha, y, _ = problem()
    G, x = _utilities(B[:, 1:], alpha[1:]), B[:, 0]
    R = np.linalg.inv(G)
    q, t = x @ R @ x, x @ R @ y
    grid = np.linspace(-6.0, 4.0, 9)
    short = [_log_precision(u, 2.0, 0.7, q, t**2) for u in grid]
    long = [
        multivariate_normal.logpdf(y, cov=G + np.outer(x, x) / np.exp(u))
        + gamma.logpdf(np.exp(u), 2.0, scale=1 / 0.7)
        + u
        for u in grid
    ]
    assert np.ptp(np.subtract(short, long)) < 1e-9
    assert _log_precision(np.log(q / LARGEST) - 0.1, 2.0, 0.7, q, t**2) == -np.inf


@pytest.mark.parametrize("extreme", [False, True])
def test_the_inverse_follows_the_moves(extreme):
    B, BT, alpha, y, rng = problem(seed=3)
    rate = np.full(alpha.size, 1e-4 if extreme else 1.0)
    rate[5] = 0.0
    if extreme:
        alpha[:3] = 1e-4
    before = alpha.copy()
    R = np.linalg.inv(_utilities(B, alpha))
    r = R @ y
    _draw_precisions_without(BT, R, r, alpha, np.ones(alpha.size), rate, rng)
    truth = np.linalg.inv(_utilities(B, alpha))
    # An extreme move loses up to six digits of sixteen (LARGEST) and later ones carry the loss on:
    # 1.2e-8 without fused products, less with them. Otherwise rounding alone.
    near = 1e-7 if extreme else 1e-10
    assert np.abs(R - truth).max() < near * np.abs(truth).max()
    assert np.abs(r - truth @ y).max() < near * np.abs(truth @ y).max()
    assert alpha[5] == before[5]  # its precision is fixed
    assert np.sum(alpha != before) == alpha.size - 1


def test_a_slice_draws_from_the_density():
    """One precision, moved many times at fixed y: its mean of log alpha by quadrature."""
    B, BT, alpha, y, rng = problem(n=4, d=2, seed=5)
    kept = []
    for _ in range(20_000):
        R = np.linalg.inv(_utilities(B, alpha))
        _draw_precisions_without(BT, R, R @ y, alpha, np.full(2, 1.5), np.array([0.5, 0.0]), rng)
        kept.append(np.log(alpha[0]))
    x, G = B[:, 0], np.eye(4) + np.outer(B[:, 1], B[:, 1]) / alpha[1]
    R = np.linalg.inv(G)
    grid = np.linspace(-15.0, 6.0, 4001)
    q, t = x @ R @ x, x @ R @ y
    density = np.exp([_log_precision(u, 1.5, 0.5, q, t**2) for u in grid])
    mean = np.sum(grid * density) / density.sum()
    batches = np.reshape(kept, (50, -1)).mean(axis=1)
    assert abs(batches.mean() - mean) / (batches.std(ddof=1) / np.sqrt(50)) < 4


def test_weights_given_utilities_have_the_moments_of_a_regression():
    B, _, alpha, y, rng = problem(n=4, d=6, seed=6)
    R = np.linalg.inv(_utilities(B, alpha))
    draws = np.array([_draw_weights(B, R, y, alpha, rng) for _ in range(8000)])
    V = np.linalg.inv(np.diag(alpha) + B.T @ B)
    assert (np.abs(draws.mean(axis=0) - V @ B.T @ y) / np.sqrt(np.diag(V) / 8000)).max() < 4
    assert np.allclose(draws.var(axis=0) / np.diag(V), 1.0, atol=4 * np.sqrt(2 / 8000))


def test_one_draw_above_is_that_of_the_object():
    B, _, alpha, y, _ = problem(seed=7)
    G = _utilities(B, alpha)
    point, tried, found = draw_above(G, 0.1 * y, np.random.default_rng(1), 10_000, UNWATCHED)
    other, proposals = TruncatedNormal(G, 0.1 * y).first(np.random.default_rng(1))
    assert found and tried == proposals
    assert np.array_equal(point, other)
    nothing = np.zeros((2, 2)), np.zeros(2)
    assert not draw_above(*nothing, np.random.default_rng(1), 10, UNWATCHED)[2]


# A logit is a probit of random variances ---------------------------------------------------------


def test_density_of_the_root_of_half_a_variance():
    k = np.linspace(0.15, 3.0, 40)
    known = kstwobign.pdf(k)
    assert np.allclose(np.exp([_log_kolmogorov(x) for x in k]), known, rtol=1e-7, atol=1e-12)
    assert abs(_log_kolmogorov(0.8) - _log_kolmogorov(0.8 + 1e-9)) < 1e-7  # the series meet


def test_the_mixture_is_logistic():
    """Gaussian noise under these variances, by quadrature."""
    u = np.linspace(-6.0, 8.0, 4001)
    weight = np.exp([_log_variance(x, 0.0) for x in u]) * 0.5 * np.exp(0.5 * u) * (u[1] - u[0])
    for e in (0.0, 0.7, 3.0, 8.0):
        mixed = np.sum(weight * 0.5 * norm.pdf(e, scale=np.exp(0.5 * u)))
        assert mixed == pytest.approx(logistic.pdf(e), rel=1e-6)


# One posterior ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("link", "scale"), [("probit", True), ("probit", False), ("logit", True)])
def test_more_weights_than_rows(link, scale):
    X, t = small_data(6, 8, seed=4)
    wide = av.models.ard_classification(X, t, link=link, bias=False, a=1.5, b=0.5)
    exact = run(wide, draws=4000 if scale else 12_000, kernel="exact", scale=scale)
    assert z_of(run(wide), exact).max() < 4


# Geweke 2004 --------------------------------------------------------------------------------------


def sweep(B, offset, alpha, shape, rate, rng, fault):
    """`run_exact_chain` by hand, so that a part of it can be broken."""
    R = np.linalg.inv(_utilities(B, alpha))
    y = draw_above(_utilities(B, alpha), -offset, rng, 100_000, UNWATCHED)[0]
    told = R.copy() if fault == "stale inverse" else R
    if fault == "forgotten noise":
        y = y + rng.normal(size=y.size)
    _draw_precisions_without(np.ascontiguousarray(B.T), told, told @ y, alpha, shape, rate, rng)
    w = _draw_weights(B, R, y, alpha, rng)
    problem = problem_of(B, offset, (PROBIT, offset, offset), shape, rate)
    draw_precisions(problem, State(w, alpha), rng)
    return w


def geweke(rounds, fault=None, compiled=False, family=PROBIT):
    rng = np.random.default_rng(11)
    shape, rate = np.full(D, A_SHAPE), np.full(D, B_RATE)
    alpha = rng.gamma(A_SHAPE, 1 / B_RATE, size=(rounds, D))
    w = rng.normal(size=(rounds, D)) / np.sqrt(alpha)
    independent = np.array([functionals(*pair, ROWS) for pair in zip(w, alpha, strict=True)])
    seen, w, alpha = np.empty((rounds, 10)), w[0], alpha[0].copy()
    variance = np.ones(N)
    told = shape + 0.5 if fault == "gamma shape" else shape
    for i in range(rounds):
        sign = draw_labels(family, ROWS @ w + OFFSET, rng)
        B = sign[:, None] * ROWS
        shift = np.zeros(N) if fault == "forgotten offset" else sign * OFFSET
        if compiled:
            if fault == "one variance":
                variance[:] = 1.0
            problem = problem_of(B, shift, (family, shift, shift), told, rate)
            plan, store = Plan(tune=0, sweeps=1, kernel=0, scale=True), store_of(1, D)
            assert run_exact_chain(problem, alpha, variance, plan, store, rng, UNWATCHED)
            w = store.weights[0]
        else:
            w = sweep(B, shift, alpha, told, rate, rng, fault)
        seen[i] = functionals(w, alpha, ROWS)
    batches = seen.reshape(50, -1, 10).mean(axis=1)
    error = np.sqrt(batches.var(axis=0, ddof=1) / 50 + independent.var(axis=0) / rounds)
    return np.abs(batches.mean(axis=0) - independent.mean(axis=0)) / error


@pytest.mark.parametrize(("compiled", "family"), [(True, PROBIT), (True, LOGIT), (False, PROBIT)])
def test_geweke(compiled, family):
    assert geweke(20_000, compiled=compiled, family=family).max() < 4


def test_geweke_sees_a_logit_taken_for_a_probit():
    assert geweke(10_000, "one variance", compiled=True, family=LOGIT).max() > 5


@pytest.mark.parametrize(
    "fault", ["gamma shape", "stale inverse", "forgotten noise", "forgotten offset"]
)
def test_geweke_sees_faults(fault):
    assert geweke(10_000, fault).max() > 5


def test_many_rows_and_few_weights_are_said_to_be_dear():
    X, t = small_data(160, 2, seed=5)
    model = av.models.ard_classification(X, t)
    method = av.EP(hyper=av.Sampled(kernel="exact", tune=1))
    with pytest.warns() as told:
        av.fit(model, method, draws=2, chains=2, random_seed=1, progressbar=False)
    texts = [str(w.message) for w in told if w.category is av.errors.InputWarning]
    assert any("160 x 160 in each of 6 sweeps" in text and "NUTS()" in text for text in texts)
