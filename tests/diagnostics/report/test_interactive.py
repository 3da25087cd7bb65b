"""Numbers of the interactive page: those of the report, the same each time, safe in the page."""

import json
import re
import warnings

import numpy as np
import pytest
import xarray as xr
from synthetic_trees import gaussian_tree, without

from ardvark.diagnostics.reading import arviz
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.report.interactive import page as page_module
from ardvark.diagnostics.report.interactive.influence import influence
from ardvark.diagnostics.report.interactive.page import beside
from ardvark.diagnostics.report.interactive.weights import weights_section
from ardvark.diagnostics.report.report import report
from ardvark.errors import InputError

HOSTILE = "</script><script>alert(1)</script>"
MEAN, SD = np.array([0.3, 2.0, -1.0, 0.0]), np.array([0.2, 0.4, 0.5, 0.0])


def trees():
    usual = {"features": [HOSTILE, "a & b", "off"], "draws": 400, "attrs": {"random_seed": 1}}
    rng = np.random.default_rng(5)
    return {
        "laplace": gaussian_tree(rng, MEAN, SD, hyper="evidence", **usual),
        "nuts": gaussian_tree(rng, MEAN, SD + 0.1, method="nuts", hyper="posterior", **usual),
    }


def written(folder, given=None, **settings):
    path = report(given or trees(), folder / "r.html", interactive=True, **settings)
    return beside(path).read_bytes()


