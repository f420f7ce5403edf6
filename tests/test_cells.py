"""`Cells`: exact scores, the grid, merging and plain data."""

import json

import numpy as np
import pytest
from scipy.special import expit

from uncurse import Cells, UncurseError
from uncurse.calibration.calibrators import CALIBRATORS, fit_calibrator
from uncurse.evidence.cell_tables import GRID_SIZE, SLOT_STARTS, grid_steps, step_edges, top_cut
from uncurse.links import logistic, logit

EXACT_ROWS = 1 << 17


def world(rows, *, seed=0, mean=-3.0, sd=0.8, decimals=None):
    rng = np.random.default_rng(seed)
    l = rng.normal(mean, sd, rows)
    if decimals is not None:
        l = l.round(decimals)
    return l, rng.random(rows) < logistic(l), rng.exponential(size=rows)


def columns(cells):
    return cells.score, cells.weight, cells.label, cells.weight_squares, cells.label_squares


def assert_equal_cells(a, b, tolerance=1e-12):
    assert a.rows == b.rows
    for left, right in zip(columns(a), columns(b), strict=True):
        if left is None:
            assert right is None
        else:
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=1e-15)


# ---------------------------------------------------------------------------- exact


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("decimals", [None, 1])
def test_an_exact_cell_is_a_distinct_score_with_its_sums(weighted, decimals):
    l, y, w = world(3000, decimals=decimals)
    w = w if weighted else np.ones(3000)
    cells = Cells(exact=True).update(l, y, sample_weight=w if weighted else None)
    keys, codes = np.unique(l, return_inverse=True)
    assert (cells.score == keys).all()
    for ours, column in zip(columns(cells)[1:], (w, w * y, w * w, w * w * y), strict=True):
        np.testing.assert_allclose(ours, np.bincount(codes, weights=column), rtol=1e-12)
    assert len(cells) == len(keys)
    assert cells.rows == 3000


def test_unlabelled_cells_have_no_labels():
    assert Cells().update([0.0, 1.0]).label is None


def test_rows_without_weight_have_no_cell():
    cells = Cells().update([0.0, 1.0, 2.0], [0, 1, 1], sample_weight=[1.0, 0.0, 2.0])
    assert cells.score.tolist() == [0.0, 2.0]


def test_minus_zero_and_zero_are_one_score():
    assert len(Cells().update([-0.0, 0.0])) == 1


def test_probabilities_are_stored_as_logits():
    p = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(Cells().update(p, scale="probability").score, logit(p), rtol=1e-15)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("exact", [True, False])
def test_labels_of_any_numeric_type_are_accepted(dtype, exact):
    l, y, _ = world(1000)
    assert_equal_cells(Cells(exact=exact).update(l, y.astype(dtype)), Cells(exact=exact).update(l, y))


@pytest.mark.parametrize("score", [0.0, 1e-300, -3.7, 16.0, 1e5])
def test_scores_that_differ_in_the_last_bit_are_two_cells(score):
    pair = np.array([np.nextafter(score, np.inf), score])
    cells = Cells().update(pair, [0, 1])
    assert (cells.score == pair[::-1]).all()
    assert cells.label.tolist() == [1.0, 0.0]
    assert (Cells().update(pair[:1], [0]).merge(Cells().update(pair[1:], [1])).score == cells.score).all()


def test_distinct_float32_probabilities_stay_distinct_cells():
    p = np.unique(np.float32(1e-3) * (1 + 1.2e-7 * np.arange(1000)).astype(np.float32))
    assert len(Cells().update(p, scale="probability")) == len(p)


# ---------------------------------------------------------------------------- the grid


def test_the_grid_never_exceeds_its_documented_size():
    l = np.linspace(-40, 40, 2_000_001)
    assert len(Cells(exact=False).update(l)) <= 16_384
    l = np.linspace(-12, 12, 200_001)
    assert len(Cells(exact=False).update(l, sample_weight=np.ones(len(l)))) == len(Cells(exact=False).update(l))


