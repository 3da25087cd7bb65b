"""The report: one safe file, like held against like, nothing hidden, none lost to a plot."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import xarray as xr
from pages import section, written
from synthetic_trees import gaussian_tree, replaced

from ardvark.diagnostics.compare.reference import choose_reference
from ardvark.diagnostics.plots import report as figures
from ardvark.diagnostics.reading import fingerprint
from ardvark.diagnostics.report import describe
from ardvark.diagnostics.report import page as page_module
from ardvark.diagnostics.report import report as report_module
from ardvark.diagnostics.report.describe import describe_data, separation
from ardvark.diagnostics.report.report import report
from ardvark.diagnostics.words import duration, number, plain
from ardvark.errors import InputError

HOSTILE = "<script>alert(1)</script>"
CAPTION = "type-II posterior: its hyperparameters maximise the evidence"
MEAN = np.array([0.3, 2.0, -1.0, 0.0])
SD = np.array([0.2, 0.4, 0.5, 0.3])
ALPHA = np.array([0.5, 1.0, 2.0])


def make(name, seed=11, **settings):
    """One of the three trees of a usual report; the planted error of Laplace is 0.2 sd."""
    rng = np.random.default_rng(seed)
    attrs = {"random_seed": 1, "versions": json.dumps({"pymc": "6"})} | settings.pop("attrs", {})
    features = settings.pop("features", [HOSTILE, "price in $ or $x_1", "plain"])
    usual = {
        "laplace": {"mean": MEAN + 0.2 * SD, "sd": SD, "hyper": "evidence", "alpha": ALPHA},
        "nuts": {"mean": 0.5 * MEAN, "sd": SD, "method": "nuts", "hyper": "posterior"},
        "nuts_fixed": {"mean": MEAN, "sd": SD, "method": "nuts", "alpha": ALPHA},
    }[name]
    usual |= {"attrs": attrs, "features": features, "draws": 500} | settings
    return gaussian_tree(rng, usual.pop("mean"), usual.pop("sd"), **usual)


@pytest.fixture(scope="module")
def trees():
    laplace = make("laplace", attrs={"caption": CAPTION})
    return {"laplace": laplace, "nuts": make("nuts", 12), "nuts_fixed": make("nuts_fixed", 13)}


@pytest.fixture(scope="module")
def usual(trees, tmp_path_factory):
    return written(trees, tmp_path_factory.mktemp("usual"), command="ardvark report toy --seed 1")


@pytest.fixture
def no_figures(monkeypatch):
    """Draw nothing: for tests of words and numbers, since figures are most of a page's time."""
    drawings = page_module._drawings
    empty = lambda case: dict.fromkeys(drawings(case), lambda: None)  # noqa: E731
    monkeypatch.setattr(page_module, "_drawings", empty)
    monkeypatch.setattr(figures, "as_svg", lambda *_: "<svg></svg>")


class Page(HTMLParser):
    """Collects ids, local links and everything a browser would fetch; demands closed tags."""

    VOID = frozenset({"meta", "link", "br", "img", "path", "use", "image", "rect"})

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.fetched, self.open = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.note(tag, dict(attrs))

    def handle_startendtag(self, tag, attrs):
        self.note(tag, dict(attrs))

    def note(self, tag, attrs):
        self.ids += [attrs["id"]] if "id" in attrs else []
        for key in ("href", "src", "srcset", "xlink:href", "action", "data"):
            value = attrs.get(key) or ""
            kind = self.links if value.startswith("#") else self.fetched
            kind.extend([value] if value and not value.startswith("data:") else [])

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


# ------------------------------------------------------------------------------- one safe file


def test_page_is_well_formed_and_fetches_nothing(usual):
    page, _ = usual
    parsed = Page(page)
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {link[1:] for link in parsed.links} <= set(parsed.ids)
    assert parsed.fetched == []
    assert "http" not in page and "@import" not in page
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)", page))
    assert len(page.encode()) < 5e6