def embedded(page):
    found = re.search(rb'<script type="application/json" id="numbers">(.*?)</script>', page)
    return json.loads(found[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def page(folder):
    return written(folder)


def test_same_trees_give_the_same_file_below_8_mb(page, tmp_path):
    assert written(tmp_path) == page
    assert len(page) < 8e6
    assert page.count(b"plotly.js v") == 1  # inlined once


def test_static_page_is_the_default_and_does_not_change(page, folder, tmp_path):
    path = report(trees(), tmp_path / "r.html")
    assert not beside(path).exists()
    alone, with_it = (
        re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", p.read_text("utf-8"))
        for p in (path, folder / "r.html")
    )
    assert alone == with_it


def test_no_name_can_end_the_script_that_holds_it(page):
    assert page.count(b"<script") - page.count(b'"<script') >= 3
    ours = page[: page.index(b"plotly.js v")]
    assert HOSTILE.encode() not in page and b"alert(1)</script>" not in ours
    assert f"w[{HOSTILE}]" in embedded(page)["weights"]["weights"]


def test_numbers_are_those_of_the_report(page, folder):
    known = json.loads((folder / "r.json").read_text("utf-8"))["relevance"]["intervals"]
    found = embedded(page)["weights"]
    for method, rows in known.items():
        by_name = {row["weight"]: row for row in rows}
        for key in ("mean", "sd", "lower", "upper"):
            expected = [by_name[name][key] for name in found["weights"]]
            assert found["summaries"][method][key] == pytest.approx(expected, rel=1e-4)


def test_densities_have_mass_one_and_the_mean_of_the_table(page):
    found = embedded(page)["weights"]
    for method, curves in found["densities"].items():
        for place, curve in enumerate(curves):
            if curve is None:
                assert found["summaries"][method]["sd"][place] == 0
                continue
            x, y = np.array(curve["x"]), np.array(curve["y"])
            sd = found["summaries"][method]["sd"][place]
            assert np.trapezoid(y, x) == pytest.approx(1.0, abs=0.02)
            mean = np.trapezoid(x * y, x) / np.trapezoid(y, x)
            assert mean == pytest.approx(found["summaries"][method]["mean"][place], abs=0.05 * sd)
    assert sum(curve is None for curve in found["densities"]["laplace"]) == 1  # the one of sd zero


def test_ranks_of_equal_chains_stay_in_the_envelope_and_a_stray_chain_leaves_it():
    grid = np.linspace(0, 1, 50)

    def outside(tree):
        found = weights_section(Case({"nuts": tree}, "nuts"))
        ranks, place = found["ranks"]["nuts"], found["weights"].index("bias")
        low, high = (np.interp(grid, ranks["x"], ranks[key]) for key in ("lower", "upper"))
        lines = [np.interp(grid, c["x"], c["y"]) for c in ranks["chains"][place]]
        return [bool(((line < low - 1e-3) | (line > high + 1e-3)).any()) for line in lines]

    usual = gaussian_tree(np.random.default_rng(2), MEAN, SD + 0.1, method="nuts", draws=400)
    assert not any(outside(usual))
    stray = usual.copy(deep=True)
    stray["posterior"]["bias"].values[2] += 1.0
    assert outside(stray)[2]


def test_chains_are_thinned_for_their_ranks_by_their_own_memory():
    slow = {"method": "nuts", "draws": 1000, "autocorrelation": 0.8}
    for settings, least, most in (({"method": "nuts", "draws": 1000}, 1, 2), (slow, 6, 20)):
        tree = gaussian_tree(np.random.default_rng(4), MEAN, SD + 0.1, **settings)
        ranks = weights_section(Case({"nuts": tree}, "nuts"))["ranks"]["nuts"]
        assert least <= ranks["step"] <= most  # of AR(1): (1 + 0.8) / (1 - 0.8) = 9
        assert ranks["draws"] == -(-1000 // ranks["step"])


# --------------------------------------------------------------------------------- influence


def conjugate(rows, draws, seed=1):
    """Draws of a mean w, flat prior, unit noise: without row n its mean is that of the others."""
    rng = np.random.default_rng(seed)
    w = rows.mean() + rng.normal(size=(4, draws)) / np.sqrt(len(rows))
    log_p = -0.5 * (rows - w[..., None]) ** 2
    groups = {
        "posterior": xr.Dataset({"w": (("chain", "draw"), w)}),
        "log_likelihood": xr.Dataset({"t": (("chain", "draw", "row"), log_p)}),
    }
    return xr.DataTree.from_dict(groups)


def test_influence_is_the_shift_of_the_exact_posterior():
    rows = np.array([-1.0, -0.4, 0.1, 0.3, 0.8, 1.1, -0.7, 0.2, 2.5, -0.1, 0.5, -0.9])
    n = len(rows)
    exact = ((rows.sum() - rows) / (n - 1) - rows.mean()) * np.sqrt(n)
    found = np.stack([influence(conjugate(rows, 1000, seed))["w"].to_numpy() for seed in range(20)])
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert np.abs((found.mean(axis=0) - exact) / error).max() < 4.0
    assert error.max() < 0.02
    assert found.mean(axis=0)[8] < -0.5  # the outlier pulls upwards: without it the mean falls


def test_influence_has_the_size_that_arviz_gives():
    tree = conjugate(np.linspace(-1.0, 1.0, 12), 500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # k-hats: both routes have the same weights
        theirs, _ = arviz().loo_influence(tree, var_names="w", group="posterior")
    ours = influence(tree)["w"].abs().to_numpy()
    # ArviZ divides by the sd with n - 1
    np.testing.assert_allclose(ours, theirs["w"].to_numpy().ravel(), rtol=1e-3)


def test_rows_whose_weights_have_no_tail_are_weighed_as_they_are():
    tree = conjugate(np.array([0.5, 0.0, -1.0]), 100)
    log_p = tree["log_likelihood"]["t"].to_numpy().copy()
    log_p[..., 1] = np.where(tree["posterior"]["w"] < 0, -1.0, 0.0)  # two values only
    tree["log_likelihood"]["t"].values[:] = log_p
    w, weight = tree["posterior"]["w"].to_numpy().ravel(), np.exp(-log_p[..., 1].ravel())
    exact = (np.average(w, weights=weight) - w.mean()) / w.std()
    assert influence(tree)["w"][1] == pytest.approx(exact, rel=1e-12)


def test_influence_is_refused_where_importance_sampling_is_not_possible():
    tree = trees()["nuts"]
    assert influence(without(tree, "log_likelihood")) is None
    cavity = tree.copy()
    cavity.attrs["loo"] = "cavity"
    assert influence(cavity) is None
    found = weights_section(Case({"nuts": without(tree, "log_likelihood")}, "nuts"))
    assert "no log likelihood" in found["influence"]["why"]


# --------------------------------------------------------------------------------- what fails


def test_section_that_fails_says_so_and_the_others_are_there(tmp_path, monkeypatch):
    def broken(case):
        raise ValueError("<planted>")

    monkeypatch.setattr(page_module, "weights_section", broken)
    page = written(tmp_path)
    assert b"This section could not be made. ValueError: &lt;planted&gt;" in page
    assert embedded(page)["hyperparameters"]["labels"]


def test_reference_that_fails_its_checks_is_named_at_the_top(page, tmp_path):
    assert b"Not trustworthy" not in page
    stuck = {"method": "nuts", "hyper": "posterior", "autocorrelation": 0.99, "draws": 200}
    stuck["features"] = [HOSTILE, "a & b", "off"]
    given = trees() | {"nuts": gaussian_tree(np.random.default_rng(1), MEAN, SD + 0.1, **stuck)}
    assert b"Not trustworthy as a reference: nuts." in written(tmp_path, given)


def test_model_without_weights_has_a_page_that_says_so(tmp_path):
    rng, dims = np.random.default_rng(1), ("chain", "draw", "feature")
    included = xr.Dataset(
        {
            "included": (dims, rng.random((2, 50, 2)) < 0.5),
            "scale": (dims[:2], rng.random((2, 50))),
        },
        coords={"feature": ["a", "b"]},
    )
    tree = xr.DataTree.from_dict({"posterior": included})
    tree.attrs |= {"model": "rbf_mixture", "method": "reversible_jump", "converged": True}
    assert weights_section(Case({"jumps": tree}, "jumps")) == {"weights": []}
    page = written(tmp_path, {"jumps": tree})
    assert b"no weights to choose from" in page and b"could not be made" not in page[:100_000]


def test_without_plotly_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "find_spec", lambda name: None if name == "plotly" else 1)
    with pytest.raises(InputError, match=r"plotly cannot be found.*ardvark\[interactive\]"):
        written(tmp_path)
    assert list(tmp_path.iterdir()) == []
