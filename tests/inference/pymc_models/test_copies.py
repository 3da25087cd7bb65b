"""Private copies of a model: data are never swapped in a graph that others hold."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytensor
import pytest

import ardvark as av
from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.pymc_models.compile import quick
from ardvark.inference.pymc_models.copies import copy_of, private_copy, put_data

rng = np.random.default_rng(20261118)
X = rng.normal(size=(40, 3))
T = (X[:, 0] + 0.5 * rng.normal(size=40) > 0).astype(int)


@pytest.fixture(scope="module")
def classifier():
    return av.models.ard_classification(X, T, alpha=1.0)


def names(model):
    kinds = (model.free_RVs, model.observed_RVs, model.deterministics, model.data_vars)
    return [[v.name for v in kind] for kind in kinds]


@pytest.mark.parametrize("builder", ["ard_regression", "subset_regression", "trigonometric_svm"])
def test_a_copy_has_the_same_density_and_order_and_its_own_data(builder):
    t = T if builder == "trigonometric_svm" else X[:, 0] + rng.normal(size=40)
    model = getattr(av.models, builder)(X, t)
    own = copy_of(model)
    assert names(own) == names(model)
    point = model.initial_point()
    with quick():
        here, there = (m.compile_logp(mode="FAST_COMPILE")(point) for m in (model, own))
    assert here == there
    put_data(own, {"X": X[:4] * 2, "t_observed": t[:4]})
    np.testing.assert_array_equal(model["X"].get_value(), X)
    assert (len(own.coords["row"]), len(model.coords["row"])) == (4, 40)


def test_starting_values_are_kept():
    with pm.Model() as model:
        pm.Normal("a", 0, 1, initval=3.0)
        pm.HalfNormal("s", 1)
    assert copy_of(model).initial_point() == model.initial_point()


def test_a_nested_model_is_refused_by_name():
    with pm.Model(), pm.Model(name="inner") as inner:
        pm.Normal("a", 0, 1)
    with pytest.raises(UnsupportedPair, match="'inner' is nested"):
        copy_of(inner)


def test_a_copy_follows_the_model_and_is_borrowed_by_one_at_a_time(classifier):
    model = copy_of(classifier)
    with private_copy(model) as first, private_copy(model) as second:
        assert first is not second
        put_data(first, {"X": X[:3]})
    model.set_data("X", X[:7], coords={"row": range(7)})
    model.set_data("t_observed", T[:7])
    with private_copy(model) as again:
        assert again in (first, second)
        np.testing.assert_array_equal(again["X"].get_value(), X[:7])
        assert again.coords["row"] == tuple(range(7))
    with model:
        pm.Potential("more", -(model["w"] ** 2).sum())
    with private_copy(model) as grown:
        assert [v.name for v in grown.potentials] == ["more"]


def test_copies_do_not_keep_a_model_alive():
    model = av.models.ard_classification(X, T)
    av.predict(model, av.fit(model, "laplace", draws=5, random_seed=1), X[:2])
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (5, "must be a mapping"),
        ({"Z": X}, "no pm.Data named 'Z'; it has X"),
        ({"X": X[0]}, "'X' have 1 dimensions, not 2"),
        ({"X": X * [1, np.nan, 1]}, r"'X' have nan at index \(0, 1\)"),
        ({"X": X.astype(str)}, "'X' must be numbers"),
        ({"t_observed": X[:, 0]}, "'t_observed' must be whole numbers"),
        ({"X": np.ma.masked_greater(X, 0.5)}, "'X' is a masked array with .* masked values"),
        ({"X": [[1.0, 2.0, 3.0], [1.0]]}, "'X' is ragged: row 0 has 3 values, row 1 has 1"),
        ({"X": X[:0]}, r"'X' are empty: they have the shape \(0, 3\)"),
    ],
)
def test_bad_data_are_refused_by_name(classifier, values, message):
    with private_copy(classifier) as own, pytest.raises(InputError, match=message):
        put_data(own, values)


def test_threads_predict_from_one_model(classifier):
    """Three threads used to swap each other's rows, and left the model with rows of another."""
    tree = av.fit(classifier, "laplace", draws=20, random_seed=1)
    tables = [rng.normal(size=(n, 3)) for n in (1, 4, 9, 17)]
    expected = [av.predict(classifier, tree, rows).values for rows in tables]
    settings = pytensor.config.cxx, pytensor.config.mode
    start = threading.Barrier(8)

    def work(thread):
        start.wait()
        which = [(thread + i) % 4 for i in range(40)]
        return [
            np.array_equal(av.predict(classifier, tree, tables[k]).values, expected[k])
            for k in which
        ]

    with ThreadPoolExecutor(8) as pool:
        right = [answer for answers in pool.map(work, range(8)) for answer in answers]
    assert len(right) == 320
    assert all(right)
    np.testing.assert_array_equal(classifier["X"].get_value(), X)
    assert classifier.coords["row"] == tuple(range(40))
    assert (pytensor.config.cxx, pytensor.config.mode) == settings


@pytest.mark.parametrize("method", ["laplace", "ep"])
def test_threads_fit_other_data_on_one_model(classifier, method):
    sets = [{"X": X[rows], "t_observed": T[rows]} for rows in (slice(0, 20), slice(10, 40))]
    alone = [
        [
            fit["posterior"]["w"].values
            for fit in av.fit(classifier, method, draws=5, random_seed=1, data=[values])
        ]
        for values in sets
    ]
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(av.fit, classifier, method, draws=5, random_seed=1, data=[sets[k % 2]])
            for k in range(12)
        ]
        found = [job.result()[0]["posterior"]["w"].values for job in jobs]
    for k, w in enumerate(found):
        np.testing.assert_array_equal(w, alone[k % 2][0])
    np.testing.assert_array_equal(classifier["X"].get_value(), X)
