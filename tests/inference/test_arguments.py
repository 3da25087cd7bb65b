"""What is no model, no tree, no mapping of trees is refused by name, by every public function."""

import numpy as np
import pytest
import xarray as xr

import ardvark as av

RNG = np.random.default_rng(5)
X = RNG.normal(size=(20, 3))
T = (X[:, 0] + 0.5 * RNG.normal(size=20) > 0).astype(int)


@pytest.fixture(scope="module")
def model():
    return av.models.ard_classification(X, T, alpha=np.ones(4))


@pytest.fixture(scope="module")
def tree(model):
    return av.fit(model, "laplace", draws=10, random_seed=1, progressbar=False)


OF_TREES = {
    "compare": av.compare,
    "compare with a reference": lambda trees: av.compare(trees, "a"),
    "compare_evidence": av.diagnostics.compare_evidence,
    "compare_relevance": av.diagnostics.compare_relevance,
    "discoveries": lambda trees: av.diagnostics.discoveries(trees, ["x0"]),
    "evidence": av.evidence,
    "loo_table": av.loo_table,
    "plot_loo": av.plot.loo,
    "plot_relevance": av.plot.relevance,
    "rank_agreement": av.diagnostics.rank_agreement,
    "report": lambda trees: av.report(trees, "report.html"),
}
OF_TREE = {
    "bridge": lambda tree, model: av.diagnostics.bridge(model, tree),
    "chosen_subsets": lambda tree, model: av.diagnostics.chosen_subsets(tree),
    "credible_sets": lambda tree, model: av.diagnostics.credible_sets(tree),
    "group_relevance": lambda tree, model: av.diagnostics.group_relevance(tree, [["x0", "x1"]]),
    "inclusion": lambda tree, model: av.inclusion(tree),
    "joint_inclusion": lambda tree, model: av.diagnostics.joint_inclusion(tree),
    "path_errors": lambda tree, model: av.diagnostics.path_errors(model, tree, X, T),
    "plot_inclusion": lambda tree, model: av.plot.inclusion(tree),
    "plot_optima": lambda tree, model: av.plot.optima(tree),
    "plot_path": lambda tree, model: av.plot.path(tree),
    "predict": lambda tree, model: av.predict(model, tree, X),
    "project": lambda tree, model: av.diagnostics.project(tree, model),
    "relevance": lambda tree, model: av.relevance(tree),
    "replacements": lambda tree, model: av.diagnostics.replacements(tree),
    "sbc_summary": lambda tree, model: av.diagnostics.sbc_summary(tree),
    "selected": lambda tree, model: av.diagnostics.selected(tree),
    "show": lambda tree, model: av.show(tree),
    "subset_diagnostics": lambda tree, model: av.diagnostics.subset_diagnostics(tree),
    "subset_sizes": lambda tree, model: av.diagnostics.subset_sizes(tree),
    "subsets": lambda tree, model: av.subsets(tree),
    "taddaa": lambda tree, model: av.diagnostics.taddaa(model, tree),
}
OF_MODEL = {
    "evidence": lambda model, tree: av.evidence({"a": tree}, model),
    "fit": lambda model, tree: av.fit(model),
    "path_errors": lambda model, tree: av.diagnostics.path_errors(model, tree, X, T),
    "predict": lambda model, tree: av.predict(model, tree, X),
    "project": lambda model, tree: av.diagnostics.project(tree, model),
    "read_model": lambda model, tree: av.read_model(model),
    "report": lambda model, tree: av.report({"a": tree, "b": tree}, "report.html", model=model),
    "scores": lambda model, tree: av.diagnostics.scores({"a": tree}, model),
    "search_gamma": lambda model, tree: av.search_gamma(model),
    "taddaa": lambda model, tree: av.diagnostics.taddaa(model, tree),
}


@pytest.mark.parametrize("function", OF_TREES.values(), ids=OF_TREES.keys())
def test_what_is_no_mapping_of_trees_is_refused(function, tree):
    """These were AttributeError, TypeError, KeyError, StopIteration."""
    empty = xr.DataTree(children={"fit": xr.DataTree()})
    wrong = [None, 5, "a", [tree, tree], np.ones(3), tree, {}, {"a": 5}, {"a": empty}, {1: tree}]
    for trees in wrong:
        with pytest.raises(av.errors.InputError, match="trees"):
            function(trees)


