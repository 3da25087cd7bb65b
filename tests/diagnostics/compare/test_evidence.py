"""Evidences side by side: one quantity at a time, disagreement called, Bayes factors refused."""

import numpy as np
import pytest
from quick import fit
from synthetic_trees import gaussian_tree, replaced

import ardvark as av
from ardvark.diagnostics.compare.evidence import bayes_factor, evidence, evidence_findings
from ardvark.errors import InputError

RNG = np.random.default_rng(404)
X = RNG.normal(size=(40, 3))
T = X @ [1.0, 0.0, -0.5] + 0.5 * RNG.normal(size=40)
LABEL = (X[:, 0] + RNG.normal(size=40) > 0).astype(int)


@pytest.fixture(scope="module")
def probit():
    """One model at its own precisions by every estimator that takes no minute."""
    model = av.models.ard_classification(X, LABEL, alpha=np.ones(4))
    trees = {name: fit(model, name) for name in ("laplace", "ep", "exact", "elliptical_slice")}
    trees["vb"] = fit(model, av.VB(prune=None))
    return model, trees


def test_all_estimates_of_a_gaussian_model_lead_to_one_number():
    model = av.models.ard_regression(X, T, alpha=np.ones(4), noise=0.5)
    trees = {name: fit(model, name) for name in ("laplace", "ep", "exact", "elliptical_slice")}
    table = av.evidence(trees, model)
    assert set(table["quantity"]) == {"p(t | θ of laplace)"}
    assert table.loc["exact", "kind"].iloc[0] == "exact"
    truth = float(trees["exact"]["fit"]["log_evidence"])
    assert (table["log_evidence"] - truth).abs().max() < 0.01 and table["agrees"].all()
    ((level, sentence, _),) = evidence_findings(table)
    assert level == "good" and "other estimates agree with it" in sentence


def test_a_probit_by_every_road(probit):
    model, trees = probit
    table = av.evidence(trees, model)
    by = table.reset_index().set_index("estimator")
    assert {"laplace", "ep", "elbo", "exact", "bridge", "importance sampling"} <= set(by.index)
    assert by.at["elbo", "kind"] == "lower bound" and by.at["elbo", "difference"] < 0
    simulated = table[table["kind"] == "simulation"]
    assert len(simulated) >= 4 and simulated["agrees"].all()
    assert evidence_findings(table)[0][0] == "good"
    without_model = av.evidence(trees)
    assert "bridge" not in set(without_model["estimator"])


def test_a_wrong_evidence_is_called_and_no_bayes_factor_made(probit):
    model, trees = probit
    good = av.evidence(trees, model)
    wrong = trees | {
        "laplace": replaced(trees["laplace"], "fit", log_evidence=((), -10.0)),
    }
    table = av.evidence(wrong, model)
    level, sentence, advice = evidence_findings(table)[0]
    assert level == "bad" and "−10.00 (laplace)" in sentence
    assert "Compute no Bayes factor" in advice
    refused = bayes_factor(table, good)
    assert np.isnan(refused.log_bayes_factor) and str(refused).startswith("no Bayes factor: ")
    # a bound above the evidence is a contradiction as well; one below it is not
    high = replaced(trees["vb"], "fit", elbo=("iteration", np.array([-5.0])))
    assert evidence_findings(av.evidence(trees | {"vb": high}, model))[0][0] == "bad"


def test_bayes_factor_of_two_gaussian_models():
    full = av.models.ard_regression(X, T, alpha=np.ones(4), noise=0.5)
    less = av.models.ard_regression(X[:, 1:], T, alpha=np.ones(3), noise=0.5)
    tables, truth = [], []
    for model in (full, less):
        trees = {name: fit(model, name) for name in ("exact", "elliptical_slice")}
        tables.append(av.evidence(trees, model))
        truth.append(float(trees["exact"]["fit"]["log_evidence"]))
    found = av.diagnostics.bayes_factor(*tables)
    assert found.log_bayes_factor == pytest.approx(truth[0] - truth[1])
    assert found.by == ("exact", "exact") and "log Bayes factor" in str(found)


def test_quantities_are_never_mixed():
    rng = np.random.default_rng(1)
    mean, sd = np.zeros(3), np.ones(3)
    trees = {
        "laplace": gaussian_tree(rng, mean, sd, hyper="evidence", alpha=[1.0, 2.0]),
        "ep": gaussian_tree(rng, mean, sd, alpha=[1.0, 2.0]),
        "other": gaussian_tree(rng, mean, sd, alpha=[1.0, 3.0]),
        "vb": gaussian_tree(rng, mean, sd, hyper="posterior"),
    }
    table = evidence(trees)
    first = table.groupby(level=0)["quantity"].first()
    assert first["laplace"] == first["ep"] == "p(t | θ of laplace)"
    assert first["other"] == "p(t | θ of other)" and first["vb"] == "p(t)"
    with pytest.raises(InputError, match="empty"):
        evidence({})


def test_heavy_weights_give_no_importance_sampling():
    rng = np.random.default_rng(2)
    tree = gaussian_tree(rng, np.zeros(4), np.ones(4), target_sd=3 * np.ones(4))
    table = evidence({"laplace": tree})
    assert set(table["estimator"]) == {"laplace"}
    assert "k-hat" in table.attrs["notes"][0]
    assert evidence_findings(table)[0][:2] == (
        "warn",
        "log p(t | θ of laplace) is −7.00 (laplace); no other estimate to compare it with.",
    )
