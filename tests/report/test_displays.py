"""Figures and tables for notebooks."""

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
    display = SelectedReliabilityDisplay.from_predictions(y, sets["as served"], alphas=0.05, ax=ax)
    assert display.ax_ is ax
    bins = evaluate(y, sets["as served"], 0.05).rows[0].bins
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [one.predicted for one in bins])
    assert ax.get_legend() is None


def test_wrong_input_is_named(predictions):
    y, sets = predictions
    with pytest.raises(UncurseError, match="pass an Evaluation"):
        SelectionErrorDisplay([1, 2])
    with pytest.raises(UncurseError, match="2 shares"):
        SelectedReliabilityDisplay.from_predictions(y, sets["truth"], alphas=[0.1, 0.2])


def test_figures_have_the_style_of_the_page_and_leave_the_settings_of_the_user(predictions):
    y, sets = predictions
    before = dict(matplotlib.rcParams)
    ax = SelectionErrorDisplay.from_predictions(y, sets["truth"]).ax_
    assert not any(spine.get_visible() for spine in ax.spines.values())
    assert dict(matplotlib.rcParams) == before


def test_notebooks_show_tables(predictions):
    y, sets = predictions
    assert "<td>10%</td>" in evaluate(y, sets["truth"], [0.1])._repr_html_()
    pool = np.random.default_rng(0).normal(size=(1_000, 1)) + np.random.default_rng(1).normal(0, 0.3, (1_000, 2))
    vad = VAD(scale="logit", replicas="seeds")
    assert "VAD" in vad._repr_html_()
    assert "<td>λ</td>" in vad.fit(pool)._repr_html_()
