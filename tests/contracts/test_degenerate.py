"""Data that should not happen: a finite answer or a clear error, by the estimators and by `fit`."""

import numpy as np
import pytensor
import pytest

import ardvark as av
from ardvark.errors import AccuracyWarning, ConvergenceWarning, InputError, InputWarning
from ardvark.models.registry import MODELS
from ardvark.sklearn import RVC, RVR

RNG = np.random.default_rng(404)
X = np.linspace(-3, 3, 20)[:, None]
T = np.sinc(X[:, 0]) + 0.1 * RNG.normal(size=20)
LABELS = (T + 0.3 * RNG.normal(size=20) > T.mean()).astype(int)
TWICE = (np.repeat(X, 2, axis=0), np.repeat(T, 2), np.repeat(LABELS, 2))
ROWS = {
    "duplicate rows": TWICE,
    "the same row": (np.ones((6, 1)), np.arange(6.0), np.array([0, 1, 0, 1, 1, 0])),
    "two rows": (X[[0, -1]], T[[0, -1]], np.array([0, 1])),
    "huge": (1e8 * X, 1e8 * T, LABELS),
    "tiny": (1e-8 * X, 1e-8 * T, LABELS),
}
KERNELS = {
    "median": av.RBF(width="median"),
    "singular": av.RBF(width=1e6),
    "identity": av.RBF(width=1e-9),
    "linear": av.kernels.Linear(),
    "polynomial": av.kernels.Polynomial(3),
    "thin plate": av.kernels.ThinPlate(width="median"),
}


def all_finite(*numbers):
    return all(np.isfinite(n).all() for n in numbers)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_estimators_give_finite_answers(rows, kernel):
    inputs, target, labels = ROWS[rows]
    curve = RVR(KERNELS[kernel]).fit(inputs, target)
    assert all_finite(curve.log_evidence_, curve.noise_, *curve.predict(inputs, return_std=True))
    classes = RVC(KERNELS[kernel]).fit(inputs, labels)
    assert all_finite(classes.log_evidence_, classes.predict_proba(inputs))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_constant_target_needs_the_bias_alone(kernel):
    curve = RVR(KERNELS[kernel]).fit(X, np.full(20, 3.0))
    assert len(curve.relevance_) == 0
    np.testing.assert_allclose(curve.predict(10 * X), 3.0, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e150, 1e-150])
