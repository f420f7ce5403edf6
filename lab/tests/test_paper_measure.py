"""The paper's experiments on click logs after training, on worlds whose truth is known."""

import json
from dataclasses import replace

import numpy as np
import pytest

from uncurse import VAD, UncurseError, calibrate, evaluate
from uncurse.links import logistic
from uncurse_lab import render
from uncurse_lab.paper.claims import judge
from uncurse_lab.paper.measure import measure, tabulate
from uncurse_lab.paper.served import SETTINGS, Scored
from uncurse_lab.paper.tables import CALIBRATORS, LEVEL, Key, paper
from uncurse_lab.paper.text import parts


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

    labeled, pool, tested = draw(rows, False), draw(rows, True), draw(test, True)
    return Scored(labeled[0], labeled[1], pool[0], *tested)


def tables_of(dataset, *worlds, about=None, **options):
    return tabulate(dataset, [measure(scored, processes=1, **options) for scored in worlds], about)


def text_of(tables):
    return render.text(parts(tables))


@pytest.fixture(scope="module")
def scored():
    return world(models=6, test=25_000)


@pytest.fixture(scope="module")
def tables(scored):
    return tables_of("criteo", scored, about={"world": "normal"}, methods=["VAD"])


# ---------------------------------------------------------------------------- the figures


def test_the_model_over_predicts_the_winners_and_vad_does_not(tables):
    # Models of unit slope: VAD shrinks by λ = Var(truth) / Var(score), which calibrators know on labeled rows only.
    for alpha in (0.02, 0.1):
        assert tables.get("true_error", alpha).mean > 0.1
        for name in CALIBRATORS[2:]:
            alone, tandem = (tables.get("true_error", alpha, name, v).mean for v in ("original", "vad"))
            assert abs(tandem) < alone
        vanilla, vad = (tables.get("true_error", alpha, "Vanilla", v) for v in ("original", "vad"))
        assert abs(vad.mean) < 0.35 * vanilla.mean
        assert tables.get("log_loss_reduction", alpha, "Vanilla", "vad").mean < 0


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name != LEVEL])
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
    scored, measured = ties
    if curvature and name != "Vanilla":
        assert Key("ece", name, variant, 2, 50) not in measured.figures[0]
        return
    method, options = SETTINGS.get(name, (None, {}))
    served, labeled = scored.test[:, 0], (scored.labeled[:, :s], scored.labeled_y)
    if method is None:
        alone = logistic(served.astype(np.float64))
    else:
        alone = calibrate(method, labeled[0][:, 0], labeled[1], **options)(served)
    p = alone
    if link is not None:
        vad = VAD(scale="logit", replicas="seeds", link=link, calibrator=method, curvature=curvature, recenter=False)
        p = vad.fit(scored.pool[:, :s], labeled=None if method is None else labeled).predict_proba(served)

    # The library approximates a calibrator of logits and a line of probabilities by one curve.
    tolerance = 1e-4 if link == "identity" and method is not None else 1e-10

    def figure(metric, bins=None):
        return float(measured.figures[0][Key(metric, name, variant, s, bins)][0])

    for m in (30, 50) if (s, variant) in ((2, "original"), (2, "vad")) else (50,):
        (row,) = evaluate(scored.test_y, p, [0.05], n_bins=m).rows
        for metric in ("ece", "mce"):
            expected = getattr(row, metric)
            assert figure(metric, m) == pytest.approx(float(expected), abs=tolerance)
            assert figure(f"{metric}_floor", m) == pytest.approx(expected.floor, abs=tolerance)
            assert figure(f"{metric}_click_error", m) == pytest.approx(expected.standard_error, abs=tolerance)
    assert figure("calibration_error") == pytest.approx(float(row.calibration_error), abs=tolerance)
    error = row.calibration_error.standard_error
    assert figure("calibration_error_click_error") == pytest.approx(error, abs=tolerance)
    if link is not None:
        (before,) = evaluate(scored.test_y, alone, [0.05]).rows
        assert figure("log_loss_reduction") == pytest.approx(row.log_loss / before.log_loss - 1, abs=tolerance)
    # The truth of the selection; of the rows that tie at its edge, all alike.
    count, total = round(0.05 * len(served)), 0.0
    for value in np.unique(served)[::-1]:
        tied = served == value
        total += scored.truth[tied].sum() * min(1, count / tied.sum())
        count -= tied.sum()
        if count <= 0:
            break
    assert figure("true_error") == pytest.approx(row.predicted / total - 1, abs=tolerance)


