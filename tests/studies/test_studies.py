"""The units of the papers on small settings: whole, finite, and what they should be."""

import os

import numpy as np
import pytensor
import pytest
from sklearn.cross_decomposition import CCA

from ardvark.studies.papers import (
    madelon,
    mirzaei2017,
    mirzaei_data,
    mirzaei_svr,
    qi2004,
    qi_curves,
    tipping2001,
    usps,
)

COLLECTION = os.environ.get("ARDVARK_DATA", "")
SIMULATED = ("sinc", "sinc_uniform", "friedman1", "friedman2", "friedman3")
FROM_FILES = tuple(name for name in tipping2001.SETS if name not in SIMULATED)


def needs_file(name):
    """Skip a test whose data are in no folder of the search path."""
    if not COLLECTION:
        pytest.skip("ARDVARK_DATA is not set: the collection of .npz files is not at hand")
    folders = COLLECTION.split(os.pathsep)
    if not any(os.path.exists(os.path.join(folder, f"{name}.npz")) for folder in folders):
        pytest.skip(f"{name}.npz is in no folder of ARDVARK_DATA")


def check(found, *, most_vectors):
    for figure in ("error", "vectors"):
        assert np.isfinite(found[figure]) and found[figure] >= 0, figure
    assert found["vectors"] <= most_vectors
    assert found["converged"]


# --- Tipping 2001 ----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", tipping2001.RULES)
@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_units_are_finite(name, rule, monkeypatch):
    monkeypatch.setattr(tipping2001, "BOXES", (4.0,))
    tipping2001._chosen_once.cache_clear()
    for number in range(2):
        found = tipping2001.fitted(number, name, rule, n_train=40)
        check(found, most_vectors=40)
        assert found["width"] in tipping2001.SETS[name].widths


@pytest.mark.parametrize("name", FROM_FILES)
def test_units_of_data_files_are_finite(name):
    case = tipping2001.SETS[name]
    needs_file(case.data)
    found = tipping2001.fitted(0, name, "validation", n_train=60)
    check(found, most_vectors=60)
    if case.error == "per cent":
        assert found["error"] < 50
    if case.splits > 1:
        assert tipping2001.fitted(1, name, "validation", n_train=60)["error"] != found["error"]


def test_sinc_is_the_slide_s_in_its_unit():
    found = [tipping2001.fitted(number, "sinc", "validation") for number in range(4)]
    error = np.array([one["error"] for one in found])
    noise = error.std(ddof=1) / 2
    assert abs(error.mean() - 0.326) < 4 * noise < 0.326
    assert 4 <= np.mean([one["vectors"] for one in found]) <= 10  # 6.7 on the slide


@pytest.mark.parametrize("rule", ["validation", "svm"])
def test_settings_are_chosen_without_the_test_rows(rule, monkeypatch):
    monkeypatch.setattr(tipping2001, "BOXES", (1.0, 16.0))
    case = tipping2001.SETS["friedman2"]
    part = tipping2001.split(case, 0, 40)
    blind = part._replace(X_test=part.X_test[:0], t_test=part.t_test[:0])
    assert tipping2001.validated(part, case, rule) == tipping2001.validated(blind, case, rule)


def test_input_scales_beat_one_width_where_inputs_are_irrelevant():
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        found = tipping2001.input_scales(0, "friedman1", n_train=60)
    check(found, most_vectors=60)
    assert len(found["input_scales"]) == 10
    assert found["error"] < tipping2001.fitted(0, "friedman1", "validation", 60)["error"]


# --- Qi et al. 2004 --------------------------------------------------------------------------


def check_rules(found, least, most):
    for rule in qi2004.RULES:
        for figure in ("errors", "log_probability", "features"):
            assert np.isfinite(found[f"{rule}.{figure}"]), (rule, figure)
        assert 0 <= found[f"{rule}.errors"] <= least and found[f"{rule}.log_probability"] < 0
        assert 0 <= found[f"{rule}.features"] <= most


