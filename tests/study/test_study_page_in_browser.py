"""A study's page as a reader meets it, in headless Chromium."""

import re
import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from fedkmeans.study.page.study import write_report
from tests.study.studies import K, make_study

sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]

TABS = ("tables", "participation", "convergence", "runs", "centroids", "about")
EVIL = "<script>alert(1)</script><b>x</b> & <img src=x onerror=alert(2)>"

# Contrast of all visible texts with what is behind them, as WCAG defines it; those below a bound.
FAINT_TEXTS = """
(least) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = {};
  const numbers = (colour) => {
    if (colour in known) return known[colour];
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return known[colour] = [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const linear = (v) => (v <= 10 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll("body *")].filter((node) =>
    [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()) &&
    node.checkVisibility() && node.getBoundingClientRect().width > 1 &&
    !node.closest("script, style, noscript"));
  return texts.map((node) => {
    const style = getComputedStyle(node);
    const [a, b] = [light(numbers(node.closest("svg") ? style.fill : style.color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    return [ratio, node.textContent.trim().slice(0, 40)];
  }).filter(([ratio]) => !(ratio >= least));
}
"""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The page of a study with pictures."""
    folder = tmp_path_factory.mktemp("study")
    write_report(*make_study(folder), folder / "report.html")
    return folder / "report.html"


@contextmanager
def visiting(browser, pictures):
    """Open pages; in the end nothing was asked of a network and nothing went wrong."""
    visits = []

    def visit(path, tab="", *, width=1200, scheme="light", touch=False):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=touch, is_mobile=touch
        )
        seen = SimpleNamespace(requests=[], wrong=[])
        context.on("request", lambda request: seen.requests.append(request.url))
        context.route(re.compile("^(?!file:|data:|blob:)"), lambda route: route.abort())
        page = context.new_page()
        page.on("console", lambda said: seen.wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: seen.wrong.append(str(error)))
        page.on("dialog", lambda dialog: seen.wrong.append(dialog.message) or dialog.dismiss())
        page.set_default_timeout(15_000)
        page.goto(path.as_uri() + (f"#{tab}" if tab else ""))
        visits.append((context, page, seen))
        return page

    yield visit
    for number, (context, page, seen) in enumerate(visits):
        page.screenshot(path=pictures / f"visit-{number}.png", full_page=True)
        context.close()
        assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        assert seen.wrong == []


@pytest.fixture
def visit(browser, tmp_path):
    with visiting(browser, tmp_path) as visit_:
        yield visit_


@pytest.fixture(scope="module")
def shared(browser, report):
    """The page of the study, opened once: its tabs do not depend on each other."""
    with visiting(browser, report.parent) as visit_:
        yield visit_(report)


@pytest.fixture
def go(shared, tmp_path):
    """Go to a tab of the shared page."""

    def go_(tab):
        shared.evaluate(f"location.hash = '{tab}'")
        panel(shared, tab).wait_for()
        return shared

    yield go_
    shared.screenshot(path=tmp_path / "tab.png", full_page=True)


def panel(page, name):
    return page.locator(f"#panel-{name}")


def numbers(page, tab):
    """What the figures of a tab are drawn from: the y values of all their lines and points."""
    return (
        panel(page, tab)
        .locator("div.plot")
        .evaluate_all("boxes => boxes.map(box => box.data.map(line => line.y))")
    )


def hover(page, points, number=0):
    """The label of a point under the pointer."""
    points.nth(number).scroll_into_view_if_needed()  # this waits until it is drawn and stable
    points.nth(number).hover(force=True)  # what is above it passes the pointer on
    label = page.locator(".hoverlayer .hovertext").first
    label.wait_for()
    return label.text_content()


def wait_until(page, condition):
    """Wait for something in the page; playwright's own way evaluates a text there, which is forbidden."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {condition}")


def test_each_tab_opens_by_click_and_stands_in_the_address(visit, report):
    page = visit(report)
    assert page.locator("[role=tabpanel]:visible").count() == 1
    for name in TABS:
        page.click(f"#tab-{name}")
        panel(page, name).wait_for()
        assert page.locator("[role=tabpanel]:visible").count() == 1
        assert page.locator("[role=tab][aria-selected=true]").get_attribute("id") == f"tab-{name}"
        assert page.evaluate("location.hash") == f"#{name}"
    page.go_back()
    panel(page, "centroids").wait_for()


