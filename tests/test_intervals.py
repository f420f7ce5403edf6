import pickle
import warnings

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from uncurse import VAD, Affine, Auto, ReplicaCounts, Tower, UncurseError
from uncurse.debias import KINDS
from uncurse.debias.label_selection import served_lead
from uncurse.debias.remaining_error import (
    SHARES,
    TopShare,
    compared_shares,
    normal_quantile,
    relative_level_error,
    remaining_error_interval,
)
from uncurse.evidence import from_arrays
from uncurse.links import logistic
from uncurse.metrics.selection import top_share


def rows_of(rows, replicas=3, *, seed=0, mean=-2.0, sd=0.8, noise=0.4):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, sd, rows)
    scores = truth[:, None] + noise * rng.normal(size=(rows, replicas))
    return truth, scores, (rng.random(rows) < expit(truth)).astype(int)


def cells_of(pool, **options):
    return ReplicaCounts().update(pool, **options).cells()


def tower_of(pool_rows, labelled_rows, replicas=3, *, seed=0, shift=0.5):
    truth, pool, _ = rows_of(pool_rows, replicas, seed=2 * seed)
    _, scores, labels = rows_of(labelled_rows, replicas, seed=2 * seed + 1, mean=-2.0 + shift)
    return truth, pool[:, 0], Tower().fit(pool, labelled=(scores, labels))


# ---------------------------------------------------------------------------- parts


@pytest.mark.parametrize("alpha", [0.013, 0.2, 1.0])
def test_the_top_share_holds_the_highest_cells(alpha):
    _, pool, _ = rows_of(20_000)
    cells = cells_of(pool)
    top = TopShare(cells, alpha)
    assert top.rows == pytest.approx(alpha * 20_000, rel=1e-9)
    np.testing.assert_allclose(top.share.sum(), 1)
    rest = np.setdiff1d(np.arange(len(cells.served)), top.cells)
    assert cells.served[top.cells].min() >= cells.served[rest].max(initial=-np.inf)
    expected = pool[top_share(pool[:, 0], alpha), 0].mean()
    np.testing.assert_allclose(top.mean(cells.served[top.cells]), expected, atol=max(cells.width / 2, 1e-3))


def test_the_last_cell_of_a_top_share_counts_in_part():
    cells = cells_of(np.repeat([[0.0, 0.1], [2.0, 2.1]], [70, 30], axis=0))
    top = TopShare(cells, 0.5)
    np.testing.assert_allclose(np.sort(top.share), [0.4, 0.6], rtol=1e-12)


@pytest.mark.parametrize(("rows", "first"), [(9, 1.0), (10, 0.1), (19, 0.1), (20, 0.05), (50, 0.02), (100, 0.01)])
def test_maps_are_compared_on_shares_that_select_a_row(rows, first):
    shares = compared_shares(cells_of(rows_of(rows)[1]))
    assert shares == [alpha for alpha in (*SHARES, 1.0) if alpha >= first and (alpha < 1 or rows < 10)]


def test_a_share_outside_zero_to_one_is_refused():
    cells = cells_of(rows_of(100)[1])
    for alpha in (0.0, -0.1, 1.5, np.nan):
        with pytest.raises(UncurseError, match="alpha"):
            TopShare(cells, alpha)
    for fitted in (VAD(intervals=True).fit(rows_of(100)[1]), Auto().fit(rows_of(100)[1])):
        with pytest.raises(UncurseError, match="alpha"):
            fitted.interval("0.05")


@pytest.mark.parametrize("weights", [None, np.full(2_000, 1e-6)])
def test_a_share_that_selects_no_row_is_refused(weights):
    _, pool, _ = rows_of(2_000)
    with pytest.raises(UncurseError, match=r"alpha=1e-07 of 2,000 rows selects none; use at least 0\.0005"):
        TopShare(cells_of(pool, sample_weight=weights), 1e-7)
    fitted = [VAD(intervals=True), VAD(shape="free"), VAD(curvature=True, intervals=True)]
    for each in fitted:
        with pytest.raises(UncurseError, match="selects none"):
            each.fit(pool, sample_weight=weights).interval(1e-7)


