"""Kernels on arrays and in graphs, and the designs that they make."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.spatial.distance import cdist

from ardvark.errors import InputError
from ardvark.models.inputs import Inputs
from ardvark.models.kernels import (
    KERNELS,
    RBF,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    Spline,
    ThinPlate,
    centred_on_rows,
    expand,
)

rng = np.random.default_rng(31)
X = rng.normal(size=(7, 3))
CENTRES = rng.normal(size=(5, 3))
ALL = [
    RBF(width=0.8),
    Laplacian(width=0.8),
    Linear(),
    Polynomial(degree=3),
    Polynomial(degree=2, offset=0),
    Spline(),
    ThinPlate(),
    ThinPlate(width=0.3),
]


def by_hand(kernel, X, centres):
    if isinstance(kernel, RBF):
        return np.exp(-cdist(X, centres, "sqeuclidean") / (2 * kernel.width**2))
    if isinstance(kernel, Laplacian):
        return np.exp(-cdist(X, centres, "cityblock") / kernel.width)
    if isinstance(kernel, ThinPlate):
        r = cdist(X, centres) / kernel.width
        return r**2 * np.log(r)
    if isinstance(kernel, Spline):
        return np.array([[spline(x, c) for c in centres] for x in X])
    inner = np.array([[sum(x * c) for c in centres] for x in X])
    if isinstance(kernel, Linear):
        return inner
    return (inner + kernel.offset) ** kernel.degree


def spline(x, c):
    """Vapnik's form on x, c >= 0 is 1 + xc + the integral of (x - s)+ (c - s)+ over s > 0."""
    m = np.minimum(x, c)
    return np.prod(1 + x * c + x * c * m - (x + c) / 2 * m**2 + m**3 / 3)


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


@pytest.mark.parametrize(
    "kernel", [RBF(None), RBF(None, per_input=True), Laplacian(None), ThinPlate(None)]
)
def test_kernel_gradient_is_finite_where_distances_vanish(kernel):
    rows, scale = pt.matrix("rows"), pt.vector("scale")
    total = kernel(rows, X, scale if getattr(kernel, "per_input", False) else scale[0]).sum()
    with pytensor.config.change_flags(cxx=""):
        slopes = pytensor.function(
            [rows, scale], pt.grad(total, [rows, scale]), mode="FAST_COMPILE"
        )
    assert all(np.isfinite(slope).all() for slope in slopes(X, np.array([0.7, 0.2, 1.1])))


def test_scales_of_the_inputs_stretch_the_columns():
    eta = np.array([0.3, 0.0, 2.0])
    expected = np.exp(-(cdist(X * np.sqrt(eta), CENTRES * np.sqrt(eta), "sqeuclidean")))
    kernel = RBF(width=None, per_input=True)
    np.testing.assert_allclose(kernel(X, CENTRES, eta), expected, rtol=1e-12)
    same = RBF(width=0.8)(X, CENTRES)  # eta = 1 / (2 width²)
    np.testing.assert_allclose(kernel(X, CENTRES, np.full(3, 1 / (2 * 0.8**2))), same, rtol=1e-12)
    np.testing.assert_allclose(RBF(width=None)(X, CENTRES, 0.8), same, rtol=1e-12)


def test_the_spline_is_positive_definite_right_of_its_origin_only():
    assert np.linalg.eigvalsh(Spline()(abs(X), abs(X))).min() > 0
    assert np.linalg.eigvalsh(Spline()(X - 3, X - 3)).min() < 0
    x, c = np.array([[0.7]]), np.array([[1.9]])
    s = np.linspace(0, 0.7, 20001)
    integral = np.trapezoid((0.7 - s) * (1.9 - s), s)
    np.testing.assert_allclose(Spline()(x, c), 1 + 0.7 * 1.9 + integral, rtol=1e-8)


def test_thin_plates_vanish_on_their_centre_and_are_indefinite():
    values = ThinPlate()(X, X)
    np.testing.assert_allclose(np.diag(values), 0, atol=1e-12)  # rounding of r² times its log
    eigenvalues = np.linalg.eigvalsh(values)
    assert eigenvalues.min() < 0 < eigenvalues.max()


