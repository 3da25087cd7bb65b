"""The lanes of validation: each accepts what is right, finds what is planted, and loses nothing."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import norm

import ardvark as av
from ardvark.diagnostics.calibration.checks import uniformity_p
from ardvark.diagnostics.calibration.record import calibration_record
from ardvark.diagnostics.calibration.replication import worth
from ardvark.inference.graph.read import read_model
from ardvark.inference.methods import METHODS
from ardvark.inference.running.executor import seed_of
from ardvark.models.registry import MODELS
from ardvark.studies.experiments import Experiment, Store
from ardvark.studies.validation import (
    calibration,
    certificate,
    hard_inputs,
    kernels,
    page,
    references,
    tiny_mixtures,
)
from ardvark.studies.validation.__main__ import LANES, lane_of
from ardvark.studies.validation.cases import CASES, LEFT_OUT, replicator
from ardvark.studies.validation.lane import (
    RESULTS,
    Lane,
    fill,
    read_units,
    stored,
    take_units,
    write_lane,
    write_units,
)
from ardvark.studies.validation.moves.joint import Kernel, geweke, two_samples

# --------------------------------------------------------------------------------- which pairs


def test_every_registered_pair_is_calibrated_or_says_why_not():
    there = {(case.model, case.method.split(",")[0]) for case in CASES.values()}
    registered = {
        (model, method) for model, e in MODELS.items() for method in e.methods if method in METHODS
    }
    assert registered - there == set(LEFT_OUT)
    assert all(LEFT_OUT.values())


def test_every_treatment_of_the_hyperparameters_and_every_step_is_there():
    treatments = {case.hyper for case in CASES.values()}
    for kernel in ("elliptical", "independence", "exact"):
        assert f"Sampled({kernel})" in treatments
    assert {"held", "posterior", "Integrated()", "Evidence()", "Predictive()"} <= treatments
    steps = {case.method.split(", ")[1] for case in CASES.values() if "pm.sample" in case.method}
    named = {name for name in av.steps.__all__ if name.endswith(("Step", "Jump"))}
    assert steps | {"ScaleStep"} == named  # ScaleStep and the Gibbs steps are beside the others


# ------------------------------------------------------------------------------- replications


def test_a_chain_is_worth_its_smallest_effective_size():
    rng = np.random.default_rng(1)
    good = rng.normal(size=(4, 250, 3))
    slow = np.repeat(rng.normal(size=(4, 5, 1)), 50, axis=1)
    assert worth({"w": good}) == 99
    assert worth({"w": good, "b": slow}) < 30
    assert worth({"w": good, "z": np.ones((4, 250, 2))}) == 99  # what does not vary has no size


@pytest.mark.parametrize(
    "name",
    [
        "ard_regression/noise inferred/pm.sample, LaplaceStep/posterior",
        "subset_regression/noise known/pm.sample, SubsetJump/posterior",
    ],
)
def test_chains_of_steps_are_placed_in_full_and_again_the_same(name):
    one = replicator(name)
    quick = type(one)(one.model, one.method, one.settings, one.hold, 12, 2)
    first, again = (quick.run(seed_of(1, 0)) for _ in "ab")
    assert first == again and "failed" not in first
    free = {rv.name for rv in one.model.free_RVs}
    assert set(first["pit"]) == free | {"log_prior", "log_likelihood", "first_predictor"}


def test_a_variable_that_no_step_moves_is_refused():
    one = replicator("ard_regression/noise inferred/pm.sample, LaplaceStep/posterior")
    left = type(one)(one.model, one.method, lambda m: one.settings(m)[:-1], False, 12, 2)
    with pytest.raises(av.errors.InputError, match="no step moves sigma_log__"):
        _ = left.steps


def test_scales_of_steps_lead_there_and_back():
    one = replicator("ard_regression/noise inferred/pm.sample, LaplaceStep/posterior")
    truth = one.simulator.draw(seed_of(1, 3))[0]
    back = one.to_natural(one.to_values(truth))
    assert all(np.allclose(back[name], truth[name], rtol=1e-10) for name in truth)


def test_labels_of_a_mixture_are_drawn_with_its_class_probabilities():
    one = replicator("rbf_mixture/joint/exact/posterior")
    shares = []
    for i in range(40):
        truth, _ = one.simulated(seed_of(2, i))
        label = one.model["label"].get_value()
        p = truth["class_probability"][1]
        shares.append((np.mean(label == 1) - p) / np.sqrt(p * (1 - p) / len(label) + 1e-12))
    assert abs(np.mean(shares)) < 4 / np.sqrt(40) and 0.5 < np.std(shares) < 1.6


# --------------------------------------------------------------------------- what many records say


def records(factor, n=400, seed=3):
    """Places under a posterior whose sd is `factor` times the right one."""
    z = np.random.default_rng(seed).normal(size=(n, 3))
    return [{"pit": {"w": norm.cdf(row / factor).tolist()}, "converged": True} for row in z]


def test_an_entry_accepts_the_right_and_not_the_narrow():
    case = CASES["ard_classification/probit/nuts/posterior"]
    right, narrow = (calibration.entry(case, records(f), 1.0) for f in (1.0, 0.8))
    assert right["calibrated"] and not narrow["calibrated"]
    assert abs(right["coverage_90"] - 0.9) < 3 * right["coverage_90_se"]
    expected = 2 * norm.cdf(0.8 * norm.ppf(0.95)) - 1
    assert abs(narrow["coverage_90"] - expected) < 0.03
    assert calibration.entry(case, records(1.0, n=5), 1.0) is None
    failed = [*records(1.0), {"failed": "planted"}]
    assert calibration.entry(case, failed, 1.0)["failed"] == 1
    found = calibration.summed([(case, records(0.8), 1.0)])
    assert "has p" in calibration.problems(found)[0]
    assert calibration.problems(calibration.summed([(case, records(1.0), 1.0)])) == []


def test_a_record_keeps_the_entry_with_more_replications_and_says_of_which_run():
    case = CASES["ard_classification/probit/nuts/posterior"]
    few, many = (calibration.summed([(case, records(0.8, n=n), 1.0)]) for n in (30, 300))
    earlier = {"commit": "abc", "date": "2026-01-01"}
    kept = calibration.joined(few, many | earlier)["entries"][0]
    assert kept["replications"] == 300 and kept["origin"] == earlier
    found = calibration.joined(many, few | earlier)
    assert found == many  # whichever it says
    none = calibration.summed([(case, records(1.0, n=5), 1.0)])
    assert none["too_few"] and calibration.joined(none, many | earlier)["too_few"] == {}


# ------------------------------------------------------------------------------- joint tests


def conjugate(fault=None):
    """θ ~ N(0, 1), y ~ N(θ, 1): Gibbs draws of θ."""
    sd = np.sqrt(0.5) * (1.4 if fault == "sd" else 1.0)
    shift = 0.2 if fault == "mean" else 0.0
    return Kernel(
        lambda rng: rng.normal(),
        lambda theta, rng: theta + rng.normal(),
        lambda theta, y, rng: y / 2 + shift + sd * rng.normal(),
        lambda theta, y: np.array([np.tanh(theta), np.tanh(theta**2), np.tanh(theta * y)]),
    )


def test_joint_tests_accept_a_right_kernel():
    assert geweke(conjugate(), 5000, np.random.default_rng(1)).max() < 4
    rejected = [two_samples(conjugate(), np.random.default_rng(s), 300, 2) for s in range(8)]
    assert not any(found.rejected for found in rejected)


@pytest.mark.parametrize("fault", ["sd", "mean"])
def test_joint_tests_reject_a_wrong_kernel(fault):
    assert geweke(conjugate(fault), 5000, np.random.default_rng(1)).max() > 5
    assert two_samples(conjugate(fault), np.random.default_rng(2), 1000, 3).rejected


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("Sampled: exact, probit", "offset forgotten"),
        ("subsets: regression, precisions inferred", "rate of the slab"),
    ],
)
def test_a_kernel_passes_and_its_fault_does_not(name, fault):
    build = kernels._table()[name][0]
    right, wrong = (geweke(build(f), 1500, np.random.default_rng(4)).max() for f in (None, fault))
    assert right < 4.5 < wrong


def test_a_record_of_kernels_keeps_rows_that_were_not_run():
    row = {"kernel": "Sampled: ellipse, probit", "fault": "", "found": False, "cpu_seconds": 1.0}
    other = row | {"kernel": "Sampled: exact, probit"}
    earlier = {"date": "2026-01-01", "commit": "abc", "rows": [row, other]}
    found = kernels.joined({"rows": [row | {"cpu_seconds": 2.0}]}, earlier)
    run = {"date": "2026-01-01", "commit": "abc"}
    assert found["rows"] == [row | {"cpu_seconds": 2.0}, other | {"origin": run}]
    assert found["kernels_passed"] == 2 and found["not_run"] == len(kernels.EXPERIMENTS) - 2


def test_tiny_problems_say_which_route_differs():
    near = {"total_variation": 0.01, "z": 2.0}
    fault, given = near | {"z": 9.0}, {"subset": "110", "exact": -8.0, "exact_error": 0.01}
    given |= {"smc": -8.02, "smc_error": 0.02, "bridge": -8.05, "bridge_error": 0.05}
    right = {"13 rows": [near], "no Jacobian": [fault], "evidences 13": [given]}
    assert tiny_problems(right) == []
    assert "problem 1" in tiny_problems({"13 rows": [near, near | {"total_variation": 0.04}]})[0]
    assert "no Jacobian" in tiny_problems({"no Jacobian": [near]})[0]
    assert "smc" in tiny_problems({"evidences 13": [given | {"smc": -8.2}]})[0]


def tiny_problems(units):
    found = {name: {"units": one} for name, one in units.items()}
    return tiny_mixtures.passed({"experiments": found})


def test_every_kernel_has_a_planted_fault():
    assert all(faults for _, faults, _ in kernels._table().values())


# ------------------------------------------------------------------------------- certificate


def test_exact_moments_are_those_of_a_gaussian_posterior():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(15, 2))
    model = av.models.ard_regression(X, X[:, 0], alpha=np.ones(3), noise=0.7)
    arrays = read_model(model).at({})
    fit = av.EP().approximate(arrays)
    mean, sd, size = certificate.exact_moments(arrays, fit.posterior, rng)
    assert size > 8000
    assert np.allclose(mean, fit.posterior.mean, atol=0.01 * sd.max())
    assert np.allclose(sd, np.sqrt(fit.posterior.marginal_variance), rtol=0.01)


def test_a_bound_holds_where_it_was_fitted_and_says_where_it_does_not():
    rng = np.random.default_rng(6)
    x = rng.gamma(2.0, size=2000)
    u = rng.uniform(0.5, 1.5, 2000)
    tight = [{"e": float(v), "i": float(v) * u} for v, u in zip(x, u, strict=True)]
    other = [{"e": 3 * r["e"], "i": r["i"]} for r in tight]
    assert certificate.judged((tight[:1000], tight[1000:]), "e", "i")["holds"]
    assert not certificate.judged((tight, other), "e", "i")["holds"]
    e, i = np.array([r["e"] for r in tight]), np.array([r["i"] for r in tight])
    c = certificate.bound(e, i)
    assert np.all(e <= certificate.FLOOR + c * i)
    assert np.any(e > certificate.FLOOR + c / certificate.MARGIN * i * 0.99)


def test_the_bound_fails_where_hyperparameters_were_searched_for_on_separable_rows():
    found = certificate.searched("probit", "laplace")
    assert certificate.FLOOR + 1.5 * found["mean_shift"] < 0.2 < 0.7 < found["mean_error"]


# ------------------------------------------------------------------------------- references


@pytest.mark.filterwarnings("ignore::ardvark.errors.ConvergenceWarning")  # in its checks
def test_a_reference_has_moments_and_checks():
    found = references.reference(0, "counts_40-poisson_log", 4, 100, 200, 1)
    assert found["names"] == ["level", "slopes[1]", "slopes[2]"] and found["draws"] == 400
    median = np.array(found["quantiles"]["0.5"])
    assert np.all(np.abs(np.array(found["mean"]) - median) < 0.5 * np.array(found["sd"]))
    assert set(references.checks(found)) >= {"ndraws_is_10k", "r_hat_below_1_01"}
    assert not references.checks(found)["ndraws_is_10k"]
    assert len(references.PAIRS) == 12


# ------------------------------------------------------------------------------- hard inputs


def test_a_hard_fit_is_judged_and_one_that_ends_its_process_loses_no_other():
    first = ("ard_regression", "laplace", "no such kind")  # the worker fails
    second = ("subset_regression", "exact", "5 rows, 500 columns")  # 2**500 subsets
    third = ("ard_regression", "laplace", "equal rows")
    found = list(hard_inputs.fit_all([first, second, third]))
    verdicts = [one["verdict"] for one in found]
    assert verdicts == ["ended the process", "refused by name", "converged"]
    assert "no such kind" in found[0]["said"] and found[2]["kind"] == "equal rows"
    with pytest.raises(ZeroDivisionError) as planted:
        _ = 1 / 0
    assert hard_inputs._judge(planted.value)[0] == "foreign error"


def test_where_each_row_is_a_weight_the_many_are_fewer():
    many = next(kind for kind in hard_inputs.KINDS if kind.name == "many rows, 2 columns")
    models = ("ard_classification", "ard_regression", "rvm_regression")
    rows = [len(hard_inputs.data_of(m, "exact", many)[0]) for m in models]
    assert rows == [300, 5000, 300]


# ------------------------------------------------------------------------------- lanes and files


def count(number, case, batch):
    return {"records": [{"pit": {"w": 0.5}, "converged": True}] * batch}


def test_the_quick_form_has_kernels_of_each_kind_with_a_fault_that_is_far_off():
    quick = [e.settings for e in kernels.EXPERIMENTS if e.quick]
    asked = {(s["kernel"], s["fault"]) for s in quick}
    assert asked == {(k, f) for k, fault in kernels.QUICK.items() for f in ("", fault)}
    kinds = {e.settings["kernel"].split(":")[0].split(",")[0] for e in kernels.EXPERIMENTS}
    assert kinds == {k.split(":")[0].split(",")[0] for k in kernels.QUICK}
    for row in json.loads((RESULTS / "kernels.json").read_text())["rows"]:
        if row["fault"] and (row["kernel"], row["fault"]) in asked:
            assert row["z"] > 2 * kernels.LARGEST_Z or row["two_samples_p"] < 1e-10


def test_a_lane_goes_on_where_it_was(tmp_path):
    made = [Experiment(f"toy/{k}", "", count, {"case": k, "batch": 2}, full=4) for k in "ab"]
    lane = Lane("toy", made, lambda store: {}, lambda found: [])
    store, told = Store(tmp_path), []
    fill(lane, store, only="toy/a", told=told.append)
    assert len(told) == 4 and len(stored(made[0], store)[0]) == 4
    fill(lane, store, told=told.append)
    assert len(told) == 8  # only what was missing
    said = fill(lane, store, told=told.append)
    assert len(told) == 8 and said == "toy: 8 of 8 units are there, 0 CPU s"


def test_a_new_store_goes_on_from_the_units_that_were_kept(tmp_path):
    first, second, kept = Store(tmp_path / "1"), Store(tmp_path / "2"), tmp_path / "kept"
    made = Experiment("toy/a, b", "", count, {"case": "a", "batch": 2}, full=4)
    units = made.units(4)
    first.put(units[0], count(0, "a", 2) | {"commit": "abc"}, 1.5)
    first.put(units[1], {"records": [{"failed": "planted"}]}, 1.0)
    write_units(made, first, kept)
    (file,) = kept.iterdir()
    before = file.read_bytes()
    write_units(made, first, kept)
    assert file.read_bytes() == before
    take_units(made, second, kept)
    assert second.get(units[0]) == first.get(units[0]) and second.seconds(units[0]) == 1.5
    assert second.get(units[0])["commit"] == "abc"
    assert second.get(units[1]) is None  # a failure is tried again
    second.put(units[3], count(3, "a", 2), 2.0)
    write_units(made, second, kept)
    assert [one["number"] for one in read_units(made, kept)] == [0, 3]
    changed = replace(made, version=2)
    assert read_units(changed, kept) == []  # other numbers: begun anew


def test_a_place_is_never_nought_or_one():
    u = np.random.default_rng(7).random(300)
    u[0] = 2e-7  # to six digits: 0
    found = np.array(calibration._cells(u))
    assert 0 < found.min() and found.max() < 1 and np.all(np.abs(found - u) <= 5.1e-5)
    assert calibration._cells([0.0, 1.0]) == [5e-5, 1 - 5e-5]
    assert uniformity_p(found) > 0.01 > 1e-10 > uniformity_p(np.round(u, 6))


def test_results_say_where_they_come_from(tmp_path):
    path = write_lane("toy", {"rows": []}, "python -m toy", tmp_path)
    found = json.loads(path.read_text())
    assert {"commit", "date", "versions", "command", "python"} <= set(found)


def test_lanes_have_names_and_nothing_to_say_of_an_empty_store(tmp_path):
    for name in LANES:
        lane = lane_of(name)
        assert lane.name == name and lane.experiments
        assert lane.passed(lane.summary(Store(tmp_path))) == []


@pytest.mark.skipif(not RESULTS.exists(), reason="no results in this checkout")
def test_the_shipped_record_and_the_tables_are_those_of_the_results(tmp_path):
    found = json.loads((RESULTS / "calibration.json").read_text())
    shipped = calibration_record()
    by = partial(map, lambda e: (e["model"], e["setting"], e["method"], e["hyper"]))
    assert list(by(shipped["entries"])) == list(by(found["entries"]))
    assert shipped["version"] == found["versions"]["ardvark"]
    page.write_tables(RESULTS, tmp_path / "tables.json")
    assert (tmp_path / "tables.json").read_text() == page.TABLES.read_text()
