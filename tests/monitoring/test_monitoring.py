"""The monitor: its test against closed forms and simulation, its state, its verdicts."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import integrate, optimize, stats
from scipy.special import expit

from uncurse import (
    VAD,
    Affine,
    MonitorState,
    Segmented,
    UncursedClassifierCV,
    UncurseError,
    collect,
    monitor,
)
from uncurse.evidence import LogSpec, TopK, from_arrays
from uncurse.methods import DataRecord, FitRecord, Fitted
from uncurse.monitoring import judge
from uncurse.monitoring.prometheus import prometheus_text
from uncurse.monitoring.sequential import LabelSums, intervals, log_e_values, series_of, total
from uncurse.monitoring.state import Day, map_digest
from uncurse.monitoring.verdict import LambdaChange, ScoreChange

IDENTITY = Affine(1.0, 0.0)


def draw(seed, rows=20_000, factor=1.0, spread=0.0):
    """Logits whose odds are right up to a factor, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-2, 1, rows)
    odds = np.exp(logits) * factor * np.exp(spread * rng.normal(size=rows))
    return logits, (rng.random(rows) < odds / (1 + odds)).astype(int)


def rows_of(seed, sources=(), **options):
    logits, labels = draw(seed, **options)
    return replace(from_arrays(logits[:, None], labels), sources=sources)


# ---------------------------------------------------------------------------- the test


def test_cumulants_at_any_shift_follow_from_those_that_are_kept():
    predictions, weight = np.array([1e-6, 0.01, 0.3, 0.9]), np.array([100, 50, 20, 3])
    sums = LabelSums.of(predictions, [0, 0, 1, 1], weight)
    nodes = np.cos(np.pi * (np.arange(25) + 0.5) / 25)
    coefficients = np.polynomial.chebyshev.chebfit(nodes, sums.cumulants, 24)
    for shift in (-2.0, -0.7, -0.003, 0.1, 1.3, 2.0):
        exact = weight @ np.log1p(predictions * np.expm1(shift))
        assert np.polynomial.chebyshev.chebval(shift / 2, coefficients) == pytest.approx(exact, rel=1e-11, abs=1e-11)


def test_with_a_tolerance_mixed_errors_within_it_are_no_evidence():
    """Half of the rows too high by the tolerance, the others too low, and the worst case: all too high."""
    rng = np.random.default_rng(1)
    f, rows, draws, tolerance = 0.1, 400, 20_000, 0.05
    one = LabelSums.of(np.full(1, f), np.zeros(1), rows)
    for shares in ((0.5, 0.5), (1.0, 0.0), (0.0, 1.0)):
        observed = np.zeros((draws, 1))
        for share, factor in zip(shares, (1 + tolerance, 1 / (1 + tolerance)), strict=True):
            odds = f / (1 - f) * factor
            observed[:, 0] += rng.binomial(int(rows * share), odds / (1 + odds), draws)
        e = np.exp(log_e_values(observed, np.array([one.cumulants]), tolerance))
        assert e.mean() < 1 + 4 * e.std() / math.sqrt(draws)


def year(rng, repetitions, error=0.0, start=0, days=365):
    """Labels of a year, 1,000 predicted positives a day, of which the truth has 1 / (1 + error) from `start` on."""
    f, n = np.array([0.01, 0.03, 0.1]), np.array([40_000, 10_000, 3_000])
    factor = np.where(np.arange(days) < start, 1.0, 1 / (1 + error))
    observed = sum(rng.binomial(n[i], f[i] * factor, (repetitions, days)) for i in range(3)).astype(float)
    cumulants = np.broadcast_to(np.array(LabelSums.of(f, np.zeros(3), n).cumulants), (days, 25))
    sd = math.sqrt(n @ (f * (1 - f)))
    return observed, cumulants, (observed - n @ f) / sd


def delays(alarms):
    """Days until the first alarm."""
    return np.where(alarms.any(axis=1), alarms.argmax(axis=1) + 1.0, np.inf)


