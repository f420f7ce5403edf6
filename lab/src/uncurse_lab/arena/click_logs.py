"""Read the Avazu, Criteo and MovieLens files that a user has, as category codes and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from uncurse.errors import UncurseError
from uncurse.logs.rows import first_line

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
    """Read files of one log, recognized by its columns; if there are more than `rows`, draw this many at random."""
    import polars as pl

    paths = [Path(file).resolve() for file in files]
    if len(set(paths)) < len(paths):
        raise UncurseError("a file is named twice; its rows would be in training and test")
    names, tables, targets, bad, first_bad = zip(*(_read(Path(file)) for file in files), strict=True)
    if len(set(names)) > 1:
        raise UncurseError(
            f"the files belong to different logs: {', '.join(sorted(set(names)))}; pass files of one log"
        )
    columns = [column for column in tables[0].columns if all(column in table.columns for table in tables)]
    if not columns:
        raise UncurseError(f"{files[0]} has no feature that all files share; pass a log with features")
    table, labels = pl.concat([table.select(columns) for table in tables]), np.concatenate(targets)
    if rows is not None and rows < len(table):
        chosen = np.sort(np.random.default_rng(seed).choice(len(table), rows, replace=False))
        table, labels = table[chosen], labels[chosen]
    codes = [table[column].fill_null("").rank("dense").to_numpy() for column in columns]
    first = next(filter(None, first_bad), "")
    return ClickLog(names[0], np.column_stack(codes).astype(np.int32), labels, sum(bad), first)


def _read(file: Path) -> tuple[str, pl.DataFrame, NDArray[np.bool_], int, str]:
    """Return the name of the log, features of good rows as text, their labels, how many rows are bad, and the first."""
    import polars as pl

    table, separator, named = _read_table(file)
    header = table.columns
    ratings = _ratings(header)
    if "click" in header:
        log, label = "avazu", "click"
        features = [pl.col(column) for column in header if column not in _AVAZU_DROPPED]
    elif ratings is not None:
        log, label = "movielens", "rating"
        features = [pl.col(column).alias(name) for column, name in ratings.items()]
        if label not in header:
            raise UncurseError(f"{file} has no column 'rating'; it has {', '.join(header)}")
    else:
        log, label = "criteo", "label"
        features = [pl.exclude(label).str.zfill(12)]  # codes, padded so that text sorts as numbers do
        if separator == "\t":  # raw: counts are binned on a logarithmic scale
            counts = pl.col(header[1 : _CRITEO_NUMBERS + 1]).cast(pl.Float64, strict=False)
            bins = pl.when(counts > 2).then(counts.clip(1).log().pow(2).floor()).otherwise(counts)
            features = [(bins + 10).cast(pl.Int64).cast(pl.String).str.zfill(12), pl.col(header[_CRITEO_NUMBERS + 1 :])]
    values = table[label].cast(pl.Float64, strict=False)
    good = values.is_finite().fill_null(False)
    bad, first = np.flatnonzero(~good.to_numpy()), ""
    if len(bad):
        row = int(bad[0])
        first = f"line {1 + named + row} of {file.name}: {label} is {table[label][row] or ''!r}, not a number"
    if len(bad) > _BAD_SHARE * len(table):
        raise UncurseError(
            f"{len(bad):,} of {len(table):,} lines of {file} are bad, more than {_BAD_SHARE:.0%}, first {first}; "
            "repair the file, or remove these lines"
        )
    labels = (values >= _LIKED if log == "movielens" else values > 0).filter(good).to_numpy()
    return log, table.filter(good).select(features), labels, len(bad), first


def _read_table(file: Path) -> tuple[pl.DataFrame, str, bool]:
    """Return all rows as text, the separator, and whether the file names its columns; Criteo's files do not."""
    import polars as pl

    try:
        head = pl.read_csv(file, has_header=False, separator="\x01", quote_char=None, n_rows=2, infer_schema=False)
        lines = head.to_series().to_list()
        separator = "\t" if "\t" in lines[0] else ","
        header = [name.split(":")[0] for name in lines[0].strip().split(separator)]
        named = "click" in header or _ratings(header) is not None
        table = pl.read_csv(
            file, separator=separator, has_header=False, skip_rows=int(named), infer_schema=False,
            quote_char='"' if separator == "," else None,
        )  # fmt: skip
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UncurseError(f"cannot read {file}: {first_line(error)}; pass a comma- or tab-separated file") from None
    fields = len(lines[-1].split(separator))
    if named:  # a first column without a name holds row numbers
        table = table[:, fields - len(header) :] if fields > len(header) else table
        if not len(set(header)) == len(header) == table.width:
            what = f"the names {', '.join(header)} for {table.width} columns"
            raise UncurseError(f"the header of {file} has {what}; give each column a name of its own")
    elif fields != _CRITEO_COLUMNS:
        raise UncurseError(
            f"{file} has {fields} columns, the first row is {lines[0][:60]!r}; an Avazu log has a column click, a "
            f"MovieLens log user_id, item_id and rating, and a Criteo log {_CRITEO_COLUMNS} columns without names"
        )
    table.columns = header if named else ["label", *(f"column {i}" for i in range(1, _CRITEO_COLUMNS))]
    return table, separator, named


def _ratings(header: list[str]) -> dict[str, str] | None:
    """Return the columns of user and item of a MovieLens log, and the names of the features."""
    return next((names for names in _MOVIELENS if set(names) <= set(header)), None)
