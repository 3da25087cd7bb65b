"""The two ARD builders: names, priors, fixed and infinite precisions, new rows, refusals."""

import gc
import weakref

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest
from contracts import as_posterior, cheap_compilation, names, prior_tree  # noqa: F401
from scipy import stats

import ardvark as av
from ardvark.errors import InputError, InputWarning
from ardvark.inference.pymc_models.forms import form_to_sample
from ardvark.models import ard_classification, ard_regression
from ardvark.models.card import Precision, card_of
from ardvark.models.inputs import standardise
from ardvark.models.kernels import RBF

rng = np.random.default_rng(77)
X = rng.normal(size=(20, 3))
LABELS = np.where(X[:, 0] > np.median(X[:, 0]), "yes", "no")
TARGET = 10 + 3 * X[:, 1] + rng.normal(size=20)


def test_the_graph_is_the_one_a_user_would_write():
    model = ard_classification(X, LABELS)
    assert type(model) is pm.Model
    assert names(model.free_RVs) == ["alpha_bias", "bias", "alpha", "w"]
    assert names(model.deterministics) == ["eta"]
    assert names(model.observed_RVs) == ["t"]
    assert names(model.data_vars) == ["X", "t_observed"]
    assert model.named_vars_to_dims["w"] == ("feature",)
    assert model.named_vars_to_dims["X"] == ("row", "feature")
    assert model["bias"].ndim == 0
    np.testing.assert_array_equal(model["t_observed"].get_value(), LABELS == "yes")


def test_names_of_a_data_frame_are_kept():
    frame = pd.DataFrame(X, columns=["height", "weight", "age"])
    model = ard_regression(frame, TARGET)
    assert model.coords["feature"] == ("height", "weight", "age")
    assert names(model.free_RVs) == ["alpha_bias", "bias", "alpha", "w", "sigma"]


def test_card_says_what_the_graph_cannot():
    model = ard_classification(standardise(X), LABELS, a=3.0)
    card = card_of(model)
    assert (card.builder, card.task) == ("ard_classification", "binary")
    assert card.classes.tolist() == ["no", "yes"]
    np.testing.assert_allclose(card.scaling.centre, X.mean(axis=0))
    assert card.precisions == (
        Precision("bias", "alpha_bias", 3.0, 2 / 3),
        Precision("w", "alpha", 3.0, 2 / 3),
    )
    assert set(card.new_data(X[:2])) == {"X"}
    assert card_of(pm.Model()) is None


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e3])
def test_default_hyperprior_keeps_eta_near_one_and_a_half_sd_of_the_target(unit):
    """E[1/alpha] = b/(a-1) = 2 var(t)/d: Var eta = 2 var(t) for inputs of unit scale, any d."""
    for d in (1, 40):
        inputs = rng.choice([-1.0, 1.0], size=(30, d))
        inputs[0], inputs[1] = 1, -1
        target = unit * (5 + rng.normal(size=30))
        model = ard_regression(inputs, target, bias=False)
        with model:
            tree = pm.sample_prior_predictive(
                1000, var_names=["eta"], random_seed=1, compile_kwargs={"mode": "FAST_COMPILE"}
            )
        # Student-t, 4 degrees of freedom: quantiles, as its sample variance hardly converges
        spread = np.quantile(tree.prior["eta"].to_numpy()[..., 0], [0.25, 0.75])
        half_width = np.ptp(spread) / 2 / target.std()
        assert 0.6 < half_width < 1.2  # N(0, 2) has 0.95, the t of d = 1 has 0.74


def test_noise_prior_has_the_unit_of_the_target():
    for unit in (1.0, 1000.0):
        model = ard_regression(X, unit * TARGET)
        draws = pm.draw(model["sigma"], 2000, random_seed=1)
        expected = stats.halfnorm(scale=unit * TARGET.std())
        z = (draws.mean() - expected.mean()) / (expected.std() / np.sqrt(2000))
        assert abs(z) < 4
    assert names(ard_regression(X, TARGET, noise=0.5).data_vars) == ["X", "sigma", "t_observed"]
    assert np.isfinite(pm.draw(ard_regression(X, np.ones(20))["sigma"], random_seed=1))


def standard(model, method, unit):
    """Posterior means of all weights and the noise, in units of the target."""
    tree = av.fit(model, method, draws=4, random_seed=1, progressbar=False)
    fit = tree["fit"]
    weights = np.zeros(fit["active"].size)
    weights[fit["active"].values] = fit["mean_vector"].values
    return np.append(weights, float(tree["theta"]["sigma"])) / unit


