"""Feature selection: rankings, learners, the stopping rule, and the door."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.svm import SVC

import ardvark as av
from ardvark.inference.process import evidence as process_evidence
from ardvark.inference.process.evidence import Process, maximise, random_starts
from ardvark.inference.running.threads import unwatched
from ardvark.inference.selection.filters import fisher_score, relief
from ardvark.inference.selection.learners import EvidenceLearner, LeaveOneOutLearner
from ardvark.inference.selection.smo import hinge_machine, path_decisions
from ardvark.inference.selection.svm import GridSVM, decide
from ardvark.inference.selection.walk import (
    ByRelevance,
    Ranking,
    Score,
    backward,
    excess,
    forward,
    weighted_columns,
)
from ardvark.models.covariances import ARDGaussian


def task(rows=80, features=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    return X, np.where(2 * X[:, 1] + X[:, 0] ** 2 - 1 + 0.3 * rng.normal(size=rows) > 0, 1.0, -1.0)


@pytest.mark.parametrize("box", [0.3, 5.0, 100.0])
def test_machine_is_that_of_scikit_learn(box):
    X, y = task()
    kernel = np.exp(-0.3 * cdist(X, X, "sqeuclidean"))
    v, offset = hinge_machine(kernel, y, box, tolerance=1e-8)
    peer = SVC(C=box, kernel="precomputed", tol=1e-8).fit(kernel, y)
    assert np.abs(kernel @ v + offset - peer.decision_function(kernel)).max() < 1e-5
    assert abs(v.sum()) < 1e-10 and (y * v >= 0).all() and (y * v <= box).all()


def test_a_path_of_boxes_is_each_of_them_alone():
    X, y = task()
    kernel = np.exp(-0.3 * cdist(X, X, "sqeuclidean"))
    train, test, boxes = np.arange(60), np.arange(60, 80), np.array([0.2, 2.0, 20.0])
    f, cut = path_decisions(kernel, y, train, test, boxes, 1e-9, 10**7, unwatched())
    assert not cut.any()
    for k, box in enumerate(boxes):
        v, offset = hinge_machine(kernel[:60, :60], y[:60], box, tolerance=1e-9)
        assert np.abs(f[k] - kernel[60:, :60] @ v - offset).max() < 1e-6


def test_fisher_score_by_hand_and_constant_columns():
    X = np.array([[0.0, 1.0, 0.0], [2.0, 1.0, 0.0], [5.0, 1.0, 1.0], [7.0, 1.0, 1.0]])
    score = fisher_score(X, np.array([-1.0, -1.0, 1.0, 1.0]))
    assert score[0] == 5.0 / 2.0 and score[1] == 0.0 and score[2] == np.inf


def test_relief_by_brute_force():
    X, y = task(rows=30)
    Z = X / np.ptp(X, axis=0)
    wanted = np.zeros(4)
    for n in range(30):
        apart = [np.inf if m == n else np.square(Z[n] - Z[m]).sum() for m in range(30)]
        hit = min((m for m in range(30) if y[m] == y[n]), key=apart.__getitem__)
        miss = min((m for m in range(30) if y[m] != y[n]), key=apart.__getitem__)
        wanted += (np.square(Z[n] - Z[miss]) - np.square(Z[n] - Z[hit])) / 30
    assert np.abs(relief(X, y) - wanted).max() < 1e-12


def scripted(losses, rows=100):
    """A learner whose first `loss` rows of the hundred are wrong, by number of columns."""

    def learner(X, y):
        wrong = (np.arange(rows) < losses[X.shape[1] - 1]).astype(float)
        return Score(float(wrong.mean()), wrong, {})

    return learner


def test_table_1_stops_before_the_first_that_hurts():
    X, y = np.zeros((100, 6)), np.ones(100)
    order = np.array([3, 1, 0, 2, 5, 4])
    path = forward(X, y, order, scripted([30, 10, 10, 11, 25, 5]))
    assert len(path.scores) == 5 and path.stop == 3  # 11 is within a standard error of 10
    assert path.subsets[path.stop].tolist() == [3, 1, 0, 2]
    assert path.smallest == 1
    whole = forward(X, y, order, scripted([30, 10, 10, 11, 25, 5]), beyond=True)
    assert whole.stop == 3 and len(whole.scores) == 6 and whole.smallest == 5
    assert forward(X, y, order, scripted([9, 8, 7, 6, 5, 4])).stop == 5


def test_patience_sees_past_a_stumble_and_ends_on_a_plateau():
    X, y = np.zeros((100, 8)), np.ones(100)
    losses = [40, 20, 25, 8, 8, 9, 8, 7]
    assert len(forward(X, y, np.arange(8), scripted(losses)).scores) == 3  # table 1 falls at 25
    path = forward(X, y, np.arange(8), scripted(losses), patience=3)
    assert len(path.scores) == 7 and path.smallest == 3 and path.stop == 1
    assert len(forward(X, y, np.arange(8), scripted(losses), patience=1).scores) == 3
    assert len(forward(X, y, np.arange(8), scripted(losses), patience=20).scores) == 8


def test_excess_is_in_paired_standard_errors():
    a, b = np.array([0.0, 0, 0, 1]), np.array([1.0, 0, 1, 1])
    paired = (b - a).std(ddof=1) / 2
    assert excess(Score(b.mean(), b, {}), Score(a.mean(), a, {})) == pytest.approx(0.5 / paired)
    assert excess(Score(7.0, None, {}), Score(5.0, None, {})) == 2.0
    assert excess(Score(0.25, a, {}), Score(0.25, a, {})) == 0.0


def test_backward_keeps_what_matters():
    X, y = task()
    path = backward(X, y, ByRelevance(starts=2))
    assert [len(subset) for subset in path.subsets] == [4, 3, 2, 1]
    assert set(path.subsets[path.smallest].tolist()) == {0, 1}
    by_half = backward(X, y, ByRelevance(starts=1), share=0.5)
    assert [len(subset) for subset in by_half.subsets] == [4, 2, 1]
    with pytest.raises(ValueError, match="give a learner"):
        backward(X, y, lambda X, y: Ranking(fisher_score(X, y), np.zeros(X.shape[1])))


def test_learners_prefer_the_columns_that_matter():
    X, y = task()
    for learner in (GridSVM(repeats=2), EvidenceLearner(), LeaveOneOutLearner()):
        assert learner(X[:, :2], y).loss < learner(X[:, 2:], y).loss
    score = GridSVM(repeats=2)(X[:, :2], y)
    again = GridSVM(repeats=2, executor=2)(X[:, :2], y)
    assert score.setting == again.setting and np.array_equal(score.by_row, again.by_row)
    X_new, y_new = task(seed=1)
    assert np.mean(decide(X[:, :2], y, X_new[:, :2], score.setting) * y_new <= 0) < 0.2


def test_machines_that_are_cut_are_counted_and_said():
    X, y = task()
    assert GridSVM(repeats=2)(X[:, :2], y).unfinished == 0
    cut = GridSVM(repeats=2, max_steps=3)
    score = cut(X[:, :2], y)
    assert score.unfinished == 10  # 5 folds, twice
    with pytest.warns(av.errors.ConvergenceWarning, match=r"30 machines .* at 3 of 3 subsets"):
        chosen = av.select_features(
            X, y, ranking="fisher", learner=cut, most=3, beyond=True, progressbar=False
        )
    assert chosen.attrs["converged"] == 0 and chosen["unfinished"].values.tolist() == [10] * 3


def test_weights_in_the_columns_are_weights_in_the_kernel():
    X, _ = task(rows=5)
    r = np.array([0.5, 0.3, 0.2, 1e-3])
    direct = (r / r.mean() * np.square(X[0] - X[1])).sum()
    Z = weighted_columns(X, r)
    assert np.square(Z[0] - Z[1]).sum() == pytest.approx(direct)


def test_a_start_that_explains_nothing_is_not_the_end(monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 100))
    process = Process.of(X, np.where(X[:, 5] * X[:, 7] > 0, 1.0, -1.0), ARDGaussian())
    coin = -500 * np.log(2)
    found = maximise(process, starts=random_starts(process, 1))
    assert found.optima.ends[0].value > coin + 20  # a weight of e^20 against no function at all
    assert set(np.argsort(-found.optima.relevance[0])[:2]) == {5, 7}
    monkeypatch.setattr(process_evidence, "NO_BETTER", -np.inf)  # without the second climb
    assert maximise(process, starts=random_starts(process, 1)).optima.ends[0].value < coin + 1


def test_the_door_names_features_and_the_plot_draws_them():
    X, y = task()
    chosen = av.select_features(
        X, y > 0, starts=1, learner="evidence", beyond=True, progressbar=False
    )
    names = chosen["feature"].values[chosen["selected"].values]
    assert set(names) == {"x0", "x1"} and chosen.sizes["step"] == 4
    axes = av.plot.selection(chosen)
    assert len(axes) == 2 and len(axes[0].patches) == 4
    with pytest.raises(av.errors.InputError, match="ranking"):
        av.select_features(X, y, ranking="luck", progressbar=False)
    with pytest.raises(av.errors.InputError, match="select_features"):
        av.plot.selection(chosen.drop_vars("score"))
