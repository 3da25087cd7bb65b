"""What is kept with a graph: made once, dropped when the graph grows, freed with the graph."""

import copy
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from scipy.special import logsumexp

from ardvark.inference.graph.read import read_model
from ardvark.inference.pymc_models.compile import compile_graph, kept_with


def model():
    with pm.Model() as made:
        w = pm.Normal("w", 0.0, 1.0, shape=2)
        pm.Normal("t", pm.Deterministic("eta", w), 1.0, observed=[0.5, -0.5])
    return made


def test_each_key_is_made_once_and_by_one_thread():
    owner, calls = model(), []

    def make():
        calls.append(1)
        return object()

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: kept_with(owner, "a", make), range(20)))
    assert len(calls) == 1 and len(set(map(id, found))) == 1
    assert kept_with(owner, "b", make) is not found[0]
    assert kept_with(model(), "a", make) is not found[0]


def test_a_graph_that_grew_is_another_graph():
    owner = model()
    first, reading = kept_with(owner, "a", object), read_model(owner)
    assert kept_with(owner, "a", object) is first and read_model(owner) is reading
    with owner:
        pm.Potential("more", owner["w"].sum())
    assert kept_with(owner, "a", object) is not first


def test_what_is_kept_is_freed_with_its_graph():
    owner = model()
    reading = weakref.ref(read_model(owner))
    assert reading() is not None
    del owner
    gc.collect()
    assert reading() is None


def test_a_reading_keeps_its_graph():
    """`read_model(build())`: nothing else holds the model, and it must stay."""
    reading = read_model(model())
    gc.collect()
    assert [v.name for v in reading.model.free_RVs] == ["w"]


def test_what_is_kept_stays_with_its_owner():
    """A copy, shallow or not, and a model that was sent have none of it."""
    owner = model()
    first = kept_with(owner, "a", object)
    for other in (copy.copy(owner), cloudpickle.loads(cloudpickle.dumps(owner))):
        assert kept_with(other, "a", object) is not first
    assert kept_with(owner, "a", object) is first


OPERATIONS = {
    "sum": lambda x: x + pt.sqr(x) + pt.exp(x) + pt.sin(x),
    "product": lambda x: x * pt.cos(x) * pt.exp(x) * pt.sin(x),
    "softplus": lambda x: pt.softplus(10.0 * x),
    "log1mexp": lambda x: pt.log1mexp(-pt.exp(x)),
    "clip": lambda x: pt.clip(x, -1.0, 0.5),
    "second": lambda x: pt.second(x, pt.constant(2.5, dtype="float64")),
    "many": lambda x: sum(pt.sin(k * x) for k in range(1, 40)),  # more than a ufunc takes
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_is_a_loop_in_python(name):
    """Operations without a ufunc are written by such; the values are those of PyTensor's own."""
    x = pt.dvector("x")
    out = OPERATIONS[name](x)
    values = np.linspace(-40.0, 3.0, 87)
    function = compile_graph([x], out)
    for node in function._function.maker.fgraph.apply_nodes:
        if isinstance(node.op, Elemwise):
            assert node.op.nfunc_spec is not None and node.op.nfunc_spec[1] == len(node.inputs)
    plain = out.eval({x: values}, mode="NUMBA")
    np.testing.assert_allclose(function(values), plain, rtol=1e-13, atol=1e-14)


def test_a_mixture_over_a_batch_is_no_loop_either():
    x, batch = pt.dmatrix("x"), pt.dtensor3("batch")
    out = vectorize_graph(pt.logsumexp(x, axis=1), {x: batch})
    values = np.random.default_rng(3).normal(size=(5, 4, 3))
    function = compile_graph([batch], out)
    operations = [node.op for node in function._function.maker.fgraph.apply_nodes]
    assert not any(isinstance(operation, Blockwise) for operation in operations)
    np.testing.assert_allclose(function(values), logsumexp(values, axis=2), rtol=1e-13)
