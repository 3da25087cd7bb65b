"""The studies on small settings: their tables are whole, finite, and beside what was published."""

import json
import os
import sys

import numpy as np
import pytensor
import pytest

from ardvark.studies import mirzaei2017, mirzaei_data, qi2004, tipping2001, usps

COLLECTION = os.environ.get("ARDVARK_DATA", "")
SIMULATED = ("sinc", "sinc_uniform", "friedman1", "friedman2", "friedman3")
FROM_FILES = tuple(name for name in tipping2001.EXPERIMENTS if name not in SIMULATED)


def needs_file(name):
    """Skip a test whose data are in no folder of the search path."""
    if not COLLECTION:
        pytest.skip("ARDVARK_DATA is not set: the collection of .npz files is not at hand")
    folders = COLLECTION.split(os.pathsep)
    if not any(os.path.exists(os.path.join(folder, f"{name}.npz")) for folder in folders):
        pytest.skip(f"{name}.npz is in no folder of ARDVARK_DATA")


def check_row(row, *, most_vectors):
    for figure in ("error", "slide_error", "vectors", "slide_vectors"):
        assert np.isfinite(row[figure]) and row[figure] >= 0, figure
    assert row["vectors"] <= most_vectors
    assert row["not_converged"] == 0


# --- Tipping 2001 ----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", tipping2001.RULES)
@pytest.mark.parametrize("name", SIMULATED)
def test_regression_rows_are_finite_beside_the_slide(name, rule):
    row = tipping2001.replicate(name, splits=2, rule=rule, n_train=40)
    check_row(row, most_vectors=40)
    assert (row["data"], row["choice"], row["splits"], row["rows"]) == (name, rule, 2, 40)
    assert row["error_se"] > 0 and row["width"] in tipping2001.EXPERIMENTS[name].widths


@pytest.mark.parametrize("name", FROM_FILES)
def test_rows_of_data_files_are_finite_beside_the_slide(name):
    experiment = tipping2001.EXPERIMENTS[name]
    needs_file(experiment.data)
    row = tipping2001.replicate(name, splits=2, n_train=60)
    check_row(row, most_vectors=60)
    assert row["splits"] == (1 if name == "pima" else 2)
    assert row["error_se"] > 0  # binomial where there is one split
    if experiment.error == "per cent":
        assert row["error"] < 50


def test_sinc_is_the_slide_s_in_its_unit():
    row = tipping2001.replicate("sinc", splits=4)
    assert abs(row["error"] - row["slide_error"]) < 4 * row["error_se"] < row["slide_error"]
    assert 4 <= row["vectors"] <= 10  # 6.7 on the slide


def test_widths_are_chosen_without_the_test_rows():
    experiment = tipping2001.EXPERIMENTS["friedman2"]
    part = tipping2001.split(experiment, 0, 40)
    blind = part._replace(X_test=part.X_test[:0], t_test=part.t_test[:0])
    width = tipping2001.validated_width(part, experiment)
    assert width == tipping2001.validated_width(blind, experiment)
    with pytest.raises(ValueError, match="validation, evidence"):
        tipping2001.replicate("sinc", rule="luck")


def test_input_scales_beat_one_width_where_inputs_are_irrelevant():
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        row = tipping2001.input_scales("friedman1", n_train=60)
    check_row(row, most_vectors=60)
    assert row["error"] < tipping2001.replicate("friedman1", splits=1, n_train=60)["error"]
    assert len(row["input_scales"].split()) == 10
    with pytest.raises(ValueError, match="friedman1, friedman2, friedman3"):
        tipping2001.input_scales("sinc")


def test_the_command_prints_rows(monkeypatch, capsys):
    command = ["tipping2001", "--data", "sinc", "--splits", "1", "--json"]
    monkeypatch.setattr(sys, "argv", command)
    tipping2001.main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["choice"] for row in rows] == list(tipping2001.RULES)
    assert all(row["error_se"] is None for row in rows)  # one split tells nothing of the spread
    monkeypatch.setattr(sys, "argv", command[:-1])
    tipping2001.main()
    header, first, second = capsys.readouterr().out.splitlines()
    assert "slide_vectors" in header and len(header) == len(first) == len(second)


# --- Qi et al. 2004 --------------------------------------------------------------------------


