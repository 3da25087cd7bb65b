"""The scikit-learn estimators: its own checks, and the same answers as the graphs of the zoo."""

import pickle
from copy import deepcopy

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytensor
import pytest
import xarray as xr
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr
from sklearn.utils.estimator_checks import check_estimator

import ardvark as av
from ardvark.inference.ard.gaussian_ard import gaussian_ard
from ardvark.models.checks import as_inputs
from ardvark.sklearn import RVC, RVR, ARDClassifier, ARDRegressor
from ardvark.sklearn import bases as estimator_bases

SKIPPED = {  # check of scikit-learn → why it is not run; none is expected to fail
    "check_array_api_input": "run by scikit-learn only if SCIPY_ARRAY_API is set; NumPy arrays are "
    "all that these estimators compute with",
}
REGRESSORS = (RVR, ARDRegressor)
CLASSIFIERS = (RVC, ARDClassifier)


@pytest.fixture
def rng():
    return np.random.default_rng(20260711)


@pytest.fixture
def sinc(rng):
    X = rng.uniform(-10, 10, (80, 1))
    return X, np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=80)


@pytest.fixture
def classes(rng):
    """Rows, labels of three classes told by the first two inputs; the third is noise."""
    X = rng.normal(size=(90, 3))
    score = X[:, :2] @ np.array([[2.0, -1.0], [0.0, 2.0]]) + 0.5 * rng.normal(size=(90, 2))
    codes = np.where(score.max(axis=1) < 0, 0, 1 + score.argmax(axis=1))
    return X, np.array(["ash", "birch", "cedar"])[codes]


def two(labels):
    return np.where(labels == "ash", "ash", "other")


def plainly(read):
    """Read a lazy attribute with the quick compile of the tests."""
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        return read()


# --- scikit-learn's conventions ---------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [
        RVR(),
        RVR(av.kernels.Spline(), fit_intercept=False),
        ARDRegressor(),
        RVC(),
        ARDClassifier(),
        ARDClassifier(method="laplace", link="logit"),
    ],
    ids=str,
)
def test_the_checks_of_scikit_learn(estimator):
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    troubles = {
        r["check_name"]: r["exception"]
        for r in results
        if r["status"] != "passed" and r["check_name"] not in SKIPPED
    }
    assert not troubles
    assert sum(r["status"] == "passed" for r in results) > 40


def test_clone_takes_the_settings_and_not_the_fit(sinc):
    fitted = RVR(av.kernels.Laplacian(width=2.0), noise=0.1).fit(*sinc)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(sinc[0])


def test_grid_search_over_kernels_in_a_pipeline(sinc):
    widths = [0.05, 0.3, 20.0]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), RVR()),
        {"rvr__kernel": [av.RBF(width=w) for w in widths]},
        cv=3,
    ).fit(*sinc)
    assert search.best_params_ == {"rvr__kernel": av.RBF(width=0.3)}
    assert search.best_score_ > 0.7


def test_classifier_in_a_pipeline_with_grid_search(classes):
    X, labels = classes
    search = GridSearchCV(
        make_pipeline(StandardScaler(), ARDClassifier()),
        {"ardclassifier__method": ["ep", "laplace"]},
        cv=3,
        scoring="neg_log_loss",
    ).fit(100 * X + 7, labels)
    assert search.best_score_ > -np.log(3)  # better than knowing nothing
    assert search.best_estimator_.score(100 * X + 7, labels) > 0.7


def test_pickle_and_deepcopy_leave_graph_and_tree_behind(sinc):
    X, y = sinc
    estimator = RVR(av.RBF(width=2.0)).fit(X, y)
    plainly(lambda: estimator.tree_)
    for copy in (pickle.loads(pickle.dumps(estimator)), deepcopy(estimator)):
        assert not {"_graphs", "_trees"} & set(vars(copy))
        np.testing.assert_array_equal(copy.predict(X), estimator.predict(X))
        assert copy.model_ is not estimator.model_


def test_a_display_makes_no_graph(sinc):
    estimator = RVR().fit(*sinc)
    assert "RVR" in estimator_html_repr(estimator)
    assert not {"_graphs", "_trees"} & set(vars(estimator))
    assert "relevance_" in dir(estimator)


