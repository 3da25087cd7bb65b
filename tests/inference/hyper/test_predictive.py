"""EP and Exact through `fit`, evidence and predictive ARD, the path and its choice."""

import numpy as np
import pytest

import ardvark as av
from ardvark.inference.ard.kernels import best_precisions
from ardvark.inference.ard.sequential_ard import _statistics, precision_bounds
from ardvark.inference.ep.ep import EP
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.settings import CRITERIA
from ardvark.inference.hyper.starts import active_at_start

RNG = np.random.default_rng(51)
N, D = 40, 12
X = RNG.normal(size=(N, D))
SCORE = X[:, 0] - 0.8 * X[:, 1] + 0.4 * X[:, 2]
LABEL = (SCORE + 0.6 * RNG.normal(size=N) > 0).astype(int)


@pytest.fixture(scope="module")
def model():
    return av.models.ard_classification(X, LABEL)


@pytest.fixture(scope="module")
def evidence(model):
    return av.fit(model, "ep", draws=200, random_seed=1)


def test_the_tree_of_ep_has_sites_cavities_and_leave_one_out(evidence):
    fit = evidence["fit"]
    for name in ("site_mean", "site_variance", "cavity_mean", "cavity_variance", "loo_probability"):
        assert fit[name].dims == ("row",) and fit.sizes["row"] == N
    assert ((fit.loo_probability > 0) & (fit.loo_probability < 1)).all()
    assert fit.loo_error.item() == pytest.approx((fit.loo_probability < 0.5).mean().item())
    assert (
        fit.site_variance > 1
    ).all()  # always, for a probit: 0 < beta (lambda + 1) < 1 in Qi04 (8)
    assert evidence.attrs["method"] == "ep" and evidence.attrs["hyper"] == "evidence"


def test_quadrature_of_the_graphs_own_probit_is_the_closed_form(monkeypatch):
    alpha = np.array([0.5, 1.0, 2.0, *np.ones(D - 2)])
    closed = av.fit(
        av.models.ard_classification(X, LABEL, alpha=alpha), "ep", draws=5, random_seed=0
    )
    monkeypatch.setattr("ardvark.inference.graph.latent.recognise", lambda *_, **__: None)
    by_graph = av.fit(
        av.models.ard_classification(X, LABEL, alpha=alpha), "ep", draws=5, random_seed=0
    )
    for name in ("mean_vector", "covariance_matrix", "log_evidence", "loo_probability"):
        np.testing.assert_allclose(by_graph["fit"][name], closed["fit"][name], atol=1e-7)


def test_the_path_is_recorded(evidence):
    path = evidence["selection_path"]
    assert path.action.values[0] == "start" and path.attrs["chosen"] == path.sizes["step"] - 1
    assert set(path.action.values[1:]) <= {"add", "delete", "re-estimate"}
    np.testing.assert_array_equal(path.n_active, path.active.sum("feature"))
    for name in ("loo_error", "log_loo_probability", *CRITERIA.values()):
        assert np.isfinite(path[name]).all()
    assert (path.active.values[-1] == evidence["fit"].active.values).all()
    assert path.log_evidence.values[-1] == pytest.approx(evidence["fit"].log_evidence.item())


def test_no_single_change_gains_at_the_end(model, evidence):
    latent = read_model(model)
    theta = {name: evidence["theta"][name].values for name in latent.hyper}
    site_model = latent.at(theta)
    fit = EP().approximate(site_model)
    everything = np.ones(latent.n_weights, bool)
    squares = site_model.projection**2
    statistics = _statistics(site_model, squares, site_model.precision, fit)
    _, gains = best_precisions(
        site_model.precision, everything, *statistics, *precision_bounds(site_model)
    )
    assert gains.max() <= 1.1e-6  # the tolerance, and EP's own


@pytest.mark.parametrize("criterion", ["loo_error", "loo_probability", "loo_unsigned"])
def test_predictive_takes_the_first_best_step_of_the_same_path(model, evidence, criterion):
    tree = av.fit(model, av.EP(hyper=av.Predictive(criterion)), draws=10, random_seed=1)
    path = tree["selection_path"]
    np.testing.assert_allclose(path.log_evidence, evidence["selection_path"].log_evidence)
    score = path[CRITERIA[criterion]].values
    assert path.attrs["chosen"] == np.flatnonzero(score == score.min())[0]
    assert (tree["fit"].active.values == path.active.values[path.attrs["chosen"]]).all()
    assert tree.attrs["hyper"] == "predictive" and "leave-one-out" in tree.attrs["caption"]


