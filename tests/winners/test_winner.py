"""The best of many: closed forms, numerical integration, symmetries and simulations."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import integrate, stats

import uncurse
from uncurse import UncurseError, winner
from uncurse.winners import Scores


def test_many_groups_agree_with_the_closed_form_for_a_normal_prior():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(4000, 5)) + 3 * rng.normal(size=(4000, 1))
    observed = truth + rng.normal(size=truth.shape)
    found = winner(observed.ravel(), standard_error=1.0, groups=np.repeat(np.arange(4000), 5))
    estimate = np.array([best.estimate for best in found])
    center, top = observed.mean(1), observed.max(1)
    exact = center + 0.5 * (top - center)  # the center of each group has a flat prior
    assert np.sqrt(np.mean((estimate - exact) ** 2)) < 0.1 * np.sqrt(np.mean((top - exact) ** 2))
    won = truth[np.arange(4000), observed.argmax(1)]
    assert abs((estimate - won).mean()) < 3 * (exact - won).std() / np.sqrt(4000)
    assert np.mean([best.probability_best for best in found]) == pytest.approx(
        np.mean(truth.argmax(1) == observed.argmax(1)), abs=0.03
    )
    assert np.mean([best.expected_loss for best in found]) == pytest.approx((truth.max(1) - won).mean(), abs=0.03)


def test_large_groups_agree_with_numerical_integration_of_a_normal_prior():
    rng = np.random.default_rng(1)
    errors = rng.uniform(0.5, 2.0, 688)
    observed = 10 + 1.5 * rng.normal(size=688) + errors * rng.normal(size=688)

    def moments(tau):
        weight = 1 / (tau**2 + errors**2)
        center = weight @ observed / weight.sum()
        log_likelihood = 0.5 * np.log(weight).sum() - 0.5 * weight @ (observed - center) ** 2
        log_likelihood -= 0.5 * np.log(weight.sum())
        return log_likelihood, center + tau**2 * weight * (observed - center)

    widths = np.linspace(0.9, 2.2, 200)
    logs, means = zip(*map(moments, widths), strict=True)
    weights = np.exp(np.array(logs) - max(logs))
    exact = integrate.trapezoid(weights[:, None] * np.array(means), widths, axis=0) / integrate.trapezoid(
        weights, widths
    )
    best = winner(observed, standard_error=errors)
    assert best.estimate == pytest.approx(exact[best.index], rel=0.01)
    assert_allclose(best.estimates, exact, rtol=0.02)


def test_a_clear_winner_is_left_alone():
    rng = np.random.default_rng(3)
    scores = (rng.random((400, 6)) < np.array([0.1, 0.3, 0.9, 0.2, 0.5, 0.6])).astype(float)
    best = winner(scores, names=list("abcdef"))
    assert best.name == "c"
    assert best.estimate == pytest.approx(best.observed, abs=0.005)
    assert best.probability_best > 0.999
    assert best.expected_loss < 1e-4


def test_errors_that_all_candidates_share_widen_the_interval_and_are_not_corrected():
    rng = np.random.default_rng(4)
    own = rng.normal(size=(100, 8))
    shared = 5 * rng.normal(size=(100, 1))
    shared -= shared.mean()
    alone, together = winner(own), winner(own + shared)
    assert together.estimate == pytest.approx(alone.estimate)
    (low, high), (lowest, highest) = alone.interval(), together.interval()
    assert highest - lowest > 3 * (high - low)


@given(st.integers(0, 10_000), st.integers(2, 12), st.floats(-100, 100), st.floats(0.01, 100))
def test_estimates_move_and_scale_with_the_values(seed, count, shift, scale):
    values = np.random.default_rng(seed).normal(size=count)
    one = winner(values, standard_error=0.7)
    other = winner(200 + shift + scale * values, standard_error=0.7 * scale)
    assert other.index == one.index
    assert_allclose(other.estimates, 200 + shift + scale * one.estimates, rtol=1e-6)
    assert_allclose(other.interval(), 200 + shift + scale * np.array(one.interval()), rtol=1e-6)


@given(st.integers(0, 10_000))
def test_a_lower_loss_mirrors_a_higher_score(seed):
    scores = np.random.default_rng(seed).normal(size=(30, 5))
    high, low = winner(scores), winner(-scores, higher_is_better=False)
    assert low.index == high.index
    assert low.estimate == pytest.approx(-high.estimate)
    assert_allclose(low.interval(), -np.array(high.interval())[::-1])
    assert low.expected_loss == pytest.approx(high.expected_loss)


def test_weights_are_repeated_items_and_repeated_items_are_a_cluster():
    rng = np.random.default_rng(6)
    scores = (rng.random((60, 4)) < 0.6).astype(float)
    once = winner(scores)
    twice = winner(np.repeat(scores, 2, axis=0), clusters=np.repeat(np.arange(60), 2))
    weighted = winner(scores, sample_weight=np.full(60, 2.0))
    for other in (twice, weighted):
        assert other.estimate == pytest.approx(once.estimate, rel=1e-6)
        assert_allclose(other.interval(), once.interval(), rtol=1e-6)
    naive = winner(np.repeat(scores, 2, axis=0))
    assert naive.interval()[1] - naive.interval()[0] < once.interval()[1] - once.interval()[0]


def test_missing_items_do_not_favor_the_candidate_that_skipped_the_hard_ones():
    rng = np.random.default_rng(7)
    difficulty = np.linspace(-3, 3, 300)[:, None]
    scores = difficulty + np.array([0.5, 0.0, 1.5]) + rng.normal(size=(300, 3))
    scores[:150, 0] = np.nan  # scored on the easier half, its own mean is the highest
    assert np.nanmean(scores, 0).argmax() == 0
    best = winner(scores)
    assert best.index == 2
    assert best.observed == pytest.approx(1.5, abs=0.3)


def test_groups_have_a_winner_each_in_the_order_of_appearance():
    values = [0.3, 0.1, 0.5, 0.2, 0.9]
    found = winner(values, standard_error=0.1, groups=["b", "a", "b", "a", "b"], names=list("vwxyz"))
    assert [(best.group, best.name, best.index) for best in found] == [("b", "z", 4), ("a", "y", 3)]
    assert found.to_frame()["winner"].to_list() == ["z", "y"]
    assert found[0].to_frame()["candidate"].to_list() == ["v", "x", "z"]


def test_groups_of_scores_may_have_different_items():
    rng = np.random.default_rng(8)
    left, right = rng.random((50, 3)) < 0.5, rng.random((80, 4)) < 0.2
    scores = np.full((130, 7), np.nan)
    scores[:50, :3], scores[50:, 3:] = left, right
    found = winner(scores, groups=[0] * 3 + [1] * 4)
    assert [best.observed for best in found] == pytest.approx([left.mean(0).max(), right.mean(0).max()])


@pytest.mark.parametrize("given", ["trials", "standard_error"])
def test_rates_with_small_errors_because_they_are_lucky_are_corrected(given):
    """The error of a rate near 1 is estimated as smaller where it was lucky."""
    rng, errors = np.random.default_rng(9), []
    for _ in range(60):
        successes = rng.binomial(100, 0.96, 12)
        smooth = (successes + 0.5) / 101
        if given == "trials":
            best = winner(successes, trials=100)
        else:
            best = winner(successes / 100, standard_error=np.sqrt(smooth * (1 - smooth) / 100))
        errors.append([best.observed - 0.96, best.estimate - 0.96])
        assert "taken as rates of about" in best.reason
    observed, corrected = np.mean(errors, 0)
    assert observed > 0.025
    assert abs(corrected) < 0.007


def test_winners_of_many_tests_with_few_successes_are_right_on_average():
    """Some variants have no success at all, and others win because they are lucky."""
    rng = np.random.default_rng(12)
    rates, trials = np.repeat(rng.uniform(0.005, 0.05, 400), 4), rng.integers(50, 400, 1600)
    rates *= np.exp(0.2 * rng.normal(size=1600))
    successes = rng.binomial(trials, rates)
    assert (successes == 0).sum() > 50
    found = winner(successes, trials=trials, groups=np.repeat(np.arange(400), 4))
    truth = rates[[best.index for best in found]].mean()
    mean, (low, high) = found.mean(), found.mean().interval(0.99)
    assert mean.observed > 1.3 * truth
    assert mean.estimate == pytest.approx(truth, rel=0.1)
    assert low < truth < high
    assert mean.estimate == pytest.approx(np.mean([best.estimate for best in found]), rel=0.02)
    assert f"{mean.estimate:.4f}"[:5] in repr(found)


def test_counts_are_rates_with_binomial_errors():
    successes = np.array([49, 40, 36, 44])
    rate = successes / 1000
    counts = winner(successes, trials=1000)
    assert_allclose(counts.observations, rate)
    rates = winner(rate, standard_error=np.sqrt(rate * (1 - rate) / 1000))
    assert_allclose(rates.estimates, counts.estimates)
    assert counts.reason == rates.reason
    percentages = winner(100 * rate, standard_error=100 * np.sqrt(rate * (1 - rate) / 1000))
    assert "not taken as rates" in percentages.reason
    failures = winner(1000 - successes, trials=np.full(4, 1000), higher_is_better=False)
    assert_allclose(failures.estimates, 1 - counts.estimates)


def test_intervals_of_rates_stay_between_0_and_1_and_have_a_width():
    few = np.array([[1, 0], [1, 1], [1, 1], [0, 1]])
    for best in (winner(np.ones((50, 5))), winner(np.zeros((8, 3))), winner(few), winner([0, 0, 0], trials=20)):
        assert (best.intervals() >= 0).all()
        assert (best.intervals() <= 1).all()
        assert (np.ptp(best.intervals(), axis=1) > 0.02).all()
    low, _ = winner(np.ones((50, 5))).interval(0.9)
    exact, _ = stats.beta.interval(0.9, 50.5, 0.5)  # of Jeffreys
    assert low == pytest.approx(exact, abs=0.01)


def test_impact_covers_the_sum_of_the_true_effects():
    rng, held, ratios = np.random.default_rng(10), [], []
    for _ in range(20):
        truth = 0.5 * rng.normal(size=(60, 2))
        observed = truth + rng.normal(size=truth.shape)
        found = winner(observed.ravel(), standard_error=1.0, groups=np.repeat(np.arange(60), 2))
        impact, total = found.impact(), truth[np.arange(60), observed.argmax(1)].sum()
        low, high = impact.interval(0.9)
        held.append(low <= total <= high)
        ratios.append([impact.observed - total, impact.estimate - total])
    observed, corrected = np.mean(ratios, 0)
    assert abs(corrected) < 0.2 * observed
    assert np.mean(held) > 0.75
    assert found.impact(["3"]).estimate == pytest.approx(found[3].estimate, abs=0.01)
    with pytest.raises(UncurseError, match="shipped holds 'x'"):
        found.impact(["x"])


def test_identical_candidates_and_a_single_one_keep_their_value():
    scores = np.repeat((np.arange(20) % 3 == 0).astype(float)[:, None], 4, axis=1)
    for best in (winner(scores), winner(scores[:, :1]), winner(np.ones((20, 3)))):
        assert best.estimate == pytest.approx(best.observed, abs=1e-6)
        assert best.reason.count(".") >= 1
        low, high = best.interval()
        assert low <= best.estimate <= high


def test_a_winner_prints_its_values_and_escapes_names():
    best = winner([1.0, 2.0, 3.0], standard_error=0.5, names=["<a>", "b", "c"])
    assert "observed 3" in repr(best)
    assert "&lt;a&gt;" in best._repr_html_()
    assert "c's lead over their mean is expected to be luck" in best.reason
    stood = winner([1.0, 2.0, 300.0], standard_error=0.01)
    assert "stands" in stood.reason
    tests = winner([0.0194, 0.0192, 0.5], standard_error=0.0001, groups=["x", "x", "y"])
    assert "one candidate, where nothing was selected: 1." in tests.reason
    near = winner([0.01944, 0.01938], standard_error=0.0001)
    low, high = re.findall(r"interval (\S+) to (\S+),", repr(near))[0]
    assert float(high) - float(low) == pytest.approx(np.ptp(near.interval()), rel=0.05)


def test_a_frame_has_a_column_for_each_candidate():
    pl = pytest.importorskip("polars")
    pd = pytest.importorskip("pandas")
    columns = {"a": [1.0, 0.0, 1.0], "b": [0.0, 0.0, 1.0]}
    for frame in (pl.DataFrame(columns), pd.DataFrame(columns), pl.DataFrame(columns).to_arrow()):
        assert winner(frame).name == "a"
    for numbers in ([0, 1, 2], [1, 2, 3]):
        with pytest.raises(UncurseError, match="'question' numbers the rows"):
            winner(pl.DataFrame({"question": numbers, **columns}))
    for text in ("n/a", "4.9%"):
        with pytest.raises(UncurseError, match=f"'b' holds '{text}' in row 1"):
            winner(pd.DataFrame({"a": [1.0, 0.0], "b": [None, text]}))
    many = pl.DataFrame({"a": np.arange(20) % 2, "question": np.random.default_rng(0).permutation(20) + 1_000})
    with pytest.raises(UncurseError, match="'question' numbers the rows"):
        winner(many)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scores": [0.1, 0.2]}, "scores has shape"),
        ({"scores": [[0.1, np.inf], [0.2, 0.3]]}, "infinite"),
        ({"scores": [[0.1, np.nan], [0.2, 0.3]]}, "'1' has fewer than two"),
        ({"scores": [0.1, 0.2], "standard_error": [0.1, 0.0]}, "is 0; pass numbers above 0"),
        ({"scores": [0.1, 0.2], "standard_error": [0.1]}, "standard_error"),
        (
            {"scores": [0.049, 0.04], "standard_error": [0.39, 0.36]},
            r"standard_error\[0\] is 0.39, but that of a single trial at a rate of 0.049",
        ),
        ({"scores": [2, 3], "trials": [3, 2]}, r"successes\[1\] is 3 of 2 trials"),
        ({"scores": [0.1, 0.2], "trials": 10}, r"successes\[0\]"),
        ({"scores": [1, 2], "trials": [0, 2]}, r"trials\[0\]"),
        ({"scores": [1, 2], "trials": [3]}, "trials has shape"),
        ({"scores": [1, 2], "trials": 3, "standard_error": 0.1}, "pass one of them"),
        ({"scores": [1, 2], "trials": 3, "sample_weight": [1, 2]}, "sample_weight"),
        ({"scores": [0.1, np.nan], "standard_error": 0.1}, "estimates"),
        ({"scores": [[0.1, 0.2]], "standard_error": 0.1}, "estimates has shape"),
        ({"scores": [0.1, 0.2], "standard_error": 0.1, "clusters": [1, 2]}, "clusters"),
        ({"scores": [0.1, 0.2], "standard_error": 0.1, "names": ["a"]}, "names"),
        ({"scores": np.eye(3), "clusters": [1, 1, 1]}, "two items or clusters"),
        ({"scores": np.eye(3), "groups": [1, 1]}, "groups"),
        ({"scores": np.eye(3), "higher_is_better": 1}, "higher_is_better"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(UncurseError, match=message):
        winner(**arguments)


def test_scores_carry_their_direction():
    losses = np.random.default_rng(11).normal(size=(40, 3)) + np.array([1.0, 0.0, 2.0])
    best = uncurse.winner(Scores(losses, ["a", "b", "c"], higher_is_better=False))
    assert best.name == "b"
    assert best.estimate == pytest.approx(best.observed, abs=3 * stats.sem(losses[:, 1]))
