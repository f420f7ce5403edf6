"""`Histogram` and `ReplicaTable`: cells of a grid that depends neither on the order of the rows nor on their split."""

import copy
import json
import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncurse import UncurseError
from uncurse.evidence import Histogram, ReplicaTable
from uncurse.links import logistic

FINEST, MAX_CELLS = 2.0**-14, (1 << 13, 1 << 15)
DENSE_ROWS = (1 << 17) + 1  # more rows at once are counted in a dense histogram, fewer are sorted


def replicas(rows, size=2, seed=0, mean=-1.5, dtype=np.float64):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, 0.8, rows)
    scores = (truth[:, None] + rng.normal(0, 0.4, (rows, size))).astype(dtype)
    return scores, (rng.random(rows) < logistic(truth)).astype(np.int8), rng.integers(0, 4, rows) / 2


def counted(scores, y=None, w=None, rows=slice(None)):
    y, w = (None if column is None else column[rows] for column in (y, w))
    return Histogram().update(scores[rows], y, sample_weight=w)


def assert_same(one, other, rtol=0.0):
    """Check that cells and sums are equal; sums of logits up to rounding."""
    left, right = one.to_dict(), other.to_dict()
    assert left.keys() == right.keys()
    for name in ("columns", "rows", "labeled", "level", "cells"):
        assert left[name] == right[name], name
    for name in ("weight", "label", "weight_squares", "label_squares", "score_sums", "column_sums"):
        assert (left[name] is None) == (right[name] is None)
        if left[name] is not None:
            a, b = np.array(left[name], float), np.array(right[name], float)
            exact = name in ("weight", "label")
            size = np.abs(b).max(initial=0)
            np.testing.assert_allclose(a, b, rtol=rtol if exact else 1e-11, atol=0 if exact else 1e-12 * size)


# ---------------------------------------------------------------------------- cells


def compressed(x):
    return np.where(np.abs(x) <= 16, x, np.sign(x) * (16 + 2 * np.log(np.maximum(np.abs(x), 16) / 16)))


def row_cells(scores, level):
    """Return the cell of each row, by the definition."""
    scores, width = np.clip(scores.astype(np.float64), -1e6, 1e6), FINEST * 2.0**level
    served, others = scores[:, 0], scores[:, 1:]
    cells = [np.floor(compressed(served) / width)]
    if others.shape[1]:
        cells.append(np.floor(compressed(others.mean(axis=1) - served) / width))
    if others.shape[1] > 1:
        contrast = others[:, 0] - others[:, 1] if others.shape[1] == 2 else np.sqrt(2) * others.std(axis=1, ddof=1)
        cells.append(np.floor(compressed(contrast) / (2 * width)))
    return np.stack(cells, axis=1).astype(np.int64)


def distinct(cells):
    """Return the distinct cells in order, and the place of each row; faster than `np.unique` with an axis."""
    shifted = cells - cells.min(axis=0)
    keys = np.ravel_multi_index(shifted.T, shifted.max(axis=0) + 1)
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return cells[first], place


def cells_of(histogram):
    """Return the cells of a histogram, and the order of `distinct`."""
    cells = np.array(histogram.to_dict()["cells"]).T
    return cells, np.lexsort(cells.T[::-1])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", [900, DENSE_ROWS])
