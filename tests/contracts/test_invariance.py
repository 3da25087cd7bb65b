"""What must not change an answer: the order of rows and columns, how a table lies in memory.

Where the numbers of a table are the same, a model has the same data bit for bit, and so the same
draws. In another order of rows or columns rules that draw nothing agree but for rounding and for
where their searches stop; chains go other ways, and are compared in standard errors.
"""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import ardvark as av
from ardvark.inference.methods import METHODS
from ardvark.inference.samplers.chain_statistics import ess_mean
from ardvark.models.registry import MODELS
from ardvark.studies.validation.hard_inputs import PAIRS, build, settings

ROWS = np.random.default_rng(17).permutation(24)
COLUMNS = [2, 0, 1]
NAMES = ["x0", "x1", "x2"]


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


LAYOUTS = {
    "columns one after the other": np.asfortranarray,
    "every second number": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "float32": lambda X: X.astype(np.float32),
    "lists": lambda X: X.tolist(),
    "data frame": lambda X: pd.DataFrame(X, columns=NAMES),
    "read only": read_only,
}
ONE_OF_EACH = dict((method, model) for model, method in reversed(PAIRS))
QUICK = ("ard_regression", "ep")
# Searches with several optima, whose random starts go by the place of a column: in another order
# they end at another one. From a start that is the same for all columns they must not.
EVEN = {"kappa_0": 1.0, "kappa_a": np.full(3, 0.5), "kappa_b": 1.0}
SEVERAL = {
    ("trigonometric_svm", "laplace"): av.Laplace(hyper=av.Evidence(start=EVEN)),
    ("sample_feature_regression", "vb"): av.VB(starts=2),  # the third is random
}
LONG = ("trigonometric_svm", "sample_feature")  # minutes by NUTS and SMC


def data(model):
    """Numbers that float32 holds exactly."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(24, 3)).astype(np.float32).astype(float)
    score = X[:, 0] - X[:, 1] + 0.7 * rng.normal(size=24)
    return X, score if MODELS[model].task == "regression" else (score > 0).astype(int)


def fit(model, method, X, t, draws, ours=None):
    """A tree, or why there is none."""
    ours = ours or settings(model, method, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return av.fit(
                build(model, method, X, t), ours, draws=draws, chains=2, random_seed=1,
                progressbar=False,
            )  # fmt: skip
        except av.errors.UnsupportedPair as refusal:
            return str(refusal)


@cache
def usual(model, method, draws):
    return fit(model, method, *data(model), draws)


@pytest.mark.parametrize("model", MODELS)
def test_a_model_has_the_same_data_however_a_table_lies_in_memory(model):
    X, t = data(model)
    plain = build(model, "laplace", X, t)
    for name, change in LAYOUTS.items():
        other = build(model, "laplace", change(X), t)
        for one, two in zip(plain.data_vars, other.data_vars, strict=True):
            assert one.get_value().tobytes() == two.get_value().tobytes(), (name, one.name)


@pytest.mark.validate
@pytest.mark.parametrize("method", ONE_OF_EACH)
def test_draws_are_the_same_however_a_table_lies_in_memory(method):
    model = ONE_OF_EACH[method]
    X, t = data(model)
    for change in LAYOUTS.values():
        tree = fit(model, method, change(X), t, 50)
        for group in ("posterior", "log_likelihood"):
            wanted = usual(model, method, 50)[group].to_dataset()
            xr.testing.assert_equal(tree[group].to_dataset(), wanted)


def pairs():
    for model, method in PAIRS:
        if not (model.startswith(LONG) and method in ("nuts", "smc")):
            marks = () if (model, method) == QUICK else pytest.mark.validate
            yield pytest.param(model, method, marks=marks)


def moved(model, order):
    X, t = data(model)
    return (X[ROWS], t[ROWS]) if order == "rows" else (X[:, COLUMNS], t)


def gap(tree, other, aligned):
    """Largest z of the mean log likelihood of each row, rows aligned."""

    def log_rows(one):
        (values,) = one["log_likelihood"].to_dataset().data_vars.values()
        return np.maximum(values.values, -50.0)  # a margin makes some rows impossible

    sides = log_rows(tree), log_rows(other)[..., aligned]
    error = [np.sqrt(v.var(axis=(0, 1)) / np.maximum(ess_mean(v), 4.0)) for v in sides]
    means = [v.mean(axis=(0, 1)) for v in sides]
    return float(np.max(np.abs(means[0] - means[1]) / (np.hypot(*error) + 1e-9)))


@pytest.mark.parametrize("order", ["rows", "columns"])
@pytest.mark.parametrize(("model", "method"), pairs())
def test_another_order_gives_the_answer_in_that_order(model, method, order):
    ours = SEVERAL.get((model, method)) if order == "columns" else None
    one = fit(model, method, *data(model), 1000, ours) if ours else usual(model, method, 1000)
    other = fit(model, method, *moved(model, order), 1000, ours)
    if isinstance(one, str):
        assert one == other
        return
    back = np.argsort(ROWS)
    assert gap(one, other, back if order == "rows" else slice(None)) < 4.5  # of some 2000 rows
    if order == "rows":
        assert gap(one, other, slice(None)) > 4.5  # the control: rows that are not aligned
    for name in ("elbo", "log_evidence"):
        if METHODS[method].kind in ("gaussian", "vb") and name in one["fit"].data_vars:
            evidence = [np.ravel(tree["fit"][name].values)[-1] for tree in (one, other)]
            np.testing.assert_allclose(*evidence, rtol=1e-6)
