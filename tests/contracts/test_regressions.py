"""One test per fault that was once there."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import ardvark as av

RNG = np.random.default_rng(81)
X = RNG.normal(size=(40, 2))
Y = X @ np.array([1.0, -0.5]) + 0.4 * RNG.normal(size=40)
LABEL = (Y > 0).astype(int)


def scaled_mean(factor):
    with pm.Model() as model:
        data, seen = pm.Data("X", X), pm.Data("y_seen", factor * Y)
        w = pm.Normal("w", 0, 1, shape=2)
        eta = pm.Deterministic("eta", data @ w)
        pm.Normal("y", factor * eta, 0.3, observed=seen)
    return model


@pytest.mark.parametrize("factor", [2.0, -1.0])
def test_a_gaussian_mean_that_is_not_eta_is_predicted_on_its_own_scale(factor):
    model = scaled_mean(factor)
    tree = av.fit(model, "laplace", draws=1000, random_seed=0)
    p = av.predict(model, tree, X[:6])
    mean = factor * (X[:6] @ tree["fit"].mean_vector.values)
    assert np.abs(p.sel(statistic="mean") - mean).max() < 4 * 0.5 / np.sqrt(4000) + 0.01
    assert (p.sel(statistic="sd") > 0.28).all()


@pytest.mark.parametrize("algorithm", ["sequential", "mackay"])
@pytest.mark.parametrize("scale", [1e-6, 1e5])
def test_regression_does_not_depend_on_the_unit_of_the_target(algorithm, scale):
    method = av.Laplace(hyper=av.Evidence(algorithm=algorithm))
    one = av.fit(av.models.ard_regression(X, Y), method, draws=5, random_seed=0)
    other = av.fit(av.models.ard_regression(X, scale * Y), method, draws=5, random_seed=0)
    shifted = other["fit"].log_evidence.item() + 40 * np.log(scale)
    assert shifted == pytest.approx(one["fit"].log_evidence.item(), abs=1e-3)
    assert other["theta"].sigma.item() / scale == pytest.approx(one["theta"].sigma.item(), rel=1e-3)


@pytest.mark.parametrize("method", ["laplace", "ep"])
@pytest.mark.parametrize("scale", [1e-4, 1e6])
def test_classification_does_not_depend_on_the_unit_of_the_inputs(method, scale):
    one = av.fit(av.models.ard_classification(X, LABEL), method, draws=5, random_seed=0)["fit"]
    model = av.models.ard_classification(scale * X, LABEL)
    other = av.fit(model, method, draws=5, random_seed=0)["fit"]
    assert other.log_evidence.item() == pytest.approx(one.log_evidence.item(), abs=1e-4)
    np.testing.assert_array_equal(other.active, one.active)


def test_a_perfect_fit_is_cautioned_and_ordinary_targets_are_not():
    rng = np.random.default_rng(5)
    wide = rng.normal(size=(40, 60))
    target = wide[:, 0] - wide[:, 1] + 0.5 * rng.normal(size=40)
    with pytest.warns(av.errors.AccuracyWarning, match="nothing is left for noise"):
        av.fit(av.models.ard_regression(wide, target), "laplace", draws=5, random_seed=0)
    tree = av.fit(av.models.ard_regression(X, 100 * Y), "laplace", draws=5, random_seed=0)
    assert tree.attrs["caution"] == ""


def test_damped_ep_finds_the_weights():
    model = av.models.ard_classification(X, LABEL)
    plain = av.fit(model, av.EP(), draws=5, random_seed=0)["fit"]
    damped = av.fit(model, av.EP(damping=0.1, updates="sequential"), draws=5, random_seed=0)["fit"]
    assert damped.log_evidence.item() == pytest.approx(plain.log_evidence.item(), abs=1e-3)


def test_data_changed_in_place_are_seen():
    model = av.models.ard_classification(X, LABEL, alpha=np.ones(3))
    before = av.fit(model, "ep", draws=5, random_seed=0)["fit"]
    values = model["X"].get_value(borrow=True)
    values *= 2.0
    model["X"].set_value(values, borrow=True)
    after = av.fit(model, "ep", draws=5, random_seed=0)["fit"]
    fresh = av.fit(av.models.ard_classification(2 * X, LABEL, alpha=np.ones(3)), "ep", draws=5)
    np.testing.assert_allclose(after.mean_vector, fresh["fit"].mean_vector, rtol=1e-6)
    assert not np.allclose(after.mean_vector, before.mean_vector)


def test_nan_never_wins_a_choice():
    def criterion(step):
        return np.nan if step.active.sum() == 0 else step.info["loo_error"]

    model = av.models.ard_classification(X, LABEL)
    tree = av.fit(model, av.EP(hyper=av.Predictive(criterion)), draws=5, random_seed=0)
    assert tree["fit"].active.sum() > 0
    with pytest.raises(av.errors.InputError, match="nothing to choose from"):
        av.fit(model, av.EP(hyper=av.Predictive(lambda step: np.nan)), draws=5, random_seed=0)


@pytest.mark.filterwarnings("ignore:laplace. the approx:ardvark.errors.AccuracyWarning")
def test_rows_that_cannot_change_are_explained():
    with pm.Model() as model:
        w = pm.Normal("w", 0, 1, shape=2)
        eta = pm.Deterministic("eta", pm.Data("X", X) @ w)
        pm.Bernoulli("t", logit_p=eta, observed=LABEL)
    tree = av.fit(model, "laplace", draws=5, random_seed=0)
    with pytest.raises(av.errors.InputError, match=r"observed 't' .* as a pm\.Data"):
        av.predict(model, tree, X[:3])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"X": X, "t_observed": 2 * LABEL - 1}], r"codes 0 and 1.*found \[-1, 1\]"),
        ([{"X": X * [1, np.nan], "t_observed": LABEL}], "data: X has NaN"),
        ([{"X": X, "t_observed": LABEL + 0.5}], "codes 0 and 1"),
        ({"X": X, "t_observed": LABEL}, "data must be a list of mappings"),
        ([{"X": X.astype(str)}], r"data: X has .* at row 0, column 'x0'"),
        ([{"X": X[:, 0]}], "data: X must have 2 dimensions"),
        ([{"X": X[:7]}], "X has 7 values along the dim 'row', t_observed has 40: give new values"),
        ([{"X": X[:, :1]}], "data: X has 1 columns, the model has 2"),
        (
            [{"X": pd.DataFrame(X, columns=["x1", "x0"])}],
            "data: X has the model's columns in anoth",
        ),
        ([{"X": np.ma.masked_greater(X, 0.5)}], "data: X is a masked array"),
    ],
)
def test_bad_data_of_the_loop_are_refused(data, message):
    model = av.models.ard_classification(X, LABEL, alpha=np.ones(3))
    with pytest.raises(av.errors.InputError, match=message):
        av.fit(model, "ep", draws=5, random_seed=0, data=data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"y": Y[:39]},
            r"data\[1\]: y has the shape \(39,\) \(in the model \(40,\)\).*X \(40, 2\)",
        ),
        ({"X": X[:, :1], "y": Y}, r"data\[1\]: X has the shape \(40, 1\)"),
    ],
)
def test_data_of_a_wrong_length_are_named(data, message):
    """No dims: it was an error about reading the graph, or one of NumPy's."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Normal("t", pm.Data("X", X) @ b, 1.0, observed=pm.Data("y", Y))
    good = {"X": X[:30], "y": Y[:30]}
    with pytest.raises(av.errors.InputError, match=message):
        av.fit(model, "laplace", draws=5, random_seed=0, data=[good, data])
    assert av.fit(model, "laplace", draws=5, random_seed=0, data=[good])[0].attrs["converged"]


