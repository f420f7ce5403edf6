"""Intervals of the error that remains: what they depend on, and their coverage."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

import simulated
from uncurse import VAD, Affine, Auto, ReplicaCalibrator, UncurseError, load, top_share
from uncurse.evidence import from_arrays
from uncurse.methods import ErrorTable
from uncurse.methods.remaining_error import top_shares

COMMON = {"scale": "logit", "replicas": "seeds"}
PLAIN = VAD(**COMMON, intervals=True)


def rows_of(rows, replicas=3, *, mean=-2.0, **world):
    return simulated.rows_of(rows, replicas, mean=mean, **world)


def error_on_top(fitted, truth, served, alpha):
    return simulated.error_on_top(fitted.predict_proba, truth, served, alpha)


def calibrated(pool, scores, labels, labels_from="elsewhere", **options):
    method = ReplicaCalibrator(**{**COMMON, **options})
    return method.fit(pool, labeled=(scores, labels), labels_from=labels_from)


def calibrated_of(pool_rows, labeled_rows, replicas=3, *, seed=0, shift=0.5):
    truth, pool, _ = rows_of(pool_rows, replicas, seed=2 * seed)
    _, scores, labels = rows_of(labeled_rows, replicas, seed=2 * seed + 1, mean=-2.0 + shift)
    return truth, pool[:, 0], calibrated(pool, scores, labels)


# ---------------------------------------------------------------------------- the table


def table_of(pool, **options):
    return from_arrays(pool, **options).replicas.table()


@pytest.mark.parametrize("alpha", [0.013, 0.2, 1.0])
def test_the_top_share_holds_the_highest_cells_and_a_part_of_the_last(alpha):
    _, pool, _ = rows_of(20_000)
    table = table_of(pool)
    (top,) = top_shares(table, [alpha])
    assert top.rows == pytest.approx(alpha * 20_000, rel=1e-9)
    rest = np.setdiff1d(np.arange(len(table.served)), top.cells)
    assert table.served[top.cells].min() >= table.served[rest].max(initial=-np.inf)
    expected = pool[top_share(pool[:, 0], alpha), 0].mean()
    np.testing.assert_allclose(top.mean(table.served[top.cells]), expected, atol=max(table.width / 2, 1e-3))
    (two,) = top_shares(table_of(np.repeat([[0.0, 0.1], [2.0, 2.1]], [70, 30], axis=0)), [0.5])
    np.testing.assert_allclose(np.sort(two.share), [0.4, 0.6], rtol=1e-12)


def test_errors_of_a_mean_follow_the_delta_method():
    (top,) = top_shares(table := table_of(rows_of(5_000)[1]), [0.1])
    x = table.served[top.cells]
    features, covariance = np.stack([np.ones_like(x), x]), np.array([[0.04, 0.01], [0.01, 0.02]])
    b = np.random.default_rng(0).multivariate_normal([0, 0], 1e-4 * covariance, 20_000)
    drawn = np.log(top.share @ expit(x + (b @ features)).T)
    np.testing.assert_allclose(1e-4 * top.squared_error(expit(x), features, covariance), drawn.var(), rtol=0.05)
    moved = (top.log_mean(expit(x + 1e-4)) - top.log_mean(expit(x - 1e-4))) / 2
    np.testing.assert_allclose(top.level_error(expit(x), 1e-8), moved, rtol=1e-6)


def test_the_error_of_the_true_rate_includes_the_spread_between_rows():
    (top,) = top_shares(table_of(np.repeat([[0.0, 0.1], [2.0, 2.1]], [50, 50], axis=0)), [1.0])
    p, by_score, variance = np.array([0.2, 0.4]), np.array([0.3, 0.3]), np.array([0.01, 0.03])
    expected = (0.01 + 0.02) / 0.3**2 / 100  # squares of p − by_score, and the mean variance
    assert top.sampling_error(p, by_score, variance) == pytest.approx(expected, rel=1e-12)


def test_bounds_add_the_level_error_with_students_quantile():
    table = ErrorTable((0.01, 0.1, 1.0), (0.1, 0.0, 0.0), (0.02, 0.02, 0.01), (0.0, 0.03, 0.03), 2)
    np.testing.assert_allclose(np.log1p(table.interval(0.01)), 0.1 + 0.02 * stats.norm.ppf([0.05, 0.95]))
    reach = np.hypot(0.02 * stats.norm.ppf(0.95), 0.03 * stats.t.ppf(0.95, 2))
    np.testing.assert_allclose(np.log1p(table.interval(0.1)), [-reach, reach])
    reach = np.hypot(0.015 * stats.norm.ppf(0.75), 0.03 * stats.t.ppf(0.75, 2))
    np.testing.assert_allclose(np.log1p(table.interval(np.sqrt(0.1), 0.5)), [-reach, reach])  # between two shares
    for alpha in (0.0, -0.1, 1.5, np.nan, "0.05", 0.001):
        with pytest.raises(UncurseError, match="alpha"):
            table.interval(alpha)
    for level in (0.0, 1.0, 90):
        with pytest.raises(UncurseError, match="level"):
            table.interval(0.1, level)


# ---------------------------------------------------------------------------- intervals of fitted methods


def test_shares_between_those_of_the_table_are_interpolated():
    fitted = calibrated_of(5_000, 5_000)[2].fitted_
    for i in (5, 15, 25):
        without = replace(fitted.errors, **{
            name: tuple(np.delete(getattr(fitted.errors, name), i))
            for name in ("alphas", "error", "standard_error", "level_error", "predicted")
        })  # fmt: skip
        alpha = fitted.errors.alphas[i]
        exact, between = fitted.interval(alpha), without.interval(alpha)
        assert np.abs(np.subtract(exact, between)).max() < 0.05 * np.ptp(exact)


def test_more_labels_and_rows_narrow_the_interval():
    sizes = ((5_000, 300), (5_000, 5_000), (30_000, 30_000))
    widths = [np.ptp(calibrated_of(*rows)[2].interval(0.05)) for rows in sizes]
    assert widths[0] > 1.5 * widths[1] > 2.25 * widths[2]


def test_differing_levels_of_replicas_widen_the_interval_unless_the_rows_are_winners():
    _, pool, _ = rows_of(20_000)
    _, scores, labels = rows_of(20_000, seed=1)
    still = calibrated(pool, scores, labels).interval(0.05)
    moved = calibrated(pool + np.array([0.0, 0.1, -0.1]), scores, labels).interval(0.05)
    assert np.ptp(moved) > 2 * np.ptp(still)
    _, pool, _ = rows_of(8_000, 2)
    _, many, labels = rows_of(80_000, 2, seed=1)
    keep = many[:, 0] > np.quantile(many[:, 0], 0.9)
    winners = calibrated(pool, many[keep], labels[keep], "winners").interval(0.05)
    chance = calibrated(pool, many[:8_000], labels[:8_000]).interval(0.05)
    assert np.ptp(winners) < 2 * np.ptp(chance)  # otherwise it is ten times as wide


def test_intervals_count_that_slopes_of_bootstraps_differ():
    rng = np.random.default_rng(0)
    served = rng.normal(-2, 1, 20_000)
    noise, half_widths = 0.4 * rng.normal(size=(20_000, 4)), []
    for slopes in ((1, 1, 1, 1), (0.9, 0.97, 1.03, 1.1)):  # standard deviation .086
        away = (served - served.mean())[:, None] * (np.array(slopes) - 1)
        scores = np.column_stack([served, served[:, None] + noise + away])
        low, high = Auto(scale="logit", replicas="bootstrap").fit(scores).interval(0.02)
        half_widths.append((np.log1p(high) - np.log1p(low)) / 2)
    # The top 2% is 2.42 standard deviations above the mean: an error of .21 in log odds, times 1 − p of about one half.
    assert half_widths[1] > half_widths[0] + 0.1


def test_the_interval_of_a_biased_map_excludes_zero_and_covers_its_error():
    truth, pool, _ = rows_of(200_000)
    low, high = PLAIN.fit(pool).interval(0.05, 0.99)
    assert low < error_on_top(PLAIN, truth, pool[:, 0], 0.05) < high
    assert not low < 0 < high  # no curvature: the bias is significant for this many rows
    low, high = VAD(**COMMON, curvature=True, intervals=True).fit(pool).interval(0.05)
    assert low < 0 < high


def test_a_share_that_selects_no_row_is_refused():
    _, pool, _ = rows_of(2_000)
    for fitted in (Auto(**COMMON).fit(pool), PLAIN.fit(pool, sample_weight=np.full(2_000, 1e-6))):
        with pytest.raises(UncurseError, match=r"alpha=1e-07 selects too few rows .*at least 0\.001"):
            fitted.interval(1e-7)


@pytest.mark.filterwarnings("ignore:the replicas are identical")
def test_a_missing_interval_is_explained(tmp_path):
    _, pool, labels = rows_of(500)
    value = VAD(link="identity", scale="value", replicas="seeds")
    for fitted, message in (
        (VAD(**COMMON).fit(pool), r"fit VAD\(intervals=True\)"),
        (VAD(**COMMON).fit(pool[:, 0], variance=0.1), "replica scores"),
        (value.fit(pool), "logits or probabilities"),
        (VAD(**COMMON, intervals=True).fit(np.repeat(pool[:, :1], 2, axis=1)), "the replicas are identical"),
        (VAD(**COMMON, calibrator="platt").fit(pool, labeled=(pool, labels)), "use Auto or ReplicaCalibrator"),
        (VAD(**COMMON, link="identity", intervals=True).fit(pool), "link='logistic'"),
        (VAD(**COMMON).fit(from_arrays(pool[:19])), "19 rows do not determine a shape"),
        (VAD(**COMMON).fit(from_arrays(np.minimum(pool, -1.5))), "capped"),
        (VAD(**{**COMMON, "replicas": "bootstrap"}).fit(from_arrays(pool[:, :2] + [0.0, 7.0])), "factor of 1,000"),
    ):
        with pytest.raises(UncurseError, match=f"no intervals: .*{message}"):
            fitted.interval(0.05)
    Affine(1.0, 0.0).save(tmp_path / "map.json")
    with pytest.raises(UncurseError, match="no intervals: the map was saved without a record"):
        load(tmp_path / "map.json").interval(0.05)


def test_an_interval_of_one_positive_has_an_upper_bound_below_100():
    rng = np.random.default_rng(0)
    truth = rng.normal(-2, 0.8, 5_000)
    scores = truth[:, None] + 0.4 * rng.normal(size=(5_000, 3))
    labels = np.zeros(5_000, int)
    labels[rng.choice(5_000, p=expit(truth) / expit(truth).sum())] = 1
    assert calibrated(scores, scores, labels).interval(0.05)[1] < 100
