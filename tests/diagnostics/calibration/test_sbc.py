"""Calibration by simulation: the right is accepted, planted faults are not, nothing is lost."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pymc as pm
import pytest
from scipy.stats import kstest, norm

import ardvark as av
from ardvark.diagnostics.calibration.checks import (
    brownian_tail,
    coverage,
    inclusion_calibration,
    symmetry_test,
    uniformity_p,
)
from ardvark.diagnostics.calibration.replication import Replicator, rank
from ardvark.inference.methods import METHODS
from ardvark.inference.pymc_models.simulate import Simulator

RNG = np.random.default_rng(20)
X = RNG.standard_normal((40, 3))
LABELS = (X[:, 0] > 0).astype(int)
TARGET = X[:, 0] + RNG.standard_normal(40)

probit = partial(av.models.ard_classification, X, LABELS)
known_probit = partial(av.models.ard_classification, X, LABELS, alpha=np.ones(4))
regression = partial(av.models.ard_regression, X, TARGET)
known_regression = partial(av.models.ard_regression, X, TARGET, alpha=np.ones(4), noise=1.0)


# ------------------------------------------------------------------------------------- the algebra


def test_ranks_of_continuous_draws_are_places_and_ties_are_broken_at_random():
    rng = np.random.default_rng(1)
    draws = np.arange(9.0)
    assert 0.3 <= rank(draws, np.array(2.5), rng) < 0.4
    assert rank(draws, np.array(-1.0), rng) < 0.1 and rank(draws, np.array(99.0), rng) >= 0.9
    # 0/1 indicators: without random ties the ranks of a right sampler pile up at two places
    p, n = 0.3, 4000
    truth = rng.random(n) < p
    placed = np.array([rank((rng.random(99) < p) * 1.0, np.array(float(z)), rng) for z in truth])
    assert kstest(placed, "uniform").pvalue > 0.01
    plain = np.array([np.mean((rng.random(99) < p) * 1.0 < float(z)) for z in truth])
    assert kstest(plain, "uniform").pvalue < 1e-10


def test_brownian_tail_is_that_of_the_supremum():
    rng = np.random.default_rng(2)
    walks = np.abs(np.cumsum(rng.choice([-1.0, 1.0], (4000, 1600)), axis=1)).max(axis=1) / 40.0
    for x in (1.0, 1.5, 2.2):
        share = float(np.mean(walks >= x))
        assert abs(share - brownian_tail(x)) < 4 * np.sqrt(share / 4000) + 0.03  # a walk steps
    assert brownian_tail(0.0) == 1.0 and brownian_tail(2.2414) == pytest.approx(0.05, abs=1e-3)


def test_symmetry_sees_bias_with_its_rate_and_not_width():
    rng = np.random.default_rng(3)
    null = np.array([symmetry_test(rng.random(300))[0] for _ in range(600)])
    assert abs(np.mean(null < 0.05) - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 600)
    z = rng.standard_normal(1000)
    narrow, shifted = norm.cdf(z / 0.5), norm.cdf(z + 0.3)
    assert symmetry_test(narrow)[0] > 0.01 and uniformity_p(narrow) < 1e-6
    assert symmetry_test(shifted)[0] < 1e-6


def test_coverage_is_the_share_inside():
    assert coverage(np.array([0.05, 0.051, 0.5, 0.96]), 0.9)[0] == 0.75
    assert coverage(np.zeros(100), 0.9)[1] == pytest.approx(0.03)


def test_inclusion_calibration_takes_frequencies_and_refuses_the_rest():
    rng = np.random.default_rng(4)
    p = rng.beta(0.5, 1.5, 600)
    event = rng.random(600) < p
    right = inclusion_calibration(event, p, bootstrap=300)
    assert min(right["brier_p"], right["isotonic_p"], right["mean_p"]) > 0.01
    sharp = inclusion_calibration(event, p**2 / (p**2 + (1 - p) ** 2), bootstrap=300)
    assert max(sharp["brier_p"], sharp["isotonic_p"]) < 0.01
    high = inclusion_calibration(event, np.minimum(1.0, p + 0.1), bootstrap=300)
    assert high["mean_p"] < 1e-4 and high["mean"] < 0
    with pytest.raises(av.errors.InputError, match="from 0 to 1"):
        inclusion_calibration([1, 0], [0.5, 1.5])
    with pytest.raises(av.errors.InputError, match="0 or 1"):
        inclusion_calibration([2, 0], [0.5, 0.5])


# ---------------------------------------------------------------------------------- the simulator


def test_simulated_draws_have_the_moments_of_the_prior_and_their_own_seeds():
    simulator = Simulator(known_regression())
    seeds = np.random.SeedSequence(5).spawn(1500)
    drawn = [simulator.draw(seed) for seed in seeds]
    w = np.array([free["w"] for free, _ in drawn])
    noise = np.array([d["t"] - f["bias"] - X @ f["w"] for f, d in drawn])
    assert np.all(np.abs(w.mean(axis=0)) < 4 / np.sqrt(1500))
    assert abs(w.var() - 1) < 4 * np.sqrt(2 / w.size)
    assert abs(noise.var() - 1) < 4 * np.sqrt(2 / noise.size)
    again = simulator.draw(np.random.SeedSequence(5).spawn(8)[7])
    assert np.array_equal(again[0]["w"], drawn[7][0]["w"])
    assert np.array_equal(again[1]["t"], drawn[7][1]["t"])


def test_sums_are_those_of_the_graph_and_the_data_come_back():
    model = regression()
    simulator = Simulator(model)
    point, data = simulator.draw(np.random.SeedSequence(6))
    before = model["t_observed"].get_value()
    with simulator.observing(data):
        sums = simulator.sums(point)
        assert np.array_equal(model["t_observed"].get_value(), data["t"])
    assert np.array_equal(model["t_observed"].get_value(), before)
    eta = point["bias"] + X @ point["w"]
    assert sums["first_predictor"] == pytest.approx(eta[0])
    likelihood = norm.logpdf(data["t"], eta, point["sigma"]).sum()
    assert sums["log_likelihood"] == pytest.approx(likelihood)
    fixed = norm.logpdf(point["w"], 0, point["alpha"] ** -0.5).sum()
    fixed += norm.logpdf(point["bias"], 0, point["alpha_bias"] ** -0.5)
    with pm.Model() as priors:
        pm.Gamma("a", 2, 2 * np.var(TARGET) / 3)
        pm.HalfNormal("s", np.std(TARGET))
    log_gamma = sum(
        float(pm.logp(priors["a"], v).eval(mode="FAST_COMPILE"))
        for v in [point["alpha_bias"], *point["alpha"]]
    )
    log_sigma = float(pm.logp(priors["s"], point["sigma"]).eval(mode="FAST_COMPILE"))
    assert sums["log_prior"] == pytest.approx(fixed + log_gamma + log_sigma, rel=1e-5)


def test_a_model_that_cannot_be_simulated_is_refused_by_name():
    with pm.Model() as potential:
        w = pm.Normal("w")
        pm.Potential("odd", -(w**2))
        pm.Normal("t", w, observed=pm.Data("t_observed", np.zeros(3)))
    with pytest.raises(av.errors.InputError, match="potential 'odd'"):
        av.sbc(potential, "nuts", 2)
    with pm.Model() as constant:
        w = pm.Normal("w")
        pm.Normal("t", w, observed=np.zeros(3))
    with pytest.raises(av.errors.InputError, match="held by one"):
        av.sbc(constant, "nuts", 2)


# ------------------------------------------------------------------- accepted, and not accepted


class _Narrowed:
    """A posterior with sds that are `factor` times those of another."""

    def __init__(self, posterior, factor):
        self._posterior, self._factor = posterior, factor

    def __getattr__(self, name):
        return getattr(self._posterior, name)

    @property
    def marginal_variance(self):
        return self._factor**2 * self._posterior.marginal_variance

    def predictive(self, projection, offset):
        mean, variance = self._posterior.predictive(projection, offset)
        return mean, self._factor**2 * variance

    def draws(self, n, rng):
        drawn = self._posterior.draws(n, rng)
        return self.mean + self._factor * (drawn - self.mean)


@dataclasses.dataclass(frozen=True)
class Faulty(av.EP):
    """EP with a planted fault."""

    factor: float = 1.0

    def approximate(self, model, warm=None):
        answer = super().approximate(model, warm)
        return answer._replace(posterior=_Narrowed(answer.posterior, self.factor))


def places(settings, build, replications, seed=7):
    replicator = Replicator(build(), "ep", settings, True, 8, 1)
    seeds = np.random.SeedSequence(seed).spawn(replications)
    found = [replicator.run(s)["pit"] for s in seeds]
    return {name: np.array([f[name] for f in found]) for name in found[0]}


@pytest.mark.parametrize("replications", [500, pytest.param(2000, marks=pytest.mark.validate)])
def test_the_exact_posterior_is_accepted_and_sds_a_fifth_too_small_are_not(replications):
    right = places(Faulty(), known_regression, replications)
    wrong = places(Faulty(factor=0.8), known_regression, replications)
    error = np.sqrt(0.9 * 0.1 / replications)  # of a coverage
    quantities = {**{f"w{j}": right["w"][:, j] for j in range(3)}, **right}
    del quantities["w"]
    assert min(map(uniformity_p, quantities.values())) > 0.01 / len(quantities)
    assert all(abs(coverage(u, 0.9)[0] - 0.9) < 4 * error for u in quantities.values())
    for j in range(3):
        assert uniformity_p(wrong["w"][:, j]) < 0.01 / 7
    assert uniformity_p(wrong["first_predictor"]) < 0.01 / 7
    # the share of N(0, 1) within 0.8 times 1.645 sds
    expected = 2 * norm.cdf(0.8 * norm.ppf(0.95)) - 1
    assert abs(coverage(wrong["w"].ravel(), 0.9)[0] - expected) < 0.03
    assert symmetry_test(wrong["bias"])[0] > 0.001  # narrow, not biased


def test_ep_of_a_probit_is_calibrated_at_its_hyperparameters():
    tree = av.sbc(probit(), "ep", 300, random_seed=1)  # 200 show that VB is narrow
    table = av.diagnostics.sbc_summary(tree)
    assert table["calibrated"].all() and (table["bias"] == "").all()
    assert {"bias", "w[x0]", "log_prior", "log_likelihood", "first_predictor"} <= set(table.index)
    assert tree.attrs["hold"] and tree.attrs["failed"] == tree.attrs["not_converged"] == 0
    assert "alpha" not in tree["prior_sbc"]


def test_vb_of_a_probit_is_called_narrow():
    table = av.diagnostics.sbc_summary(av.sbc(probit(), av.VB(), 200, random_seed=2))
    assert not table.loc["w[x0]", "calibrated"] and table.loc["w[x0]", "coverage_90"] < 0.85
    assert table.loc["alpha[x1]", "coverage_90"] > 0.8


@pytest.mark.parametrize("hold", [True, False])
def test_vb_by_arrays_places_the_truth_as_its_draws_do(hold):
    """Two routes: distribution functions of the factors, and draws of the tree of `fit`."""
    replicator = Replicator(regression(), "vb", av.VB(), hold, 2000, 4)
    seed = np.random.SeedSequence(9)
    exact = replicator.run(seed)["pit"]
    truth, data = replicator.simulator.draw(np.random.SeedSequence(9).spawn(3)[0])
    with replicator.simulator.observing(data):
        drawn = replicator._fitted(truth, 1, np.random.default_rng(1))["pit"]
    names = ["bias", "w", "log_likelihood"] + ([] if hold else ["alpha", "sigma"])
    for name in names:  # 99 draws: sd of a place below 0.05
        assert np.all(np.abs(np.subtract(exact[name], drawn[name])) < 0.2), name


def test_exact_draws_of_subsets_and_their_inclusion_are_calibrated():
    model = av.models.subset_regression(X, TARGET, noise=1.0)
    tree = av.sbc(model, av.Exact(), 80, random_seed=3, draws=60, chains=4)
    table = av.diagnostics.sbc_summary(tree)
    assert table["calibrated"].all()
    found = tree["inclusion"]
    tests = inclusion_calibration(found["included"], found["probability"], bootstrap=400)
    assert min(tests["brier_p"], tests["isotonic_p"], tests["mean_p"]) > 0.01
    assert 0.1 < float(found["included"].mean()) < 0.6


def test_nuts_at_held_hyperparameters_of_a_regression():
    """A number of rows that PyMC keeps in fewer bits must not stop the second model."""
    tree = av.sbc(regression(), av.NUTS(tune=100), 2, hold=True, draws=50, chains=2)
    assert tree.attrs["failed"] == 0 and "sigma" not in tree["prior_sbc"]


def test_arviz_draws_the_group():
    import arviz_plots

    tree = av.sbc(known_regression(), "laplace", 40, random_seed=1)
    collection = arviz_plots.plot_ecdf_pit(tree, var_names=["bias", "log_likelihood"])
    assert collection is not None
    import matplotlib.pyplot as plt

    plt.close("all")


# -------------------------------------------------------------------------------- nothing is lost


def test_failed_fits_are_counted_and_told(monkeypatch):
    usual = av.Laplace.approximate
    calls = iter(range(1000))

    def sometimes(self, model, warm=None):
        if next(calls) % 5 == 2:
            raise np.linalg.LinAlgError("planted")
        return usual(self, model, warm)

    monkeypatch.setattr(av.Laplace, "approximate", sometimes)
    with pytest.warns(
        av.errors.AccuracyWarning, match=r"4 of 20 fits failed, the first with LinAlgError"
    ):
        tree = av.sbc(known_probit(), "laplace", 20)
    assert tree.attrs["failed"] == 4 and tree["prior_sbc"].sizes["draw"] == 16
    assert json.loads(tree.attrs["failures"]) == ["LinAlgError: planted"]

    def never(self, model, warm=None):
        raise FloatingPointError("planted too")

    monkeypatch.setattr(av.Laplace, "approximate", never)
    with pytest.raises(RuntimeError, match="all 3 fits failed, the first with FloatingPointError"):
        av.sbc(known_probit(), "laplace", 3)


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}


def test_a_run_goes_on_where_it_was_and_another_run_is_refused(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    first = av.sbc(probit, "ep", 12, random_seed=5, folder=whole)
    av.sbc(probit, "ep", 5, random_seed=5, folder=parts)
    (parts / "000002.json").unlink()
    told = []
    second = av.sbc(probit, "ep", 12, random_seed=5, folder=parts, tick=told.append)
    assert told == list(range(4, 13))
    assert contents(whole) == contents(parts) and first.attrs == second.attrs
    assert first["prior_sbc"].equals(second["prior_sbc"])
    with pytest.raises(av.errors.InputError, match=r"another run: random_seed was 5, now 6"):
        av.sbc(probit, "ep", 12, random_seed=6, folder=parts)
    with pytest.raises(av.errors.InputError, match="method was 'ep', now 'laplace'"):
        av.sbc(probit, "laplace", 12, random_seed=5, folder=parts)


def test_jobs_do_not_change_a_place(tmp_path):
    av.sbc(regression, "laplace", 10, random_seed=4, folder=tmp_path / "one")
    av.sbc(
        partial(av.models.ard_regression, X, TARGET),
        "laplace",
        10,
        random_seed=4,
        folder=tmp_path / "two",
        executor=2,
    )
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    av.sbc(regression(), "laplace", 10, random_seed=4, folder=tmp_path / "graph", executor=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "graph")


KILLED = """
import numpy as np, ardvark as av
rng = np.random.default_rng(0)
X = rng.standard_normal((30, 2))
model = av.models.ard_classification(X, (X[:, 0] > 0).astype(int))
av.sbc(model, "ep", {n}, random_seed=8, folder={folder!r})
"""


def test_kill_and_resume_end_in_the_same_bytes(tmp_path):
    n, whole, killed = 60, tmp_path / "whole", tmp_path / "killed"
    child = subprocess.Popen([sys.executable, "-c", KILLED.format(n=n, folder=str(killed))])
    try:
        deadline = time.monotonic() + 120
        while not (killed / "000010.json").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    done = len(contents(killed)) - 1
    assert 10 <= done < n
    space = {}
    for folder in (killed, whole):
        exec(KILLED.format(n=n, folder=str(folder)), space)
    assert contents(killed) == contents(whole)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("[1]", "holds no record"),
        ('{"pit": {"w": 7}}', "no places in"),
        ('{"pit": {"w": ["x"]}}', "no places in"),
        ('{"pit": {}}', "no places in"),
        ("\x80\x04", "no record|cannot be read"),
    ],
)
def test_a_corrupt_file_is_named(tmp_path, text, said):
    av.sbc(known_probit, "laplace", 3, folder=tmp_path)
    (tmp_path / "000001.json").write_text(text, encoding="latin-1")
    with pytest.raises(av.errors.InputError, match=rf"000001.json.*({said})"):
        av.sbc(known_probit, "laplace", 3, folder=tmp_path)


def test_folders_that_cannot_be_used_are_named(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "diary.txt").write_text("mine")
    with pytest.raises(av.errors.InputError, match="not empty"):
        av.sbc(known_probit, "laplace", 3, folder=tmp_path / "taken")
    with pytest.raises(av.errors.InputError, match="cannot be made"):
        av.sbc(known_probit, "laplace", 3, folder=tmp_path / "taken" / "diary.txt" / "sub")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"replications": 0}, "replications"),
        ({"executor": 0}, "executor"),
        ({"method": "magic"}, "method 'magic' is unknown"),
        ({"method": av.EP(hyper=av.Fixed({"alpha": 1.0}))}, "cannot fix them"),
        ({"model": 3}, "pm.Model"),
        ({"random_seed": -1}, "random_seed"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(arguments, said):
    usual = {"model": known_probit, "method": "laplace", "replications": 2}
    with pytest.raises(av.errors.InputError, match=said):
        av.sbc(**usual | arguments)


def test_every_kind_of_method_has_a_route():
    kinds = {entry.kind for entry in METHODS.values()}
    assert kinds == {"gaussian", "vb", "exact", "sampler", "slice", "jump"}


# ----------------------------------------------------------------------------------- long suites


@pytest.mark.validate
@pytest.mark.parametrize("build", [probit, regression])
def test_nuts_is_calibrated(build):
    tree = av.sbc(build(), av.NUTS(tune=500), 60, random_seed=1, draws=250, chains=2)
    assert tree.attrs["failed"] == 0 and av.diagnostics.sbc_summary(tree)["calibrated"].all()


@pytest.mark.validate
def test_reversible_jump_is_calibrated_and_its_inclusion_too():
    model = av.models.subset_classification(X, LABELS)
    tree = av.sbc(model, av.ReversibleJump(sweeps=4000), 300, random_seed=1, draws=100)
    assert tree.attrs["failed"] == 0 and av.diagnostics.sbc_summary(tree)["calibrated"].all()
    found = tree["inclusion"]
    tests = inclusion_calibration(found["included"], found["probability"])
    assert min(tests["brier_p"], tests["isotonic_p"], tests["mean_p"]) > 0.01


@pytest.mark.validate
def test_coverage_has_not_drifted_from_the_record():
    """A drift of more than two points, beyond the errors of both runs, is a changed method."""
    from ardvark.diagnostics.calibration.record import calibration_record
    from ardvark.studies.validation.calibration import entry, replications
    from ardvark.studies.validation.cases import CASES

    shipped = {
        f"{e['model']}/{e['setting']}/{e['method']}/{e['hyper']}": e
        for e in calibration_record()["entries"]
    }
    cheap = [case for case in CASES.values() if case.batch >= 50]
    assert len(cheap) > 10
    for case in cheap:
        now = entry(case, replications(1000, case.name, 400)["records"], 0.0)
        then = shipped[case.name]
        error = 3 * np.hypot(now["coverage_90_se"], then["coverage_90_se"])
        assert abs(now["coverage_90"] - then["coverage_90"]) < 0.02 + error, case.name