def test_tabs_by_keyboard(visit, report):
    page = visit(report)
    page.focus("#tab-tables")
    for key, name in [("ArrowRight", "participation"), ("ArrowLeft", "tables"), ("ArrowLeft", "about"),
                      ("ArrowRight", "tables"), ("End", "about"), ("Home", "tables")]:  # fmt: skip
        page.keyboard.press(key)
        panel(page, name).wait_for()
        assert page.evaluate("document.activeElement.id") == f"tab-{name}"
    assert page.locator("[role=tab][tabindex='0']").count() == 1


def test_tables_mark_and_sort(go):
    page = go("tables")
    rows = panel(page, "tables").locator("tbody tr")
    assert rows.count() == 6
    means = "rows => rows.map(row => row.children[3].textContent)"
    first = rows.evaluate_all(means)
    marked = rows.locator("td.off")
    assert marked.count() > 0
    assert "◆" in marked.first.text_content()
    head = panel(page, "tables").locator("thead button", has_text="mean").first
    for order, sign in [("descending", -1), ("ascending", 1)]:
        head.click()
        assert panel(page, "tables").locator(f"th[aria-sort={order}]").text_content() == "mean"
        found = rows.evaluate_all(means)
        assert found == sorted(found, key=lambda text: sign * float(text))
    head.click()
    assert rows.evaluate_all(means) == first
    panel(page, "tables").locator("select[name=metric]").select_option(label="accuracy")
    assert panel(page, "tables").locator("caption").text_content() == "Digits: accuracy"
    heads = panel(page, "tables").locator("thead th.group")
    assert heads.all_text_contents() == ["this study", "paper", "difference"]
    hint = panel(page, "tables").locator("#papers-half")
    assert hint.is_visible()
    before = rows.evaluate_all(means)
    panel(page, "tables").locator("select[name=share]").select_option(label="the best half")
    assert rows.evaluate_all(means) != before
    assert not hint.is_visible()
    panel(page, "tables").locator("select[name=clients]").select_option(label="2")
    assert rows.count() == 6


def test_participation(go):
    page = go("participation")
    boxes = panel(page, "participation").locator("div.plot")
    assert boxes.count() == 2
    points = boxes.first.locator(".points path")
    assert points.count() == 4  # two algorithms, two numbers of clients
    assert boxes.first.locator("path.yerror").count() == 4
    text = hover(page, points)
    assert re.search(r"DWF k-means2 clients per roundscore 3\d\.\d{4} ± 0\.\d{4}best 2 of 3 runs", text)
    before = numbers(page, "participation")
    panel(page, "participation").locator("select[name=share]").select_option(label="all")
    assert numbers(page, "participation") != before
    panel(page, "participation").locator("select[name=metric]").select_option(label="v-measure")
    assert 0.6 < numbers(page, "participation")[0][-1][0] < 0.7
    button = panel(page, "participation").locator(".legend button", has_text="k-FED")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert points.count() == 2
    button.click()
    assert points.count() == 4


def test_convergence(go):
    page = go("convergence")
    score, movement = panel(page, "convergence").locator("div.plot").all()
    assert score.locator("path.js-line").count() == 3 + 3 + 1  # runs, and the level of pooled k-means
    assert score.locator(".points path").count() == 3 * 5 + 3
    assert movement.locator(".points path").count() == 3  # of the others, zeros and NaN cannot be drawn
    assert "round 2movement 0.1000" in hover(page, movement.locator(".points path"))
    before = numbers(page, "convergence")
    panel(page, "convergence").locator("select[name=place]").select_option(label="non-IID")
    assert numbers(page, "convergence") != before
    panel(page, "convergence").locator("select[name=clients]").select_option(label="2")
    assert len(numbers(page, "convergence")[0]) == len(before[0])


def test_runs(go):
    page = go("runs")
    points = panel(page, "runs").locator("div.plot .points path")
    assert points.count() == 9
    text = hover(page, points, 4)
    assert "run 1" in text
    assert "seed 1001" in text
    for label in ("seconds", "rounds"):
        panel(page, "runs").locator("select[name=against]").select_option(label=label)
        assert panel(page, "runs").locator(".xtitle").text_content() == label
    for name in ("place", "clients"):
        panel(page, "runs").locator(f"select[name={name}]").select_option(label="all")
    assert points.count() == 27
    assert panel(page, "runs").locator("#sampled").is_hidden()


def test_centroids_as_pictures(go):
    page = go("centroids")
    tiles = panel(page, "centroids").locator("canvas")
    tiles.first.wait_for()
    assert tiles.count() == 3 * K
    assert tiles.first.get_attribute("aria-label") == f"k-means, centroid 1 of {K}"
    drawn = tiles.first.evaluate("c => new Set(c.getContext('2d').getImageData(0, 0, 8, 8).data).size")
    assert drawn > 10
    panel(page, "centroids").locator("select[name=algorithm]").select_option(label="k-FED")
    wait_until(page, f"document.querySelectorAll('#panel-centroids canvas').length === {K}")


