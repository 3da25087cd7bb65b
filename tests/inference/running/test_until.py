"""Chains that go on until their checks pass: where they stop, what they say, the same each time."""

import json

import numpy as np
import pymc as pm
import pytensor
import pytest
from pages import few_parts

import ardvark as av
from ardvark.commands.cli import main
from ardvark.errors import ConvergenceWarning, InputError
from ardvark.inference.running.until import looks_at
from ardvark.inference.samplers.convergence import mixed
from ardvark.inference.samplers.nuts import NUTS, sample_nuts

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 3))
LABEL = (X[:, 0] + RNG.normal(size=60) > 0).astype(int)


@pytest.fixture(scope="module")
def plain():
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 1.0, shape=3)
        pm.Normal("t", pm.math.dot(X, w), 0.5, observed=X[:, 0])
    return model


def sample(model, settings, draws):
    return sample_nuts(model, settings, draws=draws, chains=4, random_seed=3, progressbar=False)


def fit(model, method, **options):
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        return av.fit(model, method, random_seed=2, progressbar=False, **options)


# ------------------------------------------------------------------------------------------ looks


def test_looks_are_at_fixed_lengths_up_to_the_budget():
    assert looks_at(500, None, None) == [500]
    assert looks_at(2000, "converged", None) == [2000, 3000, 4500, 6750, 10125, 15188, 16000]
    assert looks_at(1, "converged", 5) == [1, 2, 3, 5]
    assert looks_at(100, "converged", 100) == [100]
    with pytest.raises(InputError, match="budget of 50 is less than the 100"):
        looks_at(100, "converged", 50)


@pytest.mark.parametrize("settings", [av.NUTS, av.EllipticalSlice, av.Sampled])
def test_bad_conditions_are_named(settings):
    with pytest.raises(InputError, match="until must be None or 'converged'"):
        settings(until="done")
    with pytest.raises(InputError, match="most_draws must be an integer"):
        settings(until="converged", most_draws=0)
    with pytest.raises(InputError, match="but until is None"):
        settings(most_draws=100)


def test_thinned_jumps_have_a_fixed_number_of_sweeps():
    with pytest.raises(InputError, match="thin=2 fixes the number of sweeps"):
        av.ReversibleJump(until="converged", thin=2)


def test_more_draws_are_for_rhat_and_effective_sizes_alone():
    good = {"rhat_max": 1.005, "ess_bulk_min": 450.0, "ess_tail_min": 401.0, "divergences": 7}
    assert mixed(good, 4)
    assert not mixed(good, 5)  # 100 a chain
    for name, value in {"rhat_max": 1.02, "ess_bulk_min": 399, "ess_tail_min": np.nan}.items():
        assert not mixed(good | {name: value}, 4)
    assert not mixed({}, 4)


# ------------------------------------------------------------------------------------------- NUTS


def test_nuts_stops_at_the_first_look_that_passes(plain):
    going_on = NUTS(tune=200, until="converged", most_draws=4000)
    found, looks = sample(plain, going_on, 40), looks_at(40, "converged", 4000)
    length = found.info["draws"]
    assert found.converged and not found.problems
    assert length in looks[1:] and found.info["most_draws"] == 4000
    assert found.posterior.sizes["draw"] == length == found.sample_stats.sizes["draw"]
    fixed = sample(plain, NUTS(tune=200), length)  # the same draws, however they were come by
    np.testing.assert_array_equal(found.posterior["w"], fixed.posterior["w"])
    np.testing.assert_array_equal(found.sample_stats["energy"], fixed.sample_stats["energy"])
    short = sample(plain, NUTS(tune=200), looks[looks.index(length) - 1])
    assert not mixed(short.info, 4)  # it did not stop too late
    again = sample(plain, going_on, 40)
    np.testing.assert_array_equal(found.posterior["w"], again.posterior["w"])


def test_nuts_says_so_when_its_budget_is_spent(plain):
    found = sample(plain, NUTS(tune=100, until="converged", most_draws=30), 10)
    assert not found.converged and found.posterior.sizes["draw"] == 30
    assert found.problems[-1] == "The budget of 30 draws a chain is spent: raise most_draws"