@pytest.fixture(scope="module")
def ties():
    scored = world(models=3, rows=5_000, test=20_000, seed=3, digits=2)
    return scored, measure(scored, alphas=[0.05], bins=[30, 50], methods=["VAD"], processes=1)


def part_of(scored, *columns):
    columns = list(columns)
    return replace(
        scored, labeled=scored.labeled[:, columns], pool=scored.pool[:, columns], test=scored.test[:, columns]
    )


def test_both_networks_of_a_pair_are_served_and_a_pair_is_one_observation(scored, tables):
    options = {"bins": [50], "methods": ["VAD"], "alphas": [0.03, 0.1]}
    pairs = [tables_of("criteo", part_of(scored, i, i + 1), **options) for i in range(0, 6, 2)]
    for place in [("calibration_error", 0.03, "Platt Scaling", "vad"), ("ece", 0.1, "Isotonic Regression", "original")]:
        values = np.array([one.get(*place).mean for one in pairs])  # each the mean of two served networks
        cell = tables.get(*place)
        assert (cell.count, pairs[0].get(*place).count) == (6, 2)
        assert cell.mean == pytest.approx(values.mean(), abs=1e-12)
        assert cell.network_error == pytest.approx(values.std(ddof=1) / np.sqrt(3), rel=1e-9)
        assert cell.error == pytest.approx(np.hypot(cell.network_error, cell.click_error))
        assert cell.world_error is None
    first, second = (
        tables_of("criteo", part_of(scored, *columns), alphas=[0.05], bins=[50], methods=["VAD", "labels"])
        for columns in ((0, 1), (1, 0))
    )
    for place in [("true_error", 0.05, "Vanilla", "vad"), ("true_error", 0.05, "labels", "seeds")]:
        assert first.get(*place).mean == pytest.approx(second.get(*place).mean, rel=1e-9)


def test_worlds_are_pooled_and_the_spread_between_them_is_the_error():
    worlds = [world(models=4, rows=5_000, test=10_000, seed=seed) for seed in range(3)]
    options = {"alphas": [0.05, 1.0], "bins": [50], "replicas": [2], "methods": ["VAD"]}
    measured = [measure(one, processes=1, **options) for one in worlds]
    each, together = [tabulate("criteo", [one]) for one in measured], tabulate("criteo", measured)
    assert (together.worlds, len(together.networks)) == (3, 3)
    for metric in ("calibration_error", "true_error", "ece", "mce", "log_loss_reduction"):
        place = metric, 0.05, "Platt Scaling", "vad"
        means = np.array([one.get(*place).mean for one in each])
        cell = together.get(*place)
        assert cell.mean == pytest.approx(means.mean(), rel=1e-12)
        assert cell.error == cell.world_error == pytest.approx(means.std(ddof=1) / np.sqrt(3), rel=1e-9)
        inside = np.sqrt(sum(one.get(*place).network_error ** 2 for one in each)) / 3
        assert cell.network_error == pytest.approx(inside, rel=1e-9)
        if metric != "true_error":
            assert 0 < cell.click_error < each[0].get(*place).click_error
    text = text_of(together)
    assert "/" in text.split("Calibration error, %")[1].splitlines()[2]
    assert "Too few replications" in text


