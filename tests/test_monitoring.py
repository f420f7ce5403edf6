"""The monitor: its test against closed forms and simulation, its state, its verdicts."""

import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import integrate, optimize, stats
from scipy.special import expit

from uncurse import (
    VAD,
    Affine,
    Cells,
    Grouped,
    LogSpec,
    MonitorState,
    UncursedClassifierCV,
    UncurseError,
    collect,
    monitor,
)
from uncurse.debias import DataRecord, FitRecord, Fitted
from uncurse.debias.records import ScoreSummary
from uncurse.evidence import from_arrays
from uncurse.monitoring import (
    Calibration,
    Day,
    LabelSums,
    LambdaChange,
    ScoreChange,
    drift,
    judge,
    verdict,
)
from uncurse.monitoring.prometheus import prometheus_text
from uncurse.monitoring.sequential import (
    calibration_of,
    e_value,
    error_words,
    intervals,
    likely_start,
    log_e_values,
    total,
)
from uncurse.monitoring.state import map_digest, range_place
from uncurse.report.provenance import record_of

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


def test_e_value_of_one_day_is_the_mixture_of_likelihood_ratios():
    predictions, labels = np.full(500, 0.2), np.arange(500) < 130
    sums = LabelSums.of(predictions, labels)

    def ratio(size):  # averaged over both directions
        return np.mean([np.exp(shift * 130 - 500 * np.log1p(0.2 * np.expm1(shift))) for shift in (size, -size)], axis=0)

    # Sizes are log-uniform on a grid from 0.004 to 1; the integral is over the half steps around it.
    step = math.log(1 / 0.004) / 32
    low, high = math.log(0.004) - step / 2, step / 2
    mixture = integrate.quad(lambda x: ratio(math.exp(x)), low, high)[0] / (high - low)
    found = log_e_values(np.array([sums.observed]), np.array([sums.cumulants]))[0]
    assert math.exp(found) == pytest.approx(0.7 * mixture + 0.3, rel=0.01)


def test_e_value_is_a_martingale():
    rng = np.random.default_rng(0)
    f, n, draws = np.array([0.02, 0.2]), np.array([300, 30]), 40_000
    one = LabelSums.of(f, np.zeros(2), n)
    observed = (rng.binomial(n[0], f[0], (draws, 3)) + rng.binomial(n[1], f[1], (draws, 3))).astype(float)
    e = np.exp(log_e_values(observed, np.broadcast_to(np.array(one.cumulants), (3, 25))))
    for t in range(3):
        assert abs(e[:, t].mean() - 1) < 4 * e[:, t].std() / math.sqrt(draws)


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
def test_a_valid_map_raises_an_alarm_in_at_most_5_percent_of_the_years():
    observed, cumulants, _ = year(np.random.default_rng(2), 2_000)
    alarms = (log_e_values(observed, cumulants) >= math.log(20)).any(axis=1)
    assert alarms.mean() <= 0.05
    # Three standard errors below the bound, so that the bound itself is shown.
    assert alarms.mean() + 3 * math.sqrt(alarms.mean() / 2_000) < 0.05


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


def test_the_interval_of_one_look_covers_the_error_in_95_percent_of_the_days():
    rng = np.random.default_rng(6)
    f, n, days = np.array([0.02, 0.2]), np.array([5_000, 500]), 2_000
    odds = f / (1 - f) * 1.2
    truth = odds / (1 + odds)
    one = LabelSums.of(f, np.zeros(2), n)
    found = intervals(
        [replace(one, observed=float(y)) for y in rng.binomial(n, truth, (days, 2)).sum(axis=1)], fixed=True
    )
    error = float(n @ f / (n @ truth) - 1)
    covered = ((found[:, 0] <= error) & (error <= found[:, 1])).mean()
    assert abs(covered - 0.95) < 3 * math.sqrt(0.05 * 0.95 / days)


def test_the_interval_of_one_look_is_narrower_than_the_confidence_sequence():
    sums = [LabelSums.of([0.1], [y], [1_000]) for y in (0, 1, 90, 130, 400)]
    fixed, at_all_times = intervals(sums, fixed=True), intervals(sums)
    assert (fixed[:, 0] >= at_all_times[:, 0]).all()
    assert (fixed[:, 1] <= at_all_times[:, 1]).all()
    np.testing.assert_allclose(intervals(sums[2:3], fixed=True), fixed[2:3])
    np.testing.assert_allclose(intervals(sums[2:3]), at_all_times[2:3])
    normal = stats.norm.ppf(0.975) * math.sqrt(1_000 * 0.09 * 0.91) / 90 * 1.11
    assert fixed[2, 1] - fixed[2, 0] == pytest.approx(2 * normal, rel=0.05)


