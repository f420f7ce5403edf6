"""Numbers and sentences of the page of an evaluation."""

from dataclasses import replace

import numpy as np
import pytest
from pages import ALPHAS, draw_world, evaluation_of, section, summary_of, tables, written

from uncurse import Affine, UncurseError, evaluate
from uncurse.methods import DataRecord, FitRecord, Fitted, SegmentRecord
from uncurse.metrics import Estimate
from uncurse.report import Method, evaluation_page

SUMMARY = summary_of(draw_world()[0])
SEGMENTS = {f"placement {i}": SegmentRecord(0.7 + 0.1 * i, -2.0, 100 + i) for i in range(3)}
RECORD = FitRecord("vad", DataRecord(30_000, ("s1", "s2"), ("pool.parquet",), SUMMARY), lambda_=0.8, segments=SEGMENTS)
FITTED = Fitted(Affine(0.8, -0.4), RECORD)


@pytest.fixture(scope="module")
def methods():
    return [Method("as served", evaluation_of()), Method("vad.json", evaluation_of(0.8, -0.4), FITTED)]


def with_error(methods, error, standard_error):
    """The evaluation of the first method with another calibration error."""
    old = methods[0].evaluation
    value = Estimate(error, standard_error)
    return replace(old, rows=tuple(replace(row, calibration_error=value) for row in old.rows))


def with_record(methods, **changes):
    return [methods[0], replace(methods[1], fitted=replace(FITTED, record=replace(RECORD, **changes)))]


def numbers(text):
    return [float(part.replace(",", "").replace("−", "-")) for part in text.split(" to ")]


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
    assert evaluation_page(given).headline == sentence


def test_the_headline_is_about_the_first_of_several_maps_not_the_best(methods):
    errors = {"as served": 0.2, "a": 0.05, "b": -0.01, "c": 0.02}
    given = [Method(name, with_error(methods, error, 0.001)) for name, error in errors.items()]
    headline = evaluation_page(given).headline
    assert "After a (first of 3 maps), they over-predict by 5.00% (" in headline
    assert "After b" not in headline


def test_the_headline_is_about_the_value_if_it_is_known(methods):
    given = [Method("as served", methods[0].evaluation, value=with_error(methods, 0.2, 0.01))]
    start = "On the top 2%, weighted by revenue, the scores over-predict by 20.0% (95% interval +18.0% to +22.0%)."
    assert evaluation_page(given, value_name="revenue").headline == start


def test_the_headline_is_about_the_first_share_that_was_given():
    page = evaluation_page([Method("as served", evaluation_of(alphas=[0.1, 0.02]))])
    assert page.headline.startswith("On the top 10%, ")
    assert tables(page, "error")[0].header == ["method", "top 10%", "top 2%"]


def test_the_selection_is_named(methods):
    one = [Method("as served", evaluation_of(alphas=[1.0]))]
    name = "top 1 of each request"
    assert evaluation_page(one, selection=name).headline.startswith(f"On the {name}, ")
    several = evaluation_page(methods, selection=name)
    assert several.headline.startswith(f"On the top 2% of the selected rows ({name}), ")


def test_a_share_without_a_positive_label_is_skipped(tmp_path):
    p = np.linspace(0.01, 0.5, 200)
    for y in ((np.arange(200) % 5 == 0) & (np.arange(200) < 190), np.zeros(200, int)):
        with pytest.warns(UserWarning, match="has no positive label"):
            result = evaluate(y, p, [0.02, 0.5])
        page = evaluation_page([Method("a", result), Method("b", result)])
        expected = "On the top 50%" if y.any() else "No selection has a positive label"
        assert page.headline.startswith(expected)
        assert "undefined" in written(page, tmp_path / "r.html")


# ---------------------------------------------------------------------------- sections about the evaluation


def test_the_chart_of_errors_has_the_95_percent_interval(methods):
    page = evaluation_page(methods)
    (ax,) = page.figures()["calibration-error"].axes
    errors = [row.calibration_error for row in methods[1].evaluation.rows]
    line = next(line for line in ax.lines if line.get_label() == "vad.json")
    np.testing.assert_allclose(line.get_ydata(), errors)
    band = ax.collections[1].get_paths()[0].vertices
    for alpha, error in zip(ALPHAS, errors, strict=True):
        ends = band[np.isclose(band[:, 0], alpha), 1]
        assert np.ptp(ends) == pytest.approx(2 * 1.959964 * error.standard_error)
    overview, every = tables(page, "error")
    assert overview.header == ["method", "top 2%", "top 5%", "top 10%", "all rows"]
    assert overview.rows[1][1].startswith(f"{100 * errors[0]:+.1f}%".replace("-", "−"))
    assert len(every.rows) == len(methods) * len(ALPHAS)


