"""Inputs side by side: alignment, rank agreement, truth, groups, stability, against formulas."""

import functools
import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import xarray as xr
from synthetic_trees import gaussian_tree, replaced

from ardvark.diagnostics.relevance import stability as stability_module
from ardvark.diagnostics.relevance.compare import batch_relevance, compare_relevance
from ardvark.diagnostics.relevance.discovery import discoveries, selected
from ardvark.diagnostics.relevance.groups import (
    correlated_groups,
    group_relevance,
)
from ardvark.diagnostics.relevance.ranks import rank_agreement
from ardvark.diagnostics.relevance.stability import stability, stability_index
from ardvark.diagnostics.relevance.subsets import subset_sizes
from ardvark.errors import InputError
from ardvark.models.data.datasets import load

DIMS = ("chain", "draw", "feature")
SIGNAL = np.array([4.0, 3.0, 2.0, 1.0, 0.5, 0.2])
NAMES = [f"x{j}" for j in range(6)]


def rng(seed):
    return np.random.default_rng([901, seed])


def tree_of(mean, seed=0, sd=None, **settings):
    mean = np.asarray(mean, float)
    sd = np.full(len(mean), 0.5) if sd is None else sd
    return gaussian_tree(rng(seed), mean, sd, bias=False, **settings)


def subset_tree(probability, seed=1, draws=1000, features=None):
    """Indicators drawn at random; `probability` may be a function of uniforms (chain, draw, d)."""
    size = 6 if callable(probability) else len(probability)
    u = rng(seed).uniform(size=(4, draws, size))
    on = probability(u) if callable(probability) else u < probability
    tree = tree_of(np.ones(on.shape[2]), seed, draws=draws, method="nuts", features=features)
    weights = tree["posterior"]["w"] * xr.DataArray(on, dims=DIMS)
    return replaced(tree, "posterior", included=(DIMS, on.astype(int)), w=weights)


# ------------------------------------------------------------------------------------ alignment


