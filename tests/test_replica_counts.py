"""`Joint`: rows in, cells out; however they come, nothing is lost."""

import copy
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncurse import Joint, UncurseError
from uncurse.evidence import replica_counts as module
from uncurse.evidence.dense_histogram import FEW, Grid, fitting_step
from uncurse.links import logistic


def replicas(rows, size=2, seed=0, mean=-1.5, dtype=np.float64):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, 0.8, rows)
    scores = (truth[:, None] + rng.normal(0, 0.4, (rows, size))).astype(dtype)
    return scores, (rng.random(rows) < logistic(truth)).astype(np.int8), rng.integers(0, 4, rows) / 2


def same(a, b, rtol=1e-12):
    assert (a.rows, a.n_replicas, a.step) == (b.rows, b.n_replicas, b.step)
    for name in ("served", "apart", "variance", "weight", "label"):
        mine, theirs = getattr(a, name), getattr(b, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_allclose(mine, theirs, rtol=rtol, err_msg=name)
    assert abs(a.weight_squares / b.weight_squares - 1) < 1e-12


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("rows", [900, 60_000])  # sorted, and in a box
def test_a_cell_holds_the_rows_about_its_middle(rows, size, weighted):
    scores, y, w = replicas(rows, size)
    joint = Joint().update(scores, y, sample_weight=w if weighted else None)
    w = w if weighted else np.ones(rows)
    others = scores[:, 1:]
    apart = others.mean(axis=1) - scores[:, 0]
    levels = others.mean(axis=0, keepdims=True) - others.mean()
    cells = np.stack([np.floor(scores[:, 0] / joint.step), np.floor(apart / joint.step)])
    keys = cells[0] * 100_000 + cells[1]
    found = np.floor(joint.served / joint.step) * 100_000 + np.floor(joint.apart / joint.step)
    for values, sums in ((w, joint.weight), (w * y, joint.label)):
        expected = {key: values[keys == key].sum() for key in np.unique(keys[w > 0])[:50]}
        np.testing.assert_allclose([sums[found == key].sum() for key in expected], list(expected.values()))
    assert joint.weight.sum() == pytest.approx(w.sum())
    assert joint.weight_squares == pytest.approx(w @ w)
    if size == 2:
        assert not joint.variance.any()
    else:
        variance = (others - levels).var(axis=1, ddof=1)
        # A slot is a factor of √2, so its middle is the mean to a few percent.
        assert joint.weight @ joint.variance / w.sum() == pytest.approx(w @ variance / w.sum(), rel=0.03)


@pytest.mark.parametrize("size", [2, 3])
def test_chunks_and_merges_end_where_one_pass_does(size):
    scores, y, w = replicas(120_000, size)
    whole = Joint().update(scores, y, sample_weight=w)
    grid = Joint().settle(scores, True, sample_weight=w)
    cuts = [0, 100, 40_000, 41_000, 90_000, 120_000]
    parts = [slice(*ends) for ends in pairwise(cuts)]
    one = grid.like()
    for part in parts:
        one.update(scores[part], y[part], sample_weight=w[part])
    same(one, whole)
    many = [grid.like().update(scores[part], y[part], sample_weight=w[part]) for part in parts]
    merged = many[3]
    for other in (many[0], many[4], many[1], many[2]):
        merged.merge(other)
    same(merged, whole)


def test_threads_do_not_change_the_counts(monkeypatch):
    scores, y, _ = replicas(80_000)
    alone = Joint().update(scores, y)
    monkeypatch.setattr(module, "_THREAD", 10_000)
    same(Joint().update(scores, y), alone)


def test_two_grids_merge_into_the_coarser():
    scores, y, _ = replicas(50_000)
    fine, coarse = Joint().update(scores, y), Joint().update(8 * scores, y)
    assert coarse.step == 8 * fine.step
    expected = fine.step * 8
    for a, b in ((fine, coarse), (coarse, fine)):
        merged = copy.deepcopy(a).merge(b)
        assert merged.step == expected
        assert merged.rows == 100_000
        assert merged.weight.sum() == 100_000
        assert merged.label.sum() == 2 * y.sum()
    a = copy.deepcopy(fine).merge(coarse)
    b = copy.deepcopy(coarse).merge(fine)
    np.testing.assert_array_equal(a.weight, b.weight)
    np.testing.assert_array_equal(a.served, b.served)


def test_rows_of_a_merge_with_nothing():
    scores, y, _ = replicas(5_000)
    joint = Joint().update(scores, y)
    same(Joint().merge(joint), joint)
    same(copy.deepcopy(joint).merge(Joint()), joint)


def test_too_many_cells_are_made_wider(monkeypatch):
    monkeypatch.setattr(module, "MOST_CELLS", 1_000)
    scores, y, _ = replicas(50_000)
    joint = Joint().update(scores, y)
    assert 250 <= len(joint) <= 1_000
    assert joint.weight.sum() == 50_000
    parts = Joint().update(scores[:30_000], y[:30_000])
    len(parts)  # what is in the box becomes cells, too many of them
    parts.update(scores[30_000:], y[30_000:])
    np.testing.assert_array_equal(parts.weight, joint.weight)


def test_outliers_are_counted_where_they_are():
    scores, y, _ = replicas(50_000)
    scores[7] = [900.0, -900.0]
    scores[8] = [-1e9, 1e9]  # beyond all cells
    scores[9] = [-1e9, -1e9]
    joint = Joint()
    joint.settle(replicas(50_000, seed=1)[0], True)
    joint.update(scores, y)
    assert joint.weight.sum() == 50_000
    assert joint.label.sum() == y.sum()
    here = np.abs(joint.served - 900) <= joint.step / 2
    assert joint.weight[here].sum() == 1
    assert abs(joint.apart[here][0] + 1_800) <= joint.step / 2
    assert joint.served.min() < -1e5


def test_rows_that_move_on_get_a_box_of_their_own():
    first, y, _ = replicas(20_000)
    joint = Joint().update(first, y)
    for mean in (20.0, 40.0):
        joint.update(replicas(20_000, mean=mean)[0], y)
    assert joint.weight.sum() == 60_000
    middle = joint.weight[(joint.served > 15) & (joint.served < 25)].sum()
    assert middle == 20_000


def test_float32_is_counted_as_float64_is():
    scores, y, _ = replicas(100_000, 3, dtype=np.float32)
    a, b = Joint().update(scores, y), Joint().update(scores.astype(np.float64), y)
    assert a.step == b.step
    # A mean or a variance at an edge may round to either side.
    assert len(np.setdiff1d(a._keys, b._keys)) < 10
    assert a.weight @ a.variance == pytest.approx(b.weight @ b.variance, rel=1e-4)


def test_probabilities_and_sampled_negatives_are_logits_first():
    scores, y, _ = replicas(30_000)
    logits = Joint().update(scores, y)
    by_probability = Joint().update(logistic(scores), y, scale="probability")
    assert np.abs(by_probability.weight.cumsum() - logits.weight.cumsum()).max() <= 2
    moved = Joint().update(scores, y, logit_offset=4 * logits.step)
    np.testing.assert_allclose(moved.served[[0, -1]], logits.served[[0, -1]] + 4 * logits.step)


def test_levels_of_the_others_are_no_noise():
    scores, _, _ = replicas(50_000, 4)
    joint = Joint().update(scores)
    shifted = Joint().update(scores + np.array([0.0, -3.0, 0.0, 3.0]))
    np.testing.assert_allclose(shifted.levels - joint.levels, [-3.0, 0.0, 3.0], atol=1e-12)
    assert shifted.weight @ shifted.variance == pytest.approx(joint.weight @ joint.variance, rel=1e-3)


def test_identical_replicas_show_no_variance():
    served = replicas(5_000)[0][:, :1]
    joint = Joint().update(np.repeat(served, 3, axis=1))
    assert not joint.variance.any()
    assert (joint.apart == joint.step / 2).all()


def test_wide_cells_know_on_which_side_their_rows_are():
    scores, _, _ = replicas(200_000, 3, seed=4)
    joint = Joint().update(scores)
    assert joint.step > scores[:, 0].std() / 8
    i = np.floor(joint.served / joint.step)
    top = np.floor(scores[:, 0] / joint.step)
    for cell in np.unique(i):
        here = scores[top == cell, 0]
        if len(here) > 5_000:
            middle = (cell + 0.5) * joint.step
            told, true = joint.served[i == cell][0] - middle, here.mean() - middle
            assert abs(told - true) < 4 * here.std() / np.sqrt(len(here)) + 0.15 * abs(true)


def test_the_grid_fits_the_spread():
    assert fitting_step(1.0, 10.0) == 1 / 16
    assert fitting_step(1.0, 0.1) == 2.0**-6
    assert fitting_step(1.0, 0.0) == 1 / 16
    assert fitting_step(0.0, 0.0) == 1.0
    assert fitting_step(1e-30, 1.0) == 2.0**-20
    scores, _, w = replicas(40_000, 4)
    scores += [0.0, 1.0, 2.0, 3.0]
    by_rows = Joint().settle(scores, False, sample_weight=w).grid
    mean = np.average(scores, axis=0, weights=w)
    by_moments = Grid.fitting(mean, np.cov(scores.T, aweights=w, ddof=0))
    assert (by_rows.step, by_rows.lowest) == (by_moments.step, by_moments.lowest)
    np.testing.assert_allclose(by_rows.levels, by_moments.levels)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", ["plain", "labels", "weights"])
def test_a_joint_survives_its_file(size, kind):
    scores, y, w = replicas(30_000, size)
    joint = Joint().update(scores, None if kind == "plain" else y, sample_weight=w / 3 if kind == "weights" else None)
    text = json.dumps(joint.to_dict())
    again = Joint.from_dict(json.loads(text))
    same(again, joint, rtol=0)
    assert again.to_dict() == joint.to_dict()
    assert again.merge(Joint.from_dict(json.loads(text))).rows == 60_000
    if kind != "weights":
        assert all(isinstance(value, int) for value in json.loads(text)["weight"])
    assert Joint.from_dict(Joint().to_dict()).rows == 0


def test_a_copy_is_one_of_its_own():
    scores, y, _ = replicas(20_000)
    joint = Joint().update(scores, y)
    twin = copy.copy(joint)
    twin.update(scores, y)
    assert joint.weight.sum() == 20_000
    assert twin.weight.sum() == 40_000


@pytest.mark.parametrize("missing", ["weight", "step", "lowest", "served"])
def test_half_a_file_is_refused(missing):
    content = Joint().update([[0.0, 1.0], [1.0, 1.0]]).to_dict()
    del content[missing]
    with pytest.raises(UncurseError, match="not a complete joint document"):
        Joint.from_dict(content)
    content = Joint().update([[0.0, 1.0], [1.0, 1.0]]).to_dict()
    content["weight"].append(1)
    with pytest.raises(UncurseError, match="its arrays differ in length"):
        Joint.from_dict(content)


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        ([[0.0], [1.0]], {}, r"there are 1 column\(s\); the served model and a replica are two at least"),
        ([0.0, 1.0], {}, r"pool has shape \(2,\); pass a column per replica, shape \(n, S\)"),
        (np.empty((0, 2)), {}, "pool is empty"),
        ([[0.0, np.nan]], {}, r"pool\[0, 1\] is nan"),
        ([[0.0, np.inf]], {}, r"pool\[0, 1\] is inf"),
        ([[0.5, 1.5]], {"scale": "probability"}, "pool holds 1.5, which is not a probability"),
        ([[0.5, 1.0]], {"scale": "probability"}, "1 probabilities of the pool are exactly 0 or 1"),
        ([[0.5, 1.0]], {"scale": "value"}, "scale='value' is unknown; choose one of logit, probability"),
        ([[0.5, 1.0]], {"labels": [2]}, r"labels\[0\] is 2.0; labels must be 0 or 1"),
        ([[0.5, 1.0]], {"sample_weight": [0.0]}, "every sample_weight is zero"),
        ([[0.5, 1.0]], {"sample_weight": [-1.0]}, "weights must be 0 or more"),
    ],
)
def test_bad_input_is_named(scores, options, message):
    with pytest.raises(UncurseError, match=message):
        Joint().update(scores, **options)