def test_hostile_names_are_escaped_in_text_and_figures(usual):
    page, numbers = usual
    assert "<script" not in page
    assert section(page, "relevance").count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 2
    assert "price in $ or $x_1" in section(page, "relevance")
    assert HOSTILE in numbers["relevance"]["features"]


def test_page_serves_light_dark_phone_and_print(usual):
    page, _ = usual
    assert "@media screen and (prefers-color-scheme: dark)" in page  # paper is never dark
    assert "@media print" in page and "details::details-content" in page  # nor folded
    assert 'name="viewport"' in page
    assert "currentColor" in section(page, "relevance")
    # no drawing colour is left that the page could not turn over
    assert not any(colour in page for colour in figures.PAGE_VARIABLES)


def test_sections_header_and_command(usual):
    page, numbers = usual
    assert [*numbers] == ["header", *report_module.PARTS]
    for name in report_module.PARTS:
        part, text = numbers[name], page.replace("&gt;", ">").replace("&lt;", "<")
        told = [part["lead"], *part["said"]] if "said" in part else [part["sentence"]]
        assert all(sentence in text for sentence in told)
        assert part["sentence"] == " ".join(told)
        assert "How to read this" in section(page, name)
    assert numbers["header"]["Methods"] == "laplace, nuts, nuts_fixed"
    assert numbers["header"]["Wall time"].startswith("laplace 0.50 s")
    assert "ardvark report toy --seed 1" in section(page, "reproducibility")
    assert "could not be" not in page
    bias = numbers["relevance"]["intervals"]["nuts_fixed"][0]
    assert bias["weight"] == "bias" and bias["lower"] < 0.3 < bias["upper"]


def test_same_trees_same_page(trees, tmp_path, usual):
    page, _ = written(trees, tmp_path, command="ardvark report toy --seed 1")

    def undated(text):
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", text)

    assert undated(page) == undated(usual[0])


# --------------------------------------------------------------------------- like with like


def test_error_comes_from_the_reference_at_the_same_hyperparameters(usual):
    methods = {row["name"]: row for row in usual[1]["verdict"]["methods"]}
    assert methods["laplace"]["against"] == "nuts_fixed"
    # planted 0.2; the worst of 4 errors with Monte Carlo error sqrt(2/2000) = 0.032 sd each
    assert abs(methods["laplace"]["worst_mean_error"] - 0.2) < 5 * 0.032
    assert methods["nuts"]["against"] is None and methods["nuts"]["worst_mean_error"] is None


def test_price_stands_beside_the_error_and_is_no_failure(usual):
    page, numbers = usual
    prices = {row["name"]: row for row in numbers["verdict"]["prices"]}
    assert {row["reference"] for row in prices.values()} == {"nuts"}
    assert prices["nuts_fixed"]["worst_mean_error"] > 2.0  # x0: 2.0 against 1.0, sd 0.4
    assert "Price: hyperparameters integrated out" in section(page, "verdict")
    row = section(page, "verdict").partition(">nuts_fixed<")[2].partition("</tr>")[0]
    assert row.count('class="num warn"') == 1 and "bad" not in row  # a mean shifted by two sds
    method = next(m for m in numbers["verdict"]["methods"] if m["name"] == "laplace")
    assert (method["against"], method["price_against"]) == ("nuts_fixed", "nuts")
    assert method["price_mean"] > 2.0 and abs(method["worst_mean_error"] - 0.2) < 5 * 0.032
    assert method["verdict"].startswith("laplace against nuts_fixed: the mean of ")
    assert numbers["verdict"]["level"] == "warn"
    assert not any(f["level"] == "bad" for f in numbers["verdict"]["findings"])


@pytest.mark.usefixtures("no_figures")
def test_without_a_like_reference_no_error_is_claimed(trees, tmp_path):
    page, numbers = written({k: trees[k] for k in ("laplace", "nuts")}, tmp_path)
    row = numbers["verdict"]["methods"][0]
    assert row["against"] is None and row["worst_mean_error"] is None
    assert "no reference at the same values" in section(page, "verdict")
    assert numbers["closeness"]["errors"] == [] and len(numbers["closeness"]["prices"]) == 1