def test_columns_are_aligned_by_name_whatever_the_order():
    mixed = ["x3", "x0", "x5", "x1", "x2", "x4"]
    order = [NAMES.index(name) for name in mixed]
    table = compare_relevance({"a": tree_of(SIGNAL), "b": tree_of(SIGNAL[order], features=mixed)})
    assert list(table.index) == NAMES and table.columns.names == ["method", "kind"]
    np.testing.assert_array_equal(table["a", "rank"], [1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(table["b", "rank"], [1, 2, 3, 4, 5, 6])
    assert table.attrs == {"left_out": [], "rows": "features"}


def test_every_kind_of_relevance_has_its_column():
    plain = tree_of(SIGNAL)
    kappa = np.broadcast_to(SIGNAL, (4, 1000, 6))
    trees = {
        "ard": plain,
        "eta": replaced(plain, "theta", input_scale=("feature", SIGNAL)),
        "svm": replaced(plain, "posterior", kappa_a=(DIMS, kappa)),
        "jump": subset_tree([0.9, 0.5, 0.4, 0.3, 0.2, 0.1]),
    }
    table = compare_relevance(trees)
    assert {"mean", "sd", "precision", "inclusion"} <= set(table["ard"].columns)
    assert "scale" in table["eta"] and "kappa" in table["svm"]
    assert {"inclusion", "inclusion_mcse"} <= set(table["jump"].columns)
    spread = plain["constant_data"]["X"].to_numpy().var(axis=0)
    share = SIGNAL * spread / (SIGNAL * spread).sum()
    np.testing.assert_allclose(table["svm", "relevance"], share)
    np.testing.assert_allclose(table["svm", "mcse"], 0, atol=1e-15)  # given, not drawn
    assert all((table[name, "rank"].sort_values() == range(1, 7)).all() for name in trees)


def test_an_input_that_a_fit_lacks_is_missing_and_weights_of_rows_are_left_out():
    fewer = tree_of(SIGNAL[:3])
    table = compare_relevance({"all": tree_of(SIGNAL), "fewer": fewer})
    assert table["fewer", "relevance"].isna().sum() == 3
    rows = tree_of(SIGNAL)
    kernel = rows["posterior"].to_dataset().rename(feature="basis")
    vectors = rows.filter(lambda node: node.name != "fit")
    vectors["posterior"] = xr.DataTree(kernel.assign_coords(basis=[f"row {i}" for i in range(6)]))
    both = compare_relevance({"ard": rows, "rvm": vectors})
    assert both.attrs["left_out"] == ["rvm"] and "rvm" not in both.columns.get_level_values(0)
    alone = compare_relevance({"rvm": vectors})
    assert alone.attrs["rows"] == "weights" and alone.index[0] == "row 0"


def test_monte_carlo_error_is_that_of_repeated_runs():
    runs = [compare_relevance({"a": tree_of([0.5, 0.8], seed, draws=400)}) for seed in range(25)]
    values = np.array([run["a", "relevance"] for run in runs])
    claimed = np.array([run["a", "mcse"] for run in runs]).mean(axis=0)
    # the sd of 25 runs has a relative error of 14 %, that of 20 batches averaged 3 %
    np.testing.assert_allclose(claimed / values.std(axis=0, ddof=1), 1, atol=0.5)
    assert batch_relevance(tree_of([0.5, 0.8])).shape == (20, 2)


def test_inclusion_as_relevance_has_its_monte_carlo_error_unless_it_is_exact():
    tree = subset_tree([0.9, 0.5, 0.1])
    tree.attrs["model"] = "rbf_mixture"
    tree["fit"] = xr.DataTree(xr.Dataset({"inclusion": ("feature", [0.9, 0.5, 0.1])}))
    found = compare_relevance({"rj": tree})["rj"]
    binomial = np.sqrt(np.array([0.09, 0.25, 0.09]) / 4000)
    np.testing.assert_allclose(found["mcse"] / binomial, 1, atol=0.6)  # 20 batches: 16 %
    tree["posterior"].attrs["sampling_kind"] = "iid"
    np.testing.assert_allclose(compare_relevance({"all": tree})["all", "mcse"], 0, atol=1e-15)


def test_rank_errors_are_large_where_relevances_are_equal():
    table = compare_relevance({"a": tree_of([4.0, 0.1, 0.1, 0.1])})
    assert table["a", "rank_error"].iloc[0] == 0 and table["a", "rank_error"].iloc[1:].min() > 0.2


@pytest.mark.parametrize("bad", [{}, None, {"a": 3}])
def test_bad_trees_are_named(bad):
    with pytest.raises(InputError, match="trees"):
        compare_relevance(bad)
    with pytest.raises(InputError, match="'inputs'"):
        compare_relevance({"a": tree_of(SIGNAL)}, of="inputs")


# -------------------------------------------------------------------------------- rank agreement


def test_the_same_ranking_agrees_wholly_and_its_reverse_not_at_all():
    trees = {"a": tree_of(SIGNAL, 2), "b": tree_of(2 * SIGNAL, 3), "c": tree_of(SIGNAL[::-1], 4)}
    table = rank_agreement(trees, k=2).set_index(["first", "second"])
    assert list(table["tau"]) == pytest.approx([1, -1, -1])
    assert list(table["overlap"]) == [1, 0, 0]
    np.testing.assert_allclose(table["chance"], 2 / 6)
    assert (table["inputs"] == 6).all()
    assert table.loc[("a", "b"), "p_value"] == pytest.approx(2 / 720)  # of 6! orders


def test_tau_is_scipys_and_counts_pairs_with_ties():
    off = np.array([0.5, 0.5, 0.5, 0.0, 0.0, 0.0])  # three pruned: one tie
    trees = {"a": tree_of(SIGNAL, 5), "b": tree_of(SIGNAL * (off > 0), 6, sd=off)}
    row = rank_agreement(trees).iloc[0]
    x, y = (compare_relevance(trees)[name, "relevance"].to_numpy() for name in "ab")
    assert row["tau"] == pytest.approx(scipy.stats.kendalltau(x, y).statistic)
    signs = [
        np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]) for i, j in itertools.combinations(range(6), 2)
    ]
    assert row["tau"] == pytest.approx(sum(signs) / np.sqrt(15 * 12))  # tau-b: 3 of 15 pairs tie