@pytest.mark.parametrize("columns", [2, 5, 60])
def test_other_centroids(visit, tmp_path, columns):
    write_report(*make_study(tmp_path, columns=columns, runs=1), tmp_path / "report.html")
    page = visit(tmp_path / "report.html", "centroids")
    if columns == 2:
        points = panel(page, "centroids").locator("div.plot .points path")
        assert points.count() == 3 * K
        assert re.search(r"k-meanscentroid 1\(0\.\d{4}, 0\.\d{4}\)", hover(page, points))
    elif columns == 5:
        assert panel(page, "centroids").locator("tbody tr").count() == 3 * K
        assert panel(page, "centroids").locator("tbody td").count() == 3 * K * columns
        assert page.evaluate(FAINT_TEXTS, 4.5) == []
    else:
        assert "neither" in panel(page, "centroids").locator(".lead").text_content()


def test_without_labels_and_with_one_run(visit, tmp_path):
    plan, frame, _ = make_study(tmp_path, labels=False, runs=1)
    write_report(plan, frame, {}, tmp_path / "report.html")
    page = visit(tmp_path / "report.html")
    for name in TABS:
        page.click(f"#tab-{name}")
        panel(page, name).wait_for()
    assert "No centroids" in panel(page, "centroids").locator(".lead").text_content()
    assert panel(page, "participation").locator("select[name=metric]").count() == 0
    assert panel(page, "participation").locator(".controls").text_content().startswith("Metricscore")


def test_pooled_runs_alone(visit, tmp_path):
    write_report(*make_study(tmp_path, algorithms=({"name": "k-means"},), runs=2), tmp_path / "report.html")
    page = visit(tmp_path / "report.html")
    for name in TABS:
        page.click(f"#tab-{name}")
        panel(page, name).wait_for()
    assert panel(page, "runs").locator("div.plot .points path").count() == 2


def test_about_counts_the_reasons(go):
    page = go("about")
    table = panel(page, "about").locator("#stops table")
    assert [h for h in ("one shot", "patience", "tol") if table.locator("thead").get_by_text(h).count()] == [
        "one shot", "patience", "tol",
    ]  # fmt: skip
    assert table.locator("tbody tr").count() == 9


def test_phone(visit, report):
    page = visit(report, width=360, touch=True)
    for name in TABS:
        page.evaluate(f"location.hash = '{name}'")
        panel(page, name).wait_for()
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.evaluate("location.hash = 'participation'")
    boxes = [box.bounding_box() for box in panel(page, "participation").locator("div.plot").all()]
    assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out(visit, report, scheme):
    page = visit(report, scheme=scheme)
    colours = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    background, text = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours)
    assert (background < 150 < 600 < text) if scheme == "dark" else (text < 150 < 600 < background)
    for name in TABS:
        page.click(f"#tab-{name}")
        panel(page, name).wait_for()
        assert page.evaluate(FAINT_TEXTS, 4.5) == []


def test_figures_follow_a_change_of_mode_and_go_to_paper_in_light(visit, report):
    page = visit(report, "participation")
    colour = "document.querySelector('#panel-participation .xtick text').style.fill"
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    wait_until(page, f"{colour} !== '{light}'")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(colour) == "rgb(68, 68, 68)"
    assert page.locator("[role=tabpanel]:visible").count() == len(TABS)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen", color_scheme="dark")
    assert page.locator("[role=tabpanel]:visible").count() == 1


def test_texts_of_a_plan_are_shown_as_they_are(visit, tmp_path):
    study = make_study(
        tmp_path,
        title=EVIL,
        data=({"title": EVIL, "distributions": [{"rule": "iid", "name": EVIL}]},),
        algorithms=({"name": "dwf", "title": EVIL}, {"name": "kfed"}),
    )
    write_report(*study, tmp_path / "report.html")
    page = visit(tmp_path / "report.html")
    assert page.locator("h1").text_content() == EVIL
    for name in TABS:
        page.click(f"#tab-{name}")
        panel(page, name).wait_for()
        assert page.locator("main img, main script").count() == 0
        assert panel(page, name).get_by_text(EVIL).count() > 0
    page.click("#tab-runs")
    assert EVIL in hover(page, panel(page, "runs").locator("div.plot .points path"))
    assert panel(page, "runs").locator(".xtick text").first.text_content() == EVIL