def test_the_top_starts_where_at_most_8192_rows_are_above():
    assert len(SLOT_STARTS) == 14_464
    assert top_cut(np.full(10, 3_000.0)) == 8
    assert top_cut(np.array([1.0, 0.0, 8_000.0, 192.0])) == 1
    assert top_cut(np.array([1.0, 8_193.0])) == 2  # none


@pytest.mark.parametrize("logit_", [-900.0, -100.0, -17.0, -3.25, 0.5, 16.5, 40.0, 999.0])
def test_edges_of_a_step_enclose_its_logits(logit_):
    step = int(grid_steps(np.array([logit_]))[0])
    low, high = step_edges(np.array([step, step + 1]))
    assert low <= logit_ + 1e-9 * abs(logit_)
    assert logit_ < high
    assert high - low < 1.01 * max(1 / 1024, 0.0021 * abs(logit_))


def test_scores_that_differ_in_the_last_bit_make_a_round_trip():
    score = np.array([-3.7, np.nextafter(-3.7, 0), 5.0, np.nextafter(5.0, 9.0)])
    again = Cells.from_dict(json.loads(json.dumps(Cells().update(score).to_dict())))
    np.testing.assert_array_equal(again.score, score)


def test_the_grid_keeps_the_sums_and_the_order():
    l, y, w = world(50_000)
    cells = Cells(exact=False).update(l, y, sample_weight=w)
    np.testing.assert_allclose(cells.weight @ cells.score, w @ l, rtol=1e-11)
    for total, column in zip(columns(cells)[1:], (w, w * y, w * w, w * w * y), strict=True):
        np.testing.assert_allclose(total.sum(), column.sum(), rtol=1e-11)
    assert (np.diff(cells.score) > 0).all()


def test_a_grid_cell_is_never_wider_than_its_section():
    l, _, _ = world(200_000, mean=0.0, sd=6.0)
    score = Cells(exact=False).update(l).score
    above = np.clip(np.searchsorted(score, l[:2000]), 1, len(score) - 1)
    nearest = np.where(l[:2000] - score[above - 1] < score[above] - l[:2000], score[above - 1], score[above])
    width = np.select([np.abs(l[:2000] + 1) < 5, (l[:2000] > -10) & (l[:2000] < 8)], [1, 4], 16) / 1024
    inside = (l[:2000] > -16) & (l[:2000] < 16)
    assert (np.abs(nearest - l[:2000]) <= width)[inside].all()


@pytest.mark.parametrize(
    ("logit_", "step"), [(-1e300, 0), (-1000.0, 0), (-16.0, 2048), (0.0, 18432), (15.9999, 34815), (1e300, 36863)]
)
def test_logits_beyond_the_grid_belong_to_its_first_or_last_step(logit_, step):
    assert grid_steps(np.array([logit_]))[0] == step


def test_grid_is_used_only_above_131072_rows():
    l = np.linspace(-5, 0, EXACT_ROWS)
    cells = Cells().update(l)
    assert len(cells) == EXACT_ROWS
    cells.update([0.5])
    assert len(cells) < 16_384
    assert cells.rows == EXACT_ROWS + 1
    assert_equal_cells(cells, Cells(exact=False).update(np.append(l, 0.5)))


WORLDS = {
    "CTR 0.3%, narrow": (-5.83, 0.2),
    "CTR 0.3%, wide": (-6.6, 1.3),
    "CTR 4%, narrow": (-3.2, 0.2),
    "CTR 4%, wide": (-3.9, 1.3),
    "CTR 25%, narrow": (-1.1, 0.2),
    "CTR 25%, wide": (-1.5, 1.5),
}


@pytest.fixture(scope="module")
def exact_and_grid():
    made = {}
    for i, (name, (mean, sd)) in enumerate(WORLDS.items()):
        l, y, _ = world(50_000, seed=i, mean=mean, sd=sd)
        made[name] = (Cells(exact=True).update(l, y), Cells(exact=False).update(l, y), np.sort(l)[-200:])
    return made


