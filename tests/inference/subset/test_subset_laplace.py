"""Jumps by the Laplace Gaussian: the graph's logp, quadrature, agreement with the other route."""

import numpy as np
import pytensor
import pytest
from scipy import stats
from subset_cases import frequencies, subset_problem, two_class_probabilities, two_classes

from ardvark.inference.graph.read import read_model
from ardvark.inference.laplace import Laplace
from ardvark.inference.subset.collapsed import sample_collapsed
from ardvark.inference.subset.laplace import change, sample_laplace
from ardvark.inference.subset.laplace_fit import (
    TwoClasses,
    empty_fit,
    laplace,
    log_joint,
    log_proposal,
)
from ardvark.models.subset import subset_classification


def rng(seed):
    return np.random.default_rng([43, seed])


def fit_of(problem, members):
    fit, k = empty_fit(problem.n_inputs + 1), len(members)
    data = TwoClasses(problem.A, problem.t, problem.probit)
    evidence = laplace(k, members, data, problem.alpha, problem.prior().slab, fit)
    return evidence, fit.mode[:k], fit.L[:k, :k]


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_the_fit_is_the_laplace_of_the_library(link):
    model = two_classes(link=link)
    problem, latent = subset_problem(model), read_model(model)
    for subset in ([0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]):
        members = np.array([0, *np.flatnonzero(subset) + 1])
        evidence, mode, _ = fit_of(problem, members)
        fit = Laplace().approximate(latent.at({"included": np.array(subset)}))
        assert evidence == pytest.approx(fit.log_evidence, abs=1e-8)
        np.testing.assert_allclose(mode, fit.posterior.mean[members], atol=1e-5)


@pytest.mark.parametrize("slab", [1.5, "ard", "shared"])
@pytest.mark.parametrize("link", ["probit", "logit"])
def test_log_joint_is_the_graphs_with_the_precisions_integrated_out(link, slab):
    """Log p(t, w, I, alpha) = log p(t, w_I, I) + log p(alpha, excluded w | w_I), 500 states."""
    model = two_classes(12, 4, link=link, slab=slab, a=2.5, b=0.7)
    problem = subset_problem(model)
    with pytensor.config.change_flags(cxx=""):
        logp = model.compile_logp(mode="FAST_COMPILE", jacobian=False)
    r = rng(1)
    for _ in range(500 // 6 + 1):
        subset = r.integers(0, 2, size=4)
        members = np.array([0, *np.flatnonzero(subset) + 1])
        bias, w = r.normal(), r.normal(size=4)
        weights = np.array([bias, *w[subset == 1]])
        data, of_slab = TwoClasses(problem.A, problem.t, problem.probit), problem.prior().slab
        mine = log_joint(len(members), weights, members, data, problem.alpha, of_slab)
        mine += problem.log_prior[subset.sum()]
        point = {"included": subset, "bias": np.array(bias), "w": w}
        alpha = np.full(4, 1 / 1.5**2)
        if slab == "ard":
            alpha = np.exp(r.normal(size=4))
            point["alpha_log__"] = np.log(alpha)
            shape, rate = 2.5 + 0.5 * subset, 0.7 + 0.5 * subset * w**2
            mine += stats.gamma.logpdf(alpha, shape, scale=1 / rate).sum()
        elif slab == "shared":
            one = np.exp(r.normal())
            alpha = np.full(4, one)
            point["alpha_log__"] = np.log(one)
            rate = 0.7 + 0.5 * (subset * w**2).sum()
            mine += stats.gamma.logpdf(one, 2.5 + 0.5 * subset.sum(), scale=1 / rate)
        out = subset == 0
        mine += stats.norm.logpdf(w[out], 0, alpha[out] ** -0.5).sum()
        assert mine == pytest.approx(float(logp(point)), abs=1e-8)


def test_the_proposal_is_a_student_t():
    problem = subset_problem(two_classes())
    _, mode, L = fit_of(problem, np.array([0, 1, 3]))
    exact = stats.multivariate_t(mode, np.linalg.inv(np.tril(L) @ np.tril(L).T), df=8)
    for w in rng(2).normal(size=(5, 3)):
        assert log_proposal(3, w, mode, L) == pytest.approx(exact.logpdf(w), abs=1e-9)


@pytest.mark.parametrize("states", [500, pytest.param(10_000, marks=pytest.mark.validate)])
def test_a_change_and_its_reverse_restore_the_subset(states):
    r = rng(3)
    for _ in range(states):
        members, place, k = np.zeros(7, np.int64), np.full(7, -1), 1
        place[0] = 0
        for j in r.permutation(np.arange(1, 7))[: r.integers(0, 7)]:
            k = change(k, members, place, 0, j)
        before = set(members[:k])
        inside, outside = [j for j in before if j], [j for j in range(1, 7) if j not in before]
        old = int(r.choice(inside)) if inside and r.random() < 0.6 else 0
        new = int(r.choice(outside)) if outside and (old == 0 or r.random() < 0.5) else 0
        there = change(k, members, place, old, new)
        assert set(members[:there]) == (before - {old} | {0}) | ({new} if new else set())
        assert change(there, members, place, new, old) == k
        assert set(members[:k]) == before
        assert all(members[place[j]] == j for j in before)


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_two_inputs_against_quadrature(link):
    whole = two_classes(25, 3)
    X, t = whole["X"].get_value()[:, [0, 2]], whole["t_observed"].get_value()
    problem = subset_problem(subset_classification(X, t, link=link, expected_inputs=1.5))
    exact = two_class_probabilities(problem, link == "probit")
    chains = sample_laplace(problem, (500, 20000, 1), 2, seed=4)
    share, error = frequencies(np.array([chain.visited for chain in chains]), 2)
    assert np.all(np.abs(share - exact) < 4 * error)
    made = np.sum([chain.moves[3] for chain in chains], axis=(0, 1))
    assert made[1] / made[0] > 0.6  # Laplace is near: most of its jumps are taken


@pytest.mark.parametrize("slab", [1.0, "ard", "shared"])
def test_a_probit_by_both_routes(slab):
    problem = subset_problem(two_classes(60, 6, slab=slab))
    one = sample_laplace(problem, (500, 6000, 1), 2, seed=5)
    two = sample_collapsed(problem, (500, 12000, 1), 2, seed=6)
    a, a_error = frequencies(np.array([chain.visited for chain in one]), 6)
    b, b_error = frequencies(np.array([chain.visited for chain in two]), 6)
    assert np.all(np.abs(a - b) < 4.5 * np.hypot(a_error, b_error) + 2e-3)
    for name in ("weights", "alpha"):
        x, y = (np.array([getattr(c, name) for c in chains]) for chains in (one, two))
        spread = y.std(axis=(0, 1)) + 1e-9
        assert np.all(np.abs(x.mean(axis=(0, 1)) - y.mean(axis=(0, 1))) < 0.12 * spread)


def test_the_same_seed_gives_the_same_draws():
    problem = subset_problem(two_classes(link="logit"))
    one = sample_laplace(problem, (5, 20, 1), 2, seed=5, threads=1)
    two = sample_laplace(problem, (5, 20, 1), 2, seed=5, threads=2)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.weights, b.weights)
        np.testing.assert_array_equal(a.visited, b.visited)
