import contextlib
import pickle
import re
from functools import cache

import numpy as np
import pytest
from scipy.special import expit

import uncurse
from uncurse import VAD, Auto, LogSpec, Tower, UncurseError
from uncurse.evidence import from_arrays
from uncurse.evidence.from_arrays import column_names
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


@cache
def label_free():
    return Auto().fit(POOL)


@cache
def contradicted():
    return Auto().fit(POOL[:5_000], labelled=(SCORES[:5_000] + 1, LABELS[:5_000]))


# ---------------------------------------------------------------------------- choice of the method


@pytest.mark.parametrize("replicas", [2, 3])
def test_equal_noise_and_normal_scores_choose_vad(replicas):
    auto = Auto().fit(POOL[:, :replicas])
    assert auto.method_ == "vad with curvature"
    np.testing.assert_array_equal(auto.predict_proba(X), VAD(curvature=True).fit(POOL[:, :replicas]).predict_proba(X))
    assert auto.record_.lambda_ == VAD().fit(POOL[:, :replicas]).lambda_


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("world", [{"unequal": True}, {"tails": True}])
def test_unequal_noise_or_heavy_tails_choose_the_free_shape(replicas, world):
    truth, pool, _ = rows_of(60_000, replicas, mean=-3.0, **world)
    auto = Auto().fit(pool)
    assert auto.method_ == "free"
    assert (auto.record_.curvature, auto.record_.shape) == (False, "free")
    straight = VAD(curvature=True).fit(pool)
    free, one = (abs(error_on_top(f.predict_proba, truth, pool[:, 0], 0.01)) for f in (auto, straight))
    assert free < 0.05
    assert free < one


def test_negligible_noise_chooses_nothing():
    _, pool, _ = rows_of(30_000, noise=0.01)
    auto = Auto().fit(pool)
    assert auto.method_ == "nothing"
    np.testing.assert_allclose(auto.predict_proba(X), expit(X), rtol=1e-12)


def test_labels_that_agree_keep_the_label_free_method():
    auto = Auto().fit(POOL, labelled=(SCORES[:10_000], LABELS[:10_000]))
    assert auto.method_ == "average"
    weight = int(re.search(r"\(vad with curvature\) has a weight of (\d+)%", auto.reason_).group(1))
    assert weight > 75
    np.testing.assert_allclose(auto.predict_proba(X), label_free().predict_proba(X), rtol=0.02)


@pytest.mark.parametrize(("slope", "level"), [(1.0, 0.3), (1.3, 0.0), (0.7, 0.0)])
def test_labels_that_contradict_the_scores_choose_tower(slope, level):
    pool, scores, labels = slope * POOL[:10_000] + level, slope * SCORES[:10_000] + level, LABELS[:10_000]
    auto = Auto().fit(pool, labelled=(scores, labels))
    assert auto.method_ == "tower"
    assert "contradict the label-free map" in auto.reason_
    expected = Tower().fit(pool, labelled=(scores, labels))
    np.testing.assert_array_equal(auto.predict_proba(X), expected.predict_proba(X))
    assert abs(error_on_top(auto.predict_proba, TRUTH[:10_000], pool[:, 0], 0.05)) < 0.08


def test_a_wrong_level_is_corrected_by_the_labels_though_the_levels_of_replicas_differ():
    # Networks trained by SGD at a constant rate differ in level by 10% and more; the labels know the level to 1%.
    rng = np.random.default_rng(5)

    def rows(n):
        truth = rng.normal(-2.0, 1.2, n)
        return truth[:, None] + np.array([0.25, 0.0]) + rng.normal(0.0, 0.5, (n, 2)), truth

    (scores, truth), (pool, _), (test, test_truth) = rows(60_000), rows(20_000), rows(200_000)
    labels = (rng.random(len(truth)) < expit(truth)).astype(float)
    auto = Auto(scale="logit", replicas="seeds").fit(pool, labelled=(scores, labels))
    error = auto.map_(test[:, 0]).sum() / expit(test_truth).sum() - 1
    assert abs(error) < 0.03
    assert expit(test.mean(axis=1)).sum() / expit(test_truth).sum() - 1 > 0.08  # the level without labels