def test_cells_and_their_sums_follow_the_definition(rows, size, weighted):
    scores, y, w = replicas(rows, size)
    scores[:: rows // 30] *= 1e3  # also beyond ±16
    histogram = counted(scores, y, w if weighted else None)
    w = w if weighted else np.ones(rows)
    filled = w > 0
    cells, place = distinct(row_cells(scores, histogram.level)[filled])
    found, order = cells_of(histogram)
    np.testing.assert_array_equal(found[order], cells)

    def sums(values):
        return np.bincount(place, weights=values[filled])[np.argsort(order)]

    np.testing.assert_allclose(histogram.weight, sums(w), rtol=1e-12)
    np.testing.assert_allclose(histogram.label, sums(w * y), rtol=1e-12)
    np.testing.assert_allclose(histogram.weight_squares, sums(w**2), rtol=1e-12)
    np.testing.assert_allclose(histogram.label_squares, sums(w**2 * y), rtol=1e-12)
    np.testing.assert_allclose(histogram.column_sums, w @ scores, rtol=1e-11)
    assert histogram.effective_rows == pytest.approx(w.sum() ** 2 / (w @ w), rel=1e-12)
    assert (histogram.rows, histogram.n_columns, len(histogram)) == (rows, size, len(cells))
    if size == 1:
        np.testing.assert_allclose(histogram.score, sums(w * scores[:, 0]) / sums(w), rtol=1e-11)
        assert (np.diff(histogram.score) > 0).all()
        low, high = histogram.bounds
        assert (low <= histogram.score * (1 + 1e-12 * np.sign(histogram.score))).all()
        assert (histogram.score <= high + 1e-9 * np.abs(high)).all()
        assert (low[1:] >= high[:-1]).all()


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("rows", [100, 60_000, DENSE_ROWS])
def test_the_grid_is_the_finest_whose_filled_cells_fit(rows, size):
    scores, _, _ = replicas(rows, size, seed=1)
    histogram = counted(scores)
    assert len(histogram) <= MAX_CELLS[size > 1]
    if histogram.level:
        assert len(distinct(row_cells(scores, histogram.level - 1))[0]) > MAX_CELLS[size > 1]


@pytest.mark.parametrize(("logit", "counted_as"), [(900.0, 900.0), (1e6, 1e6), (1e75, 1e6), (0.0, 0.0), (-0.0, 0.0)])
@pytest.mark.parametrize("rows", [100, DENSE_ROWS])
def test_extreme_logits_have_cells_of_their_own(rows, logit, counted_as):
    scores = replicas(rows, 1)[0][:, 0]
    scores[3], scores[4] = logit, -logit
    histogram = counted(scores)
    assert histogram.weight.sum() == rows
    assert np.isfinite(histogram.score).all()
    if logit:
        assert histogram.weight[[0, -1]].tolist() == [1, 1]
        np.testing.assert_allclose(histogram.score[[0, -1]], [-counted_as, counted_as], rtol=1e-12)


@pytest.mark.parametrize("rows", [30_000, DENSE_ROWS])
@pytest.mark.parametrize("size", [1, 3])
def test_float32_and_float64_agree(rows, size):
    scores, y, _ = replicas(rows, size, dtype=np.float32)
    assert_same(counted(scores, y), counted(scores.astype(np.float64), y))


@cache
def spreads():
    normal = np.random.default_rng(0).normal(size=(DENSE_ROWS, 4))
    return {
        "served sd 1e-6": normal * [1e-6, 1.0, 1.0, 1.0],
        "all sd 1e-6": normal * 1e-6,
        "one column of 1e5": normal * 0.3 + [0.0, 1e5, 0.0, 0.0],
        "sd 1e5": normal * 1e5,
        "log-uniform": np.sign(normal) * np.exp(np.random.default_rng(1).uniform(-30, 170, normal.shape)),
        "constant": np.zeros_like(normal),
    }


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", spreads())
def test_memory_is_bounded_for_any_spread(name, size):
    scores = spreads()[name][:, :size].copy()
    tracemalloc.start()
    try:
        histogram = counted(scores, np.zeros(len(scores), np.int8))
        assert histogram.weight.sum() == len(scores)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 150e6  # 4 columns of scores are 5 MB, a dense histogram at most 34
    assert len(histogram) <= MAX_CELLS[size > 1]


# ---------------------------------------------------------------------------- splits, order, merging


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 4),
    spread=st.sampled_from([1e-6, 1.0, 300.0]),
    kind=st.sampled_from(["plain", "labels", "weights"]),
    cuts=st.lists(st.integers(1, 2_999), max_size=5),
)
def test_any_split_and_any_order_give_the_same_cells(seed, size, spread, kind, cuts):
    rng = np.random.default_rng(seed)
    scores = spread * rng.standard_t(3, (3_000, size))
    y = None if kind == "plain" else rng.integers(0, 2, 3_000)
    w = rng.integers(1, 5, 3_000) / 4 if kind == "weights" else None  # sums of quarters are exact
    expected = counted(scores, y, w)
    parts = [rows for rows in np.split(rng.permutation(3_000), sorted(cuts)) if len(rows)]
    updated, merged = Histogram(), Histogram()
    for rows in parts:
        own = None if w is None else w[rows]
        updated.update(scores[rows], None if y is None else y[rows], sample_weight=own)
    for rows in reversed(parts):
        merged.merge(counted(scores, y, w, rows))
    for found in (updated, merged):
        assert_same(found, expected)
        assert_same(Histogram.from_dict(json.loads(json.dumps(found.to_dict()))), found)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("kind", ["plain", "labels", "weights"])