def test_graph_and_tree_are_among_the_names_of_a_fitted_estimator(sinc):
    """They were not in dir() until they had been made."""
    estimator = RVR()
    assert not {"model_", "tree_", "relevance_"} & set(dir(estimator))
    estimator.fit(*sinc)
    assert {"model_", "tree_", "relevance_"} <= set(dir(estimator))
    assert not {"_graphs", "_trees"} & set(vars(estimator))


@pytest.mark.parametrize("kind", [RVR, ARDRegressor, RVC, ARDClassifier])
def test_what_fit_does_not_take_is_refused_by_name(kind, sinc):
    """`fit_intercept="no"` was taken for True, `sample_weight` was a TypeError."""
    X, y = sinc
    y = y if kind in REGRESSORS else y > 0
    with pytest.raises(av.errors.InputError, match="fit_intercept must be True or False, got 'no'"):
        kind(fit_intercept="no").fit(X, y)
    with pytest.raises(av.errors.InputError, match=r"sample_weight must be None: .*np\.repeat"):
        kind().fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        kind().fit(X, y, weights=None)
    assert kind().fit(X[:30], y[:30], sample_weight=None).n_features_in_ == 1


def frames(names):
    rows = np.random.default_rng(3).normal(size=(30, 3))
    columns = {name: rows[:, "abc".index(name)] for name in names}
    inputs = as_inputs(pd.DataFrame(columns))
    array = xr.DataArray(np.asarray(inputs), dims=("r", "c"), coords={"c": list(names)})
    kinds = (pl.DataFrame(columns), pa.table(columns), pa.record_batch(columns))
    return (*kinds, array, array.to_dataset("c"), inputs)


@pytest.mark.parametrize("kind", range(6))
def test_columns_in_another_order_are_refused_whatever_the_table(kind):
    """Record batches, coordinates of xarray and `Inputs` had no names for scikit-learn."""
    table, other = frames("abc")[kind], frames("cba")[kind]
    y = np.random.default_rng(3).normal(size=(30, 3))[:, 0]
    estimator = ARDRegressor().fit(table, y)
    assert list(estimator.feature_names_in_) == ["a", "b", "c"]
    assert list(estimator.model_.coords["feature"]) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.predict(other)


# --- the same answers as the graph ------------------------------------------------------------


@pytest.mark.parametrize("noise", [None, 0.2])
def test_regression_is_the_fit_of_its_graph(sinc, noise):
    X, y = sinc
    estimator = RVR(av.RBF(width=2.0), noise=noise).fit(X, y)
    model, tree = plainly(lambda: (estimator.model_, estimator.tree_))
    evidence = plainly(
        lambda: av.fit(model, av.Laplace(hyper=av.Evidence()), random_seed=1, progressbar=False)
    )
    for other in (tree, evidence):  # both end where no step gains 1e-6 nats
        assert float(other["fit"]["log_evidence"]) == pytest.approx(
            estimator.log_evidence_, abs=1e-5
        )
    assert tree.attrs["hyper"] == "fixed"
    vectors = [f"row{row}" for row in estimator.relevance_]
    alpha = tree["theta"]["alpha"]
    assert list(alpha["basis"].values[np.isfinite(alpha)]) == vectors
    np.testing.assert_array_equal(estimator.relevance_vectors_, X[estimator.relevance_])


@pytest.mark.parametrize(
    "estimator", [RVC(), RVC(method="ep", link="probit"), ARDClassifier()], ids=str
)
def test_two_classes_are_the_fit_of_their_graph(classes, estimator):
    X, labels = classes
    estimator.fit(X, two(labels))
    tree = plainly(lambda: estimator.tree_)
    # Of the path's fits and of a fresh one: EP's sites are good to 1e-6 on the path.
    assert float(tree["fit"]["log_evidence"]) == pytest.approx(estimator.log_evidence_, abs=1e-5)
    assert tree.attrs["method"] == estimator.method
    chances = plainly(lambda: av.predict(estimator.model_, tree, X[:10]))
    assert list(chances["class"].values) == list(estimator.classes_)
    np.testing.assert_allclose(estimator.predict_proba(X[:10]), chances, atol=1e-6)