@pytest.mark.theory
def test_an_error_of_5_percent_is_found_nearly_as_soon_as_by_a_test_that_knows_the_horizon():
    rng = np.random.default_rng(3)
    z = year(rng, 2_000)[2]
    days = np.arange(1, 366)
    boundary = np.quantile(np.abs(np.cumsum(z, axis=1) / np.sqrt(days)).max(axis=1), 0.95)
    for error in (0.05, -0.05):
        observed, cumulants, z = year(rng, 2_000, error)
        ours = delays(log_e_values(observed, cumulants) >= math.log(20))
        fixed = delays(np.abs(np.cumsum(z, axis=1) / np.sqrt(days)) >= boundary)
        assert np.median(ours) <= 1.6 * np.median(fixed)
        assert ours.mean() <= 1.4 * fixed.mean()
    observed, cumulants, z = year(rng, 500, 0.05, start=100)  # a late error is found sooner
    ours = delays(log_e_values(observed, cumulants)[:, 100:] >= math.log(20))
    fixed = delays((np.abs(np.cumsum(z, axis=1) / np.sqrt(days)) >= boundary)[:, 100:])
    assert np.median(ours) < 0.7 * np.median(fixed)


@pytest.mark.theory
def test_the_confidence_sequence_covers_the_error_at_all_times():
    rng = np.random.default_rng(4)
    f, n = np.array([0.02, 0.2]), np.array([2_000, 200])
    odds = f / (1 - f) * 0.9
    truth = odds / (1 + odds)
    error, one, missed = float(n @ f / (n @ truth) - 1), LabelSums.of(f, np.zeros(2), n), 0
    for _ in range(200):
        sums = total([])
        for day in range(30):
            sums = sums + replace(one, observed=float(rng.binomial(n, truth).sum()))
            if day in (0, 1, 2, 5, 10, 29):
                low, high = intervals([sums])[0]
                if not low <= error <= high:
                    missed += 1
                    break
    assert missed <= 10 + 3 * math.sqrt(10)


def test_the_confidence_sequence_without_positives_has_one_end():
    low, high = intervals([LabelSums.of(np.full(1_000, 0.1), np.zeros(1_000))])[0]
    assert low > 0
    assert high == math.inf
    assert intervals([LabelSums.of([0.01], [0])]).tolist() == [[-1.0, math.inf]]


# ---------------------------------------------------------------------------- the state


def test_states_merge_in_any_order_and_any_shards():
    parts = [rows_of(seed, rows=3_000, sources=(f"{seed}.parquet",)) for seed in range(4)]
    days = ["2026-11-01", "2026-11-02", "2026-11-02", "2026-11-03"]
    one = None
    for part, day in zip(parts, days, strict=True):
        one = monitor(IDENTITY, part, one, day=day).state
    alone = [monitor(IDENTITY, part, day=day).state for part, day in zip(parts, days, strict=True)]
    other = alone[3].merge(alone[1]).merge(alone[0].merge(alone[2]))
    assert [day for day, _ in one.ordered] == [day for day, _ in other.ordered] == sorted(set(days))
    for (_, a), (_, b) in zip(one.ordered, other.ordered, strict=True):
        for mine, theirs in zip(series_of([a.sums]), series_of([b.sums]), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)
        assert (a.score_mean, a.score_sd) == pytest.approx((b.score_mean, b.score_sd), rel=1e-12)
        assert set(a.sources) == set(b.sources)


def test_state_survives_its_file(tmp_path):
    state = monitor(IDENTITY, rows_of(0, rows=1_000), day="2026-11-01").state
    state = replace(state, settled_before="2026-11-01T00:00", segments={"a": LabelSums.of([0.1], [1])})
    state.save(tmp_path / "state.json")
    assert MonitorState.load(tmp_path / "state.json") == state


def test_a_damaged_state_is_refused(tmp_path):
    state = monitor(IDENTITY, rows_of(0, rows=1_000), day="2026-11-01").state
    text = state.to_json()
    path = tmp_path / "state.json"
    for damaged in (text[:-20], text.replace('"monitor"', '"affine"'), "{}"):
        path.write_text(damaged)
        with pytest.raises(UncurseError):
            MonitorState.load(path)


def test_the_state_of_another_map_is_refused():
    state = monitor(IDENTITY, rows_of(0, rows=1_000)).state
    with pytest.raises(UncurseError, match="belongs to another map"):
        monitor(Affine(0.9, 0.0), rows_of(1, rows=1_000), state)
    assert map_digest(Affine(1.0, 0.0)) == map_digest(IDENTITY)
    one, other = ({name: Affine(0.5 + (name == "a"), 0.0) for name in names} for names in ("ab", "ba"))
    assert map_digest(Segmented(IDENTITY, one)) == map_digest(Segmented(IDENTITY, other))