def test_rows_that_are_sorted_and_rows_that_are_counted_give_the_same_cells(size, kind):
    rows = DENSE_ROWS + 20_000
    scores, y, w = replicas(rows, size)
    scores[5:9] *= 1e4
    y, w = None if kind == "plain" else y, w if kind == "weights" else None
    dense, sparse, mixed = counted(scores, y, w), Histogram(), counted(scores, y, w, slice(0, DENSE_ROWS))
    for start in range(0, rows, 50_000):
        sparse.merge(counted(scores, y, w, slice(start, start + 50_000)))
    mixed.merge(counted(scores, y, w, slice(DENSE_ROWS, None)))
    assert_same(sparse, dense)
    assert_same(mixed, dense)


def test_batches_outside_the_first_are_counted_and_can_be_read_in_between():
    histogram, parts = Histogram(), []
    for mean in (-1.5, 9.0, -12.0):
        parts.append(replicas(DENSE_ROWS, mean=mean)[0])
        histogram.update(parts[-1])
        assert histogram.weight.sum() == len(parts) * DENSE_ROWS
    assert_same(histogram, counted(np.concatenate(parts)[::-1]))


def test_rows_with_and_without_weights_are_counted_in_one_histogram():
    scores, y, w = replicas(3 * DENSE_ROWS, 2)
    histogram, thirds = Histogram(), np.array_split(np.arange(len(scores)), 3)
    for rows, weights in zip(thirds, (None, w, None), strict=True):
        histogram.merge(counted(scores, y, weights, rows[:1_000])).update(
            scores[rows[1_000:]], y[rows[1_000:]], sample_weight=None if weights is None else w[rows[1_000:]]
        )
    w[np.concatenate(thirds[::2])] = 1.0
    assert_same(histogram, counted(scores, y, w))


def test_a_merged_copy_does_not_change_with_later_rows():
    scores, y, _ = replicas(2 * DENSE_ROWS, 2)
    first, few = counted(scores, y, rows=slice(0, DENSE_ROWS)), counted(scores, y, rows=slice(DENSE_ROWS, -1))
    merged = copy.copy(first).merge(few)
    first.update(scores[-1:], y[-1:])
    first.update(scores[:DENSE_ROWS], y[:DENSE_ROWS])
    assert_same(merged, counted(scores[:-1], y[:-1]))


def test_a_few_outliers_do_not_change_other_cells():
    scores, y, _ = replicas(60_000, 3)
    far = counted(np.array([[900.0, -900.0, 3e5], [-1e9, 1e9, 0.0]]), np.array([0, 1]))
    plain = counted(scores, y)
    for both in (copy.deepcopy(plain).merge(far), copy.deepcopy(far).merge(plain)):
        assert (both.level, len(both)) == (plain.level, len(plain) + 2)


def test_coarser_cells_are_those_of_the_coarser_grid():
    scores, y, _ = replicas(40_000, 3)
    fine = counted(scores, y)
    coarse = fine.coarsened(fine.level + 2)
    found, order = cells_of(coarse)
    np.testing.assert_array_equal(found[order], distinct(row_cells(scores, coarse.level))[0])
    assert (fine.coarsened(0), fine.level) == (fine, coarse.level - 2)
    few = counted(scores[:500], y[:500])
    assert copy.deepcopy(few).merge(coarse).level == copy.deepcopy(coarse).merge(few).level == coarse.level


# ---------------------------------------------------------------------------- weights


