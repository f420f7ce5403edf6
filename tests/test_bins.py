"""Bins of cells: equal weight, never torn ties, and a last bin as narrow as the selection."""

import numpy as np
import pytest

from uncurse import Cells
from uncurse.calibration.bins import bins, edges_at, running, totals


@pytest.fixture
def cells():
    l = np.random.default_rng(0).normal(-2, 1, 10_000)
    return Cells(exact=True).update(l, l > 0)


def test_bins_of_equal_weight_have_equal_weight(cells):
    places, edges = bins(cells, 20, "quantile", None)
    np.testing.assert_array_equal(totals(running(cells.weight), places), np.full(20, 500.0))
    assert (np.diff(edges) > 0).all()


def test_bins_of_the_grid_have_equal_weight_too_by_sharing_cells():
    l = np.random.default_rng(0).normal(-2, 0.1, 200_000)
    cells = Cells(exact=False).update(l)
    places, edges = bins(cells, 50, "quantile", None)
    np.testing.assert_allclose(totals(running(cells.weight), places), 4_000, rtol=1e-9)
    np.testing.assert_allclose(edges, np.quantile(l, np.arange(1, 50) / 50), atol=1 / 1024)


def test_equal_scores_are_never_torn_apart():
    cells = Cells(exact=True).update(np.repeat([0.0, 1.0, 2.0], [10, 80, 10]), np.arange(100) % 2)
    places, _ = bins(cells, 10, "quantile", None)
    assert set(totals(running(cells.weight), places)) <= {10.0, 80.0, 90.0}


@pytest.mark.parametrize("share", [0.01, 0.001, 0.0001])
def test_the_last_bin_is_never_wider_than_the_selection(cells, share):
    places, _ = bins(cells, 10, "quantile", share)
    weights = totals(running(cells.weight), places)
    assert weights[-1] <= share * 10_000
    assert weights.sum() == 10_000
    np.testing.assert_array_equal(weights[:9], 1_000)


def test_an_edge_between_neighbouring_floats_is_the_upper_one():
    low = 1.0
    high = np.nextafter(low, 2)
    cells = Cells(exact=True).update([low, high], [0, 1])
    assert edges_at(cells, np.array([1.0]))[0] == high
