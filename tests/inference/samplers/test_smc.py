"""SMC against the exact evidence of a Gaussian model, and its record of what went wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from scipy import stats

import ardvark as av
from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.samplers import smc
from ardvark.inference.samplers.convergence import SamplerDraws
from ardvark.inference.samplers.smc import SMC, SPREAD_MAX, sample_smc
from ardvark.models.card import Card, Precision, remember

rng = np.random.default_rng(20260802)
PRIOR_SD, NOISE = 1.5, 0.7
X = rng.normal(size=(30, 3))
T = X @ np.array([1.0, -0.5, 0.0]) + NOISE * rng.normal(size=30)


def linear_model(X: Any = X, t: Any = T, **prior: Any) -> Any:
    names = [f"x{j}" for j in range(X.shape[1])]
    with pm.Model(coords={"row": range(len(t)), "feature": names}) as model:
        inputs = pm.Data("X", X, dims=("row", "feature"))
        w = pm.Normal("w", 0, PRIOR_SD, dims="feature", **prior)
        eta = pm.Deterministic("eta", inputs @ w, dims="row")
        target = pm.Data("t_observed", t, dims="row")
        pm.Normal("t", eta, NOISE, observed=target, dims="row")
    return model


def run(model: Any, settings: SMC | None = None, **options: Any) -> SamplerDraws:
    keywords = {"draws": 300, "chains": 4, "random_seed": 1, "progressbar": False} | options
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        return sample_smc(model, settings or SMC(), **keywords)


@pytest.fixture(scope="module")
def sampled() -> SamplerDraws:
    return run(linear_model())


def exact_log_evidence() -> float:
    covariance = NOISE**2 * np.eye(30) + PRIOR_SD**2 * X @ X.T
    return float(stats.multivariate_normal(np.zeros(30), covariance).logpdf(T))


def test_log_evidence_is_exact(sampled: SamplerDraws) -> None:
    # Four standard errors of the runs, and 0.1 nats: the error is estimated from four runs only.
    error = sampled.info["log_evidence"] - exact_log_evidence()
    assert abs(error) < 4 * sampled.info["log_evidence_error"] + 0.1
    assert sampled.info["log_evidence_error"] < SPREAD_MAX
    assert sampled.info["log_evidence_chain"].shape == (4,)


def test_posterior_is_exact(sampled: SamplerDraws) -> None:
    covariance = np.linalg.inv(np.eye(3) / PRIOR_SD**2 + X.T @ X / NOISE**2)
    mean, sd = covariance @ X.T @ T / NOISE**2, np.sqrt(np.diag(covariance))
    # The runs are independent, so their spread is an honest error (3 degrees of freedom: t = 10).
    means = sampled.posterior["w"].mean("draw").values
    error = np.abs(means.mean(0) - mean) / (means.std(0, ddof=1) / 2)
    assert error.max() < 10
    np.testing.assert_allclose(sampled.posterior["w"].std(("chain", "draw")), sd, rtol=0.15)


def test_what_is_stored(sampled: SamplerDraws) -> None:
    assert list(sampled.posterior) == ["w"]
    assert sampled.posterior["w"].dims == ("chain", "draw", "feature")
    assert list(sampled.posterior["feature"].values) == ["x0", "x1", "x2"]
    beta = sampled.sample_stats["beta"]
    assert beta.dims == ("chain", "stage")
    assert beta.dtype == float
    np.testing.assert_array_equal(beta.max("stage"), 1.0)
    assert sampled.converged is (not sampled.problems)


def test_same_seed_same_draws_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    model, options = linear_model(X[:4], T[:4]), {"draws": 40, "chains": 2}
    first, again = run(model, **options), run(model, **options)
    assert capfd.readouterr() == ("", "")
    np.testing.assert_array_equal(first.posterior["w"], again.posterior["w"])
    assert first.info["log_evidence"] == again.info["log_evidence"]
    assert (
        run(model, **options | {"random_seed": 2}).info["log_evidence"]
        != (first.info["log_evidence"])
    )


def test_one_run_is_told(sampled: SamplerDraws) -> None:
    one = run(linear_model(X[:4], T[:4]), draws=40, chains=1)
    assert one.sample_stats["beta"].dims == ("chain", "stage")
    assert one.info["log_evidence"] == one.info["log_evidence_chain"][0]
    assert np.isnan(one.info["log_evidence_error"])
    assert any("One chain" in problem for problem in one.problems)


def test_clouds_that_disagree_are_not_told_to_tune() -> None:
    """SMC has no `tune` to raise."""
    few = run(linear_model(X[:4], T[:4]), draws=8, chains=2)
    (said,) = [problem for problem in few.problems if "R-hat" in problem]
    assert said.endswith("the chains disagree; raise draws")


def test_precisions_are_integrated_out_and_recovered() -> None:
    shape, rate = 2.0, 0.5

    def build(integrated: bool) -> Any:
        with pm.Model() as model:
            if integrated:
                w = pm.StudentT("w", nu=2 * shape, sigma=np.sqrt(rate / shape))
            else:
                alpha = pm.Gamma("alpha", shape, rate)
                w = pm.Normal("w", 0, alpha**-0.5)
            pm.Normal("t", w, NOISE, observed=np.array([1.0, 2.0]))
        return model

    model = build(integrated=False)
    pairs = (Precision("w", "alpha", shape, rate),)
    card = Card("test", "regression", (), None, None, dict, pairs, lambda: build(True))
    remember(model, card)
    result = run(model, draws=200, chains=4)
    assert result.info["form"] == "integrated"
    assert list(result.posterior) == ["alpha", "w"]

    grid = np.linspace(-20, 20, 40001)
    joint = stats.t(2 * shape, scale=np.sqrt(rate / shape)).pdf(grid)
    joint *= np.exp(stats.norm(grid[:, None], NOISE).logpdf([1.0, 2.0]).sum(1))
    exact = np.log(joint.sum() * (grid[1] - grid[0]))
    assert abs(result.info["log_evidence"] - exact) < 4 * result.info["log_evidence_error"] + 0.1


# ---------------------------------------------------------------- the record


def stages_of(*log_evidence: float) -> xr.Dataset:
    table = np.full((len(log_evidence), 3), np.nan)
    table[:, 1] = log_evidence  # the last stage of a run is not the last column
    return xr.Dataset({"log_marginal_likelihood": (("chain", "stage"), table)})


def test_evidence_is_the_mean_of_the_runs() -> None:
    record = smc._evidence(stages_of(np.log(1.0), np.log(3.0)))
    assert record["log_evidence"] == pytest.approx(np.log(2.0))
    assert record["log_evidence_error"] == pytest.approx(np.log(3.0) / 2)  # sd log(3)/√2, two runs


def test_runs_that_disagree_are_told() -> None:
    assert smc._spread_problems(np.array([-10.0, -10.4])) == []
    (problem,) = smc._spread_problems(np.array([-10.0, -13.25]))
    assert "3.25 nats" in problem
    assert smc._spread_problems(np.array([-10.0, np.nan])) != []


def test_initval_would_spoil_the_evidence() -> None:
    with pytest.raises(UnsupportedPair, match="w has an initval"):
        run(linear_model(initval=np.zeros(3)))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("kernel", "hmc"),
        ("threshold", 0.0),
        ("threshold", None),
        ("correlation_threshold", 1),
        ("cores", 0),
        ("form", "centred"),
        ("weights", ["w", "bias"]),
        ("predictor", 1),
    ],
)
def test_bad_settings_are_named(argument: str, value: Any) -> None:
    with pytest.raises(InputError, match=argument):
        SMC(**{argument: value})


def test_a_prior_too_vague_to_draw_from_is_refused() -> None:
    """PyMC ended in "ZeroDivisionError: division by zero"."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(8, 2))
    model = av.models.sample_feature_regression(X, X[:, 0])
    with pytest.raises(UnsupportedPair, match="a prior of this model is so vague"):
        av.fit(model, "smc", draws=50, chains=1, random_seed=1, progressbar=False)
