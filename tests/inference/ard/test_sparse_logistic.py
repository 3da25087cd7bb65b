"""Sequential ARD without the table of columns, and one class against the rest."""

import numpy as np
import pytest

from ardvark.inference.ard.gaussian_ard import Columns
from ardvark.inference.ard.sequential_ard import sequential_ard
from ardvark.inference.ard.sparse_logistic import sparse_logistic
from ardvark.inference.ep.ep import EP
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import LogitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.softmax.one_against_rest import log_odds, log_probabilities, sparse_machines


def design(rows=200, seed=0):
    """A bias and a Gaussian kernel at each row; three classes of the plane."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    score = np.column_stack([2 * X[:, 0], 2 * X[:, 1], -X.sum(axis=1)])
    codes = (score + 0.8 * rng.normal(size=score.shape)).argmax(axis=1)
    distance = np.square(X[:, None] - X[None]).sum(axis=2)
    return np.hstack([np.ones((rows, 1)), np.exp(-distance / 2)]), codes


def made(Phi, **options):
    return Columns(lambda indices: Phi[:, indices], Phi.shape, **options)


def signs(codes):
    return [np.where(codes == k, 1.0, -1.0) for k in range(codes.max() + 1)]


def dense(Phi, sign, **options):
    model = SiteModel(
        mean=np.zeros(Phi.shape[1]),
        projection=Phi,
        offset=np.zeros(len(Phi)),
        sites=LogitSites(sign),
        precision=np.ones(Phi.shape[1]),
    )
    return sequential_ard(model, Laplace().approximate, max_steps=5000, **options)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_with_all_columns_in_the_pool_it_is_sequential_ard(tolerance):
    Phi, codes = design()
    targets = signs(codes)
    found = sparse_logistic(made(Phi, chunk=37), targets, tolerance=tolerance, pool=1000)
    for one, sign in zip(found, targets, strict=True):
        other = dense(Phi, sign, tolerance=tolerance)
        assert one.converged and other.converged
        assert one.steps == other.steps
        assert one.active.tolist() == np.flatnonzero(np.isfinite(other.precision)).tolist()
        assert one.log_evidence == pytest.approx(other.fit.log_evidence, abs=1e-8)
        np.testing.assert_allclose(one.precision, other.precision, rtol=1e-5)
        posterior = other.fit.posterior
        np.testing.assert_allclose(one.mean, posterior.mean[one.active], atol=1e-6)
        np.testing.assert_allclose(
            one.covariance, posterior.covariance[np.ix_(one.active, one.active)], atol=1e-5
        )


def test_a_small_pool_ends_where_no_column_gains():
    """The end is another local optimum perhaps, but no single change of any column gains."""
    Phi, codes = design()
    tolerance = 1e-3
    for one, sign in zip(
        sparse_logistic(made(Phi, chunk=64), signs(codes), tolerance=tolerance, pool=16),
        signs(codes),
        strict=True,
    ):
        assert one.converged and one.looks >= 2
        start = np.isfinite(one.precision)
        model = SiteModel(
            mean=np.zeros(Phi.shape[1]),
            projection=Phi,
            offset=np.zeros(len(Phi)),
            sites=LogitSites(sign),
            precision=np.where(start, one.precision, 1.0),
        )
        again = sequential_ard(
            model, Laplace().approximate, start=start, tolerance=tolerance, max_steps=5000
        )
        assert again.steps == 0  # sequential ARD, started there, finds nothing to do
        assert again.fit.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)


def test_never_all_columns_at_a_time():
    Phi, codes = design(rows=400)
    asked = []

    def make(indices):
        asked.append(len(indices))
        return Phi[:, indices]

    columns = Columns(make, Phi.shape, chunk=32, memory=0.0)
    [found, *_] = sparse_logistic(columns, signs(codes), tolerance=0.1, pool=40)
    assert found.converged
    assert max(asked) <= 40 + found.active.size + 40


def test_steps_end_and_that_is_admitted():
    Phi, codes = design()
    [one] = sparse_logistic(made(Phi), signs(codes)[:1], max_steps=2)
    assert one.steps == 2 and not one.converged


def test_separable_classes_come_to_an_end():
    x = np.linspace(-1, 1, 40)
    Phi = np.column_stack([np.ones(40), x, x**3])
    [one] = sparse_logistic(made(Phi), [np.where(x > 0, 1.0, -1.0)], tolerance=1e-3)
    assert one.converged and np.isfinite(one.log_evidence)


def test_duplicate_columns_are_no_trouble():
    Phi, codes = design(rows=80)
    twice = np.hstack([Phi, Phi])
    single = sparse_logistic(made(Phi), signs(codes), tolerance=1e-3, pool=1000)
    double = sparse_logistic(made(twice), signs(codes), tolerance=1e-3, pool=1000)
    for one, other in zip(single, double, strict=True):
        assert other.converged
        # Copies add nothing to the best model, but a greedy path may take another turn.
        assert other.log_evidence == pytest.approx(one.log_evidence, abs=0.2)


def test_bad_input_is_refused():
    Phi, codes = design(rows=30)
    with pytest.raises(ValueError, match=r"each \+1 or -1"):
        sparse_logistic(made(Phi), [codes.astype(float)])
    broken = Phi.copy()
    broken[3, 5] = np.nan
    with pytest.raises(ValueError, match="column 5"):
        sparse_logistic(made(broken), signs(codes))


# --- one against the rest ---------------------------------------------------------------------


def test_machines_of_a_table_and_of_columns_agree():
    Phi, codes = design()
    positive = [codes == k for k in range(3)]
    table = sparse_machines(Phi, positive, Laplace(), tolerance=1e-3)
    columns = sparse_machines(made(Phi), positive, Laplace(), tolerance=1e-3)  # 200 fit in a pool
    for one, other in zip(table, columns, strict=True):
        assert one.active.tolist() == other.active.tolist()
        assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-8)


def test_probit_machines_need_a_table():
    Phi, codes = design(rows=40)
    [machine] = sparse_machines(Phi, [codes == 0], EP(), link="probit", tolerance=1e-2)
    assert machine.converged and machine.active.size
    with pytest.raises(ValueError, match="logit"):
        sparse_machines(made(Phi), [codes == 0], EP(), link="probit")


def test_probabilities_sum_to_one_even_where_all_say_no():
    odds = np.array([[-800.0, -810.0, -805.0], [5.0, 3.0, -2.0], [800.0, 900.0, -900.0]])
    chances = np.exp(log_probabilities(odds))
    assert np.abs(chances.sum(axis=1) - 1).max() < 1e-12
    assert chances[0, 0] > 0.99 and chances[2, 0] == pytest.approx(0.5)


def test_odds_without_spread_are_the_predictor():
    eta = np.linspace(-20, 20, 9)
    np.testing.assert_allclose(log_odds(eta, np.full(9, 1e-300), "logit"), eta, rtol=1e-8)
    assert abs(log_odds(np.array([3.0]), np.array([4.0]), "logit")[0]) < 3.0
