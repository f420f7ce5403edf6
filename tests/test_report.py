"""Numbers, sentences and files of the report."""

import errno
import os
import struct
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from uncurse import Affine, Cells, UncurseError, evaluate
from uncurse.debias.records import DataRecord, FitRecord, GroupRecord
from uncurse.metrics import Estimate, evaluate_cells
from uncurse.report import Method, Report, figures, fits, measurements, prose
from uncurse.report.provenance import summarize_scores

ALPHAS = [0.02, 0.03, 0.05, 0.1, 1.0]


def logits(rows=60_000, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-2.0, 0.8, rows)
    return truth + rng.normal(0, 0.4, rows), rng.random(rows) < expit(truth)


@pytest.fixture(scope="module")
def world():
    scores, clicks = logits()
    cells = Cells().update(scores, clicks)
    return cells, summarize_scores(cells)


@pytest.fixture(scope="module")
def methods(world):
    cells, summary = world
    groups = {f"placement {i}": GroupRecord(0.7 + 0.1 * i, -2.0, 100 + i) for i in range(3)}
    pool = DataRecord(summary.rows, ("s1", "s2"), ("pool.parquet",), summary)
    record = FitRecord("vad", pool, lambda_=0.8, standard_error=0.002, groups=groups)
    return [
        Method("as served", evaluate_cells(cells, None, ALPHAS)),
        Method("vad.json", evaluate_cells(cells, Affine(0.8, -0.4), ALPHAS), record),
    ]


def with_error(methods, error, standard_error, rows=slice(None)):
    """Return the evaluation of the first method with another calibration error."""
    old = methods[0].evaluation
    value = Estimate(error, standard_error)
    return replace(old, rows=tuple(replace(row, calibration_error=value) for row in old.rows[rows]))


# ---------------------------------------------------------------------------- headline


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            (0.123, 0.01), (-0.004, 0.01),
            "On the top 2%, the scores over-predict by 12.3% (95% interval +10.3% to +14.3%). After map.json, they "
            "have a calibration error of −0.4% (−2.4% to +1.6%), consistent with zero.",
        ),
        ((-0.05, 0.01), None, "On the top 2%, the scores under-predict by 5.0% (95% interval −7.0% to −3.0%)."),
        ((0.001, 0.0001), None, "On the top 2%, the scores over-predict by 0.10% (95% interval +0.08% to +0.12%)."),
    ],
)  # fmt: skip
def test_the_headline_states_the_error_before_and_after(methods, before, after, sentence):
    given = [Method("as served", with_error(methods, *before))]
    if after is not None:
        given.append(Method("map.json", with_error(methods, *after)))
    assert Report(given).headline == sentence


def test_the_headline_is_about_the_first_of_several_maps_not_the_best(methods):
    errors = {"as served": 0.2, "a": 0.05, "b": -0.01, "c": 0.02}
    given = [Method(name, with_error(methods, e, 0.001, slice(1))) for name, e in errors.items()]
    headline = Report(given, selection="top 1 of each request").headline
    assert headline.startswith("On the top 1 of each request, the scores over-predict by 20.00%")
    assert "After a (first of 3 maps), they over-predict by 5.00% (" in headline
    assert "After b" not in headline


def test_the_headline_is_about_the_value_if_it_is_known(methods):
    given = [Method("as served", methods[0].evaluation, value=with_error(methods, 0.2, 0.01))]
    start = "On the top 2%, weighted by revenue, the scores over-predict by 20.0% (95% interval +18.0% to +22.0%)."
    assert Report(given, value_name="revenue").headline == start


def test_a_share_without_a_positive_label_is_skipped(tmp_path):
    p = np.linspace(0.01, 0.5, 200)
    for y in ((np.arange(200) % 5 == 0) & (np.arange(200) < 190), np.zeros(200, int)):
        with pytest.warns(UserWarning, match="has no positive label"):
            result = evaluate(y, p, [0.02, 0.5])
        report = Report([Method("a", result), Method("b", result)])
        expected = "On the top 50%" if y.any() else "No selection has a positive label"
        assert report.headline.startswith(expected)
        report.to_html(tmp_path / "r.html")
        page = (tmp_path / "r.html").read_text(encoding="utf-8")
        assert "n/a" in page
        assert expected in page


