"""Outliers of replica scores: fences, and levels that do not follow outliers."""

import numpy as np
import pytest

from uncurse import ReplicaCounts
from uncurse.evidence.replica_cells import outlier_fences

LEVELS = np.array([0.0, 0.3, -0.2, 0.1])


@pytest.mark.parametrize("replicas", [2, 3, 4])
@pytest.mark.parametrize("far", [0.0, 60.0])
def test_an_outlier_does_not_change_the_levels_of_replicas(replicas, far):
    rng = np.random.default_rng(0)
    levels = LEVELS[:replicas]
    pool = rng.normal(-2, 0.8, (5_000, 1)) + 0.4 * rng.normal(size=(5_000, replicas)) + levels
    pool[0, 1:] += far * np.array([1.0, -1.5, 0.2])[: replicas - 1]  # moves the mean gap and the contrast
    cells = ReplicaCounts().update(pool).cells()
    exact = pool[1:].mean(axis=0) - pool[1:, 0].mean()
    # Four replicas and more have one contrast, so an outlier leaves only the mean of their levels.
    expected = exact if not far or replicas < 4 else np.append(0.0, np.full(3, exact[1:].mean()))
    np.testing.assert_allclose(cells.levels, expected, atol=0.003)  # an outlier that is clipped keeps some influence


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_fences_are_one_range_outside_the_central_scores(scale):
    rng = np.random.default_rng(0)
    values, weight = scale * rng.normal(size=3_000), rng.random(3_000)
    low, high = np.quantile(values, [0.001, 0.999], weights=weight, method="inverted_cdf")
    np.testing.assert_allclose(outlier_fences(values, weight), [2 * low - high, 2 * high - low], rtol=1e-9)
    mostly = np.append(np.full(3_000, 2.0), [1.0, 7.0])
    assert outlier_fences(mostly, np.ones(3_002)) == (1.0, 7.0)  # no range: nothing is an outlier


def test_outliers_beyond_a_cap_do_not_move_the_fences():
    values = np.append(np.linspace(-1.0, 0.0, 1_000), [0.5, 1e4])
    weight = np.append(np.ones(1_000), [50.0, 0.5])  # half of the last 0.1% is an outlier
    assert outlier_fences(values, weight) == pytest.approx((-2.5, 2.0), abs=0.01)
