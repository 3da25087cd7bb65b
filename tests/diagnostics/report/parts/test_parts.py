"""Sections on convergence, predictions, the prior and the calibration record, from real fits."""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
from pages import section, written
from synthetic_trees import replaced

import ardvark as av
from ardvark.diagnostics.calibration import record
from ardvark.diagnostics.calibration.record import calibration_record, digest, records_of
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.report.parts import sensitivity as part_sensitivity
from ardvark.diagnostics.report.parts.calibration import calibration_figures, calibration_part
from ardvark.diagnostics.report.parts.convergence import convergence_part
from ardvark.diagnostics.report.parts.predictions import predictions_part
from ardvark.diagnostics.report.parts.sensitivity import sensitivity_part
from ardvark.inference.extend import top_of_prior

RNG = np.random.default_rng(40)
X = RNG.standard_normal((90, 3))
LABELS = (1.5 * X[:, 0] + RNG.standard_normal(90) > 0).astype(int)
TARGET = X @ [1.0, -0.5, 0.0] + 0.7 * RNG.standard_normal(90)


def fitted(model, *methods):
    return {n: av.fit(model, n, draws=250, random_seed=1, progressbar=False) for n in methods}


@pytest.fixture(scope="module")
def classes():
    model = av.models.ard_classification(X[:50], LABELS[:50])
    return model, fitted(model, "ep", "laplace", "vb")


@pytest.fixture(scope="module")
def subsets():
    model = av.models.subset_classification(X[:50], LABELS[:50])
    return model, {"rj": av.fit(model, av.ReversibleJump(sweeps=8000), draws=150, random_seed=1)}


def facts(part, name):
    method = next(m for m in part["methods"] if m["name"] == name)
    return {f["what"]: f for f in method["facts"]}


def test_every_method_tells_what_it_knows_of_itself(classes, subsets):
    part = convergence_part(Case(classes[1], None, classes[0]))
    assert part["level"] == "good" and part["sentence"] == "Every method ended where it should."
    assert facts(part, "ep")["negative cavities met"]["value"] == 0
    assert facts(part, "laplace")["condition of the Hessian"]["value"] >= 1
    assert (
        facts(part, "vb")["largest fall of the bound in a sweep (it must not fall)"]["value"] < 1e-6
    )
    jumps = facts(convergence_part(Case(subsets[1], None)), "rj")
    assert 0 < jumps["share of “add” accepted"]["value"] < 1
    assert jumps["R-hat of the number of inputs"]["value"] < 1.1


def test_log_evidence_by_sweep_ends_at_the_evidence(classes):
    logit = av.models.ard_classification(X[:50], LABELS[:50], link="logit")
    for tree in (classes[1]["ep"], fitted(logit, "ep")["ep"]):
        fit = tree["fit"]
        path = fit["log_evidence_by_sweep"].values
        assert 2 < len(path) < 40 and path[-1] == pytest.approx(float(fit["log_evidence"]))
        assert abs(path[0] - path[-1]) > 1e-6


def test_a_bound_that_falls_and_a_mode_that_is_none_are_called(classes):
    trees = dict(classes[1])
    bound = trees["vb"]["fit"]["elbo"].values.copy()
    bound[3] = bound[2] - 0.1
    trees["vb"] = replaced(trees["vb"], "fit", elbo=("iteration", bound))
    trees["laplace"] = replaced(trees["laplace"], "fit", gradient_norm=0.3)
    trees["ep"] = replaced(trees["ep"], "fit", negative_cavities=2.0)
    part = convergence_part(Case(trees, None, classes[0]))
    assert part["level"] == "bad"
    assert part["sentence"] == "Not in order: laplace, vb. To be looked at: ep."
    trees["ep"].attrs["converged"] = False
    assert "ep" in convergence_part(Case(trees, None))["sentence"].partition("looked")[0]


def test_predictions_are_scored_on_rows_kept_back_else_left_out(classes):
    model, trees = classes
    part = predictions_part(Case(trees, None, model, test=(X[50:], LABELS[50:])))
    assert part["rows"] == 40 and part["by"] == "test rows" and part["flattered"] == []
    wanted = av.diagnostics.scores(trees, model, (X[50:], LABELS[50:]), reference="ep")
    found = {m["name"]: m["scores"] for m in part["methods"]}
    assert found["vb"]["brier_difference"] == pytest.approx(wanted.loc["vb", "brier_difference"])
    left_out = predictions_part(Case(trees, None, model))
    assert left_out["rows"] == 50 and left_out["by"] == "leave-one-out"
    assert left_out["flattered"] == ["ep", "laplace"]
    assert predictions_part(Case(trees, None))["rows"] == 50  # no model: two classes by the data


