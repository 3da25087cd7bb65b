"""Projection: exact on the full set, right by direct maximisation, the path finds what matters."""

import warnings

import numpy as np
import pytest
import scipy.optimize
from scipy.special import expit, log_expit, log_ndtr, ndtr

import ardvark as av
from ardvark.diagnostics.relevance.projection import project
from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.selection.projection import Binary, Gaussian, forward_path
from ardvark.inference.sites.likelihoods import LogitSites, ProbitSites

N, D, S = 60, 5, 7
LINKS = {ProbitSites: (ndtr, log_ndtr), LogitSites: (expit, log_expit)}


def rng(seed):
    return np.random.default_rng([905, seed])


@pytest.fixture(scope="module")
def arrays():
    X = np.column_stack([np.ones(N), rng(0).normal(size=(N, D))])
    w = rng(1).normal(size=(S, D + 1)) * [0.5, 2.0, 1.0, 0.3, 0.0, 0.0] + [0.2, 1, -1, 0, 0, 0]
    return X, w @ X.T, 0.3 * rng(2).normal(size=N)


def gaussian(arrays):
    _, eta, offset = arrays
    return Gaussian(eta, np.linspace(0.5, 1.0, S), offset)


def test_full_set_is_exact(arrays):
    X, eta, offset = arrays
    references = [gaussian(arrays), *(Binary(eta, offset, link) for link in LINKS)]
    for reference in references:
        found = reference.project(X)
        np.testing.assert_allclose(found.eta, eta + offset, atol=1e-8)
        np.testing.assert_allclose(found.divergence, 0, atol=1e-8)
    np.testing.assert_allclose(references[0].project(X).sigma, references[0].sigma, atol=1e-12)


def test_gaussian_projection_is_least_squares_with_inflated_noise(arrays):
    X, eta, offset = arrays
    found = gaussian(arrays).project(X[:, :3])
    for s, sigma in enumerate(np.linspace(0.5, 1.0, S)):
        beta = np.linalg.lstsq(X[:, :3], eta[s])[0]
        residual = eta[s] - X[:, :3] @ beta
        np.testing.assert_allclose(found.eta[s], X[:, :3] @ beta + offset, atol=1e-12)
        assert found.sigma[s] == pytest.approx(np.sqrt(sigma**2 + np.mean(residual**2)))

        def divergence(sd, residual=residual, sigma=sigma):  # KL of two normals, summed
            gap = (sigma**2 + residual**2) / (2 * sd**2)
            return np.sum(np.log(sd / sigma) + gap - 0.5)

        assert found.divergence[s] == pytest.approx(divergence(found.sigma[s]))
        assert divergence(found.sigma[s]) < min(
            divergence(1.01 * found.sigma[s]), divergence(0.99 * found.sigma[s])
        )


@pytest.mark.parametrize("link", LINKS)
def test_two_class_projection_is_the_minimum_of_the_divergence(arrays, link):
    X, eta, offset = arrays
    probability, log_p = LINKS[link]
    found = Binary(eta, offset, link).project(X[:, :2])
    mu = probability(eta + offset)
    for s in range(S):

        def divergence(beta, s=s):
            z = X[:, :2] @ beta + offset
            own = mu[s] * np.log(mu[s]) + (1 - mu[s]) * np.log1p(-mu[s])
            return np.sum(own - mu[s] * log_p(z) - (1 - mu[s]) * log_p(-z))

        best = scipy.optimize.minimize(divergence, np.zeros(2), tol=1e-12)
        assert found.divergence[s] == pytest.approx(best.fun, rel=1e-6)
        np.testing.assert_allclose(found.eta[s], X[:, :2] @ best.x + offset, atol=1e-4)


def test_path_finds_the_columns_and_a_duplicate_adds_nothing(arrays):
    X, eta, offset = arrays
    always = np.array([True] + [False] * D)
    for reference in (gaussian(arrays), Binary(eta, offset, ProbitSites)):
        path = forward_path(reference, X, always, D)
        assert set(path[:2]) == {1, 2}
        divergence = [
            reference.project(X[:, [0, *path[:k]]]).divergence.mean() for k in range(len(path) + 1)
        ]
        assert all(np.diff(divergence) < 1e-9) and divergence[-1] < 1e-6
    twice = np.column_stack([X, X[:, 1]])
    path = forward_path(gaussian(arrays), twice, np.append(always, False), D + 1)
    assert len({1, 6} & set(path)) == 1


