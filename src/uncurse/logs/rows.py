"""Select the rows of a log that count, and read their columns as arrays. What a column cannot hold is an error.

Rows come in batches, which are Polars frames whatever engine they are from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from .._types import Array, Float
from ..errors import UncurseError
from ..evidence import LogSpec, TopK
from ..links import get_link
from ..validation import LARGEST_SCORE, check_choice, check_weights, warn_user

Progress = Callable[[int], None]  # called with the number of rows read since the last call
#: Rows that are read at a time: 2e7 rows in 8 segments stay within 500 MB.
BATCH = 1 << 18
#: Column of a batch with the numbers of its rows.
ROW = "uncurse row"
_FEW = 100  # rows; fewer scores may lie in [0, 1] by chance
# Date; hours and minutes; seconds; offset from UTC.
_ISO = r"^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d(?:\.\d+)?)?)? ?(Z|[+-]\d\d:?\d\d)?$"


class Fault(UncurseError):
    """A value that a column cannot hold, with its column and the number of its row, if that is known."""

    column = problem = ""
    row: int | None = None

    def at(self, place: str) -> str:
        """Describe the fault at a place, such as a line of a file."""
        return f"column {self.column!r}, {place} {self.problem}"


def fault(batch: pl.DataFrame, column: str, place: int | None, problem: str) -> Fault:
    """Return the fault of the value at a place of a batch."""
    row = int(batch[ROW][place or 0]) if ROW in batch.columns else None
    found = Fault(f"column {column!r}, {'a value' if row is None else f'row {row:,}'} {problem}")
    found.column, found.row, found.problem = column, row, problem
    return found


@dataclass(frozen=True)
class Settled:
    """Which rows have a final label: labels such as purchases arrive late.

    Parameters
    ----------
    label : str
        Column of labels; rows without one are left out, with a warning that counts them.
    time : str, optional
        Column of times, needed by the next two: dates, timestamps or ISO text; in UTC if they have no offset.
    since, before : datetime, optional
        Only rows of this time or later, and only rows before this time.

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


