"""Every figure of the comparison against its formula; controls that must be called by name."""

import arviz_stats
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import wasserstein_distance
from synthetic_trees import ALPHA, MEAN, SD, four_weights, gaussian_tree, replaced, rng, without

from ardvark.diagnostics.compare.agreement import agreement, wasserstein
from ardvark.diagnostics.compare.compare import compare
from ardvark.diagnostics.compare.verdict import verdict
from ardvark.errors import InputError

N = 4000  # draws of a tree
MC = 1 / np.sqrt(N)  # error of a mean in sds; of log sd: MC / sqrt(2)


@pytest.fixture(scope="module")
def nuts():
    return four_weights(0, method="nuts")


def judged(tree, reference, name="laplace"):
    table = compare({name: tree, "nuts": reference}, "nuts", detail=True)
    return table.loc[name], *verdict(table.loc[name])[:2]


# ------------------------------------------------------------------------- figures and formulas


def test_a_shift_of_the_mean_is_measured_in_sds_and_equals_w1(nuts):
    shifted = agreement(four_weights(1, MEAN + 0.3 * SD), nuts)
    tolerance = 5 * np.sqrt(2) * MC
    np.testing.assert_allclose(shifted["mean_error"], 0.3, atol=tolerance)
    np.testing.assert_allclose(shifted["q05_error"], 0.3, atol=3 * tolerance)
    np.testing.assert_allclose(shifted["q95_error"], 0.3, atol=3 * tolerance)
    np.testing.assert_allclose(shifted["wasserstein"], 0.3, atol=tolerance)
    np.testing.assert_allclose(shifted["log_sd_ratio"], 0.0, atol=tolerance)


def test_a_narrow_approximation_has_the_log_ratio_quantiles_and_w1_of_theory(nuts):
    narrow = agreement(four_weights(2, sd=0.8 * SD), nuts)
    np.testing.assert_allclose(narrow["log_sd_ratio"], np.log(0.8), atol=5 * MC)
    np.testing.assert_allclose(narrow["q95_error"], -0.2 * 1.645, atol=15 * MC)
    np.testing.assert_allclose(narrow["q05_error"], 0.2 * 1.645, atol=15 * MC)
    # W1 of N(0, s²) and N(0, 1) is |1 - s| E|z|
    np.testing.assert_allclose(narrow["wasserstein"], 0.2 * np.sqrt(2 / np.pi), atol=5 * MC)


def test_rows_are_named_as_the_weights_and_hold_both_sides(nuts):
    tree = four_weights(3)
    table = agreement(tree, nuts)
    assert list(table.index) == ["bias", "w[x0]", "w[x1]", "w[x2]"]
    assert (table["role"] == "weight").all()
    w = tree["posterior"]["w"].sel(feature="x1")
    assert table.at["w[x1]", "mean"] == pytest.approx(float(w.mean()))
    assert table.at["w[x1]", "sd"] == pytest.approx(float(w.std(ddof=1)))
    reference = nuts["posterior"]["bias"]
    assert table.at["bias", "reference_mean"] == pytest.approx(float(reference.mean()))
    assert table.at["bias", "reference_sd"] == pytest.approx(float(reference.std(ddof=1)))


def test_mcse_knows_independent_draws_from_chains():
    sticky = gaussian_tree(rng(4), MEAN, SD, method="nuts", autocorrelation=0.8)
    free = four_weights(5, alpha=None)
    table = agreement(free, sticky)
    # AR(1): the variance of the mean grows by (1 + r) / (1 - r) = 9; ArviZ's estimate is noisy
    expected = np.sqrt(1 + 9) * MC
    np.testing.assert_allclose(table["mean_error_mcse"], expected, rtol=0.35)
    np.testing.assert_allclose(agreement(free, free)["mean_error_mcse"], np.sqrt(2) * MC, rtol=1e-6)


def test_the_mcse_is_calibrated():
    errors = []
    for seed in range(40):
        one, two = (four_weights(100 + 2 * seed + k, draws=100) for k in (0, 1))
        table = agreement(one, two)
        errors.append(table["mean_error"] / table["mean_error_mcse"])
    z = np.concatenate(errors)
    # 160 standard normals: the sd of their sd is 1 / sqrt(320) = 0.056
    assert abs(z.std() - 1) < 4 * 0.056