def test_interval_shrinks_towards_the_error_as_rows_are_added():
    sums = LabelSums.of([0.1], [95.0], [1_000])
    widths = []
    for _ in range(4):
        low, high = intervals([sums])[0]
        assert low < sums.error < high
        widths.append(high - low)
        sums = total([sums] * 10)
    assert (np.diff(widths) < 0).all()
    normal = 2 * stats.norm.ppf(0.975) * (1 + sums.error) / math.sqrt(sums.observed)
    low, high = intervals([sums])[0]
    assert normal < high - low < 4 * normal


def test_the_day_on_which_an_error_began_is_found():
    observed, cumulants, _ = year(np.random.default_rng(5), 1, 0.1, start=20, days=40)
    assert abs(likely_start(observed[0], cumulants) - 20) <= 3


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
    np.testing.assert_allclose(one.series()[0], other.series()[0], rtol=1e-12)
    np.testing.assert_allclose(one.series()[1], other.series()[1], rtol=1e-12)
    for (_, a), (_, b) in zip(one.ordered, other.ordered, strict=True):
        assert (a.score_mean, a.score_sd) == pytest.approx((b.score_mean, b.score_sd), rel=1e-12)
        assert set(a.sources) == set(b.sources)


def test_only_states_are_merged():
    with pytest.raises(UncurseError, match="cannot merge a state with a dict; pass a MonitorState"):
        MonitorState("map").merge({})
    with pytest.raises(UncurseError, match="belongs to another map"):
        MonitorState("map").merge(MonitorState("other"))


def test_state_survives_its_file(tmp_path):
    state = monitor(IDENTITY, rows_of(0, rows=1_000), day="2026-11-01").state
    state = replace(state, settled_before="2026-11-01T00:00", groups={"a": LabelSums.of([0.1], [1])})
    state.save(tmp_path / "state.json")
    assert MonitorState.load(tmp_path / "state.json") == state


def test_a_damaged_state_is_refused(tmp_path):
    state = monitor(IDENTITY, rows_of(0, rows=1_000), day="2026-11-01").state
    text = state.to_json()
    path = tmp_path / "state.json"
    for damaged in (text[:-20], text.replace("2026-11-01", "someday"), text.replace('"monitor"', '"affine"'), "{}"):
        path.write_text(damaged)
        with pytest.raises(UncurseError):
            MonitorState.load(path)


def test_the_state_of_another_map_is_refused():
    state = monitor(IDENTITY, rows_of(0, rows=1_000)).state
    with pytest.raises(UncurseError, match="belongs to another map"):
        monitor(Affine(0.9, 0.0), rows_of(1, rows=1_000), state)
    assert map_digest(Affine(1.0, 0.0)) == map_digest(IDENTITY)
    one, other = ({name: Affine(0.5 + (name == "a"), 0.0) for name in names} for names in ("ab", "ba"))
    assert map_digest(Grouped(IDENTITY, one)) == map_digest(Grouped(IDENTITY, other))


def test_the_same_file_counts_once_a_day():
    rows = rows_of(0, rows=1_000, sources=("log.parquet",))
    state = monitor(IDENTITY, rows, day="2026-11-01").state
    with pytest.raises(UncurseError, match=r"log.parquet was counted on 2026-11-01"):
        monitor(IDENTITY, rows, state, day="2026-11-01")
    assert monitor(IDENTITY, rows, state, day="2026-11-02").days == 2  # a log that is written anew each day


def add_one_day(folder, day):
    from uncurse import documents

    path = folder / "state.json"
    with documents.locked(path):
        state = MonitorState.load(path) if path.exists() else None
        time.sleep(0.05)
        monitor(IDENTITY, rows_of(day, rows=200), state, day=f"2026-11-{day:02}").state.save(path)


def test_concurrent_monitors_lose_no_day(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=add_one_day, args=(tmp_path, day)) for day in range(1, 7)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert len(MonitorState.load(tmp_path / "state.json").days) == 6


