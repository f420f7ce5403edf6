"""Read tables with a 0/1 label: files of the user, Avazu's, Criteo's and MovieLens's logs, sets of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uncurse.errors import UncurseError

if TYPE_CHECKING:
    import polars as pl

_DATA_SETS: dict[str, tuple[str, Callable[[NDArray[Any]], NDArray[np.bool_]]]] = {  # reader, and what is positive
    "breast_cancer": ("load_breast_cancer", lambda y: y == 0),  # malignant
    "digits": ("load_digits", lambda y: y == 8),
    "covtype": ("fetch_covtype", lambda y: y == 2),
    "california": ("fetch_california_housing", lambda y: y > np.quantile(y, 0.8)),
}
_AVAZU_DROPPED = ("id", "click", "device_id", "device_ip")  # nearly unique values
_CRITEO_NUMBERS, _CRITEO_COLUMNS = 13, 40
_LIKED = 4  # a MovieLens rating of 4 or 5 is a positive label
_MOVIELENS = ({"user_id": "user", "item_id": "item"}, {"userId": "user", "movieId": "item"})


@dataclass(frozen=True)
class Table:
    """Rows with features and labels."""

    name: str
    numbers: NDArray[np.float32]  # (n, k); NaN where a value is missing
    codes: NDArray[np.int32]  # (n, d): a number for each value of each category
    labels: NDArray[np.bool_]  # (n,)


def read_table(
    sources: Sequence[str | Path],
    label: str | None = None,
    categorical: Sequence[str] = (),
    rows: int | None = None,
    seed: int = 0,
) -> Table:
    """Read files of one table, or a data set by name; if there are more than `rows`, draw this many at random.

    Without `label` the files are those of a click log, recognized by its columns. Columns that hold no numbers are
    categories, as are those named.
    """
    import polars as pl
    import polars.selectors as cs

    if label is None and sources[0] in _DATA_SETS:
        name, frame, labels = _read_data_set(str(sources[0]))
    else:
        if len({Path(file).resolve() for file in sources}) < len(sources):
            raise UncurseError("a file is named twice; its rows would be in training and test")
        try:
            parts = [
                _read_click_log(Path(file)) if label is None else _read_file(Path(file), label, categorical)
                for file in sources
            ]
            names, frames, targets = zip(*parts, strict=True)
            if label is None and len(set(names)) > 1:
                raise UncurseError(f"the files belong to different logs: {', '.join(names)}; pass files of one log")
            columns = [column for column in frames[0].columns if all(column in frame.columns for frame in frames)]
            if not columns:
                raise UncurseError(f"{sources[0]} has no feature that all files share; pass a table with features")
            frame = pl.concat([frame.select(columns) for frame in frames], how="vertical_relaxed")
        except (pl.exceptions.PolarsError, OSError) as error:
            named = f"; the data sets of scikit-learn are {', '.join(_DATA_SETS)}" if isinstance(error, OSError) else ""
            reason = str(error).splitlines()[0]
            raise UncurseError(f"cannot read {', '.join(map(str, sources))}: {reason}{named}") from None
        name, labels = names[0], np.concatenate(targets)
    if rows is not None and rows < len(frame):
        chosen = np.sort(np.random.default_rng(seed).choice(len(frame), rows, replace=False))
        frame, labels = frame[chosen], labels[chosen]
    numbers = frame.select(cs.numeric().cast(pl.Float32)).to_numpy()
    codes = frame.select((~cs.numeric()).cast(pl.String).fill_null("").rank("dense").cast(pl.Int32)).to_numpy()
    return Table(name, numbers.reshape(len(frame), -1), codes.reshape(len(frame), -1), labels)


def _read_data_set(name: str) -> tuple[str, pl.DataFrame, NDArray[np.bool_]]:
    import polars as pl
    from sklearn import datasets

    function, is_positive = _DATA_SETS[name]
    offline = {"download_if_missing": False} if function.startswith("fetch") else {}
    try:
        X, y = getattr(datasets, function)(return_X_y=True, **offline)
    except OSError:
        what = f"call sklearn.datasets.{function}() once, which downloads it"
        raise UncurseError(f"{name} is not on this machine; {what}") from None
    return name, pl.DataFrame(X), is_positive(y)


def _read_file(file: Path, label: str, categorical: Sequence[str]) -> tuple[str, pl.DataFrame, NDArray[np.bool_]]:
    import polars as pl

    frame = pl.read_parquet(file) if file.suffix == ".parquet" else pl.read_csv(file, infer_schema_length=None)
    for column in (label, *categorical):
        if column not in frame.columns:
            raise UncurseError(f"there is no column {column!r} in {file}; it has {', '.join(frame.columns)}")
    labels = frame[label].cast(pl.Float64, strict=False)
    wrong = frame[label].filter(~labels.is_in([0.0, 1.0]).fill_null(False))
    if len(wrong):
        raise UncurseError(
            f"the label {label} is {wrong[0]!r} in {len(wrong):,} of {len(frame):,} rows; pass a column of 0 and 1"
        )
    return file.name, frame.drop(label).with_columns(pl.col(categorical).cast(pl.String)), labels.to_numpy() == 1


def _read_click_log(file: Path) -> tuple[str, pl.DataFrame, NDArray[np.bool_]]:
    """Return the name of the log, features as text, and labels."""
    import polars as pl

    table, separator = _read_text(file)
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
    bad = table[label].filter(~values.is_finite().fill_null(False))
    if len(bad):
        raise UncurseError(f"{label} is {bad[0] or ''!r} in {len(bad):,} lines of {file}, not a number; remove them")
    return log, table.select(features), (values >= _LIKED if log == "movielens" else values > 0).to_numpy()


def _read_text(file: Path) -> tuple[pl.DataFrame, str]:
    """Return all rows as text, and the separator. Criteo's files do not name their columns."""
    import polars as pl

    head = pl.read_csv(file, has_header=False, separator="\x01", quote_char=None, n_rows=2, infer_schema=False)
    lines = head.to_series().to_list()
    separator = "\t" if "\t" in lines[0] else ","
    header = [name.split(":")[0] for name in lines[0].strip().split(separator)]
    named = "click" in header or _ratings(header) is not None
    table = pl.read_csv(
        file, separator=separator, has_header=False, skip_rows=int(named), infer_schema=False,
        quote_char='"' if separator == "," else None,
    )  # fmt: skip
    fields = len(lines[-1].split(separator))
    if named:  # a first column without a name holds row numbers
        table = table[:, fields - len(header) :] if fields > len(header) else table
        if not len(set(header)) == len(header) == table.width:
            what = f"the names {', '.join(header)} for {table.width} columns"
            raise UncurseError(f"the header of {file} has {what}; give each column a name of its own")
    elif fields != _CRITEO_COLUMNS:
        raise UncurseError(
            f"{file} has {fields} columns, the first row is {lines[0][:60]!r}; pass --label, an Avazu log with a "
            "column click, a MovieLens log with user_id, item_id and rating, or a Criteo log of 40 nameless columns"
        )
    table.columns = header if named else ["label", *(f"column {i}" for i in range(1, _CRITEO_COLUMNS))]
    return table, separator


def _ratings(header: list[str]) -> dict[str, str] | None:
    """Return the columns of user and item of a MovieLens log, and the names of the features."""
    return next((names for names in _MOVIELENS if set(names) <= set(header)), None)