@pytest.mark.parametrize("function", OF_TREE.values(), ids=OF_TREE.keys())
def test_what_is_no_tree_is_refused(function, tree, model):
    """These were AttributeError, TypeError, IndexError."""
    for wrong in (None, 5, "a", [tree], np.ones(3), tree["posterior"].to_dataset(), model):
        with pytest.raises(av.errors.InputError, match="tree"):
            function(wrong, model)
    with pytest.raises(av.errors.InputError, match=r"tree|selection_path"):
        function(xr.DataTree(), model)


@pytest.mark.parametrize("function", OF_MODEL.values(), ids=OF_MODEL.keys())
def test_what_is_no_model_is_refused(function, tree):
    """These were "cannot create weak reference"; a report was made of parts that failed."""
    for wrong in (5, "a", tree):
        with pytest.raises(av.errors.InputError, match=r"model must be a pm\.Model"):
            function(wrong, tree)


def test_scores_refuses_what_is_no_trees_and_no_test_rows(tree, model):
    with pytest.raises(av.errors.InputError, match="trees must be"):
        av.diagnostics.scores([tree], model)
    for test in (5, (X,), "rows"):
        with pytest.raises(av.errors.InputError, match="test must be"):
            av.diagnostics.scores({"a": tree}, model, test)


def test_a_time_that_is_no_number_is_refused(tree):
    """It was a ValueError of float() in the middle of a table."""
    odd = tree.copy()
    odd.attrs = tree.attrs | {"seconds": "soon"}
    for function in (av.compare, av.show, lambda trees: av.report(trees, "report.html")):
        with pytest.raises(
            av.errors.InputError, match=r"trees\['odd'\] has the attribute seconds='soon'"
        ):
            function({"good": tree, "odd": odd})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "data must be a list of mappings .* got int"),
        ("ab", "data must be a list of mappings .* got str"),
        ({"X": X}, "data must be a list of mappings .* got one"),
        ([{"X": X}, 5], r"data\[1\] must be a mapping name → array, got int"),
        ([None], r"data\[0\] must be a mapping"),
        (iter([5]), r"data\[0\] must be a mapping"),
    ],
)
def test_data_that_are_no_mappings_are_refused(model, data, message):
    """`fit(data=5)` and `data=[5]` were TypeErrors, the second after the fits before it."""
    with pytest.raises(av.errors.InputError, match=message):
        av.fit(model, "laplace", draws=10, random_seed=1, data=data)


@pytest.mark.parametrize("weights", [(), [], 5, (5,)])
def test_weights_that_name_nothing_are_refused(model, tree, weights):
    """`weights=()` was "zip() argument 2 is longer than argument 1"."""
    for call in (
        lambda: av.fit(model, av.Laplace(weights=weights), draws=10),
        lambda: av.read_model(model, weights=weights),
        lambda: av.predict(model, tree, X, weights=weights),
    ):
        with pytest.raises(av.errors.InputError, match="weights must be the name"):
            call()


def test_other_arguments_of_fit_and_predict_are_refused_by_name(model, tree):
    for call, message in (
        (lambda: av.fit(model, av.Laplace(predictor=5)), "predictor must be the name"),
        (lambda: av.fit(model, draws="many"), "draws must be an integer"),
        (lambda: av.fit(model, draws=10**12), "draws=1000000000000 in each of chains=4"),
        (lambda: av.fit(model, progressbar="no"), "progressbar must be True or False"),
        (lambda: av.predict(model, tree, X, predictor=5), "predictor must be the name"),
        (lambda: av.predict(model, tree, X, bayes_point="no"), "bayes_point must be True"),
        (lambda: av.compare({"a": tree}, 5), "reference must be a name"),
        (lambda: av.loo_table({"a": tree}, refit=5), "refit must be a list of names"),
        (lambda: av.diagnostics.bayes_factor(tree, None), "first must be a table of av.evidence"),
    ):
        with pytest.raises(av.errors.InputError, match=message):
            call()


def test_more_kernels_than_memory_holds_are_refused():
    """`n_kernels=10**9` was a MemoryError, or the end of the process."""
    with pytest.raises(av.errors.InputError, match="n_kernels=1000000000 in each of 2 classes"):
        av.models.rbf_mixture(X, T, n_kernels=10**9)
