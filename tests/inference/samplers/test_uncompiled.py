"""NUTS with nothing compiled: against the compiled graph, and how it behaves as a sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import ardvark as av
from ardvark.inference.samplers import nuts, uncompiled
from ardvark.inference.samplers.chain_statistics import ess_bulk
from ardvark.inference.samplers.nuts import NUTS, sample_nuts

pytestmark = pytest.mark.filterwarnings("ignore::ardvark.errors.ConvergenceWarning")  # few draws
LIMIT = 4.5  # Monte Carlo standard errors: P(beyond) = 7e-6 for each of some hundred numbers


def data(seed: int, rows: int = 40, features: int = 3) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    return X, (X[:, 0] - 0.5 * X[:, 1] + rng.normal(size=rows) > 0).astype(int)


def own_model() -> Any:
    X, t = data(1)
    with pm.Model(coords={"feature": ["a", "b", "c"]}) as model:
        sd = pm.HalfNormal("sd", 1.0)
        w = pm.Normal("w", 0, sd, dims="feature")
        pm.Deterministic("total", w.sum())
        pm.Bernoulli("t", logit_p=X @ w, observed=t)
    return model


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    import nutpie

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a graph was compiled")

    monkeypatch.setattr(nutpie, "compile_pymc_model", refuse)


def draws_of(model: Any, settings: NUTS | None = None, seed: int = 1, **options: Any) -> Any:
    asked = {"draws": 300, "chains": 4, "random_seed": seed, "progressbar": False} | options
    return sample_nuts(model, settings or NUTS(tune=300), **asked)


# -------------------------------------------------------------------------- the same posterior


def numbers(posterior: xr.Dataset) -> Any:
    """Weights and the logarithms of their precisions (chain, draw, element)."""
    parts = [posterior["bias"], np.log(posterior["alpha_bias"])]
    columns = [part.to_numpy()[..., None] for part in parts]
    columns += [posterior["w"].to_numpy(), np.log(posterior["alpha"].to_numpy())]
    return np.concatenate(columns, axis=-1)


def z_scores(one: Any, other: Any) -> Any:
    """Differences of means and of mean squares about one centre, in Monte Carlo errors."""
    centre, found = other.mean(axis=(0, 1)), []
    for power in (1, 2):
        a, b = (one - centre) ** power, (other - centre) ** power
        error = sum(x.var(axis=(0, 1)) / ess_bulk(x) for x in (a, b))
        found.append((a.mean(axis=(0, 1)) - b.mean(axis=(0, 1))) / np.sqrt(error))
    return np.concatenate(found)


def against_the_graph(link: str, seeds: range) -> Any:
    """Both routes on several data sets, one compilation for all."""
    model = av.models.ard_classification(*data(100), link=link)
    found = []
    for seed in seeds:
        X, t = data(100 + seed)
        model.set_data("X", X)
        model.set_data("t_observed", t)
        known = draws_of(model, NUTS(), seed, draws=1000)
        graph = draws_of(model, NUTS(compiled=True), 1000 + seed, draws=1000)
        assert (known.info["density"], graph.info["density"]) == ("machine code", "graph")
        found.append((numbers(known.posterior), numbers(graph.posterior)))
    return found


def test_posterior_is_that_of_the_compiled_graph() -> None:
    for known, graph in against_the_graph("probit", range(2)):
        assert np.abs(z_scores(known, graph)).max() < LIMIT
        moved = known + 0.2 * known.std(axis=(0, 1))
        assert np.abs(z_scores(moved, graph)).max() > LIMIT


@pytest.mark.validate
@pytest.mark.parametrize("link", ["probit", "logit"])
def test_posteriors_of_many_data_sets(link: str) -> None:
    z = np.array([z_scores(*pair) for pair in against_the_graph(link, range(10))])
    assert np.abs(z).max() < LIMIT
    assert 0.8 < z.std() < 1.2  # the errors are as large as they are said to be


# ----------------------------------------------------------------------------------- as a sampler


def test_nothing_is_compiled_and_the_tree_says_so(no_compiler: None) -> None:
    model = av.models.ard_classification(*data(2))
    tree = av.fit(model, NUTS(tune=200), draws=200, random_seed=1, progressbar=False)
    sampler = tree.attrs["sampler"]
    assert '"density": "machine code"' in sampler
    assert '"form": "integrated"' in sampler
    assert list(tree["posterior"].data_vars) == [rv.name for rv in model.free_RVs]
    statistics = {"diverging", "energy", "tree_depth", "lp", "step_size", "acceptance_rate"}
    assert statistics <= set(tree["sample_stats"].data_vars)
    latent = av.read_model(model)
    flat = {n: v.values.reshape((-1, *v.shape[2:])) for n, v in tree["posterior"].items()}
    theirs = latent.log_sites_at(latent.eta_of(flat), {n: flat[n] for n in latent.hyper})
    ours = tree["log_likelihood"]["t"].values.reshape(theirs.shape)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_same_seed_same_draws_whatever_the_cores(no_compiler: None) -> None:
    model = av.models.ard_classification(*data(3), link="logit")
    first = draws_of(model)
    xr.testing.assert_equal(first.posterior, draws_of(model).posterior)
    one = draws_of(model, NUTS(tune=300, cores=1))
    xr.testing.assert_equal(first.posterior, one.posterior)
    assert not np.array_equal(first.posterior["w"], draws_of(model, seed=2).posterior["w"])


def test_start_is_taken(no_compiler: None) -> None:
    model = av.models.ard_classification(*data(3))
    far = draws_of(model, NUTS(tune=1), draws=5, start={"w": np.full(3, 1e3)})
    assert far.posterior["w"].values.max() > 100  # one step from 1000 does not reach 0


def test_own_graph_with_a_scale(no_compiler: None) -> None:
    model = own_model()
    found = draws_of(model, start={"w": np.array([0.5, 0.0, 0.0]), "sd": 2.0})
    assert list(found.posterior) == ["sd", "w", "total"]
    assert list(found.posterior["feature"].values) == ["a", "b", "c"]
    np.testing.assert_allclose(found.posterior["total"], found.posterior["w"].sum("feature"))
    assert found.info["form"] == "as_written"


def test_at_fixed_hyperparameters(no_compiler: None) -> None:
    model = av.models.ard_classification(*data(4))
    fixed = av.Fixed({"alpha": np.array([1.0, np.inf, 0.3]), "alpha_bias": 2.0})
    tree = av.fit(model, NUTS(hyper=fixed, tune=200), draws=500, random_seed=1, progressbar=False)
    exact = av.fit(model, av.Exact(hyper=fixed), draws=2000, random_seed=2, progressbar=False)
    assert not tree["posterior"]["w"].values[..., 1].any()
    pair = [t["posterior"]["w"].values[..., [0, 2]] for t in (tree, exact)]
    assert np.abs(z_scores(*pair)).max() < LIMIT


def test_until_converged(no_compiler: None) -> None:
    model = av.models.ard_classification(*data(5))
    found = draws_of(model, NUTS(tune=200, until="converged", most_draws=2000), draws=50)
    assert found.converged
    assert 50 < found.info["draws"] <= 2000
    assert found.posterior.sizes["draw"] == found.info["draws"]


def test_sampled_by_nuts_is_the_same_door(no_compiler: None) -> None:
    model = av.models.ard_classification(*data(6))
    hyper = av.Sampled("nuts", tune=200)
    options = {"draws": 200, "random_seed": 3, "progressbar": False}
    tree = av.fit(model, av.EP(hyper=hyper), **options)
    same = av.fit(model, NUTS(tune=200), **options)
    np.testing.assert_array_equal(tree["posterior"]["w"], same["posterior"]["w"])
    assert '"kernel": "nuts"' in tree.attrs["sampler"]


# -------------------------------------------------------------------------- when it is not to be


class Graph:
    """Stands for the compiled graph."""

    def __init__(self, model: Any, *_: Any) -> None:
        self.info = {"density": "graph"}
        self.known = uncompiled.MachineCode(
            model, uncompiled.find_density(model, NUTS()), {}, None, None
        )

    def draw(self, *arguments: Any) -> Any:
        return self.known.draw(*arguments)


def test_a_density_that_is_wrong_where_the_chains_went_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nuts, "Graph", Graph)
    monkeypatch.setattr(uncompiled, "gap_at", lambda *_: "it is off by 1")
    found = draws_of(av.models.ard_classification(*data(7)))
    assert found.info["density"] == "graph"
    assert found.info["why_compiled"] == "it is off by 1"
    assert found.log_rows is None


def test_what_is_asked_for_or_unknown_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nuts, "Graph", Graph)
    model = av.models.ard_classification(*data(8))
    forced = draws_of(model, NUTS(tune=50, compiled=True), draws=50)
    assert forced.info["why_compiled"] == "it was asked for"
    monkeypatch.setattr(uncompiled, "differs", lambda *_: "it differs")
    assert uncompiled.find_density(model, NUTS()) == "it differs"


# ------------------------------------------------------------------------------------- the metric


def test_a_low_rank_metric_samples_the_same_posterior(no_compiler: None) -> None:
    model = av.models.ard_classification(*data(11))
    low = numbers(draws_of(model, NUTS(metric="low_rank"), draws=1000).posterior)
    diagonal = numbers(draws_of(model, NUTS(), seed=2, draws=1000).posterior)
    assert np.abs(z_scores(low, diagonal)).max() < LIMIT
    assert not np.array_equal(low, numbers(draws_of(model, NUTS(), draws=1000).posterior))


def test_a_metric_of_nutpie_is_refused_where_pymc_samples() -> None:
    model = av.models.ard_classification(*data(11))
    with pytest.raises(av.errors.UnsupportedPair, match="metric of nutpie's"):
        draws_of(model, NUTS(metric="low_rank", sampler="pymc"))
    with pytest.raises(ValueError, match="metric"):
        NUTS(metric="dense")
