"""The quality of a reference: good chains pass, each planted fault is called by name."""

import numpy as np
import pytest
from synthetic_trees import gaussian_tree, replaced

from ardvark.diagnostics.compare.reference import reference_quality

MEAN, SD = np.array([0.5, 1.0, -2.0]), np.array([0.3, 0.2, 1.5])
SAMPLE = ("chain", "draw")


def rng(seed):
    return np.random.default_rng([31, seed])


@pytest.fixture
def nuts():
    return gaussian_tree(rng(0), MEAN, SD, method="nuts")


def test_good_chains_are_trusted(nuts):
    import arviz_stats

    quality = reference_quality(nuts)
    assert quality.ok and quality.sampling_kind == "mcmc"
    assert quality.max_rhat < 1.01 and quality.divergences == 0 and quality.min_bfmi > 0.3
    assert len(quality.sentences) == 1 and "The chains agree" in quality.sentences[0]
    weights = nuts["posterior"].to_dataset()[["bias", "w"]]
    for ours, kind in (
        (quality.min_bulk_ess, {"method": "bulk"}),
        (quality.min_tail_ess, {"method": "tail", "prob": (0.05, 0.95)}),
    ):
        ess = arviz_stats.ess(weights, **kind)
        assert ours == pytest.approx(min(float(ess["w"].min()), float(ess["bias"])))


def test_independent_draws_have_no_rhat():
    quality = reference_quality(gaussian_tree(rng(1), MEAN, SD, method="laplace"))
    assert quality.ok and quality.sampling_kind == "iid"
    assert "Independent draws" in quality.sentences[0]
    assert np.isnan([quality.max_rhat, quality.min_bulk_ess, quality.min_bfmi]).all()
    assert quality.divergences is None


def test_a_chain_elsewhere_is_found_and_named(nuts):
    w = nuts["posterior"]["w"].copy()
    w[3, :, 1] += 1.5
    quality = reference_quality(replaced(nuts, "posterior", w=w))
    assert not quality.ok and quality.max_rhat_at == "w[x1]" and quality.max_rhat > 1.01
    assert any("R-hat of w[x1]" in sentence for sentence in quality.sentences)


def test_sticky_chains_are_noisy():
    quality = reference_quality(
        gaussian_tree(rng(2), MEAN, SD, method="nuts", autocorrelation=0.97)
    )
    # 4000 (1 - r) / (1 + r) = 61 independent draws, far below 4 x 100
    assert not quality.ok and quality.min_bulk_ess < 200
    assert any("bulk effective sample size of" in sentence for sentence in quality.sentences)


def test_divergences_and_energy_are_reported(nuts):
    diverging = np.zeros((4, 1000), bool)
    diverging[0, :3] = True
    energy = np.cumsum(rng(3).normal(size=(4, 1000)), axis=1)
    quality = reference_quality(
        replaced(nuts, "sample_stats", diverging=(SAMPLE, diverging), energy=(SAMPLE, energy))
    )
    assert not quality.ok and quality.divergences == 3 and quality.min_bfmi < 0.3
    assert quality.sentences[0].startswith("3 divergences") and "E-BFMI" in quality.sentences[1]


def test_one_chain_and_broken_draws_are_not_trusted(nuts):
    single = gaussian_tree(rng(4), MEAN, SD, method="nuts", chains=1)
    assert not reference_quality(single).ok
    assert "only one chain" in reference_quality(single).sentences[0]
    w = nuts["posterior"]["w"].copy()
    w[0, 0, 0] = np.inf
    broken = reference_quality(replaced(nuts, "posterior", w=w))
    assert not broken.ok and "not finite" in broken.sentences[0]


def test_fixed_hyperparameters_may_be_infinite(nuts):
    alpha = nuts["posterior"]["alpha"] * np.inf
    assert reference_quality(replaced(nuts, "posterior", alpha=alpha)).ok


def test_a_tree_with_nothing_free_cannot_be_judged():
    frozen = reference_quality(gaussian_tree(rng(5), MEAN, 0 * SD, method="nuts"))
    assert not frozen.ok and "nothing to check" in frozen.sentences[0]
