"""CSV files: comma-separated UTF-8 text with one header line and the same number of fields in every row."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import UncurseError

if TYPE_CHECKING:
    import polars as pl


def read_header(file: str) -> list[str]:
    """Return the column names of a CSV file as they are written.

    Polars renames columns that occur twice, so the header is read without it.
    """
    with _records(file) as records:
        return next((record for record in records if record), [])


def check_csv(file: str) -> list[str]:
    """Return the column names of a CSV file, or raise an error that names the file and the faulty line."""
    header = read_header(file)
    if not header:
        raise UncurseError(f"{file} has no header line; write it again with the names of its columns")
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise UncurseError(f"{file} has two columns named {name!r}; rename one of them")
        seen.add(name)
    ragged = _find_ragged_line(file, len(header))
    if ragged is not None:
        line, fields = ragged
        raise UncurseError(f"{file}, line {line:,} has {fields} fields and the header has {len(header)}; repair it")
    return header


def scan_text(file: str) -> pl.LazyFrame:
    """Open a CSV file lazily, with every column as text."""
    import polars as pl

    return pl.scan_csv(file, infer_schema=False, glob=False)


def parse_number(name: str, *, strict: bool = True) -> pl.Expr:
    """Return the number in a text column of a CSV file; true and false are 1 and 0."""
    import polars as pl

    text = pl.col(name).str.strip_chars()
    truth = text.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None, return_dtype=pl.Float64)
    return pl.coalesce(truth, pl.when(truth.is_null()).then(text).cast(pl.Float64, strict=strict)).alias(name)


def parse_number_sql(text: str) -> str:
    """Return the same as SQL of DuckDB and Spark, over the SQL expression `text`; NULL for text that is no number."""
    truth = f"case lower(trim({text})) when 'true' then 1 when 'false' then 0 end"
    return f"coalesce({truth}, try_cast(trim({text}) as double))"


def _find_ragged_line(file: str, expected: int) -> tuple[int, int] | None:
    """Return the number of the first line with another number of fields, and that number of fields.

    Polars counts commas outside quotes. Python's reader, which is exact and slow, is used only if a line with quotes
    looks wrong, as quoted fields that span lines do.
    """
    import polars as pl

    text = pl.col("line")
    quoted = text.str.contains('"', literal=True)
    unquoted = pl.when(quoted).then(text.str.replace_all('"[^"]*"', "")).otherwise(text)
    fields = unquoted.str.count_matches(",", literal=True) + 1
    wrong = (fields != expected) & (text.str.strip_chars() != "")
    doubtful = quoted & (wrong | unquoted.str.contains('"', literal=True))
    # A separator that does not occur in text gives whole lines; blank lines are null.
    lines = pl.scan_csv(
        file, has_header=False, separator="\x01", quote_char=None, schema={"line": pl.String}, glob=False
    )
    found = (
        lines.with_row_index("number", offset=1)
        .select("number", fields=fields, wrong=wrong, doubtful=doubtful)
        .select(
            pl.col("doubtful").any(),
            number=pl.col("number").filter("wrong").min(),
            fields=pl.col("fields").filter("wrong").first(),
        )
        .collect(engine="streaming")
        .row(0, named=True)
    )
    if found["doubtful"]:
        with _records(file) as records:
            for record in records:
                if record and len(record) != expected:
                    return records.line_num, len(record)
        return None
    return None if found["number"] is None else (found["number"], found["fields"])


@contextmanager
def _records(file: str) -> Iterator[Any]:
    opened: Any = gzip.open if file.lower().endswith(".gz") else open
    with opened(file, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        try:
            yield csv.reader(stream)
        except (csv.Error, EOFError, zlib.error) as error:
            raise UncurseError(f"{file} is not a readable CSV file ({error}); write it again") from None
