"""What a tree was fitted to: other data and other models are refused by name."""

import json

import numpy as np
import pymc as pm
import pytest

import ardvark as av
from ardvark.errors import InputError
from ardvark.inference.pymc_models.copies import copy_of
from ardvark.inference.pymc_models.fingerprint import fingerprint, require_data, require_model

rng = np.random.default_rng(20261119)
X = rng.normal(size=(40, 3))
T = (X[:, 0] + 0.5 * rng.normal(size=40) > 0).astype(int)
Y = X @ [1.0, 0.0, -1.0] + rng.normal(size=40)


def classifier(X=X, t=T, **settings):
    return av.models.ard_classification(X, t, **({"alpha": 1.0} | settings))


def fitted(model, method="laplace"):
    return av.fit(model, method, draws=20, random_seed=1)


@pytest.fixture(scope="module")
def tree():
    return fitted(classifier())


# --- the fingerprint itself -----------------------------------------------------------------------


def test_the_same_model_and_data_have_the_same_fingerprint():
    known = fingerprint(classifier())
    assert fingerprint(classifier()) == known
    assert fingerprint(copy_of(classifier())) == known
    assert fingerprint(classifier(X * (1 + 1e-15), T)) == known  # as another processor rounds
    names = av.models.ard_classification(X[:, ::-1], T, alpha=1.0)
    assert known["rows"] == 40
    assert fingerprint(names)["inputs"] != known["inputs"]  # no names: the order is the name


def test_columns_go_by_name_not_by_order():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    one, other = (fingerprint(classifier(table[list(order)])) for order in ("abc", "cab"))
    assert one["inputs"] == other["inputs"]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda: classifier(X[:30], T[:30]), "rows"),
        (lambda: classifier(X, 1 - T), "target"),
        (lambda: classifier(X, np.where(T, "yes", "no")), "classes"),
        (lambda: classifier(X + np.array([0, 1e-6, 0]), T), "inputs"),
        (lambda: classifier(link="logit"), "variables"),
        (lambda: classifier(alpha=None, a=3.0), "constants"),
    ],
)
def test_each_change_is_seen_in_its_part(change, part):
    base = classifier(alpha=None) if part == "constants" else classifier()
    assert fingerprint(change())[part] != fingerprint(base)[part]


def test_labels_of_another_family_are_the_same_target():
    labels = np.where(T, "yes", "no")
    mixture = av.models.rbf_mixture(X, labels, n_kernels=2)
    assert fingerprint(mixture)["target"] == fingerprint(classifier(X, labels))["target"]


def own_graph(inputs, sign=1.0):
    with pm.Model() as model:
        w = pm.Normal("w", 0, 1, shape=3)
        eta = pm.Deterministic("eta", inputs @ w if sign > 0 else -(inputs @ w))
        pm.Bernoulli("t", logit_p=eta, observed=T)
    return model


def test_constants_and_expressions_of_a_users_graph_are_seen():
    known = fingerprint(own_graph(X))
    assert fingerprint(own_graph(X + 1))["constants"] != known["constants"]
    turned = fingerprint(own_graph(X, -1.0))
    assert (turned["variables"], turned["constants"]) == (known["variables"], known["constants"])
    assert turned["graph"] != known["graph"]


def test_it_survives_a_store(tree, tmp_path):
    import xarray as xr

    tree.to_zarr(tmp_path / "t.zarr", consolidated=False)
    back = xr.open_datatree(tmp_path / "t.zarr", engine="zarr", consolidated=False).load()
    assert json.loads(back.attrs["fingerprint"]) == fingerprint(classifier())


# --- who refuses ----------------------------------------------------------------------------------


