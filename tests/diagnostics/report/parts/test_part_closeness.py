"""The report's verdict, closeness, evidence and leave-one-out: numbers, words, figures, notes."""

from functools import partial

import numpy as np
import pytest
import quick
from pages import section, written
from synthetic_trees import gaussian_tree, replaced, without

import ardvark as av
from ardvark.diagnostics.report.parts import closeness as part_closeness
from ardvark.diagnostics.report.parts import loo as part_loo

RNG = np.random.default_rng(5150)
X = RNG.normal(size=(24, 3))
TWO = ("laplace", "nuts")
LABEL = (X[:, 0] + 0.7 * RNG.normal(size=24) > 0).astype(int)
fit = partial(quick.fit, draws=500)


@pytest.fixture(scope="module")
def model():
    return av.models.ard_classification(X, LABEL, alpha=np.ones(4))


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    """Three approximations at the model's own precisions, and exact draws as their judge."""
    trees = {name: fit(model, name) for name in ("laplace", "ep", "exact")}
    trees["vb"] = fit(model, av.VB(prune=None))
    return written(trees, tmp_path_factory.mktemp("probit"), model=model, taddaa=True)


def test_exact_draws_are_the_reference(page):
    html, numbers = page
    methods = {row["name"]: row for row in numbers["verdict"]["methods"]}
    assert numbers["verdict"]["reference"] == "exact"
    assert {methods[n]["against"] for n in ("laplace", "ep", "vb")} == {"exact"}
    assert methods["exact"]["is_reference"] and methods["ep"]["worst_mean_error"] < 0.1
    assert methods["vb"]["worst_sd_ratio"] < 0.9  # mean field is narrow, and is called so
    assert "% too small" in methods["vb"]["verdict"]
    assert abs(methods["ep"]["elpd_difference"]) < 1.0 and methods["ep"]["speed_up"] > 0
    assert methods["ep"]["features"]["against"] == "exact"
    assert "could not be" not in html


def test_joint_figures_and_bounds_are_shown(page):
    html, numbers = page
    part = numbers["closeness"]
    assert {row["name"] for row in part["joint"]} == {"laplace", "ep", "vb"}
    assert all(row["correlation_null"] < 0.2 for row in part["joint"])
    assert set(part["bounds"]) == {"laplace", "ep", "vb"}
    for row in part["bounds"].values():
        assert row["refused"] or row["mean_error"] >= 0
    assert part["densities"] == ["exact"]
    short = {row["name"]: row["weights"][0] for row in part["taddaa"]}
    assert short["vb"]["sd_error"] > 0.05 > short["ep"]["sd_error"]
    assert "Short chains from draws of vb" in section(html, "closeness")
    text = section(html, "closeness")
    assert text.count("<svg") == 2 and "Largest correlation difference" in text


def test_evidences_stand_in_one_table(page):
    html, numbers = page
    part = numbers["evidence"]
    assert {"laplace", "ep", "elbo", "exact", "bridge"} <= {
        r["estimator"] for r in part["estimates"]
    }
    assert part["level"] == "good" and "agree with it" in part["sentence"]
    assert "below it, as a bound is" in section(html, "evidence")


def test_few_rows_are_refitted_and_stand_on_one_axis(page):
    html, numbers = page
    part = numbers["loo"]
    found = {(row["name"], row["estimator"]) for row in part["estimates"]}
    assert {("ep", "cavity"), ("ep", "refit"), ("laplace", "refit"), ("exact", "psis")} <= found
    assert part["reference"] == ["exact", "psis"] and len(part["rows"]) == 10
    assert "<svg" in section(html, "loo") and "elpd over 24 rows is " in part["sentence"]


def test_without_a_model_the_notes_say_what_is_missing(tmp_path):
    rng = np.random.default_rng(1)
    trees = {m: gaussian_tree(rng, np.zeros(3), np.ones(3), method=m, draws=200) for m in TWO}
    html, numbers = written(trees, tmp_path)
    assert "no bridge sampling" in " ".join(numbers["evidence"]["notes"])
    assert "No model was given" in section(html, "evidence")
    bare = {name: without(tree, "log_likelihood") for name, tree in trees.items()}
    bare["laplace"] = without(bare["laplace"], "fit")
    html, numbers = written(bare, tmp_path)
    assert numbers["loo"]["estimates"] == [] and "could not be" not in section(html, "loo")


def test_a_missed_mode_and_a_wrong_evidence_are_red(tmp_path):
    rng = np.random.default_rng(2)
    mean, sd = np.zeros(3), np.ones(3)
    laplace = gaussian_tree(rng, mean, sd)
    nuts = gaussian_tree(rng, mean, sd, method="nuts")
    bias = rng.normal(size=(4, 1000)) + 6 * (rng.random((4, 1000)) < 0.3)
    nuts = replaced(nuts, "posterior", bias=(("chain", "draw"), bias))
    wrong = replaced(laplace, "fit", log_evidence=((), 3.0))
    html, numbers = written({"laplace": wrong, "nuts": nuts}, tmp_path)
    assert "a mode of bias is missed (near 6" in numbers["verdict"]["sentence"]
    assert numbers["verdict"]["level"] == "bad"
    assert "bias near 6" in section(html, "closeness")
    assert numbers["evidence"]["level"] == "bad"
    assert "Compute no Bayes factor" in section(html, "evidence")


def test_a_failed_figure_is_a_note(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no ink")

    monkeypatch.setattr(part_closeness, "_overlay", broken)
    monkeypatch.setattr(part_loo, "draw_loo", broken)
    rng = np.random.default_rng(3)
    trees = {m: gaussian_tree(rng, np.zeros(3), np.ones(3), method=m, draws=200) for m in TWO}
    html, numbers = written(trees, tmp_path)
    assert "The figure “densities against nuts” could not be drawn" in section(html, "closeness")
    assert "The figure “loo” could not be drawn" in section(html, "loo")
    assert numbers["loo"]["estimates"]
