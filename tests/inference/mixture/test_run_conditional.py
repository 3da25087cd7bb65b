"""The mixture under P(t | x): two routes to its posterior, what is stored, what is refused."""

import numpy as np
import pytest
from model_variants import sample_data

import ardvark as av
from ardvark.errors import UnsupportedPair
from ardvark.inference.mixture.run import conditional_posterior, read_mixture
from ardvark.inference.mixture.run_given import states_of

SUBSETS = np.array(list(np.ndindex(2, 2)), bool)


def small(n=14):
    """Two classes, one input that tells them apart and one that does not."""
    rng = np.random.default_rng(3)
    t = np.arange(n) % 2
    X = np.stack([rng.normal(1.5 * t), rng.normal(size=n)], axis=1)
    return av.models.rbf_mixture(X, t, n_kernels=2, target="conditional"), X, t


def by_prior(model, draws, seed=0):
    """Log evidence of each subset by draws from the prior, its error, and the posterior."""
    found = conditional_posterior(model, draws, seed)
    np.testing.assert_array_equal(found.included, SUBSETS)
    return found.log_evidence.values, found.error.values, found.probability.values


def test_evidence_of_no_inputs_is_that_of_the_class_probabilities():
    """P(t) under a flat Dirichlet: 7! 7! / 15!."""
    model, _, _ = small()
    value, error, probability = by_prior(model, 20000)
    exact = 2 * np.log(np.arange(1, 8)).sum() - np.log(np.arange(1, 16)).sum()
    assert abs(value[0] - exact) < 4 * error[0]
    assert error[0] < 0.02
    assert probability.sum() == pytest.approx(1)


def test_evidence_sums_to_one_over_all_labels():
    """Three rows, all eight ways to label them: P(t | x, I) is a density of t."""
    X = np.array([[0.0, 1.0], [2.0, 0.5], [1.0, 3.0]])
    total, square = np.zeros(4), np.zeros(4)
    for code in range(1, 7):  # both classes must occur; the two others are 1 - the rest
        t = [code >> n & 1 for n in range(3)]
        model = av.models.rbf_mixture(X, t, n_kernels=2, target="conditional")
        value, error, _ = by_prior(model, 20000, seed=code)
        total += np.exp(value)
        square += (np.exp(value) * error) ** 2
    same = 2 * 6 / 24  # P(all of one class) without inputs: 3! / 4! twice
    assert abs(total[0] - (1 - same)) < 4 * np.sqrt(square[0])
    assert np.all(total < 1)
    assert np.all(total > 0.3)


def test_what_the_conditional_target_does_not_have_is_refused():
    X, t = sample_data("multiclass")
    model = av.models.rbf_mixture(X, t, n_kernels=2, target="conditional")
    with pytest.raises(UnsupportedPair, match="no sum over allocations"):
        av.fit(model, "exact")
    with pytest.raises(UnsupportedPair, match="births come from a mixture"):
        av.fit(model, av.ReversibleJump(proposals="prior"))


def test_inputs_that_only_describe_each_other_are_not_relevant_to_the_class():
    """The joint density takes such inputs (`test_mixture_runs.py`); P(t | x) does not."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    X[:, 1] = X[:, 0] + 0.3 * rng.normal(size=60)
    model = av.models.rbf_mixture(X, np.arange(60) % 2, n_kernels=2, target="conditional")
    found = conditional_posterior(model, 10000)
    inclusion = (found.probability * found.included).sum("subset").values
    assert inclusion.max() < 0.5  # the prior's mean size is 0.8 of two inputs: 0.4 each


@pytest.mark.filterwarnings("ignore::ardvark.errors.ConvergenceWarning")  # a short run
def test_a_tree_of_the_conditional_target():
    """Same seed, same draws; unlabelled rows within the range say nothing of t given x."""
    model, X, t = small()
    options = {"draws": 50, "chains": 2, "random_seed": 1, "progressbar": False}
    settings = av.ReversibleJump(sweeps=300, rungs=2)
    tree, again = (av.fit(model, settings, **options) for _ in range(2))
    np.testing.assert_array_equal(tree.posterior.kernel_mean, again.posterior.kernel_mean)
    more = av.models.rbf_mixture(
        np.vstack([X, X[:3] * 0.5 + X[3:6] * 0.5]), [*t.tolist(), None, None, None],
        n_kernels=2, target="conditional",
    )  # fmt: skip
    unlabelled = av.fit(more, settings, **options)
    np.testing.assert_array_equal(tree.posterior.included, unlabelled.posterior.included)
    assert set(tree.posterior.data_vars) == {rv.name for rv in model.free_RVs}
    assert tree.log_likelihood.t.shape == unlabelled.log_likelihood.t.shape == (2, 50, len(t))
    np.testing.assert_allclose(tree.log_likelihood.t.sum("row"), tree.sample_stats.log_t, atol=1e-9)
    assert tree.sample_stats.power.shape == (2, 2)
    least = 0.01 * np.ptp(X, axis=0) ** 2
    assert (tree.posterior.kernel_rate.values >= least).all()  # every input, in or out
    np.testing.assert_allclose(av.predict(model, tree, X).sum("class"), 1, atol=1e-12)


def test_chains_give_the_posterior_of_the_other_route():
    model, _, _ = small()
    _, error, exact = by_prior(model, 60_000)
    settings = av.ReversibleJump(sweeps=8000, rungs=2)
    tree = av.fit(model, settings, draws=800, chains=4, random_seed=1, progressbar=False)
    assert tree.attrs["converged"]
    found = tree["subsets"].to_dataset()
    for subset, probability, own in zip(SUBSETS, exact, error, strict=True):
        same = (found.included.values == subset).all(axis=1)
        gap = abs(found.probability.values[same].item() - probability)
        assert gap < 4 * np.hypot(found.mcse.values[same].item(), probability * own)
    one = states_of(
        tree.posterior.to_dataset(), read_mixture(model, "reversible_jump", settings).scale
    )
    assert one.on.shape == (3200, 2)
