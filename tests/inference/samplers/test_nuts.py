"""NUTS against exact posteriors; one compilation for many calls.

Compilation is the expensive part, so the whole file has two graphs that nutpie compiles: `linear`
(a Gaussian model, exact posterior known) and `heavy` (a Student-t form, integrated numerically).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.pymc_models.forms import form_to_sample, recover_precisions
from ardvark.inference.samplers import compiled
from ardvark.inference.samplers.convergence import RHAT_MAX, SamplerDraws
from ardvark.inference.samplers.nuts import NUTS, sample_nuts
from ardvark.models.card import Card, Precision, remember

rng = np.random.default_rng(20260801)
PRIOR_SD, NOISE = 1.5, 0.7
LIMIT = 4.0  # Monte Carlo standard errors: P(beyond) = 6e-5 for each of a dozen numbers


def simulate(rows: int, weights: list[float]) -> tuple[Any, Any]:
    X = rng.normal(size=(rows, len(weights)))
    return X, X @ np.array(weights) + NOISE * rng.normal(size=rows)


def linear_model(X: Any, t: Any) -> Any:
    names = [f"x{j}" for j in range(X.shape[1])]
    with pm.Model(coords={"row": range(len(t)), "feature": names}) as model:
        inputs = pm.Data("X", X, dims=("row", "feature"))
        w = pm.Normal("w", 0, PRIOR_SD, dims="feature")
        eta = pm.Deterministic("eta", inputs @ w, dims="row")
        pm.Deterministic("total", w.sum())
        pm.Deterministic("fitted", 2 * eta)  # row-shaped, though it does not say so
        target = pm.Data("t_observed", t, dims="row")
        pm.Normal("t", eta, NOISE, observed=target, dims="row")
    return model


def exact_posterior(X: Any, t: Any) -> tuple[Any, Any]:
    precision = np.eye(X.shape[1]) / PRIOR_SD**2 + X.T @ X / NOISE**2
    covariance = np.linalg.inv(precision)
    return covariance @ X.T @ t / NOISE**2, np.sqrt(np.diag(covariance))


def mcse(draws: xr.DataArray, method: str) -> Any:
    arviz_stats = pytest.importorskip("arviz_stats")
    return arviz_stats.mcse(draws, method=method).values


def errors_in_mcse(draws: xr.DataArray, mean: Any, sd: Any) -> Any:
    over = ("chain", "draw")
    return np.r_[
        (draws.mean(over).values - mean) / mcse(draws, "mean"),
        (draws.std(over, ddof=1).values - sd) / mcse(draws, "sd"),
    ]


def run(model: Any, seed: int = 1, **options: Any) -> SamplerDraws:
    settings = options.pop("settings", NUTS(tune=400, compiled=True))
    keywords = {"draws": 500, "chains": 4, "random_seed": seed, "progressbar": False} | options
    return sample_nuts(model, settings, **keywords)


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    return simulate(30, [1.0, -0.5, 0.0])


@pytest.fixture(scope="module")
def linear(data: tuple[Any, Any]) -> Any:
    return linear_model(*data)


@pytest.fixture
def linear_at_start(linear: Any, data: tuple[Any, Any]) -> Any:
    yield linear
    linear.set_data("X", data[0], coords={"row": range(len(data[1]))})
    linear.set_data("t_observed", data[1])


@pytest.fixture(scope="module")
def sampled(linear: Any) -> SamplerDraws:
    return run(linear)


def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    import nutpie

    calls: list[Any] = []
    compile_model = nutpie.compile_pymc_model

    def counted(model: Any, **options: Any) -> Any:
        calls.append(model)
        return compile_model(model, **options)

    monkeypatch.setattr(nutpie, "compile_pymc_model", counted)
    return calls


# ---------------------------------------------------------------- draws


def test_linear_posterior_is_exact(sampled: SamplerDraws, data: tuple[Any, Any]) -> None:
    mean, sd = exact_posterior(*data)
    assert np.abs(errors_in_mcse(sampled.posterior["w"], mean, sd)).max() < LIMIT
    assert np.abs(errors_in_mcse(sampled.posterior["w"], mean + sd / 2, sd)).max() > LIMIT


def test_what_is_stored(sampled: SamplerDraws) -> None:
    assert list(sampled.posterior) == ["w", "total"]  # nothing with a row in it
    assert sampled.posterior["w"].dims == ("chain", "draw", "feature")
    assert sampled.posterior["w"].shape == (4, 500, 3)
    assert list(sampled.posterior["feature"].values) == ["x0", "x1", "x2"]
    np.testing.assert_allclose(sampled.posterior["total"], sampled.posterior["w"].sum("feature"))
    assert {"diverging", "energy", "tree_depth", "lp"} <= set(sampled.sample_stats)
    assert all(stat.dtype != object for stat in sampled.sample_stats.values())


def test_good_draws_have_no_problems(sampled: SamplerDraws) -> None:
    assert sampled.problems == []
    assert sampled.converged
    assert sampled.info["sampler"] == "nutpie"
    assert sampled.info["form"] == "as_written"
    assert sampled.info["rhat_max"] <= RHAT_MAX
    assert sampled.info["divergences"] == 0


def test_same_seed_same_draws(linear: Any, sampled: SamplerDraws) -> None:
    xr.testing.assert_equal(run(linear).posterior, sampled.posterior)
    one_core = run(linear, settings=NUTS(tune=400, cores=1, compiled=True))
    np.testing.assert_array_equal(one_core.posterior["w"], sampled.posterior["w"])
    assert not np.array_equal(run(linear, seed=2).posterior["w"], sampled.posterior["w"])


def test_chains_start_apart(linear: Any) -> None:
    short = run(linear, settings=NUTS(tune=1, compiled=True), draws=4)
    first = short.posterior["w"].values[:, 0]
    assert len(np.unique(first[:, 0])) == 4


def test_start_is_taken_without_compiling(
    linear: Any, sampled: SamplerDraws, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = compilations(monkeypatch)
    far = run(linear, settings=NUTS(tune=1, compiled=True), draws=4, start={"w": np.full(3, 1e3)})
    assert far.posterior["w"].values.max() > 100  # one step from 1000 does not reach 0
    assert calls == []
    with pytest.raises(InputError, match="no variable 'v'"):
        run(linear, start={"v": 0.0})


def test_silent(linear: Any, sampled: SamplerDraws, capfd: pytest.CaptureFixture[str]) -> None:
    run(linear)
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------- one compilation


def test_new_data_need_no_new_compilation(
    linear_at_start: Any, sampled: SamplerDraws, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = compilations(monkeypatch)
    X, t = simulate(50, [-2.0, 0.0, 1.0])
    linear_at_start.set_data("X", X, coords={"row": range(50)})
    linear_at_start.set_data("t_observed", t)
    again = run(linear_at_start)
    assert calls == []
    mean, sd = exact_posterior(X, t)
    assert np.abs(errors_in_mcse(again.posterior["w"], mean, sd)).max() < LIMIT


def test_what_a_compilation_is_tied_to(data: tuple[Any, Any]) -> None:
    model = linear_model(*data)
    free_of_rows = compiled._signature(model, ["w", "total"])
    with_rows = compiled._signature(model, ["w", "eta"])
    unknown_length = compiled._signature(model, ["w", "fitted"])
    model.set_data("X", np.ones((7, 3)), coords={"row": range(7)})
    assert compiled._signature(model, ["w", "total"]) == free_of_rows
    assert compiled._signature(model, ["w", "eta"]) != with_rows
    assert compiled._signature(model, ["w", "fitted"]) != unknown_length


def test_panic_of_rust_is_an_error(
    linear: Any, sampled: SamplerDraws, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nutpie

    class PanicException(BaseException):
        pass

    def panic(*_: Any, **__: Any) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr(nutpie, "sample", panic)
    with pytest.raises(RuntimeError, match="index out of bounds"):
        run(linear)


# ---------------------------------------------------------------- precisions integrated out

SHAPE, RATE = 2.0, 0.5


def scalar_model(x: Any, t: Any, integrated: bool) -> Any:
    with pm.Model(coords={"row": range(len(t)), "feature": ["x0"]}) as model:
        inputs = pm.Data("X", x, dims="row")
        if integrated:
            scale = np.sqrt(RATE / SHAPE)
            w = pm.StudentT("w", nu=2 * SHAPE, sigma=scale, dims="feature")
        else:
            alpha = pm.Gamma("alpha", SHAPE, RATE, dims="feature")
            w = pm.Normal("w", 0, alpha**-0.5, dims="feature")
        eta = pm.Deterministic("eta", inputs * w[0], dims="row")
        pm.Normal("t", eta, NOISE, observed=pm.Data("t_observed", t, dims="row"), dims="row")
    return model


def heavy_model(x: Any, t: Any) -> Any:
    model = scalar_model(x, t, integrated=False)
    card = Card(
        builder="test",
        task="regression",
        feature_names=("x0",),
        classes=None,
        scaling=None,
        new_data=lambda X: {"X": X},
        precisions=(Precision("w", "alpha", SHAPE, RATE),),
        integrated=lambda: scalar_model(x, t, integrated=True),
    )
    remember(model, card)
    return model


def exact_means(x: Any, t: Any) -> tuple[float, float]:
    """E[w | t] and E[alpha | t] on a grid of w: the Student-t prior times the likelihood."""
    w = np.linspace(-8, 8, 20001)
    log_prior = -(SHAPE + 0.5) * np.log(RATE + w**2 / 2)
    log_likelihood = -0.5 * ((t[:, None] - x[:, None] * w) ** 2).sum(0) / NOISE**2
    weight = np.exp(log_prior + log_likelihood - (log_prior + log_likelihood).max())
    weight /= weight.sum()
    return weight @ w, weight @ ((SHAPE + 0.5) / (RATE + w**2 / 2))


def test_integrated_form_gives_the_posterior_of_the_model() -> None:
    x, t = rng.normal(size=4), rng.normal(size=4)
    model = heavy_model(x, t)
    first = run(model)
    assert first.info["form"] == "integrated"
    assert list(first.posterior) == ["alpha", "w"]  # the model's own order
    assert first.posterior["alpha"].dims == first.posterior["w"].dims

    x_new, t_new = rng.normal(size=6), 3.0 + rng.normal(size=6)
    model.set_data("X", x_new, coords={"row": range(6)})
    model.set_data("t_observed", t_new)
    second = run(model)
    for result, given in ((first, (x, t)), (second, (x_new, t_new))):
        for name, exact in zip(("w", "alpha"), exact_means(*given), strict=True):
            draws = result.posterior[name]
            error = draws.mean().item() - exact
            assert abs(error) < LIMIT * mcse(draws, "mean").item(), name


def test_forms() -> None:
    x, t = np.ones(2), np.ones(2)
    model = heavy_model(x, t)
    assert form_to_sample(model, "as_written").model is model
    integrated = form_to_sample(model, "auto").model
    assert [rv.name for rv in integrated.free_RVs] == ["w"]
    assert form_to_sample(model, "integrated").model is integrated  # built once
    with pytest.raises(UnsupportedPair, match="integrated"):
        form_to_sample(scalar_model(x, t, integrated=False), "integrated")


@pytest.mark.parametrize(("shape", "right"), [(SHAPE, True), (SHAPE + 0.5, False)])
def test_recovered_precisions_have_their_gamma_moments(shape: float, right: bool) -> None:
    w = np.broadcast_to([0.0, 0.7, -3.0], (4, 2000, 3))
    posterior = xr.Dataset({"w": (("chain", "draw", "feature"), w)}, {"feature": ["a", "b", "c"]})
    drawn = recover_precisions(posterior, [Precision("w", "alpha", shape, RATE)], rng)["alpha"]
    assert drawn.dims == ("chain", "draw", "feature")
    assert list(drawn["feature"].values) == ["a", "b", "c"]
    rate = RATE + w[0, 0] ** 2 / 2
    mean, sd = (SHAPE + 0.5) / rate, np.sqrt(SHAPE + 0.5) / rate
    worst = np.abs(errors_in_mcse(drawn, mean, sd)).max()
    assert bool(worst < LIMIT) is right


# ---------------------------------------------------------------- PyMC's own sampler


def test_discrete_variables_go_to_pymc() -> None:
    with pm.Model() as model:
        included = pm.Bernoulli("included", 0.5)
        w = pm.Normal("w", 0, 1)
        pm.Normal("t", included * w, 1.0, observed=2.0)
    with pytest.raises(UnsupportedPair, match="included is discrete"):
        run(model, settings=NUTS(sampler="nutpie"))
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        options = {"settings": NUTS(tune=20, cores=1), "draws": 30, "chains": 2}
        result = run(model, **options)
        again = run(model, **options)
    assert result.info["sampler"] == "pymc"
    assert set(np.unique(result.posterior["included"])) == {0, 1}
    assert result.posterior["w"].values[0, 0] != result.posterior["w"].values[1, 0]
    assert not result.converged  # 60 draws are not enough, and it says so
    np.testing.assert_array_equal(again.posterior["w"], result.posterior["w"])


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("tune", 0),
        ("tune", 1.5),
        ("target_accept", 1.0),
        ("target_accept", "high"),
        ("sampler", "stan"),
        ("cores", 0),
        ("form", "centred"),
        ("compiled", "yes"),
        ("weights", 3),
        ("weights", ()),
        ("predictor", 3),
    ],
)
def test_bad_settings_are_named(argument: str, value: Any) -> None:
    with pytest.raises(InputError, match=argument):
        NUTS(**{argument: value})


def test_nothing_to_sample() -> None:
    with pm.Model() as model:
        pm.Normal("t", 0, 1, observed=1.0)
    with pytest.raises(UnsupportedPair, match="no free variable"):
        run(model)
