"""Sparse factorisation against dense algebra."""

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array, random_array, vstack

from ardvark.inference.sparse import factor
from ardvark.inference.sparse.factor import Factor, colours, plan


def rows(rng, kind):
    """Rows J of a kind of model, the identity first."""
    n = 120
    if kind == "chain":
        more = eye_array(n, n) - eye_array(n, n, k=-1)
    elif kind == "groups":
        more = csr_array((np.ones(400), (np.arange(400), rng.integers(0, n, 400))), shape=(400, n))
    elif kind == "lattice":
        more = vstack([eye_array(n) - eye_array(n, k=1), eye_array(n) - eye_array(n, k=10)])
    else:
        more = random_array((2 * n, n), density=2.0 / n, rng=rng)
    J = csr_array(vstack([eye_array(n), more]))
    J.sort_indices()
    J.data = rng.normal(size=J.nnz)
    J.data[:n] += 3.0
    return J


@pytest.mark.parametrize("full", [0.6, 2.0], ids=["dense end", "sparse to the end"])
@pytest.mark.parametrize("kind", ["chain", "groups", "lattice", "random"])
def test_a_factor_is_that_of_the_dense_matrix(kind, full, monkeypatch):
    monkeypatch.setattr(factor, "FULL", full)
    rng = np.random.default_rng(7)
    J = rows(rng, kind)
    weight = rng.uniform(0.5, 2.0, J.shape[0])
    made = plan(J)
    values = made.values(J.data)
    found = Factor(made, made.assembled(values, weight))
    dense = J.toarray()
    P = (dense.T * weight) @ dense
    V = np.linalg.inv(P)
    assert found.log_det == pytest.approx(np.linalg.slogdet(P)[1], rel=1e-12)
    np.testing.assert_allclose(found.solve(np.eye(len(P))), V, atol=1e-11)
    np.testing.assert_allclose(found.solve(P[0]), np.eye(len(P))[0], atol=1e-10)
    np.testing.assert_allclose(found.diagonal, V.diagonal(), rtol=1e-10)
    row = np.repeat(np.arange(J.shape[0]), np.diff(J.indptr))
    np.testing.assert_allclose(
        found.rows_times_inverse(values), (dense @ V)[row, J.indices], atol=1e-11
    )
    root = found.coloured(np.eye(len(P)))
    np.testing.assert_allclose(root @ root.T, V, atol=1e-11)
    if full > 1.0 and kind != "random":
        assert made.sparse >= len(P) - 1  # the loops were all used


def test_what_is_not_definite_or_not_finite_is_refused():
    J = csr_array(eye_array(80))
    made = plan(J)
    values, weight = made.values(J.data), np.ones(80)
    weight[33] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite at column 33"):
        Factor(made, made.assembled(values, weight))
    weight[33] = np.inf
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        Factor(made, made.assembled(values, weight))


def test_columns_of_one_colour_never_meet():
    rng = np.random.default_rng(2)
    pattern = csr_array(random_array((200, 60), density=0.04, rng=rng))
    pattern.sort_indices()
    colour = colours(pattern, 50)
    assert colour is not None
    for c in range(colour.max() + 1):
        assert np.diff(pattern[:, colour == c].tocsr().indptr).max() <= 1
    assert colours(pattern, int(np.diff(pattern.indptr).max()) - 1) is None
