"""Shrinkage of estimates of segments, and of differences between pool and labeled rows."""

import numpy as np
import pytest

from uncurse.evidence import from_arrays
from uncurse.methods import KINDS
from uncurse.methods.replica_calibration import shift_probability
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


def table_of(rows, seed, *, mean=-2.0, sd=0.8, noise=0.8):
    rng = np.random.default_rng(seed)
    scores = rng.normal(mean, sd, (rows, 1)) + noise * rng.normal(size=(rows, 2))
    return from_arrays(scores).replicas.table()


def test_clear_differences_are_certain_and_those_by_chance_improbable():
    labeled = table_of(20_000, 1)
    assert shift_probability(table_of(20_000, 0, mean=-3.0, sd=0.6, noise=0.5), labeled, SEEDS) > 0.999
    assert shift_probability(table_of(20_000, 0), labeled, SEEDS) < 0.1
    assert shift_probability(table_of(20_000, 0, noise=0.9), labeled, SEEDS) > 0.999  # of the noise alone


def test_the_probability_of_a_difference_follows_from_its_density():
    pool, labeled = table_of(2_000, 0), table_of(3_000, 1, mean=-1.93)
    chance = shift_probability(pool, labeled, SEEDS)
    assert 0.01 < chance < 0.9
    assert shift_probability(table_of(2_000, 0, mean=-1.7), labeled, SEEDS) > chance