def test_the_null_distance_is_the_distance_of_two_halves(nuts):
    from scipy.stats import wasserstein_distance

    draws = nuts["posterior"]["w"].sel(feature="x0").to_numpy()
    halves = wasserstein_distance(draws[:2].ravel(), draws[2:].ravel()) / draws.std(ddof=1)
    table = agreement(four_weights(6), nuts)
    assert table.at["w[x0]", "wasserstein_null"] == pytest.approx(halves)


def test_pruned_in_both_is_skipped_pruned_in_one_is_a_ratio_of_zero(nuts):
    pruned_sd = SD * [1, 1, 0, 1]
    pruned = four_weights(7, MEAN * [1, 1, 0, 1], pruned_sd, alpha=[1.0, np.inf, 3.0])
    assert "w[x1]" not in agreement(pruned, pruned).index
    table = agreement(pruned, nuts)
    assert table.at["w[x1]", "log_sd_ratio"] == -np.inf
    assert table.at["w[x1]", "mean_error"] == pytest.approx(2 / 1.5, abs=0.1)
    row, level, sentence = judged(pruned, nuts)
    assert row["worst_sd_ratio"] == 0 and row["worst_sd_ratio_at"] == "w[x1]"
    assert level == "bad" and "w[x1] has no spread at all" in sentence
    assert agreement(nuts, pruned).at["w[x1]", "log_sd_ratio"] == np.inf


def test_a_reference_may_drop_pruned_columns_but_no_others(nuts):
    alpha = [1.0, np.inf, 3.0]
    pruned = four_weights(8, MEAN * [1, 1, 0, 1], SD * [1, 1, 0, 1], alpha=alpha)
    left = [0, 1, 3]
    short = gaussian_tree(
        rng(9), MEAN[left], SD[left], method="nuts", alpha=[1.0, 3.0], features=["x0", "x2"]
    )
    short = without(short, "constant_data")
    row, _, _ = judged(pruned, short)
    assert row["like_with_like"] and row["compares"] == "approximation error"
    assert list(agreement(pruned, short).index) == ["bias", "w[x0]", "w[x2]"]
    with pytest.raises(InputError, match=r"w\[x1\] is free in one and absent"):
        agreement(four_weights(10), short)


def test_hyperparameters_are_compared_only_if_both_sampled_them(nuts):
    full = [gaussian_tree(rng(11 + k), MEAN, SD, method="nuts", hyper="posterior") for k in (0, 1)]
    roles = agreement(*full)["role"]
    assert roles["alpha[x0]"] == "hyperparameter" and "eta[0]" not in roles
    assert "alpha[x0]" not in agreement(four_weights(13), full[0]).index
    moved = replaced(full[0], "posterior", alpha=full[0]["posterior"]["alpha"] * 5)
    assert compare({"a": moved, "b": full[1]}, "b", detail=True).at["a", "worst_mean_error"] < 0.1


def test_any_names_of_weights_do(nuts):
    def renamed(tree):
        node = tree.copy(deep=True)
        data = node["posterior"].to_dataset().rename(w="beta", bias="mu")
        node["posterior"] = xr.DataTree(data)
        node.attrs["model"] = "user graph"
        return without(node, "fit")

    tree, reference = renamed(four_weights(14)), renamed(nuts)
    assert set(agreement(tree, reference).index) == {"mu", "beta[x0]", "beta[x1]", "beta[x2]"}
    tree.attrs["weights"] = '["beta"]'
    assert set(agreement(tree, reference).index) == {"beta[x0]", "beta[x1]", "beta[x2]"}
    with pytest.raises(InputError, match="no weights in common"):
        agreement(four_weights(14), reference)


def test_draws_that_are_not_finite_cannot_hide(nuts):
    tree = four_weights(15)
    w = tree["posterior"]["w"].copy()
    w[0, 0, 0] = np.nan
    row, level, _ = judged(replaced(tree, "posterior", w=w), nuts)
    assert row["worst_mean_error"] == np.inf and row["worst_mean_error_at"] == "w[x0]"
    assert level == "bad"


