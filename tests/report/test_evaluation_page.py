"""Numbers and sentences of the page of an evaluation."""

import re
from dataclasses import replace

import numpy as np
import pytest
from pages import ALPHAS, draw_world, evaluation_of, section, summary_of, tables, written
from scipy.special import expit, logit

from uncurse import Affine, UncurseError, evaluate
from uncurse.methods import DataRecord, FitRecord, Fitted, SegmentRecord
from uncurse.methods.remaining_error import ErrorTable
from uncurse.metrics import Estimate
from uncurse.report import Method, evaluation_page
from uncurse.report.evaluation import ranked

SUMMARY = summary_of(draw_world()[0])
SEGMENTS = {f"placement {i}": SegmentRecord(0.7 + 0.1 * i, -2.0, 100 + i) for i in range(3)}
RECORD = FitRecord("vad", DataRecord(30_000, ("s1", "s2"), ("pool.parquet",), SUMMARY), lambda_=0.8, segments=SEGMENTS)
FITTED = Fitted(Affine(0.8, -0.4), RECORD)


@pytest.fixture(scope="module")
def methods():
    return [Method("as served", evaluation_of()), Method("vad.json", evaluation_of(0.8, -0.4), FITTED)]


def with_errors(method, error, standard_error=0.01):
    """The method with another calibration error on all shares."""
    rows = [
        replace(
            row, predicted=(1 + error) * row.observed, ratio=Estimate(1 + error, standard_error),
            calibration_error=Estimate(error, standard_error),
        )
        for row in method.evaluation.rows
    ]  # fmt: skip
    return replace(method, evaluation=replace(method.evaluation, rows=tuple(rows)))


def with_record(methods, **changes):
    return [methods[0], replace(methods[1], fitted=replace(FITTED, record=replace(RECORD, **changes)))]


# ---------------------------------------------------------------------------- headline


@pytest.mark.parametrize(
    ("after", "verdict", "decision"),
    [
        (0.01, "vad.json helps.", "keep"),
        (-0.123, "It is unclear whether vad.json helps.", "watch"),
        (0.9, "vad.json hurts.", "alarm"),
    ],
)
def test_the_headline_says_whether_the_map_helps_over_all_shares(methods, after, verdict, decision):
    pair = [with_errors(methods[0], 0.123), with_errors(methods[1], after)]
    page = evaluation_page(pair)
    off = f"{100 * abs(after):.1f}% too {'high' if after > 0 else 'low'}"
    errors = f"predictions are on average 12.3% too high as served and {off} with vad.json."
    assert page.headline == f"{verdict} On the top 2% to all rows, {errors}"
    assert page.decision == decision
    assert page.emphasis in page.headline
    assert page.note.startswith("Probability that vad.json is nearer to the truth than the scores as served: ")
    assert [one.value for one in page.numbers] == ["12.3%", off.split()[0]]


def test_without_a_map_the_headline_says_where_predictions_are_wrong(methods):
    for error, words in ((0.123, "too high at every share, by 12.3%"), (-0.05, "too low at every share, by 5.0%"),
                         (0.0, "within noise of the truth at every share")):  # fmt: skip
        assert evaluation_page([with_errors(methods[0], error, 0.01)]).headline == f"Predictions as served are {words}."
    unknown = evaluation_page([with_errors(methods[0], 0.0, 0.1)])
    words = "neither clearly too high nor too low: on the top 2%, errors from -20% to +20% are possible."
    assert unknown.headline == f"Predictions as served are {words}"
    assert unknown.next_step == "evaluate on more labeled rows"
    (top, *others), mixed = with_errors(methods[0], 0.0, 0.01).evaluation.rows, methods[0].evaluation
    mixed = replace(mixed, rows=(replace(top, calibration_error=Estimate(0.2, 0.01)), *others))
    words = "Predictions as served are too high on the top 2%, and within noise elsewhere."
    assert evaluation_page([Method("as served", mixed)]).headline == words


def test_the_headline_is_about_the_first_of_several_maps_and_all_are_ranked(methods):
    errors = {"as served": 0.2, "a": 0.05, "b": -0.01, "c": 0.12}
    page = evaluation_page([replace(with_errors(methods[0], error), name=name) for name, error in errors.items()])
    assert page.headline.startswith("a helps. ")
    assert "Mean size of the error: b 1.0%, a 5.0%, c 12.0%, as served 20.0%." in page.note
    assert re.search(r"Probability that a is nearer than b: (<1|\d+)%\.", page.note)
    first, *maps = ranked([replace(with_errors(methods[0], e), name=n, own_labels=n == "b") for n, e in errors.items()])
    assert [first.name, *(one.name for one in maps)] == ["as served", "a", "c", "b"]
    assert "a helps. Of 3 maps" not in evaluation_page([first, *maps]).headline
    two = evaluation_page([first, maps[0], maps[1]])
    assert two.headline.startswith("a helps. Of 2 maps it is the nearest to the truth: on the top 2% to all rows, ")


