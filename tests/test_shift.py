"""Differences between pool and labelled rows that are due to chance are shrunk."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from uncurse import Tower
from uncurse.debias import KINDS
from uncurse.debias.shift import without_chance
from uncurse.evidence import from_arrays
from uncurse.metrics.selection import top_share

SEEDS = KINDS["seeds"]


def cells_of(scores):
    return from_arrays(scores, replica_counts=True).replica_counts.cells()


def scores_of(rows, seed, *, mean=-2.0, sd=0.8, noise=0.8, replicas=2):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, sd, rows)
    return truth, truth[:, None] + noise * rng.normal(size=(rows, replicas))


def moments(cells):
    w, variance = cells.weight / cells.weight.sum(), SEEDS.summarize(cells).variance
    mean = w @ cells.served
    return np.array([mean, np.sqrt(w @ np.square(cells.served - mean)), np.sqrt(w @ variance)])


def test_the_difference_is_multiplied_by_the_probability_that_it_is_real():
    pool, labelled = cells_of(scores_of(2_000, 0)[1]), cells_of(scores_of(3_000, 1, mean=-1.93)[1])
    moved = without_chance(pool, labelled, SEEDS)
    one, other, after = (moments(cells) for cells in (pool, labelled, moved))
    difference = (one[0] - other[0]) / other[1]
    error = np.sqrt(1 / 2_000 + 1 / 3_000)
    odds = norm.pdf(difference, scale=np.hypot(error, 0.3)) / norm.pdf(difference, scale=error)
    kept = (after[0] - other[0]) / (one[0] - other[0])
    assert kept == pytest.approx(odds / (1 + odds), abs=0.02)
    assert 0.05 < kept < 0.95


def test_clear_differences_are_kept():
    pool = cells_of(scores_of(20_000, 0, mean=-3.0, sd=0.6, noise=0.5)[1])
    moved = without_chance(pool, cells_of(scores_of(20_000, 1)[1]), SEEDS)
    np.testing.assert_allclose(moments(moved), moments(pool), rtol=1e-6)


def test_equal_distributions_become_nearly_equal():
    pool, labelled = cells_of(scores_of(20_000, 0)[1]), cells_of(scores_of(20_000, 1)[1])
    before, after = (
        np.log(moments(cells) / moments(labelled)) for cells in (pool, without_chance(pool, labelled, SEEDS))
    )
    assert np.abs(after).max() < 0.4 * np.abs(before).max()


def test_a_floor_stays_where_it_is():
    scores = scores_of(5_000, 0)[1]
    scores[:, 0] = np.maximum(scores[:, 0], -2.5)
    pool = cells_of(scores)
    assert without_chance(pool, cells_of(scores_of(5_000, 1)[1]), SEEDS) is pool


@pytest.mark.theory
def test_without_a_shift_tower_has_a_smaller_error_than_one_that_believes_every_difference(monkeypatch):
    errors = {True: [], False: []}
    for seed in range(12):
        truth, pool = scores_of(4_000, 2 * seed, noise=1.2)
        known, scores = scores_of(4_000, 2 * seed + 1, noise=1.2)
        labels = np.random.default_rng(seed).random(4_000) < expit(known)
        for shrunk in errors:
            with monkeypatch.context() as patch:
                if not shrunk:
                    patch.setattr("uncurse.debias.tower.without_chance", lambda pool, *_: pool)
                tower = Tower().fit(pool, labelled=(scores, labels))
            top = top_share(pool[:, 0], 0.05)
            errors[shrunk].append(tower.predict_proba(pool[top, 0]).sum() / expit(truth[top]).sum() - 1)
    rms = {shrunk: np.sqrt(np.mean(np.square(found))) for shrunk, found in errors.items()}
    assert rms[True] < 0.97 * rms[False]


def test_equal_replicas_give_the_same_cells_in_any_order_of_the_rows():
    # The error of a noise that is the same everywhere is 0 or 1e-36, by rounding.
    rng = np.random.default_rng(0)
    scores, labelled = (
        (4 * rng.normal(mean, 1, rows)).round()[:, None].repeat(2, axis=1) / 4
        for mean, rows in ((-1, 1_000), (-0.8, 300))
    )
    weight = rng.exponential(size=1_000)
    for _ in range(30):
        order = rng.permutation(1_000)
        evidence = from_arrays(scores[order], sample_weight=weight[order], replica_counts=True)
        pool = evidence.replica_counts.cells()
        assert without_chance(pool, cells_of(labelled), SEEDS) is pool
