"""The report on a map since its fit: numbers, sentences, charts and the page."""

import math
import re
import subprocess
import sys
from dataclasses import replace
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from test_report_html import HOSTILE, Reader
from uncurse import Affine, monitor
from uncurse.evidence import from_arrays
from uncurse.monitoring import Day, LabelSums, LambdaChange, MonitorState, ScoreChange, judge
from uncurse.monitoring.sequential import intervals
from uncurse.monitoring.state import map_digest
from uncurse.report import Monitored, MonitorReport, figures, monitored, since_fit

MAP = Affine(1.0, 0.0)
F, N = np.array([0.01, 0.03, 0.1]), np.array([4_000, 1_000, 300])


def state_of(days, error=lambda day: 0.0, rows=1.0, hours=24, seed=0, groups=()):
    """A state of so many days with 100 positives each, from sums instead of rows."""
    rng, found, sums = np.random.default_rng(seed), {}, []
    for day in range(days):
        n = np.maximum((N * rows).astype(int), 1)
        observed = rng.binomial(n, F / (1 + error(day)))
        sums.append(LabelSums.of(F, observed, n))
        time = datetime(2026, 11, 1) + timedelta(hours=hours * day)
        name = time.date().isoformat() if hours == 24 else time.isoformat(timespec="minutes")
        found[name] = Day(sums[-1], -3.0 + 0.01 * day, 1.0, ("log.parquet",))
    total = sum(sums[1:], sums[0])
    return MonitorState(map_digest(MAP), found, {"1% to 2%": total}, dict.fromkeys(groups, total))


def shown(state, name="map.json", tolerance=0.0):
    return Monitored(judge(state, tolerance=tolerance), name, tolerance)


def written(report, path):
    report.to_html(path)
    return path.read_text(encoding="utf-8")


# ---------------------------------------------------------------------------- numbers


def test_every_day_has_its_own_interval_and_the_confidence_sequence_of_all_days_so_far():
    state = state_of(5)
    found = monitored.points(shown(state))
    sums = [day.sums for _, day in state.ordered]
    assert [point.name for point in found] == [name for name, _ in state.ordered]
    total = None
    for point, one in zip(found, sums, strict=True):
        total = one if total is None else total + one
        assert point.own == pytest.approx(intervals([one], fixed=True)[0])
        assert point.sequence == pytest.approx(intervals([total])[0])
    assert math.exp(found[-1].log_e) == pytest.approx(judge(state).since_fit.e_value)
    (ax,) = figures.error_figure(found, None, figures.WIDE).axes
    bars, band = ax.collections
    np.testing.assert_allclose([bar[:, 1] for bar in bars.get_segments()], intervals(sums, fixed=True))
    ends = band.get_paths()[0].vertices
    ends = ends[ends[:, 0] == found[-1].time, 1]
    assert (min(ends), max(ends)) == pytest.approx(intervals([total])[0])
    assert ax.lines[-1].get_ydata()[-1] == pytest.approx(total.error)


def test_more_days_than_pixels_are_added_up():
    state = state_of(900, rows=0.1)
    found = monitored.points(shown(state))
    assert len(found) == 300
    assert found[0].name == "2026-11-01 to 2026-11-03"
    assert sum(point.day.sums.rows for point in found) == pytest.approx(judge(state).since_fit.rows)
    assert found[-1].running.observed == sum(day.sums.observed for _, day in state.ordered)
    section = since_fit.sections(shown(state))[0]
    assert "There are 900 days: each point adds up several of them." in section.blocks[0].caption