def test_a_criterion_of_ones_own_can_trade_error_against_size(model):
    def small(step):
        return step.info["loo_error"] + 10.0 * step.active.sum()

    tree = av.fit(model, av.EP(hyper=av.Predictive(small)), draws=10, random_seed=1)
    assert tree["fit"].active.sum() == 0  # ten errors' worth for each weight


def test_overfitting_illustration_of_the_paper():
    """Qi figure 1: both of two features separate; evidence drops one, leave-one-out keeps both."""
    rng = np.random.default_rng(3)
    sign = np.repeat([-1.0, 1.0], 12)
    both = sign[:, None] * rng.uniform(0.6, 2.0, size=(24, 2))
    model = av.models.ard_classification(both, sign.astype(int), bias=False)
    start = {"alpha": np.ones(2)}
    with pytest.warns(
        av.errors.AccuracyWarning, match=r"separable data.*Exact\(hyper=Fixed\(tree\)\)"
    ):
        by_evidence = av.fit(model, av.EP(hyper=av.Evidence(start=start)), draws=10, random_seed=0)
    assert by_evidence["fit"].active.sum() == 1
    assert (by_evidence["selection_path"].loo_error == 0).all()
    by_error = av.fit(model, av.EP(hyper=av.Predictive(start=start)), draws=10, random_seed=0)
    assert by_error["fit"].active.sum() == 2 and by_error["selection_path"].attrs["chosen"] == 0


def test_predictive_needs_leave_one_out(model):
    with pytest.raises(av.errors.UnsupportedPair, match=r"Use EP\(hyper=Predictive\(\)\)"):
        av.fit(model, av.Laplace(hyper=av.Predictive()), draws=10)
    regression = av.models.ard_regression(X, SCORE + 0.2 * np.cos(np.arange(N)))
    with pytest.raises(av.errors.UnsupportedPair, match="two classes"):
        av.fit(regression, av.EP(hyper=av.Predictive()), draws=10)


def test_regression_by_ep_is_that_by_laplace():
    """Gaussian sites: both are exact, so even the optimised hyperparameters agree."""
    model = av.models.ard_regression(X, SCORE + 0.2 * np.cos(np.arange(N)))
    trees = [av.fit(model, method, draws=10, random_seed=0) for method in ("ep", "laplace")]
    ep, laplace = (tree["fit"] for tree in trees)
    sigma = [tree["theta"].sigma.item() for tree in trees]
    assert ep.log_evidence.item() == pytest.approx(laplace.log_evidence.item(), abs=1e-6)
    assert sigma[0] == pytest.approx(sigma[1], rel=1e-3)
    np.testing.assert_array_equal(ep.active, laplace.active)


def test_starts_are_explicit():
    latent = read_model(av.models.ard_classification(X, LABEL))
    site_model = latent.at(latent.initial_theta())
    free = np.ones(D + 1, bool)
    assert active_at_start("empty", site_model, free) == (None, None)
    assert active_at_start("all", site_model, free)[0].all()
    random = active_at_start(("random", 5, 3), site_model, free)[0]
    assert random.sum() == 5
    assert (random == active_at_start(("random", 5, 3), site_model, free)[0]).all()
    assert (random != active_at_start(("random", 5, 4), site_model, free)[0]).any()
    correlated = active_at_start(("correlated", 2), site_model, free)[0]
    slope = site_model.sites.derivatives(np.zeros(N)).first
    norm = np.linalg.norm(site_model.projection, axis=0)
    by_hand = np.argsort(-np.abs(site_model.projection.T @ slope) / norm)[:2]
    np.testing.assert_array_equal(np.flatnonzero(correlated), np.sort(by_hand))


def test_of_several_starts_the_best_end_is_kept(model, evidence):
    starts = ["empty", "all", ("random", 4)]
    ends = [
        av.fit(model, av.EP(hyper=av.Evidence(start=s)), draws=5, random_seed=0)["fit"].log_evidence
        for s in starts
    ]
    best = av.fit(model, av.EP(hyper=av.Evidence(start=starts)), draws=5, random_seed=0)
    assert best["fit"].log_evidence.item() == pytest.approx(max(float(e) for e in ends), abs=1e-9)


