"""The paper's synthetic experiment: the authors' stream to the digit, fresh numbers within standard errors."""

import json

import pytest

from uncurse import UncurseError
from uncurse_lab import render
from uncurse_lab.paper import synthetic
from uncurse_lab.paper.tables import count_far


@pytest.fixture(scope="module")
def tables():
    return synthetic.run(replications=40, seed=11)


def test_the_authors_stream_gives_the_golden_figures():
    records = synthetic.run_golden()
    assert len(records) == 16
    for record in records:
        ratio, four_digits = record["figure"] in ("Vanilla", "VAD", "VAD(p)"), record["figure"].startswith("MCE")
        tolerance = 1e-4 if ratio else 5.1e-5 if four_digits else 1e-5
        assert record["ours"] == pytest.approx(record["theirs"], abs=tolerance), record
    assert render.text(synthetic.golden_parts(records)).endswith("all agree to four decimals.")
    records[3] = {**records[3], "ours": records[3]["ours"] - 2e-4}
    assert render.text(synthetic.golden_parts(records)).endswith("2.0e-04: some differ in the first four decimals.")


def test_the_paper_has_117_cells_and_the_appendix_sign_at_ten_percent():
    cells = synthetic.paper()
    assert len(cells) == 117
    assert cells["calibration_error", 0.1, "VAD"] == (-0.0062, 0.0073)


def test_at_most_five_percent_of_cells_are_three_standard_errors_from_the_paper(tables):
    far, count = count_far(tables.cells)
    assert count == 117
    assert far <= 0.05 * count


def test_vanilla_over_predicts_and_vad_does_not_against_the_true_probabilities(tables):
    vanilla = tables.cell("true_error", 0.02, "Vanilla")
    assert vanilla.mean > 0.06
    for method in ("VAD", "VAD (S=3)", "anchored, S=2", "information, S=1"):
        cell = tables.cell("true_error", 0.02, method)
        assert abs(cell.mean) < 0.01 + 3 * cell.standard_error


def test_algorithm_1_read_literally_corrects_half(tables):
    vanilla, right, literal = (
        tables.cell("true_error", 0.02, method).mean for method in ("Vanilla", "anchored, S=2", "Algorithm 1, literal")
    )
    assert (vanilla - literal) / (vanilla - right) == pytest.approx(0.5, abs=0.05)
    anchored, halved = tables.lambdas["anchored, S=2"], tables.lambdas["Algorithm 1, literal"]
    # A bootstrap whose score falls behind the served one by chance shows a little less.
    assert 1 - halved == pytest.approx((1 - anchored) / 2, rel=0.05)


def test_the_noise_floor_of_ece_is_what_true_probabilities_give(tables):
    # .0515 at α = 2% with the true probabilities as predictions, in the authors' stream; 400 draws are off by 1.6%.
    assert tables.cell("ece_floor", 0.02, "VAD").mean == pytest.approx(0.0515, rel=0.016)


def test_a_seed_fixes_every_figure_and_another_changes_them():
    first, again, other = (synthetic.run(2, seed) for seed in (5, 5, 6))
    assert first.to_json() == again.to_json()
    assert first.to_json() != other.to_json()


def test_json_has_every_cell(tables):
    content = json.loads(tables.to_json())
    assert len(content["cells"]) == len(synthetic.METRICS) * len(synthetic.ALPHAS) * len(synthetic.METHODS)
    assert content["replications"] == 40


def test_bad_arguments_are_refused():
    with pytest.raises(UncurseError, match="replications=1; a standard error needs at least 2"):
        synthetic.run(1)