class Reader:
    """Reads the columns of a `LogSpec` from batches; `left_out` counts rows without a value, by its column."""

    def __init__(
        self, spec: LogSpec, *, settled: Settled | None = None, missing: str = "refuse", text: bool = False
    ) -> None:
        self.spec, self.settled, self.text = spec, settled, text
        self.drops = check_choice("missing", missing, ("refuse", "drop")) == "drop"
        named = (spec.segment, getattr(spec.top_k, "request", None), getattr(settled, "time", None))
        self.names: list[str] = [name for name in named if name is not None]
        self.columns = list(dict.fromkeys((*spec.numbers, *self.names)))
        self.left_out: Counter[str] = Counter()
        if ROW in self.columns:
            raise UncurseError(f"column {ROW!r} has a name that is used internally; rename it")

    # ------------------------------------------------------------------------ rows

    def select(self, source: Iterable[pl.DataFrame], progress: Progress | None = None) -> Iterator[pl.DataFrame]:
        """Return the rows that count, with their numbers in the log."""
        spec, settled = self.spec, self.settled
        rows = self._numbered(source, progress)
        if self.drops:
            needed = [name for name in self.columns if name != spec.label]
            rows = (self._without_missing(batch, needed) for batch in rows)
        if spec.top_k is not None:
            rows = self._best(rows, spec.top_k)
        if settled is not None and settled.time is not None:
            rows = (self._in_time(batch, settled, settled.time) for batch in rows)
        if spec.label is not None and (self.drops or settled is not None):
            labels = [spec.label]
            rows = (self._without_missing(batch, labels) for batch in rows)
        return rows

    def _numbered(self, source: Iterable[pl.DataFrame], progress: Progress | None) -> Iterator[pl.DataFrame]:
        """Number the rows, and join small batches."""
        first, joined = 0, []
        for batch in source:
            rows = pl.Series(ROW, np.arange(first, first + len(batch)))
            joined.append(self.typed(batch.select(self.columns).with_columns(rows)))
            first += len(batch)
            if progress is not None:
                progress(len(batch))
            if sum(map(len, joined)) >= BATCH // 8:
                yield _joined(joined)
                joined = []
        if joined:
            yield _joined(joined)

    def _without_missing(self, batch: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
        for name in columns:
            missing = is_missing(batch[name])
            if missing.any():
                self.left_out[name] += int(missing.sum())
                batch = batch.filter(~missing)
        return batch

    def _best(self, rows: Iterable[pl.DataFrame], top_k: TopK) -> Iterator[pl.DataFrame]:
        """Keep the best rows of each request, which may lie in several batches; of equal scores the first."""
        kept: list[pl.DataFrame] = []
        limit = 4 * BATCH
        for batch in rows:
            check_present(batch, top_k.request, "drop it, or give each row a request")
            kept.append(_best_of(batch, self.spec.scores[0], top_k))
            if sum(map(len, kept)) > limit:
                kept = [_best_of(_joined(kept), self.spec.scores[0], top_k)]
                limit = max(limit, 2 * len(kept[0]))
        if kept:
            yield from _best_of(_joined(kept), self.spec.scores[0], top_k).sort(ROW).iter_slices(BATCH)

    def _in_time(self, batch: pl.DataFrame, settled: Settled, name: str) -> pl.DataFrame:
        check_present(batch, name, "give each row a time, or leave it out")
        limits = [limit and limit.astimezone(UTC) for limit in (settled.since, settled.before)]
        for limit in limits:
            if batch[name].dtype == pl.Date and limit is not None and (limit.hour, limit.minute) != (0, 0):
                raise UncurseError(f"the time column {name!r} holds dates and {limit} is within a day; pass a date")
        times = _in_utc(batch[name])
        if times.null_count():
            at = times.is_null().arg_max() or 0
            problem = f"is {batch[name][at]!r}; pass ISO times, such as 2026-11-15T09:30:00Z"
            raise fault(batch, name, at, problem)
        since, before = limits
        counts = pl.lit(True) if since is None else times >= since
        return batch.filter(counts, pl.lit(True) if before is None else times < before)

    # ------------------------------------------------------------------------ columns

    def typed(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Return a batch whose scores and weights are floats and whose labels are numbers."""
        typed = []
        for name in self.spec.numbers:
            column, dtype = batch[name], batch[name].dtype
            if self.text and dtype == pl.String:
                column = _parsed(batch, name)
            elif not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
                raise UncurseError(f"column {name!r} {holds(dtype)}, not numbers; name another column, or convert it")
            elif dtype == pl.Boolean:
                column = column.cast(pl.Int8)
            keeps_type = column.dtype.is_integer() and name == self.spec.label
            if column.dtype not in (pl.Float32, pl.Float64) and not keeps_type:
                column = column.cast(pl.Float64)
            typed.append(column)
        if self.spec.segment is not None:
            check_segment(batch.schema[self.spec.segment], f"the segment column {self.spec.segment!r}")
        return batch.with_columns(typed)

    def arrays(self, batch: pl.DataFrame) -> tuple[Float, NDArray[Any] | None, Array | None]:
        """Return scores (n, S), labels and weights of a typed batch; the first value at fault is an error."""
        spec = self.spec
        columns = [_numbers(batch, name, spec) for name in spec.scores]
        scores: Float = np.empty((len(batch), len(columns)), np.result_type(*columns))
        for i, column in enumerate(columns):
            scores[:, i] = column
        labels = None if spec.label is None else _numbers(batch, spec.label, spec)
        weights = None
        if spec.weight is not None:
            weights = _numbers(batch, spec.weight, spec).astype(np.float64)
            if weights.any():
                weights = check_weights(weights, len(batch))
        return scores, labels, weights

    def segments(self, batch: pl.DataFrame) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Return the name of each segment, with the places of its rows in a batch."""
        if self.spec.segment is None:
            return
        check_present(batch, self.spec.segment, "fill it, say with 'unknown'")
        names = batch[self.spec.segment].cast(pl.String).alias("name")
        for (name,), rows in names.to_frame().with_row_index("row").group_by("name", maintain_order=True):
            if str(name)[-1:] == "\0":
                raise UncurseError(f"segment {name!r} ends in a null character; rename the segment")
            yield str(name), rows["row"].to_numpy().astype(np.intp)


def warn_of_probabilities(score: str, low: float, high: float, rows: int, remedy: str) -> None:
    """Warn if scores that should be logits all lie in [0, 1]."""
    if rows >= _FEW and low >= 0 and high <= 1:
        warn_user(f"every value of {score} lies in [0, 1]; if these are probabilities, {remedy}")


def check_segment(dtype: pl.DataType, column: str) -> None:
    """Check that a column can name segments: floats and truth values have several texts."""
    if not (dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null) or dtype.is_integer()):
        raise UncurseError(f"{column} {holds(dtype)}; segments are text or whole numbers, so cast it")


def holds(dtype: pl.DataType) -> str:
    """Describe what a column of a type holds."""
    return "holds Python objects" if dtype == pl.Object else f"holds {dtype}"


def _joined(batches: list[pl.DataFrame]) -> pl.DataFrame:
    return batches[0] if len(batches) == 1 else pl.concat(batches, how="vertical_relaxed")


def is_missing(column: pl.Series) -> pl.Series:
    """Tell which values are null or NaN."""
    return column.is_null() | column.is_nan().fill_null(True) if column.dtype.is_float() else column.is_null()


def check_present(batch: pl.DataFrame, name: str, remedy: str) -> None:
    """Check that a column has no missing values."""
    missing = is_missing(batch[name])
    if missing.any():
        raise fault(batch, name, missing.arg_max(), f"is missing; {remedy}")


def _best_of(batch: pl.DataFrame, score: str, top_k: TopK) -> pl.DataFrame:
    best = pl.col(score).fill_nan(None).fill_null(float("inf"))  # of a missing score, which is found later
    return batch.filter(best.rank("ordinal", descending=True).over(top_k.request) <= top_k.k)


def _parsed(batch: pl.DataFrame, name: str) -> pl.Series:
    """Return the numbers in a column of text; true and false are 1 and 0."""
    text = batch[name].cast(pl.String).str.strip_chars()
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.null_count() > text.null_count():
        truth = text.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None)
        numbers = numbers.fill_null(truth.cast(pl.Float64))
        other = numbers.is_null() & text.is_not_null()
        if other.any():
            at = other.arg_max() or 0
            problem = f"is {batch[name][at]!r}; that is text, not a number: repair or drop the row"
            raise fault(batch, name, at, problem)
    return numbers