def test_integer_weights_are_repeated_rows_and_only_ratios_matter():
    scores, y, _ = replicas(2_000)
    times = np.random.default_rng(0).integers(0, 4, 2_000)
    weighted, repeated = counted(scores, y, times), counted(np.repeat(scores, times, axis=0), np.repeat(y, times))
    for name in ("weight", "label", "column_sums"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name), rtol=1e-12)
    for factor in (1e-90, 1 / 3, 1e90):
        scaled = counted(scores, y, factor * times)
        np.testing.assert_allclose(scaled.weight / factor, weighted.weight, rtol=1e-12)
        assert scaled.effective_rows == pytest.approx(weighted.effective_rows, rel=1e-12)
        for name in ("served", "gap", "levels", "effective_rows"):
            one, other = getattr(scaled.table(), name), getattr(weighted.table(), name)
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_rows_of_weight_zero_fill_no_cells_and_do_not_make_the_grid_coarser():
    scores, _, _ = replicas(DENSE_ROWS, 2)
    weights = (np.arange(DENSE_ROWS) % 50 == 0).astype(float)
    assert_same(counted(scores, w=weights), Histogram().merge(_with_rows(counted(scores[weights > 0]), DENSE_ROWS)))


def _with_rows(histogram, rows):
    histogram.rows = rows
    return histogram


# ---------------------------------------------------------------------------- tables of replicas


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_table_has_the_means_and_mean_squares_of_the_rows(size):
    scores, y, w = replicas(200_000, size, seed=6)
    table = counted(scores, y, w).table()
    means = w @ scores / w.sum()
    centered = scores - means
    gap = centered[:, 1:].mean(axis=1) - centered[:, 0]
    assert (table.n_replicas, table.weight.sum(), table.label.sum()) == (size, w.sum(), w @ y)
    np.testing.assert_allclose(table.levels, means - means[0], atol=1e-12)
    assert table.weight @ table.gap_squared(table.gap_level) == pytest.approx(w @ gap**2, rel=2e-3)
    if size > 2:
        assert table.weight @ table.spread == pytest.approx(w @ centered[:, 1:].var(axis=1, ddof=1), rel=3e-3)
    else:
        assert not table.spread.any()
    weight, label = table.row_weights()
    assert weight.sum() == pytest.approx(table.effective_rows, rel=1e-9)
    assert label.sum() / weight.sum() == pytest.approx(w @ y / w.sum(), rel=1e-9)
    assert (np.diff(table.served[table.descending]) <= 0).all()


def test_cells_have_the_mean_of_their_rows_also_at_the_top():
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 0.85, (400_000, 1)) + rng.normal(0, 0.3, (400_000, 3))
    table = counted(scores).coarsened(11).table()  # cells of 1/8 of a logit
    assert table.width == 1 / 8
    gap = scores[:, 1:].mean(axis=1) - scores[:, 0]
    for positions, values in ((table.served, scores[:, 0]), (table.gap, gap)):
        edge = table.width * np.floor(np.quantile(values, 0.98) / table.width)
        rows, top = values[values >= edge], positions > edge
        assert table.weight[top] @ positions[top] / table.weight[top].sum() == pytest.approx(rows.mean(), abs=1e-3)


