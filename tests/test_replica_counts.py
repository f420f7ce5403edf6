"""`ReplicaCounts`: cells of a grid that depends neither on the data nor on the order of the rows."""

import copy
import json
import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncurse import ReplicaCounts, UncurseError
from uncurse.evidence import replica_counts as module
from uncurse.links import logistic

FINEST, MAX_CELLS, DENSE_ROWS = 2.0**-14, 1 << 15, 1 << 17


def replicas(rows, size=2, seed=0, mean=-1.5, dtype=np.float64):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, 0.8, rows)
    scores = (truth[:, None] + rng.normal(0, 0.4, (rows, size))).astype(dtype)
    return scores, (rng.random(rows) < logistic(truth)).astype(np.int8), rng.integers(0, 4, rows) / 2


def assert_same(a, b, rtol=0.0):
    """Check that cells and sums are equal, column sums up to rounding."""
    left, right = a.to_dict(), b.to_dict()
    for name in ("replicas", "rows", "labelled", "level", "served", "gap", "contrast"):
        assert left[name] == right[name], name
    for name, tolerance in (("weight", rtol), ("label", rtol), ("weight_squares", 1e-12)):
        assert (left[name] is None) == (right[name] is None)
        if left[name] is not None:
            np.testing.assert_allclose(left[name], right[name], rtol=tolerance, atol=rtol, err_msg=name)
    size = np.abs(a.column_sums).max()
    np.testing.assert_allclose(a.column_sums, b.column_sums, rtol=1e-12, atol=1e-13 * size)


# ---------------------------------------------------------------------------- cells


def compressed(x):
    return np.where(np.abs(x) <= 16, x, np.sign(x) * (16 + 2 * np.log(np.maximum(np.abs(x), 16) / 16)))


def row_cells(scores, level):
    """Return the cell of each row, by the definition."""
    scores, width = np.clip(scores.astype(np.float64), -1e6, 1e6), FINEST * 2.0**level
    others = scores[:, 1:]
    gap = others.mean(axis=1) - scores[:, 0]
    cells = [np.floor(compressed(scores[:, 0]) / width), np.floor(compressed(gap) / width)]
    if scores.shape[1] > 2:
        contrast = others[:, 0] - others[:, 1] if scores.shape[1] == 3 else np.sqrt(2) * others.std(axis=1, ddof=1)
        cells.append(np.floor(compressed(contrast) / (2 * width)))
    return np.stack(cells, axis=1).astype(np.int64)


