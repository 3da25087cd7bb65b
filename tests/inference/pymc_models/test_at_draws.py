"""Graphs at many draws in one call: PyMC's own numbers, draw by draw."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import ardvark as av
from ardvark.inference.pymc_models import at_draws, compile
from ardvark.inference.pymc_models.at_draws import log_likelihood_at

RNG = np.random.default_rng(12)
X = RNG.normal(size=(9, 2))
LABEL = np.arange(9) % 2


class Black(Op):
    """An operation that PyTensor knows nothing of."""

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dvector()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.array([inputs[0].sum(), 2.0, 3.0])


def several():
    with pm.Model() as model:
        w = pm.Normal("w", shape=(2, 2))
        pm.Categorical("z", p=[0.3, 0.7], observed=[0, 1, 1])
        pm.MvNormal("m", mu=w[0, 0] + np.zeros(3), cov=np.eye(3), observed=np.ones((4, 3)))
        pm.Censored("c", pm.Normal.dist(w[:, 0]), lower=0, upper=None, observed=[0.0, 1.0])
        pm.CustomDist("d", w[1], logp=lambda v, p: -((v - p) ** 2), observed=[1.0, 2.0])
        pm.Normal("nothing", observed=[1.0, 2.0])
    return model


def missing():
    with pm.Model() as model:
        w = pm.Normal("w")
        with pytest.warns(UserWarning, match="Data in y contains missing values"):
            pm.Normal("y", mu=w, observed=np.array([1.0, np.nan, 2.0]))
    return model


def in_a_loop():
    with pm.Model() as model:
        w = pm.Normal("w", shape=2)
        start = pt.constant(0.0, dtype="float64")
        rows = pytensor.scan(
            lambda a, b: a * 0.5 + b, sequences=[w], outputs_info=[start], return_updates=False
        )
        pm.Normal("y", mu=rows, observed=[1.0, 2.0])
    return model


def not_known():
    with pm.Model() as model:
        pm.Normal("y", mu=Black()(pm.Normal("w", shape=2)), observed=[1.0, 2.0, 3.0])
    return model


MODELS = {
    "several": several,
    "missing": missing,
    "in a loop": in_a_loop,
    "not known": not_known,
    "three classes": lambda: av.models.rvm_classification(
        X, np.arange(9) % 3, kernel=av.RBF(width=1.0), alpha=1.0
    ),
    "process": lambda: av.models.trigonometric_svm(X, LABEL),
    "mixture": lambda: av.models.rbf_mixture(X, LABEL, n_kernels=2),
}


def draws_of(model, count):
    with compile.quick():
        drawn = pm.draw(list(model.free_RVs), draws=count, random_seed=1, mode="FAST_COMPILE")
    return {rv.name: v for rv, v in zip(model.free_RVs, drawn, strict=True)}


@pytest.mark.parametrize("name", MODELS)
def test_log_likelihoods_are_those_of_pymc(name, monkeypatch):
    model = MODELS[name]()
    monkeypatch.setattr(at_draws, "_NUMBERS", 250)  # blocks of a few draws
    draws = draws_of(model, 7)
    ours = log_likelihood_at(model, draws)
    posterior = {
        n: (("chain", "draw", *(f"{n}{i}" for i in range(v.ndim - 1))), v[None])
        for n, v in draws.items()
    }
    with compile.quick():
        wanted = pm.compute_log_likelihood(
            xr.DataTree.from_dict({"posterior": xr.Dataset(posterior)}),
            model=model, extend_inferencedata=False, progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )  # fmt: skip
    assert set(ours) == set(wanted.data_vars)
    for node, values in ours.items():
        np.testing.assert_allclose(values, wanted[node].values[0], rtol=1e-12, atol=1e-12)


def test_it_is_compiled_once_and_reads_the_data_of_today(monkeypatch):
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(3))
        pm.Normal("y", mu=pm.Normal("w"), observed=data)
    before = log_likelihood_at(model, {"w": np.zeros(2)})["y"]
    monkeypatch.setattr(at_draws, "_compiled", None)
    data.set_value(np.ones(5))
    after = log_likelihood_at(model, {"w": np.zeros(2)})["y"]
    assert (before.shape, after.shape) == ((2, 3), (2, 5))
    np.testing.assert_allclose(before[0, 0] - after[0, 0], 0.5)
