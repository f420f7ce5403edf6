import copy
import json
import pickle

import numpy as np
import pytest
import sklearn.metrics
from scipy.special import expit

from uncurse import Affine, Segmented, Steps, UncurseError
from uncurse.evidence import LogSpec, from_arrays
from uncurse.metrics import (
    Estimate,
    calibration_error,
    evaluate,
    evaluate_log,
    expected_calibration_error,
    log_loss_reduction,
    maximum_calibration_error,
    top_share,
)

NAMES = ("ratio", "calibration_error", "ece", "mce", "log_loss", "brier")


def world(rows, *, seed=0, mean=-1.0, sd=0.8, slope=1.2, shift=0.1, decimals=None):
    """Predictions too steep by `slope` and too high by `shift`, labels of the truth, and weights."""
    rng = np.random.default_rng(seed)
    l = rng.normal(mean, sd, rows)
    p = expit(slope * (l - mean) + mean + shift)
    if decimals is not None:
        p = p.round(decimals)
    return (rng.random(rows) < expit(l)).astype(int), p, rng.exponential(size=rows)


def paper_bins(y, p, bins):
    """The paper's code: sort, split in M equal parts, plain mean of |mean f − mean y|."""
    order = np.argsort(p)
    gaps = [abs(p[part].mean() - y[part].mean()) for part in np.split(order, bins)]
    return np.mean(gaps), max(gaps)


def assert_rows_equal(a, b, tolerance=1e-9, errors=True):
    for name in NAMES:
        ours, theirs = getattr(a, name), getattr(b, name)
        np.testing.assert_allclose(float(ours), float(theirs), rtol=tolerance, atol=tolerance, err_msg=name)
        if errors:
            np.testing.assert_allclose(ours.standard_error, theirs.standard_error, rtol=1e-6, atol=1e-12, err_msg=name)
    for name in ("selected", "predicted", "observed"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=tolerance)


# ---------------------------------------------------------------------------- values


@pytest.mark.parametrize("weighted", [False, True])
def test_calibration_error_is_a_ratio_of_sums(weighted):
    y, p, w = world(1000)
    w = w if weighted else None
    expected = np.average(p, weights=w) / np.average(y, weights=w) - 1
    np.testing.assert_allclose(calibration_error(y, p, sample_weight=w), expected, rtol=1e-10)
    np.testing.assert_allclose(calibration_error(5 * y + 1.5, 5 * p + 1.5), 5 * (p - y).sum() / (5 * y + 1.5).sum())


@pytest.mark.parametrize("weighted", [False, True])
def test_log_loss_and_brier_equal_scikit_learn(weighted):
    y, p, w = world(1000)
    w = w if weighted else None
    losses = [sklearn.metrics.log_loss(y, x, sample_weight=w) for x in (p, np.full(1000, y.mean()))]
    row = evaluate(y, p, [1.0], sample_weight=w).rows[0]
    np.testing.assert_allclose(row.log_loss, losses[0], rtol=1e-10)
    np.testing.assert_allclose(row.brier, sklearn.metrics.brier_score_loss(y, p, sample_weight=w), rtol=1e-10)
    reduction = log_loss_reduction(y, p, np.full(1000, y.mean()), sample_weight=w)
    np.testing.assert_allclose(reduction, losses[0] / losses[1] - 1, rtol=1e-10)
    assert np.isfinite(evaluate([1, 0], [0.0, 1.0], 1.0).rows[0].log_loss)  # certain and wrong


@pytest.mark.parametrize("weighted", [False, True])
def test_ece_and_mce_of_equal_width_are_plain_sums(weighted):
    y, p, w = world(2000, decimals=2)  # some predictions lie on the edges of bins
    w = w if weighted else np.ones(2000)
    codes = np.floor(np.nextafter(p, 1) * 20).astype(int)
    total = np.bincount(codes, w, 20)
    gaps = np.abs(np.bincount(codes, w * (p - y), 20))[total > 0] / total[total > 0]
    options = {"n_bins": 20, "strategy": "uniform", "sample_weight": w}
    np.testing.assert_allclose(maximum_calibration_error(y, p, **options), gaps.max(), atol=1e-12)
    np.testing.assert_allclose(
        expected_calibration_error(y, p, **options), gaps @ total[total > 0] / w.sum(), atol=1e-12
    )