# ---------------------------------------------------------------------------- sections about the evaluation


def test_the_chart_of_errors_has_the_95_percent_interval(methods):
    section = measurements.calibration_error(Report(methods))
    (ax,) = section.blocks[0].chart(figures.WIDE).axes
    errors = [row.calibration_error for row in methods[1].evaluation.rows]
    line = next(line for line in ax.lines if line.get_label() == "vad.json")
    np.testing.assert_allclose(line.get_ydata(), errors)
    band = ax.collections[1].get_paths()[0].vertices
    for alpha, error in zip(ALPHAS, errors, strict=True):
        ends = band[np.isclose(band[:, 0], alpha), 1]
        assert np.ptp(ends) == pytest.approx(2 * 1.959964 * error.standard_error)
    table = section.blocks[1]
    assert table.header == ["method", "top 2%", "top 3%", "top 5%", "top 10%", "all rows"]
    assert table.rows[1][1].startswith(prose.percent(errors[0]))


def test_outcomes_are_counted_per_million_selected_rows(methods):
    section = measurements.outcomes(Report(methods))
    _, table = section.blocks
    row = methods[0].evaluation.rows[0]
    observed = round(1e6 * row.observed / row.selected)
    assert table.rows[0][:4] == ["as served", "top 2%", f"{1e6 * row.predicted / row.selected:,.0f}", f"{observed:,}"]
    assert [cells[:2] for cells in table.rows[:2]] == [["as served", "top 2%"], ["vad.json", "top 2%"]]
    low, high = (float(end.replace(",", "")) for end in table.rows[0][4].split(" to "))
    rate = row.observed / row.selected
    # Bins explain part of the variance, so the interval is a little narrower than that of equal rates.
    width = 2 * 1.959964 * 1e6 * np.sqrt(rate * (1 - rate) / row.selected)
    assert 0.9 * width < high - low <= width + 1
    assert len(table.rows) == len(methods) * len(ALPHAS)


@pytest.mark.parametrize(
    ("predicted", "verdict"),
    [
        (0.4, "too high by 100,000 (33.3%)."), (0.31, "The difference is consistent with zero."),
        (0.2, "too low by 100,000 (33.3%)."),
    ],
)  # fmt: skip
def test_the_difference_of_outcomes_is_stated_in_words(predicted, verdict):
    y = np.arange(1000) % 10 < 3
    given = [Method("as served", evaluate(y, np.full(1000, predicted), [1.0]))]
    given.append(Method("map", evaluate(y, np.full(1000, 0.3), [1.0])))
    served, after = measurements.outcomes(Report(given)).prose
    assert served.startswith(
        f"On all rows, the scores predict {1_000_000 * predicted:,.0f} outcomes per million selected rows; 300,000 "
        "were observed (95% interval 271,597 to 328,403)."
    )
    assert served.endswith(verdict)
    assert after == "After map: 300,000 predicted, 300,000 observed. The difference is consistent with zero."


def test_a_small_difference_of_outcomes_is_not_rounded_away(methods):
    row = methods[0].evaluation.rows[-1]
    bins = tuple(replace(one, standard_error=1e-6) for one in row.bins)
    close = replace(row, predicted=1.0003 * row.observed, bins=bins)
    evaluation = replace(methods[0].evaluation, rows=(close,))
    (sentence,) = measurements.outcomes(Report([Method("as served", evaluation)])).prose
    rate = 1e6 * row.observed / row.selected
    assert sentence.endswith(f"The prediction is too high by {round(1.0003 * rate) - round(rate)} (0.03%).")