def test_relative_error_of_a_mean_follows_the_delta_method():
    cells = cells_of(rows_of(5_000)[1])
    top = TopShare(cells, 0.1)
    x = cells.served[top.cells]
    features, covariance = np.stack([np.ones_like(x), x]), np.array([[0.04, 0.01], [0.01, 0.02]])
    rng = np.random.default_rng(0)
    b = rng.multivariate_normal([0, 0], 1e-4 * covariance, 20_000)
    drawn = np.log(top.share @ expit(x + (b @ features)).T)
    np.testing.assert_allclose(1e-4 * top.squared_error(expit(x), features, covariance), drawn.var(), rtol=0.05)


def test_sampling_error_includes_the_spread_between_rows():
    cells = cells_of(np.repeat([[0.0, 0.1], [2.0, 2.1]], [50, 50], axis=0))
    top = TopShare(cells, 1.0)
    p, by_score, variance = np.array([0.2, 0.4]), np.array([0.3, 0.3]), np.array([0.01, 0.03])
    expected = (0.01 + 0.02) / 0.3**2 / 100  # squares of p − by_score, and the mean variance
    assert top.sampling_error(p, by_score, variance) == pytest.approx(expected, rel=1e-12)


def test_the_quantile_is_the_normal_one():
    for level in (0.5, 0.9, 0.99):
        np.testing.assert_allclose(normal_quantile(level), stats.norm.ppf(0.5 + level / 2))
    for level in (0.0, 1.0, 90):
        with pytest.raises(UncurseError, match=r"pass a probability between 0 and 1, such as 0\.9"):
            normal_quantile(level)


class Known:
    """Estimate that equals the served score shifted by a level, with known errors."""

    def __init__(self, cells, level=0.0, error=0.02, level_error=(0.0, 1)):
        self.cells, self._level, self._error, self._level_error = cells, level, error, level_error

    def log_odds(self, served):
        return served + self._level

    def log_error(self, alpha):
        return self._error

    def level_error(self, alpha):
        return self._level_error


def test_interval_on_the_log_adds_the_level_error_with_students_quantile():
    cells, identity = cells_of(rows_of(1_000, mean=-12.0)[1]), Affine(1.0, 0.0)

    def interval(*arguments, level=0.9, rate=None, score_map=identity):
        return np.log1p(remaining_error_interval(score_map, Known(cells, *arguments), 0.2, level, rate))

    # At a rate of 1e-5 log odds are log rates, so a level of −0.1 is a ratio of exp(0.1).
    np.testing.assert_allclose(interval(-0.1, 0.02), 0.1 + 0.02 * stats.norm.ppf([0.05, 0.95]), atol=1e-4)
    reach = np.hypot(0.02 * stats.norm.ppf(0.95), 0.03 * stats.t.ppf(0.95, 2))
    np.testing.assert_allclose(interval(0.0, 0.02, (0.03, 2)), [-reach, reach], atol=1e-9)
    np.testing.assert_allclose(interval(level=0.5), 0.02 * stats.norm.ppf([0.25, 0.75]), atol=1e-9)
    # Cells hold logits that are corrected for the negative rate; the map corrects for it once more.
    thinned = interval(rate=0.1, score_map=Affine(1.0, np.log(0.1)))
    np.testing.assert_allclose(thinned, interval(), atol=1e-9)


def test_predictions_of_zero_have_no_interval():
    cells = cells_of(rows_of(1_000, mean=-2_000.0)[1])
    with pytest.raises(UncurseError, match=r"predictions on the top 20% are 0 .*; are the scores logits\?"):
        remaining_error_interval(Affine(1.0, 0.0), Known(cells), 0.2, 0.9, None)


def test_relative_level_error_is_the_effect_of_a_small_shift():
    cells = cells_of(rows_of(1_000)[1])
    top = TopShare(cells, 0.2)
    l = cells.served[top.cells]
    moved = np.log(top.mean(logistic(l + 1e-4)) / top.mean(logistic(l - 1e-4))) / 2
    np.testing.assert_allclose(relative_level_error(top, l, 1e-8), moved, rtol=1e-6)


def test_levels_are_column_means_relative_to_the_served_one():
    _, pool, _ = rows_of(30_000, 4)
    pool += [0.0, 0.5, -0.2, 0.1]
    np.testing.assert_allclose(cells_of(pool[:, :3]).levels, (pool.mean(axis=0) - pool[:, 0].mean())[:3], atol=0.01)
    np.testing.assert_allclose(cells_of(pool).levels, pool.mean(axis=0) - pool[:, 0].mean(), atol=0.01)


