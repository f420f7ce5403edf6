"""Times of evidence, and the factor by which older evidence decays.

Each period multiplies all earlier sums by the same factor, in `merged` of `evidence/evidence.py` and in
`cli/collect.py`, so that they need not be kept apart. Another decay than the exponential would need the sums of each
period.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

from ..errors import UncurseError
from ..validation import check_number

_LEAST_FACTOR = 1e-30
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def check_time(time: Any, name: str) -> datetime:
    """Return an ISO 8601 date or time in UTC; a time without an offset is in UTC. Errors call it `name`."""
    try:
        found = datetime.fromisoformat(time)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise UncurseError(f"{name} is {time!r:.40}; pass an ISO date or time, such as 2026-11-15T06:00") from None


def utc_time(time: Any, name: str = "as_of") -> str:
    """Return a date and time in UTC as text.

    >>> utc_time("2026-11-15"), utc_time("2026-11-15T01:30:00+02:00")
    ('2026-11-15T00:00:00+00:00', '2026-11-14T23:30:00+00:00')
    """
    return check_time(time, name).isoformat(timespec="seconds")


def check_half_life(half_life: Any) -> float:
    """Return a half-life: a positive number of periods, or infinity if nothing decays."""
    if isinstance(half_life, float) and half_life == math.inf:
        return math.inf
    value = check_number(half_life, "half_life")
    if not value > 0:
        raise UncurseError(f"half_life={half_life!r}; pass a positive number of periods, such as 3")
    return value


def decay_factor(elapsed: float, half_life: float) -> float:
    """Return the factor of weights after some time, at least 1e-30: older rows then have no weight to rounding.

    >>> decay_factor(1.0, 1.0), decay_factor(6.0, 2.0), decay_factor(1e9, 1.0)
    (0.5, 0.125, 1e-30)
    """
    return max(math.exp2(-min(elapsed / half_life, 1000.0)), _LEAST_FACTOR)


def duration_seconds(text: str, name: str = "half_life") -> float:
    """Return the seconds of a duration such as 3d, 36h, 90m or 2w.

    >>> duration_seconds("36h")
    129600.0
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([mhdw])\s*", text, re.ASCII)
    try:
        seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise UncurseError(f"{name} is {text!r}; pass a positive time with a unit: 90m, 36h, 3d or 2w")
    return seconds