@pytest.mark.parametrize("method", CALIBRATORS)
@pytest.mark.parametrize("name", WORLDS)
def test_a_calibrator_fitted_on_the_grid_agrees_at_the_top(exact_and_grid, method, name):
    exact, grid, top = exact_and_grid[name]
    assert len(grid) <= 16_384
    ours, theirs = fit_calibrator(method, grid)(top).mean(), fit_calibrator(method, exact)(top).mean()
    # Rounding moves a few rows across the edge of a bin: far less than the label noise at the top.
    noise = 1 / np.sqrt(theirs * len(top)) if method in ("histogram", "bbq") else 0.0
    assert abs(ours / theirs - 1) < max(1e-3, 0.1 * noise)


# ---------------------------------------------------------------------------- merging


@pytest.mark.parametrize("exact", [True, False, None])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("decimals", [None, 1])
def test_any_split_into_chunks_merges_to_the_same_cells(exact, weighted, decimals):
    l, y, w = world(2000, decimals=decimals)
    weights = w if weighted else None
    whole = Cells(exact=exact).update(l, y, sample_weight=weights)
    rng = np.random.default_rng(1)
    for _ in range(3):
        parts = np.split(np.arange(2000), np.unique(rng.integers(1, 2000, 15)))
        updated, merged = Cells(exact=exact), Cells(exact=exact)
        pieces = []
        for rows in parts:
            chunk = None if weights is None else weights[rows]
            updated.update(l[rows], y[rows], sample_weight=chunk)
            pieces.append(Cells(exact=exact).update(l[rows], y[rows], sample_weight=chunk))
        for i in rng.permutation(len(pieces)):
            merged.merge(pieces[i])
        assert_equal_cells(updated, whole)
        assert_equal_cells(merged, whole)


def test_weighted_and_plain_chunks_merge_whichever_comes_first():
    l, y, w = world(400)
    plain, weighted = Cells().update(l[:200], y[:200]), Cells().update(l[200:], y[200:], sample_weight=w[200:])
    whole = Cells().update(l, y, sample_weight=np.append(np.ones(200), w[200:]))
    assert_equal_cells(Cells().merge(plain).merge(weighted), whole)
    assert_equal_cells(Cells().merge(weighted).merge(plain), whole)


def test_exact_cells_join_a_grid_from_either_side():
    l, y, _ = world(3000)
    whole = Cells(exact=False).update(l, y)
    exact, grid = Cells(exact=True).update(l[:1000], y[:1000]), Cells(exact=False).update(l[1000:], y[1000:])
    assert_equal_cells(Cells(exact=False).merge(grid).merge(exact), whole)
    assert_equal_cells(Cells().merge(exact).merge(grid), whole)


def test_a_merge_does_not_change_the_other_cells_then_or_later():
    l, y, _ = world(500)
    a, b = Cells().update(l, y), Cells().update(l + 1, y)
    before = b.to_dict()
    Cells().merge(b).merge(a).update(l, y)
    assert b.to_dict() == before


def test_merging_empty_cells_changes_nothing():
    a = Cells().update([0.0, 1.0], [0, 1])
    before = a.to_dict()
    assert a.merge(Cells()).to_dict() == before


def test_integer_weights_give_the_sums_of_repeated_rows():
    l, y, _ = world(1000)
    counts = np.random.default_rng(0).integers(0, 4, 1000)
    for exact in (True, False):
        a = Cells(exact=exact).update(l, y, sample_weight=counts)
        b = Cells(exact=exact).update(np.repeat(l, counts), np.repeat(y, counts))
        for i in range(3):
            np.testing.assert_allclose(columns(a)[i], columns(b)[i], rtol=1e-12)


# ---------------------------------------------------------------------------- documents


def through_json(cells):
    return Cells.from_dict(json.loads(json.dumps(cells.to_dict(), allow_nan=False)))