def test_level_variance_depends_on_the_kind_of_replica():
    levels = np.array([0.0, 0.3, -0.1, 0.4])
    assert KINDS["seeds"].level_variance(levels) == (pytest.approx(levels.var(ddof=1) / 4), 3)
    assert KINDS["anchored"].level_variance(levels) == (pytest.approx(np.mean(levels[1:] ** 2)), 3)
    assert KINDS["bootstrap"].level_variance(levels) == (pytest.approx(levels[1:].var(ddof=1)), 2)
    # Column 0 is the mean of the three members.
    assert KINDS["ensemble"].level_variance(levels) == (pytest.approx(levels[1:].var(ddof=1) / 3), 2)
    assert KINDS["snapshots"].level_variance(np.zeros(4)) == (0.0, 3)


# ---------------------------------------------------------------------------- intervals of fitted methods


def test_snapshots_have_no_intervals_without_labels():
    # They differ from the served model by less than another training would: intervals were 20 times too narrow.
    _, pool, _ = rows_of(20_000, 2)
    _, scores, labels = rows_of(20_000, 2, seed=1)
    reason = "snapshots of one training do not show .*; pass labelled rows, or replicas by seed"
    methods = (VAD(replicas="snapshots", intervals=True), VAD(replicas="snapshots", shape="free"))
    for method in (*methods, Auto(replicas="snapshots")):
        method.fit(pool)
        with pytest.raises(UncurseError, match=reason):
            method.interval(0.05)
        line, loss = method.line()
        assert line.slope > 0
        assert loss >= 0
    for method in (Tower(replicas="snapshots"), Auto(replicas="snapshots")):
        low, high = method.fit(pool, labelled=(scores, labels)).interval(0.05)
        assert low < high


def test_more_labels_and_rows_narrow_the_interval():
    widths = [np.ptp(tower_of(*rows)[2].interval(0.05)) for rows in ((5_000, 300), (5_000, 5_000), (30_000, 30_000))]
    assert widths[0] > 1.5 * widths[1] > 2.5 * widths[2]


def test_a_higher_level_widens_the_interval_about_the_same_center():
    tower = tower_of(5_000, 5_000)[2]
    narrow, wide = tower.interval(0.05, 0.5), tower.interval(0.05, 0.99)
    assert wide[0] < narrow[0] < 0 < narrow[1] < wide[1]
    np.testing.assert_allclose(np.log1p(wide).sum(), 0, atol=1e-6)


def test_differing_levels_of_replicas_widen_the_interval():
    _, pool, _ = rows_of(20_000)
    _, scores, labels = rows_of(20_000, seed=1)
    still = Tower().fit(pool, labelled=(scores, labels)).interval(0.05)
    moved = Tower().fit(pool + np.array([0.0, 0.1, -0.1]), labelled=(scores, labels)).interval(0.05)
    assert np.ptp(moved) > 2 * np.ptp(still)


def test_interval_of_raw_scores_excludes_zero_and_that_of_vad_includes_it():
    _, pool, _ = rows_of(20_000)
    vanilla = remaining_error_interval(Affine(1.0, 0.0), VAD(shape="free").fit(pool)._remaining, 0.05, 0.9, None)
    assert 0.15 < vanilla[0] < vanilla[1] < 0.4
    low, high = VAD(curvature=True, intervals=True).fit(pool).interval(0.05)
    assert low < 0 < high


def test_interval_of_vad_covers_its_error():
    truth, pool, _ = rows_of(200_000)
    paper, probabilities = VAD(intervals=True).fit(pool), VAD(link="identity", intervals=True).fit(pool)
    for vad in (paper, probabilities):
        top = top_share(pool[:, 0], 0.05)
        error = vad.predict_proba(pool[top, 0]).mean() / expit(truth[top]).mean() - 1
        low, high = vad.interval(0.05, 0.99)
        assert low < error < high
        assert not low < 0 < high  # no curvature, or the wrong link: the bias is significant for this many rows


def of_kind(scores, truth, kind):
    return (
        scores if kind == "seeds" else np.column_stack([scores[:, 0], scores[:, :1] + scores[:, 1:] - truth[:, None]])
    )


