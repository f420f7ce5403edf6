"""Find the file, column, row and value at fault, after reading a log has failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import UncurseError
from ..evidence import LogSpec
from .checks import bad_values, first_line, unused_name
from .csv_files import parse_number, read_header, scan_text
from .files import LogFile, kind_of, parquet_schema
from .scans import scan_polars
from .sources import Table, is_foreign

if TYPE_CHECKING:
    import polars as pl


@contextmanager
def locating_errors(table: Table, spec: LogSpec) -> Iterator[None]:
    """If reading the table fails, raise an error that names the file and the column at fault."""
    try:
        yield
    except Exception as error:
        ours = isinstance(error, UncurseError)
        if not (ours or is_foreign(error)):
            raise
        for file in table.files:
            fault = fault_in(file.path, spec)
            if fault is not None:
                raise UncurseError(fault) from None
        if not ours or table.files:
            raise UncurseError(f"{table.name}: {first_line(error)}") from None
        raise


def fault_in(file: str, spec: LogSpec) -> str | None:
    """Describe in one line what is wrong with a file, or return None."""
    import polars as pl

    csv = kind_of(file) == "csv"
    for name in spec.wanted:
        number = name in spec.numbers
        try:
            if name not in (read_header(file) if csv else parquet_schema(file)):
                continue  # it is in the path
            scan = scan_polars([LogFile(file, file, {})], [name] if number else [], [] if number else [name])
            fault = _fault_of(scan, name, spec if number else None)
        except pl.exceptions.PolarsError as error:
            text = _text_in(file, name) if csv and number else None
            return text or f"{file}, column {name!r} cannot be read ({first_line(error)}); is the file damaged?"
        except OSError as error:
            return f"cannot read {file}: {error.strerror or error}"
        if fault is not None:
            return f"{file}, column {name!r}{fault}"
    return None


def _fault_of(scan: pl.LazyFrame, name: str, spec: LogSpec | None) -> str | None:
    import polars as pl

    column = pl.col(name)
    if spec is None:
        tests = {"is missing; fill it, say with 'unknown'": column.is_null()}
    else:
        x = column.cast(pl.Float64)
        tests = {"is missing; drop or fill those rows first": x.is_null()}
        tests |= {"drop or repair those rows first": x.is_nan() | x.is_infinite()}
        tests |= {"its square overflows; pass scores of ordinary size": x.is_finite() & (x.abs() > 1e150)}
        tests |= {remedy: is_bad(x) for remedy, is_bad in bad_values(name, spec).items()}
    place = pl.col(_row_name(name))
    found = (
        scan.select(name)
        .with_row_index(_row_name(name))
        .select(
            pl.len().alias("rows"),
            *(test.sum().alias(f"count{i}") for i, test in enumerate(tests.values())),
            *(place.filter(test).min().alias(f"row{i}") for i, test in enumerate(tests.values())),
            *(
                column.filter(test).sort_by(place.filter(test)).first().alias(f"value{i}")
                for i, test in enumerate(tests.values())
            ),
        )
        .collect(engine="streaming")
    )
    row = found.row(0, named=True)
    for i, remedy in enumerate(tests):
        count = row[f"count{i}"]
        if count and i == 0 and count == row["rows"]:
            return f" is all null ({count:,} rows); name another column, or leave the file out"
        if count:
            more = f" ({count:,} such values)" if count > 1 else ""
            value = " " + remedy if i == 0 else f" is {row[f'value{i}']}; {remedy}"
            return f", row {row[f'row{i}']:,}{value}{more}"
    return None


def _row_name(column: str) -> str:
    return unused_name([column], "uncurse_row")


def _text_in(file: str, name: str) -> str | None:
    """Describe the first text in a CSV column that is no number."""
    import polars as pl

    try:
        texts, place = scan_text(file).select(name), pl.col(_row_name(name))
        bad = parse_number(name, strict=False).is_null() & pl.col(name).is_not_null()
        row: dict[str, Any] = (
            texts.with_row_index(_row_name(name))
            .filter(bad)
            .select(count=pl.len(), row=place.min(), value=pl.col(name).sort_by(place).first())
            .collect(engine="streaming")
            .row(0, named=True)
        )
    except pl.exceptions.PolarsError:
        return None
    if not row["count"]:
        return None
    more = f" ({row['count']:,} such values)" if row["count"] > 1 else ""
    return f"{file}, column {name!r}, row {row['row']:,} is {row['value']!r}; that is text, not a number{more}"