def test_a_file_counts_once_under_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/log.parquet").write_bytes(b"rows")
    state = monitor(IDENTITY, rows_of(0, rows=1_000, sources=("logs/log.parquet",)), day="2026-11-01").state
    state = MonitorState.from_dict(state.to_dict())
    (tmp_path / "copy.parquet").write_bytes(b"rows")
    for other in ("logs/log.parquet", "./logs/log.parquet", "logs/*.parquet", "logs", "copy.parquet"):
        for day in ("2026-11-01", "2026-11-01T06:00", "2026-11-02"):
            with pytest.raises(UncurseError, match=r"\.parquet was counted on 2026-11-01 already"):
                monitor(IDENTITY, rows_of(0, rows=1_000, sources=(other,)), state, day=day)
    (tmp_path / "logs/log.parquet").write_bytes(b"other rows")  # a log that is written anew each day
    rows = rows_of(0, rows=1_000, sources=("logs/log.parquet",))
    with pytest.raises(UncurseError, match="or the day of these if the file has changed"):
        monitor(IDENTITY, rows, state, day="2026-11-01")
    assert monitor(IDENTITY, rows, state, day="2026-11-02").days == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [("cumulants", [1e30] * 25), ("cumulants", [1.0]), ("cumulants", ["a"] * 25), ("served", None), ("observed", 1e4)],
)
def test_sums_that_no_rows_have_are_refused(field, value):
    content = monitor(IDENTITY, rows_of(0, rows=1_000), day="2026-11-01").state.to_dict()
    content["days"]["2026-11-01"]["sums"][field] = value
    with pytest.raises(UncurseError):
        MonitorState.from_dict(content)


def test_the_error_of_the_served_scores_is_kept_too():
    score_map = Affine(0.8, -0.3)
    logits, labels = draw(3, rows=4_000)
    verdict = monitor(score_map, from_arrays(logits[:, None], labels), day="2026-11-01")
    found = verdict.since_fit
    assert found.served_error == pytest.approx(expit(logits).sum() / labels.sum() - 1, rel=1e-6)
    assert found.error == pytest.approx(score_map(logits).sum() / labels.sum() - 1, rel=1e-6)
    assert sum(sums.served for sums in verdict.state.buckets.values()) == pytest.approx(expit(logits).sum(), rel=1e-6)


def test_rows_that_look_like_the_pool_of_the_fit_are_warned_of():
    fitted, pool = fitted_on_pool(), labeled_pool(1)
    with pytest.warns(UserWarning, match="look like all candidates; the map is made for the rows that are selected"):
        monitor(fitted, pool)
    monitor(fitted, labeled_pool(1, shift=0.5))  # pytest makes warnings errors
    winners = replace(pool, spec=replace(pool.spec, top_k=TopK("request", 1)))
    monitor(fitted, winners)


# ---------------------------------------------------------------------------- verdicts


def test_a_valid_map_is_kept():
    verdict = monitor(IDENTITY, rows_of(0), day="2026-11-01")
    assert verdict.decision == "keep"
    assert verdict.since_fit.low < 0 < verdict.since_fit.high
    assert verdict.alarm is None
    assert verdict.days == 1


def test_a_state_alone_has_the_same_verdict():
    state = None
    for day, factor in enumerate((1.0, 0.9, 0.7), 1):
        verdict = monitor(IDENTITY, rows_of(day, factor=factor), state, day=f"2026-11-{day:02}", tolerance=0.02)
        state = verdict.state
    assert judge(state) == verdict


def test_predictions_that_are_too_high_raise_an_alarm():
    verdict = monitor(IDENTITY, rows_of(0, factor=0.7), day="2026-11-01")
    assert verdict.decision == "alarm"
    assert "too high" in verdict.reason
    assert verdict.alarm == "2026-11-01"
    logits, labels = draw(0, factor=0.7)
    # Up to the curvature of the predictions within cells.
    assert verdict.latest.error == pytest.approx((1 / (1 + np.exp(-logits))).sum() / labels.sum() - 1, rel=1e-7)


def test_an_alarm_stays_until_a_new_state():
    state = monitor(IDENTITY, rows_of(0, factor=0.8), day="2026-11-01").state
    verdict = monitor(IDENTITY, rows_of(1, factor=1.3), state, day="2026-11-02")
    assert (verdict.decision, verdict.alarm) == ("alarm", "2026-11-01")


