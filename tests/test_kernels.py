"""Kernels on arrays and in graphs, and the designs that they make."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.spatial.distance import cdist

from ardvark.errors import InputError
from ardvark.models.inputs import Inputs
from ardvark.models.kernels import KERNELS, RBF, Kernel, Linear, Polynomial, expand

rng = np.random.default_rng(31)
X = rng.normal(size=(7, 3))
CENTRES = rng.normal(size=(5, 3))
ALL = [RBF(width=0.8), Linear(), Polynomial(degree=3), Polynomial(degree=2, offset=0)]


def by_hand(kernel, X, centres):
    if isinstance(kernel, RBF):
        return np.exp(-cdist(X, centres, "sqeuclidean") / (2 * kernel.width**2))
    inner = np.array([[sum(x * c) for c in centres] for x in X])
    if isinstance(kernel, Linear):
        return inner
    return (inner + kernel.offset) ** kernel.degree


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_values_on_arrays_and_in_a_graph(kernel):
    expected = by_hand(kernel, X, CENTRES)
    np.testing.assert_allclose(kernel(X, CENTRES), expected, rtol=1e-12)
    assert isinstance(kernel(X, CENTRES), np.ndarray)
    rows = pt.matrix("rows")
    with pytensor.config.change_flags(cxx=""):
        function = pytensor.function([rows], kernel(rows, CENTRES), mode="FAST_COMPILE")
    np.testing.assert_allclose(function(X), expected, rtol=1e-12)


def test_squared_distances_survive_a_far_origin():
    """1e6 away from 0 a plain |x|² + |c|² - 2x'c would be off by 1e-4."""
    far = RBF(width=1.0)(X + 1e6, CENTRES + 1e6)
    np.testing.assert_allclose(far, RBF(width=1.0)(X, CENTRES), rtol=1e-8)


def test_rbf_is_one_on_its_centre_and_at_most_one():
    table = np.vstack([X, X])
    values = RBF(width=1e-3)(table, table)
    assert values.max() <= 1
    np.testing.assert_allclose(np.diag(values), 1, rtol=1e-8)


def test_kernel_gradient_is_finite_where_distances_vanish():
    rows = pt.matrix("rows")
    with pytensor.config.change_flags(cxx=""):
        slope = pytensor.function(
            [rows], pt.grad(RBF(width=1.0)(rows, X).sum(), rows), mode="FAST_COMPILE"
        )
    assert np.isfinite(slope(X)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RBF(width=0), "width must be a finite number > 0"),
        (lambda: RBF(width=-1.0), "width must be a finite number > 0"),
        (lambda: RBF(width="wide"), "width must be a finite number > 0"),
        (lambda: RBF(width=1.0, per_input=True), "per_input=True asks for"),
        (lambda: RBF(width=None)(X, X), "width is None"),
        (lambda: Polynomial(degree=0), "degree must be an integer >= 1"),
        (lambda: Polynomial(degree=1.5), "degree must be an integer >= 1"),
        (lambda: Polynomial(degree=2, offset=-1), "offset must be a finite number > 0"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_registry_names_every_kernel():
    assert set(KERNELS) == {"rbf", "linear", "polynomial"}
    assert all(isinstance(kernel, Kernel) for kernel in ALL)
    assert hash(RBF(width=1.0)) == hash(RBF(width=1))
    assert not isinstance(lambda X: X, Kernel)


class Squares:
    """A callable basis that names its columns."""

    names = ("first²", "second²")

    def __call__(self, X):
        return X[:, :2] ** 2


def test_designs_of_the_three_kinds_of_basis():
    inputs = Inputs(X, ("height", "weight", "age"))
    plain = expand(inputs, None)
    assert (plain.data, plain.columns, plain.weights) == ("X", "feature", "feature")
    assert plain.names == ("height", "weight", "age") == plain.coords["feature"]
    kernel = expand(inputs, RBF(width=2.0))
    assert (kernel.data, kernel.columns, kernel.weights) == ("X", "feature", "basis")
    assert kernel.names[:2] == ("row0", "row1")
    assert len(kernel.coords["basis"]) == 7
    np.testing.assert_allclose(kernel.basis_functions(X[:2]), RBF(width=2.0)(X[:2], X))
    table = expand(inputs, Squares())
    assert (table.data, table.columns, table.weights) == ("Phi", "basis", "basis")
    assert table.names == Squares.names
    np.testing.assert_allclose(table.new_data(X[:3])["Phi"], X[:3, :2] ** 2)
    assert expand(inputs, lambda X: X[:, :2]).names == ("phi0", "phi1")


def test_a_user_kernel_is_a_kernel():
    class Cosine:
        name = "cosine"

        def __call__(self, X, centres):
            return X @ centres.T / 7.0

    assert expand(Inputs(X), Cosine()).weights == "basis"


class Shrinking:
    """A basis whose number of columns depends on the rows."""

    def __call__(self, X):
        return np.ones((len(X), len(X)))


@pytest.mark.parametrize(
    ("basis", "message"),
    [
        (RBF, "basis must be None, a kernel object or a function"),
        ("rbf", "Kernels: RBF, Linear, Polynomial"),
        (RBF(width=None), "width is None"),
        (lambda X: X[:, 0], "2-D table with one row per row of X"),
        (lambda X: X[:3], "2-D table with one row per row of X"),
        (lambda X: X / 0.0, "basis gives"),
        (type("B", (Squares,), {"names": ("a", "a")})(), "one distinct name per column"),
    ],
)
def test_bad_bases_are_refused(basis, message):
    with np.errstate(all="ignore"), pytest.raises(InputError, match=message):
        expand(Inputs(X), basis)


def test_a_basis_that_changes_its_columns_is_refused_on_new_rows():
    with pytest.raises(InputError, match="gives 3 columns on these rows and gave 7"):
        expand(Inputs(X), Shrinking()).new_data(X[:3])
