import pickle

import numpy as np
import pytest
from scipy.special import expit

import uncurse
from uncurse import VAD, Auto, Evidence, Joint, Moments, Tower, UncurseError, fit_auto
from uncurse.metrics.selection import top_share

X = np.linspace(-4.0, 0.0, 21)


def rows_of(rows, replicas=3, *, seed=0, mean=-2.5, sd=0.8, noise=0.4, unequal=False, tails=False):
    rng = np.random.default_rng(seed)
    truth = mean + sd * (rng.standard_t(4, rows) / np.sqrt(2) if tails else rng.normal(size=rows))
    by_row = np.exp(rng.uniform(np.log(0.05), np.log(0.9), (rows, 1))) if unequal else noise
    scores = truth[:, None] + by_row * rng.normal(size=(rows, replicas))
    return truth, scores, (rng.random(rows) < expit(truth)).astype(int)


def error_on_top(predict, truth, served, alpha):
    top = top_share(served, alpha)
    return float(predict(served[top]).mean() / expit(truth[top]).mean() - 1)


TRUTH, POOL, _ = rows_of(30_000)
_, SCORES, LABELS = rows_of(30_000, seed=1, mean=-2.0)


# ---------------------------------------------------------------------------- what it chooses


@pytest.mark.parametrize("replicas", [2, 3])
def test_one_noise_and_normal_scores_call_for_vad(replicas):
    auto = fit_auto(POOL[:, :replicas])
    assert auto.method_ == "vad with curvature"
    np.testing.assert_array_equal(auto.predict_proba(X), VAD(curvature=True).fit(POOL[:, :replicas]).predict_proba(X))
    assert isinstance(auto.fitted, VAD)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("world", [{"unequal": True}, {"tails": True}])
def test_unequal_noise_or_heavy_tails_call_for_the_free_shape(replicas, world):
    truth, pool, _ = rows_of(60_000, replicas, mean=-3.0, **world)
    auto = fit_auto(pool)
    assert auto.method_ == "free"
    straight = VAD(curvature=True).fit(pool)
    free, one = (abs(error_on_top(f.predict_proba, truth, pool[:, 0], 0.01)) for f in (auto, straight))
    assert free < 0.05
    assert free < one


def test_noise_that_does_not_matter_calls_for_nothing():
    _, pool, _ = rows_of(30_000, noise=0.01)
    auto = fit_auto(pool)
    assert auto.method_ == "nothing"
    assert auto.fitted is None
    np.testing.assert_allclose(auto.predict_proba(X), expit(X), rtol=1e-12)


def test_labels_that_agree_leave_the_method_that_needs_none():
    auto = fit_auto(POOL, labelled=(SCORES, LABELS))
    assert auto.method_ == "vad with curvature"
    np.testing.assert_array_equal(auto.predict_proba(X), fit_auto(POOL).predict_proba(X))
    assert "do not contradict it" in auto.reason_


@pytest.mark.parametrize(("slope", "level"), [(1.0, 0.3), (1.3, 0.0), (0.7, 0.0)])
def test_labels_that_contradict_the_scores_call_for_tower(slope, level):
    pool, scores = slope * POOL + level, slope * SCORES + level
    auto = fit_auto(pool, labelled=(scores, LABELS))
    assert auto.method_ == "tower"
    expected = Tower().fit(pool, labelled=(scores, LABELS))
    np.testing.assert_array_equal(auto.predict_proba(X), expected.predict_proba(X))
    assert abs(error_on_top(auto.predict_proba, TRUTH, pool[:, 0], 0.05)) < 0.08


@pytest.mark.theory
def test_a_few_labels_do_not_tip_it():
    tipped = 0
    for seed in range(30):
        _, scores, labels = rows_of(500, seed=100 + seed, mean=-2.0)
        tipped += fit_auto(POOL[:3_000], labelled=(scores, labels)).method_ == "tower"
    assert tipped <= 3  # BIC with 60 positives allows 8.2 of a χ² with two degrees: 1.6%


@pytest.mark.parametrize("replicas", ["bootstrap", "anchored"])
def test_bootstraps_are_taken_as_such(replicas):
    pool = POOL.copy()
    pool[:, 1:] += pool[:, :1] - TRUTH[:, None]  # about the served score
    auto = fit_auto(pool, replicas=replicas)
    assert auto.method_ == "vad with curvature"
    expected = VAD(curvature=True, replicas=replicas).fit(pool)
    np.testing.assert_array_equal(auto.predict_proba(X), expected.predict_proba(X))


# ---------------------------------------------------------------------------- that it does no harm

