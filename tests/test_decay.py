"""Evidence that decays: weights, effective rows, standard errors, and times."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from uncurse import VAD, Auto, Moments, Tower, UncurseError
from uncurse.calibration import CALIBRATORS, fit_calibrator
from uncurse.evidence import Evidence, LogSpec, from_arrays, merged
from uncurse.links import logistic
from uncurse.metrics import evaluate_log

SERVED = np.linspace(-6.0, 3.0, 30)


def draw(rows, seed=0, *, size=3, mean=-1.5):
    rng = np.random.default_rng([seed, rows])
    truth = rng.normal(mean, 0.9, rows)
    scores = truth[:, None] + rng.normal(0, 0.4, (rows, size))
    return scores, (rng.random(rows) < logistic(truth)).astype(np.int8), rng.integers(3, size=rows).astype(str)


def collected(rows, seed=0, *, weight=None, groups=True, **options):
    scores, labels, names = draw(rows, seed, **options)
    weights = None if weight is None else np.full(rows, weight)
    named = names if groups else None
    return from_arrays(scores, labels, groups=named, sample_weight=weights, replica_counts=True)


def assert_close(one, other, rtol=1e-12):
    """Compare all sums of two `Evidence` objects; the names of their columns may differ."""
    assert one.rows == other.rows
    np.testing.assert_allclose(one.weight, other.weight, rtol=rtol)
    np.testing.assert_allclose(one.effective_rows, other.effective_rows, rtol=rtol)
    for name in ("weight", "effective_rows", "mean", "covariance"):
        np.testing.assert_allclose(getattr(one.moments, name), getattr(other.moments, name), rtol=rtol)
    for name in ("score", "weight", "label", "weight_squares", "label_squares"):
        np.testing.assert_allclose(getattr(one.cells, name), getattr(other.cells, name), rtol=rtol, atol=1e-15)
    ours, theirs = one.replica_counts, other.replica_counts
    assert (ours.level, ours.rows) == (theirs.level, theirs.rows)
    np.testing.assert_allclose(ours.column_sums, theirs.column_sums, rtol=rtol)
    for name in ("served", "gap", "spread", "weight", "label", "levels", "effective_rows"):
        # Sums of many weights differ by rounding, and levels are small differences of sums.
        np.testing.assert_allclose(getattr(ours.cells(), name), getattr(theirs.cells(), name), rtol=rtol, atol=1e-12)
    assert one.groups.keys() == other.groups.keys()
    for name, part in one.groups.items():
        assert_close(part, other.groups[name], rtol)


# ---------------------------------------------------------------------------- weights


@pytest.mark.parametrize("sizes", [(500, 700), (140_000, 900), (140_000, 150_000)])
def test_decay_and_merge_commute(sizes):
    one, other = (collected(rows, seed, groups=max(sizes) < 1000) for seed, rows in enumerate(sizes))
    merge = one.merge(other)
    slope = lambda _, covariance: covariance[..., 0, 1] / covariance[..., 0, 0]  # noqa: E731
    for factor in (0.5, 0.3, 1e-6):
        both, apart = merge.decayed(factor), one.decayed(factor).merge(other.decayed(factor))
        assert_close(both, apart)
        np.testing.assert_allclose(both.moments.standard_error(slope), apart.moments.standard_error(slope), rtol=1e-9)


def test_two_decays_equal_one_and_leave_the_original_alone():
    evidence = collected(800)
    before = evidence.to_json()
    assert_close(evidence.decayed(0.6).decayed(0.5), evidence.decayed(0.3))
    assert evidence.to_json() == before


def test_decayed_days_equal_rows_with_weights():
    days = [collected(rows, seed) for seed, rows in enumerate((400, 900, 200))]
    weights = 0.5 ** (np.array([2, 1, 0]) / 1.5)
    expected = merged(collected(d.rows, seed, weight=w) for seed, (d, w) in enumerate(zip(days, weights, strict=True)))
    week = merged(days, half_life=1.5)
    assert_close(week, expected)
    total = weights @ [400, 900, 200]
    assert week.effective_rows == pytest.approx(total**2 / (weights**2 @ [400, 900, 200]))


def test_an_infinite_half_life_is_a_plain_merge_and_a_short_one_leaves_the_last_day():
    days = [collected(300, seed) for seed in range(4)]
    assert merged(days, half_life=math.inf).to_dict() == merged(days).to_dict()
    last = merged(days, half_life=0.001)
    assert last.rows == 1200
    assert last.effective_rows == pytest.approx(300, rel=1e-12)
    np.testing.assert_allclose(last.moments.covariance, days[-1].moments.covariance, rtol=1e-12)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, "3", True, None])
def test_half_lives_and_factors_are_positive_numbers(value):
    day = collected(50)
    if value is not None:
        with pytest.raises(UncurseError, match="half_life"):
            merged([day, day], half_life=value)
    with pytest.raises(UncurseError, match="factor"):
        day.decayed(value)


def test_factors_above_one_and_weights_that_vanish_are_refused():
    day = collected(50)
    with pytest.raises(UncurseError, match=r"factor=1\.5; pass a number above 0 and at most 1"):
        day.decayed(1.5)
    with pytest.raises(UncurseError, match="leaves a total weight of 5e-149; start with new evidence"):
        day.decayed(1e-150)


def test_evidence_that_decays_every_day_for_months_stays_valid_and_small():
    total, factor = collected(40, size=2), 0.5 ** (1 / 3)
    for day in range(1, 200):
        total = total.decayed(factor).merge(collected(40, day, size=2))
        if day % 80 == 0:
            total = Evidence.from_dict(json.loads(json.dumps(total.to_dict())))
    assert total.rows == 8_000
    # The geometric series of weights and of their squares.
    assert total.effective_rows == pytest.approx(40 * (1 + factor) / (1 - factor))
    # Rows below 1e-15 of the weight are gone: those of the last 3·log2(1e15·…) < 160 days are left.
    assert len(total.cells) < 40 * 160
    assert len(total.replica_counts) < 40 * 160
    assert len(total.moments.block_rows) <= 64
    assert total.moments.rows == total.replica_counts.rows == total.rows


def test_groups_that_have_decayed_are_dropped():
    scores, labels, _ = draw(100)
    old, new = (from_arrays(scores, labels, groups=np.full(100, name), replica_counts=True) for name in ("old", "new"))
    both = old.decayed(1e-10).merge(new).decayed(0.5)
    assert set(both.groups) == {"old", "new"}
    assert set(both.decayed(1e-3).merge(new).groups) == {"old", "new"}
    faded = old.decayed(1e-16).merge(new).decayed(0.5)
    assert set(faded.groups) == {"new"}
    assert faded.rows == 200


def test_evidence_without_optional_parts_decays():
    values = Evidence(
        LogSpec(("a", "b"), "value", link="identity"), Moments("identity").update([[1.0, 2.0], [3.0, 2.0]])
    )
    assert values.decayed(0.5).moments.weight == 1.0
    single = from_arrays(np.array([[0.5], [1.0]]), [0, 1])
    assert single.decayed(0.5).cells.weight.tolist() == [0.5, 0.5]
    assert single.decayed(0.5).moments.weight == 1.0
    assert replace(single, moments=Moments()).decayed(0.5).moments.rows == 0


# ---------------------------------------------------------------------------- only ratios of weights matter


@pytest.fixture(scope="module")
def rows():
    pool, labels = collected(8_000, 1, mean=-2.0, groups=False), collected(4_000, 2, groups=False)
    return pool, labels


METHODS = {
    "vad": (lambda: VAD(curvature=True, intervals=True), False),
    "free": (lambda: VAD(shape="free"), False),
    "tandem": (lambda: VAD(calibrator="isotonic", intervals=True), True),
    "tower": (Tower, True),
    "auto": (Auto, True),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_common_factor_changes_no_map_and_no_interval(rows, name):
    make, labelled = METHODS[name]
    results = []
    for pool, labels in (rows, [part.decayed(0.5) for part in rows], [part.decayed(0.3) for part in rows]):
        fitted = make().fit(pool, **({"labelled": labels} if labelled else {}))
        results.append([*fitted.map_(SERVED), *fitted.interval(0.02), fitted.record_.standard_error or 0.0])
    # A power of two changes no digit. Otherwise rounding may change a draw of the bootstrap behind an interval.
    np.testing.assert_allclose(results[1], results[0], rtol=1e-9)
    np.testing.assert_allclose(results[2], results[0], rtol=0.01)
    np.testing.assert_allclose(results[2][:30], results[0][:30], rtol=1e-6)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_common_factor_changes_no_calibrator(rows, name):
    cells = rows[1].cells
    np.testing.assert_allclose(
        fit_calibrator(name, cells.decayed(0.3))(SERVED), fit_calibrator(name, cells)(SERVED), rtol=1e-9
    )


def test_a_common_factor_changes_no_metric(rows):
    for one, other in zip(evaluate_log(rows[1]).rows, evaluate_log(rows[1].decayed(0.3)).rows, strict=True):
        for name in ("calibration_error", "ece", "mce", "log_loss"):
            a, b = getattr(one, name), getattr(other, name)
            assert b == pytest.approx(a, rel=1e-9)
            assert b.standard_error == pytest.approx(a.standard_error, rel=1e-9)


# ---------------------------------------------------------------------------- standard errors


HALF_LIVES = (0.5, 1.0, 3.0)
DAYS = 6


def days(seed, size):
    return [from_arrays(*draw(size, 100 * seed + day, size=2)[:2], replica_counts=True) for day in range(DAYS)]


@pytest.fixture(scope="module")
def draws_of_moments():
    """Moments of 200 draws of some days."""
    spec = LogSpec(("a", "b"))
    return [
        [Evidence(spec, Moments(blocks=8).update(draw(250, 100 * seed + day, size=2)[0])) for day in range(DAYS)]
        for seed in range(200)
    ]


@pytest.mark.parametrize("half_life", HALF_LIVES)
def test_the_standard_error_of_lambda_is_its_spread_over_draws_of_decaying_days(draws_of_moments, half_life):
    values, errors = [], []
    for parts in draws_of_moments:
        fitted = VAD().fit(merged(parts, half_life=half_life))
        values.append(fitted.lambda_)
        errors.append(fitted.record_.standard_error)
    # 200 draws: a standard error of 1/√400 = 5%; 15% is three of these.
    assert np.sqrt(np.mean(np.square(errors))) / np.std(values, ddof=1) == pytest.approx(1, abs=0.15)


def test_standard_errors_grow_as_the_effective_rows_fall():
    parts = days(0, 2_000)
    fits = [Tower().fit(merged(parts, h), labelled=merged(parts, h)) for h in (0.4, 1.0, 3.0, math.inf)]
    effective = [merged(parts, h).effective_rows for h in (0.4, 1.0, 3.0, math.inf)]
    widths = [np.subtract(*fit.interval(0.05)[::-1]) for fit in fits]
    assert (np.diff(effective) > 0).all()
    assert (np.diff(widths) < 0).all()
    # Label noise dominates, and its standard error falls like 1/√n.
    assert widths[0] / widths[-1] == pytest.approx(math.sqrt(effective[-1] / effective[0]), rel=0.25)


@pytest.mark.theory
def test_the_error_of_a_tower_is_its_spread_over_draws_of_decaying_days():
    served = draw(50_000, 7, size=2)[0][:, 0]
    top = np.sort(served)[-2_500:]
    values, errors = [], []
    for seed in range(40):
        total = merged(days(seed, 1_000), half_life=0.5)
        fitted = Tower().fit(total, labelled=total)
        values.append(np.log(fitted.predict_proba(top).mean()))
        if seed % 4 == 0:  # errors differ less from draw to draw
            low, high = fitted.interval(0.05, 0.6827)  # ± one standard error
            errors.append((np.log1p(high) - np.log1p(low)) / 2)
    # 40 draws: a standard error of 1/√80 = 11%; 35% is three of these.
    assert np.sqrt(np.mean(np.square(errors))) / np.std(values, ddof=1) == pytest.approx(1, abs=0.35)


@pytest.mark.theory
def test_the_standard_error_of_a_measured_calibration_error_is_its_spread_over_draws():
    values, errors = [], []
    for seed in range(100):
        parts = [from_arrays(*draw(300, 100 * seed + day, size=2)[:2]) for day in range(DAYS)]
        (found,) = evaluate_log(merged(parts, 0.7), alphas=1.0).rows
        values.append(float(found.calibration_error))
        errors.append(found.calibration_error.standard_error)
    # 100 draws: a standard error of 7.1%; 21% is three of these. Without the squares of weights it would be 40% off.
    assert np.sqrt(np.mean(np.square(errors))) / np.std(values, ddof=1) == pytest.approx(1, abs=0.21)


# ---------------------------------------------------------------------------- times


def test_times_are_kept_in_utc_and_the_later_one_survives_a_merge(tmp_path):
    spec, moments = LogSpec(("a", "b")), Moments().update([[0.0, 1.0]])
    monday = Evidence(spec, moments, as_of="2026-11-16T01:00:00+02:00")
    tuesday, unknown = Evidence(spec, moments, as_of="2026-11-17"), Evidence(spec, moments)
    assert monday.as_of == "2026-11-15T23:00:00+00:00"
    for parts in ((monday, tuesday, unknown), (unknown, tuesday, monday)):
        assert merged(parts).as_of == "2026-11-17T00:00:00+00:00"
    assert unknown.merge(unknown).as_of is None
    assert monday.decayed(0.5).as_of == monday.as_of
    monday.save(tmp_path / "monday.json")
    assert Evidence.load(tmp_path / "monday.json").as_of == monday.as_of


@pytest.mark.parametrize("time", ["yesterday", 5, "2026-13-01", "0001-01-01T00:00+14:00"])
def test_other_times_are_refused(time):
    with pytest.raises(UncurseError, match=r"as_of is .*; pass an ISO date or time, such as 2026-11-15T06:00"):
        Evidence(LogSpec(("a", "b")), Moments(), as_of=time)


def test_rows_of_blocks_that_are_dropped_still_count():
    rng = np.random.default_rng(0)
    new, old = (Moments().update(rng.normal(size=(rows, 2)), sample_weight=np.full(rows, weight))
                for rows, weight in ((64, 1.0), (33, 1e-20)))  # fmt: skip
    for first, second in ((new, old), (old, new)):
        both = Moments().merge(first).merge(second)
        assert both.rows == 97
        faded = both.decayed(0.5)
        assert faded.rows == 97
        assert faded.weight == pytest.approx(32)
