"""`monitor`: does a map still hold on new rows?"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ..documents import plain
from ..errors import UncurseError
from ..evidence import Evidence
from ..maps import ScoreMap
from ..methods.fitted import Fitted, Method, fitted_of
from ..methods.noise import replica_kind
from ..methods.records import FitRecord, ScoreSummary
from ..methods.refresh import check_fits
from ..methods.shrinkage import Shrinkage
from ..validation import check_number, check_time, warn_user
from .sequential import (
    ALARM,
    WATCH,
    Calibration,
    LabelSums,
    calibrations_of,
    e_value,
    e_value_text,
    error_words,
    likely_start,
    log_e_values,
    series_of,
    total,
)
from .state import PLACE_OF_RANGE, Day, MonitorState, check_same, count_rows, files_of, map_digest

_UNSTABLE = 0.1  # population stability index from which scores are commonly said to have changed
_LIKE_POOL = 0.05  # smaller changes of mean, spread and stability index since the fit are none
_ROWS_OF_POOL = 1_000  # fewer rows do not show whether they are selected
_LAMBDA_ERRORS = 3.0  # change of λ, in standard errors
_TARGET = 0.05  # size of the error for which the number of further positives is given
_BINS = 10  # of the population stability index, with equal shares of the scores that the map was fitted to
_MIN_SD = 1e-3  # of scores, in logits: smaller differences do not matter
_CHANCE = 14.0  # χ² of a mean and a spread, exceeded by chance on one day in 1,000


@dataclass(frozen=True)
class ScoreChange:
    """Change of the served scores since the fit, or since the earlier days.

    `stability` is the population stability index Σ(p − q)·ln(p/q), the change of the whole distribution: over ten
    bins, and for days of normal distributions with their means and standard deviations.
    """

    reference: str  # "pool of the fit" or "earlier days", which the scores are compared with
    mean: float  # change, in standard deviations of the scores compared with
    spread: float  # standard deviation divided by that of the scores compared with
    stability: float


@dataclass(frozen=True)
class LambdaChange:
    """Change of λ since the fit."""

    before: float
    after: float
    standard_errors: float  # of which their difference is a multiple


@dataclass(frozen=True)
class Verdict:
    """Whether a map still holds.

    Parameters
    ----------
    decision : {"keep", "watch", "alarm"}
        Whether the map holds, may not hold, or does not hold.
    reason : str
        Why, in one sentence.
    since_fit, latest : Calibration
        Calibration of all rows since the fit, and of the newest rows.
    wrong_since : Calibration or None
        Calibration of the rows since the day on which the error most likely began, by the same labels; None without an
        alarm, or if that is the first day.
    days : int
        Number of days since the fit that were seen.
    alarm : str or None
        Day on which the map was first found wrong.
    positives_needed : int
        Further positive labels after which an error of 5% would be excluded or found.
    buckets, segments : tuple of Calibration
        Calibration by range of the prediction, and by segment, since the fit.
    scores : ScoreChange or None
        Change of the scores; None on the first day without a pool.
    shrinkage : LambdaChange or None
        Change of λ; None if it cannot be compared.
    state : MonitorState
        State that includes the new rows.

    Examples
    --------
    >>> from uncurse import Affine
    >>> from uncurse.evidence import from_arrays
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(-2, 1, 50_000)
    >>> labels = rng.random(50_000) < 1 / (1 + np.exp(-logits))
    >>> monitor(Affine(1.0, 0.0), from_arrays(logits[:, None], labels)).decision
    'keep'
    """

    decision: str
    reason: str
    since_fit: Calibration
    latest: Calibration
    wrong_since: Calibration | None
    days: int
    alarm: str | None
    positives_needed: int
    buckets: tuple[Calibration, ...]
    segments: tuple[Calibration, ...]
    scores: ScoreChange | None
    shrinkage: LambdaChange | None
    state: MonitorState

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the state.

        Returns
        -------
        dict
        """
        return {name: plain(value) for name, value in vars(self).items() if name != "state"}