def test_log_loss_reduction_has_the_error_of_paired_losses(ties):
    scored, _ = ties
    served = scored.test[:, 0]
    chosen = np.argsort(-served, kind="stable")[: round(0.05 * len(served))]
    vad = VAD(scale="logit", replicas="seeds").fit(scored.pool[:, :2])
    y, before, after = scored.test_y[chosen], logistic(served[chosen].astype(float)), vad.predict_proba(served[chosen])
    old, new = (-np.log(np.where(y, p, 1 - p)) for p in (before, after))
    ratio = new.sum() / old.sum() - 1
    expected = np.sqrt(np.square(new - old - ratio * old).sum()) / old.sum()
    one = tables_of("criteo", part_of(scored, 0, 1), alphas=[0.05], bins=[50], methods=["VAD"])
    assert one.get("log_loss_reduction", 0.05, "Vanilla", "vad").click_error == pytest.approx(expected, rel=0.1)


def test_level_correction_moves_the_sum_of_predictions_to_that_of_labels():
    plain = off = world(models=2)
    off = replace(off, labeled=off.labeled + 0.3, pool=off.pool + 0.3, test=off.test + 0.3)
    options = {"alphas": [0.05, 1.0], "bins": [50], "methods": ["VAD"]}
    one, two = (tables_of("criteo", s, **options) for s in (off, plain))
    for alpha in (0.05, 1.0):
        same = [t.get("true_error", alpha, LEVEL, v).mean for t in (one, two) for v in ("original", "vad")]
        assert same[:2] == pytest.approx(same[2:], abs=2e-3)
        assert one.get("true_error", alpha).mean > two.get("true_error", alpha).mean + 0.05
        step = one.get("true_error_step", alpha, LEVEL, "vad").mean
        assert step == pytest.approx(same[1] - same[0])


def test_snapshots_are_replicas_beside_the_twin(scored):
    rng = np.random.default_rng(5)
    # Checkpoints whose noise is as independent as a twin's, and ones that hardly differ.
    scored = part_of(scored, 0, 1)
    far = [scored.labeled[:, ::-1].copy(), scored.pool[:, ::-1].copy()]
    near = [part + rng.normal(0, 0.05, part.shape).astype(np.float32) for part in (scored.labeled, scored.pool)]
    kept = replace(scored, snapshots={0.8: tuple(far), 0.9: tuple(near)})
    tables = tables_of("criteo", kept, alphas=[0.05], bins=[50], replicas=[2])
    served, twin, old, close = (
        abs(tables.get("true_error", 0.05, *place).mean)
        for place in [("Vanilla",), ("VAD", "seeds"), ("VAD", "snapshot 80%"), ("VAD", "snapshot 90%")]
    )
    assert max(twin, old) < 0.25 * served
    assert close > 0.9 * served
    for name in ("labels", "Auto"):
        cells = [tables.get("true_error", 0.05, name, kind).mean for kind in ("seeds", "snapshot 80%")]
        assert max(map(abs, cells)) < 0.02
    shares = {row.kind: (1 - row.pool) for row in tables.lambdas if row.link == "logistic"}
    assert shares["snapshot 80%"] == pytest.approx(shares["seeds"], rel=0.05)
    assert shares["snapshot 90%"] < 0.02 * shares["seeds"] + 0.01
    text = text_of(tables)
    assert "snapshot 80%" in text
    assert "by kind of replica" in text


def test_lambda_is_the_share_of_the_scores_that_is_truth(tables):
    # Var(truth) is 1 on the labeled rows, the noise of each model 0.25.
    for row in tables.lambdas:
        if (row.kind, row.link) == ("seeds", "logistic"):
            assert row.labeled == pytest.approx(1 / 1.25, abs=0.01)
            assert row.ratio == pytest.approx(row.pool / row.labeled, rel=1e-3)
            assert row.ratio < 1


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
    beside = [cell for cell in tables.cells if cell.paper_mean is not None and not cell.metric.endswith("_step")]
    assert len(beside) == 825
    cell = tables.get("log_loss_reduction", 0.02, "Platt Scaling", "vad")
    error = np.sqrt(2 * (cell.network_error**2 + cell.click_error**2))
    assert cell.distance == pytest.approx((cell.mean + 0.0005) / error)
    assert tables.get("calibration_error_step", 0.02, "Vanilla", "vad").paper_mean == pytest.approx(-0.0367)


