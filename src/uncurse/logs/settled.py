"""Keep the rows of a log whose label is known and final: labels such as purchases arrive late."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import narwhals as nw

from ..errors import UncurseError
from ..validation import warn_user
from .checks import is_text

Frame = TypeVar("Frame", nw.LazyFrame[Any], nw.DataFrame[Any])


@dataclass(frozen=True)
class Settled:
    """Which rows have a final label.

    Parameters
    ----------
    label : str
        Column of labels; rows without one are left out.
    time : str, optional
        Column of times, needed by the next two.
    since, before : datetime, optional
        Only rows of this time or later, and only rows before this time; in UTC.

    Examples
    --------
    >>> Settled("click").time is None
    True
    """

    label: str
    time: str | None = None
    since: datetime | None = None
    before: datetime | None = None

    def __post_init__(self) -> None:
        if (self.time is None) != (self.since is None and self.before is None):
            raise UncurseError(
                "a column of times and the time before which labels are final belong together; pass both"
            )


def keep_settled(frame: Frame, settled: Settled) -> Frame:
    """Keep the rows that have a final label; say how many are left out.

    Parameters
    ----------
    frame : narwhals LazyFrame or DataFrame
        The log.
    settled : Settled
        Which rows to keep.

    Returns
    -------
    narwhals LazyFrame or DataFrame

    Examples
    --------
    >>> import polars as pl
    >>> log = nw.from_native(pl.DataFrame({"s": [0.1, 0.2], "click": [1, None]}))
    >>> with __import__("warnings").catch_warnings(action="ignore"):
    ...     len(keep_settled(log, Settled("click")))
    1
    """
    schema = frame.collect_schema()
    missing = nw.col(settled.label).is_null()
    if schema[settled.label].is_float():
        missing = missing | nw.col(settled.label).is_nan()
    if settled.time is not None:
        time = _time(settled.time, schema[settled.time])
        if settled.before is not None:
            frame = frame.filter(time < _as(settled.before, schema[settled.time]))
        if settled.since is not None:
            frame = frame.filter(time >= _as(settled.since, schema[settled.time]))
    counted: Any = frame.lazy().select(missing.cast(nw.Int64).sum().alias("missing")).collect()
    unlabelled = int(counted["missing"][0] or 0)
    if not unlabelled:
        return frame
    warn_user(f"{unlabelled:,} rows have no {settled.label} yet; they are not counted")
    return frame.filter(~missing)


def _time(name: str, dtype: Any) -> nw.Expr:
    if is_text(dtype):
        return nw.col(name).str.to_datetime()
    if isinstance(dtype, nw.Datetime | nw.Date) or dtype in (nw.Datetime, nw.Date):
        return nw.col(name)
    raise UncurseError(f"the time column {name!r} holds {dtype}; convert it to a date, a timestamp or ISO text")


def _as(time: datetime, dtype: Any) -> Any:
    """Return a time as a column of this type compares with it."""
    if dtype == nw.Date:
        if (time.hour, time.minute, time.second, time.microsecond) != (0, 0, 0, 0):
            raise UncurseError(f"the time column holds dates and {time} is within a day; pass a date")
        return time.date()
    if getattr(dtype, "time_zone", None):
        return time
    return time.astimezone(UTC).replace(tzinfo=None)


__all__ = ["Settled", "keep_settled"]
