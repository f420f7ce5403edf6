"""Columns of numbers from a file: parquet, CSV, or plain text without a header."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from uncurse._types import Array
from uncurse.errors import UncurseError


def read_columns(path: str | Path, columns: Sequence[str]) -> dict[str, Array]:
    """Read columns of a parquet or CSV file as finite numbers.

    A ``.txt`` or ``.tsv`` file, gzipped or not, has no header: tabs or spaces separate the columns "0", "1" and so on.
    """
    import polars as pl

    name = str(path).lower()
    plain = name.removesuffix(".gz").endswith((".txt", ".tsv"))
    try:
        if plain:
            tabs = pl.read_csv(path, has_header=False, separator="\t", n_rows=1).width > 1
            separator = "\t" if tabs else " "
            frame = pl.read_csv(path, has_header=False, separator=separator, infer_schema_length=None)
            frame.columns = [str(i) for i in range(frame.width)]
        else:
            frame = pl.read_parquet(path) if name.endswith(".parquet") else pl.read_csv(path, infer_schema_length=None)
        if missing := [column for column in columns if column not in frame.columns]:
            why = " no header, so its columns are numbers;" if plain else ""
            raise UncurseError(f"{path} has{why} no column {missing[0]!r}; choose from {', '.join(frame.columns)}")
        found = {column: frame[column].cast(pl.Float64).to_numpy() for column in columns}
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror or error}") from None
    except (pl.exceptions.PolarsError, EOFError) as error:
        raise UncurseError(f"{path}: {str(error).split(chr(10))[0]}; is every value a number?") from None
    for column, values in found.items():
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad) or not len(values):
            what = f"the first in row {bad[0] + 1:,}; remove these rows" if len(bad) else "and there are no rows"
            raise UncurseError(
                f"{path}, column {column!r}: {len(bad):,} of {len(values):,} values are missing or not finite, {what}"
            )
    return found
