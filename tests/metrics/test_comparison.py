"""Which of two sets of predictions is nearer to the truth, by the same labels."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from uncurse import Affine, Segmented, UncurseError, evaluate
from uncurse.evidence import from_arrays
from uncurse.metrics import compare, default_shares, evaluate_log


def test_the_probability_of_one_share_is_that_of_a_normal_truth_on_one_side_of_the_middle():
    p, y = np.full(1000, 0.2), np.arange(1000) < 150
    served, after = evaluate(y, p, [1.0]), evaluate(y, 0.8 * p, [1.0])
    found = compare([served, after, served])
    sd = np.sqrt(1000 * 0.15 * 0.85)
    expected = norm.cdf((180 - 150) / sd)  # the middle of 200 and 160 predicted positives, 150 observed
    assert found.nearer == pytest.approx([0.5, expected, 0.5], abs=1e-6)
    assert found.nearer_by_share == pytest.approx(np.array([[0.5], [expected], [0.5]]), abs=1e-6)
    assert found.error == pytest.approx([1 / 3, 160 / 150 - 1, 1 / 3])
    assert compare([after, served]).nearer[1] == pytest.approx(1 - expected)


def test_the_probability_is_right_as_often_as_it_says(monkeypatch):
    """Over draws of the true rate: where the probability is 80%, the second set is nearer 80% of the time."""
    monkeypatch.setattr("uncurse.metrics.measure._DRAWS", 1)  # errors of ECE, which are not used
    rng = np.random.default_rng(0)
    stated, nearer = [], []
    for _ in range(200):
        l = rng.normal(-2, 0.7, 2_000)
        shift = rng.normal(0, 0.15)
        y, sets = rng.random(2_000) < expit(l + shift), (expit(l), expit(l + 0.12))
        top = np.argsort(-l)
        log, shares = from_arrays(l[:, None], y), [0.1, 0.3, 1.0]
        found = compare([evaluate_log(log, one, shares) for one in (None, Affine(1.0, 0.12))])
        truth = expit(l + shift)[top]
        loss = [
            np.mean(
                [abs(p[top][: int(2_000 * share)].sum() / truth[: int(2_000 * share)].sum() - 1) for share in shares]
            )
            for p in sets
        ]
        stated.append(found.nearer[1])
        nearer.append(loss[1] < loss[0])
    stated, nearer = np.array(stated), np.array(nearer)
    for low, high in ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)):
        some = (stated >= low) & (stated <= high)
        error = np.sqrt((stated * (1 - stated))[some].sum()) / some.sum()
        assert abs(stated[some].mean() - nearer[some].mean()) < 4 * error + 0.06


def test_a_map_by_segment_is_compared_with_the_scores_as_served():
    rng = np.random.default_rng(0)
    l, segments = rng.normal(-2, 1, 50_000), rng.choice(["a", "b", "c"], 50_000)
    y = rng.random(50_000) < expit(l - 0.3 * (segments == "a"))
    log, shares = from_arrays(l[:, None], y, segments=segments), [0.001, 0.0123, 0.05]
    maps = None, Affine(1.0, 0.0), Segmented(Affine(1.0, 0.0), {"a": Affine(1.0, -0.3)})
    found = compare([evaluate_log(log, one, shares) for one in maps])
    assert found.nearer[1] == pytest.approx(0.5, abs=1e-6)
    assert found.nearer[2] > 0.95


def test_shares_in_any_order_and_without_positive_labels():
    l = np.linspace(2.0, -4.0, 1000)
    y = (np.arange(1000) % 7 == 0) & (np.arange(1000) > 20)
    results = []
    for shares in ([0.01, 0.2, 1.0], [1.0, 0.01, 0.2]):
        with pytest.warns(UserWarning, match="no positive label"):
            pair = [evaluate(y, expit(slope * l), shares) for slope in (1.0, 0.9)]
        results.append(compare(pair))
    assert results[0].nearer == results[1].nearer
    assert results[0].nearer_by_share[1][0] is None
    assert results[1].nearer_by_share[1][1] is None
    with pytest.warns(UserWarning, match="no positive label"):
        none = evaluate(np.zeros(9), np.full(9, 0.1), [1.0])
    assert compare([none, none]) is None


def test_evaluations_of_other_rows_are_not_compared():
    one, other = evaluate([0, 1, 1], [0.1, 0.2, 0.3], [1.0]), evaluate([0, 1, 0], [0.1, 0.2, 0.3], [1.0])
    with pytest.raises(UncurseError, match="different rows"):
        compare([one, other])


@pytest.mark.parametrize(
    ("rows", "logit", "shares"),
    [
        (100_000, -1.0, [0.001, 0.01, 0.02, 0.05, 0.1]),
        (10_000, -4.0, [0.1]),  # a rate of 1.8%: the top 5% have 9 predicted positives
        (1_000, 1.5, [0.1]),
        (200, -1.0, [0.1]),  # no share has enough: the largest
        (5, 1.5, [1.0]),  # 10% select no row
    ],
)
def test_default_shares_are_those_with_enough_rows_and_positives(rows, logit, shares):
    log = from_arrays(np.full((rows, 1), logit), np.arange(rows) % 2, sample_weight=np.full(rows, 3.0))
    assert default_shares(log) == shares
