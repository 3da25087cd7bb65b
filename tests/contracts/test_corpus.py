"""The reader on models as users write them: what is read is the model's own density, or a reason.

The reference is PyMC: the model's compiled logp at two points, which no part of the reader takes a
hand in. Sites, Gaussian prior and the prior of θ must add up to it.
"""

import functools
from typing import Any

import idioms  # noqa: F401  (registers its cases)
import numpy as np
import pytensor
import pytest
from corpus import CASES, FEATURES, Case, X, exposure
from pytensor.graph.traversal import ancestors

from ardvark.errors import UnreadableModel
from ardvark.inference.graph.read import read_model
from ardvark.inference.sites.model import Prior

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
    """Log density, natural values of all variables (both of a point) and the initial point.

    Variables that nothing observed depends on are no part of the density.
    """
    model = built(name)
    behind = set(ancestors([*model.observed_RVs, *model.potentials]))
    counted = [v for v in (*model.basic_RVs, *model.potentials) if v in behind]
    with pytensor.config.change_flags(cxx=""):
        point = model.initial_point()
        logp = model.compile_logp(counted or None, jacobian=False, mode="FAST_COMPILE")
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


def two_points(start: Point) -> list[Point]:
    """Two points away from the initial one, where equal numbers would hide a wrong order."""
    rng = np.random.default_rng(7)
    return [
        {
            name: value + 0.2 * rng.normal(size=value.shape) if value.dtype.kind == "f" else value
            for name, value in start.items()
        }
        for _ in range(2)
    ]


def weights_at(case: Case, point: Point) -> np.ndarray:
    """Weights of a point: those that sum to zero are on PyMC's unconstrained scale."""
    model = built(case.name)
    values = [model.rvs_to_values[model[block]].name for block in case.reads or ()]
    return np.concatenate([np.ravel(point[value]) for value in values])


def log_density(latent: Any, w: np.ndarray, theta: Point) -> float:
    """Log joint density of weights, hyperparameters and data, from what was read."""
    sites = latent.at(theta)
    eta = sites.projection @ w + sites.offset
    prior = Prior(sites).log_density(w[None, :])[0]
    return float(np.sum(sites.sites.log(eta)) + prior + latent.adjoint.log_prior(theta)[0])


def test_size_of_the_corpus() -> None:
    assert len(ACCEPTED) >= 150
    assert len(REFUSED) >= 40
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
    latent = read(case.name)
    gaps = []
    for point in two_points(start):
        values, w = natural(point), weights_at(case, point)
        theta = {name: values[name] for name in case.hyper}
        sites = latent.at(theta)
        assert (sites.precision is None) != (sites.covariance is None)
        assert len(set(latent.weight_names)) == sites.mean.size == w.size
        if (named := latent.reading.rows[0].predictor) is not None:
            eta = sites.projection @ w + sites.offset
            if not latent.reading.rows[0].coupled:  # else several numbers for each row, one part
                eta = eta[latent.row_slices(theta)[latent.observed]]
            expected = np.broadcast_to(values[named], eta.reshape(values[named].shape).shape)
            np.testing.assert_allclose(eta, expected.ravel(), rtol=1e-9, atol=1e-9)
        own = float(logp(point))
        assert np.isfinite(own)
        gaps.append((log_density(latent, w, theta) - own) / (1 + abs(own)))
    # PyTensor takes logarithms of Python constants in float32: the same error at every point.
    assert abs(gaps[1] - gaps[0]) < case.tolerance
    assert abs(gaps[0]) < 1e-6 + case.tolerance


@each_conjugate
def test_finds_gamma_conditionals(case: Case) -> None:
    logp, natural, start = compiled(case.name)
    points = two_points(start)
    here = natural(points[0])
    latent = read(case.name)
    w = weights_at(case, points[0])
    found = latent.gamma_conditionals(w, {name: here[name] for name in case.hyper})
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
