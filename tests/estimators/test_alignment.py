"""Alignment of served scores with scores out of fold."""

import numpy as np
import pytest

from uncurse.estimators.cross_fitting import align


def test_a_shift_of_all_scores_is_found_exactly():
    scores = np.random.default_rng(0).normal(size=500)
    folds = [scores + shift for shift in (0.1, 0.2, 0.6)]
    assert align(folds, scores) == pytest.approx(0.3, abs=1e-12)


def test_scores_below_the_top_do_not_count():
    scores = np.sort(np.random.default_rng(0).normal(size=1000))
    bulk = np.where(np.arange(1000) < 700, scores - 2.0, scores)
    assert align([bulk], scores) == 0.0
    assert align([np.where(np.arange(1000) < 700, scores, scores + 0.2)], scores) == pytest.approx(0.2, abs=1e-12)


def test_folds_may_score_other_rows_of_the_pool():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=60_000)
    folds = [rng.choice(scores, 20_000) - 0.5 for _ in range(5)]
    assert align(folds, scores) == pytest.approx(-0.5, abs=0.05)  # a quantile of 20,000 rows is off by up to 0.04
