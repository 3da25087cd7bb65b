"""Tables of subsets on draws whose answer is known, and chains that must be caught."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import ardvark as av
from ardvark.diagnostics.relevance.subset_checks import subset_diagnostics
from ardvark.errors import ConvergenceWarning, InputError
from ardvark.inference.tally import jump_counts, tally, visited_subsets

NAMES = ["a", "b", "c", "d"]


def rng(seed):
    return np.random.default_rng([91, seed])


def tree_of(included, kind="mcmc"):
    """A tree with these indicators (chain, draw, feature)."""
    chains, draws, _ = included.shape
    coords = {"chain": range(chains), "draw": range(draws), "feature": NAMES}
    posterior = xr.Dataset(
        {"included": (("chain", "draw", "feature"), included.astype(int))}, coords=coords
    )
    posterior.attrs["sampling_kind"] = kind
    return xr.DataTree.from_dict({"posterior": posterior})


def draw(seed, chains=4, draws=2000):
    """One of a and b (never both), c with 0.3, d never."""
    r = rng(seed)
    first = r.random((chains, draws)) < 0.6
    third = r.random((chains, draws)) < 0.3
    return np.stack([first, ~first, third, np.zeros_like(first)], axis=-1)


def test_inclusion_with_errors():
    table = av.inclusion(tree_of(draw(1)))
    assert list(table.index) == NAMES
    truth = np.array([0.6, 0.4, 0.3, 0.0])
    assert np.all(np.abs(table["counted"] - truth) <= 4 * table["mcse"])
    expected = np.sqrt(truth * (1 - truth) / 8000)
    np.testing.assert_allclose(table["mcse"][:3], expected[:3], rtol=0.2)
    assert table.at["d", "mcse"] == 0 and np.isnan(table.at["d", "ess"])
    assert table["rao_blackwell"].isna().all()


def test_the_error_of_a_slow_chain_is_larger():
    slow = np.repeat(draw(2, draws=100), 20, axis=1)
    fast, held = av.inclusion(tree_of(draw(2))), av.inclusion(tree_of(slow))
    ratio = held["mcse"]["a"] / fast["mcse"]["a"]
    assert 3.0 < ratio < 6.5  # sqrt(20) = 4.5


def test_sizes_pairs_and_sets():
    tree = tree_of(draw(3))
    sizes = av.diagnostics.subset_sizes(tree)
    assert list(sizes.index) == [0, 1, 2]
    assert np.all(np.abs(sizes["probability"] - [0, 0.7, 0.3]) <= 4 * sizes["mcse"])
    joint = av.diagnostics.joint_inclusion(tree)
    assert joint.at["a", "b"] == 0
    np.testing.assert_allclose(np.diag(joint), av.inclusion(tree)["counted"])
    pairs = av.diagnostics.replacements(tree)
    assert (pairs.at[0, "first"], pairs.at[0, "second"]) == ("a", "b")
    assert pairs.at[0, "correlation"] == pytest.approx(-1)
    assert pairs.at[0, "one"] == pytest.approx(1) == pairs.at[0, "either"]
    assert len(av.diagnostics.replacements(tree, 1)) == 1
    sets = av.diagnostics.credible_sets(tree)
    assert list(sets["features"]) == [("a", "b")]
    assert sets.at[0, "probability"] == 1
    assert len(av.diagnostics.credible_sets(tree, 0.25)) == 3  # a, b and c alone
    with pytest.raises(InputError, match="level"):
        av.diagnostics.credible_sets(tree, 1.0)


def test_the_chosen_subsets():
    chosen = av.diagnostics.chosen_subsets(tree_of(draw(4)))
    assert chosen.at["highest probability", "features"] == ("a",)
    assert chosen.at["median probability", "features"] == ("a",)
    r = rng(5).random((2, 3000))
    three = np.stack([r < 0.6, (r < 0.2) | (r > 0.6), r > 0.2, r < -1], axis=-1)  # ab, ac, bc
    other = av.diagnostics.chosen_subsets(tree_of(three))
    assert other.at["median probability", "features"] == ("a", "b", "c")
    assert other.at["median probability", "probability"] == 0.0  # never visited, and said so


def test_chains_that_agree_pass_and_chains_that_do_not_are_caught():
    good = subset_diagnostics(tree_of(draw(6)))
    assert good.problems == ()
    assert list(good.indicators.index) == ["size", *NAMES]
    assert good.indicators["rhat"].dropna().max() < 1.01
    assert good.distinct == 4 and list(good.by_chain["distinct"]) == [4] * 4
    stuck = draw(7)
    stuck[0, :, 2] = True
    with pytest.warns(ConvergenceWarning) as caught:
        bad = subset_diagnostics(tree_of(stuck))
    assert len(bad.problems) == len(caught) == 2
    assert "R-hat" in bad.problems[0] and "about c" in bad.problems[1]
    assert bad.disagreement.at["c", "errors"] > 20
    with pytest.warns(ConvergenceWarning, match="one chain only"):
        subset_diagnostics(tree_of(draw(8)[:1]))
    assert subset_diagnostics(tree_of(stuck, "iid")).problems == ()  # no chains: nothing to check


def test_an_input_that_one_chain_never_met():
    """Rare is not disagreement; absent where others have it often is."""
    rare = draw(9)
    rare[1, :3, 3] = True
    assert subset_diagnostics(tree_of(rare)).problems == ()
    absent = draw(9)
    absent[1:, ::3, 3] = True
    with pytest.warns(ConvergenceWarning):
        assert "about d" in subset_diagnostics(tree_of(absent)).problems[-1]


def test_acceptance_by_move_and_size():
    moves = np.zeros((2, 2, 6, 2), int)
    moves[:, 0, 1] = [10, 4]
    moves[0, 1, 2] = [5, 5]
    tree = tree_of(draw(10, chains=2))
    tree["sample_stats"] = xr.DataTree(jump_counts(moves, ["add", "delete"]))
    found = subset_diagnostics(tree)
    assert list(found.jumps.columns) == [0, 1, 2]
    assert found.jumps.at["add", 1] == pytest.approx(0.4)
    assert np.isnan(found.jumps.at["delete", 1])
    assert found.acceptance["delete"] == 1.0
    assert list(found.by_chain["jumps_made"]) == [9, 4]


def test_tally_counts_and_independent_sweeps_have_binomial_errors():
    drawn = draw(11, chains=2, draws=1000)
    patterns, probability, mcse = tally(drawn)
    flat = pd.Series([tuple(row) for row in drawn.reshape(-1, 4)]).value_counts()
    assert len(patterns) == len(flat)
    assert probability[0] == flat.iloc[0] / 2000
    for pattern, p in zip(patterns, probability, strict=True):
        assert flat[tuple(pattern)] / 2000 == p
    np.testing.assert_allclose(mcse, np.sqrt(probability * (1 - probability) / 2000), rtol=0.1)
    wide = np.zeros((1, 50, 70), bool)
    wide[0, 25:, 69] = True
    group = visited_subsets(wide, [f"x{j}" for j in range(70)])
    assert list(group["probability"].values) == [0.5, 0.5] and group.attrs["visited"] == 2


def test_the_picture_shows_the_inputs():
    axes = av.plot.inclusion(tree_of(draw(12)))
    labels = [text.get_text() for text in axes[0].get_yticklabels()]
    assert labels == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "function",
    [
        av.inclusion,
        av.diagnostics.subset_sizes,
        av.diagnostics.joint_inclusion,
        av.diagnostics.subset_diagnostics,
    ],
)
def test_a_tree_without_indicators_says_what_to_do(function):
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"w": ("chain", [1.0])})})
    with pytest.raises(InputError, match="relevance"):
        function(tree)
