"""The page in a real browser: figures, network, keyboard, colors, phone and print."""

import shutil
from dataclasses import replace

import pytest
from pages import draw_world, evaluation_of, state_of, summary_of

from uncurse import Affine
from uncurse.methods import DataRecord, FitRecord, Fitted, SegmentRecord
from uncurse.monitoring import judge
from uncurse.report import Method, evaluation_page, monitor_page

sync_api = pytest.importorskip("playwright.sync_api", reason="the page's tests drive a browser: pip install playwright")

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE = 120_000  # milliseconds; a browser starts slowly on a busy machine
HOSTILE = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(2)</script>"

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium found: apt-get install chromium, or install Google Chrome"),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    scores, alphas = draw_world()[0], [0.02, 0.05, 0.1]
    record = FitRecord(
        "vad", DataRecord(40_000, (SCRIPT,), (HOSTILE,), summary_of(scores)),
        DataRecord(5_000, ("s1",), ("clicks.parquet",), summary_of(scores[:5000] + 0.4)),
        lambda_=0.8, standard_error=0.003, command=SCRIPT,
        segments={f"{HOSTILE} {i}": SegmentRecord(0.7 + 0.02 * i, -2.0, 100) for i in range(5)},
    )  # fmt: skip
    line = Affine(0.8, -0.4)
    methods = [
        Method("as served", evaluation_of(alphas=alphas)),
        Method("vad.json", evaluation_of(0.8, -0.4, alphas), Fitted(line, record)),
        Method(HOSTILE, evaluation_of(0.9, -0.2, alphas), Fitted(line, replace(record, segments={}))),
        Method(SCRIPT, evaluation_of(0.7, -0.6, alphas)),
    ]
    methods = [replace(method, value=method.evaluation) for method in methods]
    path = tmp_path_factory.mktemp("page") / "report.html"
    facts = {"log": [HOSTILE, SCRIPT], HOSTILE: "column"}
    state = state_of(7, lambda day: 0.5 if day > 3 else 0.0, segments=(HOSTILE, SCRIPT))
    evaluation_page(methods, summary_of(scores), facts, value_name=HOSTILE).to_html(path)
    monitor_page(judge(state), SCRIPT).to_html(path.with_name("hostile.html"))
    for days in (1, 365):
        monitor_page(judge(state_of(days))).to_html(path.with_name(f"{days}.html"))
    return path


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS, timeout=PATIENCE)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, file):
    """Open the page; messages, dialogs and further requests are collected in `page.complaints`."""
    contexts = []

    def opened(*, width=1100, scripts=True, name=None, **options):
        target = (file if name is None else file.with_name(name)).as_uri()
        context = browser.new_context(viewport={"width": width, "height": 900}, java_script_enabled=scripts, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: page.complaints.append(f"error: {error}"))
        page.on("request", lambda request: page.complaints.append(f"request: {request.url}"))
        page.on("dialog", lambda dialog: (page.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(target)
        assert page.complaints.pop(0) == f"request: {target}"
        return page

    yield opened
    for context in contexts:
        context.close()


def drawn(page):
    """Size, marks and the overhang of text of each figure that is shown."""
    return page.evaluate(
        """() => [...document.querySelectorAll('svg[role=img]')].filter(s => s.getClientRects().length).map(s => {
            const box = s.getBoundingClientRect();
            const texts = [...s.querySelectorAll('text')].filter(t => t.textContent);
            const over = texts.map(t => t.getBoundingClientRect()).map(t =>
                Math.max(box.left - t.left, t.right - box.right, box.top - t.top, t.bottom - box.bottom));
            return {width: box.width, height: box.height, marks: s.querySelectorAll('path,rect,line').length,
                    over: Math.max(...over),
                    size: Math.min(...texts.map(t => t.getBoundingClientRect().height))};
        })"""
    )


@pytest.mark.parametrize("width", [1100, 390])
@pytest.mark.parametrize(
    ("name", "count"),
    [
        (None, 3),  # errors, map, reliability
        ("1.html", 3),  # since the fit only
        ("365.html", 3),
    ],
)
def test_every_figure_is_drawn_and_its_labels_fit(open_page, width, name, count):
    page = open_page(width=width, name=name)
    figures = drawn(page)
    assert len(figures) == count
    for figure in figures:
        assert figure["width"] > 250
        assert figure["height"] > 60
        assert figure["marks"] > 5
        assert figure["over"] <= 2, "a label does not fit into its figure"
        assert figure["size"] >= 11, "a label is too small to read"
    assert page.complaints == []


@pytest.mark.parametrize(("width", "name"), [(1100, None), (390, None), (320, None), (320, "365.html")])
def test_the_page_does_not_scroll_sideways(open_page, width, name):
    page = open_page(width=width, name=name)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", [None, "hostile.html"])
def test_names_stay_text_and_nothing_runs(open_page, name):
    page = open_page(name=name)
    text = page.inner_text("body")
    assert HOSTILE in text
    assert SCRIPT in text
    assert page.locator("img, script").count() == 0
    page.wait_for_timeout(300)
    assert page.complaints == []


def test_the_keyboard_reaches_every_control(open_page):
    page = open_page()
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("(e => e.id || e.tagName + '.' + e.className)(document.activeElement)"))
        if len(reached) > 1 and reached[-1].startswith("BODY"):
            break
    assert {"theme-auto", "SUMMARY.", "DIV.scroll"} <= set(reached)
    page.focus("summary >> nth=0")
    page.keyboard.press("Enter")
    assert page.locator("details[open] table").first.is_visible()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus must be visible"


def colors(page):
    """Luminance of the page's ground, its text and the first line of the first figure."""
    return page.evaluate(
        """() => {
            const light = c => { const [r, g, b] = c.match(/[0-9.]+/g).map(Number).map(v => (v /= 255) <= 0.04045
                ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
            const figure = [...document.querySelectorAll('svg[role=img]')].find(s => s.getClientRects().length);
            const style = e => getComputedStyle(e);
            return {ground: light(style(document.body).backgroundColor), text: light(style(document.body).color),
                    label: light(style(figure.querySelector('text')).fill),
                    line: light(style(figure.querySelector('path[style*="stroke-width: 2"]')).stroke)};
        }"""
    )


def assert_readable(found):
    for name, least in (("text", 7), ("label", 4.5), ("line", 3)):
        high, low = sorted((found[name], found["ground"]), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= least, name


def test_light_and_dark_are_readable_and_the_switch_overrides_the_system(open_page):
    page = open_page(color_scheme="light")
    light = colors(page)
    page.emulate_media(color_scheme="dark")
    dark = colors(page)
    assert light["ground"] > 0.8
    assert dark["ground"] < 0.05
    assert_readable(light)
    assert_readable(dark)
    page.focus("#theme-auto")
    page.keyboard.press("ArrowRight")
    assert colors(page) == light
    page.emulate_media(color_scheme="light")
    page.keyboard.press("ArrowRight")
    assert colors(page) == dark


def test_the_page_needs_no_script(open_page):
    page = open_page(scripts=False)
    folded = page.locator("details:has(table)").first
    assert not folded.locator("table").is_visible()
    folded.locator("summary").click()
    assert folded.locator("table").is_visible()


def test_print_is_light_and_has_no_controls(open_page):
    page = open_page(color_scheme="dark")
    page.emulate_media(media="print")
    assert colors(page)["ground"] > 0.8
    assert_readable(colors(page))
    assert not page.locator("fieldset").first.is_visible()
    assert page.locator("dl.facts").is_visible()
    assert page.pdf(format="A4")[:5] == b"%PDF-"
    assert page.complaints == []
