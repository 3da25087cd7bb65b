"""Relevance by its formula, pruning, other names; subsets from both places of a tree."""

import arviz as az
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from synthetic_trees import gaussian_tree, replaced, without

from ardvark.diagnostics.relevance.relevance import relevance
from ardvark.diagnostics.relevance.subsets import subsets
from ardvark.errors import InputError

MEAN = np.array([3.0, 0.1, -2.0, 0.0])  # bias first
SD = np.array([0.1, 1.0, 0.5, 0.0])  # the last weight is pruned
ALPHA = np.array([1.0, 2.0, np.inf])
NAMES = ["age", "dose", "noise"]
MC = 1 / np.sqrt(4000)


def rng(seed):
    return np.random.default_rng([77, seed])


@pytest.fixture
def tree():
    return gaussian_tree(rng(0), MEAN, SD, alpha=ALPHA, features=NAMES, hyper="evidence")


def test_a_table_of_the_features_without_the_bias(tree):
    table = relevance(tree)
    assert list(table.index) == NAMES
    columns = ["mean", "sd", "precision", "inclusion", "relevance", "rank"]
    assert list(table.columns) == columns
    np.testing.assert_allclose(table["mean"], MEAN[1:], atol=5 * MC)
    np.testing.assert_allclose(table["sd"], SD[1:], atol=5 * MC)
    np.testing.assert_array_equal(table["precision"], ALPHA)
    np.testing.assert_array_equal(table["inclusion"], [1, 1, 0])
    expected = np.abs(MEAN[1:-1]) / np.hypot(MEAN[1:-1], SD[1:-1])
    np.testing.assert_allclose(table["relevance"][:-1], expected, atol=5 * MC)
    assert table.at["noise", "relevance"] == 0
    assert list(table["rank"]) == [2, 1, 3]


def test_relevance_grows_with_the_signal_and_not_with_the_scale(tree):
    scaled = replaced(tree, "posterior", w=1000 * tree["posterior"]["w"])
    np.testing.assert_allclose(relevance(scaled)["relevance"], relevance(tree)["relevance"])
    flipped = replaced(tree, "posterior", w=-tree["posterior"]["w"])
    np.testing.assert_allclose(relevance(flipped)["relevance"], relevance(tree)["relevance"])


def test_permuting_the_features_permutes_the_table(tree):
    order = [2, 0, 1]
    permuted = without(tree, "fit")
    data = tree["posterior"].to_dataset().isel(feature=order)
    permuted["posterior"] = xr.DataTree(data)
    columns = ["mean", "sd", "precision", "relevance"]
    expected = relevance(tree)[columns].iloc[order]
    # the sums run over another memory layout: rounding only
    pd.testing.assert_frame_equal(relevance(permuted)[columns], expected, rtol=1e-12)


def test_ties_keep_the_order_of_the_columns():
    pruned = gaussian_tree(rng(1), np.zeros(4), np.zeros(4), bias=False)
    assert list(relevance(pruned)["rank"]) == [1, 2, 3, 4]


def test_a_sampled_precision_is_its_posterior_mean_and_nothing_is_pruned():
    nuts = gaussian_tree(rng(2), MEAN, SD + 0.1, method="nuts", hyper="posterior")
    table = relevance(nuts)
    expected = nuts["posterior"]["alpha"].mean(["chain", "draw"])
    np.testing.assert_allclose(table["precision"], expected)
    np.testing.assert_array_equal(table["inclusion"], 1)


def test_exact_zeros_and_indicators_give_inclusion_probabilities():
    nuts = gaussian_tree(rng(3), MEAN, SD + 0.1, method="nuts", hyper="posterior")
    on = rng(4).uniform(size=(4, 1000, 3)) < [0.2, 0.5, 0.9]
    dims = ("chain", "draw", "feature")
    spiked = replaced(nuts, "posterior", w=nuts["posterior"]["w"] * xr.DataArray(on, dims=dims))
    expected = on.mean(axis=(0, 1))
    np.testing.assert_allclose(relevance(spiked)["inclusion"], expected)
    marked = replaced(nuts, "posterior", included=(dims, on.astype(int)))
    np.testing.assert_allclose(relevance(marked)["inclusion"], expected)


def test_inputs_with_a_scale_each_are_ranked_by_what_they_add_to_the_distance(tree):
    eta = np.array([0.01, 2.0, 0.0])
    scaled = replaced(tree, "theta", input_scale=("feature", eta))
    table = relevance(scaled)
    assert list(table.index) == NAMES and list(table.columns) == ["scale", "relevance", "rank"]
    np.testing.assert_array_equal(table["scale"], eta)
    distance = 2 * eta * tree["constant_data"]["X"].to_numpy().var(axis=0)
    np.testing.assert_allclose(table["relevance"], distance / distance.max())
    assert list(table["rank"]) == [2, 1, 3]
    unit = np.array([100.0, 0.1, 7.0])  # other units of the inputs, the same kernel
    other = replaced(scaled, "constant_data", X=tree["constant_data"]["X"] * unit)
    other = replaced(other, "theta", input_scale=("feature", eta / unit**2))
    np.testing.assert_allclose(relevance(other)["relevance"], table["relevance"])
    pd.testing.assert_frame_equal(relevance(scaled, of="features"), table)
    pd.testing.assert_frame_equal(relevance(scaled, of="weights"), relevance(tree))
    pd.testing.assert_frame_equal(relevance(tree, of="features"), relevance(tree))


