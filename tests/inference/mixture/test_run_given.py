"""A mixture at a given subset: its graph, its names of kernels, what is refused."""

import numpy as np
import pytensor
import pytest
import xarray as xr
from scipy.special import logsumexp

import ardvark as av
from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.mixture.background import Evidence
from ardvark.inference.mixture.chains import relabelled, rung
from ardvark.inference.mixture.chains import start as first_state
from ardvark.inference.mixture.kernels import State, gibbs_sweep
from ardvark.inference.mixture.reading import reading_of
from ardvark.inference.mixture.run_given import (
    _renamed,
    _usual_kernels,
    given_scale,
    states_of,
)
from ardvark.inference.samplers.chain_statistics import ess_mean
from ardvark.models.card import card_of
from ardvark.models.mixture import rbf_mixture

NAMES = ("x0", "x1", "x2")


def data():
    rng = np.random.default_rng(2)
    t = np.arange(12) % 2
    return rng.normal(size=(12, 3)) * [1, 10, 0.1] + 1.5 * t[:, None] * [1, 0, 0], t


def logp_of(model):
    with pytensor.config.change_flags(cxx=""):
        return model.compile_logp(mode="FAST_COMPILE")


def start(model):
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        return model.initial_point()


@pytest.mark.parametrize("target", ["joint", "conditional"])
def test_the_graph_is_that_of_the_columns_alone(target):
    """Names or indices; differences to the graph of all subsets at the same coefficients."""
    X, t = data()
    given = rbf_mixture(X, t, n_kernels=2, target=target, included=["x2", "x0"])
    by_index = rbf_mixture(X, t, n_kernels=2, target=target, included=[0, 2])
    whole = rbf_mixture(X, t, n_kernels=2, target=target)
    assert list(given.coords["used"]) == ["x0", "x2"]
    assert card_of(given).included == card_of(by_index).included == (0, 2)
    assert all(np.dtype(rv.dtype).kind == "f" for rv in given.free_RVs)
    rng = np.random.default_rng(1)
    one, all_inputs = start(given), start(whole)
    of_given, of_index, of_whole = (logp_of(model) for model in (given, by_index, whole))
    gaps = []
    for _ in range(2):
        all_inputs["included"] = np.array([1, 0, 1])
        for name in one:
            value = rng.normal(size=all_inputs[name].shape)
            used = name.startswith("kernel") and "probability" not in name
            if used:
                value[1] = 0.3  # of the input that is not in: the same both times
            all_inputs[name] = value
            one[name] = value[[0, 2]] if used else value
        gaps.append(of_given(one) - of_whole(all_inputs))
    assert of_given(one) == pytest.approx(of_index(one))
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-8)


def test_kernels_get_common_names():
    """Draws that differ by the order of the kernels alone become one; P(t | x) stays as it is."""
    X, t = data()
    model = rbf_mixture(X, t, n_kernels=2, included=[0])
    rng = np.random.default_rng(1)
    mean = np.array([0.0, 1.5]) + 0.05 * rng.normal(size=(2, 20, 1, 2))
    weight = np.array([[0.9, 0.1], [0.1, 0.9]]) + np.zeros((2, 20, 2, 2))
    flip = np.arange(20) % 2 == 1
    mean[1, flip], weight[1, flip] = mean[1, flip][..., ::-1], weight[1, flip][..., ::-1]
    coords = {"chain": [0, 1], "draw": np.arange(20)}
    posterior = xr.Dataset(
        {
            "class_probability": (("chain", "draw", "class"), np.full((2, 20, 2), 0.5)),
            "kernel_probability": (("chain", "draw", "class", "kernel"), weight),
            "kernel_mean": (("chain", "draw", "used", "kernel"), mean),
            "kernel_precision": (("chain", "draw", "used", "kernel"), np.ones((2, 20, 1, 2))),
        },
        coords=coords,
    )
    scale = given_scale(card_of(model))
    states = states_of(posterior, scale)
    z = scale.to_z(X[:, [0]])
    named = relabelled(states._replace(d=_usual_kernels(states, z, t)))
    new = _renamed(posterior, named, scale)
    np.testing.assert_allclose(new.kernel_probability, weight[:1, :1] + 0 * weight, atol=1e-12)
    assert (np.diff(new.kernel_mean.values, axis=-1) > 1).all()
    before = av.predict(model, tree_of(posterior), X)
    np.testing.assert_allclose(av.predict(model, tree_of(new), X), before)