def distinct(cells):
    """Return the distinct cells in order, and the place of each row; faster than `np.unique` with an axis."""
    shifted = cells - cells.min(axis=0)
    keys = np.ravel_multi_index(shifted.T, shifted.max(axis=0) + 1)
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return cells[first], place


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("rows", [900, DENSE_ROWS + 1])  # sorted by cell, and counted in a histogram
def test_cells_and_their_sums_follow_the_definition(rows, size, weighted):
    scores, y, w = replicas(rows, size)
    scores[:: rows // 30] *= 1e3  # also beyond ±16
    counts = ReplicaCounts().update(scores, y, sample_weight=w if weighted else None)
    w = w if weighted else np.ones(rows)
    filled = w > 0
    cells, place = distinct(row_cells(scores, counts.level)[filled])
    content = counts.to_dict()
    axes = [content[name] for name in ("served", "gap", "contrast")[: cells.shape[1]]]
    np.testing.assert_array_equal(np.stack(axes, axis=1), cells)
    np.testing.assert_allclose(content["weight"], np.bincount(place, weights=w[filled]), rtol=1e-12)
    np.testing.assert_allclose(content["label"], np.bincount(place, weights=(w * y)[filled]), rtol=1e-12)
    assert (content["contrast"] is None) == (size == 2)
    assert counts.cells().effective_rows == pytest.approx(w.sum() ** 2 / (w @ w), rel=1e-12)
    assert (counts.rows, counts.n_replicas, len(counts)) == (rows, size, len(cells))


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("rows", [100, 60_000, 140_000])
def test_the_grid_is_the_finest_whose_filled_cells_fit(rows, size):
    scores, _, _ = replicas(rows, size, seed=1)
    counts = ReplicaCounts().update(scores)
    assert len(counts) <= MAX_CELLS
    assert counts.cells().width == FINEST * 2.0**counts.level
    if counts.level:
        assert len(distinct(row_cells(scores, counts.level - 1))[0]) > MAX_CELLS


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("rows", [1, 5_000, 200_000])
def test_column_sums_are_exact(rows, size, weighted):
    scores, _, w = replicas(rows, size, seed=2)
    w = w + 0.5
    counts = ReplicaCounts().update(scores, sample_weight=w if weighted else None)
    w = w if weighted else np.ones(rows)
    np.testing.assert_allclose(counts.column_sums, w @ scores, rtol=1e-12)
    means = w @ scores / w.sum()
    np.testing.assert_allclose(counts.cells().levels, means - means[0], atol=1e-12)


def test_a_cell_is_represented_by_the_mean_of_its_rows():
    scores, _, _ = replicas(400_000, 3, seed=4)
    counts = ReplicaCounts()
    counts._start(3, False)
    counts._coarsen(11)  # cells of 1/8, about a sixth of the standard deviation
    cells = counts.update(scores).cells()
    assert cells.width == 1 / 8
    number, row_number = np.floor(cells.served / cells.width), np.floor(scores[:, 0] / cells.width)
    tested = 0
    for cell in np.unique(number):
        here = scores[row_number == cell, 0]
        if len(here) > 5_000:
            tested += 1
            middle = (cell + 0.5) * cells.width
            found, true = cells.served[number == cell][0] - middle, here.mean() - middle
            assert abs(found - true) < 4 * here.std() / np.sqrt(len(here)) + 0.15 * abs(true)
    assert tested > 8


def test_the_gap_of_a_cell_is_the_mean_of_its_rows_given_the_served_score():
    scores, _, _ = replicas(400_000, 3, seed=4)
    counts = ReplicaCounts()
    counts._start(3, False)
    counts._coarsen(11)
    cells = counts.update(scores).cells()
    gap = scores[:, 1:].mean(axis=1) - scores[:, 0]

    def middle(x):
        return (np.floor(x / cells.width) + 0.5) * cells.width

    # A position that is wrong by the served score or by the gap shows in its mean product with that coordinate.
    for by_cell, by_row in ((cells.served, scores[:, 0]), (cells.gap, gap)):
        found, true = (
            np.average((g - middle(g)) * (middle(x) - by_row.mean()), weights=w) / by_row.std()
            for g, x, w in ((cells.gap, by_cell, cells.weight), (gap, by_row, np.ones_like(gap)))
        )
        assert abs(found - true) < 4 * cells.width / np.sqrt(12 * len(gap))


def test_the_top_cells_have_the_mean_of_the_top_rows():
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 0.85, (400_000, 1)) + rng.normal(0, 0.3, (400_000, 3))
    counts = ReplicaCounts()
    counts._start(3, False)
    counts._coarsen(11)
    cells = counts.update(scores).cells()
    gap = scores[:, 1:].mean(axis=1) - scores[:, 0]
    for positions, values in ((cells.served, scores[:, 0]), (cells.gap, gap)):
        edge = cells.width * np.floor(np.quantile(values, 0.98) / cells.width)
        rows, top = values[values >= edge], positions > edge
        mean = cells.weight[top] @ positions[top] / cells.weight[top].sum()
        assert mean == pytest.approx(rows.mean(), abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.sampled_from([1, 2, 300, 30_000]),
    size=st.integers(2, 5),
    spread=st.sampled_from([1e-6, 0.1, 1.0, 30.0]),
    noise=st.sampled_from([0.0, 1e-3, 0.5, 40.0]),
    level=st.sampled_from([0.0, -7.0, 300.0]),
    heavy=st.booleans(),
)
def test_no_weight_is_lost_and_cells_are_near_their_rows(seed, rows, size, spread, noise, level, heavy):
    rng = np.random.default_rng(seed)
    draw = (lambda shape: rng.standard_t(2, shape)) if heavy else rng.standard_normal
    scores = level + spread * draw((rows, 1)) + noise * draw((rows, size))
    y, w = rng.integers(0, 2, rows), rng.random(rows) + 0.01
    cells = ReplicaCounts().update(scores, y, sample_weight=w).cells()
    assert cells.weight.sum() == pytest.approx(w.sum(), rel=1e-9)
    assert cells.label.sum() == pytest.approx(w @ y, rel=1e-9)
    assert len(cells.weight) <= MAX_CELLS
    assert (cells.spread >= 0).all()
    gap = scores[:, 1:].mean(axis=1) - scores[:, 0]
    for positions, values in ((cells.served, scores[:, 0]), (cells.gap, gap)):
        assert np.isfinite(positions).all()
        inside = values[(values >= positions.min()) & (values <= positions.max())]  # outliers of the gap are clipped
        if len(inside):
            near = compressed(np.unique(positions))
            place = np.clip(np.searchsorted(near, compressed(inside)), 1, max(len(near) - 1, 1))
            below, above = near[place - 1], near[np.minimum(place, len(near) - 1)]
            distance = np.minimum(np.abs(below - compressed(inside)), np.abs(above - compressed(inside)))
            assert distance.max() <= 0.7 * cells.width * (1 + 1e-6) + 1e-9
    mean = cells.weight @ compressed(cells.served) / w.sum()
    assert abs(mean - w @ compressed(scores[:, 0]) / w.sum()) <= 0.7 * cells.width * (1 + 1e-6) + 1e-9