def test_empty_cells_make_a_json_round_trip():
    back = through_json(Cells())
    assert (back.rows, len(back)) == (0, 0)


def contents():
    """Return valid content: three exact cells, or a grid with an exact top."""
    rng = np.random.default_rng(0)
    scores, weights = rng.normal(-3, 1, 6_000), rng.exponential(size=6_000)
    return {
        "exact": Cells().update([-1.0, 0.0, 2.0], [0, 1, 1]).to_dict(),
        "grid": Cells(exact=False).update(scores, rng.integers(0, 2, 6_000), sample_weight=weights).to_dict(),
    }


@pytest.mark.parametrize(
    ("kind", "place", "value", "message"),
    [
        ("exact", ("scale",), "odds", "scale='odds' is unknown"),
        ("exact", ("scale",), None, "scale=None is unknown"),
        ("exact", ("exact",), "yes", "exact='yes'; pass True or False"),
        ("exact", ("exact",), False, "exact and grid contradict each other"),
        ("grid", ("exact",), True, "exact and grid contradict each other"),
        ("grid", ("grid",), False, "exact and grid contradict each other"),
        ("exact", ("labelled",), 2, "labelled must be true or false"),
        ("exact", ("labelled",), None, "labelled must be true or false"),
        ("exact", ("rows",), 10**30, "number of rows is not valid"),
        ("exact", ("rows",), -3, "number of rows is not valid"),
        ("exact", ("rows",), 0, "rows without cells, or cells without rows"),
        ("exact", ("rows",), float("nan"), "cells document"),
        ("exact", ("rows",), float("inf"), "cells document"),
        ("exact", ("rows",), "x", "cells document"),
        ("grid", ("cut",), 10**9, "outside the grid"),
        ("grid", ("cut",), -1, "outside the grid"),
        ("grid", ("cut",), float("inf"), "cells document"),
        ("grid", ("cut",), float("nan"), "cells document"),
        ("exact", ("exact_keys",), [0.0, -1.0, 2.0], "ascending order"),
        ("exact", ("exact_keys",), [-1.0, -1.0, 2.0], "ascending order"),
        ("exact", ("exact_keys", 0), float("-inf"), "finite numbers"),
        ("exact", ("exact_keys", 0), float("nan"), "finite numbers"),
        ("exact", ("exact_keys", 0), None, "cells document"),
        ("exact", ("exact_keys",), [-1.0, 0.0], "cells document"),
        ("exact", ("exact_keys",), [], "cells document"),
        ("exact", ("exact_table", 1, 1), 0.0, "weights must be positive"),
        ("exact", ("exact_table", 1, 1), -1.0, "weights must be positive"),
        ("exact", ("exact_table", 1, 1), float("inf"), "finite numbers"),
        ("exact", ("exact_table", 2, 1), 1.5, "label sums at most the weight"),
        ("exact", ("exact_table", 2, 1), -0.5, "label sums at most the weight"),
        ("exact", ("exact_table", 0), [0.0], "cells document"),
        ("exact", ("exact_table",), [[0.0] * 3], "3 or 5 rows"),
        ("exact", ("exact_table",), [], "cells document"),
        ("grid", ("grid_table", 1, 5), -1.0, "weights must be positive"),
        ("grid", ("grid_table", 2, 5), 1e9, "label sums at most the weight"),
        ("grid", ("grid_table", 3, 5), -1.0, "weights must be positive"),
        ("grid", ("grid_table", 4, 5), 1e9, "label sums at most the weight"),
        ("grid", ("grid_table", 0, 5), float("nan"), "finite numbers"),
        ("grid", ("grid_table", 0, 5), 1e9, "ascending order"),  # a mean outside its slot
        ("grid", ("grid_keys", 0), -1, "outside the grid"),
        ("grid", ("grid_keys", 0), 3, "outside the grid"),  # no slot starts at this step
        ("grid", ("grid_keys",), None, "cells document"),
        ("grid", ("exact_keys", 0), -30.0, "ascending order"),  # below the cut
    ],
)
def test_inconsistent_content_is_refused(kind, place, value, message):
    content = contents()[kind]
    target = content
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    with pytest.raises(UncurseError, match=message):
        Cells.from_dict(content)