def test_a_killed_monitor_leaves_the_last_state(tmp_path):
    path = tmp_path / "state.json"
    monitor(IDENTITY, rows_of(0, rows=200), day="2026-11-01").state.save(path)
    before = path.read_text()
    code = (
        "import sys, os, time; from uncurse import documents, MonitorState\n"
        "with documents.locked(sys.argv[1]):\n"
        "    with documents.replacing(sys.argv[1]) as file:\n"
        "        file.write_text('half a st'); print('writing', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        os.kill(process.pid, signal.SIGKILL)
    assert path.read_text() == before
    add_one_day(tmp_path, 2)  # the lock has ended with the process
    assert len(MonitorState.load(path).days) == 2


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
    assert judge(state, tolerance=0.02) == verdict
    with pytest.raises(UncurseError, match="holds no day"):
        judge(MonitorState(map_digest(IDENTITY)))
    with pytest.raises(UncurseError, match="state is of type NoneType; pass the state of a Verdict"):
        judge(None)


@pytest.mark.parametrize("tolerance", [5.0, 1.0, -0.5, -2.0, math.nan, "x"])
def test_a_verdict_needs_a_tolerance_that_is_a_share(tolerance):
    state = monitor(IDENTITY, rows_of(0), day="2026-11-01").state
    with pytest.raises(UncurseError, match="tolerance"):
        judge(state, tolerance=tolerance)
    assert judge(state, tolerance=0.999).decision == "keep"


def test_predictions_that_are_too_high_need_a_refit():
    verdict = monitor(IDENTITY, rows_of(0, factor=0.7), day="2026-11-01")
    assert verdict.decision == "refit"
    assert "too high" in verdict.reason
    assert verdict.alarm == "2026-11-01"
    logits, labels = draw(0, factor=0.7)
    assert verdict.latest.error == pytest.approx((1 / (1 + np.exp(-logits))).sum() / labels.sum() - 1, rel=1e-9)


def test_an_alarm_stays_until_the_refit():
    state = monitor(IDENTITY, rows_of(0, factor=0.8), day="2026-11-01").state
    verdict = monitor(IDENTITY, rows_of(1, factor=1.3), state, day="2026-11-02")
    assert (verdict.decision, verdict.alarm) == ("refit", "2026-11-01")


def test_the_reason_names_the_day_on_which_the_error_began():
    state = None
    for day in range(1, 8):
        verdict = monitor(IDENTITY, rows_of(day, factor=0.75 if day > 4 else 1.0), state, day=f"2026-11-{day:02}")
        state = verdict.state
        assert verdict.decision == ("keep" if day <= 4 else "refit")
        assert verdict.wrong_since is None or day > 4
    assert verdict.reason.startswith("since 2026-11-05 predictions are")
    rows, last = verdict.wrong_since, [day.sums for _, day in verdict.state.ordered[4:]]
    assert (rows.name, rows.rows, rows.observed) == ("since 2026-11-05", 60_000, total(last).observed)
    assert f"({rows.low:+.1%} to {rows.high:+.1%})" in verdict.reason.replace("95% confidence sequence ", "")


def test_errors_that_cancel_are_found_by_range_and_by_group():
    logits, _ = draw(0, rows=60_000)
    rng = np.random.default_rng(1)
    odds = np.exp(logits + np.where(logits > -2, 0.3, -0.45))
    labels = rng.random(len(logits)) < odds / (1 + odds)
    scale = labels.sum() / (1 / (1 + np.exp(-logits))).sum()
    assert abs(scale - 1) < 0.15
    spread = monitor(Affine(1.0, math.log(scale) * 1.15), from_arrays(logits[:, None], labels))
    assert spread.decision in ("watch", "refit")
    groups = np.where(np.arange(len(logits)) % 2, "a", "b")
    odds = np.exp(logits + np.where(groups == "a", 0.3, -0.35))
    labels = (rng.random(len(logits)) < odds / (1 + odds)).astype(int)
    verdict = monitor(IDENTITY, from_arrays(logits[:, None], labels, groups=groups))
    found = {part.name: part.error for part in verdict.groups}
    assert found["a"] < -0.15 < 0.15 < found["b"]
    if verdict.decision == "watch":
        assert "for group" in verdict.reason


def test_groups_without_cells_are_left_out_unless_the_map_needs_them():
    logits, labels = draw(0, rows=1_000)
    rows = from_arrays(logits[:, None], labels, groups=np.where(np.arange(1_000) % 2, "a", "b"))
    some = replace(rows, groups={**rows.groups, "a": replace(rows.groups["a"], cells=None)})
    found = monitor(IDENTITY, some, day="2026-11-01")
    assert [part.name for part in found.groups] == ["b"]
    assert found.since_fit == monitor(IDENTITY, rows, day="2026-11-01").since_fit
    with pytest.raises(UncurseError, match="more than 200 groups is collected without their cells"):
        monitor(Grouped(IDENTITY, {}), some)


def test_weights_count_as_effective_rows():
    logits, labels = draw(0, rows=4_000, factor=0.8)
    plain = monitor(IDENTITY, from_arrays(logits[:, None], labels)).since_fit
    scaled = monitor(IDENTITY, from_arrays(logits[:, None], labels, sample_weight=np.full(4_000, 17.0))).since_fit
    assert scaled.error == pytest.approx(plain.error, rel=1e-12)
    assert scaled.e_value == pytest.approx(plain.e_value, rel=1e-6)
    weights = np.where(np.arange(4_000) % 4 == 0, 8.0, 1.0)
    uneven = monitor(IDENTITY, from_arrays(logits[:, None], labels, sample_weight=weights)).since_fit
    assert uneven.rows == pytest.approx(weights.sum() ** 2 / (weights @ weights))


def test_a_map_by_group_is_compared_by_group():
    logits, labels = draw(0, rows=20_000)
    groups = np.where(np.arange(20_000) % 2, "a", "b")
    shifted = logits + np.where(groups == "a", 1.0, 0.0)
    rows = from_arrays(shifted[:, None], labels, groups=groups)
    score_map = Grouped(IDENTITY, {"a": Affine(1.0, -1.0)})
    assert monitor(score_map, rows).decision == "keep"
    with pytest.raises(UncurseError, match="group"):
        monitor(score_map, from_arrays(shifted[:, None], labels))


def fitted_on_pool(seed=0, noise=0.4):
    from uncurse import VAD

    rng = np.random.default_rng(seed)
    truth = rng.normal(-3, 1, 50_000)
    pool = from_arrays(truth[:, None] + noise * rng.normal(size=(50_000, 3)))
    vad = VAD().fit(pool)
    return Fitted(vad.map_, record_of(vad, pool))


def labelled_pool(seed, rows=50_000, shift=0.0, noise=0.4, fall=0.0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-3 + shift, 1, rows)
    labels = (rng.random(rows) < 1 / (1 + np.exp(fall - truth))).astype(int)
    return from_arrays(truth[:, None] + noise * rng.normal(size=(rows, 3)), labels)


def test_scores_and_lambda_are_compared_with_the_fit():
    fitted = fitted_on_pool()
    same = monitor(fitted, labelled_pool(1))
    assert same.decision == "keep"
    assert same.scores.stability < 0.01
    assert abs(same.shrinkage.standard_errors) < 4
    moved = monitor(fitted, labelled_pool(2, rows=2_000), pool=labelled_pool(3, shift=0.5))
    assert moved.decision in ("watch", "refit")
    assert moved.scores.mean == pytest.approx(0.5 / math.hypot(1, 0.4), abs=0.03)
    noisy = monitor(fitted, labelled_pool(1), pool=labelled_pool(3, noise=0.6))
    assert noisy.shrinkage.standard_errors < -3
    assert noisy.decision == "watch"
    assert "λ changed" in noisy.reason


def test_selected_rows_are_not_compared_with_the_pool():
    from uncurse import TopK

    rows = labelled_pool(1, rows=5_000)
    selected = replace(rows, spec=replace(rows.spec, top_k=TopK("request", 1)))
    verdict = monitor(fitted_on_pool(), selected)
    assert verdict.scores is None
    assert verdict.shrinkage is None


def with_labelled_rows(fitted, rows):
    """A fit whose labelled rows have these scores."""
    from uncurse.report.provenance import summarize_scores

    labelled = DataRecord(rows.rows, ("s0",), scores=summarize_scores(rows.cells))
    return replace(fitted, record=replace(fitted.record, labelled=labelled))


def test_labelled_rows_of_another_system_are_no_reason_to_watch():
    fitted = with_labelled_rows(fitted_on_pool(), labelled_pool(5, shift=-1.5))
    state = None
    for day in range(1, 4):
        verdict = monitor(fitted, labelled_pool(10 + day, rows=5_000), state, day=f"2026-11-0{day}")
        assert verdict.decision == "keep"
        assert verdict.scores.compared_with == ("labelled rows" if state is None else "earlier days")
        state = verdict.state
    assert verdict.scores.stability < 0.01


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
    assert "differ from those of the earlier days (mean +0.5" in moved.reason
    assert moved.scores.mean == pytest.approx(0.5, abs=0.05)
    assert judge(moved.state) == moved
    few = monitor(IDENTITY, calibrated(4, rows=10, mean=-1.5), state, day="2026-11-04")
    assert few.decision == "keep"  # ten rows differ by as much by chance


def test_a_day_without_rows_shows_no_change():
    empty, full = LabelSums.from_dict(total([]).to_dict()), LabelSums.of([0.1], [10.0], [100])
    for sums in ((empty, full), (full, empty), (empty, empty)):
        days = {f"2026-11-0{i}": Day(one, -2.0 - i, 1.0) for i, one in enumerate(sums, 1)}
        assert judge(MonitorState("map", days)).decision == "keep"


@pytest.mark.parametrize("prediction", [2.0, -0.1, math.nan])
def test_sums_of_numbers_that_are_no_probabilities_are_refused(prediction):
    with pytest.raises(UncurseError, match="pass probabilities, from 0 to 1"):
        LabelSums.of([0.5, prediction], [0, 1])
    assert LabelSums.of([0.0, 1.0], [0, 1]).predicted == 1


def test_the_change_between_days_is_the_stability_index_of_normal_distributions():
    from uncurse.monitoring.drift import day_change

    def day(mean, sd):
        return Day(LabelSums.of([0.1], [0], [1000]), mean, sd)

    change, clear = day_change(day(-1.5, 1.2), [day(-2.0, 0.8)])
    new, old = stats.norm(-1.5, 1.2), stats.norm(-2.0, 0.8)
    exact = integrate.quad(lambda x: (new.pdf(x) - old.pdf(x)) * (new.logpdf(x) - old.logpdf(x)), -12, 9)[0]
    assert (change.mean, change.spread, change.stability) == pytest.approx((0.625, 1.5, exact))
    assert clear
    assert day_change(day(-2.0, 0.0), [day(-2.0, 0.0)]) == (replace(change, mean=0.0, spread=1.0, stability=0.0), False)


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
        ({"map": 3}, "map is of type int"),
        ({"evidence": [1, 2]}, "evidence is of type list"),
        ({"evidence": from_arrays([[0.0]], [1], cells=False)}, "the evidence has no cells; build it with cells=True"),
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


def test_evidence_without_labels_is_refused():
    with pytest.raises(UncurseError, match="no labels"):
        monitor(IDENTITY, from_arrays([[0.0], [1.0]]))


def test_another_negative_rate_is_refused():
    record = FitRecord("vad", DataRecord(10, ("s0",)), negative_rate=0.1)
    with pytest.raises(UncurseError, match="negative_rate"):
        monitor(Fitted(IDENTITY, record), rows_of(0, rows=100))


def test_negative_sampling_is_corrected():
    logits, labels = draw(0, rows=50_000)
    rate = 0.1
    log = pl.DataFrame({"s0": logits - math.log(rate), "click": labels})
    rows = collect(log, "s0", label="click", negative_rate=rate)
    record = FitRecord("vad", DataRecord(10, ("s0",)), negative_rate=rate)
    assert monitor(Fitted(Affine(1.0, math.log(rate)), record), rows).decision == "keep"


def test_a_day_of_two_shards_has_the_moments_of_all_rows():
    logits, labels = draw(0, rows=1_000)
    shards = ((logits[:300], labels[:300]), (logits[300:], labels[300:]))
    one, other = (Day(LabelSums.of(1 / (1 + np.exp(-x)), y), x.mean(), x.std()) for x, y in shards)
    both = one + other
    assert (both.score_mean, both.score_sd) == pytest.approx((logits.mean(), logits.std()))


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
@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("observed", [15.0, 50.0, 100.0, 160.0, 230.0, 500.0, 620.0])
def test_intervals_end_where_the_likelihood_falls_below_its_bound(fixed, level, observed):
    sums = replace(LabelSums.of(PREDICTIONS, np.zeros(3), ROWS), observed=observed)

    def likelihood(shift):
        return shift * observed - direct_cumulant(shift)

    def expected(shift):
        odds = PREDICTIONS / (1 - PREDICTIONS) * math.exp(shift)
        return ROWS @ (odds / (1 + odds))

    best = optimize.brentq(lambda shift: expected(shift) - observed, -4, 4)
    best = float(np.clip(best, -2, 2))
    if fixed:
        least = likelihood(best) - stats.chi2.ppf(level, 1) / 2
    else:
        mixture = np.mean([math.exp(likelihood(sign * size)) for sign in (-1, 1) for size in SIZES])
        least = math.log(0.9 * mixture + 0.1) + math.log(1 - level)
    wanted = []
    for far, none in ((2.0, -1.0), (-2.0, math.inf)):  # without a bound, the error is above −1, or any
        if likelihood(far) >= least:
            wanted.append(none)
        else:
            end = optimize.brentq(lambda shift: likelihood(shift) - least, best, far)
            wanted.append(ROWS @ PREDICTIONS / expected(end) - 1)
    (found,) = intervals([sums], level, fixed=fixed).tolist()
    assert found == pytest.approx(wanted, rel=1e-6)
    if level == 0.95:
        assert [found] == intervals([sums], fixed=fixed).tolist()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_likely_start_has_the_largest_mixture_of_likelihood_ratios(seed):
    observed = np.random.default_rng(seed).poisson(160, 6).astype(float)
    one = LabelSums.of(PREDICTIONS, np.zeros(3), ROWS)
    starts = [0.7, *(0.3 * (1 / (1 + math.log(t)) - 1 / (1 + math.log(t + 1))) for t in range(1, 6))]
    shifts = np.concatenate([-SIZES, SIZES])
    gain = np.multiply.outer(observed, shifts) - [direct_cumulant(shift) for shift in shifts]
    weights = [start * np.exp(gain[t:].sum(axis=0)).sum() for t, start in enumerate(starts)]
    assert likely_start(observed, np.array([one.cumulants] * 6)) == int(np.argmax(weights))


def test_label_sums_that_are_impossible_are_refused():
    content = LabelSums.of([0.1, 0.5], [0, 1]).to_dict()
    assert LabelSums.from_dict({**content, "observed": 2.0}).observed == 2
    assert LabelSums.from_dict({**content, "observed": 0.0, "predicted": 0.0}).predicted == 0
    changes = [{"observed": 2.1}, {"predicted": 2.1}, {"rows": -1.0}, {"observed": math.inf}, {"more": 1.0}]
    for change in (*changes, {"cumulants": content["cumulants"][:-1]}, {"cumulants": [math.nan] * 25}):
        with pytest.raises(UncurseError):
            LabelSums.from_dict({**content, **change})


def test_errors_are_described_by_their_direction():
    part = calibration_of("all", LabelSums.of([0.1], [100.0], [1_000]))
    assert part == calibration_of("all", LabelSums.of([0.1], [100.0], [1_000]), tolerance=0.0)
    assert part.error == pytest.approx(0, abs=1e-12)
    assert part.e_value < 1
    assert error_words(replace(part, error=0.0, low=-0.15, high=0.25)) == (
        "predictions are 0.0% too high (95% confidence sequence -15.0% to +25.0%)"
    )
    assert error_words(replace(part, error=-0.031, low=-0.1, high=None)) == (
        "predictions are 3.1% too low (95% confidence sequence -10.0% to no bound)"
    )
    nothing = calibration_of("all", LabelSums.of([0.1], [0.0], [1_000]))
    assert (nothing.error, nothing.high) == (None, None)
    assert error_words(nothing) == "no positive label where 100 are predicted"


def test_e_values_do_not_overflow():
    assert e_value(650.0) == math.exp(650)
    assert e_value(1e4) == math.exp(700)
    assert e_value(-3.0) == math.exp(-3)


# ---------------------------------------------------------------------------- thresholds of the decision


def part_of(name="since the fit", e=1.0, error=0.01):
    return Calibration(name, 1_000.0, 101.0, 100.0, error, -0.2, 0.3, e)


def decide(**options):
    defaults = {"wrong": None, "alarm": None, "buckets": (), "groups": (), "scores": None, "shrinkage": None}
    return verdict._decide(**{"since": part_of(), **defaults, **options})


@pytest.mark.parametrize(
    ("options", "decision", "words"),
    [
        ({}, "keep", "no evidence against the map: predictions are 1.0% too high"),
        ({"since": part_of(e=4.9)}, "keep", "no evidence"),
        ({"since": part_of(e=5.0)}, "watch", r"some evidence against the map \(e-value 5.0; 20 raises an alarm\)"),
        ({"groups": (part_of("a", 39.0), part_of("b"))}, "keep", "no evidence"),
        ({"groups": (part_of("a", 41.0), part_of("b"))}, "watch", "for group a, predictions"),
        ({"buckets": (part_of("1% to 2%", 19.0),)}, "keep", "no evidence"),
        ({"buckets": (part_of("1% to 2%", 21.0),)}, "watch", "for predictions of 1% to 2%"),
        ({"shrinkage": LambdaChange(0.9, 0.8, -2.9)}, "keep", "no evidence"),
        ({"shrinkage": LambdaChange(0.9, 0.8, -3.1)}, "watch", r"λ changed from 0.900 to 0.800 \(-3.1 standard errors"),
        ({"shrinkage": LambdaChange(0.8, 0.9, 3.1)}, "watch", r"\(\+3.1 standard errors"),
        ({"scores": ScoreChange("pool", 0.3, 1.0, 0.09)}, "keep", "no evidence"),
        ({"scores": ScoreChange("pool", 0.3, 1.0, 0.11)}, "watch", "differ from those of the pool of the fit"),
        ({"alarm": "2026-11-01"}, "refit", "since the fit predictions are .* raised on 2026-11-01"),
        ({"alarm": "2026-11-02", "wrong": part_of("since 2026-11-01")}, "refit", "since 2026-11-01 predictions"),
    ],
)  # fmt: skip
def test_each_threshold_of_the_decision(options, decision, words):
    found, reason = decide(**options)
    assert found == decision
    assert re.search(words, reason)


@pytest.mark.parametrize(("observed", "decision"), [(124, "keep"), (129, "watch"), (135, "refit")])
def test_an_e_value_of_20_raises_an_alarm(observed, decision):
    rows = from_arrays(np.full((1_000, 1), math.log(0.1 / 0.9)), np.arange(1_000) < observed)
    found = monitor(IDENTITY, rows, day="2026-11-01")
    assert found.decision == decision
    assert (found.since_fit.e_value >= 5, found.since_fit.e_value >= 20) == (decision != "keep", decision == "refit")


def test_a_tolerance_is_a_share():
    rows = rows_of(0, rows=100)
    assert monitor(IDENTITY, rows, tolerance=0.0).decision == monitor(IDENTITY, rows, tolerance=0.99).decision
    with pytest.raises(UncurseError, match="tolerance=1; pass a share from 0 to 1"):
        monitor(IDENTITY, rows, tolerance=1.0)


# ---------------------------------------------------------------------------- changes of scores


def summary(rows=1_000, mean=0.0, sd=1.0, edges=(-1.0, 1.0), weights=(1.0,)):
    return ScoreSummary(rows, float(rows), mean, sd, "logit", edges, weights)


@pytest.mark.parametrize(
    ("before", "scores", "mean", "spread"),
    [
        (summary(mean=1.0, sd=0.5), [1.5, 2.5], 2.0, 1.0),
        (summary(mean=1.0, sd=0.0), [1.5, 2.5], 1_000.0, 500.0),  # a spread below 0.001 counts as 0.001
        (summary(mean=1.0, sd=0.0), [3.0, 3.0], 2_000.0, 1.0),
    ],
)
def test_change_of_scores_is_in_standard_deviations_of_the_fit(before, scores, mean, spread):
    change = drift.score_change(Cells(exact=True).update(scores), before, "pool")
    assert (change.mean, change.spread) == pytest.approx((mean, spread))
    assert change.compared_with == "pool"


def test_stability_index_is_over_ten_bins_of_equal_shares():
    edges = np.linspace(-1, 1, 11)
    before = summary(rows=1_000, edges=tuple(edges.tolist()), weights=(3.0,) * 10)
    counts = np.array([1, 2, 3, 4, 10, 20, 20, 20, 20, 0])
    scores = np.repeat(edges[:-1] + 0.03, counts)
    p = np.maximum(counts / 100, 0.5 / 100)  # half a row where there is none
    wanted = np.sum((p - 0.1) * np.log(p / 0.1))
    assert drift.score_change(Cells(exact=True).update(scores), before, "pool").stability == pytest.approx(wanted)
    # Cells of the grid are spread over their width.
    l = np.random.default_rng(0).uniform(-1, 1, 100_000) ** 3
    exact, grid = (
        drift.score_change(Cells(exact=exact).update(l), before, "pool").stability for exact in (True, False)
    )
    assert grid == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize(("rows", "clear"), [(2_750, False), (2_850, True)])
def test_a_change_between_days_must_be_more_than_chance(rows, clear):
    # A mean that moves by 0.1 standard deviations has a stability index of 0.01, and chance 14 (1/n + 1/n).
    one, other = (Day(LabelSums.of([0.1], [0], [rows]), mean, 1.0) for mean in (0.1, 0.0))
    change, found = drift.day_change(one, [other])
    assert (change.mean, change.spread, change.stability) == pytest.approx((0.1, 1.0, 0.01))
    assert found == clear


def test_the_last_day_is_compared_with_all_days_before_it():
    days = {f"2026-11-0{i}": Day(LabelSums.of([0.1], [10], [100]), mean, 1.0) for i, mean in enumerate((0, 1, 5, 8), 1)}
    found = judge(MonitorState("map", days)).scores
    assert found == drift.day_change(days["2026-11-04"], [days[f"2026-11-0{i}"] for i in (1, 2, 3)])[0]
    assert found.mean == pytest.approx((8 - 2) / math.sqrt(1 + 14 / 3))
    first = judge(MonitorState("map", {"2026-11-01": days["2026-11-01"]}))
    assert first.scores is None


def test_days_are_compared_with_all_days_before():
    def day(mean, rows, sd=1.0):
        return Day(LabelSums.of([0.1], [0], [rows]), mean, sd)

    change, _ = drift.day_change(day(3.0, 10), [day(0.0, 100), day(1.0, 100), day(2.0, 200)])
    sd = math.sqrt(1 + (100 * 1.25**2 + 100 * 0.25**2 + 200 * 0.75**2) / 400)
    assert (change.mean, change.spread) == pytest.approx((1.75 / sd, 1 / sd))
    change, _ = drift.day_change(day(0.01, 10, 0.0), [day(0.0, 10, 0.0)])  # at least a thousandth of a logit
    assert (change.mean, change.spread) == pytest.approx((10.0, 1.0))


@pytest.mark.parametrize(
    ("change", "compared"),
    [({}, True), ({"lambda_": None}, False), ({"standard_error": None}, False), ({"calibrator": "platt"}, False)],
)
def test_lambda_is_compared_if_both_are_known(change, compared):
    rng = np.random.default_rng(0)
    scores = rng.normal(-3, 1, (4_000, 1)) + 0.5 * rng.normal(size=(4_000, 3))
    record = FitRecord("vad", DataRecord(10, ("s0", "s1")), lambda_=0.9, standard_error=0.003)
    found = drift.lambda_change(from_arrays(scores), replace(record, **change))
    if not compared:
        assert found is None
        return
    after = VAD().fit(scores).record_
    both = math.hypot(0.003, after.standard_error)
    assert (found.before, found.after) == (0.9, pytest.approx(after.lambda_))
    assert found.standard_errors == pytest.approx((after.lambda_ - 0.9) / both)
    assert drift.lambda_change(from_arrays(scores[:, :1]), record) is None
    assert drift.lambda_change(from_arrays(scores[:, :2]), record) is not None
    assert drift.lambda_change(from_arrays(np.full((10, 2), -2.0)), record) is None


# ---------------------------------------------------------------------------- ranges of predictions and digests


def test_ranges_of_predictions_have_edges_of_1_2_and_5():
    p = np.array([1e-6, 1e-5, 1.9e-5, 2.1e-5, 0.03, 0.05, 0.49, 0.51])
    state = monitor(IDENTITY, from_arrays(np.log(p / (1 - p))[:, None], p > 0.1)).state
    rows = {name: sums.rows for name, sums in state.buckets.items()}
    assert rows == {
        "below 0.001%": 1, "0.001% to 0.002%": 2, "0.002% to 0.005%": 1, "2% to 5%": 1, "5% to 10%": 1,
        "20% to 50%": 1, "50% and above": 1,
    }  # fmt: skip
    assert [range_place(name) for name in ("below 0.001%", "2% to 5%", "50% and above", "other")] == [0, 11, 15, -1]


def test_a_map_is_identified_by_16_digits_of_its_digest():
    digest = map_digest(IDENTITY)
    assert len(digest) == 16
    assert int(digest, 16) != int(map_digest(Affine(1.0, 0.1)), 16)


def test_the_latest_settled_time_is_kept():
    early, late = "2026-11-16T06:00+02:00", "2026-11-16T05:00"  # the second is later, in UTC
    states = [MonitorState("map", settled_before=time) for time in (early, late, None)]
    for one, other, wanted in ((0, 1, late), (1, 0, late), (0, 2, early), (2, 2, None)):
        assert states[one].merge(states[other]).settled_before == wanted


@pytest.mark.parametrize(("mean", "sd"), [(math.nan, 1.0), (0.0, -0.1), (math.inf, 1.0), (0.0, math.inf)])
def test_impossible_scores_of_a_day_are_refused(mean, sd):
    state = MonitorState("map", {"2026-11-01": Day(LabelSums.of([0.1], [0]), 0.0, 0.0)})
    content = state.to_dict()
    assert MonitorState.from_dict(content) == state
    content["days"]["2026-11-01"].update(score_mean=mean, score_sd=sd)
    with pytest.raises(UncurseError):
        MonitorState.from_dict(content)


# ---------------------------------------------------------------------------- metrics for Prometheus


def test_every_number_of_a_verdict_is_a_metric():
    logits, labels = draw(0, rows=2_000)
    groups = np.where(np.arange(2_000) % 2, 'a "b"\\\n', "c")
    found = monitor(IDENTITY, from_arrays(logits[:, None], labels, groups=groups), day="2026-11-01")
    found = replace(found, scores=ScoreChange("pool", 0.25, 1.5, 0.125), shrinkage=LambdaChange(0.9, 0.75, -2.5))
    lines = prometheus_text(found, "main").splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    values = {name: float(value) for name, value in values.items()}
    parts = {'rows="since_fit"': found.since_fit, 'rows="latest"': found.latest}
    parts |= {f'rows="since_fit",prediction="{part.name}"': part for part in found.buckets}
    escaped = {'a "b"\\\n': r"a \"b\"\\\n", "c": "c"}
    parts |= {f'rows="since_fit",group="{escaped[part.name]}"': part for part in found.groups}
    names = {"rows": "rows", "predicted": "predicted", "observed": "observed", "error": "error", "e_value": "e_value"}
    wanted = {
        f'uncurse_{metric}{{map="main",{labels}}}': getattr(part, name)
        for metric, name in {**names, "error_low": "low", "error_high": "high"}.items()
        for labels, part in parts.items()
    }
    for name in ("keep", "watch", "refit"):
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
