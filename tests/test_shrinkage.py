"""The arithmetic of shrinking: how small groups borrow from the whole."""

import numpy as np

from uncurse.debias.shrinkage import pull_towards


def test_groups_that_differ_by_noise_alone_all_get_the_whole():
    rng = np.random.default_rng(0)
    errors = np.full(2_000, 0.1)
    pulled = pull_towards(0.8, 0.8 + errors * rng.normal(size=2_000), errors)
    assert np.abs(pulled - 0.8).max() < 0.05


def test_the_pull_is_the_best_linear_one_for_known_spreads():
    rng = np.random.default_rng(1)
    errors = rng.uniform(0.02, 0.3, 20_000)
    truth = 0.7 + 0.1 * rng.normal(size=20_000)
    values = truth + errors * rng.normal(size=20_000)
    best = 0.7 + 0.01 / (0.01 + errors**2) * (values - 0.7)
    pulled = pull_towards(0.7, values, errors)
    ratio = np.mean((pulled - truth) ** 2) / np.mean((best - truth) ** 2)
    assert 0.999 < ratio < 1.01  # 20,000 groups know the spread between them to 1%


def test_a_group_of_unknown_error_gets_the_whole_and_one_of_none_keeps_its_own():
    pulled = pull_towards(0.5, np.array([0.1, 0.9, 0.3]), np.array([1e-9, 1e-9, np.inf]))
    np.testing.assert_allclose(pulled, [0.1, 0.9, 0.5], atol=1e-6)
