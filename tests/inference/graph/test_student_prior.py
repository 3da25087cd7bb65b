"""Student-t weights have no Gaussian block; their draws predict by a graph that has one."""

import numpy as np
import pytensor
import pytest
import xarray as xr
from scipy.special import expit

import ardvark as av

RNG = np.random.default_rng(90)
X = RNG.normal(size=(12, 2))
NEW = RNG.normal(size=(5, 2))
KERNEL = av.RBF(width=1.3)
DRAWS = {"bias": RNG.normal(size=(2, 30)), "w": RNG.normal(size=(2, 30, 12))}


def tree_of(**draws):
    return xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(
                {
                    name: (("chain", "draw", "basis")[: values.ndim], values)
                    for name, values in draws.items()
                }
            )
        }
    )


def eta():
    return DRAWS["bias"][..., None] + DRAWS["w"] @ KERNEL(NEW, X).T


@pytest.fixture(autouse=True)
def without_a_c_compiler():
    with pytensor.config.change_flags(cxx=""):
        yield


def test_classes():
    labels = (X[:, 0] > 0).astype(int)
    model = av.models.rvm_classification(X, labels, kernel=KERNEL, prior="student")
    chances = av.predict(model, tree_of(**DRAWS), NEW)
    np.testing.assert_allclose(
        chances.sel({"class": 1}), expit(eta()).mean(axis=(0, 1)), rtol=1e-10
    )


@pytest.mark.parametrize("noise", [None, 0.3])
def test_regression(noise):
    model = av.models.rvm_regression(X, X[:, 0], kernel=KERNEL, noise=noise, prior="student")
    sigma = np.full((2, 30), noise) if noise else RNG.uniform(0.2, 0.5, (2, 30))
    given = {} if noise else {"sigma": sigma}
    found = av.predict(model, tree_of(**DRAWS, **given), NEW)
    np.testing.assert_allclose(found.sel(statistic="mean"), eta().mean(axis=(0, 1)), rtol=1e-10)
    sd = np.sqrt(eta().var(axis=(0, 1)) + np.mean(sigma**2))
    np.testing.assert_allclose(found.sel(statistic="sd"), sd, rtol=1e-8)


def test_a_graph_that_got_another_term_is_taken_as_it_is():
    import pymc as pm

    model = av.models.rvm_regression(X, X[:, 0], kernel=KERNEL, prior="student")
    with model:
        pm.Normal("other", 0, 1)
    with pytest.raises(ValueError, match="no draws of 'sigma'"):
        av.predict(model, tree_of(**DRAWS), NEW)
