"""The mixture by `fit`: its tree, its predictions, what is refused."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from model_variants import sample_data

import ardvark as av
from ardvark.errors import ConvergenceWarning, InputError, InputWarning, UnsupportedPair
from ardvark.inference.mixture import run as run_module
from ardvark.inference.mixture.chains import empty_state, relabelled
from ardvark.inference.mixture.run import fit_mixture, read_mixture

SHORT = av.ReversibleJump(sweeps=900, tune=300)


def two_humps(seed=1, n=60):
    """Two classes that one input tells apart, one input that does not, two labels missing."""
    rng = np.random.default_rng(seed)
    t = np.arange(n) % 2
    X = np.stack([rng.normal(3.0 * t, 1.0), rng.normal(size=n)], axis=1)
    labels = t.astype(float)
    labels[[5, 8]] = np.nan
    return X, t, labels


@pytest.fixture(scope="module")
def fitted():
    X, t, labels = two_humps()
    model = av.models.rbf_mixture(X, labels, n_kernels=2)
    tree = av.fit(model, SHORT, draws=100, chains=2, random_seed=2, progressbar=False)
    return model, tree, X, t


def test_tree_has_every_group(fitted, tmp_path):
    model, tree, X, _ = fitted
    assert set(tree.posterior.data_vars) == {rv.name for rv in model.free_RVs}
    assert tree.posterior.attrs["sampling_kind"] == "mcmc"
    assert tree.log_likelihood.t.shape == (2, 100, len(X) - 2)  # the labelled rows
    assert tree.subsets.probability.sum() == pytest.approx(1)
    tried = tree.sample_stats.tried.sum(("chain", "size"))
    assert tried.sel(move=["birth", "death", "exchange"]).sum() == 2 * 600 * 2  # sweeps, jumps
    assert tried.sel(move="leap") == 2 * 600 / 5
    assert (tree.sample_stats.accepted <= tree.sample_stats.tried).all()
    assert tree.attrs["method"] == "reversible_jump"
    tree.to_zarr(tmp_path / "tree.zarr", consolidated=False)
    again = xr.open_datatree(tmp_path / "tree.zarr", engine="zarr", consolidated=False)
    xr.testing.assert_identical(again["subsets"].dataset, tree["subsets"].dataset)


def test_it_finds_the_input_that_tells_the_classes_apart(fitted):
    model, tree, X, t = fitted
    inclusion = tree["fit"].inclusion
    assert inclusion.sel(feature="x0") > 0.99 > 0.9 > inclusion.sel(feature="x1")
    table = av.subsets(tree)
    assert table.features[0] == ("x0",)
    rank = av.relevance(tree)
    assert list(rank.index) == ["x0", "x1"]
    assert rank.loc["x0", "rank"] == 1
    predicted = av.predict(model, tree, X)
    assert predicted.dims == ("row", "class")
    np.testing.assert_allclose(predicted.sum("class"), 1, atol=1e-12)
    assert (predicted.values.argmax(axis=1) == t).mean() > 0.85
    assert av.predict(model, tree, X[[5, 8]]).values.argmax(axis=1).tolist() == t[[5, 8]].tolist()


def test_log_likelihood_is_that_of_the_labels(fitted):
    model, tree, X, _ = fitted
    at = tree.posterior.isel(chain=1, draw=[40])
    one = xr.DataTree.from_dict({"posterior": at.to_dataset().expand_dims("chain")})
    known = tree.log_likelihood.row.values
    predicted = av.predict(model, one, X[known])
    labels = model["label"].get_value()[known]
    expected = np.log(predicted.values[np.arange(len(known)), labels])
    np.testing.assert_allclose(tree.log_likelihood.t[1, 40], expected, atol=1e-9)


def test_stored_draws_are_points_of_the_graph(fitted):
    """Also coefficients that the data do not reach are there, and where the graph allows them."""
    model, tree, _, _ = fitted
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        found = xr.DataTree.from_dict({"posterior": tree.posterior.isel(draw=slice(4)).dataset})
        pm.compute_log_likelihood(found, model=model, progressbar=False)
        pm.compute_log_prior(found, model=model, progressbar=False)
    for group in ("log_likelihood", "log_prior"):
        for values in found[group].data_vars.values():
            assert np.isfinite(values).all(), values.name


def test_same_seed_same_tree(fitted):
    model, tree, _, _ = fitted
    again = av.fit(model, SHORT, draws=100, chains=2, random_seed=2, progressbar=False)
    xr.testing.assert_equal(again.posterior.dataset, tree.posterior.dataset)


def test_reversible_jump_and_enumeration_agree_by_fit():
    rng = np.random.default_rng(3)
    t = np.arange(9) % 2
    X = np.stack([rng.normal(t), rng.normal(size=9)], axis=1)
    model = av.models.rbf_mixture(X, t, n_kernels=2, background="gaussian")
    exact = av.fit(model, "exact", draws=500, chains=2, random_seed=1, progressbar=False)
    chains = av.fit(
        model, av.ReversibleJump(sweeps=9000), draws=500, chains=4, random_seed=1, progressbar=False
    )
    sets = [tree["subsets"].to_dataset().set_coords("included") for tree in (exact, chains)]
    for subset in range(4):
        same = (sets[1].included == sets[0].included[subset]).all("feature")
        found = sets[1].isel(subset=same.values)
        gap = abs(found.probability.item() - sets[0].probability[subset].item())
        assert gap < 4 * found.mcse.item()
    for name in ("class_probability", "kernel_rate"):  # of included and of excluded inputs
        a, b = (np.log(tree.posterior[name]).stack(s=("chain", "draw")) for tree in (exact, chains))
        error = np.hypot(a.std("s"), 2 * b.std("s")) / np.sqrt(1000)
        assert (abs(a.mean("s") - b.mean("s")) < 4 * error).all(), name


def test_chains_that_disagree_are_reported():
    X, _, labels = two_humps(n=12)
    model = av.models.rbf_mixture(X, labels, n_kernels=2)
    with pytest.warns(ConvergenceWarning, match="One chain only"):
        av.fit(
            model, av.ReversibleJump(sweeps=90), draws=10, chains=1, random_seed=1,
            progressbar=False,
        )  # fmt: skip


def test_what_cannot_be_sampled_is_refused():
    X, t = sample_data("multiclass")
    model = av.models.rbf_mixture(X, t, n_kernels=2)
    with pytest.raises(UnsupportedPair, match="belongs to the posterior"):
        av.fit(model, av.ReversibleJump(hyper=av.Fixed()))
    with pytest.raises(UnsupportedPair, match="Use reversible_jump"):
        av.fit(model, "laplace")
    with pytest.raises(UnsupportedPair, match="allocations"):
        av.fit(av.models.rbf_mixture(X, t, n_kernels=6), "exact")
    with model:
        pm.Potential("more", -(model["kernel_mean"] ** 2).sum())
    with pytest.raises(UnsupportedPair, match="has got more"):
        fit_mixture(model, "reversible_jump", SHORT, None)
    ard = av.models.ard_classification(X, t > 0)
    with pytest.raises(UnsupportedPair, match="never leave the model"):
        av.fit(ard, "reversible_jump")


def test_bad_arguments_are_named():
    X, t = sample_data("multiclass")
    with pytest.raises(InputError, match="n_kernels"):
        av.models.rbf_mixture(X, t, n_kernels=0)
    with pytest.raises(InputError, match="background must be one of"):
        av.models.rbf_mixture(X, t, background="gauss")
    with pytest.raises(InputError, match="constant column, 'x1'"):
        av.models.rbf_mixture(X * [1, 0, 1], t)
    with pytest.raises(InputError, match="resolution=0"):
        av.models.rbf_mixture(np.round(X), t, n_kernels=1, resolution=0.0)
    for wrong in (
        {"sweeps": 0},
        {"proposals": "date"},
        {"rungs": 0},
        {"scouts": -1},
        {"tune": -1},
        {"jumps": 0},
    ):
        with pytest.raises(InputError, match=next(iter(wrong))):
            av.ReversibleJump(**wrong)


def test_prior_is_read_in_the_units_of_the_graph():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12, 4)) * [1, 5, 0.1, 1] + [0, 3, 0, -2]
    t = np.array([0, 1, 2] * 4, dtype=float)
    t[[1, 7]] = np.nan
    model = av.models.rbf_mixture(X, t, n_kernels=3)
    read = read_mixture(model, "reversible_jump", SHORT)
    np.testing.assert_allclose(read.h, 10.0)
    np.testing.assert_allclose(np.ptp(read.z, axis=1), 1.0)
    assert read.label.min() == -1


def test_kernels_get_the_same_names_in_every_draw():
    rng = np.random.default_rng(4)
    true, draws = rng.integers(3, size=20), 30
    states = empty_state((draws,), 2, 3, 2, 20)
    for i in range(draws):
        switch = rng.permutation(3)  # old name of each kernel in this draw
        states.d[i] = switch[true]
        states.w[i][:, switch] = [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]
        states.mean[i][:, switch] = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    named = relabelled(states)
    for part in (named.w, named.mean, named.d):
        np.testing.assert_array_equal(part, np.broadcast_to(part[:1], part.shape))
    assert not np.array_equal(states.d, np.broadcast_to(states.d[:1], states.d.shape))


@pytest.mark.filterwarnings("ignore::ardvark.errors.ConvergenceWarning")  # a short run
def test_a_joint_density_takes_inputs_that_describe_each_other():
    """The class knows nothing of x0 and x1; they are in for their dependence, x2 is not."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100, 3))
    X[:, 1] = X[:, 0] + 0.3 * rng.normal(size=100)
    model = av.models.rbf_mixture(X, rng.integers(2, size=100), n_kernels=2)
    tree = av.fit(model, SHORT, draws=50, chains=2, random_seed=1, progressbar=False)
    inclusion = tree["fit"].inclusion.values
    assert inclusion[:2].min() > 0.95
    assert inclusion[2] < 1 / 3  # its prior, λ over three inputs


def test_many_inputs_are_said_to_be_dear_before_anything_starts(monkeypatch):
    """500 inputs: minutes for their backgrounds, and not a word."""

    def started(*_):
        raise ArithmeticError("planted")

    monkeypatch.setattr(run_module, "mixture_evidence", started)
    X, t = np.random.default_rng(1).normal(size=(6, 500)), np.arange(6) % 2
    said = "500 jumps.*500 backgrounds of 6 kernels.*background='gaussian'"
    with pytest.warns(InputWarning, match=said), pytest.raises(ArithmeticError):
        av.fit(av.models.rbf_mixture(X, t, n_kernels=6), "reversible_jump", random_seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        run_module._warn_of_inputs(30, 6, "")  # few
        run_module._warn_of_inputs(500, 1, "")  # in closed form
