"""Short chains from an approximation: the target stays, a wrong start moves, intervals cover."""

import numpy as np
import pytest
from quick import fit

import ardvark as av
from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.samplers.short_chains import short_chains

RNG = np.random.default_rng(61)
X = RNG.normal(size=(30, 2))
T = X[:, 0] + 0.5 * RNG.normal(size=30)
LABEL = (X[:, 0] + 0.7 * RNG.normal(size=30) > 0).astype(int)


def changed(tree, factor=1.0, shift=0.0):
    """The same tree with draws too narrow or moved: a planted fault."""
    tree = tree.copy(deep=True)
    posterior = tree["posterior"].to_dataset()
    for name in ("bias", "w"):
        mean, sd = posterior[name].mean(("chain", "draw")), posterior[name].std(("chain", "draw"))
        posterior[name] = mean + shift * sd + factor * (posterior[name] - mean)
    tree["posterior"] = posterior
    return tree


def test_short_chains_leave_their_target_alone():
    """Exact starts of a skewed density, with an ellipse that does not fit it: still exact."""
    rng = np.random.default_rng(1)
    starts = np.log(rng.gamma(2.0, size=(4000, 2)))

    def log_density(x):
        return (2.0 * x - np.exp(x)).sum(axis=-1)

    ends = short_chains(log_density, starts, 5, rng, mean=np.ones(2), covariance=0.5 * np.eye(2))
    for k in range(2):
        one, two = np.sort(starts[:, k]), np.sort(ends[:, k])
        assert abs(one.mean() - two.mean()) < 5 * np.sqrt(2 / 4000) * one.std()
        assert abs(np.log(two.std() / one.std())) < 0.08
        assert abs(np.corrcoef(starts[:, k], ends[:, k])[0, 1]) < 0.5  # they have moved


def test_intervals_cover_no_change_for_a_right_approximation():
    """Laplace is exact for Gaussian noise: 40 runs of 3 weights, at most 5 % of runs may call."""
    model = av.models.ard_regression(X, T, alpha=np.ones(3), noise=0.5)
    tree = fit(model, "laplace")
    false = 0
    for seed in range(40):
        table = av.diagnostics.taddaa(model, tree, chains=200, steps=5, random_seed=seed)
        false += bool((table["mean_error"] > 0).any() or (table["sd_error"] > 0).any())
    print(f"runs in 40 that call a right approximation wrong: {false}")
    # two families of intervals at 5 % each: 4 expected, 10 is beyond three sds
    assert false <= 9


def test_planted_faults_are_found():
    model = av.models.ard_regression(X, T, alpha=np.ones(3), noise=0.5)
    tree = fit(model, "laplace")
    narrow = av.diagnostics.taddaa(model, changed(tree, factor=0.8))
    assert (narrow["sd_low"] > 1.0).all() and (narrow["sd_error"] > 0).all()
    np.testing.assert_allclose(narrow["sd_ratio"], 1.25, rtol=0.15)
    assert (narrow["q90_low"] > 0).any()
    moved = av.diagnostics.taddaa(model, changed(tree, shift=0.5))
    assert (moved["mean_high"] < 0).all()  # the chains go back
    np.testing.assert_allclose(moved["mean_change"], -0.5, atol=0.2)
    assert (moved["memory"].abs() < 0.4).all()
    assert list(moved.index) == ["bias", "w[x0]", "w[x1]"]


def test_mean_field_is_found_too_narrow_on_the_graph():
    model = av.models.ard_classification(X, LABEL)
    table = av.diagnostics.taddaa(model, fit(model, av.VB(prune=None)), chains=300)
    assert table["sd_error"].max() > 0.1  # its weights are far too narrow
    assert {"bias", "w[x0]"} <= set(table.index)


def test_what_it_cannot_judge_is_refused():
    model = av.models.ard_regression(X, T, alpha=np.ones(3), noise=0.5)
    tree = fit(model, "laplace", draws=50)
    with pytest.raises(InputError, match="fit with more draws"):
        av.diagnostics.taddaa(model, tree)
    with pytest.raises(InputError, match="level"):
        av.diagnostics.taddaa(model, tree, level=95)
    with pytest.raises(UnsupportedPair, match="Markov chain"):
        av.diagnostics.taddaa(model, fit(model, av.EllipticalSlice()))