# -------------------------------------------------------------------------------- like with like


def test_like_with_like_needs_the_same_hyperparameters(nuts):
    full = gaussian_tree(rng(30), MEAN, SD, method="nuts", hyper="posterior")
    trees = {
        "laplace": four_weights(31, hyper="evidence"),
        "nuts fixed": nuts,
        "other": four_weights(32, alpha=ALPHA * 1.01),
        "nuts": full,
    }
    table = compare(trees, ["nuts fixed", "nuts"], detail=True)
    kinds = table["compares"]
    assert kinds["laplace", "nuts fixed"] == "approximation error"
    assert kinds["laplace", "nuts"] == "price of fixing the hyperparameters"
    assert kinds["nuts fixed", "nuts"] == "price of fixing the hyperparameters"
    assert kinds["other", "nuts fixed"] == "different hyperparameters"
    assert kinds["nuts", "nuts fixed"] == "different hyperparameters"
    assert kinds["nuts", "nuts"] == kinds["nuts fixed", "nuts fixed"] == "reference"
    same = table.index[table["like_with_like"]]
    expected = [(n, "nuts fixed") for n in ("laplace", "nuts fixed")] + [("nuts", "nuts")]
    assert list(same) == expected
    _, sentence, _ = verdict(table.loc[("laplace", "nuts")])
    assert sentence.startswith("laplace against nuts: ")
    assert "fixing the hyperparameters costs little" in sentence
    level, sentence, _ = verdict(table.loc[("other", "nuts fixed")])
    assert level == "warn" and "no measure of the approximation" in sentence


def test_given_precisions_and_data_are_compared_too(nuts):
    def given(tree, factor):
        alpha = ("feature", factor * ALPHA)
        node = replaced(tree, "constant_data", alpha=alpha)
        node["posterior"] = xr.DataTree(node["posterior"].to_dataset().drop_vars("alpha"))
        return without(node, "fit")

    tree, reference = given(four_weights(33), 1), given(nuts, 1)
    assert judged(tree, reference)[0]["like_with_like"]
    assert not judged(given(four_weights(33), 2), reference)[0]["like_with_like"]
    # nothing is free in such a model, so a sampler may as well call its answer "posterior"
    reference.attrs["hyper"] = "posterior"
    assert judged(tree, reference)[0]["compares"] == "approximation error"
    other_data = replaced(tree, "constant_data", X=tree["constant_data"]["X"] + 1)
    assert not judged(other_data, reference)[0]["like_with_like"]


# --------------------------------------------------------------------------------------- verdicts


def test_two_answers_of_the_same_posterior_are_called_good(nuts):
    for seed in range(40, 45):
        row, level, sentence = judged(four_weights(seed), nuts)
        assert level == "good", sentence
        assert "safe for means and intervals" in sentence
        assert row["worst_mean_error"] < 0.1 and row["wasserstein"] < 2 * row["wasserstein_null"]


def test_the_reference_row_has_no_errors(nuts):
    row, level, sentence = judged(nuts, nuts, name="nuts")
    assert row["compares"] == "reference" and level == "good"
    assert np.isnan(row["worst_mean_error"]) and pd.isna(row["worst_sd_ratio_at"])
    assert row["wasserstein_null"] > 0 and sentence == "nuts: this is the reference."
    stuck = nuts.copy()
    stuck.attrs["converged"] = False
    _, level, sentence = judged(stuck, stuck, name="nuts")
    assert level == "bad" and "cannot be trusted" in sentence


@pytest.mark.parametrize(
    ("mean", "sd", "levels", "words"),
    [
        (MEAN, SD * [1, 1, 0.8, 1], {"warn", "bad"}, "the sd of w[x1] is"),
        (MEAN, SD * [1, 1, 0.7, 1], {"bad"}, "% too small"),
        (MEAN, SD * [1, 1.4, 1, 1], {"bad"}, "% too large"),
        (MEAN + SD * [0, 0, 0, 0.18], SD, {"warn"}, "the mean of w[x2] is off by 0."),
        (MEAN - SD * [0.4, 0, 0, 0], SD, {"bad"}, "the mean of bias is off by 0."),
    ],
)
def test_each_fault_is_called_by_name(nuts, mean, sd, levels, words):
    _, level, sentence = judged(four_weights(50, mean, sd), nuts)
    assert level in levels and words in sentence