@pytest.mark.parametrize("bins", [1, 10, 50])
@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.5, 1.0])
def test_ece_and_mce_of_equal_count_equal_the_paper_code(bins, alpha):
    y, p, _ = world(10_000)
    top = np.argsort(-p)[: int(alpha * 10_000)]
    ece, mce = paper_bins(y[top], p[top], bins)
    row = evaluate(y, p, [alpha], n_bins=bins).rows[0]
    np.testing.assert_allclose((row.ece, row.mce), (ece, mce), atol=1e-12)
    np.testing.assert_allclose(expected_calibration_error(y[top], p[top], n_bins=bins), ece, atol=1e-12)
    np.testing.assert_allclose(maximum_calibration_error(y[top], p[top], n_bins=bins), mce, atol=1e-12)


# ---------------------------------------------------------------------------- standard errors and floors


def redrawn(draw, metrics, draws=250):
    values, errors, floors = [], [], []
    for i in range(draws):
        row = metrics(*draw(np.random.default_rng(i)))
        values.append([float(v) for v in row])
        errors.append([v.standard_error for v in row])
        floors.append([np.nan if v.floor is None else v.floor for v in row])
    return np.array(values), np.array(errors), np.array(floors)


def draw_of(rows, mean, slope, shift, decimals=None):
    def draw(rng):
        l = rng.normal(mean, 0.8, rows)
        p = expit(slope * (l - mean) + mean + shift)
        p = p if decimals is None else p.round(decimals)
        return rng.random(rows) < expit(l), p

    return draw


def top_metrics(alpha):
    def metrics(y, p):
        row = evaluate(y, p, [alpha]).rows[0]
        return [getattr(row, name) for name in ("calibration_error", "ece", "mce", "log_loss", "brier")]

    return metrics


SIMULATIONS = {
    "true predictions, all of 25%": (draw_of(1500, -1.0, 1.0, 0.0), 1.0),
    "true predictions, top of 25%": (draw_of(3000, -1.0, 1.0, 0.0), 0.2),
    "too steep, all of 25%": (draw_of(1500, -1.0, 1.4, 0.3), 1.0),
    "too steep, top of 4%": (draw_of(10_000, -3.5, 1.4, 0.3), 0.1),
}


@pytest.fixture(scope="module")
def simulations():
    return {name: redrawn(draw, top_metrics(alpha)) for name, (draw, alpha) in SIMULATIONS.items()}


@pytest.mark.theory
@pytest.mark.parametrize("name", SIMULATIONS)
@pytest.mark.parametrize(
    ("metric", "column"), [("calibration error", 0), ("ece", 1), ("mce", 2), ("log loss", 3), ("brier", 4)]
)
def test_standard_error_is_the_spread_over_resampled_rows(simulations, name, metric, column):
    values, errors, _ = simulations[name]
    spread = values[:, column].std(ddof=1)
    # 250 draws: a standard error of 1/√500 = 4.5%.
    assert abs(np.sqrt(np.mean(errors[:, column] ** 2)) / spread - 1) < 0.15


def test_floor_of_the_synthetic_experiment_equals_the_published_value():
    # METHOD.md: with the true probabilities as predictions ECE is .0515 at α = 2% (600 of 30,000 rows, 10 bins).
    rng = np.random.default_rng(1)
    floors = []
    for _ in range(20):
        p = expit(rng.normal(-0.05 * 20, 0.1 * np.sqrt(20), 30_000))
        floors.append(evaluate(rng.random(30_000) < p, p, [0.02]).rows[0].ece.floor)
    assert abs(np.mean(floors) - 0.0515) < 0.0005