WORLDS = {
    "normal": {},
    "low rate": {"mean": -5.0},
    "even": {"mean": 0.0},
    "little noise": {"noise": 0.05},
    "no noise to speak of": {"noise": 0.002},
    "much noise": {"noise": 1.0},
    "unequal noise": {"unequal": True},
    "heavy tails": {"tails": True},
    "narrow": {"sd": 0.2, "noise": 0.1},
    "wide": {"sd": 2.0, "noise": 0.7},
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("replicas", [2, 3])
def test_it_is_never_worse_than_scores_as_they_are(world, replicas):
    truth, pool, _ = rows_of(20_000, replicas, **WORLDS[world])
    _, scores, labels = rows_of(20_000, replicas, seed=1, **WORLDS[world])
    for auto in (fit_auto(pool), fit_auto(pool, labelled=(scores, labels))):
        for alpha in (0.02, 0.1):
            ours, theirs = (error_on_top(f, truth, pool[:, 0], alpha) for f in (auto.predict_proba, expit))
            assert abs(ours) < abs(theirs) + 0.02
            low, high = auto.interval(alpha, 0.999)
            assert low < ours < high


# ---------------------------------------------------------------------------- what it gives


def test_a_reason_is_one_line_and_part_of_its_name():
    unequal = rows_of(30_000, unequal=True)[1]
    still = rows_of(30_000, noise=0.01)[1]
    for auto in (fit_auto(POOL), fit_auto(unequal), fit_auto(still), fit_auto(POOL, labelled=(SCORES + 1, LABELS))):
        assert isinstance(auto, Auto)
        assert "\n" not in auto.reason_
        assert 20 < len(auto.reason_) < 200
        assert repr(auto) == f"Auto: {auto.method_} ({auto.reason_})"


def test_its_map_is_an_ordinary_one(tmp_path):
    for options in ({}, {"negative_rate": 0.5}, {"labelled": (SCORES + 1, LABELS)}):
        auto = fit_auto(POOL, **options)
        auto.map_.save(tmp_path / "map.json")
        np.testing.assert_array_equal(uncurse.load(tmp_path / "map.json")(X), auto.predict_proba(X))
        assert (np.diff(auto.predict_proba(X)) > 0).all()


def test_probabilities_and_negatives_left_out_come_to_the_same():
    plain = fit_auto(POOL)
    of_probabilities = fit_auto(expit(POOL), scale="probability")
    thinned = fit_auto(POOL - np.log(0.1), negative_rate=0.1)
    assert plain.method_ == of_probabilities.method_ == thinned.method_
    np.testing.assert_allclose(of_probabilities.predict_proba(expit(X)), plain.predict_proba(X), rtol=1e-9)
    np.testing.assert_allclose(thinned.predict_proba(X - np.log(0.1)), plain.predict_proba(X), rtol=1e-9)
    np.testing.assert_allclose(thinned.interval(0.05), plain.interval(0.05), atol=0.003)


def test_doing_nothing_puts_back_the_negatives_left_out():
    auto = fit_auto(rows_of(30_000, noise=0.01)[1] - np.log(0.1), negative_rate=0.1)
    assert auto.method_ == "nothing"
    np.testing.assert_allclose(auto.predict_proba(X - np.log(0.1)), expit(X))


def test_groups_get_maps_of_their_own():
    groups = np.where(np.arange(30_000) % 3, "a", "b")
    auto = fit_auto(POOL + (groups == "b")[:, None], groups=groups)
    assert auto.map_.kind == "grouped"
    a, b = (auto.predict_proba(X, np.full(len(X), name)) for name in ("a", "b"))
    assert (a < b).all()


def test_groups_say_that_the_shape_of_noise_is_not_looked_at():
    _, pool, _ = rows_of(60_000, mean=-3.0, unequal=True)
    auto = fit_auto(pool, groups=np.arange(60_000) % 2)
    assert auto.method_ == "vad with curvature"
    assert "not looked at by group" in auto.reason_
    assert auto.interval(0.01)[0] > 0  # and the interval shows it


def test_evidence_with_joint_counts_is_enough():
    def evidence(scores, labels=None):
        return Evidence(("a", "b", "c"), Moments().update(scores), joint=Joint().update(scores, labels))

    of_logs = fit_auto(evidence(POOL), labelled=evidence(SCORES + 1, LABELS))
    assert of_logs.method_ == "tower"
    of_rows = Tower().fit(POOL, labelled=(SCORES + 1, LABELS))
    np.testing.assert_array_equal(of_logs.predict_proba(X), of_rows.predict_proba(X))


def test_what_is_wrong_with_the_input_is_said():
    with pytest.raises(UncurseError, match=r"there are 1 column\(s\)"):
        fit_auto(POOL[:, :1])
    with pytest.raises(UncurseError, match="the labels hold no positives"):
        fit_auto(POOL, labelled=(SCORES, 0 * LABELS))
    with pytest.raises(UncurseError, match="scale='value' is unknown"):
        fit_auto(POOL, scale="value")
    with pytest.raises(UncurseError, match="was fitted without groups"):
        fit_auto(POOL).predict_proba(X, np.zeros(len(X)))


# ---------------------------------------------------------------------------- what breaks


@pytest.mark.parametrize("replicas", [2, 3])
def test_identical_replicas_call_for_nothing(replicas):
    with pytest.warns(UserWarning, match="the replicas are identical"):
        auto = fit_auto(np.repeat(POOL[:, :1], replicas, axis=1))
    assert auto.method_ == "nothing"


@pytest.mark.parametrize("world", [{}, {"unequal": True}])
def test_it_can_be_pickled(world):
    auto = fit_auto(rows_of(5_000, 2, **world)[1])
    again = pickle.loads(pickle.dumps(auto))
    np.testing.assert_array_equal(again.predict_proba(X), auto.predict_proba(X))


def test_a_pool_of_fifty_rows_is_corrected_where_lambda_is_known_to_be_below_one():
    for seed in range(10):
        _, pool, _ = rows_of(50, seed=seed)
        vad = VAD().fit(pool)
        if vad.lambda_ + 3 * vad.standard_error_ < 1:
            assert fit_auto(pool).method_ != "nothing", fit_auto(pool).reason_


def test_a_negative_rate_below_zero_is_refused_without_a_warning():
    with pytest.raises(UncurseError, match="negative_rate=-1"):
        fit_auto(POOL, negative_rate=-1.0)


def test_replicas_that_contradict_each_other_are_an_error_or_a_warning():
    with pytest.warns(UserWarning, match="λ"):
        fit_auto(np.column_stack([POOL[:, 0], -POOL[:, 1]]))
