"""The demo's world: the bias is there before, and much less after, in any world."""

import numpy as np

from uncurse.experiments import demo


def test_the_bias_of_the_top_percent_falls_to_a_fraction_in_three_worlds():
    before, after = [], []
    for seed in range(3):
        _, outcomes = demo.run(seed)
        before.append(outcomes[0].error_before)
        after.append(outcomes[0].error_after)
    assert min(before) > 0.1
    assert np.abs(after).mean() < 0.25 * np.mean(before)


def test_the_ranking_is_unchanged():
    classifier, _ = demo.run(0)
    x = np.random.default_rng(0).normal(size=(2_000, demo.FEATURES))
    served = classifier.estimator_.predict_proba(x)[:, 1]
    debiased = classifier.predict_proba(x)[:, 1]
    np.testing.assert_array_equal(np.argsort(served), np.argsort(debiased))
