"""R-hat and effective sizes of many elements: the same digits as ArviZ, element by element."""

import arviz_stats
import numpy as np
import pytest

from ardvark.inference.samplers import chain_statistics
from ardvark.inference.samplers.chain_statistics import (
    ess_bulk,
    ess_mean,
    ess_of_labels,
    ess_tail,
    mcse_mean,
    mcse_sd,
    rhat,
)


def chains(n=300, m=3, seed=0):
    """Independent, tied, of chains that disagree, heavy; autoregressive in three ways."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(m, n))
    moving = {"up": 0.9, "down": -0.7, "stuck": 0.9995}
    columns = [noise, np.round(noise), noise + np.arange(m)[:, None], rng.standard_cauchy((m, n))]
    for rho in moving.values():
        x = np.zeros((m, n))
        for i in range(1, n):
            x[:, i] = rho * x[:, i - 1] + rng.normal(size=m)
        columns.append(x)
    return np.stack(columns, axis=-1)


@pytest.mark.parametrize(("n", "m"), [(300, 3), (301, 2), (5, 4), (40, 1)])
@pytest.mark.parametrize("lags", [400, 6])
def test_same_as_arviz(n, m, lags, monkeypatch):
    """With few lags the slow elements go the way of Fourier, the others do not."""
    monkeypatch.setattr(chain_statistics, "MOST_LAGS", lags)
    draws = chains(n, m)
    known = {
        ess_bulk: arviz_stats.ess(draws, method="bulk"),
        ess_mean: arviz_stats.ess(draws, method="mean"),
        ess_tail: arviz_stats.ess(draws, method="tail", prob=(0.05, 0.95)),
        mcse_mean: arviz_stats.mcse(draws, method="mean"),
        mcse_sd: arviz_stats.mcse(draws, method="sd"),
    }
    if m > 1:
        known[rhat] = arviz_stats.rhat(draws)
    for statistic, values in known.items():
        assert np.allclose(statistic(draws), values, rtol=1e-9)


def test_blocks_make_no_difference(monkeypatch):
    draws = chains()
    whole = [f(draws) for f in (rhat, ess_bulk, ess_tail)]
    monkeypatch.setattr(chain_statistics, "BLOCK", 1)
    assert all(
        np.array_equal(f(draws), w) for f, w in zip((rhat, ess_bulk, ess_tail), whole, strict=True)
    )


def test_what_cannot_be_judged_is_no_number():
    draws = chains()
    draws[0, 0, 1] = np.nan
    for statistic in (rhat, ess_bulk, ess_tail):
        assert np.isnan(statistic(draws)[1]) and np.isfinite(statistic(draws)[0])
        assert np.isnan(statistic(draws[:, :3])).all()
    one = np.repeat(np.arange(3.0)[:, None], 300, axis=1)[:, :, None]  # each chain at its place
    assert rhat(one)[0] > 1e6


@pytest.mark.parametrize("lags", [400, 6])
def test_shares_of_labels_have_the_effective_sizes_of_their_indicators(lags, monkeypatch):
    """Labels never seen and seen once; of odd length; one so persistent that it needs many lags."""
    monkeypatch.setattr(chain_statistics, "MOST_LAGS", lags)
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 6, size=(3, 301))
    labels[:, 100:220] = 1
    labels[0, 7] = 6
    found = ess_of_labels(labels, 8)
    indicators = (labels[..., None] == np.arange(8)).astype(float)
    np.testing.assert_allclose(found, ess_mean(indicators), rtol=1e-9)
    assert np.isnan(ess_of_labels(labels[:, :3], 8)).all()
