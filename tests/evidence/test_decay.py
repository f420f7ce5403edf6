"""Evidence that decays: weights, effective rows and times."""

import json
import math

import numpy as np
import pytest

from uncurse import VAD, Evidence, UncurseError
from uncurse.evidence import LogSpec, Moments, from_arrays, merged
from uncurse.links import logistic


def collected(rows, seed=0, *, weight=None, segments=True):
    rng = np.random.default_rng([seed, rows])
    truth = rng.normal(-1.5, 0.9, rows)
    scores, labels = truth[:, None] + rng.normal(0, 0.4, (rows, 3)), rng.random(rows) < logistic(truth)
    names = rng.integers(3, size=rows).astype(str) if segments else None
    return from_arrays(scores, labels, segments=names, sample_weight=None if weight is None else np.full(rows, weight))


def assert_close(one, other, rtol=1e-12):
    assert one.rows == other.rows
    assert one.effective_rows == pytest.approx(other.effective_rows, rel=rtol)
    for name in ("weight", "mean", "covariance"):
        np.testing.assert_allclose(getattr(one.moments, name), getattr(other.moments, name), rtol=rtol)
    for part in ("served", "replicas"):
        ours, theirs = getattr(one, part), getattr(other, part)
        assert (ours.level, ours.rows) == (theirs.level, theirs.rows)
        for name in ("weight", "label", "weight_squares", "label_squares", "column_sums", "effective_rows"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(one.served.score, other.served.score, rtol=rtol)
    assert one.segments.keys() == other.segments.keys()
    for name, part in one.segments.items():
        assert_close(part, other.segments[name], rtol)


@pytest.mark.parametrize("sizes", [(500, 700), (140_000, 900), (140_000, 150_000)])
def test_decay_and_merge_commute(sizes):
    one, other = (collected(rows, seed, segments=max(sizes) < 1_000) for seed, rows in enumerate(sizes))
    assert_close(one.merge(other).decayed(0.3), one.decayed(0.3).merge(other.decayed(0.3)))


def test_decayed_days_equal_rows_with_weights_and_two_decays_equal_one():
    days = [collected(300, seed) for seed in range(3)]
    weighted = [collected(300, seed, weight=0.5 ** ((2 - seed) / 1.5)) for seed in range(3)]
    before = days[0].to_dict()
    assert_close(merged(days, half_life=1.5), merged(weighted))
    assert_close(days[0].decayed(0.5).decayed(0.25), days[0].decayed(0.125))
    assert days[0].to_dict() == before


def test_an_infinite_half_life_is_a_plain_merge_and_a_short_one_leaves_the_last_day():
    days = [collected(300, seed) for seed in range(4)]
    assert merged(days, half_life=math.inf).to_dict() == merged(days).to_dict()
    last = merged(days, half_life=0.001)
    assert (last.rows, last.effective_rows) == (1_200, pytest.approx(300, rel=1e-12))
    np.testing.assert_allclose(last.moments.covariance, days[-1].moments.covariance, rtol=1e-12)


def test_evidence_that_decays_every_day_for_months_stays_valid_and_small():
    total, factor = collected(40), 0.5 ** (1 / 3)
    for day in range(1, 200):
        total = total.decayed(factor).merge(collected(40, day))
        if day % 80 == 0:
            total = Evidence.from_dict(json.loads(json.dumps(total.to_dict())))
    assert total.rows == total.moments.rows == total.replicas.rows == 8_000
    # The geometric series of weights and of their squares.
    assert total.effective_rows == pytest.approx(40 * (1 + factor) / (1 - factor))
    # Rows below 1e-15 of the weight are gone: those of the last 3·log2(1e15·…) < 160 days are left.
    assert max(len(total.served), len(total.replicas)) < 40 * 160


def test_segments_that_have_decayed_are_dropped():
    old, new = (from_arrays(np.eye(2), [0, 1], segments=[name] * 2) for name in ("old", "new"))
    assert set(old.decayed(1e-10).merge(new).decayed(0.5).segments) == {"old", "new"}
    faded = old.decayed(1e-16).merge(new).decayed(0.5)
    assert (set(faded.segments), faded.rows) == ({"new"}, 4)


def test_a_common_factor_changes_no_map_and_no_interval():
    pool = collected(4_000, segments=False)
    for factor, rtol in ((0.5, 1e-9), (0.3, 1e-6)):
        results = [VAD(scale="logit", replicas="seeds", curvature=True).fit(e) for e in (pool, pool.decayed(factor))]
        one, other = ([*fit.map_(np.linspace(-5, 2, 20)), fit.record_.standard_error] for fit in results)
        np.testing.assert_allclose(other, one, rtol=rtol)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, "3", True, None])
def test_half_lives_and_factors_are_positive_numbers(value):
    day = collected(50)
    if value is not None:
        with pytest.raises(UncurseError, match="half_life"):
            merged([day, day], half_life=value)
    for factor in (value, 1.5, 1e-150):
        with pytest.raises(UncurseError, match="factor"):
            day.decayed(factor)


def test_times_are_kept_in_utc_and_the_later_one_survives_a_merge():
    spec, moments = LogSpec(("a", "b")), Moments().update([[0.0, 1.0]])
    monday = Evidence(spec, moments, as_of="2026-11-16T01:00:00+02:00")
    tuesday, unknown = Evidence(spec, moments, as_of="2026-11-17"), Evidence(spec, moments)
    assert monday.as_of == "2026-11-15T23:00:00+00:00" == monday.decayed(0.5).as_of
    for parts in ((monday, tuesday, unknown), (unknown, tuesday, monday)):
        assert merged(parts).as_of == "2026-11-17T00:00:00+00:00"
    assert unknown.merge(unknown).as_of is None


@pytest.mark.parametrize("time", ["yesterday", 5, "2026-13-01", "0001-01-01T00:00+14:00"])
def test_other_times_are_refused(time):
    with pytest.raises(UncurseError, match="as_of is "):
        Evidence(LogSpec(("a", "b")), Moments(), as_of=time)
