"""`hyper=Sampled()`: two loops, one posterior; Geweke's joint test of the machine code."""

import numpy as np
import pymc as pm
import pytest
from sampled_cases import QUIET, draw_labels, functionals, run, small_data, z_of

import ardvark as av
from ardvark.inference.graph.read import read_model
from ardvark.inference.running import progress
from ardvark.inference.running.threads import unwatched
from ardvark.inference.sampled.kernels import (
    LOGIT,
    PROBIT,
    Plan,
    State,
    problem_of,
    run_chain,
    store_of,
)
from ardvark.inference.sampled.theta import ThetaSweep, slice_move

# Machine code against Python, exact draws, and each other -----------------------------------------


@pytest.fixture(scope="module")
def probit():
    model = av.models.ard_classification(*small_data(), a=1.5, b=0.5)
    return model, run(model)


@pytest.mark.parametrize("kernel", ["independence", "exact"])
@pytest.mark.parametrize("scale", [True, False])
def test_kernels_agree(probit, kernel, scale):
    model, elliptical = probit
    draws = 6000 if kernel == "independence" else 1000
    assert z_of(elliptical, run(model, draws, kernel=kernel, scale=scale)).max() < 4


def test_loop_in_python_draws_from_the_same_posterior(probit):
    model, compiled = probit
    slow = run(model, draws=800, method=av.Laplace)
    assert '"compiled": true' in compiled.attrs["sampler"]
    assert '"compiled": false' in slow.attrs["sampler"]
    assert z_of(compiled, slow).max() < 4


def test_function_space_and_weight_space_agree():
    """More weights than rows goes through N x N matrices; repeated rows do not change the model."""
    X, t = small_data(6, 8, seed=4)
    wide = av.models.ard_classification(X, t, link="logit", bias=False)
    tree = run(wide)
    nuts_like = run(wide, draws=6000, kernel="independence", sweeps=8)
    assert z_of(tree, nuts_like).max() < 4


def test_gaussian_noise_at_fixed_precisions_gives_independent_draws():
    """Precisions pinned by a huge shape: draws of w are then those of a known Gaussian."""
    X, _ = small_data()
    t = X[:, 0] + 0.1
    model = av.models.ard_regression(X, t, noise=0.5, bias=False, a=1e8, b=1e8)
    w = run(model, draws=4000, scale=False)["posterior"]["w"].values.reshape(-1, 2)
    V = np.linalg.inv(np.eye(2) + X.T @ X / 0.25)
    z = (w.mean(axis=0) - V @ X.T @ t / 0.25) / np.sqrt(np.diag(V) / len(w))
    assert np.abs(z).max() < 4
    lag = np.mean((w[1:, 0] - w[:, 0].mean()) * (w[:-1, 0] - w[:, 0].mean())) / w[:, 0].var()
    assert abs(lag) < 4 / np.sqrt(len(w))