def test_gene_expression_rows_are_finite_beside_the_published():
    experiment = qi2004.EXPERIMENTS["colon"]
    needs_file(experiment.data)
    rows = qi2004.replicate("colon", partitions=2)
    assert [row["rule"] for row in rows] == list(qi2004.RULES)
    for row in rows:
        for figure in ("errors", "errors_se", "paired_gain", "log_probability", "features"):
            assert np.isfinite(row[figure]), figure
        assert 0 <= row["errors"] <= 12 and row["log_probability"] < 0
    assert [row["published_errors"] for row in rows] == [2.54, 1.63, None]


# --- U.S.P.S. --------------------------------------------------------------------------------


def test_ten_digits_on_some_rows(capsys):
    needs_file("usps")
    assert usps.main(["--rows", "300"]) == 0
    answer = json.loads(capsys.readouterr().out)
    found = answer["found"]
    assert answer["published"]["rvm"] == [5.1, 316]
    assert found["rows"] == 300 and len(found["vectors_by_class"]) == 10
    assert 0 < found["distinct_vectors"] <= found["vectors"] < 300
    assert found["error"] < 30  # chance is 90
    assert found["peak_megabytes"] > 0 and found["cpu_fit"] > 0


# --- Mirzaei et al. 2017 -----------------------------------------------------------------------


@pytest.fixture
def few_widths(monkeypatch):
    monkeypatch.setattr(mirzaei2017, "GAMMAS", (0.25, 1.0))
    monkeypatch.setattr(mirzaei2017, "WIDE", (2.0, 8.0))


@pytest.mark.parametrize("machine", mirzaei2017.MACHINES)
def test_machines_on_2d_sin(machine, few_widths):
    line = mirzaei2017.replicate("sin2d", machine, n=30, realisations=2)
    assert line["n"] == 30 and line["realisations"] == 2
    assert 1.0 < line["error"] < 4.0  # the noise alone is 1
    assert 0.0 <= line["scc"] < 0.6 and line["error_se"] > 0
    assert 0 <= line["relevant_found"] <= 2 and line["features"] <= 10
    assert line["paper_error"] is None  # drawn, not printed


@pytest.mark.parametrize("machine", ["vrsfm", "rsfm", "rvm"])
def test_machines_on_ripley_with_noise_inputs(machine, few_widths):
    line = mirzaei2017.replicate("ripley", machine, n=40, realisations=1)
    assert line["error"] <= (500 if machine == "rvm" else 350)  # of 1000; a coin has 500
    assert line["samples"] < 40


def test_realisations_that_are_stored_are_not_computed_again(few_widths, tmp_path, monkeypatch):
    store = tmp_path / "done.jsonl"
    first = mirzaei2017.replicate("sin2d", "rsfm", 30, 1, store)
    two = mirzaei2017.replicate("sin2d", "rsfm", 30, 2, store)
    assert two["realisations"] == 2 and two["error"] != first["error"]
    monkeypatch.setattr(mirzaei2017, "realise", lambda *_: pytest.fail("computed again"))
    assert mirzaei2017.replicate("sin2d", "rsfm", 30, 2, store) == two


@pytest.mark.parametrize("name", mirzaei_data.SIZES)
def test_cuts_of_real_data_are_those_of_table_2(name):
    needs_file(name)
    part = mirzaei_data.part_of(name, None, 0)
    found = len(part.t), len(part.t_valid), len(part.t_test)
    assert found == mirzaei_data.SIZES[name]
    assert abs(part.t.mean()) < 1e-12 and part.t.std() == pytest.approx(1)


def test_a_real_line_stands_beside_table_3(few_widths):
    needs_file("bodyfat")
    line = mirzaei2017.replicate("bodyfat", "rsfm", realisations=1)
    assert line["paper_error"] == 0.00002
    assert line["error"] < 10 * line["paper_error"]


@pytest.mark.parametrize("name", mirzaei_data.CLASSES)
def test_cuts_of_two_classes_are_the_papers(name):
    needs_file(mirzaei_data.CLASSES[name][0])
    part = mirzaei_data.part_of(name, None, 0)
    sizes = {"pima": (200, 332), "crabs": (80, 120), "wdbc": (300, 269)}
    assert (len(part.t), len(part.t_test)) == sizes[name]
    assert set(np.unique(part.t)) == {-1.0, 1.0}


def test_an_unknown_machine_is_named():
    with pytest.raises(ValueError, match="vrsfm"):
        mirzaei2017.replicate("sin2d", "lasso")
