"""The monitor: its test against closed forms and simulation, its state, its verdicts."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import integrate, stats

from uncurse import Affine, Grouped, MonitorState, UncurseError, collect, monitor
from uncurse.debias import DataRecord, FitRecord, Fitted
from uncurse.evidence import from_arrays
from uncurse.monitoring import Day, LabelSums, judge, log_e_values
from uncurse.monitoring.sequential import intervals, likely_start, total
from uncurse.monitoring.state import map_digest
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
                low, high = sums.interval()
                if not low <= error <= high:
                    missed += 1
                    break
    assert missed <= 10 + 3 * math.sqrt(10)


def test_the_confidence_sequence_without_positives_has_one_end():
    low, high = LabelSums.of(np.full(1_000, 0.1), np.zeros(1_000)).interval()
    assert low > 0
    assert high == math.inf
    assert LabelSums.of([0.01], [0]).interval() == (-1.0, math.inf)


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
    assert sums[2].fixed_interval() == pytest.approx(tuple(fixed[2]))
    assert sums[2].interval() == pytest.approx(tuple(at_all_times[2]))
    normal = stats.norm.ppf(0.975) * math.sqrt(1_000 * 0.09 * 0.91) / 90 * 1.11
    assert fixed[2, 1] - fixed[2, 0] == pytest.approx(2 * normal, rel=0.05)


def test_interval_shrinks_towards_the_error_as_rows_are_added():
    sums = LabelSums.of([0.1], [95.0], [1_000])
    widths = []
    for _ in range(4):
        low, high = sums.interval()
        assert low < sums.error < high
        widths.append(high - low)
        sums = total([sums] * 10)
    assert (np.diff(widths) < 0).all()
    normal = 2 * stats.norm.ppf(0.975) * (1 + sums.error) / math.sqrt(sums.observed)
    low, high = sums.interval()
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"map": 3}, "map is of type int"),
        ({"evidence": [1, 2]}, "evidence is of type list"),
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
