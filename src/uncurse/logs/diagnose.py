"""Find the file, column, row and value at fault, after reading a log has failed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import UncurseError
from ..evidence import LogSpec
from .checks import bad_values, first_line, missing_remedy
from .csv_files import parse_number, read_header, scan_text
from .files import LogFile, kind_of, parquet_schema, scan_parquet

if TYPE_CHECKING:
    import polars as pl

_ENGINES = ("polars", "duckdb", "_duckdb", "pyspark", "py4j", "ibis", "pyarrow", "sqlframe", "narwhals")
_TEXT = "that is text, not a number: repair or drop the row"


@contextmanager
def locating_errors(name: str, files: Sequence[LogFile] = (), spec: LogSpec | None = None) -> Iterator[None]:
    """Turn errors of engines and of the system into `UncurseError` that names the log or, if found, the fault."""
    try:
        yield
    except Exception as error:
        ours = isinstance(error, UncurseError)
        foreign = type(error).__module__.partition(".")[0] in _ENGINES or isinstance(error, OSError)
        if not (ours or foreign):
            raise
        for file in files:
            fault = None if spec is None else fault_in(file.path, spec)
            if fault is not None:
                raise UncurseError(fault) from None
        if foreign or files:
            raise UncurseError(f"{name}: {first_line(error)}") from None
        raise


def fault_in(file: str, spec: LogSpec) -> str | None:
    """Describe in one line what is wrong with a file, or return None."""
    import polars as pl

    csv = kind_of(file) == "csv"
    for name in spec.wanted:
        try:
            there = read_header(file) if csv else parquet_schema(file)
            if name not in there:
                continue  # it is in the path
            scan = scan_text(file) if csv else scan_parquet([file])
            fault = _fault_of(scan, name, spec, csv, _selected(there, spec, csv))
        except pl.exceptions.PolarsError as error:
            return f"{file}, column {name!r} cannot be read ({first_line(error)}); is the file damaged?"
        except OSError as error:
            return f"cannot read {file}: {error.strerror or error}"
        if fault is not None:
            return f"{file}, column {name!r}{fault}"
    return None


def _selected(there: Collection[str], spec: LogSpec, csv: bool) -> pl.Expr:
    """Return which rows of a file are among the best of their request: no value of the others is used."""
    import polars as pl

    served = spec.scores[0]
    if spec.top_k is None or not {served, spec.top_k.request} <= {*there}:
        return pl.lit(True)
    score = parse_number(served, strict=False) if csv else pl.col(served).cast(pl.Float64)
    key = score.fill_nan(float("inf")).fill_null(float("inf"))
    return key.rank("ordinal", descending=True).over(spec.top_k.request) <= spec.top_k.k


def _fault_of(scan: pl.LazyFrame, name: str, spec: LogSpec, csv: bool, selected: pl.Expr) -> str | None:
    """Describe the first value of a column that is missing or cannot be used, by one pass over it.

    Text in place of a number is a fault in every row, other values only in rows that are `selected`.
    """
    import polars as pl

    column, missing = pl.col(name), f"is missing; {missing_remedy(name, spec)}"
    tests = {missing: column.is_null()}
    if name not in spec.numbers:
        missing = "is missing; fill it, say with 'unknown'"
        tests = {missing: column.is_null()}
    else:
        x = parse_number(name, strict=False) if csv else column.cast(pl.Float64)
        tests |= {_TEXT: column.is_not_null() & x.is_null()}
        tests |= {missing_remedy(name, spec, "drop or repair those rows first"): ~x.is_finite()}
        tests |= {"its square overflows; pass scores of ordinary size": x.abs() > 1e150}
        tests |= {remedy: is_bad(x) for remedy, is_bad in bad_values(name, spec).items()}
    faults = [test if what == _TEXT else test & selected for what, test in tests.items()]
    fault = pl.coalesce(pl.when(test).then(pl.lit(i)) for i, test in enumerate(faults))
    found = (
        scan.select(value=column, fault=fault)
        .with_row_index("row")
        .filter(pl.col("fault").is_not_null())
        .group_by("fault")
        .agg(pl.len().alias("count"), pl.col("row").min(), pl.col("value").sort_by("row").first())
        .sort("fault")
        .collect(engine="streaming")
    )
    if not len(found):
        return None
    first = found.row(0, named=True)
    remedy, count, row = list(tests)[first["fault"]], first["count"], first["row"]
    rows, nulls = scan.select(rows=pl.len(), nulls=column.null_count()).collect().row(0)
    if rows == nulls:
        return f" is all null ({rows:,} rows); name another column, or leave the file out"
    value = repr(first["value"]) if remedy == _TEXT else first["value"]
    among = "" if spec.top_k is None or remedy == _TEXT else f" in the {spec.top_k}"
    more = f" ({count:,} such values{among})" if count > 1 else ""
    place = f"line {row + 2:,}" if csv else f"row {row:,}"  # the header is line 1; rows count from 0
    return f", {place} {remedy if remedy == missing else f'is {value}; {remedy}'}{more}"