def monitor(
    map: str | os.PathLike[str] | ScoreMap | Fitted | Method,
    evidence: Evidence,
    state: MonitorState | None = None,
    *,
    pool: Evidence | None = None,
    day: str | None = None,
    tolerance: float | None = None,
) -> Verdict:
    """Compare new labeled rows with a map, and decide whether to keep it.

    Repeat it every day: if the map is right, the chance of ever raising a false alarm is at most 5%. Pass the state of
    the last call, so that evidence adds up.

    Parameters
    ----------
    map : path, ScoreMap, Fitted, or a fitted method or estimator
        The map that is served. A file and a fitted object also tell how it was fitted.
    evidence : Evidence
        New labeled rows that were not in any call before, such as the selected rows of a day. Leave rows without a
        label out: they are no negatives.
    state : MonitorState, optional
        ``Verdict.state`` of the last call.
    pool : Evidence, optional
        New rows of the whole candidate pool, whose scores and λ are compared with the fit. By default the scores of
        `evidence` are compared with those of the earlier days of `state`: the rows of the fit may have been selected
        by another system.
    day : str, optional
        ISO date or time of the rows; today (UTC) by default.
    tolerance : float, optional
        Errors of the odds smaller than this are ignored: 0.02 for 2%. By default that of the state, or 0.

    Returns
    -------
    Verdict

    Examples
    --------
    >>> from uncurse import Affine
    >>> from uncurse.evidence import from_arrays
    >>> rng, state = np.random.default_rng(0), None
    >>> for day in ("2026-11-15", "2026-11-16"):
    ...     logits = rng.normal(-2, 1, 20_000)
    ...     labels = rng.random(20_000) < 0.8 / (1 + np.exp(-logits))
    ...     verdict = monitor(Affine(1.0, 0.0), from_arrays(logits[:, None], labels), state, day=day)
    ...     state = verdict.state
    >>> verdict.decision
    'alarm'
    """
    fitted = fitted_of(map)
    score_map, record = fitted.map, fitted.record
    for name, rows in (("evidence", evidence), ("pool", pool)):
        if not isinstance(rows, Evidence | None) or (rows is None and name == "evidence"):
            raise UncurseError(f"{name} is of type {type(rows).__name__}; pass Evidence")
        if rows is not None:
            check_fits(rows, score_map, record, name)
    day = datetime.now(UTC).date().isoformat() if day is None else day
    check_time(day, "day")
    before = MonitorState(map_digest(score_map)) if state is None else state
    if not isinstance(before, MonitorState):
        raise UncurseError(f"state is of type {type(state).__name__}; pass a MonitorState")
    if tolerance is not None and before.tolerance is not None:
        check_same("tolerance", check_number(tolerance, "tolerance"), before.tolerance)
    accepted = tolerance if tolerance is not None else before.tolerance or 0.0
    sources: Mapping[str, str] = {}
    if before.settled_before is None:  # else times tell rows apart
        sources = files_of(evidence.sources)
        _check_sources(before, sources, day)
    _warn_of_day(before, day)
    new = count_rows(score_map, evidence, day, sources, accepted)
    merged = new.merge(before)
    latest = new.days[day].sums
    _warn_of_pool(evidence, record)
    changes = () if pool is None or record is None else (score_change(pool, record), lambda_change(pool, record))
    return judge(merged, latest, *changes)