def test_forward_path_takes_the_best_column_at_each_step(arrays):
    X, *_ = arrays
    reference = gaussian(arrays)
    always = np.array([True] + [False] * D)
    (first,) = forward_path(reference, X, always, 1)
    mean = reference.average()
    assert first == 1 + np.argmin(
        [mean.project(X[:, [0, j]]).divergence[0] for j in range(1, D + 1)]
    )


@pytest.fixture(scope="module")
def regression():
    X = rng(10).normal(size=(80, 6))
    t = X @ [2.0, -1.0, 0, 0, 0, 0] + 0.5 + 0.6 * rng(11).normal(size=80)
    model = av.models.ard_regression(X, t)
    return model, av.fit(model, "laplace", draws=100, random_seed=1, progressbar=False)


def test_regression_needs_its_two_inputs(regression):
    model, tree = regression
    found = project(tree, model)
    assert found.suggested == 2 and set(found.columns) == {"x0", "x1"}
    path = found.path
    assert path["explained"].iloc[0] == 0 and path["explained"].iloc[2] > 0.95
    assert (path["divergence"].diff().dropna() < 1e-9).all()
    assert path["difference"].iloc[0] < -3 * path["difference_se"].iloc[0]
    assert path["divergence"].iloc[-1] == pytest.approx(0, abs=1e-8)
    assert found.high_khat == 0 and "k-hat" not in found.sentence()
    assert "2 of the columns" in found.sentence() and "<table" in found._repr_html_()
    # the leave-one-out of the reference is ArviZ's, on the draws that were taken
    assert found.reference_elpd == pytest.approx(
        av.compare({"laplace": tree}, "laplace", detail=True)["elpd_loo"].iloc[0], abs=1.0
    )


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_two_classes_of_a_subset_model_and_of_ard(link):
    X = rng(20).normal(size=(120, 5))
    t = (X @ [2.5, 0, -2.0, 0, 0] + rng(21).normal(size=120) > 0).astype(int)
    settings = {"draws": 100, "random_seed": 1, "progressbar": False}
    subsets = av.models.subset_classification(X, t, link=link, expected_inputs=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", av.errors.ConvergenceWarning)  # a hundred draws
        jumps = av.fit(subsets, av.ReversibleJump(sweeps=400), **settings)
    ard = av.models.ard_classification(X, t, link=link)
    for tree, model in ((jumps, subsets), (av.fit(ard, "laplace", **settings), ard)):
        found = project(tree, model, most=4)
        assert {"x0", "x2"} == set(found.path["added"].iloc[1:3]) and found.suggested == 2
        assert len(found.path) <= 5


def test_rows_that_cannot_be_left_out_by_importance_are_counted():
    X = rng(25).normal(size=(20, 2))
    t = X @ [1.0, 0.0] + 0.1 * rng(26).normal(size=20)
    X[0], t[0] = [6.0, 0.0], -3.0  # one row against all others, far out
    model = av.models.ard_regression(X, t, noise=0.3)
    tree = av.fit(model, "laplace", draws=200, random_seed=1, progressbar=False)
    found = project(tree, model)
    assert found.high_khat >= 1 and f"above 0.7: {found.high_khat}" in found.sentence()


def test_what_cannot_be_projected_says_why(regression):
    model, tree = regression
    X, t = rng(30).normal(size=(15, 2)), rng(31).normal(size=15)
    kernel = av.models.rvm_regression(X, t, kernel=av.RBF(width=None))
    with pytest.raises(UnsupportedPair, match="depends on"):
        project(tree, kernel)
    with pytest.raises(UnsupportedPair, match="sample_feature"):
        project(tree, av.models.sample_feature_regression(X, t))
    other = av.models.ard_regression(X, t, alpha=[1.0, 1.0, 1.0])
    bare = tree.copy()
    bare["posterior"] = tree["posterior"].to_dataset().drop_vars("w")
    with pytest.raises(InputError, match="'w'"):
        project(bare, other)
    with pytest.raises(InputError, match="draws"):
        project(tree, model, draws=0)
