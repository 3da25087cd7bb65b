"""The prior of a subset: it sums to one, and its graph draws what its logp says."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy import stats

from ardvark.models.subset import log_subset_prior, subset_variable


@pytest.mark.parametrize("rate", [0.3, 1.0, 6.0])
def test_all_subsets_together_have_probability_one(rate):
    table = log_subset_prior(5, rate)
    subsets = np.array(list(product((0, 1), repeat=5)))
    assert np.exp(table[subsets.sum(axis=1)]).sum() == pytest.approx(1, abs=1e-12)


def test_one_more_input_has_the_odds_of_the_poisson():
    rate, d = 2.5, 7
    ratio = np.exp(np.diff(log_subset_prior(d, rate)))
    k = np.arange(d)
    np.testing.assert_allclose(ratio * (d - k) / (k + 1), rate / (k + 1))  # d-k births, k+1 deaths


def test_graph_and_table_agree_and_draws_follow_them():
    with pytensor.config.change_flags(cxx=""):
        with pm.Model(coords={"feature": list("abcdef")}) as model:
            subset_variable("included", 6, 2.0, dims="feature")
        logp = model.compile_logp(mode="FAST_COMPILE")
        draws = pm.draw(model["included"], 4000, random_seed=3, mode="FAST_COMPILE")
    table = log_subset_prior(6, 2.0)
    for subset in draws[:20]:
        assert float(logp({"included": subset})) == pytest.approx(table[subset.sum()], abs=1e-12)
    assert np.isneginf(logp({"included": np.array([2, 0, 0, 0, 0, 0])}))
    sizes = np.arange(7)
    expected = stats.poisson.pmf(sizes, 2.0) / stats.poisson.cdf(6, 2.0)
    counts = np.bincount(draws.sum(axis=1), minlength=7)
    assert stats.chisquare(counts, 4000 * expected).pvalue > 1e-3
    inclusion, error = draws.mean(axis=0), np.sqrt(0.25 / 4000)
    assert np.all(np.abs(inclusion - expected @ sizes / 6) < 4 * error)
