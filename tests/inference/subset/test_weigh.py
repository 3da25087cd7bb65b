"""All subsets of a two-class model: evidences by importance sampling, by EP, by quadrature."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_expit, log_ndtr
from subset_cases import codes, subset_problem, two_class_probabilities, two_classes

import ardvark as av
from ardvark.inference.subset import weigh

LINKS = ("probit", "logit")


def small(link):
    """Two inputs, one of which matters."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(25, 2))
    t = X[:, 0] + rng.normal(size=25) > 0
    return av.models.subset_classification(X, t, link=link, expected_inputs=1.5)


@pytest.mark.parametrize("link", LINKS)
def test_probabilities_are_those_of_quadrature(link):
    problem = subset_problem(small(link))
    found = weigh.weigh_subsets(problem, link, 1)
    exact = two_class_probabilities(problem, link == "probit")
    assert (found.probability_error < 0.01).all()
    assert (np.abs(found.probability - exact) < 4 * found.probability_error).all()
    by_ep = weigh.ep_evidences(problem, link, found)
    assert np.abs(by_ep - found.log_evidence).max() < 0.03  # what the correction leaves out


@pytest.mark.parametrize("slab", ["ard", "shared"])
def test_inferred_slabs_are_integrated_out(slab):
    """One input: its weight is a Student-t under both; by the trapezoidal rule."""
    X = np.random.default_rng(0).normal(size=(20, 1))
    t = X[:, 0] + np.random.default_rng(1).normal(size=20) > 0
    problem = subset_problem(av.models.subset_classification(X, t, slab=slab, a=2.5, b=0.7))
    found = weigh.weigh_subsets(problem, "probit", 1)
    bias, w = np.meshgrid(np.arange(-8, 8, 0.05), np.arange(-8, 8, 0.05))
    prior = stats.norm.logpdf(bias, 0, problem.alpha[0] ** -0.5)
    prior += stats.t.logpdf(w, 5.0, 0, np.sqrt(0.7 / 2.5))
    eta = bias[..., None] + w[..., None] * X[:, 0]
    log_t = log_ndtr(problem.t * eta).sum(axis=-1)
    exact = np.logaddexp.reduce((prior + log_t).ravel()) + 2 * np.log(0.05)
    assert abs(found.log_evidence[1] - exact) < 4 * found.error[1]
    assert found.error[1] < 0.02


def test_the_error_is_that_of_repeated_runs():
    problem = subset_problem(small("probit"))
    runs = [weigh.weigh_subsets(problem, "probit", seed) for seed in range(30)]
    spread = np.std([run.log_evidence for run in runs], axis=0, ddof=1)
    told = np.mean([run.error for run in runs], axis=0)
    assert (spread / told > 0.6).all()  # sd of 30 numbers: 13 %
    assert (spread / told < 1.5).all()


@pytest.mark.parametrize("settings", [{}, {"link": "logit", "slab": "ard"}], ids=["probit", "ard"])
def test_reversible_jump_agrees_with_all_subsets(settings):
    model = two_classes(**settings)
    options = {"draws": 500, "chains": 4, "random_seed": 2, "progressbar": False}
    exact = av.fit(model, "exact", **options)
    jumps = av.fit(model, av.ReversibleJump(sweeps=4000), **options)
    assert exact.attrs["converged"]
    probability, error = np.zeros(16), np.zeros(16)
    found = jumps["subsets"]
    place = codes(found.included.values)
    probability[place], error[place] = found.probability.values, found.mcse.values
    order = codes(exact["subsets"].included.values)
    own = exact["subsets"].probability.values
    gap = np.abs(probability[order] - own)
    assert (gap < 4.5 * np.hypot(error[order], exact["subsets"].mcse.values) + 1e-3).all()
    for name in ("bias", "w_included"):
        a, b = exact["posterior"][name], jumps["posterior"][name]
        scale = b.std(("chain", "draw")) + 0.05
        assert (np.abs(a.mean(("chain", "draw")) - b.mean(("chain", "draw"))) < 0.2 * scale).all()


def test_draws_come_from_the_posterior_of_their_subset():
    """Weights of one subset against the mean by its importance weights, the wrong prior shows."""
    problem = subset_problem(small("logit"))
    found = weigh.weigh_subsets(problem, "logit", 1)
    which, weights, _ = weigh.draw_from_subsets(problem, "logit", found, 8000, 3)
    assert np.bincount(which, minlength=4) / 8000 == pytest.approx(found.probability, abs=0.02)
    x = np.arange(-6, 6, 0.1)
    bias, w = np.meshgrid(x, x)
    log_p = stats.norm.logpdf(bias, 0, problem.alpha[0] ** -0.5)
    log_p += stats.norm.logpdf(w, 0, problem.alpha[1] ** -0.5)
    eta = bias[..., None] + w[..., None] * problem.A[:, 1]
    log_p += log_expit(problem.t * eta).sum(axis=-1)
    p = np.exp(log_p - log_p.max())
    own = weights[which == 1]
    exact = (p * w).sum() / p.sum()
    assert abs(own[:, 1].mean() - exact) < 5 * own[:, 1].std() / np.sqrt(len(own))
    assert (own[:, 2] == 0).all()