def test_compare_refuses_fits_to_different_rows(tree):
    """It used to call 0.887 sd between 40 and 30 rows an approximation error."""
    exact = fitted(classifier(X[:30], T[:30]), "exact")
    message = "laplace was fitted to 40 rows, exact to 30"
    for judge in ("exact", None):
        with pytest.raises(InputError, match=message):
            av.compare({"laplace": tree, "exact": exact}, judge)
    for function in (av.diagnostics.compare_relevance, av.evidence, av.loo_table):
        with pytest.raises(InputError, match=message):
            function({"laplace": tree, "exact": exact})
    assert len(av.compare({"a": tree, "b": fitted(classifier(), "exact")}, "b")) == 2


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: classifier(X, 1 - T), "other fitted to other values of the target than laplace"),
        (lambda: classifier(X * [1, 2, 1], T), "other values of the input 'x1' than laplace"),
        (
            lambda: av.models.ard_regression(X, Y, alpha=1.0, noise=1.0),
            "laplace is a classifier of 0, 1, other is no classifier",
        ),
    ],
)
def test_same_shape_and_other_data_are_refused(tree, tmp_path, other, message):
    trees = {"laplace": tree, "other": fitted(other())}
    message = message.replace("other fitted", "other was fitted")
    with pytest.raises(InputError, match=message):
        av.compare(trees, "laplace")
    with pytest.raises(InputError, match=message):
        av.report(trees, tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_predict_refuses_the_tree_of_another_model(tree):
    """A classifier used to give probabilities from the tree of a regression."""
    regression = av.models.ard_regression(X, Y, alpha=1.0, noise=1.0)
    with pytest.raises(InputError, match="the tree's is no classifier, this one is a classifier"):
        av.predict(classifier(), fitted(regression), X)
    with pytest.raises(InputError, match=r"t is Probit.* in the tree's and Logit.* in this one"):
        av.predict(classifier(link="logit"), tree, X)
    with pytest.raises(InputError, match=r"numbers written into it \(centres"):
        av.predict(
            classifier(av.standardise(X + 3), T), fitted(classifier(av.standardise(X), T)), X
        )


def test_predict_takes_the_trees_of_other_data_on_the_same_graph():
    model = classifier()
    rows = slice(0, 25)
    [part] = av.fit(
        model, "laplace", draws=20, random_seed=1, data=[{"X": X[rows], "t_observed": T[rows]}]
    )
    alone = fitted(classifier(X[rows], T[rows]))
    np.testing.assert_allclose(av.predict(model, part, X), av.predict(model, alone, X), rtol=1e-12)


def test_predict_refuses_another_noise_than_was_fitted():
    model = av.models.ard_regression(X, Y, alpha=1.0, noise=1.0)
    [tree] = av.fit(model, "laplace", draws=20, random_seed=1, data=[{"sigma": 2.0}])
    with pytest.raises(InputError, match="another 'sigma' than the tree was fitted with"):
        av.predict(model, tree, X)


def test_report_refuses_another_model_or_data(tree, tmp_path):
    target = tmp_path / "report.html"
    with pytest.raises(InputError, match="laplace was fitted to 40 rows"):
        av.report({"laplace": tree}, target, model=classifier(X[:30], T[:30]))
    with pytest.raises(InputError, match="laplace is the fit of another model"):
        av.report({"laplace": tree}, target, model=classifier(link="logit"))
    with pytest.raises(InputError, match="data: laplace was fitted to 40 rows, data 'ripley' has"):
        av.report({"laplace": tree}, target, data=av.load("ripley"))
    assert not list(tmp_path.iterdir())


def test_data_are_known_by_their_labels(tree):
    table = np.column_stack([X, T])
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(table, columns=["x0", "x1", "x2", "t"]).astype({"t": int})
    require_data(av.load(frame, target="t"), {"laplace": tree})
    frame["t"] = 1 - frame["t"]
    with pytest.raises(InputError, match="other values of the target than laplace"):
        require_data(av.load(frame, target="t"), {"laplace": tree})


def test_a_tree_without_fingerprint_is_known_by_its_observed_data(tree):
    old = tree.copy()
    del old.attrs["fingerprint"]
    other = fitted(classifier(X, 1 - T))
    del other.attrs["fingerprint"]
    require_model(classifier(), {"old": old})
    with pytest.raises(InputError, match="other was fitted to other values of 't' than old"):
        av.compare({"old": old, "other": other}, "old")
