"""Both reports in a real browser: no error, no request, keyboard, dark, phone, accessibility.

Chromium is driven by Playwright; axe-core comes with axe-playwright-python. One small report is
made once for all tests. Without a browser the tests are skipped, and say how to get one.
"""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from synthetic_trees import gaussian_tree

from ardvark.diagnostics.report.report import report

NAMES = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "price in $ or $x_1$ & more",
    "a 'quoted' \"name\" that is much longer than any axis has room for",
    "plain",
]
PAGES = ("static", "interactive")
NEEDED = "needs a browser: `apt-get install chromium`, or `.venv/bin/playwright install chromium`"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def with_path(tree):
    """Add the path of a search that takes the weights in one by one, and keeps three."""
    weights = ["bias", *(f"w[{name}]" for name in NAMES)]
    active = np.tri(len(weights), dtype=bool)
    evidence = -np.array([9.0, 7.0, 5.0, 6.0, 6.5, 7.0])
    path = {
        "action": ("step", np.array(["start", *["add"] * 5])),
        "feature_changed": ("step", np.array(["", *weights[1:]])),
        "active": (("step", "feature"), active),
        "n_active": ("step", active.sum(axis=1)),
        "precision": (("step", "feature"), np.where(active, np.arange(1.0, 7.0), np.inf)),
        "log_evidence": ("step", evidence),
    }
    coords = {"step": np.arange(6), "feature": weights}
    tree["selection_path"] = xr.DataTree(xr.Dataset(path, coords, {"chosen": 2}))
    return tree


def integrated(rng, mean, sd):
    """A tree whose precisions were integrated over seven nodes."""
    tree = gaussian_tree(rng, mean, sd, hyper="posterior", features=NAMES, draws=250)
    fit = tree["fit"].to_dataset()
    nodes = np.geomspace(0.5, 4.0, 7)[:, None] * np.linspace(1.0, 2.0, len(NAMES))
    weight = np.exp(-0.5 * np.linspace(-2.0, 2.0, 7) ** 2)
    fit["node_weight"] = ("node", weight / weight.sum())
    tree["fit"] = xr.DataTree(fit)
    coords = {"feature": list(NAMES)}
    tree["theta"] = xr.DataTree(xr.Dataset({"alpha": ("feature", nodes[3])}, coords))
    by_node = xr.Dataset({"alpha": (("node", "feature"), nodes)}, coords)
    tree["theta_nodes"] = xr.DataTree(by_node)
    tree.attrs |= {"hyper": "integrated", "method": "ep"}
    return tree


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    mean = np.array([0.3, 2.0, -1.0, 0.0, 0.6, -0.2])
    sd, alpha = np.array([0.2, 0.4, 0.5, 0.3, 0.2, 0.1]), np.linspace(0.5, 2.0, len(NAMES))
    usual = {"features": NAMES, "draws": 250, "attrs": {"random_seed": 1}}
    rng = np.random.default_rng(3)
    laplace = gaussian_tree(rng, mean + 0.2 * sd, sd, hyper="evidence", alpha=alpha, **usual)
    trees = {
        "laplace": with_path(laplace),
        "ep": integrated(rng, mean, sd),
        "nuts": gaussian_tree(rng, 0.7 * mean, sd, method="nuts", hyper="posterior", **usual),
        "nuts_fixed": gaussian_tree(rng, mean, sd, method="nuts", alpha=alpha, **usual),
    }
    folder = tmp_path_factory.mktemp("browser")
    path = report(trees, folder / "report.html", command="ardvark report toy", interactive=True)
    return {"static": path, "interactive": path.with_name("report.interactive.html")}


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason=NEEDED)
    with playwright.sync_playwright() as driver:
        found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
        path = next((p for p in found if p), driver.chromium.executable_path)
        if not Path(path).exists():
            pytest.skip(NEEDED)
        running = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