def test_value_is_a_second_table_per_million_selected_rows(methods):
    assert len(measurements.outcomes(Report(methods)).blocks) == 2
    doubled = [
        replace(m, value=replace(m.evaluation, rows=tuple(
            replace(row, predicted=2 * row.predicted, observed=2 * row.observed,
                    bins=tuple(replace(b, weight=2 * b.weight) for b in row.bins))
            for row in m.evaluation.rows
        )))
        for m in methods
    ]  # fmt: skip
    _, counts, values = measurements.outcomes(Report(doubled, value_name="revenue in EUR")).blocks
    assert values.caption == "Value per million selected rows: revenue in EUR"

    def numbers(text):
        return [float(part.replace(",", "").replace("−", "-")) for part in text.split(" to ")]

    for count, value in zip(counts.rows, values.rows, strict=True):
        assert count[:2] == value[:2]
        for one, two in zip(count[2:], value[2:], strict=True):
            np.testing.assert_allclose(numbers(two), 2 * np.array(numbers(one)), atol=1.5)


def test_reliability_shows_the_bins_of_the_ece(methods):
    row = methods[0].evaluation.rows[0]
    gap = sum(b.weight * abs(b.predicted - b.observed) for b in row.bins) / sum(b.weight for b in row.bins)
    assert gap == pytest.approx(row.ece)
    (choice,) = measurements.reliability(Report(methods)).blocks
    title, (_, table) = choice.options[0]
    assert title == "top 2%"
    assert [cells[3] for cells in table.rows[:10]] == [prose.number(b.observed) for b in row.bins]
    assert sum(b.weight for b in row.bins) == pytest.approx(row.selected)
    assert np.all(np.diff([b.predicted for b in row.bins]) > 0)
    b = row.bins[0]
    assert b.standard_error == pytest.approx(np.sqrt(b.observed * (1 - b.observed) / b.weight))


def test_a_bin_without_positives_still_has_an_error():
    row = evaluate([0, 0, 0, 1], [0.1, 0.1, 0.8, 0.9], [1.0], n_bins=2).rows[0]
    assert row.bins[0].observed == 0
    assert row.bins[0].standard_error == pytest.approx(np.sqrt(2 * 0.1 * 0.9) / 2)


@pytest.mark.parametrize(
    ("y", "p", "text"),
    [
        ([1, 0] * 50, np.ones(100), "ones 0.5, above its floor (0)."),
        (np.ones(100), np.ones(100), "ones 0, equal to its floor (0)."),
        ([1, 0] * 50, np.full(100, 0.55), "ones 0.05, consistent with its noise floor (0.0397)."),
        ([1, 0] * 50, np.full(100, 0.9), "ones 0.4, 17 times its noise floor."),
        ([1, 0] * 50, np.full(100, 1 - 1e-12), "over 1,000 times its noise floor."),
    ],
)  # fmt: skip
def test_ece_is_compared_with_its_noise_floor(y, p, text):
    (sentence,) = measurements.binned_errors(Report([Method("ones", evaluate(y, p, [1.0]))])).prose
    assert sentence.startswith("ECE on the smallest selection: ones 0")
    assert sentence.endswith(text)


# ---------------------------------------------------------------------------- sections about scores and fits


def with_record(methods, **changes):
    return [methods[0], replace(methods[1], record=replace(methods[1].record, **changes))]


def test_drift_is_stated_with_its_consequence(methods, world):
    summary = world[1]
    moved = replace(summary, mean=summary.mean + 0.5 * summary.sd)
    given = with_record(methods, labelled=DataRecord(9, ("s1",), (), moved))
    labelled, evaluated = fits.drift(Report(given, replace(summary, rows=5))).prose
    assert "0.50 sd above that of the pool scores" in labelled
    assert "a large drift. Labelled rows and pool differ" in labelled
    assert "no relevant drift. The map was fitted on scores like those evaluated here." in evaluated
    assert fits.drift(Report(methods[:1], summary)) is None
    assert (
        fits.drift(Report(given, summary, selection="top 1 of each request")).blocks[1].rows[-1][0] == "labelled scores"
    )