def judge(
    state: MonitorState,
    latest: LabelSums | None = None,
    scores: ScoreChange | None = None,
    shrinkage: LambdaChange | None = None,
) -> Verdict:
    """Return the verdict on a state of at least one day.

    `latest` has the sums of the newest rows, by default of the last day. By default `scores` compare the last day with
    the days before it.
    """
    tolerance = check_number(state.tolerance or 0.0, "tolerance")
    if not 0 <= tolerance < 1:
        raise UncurseError(f"tolerance={tolerance:g}; pass a share from 0 to 1, such as 0.02")
    ordered = state.ordered
    days = [day.sums for _, day in ordered]
    observed, cumulants = series_of(days)
    log_e = log_e_values(observed, cumulants, tolerance)
    alarms = np.flatnonzero(log_e >= math.log(ALARM))
    alarm = ordered[alarms[0]][0] if len(alarms) else None
    by_range = sorted(state.buckets.items(), key=lambda item: PLACE_OF_RANGE.get(item[0], -1))
    by_segment = sorted(state.segments.items())
    rows = [("since the fit", total(days)), ("latest", days[-1] if latest is None else latest), *by_range, *by_segment]
    at_once, newest, *parts = calibrations_of(rows, tolerance)
    since = replace(at_once, e_value=e_value(float(log_e[-1])))  # which also looks for errors that began later
    buckets, segments = tuple(parts[: len(by_range)]), tuple(parts[len(by_range) :])
    start = 0 if alarm is None else likely_start(observed, cumulants)
    wrong = calibrations_of([(f"since {ordered[start][0]}", total(days[start:]))], tolerance)[0] if start else None
    clear = True
    if scores is None and len(ordered) > 1:
        scores, clear = day_change(ordered[-1][1], [day for _, day in ordered[:-1]])
    counts = (len(days), alarm, _needed(since))
    seen = Verdict("keep", "", since, newest, wrong, *counts, buckets, segments, scores, shrinkage, state)
    decision, reason = _decide(seen, clear)
    return replace(seen, decision=decision, reason=reason)


def _check_sources(state: MonitorState, sources: Mapping[str, str], day: str) -> None:
    """Raise if a file was counted on the same day before, or a file with the same content on any day."""
    for name, seen in state.days.items():
        known = {digest for digest in seen.sources.values() if digest}
        for path, digest in sources.items():
            if digest in known or (name == day and path in seen.sources):
                raise UncurseError(
                    f"{os.path.basename(path)} was counted on {name} already; name other rows, or the day of these if "
                    "the file has changed since"
                )


def _warn_of_day(state: MonitorState, day: str) -> None:
    """Warn if the rows are older than those of the state."""
    newest = state.ordered[-1][0] if state.days else day
    if check_time(day, "day") < check_time(newest, "the state"):
        warn_user(
            f"day {day} is before {newest}, the newest day of the state; days are judged in order of time, so these "
            "rows can change the verdict on later ones: check that the day is right"
        )


def _warn_of_pool(evidence: Evidence, record: FitRecord | None) -> None:
    """Warn if rows that no request selects have the scores of the pool of the fit."""
    change = None if record is None or evidence.spec.top_k is not None else score_change(evidence, record)
    if change is None or evidence.effective_rows < _ROWS_OF_POOL:
        return
    if abs(change.mean) < _LIKE_POOL and abs(change.spread - 1) < _LIKE_POOL and change.stability < _LIKE_POOL:
        warn_user(
            "these rows have the scores of the pool of the fit, so they look like all candidates; the map is made for "
            "the rows that are selected: pass those alone, or select the best of each request (--request, --top-k)"
        )


def _decide(seen: Verdict, clear: bool) -> tuple[str, str]:
    """Return the decision and its reason; labels come first, and a change of scores counts if it is clear."""
    since, scores, shrinkage = seen.since_fit, seen.scores, seen.shrinkage
    if seen.alarm is not None:
        rows = since if seen.wrong_since is None else seen.wrong_since
        return "alarm", f"{rows.name} {error_words(rows)}; the alarm was raised on {seen.alarm}"
    if since.e_value >= WATCH:
        found = f"e-value {e_value_text(since.e_value)}; {ALARM:.0f} raises an alarm"
        return "watch", f"there is some evidence against the map ({found}): {error_words(since)}"
    for kind, parts in (("predictions of", seen.buckets), ("segment", seen.segments)):
        worst = max(parts, key=lambda part: part.e_value, default=None)
        if worst is not None and worst.e_value >= ALARM * len(parts):
            return "watch", f"for {kind} {worst.name}, {error_words(worst)}; all rows together show no error"
    if shrinkage is not None and abs(shrinkage.standard_errors) > _LAMBDA_ERRORS:
        change = f"λ changed from {shrinkage.before:.3f} to {shrinkage.after:.3f}"
        return "watch", f"{change} ({shrinkage.standard_errors:+.1f} standard errors); the labels show no error yet"
    if clear and scores is not None and scores.stability > _UNSTABLE:
        moved = f"their mean moved by {scores.mean:+.2f} standard deviations, and their spread is"
        return "watch", (
            f"the scores differ from those of the {scores.reference}: {moved} {scores.spread:.2f} times as large; "
            "the labels show no error yet"
        )
    return "keep", f"no evidence against the map: {error_words(since)}"