@pytest.mark.parametrize("method", [av.Laplace(), av.EP(), av.VB()], ids=["laplace", "ep", "vb"])
@pytest.mark.parametrize("build", ["ard_regression", "rvm_regression"])
def test_the_default_fit_follows_the_unit_of_the_target(build, method):
    """VB of a regression gave other weights for 0.1 t, and none at all for 10 t."""
    builder = getattr(av.models, build)
    inputs = X if build == "ard_regression" else X[:, :1]
    target = 3.0 + 2.0 * X[:, 0] + 0.5 * TARGET
    one = standard(builder(inputs, target), method, 1.0)
    assert np.abs(one).max() > 0.5
    for unit in (1e-3, 1e3):
        other = standard(builder(inputs, unit * target), method, unit)
        # VB stops when its bound gains less than 1e-8 of itself, which is in other nats
        np.testing.assert_allclose(other, one, atol=1e-6 * np.abs(one).max())


@pytest.mark.parametrize("build", ["ard_regression", "rvm_regression"])
def test_the_posterior_of_a_sampler_follows_the_unit_of_the_target(build):
    """log p(c w, c sigma, alpha / c², c t) - log p(w, sigma, alpha, t) is the same everywhere."""
    builder = getattr(av.models, build)
    power = {"w": 1, "bias": 1, "sigma": 1, "alpha": -2, "alpha_bias": -2, "width": 0}
    one, other = builder(X, TARGET), builder(X, 1e3 * TARGET)
    differences = []
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        densities = [model.logp(jacobian=False) for model in (one, other)]
        logp = [model.compile_fn(d) for model, d in zip((one, other), densities, strict=True)]
        for seed in range(3):
            drawn = pm.draw(one.free_RVs, random_seed=seed)
            points = []
            for model, unit in ((one, 1.0), (other, 1e3)):
                values = {
                    rv: value * unit ** power[rv.name]
                    for rv, value in zip(model.free_RVs, drawn, strict=True)
                }
                points.append(unconstrained(model, values))
            differences.append(logp[1](points[1]) - logp[0](points[0]))
    np.testing.assert_allclose(differences, differences[0], atol=1e-8)


def unconstrained(model, values):
    point = {}
    for rv, value in values.items():
        transform = model.rvs_to_transforms[rv]
        name = model.rvs_to_values[rv].name
        point[name] = value if transform is None else np.log(value)
    return point


def test_a_constant_target_has_its_size_for_a_scale():
    """The sd of 24 times 0.1 is 1e-17 by rounding, which was the scale of the noise."""
    for value, scale in ((0.1, 0.1), (-3.0, 3.0), (0.0, 1.0)):
        model = ard_regression(X, np.full(20, value))
        (bias, _) = card_of(model).precisions
        assert bias.rate == pytest.approx(2 * scale**2 / 3)
        assert 0.01 * scale < pm.draw(model["sigma"], 50, random_seed=1).max() < 10 * scale
    with pytest.raises(av.errors.InputError, match="t has a size of 1e"):
        ard_regression(X, 1e200 * TARGET / np.abs(TARGET).max())


def test_fixed_precisions_are_data_with_the_bias_first():
    model = ard_regression(X, TARGET, alpha=[0.1, 1, 2, 3], noise=1.0)
    assert names(model.free_RVs) == ["bias", "w"]
    assert model["alpha_bias"].get_value() == 0.1
    np.testing.assert_array_equal(model["alpha"].get_value(), [1, 2, 3])
    assert card_of(model).precisions == ()
    assert card_of(model).integrated is None
    draws = pm.draw(model["w"], 4000, random_seed=2)
    ratio = draws.var(axis=0) * np.array([1, 2, 3])
    assert np.abs(ratio - 1).max() < 4 * np.sqrt(2 / 4000)


def test_infinite_precisions_leave_exact_zeros_and_all_names():
    model = ard_classification(X, LABELS, alpha=[1, np.inf, 2, np.inf])
    assert names(model.free_RVs) == ["bias", "w_active"]
    assert model.coords["active"] == ("x1",)
    w, active, eta = pm.draw([model["w"], model["w_active"], model["eta"]], random_seed=1)
    np.testing.assert_array_equal(w, [0, active[0], 0])
    assert eta.std() > 0
    only_bias = ard_classification(X, LABELS, alpha=[1, np.inf, np.inf, np.inf])
    assert names(only_bias.free_RVs) == ["bias"]
    np.testing.assert_array_equal(pm.draw(only_bias["w"]), np.zeros(3))
    no_constant = ard_classification(X, LABELS, alpha=[np.inf, 1, 1, 1])
    assert names(no_constant.free_RVs) == ["w"]
    assert pm.draw(no_constant["bias"]) == 0


