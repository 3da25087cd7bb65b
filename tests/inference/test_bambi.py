"""Models of bambi: fitted as they are, and bambi predicts from the tree."""

import warnings

import numpy as np
import pytest
from own_models import CASES

import ardvark as av

pytest.importorskip("bambi")
FAMILIES = [name for name, case in CASES.items() if case.theme == "bambi_models"]
EVERY_DAY = ["bambi_bernoulli", "bambi_poisson", "bambi_intercepts"]
KINKED = {"bambi_quantile": "laplace"}  # an asymmetric Laplace density has no second derivative
COUPLED = {"bambi_categorical": "ep"}  # a softmax of several predictors


def fitted(name, method):
    """The model, its tree, and whether bambi can predict from it."""
    model = CASES[name].build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", av.errors.AccuracyWarning)
        tree = av.fit(model, method, draws=50, chains=2, random_seed=1, progressbar=False)
    return model, tree


def check(name, method):
    model, tree = fitted(name, method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of bambi and xarray, about each other
        model.predict(tree)
    known = set(tree["posterior"].data_vars)
    predicted = known - {rv.name for rv in model.backend.model.free_RVs}
    assert predicted
    rows = [n for n in predicted if tree["posterior"][n].ndim > 2]
    assert rows and all(np.isfinite(tree["posterior"][n].values).all() for n in rows)


@pytest.mark.parametrize("method", ["ep", "laplace"])
@pytest.mark.parametrize("name", EVERY_DAY)
def test_a_family_is_fitted_and_predicts(name, method):
    check(name, method)


@pytest.mark.validate
@pytest.mark.parametrize("method", ["ep", "laplace"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_fitted_and_predicts(name, method):
    if method in (KINKED.get(name), COUPLED.get(name)):
        with pytest.raises(av.errors.UnsupportedPair):
            fitted(name, method)
        return
    check(name, method)
