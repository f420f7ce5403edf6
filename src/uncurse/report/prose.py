"""Numbers as text, and a fit in words."""

from __future__ import annotations

import math
import re
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..methods import ErrorTable, FitRecord, Fitted, RefreshRecord

_SHARES = (0.01, 0.02, 0.05, 0.1)  # for which intervals are printed
#: Half the width of a 95% interval in standard errors.
Z95 = NormalDist().inv_cdf(0.975)

# Characters that XML 1.0 does not allow.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(value: object) -> str:
    r"""Return text without characters that XML does not allow.

    >>> clean("a\x00b\ud800\tλ")
    'a�b�\tλ'
    """
    return _NOT_XML.sub("�", str(value))


def percent(value: float, decimals: int = 1, *, sign: bool = True) -> str:
    """Format a share as a percentage; NaN is "n/a".

    >>> percent(0.1234), percent(-0.004), percent(0.02, sign=False), percent(1e300)
    ('+12.3%', '−0.4%', '2.0%', '+1e+302%')
    """
    return "n/a" if value != value else fixed(100 * value, decimals, sign=sign) + "%"


def fixed(value: float, decimals: int, *, sign: bool = False) -> str:
    """Format a number with a fixed number of decimals; a very large one with three digits.

    >>> fixed(-1.5, 2), fixed(0.1, 3, sign=True)
    ('−1.50', '+0.100')
    """
    text = f"{value:{'+' if sign else ''}{'.3g' if abs(value) >= 1e9 else f'.{decimals}f'}}"
    return text.replace("-", "−")


def number(value: float) -> str:
    """Format a number with three digits, or as an integer from 1000 on.

    >>> number(-0.012345), number(1234567.0), number(1e20)
    ('−0.0123', '1,234,567', '1e+20')
    """
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.3g}"
    return text.replace("-", "−") if "e" not in text else text


def share(alpha: float) -> str:
    """Format a selected share.

    >>> share(0.02), share(0.125)
    ('2%', '12.5%')
    """
    return f"{100 * alpha:.4g}%"


def short(name: str, limit: int = 22) -> str:
    """Shorten a name for a chart: keep both ends, on one line.

    >>> short("a-very-long-name-of-a-map.json", 15)
    'a-very-…ap.json'
    """
    name = " ".join(clean(name).split())
    head = (limit - 1) // 2
    return name if len(name) <= limit else f"{name[:head]}…{name[head + 1 - limit :]}"


def decimals_for(width: float) -> int:
    """Return how many decimals a percentage with a 95% interval of this width needs."""
    return 2 if width < 0.004 else 1 if width < 0.4 else 0


def interval(value: float, standard_error: float) -> tuple[float, float]:
    """Return the 95% interval."""
    return value - Z95 * standard_error, value + Z95 * standard_error


def span_words(low: float | None, high: float | None) -> str:
    """Return an interval, whose ends may be absent or infinite; an error is never below −100%."""
    lowest = low is None or low <= -1
    if high is None or high == math.inf:
        return "unknown" if lowest else f"{percent(low or 0.0)} or more"
    if low is None or lowest:
        return f"{percent(high)} or less"
    d = decimals_for(high - low)
    return f"{percent(low, d)} to {percent(high, d)}"


def error_text(error: float | None, low: float | None, high: float | None) -> str:
    """Return an error with as many decimals as its interval needs."""
    if error is None or error != error:
        return "undefined"
    if low is None or high is None or not math.isfinite(high - low):
        return percent(error)
    return percent(error, decimals_for(high - low))


# ---------------------------------------------------------------------------- a fit


def intervals_of(errors: ErrorTable | None) -> list[tuple[float, float, float]]:
    """Return share, lower and upper bound of the 90% intervals that are printed."""
    return [] if errors is None else [(a, *errors.interval(a)) for a in _SHARES if a >= errors.alphas[0]]


