"""The page of a market in a real browser: figures, labels, widths and print."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("playwright.sync_api", reason="the page's tests drive a browser: pip install playwright")

from test_page import BROWSER, browser, drawn, open_page  # noqa: F401  # fixtures
from uncurse_lab.auction import Account, Market, Outcome, Settings
from uncurse_lab.auction.loop import LOOP_DEFAULT, LoopOutcome, World
from uncurse_lab.auction.page import _interval, render
from uncurse_lab.auction.policies import DEFAULT
from uncurse_lab.auction.results import Results

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium found: apt-get install chromium, or install Google Chrome"),
]
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    rng = np.random.default_rng(0)

    def account():
        error, won = rng.normal(0.1, 0.1), rng.uniform(400, 600)
        return Account(1000, won, 6 * (1 + error), 6.0, 18.0, 30 * (1 + error), 30.0, 0.2, 1.1, 93.0, 95.0)

    def outcome(candidates):
        accounts = {name: (account(), account(), account()) for name in (*DEFAULT, "truth")}
        return Outcome(Market(candidates=candidates), Settings(repetitions=3), accounts, {}, ((1000, 20),))

    days = tuple(range(3, 15))
    runs = {name: tuple(tuple(account() for _ in days) for _ in range(3)) for name in (*LOOP_DEFAULT, "truth")}
    loop = LoopOutcome(World(), 0.02, "shown", days, runs, {})
    sizes = (1, 10, 100, 1000)
    results = Results(outcome(100), {"candidates": tuple((float(n), outcome(n)) for n in sizes)}, loop)
    path = tmp_path_factory.mktemp("page") / "auction.html"
    path.write_text(render(results, f"uncurse-lab auction {HOSTILE}"), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1100, 390])
def test_every_figure_is_drawn_and_its_labels_fit(open_page, width):  # noqa: F811
    page = open_page(width=width)
    figures = drawn(page)
    assert len(figures) == 4  # overcharge, surplus, by number of ads, closed loop
    for figure in figures:
        assert figure["width"] > 250
        assert figure["height"] > 60
        assert figure["titles"] > 0
        assert figure["over"] <= 2, "a label does not fit into its figure"
        assert figure["size"] >= 11, "a label is too small to read"
    assert page.complaints == []


def test_the_page_fits_a_phone_and_paper_and_runs_nothing(open_page):  # noqa: F811
    page = open_page(width=390)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "advertisers are charged" in page.inner_text(".says")
    assert HOSTILE in page.inner_text("body")
    assert page.locator("img, script").count() == 0
    page.emulate_media(media="print")
    assert not page.locator("fieldset").first.is_visible()
    assert page.complaints == []


def test_intervals_over_few_repetitions_are_those_of_students_distribution():
    for repetitions, reach in ((3, 4.302653), (5, 2.776445)):  # of published tables
        outcome = SimpleNamespace(settings=SimpleNamespace(repetitions=repetitions))
        low, high = _interval(0.2, 0.01, outcome)
        assert (low, high) == pytest.approx((0.2 - 0.01 * reach, 0.2 + 0.01 * reach), rel=1e-6)