@pytest.mark.parametrize("weighted", [False, True], ids=["equal weights", "weighted"])
@pytest.mark.parametrize("rate", [0.5, 0.02])
@pytest.mark.parametrize(("rows", "bins"), [(1, 50), (5, 10), (60, 10)])
def test_floor_of_bins_with_few_rows_is_the_mean_over_labels_drawn_from_the_predictions(rows, bins, rate, weighted):
    rng = np.random.default_rng(0)
    p = np.sort(rng.beta(4 * rate, 4 * (1 - rate), rows * bins))[::-1]
    w = rng.exponential(size=len(p)) if weighted else np.ones(len(p))
    y = rng.random((1000, len(p))) < p
    (row,) = evaluate(np.arange(len(p)) % 2, p, 1.0, sample_weight=w if weighted else None, n_bins=bins).rows
    reached = np.cumsum([part.weight for part in row.bins[::-1]])
    starts = np.append(0, np.searchsorted(np.cumsum(w), reached[:-1] * (1 - 1e-9)) + 1)
    total = np.add.reduceat(w, starts)
    gaps = np.abs(np.add.reduceat(w * (y - p), starts, axis=1)) / total
    for estimate, values in ((row.ece, gaps @ total / w.sum()), (row.mce, gaps.max(axis=1))):
        # Four standard errors of 1,000 draws. Sums are not binomial: the rows of a bin differ, most in their weights.
        chance, model = 4 * values.std() / np.sqrt(1000), (0.03 if weighted else 0.02) * values.mean()
        assert abs(estimate.floor - values.mean()) < chance + model
    assert row.ece.floor < row.mce.floor <= 1


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_equal_labels_leave_the_binomial_error_of_the_predictions(weight):
    p, y, w = np.full(122, 121.7 / 122), np.ones(122, int), np.full(122, weight)
    expected = np.sqrt(p[0] * (1 - p[0]) / 122)
    for estimate in (
        evaluate(y, p, [1.0], sample_weight=w).rows[0].calibration_error,
        calibration_error(y, p, sample_weight=w),
    ):
        assert float(estimate) == pytest.approx(121.7 / 122 - 1)
        assert estimate.standard_error == pytest.approx((1 + estimate) * expected)


# ---------------------------------------------------------------------------- many shares, ties, big data

ALPHAS = [0.001, 0.013, 0.02, 0.1, 0.37, 0.5, 0.731, 1.0]


@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
@pytest.mark.parametrize("alphas", [ALPHAS, ALPHAS[:4]], ids=["all", "the top only"])
def test_several_shares_equal_separate_calls(alphas, strategy):
    y, p, _ = world(20_000)
    result = evaluate(y, p, alphas, strategy=strategy, n_bins=7)
    for alpha, row in zip(alphas, result.rows, strict=True):
        top = top_share(p, alpha)
        alone = evaluate(y[top], p[top], [1.0], strategy=strategy, n_bins=7).rows[0]
        assert row.alpha == alpha
        assert row.selected == top.sum()
        assert_rows_equal(row, alone)


def test_rows_of_zero_weight_do_not_count():
    y, p, w = world(1000)
    w[::3] = 0
    kept = w > 0
    one, other = (
        evaluate(y, p, [0.1, 1.0], sample_weight=w),
        evaluate(y[kept], p[kept], [0.1, 1.0], sample_weight=w[kept]),
    )
    for left, right in zip(one.rows, other.rows, strict=True):
        assert_rows_equal(left, right)


def test_numbers_of_either_precision_and_zeros_of_either_sign_agree():
    y, p, _ = world(20_000)
    p[:4] = 0.0, -0.0, 1.0, 1e-300
    for alphas in (ALPHAS, ALPHAS[:4]):
        for a, b in zip(evaluate(y, p, alphas).rows, evaluate(y, p.astype(np.float32), alphas).rows, strict=True):
            assert_rows_equal(a, b, tolerance=1e-5, errors=False)


