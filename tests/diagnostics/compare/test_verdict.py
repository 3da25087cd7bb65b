"""What a verdict calls: known differences by their formulas, noise left alone, faults by name."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm
from synthetic_trees import gaussian_tree, replaced, without

from ardvark.diagnostics.compare.agreement import agreement
from ardvark.diagnostics.compare.bounds import bounds, divergence_bound
from ardvark.diagnostics.compare.compare import compare
from ardvark.diagnostics.compare.modes import missed_mode, valley
from ardvark.diagnostics.compare.verdict import verdict

MEAN = np.array([0.5, 1.0, -2.0, 0.0, 0.3, 3.0])
SD = np.array([0.3, 0.2, 1.5, 0.7, 1.0, 2.0])
SAMPLE = ("chain", "draw")


def rng(*seed):
    return np.random.default_rng([31, *seed])


def tree(seed, mean=MEAN, sd=SD, **settings):
    return gaussian_tree(rng(seed), mean, sd, **settings)


def bare(answer):
    """A tree of draws alone: nothing else is compared, which is faster."""
    return without(without(answer, "log_likelihood"), "sample_stats")


def called(answer, reference):
    row = compare({"q": answer, "nuts": reference}, "nuts", detail=True).loc["q"]
    return row, *verdict(row)[:2]


@pytest.fixture(scope="module")
def nuts():
    return tree(0, method="nuts")


# ---------------------------------------------------------------------------- formulas


def correlated(answer, seed, r):
    """The first two features with correlation r."""
    z = rng(seed).normal(size=(2, 4, 1000))
    w = answer["posterior"]["w"].copy()
    w[..., 0] = MEAN[1] + SD[1] * z[0]
    w[..., 1] = MEAN[2] + SD[2] * (r * z[0] + np.sqrt(1 - r * r) * z[1])
    return replaced(answer, "posterior", w=w)


def test_a_correlation_has_its_formula_and_is_called(nuts):
    row, level, sentence = called(correlated(tree(1), 2, 0.6), nuts)
    # r of n draws has sd (1 - r²) / sqrt n; the reference has r = 0
    assert abs(row["correlation_error"] - 0.6) < 4 * np.hypot(0.64, 1) / np.sqrt(4000)
    assert row["correlation_at"] == "w[x0], w[x1]" and 0 < row["correlation_null"] < 0.1
    assert level == "bad" and "the correlation of w[x0] and w[x1] is off by 0." in sentence
    assert "correlation" not in called(tree(3), nuts)[2]


def test_the_error_of_a_log_sd_has_its_formula():
    table = agreement(tree(4), tree(5))  # normal draws: 1 / sqrt(2 n) for each of the two
    np.testing.assert_allclose(table["log_sd_ratio_mcse"], np.sqrt(2 / (2 * 4000)), rtol=0.1)
    sticky = agreement(tree(4), tree(5, method="nuts", autocorrelation=0.8))
    # squares of an AR(1) have autocorrelation r²: the error grows by sqrt((1 + r²) / (1 - r²))
    grown = np.sqrt((1 + 1.64 / 0.36) / 8000)
    np.testing.assert_allclose(sticky["log_sd_ratio_mcse"], grown, rtol=0.35)


def test_divergence_bound_equals_its_formula():
    """q = N(0, 1), p = N(m, s²) unnormalised: D2 by integration, and twice KL(q || p) from ELBO."""
    for m, s in ((0.2, 1.0), (0.0, 0.9), (-0.3, 1.1)):
        x = rng(6).normal(size=400_000)
        weight = norm.logpdf(x, m, s) - norm.logpdf(x) + 5.0
        exact = m**2 / (2 - s**2) - np.log(s) - 0.5 * np.log(2 - s**2)
        kl = np.log(s) + (1 + m**2) / (2 * s**2) - 0.5
        assert divergence_bound(weight) == pytest.approx(exact + 2 * kl, abs=0.01)


def test_bounds_hold_and_are_refused_where_the_weights_are_heavy():
    answer = tree(7, target_sd=0.97 * SD)  # its target is 3 % narrower
    found = bounds(answer)
    assert 0 < found.d2 < 0.1 and not found.refused
    assert found.mean_error == pytest.approx(2 * np.sqrt(np.expm1(found.d2)))
    # six weights: C_2 = 6, C_4 = 6 * 3 + 30 in units of their sds
    assert found.wasserstein_1 == pytest.approx(np.sqrt(6) * found.mean_error, rel=1e-6)
    assert found.wasserstein_2 == pytest.approx(2 * (48 * np.expm1(found.d2)) ** 0.25, rel=0.05)
    assert found.sd_error >= 0.03  # the true error is below its bound
    heavy = bounds(tree(8, target_sd=3 * SD))
    assert np.isnan(heavy.d2) and "above 0.7" in heavy.refused
    assert "no densities" in bounds(tree(9, method="nuts")).refused
    row = compare({"q": answer, "p": tree(10, method="nuts")}, "p", detail=True).loc["q"]
    assert row["d2"] == found.d2 and row["mean_error_bound"] == found.mean_error


def test_differences_of_elpd_are_paired(nuts):
    row = compare({"q": tree(11), "nuts": nuts}, "nuts", detail=True).loc["q"]
    assert abs(row["elpd_difference"]) < 0.2  # the same posterior
    assert row["elpd_difference_se"] < 0.2 * row["elpd_loo_se"]
    assert row["speed_up"] == 1.0


# -------------------------------------------------------------------------------- modes


def two_modes(seed, share, gap=6.0, shape=(4, 1000)):
    random = rng(seed)
    return random.normal(size=shape) + gap * (random.random(shape) < share)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7])
def test_a_missed_mode_is_called_by_name(nuts, share):
    here = replaced(nuts, "posterior", bias=(SAMPLE, two_modes(20, share)))
    there = replaced(tree(21), "posterior", bias=(SAMPLE, rng(22).normal(size=(4, 1000))))
    row, level, sentence = called(there, here)
    assert level == "bad" and "a mode of bias is missed (near " in sentence
    assert row["missed_mode_share"] == pytest.approx(share, abs=0.04)
    assert row["missed_mode_place"] == pytest.approx(6.0, abs=0.3)
    both = replaced(tree(23), "posterior", bias=(SAMPLE, two_modes(24, share)))
    assert called(both, here)[0]["missed_mode_at"] is None


def test_one_mode_is_no_two():
    """Noise, skewness, heavy tails and a flat top have no valley: not once in 400 samples."""
    shapes = {
        "normal": lambda r: r.normal(size=2000),
        "skewed": lambda r: r.gamma(1.0, size=2000),
        "heavy": lambda r: r.standard_t(2, size=2000),
        "flat": lambda r: r.uniform(size=2000),
    }
    for k, draw in enumerate(shapes.values()):
        assert all(valley(draw(rng(30, k, seed))) is None for seed in range(100))
    assert valley(np.ones(50)) is None and valley(np.array([0.0, np.nan])) is None
    assert abs(valley(two_modes(31, 0.5).ravel()) - 3.0) < 1.0
    narrow = np.concatenate([rng(32).normal(size=(4, 500, 1)), np.zeros((4, 500, 1))], axis=2)
    assert missed_mode(narrow, narrow) is None


# ------------------------------------------------------------- null rates, and planted faults

KINDS = {
    "mean": "is off by",
    "sd": "% too",
    "shape": "the shape differs",
    "correlation": "the correlation of",
    "mode": "is missed",
}


def rates(pairs, sd=1.0, shift=0.0, draws=500):
    """Fraction of pairs in which each fault is called; the reference is a Markov chain."""
    found = dict.fromkeys(KINDS, 0)
    for pair in range(pairs):
        answer = bare(gaussian_tree(rng(40, pair), MEAN + shift * SD, sd * SD, draws=draws))
        sticky = (0.0, 0.4, 0.7)[pair % 3]
        settings = {"method": "nuts", "draws": draws, "autocorrelation": sticky}
        reference = bare(gaussian_tree(rng(41, pair), MEAN, SD, **settings))
        _, sentence, _ = verdict(compare({"q": answer, "p": reference}, "p", detail=True).loc["q"])
        for kind, words in KINDS.items():
            # "the correlation ... is off by" is no call of a mean
            parts = [p for p in sentence.split(", ") if kind == "correlation" or "corr" not in p]
            found[kind] += any(words in part for part in parts)
    return {kind: number / pairs for kind, number in found.items()}


@pytest.mark.parametrize(
    ("pairs", "most"), [(100, 3), pytest.param(200, 4, marks=pytest.mark.validate)]
)
def test_noise_alone_is_hardly_ever_called(pairs, most):
    null = rates(pairs, draws=250)  # so few that the worst of six may well be beyond the limits
    # at most 1 % of answers by design for means and sds; `most` is its 95 % limit
    assert all(rate * pairs < most + 0.5 for rate in null.values()), null


def test_planted_faults_are_called_in_nearly_every_pair():
    narrow, moved = rates(25, sd=0.8), rates(25, shift=0.3)
    print(f"calls of sds 20 % too small: {narrow}; of a shift of 0.3 sd: {moved}")
    assert narrow["sd"] >= 0.9 and narrow["mean"] <= 0.04
    assert moved["mean"] >= 0.9 and moved["sd"] <= 0.04


def test_the_words_of_each_planted_fault(nuts):
    assert "% too small" in called(tree(50, sd=0.8 * SD), nuts)[2]
    assert "the mean of" in called(tree(51, MEAN + 0.3 * SD), nuts)[2]


# ------------------------------------------------------------------------ error beside price


def test_error_and_price_stand_side_by_side():
    alpha = np.arange(1.0, 6.0)
    trees = {
        "laplace": tree(60, MEAN + 0.2 * SD, hyper="evidence", alpha=alpha),
        "exact": tree(61, method="exact", alpha=alpha, attrs={"seconds": 5.0}),
        "nuts": tree(62, MEAN + SD, 1.5 * SD, method="nuts", hyper="posterior"),
    }
    trees["exact"] = without(trees["exact"], "sample_stats")
    table = compare(trees, detail=True)
    row = table.loc["laplace"]
    assert (row["error_against"], row["price_against"]) == ("exact", "nuts")
    assert row["error_mean"] == pytest.approx(0.2, abs=0.1)
    # 0.8 of an sd, which is 1.5 times as large in the reference
    assert row["price_mean"] == pytest.approx(0.8 / 1.5, abs=0.1)
    assert row["price_sd_ratio"] == pytest.approx(1 / 1.5, rel=0.1)
    assert row["speed_up"] == pytest.approx(10.0)
    assert row["verdict"].startswith("laplace against exact: the mean of ")
    assert "against nuts: " in row["verdict"] and "changes the answer" in row["verdict"]
    assert table.loc["nuts", ["error_against", "price_against"]].isna().all()
    assert table.at["nuts", "verdict"] == "nuts: a reference itself."
    assert table.at["exact", "price_against"] == "nuts"
    alone = compare({"laplace": trees["laplace"]}, detail=True)
    assert alone.at["laplace", "verdict"] == "laplace: no reference to compare it with."
    with pytest.raises(ValueError, match="found Dataset"):
        compare({"x": xr.Dataset()}, detail=True)


# ---------------------------------------------------------------------- hyperparameters θ


def integrated(seed, method="laplace"):
    """Weights and precisions that both are drawn; the precisions have one distribution."""
    return bare(tree(seed, method=method, hyper="posterior"))


def spoilt(answer, by):
    """Move the draws of the precisions by so many of their sds, and leave the weights alone."""
    alpha = answer["posterior"]["alpha"]
    return replaced(answer, "posterior", alpha=alpha + by * alpha.std(SAMPLE))


def test_equal_draws_of_hyperparameters_are_safe():
    row, level, sentence = called(integrated(40), integrated(41, "nuts"))
    assert row["n_theta"] == 5 and row["theta"] == ""
    assert row["theta_mean_error"] < 5 * row["theta_mean_error_mcse"]
    assert level == "good" and "means of θ within" in sentence and "safe" in row["conclusion"]


def test_spoilt_draws_of_hyperparameters_are_not_safe():
    reference = integrated(41, "nuts")
    row, level, sentence = called(spoilt(integrated(40), 1.0), reference)
    assert row["worst_mean_error"] < 0.1  # the weights are right
    assert row["theta_mean_error"] > 0.5 and row["theta_mean_error_at"].startswith("log alpha[")
    assert level == "bad" and "the mean of log alpha[" in sentence
    assert row["conclusion"] == "do not rely on it"
    trees = {"q": spoilt(integrated(40), 1.0), "nuts": reference}
    shown = compare(trees).loc["q"]
    assert shown["error_theta_mean"] == row["theta_mean_error"]
    assert "safe" not in shown["conclusion"]


def test_what_is_derived_is_not_called_a_hyperparameter():
    """A fit names its hyperparameters; a Deterministic that both have drawn is none."""
    answers = []
    for seed, method in ((40, "laplace"), (41, "nuts")):
        made = integrated(seed, method)
        answers.append(replaced(made, "posterior", derived=3.0 + made["posterior"]["w"][..., 0]))
    answers[0]["theta"] = xr.DataTree(xr.Dataset({"alpha": ("feature", np.ones(5))}))
    row, *_ = called(*answers)
    assert row["n_theta"] == 5 and "derived" not in row["theta_mean_error_at"]


def test_a_reference_alone_says_that_it_cannot_be_trusted():
    beside = compare({"q": bare(tree(50)), "nuts": chains_apart(51)})
    assert beside.loc["nuts", "conclusion"].startswith("a reference that cannot be trusted (R-hat")
    assert beside.loc["q", "conclusion"].startswith("not known")


def test_draws_of_hyperparameters_that_are_too_wide_are_called():
    wide = integrated(40)
    log_alpha = np.log(wide["posterior"]["alpha"])
    centre = log_alpha.mean(SAMPLE)
    wide = replaced(wide, "posterior", alpha=np.exp(centre + 1.4 * (log_alpha - centre)))
    row, level, sentence = called(wide, integrated(41, "nuts"))
    assert row["theta_sd_ratio"] == pytest.approx(1.4, rel=0.1)
    assert level == "bad" and "the sd of log alpha[" in sentence


def test_held_in_one_and_drawn_in_the_other_is_said():
    held, drawn = bare(tree(42)), integrated(41, "nuts")
    row, _, sentence = called(held, drawn)
    assert row["theta"] == "alpha held at one value here, drawn in the reference"
    assert row["theta"] in sentence and np.isnan(row["theta_mean_error"])
    row, _, sentence = called(integrated(40), bare(tree(43, method="nuts")))
    assert row["conclusion"].endswith("alpha drawn here, held at one value in the reference")


# ------------------------------------------------------------------------------- the reference


def chains_apart(seed):
    """Chains of which one is elsewhere: R-hat says so."""
    answer = bare(tree(seed, method="nuts"))
    w = answer["posterior"]["w"].copy()
    w[0] += 2.0
    return replaced(answer, "posterior", w=w)


def plain_sample(answer):
    """The same draws as `pm.sample` leaves them: no attribute of this package."""
    answer = answer.copy()
    answer.attrs = {}
    answer["posterior"].attrs.clear()
    return answer


@pytest.mark.parametrize("made", [lambda t: t, plain_sample], ids=["fit", "pm.sample"])
def test_a_reference_whose_chains_disagree_proves_nothing(made):
    row, level, sentence = called(bare(tree(50)), made(chains_apart(51)))
    assert row["conclusion"].startswith("not known: the reference fails its checks (R-hat of w[")
    assert level == "bad" and "safe" not in sentence


def test_a_sound_reference_of_plain_draws_is_trusted():
    row, level, _ = called(bare(tree(50)), plain_sample(bare(tree(52, method="nuts"))))
    assert row["reference_trouble"] == "" and level == "good"


def test_divergences_and_short_chains_are_said(nuts):
    diverging = nuts["sample_stats"]["diverging"].copy()
    diverging[0, :3] = True
    row, *_ = called(tree(53), replaced(nuts, "sample_stats", diverging=diverging))
    assert "3 divergences" in row["conclusion"]
    slow = bare(tree(54, method="nuts", autocorrelation=0.95))
    assert "the reference fails its checks (" in called(bare(tree(53)), slow)[0]["conclusion"]


# -------------------------------------------------------------------------------------- k-hat


def test_a_k_hat_is_on_a_side_of_a_limit_by_more_than_its_error():
    from ardvark.diagnostics.compare.verdict import khat_in_words, khat_level, khat_reaches

    levels = {0.3: "good", 0.45: "warn", 0.6: "warn", 0.75: "warn", 0.9: "bad"}
    assert {k: khat_level(k, 0.1) for k in levels} == levels
    assert khat_level(0.45) == "good" and khat_level(0.75, np.nan) == "bad"
    assert khat_level(-np.inf, np.nan) == "good" and khat_level(np.nan, np.nan) == ""
    assert khat_reaches(0.65, 0.1, 0.7) and not khat_reaches(0.55, 0.1, 0.7)
    assert (
        khat_in_words(0.4512, 0.104) == "0.45 ± 0.10" and khat_in_words(-np.inf, np.nan) == "exact"
    )