# ---------------------------------------------------------------------------- invalid input


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([np.nan, 0.0],), {}, r"scores\[0\] is nan \(1 such values\); drop or repair those rows first"),
        (([0.0, np.inf],), {}, r"scores\[1\] is inf"),
        (([0.0, -np.inf],), {}, r"scores\[1\] is -inf"),
        (
            ([0.0, 1.5],),
            {"scale": "probability"},
            r"scores holds 1\.5, which is not a probability; are these logits",
        ),
        (([[0.0], [1.0]],), {}, r"scores has shape \(2, 1\); pass one column, shape \(n,\)"),
        (([],), {}, r"scores is empty, shape \(0,\)"),
        (([0.0, 1.0], [0]), {}, r"labels has shape \(1,\) but there are 2 rows; pass shape \(2,\)"),
        (([0.0, 1.0], [0, 2]), {}, r"labels\[1\] is 2.*; labels must be 0 or 1"),
        (([0.0, 1.0], [0, np.nan]), {}, r"labels\[1\] is nan; labels must be 0 or 1"),
        (([0.0, 1.0],), {"sample_weight": [1.0]}, r"sample_weight has shape \(1,\) but there are 2 rows"),
        (
            ([0.0, 1.0],),
            {"scale": "value"},
            r"these cells are on the logit scale; scale='value' cannot be added",
        ),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_invalid_rows_are_refused_and_not_added(arguments, options, message, exact):
    cells = Cells(exact=exact)
    with pytest.raises(UncurseError, match=message):
        cells.update(*arguments, **options)
    assert (cells.rows, len(cells)) == (0, 0)


def test_values_have_no_grid():
    with pytest.raises(UncurseError, match="the grid of cells lies on the logit; use exact=True on the value scale"):
        Cells("value", exact=False)


def test_a_grid_of_probabilities_keeps_their_sum():
    l, y, w = world(50_000, sd=3.0)
    p = logistic(l)
    cells = Cells("probability", exact=False).update(p, y, sample_weight=w)
    assert len(cells) < 16_384
    np.testing.assert_allclose(cells.weight @ cells.score, w @ p, rtol=1e-11)
    assert (np.diff(cells.score) > 0).all()
    back = through_json(cells)
    assert_equal_cells(back.merge(Cells("probability", exact=True).update(p, y)), cells.update(p, y))


@pytest.mark.parametrize("exact", ["yes", 1, 0])
def test_exact_must_be_a_boolean_or_none(exact):
    with pytest.raises(UncurseError, match=r"exact=.*; pass True or False"):
        Cells(exact=exact)


@pytest.mark.parametrize("other", [None, [1.0], "cells"])
def test_only_cells_merge_into_cells(other):
    with pytest.raises(UncurseError, match=r"cannot merge a .* into Cells; pass Cells"):
        Cells().merge(other)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("sign", [1, -1])
def test_scores_whose_squares_overflow_are_refused(exact, sign):
    cells = Cells(exact=exact)
    with pytest.raises(UncurseError, match=r"scores\[0\] is -?1e\+305 beyond ±1e\+75"):
        cells.update(np.full(5_000, sign * 1e305))
    assert (cells.rows, len(cells)) == (0, 0)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("rows", [10, 5_000])
def test_scores_of_any_size_are_summed_without_a_warning(exact, rows):
    scores = np.random.default_rng(0).choice([-1e75, -1e4, -40.0, 0.0, 40.0, 1e4, 1e75], rows)
    cells = Cells(exact=exact).update(scores)
    assert cells.weight.sum() == rows
    assert (np.diff(cells.score) > 0).all()
    assert np.isfinite(cells.score).all()


