"""The formulas of the paper, written as plain loops."""

import numpy as np
import pytest
from scipy.special import expit, logit

from uncurse import VAD, calibrate

SERVED = np.linspace(-6, 1, 101)


def rows_of(rows, mean, noise, replicas=3, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, 0.8, rows)
    return truth[:, None] + noise * rng.normal(size=(rows, replicas)), rng.random(rows) < expit(truth)


def noise_variance(pool):
    """Algorithm 1: center each replica, then average over rows the variance between replicas."""
    rows, replicas = pool.shape
    centered = [[0.0] * replicas for _ in range(rows)]
    for s in range(replicas):
        mean = sum(pool[i, s] for i in range(rows)) / rows
        for i in range(rows):
            centered[i][s] = pool[i, s] - mean
    total = 0.0
    for i in range(rows):
        row_mean = sum(centered[i]) / replicas
        for s in range(replicas):
            total += (centered[i][s] - row_mean) ** 2 / (replicas - 1)
    return total / rows


def shrinkage(pool):
    return 1 - noise_variance(pool) / np.var(pool[:, 0])


@pytest.mark.parametrize("replicas", [2, 3, 5])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_vad_is_algorithm_1(replicas, offset):
    pool = rows_of(300, -2.0, 0.4, replicas)[0] + offset * np.arange(replicas)
    vad = VAD(scale="logit", replicas="seeds").fit(pool)
    factor, center = shrinkage(pool), pool[:, 0].mean()
    np.testing.assert_allclose(vad.lambda_, factor, rtol=1e-12)
    np.testing.assert_allclose(vad.predict_proba(SERVED), expit(factor * SERVED + (1 - factor) * center), rtol=1e-12)


@pytest.mark.parametrize("calibrator", ["platt", "temperature", "beta", "isotonic", "histogram", "scaling-binning"])
def test_a_tandem_shrinks_calibrated_scores_by_the_ratio_of_the_factors(calibrator):
    pool, _ = rows_of(1_000, -2.0, 0.4, seed=1)
    scores, labels = rows_of(1_500, -1.5, 0.3, seed=2)
    vad = VAD(scale="logit", replicas="seeds", calibrator=calibrator, recenter=False)
    found = vad.fit(pool, labeled=(scores, labels)).predict_proba(SERVED)
    step = calibrate(calibrator, scores[:, 0], labels, scale="logit")
    ratio = shrinkage(pool) / shrinkage(scores)
    center = logit(step(pool[:, 0])).mean()
    # A curve has a relative error of 1e-4; the mean calibrated score is taken over cells of a histogram.
    close = 1e-4 if calibrator == "beta" else 3e-6
    np.testing.assert_allclose(found, expit(ratio * logit(step(SERVED)) + (1 - ratio) * center), rtol=close)
