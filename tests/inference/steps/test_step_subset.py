"""SubsetJump: PyMC's contract of a step, the ratio, enumeration, faults that must be seen."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.step_methods.compound import Competence
from subset_cases import (
    frequencies,
    regression,
    subset_problem,
    two_class_probabilities,
    two_classes,
)

import ardvark as av
from ardvark.errors import InputError, UnreadableModel
from ardvark.inference.steps.subset import SubsetJump
from ardvark.inference.subset.enumerate import enumerate_subsets

CHEAP = {"mode": "FAST_COMPILE"}


def jump_of(model, names=("included", "w", "bias"), cls=SubsetJump, **settings):
    with pytensor.config.change_flags(cxx=""), model:
        variables = [model[name] for name in names]
        return cls(variables, rng=5, **({"compile_kwargs": CHEAP} | settings))


def start_of(model):
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        return model.initial_point()


def walk(step, point, number):
    subsets = []
    for _ in range(number):
        point, _ = step.step(point)
        subsets.append(point["included"].copy())
    return np.array(subsets)[None]


class OwnLogp(SubsetJump):
    """The same with the regression's log density in NumPy: the graph's own is slow to call."""

    def use(self, model, forget_prior=False):
        problem = subset_problem(model)
        mean = model["t_observed"].get_value().mean()

        def logp(point):
            on = np.concatenate([[1], point["included"]])
            w = np.concatenate([[point["bias"] - mean], point["w"]])
            misfit = (problem.t - problem.A @ (on * w)) / problem.sigma
            prior = 0.0 if forget_prior else problem.log_prior[int(point["included"].sum())]
            return prior - 0.5 * misfit @ misfit - 0.5 * problem.alpha @ w**2

        self.logp = logp
        return self


class ForgottenProposal(OwnLogp):
    def log_proposal(self, state, theta):
        return 0.0


@pytest.fixture(scope="module")
def linear():
    model = regression(30, 4, noise=0.8)
    return model, enumerate_subsets(subset_problem(model)).probability


def test_the_step_samples_the_enumerated_posterior(linear):
    model, exact = linear
    step = jump_of(model, cls=OwnLogp).use(model)
    share, error = frequencies(walk(step, start_of(model), 4000), 4)
    assert 0.5 * np.abs(share - exact).sum() < 0.04
    often = exact > 5e-3
    assert np.all(np.abs(share - exact)[often] < 4 * error[often])


@pytest.mark.parametrize("fault", ["prior ratio", "proposal ratio"])
def test_a_forgotten_ratio_is_seen(linear, fault):
    model, exact = linear
    cls = ForgottenProposal if fault == "proposal ratio" else OwnLogp
    step = jump_of(model, cls=cls).use(model, forget_prior=fault == "prior ratio")
    share, _ = frequencies(walk(step, start_of(model), 2000), 4)
    assert 0.5 * np.abs(share - exact).sum() > 0.1


def test_the_numpy_log_density_of_these_tests_is_the_graphs(linear):
    model, _ = linear
    step, graph = jump_of(model, cls=OwnLogp), jump_of(model).logp
    step.use(model)
    point, other = start_of(model), start_of(model)
    other |= {"included": np.array([1, 0, 1, 0]), "w": np.array([0.3, -1.0, 0.2, 2.0])}
    assert step.logp(other) - step.logp(point) == pytest.approx(graph(other) - graph(point))


@pytest.mark.parametrize("states", [8, pytest.param(1700, marks=pytest.mark.validate)])
@pytest.mark.parametrize("approximation", ["laplace", "ep"])
@pytest.mark.parametrize("slab", [1.0, "ard", "shared"])
def test_the_ratio_back_is_the_opposite(slab, approximation, states):
    model = two_classes(slab=slab)
    step = jump_of(model, approximation=approximation)
    rng = np.random.default_rng(3)
    point = start_of(model)
    for _ in range(states):
        state = {k: np.array(v) for k, v in point.items()}
        for name in state:
            if name.startswith("alpha"):
                state[name] = rng.normal(size=state[name].shape)
        theta = step._natural(state)
        move, subset = step.propose_subset(rng.integers(0, 2, size=4))
        assert move in ("add", "delete", "exchange", "none")
        here, there = step.propose(state, 1 - subset, theta), step.propose(state, subset, theta)
        forward = step.logp(there) - step.log_proposal(there, theta)
        forward -= step.logp(here) - step.log_proposal(here, theta)
        step._fits.clear()  # the Gaussian is found anew: it must be the same
        back = step.logp(here) - step.log_proposal(here, theta)
        back -= step.logp(there) - step.log_proposal(there, theta)
        assert forward == pytest.approx(-back, abs=1e-9)
        assert list(there) == list(point)  # PyMC records by position


def test_where_q_is_exact_the_ratio_does_not_depend_on_the_weights(linear):
    """Gaussian noise: logp - log q is the log evidence of the subset, whatever w is."""
    model, exact = linear
    step, point = jump_of(model), start_of(model)
    values = {}
    for code in (0, 5, 6, 15):
        subset = np.array([code >> j & 1 for j in range(4)])
        found = []
        for _ in range(3):
            trial = step.propose(point, subset, {})
            found.append(step.logp(trial) - step.log_proposal(trial, {}))
        assert np.ptp(found) < 1e-8
        values[code] = found[0]
    for code, value in values.items():
        expected = np.log(exact[code] / exact[0])
        assert value - values[0] == pytest.approx(expected, abs=1e-8)


def test_contract_of_a_step():
    model = two_classes(slab="shared")
    step = jump_of(model)
    point = start_of(model)
    new, stats = step.step(point)
    assert list(new) == list(point)
    assert [set(s) for s in stats] == [set(step.stats_dtypes_shapes)]
    for name, value in new.items():
        assert value.dtype == point[name].dtype and value.shape == point[name].shape
    assert np.array_equal(new["alpha_log__"], point["alpha_log__"])  # not ours
    assert SubsetJump.competence(model["included"], True) is Competence.INCOMPATIBLE
    state = step.sampling_state
    first = step.step(point)[0]
    step.sampling_state = state
    again = step.step(point)[0]
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_it_takes_the_indicators_alone_on_any_graph():
    """A graph no reader takes apart: each weight goes through a tanh before the sum."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(20, 3))
    with pytensor.config.change_flags(cxx=""), pm.Model() as model:
        on = pm.Bernoulli("included", 0.4, shape=3)
        w = pm.Normal("w", 0, 1, shape=3)
        pm.Normal("t", x @ pm.math.tanh(on * w), 0.5, observed=np.tanh(x[:, 0]))
    step = jump_of(model, names=("included",))
    point = start_of(model)
    new, stats = step.step(point | {"w": np.array([1.0, 0.0, 0.0])})
    assert np.array_equal(new["w"], [1.0, 0.0, 0.0])
    assert stats[0]["subset_size"] == new["included"].sum()
    with pytest.raises(UnreadableModel):
        jump_of(model, names=("included", "w"))


