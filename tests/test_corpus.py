"""The reader on models as users write them: what is read is the model's own density, or a reason.

The witness is PyMC: the difference of the model's compiled logp between two points that differ in
the weights alone, which no part of the reader takes a hand in.
"""

import functools
from typing import Any

import numpy as np
import pytensor
import pytest
from corpus import CASES, FEATURES, Case, X, exposure

from ardvark.errors import UnreadableModel
from ardvark.inference.graph.read import read_model

ACCEPTED = [case for case in CASES if case.refused is None]
REFUSED = [case for case in CASES if case.refused is not None]
BY_NAME = {case.name: case for case in CASES}
each_accepted = pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
each_refused = pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
CONJUGATE = [case for case in ACCEPTED if case.conjugate is not None]
each_conjugate = pytest.mark.parametrize("case", CONJUGATE, ids=lambda case: case.name)
type Point = dict[str, np.ndarray]


@functools.cache
def built(name: str) -> Any:
    with pytensor.config.change_flags(cxx=""):
        return BY_NAME[name].build()


@functools.cache
def compiled(name: str) -> tuple[Any, Any, Point]:
    """Log density, natural values of all variables (both of a point) and the initial point."""
    model = built(name)
    with pytensor.config.change_flags(cxx=""):
        point = model.initial_point()
        logp = model.compile_logp(jacobian=False, mode="FAST_COMPILE")
        outputs = model.unobserved_value_vars
        natural = model.compile_fn(
            outputs, inputs=model.value_vars, on_unused_input="ignore", mode="FAST_COMPILE"
        )
    names = [output.name for output in outputs]
    return logp, lambda point: dict(zip(names, natural(point), strict=True)), point


@functools.cache
def read(name: str) -> Any:
    case = BY_NAME[name]
    return read_model(built(name), weights=case.weights, predictor=case.predictor)


def blocks(flat: np.ndarray, case: Case, point: Point) -> Point:
    assert case.reads is not None
    ends = np.cumsum([np.size(point[block]) for block in case.reads])
    pieces = np.split(flat, ends[:-1])
    return {b: p.reshape(np.shape(point[b])) for b, p in zip(case.reads, pieces, strict=True)}


def two_points(case: Case, start: Point) -> tuple[list[Point], np.ndarray]:
    """Two points with other weights and the same hyperparameters, and those weights, flat."""
    assert case.reads is not None
    rng = np.random.default_rng(7)
    # Away from the initial point, where equal hyperparameters would hide a wrong order.
    moved = {name: value + 0.2 * rng.normal(size=value.shape) for name, value in start.items()}
    draws = 0.5 * rng.normal(size=(2, sum(np.size(start[block]) for block in case.reads)))
    return [moved | blocks(w, case, start) for w in draws], draws


def log_density(sites: Any, w: np.ndarray) -> float:
    """Log joint density of the weights and the data, up to what does not depend on the weights."""
    off = w - sites.mean
    if sites.precision is not None:
        quadratic = np.sum(sites.precision * off**2)
    else:
        quadratic = off @ np.linalg.solve(sites.covariance, off)
    return float(np.sum(sites.sites.log(sites.projection @ w + sites.offset)) - 0.5 * quadratic)


def test_size_of_the_corpus() -> None:
    assert len(ACCEPTED) >= 15
    assert len(REFUSED) >= 15
    assert len(BY_NAME) == len(CASES)  # every name once


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_is_a_model_that_pymc_accepts(case: Case) -> None:
    logp, _, point = compiled(case.name)
    assert np.isfinite(logp(point))


@each_accepted
def test_finds_the_blocks_and_the_hyperparameters(case: Case) -> None:
    latent = read(case.name)
    assert latent.weights == case.reads
    assert sorted(latent.hyper) == sorted(case.hyper)


@each_accepted
def test_reads_the_density_of_the_model(case: Case) -> None:
    logp, natural, start = compiled(case.name)
    points, draws = two_points(case, start)
    values = natural(points[0])

    latent = read(case.name)
    sites = latent.at({name: values[name] for name in case.hyper})
    assert (sites.precision is None) != (sites.covariance is None)
    assert (
        len(latent.weight_names)
        == len(set(latent.weight_names))
        == sites.mean.size
        == draws.shape[1]
    )

    np.testing.assert_allclose(
        sites.projection @ draws[0] + sites.offset, values[case.predictor], rtol=1e-10, atol=1e-10
    )
    model_difference = float(logp(points[1]) - logp(points[0]))
    read_difference = log_density(sites, draws[1]) - log_density(sites, draws[0])
    np.testing.assert_allclose(
        read_difference, model_difference, rtol=case.tolerance, atol=case.tolerance
    )


@each_conjugate
def test_finds_gamma_conditionals(case: Case) -> None:
    logp, natural, start = compiled(case.name)
    points, draws = two_points(case, start)
    here = natural(points[0])
    latent = read(case.name)
    found = latent.gamma_conditionals(draws[0], {name: here[name] for name in case.hyper})
    assert sorted(found) == sorted(latent.conjugate) == sorted(case.conjugate)
    for name, gamma in found.items():
        value_name = built(case.name).rvs_to_values[built(case.name)[name]].name
        other = points[0] | {value_name: points[0][value_name] + 0.3}
        there = natural(other)
        ratio = (gamma.shape - 1) * np.log(there[name] / here[name])
        ratio -= gamma.rate * (there[name] - here[name])
        difference = float(logp(other) - logp(points[0]))
        np.testing.assert_allclose(np.sum(ratio), difference, rtol=1e-7, atol=1e-7)


@each_refused
def test_refuses_by_name_and_reason(case: Case) -> None:
    with pytest.raises(UnreadableModel, match=case.refused):
        read(case.name)


def test_weights_carry_the_names_of_their_coordinates() -> None:
    names = read("logistic_regression").weight_names
    assert names == ("intercept", *(f"beta[{feature}]" for feature in FEATURES))


def test_reads_new_data_without_a_new_reading() -> None:
    model = BY_NAME["poisson_with_exposure"].build()
    latent = read_model(model, predictor="log_rate")
    near = {"rtol": 1e-13, "atol": 1e-14}  # the projection is a difference from the offset
    np.testing.assert_allclose(latent.at({}).projection[:, 1:], X, **near)
    rows = [5, 0, 7]
    model.set_data("inputs", X[rows], coords={"obs": rows})
    model.set_data("log_exposure", np.log(exposure[rows]))
    model.set_data("claims_observed", np.array([0, 3, 1]))
    sites = latent.at({})
    np.testing.assert_allclose(sites.projection[:, 1:], X[rows], **near)
    np.testing.assert_allclose(sites.offset, np.log(exposure[rows]), rtol=1e-15)
    at_unit_rate = [-1, -1 - np.log(6), -1]  # log of exp(-1) / k! at k = 0, 3, 1
    np.testing.assert_allclose(sites.sites.log(np.zeros(3)), at_unit_rate, rtol=1e-12)