def test_predictions_have_the_variance_of_weights_and_noise(sinc):
    X, y = sinc
    estimator = RVR(av.RBF(width=2.0)).fit(X, y)
    tree = plainly(lambda: estimator.tree_)["fit"]
    names = [str(n) for n in tree["rows"].values]
    Phi = np.column_stack(
        [np.ones(80) if n == "bias" else av.RBF(2.0)(X, X[int(n[5:-1])][None])[:, 0] for n in names]
    )
    mean, sd = estimator.predict(X, return_std=True)
    np.testing.assert_allclose(mean, Phi @ tree["mean_vector"].values, atol=1e-8)
    variance = np.einsum("nj,jk,nk->n", Phi, tree["covariance_matrix"].values, Phi)
    np.testing.assert_allclose(sd**2, variance + estimator.noise_**2, rtol=1e-6)
    assert estimator.noise_ == pytest.approx(0.1, rel=0.25)  # sd of an sd of 80 rows is 8 %


def test_columns_made_when_needed_give_the_same_fit(sinc):
    X, t = sinc
    lazy = RVR(av.RBF(width=2.0)).fit(X, t)
    Phi = np.column_stack([np.ones(len(t)), av.RBF(width=2.0)(X, X)])
    dense = gaussian_ard(Phi, t)
    assert lazy.log_evidence_ == pytest.approx(dense.log_evidence, abs=1e-6)
    np.testing.assert_array_equal(lazy.relevance_ + 1, dense.active[dense.active > 0])


def test_the_constant_is_not_written_into_what_a_users_kernel_keeps(sinc):
    kept = []

    def kernel(rows, centres):
        kept.append((rows, centres, av.RBF(width=2.0)(rows, centres)))
        return kept[-1][2]

    RVR(kernel).fit(*sinc)
    for rows, centres, table in kept:
        np.testing.assert_array_equal(table, av.RBF(width=2.0)(rows, centres))


# --- more than two classes --------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_one_against_rest(classes, kind):
    X, labels = classes
    estimator = kind().fit(X, labels)
    chances = estimator.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.log(chances), estimator.predict_log_proba(X))
    np.testing.assert_array_equal(estimator.predict(X), estimator.classes_[chances.argmax(axis=1)])
    assert estimator.score(X, labels) > 0.7
    alone = kind().fit(X, labels == "birch")  # the second class is one problem of the three
    assert estimator.log_evidence_[1] == pytest.approx(alone.log_evidence_, abs=1e-9)
    np.testing.assert_allclose(
        estimator.decision_function(X)[:, 1], alone.decision_function(X), atol=1e-9
    )


def test_columns_made_when_needed_give_the_same_classifier(classes, monkeypatch):
    X, labels = classes
    dense = RVC().fit(X, labels)
    monkeypatch.setattr(estimator_bases, "DENSE", 0.0)
    lazy = RVC().fit(X, labels)  # 91 columns are one pool: the same steps
    np.testing.assert_allclose(lazy.log_evidence_, dense.log_evidence_, atol=1e-8)
    np.testing.assert_array_equal(lazy.relevance_, dense.relevance_)
    np.testing.assert_allclose(lazy.predict_proba(X), dense.predict_proba(X), atol=1e-6)
    probit = RVC(link="probit").fit(X, labels)  # has no such search: a table is made
    np.testing.assert_allclose(probit.predict_proba(X).sum(axis=1), 1.0, atol=1e-12)


def test_each_class_has_its_graph_and_tree(classes):
    X, labels = classes
    estimator = ARDClassifier().fit(X, labels)
    trees = plainly(lambda: estimator.tree_)
    assert len(estimator.model_) == len(trees) == 3
    evidences = [float(tree["fit"]["log_evidence"]) for tree in trees]
    np.testing.assert_allclose(evidences, estimator.log_evidence_, atol=1e-5)


# --- attributes and edges ---------------------------------------------------------------------