def test_a_wrong_shape_with_right_moments_is_called(nuts):
    tree = four_weights(51)
    skewed = rng(52).exponential(size=(4, 1000)) - 1
    row, level, sentence = judged(
        replaced(tree, "posterior", bias=(("chain", "draw"), MEAN[0] + SD[0] * skewed)), nuts
    )
    assert level == "warn" and "the shape differs (W1" in sentence, row


def test_a_narrow_approximation_is_called_by_its_khat(nuts):
    tree = four_weights(53, target_sd=SD * 3)
    row, level, sentence = judged(tree, nuts)
    assert row["khat"] > 0.7 and level == "bad"
    assert "> 0.7 (importance weights unreliable: do not trust tails)" in sentence


@pytest.mark.parametrize(("value", "level"), [(0.2, "good"), (0.6, "warn"), (0.71, "bad")])
def test_khat_limits(nuts, value, level):
    row = judged(four_weights(54), nuts)[0].copy()
    row["khat"] = value
    assert verdict(row)[0] == level and f"k-hat {value:.2f}" in verdict(row)[1]


def test_no_convergence_is_always_bad(nuts):
    _, level, sentence = judged(four_weights(55, attrs={"converged": False}), nuts)
    assert level == "bad" and "did not converge" in sentence


def test_too_few_draws_are_no_praise():
    few = [four_weights(56 + k, draws=10) for k in (0, 1)]
    row = compare({"a": few[0], "b": few[1]}, "b", detail=True).loc["a"].copy()
    row["worst_mean_error"] = 0.05
    level, sentence, _ = verdict(row)
    assert row["mean_error_mcse"] > 0.1
    assert level != "good" and "too few draws" in sentence


# ------------------------------------------------------------------------------ the other columns


def test_evidence_loo_time_and_settings_are_carried(nuts):
    trees = {"laplace": four_weights(60, hyper="evidence"), "nuts": nuts}
    table = compare(trees, "nuts", detail=True)
    row = table.loc["laplace"]
    assert (row["method"], row["hyper"], row["reference"]) == ("laplace", "evidence", "nuts")
    assert row["log_evidence"] == -7.0 and row["seconds"] == 0.5 and row["converged"]
    loo = arviz_stats.loo(trees["laplace"], reff=1.0)
    assert row["elpd_loo"] == pytest.approx(loo.elpd)
    assert row["elpd_loo_se"] == pytest.approx(loo.se)
    assert row["loo_high_khat"] == 0
    assert np.isnan(table.at["nuts", "log_evidence"])
    bare = compare(
        {"a": without(trees["laplace"], "log_likelihood"), "nuts": nuts}, "nuts", detail=True
    )
    assert np.isnan(bare.at["a", "elpd_loo"])


def test_bad_arguments_are_named(nuts):
    with pytest.raises(InputError, match=r"asked for 'hmc', found 'nuts'"):
        compare({"nuts": nuts}, "hmc", detail=True)
    with pytest.raises(InputError, match="no name given"):
        compare({"nuts": nuts}, [], detail=True)
    with pytest.raises(InputError, match=r"trees\['x'\].*found Dataset"):
        compare({"nuts": nuts, "x": xr.Dataset()}, "nuts", detail=True)


@pytest.mark.parametrize("sizes", [((4, 50), (4, 50)), ((4, 30), (2, 47)), ((1, 7), (3, 1))])
def test_wasserstein_of_all_weights_at_once_is_that_of_scipy(sizes):
    rng = np.random.default_rng(8)
    ours, theirs = (np.round(rng.normal(size=(*size, 5)), 1) for size in sizes)  # with ties
    ours[0, 0, 3] = np.nan
    found = wasserstein(ours, theirs)
    for k in range(5):
        expected = wasserstein_distance(ours[:, :, k].ravel(), theirs[:, :, k].ravel())
        assert np.isnan(found[k]) if k == 3 else found[k] == pytest.approx(expected, abs=1e-14)