def test_units_of_qi():
    check_rules(qi2004.synthetic(0, ("random", 20)), 50, 200)
    needs_file("colon_alon")
    settings = {"data": "colon_alon", "n_train": 50, "tolerance": 1e-4}
    check_rules(qi2004.genes(0, start=None, **settings), 12, 2000)
    random = [qi2004.genes(n, start=("random", 150), **settings) for n in range(2)]
    assert random[0] != random[1]  # a start of its own for each partition
    needs_file("raetsch_breast_cancer")
    found = qi2004.kernels(0, "raetsch_breast_cancer", 100, 5.0)
    check_rules(found, 50, 101)
    assert 1 <= found["svm.vectors"] <= 100 and 1 <= found["laplace.features"] <= 101
    assert all(15 < found[f"{name}.errors"] < 45 for name in ("svm", "ep", "laplace"))


def test_rivals_of_qi_find_more_than_chance():
    needs_file("colon_alon")
    found = qi2004.rivals(1, "colon_alon", 50)
    errors = [value for name, value in found.items() if name.endswith("errors")]
    assert len(errors) == 8 and max(errors) <= 6 and np.mean(errors) < 4  # of 12; 22 to 40 rows


# --- U.S.P.S., Madelon -----------------------------------------------------------------------


def test_ten_digits_on_some_rows():
    needs_file("usps")
    found = usps.relevance_vectors(0, rows=300, width=5.0)
    assert len(found["vectors_by_class"]) == 10
    assert 0 < found["distinct_vectors"] <= found["vectors"] < 300
    assert 0 < found["error_se"] < found["error"] < 30  # chance is 90


def test_a_part_of_madelon():
    needs_file("madelon")
    found = madelon.selected(0, "fisher", "svm", most=2, rows=150)
    assert found["smallest.count"] <= 2 and len(found["cross_validation_error"]) == 2
    assert 0 < found["smallest.error"] <= 60 and 30 < found["smallest.auc"] < 100
    assert len(madelon.ranked(0, "relief", rows=150, most=4)["features"]) == 4


def test_evidence_prefers_the_pruned_classifier_of_figure_1():
    """Under a step function the evidence is an angle: a half with one input, less with both."""
    found = qi_curves.overfitting(0)
    both = 0.25 + np.arctan(qi_curves.LEAN) / np.pi
    assert found["exact"][0] == pytest.approx(np.log(both), abs=1e-12)
    assert found["exact"][-1] == pytest.approx(np.log(0.5), abs=1e-5)
    assert found["ep"][0] == pytest.approx(found["exact"][0], abs=2e-4)
    assert found["ep.gain"] > 0.4 and found["exact.gain"] > 0.5
    assert found["bayes_point"] == pytest.approx(np.sqrt([0.5, 0.5]), abs=1e-6)


def test_criteria_along_a_path():
    found = qi_curves.criteria(0, "synthetic", 30, None)
    assert len(found["test_error"]) == len(found["evidence"]) > 5
    assert np.all(np.diff(found["evidence"]) <= 1e-6)  # minus the log evidence falls along a path
    for name in ("evidence", "features", "loo_error", "loo_probability"):
        expected = np.corrcoef(found[name], found["test_error"])[0, 1]
        assert found[f"{name}.correlation"] == pytest.approx(expected, abs=1e-12)


# --- Mirzaei et al. 2017 -----------------------------------------------------------------------


@pytest.fixture
def few_widths(monkeypatch):
    monkeypatch.setattr(mirzaei2017, "GAMMAS", (0.25, 1.0))
    monkeypatch.setattr(mirzaei2017, "WIDE", (2.0, 8.0))
    mirzaei2017._tried.cache_clear()
    yield
    mirzaei2017._tried.cache_clear()


@pytest.mark.parametrize("machine", [*mirzaei2017.SPARSE, *mirzaei2017.RIVALS])
def test_machines_on_2d_sin(machine, few_widths):
    found = mirzaei2017.realise(0, "sin2d", machine, n=30)
    assert 1.0 < found["error"] < 4.0  # the noise alone is 1
    assert 0.0 <= found["scc"] < 0.6
    assert 0 <= found["relevant_found"] <= 2 and found["features"] <= 10