def test_what_cannot_be_is_refused():
    model = two_classes()
    with pytest.raises(InputError, match="one vector of indicators"):
        jump_of(model, names=("w", "bias"))
    with pytest.raises(InputError, match="approximation"):
        jump_of(model, approximation="vb")
    with pytest.raises(InputError, match="jumps"):
        jump_of(model, jumps=0)
    with pytest.raises(InputError, match="needs its variables"), model:
        SubsetJump()


@pytest.mark.validate
def test_in_pm_sample_with_nuts_on_the_rest():
    model = regression(30, 4)
    exact = enumerate_subsets(subset_problem(model)).probability
    with model:
        step = av.steps.SubsetJump([model["included"], model["w"], model["bias"]])
        tree = pm.sample(
            1500, tune=300, chains=2, cores=2, step=[step], random_seed=3, progressbar=False,
            compute_convergence_checks=False,
            initvals=[{"included": np.zeros(4, int)}, {"included": np.ones(4, int)}],
        )  # fmt: skip
        again = pm.sample(
            20, tune=300, chains=2, cores=1, step=[step], random_seed=3, progressbar=False,
            compute_convergence_checks=False,
            initvals=[{"included": np.zeros(4, int)}, {"included": np.ones(4, int)}],
        )  # fmt: skip
    share, error = frequencies(tree.posterior["included"].values, 4)
    assert np.all(np.abs(share - exact) < 4 * error + 2e-3)
    np.testing.assert_array_equal(again.posterior["included"], tree.posterior["included"][:, :20])
    assert {"subset_accept", "tree_depth"} <= set(tree.sample_stats.data_vars)


@pytest.mark.validate
@pytest.mark.parametrize("link", ["probit", "logit"])
def test_two_classes_against_quadrature(link):
    model = two_classes(25, 3, link=link)
    problem = subset_problem(model)
    small = av.models.subset_classification(
        model["X"].get_value()[:, [0, 2]], model["t_observed"].get_value(), link=link,
        expected_inputs=1.5,
    )  # fmt: skip
    exact = two_class_probabilities(subset_problem(small), link == "probit")
    step = jump_of(small, compile_kwargs={})
    share, error = frequencies(walk(step, start_of(small), 4000), 2)
    assert np.all(np.abs(share - exact) < 4 * error)
    assert problem.n_inputs == 3