def test_a_target_of_any_scale(scale):
    """Finite is not enough: precisions of 1e300 were out of reach, and every weight was pruned."""
    plain, curve = (RVR(KERNELS["median"]).fit(X, s * T) for s in (1.0, scale))
    np.testing.assert_array_equal(curve.relevance_, plain.relevance_)
    for found, known in zip(
        curve.predict(X, return_std=True), plain.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(found, scale * known, rtol=1e-6)
    np.testing.assert_allclose(
        curve.log_evidence_ + len(T) * np.log(scale), plain.log_evidence_, atol=1e-6
    )


def test_one_row():
    curve = RVR(KERNELS["median"]).fit(X[:1], T[:1])
    assert curve.predict(X[:1]) == pytest.approx(T[:1], rel=1e-3)
    with pytest.raises(InputError, match="one class only"):
        RVC().fit(X[:1], LABELS[:1])


def test_a_target_of_zeros_has_no_noise_to_find():
    with pytest.raises(ValueError, match=r"zero everywhere.*give `noise`"):
        RVR().fit(X, np.zeros(20))
    assert all_finite(RVR(noise=0.1).fit(X, np.zeros(20)).predict(X))


def test_an_identity_kernel_is_the_identity():
    """Terms of order 1e18 must not cancel to something else on the diagonal."""
    np.testing.assert_array_equal(av.RBF(width=1e-9)(X, X), np.eye(20))


def test_steps_that_promise_rounding_end():
    """Thin plates on duplicate rows: one weight came and went for 1e5 steps."""
    curve = RVR(KERNELS["thin plate"]).fit(*TWICE[:2])
    assert curve.n_iter_ < 3000


def fitted(build, *data, **options):
    model = build(*data, **options)
    with pytensor.config.change_flags(cxx=""):
        tree = av.fit(model, av.Laplace(), draws=4, random_seed=1, progressbar=False)
        return tree, av.predict(model, tree, data[0])


@pytest.mark.filterwarnings(
    "ignore:laplace. the search has explained:ardvark.errors.AccuracyWarning"
)
@pytest.mark.parametrize("case", ["constant", "duplicate rows", "two rows", "one row"])
def test_graphs_with_an_inferred_width_too(case):
    """A constant target drives the noise to its least, where sites no longer look Gaussian."""
    data = {"constant": (X, np.full(20, 3.0)), "one row": (X[:1], T[:1])}
    tree, predicted = fitted(av.models.rvm_regression, *(data.get(case) or ROWS[case][:2]))
    assert all_finite(tree["fit"]["log_evidence"], predicted)
    assert tree.attrs["converged"]


@pytest.mark.parametrize("value", [3.0, 0.1, -40.0 / 3.0])
@pytest.mark.parametrize("build", ["ard_regression", "rvm_regression"])
def test_a_constant_target_ends_at_the_bound_of_its_noise(build, value):
    """The noise went on to 1e-15, where the evidence (1e17) and the verdict hung on the BLAS.

    The bias explains all: at the bound both are known in closed form. sd(0.1, 0.1, ...) is not 0.
    """
    rows, target = 24, np.full(24, value)
    sd = 1e-5 * abs(value)
    known = -0.5 * (rows * np.log(2 * np.pi) + 2 * (rows - 1) * np.log(sd))
    known -= 0.5 * (np.log(rows * value**2) + 1.0)  # at 1/alpha = value**2 - sd**2/rows
    model = getattr(av.models, build)(np.linspace(-3, 3, rows)[:, None], target)
    for method in (av.Laplace(), av.EP()):
        with pytensor.config.change_flags(cxx=""), pytest.warns(AccuracyWarning, match="its bound"):
            tree = av.fit(model, method, draws=4, random_seed=1, progressbar=False)
        assert float(tree["theta"]["sigma"]) == pytest.approx(sd, rel=1e-9)
        # terms of 24e10 that cancel leave 24e10 * 2e-16 nats
        assert float(tree["fit"]["log_evidence"]) == pytest.approx(known, abs=2e-3)
        assert tree.attrs["converged"] and "its bound" in tree.attrs["caution"]


@pytest.mark.filterwarnings("ignore:vb. the weights explain:ardvark.errors.AccuracyWarning")
@pytest.mark.parametrize("value", [3.0, 0.1])
@pytest.mark.parametrize("options", [{}, {"prior": "shared"}])
def test_vb_of_a_constant_target_ends_too(options, value):
    """It said that negative precisions outweigh prior and data, where there are none."""
    model = av.models.rvm_regression(np.linspace(-3, 3, 24)[:, None], np.full(24, value), **options)
    grown = pytest.warns(ConvergenceWarning, match="width has grown without end")
    with pytensor.config.change_flags(cxx=""), grown:  # a constant has no width
        tree = av.fit(model, av.VB(), draws=4, random_seed=1, progressbar=False)
    assert not tree.attrs["converged"]
    assert 1.0 <= float(tree["theta"]["sigma"]) / (1e-5 * value) < 1.1


@pytest.mark.parametrize("method", [av.Laplace(), av.EP(), av.VB()])
def test_a_target_of_zeros_is_refused_by_graphs_too(method):
    model = av.models.ard_regression(X, np.zeros(20))
    with pytest.raises(ValueError, match="zero everywhere"), pytensor.config.change_flags(cxx=""):
        av.fit(model, method, draws=4, random_seed=1, progressbar=False)


WIDE = RNG.normal(size=(40, 3))
SCORE = WIDE[:, 0] - WIDE[:, 1] + 0.8 * RNG.normal(size=40)
CLASS = (SCORE > 0).astype(int)


def target_of(builder):
    return SCORE if "regression" in MODELS[builder].tasks else CLASS


@pytest.mark.parametrize("scale", [1e300, 1e100, 1e-100, 1e-160])
@pytest.mark.parametrize("builder", MODELS)
def test_scales_that_cannot_be_squared_are_refused_by_every_builder(builder, scale):
    """They were pruned to nothing with `converged=True`, divided by zero, or never ended."""
    inputs = WIDE.copy()
    inputs[:, 1] *= scale
    with pytest.raises(InputError, match=r"X has .*column 'x1'.*double precision.*standardise"):
        getattr(av.models, builder)(inputs, target_of(builder))
    ready = av.standardise(inputs)
    np.testing.assert_allclose(ready, av.standardise(WIDE), rtol=1e-9, atol=1e-12)
    getattr(av.models, builder)(ready, target_of(builder))


def test_targets_and_new_rows_that_cannot_be_squared_are_refused():
    with pytest.raises(InputError, match=r"t has a size of .*double precision"):
        av.models.ard_regression(WIDE, 1e100 * SCORE)
    tree, _ = fitted(av.models.ard_classification, WIDE, CLASS)
    with pytest.raises(InputError, match=r"X_new has .* at row 0, column 'x0'.*double precision"):
        av.predict(av.models.ard_classification(WIDE, CLASS), tree, 1e300 * WIDE)


@pytest.mark.filterwarnings("ignore:X has a column far from unit scale:ardvark.errors.InputWarning")
@pytest.mark.filterwarnings("ignore:t has a root mean square:ardvark.errors.InputWarning")
@pytest.mark.parametrize(("of_inputs", "of_target"), [(1e50, 1.0), (1e-50, 1e-30), (1.0, 1e9)])
def test_the_evidence_has_no_units(of_inputs, of_target):
    """A target of 1e8 and more was no longer read as Gaussian, and every input was pruned."""
    for method in (av.Laplace(), av.EP()):
        with pytensor.config.change_flags(cxx=""):
            plain, far = (
                av.fit(
                    av.models.ard_regression(x * WIDE, t * SCORE),
                    method,
                    draws=4,
                    random_seed=1,
                    progressbar=False,
                )["fit"]
                for x, t in ((1.0, 1.0), (of_inputs, of_target))
            )
        np.testing.assert_array_equal(far["active"], plain["active"])
        jacobian = len(SCORE) * np.log(of_target)
        np.testing.assert_allclose(far["log_evidence"] + jacobian, plain["log_evidence"], atol=1e-6)
        mean = far["mean_vector"] / np.where(
            far["rows"] == "bias", of_target, of_target / of_inputs
        )
        np.testing.assert_allclose(mean, plain["mean_vector"], rtol=1e-4)


def test_inputs_far_from_unit_scale_are_said_so():
    with pytest.warns(InputWarning, match=r"far from unit scale: sd .* of 'x\d'.*standardise"):
        av.models.ard_classification(1e9 * WIDE, CLASS)


def test_classes_of_a_graph():
    tree, chances = fitted(av.models.rvm_classification, *TWICE[::2], kernel=KERNELS["identity"])
    assert all_finite(tree["fit"]["log_evidence"], chances)
    with pytest.raises(InputError, match="one class only"):
        av.models.rvm_classification(X[:1], LABELS[:1])