def test_a_day_of_few_rows_does_not_stretch_the_axis():
    state = state_of(10)
    days = dict(state.days)
    days["2026-11-20"] = Day(LabelSums.of(F, [0, 0, 9], [3, 3, 12]), -3.0, 1.0)  # an error of −86%
    days["2026-11-21"] = Day(LabelSums.of(F, [1, 0, 0], [500, 3, 3]), -3.0, 1.0)  # +440%
    found = monitored.points(shown(replace(state, days=days)))
    low, high = figures.error_domain(found)
    assert -0.7 < low < 0 < high < 1
    lines = figures.error_figure(found, None, figures.WIDE).axes[0].lines
    beyond = {line.get_marker(): list(line.get_ydata()) for line in lines}
    assert (beyond["v"], beyond["^"]) == ([low], [high])
    caption = since_fit.sections(shown(replace(state, days=days)))[0].blocks[0].caption
    assert caption.endswith("Triangles: 2 days outside of the axis.")


@pytest.mark.parametrize(
    ("days", "hours", "frame", "labels", "title"),
    [
        (1, 24, figures.WIDE, ["2026-11-01"], "day (2026, UTC)"),
        (7, 24, figures.NARROW, ["2026-11-01", "2026-11-03", "2026-11-05", "2026-11-07"], "day (2026, UTC)"),
        (30, 24, figures.WIDE, [f"2026-11-{day:02}" for day in range(1, 30, 4)], "day (2026, UTC)"),
        (365, 24, figures.NARROW, ["2026-11-01", "2027-02-01", "2027-05-01", "2027-08-01"], "day (2026–2027, UTC)"),
        (6, 8, figures.NARROW, ["2026-11-01", "2026-11-02"], "time (2026, UTC)"),
    ],
)  # fmt: skip
def test_the_axis_of_time_has_a_tick_at_days_that_were_seen(days, hours, frame, labels, title):
    found = monitored.points(shown(state_of(days, rows=0.1, hours=hours)))
    (ax,) = figures.score_figure(found, frame).axes
    assert [date.fromtimestamp(tick / 1000 + 43_200).isoformat() for tick in ax.get_xticks()] == labels
    assert ax.get_xlabel() == title
    low, high = ax.get_xlim()
    assert low < found[0].time <= found[-1].time < high


def test_the_evidence_has_a_line_at_20_and_a_log_scale():
    found = monitored.points(shown(state_of(3)))
    (ax,) = figures.evidence_figure(found, figures.WIDE).axes
    alarm, watch, line, _ = (line.get_ydata() for line in ax.lines)
    assert [alarm[0], watch[0]] == pytest.approx([math.log10(20), math.log10(5)])
    np.testing.assert_allclose(line, [point.log_e / math.log(10) for point in found])
    wrong = monitored.points(shown(state_of(20, lambda day: 0.5)))
    (ax,) = figures.evidence_figure(wrong, figures.WIDE).axes
    assert len(ax.lines) == 3  # so much evidence leaves no room for the line of "watch"
    assert any(label.get_text().startswith("10") for label in ax.get_yticklabels())


# ---------------------------------------------------------------------------- sentences


def test_the_headline_is_the_verdict():
    keep = MonitorReport(shown(state_of(3)))
    assert keep.headline.startswith("Keep map.json. No evidence against the map: predictions are ")
    assert re.search(r"\(95% confidence sequence −\d+\.\d% to \+\d+\.\d%\)\.$", keep.headline)
    refit = MonitorReport(shown(state_of(12, lambda day: 0.4 if day >= 6 else 0.0)))
    assert refit.headline.startswith("Refit map.json. Since 2026-11-07 predictions are ")
    assert re.search(r"; the alarm was raised on 2026-11-\d\d\.$", refit.headline)
    styles = [style for style, _ in monitored.sentence(shown(state_of(3)))]
    assert styles == ["keep", "text", "aside", "text"]


def test_the_headline_of_a_changed_lambda_begins_with_it():
    verdict = judge(state_of(2), scores=ScoreChange("pool", 0.4, 1.1, 0.05), shrinkage=LambdaChange(0.9, 0.8, -5.0))
    report = MonitorReport(Monitored(verdict, "m"))
    assert report.headline.startswith("Watch m. λ changed from 0.900 to 0.800 (-5.0 standard errors)")
    prose = since_fit.sections(report.since_fit)[2].prose
    assert prose[1].startswith("Against the pool of the fit, the mean of the newest scores moved by +0.40 standard")
    assert prose[2] == "λ went from 0.900 at the fit to 0.800, −5.0 standard errors."


