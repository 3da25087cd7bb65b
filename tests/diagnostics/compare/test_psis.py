"""Pareto shapes: of an approximation to its target, and of the rows that are left out."""

from contextlib import nullcontext

import arviz_stats
import numpy as np
import pytest
from synthetic_trees import four_weights, gaussian_tree, replaced, rng, without

from ardvark.diagnostics.compare.psis import khat, loo_figures

HEAVY_ROWS = [  # shape of 1/p, scale of -log p, is k-hat high, of 12 rows counted
    pytest.param(1.5, None, True, 12, id="heavy and in the way"),
    pytest.param(1.5, 1e-9, True, 0, id="heavy but far from the boundary"),
    pytest.param(0.2, None, False, 0, id="light"),
]


@pytest.fixture(scope="module")
def nuts():
    return four_weights(0, method="nuts")


def test_khat_has_the_right_sign():
    wide = gaussian_tree(rng(20), [0.0], [2.0], target_sd=[1.0], bias=False)
    narrow = gaussian_tree(rng(21), [0.0], [0.5], target_sd=[1.0], bias=False, draws=10_000)
    assert khat(wide) < -1  # bounded weights; the reverse ratio would give more than 2
    assert khat(narrow) == pytest.approx(0.75, abs=0.2)  # theory: 1 - 0.5²


def test_khat_of_exact_missing_and_broken_densities(nuts):
    exact = four_weights(22)
    assert khat(exact) == -np.inf
    assert np.isnan(khat(nuts)) and np.isnan(khat(without(exact, "sample_stats")))
    log_p = exact["sample_stats"]["lp"].copy()
    log_p[0, 0] = np.nan
    assert khat(replaced(exact, "sample_stats", lp=log_p)) == np.inf


@pytest.mark.parametrize(("shape", "scale", "khat_is_high", "counted"), HEAVY_ROWS)
def test_rows_with_a_high_khat_count_where_it_matters(shape, scale, khat_is_high, counted):
    # 1/p is Pareto with this shape; as -log p = scale (pareto - 1) it is 1 + scale x, x as heavy
    log_pareto = shape * rng(61).exponential(size=(4, 1000, 12))
    log_p = -log_pareto if scale is None else -scale * np.expm1(log_pareto)
    tree = replaced(four_weights(62), "log_likelihood", t=(("chain", "draw", "row"), log_p))
    with (
        pytest.warns(UserWarning, match="Estimated shape parameter")
        if khat_is_high
        else nullcontext()
    ):
        loo = arviz_stats.loo(tree, reff=1.0, pointwise=True)
    assert int((loo.pareto_k > loo.good_k).sum()) == 12 * khat_is_high
    figures = loo_figures(tree)
    assert figures["loo_high_khat"] == counted
    assert figures["elpd_loo"] == float(loo.elpd)  # what is not counted is still in the sum


def test_a_draw_that_forbids_its_own_row_is_counted():
    log_p = -1e-9 * np.expm1(1.5 * rng(63).exponential(size=(4, 1000, 12)))
    log_p[0, 0, 3] = -np.inf
    tree = replaced(four_weights(64), "log_likelihood", t=(("chain", "draw", "row"), log_p))
    assert loo_figures(tree)["loo_high_khat"] == 1
