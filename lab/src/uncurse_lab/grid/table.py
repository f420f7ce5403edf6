"""Tables with a 0/1 label: files of the user, click logs, and data sets of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncurse.errors import UncurseError

from ..arena.click_logs import read_click_log

#: Data sets of scikit-learn: the function that reads them, and which rows are positive.
DATA_SETS: dict[str, tuple[str, Callable[[NDArray[Any]], NDArray[np.bool_]]]] = {
    "breast_cancer": ("load_breast_cancer", lambda y: y == 0),  # malignant
    "digits": ("load_digits", lambda y: y == 8),
    "covtype": ("fetch_covtype", lambda y: y == 2),
    "california": ("fetch_california_housing", lambda y: y > np.quantile(y, 0.8)),
}


@dataclass(frozen=True)
class Table:
    """Rows with features and labels."""

    name: str
    numbers: NDArray[np.float32]  # (n, k); NaN where a value is missing
    codes: NDArray[np.int32]  # (n, d): a number for each value of each category
    labels: NDArray[np.bool_]  # (n,)
    note: str = ""  # what was left out while reading


def read_table(
    sources: Sequence[str],
    label: str | None = None,
    categorical: Sequence[str] = (),
    rows: int | None = None,
    seed: int = 0,
) -> Table:
    """Read files of one table or a data set by name; if there are more than `rows`, draw this many at random.

    Without `label` the files are those of a click log. Columns without numbers are categories, as are `categorical`.
    """
    if label is None and sources[0] not in DATA_SETS:
        log = read_click_log(sources, rows, seed)
        note = f"skipped {log.bad_lines:,} bad lines, first {log.first_bad}" if log.bad_lines else ""
        return Table(log.name, np.empty((len(log.labels), 0), np.float32), log.codes, log.labels, note)
    table = _read_files(sources, label, categorical) if label is not None else _read_data_set(sources[0])
    chosen = np.arange(len(table.labels))
    if rows is not None and rows < len(chosen):
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, rows, replace=False))
    return Table(table.name, table.numbers[chosen], table.codes[chosen], table.labels[chosen])


def _read_data_set(name: str) -> Table:
    from sklearn import datasets

    function, is_positive = DATA_SETS[name]
    offline = {"download_if_missing": False} if function.startswith("fetch") else {}
    try:
        X, y = getattr(datasets, function)(return_X_y=True, **offline)
    except OSError:
        raise UncurseError(
            f"{name} is not on this machine; call sklearn.datasets.{function}() once, which downloads it"
        ) from None
    return Table(name, X.astype(np.float32), np.empty((len(y), 0), np.int32), is_positive(y))


def _read_files(files: Sequence[str], label: str, categorical: Sequence[str]) -> Table:
    import polars as pl

    try:
        frames = [
            pl.read_parquet(file) if file.endswith(".parquet") else pl.read_csv(file, infer_schema_length=None)
            for file in files
        ]
        frame = pl.concat(frames)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UncurseError(f"cannot read {', '.join(files)}: {str(error).splitlines()[0]}") from None
    for column in (label, *categorical):
        if column not in frame.columns:
            raise UncurseError(f"there is no column {column!r} in {files[0]}; it has {', '.join(frame.columns)}")
    labels = frame[label].cast(pl.Float64, strict=False)
    wrong = frame[label].filter(~labels.is_in([0.0, 1.0]).fill_null(False))
    if len(wrong):
        raise UncurseError(
            f"the label {label} is {wrong[0]!r} in {len(wrong):,} of {len(frame):,} rows; pass a column of 0 and 1"
        )
    features = frame.drop(label)
    numbers = [name for name, kind in features.schema.items() if kind.is_numeric() and name not in categorical]
    categories = [name for name in features.columns if name not in numbers]
    if not features.columns:
        raise UncurseError(f"{files[0]} has no column but {label}; pass a table with features")
    as_codes = pl.col(categories).cast(pl.String).fill_null("").rank("dense").cast(pl.Int32)
    codes = features.select(as_codes) if categories else features.select()
    return Table(
        Path(files[0]).name,
        features.select(pl.col(numbers).cast(pl.Float32)).to_numpy().reshape(len(frame), -1),
        codes.to_numpy().reshape(len(frame), -1),
        labels.to_numpy() == 1,
    )
