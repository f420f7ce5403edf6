"""Read the Avazu, Criteo and MovieLens files that a user has, as category codes and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...errors import UncurseError
from ...validation import check_count

if TYPE_CHECKING:
    import polars as pl

_AVAZU_DROPPED = ("id", "click", "device_id", "device_ip")  # nearly unique values
_CRITEO_NUMBERS, _CRITEO_COLUMNS = 13, 40
_LIKED = 4  # a MovieLens rating of 4 or 5 is a positive label
_BAD_SHARE = 0.01  # largest share of bad lines that is no error
_MOVIELENS = ({"user_id": "user", "item_id": "item"}, {"userId": "user", "movieId": "item"})


@dataclass(frozen=True)
class ClickLog:
    """Rows of a real log."""

    name: str  # "avazu", "criteo" or "movielens"
    codes: NDArray[np.int32]  # (n, d): a number for each value of each column
    labels: NDArray[np.bool_]  # (n,)
    bad_lines: int = 0  # lines of the files that were skipped
    first_bad: str = ""  # the first of them, and its fault


def read_click_log(files: Sequence[str | Path], rows: int | None = None, seed: int = 0) -> ClickLog:
    """Read files of one log; the format is recognised by the columns.

    Files are comma- or tab-separated, gzipped or not: Avazu's ``train.csv``, Criteo's ``train.txt`` or the same rows
    with 39 numeric codes, MovieLens' ``ratings.csv`` or ``ml-1m.inter``. If there are more than `rows`, this many are
    drawn at random. Lines whose label is not a number are skipped and counted; more than 1% of them are an error.
    """
    import polars as pl

    if not files:
        raise UncurseError("no file is given; pass the files of an Avazu, Criteo or MovieLens log")
    paths = [Path(file).resolve() for file in files]
    twice = [path for path in paths if paths.count(path) > 1]
    if twice:
        raise UncurseError(f"{twice[0]} is named twice; its rows would be in training and test")
    found = [_read(Path(file)) for file in files]
    names = {name for name, *_ in found}
    if len(names) > 1:
        raise UncurseError(f"the files belong to different logs: {', '.join(sorted(names))}; pass files of one log")
    name = names.pop()
    tables, bad = [table for _, table, _ in found], [each for *_, each in found]
    columns = [column for column in tables[0].columns if all(column in table.columns for table in tables)]
    table = pl.concat([table.select(columns) for table in tables])
    if rows is not None and check_count(rows, "rows") < len(table):
        chosen = np.sort(np.random.default_rng(seed).choice(len(table), rows, replace=False))
        table = table[chosen]
    if len(columns) < 2:
        raise UncurseError(f"{files[0]} has no feature that all files share; pass a log with features")
    labels = table["label"].cast(pl.Float64).to_numpy() > 0
    codes = [table[column].fill_null("").rank("dense").to_numpy() for column in columns if column != "label"]
    first_bad = next((first for _, first in bad if first), "")
    return ClickLog(name, np.column_stack(codes).astype(np.int32), labels, sum(count for count, _ in bad), first_bad)


def _read(file: Path) -> tuple[str, pl.DataFrame, tuple[int, str]]:
    """Return the name of the log, good rows as text with a column "label", and the bad lines: how many, the first."""
    import polars as pl

    lines = _first_lines(file)
    separator = "\t" if "\t" in lines[0] else ","
    header = [name.split(":")[0] for name in lines[0].strip().split(separator)]
    ratings = next((names for names in _MOVIELENS if set(names) <= set(header)), None)
    named = "click" in header or ratings is not None
    fields = len(lines[-1].strip("\r\n").split(separator))
    try:
        table = pl.read_csv(
            file, separator=separator, has_header=False, skip_rows=int(named), infer_schema=False,
            quote_char='"' if separator == "," else None,
        )  # fmt: skip
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UncurseError(f"cannot read {file}: {reason}; pass a comma- or tab-separated file") from None
    if named:  # a first column without a name holds row numbers
        table = table[:, fields - len(header) :] if fields > len(header) else table
        repeated = [name for name in header if header.count(name) > 1]
        if repeated or table.width != len(header):
            what = f"the name {repeated[0]!r} twice" if repeated else f"{len(header)} names for {table.width} columns"
            raise UncurseError(f"the header of {file} has {what}; give each column a name of its own")
        table.columns = header
        if "click" in header:
            kept = [column for column in header if column not in _AVAZU_DROPPED]
            table, bad = _without_bad_lines(table, "click", file, 2)
            return "avazu", table.select(pl.col("click").alias("label"), *kept), bad
        assert ratings is not None
        if "rating" not in header:
            raise UncurseError(f"{file} has no column 'rating'; it has {', '.join(header)}")
        table, bad = _without_bad_lines(table, "rating", file, 2)
        liked = (pl.col("rating").cast(pl.Float64) >= _LIKED).cast(pl.Int64).cast(pl.String).alias("label")
        return "movielens", table.select(liked, *(pl.col(key).alias(name) for key, name in ratings.items())), bad
    if fields != _CRITEO_COLUMNS:
        raise UncurseError(
            f"{file} has {fields} columns, the first row is {lines[0][:60]!r}; an Avazu log has a column click, a "
            f"MovieLens log user_id, item_id and rating, and a Criteo log {_CRITEO_COLUMNS} columns without names"
        )
    table.columns = ["label", *(f"column {i}" for i in range(1, _CRITEO_COLUMNS))]
    table, bad = _without_bad_lines(table, "label", file, 1)
    if separator == "\t":  # raw: counts are binned on a logarithmic scale
        table = table.with_columns(_binned_counts(table, f"column {i}") for i in range(1, _CRITEO_NUMBERS + 1))
    else:  # encoded: pad codes, so that text sorts as numbers do
        table = table.with_columns(pl.exclude("label").str.zfill(12))
    return "criteo", table, bad


def _first_lines(file: Path) -> list[str]:
    import gzip
    import zlib

    try:
        with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as stream:
            lines = [line for _, line in zip(range(2), stream, strict=False)]
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise UncurseError(f"cannot read {file}: {error}; pass a comma- or tab-separated file") from None
    if not lines:
        raise UncurseError(f"{file} is empty; pass a log with rows")
    return lines


def _binned_counts(table: pl.DataFrame, column: str) -> pl.Series:
    import polars as pl

    values = table[column].cast(pl.Float64, strict=False)
    bins = pl.select(pl.when(values > 2).then(values.clip(1).log().pow(2).floor()).otherwise(values)).to_series()
    return (bins + 10).cast(pl.Int64).cast(pl.String).str.zfill(12).alias(column)


def _without_bad_lines(
    table: pl.DataFrame, column: str, file: Path, first_line: int
) -> tuple[pl.DataFrame, tuple[int, str]]:
    """Return the rows whose label is a number, the number of other rows, and what is wrong with the first of these."""
    import polars as pl

    good = table[column].cast(pl.Float64, strict=False).is_finite().fill_null(False)
    bad = np.flatnonzero(~good.to_numpy())
    if not len(bad):
        return table, (0, "")
    row = int(bad[0])
    first = f"line {first_line + row} of {file.name}: {column} is {table[column][row] or ''!r}, not a number"
    if len(bad) > _BAD_SHARE * len(table):
        raise UncurseError(
            f"{len(bad):,} of {len(table):,} lines of {file} are bad, more than {_BAD_SHARE:.0%}, first {first}; "
            "repair the file, or remove these lines"
        )
    return table.filter(good), (len(bad), first)