def test_error_of_tau_is_zero_for_clear_ranks_and_that_of_runs_for_equal_ones():
    clear = rank_agreement({"a": tree_of(SIGNAL, 7), "b": tree_of(SIGNAL, 8)}).iloc[0]
    assert clear["tau_error"] == 0
    weak = np.array([4.0, 1.0, 1.0, 1.0, 1.0])
    fixed = tree_of(SIGNAL[:5], 50, draws=400)
    pairs = [{"a": tree_of(weak, 10 + i, draws=400), "b": fixed} for i in range(25)]
    found = pd.concat([rank_agreement(pair, resamples=50) for pair in pairs])
    assert 0.5 < found["tau_error"].mean() / found["tau"].std() < 1.6  # 25 runs: 14 % each way


def test_a_ranking_of_ties_has_no_tau():
    nothing = tree_of(np.zeros(6), sd=np.zeros(6))
    assert np.isnan(rank_agreement({"a": tree_of(SIGNAL), "b": nothing})["tau"][0])


# ---------------------------------------------------------------------------- against the truth


def test_discoveries_against_a_planted_truth():
    on = np.array([0.5, 0.5, 0.0, 0.5, 0.0, 0.0])  # kept: x0, x1 and x3, where x0, x1, x2 matter
    tree = tree_of([4, 3, 0, 1, 0, 0], sd=on, hyper="evidence", alpha=1 / np.maximum(on, 1e-300))
    row = discoveries({"ep": tree}, ["x0", "x1", "x2"]).loc["ep"]
    assert (row["selected"], row["right"], row["false"], row["missed"]) == (3, 2, 1, 1)
    assert row["false_discovery"] == pytest.approx(1 / 3) and row["power"] == pytest.approx(2 / 3)
    # x0, x1 above the other three; x2 below x3, tied with two: (3 + 3 + 1) / 9
    assert row["auc"] == pytest.approx(7 / 9) and row["first_right"] == pytest.approx(2 / 3)
    pd.testing.assert_series_equal(discoveries({"ep": tree}, [0, 1, 2]).loc["ep"], row)


def test_truth_of_a_simulated_set_and_unknown_truths():
    data = load("friedman1", n=20)
    tree = tree_of(np.r_[np.full(5, 4.0), np.zeros(5)], features=list(data.feature_names))
    row = discoveries({"nuts": tree}, data).loc["nuts"]
    assert row["power"] == 1 and row["false_discovery"] == 0 and row["auc"] == 1
    with pytest.raises(InputError, match="'x99'"):
        discoveries({"nuts": tree}, ["x99"])
    with pytest.raises(InputError, match="knows no truth"):
        discoveries({"nuts": tree}, load("wine"))


def test_calibrated_inclusions_expect_their_own_false_discoveries():
    u = rng(60)
    expected, found = [], []
    for seed in range(30):
        p = u.uniform(size=40)
        truth = np.flatnonzero(u.uniform(size=40) < p)  # true with probability p
        row = discoveries({"rj": subset_tree(p, seed, draws=100)}, truth).loc["rj"]
        expected.append(row["expected_false_discovery"])
        found.append(row["false_discovery"])
    error = np.std(np.subtract(found, expected), ddof=1) / np.sqrt(30)
    assert abs(np.mean(found) - np.mean(expected)) < 4 * error
    assert np.mean(expected) == pytest.approx(0.25, abs=0.05)  # mean of 1 - p over p > 1/2


def test_rules_of_selection():
    dense = tree_of([1.5, 0.9, 0.0, 0.0, 0.0, 0.0], method="nuts")  # 3 and 1.8 sds from zero
    assert list(selected(dense)[lambda on: on].index) == ["x0"]
    assert list(selected(dense, 2)[lambda on: on].index) == ["x0", "x1"]
    assert list(selected(dense, 0.8)[lambda on: on].index) == ["x0", "x1"]
    assert selected(dense, lambda table: table["mean"] > -9).all()
    scale = np.broadcast_to([60.0, 50.0, 0.1, 0.1, 0.1, 0.1], (4, 1000, 6))
    share = replaced(dense, "posterior", input_scale=(DIMS, scale))
    assert selected(share).sum() == 2
    for rule in (-1, True, "all"):
        with pytest.raises(InputError, match="rule"):
            selected(dense, rule)
    with pytest.raises(InputError, match="shape"):
        selected(dense, lambda table: [True])