@pytest.mark.usefixtures("no_figures")
def test_other_hyperparameters_do_not_judge(trees, tmp_path):
    stranger = make("nuts_fixed", alpha=2 * ALPHA)
    _, numbers = written({"laplace": trees["laplace"], "nuts_fixed": stranger}, tmp_path)
    assert numbers["verdict"]["methods"][0]["against"] is None


def test_lone_approximation_and_lone_reference(trees, tmp_path):
    page, numbers = written({"laplace": trees["laplace"]}, tmp_path)
    assert numbers["verdict"]["reference"] is None
    assert "There is no reference" in numbers["reference"]["sentence"]
    assert "could not be" not in page
    page, numbers = written({"nuts": trees["nuts"]}, tmp_path)
    assert numbers["verdict"]["level"] == "good" and "could not be" not in page


def test_type_ii_caption_and_independent_draws_are_said(usual):
    page, _ = usual
    for name in ("verdict", "relevance", "closeness"):
        assert CAPTION in section(page, name)
    row = section(page, "verdict").partition(">laplace<")[2].partition("</tr>")[0]
    assert "independent draws" in row and "R-hat" not in row


# ------------------------------------------------------------------------- nothing bad is hidden


def test_bad_reference_puts_a_band_over_what_leans_on_it(trees, tmp_path):
    bad = trees | {"nuts_fixed": make("nuts_fixed", autocorrelation=0.99)}
    page, numbers = written(bad, tmp_path)
    for name in ("verdict", "relevance", "closeness"):
        assert "are not errors of the approximations" in section(page, name)
    assert "are not errors" not in section(page, "data")
    assert numbers["verdict"]["level"] == numbers["reference"]["level"] == "bad"
    assert numbers["verdict"]["findings"][0]["level"] == "bad"
    assert "traces of nuts_fixed" not in page  # drawn, not named as failed
    assert "nuts_fixed fails its own checks" in numbers["verdict"]["sentence"]
    judged = re.findall(
        r'<td class="num (\w*)">[^/]*</span>[^<]*<span class="small">against nuts_f', page
    )
    assert not set(judged) & {"good", "warn", "bad"}  # no figure against it has a sign


@pytest.mark.usefixtures("no_figures")
def test_divergences_are_red(trees, tmp_path):
    diverging = np.zeros((4, 500), bool)
    diverging[0, 7] = True
    chains = replaced(trees["nuts"], "sample_stats", diverging=(("chain", "draw"), diverging))
    page, numbers = written({"nuts": chains}, tmp_path)
    assert numbers["reference"]["chains"][0]["divergences"] == 1
    assert re.search(r'class="num bad"><span[^>]*>✗</span>1<', section(page, "reference"))


@pytest.mark.usefixtures("no_figures")
def test_high_khat_and_no_convergence_are_red(trees, tmp_path):
    narrow = make("laplace", sd=0.4 * SD, target_sd=SD, attrs={"converged": False})
    page, numbers = written(trees | {"laplace": narrow}, tmp_path)
    row = numbers["verdict"]["methods"][0]
    assert row["khat"] > 0.7
    cells = section(page, "verdict").partition(">laplace<")[2].partition("</tr>")[0]
    assert re.search(rf'num bad"><span[^>]*>✗</span>{number(row["khat"], 2)} ±', cells)
    assert re.search(r'class="bad"><span[^>]*>✗</span>no<', cells)
    assert "laplace did not converge." in [f["text"] for f in numbers["verdict"]["findings"]]


def test_colour_is_never_the_only_sign(usual):
    cells = re.findall(r'<td class="[^"]*(?:good|warn|bad)">(.{40})', usual[0])
    assert cells and all("sign" in cell for cell in cells)


# ------------------------------------------------------------------------------- no lost report


