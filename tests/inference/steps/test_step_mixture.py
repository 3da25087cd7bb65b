"""MixtureGibbs, MixtureJump: the enumerated posterior, PyMC's contract, what is refused."""

import numpy as np
import pymc as pm
import pytensor
import pytest

import ardvark as av
from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.mixture.kernels import State
from ardvark.inference.samplers.chain_statistics import ess_mean
from ardvark.inference.steps.mixture import MixtureGibbs, MixtureJump

CODE = np.array([4, 2, 1])


def mixture(**settings):
    rng = np.random.default_rng(1)
    t = np.arange(12) % 2
    X = rng.normal(size=(12, 3)) * [1, 10, 0.1]
    X[:, 0] += 1.5 * t
    return av.models.rbf_mixture(X, t, n_kernels=2, **settings)


def start_of(model):
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        return model.initial_point()


def walk(steps, point, number):
    """Some functions of the points of a chain: subset, and moments of everything else."""
    seen = []
    for _ in range(number):
        for step in steps:
            point, _ = step.step(point)
        seen.append([point["included"] @ CODE, *moments(point)])
    return np.array(seen)


def moments(point):
    on = point["included"] > 0
    parts = (
        "kernel_mean", "kernel_precision_log__", "background_mean", "background_precision_log__"
    )  # fmt: skip
    sides = [np.where(on[:, None], point[name], 0).sum(axis=1) for name in parts]
    sides += [np.where(on[:, None], 0, point[name]).sum(axis=1) for name in parts]
    return np.concatenate([*sides, point["class_probability_simplex__"]])


@pytest.fixture(scope="module")
def model():
    return mixture()


@pytest.fixture(scope="module")
def exact(model):
    return av.fit(model, "exact", draws=4000, chains=1, random_seed=1, progressbar=False)


def of_draws(tree):
    """The same functions of independent draws."""
    draws = {name: value.values[0] for name, value in tree.posterior.data_vars.items()}
    log_p = np.log(draws["class_probability"])
    points = {
        "included": draws["included"],
        "kernel_mean": draws["kernel_mean"],
        "kernel_precision_log__": np.log(draws["kernel_precision"]),
        "background_mean": draws["background_mean"],
        "background_precision_log__": np.log(draws["background_precision"]),
        "class_probability_simplex__": log_p[:, :-1] - log_p.mean(axis=1, keepdims=True),
    }
    return np.array(
        [
            [p["included"] @ CODE, *moments(p)]
            for p in ({k: v[i] for k, v in points.items()} for i in range(len(log_p)))
        ]
    )


def gaps(seen, exact):
    """Differences to the enumeration's subsets and to the moments of its draws, by their error."""
    own = of_draws(exact)
    subsets = exact["subsets"].to_dataset()
    order = subsets.included.values @ CODE
    z = []
    for code, probability in zip(order, subsets.probability.values, strict=True):
        hit = (seen[:, :1] == code).astype(float)[None]
        error = np.sqrt(probability * (1 - probability) / ess_mean(hit)[0])
        z.append((hit.mean() - probability) / error)
    rest = seen[:, 1:]
    error = np.sqrt(rest.var(axis=0) / ess_mean(rest[None]) + own[:, 1:].var(axis=0) / len(own))
    return np.abs([*z, *((rest.mean(axis=0) - own[:, 1:].mean(axis=0)) / error)])


def test_the_steps_sample_the_enumerated_posterior(model, exact):
    steps = [MixtureGibbs(model=model, rng=3), MixtureJump(model=model, rng=4)]
    seen = walk(steps, start_of(model), 6000)[200:]
    assert gaps(seen, exact).max() < 4.5  # of 33 numbers
    assert steps[1].evidence_error < 0.05


def functions_of(tree):
    """Subsets and moments of the draws of a tree, (chain, draw, function)."""
    draws = tree.posterior
    on = draws.included.values > 0
    code = (on @ CODE)[..., None] == np.arange(8)
    inside = on[..., None]
    parts = [draws.kernel_mean.values**2, np.log(draws.kernel_precision.values)]
    moments = [np.where(inside, part, 0).sum(axis=-1) for part in parts]
    outside = np.where(inside, 0, draws.background_mean.values).sum(axis=-1)
    rest = [draws.class_probability.values[..., :1], outside]
    return np.concatenate([on, code, *moments, *rest], axis=-1)


