"""Stopping rules: what each takes from a path whose losses are written down."""

import numpy as np

from ardvark.inference.selection.walk import Path, Score
from ardvark.studies.papers.stopping import FRESH, KINDS, MOST, RULES, simulate, summary


def path(wrong, rows=100):
    """Of each subset the first so many rows are wrong."""
    by_row = [(np.arange(rows) < count).astype(float) for count in wrong]
    scores = tuple(Score(float(b.mean()), b, {}) for b in by_row)
    return Path(tuple(np.arange(k + 1) for k in range(len(wrong))), scores, 0, 0)


def test_rules_differ_at_a_stumble_and_on_a_plateau():
    stumble = path([40, 20, 25, 8, 8, 9, 8, 7])
    assert RULES["table 1, 1 se"](stumble) == 1
    assert RULES["smallest, 1 se, patience 1"](stumble) == 1
    assert RULES["smallest, 1 se, patience 3"](stumble) == 3
    assert RULES["best"](stumble) == 7
    plateau = path([10] * 8)
    assert RULES["table 1, 1 se"](plateau) == 7  # kept whole
    assert RULES[f"smallest, 2 se, patience {MOST}"](plateau) == 0


def test_simulated_sets_are_what_they_say():
    for kind, (_, rows, real, copies) in KINDS.items():
        data, again = simulate(kind, 1), simulate(kind, 1)
        assert np.array_equal(data.X, again.X)
        assert data.X.shape == (rows, 20) and len(data.X_new) == FRESH
        assert len(data.real) == real + copies
        assert 0.3 < np.mean(data.sign_new > 0) < 0.7
    corners = simulate("corners", 0)
    others = sorted(set(range(20)) - corners.real)
    apart = np.abs(np.corrcoef(corners.X_new, rowvar=False))
    np.fill_diagonal(apart, 0.0)
    assert apart[others].max() < 0.12 < apart[sorted(corners.real)].max()


def test_summary_is_against_the_best_rule_on_each_set():
    runs = []
    for low in (0.1, 0.2):
        chosen = {name: {"error": low + 0.01, "features": 4, "noise": 1} for name in RULES}
        chosen["best"] = {"error": low, "features": 6, "noise": 3}
        runs.append({"chosen": chosen})
    table = {row["rule"]: row for row in summary(runs)}
    assert table["best"]["error_above_best"] == 0.0 and table["best"]["noise"] == 3.0
    assert table["table 1, 1 se"]["error_above_best"] == 1.0
