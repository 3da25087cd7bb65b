"""Scores and calibration curves: formulas, known truths, paired errors, and forecasts that lie."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.integrate import quad
from scipy.stats import norm

import ardvark as av
from ardvark.diagnostics.calibration.scores import (
    calibration_curve,
    crps_normal,
    expected_error,
    row_scores,
)

RNG = np.random.default_rng(30)
X = RNG.standard_normal((120, 2))
LABELS = np.where(1.5 * X[:, 0] + RNG.standard_normal(120) > 0, "yes", "no")
TARGET = X @ [1.0, -0.5] + 0.7 * RNG.standard_normal(120)
TRAIN, TEST = slice(0, 70), slice(70, None)


@pytest.fixture(scope="module")
def classes():
    model = av.models.ard_classification(X[TRAIN], LABELS[TRAIN], alpha=[0.1, 1.0, 1.0])
    trees = {n: av.fit(model, n, draws=400, random_seed=1) for n in ("ep", "laplace")}
    return model, trees


@pytest.fixture(scope="module")
def reals():
    known = {"alpha": [0.1, 1.0, 1.0], "noise": 0.7}
    model = av.models.ard_regression(X[TRAIN], TARGET[TRAIN], **known)
    return model, av.fit(model, "laplace", draws=500, random_seed=1)


# ------------------------------------------------------------------------------------- formulas


def test_crps_is_the_integral_that_defines_it():
    for mean, sd, t in ((0.0, 1.0, 0.3), (2.0, 0.4, 3.1), (-1.0, 3.0, -9.0)):
        wanted, _ = quad(
            lambda x, m=mean, s=sd, y=t: (norm.cdf(x, m, s) - (x >= y)) ** 2,
            mean - 40, mean + 40, points=[t, mean], limit=400,
        )  # fmt: skip
        assert crps_normal(np.array(mean), np.array(sd), np.array(t)) == pytest.approx(wanted)


def test_class_scores_are_those_of_the_predictions(classes):
    model, trees = classes
    table = row_scores(trees["ep"], model, (X[TEST], LABELS[TEST]))
    p = av.predict(model, trees["ep"], X[TEST]).sel({"class": "yes"}).values
    t = LABELS[TEST] == "yes"
    assert table["log_score"].to_numpy() == pytest.approx(np.log(np.where(t, p, 1 - p)))
    assert table["brier"].to_numpy() == pytest.approx((p - t) ** 2)
    assert table["correct"].to_numpy() == pytest.approx(((p > 0.5) == t).astype(float))
    assert table.attrs["by"] == "test rows"


def test_differences_are_paired_and_an_equal_method_has_none(classes):
    model, trees = classes
    test = (X[TEST], LABELS[TEST])
    frame = av.diagnostics.scores({**trees, "again": trees["ep"]}, model, test)
    assert frame.loc["again", "log_score_difference"] == 0
    assert frame.loc["again", "log_score_difference_se"] == 0
    own, other = (row_scores(trees[n], model, test)["brier"] for n in ("laplace", "ep"))
    difference = (own - other).to_numpy()
    assert frame.loc["laplace", "brier_difference"] == pytest.approx(difference.mean())
    error = difference.std(ddof=1) / np.sqrt(50)
    assert frame.loc["laplace", "brier_difference_se"] == pytest.approx(error)
    assert error < 0.2 * frame.loc["laplace", "brier_se"]  # what pairing is for
    assert frame.loc["ep", "rows"] == 50 and frame.loc["ep", "accuracy"] > 0.6


def test_the_error_of_a_root_mean_square_is_that_of_repeated_samples(reals):
    model, tree = reals
    rng = np.random.default_rng(31)
    found = []
    for _ in range(40):
        X_new = rng.standard_normal((200, 2))
        t_new = X_new @ [1.0, -0.5] + 0.7 * rng.standard_normal(200)
        found.append(
            av.diagnostics.scores({"a": tree}, model, (X_new, t_new)).loc["a", ["rmse", "rmse_se"]]
        )
    found = pd.DataFrame(found).astype(float)
    spread = found["rmse"].std()  # its own error is 11 % with 40 samples
    assert abs(found["rmse_se"].mean() / spread - 1) < 0.4
    assert abs(found["rmse"].mean() - 0.7) < 0.1


def test_real_targets_of_a_right_model_are_covered(reals):
    model, tree = reals
    rng = np.random.default_rng(32)
    X_new = rng.standard_normal((2000, 2))
    t_new = X_new @ [1.0, -0.5] + 0.7 * rng.standard_normal(2000)
    frame = av.diagnostics.scores({"a": tree}, model, (X_new, t_new)).loc["a"]
    assert abs(frame["coverage_90"] - 0.9) < 4 * frame["coverage_90_se"] + 0.03  # one fit's error
    assert frame["crps"] == pytest.approx(0.7 / np.sqrt(np.pi), rel=0.1)


# ------------------------------------------------------------------------------- leave-one-out


def test_leave_one_out_of_a_gaussian_model_is_that_of_its_refits(reals):
    """Exact: without row n the posterior is Gaussian, at the same precisions and noise."""
    model, tree = reals
    table = row_scores(tree, model)
    A, t = np.column_stack([np.ones(70), X[TRAIN]]), TARGET[TRAIN]
    log_p, places = np.empty(70), np.empty(70)
    for n in range(70):
        rest = np.arange(70) != n
        precision = np.diag([0.1, 1.0, 1.0]) + A[rest].T @ A[rest] / 0.49
        mean = A[n] @ np.linalg.solve(precision, A[rest].T @ t[rest] / 0.49)
        sd = np.sqrt(A[n] @ np.linalg.solve(precision, A[n]) + 0.49)
        log_p[n], places[n] = norm.logpdf(t[n], mean, sd), norm.cdf(t[n], mean, sd)
    assert table.attrs["by"] == "leave-one-out"
    assert np.abs(table["log_score"].to_numpy() - log_p).max() < 0.05  # 2000 draws
    assert np.abs(table["place"].to_numpy() - places).max() < 0.02


def test_cavities_and_importance_weights_agree_for_classes(classes):
    model, trees = classes
    cavity, smoothed = (row_scores(trees[n], model) for n in ("ep", "laplace"))
    assert len(cavity) == 70 and set(cavity) == set(smoothed)
    assert np.abs(cavity["log_score"] - smoothed["log_score"]).max() < 0.2
    assert abs(cavity["log_score"].mean() - smoothed["log_score"].mean()) < 0.02


def test_trees_that_cannot_be_scored_are_refused(classes):
    model, trees = classes
    empty = xr.DataTree.from_dict(
        {n: g for n, g in trees["laplace"].to_dict().items() if n != "/log_likelihood"}
    )
    with pytest.raises(av.errors.InputError, match="no log_likelihood"):
        av.diagnostics.scores({"a": empty}, model)
    with pytest.raises(av.errors.InputError, match="none of the classes"):
        av.diagnostics.scores(trees, model, (X[TEST], np.full(50, "perhaps")))
    for bad, said in (
        ((X[TEST], LABELS[:3]), r"50 rows and t has the shape \(3,\)"),
        ((None, LABELS[:3]), "X of test is None"),
        ((X[TEST] * np.nan, LABELS[TEST]), "X of test has NaN"),
        ((X[TEST], None), "t of test is None"),
    ):
        with pytest.raises(av.errors.InputError, match=said):
            av.diagnostics.scores(trees, model, bad)
    with pytest.raises(av.errors.InputError, match="'nuts' is not among"):
        av.diagnostics.scores(trees, model, reference="nuts")
    with pytest.raises(av.errors.InputError, match="found none"):
        av.diagnostics.scores({}, model)


# ------------------------------------------------------------------------------------ calibration


def test_the_curve_is_that_of_arviz():
    from arviz_stats.helper_stats import _isotonic_fit

    rng = np.random.default_rng(33)
    p = np.sort(rng.random(80))
    t = (rng.random(80) < p).astype(float)
    preds = xr.DataArray((rng.random((200, 80)) < p) * 1.0, dims=("sample", "row"))
    theirs, forecast, *_ = _isotonic_fit(
        xr.DataArray(p, dims="row"), xr.DataArray(t, dims="row"), 0.9, False, preds, None
    )
    curve = calibration_curve(p, t, bootstrap=50)
    at = np.interp(np.asarray(forecast), curve.probability, curve.frequency)
    steps = np.asarray(theirs)
    inside = np.isin(np.asarray(forecast), curve.probability)
    assert inside.any() and np.allclose(at[inside], steps[inside], atol=1e-9)


def test_right_forecasts_are_accepted_at_the_rate_and_sharpened_ones_are_not():
    rng = np.random.default_rng(34)
    p_values = []
    for seed in range(150):
        p = rng.beta(2, 2, 150)
        t = rng.random(150) < p
        p_values.append(calibration_curve(p, t, bootstrap=99, random_seed=seed).p_value)
    share = np.mean(np.array(p_values) <= 0.1)
    assert abs(share - 0.1) < 4 * np.sqrt(0.09 / 150)
    p = rng.beta(2, 2, 400)
    t = rng.random(400) < p
    sharp = p**3 / (p**3 + (1 - p) ** 3)
    assert calibration_curve(sharp, t).p_value < 0.01
    curve = calibration_curve(p, t)
    inside = (curve.lower <= curve.frequency) & (curve.frequency <= curve.upper)
    assert inside.mean() > 0.7


def test_equal_forecasts_have_one_frequency():
    curve = calibration_curve([0.3, 0.3, 0.3, 0.3, 0.8], [1, 0, 0, 0, 1], bootstrap=20)
    assert curve.frequency.tolist() == [0.25, 0.25, 0.25, 0.25, 1.0]


def test_expected_error_with_stated_bins():
    assert expected_error([0.05, 0.95, 0.95], [0, 1, 0], bins=10) == pytest.approx((0.05 + 0.9) / 3)
    assert expected_error([1.0, 0.0], [1, 0]) == 0


@pytest.mark.parametrize(
    ("p", "t", "said"),
    [([0.5], [0.5], "0 or 1"), ([1.5], [1], "from 0 to 1"), ([0.5, 0.5], [1], "equal rows")],
)
def test_forecasts_that_are_none_are_refused(p, t, said):
    with pytest.raises(av.errors.InputError, match=said):
        calibration_curve(p, t)