def fit_words(fitted: Fitted) -> list[str]:
    """Describe the result of a fit, one line per subject."""
    record, intervals = fitted.record, intervals_of(fitted.errors)
    assert record is not None
    lines = [f"why: {record.reason}"] if record.reason else []
    if record.half_life is not None:
        lines.append(_decay_words(record))
    shrunk = record.method.startswith("vad") and record.shape == "straight"  # other maps do not shrink by one λ
    if shrunk and record.lambda_ is not None and record.standard_error is not None and record.center is not None:
        shrinkage = f"λ = {record.lambda_:.4f} ± {record.standard_error:.4f}"
        lines.append(f"scores are shrunk towards {record.center:.4f} by {shrinkage}")
    if record.line_probability is not None:
        lines.append(f"probability that the labels follow a straight line: {record.line_probability:.2f}")
    if record.max_error is not None:
        selected = record.labels_from == "winners"
        rows = "the top 10% to 100% of the labeled rows" if selected else "the top 1% to 10% of the pool"
        differs = f"its mean predictions differ from the curve's by at most {100 * record.max_error:.2g}% on {rows}"
        lines.append(f"written as a straight line; {differs}, and by more on lower scores")
    if intervals:
        spans = [f"{share(alpha)}: {100 * low:+.1f}% to {100 * high:+.1f}%" for alpha, low, high in intervals]
        of = "" if record.segment is None else " of the map of all rows, not of each segment's"
        of = " of the curve, not of the straight line" if record.max_error else of
        unseen = " (errors that all replicas share are not counted)" if record.labeled is None else ""
        lines.append(f"expected error on the top of this pool, 90% intervals{of}: {', '.join(spans)}{unseen}")
        lines += _shape_words(record) if any(low > 0 or high < 0 for _, low, high in intervals) else []
    elif record.no_interval:
        lines.append(f"no intervals: {record.no_interval}")
    if record.refreshes:
        last = record.refreshes[-1]
        times = "once" if last.number == 1 else f"{last.number:,} times, last"
        changes = [f"{part} {change}" for part, change, _ in refresh_parts(last)] if last.changed else []
        lines.append("; ".join([f"refreshed {times} with {last.rows:,} labeled rows: {last.reason}", *changes]))
    return lines


def _decay_words(record: FitRecord) -> str:
    """Describe how old rows were weighted, and how many rows are left in effect."""
    parts = (("pool", record.pool), ("labeled", record.labeled))
    rows = [f"{data.effective_rows:,.0f} {role}" for role, data in parts if data is not None and data.effective_rows]
    effective = f"; {' and '.join(rows)} rows in effect" if rows else ""
    files = "1 file" if record.half_life == 1 else f"{record.half_life:g} files"
    return f"rows count half after {files}{effective}"


def _shape_words(record: FitRecord) -> list[str]:
    """Say why intervals do not contain zero: they allow for what these maps do not have."""
    if not record.method.startswith("vad"):
        return []
    if record.calibrator is not None:
        why, remedy = "labels and replicas together contradict this map", "use --method auto or labels"
    elif record.method == "vad with curvature":
        why = "one λ does not describe these replicas, and maps by segment have no monotone shape"
        remedy = "pass --labeled, or leave out --segment"
    else:
        curvature = "" if record.curvature else "the curvature of the link and "
        why = f"they allow for {curvature}noise that one λ does not describe, and --method vad does not"
        remedy = "use --method auto"
    return [f"intervals without zero: {why}; {remedy}"]


def refresh_parts(refresh: RefreshRecord) -> list[tuple[str, str, str]]:
    """Describe the changes of a refresh: part, change with its standard error, probability of a change.

    >>> from uncurse.methods import RefreshRecord
    >>> known = {"level": 0.03, "level_error": 0.009, "probabilities": (0.9, 0.1, 0.0)}
    >>> refresh_parts(RefreshRecord(1, 500, 40.0, (), "level", "", True, -2.0, **known))[0]
    ('level', '+3.0% ± 0.9% of the odds', '90%')
    """
    odds = math.exp(min(refresh.level, 700.0))
    level = f"{percent(odds - 1)} ± {percent(odds * refresh.level_error, sign=False)} of the odds"
    slope = f"{percent(refresh.slope)} ± {percent(refresh.slope_error, sign=False)}"
    bent = f"{percent(math.expm1(min(refresh.curve, 700.0)))} of the odds on the top 10%"
    changes = {"level": level, "slope": slope, "curve": bent if refresh.curve else "none"}
    known = [percent(value, 0, sign=False) for value in refresh.probabilities] or [""] * len(changes)
    return [(part, change, value) for (part, change), value in zip(changes.items(), known, strict=True)]


def record_lines(fitted: Fitted) -> list[str]:
    """Describe options, result and rows of a fit, one line per subject."""
    record = fitted.record
    assert record is not None
    options = [f"{name} {getattr(record, name)}" for name in ("method", "scale", "link", "replicas")]
    options += [f"calibrator {record.calibrator}"] if record.calibrator else []
    options += ["curvature"] if record.curvature else []
    options += [f"shape {record.shape}"] if record.shape != "straight" else []
    lines = [", ".join(options)]
    if record.negative_sampling_rate is not None:
        lines.append(f"negative-sampling rate {number(record.negative_sampling_rate)}")
    if record.segment is not None:
        count = f" ({len(record.segments):,} segments)" if record.segments else ""
        lines.append(f"a map for each {record.segment}{count}")
    lines += fit_words(fitted)
    for role, data in (("pool", record.pool), ("labeled", record.labeled)):
        if data is not None:
            parts = [f"{role}: {data.rows:,} rows", *data.sources, f"columns {', '.join(data.columns)}"]
            lines.append(", ".join(parts))
    return [*lines, f"fitted with uncurse {record.version}"]
