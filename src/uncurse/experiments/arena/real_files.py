"""Files of real logs: columns as text, as numbers, as codes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..._types import Array
from ...errors import UncurseError
from .real_models import Ints

if TYPE_CHECKING:
    import polars as pl


def read(folder: Path, name: str, separator: str, columns: tuple[str, ...]) -> pl.DataFrame:
    """Columns of a file as text, gzipped or not; what follows a colon in a column's name is its type."""
    import polars as pl

    found = [path for path in (folder / f"{name}.gz", folder / name) if path.is_file()]
    if not found:
        raise UncurseError(f"{folder} has no file {name}.gz; it is part of the data set")
    try:
        table = pl.read_csv(
            found[0], separator=separator, quote_char='"' if separator == "," else None, infer_schema=False
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UncurseError(f"cannot read {found[0]}: {str(error).splitlines()[0]}") from None
    table = table.rename({column: column.split(":")[0] for column in table.columns})
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise UncurseError(f"{found[0]} has no column {missing[0]!r}; it has {', '.join(table.columns[:8])}")
    if not len(table):
        raise UncurseError(f"{found[0]} holds no rows")
    return table.select(columns)


def numbers(table: pl.DataFrame, column: str) -> Array:
    """A column as finite numbers."""
    import polars as pl

    values = table[column].cast(pl.Float64, strict=False).to_numpy()
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise UncurseError(
            f"the column {column} holds {table[column][int(wrong[0])]!r} in row {wrong[0]}: not a number"
        )
    return np.asarray(values, np.float64)


def codes(table: pl.DataFrame, *columns: str) -> Ints:
    """A number for each combination of values; what is missing is a value too."""
    import polars as pl

    joined = table.select(pl.concat_str(pl.col(*columns).fill_null(""), separator="\t")).to_series()
    return joined.rank("dense").to_numpy().astype(np.intp) - 1


__all__ = ["codes", "numbers", "read"]