@pytest.mark.theory
def test_a_few_labels_rarely_change_the_choice():
    tipped = 0
    for seed in range(30):
        _, scores, labels = rows_of(500, seed=100 + seed, mean=-2.0)
        tipped += Auto().fit(POOL[:3_000], labelled=(scores, labels)).method_ == "tower"
    assert tipped <= 3  # BIC with 60 positives allows 8.2 of a χ² with two degrees: 1.6%


@pytest.mark.parametrize("replicas", ["bootstrap", "anchored"])
def test_bootstrap_replicas_are_supported(replicas):
    pool = POOL.copy()
    pool[:, 1:] += pool[:, :1] - TRUTH[:, None]  # about the served score
    auto = Auto(replicas=replicas).fit(pool)
    assert auto.method_ == "vad with curvature"
    expected = VAD(curvature=True, replicas=replicas).fit(pool)
    np.testing.assert_array_equal(auto.predict_proba(X), expected.predict_proba(X))


# ---------------------------------------------------------------------------- accuracy

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


# Every world with labels and without, and every number of replicas with labels and without.
@pytest.mark.theory
@pytest.mark.parametrize(
    ("world", "replicas", "labelled"),
    [(world, 2 + (i + labelled) % 2, labelled) for i, world in enumerate(WORLDS) for labelled in (False, True)],
)
def test_auto_is_never_worse_than_the_raw_scores(world, replicas, labelled):
    truth, pool, _ = rows_of(3_000, replicas, **WORLDS[world])
    _, scores, labels = rows_of(3_000, replicas, seed=1, **WORLDS[world])
    auto = Auto().fit(pool, labelled=(scores, labels) if labelled else None)
    for alpha in (0.02, 0.1):
        ours, theirs = (error_on_top(f, truth, pool[:, 0], alpha) for f in (auto.predict_proba, expit))
        assert abs(ours) < abs(theirs) + 0.02
        low, high = auto.interval(alpha, 0.999)
        assert low < ours < high


# ---------------------------------------------------------------------------- results


def test_reason_is_one_line_and_part_of_the_repr():
    unequal = rows_of(30_000, unequal=True)[1]
    still = rows_of(30_000, noise=0.01)[1]
    fits = label_free(), Auto().fit(unequal), Auto().fit(still), contradicted()
    assert [auto.method_ for auto in fits] == ["vad with curvature", "free", "nothing", "tower"]
    for auto in fits:
        assert isinstance(auto, Auto)
        assert "\n" not in auto.reason_
        assert 20 < len(auto.reason_) < 200
        assert repr(auto) == f"Auto(scale='logit', replicas='seeds') chose {auto.method_}: {auto.reason_}"
        assert (auto.record_.method, auto.record_.reason) == (auto.method_, auto.reason_)


def test_map_can_be_saved_and_keeps_the_order(tmp_path):
    for auto in (label_free(), Auto(negative_rate=0.5).fit(POOL[:5_000]), contradicted()):
        auto.map_.save(tmp_path / "map.json")
        np.testing.assert_array_equal(uncurse.load(tmp_path / "map.json")(X), auto.predict_proba(X))
        assert (np.diff(auto.predict_proba(X)) > 0).all()


def test_probabilities_and_a_negative_rate_give_the_same_map():
    plain = label_free()
    of_probabilities = Auto(scale="probability").fit(expit(POOL))
    thinned = Auto(negative_rate=0.1).fit(POOL - np.log(0.1))
    assert plain.method_ == of_probabilities.method_ == thinned.method_
    np.testing.assert_allclose(of_probabilities.predict_proba(expit(X)), plain.predict_proba(X), rtol=1e-9)
    np.testing.assert_allclose(thinned.predict_proba(X - np.log(0.1)), plain.predict_proba(X), rtol=1e-9)
    np.testing.assert_allclose(thinned.interval(0.05), plain.interval(0.05), atol=0.003)


