"""Rows of a log to evidence: the rows that count, their columns as arrays, and their sums.

Rows come in batches, which are Polars frames whatever engine they are from.
"""

from __future__ import annotations

import difflib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from .._types import Array, Float
from ..errors import UncurseError
from ..evidence import Evidence, LogSpec, TopK, merged
from ..evidence.from_arrays import add_rows, empty_evidence
from ..threads import cores, one_blas_thread
from ..validation import LARGEST_SCORE, check_choice, check_time, check_weights, fault_of_counts, not_probabilities

Progress = Callable[[int], None]  # called with the number of rows read since the last call
#: Rows that are read at a time: 2e7 rows in 8 segments stay within 500 MB.
BATCH = 1 << 18
#: What to do with rows without a value: raise an error, leave them out, or accept that a score is missing.
MISSING = ("error", "drop", "null")
#: Column of a batch with the numbers of its rows.
ROW = "uncurse row"


class Fault(UncurseError):
    """A value that a column cannot hold, with its column and the number of its row, if that is known."""

    column = problem = ""  # Polars raises errors again with their message alone
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
    """Count only rows with a final label: labels such as purchases arrive late.

    Rows without a label are left out, with a warning that counts them. With a column of times (dates, timestamps or ISO
    text; in UTC if they have no offset), so are rows before `since`, and rows at or after `before`.
    """

    time: str | None = None
    since: datetime | None = None
    before: datetime | None = None