def test_the_table_of_rows_is_a_direct_computation():
    scores = replicas(500, 4)[0].astype(np.float32)
    table, x = ReplicaTable.of_rows(scores), scores.astype(np.float64)
    centered = x[:, 1:] - (x.mean(axis=0) - x[:, 0].mean())[1:]
    np.testing.assert_allclose(table.gap, x[:, 1:].mean(axis=1) - x[:, 0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(table.spread, centered.var(axis=1, ddof=1), rtol=1e-12)
    assert (table.width, table.effective_rows) == (0, 500)
    few = counted(scores[:200].astype(np.float64))  # cells of 1/16384 hold a row each
    order = np.lexsort([table.gap[:200], table.served[:200]])
    found = few.table()
    ascending = np.argsort(found.served, kind="stable")
    np.testing.assert_allclose(found.served[ascending], np.sort(x[:200, 0]), atol=found.width)
    np.testing.assert_allclose(found.gap[ascending], table.gap[:200][order], atol=2 * found.width)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize(("rows", "wild"), [(50_000, 1e4), (50_000, 1e75), (150_000, 1e5)])
def test_a_few_outliers_change_neither_the_noise_nor_the_levels(rows, size, wild):
    scores, y, _ = replicas(rows, size)
    clean = counted(scores, y).table()
    rng = np.random.default_rng(1)
    some = rng.choice(rows, rows // 10_000, replace=False)
    scores[some] = wild * rng.choice([-1.0, 1.0], (len(some), size))
    table = counted(scores, y).table()
    # One row in 10,000 is clipped at a fence of at most 10 standard deviations: 1% of the variance.
    noise, expected = (t.weight @ t.gap_squared(t.gap_level) / rows for t in (table, clean))
    assert noise == pytest.approx(expected, rel=0.02)
    assert table.gap_level == pytest.approx(clean.gap_level, abs=1e-2 * np.sqrt(noise))
    if size > 2:
        assert table.weight @ table.spread == pytest.approx(clean.weight @ clean.spread, rel=0.03)


@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_shift_of_columns_changes_the_levels_not_the_noise(size, weighted):
    scores, y, w = replicas(50_000, size)
    w = w if weighted else None
    table = counted(scores, y, w).table()
    for shift in (np.linspace(0, 3, size), np.where(np.arange(size) == 1, -0.37, 0.0)):
        shifted = counted(scores + shift, y, w).table()
        np.testing.assert_allclose(shifted.levels, table.levels + shift - shift[0], atol=1e-11)
        noise, expected = (t.weight @ t.gap_squared(t.gap_level) for t in (shifted, table))
        assert noise == pytest.approx(expected, rel=1e-3)
        assert shifted.weight @ shifted.spread == pytest.approx(table.weight @ table.spread, rel=0.02)


@pytest.mark.parametrize("slope", [0.5, 3.0])
def test_a_rescaled_table_is_that_of_rescaled_logits(slope):
    scores, y, w = replicas(60_000, 3)
    table, expected = counted(scores, y, w).table().rescaled(slope, -0.7), counted(slope * scores - 0.7, y, w).table()
    np.testing.assert_allclose(table.levels, expected.levels, atol=1e-12)
    for left, right in (
        (table.served, expected.served),
        (np.square(table.served), np.square(expected.served)),
        (table.gap_squared(table.gap_level), expected.gap_squared(expected.gap_level)),
        (table.spread, expected.spread),
    ):
        assert table.weight @ left == pytest.approx(expected.weight @ right, rel=3e-3)


def test_caps_of_the_served_score_are_found_and_described():
    scores, _, _ = replicas(50_000)
    assert not counted(scores).table().cap
    scores[:, 0] = np.minimum(scores[:, 0], 0.2)
    table, share = counted(scores).table(), np.mean(scores[:, 0] == 0.2)
    assert "capped at a logit of about 0.195" in table.cap  # the middle of a cell
    assert float(table.cap.split("%")[0]) == pytest.approx(100 * share, rel=0.05)


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([0.0, np.nan],), {}, "nan"),
        (([[0.0, 1.0], [np.inf, 1.0]],), {}, "inf"),
        ((np.zeros((2, 2, 2)),), {}, "shape"),
        (([1e80],), {}, "1e"),
        (([0.0, 1.0], [0, 2]), {}, "labels"),
        (([0.0, 1.0],), {"sample_weight": [1.0, -1.0]}, "sample_weight"),
        (([0.0, 1.0],), {"sample_weight": [1e200, 0.0]}, "sample_weight"),
        (([0.0, 1.0],), {}, "labels"),  # the rows before have labels
        (([[0.0, 1.0]], [1]), {}, "2 columns"),
    ],
)
def test_invalid_rows_are_refused_and_not_added(arguments, options, message):
    histogram = Histogram().update([0.0, 0.5], [0, 1])
    before = histogram.to_dict()
    with pytest.raises(UncurseError, match=message):
        histogram.update(*arguments, **options)
    assert histogram.to_dict() == before


def test_histograms_of_other_columns_and_of_unlabeled_rows_do_not_merge():
    histogram = counted(np.zeros((2, 2)), np.array([0, 1]))
    for other in (counted(np.zeros((2, 3)), np.array([0, 1])), counted(np.zeros((2, 2)))):
        with pytest.raises(UncurseError, match=r"3 columns|labels"):
            histogram.merge(other)
    assert histogram.rows == 2


def test_an_empty_histogram_has_no_table_and_adds_nothing():
    assert counted(np.zeros((2, 2))).merge(Histogram()).to_dict() == counted(np.zeros((2, 2))).to_dict()
    assert len(Histogram()) == 0
    assert Histogram().effective_rows == 0
    with pytest.raises(UncurseError, match="no rows"):
        Histogram().table()
    assert_same(Histogram.from_dict(json.loads(json.dumps(Histogram().to_dict()))), Histogram())