def test_the_reason_names_the_day_on_which_the_error_began():
    state = None
    for day in range(1, 8):
        verdict = monitor(IDENTITY, rows_of(day, factor=0.75 if day > 4 else 1.0), state, day=f"2026-11-{day:02}")
        state = verdict.state
        assert verdict.decision == ("keep" if day <= 4 else "alarm")
        assert verdict.wrong_since is None or day > 4
    assert verdict.reason.startswith("since 2026-11-05 predictions are")
    rows, last = verdict.wrong_since, [day.sums for _, day in verdict.state.ordered[4:]]
    assert (rows.name, rows.rows, rows.observed) == ("since 2026-11-05", 60_000, total(last).observed)
    assert f"({rows.low:+.1%} to {rows.high:+.1%})" in verdict.reason.replace("95% confidence sequence ", "")


def test_errors_that_cancel_are_found_by_range_and_by_segment():
    logits, _ = draw(0, rows=60_000)
    rng = np.random.default_rng(1)
    odds = np.exp(logits + np.where(logits > -2, 0.3, -0.45))
    labels = rng.random(len(logits)) < odds / (1 + odds)
    scale = labels.sum() / (1 / (1 + np.exp(-logits))).sum()
    assert abs(scale - 1) < 0.15
    spread = monitor(Affine(1.0, math.log(scale) * 1.15), from_arrays(logits[:, None], labels))
    assert spread.decision in ("watch", "alarm")
    segments = np.where(np.arange(len(logits)) % 2, "a", "b")
    odds = np.exp(logits + np.where(segments == "a", 0.3, -0.35))
    labels = (rng.random(len(logits)) < odds / (1 + odds)).astype(int)
    verdict = monitor(IDENTITY, from_arrays(logits[:, None], labels, segments=segments))
    found = {part.name: part.error for part in verdict.segments}
    assert found["a"] < -0.15 < 0.15 < found["b"]
    if verdict.decision == "watch":
        assert "for segment" in verdict.reason


def test_weights_count_as_effective_rows():
    logits, labels = draw(0, rows=4_000, factor=0.8)
    plain = monitor(IDENTITY, from_arrays(logits[:, None], labels)).since_fit
    scaled = monitor(IDENTITY, from_arrays(logits[:, None], labels, sample_weight=np.full(4_000, 17.0))).since_fit
    assert scaled.error == pytest.approx(plain.error, rel=1e-12)
    assert scaled.e_value == pytest.approx(plain.e_value, rel=1e-6)
    weights = np.where(np.arange(4_000) % 4 == 0, 8.0, 1.0)
    uneven = monitor(IDENTITY, from_arrays(logits[:, None], labels, sample_weight=weights)).since_fit
    assert uneven.rows == pytest.approx(weights.sum() ** 2 / (weights @ weights))


def test_a_map_by_segment_is_compared_by_segment():
    logits, labels = draw(0, rows=20_000)
    segments = np.where(np.arange(20_000) % 2, "a", "b")
    shifted = logits + np.where(segments == "a", 1.0, 0.0)
    rows = from_arrays(shifted[:, None], labels, segments=segments)
    score_map = Segmented(IDENTITY, {"a": Affine(1.0, -1.0)})
    assert monitor(score_map, rows).decision == "keep"
    with pytest.raises(UncurseError, match="segment"):
        monitor(score_map, from_arrays(shifted[:, None], labels))


def fitted_on_pool(seed=0, noise=0.4):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-3, 1, 50_000)
    pool = from_arrays(truth[:, None] + noise * rng.normal(size=(50_000, 3)))
    return VAD(scale="logit", replicas="seeds").fit(pool).fitted_


def labeled_pool(seed, rows=50_000, shift=0.0, noise=0.4, fall=0.0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-3 + shift, 1, rows)
    labels = (rng.random(rows) < 1 / (1 + np.exp(fall - truth))).astype(int)
    return from_arrays(truth[:, None] + noise * rng.normal(size=(rows, 3)), labels)


