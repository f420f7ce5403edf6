"""Shrinkage of estimates of segments, and of differences between pool and labeled rows."""

import numpy as np

from uncurse.evidence import from_arrays
from uncurse.methods import KINDS
from uncurse.methods.replica_calibration import shift_probability
from uncurse.methods.shrinkage import shrink_towards

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