def until(page, expression, argument=None, seconds=10.0):
    """Wait until an expression holds; Playwright's own waiting needs eval, which is forbidden."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression, argument):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)


class Visit:
    """A page that was opened, with all that it complained of or asked for."""

    def __init__(self, browser, path, viewport=None, scheme="light"):
        self.faults = []
        self.context = browser.new_context(viewport=viewport or DESKTOP, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.on("console", lambda m: self.note(m.type in ("error", "warning"), m.text))
        self.page.on("pageerror", lambda error: self.note(True, str(error)))
        self.page.on("dialog", lambda d: (self.note(True, f"dialog {d.message}"), d.dismiss()))
        self.page.on("request", self.asked)
        self.own = path.as_uri()
        self.page.goto(self.own)

    def note(self, counts, text):
        if counts:
            self.faults.append(text)

    def asked(self, request):
        self.note(request.url != self.own and not request.url.startswith("data:"), request.url)

    def sideways(self):
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


def serious(page):
    """What axe-core finds that keeps people out: rule, and the first place of it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-core")
    found = axe.Axe().run(page).response["violations"]
    hard = [v for v in found if v["impact"] in ("serious", "critical")]
    return [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in hard]


# ------------------------------------------------------------------------------- both reports


def test_checks_find_planted_faults(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        "<title>bad</title><p style='color:#ccc;background:#fff;width:3000px'>pale</p>"
        "<img src='http://127.0.0.1:9/x.png'><script>console.error('planted'); alert(1)</script>"
    )
    with Visit(browser, page, PHONE) as visit:
        visit.page.wait_for_load_state()
        assert {"planted", "dialog 1", "http://127.0.0.1:9/x.png"} <= set(visit.faults)
        assert visit.sideways() > 0
        assert {found.partition(":")[0] for found in serious(visit.page)} >= {"image-alt"}


