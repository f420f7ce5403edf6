"""Summaries of scores, which map files and the report carry."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.special import expit

from uncurse import Cells, UncurseError
from uncurse.metrics.normality import gaussianity
from uncurse.report.provenance import summarize_scores


def test_a_summary_has_the_moments_and_the_histogram_without_the_tails():
    x = np.random.default_rng(0).normal(-3.0, 0.5, 50_000)
    summary = summarize_scores(Cells().update(x))
    assert (summary.rows, summary.weight, summary.scale) == (50_000, 50_000, "logit")
    np.testing.assert_allclose([summary.mean, summary.sd], [x.mean(), x.std()], rtol=1e-9)
    assert 60 <= len(summary.weights) <= 80
    np.testing.assert_array_equal(summary.weights, np.histogram(x, summary.edges)[0])
    assert 0.998 * 50_000 <= sum(summary.weights) <= 50_000


def test_grid_cells_and_probabilities_have_the_summary_of_exact_logits():
    x = np.random.default_rng(1).normal(-3.0, 0.5, 50_000)
    exact = summarize_scores(Cells(exact=True).update(x))
    grid = summarize_scores(Cells(exact=False).update(x))
    probabilities = summarize_scores(Cells("probability").update(expit(x)))
    for other in (grid, probabilities):
        assert (other.mean, other.sd) == pytest.approx((exact.mean, exact.sd), abs=1e-6)
        np.testing.assert_allclose(exact.weights, other.weights, atol=40)  # a cell at an edge is shared
        assert other.distance == pytest.approx(exact.distance, abs=1e-3)
    assert summarize_scores(Cells("value").update(x)).scale == "value"


def test_a_distance_that_is_undefined_is_none():
    assert summarize_scores(Cells().update([0.5, -1.0, 0.5])).distance is None
    constant = summarize_scores(Cells().update(np.full(100, -2.0)))
    assert constant.distance is None
    assert (constant.edges, constant.weights) == ((-2.5, -1.5), (100.0,))
    weighted = Cells().update(np.random.default_rng(0).normal(size=100), sample_weight=np.linspace(0.5, 1, 100))
    assert summarize_scores(weighted).p_value is None
    with pytest.raises(UncurseError, match="these cells hold no rows, so there is nothing to summarise"):
        summarize_scores(Cells())


@pytest.mark.parametrize("ties", [None, 1])
def test_gaussianity_of_exact_cells_is_that_of_the_rows(ties):
    x = np.random.default_rng(0).gamma(4.0, 0.5, 3_000)
    x = x if ties is None else x.round(ties)
    rows, cells = gaussianity(x), gaussianity(Cells().update(x))
    assert cells.n == rows.n
    for name in ("mean", "sd", "skewness", "excess_kurtosis", "distance", "p_value"):
        assert getattr(cells, name) == pytest.approx(getattr(rows, name), rel=1e-9, abs=1e-12), name


def test_gaussianity_of_grid_cells_is_close():
    x = np.random.default_rng(0).gamma(4.0, 0.5, 200_000) - 4
    rows, cells = gaussianity(x), gaussianity(Cells(exact=False).update(x))
    assert cells.distance == pytest.approx(rows.distance, abs=1e-4)
    assert (cells.skewness, cells.excess_kurtosis) == pytest.approx((rows.skewness, rows.excess_kurtosis), abs=1e-3)
    with pytest.raises(UncurseError, match="0 scores are too few"):
        gaussianity(Cells())


# ---------------------------------------------------------------------------- the extra

WITHOUT = """
import sys
for name in ("matplotlib", "jinja2", "markupsafe"):
    sys.modules[name] = None
import uncurse, uncurse.report.provenance
from uncurse.report import Method, Report

report = Report([Method("as served", uncurse.evaluate([0, 1], [0.2, 0.7], [1.0]))])
print(report.headline)
for call in (report.figures, lambda: report.to_html("r.html"), lambda: report.save_figures("figures"),
             lambda: __import__("uncurse_lab.arena.page")):
    try:
        call()
    except uncurse.UncurseError as error:
        print(error)
"""


def test_without_the_extra_the_error_names_it_and_provenance_works(tmp_path):
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    headline, *errors = done.stdout.splitlines()
    assert headline.startswith("On all rows, ")
    install = "the report needs matplotlib and jinja2; pip install 'uncurse[report]'"
    assert errors == [install] * 4
    assert list(tmp_path.iterdir()) == []


def test_the_report_imports_charts_and_template_only_when_used():
    code = (
        "import sys, uncurse, uncurse.report, uncurse.report.provenance;"
        "assert not {'matplotlib', 'jinja2'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