def test_identical_replicas_have_no_gap_and_no_spread_beyond_the_width_of_a_cell():
    served = replicas(5_000)[0][:, :1]
    for size in (2, 3, 5):
        counts = ReplicaCounts().update(np.repeat(served, size, axis=1))
        cells = counts.cells()
        assert counts.level == 0
        assert (np.abs(cells.gap) <= cells.width).all()
        assert (cells.spread <= cells.width**2).all()
        np.testing.assert_allclose(cells.levels, 0.0, atol=1e-14)


# ---------------------------------------------------------------------------- splits, order, merging


# Every size and every kind, each sorted by cell and counted in a histogram.
@pytest.mark.parametrize(
    ("rows", "size", "kind"),
    [
        ((40_000, DENSE_ROWS + 20_000)[(i + j) % 2], size, kind)
        for i, size in enumerate((2, 3, 5))
        for j, kind in enumerate(("plain", "labels", "weights"))
    ],
)
def test_any_split_and_any_order_give_the_same_cells(rows, size, kind):
    scores, y, w = replicas(rows, size)
    y, w = (None if kind == "plain" else y), (w + 0.25 if kind == "weights" else None)
    one_pass = ReplicaCounts().update(scores, y, sample_weight=w)
    rng = np.random.default_rng(5)

    def some(i):
        return ReplicaCounts().update(scores[i], None if y is None else y[i], sample_weight=None if w is None else w[i])

    tolerance = 0.0 if kind != "weights" else 1e-12
    assert_same(some(rng.permutation(rows)), one_pass, tolerance)
    cuts = [10, *np.sort(rng.integers(11, 15_000, 3)), rows - 1]  # the largest part is dense if all rows are
    parts = [part for part in np.split(rng.permutation(rows), cuts) if len(part)]
    updated = ReplicaCounts()
    for i in parts:
        updated.update(scores[i], None if y is None else y[i], sample_weight=None if w is None else w[i])
    assert_same(updated, one_pass, tolerance)
    merged = ReplicaCounts()
    for i in reversed(parts):
        merged.merge(some(i))
    assert_same(merged, one_pass, tolerance)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(("rows", "few"), [(40_000, 1), (DENSE_ROWS + 1, 10)])
def test_a_tiny_shard_merged_first_or_last_changes_nothing_bitwise(rows, size, few):
    scores, y, _ = replicas(rows + few, size, seed=3)
    one_pass = ReplicaCounts().update(scores, y)
    for tiny in (slice(0, few), slice(rows, None)):
        rest = np.setdiff1d(np.arange(rows + few), np.arange(rows + few)[tiny])
        for order in ((tiny, rest), (rest, tiny)):
            updated, merged = ReplicaCounts(), ReplicaCounts()
            for part in order:
                updated.update(scores[part], y[part])
                merged.merge(ReplicaCounts().update(scores[part], y[part]))
            for counts in (updated, merged):
                assert_same(counts, one_pass)
                cells, expected = counts.cells(), one_pass.cells()
                assert (cells.served == expected.served).all()
                np.testing.assert_allclose(cells.gap, expected.gap, rtol=0, atol=1e-12)
                np.testing.assert_allclose(cells.spread, expected.spread, rtol=0, atol=1e-12)


def test_a_tiny_shard_of_outliers_does_not_change_other_cells():
    scores, y, _ = replicas(60_000, 3)
    far = np.array([[900.0, -900.0, 3e5], [-1e9, 1e9, 0.0]])
    plain = ReplicaCounts().update(scores, y).to_dict()
    for counts in (
        ReplicaCounts().update(far, [0, 1]).update(scores, y),
        ReplicaCounts().update(scores, y).update(far, [0, 1]),
    ):
        content = counts.to_dict()
        assert content["level"] == plain["level"]
        cells = {
            name: set(zip(*(c[k] for k in ("served", "gap", "contrast", "weight", "label")), strict=True))
            for name, c in (("all", content), ("plain", plain))
        }
        assert len(cells["all"] - cells["plain"]) == 2
        assert cells["plain"] < cells["all"]


@pytest.mark.parametrize("kind", ["plain", "labels", "weights"])
def test_the_number_of_threads_does_not_change_the_counts(monkeypatch, kind):
    scores, y, w = replicas(200_000, 3)
    y, w = (None if kind == "plain" else y), (w if kind == "weights" else None)
    one_thread = ReplicaCounts().update(scores, y, sample_weight=w)
    monkeypatch.setattr(module, "_THREAD_ROWS", 30_000)
    monkeypatch.setattr("uncurse.threads.cores", lambda: 5)
    assert_same(ReplicaCounts().update(scores, y, sample_weight=w), one_thread, 0.0 if kind != "weights" else 1e-12)


def test_merging_empty_counts_changes_nothing():
    scores, y, _ = replicas(5_000)
    counts = ReplicaCounts().update(scores, y)
    before = counts.to_dict()
    assert ReplicaCounts().merge(counts).to_dict() == before
    assert counts.merge(ReplicaCounts()).to_dict() == before


