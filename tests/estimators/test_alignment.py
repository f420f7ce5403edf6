"""Translation of served scores to scores out of fold, against its formula on scores with exact moments."""

import numpy as np
import pytest

from uncurse.estimators.cross_fitting import Scored, align
from uncurse.methods.noise import replica_kind


def scores(noise, *, variance=1.0, mean=0.0, rows=60, seed=0):
    """Return two columns with exactly these true and noise variances; the first has this mean, the second 7 more."""
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(rows, 4)) + np.eye(rows, 4))[0]
    basis = np.linalg.qr(np.column_stack([np.ones(rows), basis]))[0][:, 1:4] * np.sqrt(rows)
    truth, *noises = basis.T * np.sqrt([variance, noise, noise])[:, None]
    return truth[:, None] + np.stack(noises, axis=1) + [mean, mean + 7]


def aligned(folds, served=None, *, held_out, weights=None):
    weights = [None] * len(folds) if weights is None else weights
    parts = [Scored(fold, own) for fold, own in zip(folds, weights, strict=True)]
    return align(replica_kind("seeds"), parts, served, held_out=held_out)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_without_served_scores_the_noise_is_between_that_of_regular_and_of_regularized_models(unit):
    # The served noise is 1 − 0.4 / 2 times that of the folds; the true scores are the same.
    slope, intercept = aligned([unit * scores(0.5, mean=1.0, seed=s) for s in range(3)], held_out=0.4)
    assert slope == pytest.approx(1.5 / (1 + 0.8 * 0.5), rel=1e-9)
    assert intercept == pytest.approx(unit * (1 - slope), rel=1e-9)


def expected_slope(ratio, noise, variance, served_variance):
    """Return the ratio of both λ, times that of the standard deviations of the true scores."""
    true, served_true = variance - noise, served_variance - ratio * noise
    return (served_true / served_variance) / (true / variance) * np.sqrt(true / served_true)


def test_served_scores_measure_the_ratio_of_noises_as_far_as_folds_agree():
    noises = np.array([0.3, 0.5, 0.6])
    folds = [scores(noise, mean=mean, seed=s) for s, (noise, mean) in enumerate(zip(noises, (1, 2, 6), strict=True))]
    served = scores(0.2, variance=1.5, mean=4.0, seed=9)
    slope, intercept = aligned(folds, served, held_out=0.4)
    prior, error = np.log(0.8), 0.2
    chance = np.log(noises).std(ddof=1) * np.sqrt(1 + 1 / 3)
    noise = noises.mean()
    ratio = np.exp(prior + error**2 / (error**2 + chance**2) * (np.log(0.2 / noise) - prior))
    assert slope == pytest.approx(expected_slope(ratio, noise, 1 + noise, 1.7), rel=1e-9)
    assert intercept == pytest.approx(3 - slope * 4, rel=1e-9)


def test_one_fold_says_nothing_of_chance_so_the_prior_is_used():
    slope, _ = aligned([scores(0.5)], scores(0.1), held_out=0.4)
    assert slope == pytest.approx(expected_slope(0.8, 0.5, 1.5, 1.1), rel=1e-9)


def test_small_folds_are_pooled():
    parts = [scores(0.5, rows=rows, mean=mean, seed=rows) for rows, mean in ((29, 0.0), (60, 1.0))]
    weights = [np.ones(29), np.full(60, 2.0)]
    pooled = aligned([np.concatenate(parts)], held_out=0.4, weights=[np.concatenate(weights)])
    assert aligned(parts, held_out=0.4, weights=weights) == pooled
    enough = [scores(0.5, rows=30, seed=s, mean=s) for s in range(2)]
    assert aligned(enough, held_out=0.4)[0] == pytest.approx(1.5 / 1.4, rel=1e-9)


def test_integer_weights_count_rows():
    rng = np.random.default_rng(0)
    folds = [rng.normal(size=(40, 3)) + rng.normal(size=(40, 1)) + s for s in range(2)]
    weights = [rng.integers(1, 4, 40) for _ in range(2)]
    repeated = [np.repeat(fold, own, axis=0) for fold, own in zip(folds, weights, strict=True)]
    found = aligned(folds, held_out=0.2, weights=weights)
    assert found == pytest.approx(aligned(repeated, held_out=0.2), rel=1e-9)


@pytest.mark.parametrize(("fold", "served"), [(scores(0.0), None), (scores(0.5), scores(0.0, variance=0.0))])
def test_scores_without_noise_are_not_translated(fold, served):
    fold, served = (x if x is None else np.round(x, 9) for x in (fold, served))
    assert aligned([scores(0.5), fold], served, held_out=0.2) == (1.0, 0.0)