@pytest.mark.parametrize(
    "start", ["some", ("random",), ("random", 0), ("random", 2.5), 7, ["all", "some"]]
)
def test_what_is_no_start_is_refused(start):
    with pytest.raises(av.errors.InputError, match="start must be"):
        av.Evidence(start=start)


def test_bad_criterion_is_refused():
    with pytest.raises(
        av.errors.InputError, match="criterion must be one of loo_error, loo_probability"
    ):
        av.Predictive("aic")


# Exact -------------------------------------------------------------------------------------------


def test_exact_is_the_yardstick_of_ep_and_laplace():
    rng = np.random.default_rng(9)
    wide = rng.normal(size=(15, 60))
    label = (wide[:, 0] + 0.5 * rng.normal(size=15) > 0).astype(int)
    model = av.models.ard_classification(wide, label, alpha=np.full(61, 30.0))
    exact = av.fit(model, "exact", draws=2000, random_seed=1)
    ep = av.fit(model, "ep", draws=2000, random_seed=2)
    laplace = av.fit(model, "laplace", draws=10, random_seed=2)
    truth, error = exact["fit"].log_evidence.item(), exact["fit"].log_evidence_error.item()
    assert abs(ep["fit"].log_evidence.item() - truth) < 4 * error + 0.01  # EP's own at this prior
    assert abs(laplace["fit"].log_evidence.item() - truth) > abs(
        ep["fit"].log_evidence.item() - truth
    )
    table = av.compare({"ep": ep, "exact": exact}, reference="exact", detail=True)
    assert table.loc["ep", "compares"] == "approximation error"
    assert table.loc["ep", "worst_mean_error"] < 4 * np.sqrt(2 / 8000) + 0.02
    assert exact["posterior"].attrs["sampling_kind"] == "iid"
    p, q = (av.predict(model, tree, wide[:4]).values for tree in (ep, exact))
    assert np.abs(p - q).max() < 4 * 0.5 / np.sqrt(2000) + 0.005


def test_exact_needs_given_hyperparameters(model, evidence):
    with pytest.raises(av.errors.UnsupportedPair, match=r"exact needs hyper=Fixed\(\.\.\.\)"):
        av.fit(model, "exact", draws=10)
    with pytest.raises(
        av.errors.UnsupportedPair, match="no exact posterior is known for LogitSites"
    ):
        logit = av.models.ard_classification(X, LABEL, link="logit", alpha=np.ones(D + 1))
        av.fit(logit, "exact", draws=10)


# Along the path ----------------------------------------------------------------------------------


def test_errors_along_the_path_are_those_of_fits_at_its_steps(model, evidence):
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(30, D))
    label = (rows[:, 0] - 0.8 * rows[:, 1] + 0.4 * rows[:, 2] > 0).astype(int)
    along = av.diagnostics.path_errors(model, evidence, rows, label)
    assert along.sizes["step"] == evidence["selection_path"].sizes["step"]
    p = av.predict(model, evidence, rows).values[np.arange(30), label]
    assert along.error.values[-1] == pytest.approx((p < 0.5).mean())
    assert along.log_probability.values[-1] == pytest.approx(np.log(p).mean(), abs=1e-7)
    assert along.error.values[0] == 0.5  # the empty model decides nothing
    axes = av.plot.path(evidence, along)
    titles = [axis.get_title(loc="left") for axis in axes]
    assert titles[0] == "log evidence" and "test error" in titles and len(titles) == 6


def test_labels_of_no_class_are_refused(model, evidence):
    with pytest.raises(av.errors.InputError, match="t_test must be 4 labels"):
        av.diagnostics.path_errors(model, evidence, X[:4], [0, 1, 2, 1])


def test_the_bayes_point_forgets_the_variance(model, evidence):
    full, point = (
        av.predict(model, evidence, X[:8], bayes_point=b).values[:, 1] for b in (False, True)
    )
    assert (np.sign(full - 0.5) == np.sign(point - 0.5)).all()
    assert (np.abs(point - 0.5) > np.abs(full - 0.5)).all()
