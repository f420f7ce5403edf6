from itertools import pairwise

import numpy as np
import pytest
from scipy.special import expit, gammaln, logsumexp
from sklearn.isotonic import IsotonicRegression

from uncurse import Curve
from uncurse_lab.baselines import BASELINES, bbq, smooth_isotonic


def world(rows, *, seed=0, mean=-1.0, sd=1.5, truth=lambda l: 0.7 * l + 0.3, decimals=None):
    """Scores whose true logit is truth(l): 0.7 l + 0.3 is a model too steep."""
    rng = np.random.default_rng(seed)
    l = rng.normal(mean, sd, rows)
    if decimals is not None:
        l = l.round(decimals)
    return l, (rng.random(rows) < expit(truth(l))).astype(int), rng.exponential(size=rows)


def untouched(levels, w):
    """Mark the levels that the smoothing by half a row does not change."""
    low, high = w[levels < 1e-9].sum(), w[levels > 1 - 1e-9].sum()
    return (levels > 0.5 / (low + 1) + 1e-9) & (levels < (high + 0.5) / (high + 1) - 1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("decimals", [None, 1])
def test_smooth_isotonic_passes_through_the_isotonic_levels_without_ties(decimals, weighted):
    l, y, w = world(5000, decimals=decimals)
    w = w if weighted else np.ones(5000)
    levels = IsotonicRegression().fit(l, y, sample_weight=w).predict(l)
    ours = smooth_isotonic(l, y, w)
    assert isinstance(ours, Curve)
    inner = untouched(levels, w)
    assert inner.mean() > 0.9
    for level in np.unique(levels[inner].round(11)):
        rows = np.isclose(levels, level, atol=1e-10)
        np.testing.assert_allclose(ours(np.average(l[rows], weights=w[rows])), level, rtol=1e-9)
    assert (np.diff(ours(np.unique(l))) > 0).all()
    assert (np.diff(ours.y) > 0).all()


def literal_bbq(l, y):
    """Naeini, Cooper and Hauskrecht (2015), row by row: N' = 2, binnings of ∛N/10 to 10 ∛N bins of equal count."""
    order = np.argsort(l)
    p, z = expit(l[order]), y[order]
    n = len(p)
    sizes = sorted({min(size, n) for size in range(max(1, int(n ** (1 / 3) / 10)), int(10 * n ** (1 / 3)) + 1)})
    scores, estimates = [], []
    for size in sizes:
        ends = [int(np.ceil(n * k / size - 1e-9)) for k in range(size + 1)]
        score, estimate = 0.0, np.empty(n)
        for start, end in pairwise(ends):
            center = (p[start] + p[end - 1]) / 2
            alpha, beta = 2 / size * center, 2 / size * (1 - center)
            positives = int(z[start:end].sum())
            negatives = end - start - positives
            score += gammaln(2 / size) - gammaln(end - start + 2 / size)
            score += gammaln(positives + alpha) - gammaln(alpha) + gammaln(negatives + beta) - gammaln(beta)
            estimate[start:end] = (positives + alpha) / (end - start + 2 / size)
        scores.append(score)
        estimates.append(estimate)
    result = np.empty(n)
    result[order] = np.exp(np.array(scores) - logsumexp(scores)) @ np.array(estimates)
    return result


@pytest.mark.parametrize(("rows", "seed"), [(8, 0), (27, 1), (100, 2), (300, 3)])
def test_bbq_is_the_literal_average_over_binnings(rows, seed):
    l, y, _ = world(rows, seed=seed)
    ours = bbq(l, y, strict=False)
    # Binnings with a posterior below 1e-6 are dropped: at most 60 of them here.
    np.testing.assert_allclose(ours(l), literal_bbq(l, y), atol=1e-4)


def test_bbq_of_constant_scores_is_between_rate_and_score():
    assert 0.4 < bbq(np.full(5, 1.5), np.array([0, 0, 0, 1, 1]))(1.5) < expit(1.5)


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_rise_and_never_predict_0_or_1(name):
    l, y, w = world(3000, mean=-3.0)
    fitted = BASELINES[name](l, y, w)
    p = fitted(np.append(np.sort(l), [30.0, 1e3]))
    assert (np.diff(p) >= 0).all()
    assert 0 < p[0] < p[-1] < 1
    assert np.average(fitted(l), weights=w) == pytest.approx(np.average(y, weights=w), rel=0.02)
