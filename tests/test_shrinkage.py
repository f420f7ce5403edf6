"""Noise variance, standard errors of λ, and shrinkage of groups."""

import numpy as np
import pytest

from uncurse.debias import KINDS
from uncurse.debias.shrinkage import group_lambdas, identical_replicas, lambda_error, shrink_towards, with_curvature
from uncurse.errors import UncurseError


def test_groups_that_differ_by_noise_alone_all_get_the_common_value():
    rng = np.random.default_rng(0)
    errors = np.full(2_000, 0.1)
    shrunk = shrink_towards(0.8, 0.8 + errors * rng.normal(size=2_000), errors)
    assert np.abs(shrunk - 0.8).max() < 0.05


def test_shrinkage_is_the_best_linear_predictor():
    rng = np.random.default_rng(1)
    errors = rng.uniform(0.02, 0.3, 20_000)
    truth = 0.7 + 0.1 * rng.normal(size=20_000)
    values = truth + errors * rng.normal(size=20_000)
    best = 0.7 + 0.01 / (0.01 + errors**2) * (values - 0.7)
    shrunk = shrink_towards(0.7, values, errors)
    ratio = np.mean((shrunk - truth) ** 2) / np.mean((best - truth) ** 2)
    assert 0.999 < ratio < 1.01  # 20,000 groups: the spread has a standard error of 1%


def test_infinite_error_gives_the_common_value_and_zero_error_keeps_the_estimate():
    shrunk = shrink_towards(0.5, np.array([0.1, 0.9, 0.3]), np.array([1e-9, 1e-9, np.inf]))
    np.testing.assert_allclose(shrunk, [0.1, 0.9, 0.5], atol=1e-6)
    shrunk = shrink_towards(0.5, np.array([0.1, 0.9, 0.4, 0.7]), np.array([0.0, 0.2, 0.2, np.inf]))
    np.testing.assert_allclose(shrunk[[0, 3]], [0.1, 0.5], rtol=1e-12)


def test_one_group_with_an_error_gets_the_common_value():
    np.testing.assert_array_equal(shrink_towards(0.5, np.array([0.1]), np.array([0.2])), [0.5])
    np.testing.assert_array_equal(shrink_towards(0.5, np.array([0.1, 0.3]), np.array([0.0, np.inf])), [0.1, 0.5])


def replica_pools(replicas, columns, rows, draws, noise):
    """Scores (draws, rows, columns) with a true variance of 1."""
    rng = np.random.default_rng(3)
    truth = rng.normal(size=(draws, rows, 1))
    pools = truth + noise * rng.normal(size=(draws, rows, columns))
    if replicas == "anchored":
        pools[..., 1:] += pools[..., :1] - truth
    return pools


@pytest.mark.theory
@pytest.mark.parametrize("noise", [0.3, 0.8])
@pytest.mark.parametrize(
    ("replicas", "columns", "differences"),
    [
        ("seeds", 2, 1),
        ("seeds", 4, 3),
        ("bootstrap", 3, 1),
        ("bootstrap", 5, 3),
        ("anchored", 2, 1),
        ("anchored", 4, 3),
    ],
)
def test_the_standard_error_of_lambda_by_normal_theory_is_its_spread(replicas, columns, differences, noise):
    pools = replica_pools(replicas, columns, 200, 3_000, noise)
    centred = pools - pools.mean(axis=1, keepdims=True)
    covariance = np.einsum("dni,dnj->dij", centred, centred) / 200
    values = 1 - KINDS[replicas].noise_variance(covariance) / covariance[:, 0, 0]
    true = 1 / (1 + noise**2)
    expected = lambda_error(true, 200, differences, replicas == "seeds")
    # 3,000 draws: a standard error of 1.3%; the linear approximation has an error of 5% at 200 rows.
    assert abs(values.std() / expected - 1) < 0.08


def test_the_standard_error_of_lambda_with_a_known_variance_is_its_spread():
    served = np.random.default_rng(0).normal(0, 1.25, (3_000, 200))
    values = 1 - 0.5625 / served.var(axis=1)
    assert abs(values.std() / lambda_error(0.64, 200, 0, True) - 1) < 0.08


def test_the_standard_error_of_lambda_falls_with_the_root_of_rows():
    assert lambda_error(0.8, 50, 1, True) == pytest.approx(10 * lambda_error(0.8, 5_000, 1, True), rel=1e-12)
    assert lambda_error(0.8, 2, 0, True) == pytest.approx(0.2, rel=1e-12)


def test_groups_are_shrunk_towards_the_lambda_within_groups():
    own, spread = np.array([0.9, 0.5, 0.0]), np.array([1.0, 2.0, 0.0])
    rows, known = np.array([100.0, 300.0, 1.0]), np.array([True, True, False])
    lambdas = group_lambdas(own, spread, rows, known, 0.99, differences=1, in_noise=True)
    within = 1 - (100 * 0.1 + 300 * 1.0) / (100 * 1.0 + 300 * 2.0)
    assert lambdas[2] == pytest.approx(within, rel=1e-12)
    assert within < lambdas[0] <= 0.9
    assert 0.5 <= lambdas[1] < within
    none = group_lambdas(own, spread, rows, np.zeros(3, bool), 0.99, differences=1, in_noise=True)
    np.testing.assert_allclose(none, 0.99, rtol=1e-12)


def test_groups_with_more_replicas_are_shrunk_less():
    own, spread, rows, known = np.array([0.7, 0.8, 0.9]), np.ones(3), np.full(3, 50.0), np.ones(3, bool)
    few, many = (group_lambdas(own, spread, rows, known, 0.8, differences=count, in_noise=False) for count in (1, 9))
    assert np.ptp(few) < np.ptp(many) < 0.2


@pytest.mark.parametrize("replicas", ["seeds", "anchored"])
def test_noise_is_never_negative(replicas):
    scores = np.random.default_rng(0).normal(size=(1_000, 1)) * 1e3 + [0.0, 1e5, -7.0]
    covariance = np.cov(scores, rowvar=False, ddof=0)
    noise = KINDS[replicas].noise_variance(covariance)
    assert noise >= 0
    assert identical_replicas(float(noise), float(covariance[0, 0]))
    assert not identical_replicas(1e-9, 1.0)


def test_curvature_of_an_unknown_link_is_an_error():
    with pytest.raises(UncurseError, match="curvature=True is not known for the cauchit link; leave it out"):
        with_curvature(0.8, -2.0, 0.1, "cauchit")