@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
@pytest.mark.parametrize("weighted", [False, True])
def test_ties_at_the_edge_do_not_depend_on_the_order_of_rows(weighted, strategy):
    y, p, w = world(3000, decimals=1)
    rng = np.random.default_rng(0)
    one = evaluate(y, p, ALPHAS, sample_weight=w if weighted else None, strategy=strategy)
    for _ in range(3):
        o = rng.permutation(3000)
        other = evaluate(y[o], p[o], ALPHAS, sample_weight=w[o] if weighted else None, strategy=strategy)
        for a, b in zip(one.rows, other.rows, strict=True):
            assert_rows_equal(a, b)


@pytest.mark.parametrize("weighted", [False, True])
def test_more_than_a_million_rows_agree_with_a_direct_computation(weighted):
    y, p, w = world((1 << 20) + 50_000, mean=-3.0, sd=1.0)
    w = np.ceil(4 * w) if weighted else np.ones(len(p))
    order = np.argsort(-p)
    for row in evaluate(y, p, [1.0, 0.02], sample_weight=w if weighted else None).rows:
        part = order[: np.searchsorted(np.cumsum(w[order]), row.alpha * w.sum()) + 1]
        losses = -np.where(y > 0, np.log(p), np.log1p(-p))[part]
        assert row.ratio == pytest.approx((w * p)[part].sum() / (w * y)[part].sum(), rel=1e-4)
        assert row.log_loss == pytest.approx(np.average(losses, weights=w[part]), rel=1e-4)
        assert row.brier == pytest.approx(np.average(np.square(y - p)[part], weights=w[part]), rel=1e-4)


def test_ties_at_the_edge_count_in_part():
    y, p = np.array([1, 1, 0, 0, 0, 1]), np.array([0.9, 0.5, 0.5, 0.5, 0.5, 0.1])
    row = evaluate(y, p, [0.5]).rows[0]
    np.testing.assert_allclose((row.selected, row.predicted, row.observed), (3, 0.9 + 2 * 0.5, 1 + 2 * 0.25))


@pytest.mark.parametrize("weighted", [False, True])
def test_evaluation_of_a_log_equals_that_of_its_corrected_rows(weighted):
    rng = np.random.default_rng(0)
    l = rng.normal(-1, 0.8, 500)
    y, w = rng.random(500) < expit(l), rng.exponential(size=500) if weighted else None
    log = from_arrays(l[:, None], y, spec=LogSpec(("s",), "logit", negative_sampling_rate=0.5), sample_weight=w)
    corrected = l + np.log(0.5)
    for score_map, p in ((None, expit(corrected)), (Affine(0.8, -0.2), expit(0.8 * l - 0.2))):
        for a, b in zip(evaluate_log(log, score_map).rows, evaluate(y, p, sample_weight=w).rows, strict=True):
            assert_rows_equal(a, b, tolerance=1e-6)  # cells are 2^-14 of a logit wide
    assert [row.alpha for row in evaluate_log(log).rows] == [0.02, 0.05, 0.1, 1.0]
    ours, theirs = evaluate_log(log, n_bins=7, strategy="uniform"), evaluate(y, expit(corrected), sample_weight=w)
    assert (ours.n_bins, ours.strategy, ours.total) == (7, "uniform", pytest.approx(theirs.total))


def test_evaluation_of_a_log_maps_each_group_by_its_own_map():
    rng = np.random.default_rng(0)
    l, segment = rng.normal(-1, 0.8, 500), np.repeat(["a", "b", "other"], [200, 200, 100])
    y = rng.random(500) < expit(l)
    segmented = Segmented(Affine(1.0, -1.0), {"a": Affine(1.0, 0.5), "b": Affine(0.5, 0.0)})
    p = expit(np.select([segment == "a", segment == "b"], [l + 0.5, 0.5 * l], l - 1))
    log = from_arrays(l[:, None], y, segments=segment)
    for row in evaluate_log(log, segmented).rows:
        top = top_share(l, row.alpha)  # the served score selects, not the prediction
        (expected,) = evaluate(y[top], p[top], 1.0).rows
        assert_rows_equal(row, expected)
    with pytest.raises(UncurseError, match="collect the log by its segment column"):
        evaluate_log(from_arrays(l[:, None], y), segmented)