# ---------------------------------------------------------------------------- its findings


def test_a_finding_is_judged_once_for_each_metric_and_calibrator(tables):
    found = tables.claims
    places = [(f.claim, f.metric, f.calibrator) for f in found]
    assert len(set(places)) == len(places)
    assert {f.alpha for f in found} == {0.09, 0.1}  # the largest that the paper prints
    (over,) = (f for f in found if f.claim == "the model over-predicts")
    assert (over.outcome, over.alpha, over.same_sign, over.printed) == ("confirmed", 0.1, 6, 6)
    lower = {f.calibrator: f for f in found if (f.claim, f.metric) == ("VAD+ lowers the error", "calibration_error")}
    assert len(lower) == 5
    one = lower["Platt Scaling"]
    assert one.paper == (0.0091, 0.0180)
    assert one.paper_difference == pytest.approx(-0.0089)
    assert one.ours[0] == pytest.approx(tables.get("calibration_error", 0.1, "Platt Scaling", "vad").mean)
    assert lower["Vanilla"].outcome == "confirmed"
    outcomes = {f.outcome for f in found if f.claim in ("S=5 is like S=2", "S=6 is like S=2")}
    assert outcomes == {"not significant"}  # one group says nothing of its spread


def samples_of(**columns):
    """Samples of one metric and calibrator at α = 3%; a name is the variant and S, such as vad_2."""
    made = {}
    for name, values in columns.items():
        variant, s = name.rsplit("_", 1)
        key = Key("calibration_error", "Platt Scaling", variant, int(s))
        made[key] = {(0, i * int(s)): np.array([value]) for i, value in enumerate(values)}
        made[key._replace(metric="calibration_error_click_error")] = {(0, i): [0.01] for i in range(len(values))}
    return made


def outcomes(samples):
    return {f.claim: f for f in judge("criteo", [0.03], samples)}


def test_a_paired_difference_is_clear_although_replications_differ():
    original = np.array([0.05, 0.02, 0.08, 0.03])
    found = outcomes(samples_of(original_2=original, vad_2=original - [0.009, 0.010, 0.011, 0.010]))
    finding = found["VAD+ lowers the error"]
    assert finding.outcome == "confirmed"
    assert finding.difference == pytest.approx(-0.010)
    # An error of 1% in the clicks moves both alike.
    networks, clicks = np.std([9e-3, 1e-2, 1.1e-2, 1e-2], ddof=1) / 2, 0.01 * 0.01 / 1.035
    assert finding.error == pytest.approx(np.hypot(networks, clicks), rel=1e-6)


def test_an_over_prediction_within_the_noise_of_shared_test_rows_is_not_significant():
    found = outcomes(samples_of(original_2=[0.015, 0.016, 0.014, 0.015]))
    finding = found["a calibrator alone still over-predicts"]
    assert finding.error == pytest.approx(0.01, rel=0.01)
    assert finding.outcome == "not significant"
    assert outcomes(samples_of(original_2=[0.025, 0.026, 0.025, 0.026]))[finding.claim].outcome == "confirmed"
    assert outcomes(samples_of(original_2=[-0.025, -0.026, -0.025, -0.026]))[finding.claim].outcome == "contradicted"