def test_a_dim_that_grows_is_read_anew():
    group = np.arange(40) % 4
    with pm.Model(coords={"g": range(4)}) as model:
        a = pm.Normal("a", 0, 1, dims="g")
        eta = pm.Deterministic("eta", a[pm.Data("gi", group)])
        pm.Normal("y", eta, 0.5, observed=Y)
    assert av.fit(model, "laplace", draws=5, random_seed=0)["fit"].sizes["rows"] == 4
    model.set_dim("g", 8, range(8))
    model.set_data("gi", np.arange(40) % 8)
    assert av.fit(model, "laplace", draws=5, random_seed=0)["fit"].sizes["rows"] == 8


def test_permuted_default_names_are_refused():
    pd = pytest.importorskip("pandas")
    model = av.models.ard_classification(X, LABEL, alpha=np.ones(3))
    tree = av.fit(model, "laplace", draws=5, random_seed=0)
    with pytest.raises(av.errors.InputError, match="another order"):
        av.predict(model, tree, pd.DataFrame(X[:3], columns=["x1", "x0"]))


def test_what_stopped_is_named():
    model = av.models.ard_classification(X, LABEL)
    with pytest.warns(
        av.errors.ConvergenceWarning, match=r"ARD steps stopped after 1\. Raise max_steps"
    ):
        av.fit(model, av.EP(hyper=av.Evidence(max_steps=1)), draws=5, random_seed=0)


@pytest.mark.parametrize("scale", [1e5, 1e-4])
def test_a_target_far_from_unit_scale_is_pointed_out(scale):
    """Of `sample_feature_regression`, whose priors have units; others follow those of t."""
    with pytest.warns(av.errors.InputWarning, match="t has a root mean square of"):
        av.models.sample_feature_regression(X, scale * Y)
    av.models.sample_feature_regression(X, 5 * Y)
    av.models.ard_regression(X, scale * Y)