def test_scores_on_another_scale_are_not_compared(methods, world):
    values = replace(world[1], scale="value", rows=5)
    assert fits.drift(Report(methods, values)) is None
    labelled = DataRecord(9, ("s1",), (), replace(world[1], rows=9))
    section = fits.drift(Report(with_record(methods, labelled=labelled), values))
    assert [row[0] for row in section.blocks[1].rows] == ["pool scores", "labelled scores"]


def test_the_distance_from_normal_is_judged_by_the_smallest_share(world):
    summary = replace(world[1], distance=0.01, skewness=-0.1, p_value=0.0)
    assert "a single λ for all scores is appropriate" in fits.normality_words(summary, 0.1)
    assert "not on the theory" in fits.normality_words(summary, 0.02)
    assert "may correct too much" in fits.normality_words(summary, 0.005)
    assert "p < 0.001. Skewness −0.10" in fits.normality_words(summary, 0.02)
    assert "too few distinct scores" in fits.normality_words(replace(summary, distance=None), 0.02)


def test_free_shapes_do_not_assume_a_normal_distribution(methods, world):
    phrase = "The maps on this page do not assume a normal distribution."
    assert phrase not in fits.distribution(Report(methods, world[1])).prose[0]
    for changes in ({"shape": "free"}, {"line_probability": 0.5}):
        assert fits.distribution(Report(with_record(methods, **changes), world[1])).prose[0].endswith(phrase)


def test_the_page_states_every_option_of_a_fit(methods):
    given = with_record(
        methods, curvature=True, negative_rate=0.05, group="placement", calibrator="platt", reason="labels agree",
        straight_loss=0.012, line_probability=0.93, command="uncurse fit",
    )  # fmt: skip
    (facts,) = fits.provenance(Report(given)).blocks
    lines = {name: lines for name, lines, _ in facts.entries}["vad.json"]
    assert lines == (
        "method vad, scale logit, link logistic, replicas seeds, calibrator platt, curvature",
        "negative-sampling rate 0.05",
        "a map for each placement (3 groups)",
        "why: labels agree",
        "probability that the labels follow a straight line: 0.93",
        "written as a straight line; its mean predictions differ from the curve's by at most 1.2% on the top 1% to 10% "
        "of the pool, and by more on lower scores",
        "pool: 60,000 rows, pool.parquet, columns s1, s2",
        f"fitted with uncurse {methods[1].record.version}",
    )
    assert ("vad.json: command", ("uncurse fit",), "code") in facts.entries
    (facts,) = fits.provenance(Report(with_record(methods, group="placement", groups={}))).blocks
    assert "a map for each placement" in facts.entries[-1][1]
    (facts,) = fits.provenance(Report(methods)).blocks
    plain = {name: lines for name, lines, _ in facts.entries}["vad.json"]
    assert plain[0] == "method vad, scale logit, link logistic, replicas seeds"
    assert plain[1].startswith("pool:")


@pytest.mark.parametrize("key", ["command", "Command"])
def test_the_command_is_code(key, methods):
    (facts,) = fits.provenance(Report(methods, facts={key: "uncurse evaluate a.parquet"})).blocks
    assert facts.entries[0] == (key, ("uncurse evaluate a.parquet",), "code")


HUGE = [
    {"mean": 1e300}, {"mean": -1e101}, {"sd": 1e300}, {"sd": 5e-324}, {"weight": 1e300}, {"weight": 5e-324},
    {"edges": (-1e300, 0.0, 1.0)}, {"edges": (0.0, 5e-324, 1.0)}, {"weights": (1.0, 1e300)}, {"weights": (0.0, 5e-324)},
]  # fmt: skip