def test_forecasts_that_are_no_frequencies_are_called(classes):
    model, trees = classes
    wrong = 1 - LABELS[50:]
    part = predictions_part(Case(trees, None, model, test=(X[50:], wrong)))
    assert part["level"] == "warn" and "Not calibrated: ep, laplace, vb." in part["sentence"]


def test_trees_without_likelihoods_say_why_they_are_not_scored(classes):
    bare = classes[1]["laplace"].filter(lambda node: node.name != "log_likelihood")
    part = predictions_part(Case({"laplace": bare}, None, classes[0]))
    assert part["methods"] == [] and "no log_likelihood" in part["sentence"]


def test_effects_are_judged_in_place_of_their_standardised_form():
    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 5)
        theta = pm.Deterministic("theta", pm.Normal("mu", 0, 5) + tau * pm.Normal("z", shape=8))
        effect = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]
        pm.Normal("y", theta, 12.0, observed=effect)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", av.errors.AccuracyWarning)
        tree = av.fit(model, "ep", draws=500, random_seed=1)
    part = sensitivity_part(Case({"ep": tree}, None, model))
    judged = {row["weight"].split("[")[0] for row in part["rows"]}
    assert judged == {"mu", "theta"} and part["scaled"] == ["tau", "mu"]
    assert "Not judged, since they are standardised effects: z." in part["sentence"]


def test_only_the_top_of_the_prior_is_scaled(classes):
    assert top_of_prior(classes[0]) == ["alpha_bias", "alpha"]
    fixed = av.models.ard_classification(X[:50], LABELS[:50], alpha=np.ones(4))
    assert top_of_prior(fixed) == ["bias", "w"]
    part = sensitivity_part(Case(classes[1], None, classes[0]))
    assert part["tree"] == "vb" and part["scaled"] == ["alpha_bias", "alpha"]
    assert (
        "no tree has draws"
        in sensitivity_part(Case({"ep": classes[1]["ep"]}, None, classes[0]))["sentence"]
    )
    assert "model was given" in sensitivity_part(Case(classes[1], None))["sentence"]


def test_a_prior_that_rules_and_one_that_does_not(caplog):
    """Known truth: with precision 400 the prior is the answer, with 0.01 the data are."""
    levels = {}
    for alpha in (400.0, 0.01):
        model = av.models.ard_regression(X, TARGET, alpha=np.full(4, alpha), noise=0.7)
        part = sensitivity_part(Case(fitted(model, "laplace"), None, model))
        levels[alpha] = part["level"], {r["weight"]: r["prior"] for r in part["rows"]}
    assert levels[400.0][0] == "warn" and levels[400.0][1]["w[x0]"] > 0.05
    assert levels[0.01][0] == "good" and max(levels[0.01][1].values()) < 0.05
    assert not caplog.records  # ArviZ told the reader of a report to read a book


def test_thinned_draws_give_the_same_sensitivities_and_what_is_not_known_is_no_pass(monkeypatch):
    model = av.models.ard_regression(X, TARGET, alpha=np.full(4, 400.0), noise=0.7)
    tree = av.fit(model, "laplace", draws=2000, random_seed=1, progressbar=False)
    found = {}
    for draws in (1000, 8000):
        monkeypatch.setattr(part_sensitivity, "DRAWS", draws)
        part = sensitivity_part(Case({"laplace": tree}, None, model))
        found[draws] = {row["weight"]: row["prior"] for row in part["rows"]}
    for weight, all_draws in found[8000].items():  # 1000 draws: sd 0.05 over seeds; a NaN fails
        assert abs(found[1000][weight] - all_draws) < 4 * 0.05
    usual = part_sensitivity._sensitivities

    def unknown(*arguments):
        table, *rest = usual(*arguments)
        return table.assign(prior=np.nan), *rest

    monkeypatch.setattr(part_sensitivity, "_sensitivities", unknown)
    part = sensitivity_part(Case({"laplace": tree}, None, model))
    assert part["level"] == "warn" and "could not be computed for w[x0]" in part["sentence"]


# ------------------------------------------------------------------------------------ the record


ENTRY = {
    "model": "ard_classification", "setting": "probit", "method": "ep", "hyper": "held",
    "rows": 50, "inputs": 4, "seed": 1, "replications": 1000, "failed": 0, "not_converged": 0,
    "calibrated": True, "coverage_50": 0.5, "coverage_90": 0.89, "coverage_90_se": 0.009,
    "worst": "bias", "uniformity_p": 0.2, "biased": {}, "quantities": {},
    "delta_ecdf": [0.0, 0.01, 0.0], "sha256": "0",
}  # fmt: skip