@pytest.mark.parametrize("kind", ["seeds", "bootstrap", "anchored"])
def test_interval_of_a_tandem_uses_the_same_kind_of_replica(kind):
    truth, pool, _ = rows_of(3_000)
    of_labelled, scores, labels = rows_of(2_000, seed=1)
    pool, scores = of_kind(pool, truth, kind), of_kind(scores, of_labelled, kind)
    vad = VAD(calibrator="platt", replicas=kind, intervals=True).fit(pool, labelled=(scores, labels))
    reference = Tower(replicas=kind).fit(pool, labelled=(scores, labels))
    expected = remaining_error_interval(vad.map_, reference._remaining, 0.05, 0.9, None)
    np.testing.assert_allclose(vad.interval(0.05), expected, rtol=1e-9)
    other = Tower(replicas="anchored" if kind == "seeds" else "seeds").fit(pool, labelled=(scores, labels))
    wrong = remaining_error_interval(vad.map_, other._remaining, 0.05, 0.9, None)
    assert np.abs(np.subtract(wrong, expected)).max() > 0.01  # another kind of replica gives another interval
    top = top_share(pool[:, 0], 0.05)
    error = vad.predict_proba(pool[top, 0]).mean() / expit(truth[top]).mean() - 1
    low, high = vad.interval(0.05, 0.99)
    assert low < error < high


def test_negative_rate_does_not_change_the_interval():
    _, pool, _ = rows_of(5_000)
    plain = VAD(curvature=True, intervals=True).fit(pool).interval(0.05)
    thinned = VAD(curvature=True, negative_rate=0.1, intervals=True).fit(pool - np.log(0.1)).interval(0.05)
    np.testing.assert_allclose(thinned, plain, atol=0.002)


@pytest.mark.filterwarnings("ignore:the replicas are identical")
def test_missing_interval_is_explained():
    _, pool, labels = rows_of(500)
    with pytest.raises(UncurseError, match="this VAD is not fitted"):
        VAD().interval(0.05)
    with pytest.raises(UncurseError, match=r"no intervals: fit VAD\(intervals=True\), or pass evidence collected"):
        VAD().fit(pool).interval(0.05)
    with pytest.raises(UncurseError, match="no intervals: they need replicas of logits or probabilities"):
        VAD().fit(pool[:, 0], variance=0.1).interval(0.05)
    with pytest.raises(UncurseError, match="no intervals: they need replicas of logits or probabilities"):
        VAD(link="identity", scale="value").fit(pool).interval(0.05)
    with pytest.raises(UncurseError, match="no intervals: the replicas are identical"):
        VAD(intervals=True).fit(np.repeat(pool[:, :1], 2, axis=1)).interval(0.05)
    tandem = VAD(intervals=True, calibrator="platt", link="probit").fit(pool, labelled=(pool, labels))
    with pytest.raises(UncurseError, match="no intervals: with a calibrator they need link='logistic', not 'probit'"):
        tandem.interval(0.05)


@pytest.mark.parametrize("options", [{"intervals": True}, {"shape": "free"}])
def test_a_pickled_fit_has_the_same_interval(options):
    vad = VAD(**options).fit(rows_of(500)[1])
    assert pickle.loads(pickle.dumps(vad)).interval(0.05) == vad.interval(0.05)


def test_the_interval_of_probabilities_is_that_of_their_logits():
    _, pool, _ = rows_of(2_000)
    for link in ("logistic", "identity"):
        plain = VAD(link=link, intervals=True).fit(pool).interval(0.05)
        other = VAD(link=link, intervals=True, scale="probability").fit(expit(pool)).interval(0.05)
        np.testing.assert_allclose(other, plain, rtol=1e-5)


# ---------------------------------------------------------------------------- labelled rows that were selected


def moments_of(scores, weights=None):
    return from_arrays(scores, sample_weight=weights).moments