@pytest.mark.parametrize(("step", "outcome"), [(0.002, "confirmed"), (-0.002, "confirmed"), (0.02, "contradicted")])
def test_two_variants_are_alike_if_apart_by_less_than_half_of_what_vad_changes(step, outcome):
    vad = np.array([0.05, 0.051, 0.049])
    found = outcomes(samples_of(original_2=vad + 0.02, vad_2=vad, vad_identity_2=vad + step))
    assert found["VAD(p) is like VAD"].outcome == outcome


# ---------------------------------------------------------------------------- documents and text


def test_json_holds_every_cell(tables):
    content = json.loads(tables.to_json())
    assert (content["kind"], content["schema_version"], content["about"]) == ("clicks", 2, {"world": "normal"})
    assert content["cells"][0]["distance"] == tables.cells[0].distance
    assert len(content["cells"]) == len(tables.cells)
    assert len(content["claims"]) == len(tables.claims)


def test_one_pair_has_no_standard_errors_and_decides_nothing():
    scored = replace(world(models=2, rows=4_000, test=20_000), truth=None)
    tables = tables_of("avazu", scored, alphas=[0.03, 0.05], bins=[50], methods=["VAD"])
    cell = tables.get("calibration_error", 0.03, "Platt Scaling", "vad")
    assert (cell.count, cell.distance) == (2, None)
    assert np.isnan(cell.network_error)
    assert {f.outcome for f in tables.claims} == {"not significant"}
    assert tables.get("true_error", 0.03) is None
    assert "NaN" not in tables.to_json()
    assert "nan" not in text_of(tables)


def test_text_holds_every_cell_of_the_paper_within_120_columns(tables):
    text = text_of(replace(tables, models=10))  # findings are shown of five pairs or more
    assert max(map(len, text.splitlines())) <= 120
    assert text.count("[") >= 825
    titles = "ECE, 60 and 70 bins", "Log-loss reduction", "against the true", "The paper's findings", "λ: mean"
    for title in (*titles, "VAD's step"):
        assert title in text
    cell = tables.get("mce", 0.09, "Histogram Binning", "vad", 3)
    assert f"{cell.mean:.4f}({cell.within:.4f}) [0.0296]".replace("0.", ".") in text


@pytest.mark.filterwarnings("ignore:(Scaling-Binning|labels|Auto)")
def test_a_calibrator_that_cannot_be_fitted_is_left_out_and_the_others_stay():
    turned = world(models=2, rows=5_000, test=10_000)
    clicks = np.random.default_rng(0).random(len(turned.labeled)) < logistic(-turned.labeled[:, 0])
    turned = replace(turned, labeled_y=clicks.astype(np.uint8))  # labels fall as scores rise
    with pytest.warns(UserWarning, match="is left out for 2 of 2 networks: .*labels fall as scores rise"):
        tables = tables_of("criteo", turned, alphas=[0.1], bins=[50])
    assert tables.get("calibration_error", 0.1, "Platt Scaling") is None
    assert tables.get("calibration_error", 0.1, "Vanilla") is not None
    assert "Vanilla" in text_of(tables)


# ---------------------------------------------------------------------------- faults


def test_labels_without_a_click_are_refused():
    scored = world(rows=500, test=2_000)
    with pytest.raises(UncurseError, match="of 2,000 test rows no selection holds a click"):
        tables_of("criteo", replace(scored, test_y=np.zeros(2_000)))


# ---------------------------------------------------------------------------- few rows


def test_shares_without_a_click_are_left_out_with_a_warning():
    rare = world(models=2, test=1_000)
    first = np.zeros(1_000, np.uint8)
    order = np.argsort(-rare.test[:, 0])
    first[order[25:200]] = 1  # none among the best 25, some among the best 50
    few = replace(rare, test_y=first)
    with pytest.warns(UserWarning, match=r"left out: the top 2% of 1,000 test rows holds no click"):
        tables = tables_of("criteo", few, alphas=[0.02, 0.05], bins=[50], methods=["VAD"])
    assert tables.alphas == (0.05,)
    assert "5%" in text_of(tables)