def test_outcomes_are_counted_per_million_selected_rows(methods):
    (ax,) = evaluation_page(methods).figures()["outcomes"].axes
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    row = methods[0].evaluation.rows[0]
    rate = row.observed / row.selected
    assert (lines["observed"][0], lines["as served"][0]) == pytest.approx(
        (1e6 * rate, 1e6 * row.predicted / row.selected)
    )
    assert set(lines) == {"observed", "as served", "vad.json"}
    band = ax.collections[0].get_paths()[0].vertices
    # Bins explain part of the variance, so the interval is a little narrower than that of equal rates.
    width = 2 * 1.959964 * 1e6 * np.sqrt(rate * (1 - rate) / row.selected)
    assert 0.85 * width < np.ptp(band[np.isclose(band[:, 0], 0.02), 1]) <= width + 1


def test_value_is_a_table(methods):
    row = replace(methods[0].evaluation.rows[0], predicted=200.0, observed=100.0)
    valued = [replace(m, value=replace(m.evaluation, rows=(row, *m.evaluation.rows[1:]))) for m in methods]
    (values,) = tables(evaluation_page(valued, value_name="revenue in EUR"), "outcomes")
    assert values.caption.startswith("Sums of revenue in EUR")
    assert values.rows[0][:4] == ["as served", "2%", "200", "100"]
    assert tables(evaluation_page(methods), "outcomes") == []


def test_reliability_shows_the_bins_of_the_ece(methods):
    page = evaluation_page(methods)
    row = methods[0].evaluation.rows[0]
    first, *others = tables(page, "reliability")
    assert len(others) == len(ALPHAS) - 1
    shown = [numbers(cells[2])[0] - numbers(cells[3])[0] for cells in first.rows[:10]]
    assert np.mean(np.abs(shown)) == pytest.approx(row.ece, rel=0.05)
    ax = page.figures()["reliability-1"].axes[0]
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [b.predicted for b in row.bins])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [b.observed for b in row.bins])


# ---------------------------------------------------------------------------- sections about scores and fits


def test_scores_of_fits_and_of_the_evaluated_rows_are_compared(methods):
    moved = replace(SUMMARY, mean=SUMMARY.mean + 0.5 * SUMMARY.sd, rows=9)
    given = with_record(methods, labeled=DataRecord(9, ("s1",), (), moved))
    (table,) = tables(evaluation_page(given, replace(SUMMARY, rows=5, distance=0.01)), "scores")
    assert [row[0] for row in table.rows] == ["pool scores", "labeled scores", "evaluated scores"]
    assert table.rows[1][4:6] == ["+0.50", "1.00"]
    assert table.rows[2][4:] == ["+0.00", "1.00", "0.0100"]
    assert section(evaluation_page(methods[:1]), "scores") is None


def test_the_largest_segments_are_shown(methods):
    segments = {f"placement {i}": SegmentRecord(0.8, -2.0, 100 + i) for i in range(200)}
    page = evaluation_page(with_record(methods, segments=segments))
    (table,) = tables(page, "lambda")
    assert "the 40 largest of 200 segments" in table.caption
    assert {row[0] for row in table.rows} == {"all rows", *(f"placement {i}" for i in range(160, 200))}
    assert section(evaluation_page(with_record(methods, segments={})), "lambda") is None


def test_the_page_states_every_option_of_a_fit(methods):
    given = with_record(
        methods, curvature=True, negative_sampling_rate=0.05, segment="placement", calibrator="platt",
        reason="labels agree", max_error=0.012, line_probability=0.93, half_life=2.0, command="uncurse fit",
    )  # fmt: skip
    facts = evaluation_page(given, facts={"command": "uncurse evaluate"}).facts
    assert (facts["command"], facts["vad.json: command"]) == (["uncurse evaluate"], ["uncurse fit"])
    text = "\n".join(facts["vad.json"])
    for part in (
        "method vad, scale logit", "calibrator platt, curvature", "negative_sampling_rate 0.05, segment placement",
        "why: labels agree", "straight line: 0.93", "by at most 1.2%",
        "rows count half after 2 files", "pool: 30,000 rows, pool.parquet, columns s1, s2", "fitted with uncurse ",
    ):  # fmt: skip
        assert part in text


def test_methods_are_required_and_have_the_same_shares(methods):
    with pytest.raises(UncurseError, match="at least one method"):
        evaluation_page([])
    other = Method("other", evaluate([0, 1, 1], [0.2, 0.8, 0.9], [1.0]))
    with pytest.raises(UncurseError, match="'other' and 'as served' are evaluated on different shares"):
        evaluation_page([methods[0], other])