class Reader:
    """Reads the columns of a `LogSpec` from batches; `left_out` counts rows without a value, by its column."""

    def __init__(
        self, spec: LogSpec, *, settled: Settled | None = None, missing: str = "error", text: bool = False
    ) -> None:
        self.spec, self.settled, self.text = spec, settled, text
        self.missing = check_choice("missing", missing, MISSING)
        named = (spec.segment, getattr(spec.top_k, "request", None), getattr(settled, "time", None))
        self.of_labels = [name for name in (spec.label, spec.trials) if name is not None]
        self.columns = list(dict.fromkeys((*spec.numbers, *(name for name in named if name is not None))))
        self.left_out: Counter[str] = Counter()

    # ------------------------------------------------------------------------ rows

    def select(self, source: Iterable[pl.DataFrame], progress: Progress | None = None) -> Iterator[pl.DataFrame]:
        """Return the rows that count, with their numbers in the log."""
        spec, settled = self.spec, self.settled
        rows = self._numbered(source, progress)
        if self.missing != "error":
            others = [name for name in self.columns if name not in self.of_labels]
            needed = others if self.missing == "drop" else [*spec.scores]
            rows = (self._without_missing(batch, needed) for batch in rows)
        if spec.top_k is not None:
            rows = self._best(rows, spec.top_k)
        if settled is not None and settled.time is not None:
            rows = (_in_time(batch, settled, settled.time) for batch in rows)
        if self.of_labels and (self.missing == "drop" or settled is not None):
            rows = (self._without_missing(batch, self.of_labels) for batch in rows)
        return rows

    def _numbered(self, source: Iterable[pl.DataFrame], progress: Progress | None) -> Iterator[pl.DataFrame]:
        """Number the rows, and join small batches; segments are counted faster if each has many rows."""
        least = BATCH // 8 if self.spec.segment is None else BATCH
        first, waiting = 0, []
        for batch in source:
            rows = pl.Series(ROW, np.arange(first, first + len(batch)))
            waiting.append(self.typed(batch.select(self.columns).with_columns(rows)))
            first += len(batch)
            if progress is not None:
                progress(len(batch))
            if sum(map(len, waiting)) >= least:
                yield pl.concat(waiting, how="vertical_relaxed")
                waiting = []
        if waiting:
            yield pl.concat(waiting, how="vertical_relaxed")

    def _without_missing(self, batch: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
        for name in columns:
            missing = is_missing(batch[name])
            if missing.any():
                self.left_out[name] += int(missing.sum())
                batch = batch.filter(~missing)
        return batch

    def _best(self, rows: Iterable[pl.DataFrame], top_k: TopK) -> Iterator[pl.DataFrame]:
        """Keep the best rows of each request, which may lie in several batches; of equal scores the first."""
        score = pl.col(self.spec.scores[0]).fill_nan(None).fill_null(float("inf"))  # missing scores are found later
        is_best = score.rank("ordinal", descending=True).over(top_k.request) <= top_k.k
        kept: pl.DataFrame | None = None
        limit = 4 * BATCH
        for batch in rows:
            check_present(batch, top_k.request, "drop it, or give each row a request")
            best = batch.filter(is_best)
            kept = best if kept is None else pl.concat([kept, best], how="vertical_relaxed")
            if len(kept) > limit:
                kept = kept.filter(is_best)
                limit = max(limit, 2 * len(kept))
        if kept is not None:
            yield from kept.filter(is_best).sort(ROW).iter_slices(BATCH)

    # ------------------------------------------------------------------------ columns

    def typed(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Return a batch whose scores and weights are floats and whose labels are numbers."""
        typed = []
        for name in self.spec.numbers:
            column, dtype = batch[name], batch[name].dtype
            if self.text and dtype == pl.String:
                column = _parsed(batch, name)
            elif not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
                raise UncurseError(f"column {name!r} holds {dtype}, not numbers; name another column, or convert it")
            keeps_type = column.dtype in (pl.Float32, pl.Float64) or (
                column.dtype.is_integer() and name == self.spec.label
            )
            typed.append(column if keeps_type else column.cast(pl.Float64))
        if self.spec.segment is not None:  # floats and truth values have several texts
            dtype = batch.schema[self.spec.segment]
            if not (dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null) or dtype.is_integer()):
                raise UncurseError(
                    f"column {self.spec.segment!r} holds {dtype}; segments and requests are text or whole numbers, so "
                    "cast it"
                )
        return batch.with_columns(typed)

    def arrays(self, batch: pl.DataFrame) -> tuple[Float, NDArray[Any] | None, Array | None, Array | None]:
        """Return scores, labels, weights and trials of a typed batch; the first value at fault is an error."""
        spec = self.spec
        scores: Float = np.stack([_numbers(batch, name, spec) for name in spec.columns]).T
        labels, trials = (None if name is None else _numbers(batch, name, spec) for name in (spec.label, spec.trials))
        found = None if labels is None or trials is None else fault_of_counts(labels, trials)
        if found is not None:
            of_trials, at, problem = found
            raise fault(batch, self.of_labels[of_trials], at, problem)
        weights = None
        if spec.weight is not None:
            weights = _numbers(batch, spec.weight, spec).astype(np.float64)
            if weights.any():
                weights = check_weights(weights, len(batch))
        return scores, labels, weights, trials

    def segments(self, batch: pl.DataFrame) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Return the name of each segment, with the places of its rows in a batch."""
        if self.spec.segment is None:
            return
        check_present(batch, self.spec.segment, "fill it, say with 'unknown'")
        names = batch[self.spec.segment].cast(pl.String).alias("name")
        for (name,), rows in names.to_frame().with_row_index("row").group_by("name", maintain_order=True):
            yield str(name), rows["row"].to_numpy().astype(np.intp)


def sum_up(
    batches: Iterable[pl.DataFrame], reader: Reader, progress: Progress | None = None, threads: int | None = None
) -> Evidence | None:
    """Return the evidence of batches, or None if no row counts.

    The i-th batch goes to sums i mod n, so that the result does not depend on the speed of the threads.
    """
    sums: list[tuple[Evidence, dict[str, Evidence]]]  # of all rows, and of each segment
    sums = [(empty_evidence(reader.spec), {}) for _ in range(threads or cores())]
    running: deque[Future[None]] = deque()

    def add(batch: pl.DataFrame, total: Evidence, segments: dict[str, Evidence]) -> None:
        scores, *columns = reader.arrays(batch)
        add_rows(total, scores, *columns)
        for name, rows in reader.segments(batch):
            own = (None if column is None else column[rows] for column in columns)
            add_rows(segments.setdefault(name, empty_evidence(reader.spec)), scores[rows], *own)

    with one_blas_thread(), ThreadPoolExecutor(len(sums)) as pool:
        for i, batch in enumerate(batch for batch in reader.select(batches, progress) if len(batch)):
            if len(running) == len(sums):  # hold at most one batch per thread
                running.popleft().result()
            running.append(pool.submit(add, batch, *sums[i % len(sums)]))
        for future in running:
            future.result()
    parts = [replace(total, segments=segments) for total, segments in sums if total.rows]
    return merged(parts) if parts else None


# ---------------------------------------------------------------------------- frames of Polars


def lazy_batches(frame: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Run a lazy frame in batches, in constant memory."""
    return frame.collect_batches(chunk_size=BATCH, maintain_order=True, engine="streaming")


def check_columns(columns: Sequence[str], wanted: Sequence[str], where: str) -> None:
    """Check that columns exist, and that their names are no patterns, for which Polars would take them."""
    for name in wanted:
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            raise UncurseError(f"{where}: column {name!r} would be read as a pattern; rename it")
        if name not in columns:
            near = difflib.get_close_matches(name, columns, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, columns[:12]))}"
            raise UncurseError(f"{where} has no column {name!r}; {hint}")


def first_line(error: Exception) -> str:
    """Return the first line of an error of a library, at most 200 characters."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


# ---------------------------------------------------------------------------- values


def is_missing(column: pl.Series) -> pl.Series:
    """Tell which values are null or NaN."""
    return column.is_null() | column.is_nan().fill_null(True) if column.dtype.is_float() else column.is_null()


def check_present(batch: pl.DataFrame, name: str, remedy: str) -> None:
    """Check that a column has no missing values."""
    missing = is_missing(batch[name])
    if missing.any():
        raise fault(batch, name, missing.arg_max(), f"is missing; {remedy}")


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
    remedy, drop = "drop or repair those rows first", "by missing=drop (--missing drop)"
    if name in (spec.label, spec.trials):  # without the best row, the next one of its request would count as selected
        rest = "with top_k leave out their whole requests; do not fill labels with 0"
        check_present(batch, name, f"leave out rows that were not shown {drop}; {rest}")
        remedy = "leave out rows that were not shown"
    left_out = f"{remedy}, or leave them out {drop}"
    if batch[name].null_count():
        check_present(batch, name, left_out)
    values = batch[name].to_numpy()
    if spec.trials is not None and name in (spec.label, spec.trials):  # which are compared later
        valid, rule = ~np.isnan(values), ""
    elif name == spec.label:
        valid, rule = (values == 0) | (values == 1), "labels must be 0 or 1, or successes with a column of trials"
    elif name == spec.weight:
        valid, rule = (values >= 0) & (values < np.inf), "weights must be 0 or more"
    elif spec.scale == "probability":
        valid = (values >= 0) & (values <= 1)
        rule = f"that is not a probability; {not_probabilities(values.min(), values.max())}"
    else:
        valid = np.abs(values) <= min(LARGEST_SCORE, float(np.finfo(values.dtype).max))
        rule = f"pass scores within ±{LARGEST_SCORE:g}, whose squares do not overflow"
    if not valid.all():
        at = int(valid.argmin())
        raise fault(batch, name, at, f"is {values[at]:g}; {rule if np.isfinite(values[at]) else left_out}")
    return values


def _in_time(batch: pl.DataFrame, settled: Settled, name: str) -> pl.DataFrame:
    check_present(batch, name, "give each row a time, or leave it out")
    times = batch[name]
    if times.dtype == pl.String:
        known = {text: check_time(text, f"a time in column {name!r}") for text in times.unique(maintain_order=True)}
        times = times.replace_strict(known, return_dtype=pl.Datetime("us", "UTC"))
    elif times.dtype == pl.Date:
        times = times.cast(pl.Datetime("us"))
    if not isinstance(times.dtype, pl.Datetime):
        raise UncurseError(
            f"the time column {name!r} holds {times.dtype}; convert it to a date, a timestamp or ISO text"
        )
    times = times.dt.replace_time_zone("UTC") if times.dtype.time_zone is None else times.dt.convert_time_zone("UTC")
    since, before = (limit and limit.astimezone(UTC) for limit in (settled.since, settled.before))
    counts = pl.lit(True) if since is None else times >= since
    return batch.filter(counts, pl.lit(True) if before is None else times < before)
