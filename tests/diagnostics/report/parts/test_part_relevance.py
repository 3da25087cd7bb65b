"""The part "Relevance of the inputs" of a report, and its picture: each model by what it has."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from synthetic_trees import gaussian_tree, replaced

import ardvark as av
from ardvark.diagnostics.compare.reference import choose_reference
from ardvark.diagnostics.plots.relevance import plot_relevance
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.report.parts import relevance as part_relevance
from ardvark.diagnostics.report.parts.relevance import relevance_part
from ardvark.diagnostics.report.report import report

DIMS = ("chain", "draw", "feature")
NAMES = ["x0", "x1", "x2", "x3", "x4", "x5"]
SIGNAL = np.array([3.0, 0.1, 2.0, 0.0, 1.0, 0.0])
SD = np.array([0.5, 0.5, 0.5, 0.0, 0.5, 0.0])


def tree_of(seed, mean=SIGNAL, sd=SD, **settings):
    rng = np.random.default_rng([902, seed])
    return gaussian_tree(rng, mean, sd, bias=False, draws=300, **settings)


def with_subsets(tree, seed=3):
    rng = np.random.default_rng([903, seed])
    on = rng.uniform(size=(4, 300, 6)) < [0.99, 0.1, 0.5, 0.1, 0.1, 0.1]
    on[..., 5] = ~on[..., 2]  # x2 and x5 replace each other
    return replaced(tree, "posterior", included=(DIMS, on.astype(int)))


def twins(tree):
    X = tree["constant_data"]["X"].to_numpy().copy()
    X[:, 5] = X[:, 2]
    return replaced(tree, "constant_data", X=(("row", "feature"), X))


def part_of(trees):
    return relevance_part(Case(trees, choose_reference(trees)))


def test_weights_are_ranked_and_what_is_off_is_said():
    part = part_of({"nuts": tree_of(0, sd=SD + 0.1, method="nuts"), "ep": tree_of(1)})
    assert part["leader"] == "nuts" and part["features"][:3] == ["x0", "x2", "x4"]
    assert part["sentence"].startswith("Under nuts the most relevant inputs are x0, x2, x4.")
    assert "ep shares 3 of the first 3 (Kendall tau" in part["sentence"]
    assert "switches 2 of 6 off" in part["sentence"]
    assert part["shown"]["ep"]["x3"]["account"] == "switched off"
    assert part["shown"]["ep"]["head"]["account"] == "mean ± sd"
    assert part["agreement"][0]["chance"] == pytest.approx(0.5)
    assert part["subsets"] == {} and part["samples"] == {} and part["groups"]["groups"] == []


def test_disagreement_is_told():
    part = part_of({"nuts": tree_of(0, method="nuts"), "ep": tree_of(1, SIGNAL[::-1], SD[::-1])})
    assert "ep shares 0 of the first 3" in part["sentence"]
    assert part["agreement"][0]["tau"] < 0


def test_subsets_and_groups_have_their_tables(tmp_path):
    tree = twins(with_subsets(tree_of(2, sd=SD + 0.1, method="nuts")))
    path = report({"jumps": tree}, tmp_path / "report.html")
    part = json.loads(path.with_suffix(".json").read_text())["relevance"]
    assert part["shown"]["jumps"]["head"]["account"] == "P(included)"
    top = part["subsets"]["jumps"]
    assert len(top["top"]) == 10 and top["sizes"][2]["size"] == 2
    assert sum(row["probability"] for row in top["sizes"]) == pytest.approx(1)
    group = part["groups"]["methods"]["jumps"][0]
    assert part["groups"]["groups"][0]["features"] == ["x2", "x5"]
    assert group["inclusion"] == 1 and group["largest_alone"] < 0.6
    assert "1 group of correlated inputs." in part["sentence"]
    page = path.read_text()
    assert "How many inputs, by jumps" in page and "each group taken as one" in page
    assert "could not be" not in page


def test_kappas_and_scales_have_no_weights_and_no_groups(tmp_path):
    scale = np.array([3.0, 0.1, 2.0, 0.2, 1.0, 0.3])
    eta = twins(replaced(tree_of(4), "theta", input_scale=("feature", scale)))
    part = part_of({"laplace": eta})
    assert part["shown"]["laplace"]["head"]["account"] == "scale"
    drawn = np.broadcast_to(scale, (4, 300, 6))
    part = part_of({"svm": replaced(eta, "posterior", kappa_a=(DIMS, drawn))})
    assert part["shown"]["svm"]["head"]["account"] == "kappa"


def test_vectors_of_a_kernel_are_weights_and_samples_are_listed():
    vectors = tree_of(5)
    posterior = vectors["posterior"].to_dataset().rename(feature="basis")
    rows = vectors.filter(lambda node: node.name != "fit")
    rows["posterior"] = xr.DataTree(posterior.assign_coords(basis=[f"row{i}" for i in range(6)]))
    part = part_of({"rvm": rows})
    assert part["noun"] == "weight" and part["features"][0] == "row0"
    part = part_of({"ard": tree_of(0), "rvm": rows})
    assert part["left_out"] == ["rvm"] and "no relevance of inputs" in part["sentence"]


def test_too_many_inputs_are_not_grouped(monkeypatch):
    monkeypatch.setattr(part_relevance, "MOST_GROUPED", 5)
    part = part_of({"nuts": twins(tree_of(7, method="nuts"))})
    assert part["groups"]["groups"] == [] and "6 inputs are too many" in part["groups"]["why"]


def test_a_block_that_fails_costs_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(part_relevance, "correlated_groups", lambda X: 1 / 0)
    path = report({"nuts": tree_of(6, sd=SD + 0.1, method="nuts")}, tmp_path / "report.html")
    page = path.read_text()
    assert "Groups of correlated inputs could not be computed: ZeroDivisionError" in page
    assert "Relevance by method" in page


def test_projection_is_shown_for_a_linear_model_and_refused_by_name():
    rng = np.random.default_rng(906)
    X = rng.normal(size=(60, 4))
    t = X @ [2.0, 0.0, -1.0, 0.0] + 0.5 * rng.normal(size=60)
    model = av.models.ard_regression(X, t)
    tree = av.fit(model, "laplace", draws=50, random_seed=1, progressbar=False)
    found = relevance_part(Case({"laplace": tree}, None, model))["projection"]
    assert found["suggested"] == 2 and set(found["columns"]) == {"x0", "x2"}
    assert [row["size"] for row in found["path"]][:3] == [0, 1, 2]
    alone = relevance_part(Case({"laplace": tree}, None))
    assert "no model was given" in alone["projection"]["why"]
    machine = av.models.sample_feature_regression(X, t)
    why = relevance_part(Case({"laplace": tree}, None, machine))["projection"]["why"]
    assert "sample_feature" in why


def test_the_picture_sorts_by_mean_rank_and_shows_ranks():
    axes = plot_relevance({"a": tree_of(0), "b": tree_of(1)}, most=4)
    labels = [text.get_text() for text in axes[0].get_yticklabels()]
    assert labels == ["x0", "x2", "x4", "x1"]
    assert [text.get_text() for text in axes[1].texts] == ["1", "2", "3", "4"] * 2
    plt.close("all")