def test_nothing_still_corrects_for_the_negative_rate():
    auto = Auto(negative_rate=0.1).fit(rows_of(30_000, noise=0.01)[1] - np.log(0.1))
    assert auto.method_ == "nothing"
    np.testing.assert_allclose(auto.predict_proba(X - np.log(0.1)), expit(X))


def test_groups_get_their_own_maps():
    groups = np.where(np.arange(30_000) % 3, "a", "b")
    auto = Auto().fit(POOL + (groups == "b")[:, None], groups=groups)
    assert auto.map_.kind == "grouped"
    a, b = (auto.predict_proba(X, np.full(len(X), name)) for name in ("a", "b"))
    assert (a < b).all()


def test_groups_state_that_the_shape_of_noise_is_not_examined():
    _, pool, _ = rows_of(60_000, mean=-3.0, unequal=True)
    auto = Auto().fit(pool, groups=np.arange(60_000) % 2)
    assert auto.method_ == "vad with curvature"
    assert "not examined by group" in auto.reason_
    assert auto.interval(0.01)[0] > 0  # and the interval shows it


def evidence_of(scores, labels=None, **options):
    spec = LogSpec(column_names(np.shape(scores)[1]), **options)
    return from_arrays(scores, labels, spec=spec, cells=False, replica_counts=True)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(
    ("world", "shift", "method"),
    [({}, None, "vad with curvature"), ({"unequal": True}, None, "free"), ({}, 0.0, "average"),
     ({}, 1.0, "tower")],
)  # fmt: skip
def test_evidence_gives_map_reason_and_interval_of_arrays(replicas, world, shift, method):
    rows = 20_000 if shift is None else 1_000
    pool, (_, scores, labels) = rows_of(rows, replicas, mean=-3.0, **world)[1], rows_of(1_000, replicas, seed=1)
    if shift is None:
        arrays, evidence = Auto().fit(pool), Auto().fit(evidence_of(pool))
    else:
        arrays = Auto().fit(pool, labelled=(scores + shift, labels))
        evidence = Auto().fit(evidence_of(pool), labelled=evidence_of(scores + shift, labels))
    assert (evidence.method_, evidence.reason_) == (arrays.method_, arrays.reason_)
    assert arrays.method_ == method
    np.testing.assert_allclose(evidence.predict_proba(X), arrays.predict_proba(X), rtol=1e-12)
    np.testing.assert_allclose(evidence.interval(0.05), arrays.interval(0.05), rtol=1e-12)


def test_evidence_without_replica_counts_is_refused():
    with pytest.raises(UncurseError, match="this evidence has no replica counts; collect it with replica_counts=True"):
        Auto().fit(from_arrays(POOL))


def test_invalid_input_is_named():
    with pytest.raises(UncurseError, match="two or more columns"):
        Auto().fit(POOL[:, :1])
    with pytest.raises(UncurseError, match="the labels have no positives"):
        Auto().fit(POOL, labelled=(SCORES, 0 * LABELS))
    with pytest.raises(UncurseError, match="scale='value' is unknown"):
        Auto(scale="value")
    with pytest.raises(UncurseError, match="was fitted without groups"):
        label_free().predict_proba(X, np.zeros(len(X)))


# ---------------------------------------------------------------------------- edge cases


@pytest.mark.parametrize("offset", [0.0, 0.3, -2.0])
@pytest.mark.parametrize("replicas", [2, 3, 4])
@pytest.mark.parametrize("rows", [300, 30_000])
def test_identical_replicas_and_columns_that_differ_by_a_constant_choose_nothing(replicas, offset, rows):
    with pytest.warns(UserWarning, match="the replicas are identical, so they show no noise; was the seed changed"):
        auto = Auto().fit(POOL[:rows, :1] + offset * np.arange(replicas))
    assert auto.method_ == "nothing"
    assert auto.reason_ == "the replicas are identical, so they show no noise"
    np.testing.assert_allclose(auto.predict_proba(X), expit(X), rtol=1e-12)
    with pytest.raises(UncurseError, match="no intervals: the replicas are identical"):
        auto.interval(0.05)