def write_record(path, entries, **changes):
    whole = {
        "format": 1, "version": "0.1.0", "command": "python -m ardvark.studies.validation",
        "grid": [0.25, 0.5, 0.75], "entries": entries, "sha256": digest(entries),
    }  # fmt: skip
    path.write_text(json.dumps(whole | changes))
    return path


def read_from(path, monkeypatch):
    for place in (calibration_record, records_of):
        monkeypatch.setattr(place, "__defaults__", (path,))


def test_the_record_is_shown_with_its_sum(classes, tmp_path, monkeypatch):
    narrow = ENTRY | {"method": "vb", "coverage_90": 0.7, "calibrated": False}
    path = write_record(tmp_path / "record.json", [ENTRY, narrow, ENTRY | {"model": "other"}])
    read_from(path, monkeypatch)
    case = Case(classes[1], None, classes[0])
    part = calibration_part(case)
    assert len(part["entries"]) == 2 and part["level"] == "warn"
    assert "ep 89.0 %; vb 70.0 %" in part["sentence"]
    assert part["sha256"] == digest([ENTRY, narrow, ENTRY | {"model": "other"}])
    assert set(calibration_figures(case)) == {"calibration record"}
    other = classes[1]["ep"].copy()
    other.attrs = {**other.attrs, "model": "user graph"}
    assert (
        "no calibration record of user graph"
        in calibration_part(Case({"ep": other}, None))["sentence"]
    )


def test_few_replications_do_not_condemn_a_method(classes, tmp_path, monkeypatch):
    few = ENTRY | {"coverage_90": 0.84, "coverage_90_se": 0.055, "replications": 30}
    many = few | {"coverage_90_se": 0.005, "replications": 3600}
    for entry, level in ((few, "good"), (many, "warn")):
        path = write_record(tmp_path / "record.json", [entry])
        read_from(path, monkeypatch)
        part = calibration_part(Case(classes[1], None, classes[0]))
        assert part["level"] == level and part["near"] == [level == "good"]


def test_a_record_that_was_changed_is_refused(tmp_path):
    good = write_record(tmp_path / "good.json", [ENTRY])
    assert records_of("ard_classification", good) == [ENTRY]
    bad = write_record(
        tmp_path / "bad.json", [ENTRY | {"coverage_90": 0.9}], sha256=digest([ENTRY])
    )
    with pytest.raises(av.errors.InputError, match="changed by hand"):
        calibration_record(bad)
    with pytest.raises(av.errors.InputError, match="format 7"):
        calibration_record(write_record(tmp_path / "new.json", [ENTRY], format=7))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(av.errors.InputError, match=r"broken\.json cannot be read"):
        calibration_record(tmp_path / "broken.json")
    assert calibration_record(tmp_path / "none.json")["entries"] == []


def test_the_shipped_record_is_whole_and_of_this_house():
    shipped = calibration_record()
    changes = (Path(__file__).resolve().parents[4] / "CHANGELOG.md").read_text()
    assert record.PLACE.exists()
    assert f"## [{shipped['version']}]" in changes  # it names the version that it was made with
    by = {(e["model"], e["setting"], e["method"], e["hyper"]): e for e in shipped["entries"]}
    ep = by["ard_classification", "probit", "ep", "held"]
    assert ep["replications"] >= 5000 and ep["failed"] == 0 and 0.88 < ep["coverage_90"] < 0.92
    exact = by["ard_regression", "noise inferred", "laplace", "held"]
    assert exact["calibrated"] and abs(exact["coverage_90"] - 0.9) < 4 * exact["coverage_90_se"]
    assert by["ard_classification", "probit", "vb", "held"]["coverage_90"] < 0.85


# -------------------------------------------------------------------------------------- the page


def test_the_sections_are_on_the_page(classes, subsets, tmp_path):
    for (model, trees), rows in ((classes, 40), (subsets, 50)):
        test = (X[50:], LABELS[50:]) if rows == 40 else None
        page, _ = written(trees, tmp_path, model=model, test=test)
        assert "could not be" not in page
        for name in ("convergence", "predictions", "sensitivity", "calibration"):
            assert "How to read this" in section(page, name)
        assert f"{rows} rows predicted" in section(page, "predictions")
        assert "<svg" in section(page, "predictions") and "<svg" in section(page, "convergence")
        assert re.search(r"<td[^>]*>(negative cavities met|R-hat of the number of inputs)", page)


def test_a_regression_has_places_and_coverage_on_its_page(tmp_path):
    model = av.models.ard_regression(X[:50], TARGET[:50])
    trees = fitted(model, "laplace", "vb")
    page, numbers = written(trees, tmp_path, model=model)
    scores = numbers["predictions"]["methods"][0]["scores"]
    assert {"rmse", "crps", "coverage_90"} <= set(scores) and 0.5 < scores["rmse"] < 1.2
    assert "<svg" in section(page, "predictions")