def test_scores_and_lambda_are_compared_with_the_fit():
    fitted = fitted_on_pool()
    with pytest.warns(UserWarning, match="look like all candidates"):
        same = monitor(fitted, labeled_pool(1), pool=labeled_pool(1))
    assert same.decision == "keep"
    assert same.scores.stability < 0.01
    assert abs(same.shrinkage.standard_errors) < 4
    moved = monitor(fitted, labeled_pool(2, rows=900), pool=labeled_pool(3, shift=0.5))
    assert moved.decision in ("watch", "alarm")
    assert moved.scores.mean == pytest.approx(0.5 / math.hypot(1, 0.4), abs=0.03)
    with pytest.warns(UserWarning, match="look like all candidates"):
        noisy = monitor(fitted, labeled_pool(1), pool=labeled_pool(3, noise=0.6))
    assert noisy.shrinkage.standard_errors < -3
    assert noisy.decision == "watch"
    assert "λ changed" in noisy.reason


def test_rows_of_a_day_before_the_newest_one_are_counted_with_a_warning():
    state = monitor(IDENTITY, rows_of(0, rows=1_000), day="2026-11-05").state
    with pytest.warns(UserWarning, match="day 2026-11-04 is before 2026-11-05"):
        late = monitor(IDENTITY, rows_of(1, rows=1_000), state, day="2026-11-04")
    assert [day for day, _ in late.state.ordered] == ["2026-11-04", "2026-11-05"]


def test_scores_that_differ_from_the_earlier_days_are_watched():
    def calibrated(seed, rows=5_000, mean=-2.0):
        rng = np.random.default_rng(seed)
        logits = rng.normal(mean, 1, rows)
        return from_arrays(logits[:, None], rng.random(rows) < 1 / (1 + np.exp(-logits)))

    state = None
    for day in range(1, 4):
        state = monitor(IDENTITY, calibrated(day), state, day=f"2026-11-0{day}").state
    moved = monitor(IDENTITY, calibrated(4, mean=-1.5), state, day="2026-11-04")
    assert moved.decision == "watch"
    assert "differ from those of the earlier days: their mean moved by +0.5" in moved.reason
    assert moved.scores.mean == pytest.approx(0.5, abs=0.05)
    assert judge(moved.state) == moved
    few = monitor(IDENTITY, calibrated(4, rows=10, mean=-1.5), state, day="2026-11-04")
    assert few.decision == "keep"  # ten rows differ by as much by chance


def test_a_day_without_rows_shows_no_change():
    empty, full = total([]), LabelSums.of([0.1], [10.0], [100])
    for sums in ((empty, full), (full, empty), (empty, empty)):
        days = {f"2026-11-0{i}": Day(one, -2.0 - i, 1.0) for i, one in enumerate(sums, 1)}
        assert judge(MonitorState("map", days)).decision == "keep"


def days_of(*days):
    """A state of days with these means and standard deviations of the score, and numbers of rows."""
    sums = [LabelSums.of([0.1], [0.1 * rows], [rows]) for _, _, rows in days]
    return MonitorState("map", {f"2026-11-0{i + 1}": Day(sums[i], *day[:2]) for i, day in enumerate(days)})


def test_the_change_between_days_is_the_stability_index_of_normal_distributions():
    change = judge(days_of((-2.0, 0.8, 1000), (-1.5, 1.2, 1000))).scores
    new, old = stats.norm(-1.5, 1.2), stats.norm(-2.0, 0.8)
    exact = integrate.quad(lambda x: (new.pdf(x) - old.pdf(x)) * (new.logpdf(x) - old.logpdf(x)), -12, 9)[0]
    assert (change.mean, change.spread, change.stability) == pytest.approx((0.625, 1.5, exact))
    same = judge(days_of((-2.0, 0.0, 1000), (-2.0, 0.0, 1000))).scores
    assert (same.mean, same.spread, same.stability) == (0.0, 1.0, 0.0)


def test_the_last_day_is_compared_with_all_days_before_it():
    change = judge(days_of((0.0, 1.0, 100), (1.0, 1.0, 100), (2.0, 1.0, 200), (3.0, 1.0, 10))).scores
    sd = math.sqrt(1 + (100 * 1.25**2 + 100 * 0.25**2 + 200 * 0.75**2) / 400)
    assert (change.mean, change.spread) == pytest.approx((1.75 / sd, 1 / sd))
    assert judge(days_of((0.0, 1.0, 100))).scores is None


def test_more_labels_leave_less_to_decide():
    needed = [monitor(IDENTITY, rows_of(0, rows=rows)).positives_needed for rows in (5, 500, 5_000, 200_000)]
    assert needed[0] > 4_000
    assert (np.diff(needed) < 0).all()
    assert needed[-1] == 0