# --------------------------------------------------------------------------------------- groups


def twins(n=300, seed=70):
    X = rng(seed).normal(size=(n, 6))
    X[:, 5] = X[:, 0]  # a duplicate
    X[:, 4] = -X[:, 1] + 0.3 * X[:, 4]  # |corr| near 0.96
    return pd.DataFrame(X, columns=NAMES)


def test_groups_of_correlated_columns():
    X = twins()
    table = correlated_groups(X)
    assert [set(g) for g in table["features"]] == [{"x0", "x5"}, {"x1", "x4"}]
    exact = abs(np.corrcoef(X["x1"], X["x4"])[0, 1])
    assert table["least_correlation"][1] == pytest.approx(exact)
    assert table["largest_inflation"][0] == np.inf
    assert table["largest_inflation"][1] == pytest.approx(1 / (1 - exact**2))
    assert len(correlated_groups(X, limit=0.999)) == 1
    assert correlated_groups(X[["x0", "x1"]]).empty
    X["x2"] = 1.0  # constant: correlated with nothing
    assert len(correlated_groups(X)) == 2
    with pytest.raises(InputError, match="limit"):
        correlated_groups(X, limit=0)


def test_duplicates_share_their_inclusion_but_the_group_has_it_all():
    def one_of_two(u):
        on = u < [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]
        on[..., 5] = ~on[..., 0]
        return on

    tree = subset_tree(one_of_two)
    row = group_relevance(tree, [["x0", "x5"]]).iloc[0]
    assert row["inclusion"] == 1 and row["mcse"] == 0 and row["together"] == 1
    assert row["largest_alone"] == pytest.approx(0.5, abs=5 * np.sqrt(0.25 / 4000))
    table = correlated_groups(twins())
    assert group_relevance(tree, table)["inclusion"][1] == pytest.approx(1 - 0.9**2, abs=0.04)
    with pytest.raises(InputError, match="'x9'"):
        group_relevance(tree, [["x9"]])


def test_relevance_of_a_group_is_that_of_its_best_direction():
    draws = rng(71).normal(size=(4, 1000, 2))
    sharp = np.stack([draws[..., 0], 1 - draws[..., 0] + 0.05 * draws[..., 1]], axis=2)
    tree = tree_of([0.0, 0.0])
    tree = replaced(tree, "posterior", w=(DIMS, sharp))
    row = group_relevance(tree, [["x0", "x1"]]).iloc[0]
    flat = sharp.reshape(-1, 2)
    mean, precision = flat.mean(axis=0), np.linalg.inv(np.cov(flat.T))
    q = mean @ precision @ mean
    assert row["relevance"] == pytest.approx(np.sqrt(q / (1 + q))) and row["relevance"] > 0.99
    assert row["largest_relevance"] < 0.8
    alone = group_relevance(tree, [["x0"]]).iloc[0]
    assert alone["relevance"] == pytest.approx(alone["largest_relevance"])


def test_sizes_after_an_enumeration_are_exact():
    tree = subset_tree([0.5, 0.5, 0.5])
    tree["posterior"].attrs["sampling_kind"] = "iid"
    patterns = np.array(list(itertools.product([0, 1], repeat=3)))
    group = {"included": (("subset", "feature"), patterns), "probability": ("subset", [0.125] * 8)}
    tree["subsets"] = xr.DataTree(xr.Dataset(group, coords={"feature": NAMES[:3]}))
    table = subset_sizes(tree)
    np.testing.assert_allclose(table["probability"], [1 / 8, 3 / 8, 3 / 8, 1 / 8])
    assert (table["mcse"] == 0).all()


