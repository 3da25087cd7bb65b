"""Judges at the same hyperparameters: the cheapest exact one, NUTS only where asked for."""

from functools import partial

import numpy as np
import pytest
import quick
from synthetic_trees import gaussian_tree, replaced

import ardvark as av
from ardvark.commands.tasks import Output, Task, at_same_hyperparameters
from ardvark.diagnostics.compare.agreement import agreement
from ardvark.diagnostics.compare.compare import compare
from ardvark.diagnostics.compare.exact_methods import by_cost, exact_methods
from ardvark.diagnostics.compare.reference import choose_reference, is_reference
from ardvark.diagnostics.compare.verdict import verdict

RNG = np.random.default_rng(11)
X = RNG.normal(size=(20, 2))
T = X[:, 0] + 0.4 * RNG.normal(size=20)
LABEL = (T > 0).astype(int)
fit = partial(quick.fit, draws=200)


@pytest.mark.parametrize(
    ("build", "judges"),
    [
        (lambda: av.models.ard_regression(X, T), ["exact", "nuts"]),
        (
            lambda: av.models.ard_classification(X, LABEL),
            ["elliptical_slice", "exact", "nuts"],
        ),
        (
            lambda: av.models.ard_classification(X, LABEL, link="logit"),
            ["elliptical_slice", "nuts"],
        ),
        (
            lambda: av.models.trigonometric_svm(
                X, LABEL, kernel=av.ARDGaussian(1.0, [0.5, 0.5], 1.0)
            ),
            ["elliptical_slice"],
        ),
    ],
)
def test_the_cheapest_exact_method_comes_first(build, judges):
    model = build()
    found = exact_methods(model, fit(model, "laplace"))
    assert [name for name, _ in found] == judges
    assert all(settings.hyper.values is not None for _, settings in found)


def test_a_command_judges_without_nuts_where_it_can():
    model = av.models.ard_regression(X, T)
    trees = {"laplace": fit(model, "laplace")}
    quiet = Output(quiet=True)
    found = at_same_hyperparameters(model, trees, Task(draws=200), quiet)
    assert list(found) == ["exact_fixed"]
    table = compare(trees | found, detail=True)
    assert table.at["laplace", "error_against"] == "exact_fixed"
    assert table.at["laplace", "error_mean"] < 0.15  # a Gaussian posterior: Laplace is exact
    logit = av.models.ard_classification(X, LABEL, link="logit")
    trees = {"laplace": fit(logit, "laplace")}
    found = at_same_hyperparameters(logit, trees, Task(draws=200), quiet)
    assert list(found) == ["slices_fixed"]
    assert found["slices_fixed"].attrs["converged"]


@pytest.mark.parametrize(
    ("rows", "weights", "cheapest"),
    [
        # seconds of 8000 draws as measured, and the effective size of the worst weight by slices
        (20, 100, "exact"),  # 0.1; slices 2.1 for 160
        (50, 50, "exact"),  # 1.2; slices 0.8 for 110
        (100, 200, "exact"),  # 8; slices 1.1 for 30
        (200, 1000, "exact"),  # 10; slices 9 for 13
        (100, 10, "elliptical_slice"),  # 0.15 for 2400; exact 2.9
        (569, 10, "elliptical_slice"),  # 0.3 for 3500; exact 186
        (569, 30, "elliptical_slice"),  # 0.5 for 2300; exact refuses
        (2000, 20, "elliptical_slice"),  # 1.0 for 3100
    ],
)
def test_the_cheapest_of_a_probit_is_that_of_a_stopwatch(rows, weights, cheapest):
    """wdbc (569 x 30) had `exact` as its judge, 20 s where slices take one."""
    methods = ["nuts", "exact", "elliptical_slice"]
    assert by_cost(methods, rows, weights, 8000)[0] == cheapest
    assert by_cost(methods, rows, weights, 8000) == by_cost(methods[::-1], rows, weights, 8000)


def test_a_judge_that_fails_its_own_checks_gives_way_to_the_next(monkeypatch):
    model = av.models.ard_classification(X, LABEL)
    laplace, asked = fit(model, "laplace"), []

    def answer(model, settings, **_):
        asked.append(type(settings).__name__)
        rng = np.random.default_rng(1)
        attributes = {"converged": asked[-1] != "EllipticalSlice"}
        return gaussian_tree(rng, np.zeros(3), np.ones(3), method="nuts", attrs=attributes)

    monkeypatch.setattr(av, "fit", answer, raising=False)
    found = at_same_hyperparameters(model, {"laplace": laplace}, Task(), Output(quiet=True))
    assert asked == ["EllipticalSlice", "Exact"] and list(found) == ["exact_fixed"]


def test_exact_draws_is_reference_and_approximations_may_not():
    rng = np.random.default_rng(1)
    common = {"mean": np.zeros(3), "sd": np.ones(3), "draws": 100}
    trees = {
        "laplace": gaussian_tree(rng, **common),
        "exact": gaussian_tree(rng, **common, method="exact"),
        "nuts": gaussian_tree(rng, **common, method="nuts"),
        "all": gaussian_tree(rng, **common, method="exact", hyper="posterior"),
    }
    assert [is_reference(tree) for tree in trees.values()] == [False, True, True, True]
    assert choose_reference(trees) == "all"
    assert choose_reference({k: trees[k] for k in ("laplace", "exact", "nuts")}) == "nuts"
    assert choose_reference({"laplace": trees["laplace"]}) is None


def test_a_price_says_nothing_of_the_weights_of_importance():
    rng = np.random.default_rng(2)
    mean, sd = np.zeros(3), np.ones(3)
    narrow = gaussian_tree(rng, mean, sd, hyper="evidence", target_sd=3 * sd)
    full = gaussian_tree(rng, mean, sd, method="nuts", hyper="posterior")
    row = compare({"laplace": narrow, "nuts": full}, "nuts", detail=True).loc["laplace"]
    assert row["khat"] > 0.7
    level, sentence, _ = verdict(row)
    assert level == "good" and "k-hat" not in sentence


def mixture(share, seed):
    """A mixture's tree: indicators, and kernels whose order means nothing."""
    rng = np.random.default_rng(seed)
    tree = gaussian_tree(rng, np.zeros(3), np.ones(3), method="nuts", bias=False, draws=500)
    included = (rng.random((4, 500, 3)) < share).astype(int)
    tree = replaced(
        tree,
        "posterior",
        included=(("chain", "draw", "feature"), included),
        kernel_probability=(("chain", "draw", "kernel"), rng.random((4, 500, 2)) + seed),
    )
    tree.attrs["model"] = "rbf_mixture"
    return tree


def test_mixtures_are_compared_by_their_inputs_alone():
    one, two = mixture([0.3, 0.9995, 0.0], 3), mixture([0.3, 1.0, 0.0], 4)
    table = agreement(one, two)
    assert set(table.index) <= {f"included[x{j}]" for j in range(3)}
    assert verdict(compare({"a": one, "b": two}, "b", detail=True).loc["a"])[0] == "good"
    other = verdict(
        compare({"a": mixture([0.8, 1.0, 0.0], 5), "b": two}, "b", detail=True).loc["a"]
    )
    assert other[0] == "bad" and "included[x0]" in other[1]