@pytest.mark.filterwarnings("ignore:the replicas are identical")
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(("shift", "method"), [(0.0, "nothing"), (0.5, "tower"), (3.0, "tower")])
def test_identical_replicas_with_labels_are_calibrated_only_if_labels_contradict_the_scores(replicas, shift, method):
    truth, scores, labels = rows_of(30_000, 1, noise=0.0)
    pool = np.repeat(rows_of(30_000, 1, seed=1, noise=0.0)[1] + shift, replicas, axis=1)
    auto = Auto().fit(pool, labelled=(np.repeat(scores + shift, replicas, axis=1), labels))
    assert auto.method_ == method
    # 30,000 labelled rows at a rate of 10%: 2% each on the top.
    assert abs(error_on_top(auto.predict_proba, truth, scores[:, 0] + shift, 0.1)) < 0.06


@pytest.mark.parametrize("world", [{}, {"unequal": True}])
def test_a_pickled_auto_predicts_the_same(world):
    auto = Auto().fit(rows_of(5_000, 2, **world)[1])
    again = pickle.loads(pickle.dumps(auto))
    np.testing.assert_array_equal(again.predict_proba(X), auto.predict_proba(X))


def test_a_pool_of_fifty_rows_is_corrected_where_lambda_is_known_to_be_below_one():
    for seed in range(10):
        _, pool, _ = rows_of(50, seed=seed)
        vad = VAD().fit(pool)
        if vad.lambda_ + 3 * vad.standard_error_ < 1:
            auto = Auto().fit(pool)
            assert auto.method_ != "nothing", auto.reason_


def test_a_negative_rate_below_zero_is_refused_without_a_warning():
    with pytest.raises(UncurseError, match="negative_rate=-1"):
        Auto(negative_rate=-1.0)


def test_replicas_that_contradict_each_other_raise_a_warning():
    with pytest.warns(UserWarning, match="λ"):
        Auto().fit(np.column_stack([POOL[:, 0], -POOL[:, 1]]))


# ---------------------------------------------------------------------------- weight of the label-free map


def test_an_average_lies_between_its_parts_and_says_so():
    labelled = (SCORES[:1_500] + 0.15, LABELS[:1_500])
    pool = POOL[:5_000] + 0.15
    auto = Auto().fit(pool, labelled=labelled)
    assert auto.method_ == "average"
    weight = int(re.search(r"has a weight of (\d+)%", auto.reason_).group(1)) / 100
    assert 0.01 < weight < 0.99
    assert ("; on the labelled rows, " in auto.reason_) == (
        weight < 0.5
    )  # the cause of a difference, if the labels contradict the map
    contradicted = Auto().fit(pool, labelled=(labelled[0] + 0.1, labelled[1]))
    assert re.search(
        r"has a weight of \d\d%.*; on the labelled rows, the odds of that map are \d\d% too high$", contradicted.reason_
    )
    parts = [
        method.fit(pool, **more).predict_proba(X) for method, more in ((Auto(), {}), (Tower(), {"labelled": labelled}))
    ]
    inside = (np.quantile(pool[:, 0], 0.01) < X) & (np.quantile(pool[:, 0], 0.99) > X)
    expected = weight * parts[0] + (1 - weight) * parts[1]
    np.testing.assert_allclose(auto.predict_proba(X)[inside], expected[inside], rtol=0.005)
    assert (np.diff(auto.predict_proba(X)) > 0).all()
    low, high = auto.interval(0.05)
    assert low < 0 < high


def test_an_average_of_groups_has_a_map_for_each():
    groups = np.array(["a", "b"])[np.arange(5_000) % 2]
    auto = Auto().fit(POOL[:5_000] + 0.15, labelled=(SCORES[:1_500] + 0.15, LABELS[:1_500]), groups=groups)
    assert auto.method_ == "average"
    assert set(auto.map_.maps) == {"a", "b"}
    plain = Auto().fit(POOL[:5_000] + 0.15, labelled=(SCORES[:1_500] + 0.15, LABELS[:1_500]))
    np.testing.assert_allclose(auto.map_.default(X), plain.predict_proba(X), rtol=1e-9)  # the map of other groups