def tree_of(posterior):
    tree = xr.DataTree.from_dict({"posterior": posterior})
    tree.attrs = {"model": "rbf_mixture", "method": "nuts"}
    return tree


@pytest.mark.parametrize("wrong", [[], ["x0", "x0"], ["x9"], [3], [True], [-1]])
def test_a_subset_that_is_none_is_refused(wrong):
    with pytest.raises(InputError, match="included"):
        rbf_mixture(*data(), included=wrong)


def test_what_a_given_subset_is_not_fitted_by():
    model = rbf_mixture(*data(), n_kernels=2, included=[0])
    for method in ("reversible_jump", "exact"):
        with pytest.raises(UnsupportedPair, match="the subset is given"):
            av.fit(model, method)
    with pytest.raises(UnsupportedPair, match="random_walk"):
        av.fit(model, "smc")
    with pytest.raises(UnsupportedPair, match=r"included=\[...\]"):
        av.fit(rbf_mixture(*data()), "nuts")


@pytest.mark.validate
def test_nuts_at_a_given_subset_agrees_with_reversible_jump_there():
    X, t = data()
    given = rbf_mixture(X, t, n_kernels=2, target="conditional", included=[0, 2])
    nuts = av.fit(given, av.NUTS(tune=1000), draws=2000, random_seed=1, progressbar=False)
    assert nuts.attrs["converged"], nuts.attrs["problems"]
    whole = rbf_mixture(X, t, n_kernels=2, target="conditional")
    settings = av.ReversibleJump(sweeps=40000, rungs=2)
    jumps = av.fit(whole, settings, draws=10000, random_seed=1, progressbar=False)
    there = (jumps.posterior.included.values == [1, 0, 1]).all(axis=-1)
    log_t = jumps.log_likelihood.t.values.sum(axis=-1)[there]
    own = nuts.log_likelihood.t.values.sum(axis=-1)
    error = np.hypot(log_t.std() / np.sqrt(len(log_t) / 10), own.std() / np.sqrt(own.size / 20))
    assert abs(own.mean() - log_t.mean()) < 4 * error


@pytest.mark.validate
def test_evidence_of_a_subset_by_smc_is_that_of_draws_from_the_prior():
    """Random walks in small stages; the subset of the first two of three inputs."""
    rng = np.random.default_rng(1)
    t = np.arange(13) % 2
    X = rng.normal(size=(13, 3)) + np.outer(t, [1.5, 0.7, 0])
    whole = rbf_mixture(X, t, n_kernels=2, target="conditional")
    found = av.diagnostics.conditional_posterior(whole, 200_000)
    there = (found.included.values == [1, 1, 0]).all(axis=1)
    model = rbf_mixture(X, t, n_kernels=2, target="conditional", included=[0, 1])
    settings = av.SMC(kernel="random_walk", threshold=0.8, correlation_threshold=0.001)
    fit = av.fit(model, settings, draws=2000, random_seed=2, progressbar=False)["fit"]
    error = np.hypot(fit.log_evidence_error.item(), found.error.values[there].item())
    assert error < 0.1
    assert abs(fit.log_evidence.item() - found.log_evidence.values[there].item()) < 4 * error