def test_failed_figure_is_a_visible_note(trees, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no <ink>")

    monkeypatch.setattr(figures, "forest", broken)
    page, numbers = written(trees, tmp_path)
    assert "The figure “forest” could not be drawn" in section(page, "relevance")
    assert "no &lt;ink&gt;" in page
    assert "<svg" in section(page, "closeness") and numbers["relevance"]["features"]


@pytest.mark.usefixtures("no_figures")
def test_failed_part_is_a_visible_note(trees, tmp_path, monkeypatch):
    monkeypatch.setitem(report_module.PARTS, "relevance", lambda case: 1 / 0)
    page, numbers = written(trees, tmp_path)
    assert "ZeroDivisionError" in section(page, "relevance")
    assert numbers["closeness"]["errors"]


@pytest.mark.usefixtures("no_figures")
def test_section_that_cannot_be_shown_is_a_visible_note(trees, tmp_path, monkeypatch):
    empty = {"sentence": "", "level": ""}
    monkeypatch.setitem(report_module.PARTS, "relevance", lambda case: empty)
    page, numbers = written(trees, tmp_path)
    assert "This section could not be shown" in section(page, "relevance")
    assert numbers["closeness"]["errors"] and "<svg" in section(page, "closeness")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"trees": {}}, "trees"),
        ({"trees": None}, "trees"),
        ({"trees": {"a": 3}}, "trees['a']"),
        ({"reference": "ep"}, "'ep' is not among"),
        ({"reference": []}, "[] is not among"),
        ({"taddaa": "no"}, "taddaa must be True or False"),
        ({"interactive": 1}, "interactive must be True or False"),
        ({"path": "report.json"}, ".html"),
        ({"path": "nowhere/report.html"}, "no folder"),
    ],
)
def test_bad_arguments_write_nothing(trees, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=re.escape(said)):
        report(**({"trees": trees} | arguments))
    assert not list(tmp_path.iterdir())


def test_trees_of_different_models_are_refused(trees, tmp_path):
    other = make("nuts", mean=MEAN[:3], sd=SD[:3], features=["plain", "other"])
    with pytest.raises(InputError, match="not of the same model"):
        report({"laplace": trees["laplace"], "nuts": other}, tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_old_report_survives_a_failed_new_one(trees, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def broken(*_):
        raise RuntimeError("no template")

    monkeypatch.setattr(report_module, "render", broken)
    with pytest.raises(RuntimeError):
        report(trees, path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("no_figures")
def test_many_features_are_capped_and_counted(tmp_path):
    d = 60
    mean, sd = np.linspace(3, 0, d + 1), np.full(d + 1, 0.3)
    features = [f"x{j}" for j in range(d)]
    tree = make("nuts", mean=mean, sd=sd, features=features, draws=100, rows=70)
    page, numbers = written({"nuts": tree}, tmp_path)
    assert "20 inputs of less relevance are not shown" in section(page, "relevance")
    assert len(numbers["relevance"]["features"]) == d


def test_weights_of_a_user_graph_are_known_from_the_other_tree(tmp_path):
    def renamed(tree):
        names = {"w": "beta", "bias": "level"}
        posterior = tree["posterior"].to_dataset().rename(names)
        chains = tree.copy()
        chains["posterior"] = xr.DataTree(posterior)
        return chains

    fixed, full = renamed(make("nuts_fixed")), renamed(make("nuts"))
    fixed.attrs["weights"] = json.dumps(["beta", "level"])
    page, numbers = written({"nuts_fixed": fixed, "nuts": full}, tmp_path)
    assert "could not be" not in page and "weights" not in full.attrs
    assert [row["weight"] for row in numbers["relevance"]["intervals"]["nuts"]][-1] == "level"


def test_default_reference_prefers_full_nuts(trees):
    assert choose_reference(trees) == "nuts"
    assert choose_reference({k: trees[k] for k in ("laplace", "nuts_fixed")}) == "nuts_fixed"
    assert choose_reference({"laplace": trees["laplace"]}) is None
    assert choose_reference(trees, "laplace") == "laplace"


# ------------------------------------------------------------------------------ data and model


def test_separation_is_found_by_linear_programming():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 3))
    score = X @ [1.0, -2.0, 0.5] + 0.3
    assert separation(X, score > 0) == "complete"
    assert separation(X, score + 2 * rng.normal(size=60) > 0) == "none"
    line = np.array([-2.0, -1.0, 0.0, 0.0, 1.0, 2.0])[:, None]  # both classes at zero
    assert separation(line, np.array([0, 0, 0, 1, 1, 1], bool)) == "quasi-complete"
    assert separation(1e6 * X, score > 0) == "complete"
    assert separation(np.zeros((2, describe.SEPARATION_LIMIT)), np.ones(2, bool)) == "not checked"


def test_data_facts():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 4))
    X[:, 1], X[:, 3] = X[:, 0], 7.0
    facts = describe_data(X, np.repeat(["no", "yes"], [30, 10]), "binary", "abcd")
    assert facts["classes"] == {"no": 30, "yes": 10}
    assert facts["constant_columns"] == ["d"] and facts["duplicate_columns"] == [["a", "b"]]
    assert facts["condition_number"] > 1e10
    facts = describe_data(X, X[:, 2], "regression", "abcd")
    assert facts["target"]["sd"] == pytest.approx(X[:, 2].std()) and "separation" not in facts


