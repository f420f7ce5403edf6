"""Outliers of replica scores: fences, and levels that do not follow outliers."""

import numpy as np
import pytest

from uncurse import ReplicaCounts
from uncurse.evidence import from_arrays
from uncurse.evidence.replica_cells import outlier_fences, point_masses

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


@pytest.mark.parametrize(
    ("here", "near", "mass"),
    [
        (2.1, [2.1 / 2.6] * 6, True),  # more than 2.5 times its neighbours
        (2.1, [2.1 / 2.4] * 6, False),
        (1.9, [0.0] * 6, False),  # 2% of the weight
        (9.0, [8.9, 0.1, 0.1, 0.1, 0.1, 8.9], True),  # three neighbours on either side count alike
        (9.0, [8.9, 8.9, 0.1, 0.1, 8.9, 8.9], False),
    ],
)
def test_a_point_mass_exceeds_its_neighbours_and_two_percent_of_the_weight(here, near, mass):
    rest = (100 - here - sum(near)) / 200
    weight = np.concatenate([np.full(100, rest), near[:3], [here], near[3:], np.full(100, rest)])
    assert point_masses(weight)[103] == mass
    assert not point_masses(weight)[:100].any()


def test_a_point_mass_has_more_than_two_percent_of_the_weight():
    weight = np.full(197, 0.25)
    for mass, marked in ((1.0, False), (1.001, True)):
        weight[100] = mass  # of 50 in all, if it is 1
        assert point_masses(weight).any() == marked


def test_point_masses_at_the_ends_have_neighbours_on_one_side():
    weight = np.concatenate([[30.0], np.full(50, 1.0), [20.0]])
    np.testing.assert_array_equal(np.flatnonzero(point_masses(weight)), [0, 51])
    assert not point_masses(np.array([5.0])).any()  # a single score


@pytest.mark.parametrize(("above", "capped"), [(10, True), (11, False)])
def test_a_cap_has_at_most_a_few_outliers_above_it(above, capped):
    rng = np.random.default_rng(0)
    served = np.concatenate([rng.normal(-2, 0.5, 4_000), np.full(1_000 - above, 0.5), np.full(above, 3.0)])
    cells = ReplicaCounts().update(np.column_stack([served, served])).cells()
    share = (1_000 - above) / 50
    assert cells.cap == (f"{share:.1f}% of the served scores are capped at a logit of about 0.5" if capped else "")


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_cells_have_the_moments_of_their_rows(replicas):
    rng = np.random.default_rng(0)
    pool = (
        rng.normal(-2, 0.8, (20_000, 1))
        + 0.5 * rng.normal(size=(20_000, replicas))
        + LEVELS[[0, 1, 2, 3, 1]][:replicas]
    )
    counts = ReplicaCounts().update(pool)
    counts = counts.coarsened(counts.level + 2)  # wide cells, so that corrections for their width matter
    cells = counts.cells()
    w = cells.weight / 20_000
    centred = pool - pool.mean(axis=0)
    others = centred[:, 1:]
    np.testing.assert_allclose(w @ cells.served, pool[:, 0].mean(), atol=cells.width / 100)
    np.testing.assert_allclose(w @ cells.gap, (pool[:, 1:].mean(axis=1) - pool[:, 0]).mean(), atol=cells.width / 50)
    gap = others.mean(axis=1) - centred[:, 0]
    np.testing.assert_allclose(w @ cells.gap_squared(cells.gap_level), gap.var(), rtol=0.01)
    expected = others.var(axis=1, ddof=1).mean() if replicas > 2 else 0.0
    np.testing.assert_allclose(w @ cells.spread, expected, rtol=0.01)


def test_counts_of_groups_are_on_the_grid_of_all_rows():
    rng = np.random.default_rng(0)
    pool, groups = rng.normal(-2, 3, (60_000, 2)), np.arange(60_000) % 100
    evidence = from_arrays(pool, groups=groups, replica_counts=True)
    assert evidence.replica_counts.level > 0
    assert {part.replica_counts.level for part in evidence.groups.values()} == {evidence.replica_counts.level}