@pytest.mark.parametrize("rows", [5_000, DENSE_ROWS + 1])
def test_a_merge_does_not_change_the_other_counts_then_or_later(rows):
    scores, y, _ = replicas(rows)
    other = ReplicaCounts().update(scores, y)
    before = copy.deepcopy(other).to_dict()
    counts = ReplicaCounts().merge(other)
    counts.update(8 * scores, y).merge(ReplicaCounts().update(scores, y))
    assert other.to_dict() == before
    assert counts.rows == 3 * rows


@pytest.mark.parametrize("rows", [5_000, DENSE_ROWS + 1])
def test_counts_can_be_merged_with_themselves(rows):
    scores, y, _ = replicas(rows)
    counts = ReplicaCounts().update(scores, y)
    assert_same(counts.merge(counts), ReplicaCounts().update(scores, y).update(scores, y))


def test_counts_of_different_levels_merge_to_at_least_the_coarser_level_both_ways():
    scores, y, _ = replicas(50_000)
    fine, coarse = ReplicaCounts().update(scores[:500], y[:500]), ReplicaCounts().update(scores, y)
    assert fine.level < coarse.level
    one, two = copy.deepcopy(fine).merge(coarse), copy.deepcopy(coarse).merge(fine)
    assert one.level == two.level == coarse.level
    assert_same(one, two)
    assert one.to_dict()["weight"] == two.to_dict()["weight"]


def test_level_includes_rows_that_were_not_yet_joined():
    rng = np.random.default_rng(0)
    counts = ReplicaCounts()
    for _ in range(4):  # the first rows fill few enough cells for a grid that is too fine for all rows
        truth = rng.normal(-1.5, 0.8, 150_000)
        counts.update(truth[:, None] + rng.normal(0, 0.3, (150_000, 2)))
    assert counts.level == counts.to_dict()["level"] == 9


def test_cells_can_be_read_between_updates():
    scores, y, _ = replicas(400_000, 3)
    one_pass, counts = ReplicaCounts().update(scores, y), ReplicaCounts()
    for start in range(0, 400_000, 150_000):
        counts.update(scores[start : start + 150_000], y[start : start + 150_000])
        assert counts.cells().weight.sum() == min(start + 150_000, 400_000)
        assert counts.cells() is counts.cells()
    assert_same(counts, one_pass)


def test_rows_outside_the_histogram_are_counted():
    counts, parts = ReplicaCounts(), []
    for mean in (-1.5, 9.0, -12.0):
        parts.append(replicas(DENSE_ROWS + 1, mean=mean)[0])
        counts.update(parts[-1])
    assert counts.cells().weight.sum() == 3 * (DENSE_ROWS + 1)
    assert_same(counts, ReplicaCounts().update(np.concatenate(parts)[::-1]))
    assert counts.cells().weight[counts.cells().served > 3.5].sum() == DENSE_ROWS + 1


def test_a_copy_is_independent():
    scores, y, _ = replicas(DENSE_ROWS + 1)
    counts = ReplicaCounts().update(scores, y)
    duplicate = copy.deepcopy(counts)
    duplicate.update(scores, y)
    assert counts.cells().weight.sum() == DENSE_ROWS + 1
    assert duplicate.cells().weight.sum() == 2 * (DENSE_ROWS + 1)


def test_update_cells_equals_update_with_rows():
    scores, y, w = replicas(40_000, 3)
    expected = ReplicaCounts().update(scores, y, sample_weight=w)
    for level in (0, expected.level, expected.level + 2):
        numbers = list(row_cells(scores, level).T)
        totals = {"rows": 40_000, "weight_squares": float(w @ w), "column_sums": w @ scores}
        counts = ReplicaCounts().update_cells(numbers, np.stack([w, w * y]), level, labelled=True, **totals)
        wanted = copy.deepcopy(expected)
        wanted._coarsen(level)
        assert_same(counts, wanted, 1e-12)


