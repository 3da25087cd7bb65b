"""More than two classes through the doors: the graph, fit, predict, and what is refused."""

import warnings
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from cases import FOLDER, SEVERAL_CLASSES

import ardvark as av
from ardvark.diagnostics.compare.verdict import verdict
from ardvark.errors import InputError, UnreadableModel, UnsupportedPair
from ardvark.inference.ard.sequential_ard import sequential_ard
from ardvark.inference.laplace import Laplace
from ardvark.inference.samplers import nuts
from ardvark.inference.samplers.convergence import SamplerDraws
from ardvark.inference.sites.likelihoods import LogitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.softmax.laplace import fit_multinomial
from ardvark.inference.softmax.reading import read_softmax
from ardvark.inference.softmax.run import _conditional
from ardvark.models.card import card_of
from ardvark.models.likelihoods import softmax

LABELS = np.array(["ash", "birch", "cedar"])
KERNEL = av.RBF(width=1.5)


def plane(rows=45, seed=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    score = np.column_stack([2 * X[:, 0], 2 * X[:, 1], -X.sum(axis=1)])
    return X, LABELS[(score + 0.7 * rng.normal(size=score.shape)).argmax(axis=1)]


X, T = plane()
X_NEW, T_NEW = plane(200, 6)
ONES = {"alpha": np.ones((3, 45)), "alpha_bias": np.ones(3)}


@pytest.fixture(scope="module")
def model():
    return av.models.rvm_classification(X, T, kernel=KERNEL)


def fitted(model, hyper, **options):
    return av.fit(model, av.Laplace(hyper=hyper), draws=50, random_seed=1, **options)


# --- the graph --------------------------------------------------------------------------------


def test_names_and_dims(model):
    card = card_of(model)
    assert (card.task, card.family, card.classes.tolist()) == (
        "multiclass",
        "softmax",
        LABELS.tolist(),
    )
    dims = model.named_vars_to_dims
    assert dims["w"] == dims["alpha"] == ("class", "basis")
    assert dims["bias"] == dims["alpha_bias"] == ("class",)
    assert dims["eta"] == ("row", "class") and dims["t"] == ("row",)
    assert model.coords["class"] == tuple(LABELS)


def test_two_classes_stay_two():
    two = av.models.rvm_classification(X, T == "ash", kernel=KERNEL)
    assert card_of(two).task == "binary" and two["w"].ndim == 1


def test_a_likelihood_that_keeps_its_tail():
    eta = np.array([[900.0, 0.0, -900.0], [0.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"), pm.Model():
        t = softmax("t", eta, shape=3)
        found = pm.logp(t, np.array([2, 0, 5])).eval(mode="FAST_COMPILE")
    assert found[0] == pytest.approx(-1800.0, rel=1e-12)
    assert found[1] == pytest.approx(-np.log(1 + np.e + np.e**2), rel=1e-12)
    assert found[2] == -np.inf  # no such class


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="link='probit' is for two classes, t has 3"):
        av.models.rvm_classification(X, T, link="probit")
    with pytest.raises(InputError, match="alpha has 2 lines, t has 3 classes"):
        av.models.rvm_classification(X, T, alpha=np.ones((2, 46)))
    with pytest.raises(InputError, match=r"alpha\[birch\]"):
        bad = np.ones((3, 46))
        bad[1, 4] = -1.0
        av.models.rvm_classification(X, T, alpha=bad)
    with pytest.raises(InputError, match="switches every weight"):
        av.models.rvm_classification(X, T, alpha=np.inf)
    with pytest.raises(InputError, match="more than two: rvm_classification"):
        av.models.ard_classification(X, T)


# --- fit at given precisions ------------------------------------------------------------------


def test_laplace_at_given_precisions(model):
    tree = fitted(model, av.Fixed(ONES))
    reading = read_softmax(model)
    by_hand = fit_multinomial(reading.at(ONES), space="weights")
    assert float(tree["fit"]["log_evidence"]) == pytest.approx(by_hand.log_evidence, abs=1e-8)
    np.testing.assert_allclose(tree["fit"]["mean_vector"], by_hand.mean.ravel(), atol=1e-8)
    np.testing.assert_allclose(tree["fit"]["covariance_matrix"], by_hand.covariance, atol=1e-8)
    assert tree["fit"]["rows"].values[:2].tolist() == ["bias[ash]", "w[ash, row0]"]
    assert tree["posterior"]["w"].dims == ("chain", "draw", "class", "basis")
    assert tree.attrs["coupling"] == "softmax" and tree.attrs["hyper"] == "fixed"
    again = fitted(model, av.Fixed(ONES))
    np.testing.assert_array_equal(tree["posterior"]["w"], again["posterior"]["w"])


def test_log_posterior_is_the_graphs_own(model):
    """The stored joint density against the graph's logp, at two draws."""
    tree = fitted(model, av.Fixed(ONES))
    fixed = pm.do(model, ONES)
    with pytensor.config.change_flags(cxx=""):
        logp = fixed.compile_logp(mode="FAST_COMPILE")
    for draw in (0, 7):
        point = {n: tree["posterior"][n].values[1, draw] for n in ("bias", "w")}
        stored = float(tree["sample_stats"]["lp"][1, draw])
        assert float(logp(point)) == pytest.approx(stored, rel=1e-10)


def test_probabilities_are_those_of_the_draws(model):
    tree = av.fit(model, av.Laplace(hyper=av.Fixed(ONES)), draws=500, random_seed=1)
    found = av.predict(model, tree, X_NEW)
    assert found.dims == ("row", "class") and found["class"].values.tolist() == LABELS.tolist()
    assert np.abs(found.sum("class") - 1).max() < 1e-12
    sampler = tree.copy()
    del sampler["fit"]
    averaged = av.predict(model, sampler, X_NEW)
    assert np.abs(averaged.sum("class") - 1).max() < 1e-12
    assert np.abs(found - averaged).max() < 5 * 0.5 / np.sqrt(2000)  # sd of a chance is < 1/2
    assert (found.idxmax("class") == T_NEW).mean() > 0.75


def test_precisions_as_data_and_weights_off():
    lines = np.ones((3, 46))
    lines[0, 1:20] = np.inf
    lines[2, 0] = np.inf
    model = av.models.rvm_classification(X, T, kernel=KERNEL, alpha=lines)
    tree = fitted(model, None)
    off = np.isinf(lines)
    assert tree["fit"]["active"].values.reshape(3, 46)[off].sum() == 0
    assert np.all(tree["posterior"]["w"].values[..., 0, :19] == 0)
    assert np.all(tree["posterior"]["bias"].values[..., 2] == 0)
    assert tree["posterior"]["w_active"].sizes["active"] == 3 * 45 - 19
    reading = read_softmax(model)
    by_hand = fit_multinomial(reading.at({}))
    assert float(tree["fit"]["log_evidence"]) == pytest.approx(by_hand.log_evidence, abs=1e-8)
    assert np.abs(av.predict(model, tree, X_NEW).sum("class") - 1).max() < 1e-12


def test_new_rows_and_new_targets_on_one_graph(model):
    codes = np.searchsorted(LABELS, T)
    [same, other] = av.fit(
        model,
        av.Laplace(hyper=av.Fixed(ONES)),
        data=[{"t_observed": codes}, {"t_observed": codes[::-1].copy()}],
        draws=4,
        random_seed=1,
    )
    expected = float(fitted(model, av.Fixed(ONES))["fit"]["log_evidence"])
    assert float(same["fit"]["log_evidence"]) == pytest.approx(expected, abs=1e-10)
    assert float(other["fit"]["log_evidence"]) < expected
    with pytest.raises(InputError, match="codes 0 to 2"):
        av.fit(model, "laplace", data=[{"t_observed": codes + 1}])


# --- one against the rest ---------------------------------------------------------------------


def test_one_against_the_rest_is_three_two_class_fits(model):
    tree = fitted(model, av.Evidence())
    assert tree.attrs["coupling"] == "one_against_rest" and tree.attrs["converged"]
    assert tree.attrs["caption"].startswith("one against the rest")
    assert "log_evidence" not in tree["fit"] and "sample_stats" not in tree.children
    Phi = read_softmax(model).basis({})
    odds = []
    for k, label in enumerate(LABELS):
        two_class = SiteModel(
            mean=np.zeros(46),
            projection=Phi,
            offset=np.zeros(45),
            sites=LogitSites(np.where(label == T, 1.0, -1.0)),
            precision=np.ones(46),
        )
        path = sequential_ard(two_class, Laplace().approximate, max_steps=5000)
        np.testing.assert_allclose(tree["theta"]["alpha"][k], path.precision[1:], rtol=1e-6)
        evidence = float(tree["fit"]["log_evidence_against_rest"][k])
        assert evidence == pytest.approx(path.fit.log_evidence, abs=1e-8)
        two = av.models.rvm_classification(X, label == T, kernel=KERNEL)
        theta = {"alpha": path.precision[1:], "alpha_bias": path.precision[0]}
        alone = av.fit(two, av.Laplace(hyper=av.Fixed(theta)), draws=4, random_seed=1)
        odds.append(av.predict(two, alone, X_NEW).values[:, 1])
    expected = np.column_stack(odds)
    expected /= expected.sum(axis=1, keepdims=True)
    found = av.predict(model, tree, X_NEW)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert np.abs(found.sum("class") - 1).max() < 1e-12
    active = tree["fit"]["active_basis"]
    assert active.dims == ("class", "basis") and 0 < int(active.sum()) < 30
    relevance = av.relevance(tree)
    kept = relevance.index[relevance["inclusion"] == 1].tolist()
    named = [f"{c}, {b}" for c in LABELS for b in active["basis"].values if active.loc[c, b]]
    assert kept == named  # "ash, row3": the relevance vectors of each class
    estimator = av.sklearn.RVC(KERNEL).fit(X, T)
    np.testing.assert_allclose(found, estimator.predict_proba(X_NEW), atol=1e-8)


def test_machines_are_not_held_against_the_softmax(model):
    """At the very same precisions the two are posteriors of different likelihoods."""
    machines = fitted(model, av.Evidence())
    joint = fitted(model, av.Fixed(machines))
    assert joint.attrs["coupling"] == "softmax"
    table = av.compare({"machines": machines, "joint": joint}, reference="joint", detail=True)
    assert table.loc["machines", "compares"] == "different likelihoods"
    assert not table.loc["machines", "like_with_like"]
    level, sentence, _ = verdict(table.loc["machines"])
    assert level != "good" and "another likelihood" in sentence


def test_draws_and_log_likelihood_of_machines(model):
    tree = fitted(model, av.Evidence())
    w, bias = tree["posterior"]["w"].values[2, 3], tree["posterior"]["bias"].values[2, 3]
    eta = bias + read_softmax(model).basis({})[:, 1:] @ w.T
    chances = 1 / (1 + np.exp(-eta))
    chances /= chances.sum(axis=1, keepdims=True)
    stored = tree["log_likelihood"]["t"].values[2, 3]
    np.testing.assert_allclose(
        stored, np.log(chances[np.arange(45), np.searchsorted(LABELS, T)]), atol=1e-10
    )


def test_a_common_width_has_the_largest_sum_of_evidences():
    model = av.models.rvm_classification(X, T)
    tree = fitted(model, av.Evidence(tolerance=1e-4))
    assert tree.attrs["converged"] and tree["theta"]["width"].ndim == 0
    best, width = (
        float(tree["fit"]["log_evidence_against_rest"].sum()),
        float(tree["theta"]["width"]),
    )
    at = {}
    for factor in (0.97, 1.03):
        moved = av.models.rvm_classification(X, T, kernel=av.RBF(width=factor * width))
        theta = {name: tree["theta"][name].values for name in ("alpha", "alpha_bias")}
        Phi, total = read_softmax(moved).basis({}), 0.0
        for k, label in enumerate(LABELS):
            precision = np.append(theta["alpha_bias"][k], theta["alpha"][k])
            two_class = SiteModel(
                mean=np.zeros(46),
                projection=Phi,
                offset=np.zeros(45),
                sites=LogitSites(np.where(label == T, 1.0, -1.0)),
                precision=precision,
            )
            total += Laplace().approximate(two_class).log_evidence
        at[factor] = total
    assert max(at.values()) < best + 1e-4


# --- the evidence of the softmax itself -------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["mackay", "em"])
def test_fixed_points_of_the_joint_evidence(model, algorithm):
    start = fitted(model, av.Fixed(ONES))
    tree = fitted(model, av.Evidence(algorithm=algorithm, tolerance=1e-2, max_steps=300))
    assert tree.attrs["coupling"] == "softmax" and tree.attrs["hyper"] == "evidence"
    assert float(tree["fit"]["log_evidence"]) > float(start["fit"]["log_evidence"]) + 1
    theta = {name: tree["theta"][name].values for name in ("alpha", "alpha_bias")}
    fixed = fitted(model, av.Fixed(theta))
    assert float(fixed["fit"]["log_evidence"]) == pytest.approx(
        float(tree["fit"]["log_evidence"]), abs=1e-8
    )


def test_one_alpha_for_all_and_a_width_by_gradient():
    model = av.models.rvm_classification(X, T, prior="shared", bias=False)
    tree = fitted(model, None)
    assert tree.attrs["converged"] and tree.attrs["coupling"] == "softmax"
    best = float(tree["fit"]["log_evidence"])
    theta = {name: tree["theta"][name].values for name in ("alpha", "width")}
    for name, factor in [("alpha", 1.05), ("alpha", 0.95), ("width", 1.05), ("width", 0.95)]:
        moved = theta | {name: theta[name] * factor}
        assert float(fitted(model, av.Fixed(moved))["fit"]["log_evidence"]) < best


def test_with_the_hyperprior_the_graphs_own_density_is_maximised():
    """At the end no scaling of one hyperparameter raises evidence + log hyperprior of the graph."""
    model = av.models.rvm_classification(X[:15], T[:15], prior="shared")
    tree = fitted(model, av.Evidence(with_prior=True, tolerance=1e-8))
    assert tree.attrs["converged"]
    names = ("width", "alpha", "alpha_bias")
    theta = {name: tree["theta"][name].values for name in names}
    with pytensor.config.change_flags(cxx=""):
        prior = model.compile_logp(
            vars=[model[n] for n in names], jacobian=False, mode="FAST_COMPILE"
        )

    def target(values):
        logs = {f"{name}_log__": np.log(value) for name, value in values.items()}
        logs |= {"bias": np.zeros(3), "w": np.zeros((3, 15))}
        point = {v.name: logs[v.name] for v in model.value_vars}
        evidence = float(fitted(model, av.Fixed(values))["fit"]["log_evidence"])
        return evidence + float(prior(point))

    for name in names:
        slope = target(theta | {name: theta[name] * 1.01}) - target(
            theta | {name: theta[name] * 0.99}
        )
        assert abs(slope) / 0.02 < 1e-2  # 2nd-order differences of a slope that is zero


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ep", "exact"])
def test_methods_of_one_predictor_are_refused_with_the_reason(model, method):
    with pytest.raises(UnsupportedPair, match=f"{method} does not fit more than two classes.*Use"):
        av.fit(model, method)


def test_settings_that_mean_nothing_here_are_refused(model):
    with pytest.raises(UnsupportedPair, match="not built for more than two classes"):
        fitted(model, av.Predictive())
    with pytest.raises(UnsupportedPair, match="not built for more than two classes"):
        fitted(model, av.Evidence(start="all"))
    with pytest.raises(UnsupportedPair, match="nothing to optimise"):
        fitted(av.models.rvm_classification(X, T, kernel=KERNEL, alpha=1.0), av.Evidence())
    with pytest.raises(UnsupportedPair, match="no Gaussian block"):
        fitted(av.models.rvm_classification(X, T, prior="student"), None)
    with pytest.raises(UnsupportedPair, match="bayes_point"):
        av.predict(model, fitted(model, av.Fixed(ONES)), X_NEW, bayes_point=True)
    with pytest.raises(InputError, match="another model"):
        small = av.models.rvm_classification(X[:20], T[:20], kernel=KERNEL)
        av.predict(small, fitted(model, av.Fixed(ONES)), X_NEW)


def test_a_graph_with_more_terms_is_not_read():
    model = av.models.rvm_classification(X, T, kernel=KERNEL)
    with model:
        pm.Potential("more", -(model["w"].sum() ** 2))
    with pytest.raises(UnreadableModel, match="'more'"):
        av.fit(model, "laplace")


def test_no_convergence_is_told(model):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tree = fitted(model, av.Evidence(max_steps=1))
    assert not tree.attrs["converged"]
    assert any(issubclass(w.category, av.errors.ConvergenceWarning) for w in caught)


# --- samplers ---------------------------------------------------------------------------------

# Laplace on the stored problem: mean in posterior sds, sd relative; a figure of the method.
STATED_BIAS = (0.07, 0.012)


def test_laplace_against_a_stored_nuts_posterior():
    model = SEVERAL_CLASSES["softmax"].build()
    with np.load(Path(FOLDER) / "softmax.npz") as stored:
        truth = dict(stored)
    names = [f"bias[{c}]" for c in range(3)] + [
        f"w[{c}, row{j}]" for c in range(3) for j in range(18)
    ]
    fit = av.fit(model, "laplace", draws=4, random_seed=0)["fit"]
    mean = fit["mean_vector"].sel(rows=names).values
    sd = np.sqrt(np.diag(fit["covariance_matrix"].sel(rows=names, columns=names)))
    errors = np.abs(mean - truth["mean"]) / truth["sd"]
    most_sd_error = (truth["sd_mcse"] / truth["sd"]).max()
    assert errors.max() < STATED_BIAS[0] + 4 * (truth["mean_mcse"] / truth["sd"]).max()
    assert np.abs(sd / truth["sd"] - 1).max() < STATED_BIAS[1] + 4 * most_sd_error
    # The control: the classes exchanged must be found wrong.
    wrong = np.abs(mean - truth["mean"][::-1]) / truth["sd"]
    assert wrong.max() > 0.5


def test_what_the_sampler_is_given_is_the_posterior(model):
    """Log density of the conditional model less that of the graph: the same at any two points."""
    lines = np.ones((3, 46))
    lines[1, 3:20], lines[0, 0] = np.inf, np.inf
    theta = {"alpha": 0.5 * lines[:, 1:], "alpha_bias": lines[:, 0]}
    at_theta = read_softmax(model).at(theta)
    with pytensor.config.change_flags(cxx=""):
        logp = _conditional(at_theta).compile_logp(mode="FAST_COMPILE")
    differences = []
    for seed in (1, 2):
        u = np.random.default_rng(seed).normal(size=int(at_theta.on.sum()))
        w = np.zeros(at_theta.on.shape)
        w[at_theta.on] = u / np.sqrt(at_theta.precision[at_theta.on])
        joint = at_theta.log_likelihood(at_theta.predictor(w)).sum() + at_theta.log_prior(w)
        differences.append(float(logp({"u": u})) - joint)
    assert differences[0] == pytest.approx(differences[1], abs=1e-9)
    with pytest.raises(UnsupportedPair, match="switched off"):
        everything_off = {"alpha": np.full((3, 45), np.inf), "alpha_bias": np.full(3, np.inf)}
        _conditional(read_softmax(model).at(everything_off))


def test_a_sampled_tree_and_its_predictions(monkeypatch):
    """The route of samplers around prior draws in place of a sampler: names, groups, predict."""
    model = av.models.rvm_classification(X, T)  # a free width: each draw has its own kernel
    with pytensor.config.change_flags(cxx=""), model:
        prior = pm.sample_prior_predictive(
            20, random_seed=3, compile_kwargs={"mode": "FAST_COMPILE"}
        )
    drawn = prior["prior"].to_dataset().drop_vars("eta")
    sampled = SamplerDraws(drawn, xr.Dataset(), True, [], {})
    monkeypatch.setattr(nuts, "sample_nuts", lambda *_, **__: sampled)
    tree = av.fit(model, av.NUTS(), draws=20, chains=1, random_seed=1, progressbar=False)
    assert (tree.attrs["hyper"], tree.attrs["coupling"]) == ("posterior", "softmax")
    assert tree.attrs["weights"] == '["bias", "w"]'
    found = av.predict(model, tree, X_NEW[:5])
    expected = np.zeros((5, 3))
    for i in range(20):
        one = drawn.isel(chain=0, draw=i)
        distance = np.square(X_NEW[:5, None] - X[None]).sum(axis=2)
        Phi = np.exp(-distance / (2 * float(one["width"]) ** 2))
        e = np.exp(one["bias"].values + Phi @ one["w"].values.T)
        expected += e / e.sum(axis=1, keepdims=True) / 20
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert av.relevance(tree).index[0] == "ash, row0"
    with pytest.raises(UnsupportedPair, match="takes the hyperparameters into the posterior"):
        av.fit(model, av.NUTS(hyper=av.Evidence()))


@pytest.mark.validate
def test_nuts_at_given_precisions_and_its_predictions():
    """Live NUTS on the conditional model against the stored posterior of the graph itself."""
    model = SEVERAL_CLASSES["softmax"].build()
    with np.load(Path(FOLDER) / "softmax.npz") as stored:
        truth = dict(stored)
    tree = av.fit(model, av.NUTS(hyper=av.Fixed()), draws=1000, random_seed=2, progressbar=False)
    posterior = tree["posterior"]
    draws = np.concatenate(
        [posterior["bias"].values, posterior["w"].values.reshape(4, 1000, -1)], axis=2
    ).reshape(4000, -1)
    error = np.abs(draws.mean(axis=0) - truth["mean"]) / (truth["sd"] / np.sqrt(1000))
    assert error.max() < 4.5  # at least 1000 effective draws; 57 weights
    assert tree.attrs["coupling"] == "softmax" and tree.attrs["hyper"] == "fixed"
    rows = np.asarray(model["X"].get_value())
    by_draws = av.predict(model, tree, rows)
    by_laplace = av.predict(model, av.fit(model, "laplace", draws=4, random_seed=0), rows)
    assert np.abs(by_draws.sum("class") - 1).max() < 1e-12
    assert np.abs(by_draws - by_laplace).max() < 0.08