def test_sampled_scales_are_their_means_and_switched_off_ones_tie(tree):
    draws = rng(6).gamma(2.0, size=(4, 1000, 3)) * [1.0, 0.2, 5.0]
    sampled = replaced(tree, "posterior", input_scale=(("chain", "draw", "feature"), draws))
    np.testing.assert_allclose(relevance(sampled)["scale"], draws.mean(axis=(0, 1)))
    off = replaced(tree, "theta", input_scale=("feature", np.zeros(3)))
    assert list(relevance(off)["relevance"]) == [0, 0, 0]
    assert list(relevance(off)["rank"]) == [1, 2, 3]


def test_relevance_of_inputs_says_what_it_lacks(tree):
    scaled = replaced(tree, "theta", input_scale=("feature", np.ones(3)))
    bare = without(scaled, "constant_data")
    with pytest.raises(InputError, match=r"constant_data.*of=\"weights\""):
        relevance(bare)
    assert list(relevance(bare, of="weights")["rank"]) == [2, 1, 3]
    with pytest.raises(InputError, match=r"features, samples, weights.*'inputs'"):
        relevance(tree, of="inputs")


def test_the_weights_of_a_users_graph_are_found_or_asked_for(tree):
    data = tree["posterior"].to_dataset().rename(w="beta", bias="mu", alpha="tau")
    user = without(without(tree, "fit"), "theta")
    user["posterior"] = xr.DataTree(data)
    user.attrs["model"] = "user graph"
    with pytest.raises(InputError, match=r"tree\.attrs\[\"weights\"\].*beta"):
        relevance(user)
    user.attrs["weights"] = '["mu", "beta"]'
    table = relevance(user)
    assert list(table.index) == ["mu", *(f"beta[{name}]" for name in NAMES)]  # mu may be a slope
    assert table["precision"].isna().all()
    user.attrs["weights"] = '["mu"]'
    assert list(relevance(user).index) == ["mu"]
    two = replaced(user, "posterior", delta=2 * data["beta"])
    two.attrs["weights"] = '["beta", "delta"]'
    assert list(relevance(two).index[2:4]) == ["beta[noise]", "delta[age]"]


def test_subsets_from_indicators_are_frequencies_with_errors_over_chains():
    nuts = gaussian_tree(rng(5), MEAN, SD + 0.1, method="nuts", features=NAMES)
    included = np.zeros((4, 1000, 3), int)
    included[:, :, 0] = 1
    for chain, often in enumerate((600, 620, 580, 640)):
        included[chain, :often, 1] = 1
        rng(chain).shuffle(included[chain, :, 1])
    marked = replaced(nuts, "posterior", included=(("chain", "draw", "feature"), included))
    table = subsets(marked)
    assert list(table["features"]) == [("age", "dose"), ("age",)]
    np.testing.assert_allclose(table["probability"], [0.61, 0.39])
    by_arviz = az.mcse(included[:, :, 1], method="mean")
    np.testing.assert_allclose(table["mcse"], by_arviz, rtol=0.02)
    independent = marked.copy(deep=True)
    independent["posterior"].attrs["sampling_kind"] = "iid"
    np.testing.assert_allclose(subsets(independent)["mcse"], np.sqrt(0.61 * 0.39 / 4000))
    single = marked.isel(chain=[0])
    alone = az.mcse(included[:1, :, 1], method="mean")  # one chain has an error too
    np.testing.assert_allclose(subsets(single)["mcse"], alone, rtol=0.02)


def test_subsets_from_the_group(tree):
    group = xr.Dataset(
        {
            "included": (("subset", "feature"), [[0, 0, 0], [1, 0, 1]]),
            "probability": ("subset", [0.3, 0.7]),
            "mcse": ("subset", [0.01, 0.02]),
        },
        coords={"feature": NAMES},
    )
    tree["subsets"] = xr.DataTree(group)
    table = subsets(tree)
    assert list(table["features"]) == [("age", "noise"), ()]
    assert list(table["probability"]) == [0.7, 0.3] and list(table["mcse"]) == [0.02, 0.01]


def test_a_tree_without_subsets_says_what_to_do(tree):
    with pytest.raises(InputError, match=r"'laplace'.*use relevance\(tree\)"):
        subsets(tree)
