"""Mean-field VB of a mixture at a given subset: its bound, its draws, what is refused."""

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

import ardvark as av
from ardvark.errors import UnsupportedPair
from ardvark.inference.mixture.background import Evidence
from ardvark.inference.mixture.chains import Scale, make_problem
from ardvark.inference.mixture.enumerate import enumerate_mixture
from ardvark.inference.mixture.mean_field import MeanField, ascend, draw_factors
from ardvark.models.mixture import rbf_mixture
from ardvark.models.subset import log_subset_prior

A, G, RESOLUTION, ROWS = 2.0, 0.2, 0.1, 10


def tiny(seed, apart, unlabelled=False):
    """Two inputs, two classes; data and prior, and the exact log evidence by enumeration."""
    rng = np.random.default_rng(seed)
    t = np.arange(ROWS) % 2
    X = rng.normal(size=(ROWS, 2)) * 0.4 + apart * t[:, None]
    z = Scale((X.max(axis=0) + X.min(axis=0)) / 2, np.ptp(X, axis=0)).to_z(X)
    label = np.where(np.arange(ROWS) < 4, -1, t) if unlabelled else t
    p = MeanField(z, label, 2, 2, A, G, np.full(2, 10.0), RESOLUTION**2)
    if unlabelled:
        return p, np.nan
    nothing = Evidence(np.zeros(2), np.zeros(2))
    problem = make_problem(z, t, log_subset_prior(2, 1.0), A, G, p.h, RESOLUTION, nothing)
    found = enumerate_mixture(problem, 2, 2, 2)
    counts = np.bincount(t)
    labels = gammaln(counts + 1).sum() - gammaln(ROWS + 2)  # P(t) under a flat Dirichlet
    return p, labels + logsumexp(found.log_labels + found.log_inputs.sum(axis=0))


@pytest.mark.parametrize("apart", [0.5, 4.0])
def test_the_bound_rises_to_below_the_evidence(apart):
    for seed in range(4):
        p, exact = tiny(seed, apart)
        q = ascend(p, np.random.default_rng(seed), 5, 1e-9, 2000)
        assert q.settled
        assert np.diff(q.bound).min() > -1e-9
        assert q.bound[-1] < exact
        # Two orders of the kernels, log 2, and what factors leave out of so few rows.
        assert exact - q.bound[-1] < np.log(2) + 2.5


def test_a_wrong_term_would_break_the_bound():
    """The bound without its divergence of the means is above the evidence."""
    p, exact = tiny(0, 4.0)
    q = ascend(p, np.random.default_rng(0), 5, 1e-9, 2000)
    divergence = 0.5 * np.sum(1 / q.precision + q.mean**2 - 1 + np.log(q.precision))
    assert q.bound[-1] + divergence > exact


def test_unlabelled_rows_find_their_class():
    p, _ = tiny(1, 4.0, unlabelled=True)
    q = ascend(p, np.random.default_rng(1), 5, 1e-9, 2000)
    assert q.settled and np.diff(q.bound).min() > -1e-9
    np.testing.assert_allclose(q.P.sum(), 2 + ROWS)
    assert q.w[0].argmax() != q.w[1].argmax()


def test_draws_have_the_moments_of_q():
    p, _ = tiny(2, 4.0)
    rng = np.random.default_rng(3)
    q = ascend(p, rng, 5, 1e-9, 2000)
    drawn = draw_factors(p, q, 20_000, rng)
    error = 5 / np.sqrt(20_000)
    assert (np.abs(drawn["mean"].mean(0) - q.mean) < error / np.sqrt(q.precision)).all()
    assert (np.abs(drawn["tau"].mean(0) / (q.a / q.b) - 1) < error / np.sqrt(q.a)).all()
    assert drawn["P"].mean(0) == pytest.approx(q.P / q.P.sum(), abs=error)
    assert (drawn["beta"] >= p.floor).all()


def test_a_tree_in_any_unit():
    """The bound is one of the graph's density: units of x change it by their logarithm."""
    rng = np.random.default_rng(4)
    t = np.arange(20) % 2
    X = rng.normal(size=(20, 3)) + 2.0 * t[:, None]
    trees = []
    for unit in (1.0, 1000.0):
        model = rbf_mixture(X * unit, t, n_kernels=2, included=[0, 2])
        trees.append(av.fit(model, "vb", draws=100, random_seed=1, progressbar=False))
    gap = trees[0].fit.elbo.values[-1] - trees[1].fit.elbo.values[-1]
    assert gap == pytest.approx(2 * 20 * np.log(1000.0), abs=1e-4)
    assert trees[0].attrs["converged"]
    assert set(trees[0].posterior.data_vars) == {rv.name for rv in model.free_RVs}
    p = av.predict(model, trees[1], X * unit)
    assert (p.values.argmax(axis=1) == t).mean() > 0.8
    assert trees[0].log_likelihood.t.sizes["row"] == 20


def test_what_has_no_closed_form_is_refused():
    X, t = np.random.default_rng(0).normal(size=(8, 2)), np.arange(8) % 2
    given = rbf_mixture(X, t, n_kernels=2, target="conditional", included=[0])
    with pytest.raises(UnsupportedPair):
        av.fit(given, "vb")
    with pytest.raises(UnsupportedPair):
        av.fit(rbf_mixture(X, t, n_kernels=2), "vb")