def test_rows_unlike_the_ones_before_are_refused():
    joint = Joint().update([[0.0, 1.0], [1.0, 2.0]])
    with pytest.raises(UncurseError, match="these rows have 3 replicas, unlike the ones before; keep two Joint"):
        joint.update([[0.0, 1.0, 2.0]])
    with pytest.raises(UncurseError, match="2 replicas and labels, unlike the ones before"):
        joint.update([[0.0, 1.0]], [1])
    with pytest.raises(UncurseError, match="differ in replicas or labels; collect them alike"):
        joint.merge(Joint().update([[0.0, 1.0]], [1]))
    with pytest.raises(UncurseError, match="this Joint holds no rows; update it with scores first"):
        Joint().grid


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.sampled_from([1, 2, 300, FEW + 1, 30_000]),
    size=st.integers(2, 5),
    spread=st.sampled_from([1e-4, 0.1, 1.0, 30.0]),
    noise=st.sampled_from([0.0, 1e-3, 0.5, 40.0]),
    level=st.sampled_from([0.0, -7.0, 300.0]),
    heavy=st.booleans(),
)
def test_nothing_is_lost_and_middles_are_half_a_step_away(seed, rows, size, spread, noise, level, heavy):
    rng = np.random.default_rng(seed)
    draw = (lambda shape: rng.standard_t(2, shape)) if heavy else rng.standard_normal
    scores = level + spread * draw((rows, 1)) + noise * draw((rows, size))
    y, w = rng.integers(0, 2, rows), rng.random(rows) + 0.01
    joint = Joint().update(scores, y, sample_weight=w)
    assert joint.weight.sum() == pytest.approx(w.sum(), rel=1e-9)
    assert joint.label.sum() == pytest.approx(w @ y, rel=1e-9)
    apart = scores[:, 1:].mean(axis=1) - scores[:, 0]
    for middles, values in ((joint.served, scores[:, 0]), (joint.apart, apart)):
        assert (np.abs(middles / joint.step - np.floor(middles / joint.step) - 0.5) <= 0.2 + 1e-6).all()
        near = np.unique(middles)
        place = np.clip(np.searchsorted(near, values), 1, max(len(near) - 1, 1))
        away = np.minimum(np.abs(near[place - 1] - values), np.abs(near[np.minimum(place, len(near) - 1)] - values))
        assert away.max() <= joint.step * 0.7 * 1.000001 + 1e-9 * abs(values).max()
        # So a mean over cells is the mean over rows, to as much.
        assert abs(joint.weight @ middles / w.sum() - w @ values / w.sum()) <= 0.7 * 1.000001 * joint.step + 1e-9


def test_cells_lie_where_their_rows_do():
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 0.85, (400_000, 1)) + rng.normal(0, 0.3, (400_000, 3))
    joint = Joint().update(scores)
    apart = scores[:, 1:].mean(axis=1) - scores[:, 0]
    for middles, values in ((joint.served, scores[:, 0]), (joint.apart, apart)):
        edge = joint.step * np.floor(np.quantile(values, 0.98) / joint.step)
        rows, cells = values[values >= edge], middles > edge
        found = joint.weight[cells] @ middles[cells] / joint.weight[cells].sum()
        assert found == pytest.approx(rows.mean(), abs=1e-3)  # the middles alone are off by 4e-3 and 9e-3