@pytest.mark.validate
def test_evidence_of_a_subset_by_bridge_is_that_of_draws_from_the_prior():
    """NUTS keeps to one order of the kernels; the bridge counts both."""
    rng = np.random.default_rng(1)
    t = np.arange(13) % 2
    X = rng.normal(size=(13, 3)) + np.outer(t, [1.5, 0.7, 0])
    whole = rbf_mixture(X, t, n_kernels=2, target="conditional")
    found = av.diagnostics.conditional_posterior(whole, 60_000)
    there = (found.included.values == [1, 1, 0]).all(axis=1)
    model = rbf_mixture(X, t, n_kernels=2, target="conditional", included=[0, 1])
    nuts = av.fit(model, av.NUTS(tune=500), draws=1000, chains=2, random_seed=1, progressbar=False)
    bridged = av.diagnostics.bridge(model, nuts)
    error = np.hypot(bridged.error, found.error.values[there].item())
    assert bridged.reliable and error < 0.2  # log 2 would be 0.69
    assert abs(bridged.log_evidence - found.log_evidence.values[there].item()) < 4 * error


@pytest.mark.validate
def test_nuts_on_wine_agrees_with_gibbs_updates():
    """Three kernels, four inputs, joint density; what is compared does not know kernels by name."""
    data = av.load("wine")
    rows, columns = slice(0, None, 3), [0, 6, 9, 12]
    X, t = np.asarray(data.X)[rows], np.asarray(data.t)[rows]
    model = rbf_mixture(X, t, n_kernels=3, included=columns)
    nuts = av.fit(model, "nuts", draws=1000, chains=2, random_seed=1, progressbar=False)
    assert nuts.attrs["converged"], nuts.attrs["problems"]
    states = states_of(nuts.posterior.to_dataset(), given_scale(card_of(model)))
    read = reading_of(rbf_mixture(X, t, n_kernels=3), "Gibbs")
    p = read.problem(Evidence(*np.zeros((2, X.shape[1]))))
    own = [invariants(states, i, p.z[columns], p.label) for i in range(2000)]
    own = np.reshape(own, (2, 1000, -1))
    wrong = p._replace(shape=p.shape + 4)
    right, fault = (difference(own, gibbs_chains(which, columns)) for which in (p, wrong))
    assert right < 4.5 < fault


def difference(a, b):
    """Largest |z| of means and of second moments about the mean of all, (chain, draw, number)."""
    middle = np.concatenate([a, b], axis=1).mean(axis=(0, 1))
    z = []
    for power in (1, 2):
        both = [(draws - middle) ** power for draws in (a, b)]
        error = np.hypot(*(d.std(axis=(0, 1)) / np.sqrt(ess_mean(d)) for d in both))
        z.append(np.abs(both[0].mean(axis=(0, 1)) - both[1].mean(axis=(0, 1))) / error)
    return np.max(z)


def invariants(states, i, z, label):
    """Log densities of labels and inputs, class probabilities, sums over kernels."""
    P, w, mean, tau = states.P[i], states.w[i], states.mean[i], states.tau[i]
    square = (z[:, :, None] - mean[:, None]) ** 2
    log_row = 0.5 * (np.log(tau)[:, None] - tau[:, None] * square).sum(axis=0)
    joint = np.log(P) + logsumexp(log_row[:, None] + np.log(w), axis=2)
    log_x = logsumexp(joint, axis=1)
    log_t = joint[np.arange(len(label)), label] - log_x
    return np.array([
        log_t.sum(), log_x.sum(), P[0], P[1], mean.sum(), np.log(tau).sum(), (w**2).sum(),
        np.log(tau[0]).max(),
    ])  # fmt: skip


def gibbs_chains(p, columns):
    return np.array([gibbs_chain(p, columns, seed) for seed in range(2)])


def gibbs_chain(p, columns, seed):
    """Gibbs updates at a subset alone: 10,000 sweeps after 1000, every tenth of them kept."""
    rng = np.random.default_rng(seed)
    s = rung(first_state(rng, p, 3, 3, 1, 1), 0)
    s.on[:] = np.isin(np.arange(len(p.z)), columns)
    rows, found = np.empty((3, p.z.shape[1])), []
    for sweep in range(11_000):
        gibbs_sweep(rng, p, s, rows)
        if sweep >= 1000 and sweep % 10 == 0:
            one = State(None, None, None, s.P[None], s.w[None], s.mean[None, columns],
                        s.tau[None, columns], None)  # fmt: skip
            found.append(invariants(one, 0, p.z[columns], p.label))
    return found