def _needed(since: Calibration) -> int:
    """Return how many more positives make the confidence sequence ±5% wide: its width falls with their root."""
    if since.error is None or since.low is None or since.high is None:
        # Before the first bound: a test at z standard errors needs z² positives for each squared relative error.
        z_squared = 2 * (math.log(ALARM) + 3)
        return math.ceil(max(z_squared / _TARGET**2 - since.observed, 0))
    half = (since.high - since.low) / 2
    return math.ceil(max(since.observed * ((half / _TARGET) ** 2 - 1), 0))


# ---------------------------------------------------------------------------- scores and λ, without labels


def score_change(pool: Evidence, record: FitRecord) -> ScoreChange | None:
    """Compare the scores of a pool with those of the fit, over ten bins with equal shares of the latter."""
    before, cells = record.pool.scores, pool.served
    if before is None or cells is None:
        return None
    now = ScoreSummary.of(cells)
    old = np.append(0.0, np.cumsum(before.weights)) / np.sum(before.weights)
    inner = np.unique(np.interp(np.arange(1, _BINS) / _BINS, old, before.edges))
    low, high = cells.bounds
    new = np.append(0.0, np.cumsum(cells.weight)) / cells.weight.sum()
    # A cell is spread evenly over its width.
    below = np.interp(inner, np.ravel([low, high], "F"), np.ravel([new[:-1], new[1:]], "F"))
    shares = ((below, cells.effective_rows), (np.interp(inner, before.edges, old), before.rows))
    p, q = (np.maximum(np.diff(share, prepend=0.0, append=1.0), 0.5 / rows) for share, rows in shares)
    mean, spread = _shift((now.mean, now.sd), (before.mean, before.sd))
    return ScoreChange("pool of the fit", mean, spread, float(np.sum((p - q) * np.log(p / q))))


def day_change(latest: Day, earlier: Sequence[Day]) -> tuple[ScoreChange, bool]:
    """Compare the scores of a day with those of earlier days; also tell whether the change is more than chance."""
    before = earlier[0]
    for day in earlier[1:]:
        before = before + day
    mean, spread = _shift((latest.score_mean, latest.score_sd), (before.score_mean, before.score_sd))
    # ∫(p − q)·ln(p/q) of two normal distributions. Without a change it is χ² with two degrees of freedom, times this.
    stability = (spread**2 + mean**2 + (1 + mean**2) / spread**2) / 2 - 1
    noise = sum(1 / max(day.sums.rows, 1e-9) for day in (latest, before))
    return ScoreChange("earlier days", mean, spread, stability), stability > _CHANCE * noise


def _shift(new: tuple[float, float], old: tuple[float, float]) -> tuple[float, float]:
    """Return the change of a mean, in standard deviations before the change, and the ratio of standard deviations."""
    sd = max(old[1], _MIN_SD)
    return (new[0] - old[0]) / sd, max(new[1], _MIN_SD) / sd


def lambda_change(pool: Evidence, record: FitRecord) -> LambdaChange | None:
    """Compare λ of a pool with replicas with that of the fit; None if either is unknown."""
    before, error = record.lambda_, record.standard_error
    if before is None or error is None or record.calibrator is not None or len(pool.spec.scores) < 2:
        return None
    kind = replica_kind(record.replicas)
    table = None if pool.replicas is None or record.link != "logistic" else kind.table(pool.replicas.table())
    try:
        after = Shrinkage.of(pool.moments, kind, table=table)
    except UncurseError:  # scores that do not vary
        return None
    both = float(np.hypot(error, after.error))
    value = max(after.value, 0.0)
    return LambdaChange(before, value, (value - before) / both) if both > 0 else None