def test_a_map_that_was_fitted_to_the_labels_of_the_rows_is_no_fair_test(methods):
    page = evaluation_page([with_errors(methods[0], 0.2), replace(with_errors(methods[1], 0.0), own_labels=True)])
    assert page.headline.startswith("Not a fair test: vad.json was fitted to the labels of these rows. ")
    assert page.decision == "watch"
    assert page.next_step == "evaluate on rows that the map was not fitted to"


def test_errors_of_one_sign_are_called_too_high_or_too_low(methods):
    page = evaluation_page([with_errors(methods[0], 0.167), with_errors(methods[1], -0.167, 0.02)])
    assert "on average 16.7% too high as served and 16.7% too low with vad.json." in page.headline
    assert page.next_step.startswith("refresh the map with recent labels")


def test_the_headline_is_about_the_value_if_it_is_known(methods):
    given = [Method("as served", methods[0].evaluation, value=with_errors(methods[0], 0.2).evaluation)]
    given.append(Method("a", methods[1].evaluation, value=with_errors(methods[1], 0.1).evaluation))
    headline = evaluation_page(given, value_name="revenue").headline
    assert "On the top 2% to all rows, weighted by revenue, predictions are on average 20.0% too high" in headline


def test_the_selection_is_named():
    one = [Method("as served", evaluation_of(alphas=[1.0])), Method("a", evaluation_of(0.8, -0.4, alphas=[1.0]))]
    page = evaluation_page(one, selection="top 1 of each request")
    assert " On the top 1 of each request, predictions are " in page.headline


def test_a_share_without_a_positive_label_is_skipped(tmp_path):
    p = np.linspace(0.01, 0.5, 200)
    for y in ((np.arange(200) % 5 == 0) & (np.arange(200) < 190), np.zeros(200, int)):
        with pytest.warns(UserWarning, match="has no positive label"):
            result = evaluate(y, p, [0.02, 0.5])
        page = evaluation_page([Method("a", result), Method("b", result)])
        expected = "b changes nothing. On the top 50%, " if y.any() else "No selection has a positive label"
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
    assert [row[0] for row in overview.rows] == ["top 2%", "top 5%", "top 10%", "all rows"]
    cells = [row[overview.header.index("vad.json")] for row in overview.rows]
    assert [cell.split("%")[0] for cell in cells] == [f"{100 * e:+.1f}" for e in errors]
    assert [row[-2] for row in overview.rows] == ["600", "1,500", "3,000", "30,000"]
    assert len(every.rows) == len(methods) * len(ALPHAS)
    assert section(page, "error").title.startswith("With vad.json, predictions are ")


def test_the_page_says_whether_the_interval_of_the_fit_held(methods):
    held = ErrorTable((0.01, 1.0), (0.0, 0.0), (0.05, 0.05), (0.0, 0.0), 1)
    missed = ErrorTable((0.03, 1.0), (1.0, 1.0), (0.01, 0.01), (0.0, 0.0), 1)
    near = ErrorTable((0.01, 1.0), (1.03, 1.03), (0.01, 0.01), (0.0, 0.0), 1)
    cases = [(held, 0.0, ["inside"] * 4), (missed, 0.0, ["", *["outside"] * 3])]
    for errors, measured, words in (*cases, (near, 1.7, ["outside, but could be chance"] * 4)):
        pair = [methods[0], replace(with_errors(methods[1], measured, 0.05), fitted=replace(FITTED, errors=errors))]
        _, table, _ = tables(evaluation_page(pair), "error")
        assert [row[table.header.index("vad.json")].partition(": ")[2] for row in table.rows] == words
        by_request = evaluation_page(pair, selection="top 1 of each request")  # other rows than those of the fit
        assert len(tables(by_request, "error")) == 2


def test_the_page_counts_the_outcomes_and_says_what_to_do_next(methods):
    page = evaluation_page(methods)
    (counts,) = section(page, "error").prose
    row = methods[0].evaluation.rows[-1]
    assert counts.startswith(f"On all rows, {row.observed:,.0f} positives were observed in 30,000 rows. Predicted: ")
    assert f"as served {row.predicted:,.0f}, " in counts
    assert "`uncurse fold`" in page.next_step