@pytest.mark.parametrize("kernel", [RBF, Laplacian, ThinPlate])
def test_a_median_width_has_the_unit_of_the_inputs(kernel):
    metric = "cityblock" if kernel is Laplacian else "euclidean"
    expected = np.median(cdist(X, X, metric)[np.triu_indices(7, 1)])
    for unit in (1.0, 1000.0):
        fixed, open_ = kernel(width="median").scale(unit * X), kernel(width=None).scale(unit * X)
        np.testing.assert_allclose(fixed.value, unit * expected, rtol=1e-12)
        np.testing.assert_allclose(open_.typical, unit * expected, rtol=1e-12)
        assert open_.value is None
    assert kernel(width=2.0).scale(X).value == 2.0


def test_typical_scales_of_odd_tables():
    assert RBF("median").scale(X[:1]).value == 1  # no distance at all
    assert RBF("median").scale(np.ones((4, 2))).value == 1
    most_are_equal = np.array([[0.0], [0.0], [0.0], [0.0], [3.0]])
    assert RBF("median").scale(most_are_equal).value == 3
    many = np.random.default_rng(1).uniform(size=(5000, 1))  # median |x - x'| is 1 - 1/sqrt(2)
    assert RBF("median").scale(many).value == pytest.approx(1 - 0.5**0.5, abs=0.03)
    table = np.column_stack([X[:, 0], 1000 * X[:, 1], np.ones(7)])
    scale = RBF(None, per_input=True).scale(table)
    assert (scale.name, scale.dims, scale.spread) == ("input_scale", "feature", 2.0)
    variance = table[:, :2].var(axis=0)
    np.testing.assert_allclose(scale.typical, [*(1 / (12 * variance)), 1 / 3], rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RBF(width=0), "width must be a finite number > 0"),
        (lambda: RBF(width=-1.0), "width must be a finite number > 0"),
        (lambda: RBF(width="wide"), "width must be a finite number > 0, 'median' or None"),
        (lambda: Laplacian(width=np.inf), "width must be a finite number > 0"),
        (lambda: ThinPlate(width=0), "width must be a finite number > 0"),
        (lambda: RBF(width="median", per_input=True), "per_input=True asks for"),
        (lambda: RBF(width="median")(X, X), "width is median"),
        (lambda: Laplacian(width=None)(X, X), r"such as Laplacian\(width=1.0\)"),
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
    assert set(KERNELS) == {"rbf", "laplacian", "linear", "polynomial", "spline", "thin_plate"}
    assert {type(kernel) for kernel in ALL} == set(KERNELS.values())
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
        ("rbf", "Kernels: RBF, Laplacian, Linear"),
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


def test_designs_centred_on_rows():
    inputs = Inputs(X, ("height", "weight", "age"))
    given, plain = centred_on_rows(inputs, RBF(2.0)), centred_on_rows(inputs, Spline())
    assert (given.data, given.columns, given.weights) == ("X", "feature", "basis")
    assert given.names == given.coords["basis"] == tuple(f"row{n}" for n in range(7))
    np.testing.assert_allclose(given.basis_functions(X[:2], 0.4), RBF(0.4)(X[:2], X))
    assert (given.scale.name, plain.scale) == ("width", None)
    np.testing.assert_allclose(plain.basis_functions(X[:2]), Spline()(X[:2], X))
    function = centred_on_rows(inputs, lambda X, centres: cdist(X, centres))
    assert (function.data, function.weights, function.names) == ("Phi", "basis", given.names)
    np.testing.assert_allclose(function.new_data(CENTRES)["Phi"], cdist(CENTRES, X))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RBF, r"kernel must be a kernel object or a function k\(X, centres\)"),
        (None, "Kernels: RBF, Laplacian, Linear"),
        (lambda X, centres: X @ centres[0], "2-D table with one row per row of X"),
        (lambda X, centres: X @ centres.T / 0.0, "basis gives"),
    ],
)
def test_bad_kernels_are_refused(kernel, message):
    with np.errstate(all="ignore"), pytest.raises(InputError, match=message):
        centred_on_rows(Inputs(X), kernel)
