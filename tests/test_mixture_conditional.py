"""The mixture under P(t | x): two routes to its posterior, what is stored, what is refused."""

import numpy as np
import pytest
from scipy.special import logsumexp

import ardvark as av
from ardvark.errors import UnsupportedPair
from ardvark.inference.mixture_background import Evidence
from ardvark.inference.mixture_conditional import conditional_evidence, states_of
from ardvark.inference.mixture_runs import _prior_draws, read_mixture
from ardvark.models.registry import sample_data
from ardvark.models.subset_prior import log_subset_prior

SUBSETS = np.array(list(np.ndindex(2, 2)), bool)


def small(n=14):
    """Two classes, one input that tells them apart and one that does not."""
    rng = np.random.default_rng(3)
    t = np.arange(n) % 2
    X = np.stack([rng.normal(1.5 * t), rng.normal(size=n)], axis=1)
    return av.models.rbf_mixture(X, t, n_kernels=2, target="conditional"), X, t


def by_prior(model, draws, seed=0, subsets=SUBSETS):
    """Log evidence of each subset by draws from the prior, its error, and the posterior."""
    read = read_mixture(model, "reversible_jump", av.ReversibleJump())
    n_inputs = len(read.z)
    nothing = Evidence(np.zeros(n_inputs), np.zeros(n_inputs))
    rng = np.random.default_rng(seed)
    mean, tau, _ = _prior_draws(read.problem(nothing), (draws, n_inputs), read.prior.n_kernels, rng)
    value, error = conditional_evidence(read.z, read.label, read.prior, (mean, tau), subsets, seed)
    log_p = value + log_subset_prior(n_inputs, read.prior.expected_inputs)[subsets.sum(axis=1)]
    return value, error, np.exp(log_p - logsumexp(log_p))


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
    with pytest.raises(UnsupportedPair, match="without a ladder"):
        av.fit(model, av.ReversibleJump(rungs=2))
    with pytest.raises(UnsupportedPair, match="births come from the prior"):
        av.fit(model, av.ReversibleJump(proposals="prior"))


@pytest.mark.validate
@pytest.mark.filterwarnings("ignore::ardvark.errors.ConvergenceWarning")  # a divergence or two
def test_jumps_with_nuts_give_the_posterior_of_the_other_route():
    model, X, t = small()
    _, error, exact = by_prior(model, 200_000)
    settings = av.ReversibleJump(sweeps=3000, tune=600)
    tree = av.fit(model, settings, draws=800, chains=2, random_seed=1, progressbar=False)
    found = tree["subsets"].to_dataset()
    for subset, probability, own in zip(SUBSETS, exact, error, strict=True):
        same = (found.included.values == subset).all(axis=1)
        gap = abs(found.probability.values[same].item() - probability)
        assert gap < 4 * np.hypot(found.mcse.values[same].item(), probability * own)
    predicted = av.predict(model, tree, X)
    np.testing.assert_allclose(predicted.sum("class"), 1, atol=1e-12)
    one = states_of(
        tree.posterior.to_dataset(), read_mixture(model, "reversible_jump", settings).scale
    )
    assert one.on.shape == (1600, 2)
    assert tree.log_likelihood.t.shape == (2, 800, len(t))