def test_names_of_a_data_frame_reach_the_tree(classes):
    X, labels = classes
    frame = pd.DataFrame(X, columns=["bark", "leaf", "dust"])
    estimator = ARDClassifier().fit(frame, two(labels))
    assert list(estimator.feature_names_in_) == list(frame.columns)
    assert list(estimator.model_.coords["feature"]) == list(frame.columns)


def test_ard_finds_the_inputs_that_matter(rng):
    X = rng.normal(size=(150, 8))
    eta = 2 * X[:, 1] - 3 * X[:, 4]
    regression = ARDRegressor().fit(X, eta + 5 + 0.1 * rng.normal(size=150))
    np.testing.assert_allclose(regression.coef_[[1, 4]], [2, -3], atol=0.05)  # 6 sd
    assert regression.intercept_ == pytest.approx(5, abs=0.05)
    classifier = ARDClassifier().fit(X, eta + rng.normal(size=150) > 0)
    assert {1, 4} <= set(classifier.get_support(indices=True))
    assert classifier.coef_.shape == classifier.alpha_.shape == (1, 8)
    np.testing.assert_array_equal(classifier.get_support(), np.isfinite(classifier.alpha_[0]))
    chosen = SelectFromModel(ARDRegressor(), threshold=1.0).fit(X, eta)
    np.testing.assert_array_equal(chosen.get_support(indices=True), [1, 4])


def test_centres_are_not_the_callers_array(sinc):
    X, y = sinc
    estimator = RVR().fit(X, y)
    new = X[:5].copy()
    before = estimator.predict(new)
    X += 3.0
    np.testing.assert_array_equal(estimator.predict(new), before)


def test_a_new_fit_has_a_new_graph(sinc):
    X, y = sinc
    estimator = RVR().fit(X, y)
    first = estimator.model_
    assert estimator.model_ is first
    assert estimator.fit(X[:40], y[:40]).model_ is not first
    assert len(estimator.model_.coords["row"]) == 40


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_labels_without_pattern_have_even_odds(kind):
    X = np.tile(np.random.default_rng(1).normal(size=(15, 2)), (2, 1))
    estimator = kind().fit(X, np.repeat([0, 1], 15))  # each row once in each class
    np.testing.assert_allclose(estimator.predict_proba(X), 0.5, atol=1e-12)


@pytest.mark.parametrize("kind", REGRESSORS)
@pytest.mark.parametrize("n_rows", [1, 2, 12])
def test_degenerate_rows_give_finite_answers(kind, n_rows):
    X = np.ones((n_rows, 2))  # all alike
    mean, sd = kind().fit(X, np.linspace(1, 2, n_rows)).predict(X, return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(sd).all() and (sd > 0).all()


@pytest.mark.parametrize("kind", REGRESSORS)
def test_a_target_of_zeros_is_refused_unless_noise_is_given(kind, rng):
    X = rng.normal(size=(10, 2))
    with pytest.raises(ValueError, match="give `noise`"):
        kind().fit(X, np.zeros(10))
    np.testing.assert_allclose(kind(noise=0.1).fit(X, np.zeros(10)).predict(X), 0.0)


def test_wrong_settings_are_named(sinc, classes):
    with pytest.raises(av.errors.InputError, match=r"write RBF\(width=1.0\)"):
        RVR("rbf").fit(*sinc)
    with pytest.raises(av.errors.InputError, match="to be inferred"):
        RVR(av.RBF(width=None)).fit(*sinc)
    with pytest.raises(av.errors.InputError, match="one column per centre"):
        RVR(lambda X, centres: X).fit(*sinc)
    with pytest.raises(av.errors.InputError, match="method"):
        RVC(method="nuts").fit(*classes)
    with pytest.raises(av.errors.InputError, match="link"):
        ARDClassifier(link="cauchit").fit(*classes)
    with pytest.raises(av.errors.InputError, match="noise"):
        RVR(noise=-1.0).fit(*sinc)


def test_a_search_cut_short_says_so(sinc, classes):
    with pytest.warns(av.errors.ConvergenceWarning, match="Raise max_steps"):
        RVR(max_steps=2).fit(*sinc)
    with pytest.warns(av.errors.ConvergenceWarning, match="Raise max_steps"):
        RVC(max_steps=2).fit(*classes)