# ------------------------------------------------------------------------------------ stability


def test_index_has_its_limits():
    same = np.tile([1, 1, 0, 0, 0], (20, 1))
    assert stability_index(same) == pytest.approx((1, 0, 1, 1))
    assert all(np.isnan(stability_index(np.ones((5, 4)))))
    Z = rng(80).uniform(size=(2000, 30)) < 0.3
    value, error, *_ = stability_index(Z)
    assert abs(value) < 4 * error and error < 0.02
    with pytest.raises(InputError, match="chosen"):
        stability_index(same[:1])


def test_index_is_the_published_formula_and_its_error_that_of_a_jackknife():
    p = rng(81).uniform(size=25)
    Z = (rng(82).uniform(size=(300, 25)) < p).astype(int)

    def direct(Z):
        M, d = Z.shape
        s = [M / (M - 1) * Z[:, f].mean() * (1 - Z[:, f].mean()) for f in range(d)]
        k = Z.sum() / M
        return 1 - np.mean(s) / (k / d * (1 - k / d))

    index = stability_index(Z)
    assert index.value == pytest.approx(direct(Z), abs=1e-12)
    left = np.array([direct(np.delete(Z, i, axis=0)) for i in range(300)])
    jackknife = np.sqrt(299 / 300 * np.square(left - left.mean()).sum())
    assert index.error == pytest.approx(jackknife, rel=0.02)


def test_pairwise_form_for_selections_of_one_size():
    """For equal sizes the index is the mean of Kuncheva's over all pairs."""
    Z = np.array([rng(83 + i).permutation([1] * 4 + [0] * 8) for i in range(10)])
    k, d = 4, 12
    shared = [a @ b for a, b in itertools.combinations(Z, 2)]
    kuncheva = np.mean([(r - k**2 / d) / (k - k**2 / d) for r in shared])
    assert stability_index(Z).value == pytest.approx(kuncheva)


@pytest.fixture(scope="module")
def linear():
    X = rng(90).normal(size=(80, 5))
    t = (X @ [2.0, -2.0, 0, 0, 0] + 0.3 * rng(91).normal(size=80) > 0).astype(int)
    return X, t


def test_stability_of_a_fit_over_resamples(linear):
    found = stability("ard_classification", linear, resamples=8, progressbar=False)
    assert found.chosen.shape == (8, 5) and list(found.table.index) == [
        "x0",
        "x1",
        "x2",
        "x3",
        "x4",
    ]
    assert (found.table["frequency"][:2] == 1).all() and found.table["mean_rank"][:2].max() <= 2
    assert found.index == stability_index(found.chosen)
    again = stability("ard_classification", linear, resamples=8, progressbar=False)
    pd.testing.assert_frame_equal(again.table, found.table)
    top = stability("ard_classification", linear, resamples=4, rule=2, progressbar=False)
    assert top.index.value == 1 and "excellent" in top.sentence() and "<table" in top._repr_html_()


def test_one_graph_gives_what_a_new_one_gives(linear, monkeypatch):
    halves = functools.partial(
        stability, "ard_classification", linear, resamples=4, scheme="halves", progressbar=False
    )
    loop = halves()
    monkeypatch.setattr(stability_module, "_same_graph", lambda model, X: False)
    pd.testing.assert_frame_equal(loop.table, halves().table)
    assert loop.scheme == "halves" and (loop.sizes == loop.chosen.sum(axis=1)).all()


def test_stability_says_what_is_wrong(linear):
    X, _ = linear
    for settings, said in [
        ({"data": X}, "pair"),
        ({"builder": "nothing"}, "builder"),
        ({"scheme": "thirds"}, "scheme"),
        ({"scheme": "splits"}, "two resamples"),
        ({"resamples": 0}, "resamples"),
    ]:
        with pytest.raises(InputError, match=said):
            stability(**({"builder": "ard_classification", "data": linear} | settings))
    rare = np.zeros(80, int)
    rare[0] = 1
    with pytest.raises(InputError, match="too rare"):
        stability("ard_classification", (X, rare), resamples=8, scheme="halves")