def test_the_page_recommends_to_check_the_nearest_of_several_maps_on_other_rows(methods):
    far, near = (replace(with_errors(methods[1], error), name=name) for error, name in ((0.2, "far"), (0.01, "near")))
    page = evaluation_page([with_errors(methods[0], 0.2), far, near])
    assert "far" in page.headline
    assert page.next_step.startswith("evaluate near alone on other rows")


def test_the_page_recommends_a_refresh_if_the_map_helps_and_an_error_remains(methods):
    page = evaluation_page([with_errors(methods[0], 0.2), with_errors(methods[1], 0.1)])
    assert "helps" in page.headline
    assert "`uncurse refresh`" in page.next_step


def test_segments_have_their_own_verdict_the_largest_first(methods):
    rows = methods[0].evaluation
    good, bad = (with_errors(methods[0], error).evaluation.rows[2:3] for error in (0.3, 0.01))
    segments = {
        "<large>": [replace(rows, rows=good), replace(rows, rows=bad)],
        "small": [replace(rows, rows=bad), replace(rows, rows=good)],
    }
    page = evaluation_page(methods, segments=segments)
    (table,) = tables(page, "by-segment")
    verdicts = [(row[0], row[3]) for row in table.rows]
    assert verdicts == [("<large>", "helps (>99%)"), ("small", "hurts (<1%)")]
    assert section(page, "by-segment").title == "By segment: vad.json helps in <large>; hurts in small"
    assert "--segment" in section(page, "by-segment").prose[0]
    (ax,) = page.figures()["segments"].axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["<large>", "small"]
    assert section(evaluation_page(methods), "by-segment") is None


def test_the_map_is_drawn_over_the_evaluated_scores(methods):
    page = evaluation_page(methods, SUMMARY)
    line = next(line for line in page.figures()["map"].axes[0].lines if line.get_label() == "vad.json")
    x, y = line.get_data()
    np.testing.assert_allclose(y, expit(0.8 * logit(x) - 0.4))
    assert section(evaluation_page(methods[:1], SUMMARY), "map") is None


def test_value_is_a_table(methods):
    row = replace(methods[0].evaluation.rows[0], predicted=200.0, observed=100.0)
    valued = [replace(m, value=replace(m.evaluation, rows=(row, *m.evaluation.rows[1:]))) for m in methods]
    (values,) = tables(evaluation_page(valued, value_name="revenue in EUR"), "values")
    assert values.caption.startswith("Sums of revenue in EUR")
    assert values.rows[0][:2] == ["top 2%", "100"]
    assert values.rows[0][2].startswith("200: ")
    assert section(evaluation_page(methods), "values") is None


def test_reliability_shows_the_bins_of_the_ece(methods):
    page = evaluation_page(methods)
    (table,) = tables(page, "reliability")
    rows = [row for row in table.rows if row[:2] == ["top 2%", "as served"]]
    shown = [float(predicted) - float(observed.split(" ")[0]) for *_, predicted, observed in rows]
    assert np.mean(np.abs(shown)) == pytest.approx(methods[0].evaluation.rows[0].ece, rel=0.05)
    ax, row = page.figures()["reliability"].axes[0], methods[0].evaluation.rows[-1]  # the largest share
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


def test_diagnostics_that_find_nothing_are_folded(methods):
    moved = replace(SUMMARY, mean=SUMMARY.mean + 0.5 * SUMMARY.sd)
    for served, folded in ((SUMMARY, True), (moved, False)):
        assert section(evaluation_page(methods, served), "scores").folded is folded


def test_the_page_states_every_option_of_a_fit(methods):
    given = with_record(
        methods, curvature=True, negative_sampling_rate=0.05, segment="placement", calibrator="platt",
        reason="labels agree", max_error=0.012, line_probability=0.93, half_life=2.0, command="uncurse fit",
    )  # fmt: skip
    facts = evaluation_page(given, facts={"command": "uncurse evaluate"}).facts
    assert (facts["command"], facts["vad.json: command"]) == (["uncurse evaluate"], ["uncurse fit"])
    text = "\n".join(facts["vad.json"])
    for part in (
        "method vad, scale logit", "calibrator platt, curvature", "negative sampling rate 0.05, segment placement",
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


def test_a_map_that_changes_nothing_is_called_so(methods):
    page = evaluation_page([with_errors(methods[0], 0.123), with_errors(methods[1], 0.123)])
    assert page.headline.startswith(
        "vad.json changes nothing. On the top 2% to all rows, predictions are on average 12.3%"
    )
    assert page.next_step == "fit with labels (`uncurse fit --labeled`)"