def test_recovered_precisions_are_those_of_a_fixed_run():
    model = av.models.ard_classification(X, LABEL)
    found = sample(model, NUTS(tune=300, until="converged"), 100)
    fixed = sample(model, NUTS(tune=300), found.info["draws"])
    for name in fixed.posterior:
        np.testing.assert_array_equal(found.posterior[name], fixed.posterior[name])


def test_an_impossible_start_is_mended_in_the_background_too():
    with pm.Model() as model:  # a likelihood that is zero beyond a margin
        w = pm.Normal("w", 0.0, 1.0, shape=2)
        pm.Potential("wall", pm.math.switch(pm.math.abs(w).sum() < 0.05, 0.0, -np.inf))
    found = sample_nuts(
        model, NUTS(tune=100, until="converged", most_draws=200), draws=100, chains=4,
        random_seed=1, progressbar=False, start={"w": np.zeros(2)},
    )  # fmt: skip
    assert float(np.abs(found.posterior["w"]).sum("w_dim_0").max()) < 0.05


# ------------------------------------------------------------------------------------ other chains


def test_other_chains_are_made_longer_by_the_same_rule():
    model = av.models.ard_classification(X, LABEL)
    ep = fit(model, "ep", draws=50)
    for method in (
        av.EllipticalSlice(hyper=av.Fixed(ep), until="converged", most_draws=4000),
        av.EP(hyper=av.Sampled(until="converged", most_draws=4000)),
    ):
        tree = fit(model, method, draws=30)
        told = json.loads(tree.attrs["sampler"])
        length = tree["posterior"].sizes["draw"]
        assert tree.attrs["converged"] and length == told["draws"] > 30
        assert length in looks_at(30, "converged", told["most_draws"])
        shorter = max(n for n in looks_at(30, "converged", told["most_draws"]) if n < length)
        with pytest.warns(ConvergenceWarning):
            fit(model, _fixed_length(method), draws=shorter)


def _fixed_length(method):
    if isinstance(method, av.EP):
        return av.EP(hyper=av.Sampled())
    return av.EllipticalSlice(hyper=method.hyper)


def test_jumps_are_given_more_sweeps():
    model = av.models.subset_classification(X, LABEL)
    method = av.ReversibleJump(sweeps=60, until="converged", most_sweeps=20_000)
    tree = fit(model, method, draws=40)
    told = json.loads(tree.attrs["sampler"])
    assert tree.attrs["converged"] and 60 < told["sweeps"] <= told["most_sweeps"] == 20_000
    assert tree["posterior"].sizes["draw"] == 40
    with pytest.warns(ConvergenceWarning, match="The budget of 60 sweeps a chain is spent"):
        fit(model, av.ReversibleJump(sweeps=60, until="converged", most_sweeps=60), draws=40)


# ------------------------------------------------------------------------------------- the report


def test_a_report_with_default_settings_ends_well(tmp_path, monkeypatch, capsys):
    """A default report ended in red: its NUTS, of a fixed length, failed its own checks."""
    table = np.column_stack([X, LABEL])
    few_parts(monkeypatch, "verdict", "reference")
    np.savetxt(tmp_path / "d.csv", table, delimiter=",", header="a,b,c,t", comments="")
    level = {}
    for most in ("100", "1600"):
        out = tmp_path / f"{most}.html"
        options = ["--method", "ep,nuts", "--draws", "100", "--most-draws", most]
        assert main(["report", str(tmp_path / "d.csv"), "--out", str(out), *options]) == 0
        numbers = json.loads(out.with_suffix(".json").read_text("utf-8"))
        level[most] = numbers["reference"]["level"]
        red = "nuts fails its own checks as a reference" in numbers["verdict"]["sentence"]
        assert red == (most == "100")
    assert level == {"100": "bad", "1600": "good"}
    assert "at most 1600 draws a chain" in capsys.readouterr().err