def test_all_maps_are_evaluated_on_the_rows_that_the_served_score_selects():
    rng = np.random.default_rng(1)
    l, segment = rng.normal(-1, 0.8, 3000).round(2), rng.choice(["a", "b"], 3000)  # with ties
    y = rng.random(3000) < expit(l)
    log = from_arrays(l[:, None], y, segments=segment)
    maps = (
        None,
        Affine(0.5, -1.0),
        Steps((-0.5,), (-2.0, -1.0)),  # the top is flat
        Segmented(Affine(1.0, 0.0), {"a": Affine(1.0, 2.0), "b": Affine(0.5, 0.0)}),
    )
    found = [evaluate_log(log, one, (0.0123, 0.05, 1.0)).rows for one in maps]
    assert [row.selected for row in found[0]] == pytest.approx([37, 150, 3000])  # whole rows, if weights are equal
    for rows in zip(*found, strict=True):
        np.testing.assert_allclose([row.selected for row in rows], rows[0].selected, rtol=1e-12)
        np.testing.assert_allclose([row.observed for row in rows], rows[0].observed, rtol=1e-12)


def test_a_log_on_the_grid_selects_parts_of_cells():
    rng = np.random.default_rng(3)
    l = rng.normal(-1, 0.8, 140_000)
    y = rng.random(140_000) < expit(l)
    flat = Steps((-9.0,), (-2.0, -1.0))  # does not order the rows
    cells = from_arrays(l[:, None], y).served
    for alpha in (0.001, 0.3, 0.7):
        (row,) = evaluate_log(from_arrays(l[:, None], y), flat, alpha).rows
        top = top_share(l, alpha)
        assert row.selected == pytest.approx(len(l) * alpha, rel=1e-6)
        assert row.observed == pytest.approx(y[top].sum(), abs=max(cells.weight) if alpha > 0.01 else 0)
        assert row.predicted == pytest.approx(flat(l[top]).sum(), rel=1e-6)


def test_values_weight_the_sums_but_not_the_selection():
    rng = np.random.default_rng(2)
    l, value, weight = rng.normal(-1, 0.8, 2000), rng.exponential(2.0, 2000), rng.integers(1, 3, 2000)
    y = rng.random(2000) < expit(l)
    for w in (np.ones(2000), weight):
        log = from_arrays(l[:, None], y, sample_weight=w)
        values = from_arrays(l[:, None], y, sample_weight=w * value)
        order = np.argsort(-l)
        for row in evaluate_log(log, Affine(1.0, -0.3), [0.05, 0.2], values=values).rows:
            share = np.clip((row.alpha * w.sum() - (np.cumsum(w[order]) - w[order])) / w[order], 0, 1)
            kept = share * (w * value)[order]
            np.testing.assert_allclose(row.predicted, kept @ expit(l - 0.3)[order], rtol=1e-12)
            np.testing.assert_allclose(row.observed, kept @ y[order], rtol=1e-12)


def test_selected_rows_without_value_are_printed_as_undefined():
    log = from_arrays([[2.0], [1.0], [0.0], [-1.0]], [1, 0, 1, 0])
    values = from_arrays([[2.0], [1.0], [0.0], [-1.0]], [1, 0, 1, 0], sample_weight=[0.0, 1.0, 1.0, 1.0])
    result = evaluate_log(log, None, [0.25, 1.0], values=values)
    assert "nan (nan)" in str(result).splitlines()[1]
    assert "nan (nan)" in result._repr_html_()
    assert result.to_dict()["rows"][0]["ece"] == {"value": None, "standard_error": None, "floor": None}