@pytest.mark.parametrize(
    ("slope", "level", "cause"),
    [
        (1.0, 0.6, "on the labelled rows, the odds of that map are 9"),
        (1.6, 1.2, "replicas by seed do not show"),
        (0.6, -0.8, "the model under-fits, or the replicas show more noise than the served score has"),
    ],
)
def test_the_reason_names_the_cause_of_a_contradiction(slope, level, cause):
    pool, scores = slope * POOL[:5_000] + level, slope * SCORES[:10_000] + level
    assert cause in Auto().fit(pool, labelled=(scores, LABELS[:10_000])).reason_


@pytest.mark.filterwarnings("ignore:the replicas are identical")
@pytest.mark.parametrize(("noise", "both"), [(0.4, True), (0.0, False)])
def test_the_reason_says_how_steeply_the_log_odds_rise(noise, both):
    _, pool, _ = rows_of(5_000, noise=noise)
    _, scores, labels = rows_of(10_000, seed=1, noise=noise)
    reason = Auto().fit(0.6 * pool - 1, labelled=(0.6 * scores - 1, labels)).reason_
    rise = re.search(r"log odds of the labels rise by ([\d.]+) per unit of that map's log odds: the model", reason)
    assert float(rise[1]) == pytest.approx(1 / 0.6, abs=0.2)
    assert ("the replicas show more noise" in reason) == both  # identical replicas show none


# ---------------------------------------------------------------------------- floors, caps, few rows


def with_floor_and_cap(scores, floor=0.3, cap=0.05):
    low, high = np.quantile(scores[:, 0], [floor, 1 - cap])
    return np.clip(scores, low, high)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(("floor", "cap"), [(0.3, 0.0), (0.0, 0.05), (0.3, 0.05)])
@pytest.mark.parametrize("labelled", [False, True])
def test_a_floor_and_a_cap_on_scores_do_not_bias_the_map(replicas, floor, cap, labelled):
    truth, pool, _ = rows_of(8_000, replicas)
    _, scores, labels = rows_of(8_000, replicas, seed=1)
    pool, scores = (with_floor_and_cap(x, floor, cap) for x in (pool, scores))
    if cap and not labelled:
        with pytest.raises(UncurseError, match=r"5\.0% of the served scores are capped at .*, or labelled rows"):
            Auto().fit(pool)
        return
    auto = Auto().fit(pool, labelled=(scores, labels) if labelled else None)
    if cap:
        assert (auto.method_, "capped" in auto.reason_) == ("tower", True)
    p = auto.predict_proba(np.linspace(-9, 3, 200))
    assert np.isfinite(p).all()
    assert (np.diff(p) > 0).all()
    low, high = auto.interval(0.1)
    assert -0.5 < low < high < 0.5
    before, after = (abs(float(f(pool[:, 0]).mean() / expit(truth).mean() - 1)) for f in (expit, auto.predict_proba))
    assert after < max(before, 0.05) + 0.02


@pytest.mark.filterwarnings("ignore:λ")
@pytest.mark.parametrize("rows", [2, 10, 19, 20, 60])
@pytest.mark.parametrize("replicas", [2, 3])
def test_few_rows_give_a_finite_increasing_map_or_an_error_with_their_number(rows, replicas):
    for seed in range(3):
        pool = rows_of(rows, replicas, seed=seed)[1]
        if rows < 20:
            with pytest.raises(UncurseError, match=f"{rows} rows do not determine a shape; pass at least 20"):
                Auto().fit(pool)
            continue
        auto = Auto().fit(pool)
        p = auto.predict_proba(np.linspace(-9, 3, 50))
        assert np.isfinite(p).all()
        assert (np.diff(p) >= 0).all()
        assert np.isfinite(auto.interval(0.1)).all()


