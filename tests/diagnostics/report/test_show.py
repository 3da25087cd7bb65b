"""What notebooks show: a comparison with its levels, cards with what is known, all escaped."""

import json

import numpy as np
import pandas as pd
import pytest
from synthetic_trees import gaussian_tree, without

from ardvark.diagnostics.compare.compare import compare
from ardvark.diagnostics.compare.display import Comparison
from ardvark.diagnostics.report.show import show
from ardvark.errors import InputError

MEAN, SD = np.array([2.0, -1.0, 0.0]), np.array([0.4, 0.5, 0.3])
HOSTILE = "<script>alert(1)</script>"


def make(seed, mean=MEAN, sd=SD, **settings):
    rng = np.random.default_rng([907, seed])
    return gaussian_tree(rng, mean, sd, bias=False, draws=500, **settings)


@pytest.fixture(scope="module")
def trees():
    return {
        HOSTILE: make(0, MEAN + 0.5 * SD, attrs={"converged": False}),
        "good": make(1),
        "full": make(2, 0.5 * MEAN, method="nuts", hyper="posterior"),
        "nuts": make(3, method="nuts"),
    }


def row_of(html, name):
    return html.partition(f"<th>{name}</th>")[2].partition("</tr>")[0]


def test_a_comparison_is_a_data_frame_with_signs(trees):
    table = compare(trees, "nuts", detail=True)
    assert isinstance(table, pd.DataFrame) and isinstance(table, Comparison)
    pd.testing.assert_frame_equal(pd.DataFrame(table), table, check_frame_type=False)
    html = table._repr_html_()
    assert "<script" not in html and "&lt;script&gt;" in html
    bad = row_of(html, "&lt;script&gt;alert(1)&lt;/script&gt;")
    assert "✗ 0." in bad and "✗ no" in bad
    good = row_of(html, "good")
    assert "✗" not in good and "✓ yes" in good and good.count("✓") >= 3


def test_levels_survive_selection_and_transposition(trees):
    table = compare(trees, "nuts")
    part = table[["worst_mean_error", "khat"]]
    assert isinstance(part, Comparison) and "✗ 0." in part._repr_html_()
    turned = table.T
    assert turned._repr_html_().count("✗") == table._repr_html_().count("✗") > 0


def test_a_price_is_no_failure_and_a_stranger_is_not_judged(trees):
    table = compare({name: trees[name] for name in ("good", "full")}, "full")
    price = row_of(table._repr_html_(), "good")
    assert table.loc["good", "worst_mean_error"] > 1 and "▲" in price and "✗" not in price
    other = compare(
        {"good": trees["good"], "other": make(4, alpha=[2.0, 2.0, 2.0])}, "other", detail=True
    )
    assert other.loc["good", "compares"] == "different hyperparameters"
    assert other[["worst_mean_error"]]._repr_html_().count("✓") == 0
    both = compare(trees)
    assert isinstance(both, Comparison) and "✗" in both._repr_html_()
    several = compare(trees, ["nuts", "full"])
    assert "good against full" in several._repr_html_()


def test_by_default_a_comparison_has_what_a_person_reads(trees):
    """It had 33 columns, and no word on what they come to."""
    short, full = compare(trees, "nuts"), compare(trees, "nuts", detail=True)
    first, last = ["worst_mean_error", "worst_sd_ratio"], ["seconds", "conclusion"]
    assert list(short) == [*first, "theta_mean_error", "theta_sd_ratio", "khat", "khat_se", *last]
    assert len(full.columns) > 30
    pd.testing.assert_frame_equal(pd.DataFrame(short), pd.DataFrame(full[list(short)]))
    assert short.at["good", "conclusion"] == "safe for means and intervals"
    assert short.at[HOSTILE, "conclusion"] == "do not rely on it"
    assert short.at["nuts", "conclusion"] == "this is the reference"
    beside, all_beside = compare(trees), compare(trees, detail=True)
    assert len(beside.columns) == 9 and len(all_beside.columns) > 15
    assert beside.at["good", "conclusion"].startswith("safe for means and intervals; fixing the ")
    assert beside.at["full", "conclusion"] == "a reference itself"
    several = compare(trees, ["nuts", "full"])
    assert several.loc[("good", "full"), "conclusion"].startswith("fixing the hyperparameters")
    assert "▲" in row_of(several._repr_html_(), "good against full")  # a price is no failure


def test_a_card_says_what_is_known(trees):
    shown = show(trees["good"])
    text, html = repr(shown), shown._repr_html_()
    for said in ("ard_classification by laplace", "Converged: ✓ yes", "Log evidence: -7.00"):
        assert said in text
    assert "Most relevant: x0, x1, x2" in text and "4 × 500, independent" in text
    assert "k-hat: ✓" in text and "R-hat" not in text
    assert "<table>" in html and "Log evidence" in html


def test_a_card_warns(trees):
    tree = make(5, attrs={"converged": False, "problems": HOSTILE, "caution": "mind the gap"})
    html = show(tree)._repr_html_()
    assert "✗ no" in html and "▲ mind the gap" in html
    assert "<script" not in html and "&lt;script&gt;" in html
    chains = show(make(6, method="nuts", autocorrelation=0.99))
    assert "✗" in repr(chains) and "R-hat" in repr(chains)


def test_cards_side_by_side_and_bare_trees(trees):
    assert repr(show(trees)).count("Most relevant") == 4
    bare = without(without(trees["good"], "fit"), "sample_stats")
    bare.attrs = {"settings": json.dumps({})}
    assert "Log evidence" not in repr(show(bare)) and "Model: unknown" in repr(show(bare))
    with pytest.raises(InputError, match="trees"):
        show({})
    with pytest.raises(InputError, match="posterior"):
        show(without(trees["good"], "posterior"))
