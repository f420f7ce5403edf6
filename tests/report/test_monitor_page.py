"""Numbers, sentences and charts of the page of a monitor, and the commands that write it."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from pages import MAP, Reader, section, state_of, tables, written

from uncurse.methods import DataRecord, FitRecord, Fitted
from uncurse.monitoring import MonitorState, judge
from uncurse.monitoring.sequential import LabelSums, intervals
from uncurse.monitoring.state import Day, map_digest
from uncurse.monitoring.verdict import LambdaChange, ScoreChange
from uncurse.report import monitor_page


def page_of(state, tolerance=0.0):
    return monitor_page(judge(replace(state, tolerance=tolerance)), "map.json")


def axes(page, name):
    (ax,) = page.figures()[name].axes
    return ax


def line(ax, label):
    return next(line for line in ax.lines if line.get_label() == label)


def test_every_day_has_its_own_interval_and_the_confidence_sequence_of_all_days_so_far():
    state = state_of(5)
    sums = [day.sums for _, day in state.ordered]
    total = sum(sums[1:], sums[0])
    page = page_of(state)
    ax = axes(page, "daily-calibration")
    bars, band = ax.collections
    low, high = ax.get_ylim()
    wanted = np.clip(intervals(sums, fixed=True), low, high)
    np.testing.assert_allclose([bar[:, 1] for bar in bars.get_segments()], wanted)
    ends = band.get_paths()[0].vertices
    ends = ends[ends[:, 0] == ends[:, 0].max(), 1]
    assert (min(ends), max(ends)) == pytest.approx(intervals([total])[0])
    np.testing.assert_allclose(line(ax, "each day").get_ydata(), np.clip([one.error for one in sums], low, high))
    assert line(ax, "since the fit").get_ydata()[-1] == pytest.approx(total.error)
    (table,) = tables(page, "daily-error")
    assert [row[0] for row in table.rows] == [name for name, _ in state.ordered]
    assert table.rows[-1][5] == f"{100 * wanted[-1, 0]:+.0f}% to {100 * wanted[-1, 1]:+.0f}%"


def test_the_newest_days_are_shown_and_all_count():
    state = state_of(900, rows=0.1)
    page = page_of(state)
    (table,) = tables(page, "daily-error")
    assert [row[0] for row in table.rows] == [name for name, _ in state.ordered[-400:]]
    assert "The newest 400 of 900 days are shown." in section(page, "daily-error").blocks[0].caption
    total = sum(day.sums.predicted for _, day in state.ordered) / sum(day.sums.observed for _, day in state.ordered)
    assert line(axes(page, "daily-calibration"), "since the fit").get_ydata()[-1] == pytest.approx(total - 1)


def test_days_of_few_rows_do_not_stretch_the_axis_and_are_drawn_at_its_edge():
    days = dict(state_of(20).days)
    days["2026-11-21"] = Day(LabelSums.of([0.01, 0.1], [0, 9], [3, 12]), -3.0, 1.0)  # an error of −86%
    days["2026-11-22"] = Day(LabelSums.of([0.01, 0.1], [1, 0], [500, 3]), -3.0, 1.0)  # +430%
    ax = axes(page_of(replace(state_of(20), days=days)), "daily-calibration")
    low, high = ax.get_ylim()
    assert -0.7 < low < 0 < high < 1
    assert list(line(ax, "each day").get_ydata()[-2:]) == [low, high]


@pytest.mark.parametrize(
    ("days", "hours", "labels", "title"),
    [
        (1, 24, ["01 Nov"], "2026-11-01, UTC"),
        (30, 24, [f"{day:02} Nov" for day in range(1, 30, 4)], "2026-11-01 to 2026-11-30, UTC"),
        (6, 8, ["01 Nov 00:00", "01 Nov 08:00", "01 Nov 16:00"], "2026-11-01T00:00 to 2026-11-02T16:00, UTC"),
    ],
)
def test_the_axis_of_time_has_a_tick_at_days_that_were_seen(days, hours, labels, title):
    ax = axes(page_of(state_of(days, rows=0.1, hours=hours)), "daily-scores")
    assert [label.get_text() for label in ax.get_xticklabels()][: len(labels)] == labels
    assert ax.get_xlabel() == title
    low, high = ax.get_xlim()
    assert low < min(ax.get_xticks()) <= max(ax.get_xticks()) < high


def test_the_evidence_has_lines_at_20_and_5_and_ends_at_100():
    state = state_of(3)
    ax = axes(page_of(state), "evidence")
    alarm, watch, found = (line.get_ydata() for line in ax.lines)
    assert (alarm[0], watch[0]) == pytest.approx((20, 5))
    assert found[-1] == pytest.approx(judge(state).since_fit.e_value)
    assert ax.get_yscale() == "linear"
    wrong = page_of(state_of(20, lambda day: 0.9))
    assert max(axes(wrong, "evidence").lines[-1].get_ydata()) == pytest.approx(100)
    assert section(wrong, "evidence").title == "Evidence against the map: > 1,000,000"


# ---------------------------------------------------------------------------- sentences


def test_the_headline_is_the_verdict_and_its_numbers_agree():
    keep = page_of(state_of(3))
    assert re.fullmatch(
        r"Keep map.json. Its predictions are [\d.]+% too (high|low), within noise of the truth.", keep.headline
    )
    assert (keep.decision, keep.emphasis) == ("keep", "Keep")
    assert "since the fit" in keep.numbers[0].name
    alarm = page_of(state_of(12, lambda day: 0.4 if day >= 6 else 0.0))
    assert re.fullmatch(r"Alarm: since 2026-11-07, the predictions of map.json are [\d.]+% too high\.", alarm.headline)
    assert re.search(r" The alarm was raised on 2026-11-\d\d and stays", alarm.note)
    assert "since 2026-11-07" in alarm.numbers[0].name
    size = float(re.search(r"([\d.]+)% too high", alarm.headline)[1])
    assert float(alarm.numbers[0].value.strip("+%")) == pytest.approx(size, abs=0.5)


def test_the_error_of_the_served_scores_is_beside_that_of_the_map():
    state = state_of(3)
    days = {name: replace(day, sums=replace(day.sums, served=2 * day.sums.observed)) for name, day in state.ordered}
    page = page_of(replace(state, days=days))
    assert (page.numbers[1].name, page.numbers[1].value) == ("as served, since the fit", "+100.0%")
    assert [section(page, name).blocks[0].header[4] for name in ("ranges",)] == ["as served"]


def test_changes_of_scores_and_lambda_are_stated():
    verdict = judge(
        state_of(2), scores=ScoreChange("pool of the fit", 0.4, 1.1, 0.05), shrinkage=LambdaChange(0.9, 0.8, -5.0)
    )
    page = monitor_page(verdict, "m")
    assert page.headline.startswith("Watch m. λ changed from 0.900 to 0.800 (-5.0 standard errors)")
    scores, shrinkage = section(page, "served-scores").prose
    assert scores.startswith("Against the pool of the fit, the mean of the newest scores moved by +0.40 standard")
    assert shrinkage == "λ went from 0.900 at the fit to 0.800, -5.0 standard errors."


def test_the_note_says_what_to_do_and_what_is_missing(tmp_path):
    few, many = (page_of(state_of(2, rows=rows)).note for rows in (1, 100))
    assert few.startswith("In 2 days with 10,600 rows, 200 positives were predicted and ")
    assert "more positives would find or exclude an error of 5%" in few
    assert "enough labels to find an error of 5%" in many
    wrong = state_of(5, lambda day: 0.9)
    assert page_of(wrong).next_step == "refresh the map, or fit it again"
    page = monitor_page(judge(wrong), "map.json", next_step="`uncurse refresh map.json`, with new rows")
    assert "<p>Next: <code>uncurse refresh map.json</code>, with new rows.</p>" in written(page, tmp_path / "r.html")
    assert "up to 2.0% are accepted" in page_of(state_of(2), tolerance=0.02).note


# ---------------------------------------------------------------------------- pages


@pytest.mark.parametrize("days", [1, 365])
def test_a_page_of_any_number_of_days(tmp_path, days):
    content = written(page_of(state_of(days, segments=("a", "b"))), tmp_path / "r.html")
    reader = Reader(content)
    assert reader.open == []
    for heading in ("Calibration error by day", "Evidence against the map", "Served scores by day",
                    "By range", "By segment", "Terms", "95% confidence sequence", "as served"):  # fmt: skip
        assert heading in reader.text
    assert "noise floor" not in reader.text
    assert "NaN" not in content
    assert len(content.encode()) < 1_500_000


def test_a_page_without_a_positive_label(tmp_path):
    state = MonitorState(map_digest(MAP), {"2026-11-01": Day(LabelSums.of([0.01], [0], [10]), -4.6, 0.0)})
    content = written(page_of(state), tmp_path / "r.html")
    assert "undefined" in content
    assert "95% confidence sequence unknown" in content


def test_segments_with_the_most_evidence_come_first():
    sums = {f"site {i}": LabelSums.of([0.1], [80.0 + i], [1_000]) for i in range(60)}
    (table,) = tables(page_of(replace(state_of(3), segments=sums)), "segments")
    assert len(table.rows) == 40
    assert table.rows[0][0] == "site 59"
    assert "40 of 60 segments" in table.caption


# ---------------------------------------------------------------------------- commands


@pytest.fixture
def logs(tmp_path):
    """A map and logs of three days in the folder of the commands."""
    record = FitRecord("vad", DataRecord(20_000, ("s0", "s1")), command="uncurse fit pool.parquet")
    Fitted(MAP, record).save(tmp_path / "map.json")
    rng = np.random.default_rng(0)
    for day in range(1, 4):
        logits = rng.normal(-2, 1, 5_000)
        clicks = (rng.random(5_000) < 1 / (1 + np.exp(-logits))).astype(int)
        pl.DataFrame({"s0": logits, "click": clicks}).write_parquet(tmp_path / f"{day}.parquet")
    return tmp_path


def test_monitor_writes_the_page(run, logs):
    for day in (1, 2):
        options = ("--label", "click", "--state", "s.json", "--day", f"2026-11-0{day}", "--report", "r.html")
        run("monitor", "map.json", f"{day}.parquet", *options)
    content = (logs / "r.html").read_text(encoding="utf-8")
    assert ">Keep</span> map.json. " in content
    assert "Next: the same command with the next rows." in content
    assert "In 2 days with 10,000 rows" in content
    assert "<code>uncurse fit pool.parquet</code>" in content
    assert "--day 2026-11-02 --report r.html</code>" in content
    assert "Tolerance" not in content
    assert str(logs) not in content
    message = run("monitor", "map.json", "3.parquet", "--label", "click", "--report", "r.txt", code=2)
    assert "--report is r.txt" in message


WITHOUT = """
import sys
for name in ("matplotlib", "jinja2", "markupsafe"):
    sys.modules[name] = None
from uncurse.cli import main
sys.argv = ["uncurse", *sys.argv[1:]]
main()
"""


def test_without_the_packages_of_the_report_no_row_is_counted(logs):
    words = ["monitor", "map.json", "1.parquet", "--label", "click", "--state", "s.json", "--report", "r.html"]
    done = subprocess.run([sys.executable, "-c", WITHOUT, *words], capture_output=True, text=True, cwd=logs)
    assert done.returncode == 2
    assert "pip install 'uncurse[report]'" in done.stderr
    assert not (logs / "s.json").exists()