@pytest.mark.parametrize("alpha", [None, [1.0, 1.0, np.inf, 1.0]], ids=["free", "one off"])
@pytest.mark.parametrize("basis", [None, RBF(width=1.3), lambda X: X**3], ids=["X", "k", "f"])
def test_new_rows_use_the_posterior_draws_and_the_training_centres(basis, alpha):
    if isinstance(basis, RBF) and alpha is not None:
        alpha = [1.0, *np.where(np.arange(20) % 3, 1.0, np.inf)]
    model = ard_regression(X, TARGET, basis=basis, alpha=alpha)
    draws = prior_tree(model)
    X_new = rng.normal(size=(4, 3))
    with model:
        pm.set_data(
            {**card_of(model).new_data(X_new), "t_observed": np.zeros(4)},
            coords={"row": ["a", "b", "c", "d"]},
        )
        predicted = pm.sample_posterior_predictive(
            as_posterior(draws),
            var_names=["eta", "t"],
            random_seed=1,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        ).posterior_predictive
    Phi = X_new if basis is None else basis(X_new, X) if isinstance(basis, RBF) else basis(X_new)
    w, bias = draws.prior["w"].to_numpy()[0], draws.prior["bias"].to_numpy()[0]
    np.testing.assert_allclose(predicted["eta"].to_numpy()[0], w @ Phi.T + bias[:, None], rtol=1e-9)
    assert predicted["row"].to_numpy().tolist() == ["a", "b", "c", "d"]
    z = (predicted["t"] - predicted["eta"]) / draws.prior["sigma"]
    assert stats.kstest(z.to_numpy().ravel(), "norm").pvalue > 1e-3


def test_precisions_drawn_given_weights_have_their_conditional():
    pair = Precision("w", "alpha", shape=2.0, rate=0.5)
    draws = pair.draw_given(np.full(20_000, 1.5), np.random.default_rng(3))
    assert stats.kstest(draws, stats.gamma(2.5, scale=1 / (0.5 + 1.125)).cdf).pvalue > 1e-3


def test_second_form_has_the_present_data():
    model = ard_classification(X, LABELS)
    with model:
        pm.set_data(
            {"X": X[:5] + 1, "t_observed": np.array([1, 0, 1, 0, 0])}, coords={"row": range(5)}
        )
    second = form_to_sample(model, "integrated").model
    assert names(second.free_RVs) == ["bias", "w"]
    np.testing.assert_array_equal(second["X"].get_value(), X[:5] + 1)
    np.testing.assert_array_equal(second["t_observed"].get_value(), [1, 0, 1, 0, 0])
    assert second.coords["row"] == tuple(range(5))
    assert card_of(second).builder == "ard_classification"


def test_second_form_is_withheld_from_a_graph_that_was_extended():
    model = ard_classification(X, LABELS)
    with model:
        pm.Potential("mine", -(model["w"] ** 2).sum())
    assert card_of(model).integrated is None
    assert card_of(model).precisions == ()
    assert card_of(model).task == "binary"


def test_a_card_does_not_keep_its_model_alive():
    model = ard_classification(X, LABELS)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_builders_leave_the_data_alone():
    ours, theirs = X.copy(), X.copy()
    model = ard_classification(ours, LABELS)
    ours[0] = 99
    np.testing.assert_array_equal(model["X"].get_value(), theirs)


def test_columns_are_looked_at_for_the_identity_only():
    doubled = X[:, [0, 1, 0]]
    with pytest.warns(InputWarning, match="duplicate columns"):
        ard_regression(doubled, TARGET)
    ard_regression(doubled, TARGET, basis=RBF(width=1.0))  # a warning would be an error


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"a": 0}, "a must be a finite number > 0"),
        ({"b": -1.0}, "b must be a finite number > 0"),
        ({"alpha": [1, 1, 1]}, "4 weights"),
        ({"alpha": [1, 1, 0, 1]}, "precision must be > 0"),
        ({"alpha": [1, 1, 1, 1], "bias": False}, "3 weights"),
        ({"alpha": [np.inf] * 4}, "switches every weight"),
        ({"basis": "rbf"}, "basis must be None"),
        ({"bias": "yes"}, "bias must be True or False"),
    ],
)
@pytest.mark.parametrize("build", [ard_classification, ard_regression])
def test_bad_settings_are_refused_by_name(build, settings, message):
    t = LABELS if build is ard_classification else TARGET
    with pytest.raises(InputError, match=message):
        build(X, t, **settings)


def test_settings_of_one_builder_are_refused_by_name():
    with pytest.raises(InputError, match="link must be one of 'probit', 'logit'"):
        ard_classification(X, LABELS, link="probitt")
    with pytest.raises(InputError, match="noise must be a finite number > 0"):
        ard_regression(X, TARGET, noise=0)
    with pytest.raises(InputError, match="t has 3 classes"):
        ard_classification(X, np.arange(20) % 3)
    with pytest.raises(InputError, match="t has NaN at row 2"):
        ard_regression(X, np.where(np.arange(20) == 2, np.nan, TARGET))