@pytest.mark.parametrize("change", HUGE, ids=str)
def test_scores_beyond_1e100_have_no_section(change, methods, world):
    small = replace(world[1], edges=(0.0, 0.5, 1.0), weights=(10.0, 20.0))
    served = replace(small, **change)
    assert fits.distribution(Report(methods[:1], served)) is None
    assert fits.distribution(Report(methods[:1], small)) is not None
    record = replace(methods[1].record, pool=DataRecord(9, ("s1",), (), served))
    given = [methods[0], replace(methods[1], record=record)]
    assert fits.drift(Report(given, world[1])) is None


def test_a_page_with_huge_numbers_is_written(methods, world, tmp_path):
    one = replace(methods[0].evaluation, rows=methods[0].evaluation.rows[:1])
    groups = {"a": GroupRecord(1e300, 0.0, 2**62), "b": GroupRecord(1e99, 0.0, 1)}
    huge = replace(world[1], edges=(-1e100, 0.0, 1e100), weights=(1.0, 1.0), mean=1e100, sd=1e100)
    pool = DataRecord(2**62, ("s1",), (), huge)
    first = FitRecord("vad", pool, lambda_=1e300, standard_error=1e300, groups=groups)
    second = FitRecord("vad", pool, lambda_=1e99, standard_error=1e300, straight_loss=1e300)
    report = Report([Method("served", one), Method("a", one, first), Method("b", one, second)], world[1])
    report.to_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "a: λ = 1e+300" in page
    assert "b: λ = 1e+99" in page
    assert "all 2 groups" in page


def test_groups_without_an_overall_lambda_are_shown(methods):
    section = fits.shrinkage(Report(with_record(methods, lambda_=None)))
    assert [figure.name for figure in section.figures()] == ["lambda-groups-1"]
    assert fits.shrinkage(Report(with_record(methods, lambda_=None, groups={}))) is None


def test_the_largest_groups_are_shown(methods):
    groups = {f"placement {i}": GroupRecord(0.8, -2.0, 100 + i) for i in range(200)}
    section = fits.shrinkage(Report(with_record(methods, groups=groups)))
    table = section.blocks[-1]
    assert table.caption == "vad.json: λ by group, the 40 largest of 200 groups"
    assert {row[0] for row in table.rows} == {f"placement {i}" for i in range(160, 200)}


# ---------------------------------------------------------------------------- charts


def test_labels_are_spread_and_keep_their_order():
    placed = figures.spread([0.5, 0.5, 0.5, 0.9], 0.1, 1.0)
    assert np.all(np.diff(np.sort(placed)) > 0.0999)
    assert np.argsort(placed).tolist() == [0, 1, 2, 3]
    assert 0 <= min(placed) <= max(placed) <= 1


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("dark", [0, 1])
def test_every_colour_stands_out_from_the_paper(dark):
    assert len(figures.COLORS) == 13
    paper = luminance(figures.COLORS["paper"][dark])
    for name in ("ink", "muted", *(f"s{i}" for i in range(7))):
        bright, deep = sorted((luminance(figures.COLORS[name][dark]), paper), reverse=True)
        assert (bright + 0.05) / (deep + 0.05) > 4.5, name


def test_series_of_the_same_colour_differ_in_dash_or_marker():
    looks = [(style.color, style.dash, style.marker) for style in map(figures.style_of, range(-1, 49))]
    assert len(set(looks)) == len(looks)


def test_every_figure_is_drawn_alike_each_time(methods, world):
    report = Report(methods, world[1])
    assert list(report.figures()) == [
        "calibration-error", "outcomes", "reliability-2", "reliability-3", "reliability-5", "reliability-10",
        "reliability-100", "ece-mce", "scores", "lambda", "lambda-groups-1", "drift",
    ]  # fmt: skip
    first, second = ([figures.to_svg(figure) for figure in report.figures().values()] for _ in range(2))
    assert first == second
    assert "as served, 2%: +" in first[0]  # a tooltip


