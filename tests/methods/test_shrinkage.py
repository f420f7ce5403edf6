"""Shrinkage of estimates of segments, and of differences between pool and labeled rows."""

import numpy as np
import pytest
from scipy.stats import norm

from uncurse.evidence import from_arrays
from uncurse.methods import KINDS
from uncurse.methods.replica_calibration import shrink_pool_shift
from uncurse.methods.shrinkage import normal_error, shrink_towards

SEEDS = KINDS["seeds"]


def test_shrinkage_is_the_best_linear_predictor():
    rng = np.random.default_rng(1)
    errors = rng.uniform(0.02, 0.3, 20_000)
    truth = 0.7 + 0.1 * rng.normal(size=20_000)
    values = truth + errors * rng.normal(size=20_000)
    best = 0.7 + 0.01 / (0.01 + errors**2) * (values - 0.7)
    ratio = np.mean((shrink_towards(0.7, values, errors) - truth) ** 2) / np.mean((best - truth) ** 2)
    assert 0.999 < ratio < 1.01  # 20,000 segments: the spread has a standard error of 1%
    alike = shrink_towards(0.7, 0.7 + errors * rng.normal(size=20_000), errors)
    assert np.abs(alike - 0.7).max() < 0.05


def test_infinite_error_gives_the_common_value_and_zero_error_keeps_the_estimate():
    shrunk = shrink_towards(0.5, np.array([0.1, 0.9, 0.4, 0.7]), np.array([0.0, 1e-9, 1e-9, np.inf]))
    np.testing.assert_allclose(shrunk, [0.1, 0.9, 0.4, 0.5], atol=1e-6)
    np.testing.assert_array_equal(shrink_towards(0.5, np.array([0.1]), np.array([0.2])), [0.5])
    np.testing.assert_array_equal(shrink_towards(0.5, np.array([0.1, 0.3]), np.array([0.0, np.inf])), [0.1, 0.5])


@pytest.mark.theory
@pytest.mark.parametrize("noise", [0.3, 0.8])
@pytest.mark.parametrize(
    ("replicas", "columns", "differences"),
    [("seeds", 2, 1), ("seeds", 4, 3), ("bootstrap", 2, 1), ("bootstrap", 3, 1), ("bootstrap", 5, 3), (None, 1, 0)],
)
def test_the_standard_error_of_lambda_by_normal_theory_is_its_spread(replicas, columns, differences, noise):
    rng = np.random.default_rng(3)
    truth = rng.normal(size=(3_000, 200, 1))
    pools = truth + noise * rng.normal(size=(3_000, 200, columns))
    if replicas == "bootstrap":
        pools[..., 1:] += pools[..., :1] - truth
    centered = pools - pools.mean(axis=1, keepdims=True)
    covariance = np.einsum("dni,dnj->dij", centered, centered) / 200
    variance = noise**2 if replicas is None else KINDS[replicas].noise_variance(covariance)
    values = 1 - variance / covariance[:, 0, 0]
    expected = normal_error(1 / (1 + noise**2), 200, differences, replicas == "seeds")
    # 3,000 draws: a standard error of 1.3%; the linear approximation has an error of 5% at 200 rows.
    assert abs(values.std() / expected - 1) < 0.08


# ---------------------------------------------------------------------------- pool and labeled rows


def table_of(rows, seed, *, mean=-2.0, sd=0.8, noise=0.8, floor=-np.inf):
    rng = np.random.default_rng(seed)
    scores = rng.normal(mean, sd, (rows, 1)) + noise * rng.normal(size=(rows, 2))
    scores[:, 0] = np.maximum(scores[:, 0], floor)
    return from_arrays(scores).replicas.table()


def moments(table):
    w = table.weight / table.weight.sum()
    mean, noise = w @ table.served, w @ SEEDS.summarize(table).variance
    return np.array([mean, np.sqrt(w @ np.square(table.served - mean)), np.sqrt(noise)])


def test_a_difference_is_multiplied_by_the_probability_that_it_is_real():
    pool, labeled = table_of(2_000, 0), table_of(3_000, 1, mean=-1.93)
    one, other, after = (moments(t) for t in (pool, labeled, shrink_pool_shift(pool, labeled, SEEDS)))
    difference, error = (one[0] - other[0]) / other[1], np.sqrt(1 / 2_000 + 1 / 3_000)
    odds = norm.pdf(difference, scale=np.hypot(error, 0.3)) / norm.pdf(difference, scale=error)
    kept = (after[0] - other[0]) / (one[0] - other[0])
    assert kept == pytest.approx(odds / (1 + odds), abs=0.02)
    assert 0.05 < kept < 0.95


def test_clear_differences_are_kept_and_those_by_chance_shrunk():
    labeled = table_of(20_000, 1)
    far, near = table_of(20_000, 0, mean=-3.0, sd=0.6, noise=0.5), table_of(20_000, 0)
    np.testing.assert_allclose(moments(shrink_pool_shift(far, labeled, SEEDS)), moments(far), rtol=1e-6)
    before, after = (np.log(moments(t) / moments(labeled)) for t in (near, shrink_pool_shift(near, labeled, SEEDS)))
    assert np.abs(after).max() < 0.4 * np.abs(before).max()


def test_a_floor_stays_where_it_is():
    pool = table_of(5_000, 0, floor=-2.5)
    assert shrink_pool_shift(pool, table_of(5_000, 1), SEEDS) is pool