def test_a_user_graph_with_other_hyperparameters():
    """A Poisson model with a scale that has no Gamma conditional: slices on the real line."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0)
        w = pm.Normal("w", 0, s, shape=2)
        eta = pm.Deterministic("eta", X @ w)
        pm.Poisson("y", mu=pm.math.exp(eta), observed=rng.poisson(np.exp(X @ [0.7, -0.3])))
    settings = av.EP(hyper=av.Sampled(tune=50))
    with pytest.warns(av.errors.ConvergenceWarning):  # so few draws
        tree = av.fit(model, settings, draws=60, chains=2, **QUIET)
    assert tree["posterior"]["s"].min() > 0
    assert tree["log_likelihood"]["y"].shape == (2, 60, 40)
    latent = read_model(model)
    assert list(ThetaSweep(latent).lines) == ["s"]


SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


@pytest.fixture(scope="module")
def schools():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        eta = pm.Deterministic("eta", pm.Normal("theta", mu, tau, shape=8))
        pm.Normal("y", eta, ERRORS, observed=SCHOOLS)
    return model


@pytest.mark.filterwarnings("ignore::ardvark.errors.ConvergenceWarning")
@pytest.mark.parametrize("method", [av.Laplace, av.EP])
def test_progress_with_a_time_to_go(schools, probit, method, monkeypatch):
    """Minutes passed without a word: a line told neither what was done nor what was left."""
    model, seen = schools if method is av.Laplace else probit[0], []

    class Line:
        def start(self):
            seen.append("start")

        def update(self, text):
            seen.append(text)

        def stop(self):
            seen.append("stop")

    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_status", Line)
    hyper = av.Sampled(tune=40)
    av.fit(model, method(hyper=hyper), draws=40, chains=2, random_seed=1)
    assert seen[0] == "start" and seen[-1] == "stop"
    told = [text for text in seen if " of 160 " in text]
    assert told and all("s to go)" in text for text in told[1:])


def test_centred_schools_against_quadrature(schools):
    """The slices of tau and mu, each on a line of its own: means over tau by quadrature."""
    u = np.linspace(np.log(1e-4), np.log(400.0), 4001)
    tau = np.exp(u)
    variance = ERRORS**2 + tau[:, None] ** 2
    precision = 1 / 25.0 + (1 / variance).sum(axis=1)
    mean = (SCHOOLS / variance).sum(axis=1) / precision  # of mu given tau
    log_weight = -np.log1p((tau / 5.0) ** 2) + u - 0.5 * np.log(precision)
    log_weight -= 0.5 * (np.log(variance) + SCHOOLS**2 / variance).sum(axis=1)
    log_weight += 0.5 * mean**2 * precision
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    assert (weight @ mean, weight @ tau) == pytest.approx((4.40, 3.59), abs=0.01)
    latent = read_model(schools, weights="theta")  # mu on a line of its own, not in the block
    sweep = ThetaSweep(latent)
    rng, seen = np.random.default_rng(3), np.empty((2000, 3))
    for i in range(len(seen)):  # theta given mu and tau is exact: what is tested are the slices
        chosen = rng.choice(len(tau), p=weight)
        mu = mean[chosen] + rng.normal() / np.sqrt(precision[chosen])
        told = 1 / ERRORS**2 + tau[chosen] ** -2
        centre = (SCHOOLS / ERRORS**2 + mu * tau[chosen] ** -2) / told
        theta = centre + rng.normal(size=8) / np.sqrt(told)
        moved = sweep.move(theta, {"mu": np.array(mu), "tau": np.array(tau[chosen])}, rng)
        seen[i] = moved["mu"], np.log(moved["tau"]), moved["tau"] < 2.0
    assert latent.conjugate == ()
    exact = weight @ mean, weight @ u, weight @ (tau < 2.0)
    error = seen.std(axis=0) / np.sqrt(len(seen))  # independent posterior draws, moved once
    assert np.all(np.abs(seen.mean(axis=0) - exact) < 4.0 * error)


def test_draw_kernel_is_labelled(probit):
    model, _ = probit
    with pytest.warns(av.errors.AccuracyWarning, match="not the posterior"):
        tree = run(model, draws=2000, kernel="draw")
    assert "approximation itself" in tree.attrs["caption"]


def test_same_seed_same_draws(probit):
    model, _ = probit
    with pytest.warns(av.errors.ConvergenceWarning):
        trees = [run(model, draws=20) for _ in range(2)]
    assert trees[0]["posterior"].equals(trees[1]["posterior"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kernel": "walk"}, "kernel"),
        ({"tune": -1}, "tune"),
        ({"sweeps": 0}, "sweeps"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(av.errors.InputError, match=words):
        av.Sampled(**settings)


def test_refusals():
    X, t = small_data()
    with pytest.raises(av.errors.UnsupportedPair, match="nothing to sample"):
        run(av.models.ard_classification(X, t, alpha=np.ones(3)))
    with pytest.raises(av.errors.UnsupportedPair, match="probit"):
        run(av.models.ard_regression(X, t + 0.1, noise=1.0), kernel="exact")


def test_slice_of_a_known_density():
    rng, x, kept = np.random.default_rng(0), 0.0, []
    for _ in range(4000):
        x = slice_move(lambda u: -0.5 * (u - 1.0) ** 2 / 4.0, x, rng)
        kept.append(x)
    batches = np.array(kept).reshape(40, -1).mean(axis=1)
    assert abs(batches.mean() - 1.0) / (batches.std(ddof=1) / np.sqrt(40)) < 4
    assert np.std(kept) == pytest.approx(2.0, rel=0.1)  # 4 errors of an sd from 1000 draws


# Geweke 2004: the joint of parameters and data, drawn in two ways ---------------------------------


def successive(family, rounds, fault=None, d=3, n=6, a=2.5, b=1.5):
    """Functionals along the chain: parameters by one sweep, then data by the model."""
    rng = np.random.default_rng(11)
    A = np.random.default_rng(12).normal(size=(n, d))
    shape, rate = np.full(d, a), np.full(d, b)
    alpha = rng.gamma(a, 1 / b, size=d)
    w = rng.normal(size=d) / np.sqrt(alpha)
    seen = np.empty((rounds, 10))
    kernel = 2 if fault == "no site ratio" else 0
    told = shape + 0.5 if fault == "gamma shape" else shape
    before = w.copy()
    for i in range(rounds):
        source = before if fault == "stale data" else w
        sign, before = draw_labels(family, A @ source, rng), w.copy()
        problem = problem_of(A, np.zeros(n), (family, sign, sign), told, rate)
        plan = Plan(tune=0, sweeps=1, kernel=kernel, scale=True)
        run_chain(problem, State(w, alpha), plan, store_of(1, d), rng, unwatched())
        seen[i] = functionals(w, alpha, A)
    return seen


def geweke(family, rounds, fault=None, a=2.5, b=1.5):
    rng = np.random.default_rng(13)
    A = np.random.default_rng(12).normal(size=(6, 3))
    alpha = rng.gamma(a, 1 / b, size=(rounds, 3))
    w = rng.normal(size=(rounds, 3)) / np.sqrt(alpha)
    independent = np.array([functionals(*pair, A) for pair in zip(w, alpha, strict=True)])
    chain = successive(family, rounds, fault)
    batches = chain.reshape(50, -1, 10).mean(axis=1)
    error = np.sqrt(batches.var(axis=0, ddof=1) / 50 + independent.var(axis=0) / rounds)
    return np.abs(batches.mean(axis=0) - independent.mean(axis=0)) / error


@pytest.mark.parametrize("family", [PROBIT, LOGIT])
def test_geweke(family):
    assert geweke(family, 20_000).max() < 4


@pytest.mark.parametrize("fault", ["gamma shape", "no site ratio", "stale data"])
def test_geweke_sees_faults(fault):
    """Stale data: the labels come from the weights of a sweep before."""
    assert geweke(PROBIT, 20_000, fault).max() > 5


def test_a_vague_hyperprior_starts_where_there_is_a_factor():
    """Gamma(0.01, 0.01) draws precisions of 1e-100, where X'TX + P0 has no Cholesky factor."""
    X, t = small_data(60, 5)
    model = av.models.ard_classification(X, t, a=0.01, b=0.01)
    with pytest.warns(av.errors.ConvergenceWarning, match="R-hat"):  # few draws
        tree = av.fit(model, av.EP(hyper=av.Sampled(tune=20)), draws=20, **QUIET)
    assert np.isfinite(tree["posterior"]["w"]).all() and tree["posterior"]["w"].std() > 0