def test_the_map_of_an_estimator_is_monitored():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = rng.random(300) < expit(X.sum(axis=1))
    clf = UncursedClassifierCV(random_state=0).fit(X, y)
    served = clf.estimator_.predict_proba(X)[:, 1:]
    rows = from_arrays(served, y, spec=LogSpec(("s0",), "probability", label="y"))
    assert monitor(clf, rows).since_fit == monitor(clf.map_, rows).since_fit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"map": 3}, "int"),
        ({"evidence": [1, 2]}, "evidence is of type list"),
        ({"evidence": from_arrays([[0.0]], [1], histograms=False)}, "holds no logits"),
        ({"state": "state.json"}, "state is of type str"),
        ({"tolerance": -0.1}, "tolerance=-0.1"),
        ({"tolerance": float("nan")}, "tolerance"),
        ({"day": "yesterday"}, "day is 'yesterday'"),
        ({"map": Affine(1.0, 0.0, scale="probability")}, "scale"),
    ],
)
def test_bad_arguments_are_named(change, message):
    arguments = {"map": IDENTITY, "evidence": rows_of(0, rows=100), **change}
    with pytest.raises(UncurseError, match=message):
        monitor(**arguments)


def test_negative_sampling_is_corrected():
    logits, labels = draw(0, rows=50_000)
    rate = 0.1
    log = pl.DataFrame({"s0": logits - math.log(rate), "click": labels})
    rows = collect(log, "s0", scale="logit", label="click", negative_sampling_rate=rate)
    record = FitRecord("vad", DataRecord(10, ("s0",)), negative_sampling_rate=rate)
    assert monitor(Fitted(Affine(1.0, math.log(rate)), record), rows).decision == "keep"


# ---------------------------------------------------------------------------- the test by direct computation

SIZES = np.geomspace(0.004, 1.0, 33)
PREDICTIONS, ROWS = np.array([0.02, 0.2, 0.6]), np.array([2_000, 300, 100])


def direct_cumulant(shift):
    return ROWS @ np.log1p(PREDICTIONS * np.expm1(shift))


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_e_values_of_several_days_are_sums_over_sizes_and_first_days(tolerance):
    one = LabelSums.of(PREDICTIONS, np.zeros(3), ROWS)
    observed = np.array([150.0, 190.0, 120.0, 175.0])
    edge = math.log1p(tolerance)
    starts = [0.7, *(0.3 * (1 / (1 + math.log(t)) - 1 / (1 + math.log(t + 1))) for t in range(1, 4))]
    wanted = []
    for t in range(4):
        total_e = 0.3 / (1 + math.log(t + 1))  # errors that have not begun
        for first in range(t + 1):
            y, days = observed[first : t + 1].sum(), t + 1 - first
            for sign in (-1, 1):
                null = sign * edge * y - days * direct_cumulant(sign * edge)
                ratios = [sign * (edge + s) * y - days * direct_cumulant(sign * (edge + s)) - null for s in SIZES]
                total_e += starts[first] * np.exp(ratios).sum() / 66
        wanted.append(math.log(total_e))
    found = log_e_values(observed, np.array([one.cumulants] * 4), tolerance)
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("observed", [15.0, 50.0, 100.0, 160.0, 230.0, 500.0, 620.0])
def test_intervals_end_where_the_likelihood_falls_below_its_bound(fixed, observed):
    sums = replace(LabelSums.of(PREDICTIONS, np.zeros(3), ROWS), observed=observed)

    def likelihood(shift):
        return shift * observed - direct_cumulant(shift)

    def expected(shift):
        odds = PREDICTIONS / (1 - PREDICTIONS) * math.exp(shift)
        return ROWS @ (odds / (1 + odds))

    best = optimize.brentq(lambda shift: expected(shift) - observed, -4, 4)
    best = float(np.clip(best, -2, 2))
    if fixed:
        least = likelihood(best) - stats.chi2.ppf(0.95, 1) / 2
    else:
        mixture = np.mean([math.exp(likelihood(sign * size)) for sign in (-1, 1) for size in SIZES])
        least = math.log(0.9 * mixture + 0.1) + math.log(0.05)
    wanted = []
    for far, none in ((2.0, -1.0), (-2.0, math.inf)):  # without a bound, the error is above −1, or any
        if likelihood(far) >= least:
            wanted.append(none)
        else:
            end = optimize.brentq(lambda shift: likelihood(shift) - least, best, far)
            wanted.append(ROWS @ PREDICTIONS / expected(end) - 1)
    (found,) = intervals([sums], fixed=fixed).tolist()
    assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(("observed", "decision"), [(124, "keep"), (129, "watch"), (135, "alarm")])