# ---------------------------------------------------------------------------- outliers, levels, memory


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize(
    ("rows", "wild"), [(50_000, 1e4), (50_000, 1e6), (50_000, 1e9), (50_000, 1e75), (150_000, 1e5)]
)
def test_a_few_outliers_change_neither_the_noise_nor_the_levels(rows, size, wild):
    scores, y, _ = replicas(rows, size)
    clean = ReplicaCounts().update(scores, y).cells()
    rng = np.random.default_rng(1)
    some = rng.choice(rows, rows // 10_000, replace=False)
    scores[some] = wild * rng.choice([-1.0, 1.0], (len(some), size))
    counts = ReplicaCounts().update(scores, y)
    cells = counts.cells()
    assert (cells.weight.sum(), cells.label.sum()) == (rows, y.sum())
    for values in (cells.served, cells.gap, cells.spread, cells.levels, counts.column_sums):
        assert np.isfinite(values).all()
    # One row in 10,000 is clipped at a fence of at most 10 standard deviations: 1% of the variance.
    level, clean_level = cells.gap_level, clean.gap_level
    noise = cells.weight @ cells.gap_squared(level) / rows
    assert noise == pytest.approx(clean.weight @ clean.gap_squared(clean_level) / rows, rel=0.02)
    assert level == pytest.approx(clean_level, abs=1e-2 * np.sqrt(noise))
    if size > 2:
        assert cells.weight @ cells.spread == pytest.approx(clean.weight @ clean.spread, rel=0.03)


def test_outliers_are_counted_in_their_own_cells():
    scores, y, _ = replicas(200_000)
    scores[7] = [900.0, 880.0]
    scores[8] = [-1e9, -1e9]
    scores[9] = [1e9, 1e9]
    cells = ReplicaCounts().update(scores, y).cells()
    # Beyond ±16 cells grow with the logit, by half a width per unit of log.
    here = np.abs(cells.served / 900 - 1) <= cells.width
    assert cells.weight[here].sum() == 1
    for sign in (-1, 1):
        here = sign * cells.served > 0.9e6
        assert cells.weight[here].sum() == 1
        assert cells.served[here][0] == pytest.approx(sign * 1e6, rel=cells.width)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("rows", [30_000, DENSE_ROWS + 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_columns_shifted_by_constants_change_only_the_levels(rows, size, weighted):
    scores, y, w = replicas(rows, size)
    scores = np.round(scores * 2**20) / 2**20  # so that shifts are exact
    w = w if weighted else None
    cells = ReplicaCounts().update(scores, y, sample_weight=w).cells()
    for shift in ([0.0, -3.0, 2.0], [0.0, 0.5, 0.5], [1.0, 6.0, -5.0]):
        shift = np.array(shift[:size])
        shifted = ReplicaCounts().update(scores + shift, y, sample_weight=w).cells()
        assert shifted.width == cells.width
        np.testing.assert_allclose(shifted.levels, cells.levels + shift - shift[0], atol=1e-11)
        np.testing.assert_array_equal(shifted.weight, cells.weight)
        np.testing.assert_array_equal(shifted.label, cells.label)
        np.testing.assert_allclose(shifted.served, cells.served + shift[0], atol=1e-11)
        np.testing.assert_allclose(shifted.gap - shifted.gap_level, cells.gap - cells.gap_level, atol=1e-11)
        np.testing.assert_allclose(shifted.spread, cells.spread, atol=1e-11)
        np.testing.assert_allclose(
            shifted.gap_squared(shifted.gap_level), cells.gap_squared(cells.gap_level), atol=1e-10
        )


@pytest.mark.parametrize("size", [2, 3])
def test_shifts_by_fractions_of_a_cell_do_not_change_the_noise(size):
    scores, _, _ = replicas(200_000, size)
    cells = ReplicaCounts().update(scores).cells()
    shifted = ReplicaCounts().update(scores + np.array([0.123, -2.71, 3.14])[:size]).cells()
    noise, expected = (c.weight @ c.gap_squared(c.gap_level) for c in (shifted, cells))
    assert noise == pytest.approx(expected, rel=1e-3)
    assert shifted.weight @ shifted.spread == pytest.approx(cells.weight @ cells.spread, rel=1e-3)


@pytest.mark.parametrize("size", [4, 6])
def test_level_differences_among_three_or_more_replicas_are_not_noise(size):
    scores, _, _ = replicas(50_000, size)
    cells = ReplicaCounts().update(scores).cells()
    shift = np.zeros(size)
    shift[1], shift[-1] = -0.1, 0.1
    shifted = ReplicaCounts().update(scores + shift).cells()
    np.testing.assert_allclose(shifted.levels - cells.levels, shift, atol=1e-12)
    assert shifted.weight @ shifted.spread == pytest.approx(cells.weight @ cells.spread, rel=0.02)
    far = ReplicaCounts().update(scores + 30 * shift).cells()
    np.testing.assert_allclose(far.levels - cells.levels, 30 * shift, atol=1e-12)
    assert far.weight @ far.spread == pytest.approx(cells.weight @ cells.spread, rel=0.02)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_spread_and_gap_have_the_mean_squares_of_the_rows(size):
    scores, y, w = replicas(200_000, size, seed=6)
    cells = ReplicaCounts().update(scores, y, sample_weight=w).cells()
    centered = scores - w @ scores / w.sum()
    gap = centered[:, 1:].mean(axis=1) - centered[:, 0]
    assert cells.weight @ cells.gap_squared(cells.gap_level) == pytest.approx(w @ gap**2, rel=2e-3)
    if size > 2:
        assert cells.weight @ cells.spread == pytest.approx(w @ centered[:, 1:].var(axis=1, ddof=1), rel=3e-3)
    else:
        assert not cells.spread.any()


@cache
def spreads():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(DENSE_ROWS + 20_000, 4))
    return {
        "served sd 1e-6": normal * [1e-6, 1.0, 1.0, 1.0],
        "others sd 1e-6": normal * [1.0, 1e-6, 1e-6, 1e-6],
        "all sd 1e-6": normal * 1e-6,
        "one column of 1e5": normal * 0.3 + [0.0, 1e5, 0.0, 0.0],
        "a served column of 1e5": normal * 0.3 + [1e5, 0.0, 0.0, 0.0],
        "sd 1e5": normal * 1e5,
        "uniform over all logits": rng.uniform(-40, 40, normal.shape),
        "log-uniform": np.sign(normal) * np.exp(rng.uniform(-30, 170, normal.shape)),
        "constant": np.zeros_like(normal),
    }


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", spreads())
def test_memory_is_bounded_for_any_spread(name, size):
    scores = spreads()[name][:, :size].copy()
    tracemalloc.start()
    try:
        counts = ReplicaCounts().update(scores, np.zeros(len(scores), np.int8))
        assert counts.cells().weight.sum() == len(scores)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 150e6  # 4 columns of scores are 5 MB, a histogram at most 34
    assert len(counts) <= MAX_CELLS
    few = ReplicaCounts().update(scores[:2], [0, 1])
    assert few.cells().weight.sum() == 2


def test_memory_is_bounded_for_many_batches_outside_a_histogram():
    scores, _, _ = replicas(DENSE_ROWS + 1, 3, mean=0.0)
    counts = ReplicaCounts().update(1e-3 * scores)
    rng = np.random.default_rng(0)
    for _ in range(6):
        counts.update(rng.uniform(-30, 30, (DENSE_ROWS, 3)))
        assert len(counts._keys) <= 9 * MAX_CELLS + DENSE_ROWS
    assert counts.cells().weight.sum() == 7 * DENSE_ROWS + 1


# ---------------------------------------------------------------------------- scales


@pytest.mark.parametrize("rows", [30_000, DENSE_ROWS + 20_000])
def test_float32_and_float64_agree(rows):
    scores, y, _ = replicas(rows, 3, dtype=np.float32)
    assert_same(ReplicaCounts().update(scores, y), ReplicaCounts().update(scores.astype(np.float64), y))


@pytest.mark.parametrize("rows", [30_000, DENSE_ROWS + 20_000])
def test_probabilities_and_offsets_are_converted_to_logits(rows):
    scores, y, _ = replicas(rows)
    logits = ReplicaCounts().update(scores, y)
    probabilities = ReplicaCounts().update(logistic(scores), y, scale="probability")
    assert probabilities.level == logits.level
    moved = np.setdiff1d(probabilities._keys, logits._keys)
    assert len(moved) <= 2  # rounding may carry a row across an edge
    np.testing.assert_allclose(probabilities.column_sums, logits.column_sums, rtol=1e-12)
    for values, scale in ((scores, "logit"), (logistic(scores), "probability")):
        shifted = ReplicaCounts().update(values, y, scale=scale, logit_offset=-2.25)
        expected = ReplicaCounts().update(scores - 2.25, y)
        assert len(np.setdiff1d(shifted._keys, expected._keys)) <= 2
        np.testing.assert_allclose(shifted.column_sums, expected.column_sums, rtol=1e-12)


@pytest.mark.parametrize("slope", [0.5, 3.0])
def test_rescaled_cells_are_the_cells_of_rescaled_logits(slope):
    scores, y, w = replicas(60_000, 3)
    cells = ReplicaCounts().update(scores, y, sample_weight=w).cells().rescaled(slope, -0.7)
    expected = ReplicaCounts().update(slope * scores - 0.7, y, sample_weight=w).cells()
    total = expected.weight.sum()
    np.testing.assert_allclose(cells.levels, expected.levels, atol=1e-12)
    for left, right in (
        (cells.served, expected.served),
        (np.square(cells.served), np.square(expected.served)),
        (cells.gap_squared(cells.gap_level), expected.gap_squared(expected.gap_level)),
        (cells.spread, expected.spread),
    ):
        assert cells.weight @ left / total == pytest.approx(expected.weight @ right / total, rel=3e-3)
    np.testing.assert_array_equal(cells.weight.sum(), total)


@pytest.mark.parametrize("factor", [1e-90, 1 / 30_000, 1e18, 1e90])
def test_only_ratios_of_weights_matter(factor):
    scores, y, w = replicas(30_000, 3)
    w = w + 0.3
    expected = ReplicaCounts().update(scores, y, sample_weight=w).cells()
    cells = ReplicaCounts().update(scores, y, sample_weight=factor * w).cells()
    assert cells.effective_rows == pytest.approx(expected.effective_rows, rel=1e-12)
    for name in ("served", "gap", "spread", "levels"):
        np.testing.assert_allclose(getattr(cells, name), getattr(expected, name), rtol=1e-9, atol=1e-12, err_msg=name)
    for ours, theirs in zip(cells.row_weights(), expected.row_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert cells.row_weights()[0].sum() == pytest.approx(expected.effective_rows, rel=1e-12)


# ---------------------------------------------------------------------------- content as plain data


def through_json(counts):
    return ReplicaCounts.from_dict(json.loads(json.dumps(counts.to_dict(), allow_nan=False)))


def test_empty_counts_make_a_json_round_trip():
    back = through_json(ReplicaCounts())
    assert (back.rows, back.n_replicas, len(back)) == (0, 0, 0)
    assert back.update([[0.0, 1.0, 2.0]]).n_replicas == 3


@pytest.mark.parametrize("weight", [2.0**53, 2.0**62, 2.0**63, 2.0**64, 1e30])
def test_cells_of_very_large_weight_survive_json(weight):
    counts = ReplicaCounts().update([[0.0, 1.0], [0.0, 1.0], [1.0, 1.0]], [1, 0, 1], sample_weight=np.full(3, weight))
    back = through_json(counts)
    assert back.cells().weight.tolist() == [2 * weight, weight]
    assert back.cells().label.tolist() == [weight, weight]
    assert back.cells().effective_rows == pytest.approx(3)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("replicas",), 1, "differ in length"),
        (("replicas",), 0, "differ in length"),
        (("replicas",), -2, "document"),
        (("replicas",), 4, "differ in length"),
        (("replicas",), "x", "document"),
        (("rows",), 0, "totals must be positive"),
        (("rows",), -2, "totals must be positive"),
        (("rows",), 10**30, "totals must be positive"),
        (("rows",), 1, "squared weights do not fit"),
        (("rows",), float("nan"), "document"),
        (("rows",), float("inf"), "document"),
        (("level",), -1, "outside the grid"),
        (("level",), 21, "outside the grid"),
        (("level",), 10**30, "outside the grid"),
        (("level",), float("nan"), "document"),
        (("level",), None, "document"),
        (("weight_squares",), 0.0, "totals must be positive"),
        (("weight_squares",), -3.0, "totals must be positive"),
        (("weight_squares",), float("nan"), "totals must be positive"),
        (("weight_squares",), float("inf"), "totals must be positive"),
        (("weight_squares",), 2.9, "squared weights do not fit"),
        (("weight_squares",), 9.1, "squared weights do not fit"),
        (("column_sums", 0), float("nan"), "totals must be positive"),
        (("column_sums", 0), float("inf"), "totals must be positive"),
        (("column_sums", 0), 1e200, "column sums do not fit"),
        (("column_sums",), [0.0], "differ in length"),
        (("column_sums",), None, "differ in length"),
        (("served", 0), 1 << 20, "outside the grid"),
        (("served", 0), -(1 << 20) - 1, "outside the grid"),
        (("gap", 0), -(1 << 63), "outside the grid"),
        (("gap", 0), 10**30, "document"),
        (("contrast", 0), 1 << 21, "outside the grid"),
        (("contrast",), None, "document"),
        (("contrast",), [0], "differ in length"),
        (("weight", 0), 0, "weights must be positive"),
        (("weight", 0), -1, "weights must be positive"),
        (("weight", 0), float("nan"), "weights must be positive"),
        (("weight", 0), float("inf"), "weights must be positive"),
        (("weight",), [1, 1, 1, 1], "differ in length"),
        (("weight",), "111", "differ in length"),
        (("label", 0), 1.5, "label sums at most the weight"),
        (("label", 0), -0.5, "label sums at most the weight"),
        (("label", 0), float("nan"), "label sums at most the weight"),
        (("label",), None, "differ in length"),
    ],
)
def test_inconsistent_content_is_refused(place, value, message):
    content = ReplicaCounts().update([[0.0, 1.0, 2.0], [1.0, 1.0, 0.0], [2.0, 3.0, 1.0]], [0, 1, 1]).to_dict()
    target = content
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    with pytest.raises(UncurseError, match=message):
        ReplicaCounts.from_dict(content)