def test_pm_sample_with_the_steps_is_reversible_jump():
    """13 rows and 3 inputs; each route in units of the error of both."""
    rng = np.random.default_rng(7)
    t = np.arange(13) % 2
    X = rng.normal(size=(13, 3)) + np.outer(t, [1.5, 0.7, 0])
    model = av.models.rbf_mixture(X, t, n_kernels=2)
    with pytensor.config.change_flags(cxx=""):
        steps = [MixtureGibbs(model=model), MixtureJump(model=model)]
        sampled = pm.sample(
            3000, tune=200, chains=2, cores=1, step=steps, model=model, random_seed=2,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    fitted = av.fit(
        model, av.ReversibleJump(sweeps=15_000), draws=5000, chains=2, random_seed=3,
        progressbar=False,
    )  # fmt: skip
    one, two = functions_of(sampled), functions_of(fitted)
    gap = np.abs(one.mean(axis=(0, 1)) - two.mean(axis=(0, 1)))
    variance = [x.var(axis=(0, 1)) / np.maximum(ess_mean(x), 1) for x in (one, two)]
    moves = variance[0] + variance[1] > 0
    assert (gap[~moves] == 0).all()
    assert (gap[moves] / np.sqrt(variance[0] + variance[1])[moves]).max() < 4.5  # of 21 numbers
    assert one[..., :3].mean(axis=(0, 1)).min() > 0.02  # every input is in at times


class StaleJump(MixtureJump):
    """A planted fault: an input that dies keeps the background of the prior."""

    def _sweep_backgrounds(self) -> None:
        self.rate[:] = 1.0


def test_a_background_that_is_not_drawn_is_seen(model, exact):
    steps = [MixtureGibbs(model=model, rng=3), StaleJump(model=model, rng=4)]
    assert gaps(walk(steps, start_of(model), 1000), exact).max() > 10


def test_the_contract_of_a_step(model):
    """In `pm.sample`, with the stats; a stored state goes on as the step itself would have."""
    with pytensor.config.change_flags(cxx=""):
        steps = [MixtureGibbs(model=model), MixtureJump(model=model, jumps=2)]
        tree = pm.sample(
            20, tune=5, chains=1, cores=1, step=steps, model=model, random_seed=1,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    assert (tree.sample_stats.subset_size == tree.posterior.included.sum("feature")).all()
    assert set(tree.posterior.data_vars) >= {rv.name for rv in model.free_RVs}
    step, other = MixtureJump(model=model, rng=5), MixtureJump(model=model, rng=6)
    point, _ = step.step(start_of(model))
    other.sampling_state = step.sampling_state
    one, two = step.step(point)[0], other.step(point)[0]
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def test_a_point_and_its_state_are_the_same(model):
    """Units, transforms and the floor of the rates, there and back."""
    step, point = MixtureGibbs(model=model, rng=1), start_of(model)
    point, _ = step.step(point)
    s = step.values.state(point)
    assert isinstance(s, State)
    back = step.values.coefficients(
        ("kernel_mean", "kernel_precision", "kernel_rate"), s.mean, s.tau, s.beta
    )
    for name, value in back.items():
        np.testing.assert_allclose(value, point[name], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(s.P.sum(), 1)
    np.testing.assert_allclose(s.w.sum(axis=1), 1)


def test_what_the_steps_do_not_take_is_refused(model):
    with pytest.raises(InputError, match="together"):
        MixtureGibbs(["kernel_mean"], model=model)
    with pytest.raises(UnsupportedPair, match="no Gibbs updates"):
        MixtureJump(model=mixture(target="conditional"))
    with pm.Model() as own:
        pm.Normal("x")
    with pytest.raises(InputError, match="rbf_mixture"):
        MixtureGibbs(model=own)