def _numbers(batch: pl.DataFrame, name: str, spec: LogSpec) -> NDArray[Any]:
    """Return a typed column as an array; the first value that it cannot hold is an error."""
    remedy = "drop or repair those rows first"
    if name == spec.label:  # without the best row, the next one of its request would count as selected
        rows = "requests whose best rows have no label"
        if spec.top_k is None:
            rows = "rows that were not shown, or collect the best of each request (--request, --top-k)"
        remedy = f"leave out {rows}; do not fill labels with 0"
    if batch[name].null_count():
        check_present(batch, name, remedy)
    values = batch[name].to_numpy()
    tests = {remedy: lambda x: ~np.isfinite(x), **_bad_values(name, spec)}
    for problem, is_bad in tests.items():
        bad = is_bad(values)
        if bad.any():
            at = int(bad.argmax())
            raise fault(batch, name, at, f"is {values[at]:g}; {problem}")
    return values


def _bad_values(name: str, spec: LogSpec) -> dict[str, Callable[[Any], Any]]:
    """Return tests for finite values that a column cannot hold, by their remedies."""
    if name == spec.label:
        return {"labels must be 0 or 1": lambda x: (x != 0) & (x != 1)}
    if name == spec.weight:
        return {"weights must be 0 or more": lambda x: x < 0}
    overflow = f"pass scores within ±{LARGEST_SCORE:g}, whose squares do not overflow"
    tests: dict[str, Callable[[Any], Any]] = {
        overflow: lambda x: np.abs(x) > min(LARGEST_SCORE, float(np.finfo(x.dtype).max))
    }
    if spec.scale == "value" and spec.link == "log":
        tests["that has no logarithm; use the identity link"] = lambda x: x <= 0
    if spec.scale == "probability":
        link = get_link(spec.link)
        tests["that is not a probability; are these logits? Then the scale is logit"] = lambda x: (x < 0) | (x > 1)
        if len(spec.scores) > 1 and link.lower == 0:
            tests["there a logit is infinite; pass logits, or clip the probabilities first"] = lambda x: (
                (x == 0) | (x == link.upper)
            )
    return tests


def _in_utc(times: pl.Series) -> pl.Series:
    """Return dates, timestamps or ISO text as times in UTC; text that is not ISO is null."""
    if times.dtype == pl.String:
        names = ("date", "minutes", "seconds", "offset")
        parts = times.str.extract_groups(_ISO).struct.rename_fields(names).struct.unnest()
        missing = {"minutes": "00:00", "seconds": ":00", "offset": "+00:00"}
        filled = [pl.col(name).replace("Z", "+00:00").fill_null(text) for name, text in missing.items()]
        text = parts.select(pl.concat_str("date", pl.lit("T"), *filled)).to_series()
        return text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", strict=False, time_unit="us")
    if times.dtype == pl.Date:
        times = times.cast(pl.Datetime("us"))
    if not isinstance(times.dtype, pl.Datetime):
        raise UncurseError(
            f"the time column {times.name!r} {holds(times.dtype)}; convert it to a date, a timestamp or ISO text"
        )
    return times.dt.replace_time_zone("UTC") if times.dtype.time_zone is None else times.dt.convert_time_zone("UTC")