@pytest.mark.parametrize("largest", [1e-200, 1e200])
def test_weights_whose_squares_overflow_are_refused(largest):
    cells = Cells()
    with pytest.raises(UncurseError, match=r"the largest sample_weight is 1e.*; rescale the weights"):
        cells.update([0.0, 1.0], sample_weight=[largest, 0.0])
    assert (cells.rows, len(cells)) == (0, 0)


def test_effective_rows_depend_on_ratios_of_weights_alone():
    l, y, w = world(3_000)
    for exact in (True, False):
        for factor in (1e-90, 1.0, 1e90):
            cells = Cells(exact=exact).update(l, y, sample_weight=factor * w)
            assert cells.effective_rows == pytest.approx(w.sum() ** 2 / (w @ w), rel=1e-12)
        assert Cells(exact=exact).update(l, y).effective_rows == 3_000
    assert Cells().effective_rows == 0


def test_an_unknown_scale_is_refused():
    with pytest.raises(UncurseError, match="scale='odds' is unknown; choose one of logit, probability, value"):
        Cells("odds")


def test_cells_on_different_scales_do_not_merge():
    with pytest.raises(UncurseError, match="cannot merge cells on the logit and the probability scale"):
        Cells().update([0.0]).merge(Cells("probability").update([0.5]))


def test_labelled_and_unlabelled_rows_do_not_mix():
    message = "some of these rows have labels and some have none; keep two Cells"
    with pytest.raises(UncurseError, match=message):
        Cells().update([0.0], [1]).update([1.0])
    with pytest.raises(UncurseError, match=message):
        Cells().update([0.0]).merge(Cells().update([1.0], [1]))


def test_a_refused_merge_changes_nothing():
    exact, grid = Cells(exact=True).update([1.0, 2.0]), Cells(exact=False).update([1.0])
    before = exact.to_dict()
    with pytest.raises(UncurseError, match="cannot merge cells of a grid into exact ones; use exact=None or exact=F"):
        exact.merge(grid)
    assert exact.to_dict() == before


@pytest.mark.parametrize("rows", [100, 2_048, 2_049, 5_000, 8_192, 8_193, 20_000])
@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_no_row_is_lost_on_the_grid_however_low_its_score(rows, scale):
    rng = np.random.default_rng(rows)
    l = np.where(rng.random(rows) < 0.3, -20.0, rng.normal(-3, 1, rows))
    p = np.where(l < -16, 0.0, expit(l))
    y = rng.random(rows) < 0.2
    given = l if scale == "logit" else p
    cells = Cells(scale, exact=False)
    for part in np.array_split(np.arange(rows), 3):
        cells.update(given[part], y[part])
        assert cells.weight.sum() == cells.rows
    assert cells.label.sum() == y.sum()
    np.testing.assert_allclose(cells.weight @ cells.score, given.sum(), rtol=1e-9)


def test_the_repr_shows_the_number_of_cells_and_their_kind():
    assert repr(Cells().update([0.5, -1.0])) == "Cells(scale='logit') of 2 rows in 2 cells, exact scores"


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_an_engine_give_the_cells_of_the_rows(weighted):
    rng = np.random.default_rng(0)
    l, y = rng.normal(-3, 1, 200_000), rng.random(200_000) < 0.1
    w = rng.integers(1, 4, 200_000).astype(float) if weighted else None
    steps, ones = grid_steps(l), np.ones(200_000) if w is None else w
    columns = [ones * l, ones, ones * y, ones**2, ones**2 * y][: 5 if weighted else 3]
    table = np.stack([np.bincount(steps, column, minlength=GRID_SIZE) for column in columns])
    cut = top_cut(np.bincount(steps, minlength=GRID_SIZE))
    top = steps >= cut
    cells = Cells(exact=False)
    found = cells.update_steps(table, 200_000, cut, l[top], y[top], None if w is None else w[top])
    assert found is cells
    wanted = Cells(exact=False).update(l, y, sample_weight=w)
    assert found.rows == 200_000
    for name in ("score", "weight", "label", "weight_squares"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name))