@pytest.mark.parametrize(
    ("alphas", "names"),
    [
        ([0.020001, 0.020002, 0.05, 1 / 3], ["2_0001", "2_0002", "5", "33_3333333333"]),
        ([0.02, 0.020000001, 0.12345], ["2", "2_0000001", "12_345"]),
        ([0.1, 0.1, 1e-3], ["0_1", "10", "10-2"]),
    ],
)
def test_every_share_has_its_own_file_name(alphas, names):
    scores, clicks = logits(3_000)
    assert measurements.file_names(Report([Method("as served", evaluate(clicks, expit(scores), alphas))])) == names


# ---------------------------------------------------------------------------- files


@pytest.fixture
def small():
    return Report([Method("as served", evaluate([0, 1] * 20, np.arange(40) / 40, [0.5]))])


def test_figures_are_saved_as_svg_and_png_and_replaced(small, tmp_path):
    folder = tmp_path / "new" / "figures"
    files = small.save_figures(folder)
    assert {f.name for f in files} >= {"calibration-error.svg", "calibration-error.png", "outcomes.png"}
    for file in files:
        if file.suffix == ".svg":
            assert ET.parse(file).getroot().tag.endswith("svg")
        else:
            content = file.read_bytes()
            assert content[:8] == b"\x89PNG\r\n\x1a\n"
            assert struct.unpack(">I", content[16:20])[0] > 600
    files[0].write_text("old")
    (folder / "notes.txt").write_text("kept")
    assert small.save_figures(folder) == files
    assert ET.parse(files[0]).getroot().tag.endswith("svg")
    assert sorted(p.name for p in folder.iterdir()) == sorted([*(f.name for f in files), "notes.txt"])


def test_figures_are_replaced_all_or_none(small, tmp_path):
    files = small.save_figures(tmp_path)
    for file in files:
        file.write_text("old")
    files[-1].unlink()
    files[-1].mkdir()
    with pytest.raises(UncurseError, match=rf"^cannot write {files[-1]}: {os.strerror(errno.EISDIR)}$"):
        small.save_figures(tmp_path)
    assert {file.read_text() for file in files[:-1]} == {"old"}
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_a_folder_that_cannot_be_written_is_an_error(small, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UncurseError, match=r"^cannot write .*file: "):
        small.save_figures(tmp_path / "file")

    def refused(*_, **__):
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.mkdtemp", refused)  # root may write to any folder
    for write, name in ((small.to_html, "r.html"), (small.save_figures, "")):
        with pytest.raises(UncurseError, match=rf"^cannot write .*: {os.strerror(errno.EROFS)}$"):
            write(tmp_path / name)


def test_a_full_disk_is_an_error_and_leaves_no_partial_file(small, tmp_path):
    resource = pytest.importorskip("resource", reason="this system has no limits to set")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for write, name, first in (
        (small.to_html, "r.html", "r.html"),
        (small.save_figures, "figures", "figures/calibration-error.svg"),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            with pytest.raises(UncurseError) as error:
                write(tmp_path / name)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert str(error.value) == f"cannot write {tmp_path / first}: {os.strerror(errno.EFBIG)}"
    assert [p.name for p in tmp_path.rglob("*")] == ["figures"]


def test_a_page_that_cannot_be_written_leaves_the_old_one(small, tmp_path):
    path = tmp_path / "r.html"
    path.write_text("old")
    with pytest.raises(UncurseError, match="cannot write"):
        small.to_html(tmp_path / "none" / "r.html")
    small.to_html(path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_methods_are_required_and_have_the_same_shares(methods):
    with pytest.raises(UncurseError, match=r"a report needs at least one method; pass Method\(name, evaluation\)"):
        Report([])
    other = Method("other", evaluate([0, 1, 1], [0.2, 0.8, 0.9], [1.0]))
    with pytest.raises(
        UncurseError, match="'other' and 'as served' are evaluated on different shares; use the same al"
    ):
        Report([methods[0], other])