def test_a_log_without_labels_or_probabilities_is_not_evaluated():
    with pytest.raises(UncurseError, match="holds no labels"):
        evaluate_log(from_arrays([[0.0], [1.0]]))
    spec = LogSpec(("s",), scale="value", link="identity")
    with pytest.raises(UncurseError, match="holds no logits"):
        evaluate_log(from_arrays([[0.0], [1.0]], [0, 1], spec=spec))


# ---------------------------------------------------------------------------- results


@pytest.mark.parametrize("weighted", [False, True])
def test_bins_of_equal_width_are_listed_by_ascending_prediction_without_empty_ones(weighted):
    rng = np.random.default_rng(0)
    p = np.append(rng.uniform(0.02, 0.09, 200), rng.uniform(0.71, 0.79, 100))
    y = rng.random(300) < p
    w = rng.random(300) if weighted else np.ones(300)
    (row,) = evaluate(y, p, 1.0, sample_weight=w if weighted else None, strategy="uniform").rows
    assert len(row.bins) == 2
    for part, rows in zip(row.bins, (slice(0, 200), slice(200, 300)), strict=True):
        weight, rate = w[rows], np.average(y[rows], weights=w[rows])
        np.testing.assert_allclose(part.weight, weight.sum(), rtol=1e-9)
        np.testing.assert_allclose(part.predicted, np.average(p[rows], weights=weight), rtol=1e-9)
        np.testing.assert_allclose(part.observed, rate, rtol=1e-9)
        error = np.sqrt(weight**2 @ np.square(y[rows] - rate)) / weight.sum()
        np.testing.assert_allclose(part.standard_error, error, rtol=1e-6)


def test_estimate_survives_copy_and_pickle():
    estimate = Estimate(0.05, 0.01, 0.02)
    for other in (copy.copy(estimate), copy.deepcopy(estimate), pickle.loads(pickle.dumps(estimate))):
        assert other == 0.05
        assert (other.standard_error, other.floor) == (0.01, 0.02)
    assert isinstance(estimate, float)
    assert repr(estimate) == "0.05 (standard error 0.01, floor 0.02)"
    assert Estimate(0.05, 0.01).to_dict() == {"value": 0.05, "standard_error": 0.01}


def test_evaluation_has_every_number_in_json_and_one_line_per_share_in_print():
    y, p, _ = world(1000)
    result = evaluate(y, p, [0.1, 1.0], n_bins=5, strategy="uniform")
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert (content["total"], content["n_bins"], content["strategy"]) == (1000, 5, "uniform")
    for row, plain in zip(result.rows, content["rows"], strict=True):
        assert plain["ece"] == {"value": row.ece, "standard_error": row.ece.standard_error, "floor": row.ece.floor}
        assert plain["selected"] == row.selected
    assert len(str(result).splitlines()) == 3
    np.testing.assert_array_equal(result.column("ece"), [float(row.ece) for row in result.rows])


def test_errors_and_floors_of_a_cut_inside_a_tie_equal_simulation():
    rng = np.random.default_rng(0)
    p = np.repeat(np.linspace(0.05, 0.6, 20), 500)
    values, errors, floors = [], [], []
    for _ in range(400):
        row = evaluate(rng.random(len(p)) < p, p, [0.01]).rows[0]
        values.append((row.calibration_error, row.ece, row.log_loss))
        errors.append((row.calibration_error.standard_error, row.ece.standard_error, row.log_loss.standard_error))
        floors.append(row.ece.floor)
    spread = np.std(values, axis=0, ddof=1)
    for i in (0, 2):  # 400 draws: a standard error of 3.5%
        assert np.mean(errors, axis=0)[i] == pytest.approx(spread[i], rel=0.12)
    assert np.mean(floors) == pytest.approx(np.mean(values, axis=0)[1], rel=0.1)


# ---------------------------------------------------------------------------- shares without a positive label


