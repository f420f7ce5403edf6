"""Figures and tables for notebooks."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest

from uncurse import VAD, SelectedReliabilityDisplay, SelectionErrorDisplay, UncurseError, evaluate

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    matplotlib.pyplot.close("all")


@pytest.fixture(scope="module")
def predictions():
    rng = np.random.default_rng(0)
    truth = rng.beta(2, 50, 20_000)
    return (rng.random(20_000) < truth).astype(int), {
        "as served": (truth * rng.lognormal(0, 0.3, 20_000)).clip(0, 1),
        "truth": truth,
    }


def test_errors_by_share_are_those_of_evaluate(predictions):
    y, sets = predictions
    display = SelectionErrorDisplay.from_predictions(y, sets, alphas=[0.02, 0.1])
    drawn = {line.get_label(): line.get_ydata() for line in display.ax_.lines}
    for name, p in sets.items():
        np.testing.assert_allclose(drawn[name], evaluate(y, p, [0.02, 0.1]).column("calibration_error"))
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == list(sets)
    assert display.figure_ is display.ax_.figure


def test_reliability_of_the_selected_rows(predictions):
    y, sets = predictions
    _, ax = matplotlib.pyplot.subplots()
    display = SelectedReliabilityDisplay.from_predictions(y, sets["as served"], alpha=0.05, n_bins=5, ax=ax)
    assert display.ax_ is ax
    bins = evaluate(y, sets["as served"], 0.05, n_bins=5).rows[0].bins
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [one.predicted for one in bins])
    assert ax.get_legend() is None


def test_a_small_bin_that_ties_leave_is_drawn_with_its_nearer_neighbour():
    y = np.random.default_rng(0).random(1_000) < 0.3
    # Bins of 100 rows end within the ties, so four rows between them are a bin of their own.
    p = np.repeat([0.2, 0.21, 0.3, 0.4], [598, 4, 198, 200])
    bins = evaluate(y, p, 1.0).rows[0].bins
    assert [one.weight for one in bins] == [598, 4, 198, 200]
    ax = SelectedReliabilityDisplay.from_predictions(y, p, alpha=1.0).ax_
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [(598 * 0.2 + 4 * 0.21) / 602, 0.3, 0.4])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [y[:602].mean(), y[602:800].mean(), y[800:].mean()])
    (lower, upper), *_ = ax.collections[0].get_segments()
    assert upper[1] - lower[1] == pytest.approx(2 * 1.96 * (y[:602].var() / 602) ** 0.5, rel=0.02)
    uniform = SelectedReliabilityDisplay(evaluate(y, p, 1.0, n_bins=100, strategy="uniform")).plot()
    assert len(uniform.ax_.lines[0].get_xdata()) == 4


def test_a_classifier_is_shown_by_its_name():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, 2))
    y = (rng.random(2_000) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
    model = LogisticRegression().fit(X, y)
    for kind in (SelectionErrorDisplay, SelectedReliabilityDisplay):
        display = kind.from_estimator(model, X, y)
        assert list(display.evaluations) == ["LogisticRegression"]
    with pytest.raises(UncurseError, match="no predict_proba"):
        SelectionErrorDisplay.from_estimator(object(), X, y)


def test_wrong_input_is_named(predictions):
    y, sets = predictions
    with pytest.raises(UncurseError, match="pass an Evaluation"):
        SelectionErrorDisplay([1, 2])
    with pytest.raises(UncurseError, match="2 shares"):
        SelectedReliabilityDisplay(evaluate(y, sets["truth"], [0.1, 0.2]))


def test_without_matplotlib_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import uncurse\n"
        "try: uncurse.SelectionErrorDisplay.from_predictions([0, 1], [0.1, 0.9], alphas=[1.0])\n"
        "except uncurse.UncurseError as error: print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install 'uncurse[plot]'" in found.stdout


def test_notebooks_show_tables(predictions):
    y, sets = predictions
    assert "<td>10%</td>" in evaluate(y, sets["truth"], [0.1])._repr_html_()
    pool = np.random.default_rng(0).normal(size=(1_000, 1)) + np.random.default_rng(1).normal(0, 0.3, (1_000, 2))
    assert "VAD" in VAD()._repr_html_()
    assert "<td>λ</td>" in VAD().fit(pool)._repr_html_()


def test_bands_are_95_percent_of_the_default_shares(predictions):
    y, sets = predictions
    ax = SelectionErrorDisplay.from_predictions(y, sets["truth"]).ax_
    assert list(ax.lines[0].get_ydata()) == [0, 0]
    rows = evaluate(y, sets["truth"], [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]).rows
    np.testing.assert_allclose(ax.lines[-1].get_xdata(), [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
    (band,) = (one.get_paths()[0].vertices for one in ax.collections)
    for row in rows:
        ends = band[np.isclose(band[:, 0], row.alpha), 1]
        wanted = row.calibration_error + 1.96 * row.calibration_error.standard_error * np.array([-1, 1])
        np.testing.assert_allclose([ends.min(), ends.max()], wanted, rtol=1e-3)


def test_the_default_selection_of_reliability_is_two_percent_in_ten_bins(predictions):
    y, sets = predictions
    (found,) = SelectedReliabilityDisplay.from_predictions(y, sets["truth"]).evaluations.values()
    assert (found.rows[0].alpha, len(found.rows[0].bins)) == (0.02, 10)
