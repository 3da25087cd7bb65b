"""Kernel scales start at several points, and the largest evidence after a first walk goes on."""

import json

import numpy as np
import pytensor
import pytest

import ardvark as av
from ardvark.errors import InputError


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(3)
    for _ in range(2):  # of the second one the evidence has two maxima
        X = rng.uniform(-10, 10, (60, 1))
        t = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=60)
    return av.models.rvm_regression(X, t)


def fitted(model, **options):
    with pytensor.config.change_flags(cxx=""):
        return av.fit(model, av.Laplace(hyper=av.Evidence(**options)), draws=4, random_seed=1)


def test_several_starts_end_higher_than_one(model):
    one, several = fitted(model), fitted(model, starts=3)
    gain = several["fit"]["log_evidence"] - one["fit"]["log_evidence"]
    assert gain > 1.0  # 3.65 nats: the gradient from the support point climbs the nearer maximum
    assert json.loads(several.attrs["settings"])["hyper"]["starts"] == 3


def test_a_given_start_is_the_only_one(model):
    one, three = (fitted(model, start={"width": 2.0}, starts=n)["theta"]["width"] for n in (1, 3))
    assert float(one) == float(three)


@pytest.mark.parametrize("starts", [0, 6, 1.5, "all"])
def test_a_number_of_starts_that_there_is_not(starts):
    with pytest.raises(
        InputError, match=r"starts must be (a whole number from 1 to 5|an integer >= 1)"
    ):
        av.Evidence(starts=starts)