def test_content_without_cells_is_refused():
    content = ReplicaCounts().update([[0.0, 1.0]]).to_dict()
    with pytest.raises(UncurseError, match="replica counts document"):
        ReplicaCounts.from_dict({**content, "served": [], "gap": [], "weight": []})


# ---------------------------------------------------------------------------- invalid input


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        ([[0.0], [1.0]], {}, r"there are 1 score columns; pass the served model and at least one replica"),
        ([0.0, 1.0], {}, r"scores has shape \(2,\); pass a column per replica, shape \(n, S\)"),
        (np.empty((0, 2)), {}, "scores is empty"),
        ([[0.0, np.nan]], {}, r"scores\[0, 1\] is nan"),
        ([[0.0, np.inf]], {}, r"scores\[0, 1\] is inf"),
        ([["a", "b"]], {}, "scores must be an array of numbers"),
        ([[0.5, 1.5]], {"scale": "probability"}, "scores holds 1.5, which is not a probability"),
        ([[0.5, 1.0]], {"scale": "probability"}, "1 probabilities of the pool are exactly 0 or 1"),
        ([[0.5, 0.0]], {"scale": "probability"}, "1 probabilities of the pool are exactly 0 or 1"),
        ([[0.5, 1.0]], {"scale": "value"}, "scale='value' is unknown; choose one of logit, probability"),
        ([[0.5, 1.0]], {"labels": [2]}, r"labels\[0\] is 2.0; labels must be 0 or 1"),
        ([[0.5, 1.0]], {"labels": [0, 1]}, r"labels has shape \(2,\) but there are 1 rows"),
        ([[0.5, 1.0]], {"sample_weight": [0.0]}, "every sample_weight is zero"),
        ([[0.5, 1.0]], {"sample_weight": [-1.0]}, "weights must be 0 or more"),
        ([[0.5, 1.0]], {"sample_weight": [1e200]}, "the largest sample_weight is 1e.200; rescale the weights"),
        ([[0.5, 1.0]], {"sample_weight": [1e-200]}, "the largest sample_weight is 1e-200; rescale the weights"),
        ([[0.5, 1.0]], {"logit_offset": np.nan}, "logit_offset is nan; pass a finite number"),
        ([[0.5, 1.0]], {"logit_offset": "a"}, "logit_offset is 'a'; pass a finite number"),
    ],
)
def test_invalid_rows_are_refused_and_not_added(scores, options, message):
    counts = ReplicaCounts()
    with pytest.raises(UncurseError, match=message):
        counts.update(scores, **options)
    assert counts.to_dict() == ReplicaCounts().to_dict()