def test_elimination_keeps_what_matters():
    """The two inputs of a strong signal outlive eight of noise, whatever the kernel."""
    part = mirzaei_data.part_of("sin2d", 200, 0)
    signal = np.sin(2 * part.X[:, 3]) + part.X[:, 7]
    for kind in ("gau", "lap"):
        left = mirzaei_svr.RIVALS[f"rfe_{kind}"](part._replace(t=signal))
        assert [len(kept) for kept in left] == list(range(10, 0, -1))
        assert set(left[-2]) == {3, 7}


def test_canonical_correlation_together_and_each():
    """An input that only cancels the error of another: nothing alone, second in the direction."""
    rng = np.random.default_rng(17)
    t, error, weak = rng.standard_normal((3, 4000))
    X = np.column_stack([weak + 0.3 * t, t + error, error])
    part = mirzaei_data.part_of("sin2d", 30, 0)._replace(X=X, t=t)
    together, each = (mirzaei_svr.RIVALS[name](part) for name in ("slcca", "slcca_each"))
    assert [set(kept) for kept in together] == [{1}, {1, 2}, {0, 1, 2}]
    assert [set(kept) for kept in each] == [{1}, {0, 1}, {0, 1, 2}]
    weights = CCA(1, scale=True).fit(X, t[:, None]).x_weights_[:, 0]
    assert tuple(np.argsort(-np.abs(weights))) == together[-1]


@pytest.mark.parametrize("machine", ["vrsfm", "rsfm", "rvm"])
def test_machines_on_ripley_with_noise_inputs(machine, few_widths):
    found = mirzaei2017.realise(0, "ripley", machine, n=40)
    assert found["error"] <= (500 if machine == "rvm" else 350)  # of 1000; a coin has 500
    assert found["samples"] < 40


@pytest.mark.parametrize("machine", [m for m in mirzaei2017.LIBRARY if m != "gp"])
def test_classifiers_of_the_library(machine):
    needs_file("crabs")
    found = mirzaei2017.realise(0, "crabs_balanced", machine)
    assert 0 <= found["error"] < 25  # of 120


@pytest.mark.parametrize("name", mirzaei_data.SIZES)
def test_cuts_of_real_data_are_those_of_table_2(name):
    needs_file(name)
    part = mirzaei_data.part_of(name, None, 0)
    found = len(part.t), len(part.t_valid), len(part.t_test)
    assert found == mirzaei_data.SIZES[name]
    assert abs(part.t.mean()) < 1e-12 and part.t.std() == pytest.approx(1)


def test_a_real_cut_is_near_table_3(few_widths):
    needs_file("bodyfat")
    found = mirzaei2017.realise(0, "bodyfat", "rsfm")
    assert found["error"] < 10 * 0.00002


@pytest.mark.parametrize("name", mirzaei_data.CLASSES)
def test_cuts_of_two_classes_are_the_papers(name):
    needs_file(mirzaei_data.CLASSES[name][0])
    part = mirzaei_data.part_of(name, None, 0)
    sizes = {"pima": (200, 332), "crabs": (80, 120), "wdbc": (300, 269)}
    assert (len(part.t), len(part.t_test)) == sizes[name.partition("_")[0]]
    assert set(np.unique(part.t)) == {-1.0, 1.0}


def test_crabs_are_cut_by_sex_and_colour():
    """The colour is not in X: the order of the rows has it, as a file that has both shows."""
    needs_file("crabs")
    by_sex, by_colour = (
        mirzaei_data.part_of(f"crabs_{n}", None, 0) for n in ("balanced", "species")
    )
    assert np.array_equal(by_sex.X, by_colour.X)  # the same rows
    groups, counts = np.unique(by_sex.t + 2 * by_colour.t, return_counts=True)
    assert len(groups) == 4 and set(counts) == {20}
    folder = next(f for f in COLLECTION.split(os.pathsep) if os.path.exists(f"{f}/crabs.npz"))
    with np.load(f"{folder}/crabs.npz") as file:
        assert np.array_equal(file["species"], np.arange(200) >= 100)
