"""A table of what a fit has drawn: values that it only holds are not quoted as answers."""

import warnings

import numpy as np
import pytest

import ardvark as av

rng = np.random.default_rng(20261121)
X = rng.normal(size=(40, 3))
T = (X[:, 0] + 0.5 * rng.normal(size=40) > 0).astype(int)
Y = X[:, 0] + rng.normal(size=40)


@pytest.fixture(scope="module")
def type_two():
    model = av.models.ard_regression(X, Y)
    return av.fit(model, av.Laplace(hyper=av.Evidence()), draws=200, random_seed=1)


def test_point_estimates_are_left_out_and_named(type_two):
    """az.summary quotes them with an sd of zero, and pruned precisions as infinite."""
    table = av.summary(type_two)
    assert list(table.index) == ["bias", "w[x0]", "w[x1]", "w[x2]"]
    assert table.attrs["held"] == dict.fromkeys(("alpha_bias", "alpha", "sigma"), "evidence")
    assert "type-II" in table.attrs["caption"]
    assert list(av.summary(type_two, var_names=["sigma"]).index) == ["sigma"]


def test_independent_draws_have_no_diagnostics_of_chains(type_two):
    assert not {"r_hat", "ess_bulk"} & set(av.summary(type_two).columns)
    model = av.models.ard_classification(X, T, alpha=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", av.errors.ConvergenceWarning)
        chains = av.fit(model, "elliptical_slice", draws=100, random_seed=1)
    assert {"r_hat", "ess_bulk"} <= set(av.summary(chains).columns)


def test_what_is_drawn_is_not_called_held():
    model = av.models.ard_classification(X, T)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", av.errors.ConvergenceWarning)  # 50 draws say what is drawn
        tree = av.fit(model, av.EP(hyper=av.Sampled()), draws=50, random_seed=1)
    assert av.summary(tree).attrs["held"] == {}
    assert "alpha[x0]" in av.summary(tree).index


def test_a_card_names_them(type_two):
    assert "Held at one value: alpha_bias, alpha, sigma" in str(av.show(type_two))