@pytest.mark.parametrize("replicas", [2, 3])
def test_served_lead_detects_selection_by_the_served_score(replicas):
    _, pool, _ = rows_of(20_000, replicas)
    _, many, _ = rows_of(50_000, replicas, seed=1)
    selected = many[many[:, 0] > np.quantile(many[:, 0], 0.8)]
    lead = served_lead(moments_of(pool), moments_of(selected), KINDS["seeds"])
    expected = (selected[:, 0] - selected[:, 1:].mean(axis=1)).mean() - (pool[:, 0] - pool[:, 1:].mean(axis=1)).mean()
    assert lead == pytest.approx(expected, rel=0.02)  # up to the slopes of the columns, which differ by chance
    assert lead > 0.1
    assert served_lead(moments_of(pool), moments_of(selected), KINDS["anchored"]) == 0
    other = many[many[:, 1] > np.quantile(many[:, 1], 0.8)]
    backwards = served_lead(moments_of(pool), moments_of(other), KINDS["seeds"])
    assert (backwards < -0.1) == (replicas == 2)  # with two columns either may have selected the rows


@pytest.mark.parametrize(("pool_rows", "labelled_rows"), [(50, 5_000), (5_000, 50), (100, 100)])
def test_few_rows_do_not_falsely_indicate_selection(pool_rows, labelled_rows):
    for seed in range(40):
        pool, labelled = rows_of(pool_rows, seed=seed)[1], rows_of(labelled_rows, seed=1_000 + seed)[1]
        assert served_lead(moments_of(pool), moments_of(labelled), KINDS["seeds"]) == 0


@pytest.mark.parametrize("slopes", [[1.0, 1.1], [1.1, 1.0], [1.1, 1.0, 1.0], [1.0, 1.1, 0.9]])
def test_different_slopes_do_not_look_like_a_selection(slopes):
    def rows(count, mean, seed):
        rng = np.random.default_rng(seed)
        truth = rng.normal(mean, 0.9, count)
        return np.outer(truth, slopes) + 0.2 * rng.normal(size=(count, len(slopes)))

    pool, labelled = rows(40_000, -2.5, 0), rows(30_000, -1.8, 1)
    lead = (labelled[:, 0] - labelled[:, 1:].mean(axis=1)).mean() - (pool[:, 0] - pool[:, 1:].mean(axis=1)).mean()
    assert served_lead(moments_of(pool), moments_of(labelled), KINDS["seeds"]) == 0
    if slopes[0] != np.mean(slopes[1:]):
        assert abs(lead) > 0.06  # more than 0.15 standard deviations of the gap
    if slopes[0] > 1:
        many = rows(200_000, -2.5, 2)
        selected = many[many[:, 0] > np.quantile(many[:, 0], 0.8)]
        assert served_lead(moments_of(pool), moments_of(selected), KINDS["seeds"]) > 0.03


@pytest.mark.parametrize("size", [2, 3])
def test_the_lead_without_the_part_of_different_slopes_is_exact(size):
    rng = np.random.default_rng(0)
    slopes, noise = np.array([1.2, 1.0, 1.0])[:size], 0.5
    truth = rng.normal(-2.5, 0.9, 60_000)
    pool = np.outer(truth, slopes) + noise * rng.normal(size=(60_000, size))
    higher = np.outer(rng.normal(-2.0, 0.9, 60_000), slopes) + noise * rng.normal(size=(60_000, size))
    labelled = higher[higher[:, 0] > np.quantile(higher[:, 0], 0.7)]
    excess, mean = (lambda x: x[:, 0] - x[:, 1:].mean(axis=1)), (lambda x: x.mean(axis=1))
    covariance = np.cov(pool.T, ddof=0)
    variance = np.var(mean(pool)) - float(KINDS["seeds"].noise_variance(covariance)) / size
    slope = np.cov(excess(pool), mean(pool), ddof=0)[0, 1] / variance
    lead = excess(labelled).mean() - excess(pool).mean()
    wanted = lead - slope * (mean(labelled).mean() - mean(pool).mean())
    assert 0 < wanted < lead
    assert served_lead(moments_of(pool), moments_of(labelled), KINDS["seeds"]) == pytest.approx(wanted, rel=1e-9)


def test_unequal_noise_is_not_taken_for_a_selection():
    def rows(count, mean, seed):
        rng = np.random.default_rng(seed)
        return rng.normal(mean, 0.8, count)[:, None] + rng.normal(size=(count, 2)) * [0.1, 0.7]

    for columns in (slice(None), slice(None, None, -1)):
        pool, labelled = (moments_of(x[:, columns]) for x in (rows(40_000, -2.5, 0), rows(40_000, -1.0, 1)))
        assert served_lead(pool, labelled, KINDS["seeds"]) == 0