def test_share_without_a_positive_label_does_not_stop_the_other_shares():
    p = np.linspace(0.01, 0.5, 200)
    y = (np.arange(200) % 5 == 0) & (np.arange(200) < 190)
    with pytest.warns(UserWarning, match=r"the top 2% \(4 rows\) has no positive label, so its ratio and calibration"):
        result = evaluate(y, p, [0.02, 0.5])
    undefined, defined = result.rows
    assert np.isnan([undefined.ratio, undefined.ratio.standard_error, undefined.calibration_error]).all()
    assert (undefined.selected, undefined.observed) == (4, 0)
    np.testing.assert_allclose(undefined.predicted, p[-4:].sum())
    assert np.isfinite([undefined.ece, undefined.mce, undefined.log_loss, undefined.brier]).all()
    assert_rows_equal(defined, evaluate(y, p, [0.5]).rows[0])
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert content["rows"][0]["ratio"] == {"value": None, "standard_error": None}
    assert "undefined" in str(result)


# ---------------------------------------------------------------------------- invalid input

Y, P = [0, 1, 1], [0.2, 0.5, 0.9]
LOG = from_arrays([[0.0], [1.0]], [0, 1])
METRICS = (calibration_error, expected_calibration_error, maximum_calibration_error, evaluate)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("y", "p", "weights", "message"),
    [
        (Y, [0.2, np.nan, 0.9], None, r"p\[1\] is nan"),
        (Y, [0.2, 0.5], None, r"y has shape \(3,\)"),
        (Y, [[0.2, 0.5, 0.9]], None, r"p has shape \(1, 3\)"),
        (Y, P, [1.0, 1.0], r"sample_weight has shape \(2,\)"),
        (Y, P, [1.0, 1.0, -1.0], "sample_weight holds -1"),
    ],
)
def test_invalid_rows_are_named(metric, y, p, weights, message):
    with pytest.raises(UncurseError, match=message):
        metric(y, p, sample_weight=weights)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: evaluate(Y, [0.2, 1.5, 0.9]), r"p holds 1\.5"),
        (lambda: expected_calibration_error([0, 1, 2], P), r"y\[2\] is 2"),
        (lambda: calibration_error([0, 0, 0], P), "the labels sum to 0"),
        (lambda: evaluate(Y, P, [0.1]), r"0\.1 of 3 rows"),
        (lambda: evaluate(Y, P, [0.0]), r"alpha=0\.0"),
        (lambda: evaluate(Y, P, []), "alphas is empty"),
        (lambda: evaluate(Y, P, "all"), "alpha"),
        (lambda: evaluate(Y, P, [1.0], n_bins=0), "n_bins=0"),
        (lambda: maximum_calibration_error(Y, P, n_bins=2.5), "n_bins"),
        (lambda: expected_calibration_error(Y, P, strategy="kmeans"), "strategy='kmeans'"),
        (lambda: log_loss_reduction(Y, P, [0.1]), r"y has shape \(3,\)"),
        (lambda: log_loss_reduction(Y, P, [0.1, 0.2, 3.0]), "p holds 3"),
        (lambda: log_loss_reduction([0], [0.5], [0.0]), "baseline"),
        (lambda: evaluate_log([1.0]), "log is of type list"),
        (lambda: evaluate_log(LOG, alphas=[]), "alphas is empty"),
        (lambda: evaluate(Y, P, 1.0).column("bins"), "name='bins'"),
    ],
)
def test_invalid_arguments_are_named(call, message):
    with pytest.raises(UncurseError, match=message):
        call()


@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
def test_number_of_bins_is_limited_before_memory_is_allocated(strategy):
    y, p, _ = world(2000)
    huge, most = (evaluate(y, p, 1.0, n_bins=n, strategy=strategy) for n in (10**12, 4096))
    assert huge == most
    assert huge.n_bins == 4096


def test_an_error_is_not_certain_where_all_labels_are_positive():
    (row,) = evaluate(np.ones(122), np.full(122, 121.7 / 122), [1.0]).rows
    assert row.calibration_error == pytest.approx(121.7 / 122 - 1)
    assert row.calibration_error.standard_error == pytest.approx(np.sqrt(121.7 * 0.3 / 122) / 122, rel=0.05)