@pytest.mark.parametrize("kind", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_silent_asks_for_nothing_and_is_accessible(browser, pages, kind, scheme):
    with Visit(browser, pages[kind], scheme=scheme) as visit:
        assert serious(visit.page) == []
        assert visit.faults == []
        paper = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = np.mean([int(v) for v in paper[4:-1].split(",")])
        assert brightness > 200 if scheme == "light" else brightness < 60


@pytest.mark.parametrize("kind", PAGES)
def test_phone_has_no_sideways_scroll(browser, pages, kind):
    with Visit(browser, pages[kind], PHONE) as visit:
        assert visit.sideways() <= 0
        assert serious(visit.page) == []
        assert visit.faults == []


# ------------------------------------------------------------------------------- the static one


def test_static_page_by_keyboard_and_click(browser, pages):
    with Visit(browser, pages["static"]) as visit:
        page = visit.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        folded = page.locator("#verdict details").last
        folded.locator("summary").focus()
        page.keyboard.press("Enter")
        assert folded.evaluate("e => e.open")
        page.locator("nav a", has_text="Leave one out").click()
        until(page, "document.querySelector('#loo').getBoundingClientRect().top < 100")
        assert visit.faults == []


# --------------------------------------------------------------------------- the interactive one


@pytest.fixture(scope="module")
def opened(browser, pages):
    """Opened once, as that takes two seconds: a test leaves behind what the others start from."""
    with Visit(browser, pages["interactive"]) as visit:
        yield visit


@pytest.fixture
def visit(opened):
    yield opened
    assert opened.faults == []


def numbers_of(page):
    return json.loads(page.locator("#numbers").text_content())


def drawn(page, plot):
    """Traces of a plot as Plotly has them."""
    return page.evaluate(f"document.getElementById('{plot}').data.map(t => ({{x: t.x, y: t.y}}))")


def test_hostile_names_are_text_and_nothing_else(visit):
    page = visit.page
    shown = page.locator("#names li").all_text_contents()
    assert sorted(shown) == sorted(["bias", *(f"w[{name}]" for name in NAMES)])
    assert page.locator("script").count() == 3 and page.locator("img").count() == 0
    for place in range(len(shown)):
        page.locator("#names li").nth(place).click()
        title = page.locator("#densities .xtitle").text_content()
        assert title.rstrip("…") == shown[place][: len(title.rstrip("…"))]


def test_weight_is_chosen_by_click_and_by_arrow_keys(visit):
    page, numbers = visit.page, numbers_of(visit.page)["weights"]
    for press, place in ((None, 2), ("ArrowDown", 3), ("End", 5), ("ArrowUp", 4), ("Home", 0)):
        if press is None:
            page.locator("#names li").nth(place).click()
        else:
            page.locator("#names").focus()
            page.keyboard.press(press)
        assert page.locator("#chosen").text_content() == numbers["weights"][place]
        assert page.locator("#names li[aria-selected=true]").count() == 1
        assert drawn(page, "densities")[0] == numbers["densities"]["nuts"][place]
        row = page.locator("#figures tr", has=page.get_by_text("nuts", exact=True))
        shown = row.locator("td").first.text_content().replace("−", "-")
        assert float(shown) == pytest.approx(numbers["summaries"]["nuts"]["mean"][place], rel=5e-3)
        chains = numbers["ranks"]["nuts"]["chains"][place]
        assert drawn(page, "ranks")[2:] == chains and len(chains) == 4
        assert drawn(page, "influence")[0]["y"] == numbers["influence"]["shift"][place]


def test_mark_of_the_forest_can_be_clicked(visit):
    page = visit.page
    weights = numbers_of(page)["weights"]["weights"]
    mark = page.locator("#forest .points path").nth(3)  # the fourth weight of the first method
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.up()
    until(page, "name => document.getElementById('chosen').textContent === name", weights[3])


def test_rows_of_names_and_marks_are_level(visit):
    page = visit.page
    for place in (0, 5):
        name = page.locator("#names li").nth(place).bounding_box()
        middle = name["y"] + name["height"] / 2
        spread = page.evaluate(
            """place => { const g = document.getElementById('forest'), a = g._fullLayout.yaxis;
            return g.getBoundingClientRect().top + a._offset + a.d2p(place); }""",
            place,
        )
        assert spread == pytest.approx(middle, abs=2)


def test_methods_can_be_hidden(visit):
    page = visit.page
    before = len(drawn(page, "densities"))
    page.locator("#methods input").first.focus()
    page.keyboard.press("Space")
    assert len(drawn(page, "densities")) == before - 1
    assert page.locator("#figures tr").count() == before - 1
    page.keyboard.press("Space")
    assert len(drawn(page, "densities")) == before


def test_hyperparameters_have_nodes(visit):
    page, numbers = visit.page, numbers_of(visit.page)["hyperparameters"]
    page.locator("#theta-of").select_option("1")
    nodes = numbers["curves"][1]["ep"]["nodes"]
    assert len(nodes["x"]) > 3
    assert any(trace["x"] == nodes["x"] for trace in drawn(page, "theta"))
    assert f"ep: {len(nodes['x'])} nodes" in page.locator("#theta-said").text_content()
    assert "laplace: " in page.locator("#theta-said").text_content()  # its one value


def test_slider_walks_the_path(visit):
    page = visit.page
    said = page.locator("#path-said")
    assert "Step 2 of 5" in said.text_content() and "that was taken" in said.text_content()
    page.locator("#step").focus()
    page.keyboard.press("ArrowRight")
    assert "Step 3 of 5: added" in said.text_content()
    assert "4 of 6 weights are in the model; log evidence −6" in said.text_content()
    assert len(drawn(page, "scales")[0]["x"]) == 4
    assert drawn(page, "path")[1]["x"] == [3]
    assert page.locator("#criterion-choice").is_hidden()  # there is one criterion only
    page.keyboard.press("End")
    assert "Step 5 of 5" in said.text_content()
    page.locator("#taken").click()
    assert "Step 2 of 5" in said.text_content()


def test_plots_follow_the_colours_of_the_system(visit):
    page = visit.page
    ink = "getComputedStyle(document.querySelector('#densities .xtitle')).fill"
    light = page.evaluate(ink)
    page.emulate_media(color_scheme="dark")
    until(page, f"{ink} !== '{light}'")
    page.emulate_media(color_scheme="light")
    until(page, f"{ink} === '{light}'")


def test_policy_of_the_page_forbids_network_and_foreign_scripts(browser, pages):
    with Visit(browser, pages["interactive"]) as visit:
        page = visit.page
        page.evaluate(
            """() => { const s = document.createElement('script');
            s.textContent = 'window.planted = 1';
            document.body.append(s); return fetch('http://127.0.0.1:9/').catch(() => null); }"""
        )
        assert page.evaluate("window.planted") is None
        assert not any(fault.startswith("http") for fault in visit.faults)  # refused, not sent
        assert any("Content Security Policy" in fault for fault in visit.faults)