def test_served_lead_uses_the_effective_number_of_rows():
    rng = np.random.default_rng(0)
    for seed in range(40):
        pool, labelled = rows_of(5_000, seed=seed)[1], rows_of(5_000, seed=1_000 + seed)[1]
        heavy = np.where(rng.random(5_000) < 0.01, 1e6, 1.0)  # about 50 rows have weight
        assert served_lead(moments_of(pool), moments_of(labelled, heavy), KINDS["seeds"]) == 0


# ---------------------------------------------------------------------------- coverage


def covered(make, draws, alpha=0.05):
    hits = []
    for seed in range(draws):
        truth, served, fitted = make(seed)
        top = top_share(served, alpha)
        error = fitted.predict_proba(served[top]).mean() / expit(truth[top]).mean() - 1
        low, high = fitted.interval(alpha)
        hits.append(low < error < high)
    return np.mean(hits)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("pool_rows", "labelled_rows", "replicas"), [(5_000, 5_000, 2), (5_000, 500, 3), (2_000, 20_000, 3)]
)
def test_90_percent_intervals_of_tower_cover_the_error(pool_rows, labelled_rows, replicas):
    # Three standard errors of 120 draws below 90%; intervals may be too wide, not too narrow.
    assert covered(lambda seed: tower_of(pool_rows, labelled_rows, replicas, seed=seed), 120) > 0.9 - 0.082


@pytest.mark.theory
@pytest.mark.parametrize("options", [{"curvature": True}, {"shape": "free"}])
@pytest.mark.parametrize("replicas", [2, 3])
def test_90_percent_intervals_without_labels_cover_the_error(options, replicas):
    def make(seed):
        truth, pool, _ = rows_of(3_000, replicas, seed=seed)
        return truth, pool[:, 0], VAD(intervals=True, **options).fit(pool)

    assert covered(make, 60) > 0.9 - 0.116


# ---------------------------------------------------------------------------- edge cases


def test_unfitted_tower_has_no_interval():
    with pytest.raises(UncurseError, match="this Tower is not fitted"):
        Tower().interval(0.05)


def test_selection_by_the_served_score_does_not_widen_the_interval():
    _, pool, _ = rows_of(8_000, 2)
    _, many, labels = rows_of(80_000, 2, seed=1)
    keep = many[:, 0] > np.quantile(many[:, 0], 0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        selected = Tower().fit(pool, labelled=(many[keep], labels[keep])).interval(0.05)
    free = Tower().fit(pool, labelled=(many[:8_000], labels[:8_000])).interval(0.05)
    assert np.ptp(selected) < 2 * np.ptp(free)  # it is ten times as wide


def test_interval_of_one_positive_has_an_upper_bound_below_100():
    rng = np.random.default_rng(0)
    truth = rng.normal(-2, 0.8, 5_000)
    scores = truth[:, None] + 0.4 * rng.normal(size=(5_000, 3))
    labels = np.zeros(5_000, int)
    labels[rng.choice(5_000, p=expit(truth) / expit(truth).sum())] = 1
    assert Tower().fit(scores, labelled=(scores, labels)).interval(0.05)[1] < 100


def test_interval_of_auto_is_that_of_the_chosen_map():
    _, pool, _ = rows_of(5_000)
    auto = Auto().fit(pool)
    np.testing.assert_allclose(
        auto.interval(0.05), VAD(curvature=True, intervals=True).fit(pool).interval(0.05), atol=1e-6
    )


def test_intervals_count_that_slopes_of_bootstraps_differ():
    rng = np.random.default_rng(0)
    served = rng.normal(-2, 1, 20_000)
    noise = 0.4 * rng.normal(size=(20_000, 4))
    half_widths = []
    for slopes in ((1, 1, 1, 1), (0.9, 0.97, 1.03, 1.1)):  # standard deviation .086
        away = (served - served.mean())[:, None] * (np.array(slopes) - 1)
        scores = np.column_stack([served, served[:, None] + noise + away])
        low, high = Auto(replicas="bootstrap").fit(scores).interval(0.02)
        half_widths.append(np.log1p(high) - np.log1p(low))
    # The top 2% is 2.42 standard deviations above the mean: an error of .21 in log odds, times 1 − p of about one half.
    assert half_widths[1] / 2 > half_widths[0] / 2 + 0.1