def test_an_e_value_of_20_raises_an_alarm(observed, decision):
    rows = from_arrays(np.full((1_000, 1), math.log(0.1 / 0.9)), np.arange(1_000) < observed)
    found = monitor(IDENTITY, rows, day="2026-11-01")
    assert found.decision == decision
    assert (found.since_fit.e_value >= 5, found.since_fit.e_value >= 20) == (decision != "keep", decision == "alarm")


# ---------------------------------------------------------------------------- ranges of predictions and digests


def test_ranges_of_predictions_have_edges_of_1_2_and_5():
    p = np.array([1e-6, 1e-5, 1.9e-5, 2.1e-5, 0.03, 0.05, 0.49, 0.51])
    state = monitor(IDENTITY, from_arrays(np.log(p / (1 - p))[:, None], p > 0.1)).state
    rows = {name: sums.rows for name, sums in state.buckets.items()}
    assert rows == {
        "below 0.001%": 1, "0.001% to 0.002%": 2, "0.002% to 0.005%": 1, "2% to 5%": 1, "5% to 10%": 1,
        "20% to 50%": 1, "50% and above": 1,
    }  # fmt: skip
    assert [part.name for part in judge(state.merge(state)).buckets] == list(rows)


def test_the_latest_settled_time_is_kept():
    early, late = "2026-11-16T06:00+02:00", "2026-11-16T05:00"  # the second is later, in UTC
    states = [MonitorState("map", settled_before=time) for time in (early, late, None)]
    for one, other, wanted in ((0, 1, late), (1, 0, late), (0, 2, early), (2, 2, None)):
        assert states[one].merge(states[other]).settled_before == wanted


# ---------------------------------------------------------------------------- metrics for Prometheus


def test_every_number_of_a_verdict_is_a_metric():
    logits, labels = draw(0, rows=2_000)
    segments = np.where(np.arange(2_000) % 2, 'a "b"\\\n', "c")
    found = monitor(IDENTITY, from_arrays(logits[:, None], labels, segments=segments), day="2026-11-01")
    found = replace(
        found, scores=ScoreChange("pool of the fit", 0.25, 1.5, 0.125), shrinkage=LambdaChange(0.9, 0.75, -2.5)
    )
    lines = prometheus_text(found, "main").splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    values = {name: float(value) for name, value in values.items()}
    parts = {'rows="since_fit"': found.since_fit, 'rows="latest"': found.latest}
    parts |= {f'rows="since_fit",prediction="{part.name}"': part for part in found.buckets}
    escaped = {'a "b"\\\n': r"a \"b\"\\\n", "c": "c"}
    parts |= {f'rows="since_fit",segment="{escaped[part.name]}"': part for part in found.segments}
    names = {"rows": "rows", "predicted": "predicted", "observed": "observed", "error": "error", "e_value": "e_value"}
    names["served_error"] = "served_error"
    wanted = {
        f'uncurse_{metric}{{map="main",{labels}}}': getattr(part, name)
        for metric, name in {**names, "error_low": "low", "error_high": "high"}.items()
        for labels, part in parts.items()
    }
    for name in ("keep", "watch", "alarm"):
        wanted[f'uncurse_decision{{map="main",decision="{name}"}}'] = float(name == found.decision)
    alone = {"days": 1, "positives_needed": found.positives_needed, "score_mean_change": 0.25}
    alone |= {"score_spread_ratio": 1.5, "score_stability_index": 0.125, "lambda": 0.75, "lambda_change": -2.5}
    wanted |= {f'uncurse_{metric}{{map="main"}}': value for metric, value in alone.items()}
    assert values == {name: value for name, value in wanted.items() if value is not None}
    metrics = {name.split("{")[0] for name in values}
    for word in ("HELP", "TYPE"):
        described = [line.split()[2] for line in lines if line.startswith(f"# {word} ")]
        assert sorted(described) == sorted(metrics)
    assert 'map=""' in prometheus_text(found)
    assert "score" not in prometheus_text(replace(found, scores=None))
    assert "lambda" not in prometheus_text(replace(found, shrinkage=None))