def test_a_certain_probability_late_in_many_rows_is_refused_and_nothing_is_added():
    p = logistic(replicas(DENSE_ROWS + 5_000)[0])
    counts = ReplicaCounts().update(p, scale="probability")
    before = counts.to_dict()
    p[-1, 1] = 1.0
    with pytest.raises(UncurseError, match="1 probabilities of the pool are exactly 0 or 1"):
        counts.update(p, scale="probability")
    assert counts.to_dict() == before


def test_rows_with_other_columns_or_labels_are_refused_and_not_added():
    counts = ReplicaCounts().update([[0.0, 1.0], [1.0, 2.0]])
    before = counts.to_dict()
    three, labelled = ReplicaCounts().update([[0.0, 1.0, 2.0]]), ReplicaCounts().update([[0.0, 1.0]], [1])
    for refused in (lambda: counts.update([[0.0, 1.0, 2.0]]), lambda: counts.merge(three)):
        with pytest.raises(UncurseError, match="these rows have 3 replicas, the ones before 2"):
            refused()
    for refused in (lambda: counts.update([[0.0, 1.0]], [1]), lambda: counts.merge(labelled)):
        with pytest.raises(UncurseError, match="some of these rows have labels and some have none"):
            refused()
    assert counts.to_dict() == before


@pytest.mark.parametrize("other", [None, 3, "counts", {}])
def test_only_replica_counts_merge_into_replica_counts(other):
    with pytest.raises(UncurseError, match=r"cannot merge a .* into ReplicaCounts; pass ReplicaCounts"):
        ReplicaCounts().merge(other)


