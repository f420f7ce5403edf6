"""Times of evidence, and the factor by which older evidence decays."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from numbers import Real
from typing import Any

from ..errors import UncurseError
from ..validation import check_share

#: Cells with a smaller share of the weight are dropped when weights decay: a file that decays every day for years then
#: stays small, and no result changes by more than rounding.
NEGLIGIBLE = 1e-15
_LEAST_WEIGHT = 1e-100  # Σw² of the lightest cell is then still a normal number
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
    """Return a date and time in UTC as text."""
    return check_time(time, name).isoformat(timespec="seconds")


def check_half_life(half_life: Any) -> float:
    """Return a half-life: a positive number of periods, or infinity if nothing decays."""
    if isinstance(half_life, bool) or not isinstance(half_life, Real) or not float(half_life) > 0:
        raise UncurseError(f"half_life={half_life!r}; pass a positive number of periods, such as 3")
    return float(half_life)


def check_factor(factor: Any, total: float) -> None:
    """Raise an error unless a factor for weights that add up to `total` is in (0, 1] and leaves some weight."""
    check_share(factor, "factor")
    if total > 0 and not total * factor >= _LEAST_WEIGHT:
        raise UncurseError(f"factor={factor!r} leaves a total weight of {total * factor:.1g}; start with new evidence")


def decay_factor(elapsed: float, half_life: float) -> float:
    """Return the factor of weights after some time, at least 1e-30: older rows then have no weight to rounding."""
    return max(math.exp2(-elapsed / half_life), _LEAST_FACTOR)


def duration_seconds(text: str, name: str = "half_life") -> float:
    """Return the seconds of a duration such as 3d, 36h, 90m or 2w."""
    found = re.fullmatch(r"\s*(\d*\.?\d+)\s*([mhdw])\s*", text, re.ASCII)
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < seconds < math.inf:
        raise UncurseError(f"{name} is {text!r}; pass a positive time with a unit: 90m, 36h, 3d or 2w")
    return seconds
