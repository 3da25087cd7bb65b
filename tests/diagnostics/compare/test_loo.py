"""Leave-one-out by cavities, PSIS, corrected PSIS and refits: the same where they must be."""

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from quick import fit
from scipy.stats import norm

import ardvark as av
from ardvark.diagnostics.compare.loo import _again, loo_by_row, loo_table, refit_rows, summary_of
from ardvark.diagnostics.compare.psis import LooRows
from ardvark.errors import InputError, UnsupportedPair

mpl.use("Agg")
RNG = np.random.default_rng(77)
X = RNG.normal(size=(25, 2))
T = X @ [1.0, -0.5] + 0.5 * RNG.normal(size=25)
LABEL = (X[:, 0] + 0.8 * RNG.normal(size=25) > 0).astype(int)


@pytest.fixture(scope="module")
def probit():
    model = av.models.ard_classification(X, LABEL, alpha=np.ones(3))
    return model, {name: fit(model, name) for name in ("laplace", "ep", "elliptical_slice")}


def exact_gaussian_loo():
    """t ~ N(0, K + s²I): each row given the rest, in closed form (RW06 5.12)."""
    Phi = np.column_stack([np.ones(25), X])
    inverse = np.linalg.inv(Phi @ Phi.T + 0.25 * np.eye(25))
    variance = 1 / np.diag(inverse)
    return norm.logpdf(T, T - inverse @ T * variance, np.sqrt(variance))


def test_every_road_of_a_gaussian_model_has_the_closed_form():
    model = av.models.ard_regression(X, T, alpha=np.ones(3), noise=0.5)
    trees = {name: fit(model, name) for name in ("laplace", "ep", "exact")}
    truth = exact_gaussian_loo()
    found = loo_by_row(trees, model, refit=["laplace"])
    assert {e for _, e in found} >= {"psis", "cavity", "refit"}
    for (_, estimator), rows in found.items():
        # 4000 draws: a row's predictive density is right to some hundredths of a nat
        limit = 1e-6 if estimator == "cavity" else 0.1
        assert np.abs(rows.elpd - truth).max() < limit, estimator
    table = loo_table(trees, reference="exact")
    assert table.loc[("exact", "psis"), "reference"]
    assert abs(table["difference"]).max() < 0.3 and (table["worst_row"] < 0.1).all()


def test_probit_cavities_psis_and_refits_agree(probit):
    model, trees = probit
    table = av.loo_table(trees, model, refit=["ep"])
    refit = table.loc[("ep", "refit")]
    for key in (("ep", "cavity"), ("ep", "psis"), ("elliptical_slice", "psis")):
        # cavities of a probit are off by a hundredth of a nat a row, PSIS by its Monte Carlo error
        assert abs(table.loc[key, "elpd"] - refit["elpd"]) < 0.01 * 25, key
    corrected = table.loc[("laplace", "psis corrected"), "elpd"]
    chains = table.loc[("elliptical_slice", "psis"), "elpd"]
    # weighed to the target that the chains have: the Monte Carlo error of PSIS is left
    assert abs(corrected - chains) < 0.01 * 25
    assert table["reference"].sum() == 1 and table.loc[("elliptical_slice", "psis"), "reference"]


def test_a_hard_margin_has_cavities_and_refits_alone():
    kernel = av.ARDGaussian(2.0, [0.5, 0.3], 1.0)
    model = av.models.trigonometric_svm(X[:12], LABEL[:12], kernel=kernel)
    trees = {"ep": fit(model, "ep", draws=100), "slice": fit(model, av.EllipticalSlice(thin=4))}
    table = loo_table(trees, model, refit=["ep"])
    assert [key[1] for key in table.index] == ["cavity", "refit"]
    rows = loo_by_row(trees, model, refit=["ep"])
    away = np.exp(rows["ep", "cavity"].elpd) - np.exp(rows["ep", "refit"].elpd)
    assert np.abs(away).max() < 0.06 and np.abs(away).mean() < 0.02  # in probability


def test_a_softmax_is_refitted():
    classes = np.digitize(X[:12, 0], [-0.5, 0.5])
    kernel = av.RBF(width=1.5)
    model = av.models.rvm_classification(X[:12], classes, kernel=kernel, alpha=np.full(13, 2.0))
    tree = fit(model, "laplace")
    rows = loo_by_row({"laplace": tree}, model, refit=["laplace"])
    away = rows["laplace", "refit"].elpd - rows["laplace", "psis"].elpd
    assert np.abs(away).max() < 0.5 and abs(away.mean()) < 0.1


def test_differences_from_the_reference_are_paired():
    """Rows that are hard for one are hard for the other: the error of a sum is not theirs."""
    rng = np.random.default_rng(6)
    elpd, away = rng.normal(size=50), 0.01 * rng.normal(size=50)
    none, nan = np.zeros(50, bool), np.full(50, np.nan)
    found = {
        ("nuts", "psis"): LooRows(elpd, none, nan, "psis"),
        ("ep", "cavity"): LooRows(elpd + away, none, nan, "cavity"),
    }
    row = summary_of(found, "nuts").loc[("ep", "cavity")]
    assert row["difference"] == pytest.approx(away.sum())
    assert row["difference_se"] == pytest.approx(np.sqrt(50) * away.std(ddof=1))


def test_plot_has_every_estimate_on_one_axis(probit):
    _, trees = probit
    left, right = av.plot.loo(trees)
    labels = [text.get_text() for text in left.get_yticklabels()]
    assert "ep, cavity" in labels and "laplace, psis corrected" in labels
    assert "minus its reference" in right.get_xlabel()
    mpl.pyplot.close("all")


def test_bad_requests_are_named(probit):
    model, trees = probit
    with pytest.raises(InputError, match="'vb' is not among the trees"):
        loo_table(trees, model, refit=["vb"])
    with pytest.raises(InputError, match="give model="):
        loo_table(trees, refit=["ep"])
    with pytest.raises(InputError, match="'nuts' is not among"):
        loo_table(trees, reference="nuts")
    mixture = av.models.subset_regression(X, T)
    with pytest.raises(UnsupportedPair, match="cannot be taken out"):
        refit_rows(mixture, trees["ep"])


@pytest.mark.parametrize("method", ["nuts", "laplace"])
def test_a_refit_holds_the_hyperparameters_that_the_tree_was_made_at(method):
    """Those of a tree of NUTS(hyper=Fixed(...)) were freed: another posterior without each row."""
    draws = xr.Dataset({"w": (("chain", "draw"), np.zeros((1, 2)))})
    groups = {"posterior": draws, "theta": xr.Dataset({"alpha": 2.0})}
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {"method": method, "hyper": "fixed"}
    again = _again(tree)
    assert float(again.hyper.values["theta"].alpha) == 2.0
    assert "posterior" not in again.hyper.values.children  # draws do not travel to each refit
    tree.attrs["hyper"] = "posterior"
    assert not isinstance(_again(tree).hyper, av.Fixed)