@pytest.mark.usefixtures("no_figures")
def test_model_is_described_with_its_priors(trees, tmp_path):
    pm = pytest.importorskip("pymc")
    with pm.Model(coords={"feature": ["a", "b", "c"]}) as model:
        alpha = pm.Gamma("alpha", 2.0, 2 / 3, dims="feature")
        w = pm.Normal("w", 0.0, alpha**-0.5, dims="feature")
        pm.HalfStudentT("s", 3, np.full(3, 2.5), dims="feature")
        pm.Normal("t", w.sum(), 1.0, observed=0.5)
    page, numbers = written(trees, tmp_path, model=model)
    rows = {row["name"]: row for row in numbers["data"]["model"]["variables"]}
    assert rows["alpha"]["distribution"] == "Gamma(shape 2, rate 0.6667)"
    assert rows["s"]["distribution"] == "HalfStudentT(3, 2.5)"
    assert rows["w"]["dims"] == ["feature"] and rows["t"]["role"] == "observed"
    assert "Gamma(shape 2, rate 0.6667)" in section(page, "data")


def test_fingerprint_sees_values_shapes_and_types():
    x = np.arange(6.0)
    assert fingerprint(x) == fingerprint(x.copy())
    others = [x + 1e-12, x.reshape(2, 3), x.astype("f4"), x.astype(str)]
    assert len({fingerprint(x), *map(fingerprint, others)}) == 5


def test_numbers_as_people_write_them():
    assert [number(v) for v in (0.0, 1.2345, -12.345, 123456.0, 1e-7, np.nan, np.inf, None, 3)] == [
        *("0", "1.23", "−12.3", "1.23e+05", "1.00e−07", "—", "∞", "—", "3")
    ]
    assert duration(0.5) == "0.50 s" and duration(312.0) == "5.2 min"
    assert plain({"a": [np.float64("nan"), np.inf, np.int64(2), np.True_]}) == {
        "a": [None, "inf", 2, True]
    }


@pytest.mark.usefixtures("no_figures")
def test_caution_of_a_fit_is_shown(trees, tmp_path):
    warned = {name: tree.copy() for name, tree in trees.items()}
    first = next(iter(warned))
    warned[first].attrs["caution"] = "the prior of w[x0] is very wide. Check with Exact()."
    page, _ = written(warned, tmp_path)
    assert f"{first}: the prior of w[x0] is very wide." in page and "Check with Exact()." in page


@pytest.mark.usefixtures("no_figures")
def test_chains_that_were_to_go_on_say_how_far_they_went(trees, tmp_path):
    longer = trees["nuts"].copy()
    longer.attrs["sampler"] = json.dumps({"draws": 500, "most_draws": 8000})
    _, numbers = written(trees | {"nuts": longer}, tmp_path)
    budget = {c["name"]: c["most_draws"] for c in numbers["reference"]["chains"]}
    assert budget["nuts"] == 8000 and budget["nuts_fixed"] is None
    assert "of at most 8000 draws a chain" in numbers["reference"]["sentence"]
