"""`Moments`: weights, means and covariances, against NumPy."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncurse import UncurseError
from uncurse.evidence import Moments


def pool_of(rows, replicas=2, *, seed=0, mean=-3.0, sd=0.8, noise=0.4):
    rng = np.random.default_rng(seed)
    return rng.normal(mean, sd, (rows, 1)) + noise * rng.normal(size=(rows, replicas))


def assert_same(moments, pool, weights=None, tolerance=1e-12):
    mean = np.average(pool, axis=0, weights=weights)
    covariance = np.atleast_2d(np.cov(pool.T, ddof=0, aweights=weights))
    scale = np.sqrt(np.diag(covariance))
    assert np.abs((moments.mean - mean) / np.maximum(np.abs(mean), scale)).max() < tolerance
    assert np.abs((moments.covariance - covariance) / np.outer(scale, scale)).max() < tolerance


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", [2, 5_000, 600_000])  # the last is several steps
def test_mean_and_covariance_are_those_of_numpy(rows, replicas, weighted):
    pool = pool_of(rows, replicas, seed=rows)
    weights = np.random.default_rng(1).exponential(size=rows) if weighted else None
    moments = Moments().update(pool, sample_weight=weights)
    assert_same(moments, pool, weights, 1e-11)
    assert (moments.rows, moments.n_replicas) == (rows, replicas)
    weights = np.ones(rows) if weights is None else weights
    assert moments.weight == pytest.approx(weights.sum(), rel=1e-12)
    assert moments.effective_rows == pytest.approx(weights.sum() ** 2 / (weights @ weights), rel=1e-12)


@pytest.mark.parametrize("center", [0.0, 4.9, 5.1, 1e4, -1e6])
def test_covariance_is_accurate_for_means_far_from_zero(center):
    # Tolerance: the data themselves are rounded to ε·|center|, half a unit each, which averages out.
    pool = pool_of(20_000, 3, mean=0.0, sd=1.0) + center
    covariance = np.cov((pool - center).T, ddof=0)
    np.testing.assert_allclose(Moments().update(pool).covariance, covariance, rtol=1e-12)


def test_covariance_is_accurate_for_columns_of_different_mean_and_spread_and_for_rows_that_drift():
    rng = np.random.default_rng(0)
    center = np.array([1e4, 0.0, -1e5])
    pool = rng.normal(size=(10_000, 3)) * [1e-3, 1.0, 100.0] + center
    expected = np.cov((pool - center).T, ddof=0)
    scale = np.sqrt(np.diag(expected))
    assert np.abs((Moments().update(pool).covariance - expected) / np.outer(scale, scale)).max() < 1e-9
    pool = np.linspace(-1e4, 1e4, 20_000)[:, None] + rng.normal(size=(20_000, 2))
    covariance = Moments().update(pool).covariance
    difference = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    assert difference == pytest.approx(np.var(pool[:, 0] - pool[:, 1]), rel=1e-6)


@given(
    seed=st.integers(0, 2**32 - 1),
    replicas=st.integers(1, 4),
    center=st.sampled_from([-3.0, 1e4]),
    weighted=st.booleans(),
    cuts=st.lists(st.integers(1, 499), max_size=6),
)
def test_any_split_and_any_order_give_the_same_moments(seed, replicas, center, weighted, cuts):
    pool = pool_of(500, replicas, seed=seed, mean=center)
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=500) if weighted else None
    parts = [rows for rows in np.split(rng.permutation(500), sorted(cuts)) if len(rows)]
    updated, merged = Moments(), Moments()
    for rows in parts:
        updated.update(pool[rows], sample_weight=None if weights is None else weights[rows])
    for rows in reversed(parts):
        merged.merge(Moments().update(pool[rows], sample_weight=None if weights is None else weights[rows]))
    for moments in (updated, merged):
        assert moments.rows == 500
        assert_same(moments, pool, weights, 1e-10 if center > 0 else 1e-12)
        again = Moments.from_dict(json.loads(json.dumps(moments.to_dict())))
        assert again.to_dict() == moments.to_dict()


def test_integer_weights_are_repeated_rows_and_only_ratios_matter():
    pool = pool_of(2_000)
    times = np.random.default_rng(0).integers(0, 4, 2_000)
    weighted, repeated = (
        Moments().update(pool, sample_weight=times),
        Moments().update(np.repeat(pool, times, axis=0)),
    )
    np.testing.assert_allclose(weighted.covariance, repeated.covariance, rtol=1e-12)
    assert weighted.weight == repeated.weight == times.sum()
    for factor in (1e-12, 1 / 2_000, 1e20):
        moments = Moments().update(pool, sample_weight=factor * times)
        assert moments.effective_rows == pytest.approx(weighted.effective_rows, rel=1e-12)
        np.testing.assert_allclose(moments.mean, weighted.mean, rtol=1e-12)
        np.testing.assert_allclose(moments.covariance, weighted.covariance, rtol=1e-12)


def test_scaled_moments_have_the_same_means():
    moments = Moments().update(pool_of(300))
    same = moments.scaled(0.25, 0.25**2 * 3)
    assert (same.weight, same.effective_rows, moments.effective_rows) == (75, pytest.approx(100), 300)
    np.testing.assert_allclose(same.covariance, moments.covariance, rtol=1e-12)
    np.testing.assert_array_equal(same.mean, moments.mean)


@pytest.mark.parametrize("order", ["C", "F"])
def test_neither_memory_order_nor_float32_matters(order):
    pool = pool_of(1_000, 3).astype(np.float32)
    expected = Moments().update(pool.astype(np.float64))
    np.testing.assert_allclose(Moments().update(np.array(pool, order=order)).covariance, expected.covariance, rtol=1e-9)


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_error_locates_the_first_value_that_is_not_finite(bad, dtype):
    pool = pool_of(3_000).astype(dtype)
    pool[1234, 1] = bad
    with pytest.raises(UncurseError, match=rf"\[1234, 1\] is {bad}"):
        Moments().update(pool)


@pytest.mark.parametrize(
    ("pool", "weights", "message"),
    [
        ([[1e200, 0.0], [-1e200, 1.0]], None, r"\[0, 0\] is 1e\+200"),
        ([0.0, 1.0], None, r"shape \(2,\)"),
        ([[0.0, 1.0], [1.0, 2.0]], [1.0, -1.0], "sample_weight holds -1"),
        ([[0.0, 1.0], [1.0, 2.0]], [1e200, 0.0], "1e.200"),
        (pool_of(10, 3), None, "3 replicas"),
    ],
)
def test_invalid_rows_are_refused_and_not_added(pool, weights, message):
    moments = Moments().update(pool_of(10))
    before = moments.to_dict()
    with pytest.raises(UncurseError, match=message):
        moments.update(pool, sample_weight=weights)
    assert moments.to_dict() == before


def test_other_columns_do_not_merge_and_empty_moments_have_no_covariance():
    moments = Moments().update(pool_of(10))
    with pytest.raises(UncurseError, match="3 replicas"):
        moments.merge(Moments().update(pool_of(10, 3)))
    assert moments.rows == 10
    with pytest.raises(UncurseError, match="no rows"):
        _ = Moments().covariance