def test_empty_counts_have_no_cells():
    with pytest.raises(UncurseError, match="these counts hold no rows; update them with scores first"):
        ReplicaCounts().cells()


def test_the_repr_shows_rows_replicas_and_cells():
    counts = ReplicaCounts().update([[0.0, 1.0], [0.0, 1.0], [5.0, 1.0]])
    assert repr(counts) == "ReplicaCounts of 3 rows and 2 replicas in 2 cells"


def test_one_row_makes_a_round_trip():
    counts = ReplicaCounts().update([[0.5, 1.0]], sample_weight=[0.3])
    assert ReplicaCounts.from_dict(counts.to_dict()).cells().effective_rows == pytest.approx(1.0)


def test_rows_of_zero_weight_do_not_make_a_large_grid_coarser():
    rng = np.random.default_rng(0)
    scores = rng.normal(-2, 0.1, (140_000, 2))
    weight = np.ones(140_000)
    scores[70_000:], weight[70_000:] = rng.uniform(-15, 15, (70_000, 2)), 0.0
    with_zeros = ReplicaCounts().update(scores, sample_weight=weight)
    assert with_zeros.level == ReplicaCounts().update(scores[:70_000]).level


def test_cells_are_at_most_64_logits_wide():
    counts = ReplicaCounts().update([[0.0, 1.0]]).coarsened(20)
    assert counts.cells().width == 64.0
    assert ReplicaCounts.from_dict(counts.to_dict()).level == 20
    with pytest.raises(UncurseError, match="a cell lies outside the grid"):
        ReplicaCounts.from_dict(counts.to_dict() | {"level": 21})


def test_whole_weights_are_stored_as_integers_and_others_as_floats():
    for weight, kind in ((3.0, int), (0.5, float), (2.0**60, float)):
        stored = ReplicaCounts().update([[0.0, 1.0]], [1], sample_weight=[weight]).to_dict()
        assert type(stored["weight"][0]) is type(stored["label"][0]) is kind
        assert stored["weight"] == stored["label"] == [weight]
