"""Where a log is bad: the file, the column, the row and the value. Only looked for once something has gone wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import UncurseError
from ..evidence import LogSpec
from ..links import get_link
from .files import first_line, kind_of
from .scans import number_of, scan_polars
from .sources import Table, is_foreign

if TYPE_CHECKING:
    import polars as pl

_PLACE = "uncurse row"


@contextmanager
def locating_errors(table: Table, columns: LogSpec) -> Iterator[None]:
    """Run what reads the table; if that fails, name the file and the column at fault."""
    try:
        yield
    except Exception as error:
        ours = isinstance(error, UncurseError)
        if not (ours or is_foreign(error)):
            raise
        for file in table.files:
            fault = fault_in(file, columns)
            if fault is not None:
                raise UncurseError(fault) from None
        if not ours or table.files:
            raise UncurseError(f"{table.name}: {first_line(error)}") from None
        raise


def fault_in(file: str, columns: LogSpec) -> str | None:
    """What is wrong with one file, in one line, or None."""
    import polars as pl

    kind = kind_of(file)
    for name in columns.wanted:
        number = name in columns.numbers
        try:
            here = scan_polars([(file, {})]) if kind == "parquet" else pl.scan_csv(file, infer_schema=False, glob=False)
            if name not in here.collect_schema():
                continue  # it is in the path
            scan = scan_polars([(file, {})], [name] if number else [], [] if number else [name])
            fault = _fault_of(scan, name, columns if number else None)
        except pl.exceptions.PolarsError as error:
            text = _text_in(file, name) if kind == "csv" and number else None
            return text or f"{file}, column {name!r} cannot be read ({first_line(error)}); is the file damaged?"
        except OSError as error:
            return f"cannot read {file}: {error.strerror or error}"
        if fault is not None:
            return f"{file}, column {name!r}{fault}"
    return None


def _fault_of(scan: pl.LazyFrame, name: str, columns: LogSpec | None) -> str | None:
    import polars as pl

    column = pl.col(name)
    if columns is None:
        tests = {"is missing; fill it, say with 'unknown'": column.is_null()}
    else:
        x = column.cast(pl.Float64)
        tests = {"is missing; drop or fill those rows first": x.is_null()}
        tests |= {"drop or repair those rows first": x.is_nan() | x.is_infinite()}
        tests |= {"its square overflows; pass scores of ordinary size": x.is_finite() & (x.abs() > 1e150)}
        tests |= _impossible(x, name, columns)
    place = pl.col(_PLACE)
    found = (
        scan.select(name)
        .with_row_index(_PLACE)
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


def _impossible(x: pl.Expr, name: str, columns: LogSpec) -> dict[str, pl.Expr]:
    tests = {}
    if name == columns.label:
        tests["labels must be 0 or 1"] = (x != 0) & (x != 1)
    elif name == columns.weight:
        tests["weights must be 0 or more"] = x < 0
    elif columns.scale == "probability":
        tests["that is not a probability; are these logits? (fit, collect and evaluate: --scale logit)"] = (x < 0) | (
            x > 1
        )
        link = get_link(columns.link)
        if len(columns.scores) > 1 and link.lower == 0:
            ends = (x == 0) | (x == link.upper)
            tests["there a logit is infinite; pass logits, or clip the probabilities first"] = ends
    elif columns.scale == "value" and columns.link == "log":
        tests["that has no logarithm; use the identity link"] = x <= 0
    return tests


def _text_in(file: str, name: str) -> str | None:
    """The first text in a CSV column that is no number."""
    import polars as pl

    try:
        texts = pl.scan_csv(file, infer_schema=False, glob=False).select(name)
        bad = number_of(name, strict=False).is_null() & pl.col(name).is_not_null()
        row: dict[str, Any] = (
            texts.with_row_index(_PLACE)
            .filter(bad)
            .select(count=pl.len(), row=pl.col(_PLACE).min(), value=pl.col(name).sort_by(_PLACE).first())
            .collect(engine="streaming")
            .row(0, named=True)
        )
    except pl.exceptions.PolarsError:
        return None
    if not row["count"]:
        return None
    more = f" ({row['count']:,} such values)" if row["count"] > 1 else ""
    return f"{file}, column {name!r}, row {row['row']:,} is {row['value']!r}; that is text, not a number{more}"


__all__ = ["fault_in", "locating_errors"]