def test_the_meaning_says_what_to_do_and_what_is_missing():
    few, many = (monitored.meaning(shown(state_of(2, rows=rows))) for rows in (1, 100))
    assert few.startswith("In 2 days with 10,600 rows, 200 positives were predicted and ")
    assert "more positives would find or exclude an error of 5%" in few
    assert "enough labels to find an error of 5%" in many
    wrong = monitored.meaning(shown(state_of(5, lambda day: 0.9)))
    assert "Refresh the map with labels from after the change, or fit it again, and start a new state" in wrong
    assert "up to 2.0% are accepted" in monitored.meaning(shown(state_of(2), tolerance=0.02))


def test_the_tolerance_counts_in_the_evidence():
    state = state_of(8, lambda day: 0.3)
    assert shown(state).verdict.decision == "refit"
    accepted = shown(state, tolerance=0.5)
    assert accepted.verdict.decision == "keep"
    assert monitored.points(accepted)[-1].log_e < math.log(5)


def test_unknown_ends_are_named():
    nothing = monitored.span_words(-1.0, math.inf)
    assert (nothing, monitored.span_words(-1.0, 2.0)) == ("unknown", "+200.0% or less")
    assert monitored.error_text(float("nan"), -1.0, math.inf) == "undefined"


# ---------------------------------------------------------------------------- pages


@pytest.mark.parametrize("days", [1, 60, 365])
def test_a_page_of_any_number_of_days(tmp_path, days):
    content = written(MonitorReport(shown(state_of(days, groups=("a", "b")))), tmp_path / "r.html")
    reader = Reader(content)
    assert reader.open == []
    for heading in ("Calibration error by day", "Evidence against the map", "Served scores by day",
                    "By range of the prediction", "By group", "Terms", "95% confidence sequence"):  # fmt: skip
        assert heading in reader.text
    assert "noise floor" not in reader.text
    drawn = [a for tag, a in reader.elements if tag == "svg" and a.get("role") == "img"]
    assert len(drawn) == 6
    assert all(len(a["aria-label"]) > 20 for a in drawn)
    assert "http:" not in content
    assert "NaN" not in content
    assert len(content.encode()) < 1_500_000


def test_a_page_without_a_positive_label(tmp_path):
    state = MonitorState(map_digest(MAP), {"2026-11-01": Day(LabelSums.of([0.01], [0], [10]), -4.6, 0.0)})
    content = written(MonitorReport(shown(state)), tmp_path / "r.html")
    assert "undefined" in content
    assert "95% confidence sequence unknown" in content


def test_groups_with_the_most_evidence_come_first_and_names_stay_text(tmp_path):
    state = state_of(3)
    sums = {f"{HOSTILE[i % len(HOSTILE)]} {i}": LabelSums.of([0.1], [80.0 + i], [1_000]) for i in range(60)}
    state = replace(state, groups=sums, days={day: replace(one, sources=(HOSTILE[0],)) for day, one in state.ordered})
    report = MonitorReport(shown(state, HOSTILE[1]), None, {HOSTILE[0]: HOSTILE}, HOSTILE[2])
    table = since_fit.sections(report.since_fit)[-1].blocks[0]
    assert len(table.rows) == 40
    assert table.rows[0][0] == f"{HOSTILE[59 % len(HOSTILE)]} 59"
    assert "40 of 60 groups" in table.caption
    reader = Reader(written(report, tmp_path / "r.html"))
    assert reader.open == []
    assert not {"img", "script"} & {tag for tag, _ in reader.elements}
    for name in HOSTILE:
        assert name in reader.text


def test_figures_of_the_monitor_are_saved_too(tmp_path):
    files = MonitorReport(shown(state_of(3))).save_figures(tmp_path)
    assert sorted({file.stem for file in files}) == ["daily-calibration", "daily-scores", "evidence"]


# ---------------------------------------------------------------------------- commands


