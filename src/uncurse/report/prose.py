"""A fit in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..text import interval, percent, share

if TYPE_CHECKING:
    from ..methods import Fitted, RefreshRecord

_SHARES = (0.01, 0.02, 0.05, 0.1)  # for which intervals are printed


def intervals_of(fitted: Fitted) -> list[dict[str, float]]:
    """Return the 90% intervals that are printed, with keys "alpha", "low" and "high"."""
    errors, record = fitted.errors, fitted.record
    if errors is None:
        return []
    shares = _SHARES if record is None or record.top_k is None else (0.1, 1.0)
    ends = [(alpha, *errors.interval(alpha)) for alpha in shares if alpha >= errors.alphas[0]]
    return [{"alpha": alpha, "low": low, "high": high} for alpha, low, high in ends]


def fit_words(fitted: Fitted) -> list[str]:
    """Describe the result of a fit, one line per subject."""
    record, intervals = fitted.record, intervals_of(fitted)
    assert record is not None
    lines = [f"why: {record.reason}"] if record.reason else []
    if record.labeled is None:
        lines.append("no labels were used; rows scored out of fold in training can serve as labels (--labeled)")
    if record.half_life is not None:
        data = {"pool": record.pool, "labeled": record.labeled}
        effective = [f"{one.effective_rows:,.0f} {name}" for name, one in data.items() if one and one.effective_rows]
        lines.append(f"rows count half after {record.half_life:g} files; rows in effect: {', '.join(effective)}")
    shrunk = record.method.startswith("vad") and record.shape == "straight"  # other maps do not shrink by one λ
    if shrunk and record.lambda_ is not None and record.standard_error is not None and record.center is not None:
        shrinkage = f"λ = {record.lambda_:.4f} (standard error {record.standard_error:.4f})"
        lines.append(f"scores are shrunk towards {record.center:.4f} by {shrinkage}")
    if record.line_probability is not None:
        lines.append(f"probability that the labels follow a straight line: {record.line_probability:.2f}")
    if record.max_error is not None:
        rows = "the top 1% to 10% of the pool"
        if record.top_k is not None or record.labels_from == "winners":
            rows = f"the top 10% to 100% of the {'labeled rows' if record.top_k is None else 'winners'}"
        differs = f"its mean predictions differ from the curve's by at most {100 * record.max_error:.2g}% on {rows}"
        lines.append(f"written as a straight line; {differs}, and by more on lower scores")
    if record.no_interval and not intervals:
        lines.append(f"no intervals: {record.no_interval}")
    elif record.method.startswith("vad") and any(one["low"] > 0 or one["high"] < 0 for one in intervals):
        missing = "the labels or the replicas show more than this map corrects"
        lines.append(f"intervals without zero: {missing}; pass --labeled, or use --method auto")
    if record.refreshes:
        last = record.refreshes[-1]
        times = "once" if last.number == 1 else f"{last.number:,} times, last"
        changes = [f"{part} {change}" for part, change, _ in refresh_parts(last)] if last.changed else []
        lines.append("; ".join([f"refreshed {times} with {last.rows:,} labeled rows: {last.reason}", *changes]))
    return lines


def remaining_error(fitted: Fitted) -> tuple[str, list[tuple[str, str]], str]:
    """Return a title, a row for each share with its interval, and what the intervals leave out."""
    record = fitted.record
    assert record is not None
    of = "" if record.segment is None else " of the map of all rows, not of each segment's"
    of = " of the curve, not of the straight line" if record.max_error else of
    top = "this pool" if record.top_k is None else "the winners of requests"
    found = intervals_of(fitted)
    rows = [(share(one["alpha"]), f"{percent(one['low'])} to {percent(one['high'])}") for one in found]
    unseen = "not included: errors that all replicas share; labels show these (--labeled, or uncurse evaluate)"
    return f"expected remaining error{of}, top of {top}", rows, unseen if record.labeled is None else ""


def lowest_predictions(fitted: Fitted) -> list[str]:
    """Return the lowest prediction of each share with an interval, as served and by the map; empty if not known."""
    from ..evidence.spec import logit_offset
    from ..links import logistic
    from ..maps import Segmented

    record = fitted.record
    if record is None or record.pool.scores is None or fitted.map.link != "logistic":
        return []
    default = fitted.map.default if isinstance(fitted.map, Segmented) else fitted.map
    logits = record.pool.scores.lowest([one["alpha"] for one in intervals_of(fitted)])
    both = logistic(logits), default.at_logits(logits - logit_offset(record.negative_sampling_rate))
    return [f"{100 * before:#.3g}% → {100 * after:#.3g}%" for before, after in zip(*both, strict=True)]


def change(value: float, standard_error: float) -> str:
    """Describe a change with its 95% interval.

    >>> change(-0.125, 0.036)
    '-12.5% (-19.6% to -5.4%)'
    """
    low, high = interval(value, standard_error)
    return f"{percent(value)} ({percent(low)} to {percent(high)})"


def refresh_parts(refresh: RefreshRecord) -> list[tuple[str, str, str]]:
    """Describe the changes of a refresh: part, change with its standard error, probability of a change.

    >>> from uncurse.methods import RefreshRecord
    >>> known = {"level": 0.03, "level_error": 0.009, "probabilities": (0.9, 0.1, 0.0)}
    >>> refresh_parts(RefreshRecord(1, 500, 40.0, (), "level", "", True, -2.0, **known))[0]
    ('level', '+3.0% (+1.2% to +4.9%) of the odds', '90%')
    """
    low, high = interval(refresh.level, refresh.level_error)
    level = (
        f"{percent(math.expm1(refresh.level))} ({percent(math.expm1(low))} to {percent(math.expm1(high))}) of the odds"
    )
    slope = change(refresh.slope, refresh.slope_error)
    bent = f"{percent(math.expm1(refresh.curve))} of the odds on the top 10%"
    changes = {"level": level, "slope": slope, "curve": bent if refresh.curve else "none"}
    known = [percent(value, 0, sign=False) for value in refresh.probabilities] or [""] * len(changes)
    return [(part, change, value) for (part, change), value in zip(changes.items(), known, strict=True)]


def record_lines(fitted: Fitted) -> list[str]:
    """Describe options, result and rows of a fit, one line per subject."""
    record = fitted.record
    assert record is not None
    options = (
        "method", "scale", "replicas", "calibrator", "curvature", "negative_sampling_rate", "segment", "top_k",
    )  # fmt: skip
    given = {name.replace("_", " "): getattr(record, name) for name in options}
    lines = [", ".join(name if value is True else f"{name} {value}" for name, value in given.items() if value)]
    lines += fit_words(fitted)
    title, intervals, unseen = remaining_error(fitted)
    if intervals:
        spans = ", ".join(f"{top}: {span}" for top, span in intervals)
        lines += [f"{title}, 90% intervals: {spans}", *([unseen] if unseen else [])]
    for role, data in (("pool", record.pool), ("labeled", record.labeled)):
        if data is not None:
            parts = [f"{role}: {data.rows:,} rows", *data.sources, f"columns {', '.join(data.columns)}"]
            lines.append(", ".join(parts))
    return [*lines, f"fitted with uncurse {record.version}"]
