"""`monitor`: does a map still hold on new rows? Keep it, watch it, or refit it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ..debias.base import Debiaser, Fitted
from ..debias.records import FitRecord
from ..debias.refresh import check_fits, map_and_record
from ..errors import UncurseError
from ..evidence import Evidence
from ..evidence.decay import check_time
from ..maps import ScoreMap
from ..validation import check_number
from .drift import LambdaChange, ScoreChange, day_change, lambda_change, score_change
from .sequential import (
    LEVEL,
    Calibration,
    LabelSums,
    calibration_of,
    calibrations_of,
    e_value,
    error_words,
    likely_start,
    log_e_values,
    total,
)
from .state import MonitorState, count_rows, map_digest, range_place

_WATCH = 5.0  # an e-value that a valid map reaches with probability 20% at most
_UNSTABLE = 0.1  # population stability index from which scores are commonly said to have changed
_LAMBDA_ERRORS = 3.0  # change of λ, in standard errors
_TARGET = 0.05  # size of the error for which the number of further positives is given


@dataclass(frozen=True)
class Verdict:
    """Whether a map still holds.

    Parameters
    ----------
    decision : {"keep", "watch", "refit"}
        What to do.
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
    buckets, groups : tuple of Calibration
        Calibration by range of the prediction, and by group, since the fit.
    scores : ScoreChange or None
        Change of the scores; None on the first day if the map has no record of them, or if rows were selected.
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
    groups: tuple[Calibration, ...]
    scores: ScoreChange | None
    shrinkage: LambdaChange | None
    state: MonitorState

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the state.

        Returns
        -------
        dict
        """
        content = asdict(replace(self, state=MonitorState("")))
        del content["state"]
        return content


def monitor(
    map: str | os.PathLike[str] | ScoreMap | Fitted | Debiaser,
    evidence: Evidence,
    state: MonitorState | None = None,
    *,
    pool: Evidence | None = None,
    day: str | None = None,
    tolerance: float = 0.0,
) -> Verdict:
    """Compare new labelled rows with a map, and decide whether to keep it.

    The test may be repeated every day: a valid map ever raises an alarm with probability 5% at most. Pass the state of
    the last call, so that evidence adds up.

    Parameters
    ----------
    map : path, ScoreMap, Fitted, VAD, Tower or Auto
        The map that is served. A file and a fitted object also tell how it was fitted.
    evidence : Evidence
        New labelled rows that were not in any call before, such as the selected rows of a day. Leave rows without a
        label out: they are no negatives.
    state : MonitorState, optional
        ``Verdict.state`` of the last call.
    pool : Evidence, optional
        New rows of the whole candidate pool, whose scores and λ are compared with the fit. By default the scores of
        `evidence` are compared with those of the earlier days of `state`. Without earlier days the verdict has the
        comparison with the labelled rows of the fit, or with its pool if it had none, as information only: the rows
        of the fit may have been selected by another system.
    day : str, optional
        ISO date or time of the rows; today (UTC) by default.
    tolerance : float, default=0.0
        Errors of the odds up to this share are accepted: 0.02 for 2%.

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
    'refit'
    """
    score_map, record = map_and_record(map)
    tolerance = _check_tolerance(tolerance)
    for name, rows in (("evidence", evidence), ("pool", pool)):
        if not isinstance(rows, Evidence | None) or (rows is None and name == "evidence"):
            raise UncurseError(f"{name} is of type {type(rows).__name__}; pass Evidence")
        if rows is not None:
            check_fits(rows, score_map, record, name)
    day = datetime.now(UTC).date().isoformat() if day is None else day
    check_time(day, "day")
    digest = map_digest(score_map)
    state = MonitorState(digest) if state is None else state
    new = count_rows(digest, score_map, evidence, day)
    _check_new(state, new)
    merged = state.merge(new)
    latest = total([one.sums for one in new.days.values()])
    if pool is not None:
        return judge(merged, latest, *_drift(pool, record, "pool"), tolerance=tolerance)
    verdict = judge(merged, latest, tolerance=tolerance)
    if verdict.scores is not None or evidence.spec.top_k is not None:  # selected rows say nothing of all rows
        return verdict
    # These rows were shown by this system, and those of the fit often by another: information, no reason to watch.
    name = "pool" if record is None or record.labelled is None else "labelled rows"
    scores, shrinkage = _drift(evidence, record, name)
    return replace(verdict, scores=scores, shrinkage=shrinkage)


def judge(
    state: MonitorState,
    latest: LabelSums | None = None,
    scores: ScoreChange | None = None,
    shrinkage: LambdaChange | None = None,
    *,
    tolerance: float = 0.0,
) -> Verdict:
    """Return the verdict on a state.

    Parameters
    ----------
    state : MonitorState
        What was seen since the fit, at least one day.
    latest : LabelSums, optional
        Sums of the newest rows; those of the last day by default.
    scores : ScoreChange, optional
        Change of the scores; by default the last day is compared with the days before it.
    shrinkage : LambdaChange, optional
        Change of λ.
    tolerance : float, default=0.0
        See `monitor`.

    Returns
    -------
    Verdict

    Examples
    --------
    >>> from uncurse import Affine
    >>> from uncurse.evidence import from_arrays
    >>> verdict = monitor(Affine(1.0, 0.0), from_arrays([[0.0], [0.0]], [0, 1]))
    >>> judge(verdict.state).decision
    'keep'
    """
    _check_state(state)
    tolerance = _check_tolerance(tolerance)
    if not state.days:
        raise UncurseError("this state holds no day; monitor some rows first")
    ordered, observed, cumulants = state.ordered, *state.series()
    days = [day.sums for _, day in ordered]
    log_e = log_e_values(observed, cumulants, tolerance)
    alarms = np.flatnonzero(log_e >= -math.log(1 - LEVEL))
    alarm = ordered[alarms[0]][0] if len(alarms) else None
    sums = total(days)
    by_range = sorted(state.buckets.items(), key=lambda item: range_place(item[0]))
    by_group = sorted(state.groups.items())
    rows = [("since the fit", sums), ("latest", days[-1] if latest is None else latest), *by_range, *by_group]
    at_once, newest, *parts = calibrations_of(rows, tolerance)
    since = replace(at_once, e_value=e_value(float(log_e[-1])))  # which also looks for errors that began later
    buckets, groups = tuple(parts[: len(by_range)]), tuple(parts[len(by_range) :])
    start = 0 if alarm is None else likely_start(observed, cumulants)
    wrong = calibration_of(f"since {ordered[start][0]}", total(days[start:]), tolerance) if start else None
    clear = True
    if scores is None and len(ordered) > 1:
        scores, clear = day_change(ordered[-1][1], [day for _, day in ordered[:-1]])
    decision, reason = _decide(since, wrong, alarm, buckets, groups, scores if clear else None, shrinkage)
    return Verdict(
        decision,
        reason,
        since,
        newest,
        wrong,
        len(days),
        alarm,
        _needed(since, sums),
        buckets,
        groups,
        scores,
        shrinkage,
        state,
    )


def _check_tolerance(tolerance: Any) -> float:
    value = check_number(tolerance, "tolerance")
    if not 0 <= value < 1:
        raise UncurseError(f"tolerance={value:g}; pass a share from 0 to 1, such as 0.02")
    return value


def _check_state(state: Any) -> None:
    if not isinstance(state, MonitorState):
        raise UncurseError(f"state is of type {type(state).__name__}; pass the state of a Verdict")


def _check_new(state: MonitorState, new: MonitorState) -> None:
    """Check that the state belongs to the map, and that its files were not counted on the same day."""
    _check_state(state)
    state.check_map(new.map_id)
    if state.settled_before is not None:  # times tell rows apart
        return
    for day, one in new.days.items():
        counted = set(map(os.path.realpath, state.days[day].sources)) if day in state.days else set()
        for source in one.sources:
            if os.path.realpath(source) in counted:
                raise UncurseError(
                    f"{source} was counted on {day} already; name the day of these rows if they are others"
                )


# ---------------------------------------------------------------------------- the decision


def _drift(rows: Evidence, record: FitRecord | None, name: str) -> tuple[ScoreChange | None, LambdaChange | None]:
    """Compare rows with the pool or the labelled rows of the fit."""
    if record is None:
        return None, None
    before = record.pool if name == "pool" else record.labelled
    assert before is not None
    assert rows.cells is not None
    scores = None if before.scores is None else score_change(rows.cells, before.scores, name)
    return scores, lambda_change(rows, record) if name == "pool" else None


def _decide(
    since: Calibration,
    wrong: Calibration | None,
    alarm: str | None,
    buckets: Sequence[Calibration],
    groups: Sequence[Calibration],
    scores: ScoreChange | None,
    shrinkage: LambdaChange | None,
) -> tuple[str, str]:
    """Return the decision and its reason; what the labels say comes first."""
    if alarm is not None:
        rows = since if wrong is None else wrong
        return "refit", f"{rows.name} {error_words(rows)}; the alarm was raised on {alarm}"
    threshold = 1 / (1 - LEVEL)
    if since.e_value >= _WATCH:
        found = f"e-value {since.e_value:.1f}; {threshold:.0f} raises an alarm"
        return "watch", f"there is some evidence against the map ({found}): {error_words(since)}"
    for kind, parts in (("predictions of", buckets), ("group", groups)):
        worst = max(parts, key=lambda part: part.e_value, default=None)
        if worst is not None and worst.e_value >= threshold * len(parts):
            return "watch", f"for {kind} {worst.name}, {error_words(worst)}; all rows together show no error"
    if shrinkage is not None and abs(shrinkage.standard_errors) > _LAMBDA_ERRORS:
        change = f"λ changed from {shrinkage.before:.3f} to {shrinkage.after:.3f}"
        return "watch", f"{change} ({shrinkage.standard_errors:+.1f} standard errors); the labels show no error yet"
    if scores is not None and scores.stability > _UNSTABLE:
        moved = f"mean {scores.mean:+.2f} standard deviations, spread × {scores.spread:.2f}"
        return "watch", (
            f"the scores differ from those of the {scores.reference} ({moved}, stability index "
            f"{scores.stability:.2f}); the labels show no error yet"
        )
    return "keep", f"no evidence against the map: {error_words(since)}"


def _needed(since: Calibration, sums: LabelSums) -> int:
    """Return how many more positives make the confidence sequence ±5% wide: its width falls with their root."""
    if since.error is None or since.low is None or since.high is None:
        # Before the first bound: a test at z standard errors needs z² positives for each squared relative error.
        z_squared = 2 * (math.log(1 / (1 - LEVEL)) + 3)
        return math.ceil(max(z_squared / _TARGET**2 - sums.observed, 0))
    half = (since.high - since.low) / 2
    return math.ceil(max(sums.observed * ((half / _TARGET) ** 2 - 1), 0))
