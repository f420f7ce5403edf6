"""The paper's experiments on click logs after training, on worlds whose truth is known."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from uncurse.experiments.clicks import Scored, groups_of, measure
from uncurse.experiments.clicks_claims import judge
from uncurse.experiments.clicks_tables import ClickTables, Key, paper

from uncurse import VAD, UncurseError, calibrate, evaluate
from uncurse.experiments import clicks, clicks_text
from uncurse.links import logistic


def world(models=6, rows=20_000, test=60_000, seed=0, noise=0.5, digits=None):
    """A normal true logit, noisy copies as models, and pool and test thinned by one more noisy copy."""
    rng = np.random.default_rng(seed)

    def draw(count, thin):
        truth = rng.normal(-1.0, 1.0, 3 * count)
        other = truth + rng.normal(0.0, noise, 3 * count)
        truth = truth[rng.random(3 * count) > logistic(other) if thin else slice(None)][:count]
        scores = truth[:, None] + rng.normal(0.0, noise, (count, models))
        scores = scores if digits is None else scores.round(digits)
        p = logistic(truth)
        return scores.astype(np.float32), (rng.random(count) < p).astype(np.uint8), p

    labelled, pool, tested = draw(rows, False), draw(rows, True), draw(test, True)
    return Scored(labelled[0], labelled[1], pool[0], *tested)


@pytest.fixture(scope="module")
def scored():
    return world(models=12)


@pytest.fixture(scope="module")
def tables(scored):
    return measure("criteo", scored, about={"world": "normal"})


# ---------------------------------------------------------------------------- the figures


def test_the_model_over_predicts_the_winners_and_vad_does_not(tables):
    # Models of unit slope: VAD shrinks by λ = Var(truth) / Var(score), which calibrators know on labelled rows only.
    for alpha in (0.02, 0.1):
        assert tables.cell("true_error", alpha).mean > 0.1
        for name in clicks.CALIBRATORS[1:]:
            alone, tandem = (tables.cell("true_error", alpha, name, v).mean for v in ("original", "vad"))
            assert abs(tandem) < alone
        vanilla, vad = (tables.cell("true_error", alpha, "Vanilla", v) for v in ("original", "vad"))
        assert abs(vad.mean) < 0.35 * vanilla.mean
        assert tables.cell("log_loss_reduction", alpha, "Vanilla", "vad").mean < 0


@pytest.mark.parametrize("name", clicks.CALIBRATORS)
@pytest.mark.parametrize(
    ("variant", "link", "s", "curvature"),
    [
        ("original", None, 2, False),
        ("vad", "logistic", 2, False),
        ("vad", "logistic", 3, False),
        ("vad_identity", "identity", 2, False),
        ("vad_curvature", "logistic", 2, True),
    ],
)
def test_every_figure_is_what_the_library_gives_directly(ties, name, variant, link, s, curvature):
    scored, tables = ties
    if curvature and name != "Vanilla":
        assert tables.get("ece", 0.05, name, variant) is None
        return
    method, options = clicks.SETTINGS.get(name, (None, {}))
    served, labelled = scored.test[:, 0], (scored.labelled[:, :s], scored.labelled_y)
    if method is None:
        alone = logistic(served.astype(np.float64))
    else:
        alone = calibrate(method, labelled[0][:, 0], labelled[1], **options)(served)
    p = alone
    if link is not None:
        vad = VAD(link=link, calibrator=method, calibrator_options=options, curvature=curvature, recentre=False)
        p = vad.fit(scored.pool[:, :s], labelled=None if method is None else labelled).predict_proba(served)
    for m in (30, 50) if (s, variant) in ((2, "original"), (2, "vad")) else (50,):
        (row,) = evaluate(scored.test_y, p, [0.05], n_bins=m).rows
        for metric in ("ece", "mce"):
            cell = tables.cell(metric, 0.05, name, variant, s, m)
            assert cell.mean == pytest.approx(float(getattr(row, metric)), abs=1e-10)
            assert cell.floor == pytest.approx(getattr(row, metric).floor, abs=1e-10)
            assert cell.row_error == pytest.approx(getattr(row, metric).standard_error, abs=1e-10)
    cell = tables.cell("calibration_error", 0.05, name, variant, s)
    assert cell.mean == pytest.approx(float(row.calibration_error), abs=1e-10)
    assert cell.row_error == pytest.approx(row.calibration_error.standard_error, abs=1e-10)
    if link is not None:
        (before,) = evaluate(scored.test_y, alone, [0.05]).rows
        cell = tables.cell("log_loss_reduction", 0.05, name, variant, s)
        assert cell.mean == pytest.approx(row.log_loss / before.log_loss - 1, abs=1e-10)
    # The truth of the selection; of the rows that tie at its edge, all alike.
    count, total = round(0.05 * len(served)), 0.0
    for value in np.unique(served)[::-1]:
        tied = served == value
        total += scored.truth[tied].sum() * min(1, count / tied.sum())
        count -= tied.sum()
        if count <= 0:
            break
    assert tables.cell("true_error", 0.05, name, variant, s).mean == pytest.approx(row.predicted / total - 1, abs=1e-10)


@pytest.fixture(scope="module")
def ties():
    scored = world(models=3, rows=5_000, test=20_000, seed=3, digits=2)
    return scored, measure("criteo", scored, alphas=[0.05], bins=[30, 50])


def test_cells_are_means_over_groups_with_their_standard_errors(scored, tables):
    def part(first):
        columns = slice(first, first + 2)
        return replace(
            scored,
            labelled=scored.labelled[:, columns],
            pool=scored.pool[:, columns],
            test=scored.test[:, columns],
        )

    each = [measure("criteo", part(first), bins=[50]) for first in range(0, 12, 2)]
    for place in [("calibration_error", 0.03, "Platt Scaling", "vad"), ("ece", 0.1, "Isotonic Regression", "original")]:
        values = np.array([one.cell(*place).mean for one in each])
        cell = tables.cell(*place)
        assert cell.count == 6
        assert cell.mean == pytest.approx(values.mean(), abs=1e-12)
        assert cell.standard_error == pytest.approx(values.std(ddof=1) / np.sqrt(6), rel=1e-9)
    errors = np.array([one.cell("true_error", 0.05).mean for one in each])
    assert tables.cell("true_rms", 0.05).mean == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-9)
    (row,) = (row for row in tables.lambdas if (row.replicas, row.link) == (2, "logistic"))
    lambdas = np.array([(one.lambdas[1].pool, one.lambdas[1].labelled, one.lambdas[1].ratio) for one in each])
    np.testing.assert_allclose((row.pool, row.labelled, row.ratio), lambdas.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose((row.pool_sd, row.labelled_sd, row.ratio_sd), lambdas.std(axis=0, ddof=1), rtol=1e-6)


def test_eighty_models_are_the_papers_replications():
    served = groups_of(80)
    assert len(served) == 58
    assert [sum(s in mine for mine in served.values()) for s in clicks.REPLICAS] == [40, 26, 20, 16, 13]
    assert served[6] == [2, 3, 6]


def test_lambda_is_the_share_of_the_scores_that_is_truth(tables):
    # Var(truth) is 1 on the labelled rows, the noise of each model 0.25.
    for row in tables.lambdas:
        if row.link == "logistic":
            assert row.labelled == pytest.approx(1 / 1.25, abs=0.01)
            assert row.ratio == pytest.approx(row.pool / row.labelled, rel=1e-3)
            assert row.ratio < 1


def test_the_shape_of_the_logit_is_a_histogram_beside_a_normal(tables, scored):
    shape = tables.shape
    assert sum(shape.counts) == shape.rows == len(scored.pool)
    assert sum(shape.expected) == pytest.approx(shape.rows)
    assert len(shape.counts) == len(shape.expected) == len(shape.edges) + 1
    inside = (scored.pool[:, 0] >= shape.edges[10]) & (scored.pool[:, 0] < shape.edges[11])
    assert shape.counts[11] == np.count_nonzero(inside)
    assert shape.distance < 0.02


# ---------------------------------------------------------------------------- the paper's


def test_the_paper_has_825_cells_on_criteo_and_96_on_avazu():
    assert len(paper("criteo")) == 825
    assert len(paper("avazu")) == 96
    # Its table of calibration errors on Criteo.
    main = {
        ("Vanilla", 2): (3.23, -0.44),
        ("Scaling-Binning", 2): (2.30, 1.56),
        ("Isotonic Regression", 10): (1.75, 0.85),
    }
    for (name, alpha), figures in main.items():
        for variant, figure in zip(("original", "vad"), figures, strict=True):
            mean = paper("criteo")[Key("calibration_error", name, variant, 2), alpha][0]
            assert 100 * mean == pytest.approx(figure)
    assert paper("criteo")[Key("mce", "Histogram Binning", "vad", 3, 50), 9] == (0.0296, 0.0008)
    assert paper("criteo")[Key("calibration_error", "Vanilla", "vad", 6), 9] == (0.0017, 0.0091)
    assert paper("criteo")[Key("log_loss_reduction", "Platt Scaling", "vad", 2), 2] == (-0.0005, None)
    assert paper("avazu")[Key("ece", "Platt Scaling", "vad", 2, 50), 5] == (0.0172, 0.0007)


def test_every_cell_of_the_paper_has_ours_beside_it(tables):
    beside = [cell for cell in tables.cells if cell.paper_mean is not None]
    assert len(beside) == 825
    assert tables.far()[1] == 825
    cell = tables.cell("log_loss_reduction", 0.02, "Platt Scaling", "vad")
    assert cell.distance == pytest.approx((cell.mean + 0.0005) / (np.sqrt(2) * cell.standard_error))


# ---------------------------------------------------------------------------- its findings


def test_findings_are_judged_where_the_paper_makes_them(tables):
    found = tables.findings()
    assert sum(len(tables.findings(outcome)) for outcome in ("confirmed", "contradicted", "not significant")) == len(
        found
    )
    over = [f for f in found if f.claim == "the model over-predicts"]
    assert [f.outcome for f in over] == ["confirmed"] * 6
    assert [f.alpha for f in over] == [0.02, 0.03, 0.05, 0.07, 0.09, 0.1]
    lower = [f for f in found if f.claim == "VAD+ lowers the error" and f.metric == "calibration_error"]
    assert len(lower) == 130
    (one,) = (f for f in lower if (f.alpha, f.calibrator, f.sides[0]) == (0.02, "Platt Scaling", "vad S=2"))
    assert one.paper == (0.0086, 0.0160)
    assert one.paper_difference == pytest.approx(-0.0074)
    assert one.ours[0] == tables.cell("calibration_error", 0.02, "Platt Scaling", "vad").mean
    vanilla = [f for f in lower if f.calibrator == "Vanilla"]
    assert {f.outcome for f in vanilla if f.count > 2} == {"confirmed"}
    assert {f.outcome for f in vanilla if f.count == 2} == {"not significant"}  # two say nothing of their own spread


def samples_of(**columns):
    """Samples of one metric and calibrator at α = 3%; a name is the variant and S, such as vad_2."""
    made = {}
    for name, values in columns.items():
        variant, s = name.rsplit("_", 1)
        key = Key("calibration_error", "Platt Scaling", variant, int(s))
        made[key] = {i * int(s): np.array([value]) for i, value in enumerate(values)}
        made[key._replace(metric="calibration_error_row_error")] = {i: np.array([0.01]) for i in range(len(values))}
    return made


def outcomes(samples):
    return {f.claim: f for f in judge("criteo", [0.03], samples)}


def test_a_paired_difference_is_clear_although_replications_differ():
    original = np.array([0.05, 0.02, 0.08, 0.03])
    found = outcomes(samples_of(original_2=original, vad_2=original - [0.009, 0.010, 0.011, 0.010]))
    finding = found["VAD+ lowers the error"]
    assert finding.outcome == "confirmed"
    assert finding.difference == pytest.approx(-0.010)
    assert finding.standard_error == pytest.approx(np.std([9e-3, 1e-2, 1.1e-2, 1e-2], ddof=1) / 2)
    # An error of 1% in the clicks moves both alike.
    assert finding.row_error == pytest.approx(0.01 * 0.01 / 1.035, rel=1e-6)
    assert finding.error == pytest.approx(np.hypot(finding.standard_error, finding.row_error))


def test_an_over_prediction_within_the_noise_of_shared_test_rows_is_not_significant():
    found = outcomes(samples_of(original_2=[0.015, 0.016, 0.014, 0.015]))
    finding = found["a calibrator alone still over-predicts"]
    assert finding.standard_error < 0.001
    assert finding.row_error == pytest.approx(0.01, rel=1e-6)
    assert finding.outcome == "not significant"
    assert outcomes(samples_of(original_2=[0.025, 0.026, 0.025, 0.026]))[finding.claim].outcome == "confirmed"
    assert outcomes(samples_of(original_2=[-0.025, -0.026, -0.025, -0.026]))[finding.claim].outcome == "contradicted"


def test_a_correction_that_overshoots_contradicts():
    found = outcomes(samples_of(original_2=[0.02, 0.021, 0.019], vad_2=[-0.09, -0.091, -0.089]))
    assert found["VAD+ lowers the error"].outcome == "contradicted"
    assert found["VAD+ lowers the error"].difference == pytest.approx(0.07)


def test_groups_of_other_sizes_are_compared_over_the_served_models_they_share():
    # Pairs serve 0, 2, 4, 6; triples 0, 3, 6.
    found = outcomes(samples_of(original_2=[0.05] * 4, vad_2=[0.03, 9, 9, 0.04], vad_3=[0.02, 9, 0.03]))
    finding = found["S=3 is slightly better than S=2"]
    assert finding.count == 2
    assert finding.difference == pytest.approx(-0.01)


@pytest.mark.parametrize(("step", "outcome"), [(0.002, "confirmed"), (-0.002, "confirmed"), (0.02, "contradicted")])
def test_two_variants_are_alike_if_apart_by_less_than_half_of_what_vad_changes(step, outcome):
    vad = np.array([0.05, 0.051, 0.049])
    found = outcomes(samples_of(original_2=vad + 0.02, vad_2=vad, vad_identity_2=vad + step))
    assert found["VAD(p) is like VAD"].outcome == outcome


# ---------------------------------------------------------------------------- documents and text


def test_json_gives_the_same_tables_back(tables):
    content = json.loads(tables.to_json())
    assert (content["kind"], content["schema_version"], content["about"]) == ("clicks", 2, {"world": "normal"})
    assert content["cells"][0]["distance"] == tables.cells[0].distance
    back = ClickTables.from_json(tables.to_json())
    assert (back.cells, back.lambdas, back.shape, back.alphas) == (
        tables.cells,
        tables.lambdas,
        tables.shape,
        tables.alphas,
    )
    assert back.findings("confirmed") == tables.findings("confirmed")
    assert back.to_json() == tables.to_json()  # where a number is missing too: nan is not itself


def test_one_pair_has_no_standard_errors_and_decides_nothing():
    tables = measure("avazu", replace(world(models=2, rows=4_000), truth=None))
    cell = tables.cell("calibration_error", 0.03, "Platt Scaling", "vad")
    assert (cell.count, cell.distance) == (1, None)
    assert np.isnan(cell.standard_error)
    assert {f.outcome for f in tables.findings()} == {"not significant"}
    assert tables.get("true_error", 0.03) is None
    text = tables.to_json()
    assert "NaN" not in text
    assert ClickTables.from_json(text).to_json() == text
    assert "nan" not in clicks_text.text(tables)


def test_text_holds_every_cell_of_the_paper_within_120_columns(tables):
    text = clicks_text.text(tables)
    assert max(map(len, text.splitlines())) <= 120
    assert text.count("[") >= 825
    for title in ("ECE, 60 and 70 bins", "Log-loss reduction", "against the true", "The paper's findings", "λ: mean"):
        assert title in text
    cell = tables.cell("mce", 0.09, "Histogram Binning", "vad", 3)
    assert f"{cell.mean:.4f}±{cell.standard_error:.4f} [0.0296]".replace("0.", ".") in text


def test_markdown_holds_the_same_cells(tables):
    text, markdown = clicks_text.text(tables), clicks_text.markdown(tables)
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert all(cell.strip() in text for row in rows for cell in row.split("|") if "±" in cell)
    assert markdown.count("[") == text.count("[")
    assert (
        "**Calibration error, % (main text)**\n\n| α | method | Original | VAD+ |\n| :-- | :-- | --: | --: |"
        in markdown
    )


def test_avazu_has_its_three_tables(scored):
    tables = measure("avazu", scored, replicas=[2], bins=[50])
    assert sum(cell.paper_mean is not None for cell in tables.cells) == 96
    text = clicks_text.text(tables)
    for title in ("Calibration error, % (appendix)", "ECE, 50 bins of equal count (appendix)", "MCE, 50 bins"):
        assert title in text
    assert "main text" not in text


def test_without_pairs_the_other_groups_are_shown(scored):
    tables = measure("criteo", scored, replicas=[3], bins=[40], alphas=[0.03])
    assert tables.get("calibration_error", 0.03) is None
    text = clicks_text.text(tables)
    assert "VAD+ (S=3)" in text
    assert "VAD(p)+  " not in text


@pytest.mark.filterwarnings("ignore:Scaling-Binning is left out")
def test_a_calibrator_that_cannot_be_fitted_is_left_out_and_the_others_stay():
    turned = world(models=2)
    clicks = np.random.default_rng(0).random(len(turned.labelled)) < logistic(-turned.labelled[:, 0])
    turned = replace(turned, labelled_y=clicks.astype(np.uint8))  # labels fall as scores rise
    with pytest.warns(UserWarning, match="Platt Scaling is left out where it cannot be fitted: platt has slope"):
        tables = measure("criteo", turned, alphas=[0.1], bins=[50])
    assert tables.get("calibration_error", 0.1, "Platt Scaling") is None
    assert tables.get("calibration_error", 0.1, "Histogram Binning") is not None
    assert "Histogram Binning" in clicks_text.text(tables)


def test_a_table_without_contradictions_says_so(tables):
    assert "None is contradicted." in clicks_text.text(replace(tables, claims=tables.findings("confirmed")))


def test_neither_torch_nor_anything_for_tables_and_drawing_is_imported():
    heavy = ("torch", "polars", "altair", "pandas")
    code = "import sys, uncurse.experiments.clicks, uncurse.experiments.clicks_text\n"
    code += f"print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


# ---------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pool": np.zeros(5)}, r"pool has shape \(5,\); pass logits of shape"),
        ({"test": np.zeros((9, 3))}, "test has 3 models, the pool 6"),
        ({"labelled_y": np.zeros(3)}, r"labelled_y has shape \(3,\) but there are 500 scores"),
        ({"test_y": np.full(2_000, 2)}, r"test_y\[0\] is 2; labels must be 0 or 1"),
        ({"truth": np.zeros(3)}, r"truth has shape \(3,\), test_y \(2000,\)"),
        ({"pool": np.full((5, 6), np.nan)}, r"pool\[0"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(UncurseError, match=message):
        replace(world(rows=500, test=2_000), **changes)


def test_one_model_is_refused():
    one = np.zeros((4, 1))
    with pytest.raises(UncurseError, match="there is 1 model; VAD needs replicas"):
        Scored(one, np.zeros(4), one, one, np.zeros(4))


def test_bad_arguments_are_refused(tables):
    scored = world(rows=500, test=2_000)
    with pytest.raises(UncurseError, match="dataset='movielens' is unknown"):
        measure("movielens", scored)
    with pytest.raises(UncurseError, match="alphas or bins is empty"):
        measure("criteo", scored, bins=[])
    with pytest.raises(UncurseError, match=r"replicas=\(7,\) with 6 models; pass sizes of groups from 2 to 6"):
        measure("criteo", scored, replicas=(7,))
    with pytest.raises(UncurseError, match="the labels hold no positives"):
        measure("criteo", replace(scored, labelled_y=np.zeros(500)))
    with pytest.raises(UncurseError, match="of 2,000 test rows no selection holds a click"):
        measure("criteo", replace(scored, test_y=np.zeros(2_000)))
    with pytest.raises(UncurseError, match=r"no cell for ece, alpha=0\.5, Vanilla, bins=50"):
        tables.cell("ece", 0.5, "Vanilla", bins=50)
    with pytest.raises(UncurseError, match="outcome='maybe' is unknown"):
        tables.findings("maybe")
    with pytest.raises(UncurseError, match="kind='map' is unknown"):
        ClickTables.from_json(json.dumps({"kind": "map", "schema_version": 2}))
    with pytest.raises(UncurseError, match="not a complete clicks document"):
        ClickTables.from_json(json.dumps({"kind": "clicks", "schema_version": 2}))


# ---------------------------------------------------------------------------- few rows


def test_shares_without_a_click_are_left_out_with_a_warning():
    rare = world(models=2, test=1_000)
    first = np.zeros(1_000, np.uint8)
    order = np.argsort(-rare.test[:, 0])
    first[order[25:200]] = 1  # none among the best 25, some among the best 50
    few = replace(rare, test_y=first)
    with pytest.warns(UserWarning, match=r"left out: the top 2% of 1,000 test rows holds no click"):
        tables = measure("criteo", few, alphas=[0.02, 0.05])
    assert tables.alphas == (0.05,)
    assert "5%" in clicks_text.text(tables)
    none = replace(rare, test_y=np.eye(1_000, dtype=np.uint8)[order[-1]])
    with pytest.raises(UncurseError, match="no selection holds a click"):
        measure("criteo", none, alphas=[0.02])


def test_models_that_differ_by_more_than_their_scores_vary_are_told_once():
    noisy = world(models=4)
    rng = np.random.default_rng(1)
    pool = (noisy.pool[:, :1] * 0.1 + rng.normal(0, 1, noisy.pool.shape)).astype(np.float32)
    with pytest.warns(UserWarning, match=r"λ were not above 0\.05 and are taken as that") as told:
        tables = measure("criteo", replace(noisy, pool=pool), alphas=[0.1], bins=[50])
    assert len(told) == 1
    assert tables.lambdas[0].pool == pytest.approx(0.05) or tables.lambdas[-1].pool == pytest.approx(0.05)