@pytest.mark.parametrize(("mean", "sd"), [(30.0, 3.0), (-1000.0, 40.0)])
@pytest.mark.parametrize("replicas", [2, 3])
def test_saturated_logits_have_a_finite_interval_or_an_error(mean, sd, replicas):
    rng = np.random.default_rng(0)
    pool = rng.normal(mean, sd, (2_000, 1)) + 0.3 * sd * rng.normal(size=(2_000, replicas))
    with contextlib.suppress(UncurseError):
        auto = Auto().fit(pool)
        assert np.isfinite(auto.predict_proba(pool[:, 0])).all()
        for alpha in (0.01, 1.0):
            with contextlib.suppress(UncurseError):
                assert np.isfinite(auto.interval(alpha)).all()


def test_a_share_that_selects_no_row_is_refused():
    auto = Auto().fit(POOL[:2_000])
    with pytest.raises(UncurseError, match=r"alpha=1e-07 of 2,000 rows selects none; use at least 0\.0005"):
        auto.interval(1e-7)


def test_outliers_are_judged_by_their_share_of_predictions_on_the_top_percent():
    pool = POOL[:12_000].copy()
    pool[:2] = 6.0  # 2 of the 120 rows of the top 1%, and 3.6% of their predictions
    chosen = Auto().fit(pool, labelled=(SCORES[:5_000], LABELS[:5_000]))
    assert chosen.method_ == "tower"
    assert re.match(
        r"outliers make up [2-9]\.\d% of the predictions on the top 1%, so they are calibrated", chosen.reason_
    )
    pool[1] = POOL[1]
    assert "outliers" not in Auto().fit(pool, labelled=(SCORES[:5_000], LABELS[:5_000])).reason_


def test_labels_that_the_scores_separate_say_nothing():
    scores = POOL[:40]
    labels = scores[:, 0] > np.quantile(scores[:, 0], 0.7)
    base = label_free()
    chosen = Auto().fit(POOL, labelled=(scores, labels))
    assert chosen.method_ == base.method_
    assert chosen.reason_.endswith("12 labels of the rarer class support it (weight 100%)")


def test_a_free_shape_corrects_for_the_negative_rate():
    scores = rows_of(20_000, unequal=True)[1]
    plain, thinned = Auto().fit(scores), Auto(negative_rate=0.1).fit(scores - np.log(0.1))
    assert plain.method_ == thinned.method_ == "free"
    np.testing.assert_allclose(thinned.predict_proba(X - np.log(0.1)), plain.predict_proba(X), rtol=1e-3)


def weak_scores(spread, noise, rows, seed):
    """Return a pool and labelled rows of a right model whose bootstraps show noise that it does not have."""
    rng = np.random.default_rng(seed)

    def draw():
        served = rng.normal(-1.2, spread, rows)
        drawn = noise * spread * np.column_stack([np.zeros(rows), rng.normal(size=(rows, 2))])
        return served[:, None] + drawn, expit(served)

    (pool, _), (scores, rate) = draw(), draw()
    return pool, (scores, rng.random(rows) < rate)


@pytest.mark.parametrize("noise", [0.88, 0.92])
def test_labels_rule_out_a_map_that_removes_nearly_all_of_a_weak_score(noise):
    pool, labelled = weak_scores(0.3, noise, 4_000, seed=0)
    served = pool[:, 0]  # which is the truth
    auto = Auto(replicas="bootstrap").fit(pool, labelled=labelled)
    assert auto.method_ == "tower"
    assert "contradict the label-free map" in auto.reason_
    assert abs(error_on_top(auto.predict_proba, served, served, 0.02)) < 0.08


@pytest.mark.parametrize("noise", [1.0, 1.2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_replicas_that_differ_as_much_as_the_scores_vary_leave_the_labels_by_score(noise, seed):
    pool, labelled = weak_scores(0.6, noise, 1_500, seed)
    served = pool[:, 0]
    for make in (Auto, Tower):
        method = make(replicas="bootstrap").fit(pool, labelled=labelled)
        assert "differ from each other about as much as the scores vary" in method.record_.reason
        assert abs(error_on_top(method.predict_proba, served, served, 0.02)) < 0.15
        low, high = method.interval(0.02)
        assert -0.5 < low < 0 < high < 1
