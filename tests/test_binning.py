"""Bins of cells: equal weight, tied scores in one bin, and a last bin as narrow as the selection."""

import numpy as np
import pytest

from uncurse import Cells
from uncurse.calibration.binning import make_bins, scores_at, sums_between


@pytest.fixture
def cells():
    l = np.random.default_rng(0).normal(-2, 1, 10_000)
    return Cells(exact=True).update(l, l > 0)


def test_quantile_bins_have_equal_weight(cells):
    cuts, edges = make_bins(cells, 20, "quantile", None)
    np.testing.assert_array_equal(sums_between(cuts, cells.weight), np.full(20, 500.0))
    assert (np.diff(edges) > 0).all()


def test_quantile_bins_split_cells_of_the_grid():
    l = np.random.default_rng(0).normal(-2, 0.1, 200_000)
    cells = Cells(exact=False).update(l)
    cuts, edges = make_bins(cells, 50, "quantile", None)
    np.testing.assert_allclose(sums_between(cuts, cells.weight), 4_000, rtol=1e-9)
    np.testing.assert_allclose(edges, np.quantile(l, np.arange(1, 50) / 50), atol=1 / 1024)


def test_uniform_bins_split_cells_of_the_grid_at_their_edges():
    cells = Cells(exact=False).update(np.random.default_rng(0).normal(-2, 0.1, 50_000))
    cuts, edges = make_bins(cells, 1_000, "uniform", None)
    dense = np.abs(edges + 2) < 0.15  # no empty cells there
    assert dense.sum() > 20
    np.testing.assert_allclose(scores_at(cells, cuts)[dense], edges[dense], atol=1e-9)


def test_equal_scores_share_a_bin():
    cells = Cells(exact=True).update(np.repeat([0.0, 1.0, 2.0], [10, 80, 10]), np.arange(100) % 2)
    cuts, _ = make_bins(cells, 10, "quantile", None)
    assert set(sums_between(cuts, cells.weight)) <= {10.0, 80.0, 90.0}


@pytest.mark.parametrize("share", [0.01, 0.001, 0.0001])
def test_refine_top_limits_the_share_of_the_last_bin(cells, share):
    cuts, _ = make_bins(cells, 10, "quantile", share)
    weights = sums_between(cuts, cells.weight)
    assert weights[-1] <= share * 10_000
    assert weights.sum() == 10_000
    np.testing.assert_array_equal(weights[:9], 1_000)


def test_refine_top_does_not_split_a_bin_that_has_exactly_the_share(cells):
    cuts, _ = make_bins(cells, 10, "quantile", 0.025)
    np.testing.assert_allclose(sums_between(cuts, cells.weight)[-3:], [500, 250, 250])


@pytest.mark.parametrize("tied", [0.1, 0.6])
def test_no_bin_is_empty_if_refine_top_meets_tied_scores(tied):
    score = np.append(np.linspace(0, 1, 1_000), np.full(int(1_000 * tied), 2.0))
    cells = Cells(exact=True).update(score, score > 1)
    for strategy in ("quantile", "uniform"):
        cuts, edges = make_bins(cells, 5, strategy, 0.001)
        assert (sums_between(cuts, cells.weight) > 0).all()
        assert (np.diff(edges) > 0).all()


def test_edge_between_adjacent_floats_is_the_upper_one():
    low = 1.0
    high = np.nextafter(low, 2)
    cells = Cells(exact=True).update([low, high], [0, 1])
    assert scores_at(cells, np.array([1.0]))[0] == high


@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
def test_one_bin_has_no_cuts(cells, strategy):
    cuts, edges = make_bins(cells, 1, strategy, None)
    assert len(cuts) == len(edges) == 0


def test_number_of_bins_is_limited_for_any_number_of_rows():
    cells = Cells(exact=False).update(np.random.default_rng(0).normal(size=200_000))
    cuts, _ = make_bins(cells, 10**12, "quantile", None)
    assert len(cuts) < 200_000


def test_two_cuts_in_one_cell_share_its_weight():
    column = np.array([1.0, 2.0, 4.0])
    np.testing.assert_allclose(sums_between(np.array([1.2, 1.7]), column), [1.4, 1.0, 4.6])
    np.testing.assert_allclose(sums_between(np.array([0.25, 0.5, 2.0]), column), [0.25, 0.25, 2.5, 4.0])


def test_cuts_between_cells_and_inside_them():
    cells = Cells(exact=True).update([0.0, 1.0, 3.0], [0, 1, 1])
    np.testing.assert_allclose(scores_at(cells, np.array([1.0, 2.0])), [0.5, 2.0])
    grid = Cells(exact=False).update(np.repeat([0.1, 0.2, 0.3], 20_000))
    low, high = grid.bounds
    np.testing.assert_allclose(scores_at(grid, np.array([0.25, 1.5])), [
        low[0] + 0.25 * (high[0] - low[0]), (low[1] + high[1]) / 2
    ])  # fmt: skip