@pytest.fixture
def logs(tmp_path):
    """Two maps and logs of three days in the folder of the commands."""
    import polars as pl

    from uncurse.debias import DataRecord, FitRecord

    record = FitRecord("vad", DataRecord(20_000, ("s0", "s1")), command="uncurse fit pool.parquet")
    MAP.save(tmp_path / "map.json", record.to_dict())
    Affine(0.9, -0.2).save(tmp_path / "other.json", record.to_dict())
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
    assert "Keep map.json. " in content
    assert "Calibration error since the fit (2 days)" in content
    assert "<code>uncurse fit pool.parquet</code>" in content
    assert "--day 2026-11-02 --report r.html</code>" in content
    assert "Tolerance" not in content
    run("monitor", "map.json", "3.parquet", "--label", "click", "--tolerance", "2%", "--report", "r.html")
    assert "Errors of the odds up to 2.0% are accepted." in (logs / "r.html").read_text(encoding="utf-8")
    message = run("monitor", "map.json", "3.parquet", "--label", "click", "--report", "r.txt", code=2)
    assert "--report is r.txt; name a .html or .htm file" in message


def test_evaluate_shows_the_state_of_one_of_its_maps(run, logs):
    for day in (1, 2):
        options = ("--label", "click", "--state", "s.json", "--day", f"2026-11-0{day}")
        run("monitor", "map.json", f"{day}.parquet", *options)
    before = (logs / "s.json").read_text()
    common = ("evaluate", "3.parquet", "--score", "s0", "--label", "click", "--alpha", "10%")
    run(*common, "--map", "other.json", "--map", "map.json", "--state", "s.json", "--report", "r.html")
    content = (logs / "r.html").read_text(encoding="utf-8")
    assert '<h2 id="since-fit">Since the fit</h2>' in content
    assert "<p>Keep map.json. No evidence against the map" in content
    assert "The verdict is from these days" in content
    assert "<h3>Evidence against the map</h3>" in content
    assert "<dt>e-value</dt>" in content
    assert "noise floor" in content
    elements = Reader(content).elements
    ids = [a["id"] for _, a in elements if "id" in a]
    regions = [a["aria-label"] for _, a in elements if a.get("role") == "region"]
    assert len(ids) == len(set(ids))
    assert len(regions) == len(set(regions))
    assert (logs / "s.json").read_text() == before
    run(*common, "--map", "map.json", "--report", "r.html")
    assert "Since the fit" not in (logs / "r.html").read_text(encoding="utf-8")
    for options, message in (
        (("--map", "other.json", "--state", "s.json", "--report", "r.html"),
         "--state s.json belongs to another map than other.json; pass the map that was monitored"),
        (("--scale", "logit", "--state", "s.json", "--report", "r.html"), "pass its file with --map"),
        (("--map", "map.json", "--state", "s.json"), "--state is shown in the report; pass --report FILE"),
        (("--map", "map.json", "--tolerance", "2%"), "--tolerance is for the verdict of --state"),
        (("--map", "map.json", "--state", "absent.json", "--report", "r.html"), "absent.json"),
        (("--map", "map.json", "--state", "map.json", "--report", "r.html"), "pass the state of a monitor"),
    ):  # fmt: skip
        assert message in run(*common, *options, code=2)


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
    assert "the report needs matplotlib and jinja2; pip install 'uncurse[report]'" in done.stderr
    assert not (logs / "s.json").exists()


def test_the_report_of_rows_is_that_of_their_state():
    rng = np.random.default_rng(0)
    logits = rng.normal(-2, 1, 5_000)
    labels = rng.random(5_000) < 1 / (1 + np.exp(-logits))
    verdict = monitor(MAP, from_arrays(logits[:, None], labels), day="2026-11-01")
    (point,) = monitored.points(Monitored(verdict))
    assert (point.day.score_mean, point.day.score_sd) == pytest.approx((logits.mean(), logits.std()), rel=1e-6)
    assert point.running.error == verdict.since_fit.error
