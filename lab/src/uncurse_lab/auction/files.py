"""Columns of numbers from a file: parquet, CSV, or plain text without a header."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.evidence import LogSpec
from uncurse.logs.collecting import read_rows
from uncurse.logs.rows import first_line


def read_columns(path: str | Path, columns: Sequence[str]) -> dict[str, Array]:
    """Read columns of a parquet or CSV file as finite numbers.

    A ``.txt`` or ``.tsv`` file, gzipped or not, has no header: tabs or spaces separate the columns "0", "1" and so on.
    """
    import polars as pl

    source: Any = path
    try:
        if str(path).lower().removesuffix(".gz").endswith((".txt", ".tsv")):
            tabs = pl.read_csv(path, has_header=False, separator="\t", n_rows=1).width > 1
            source = pl.read_csv(path, has_header=False, separator="\t" if tabs else " ", infer_schema_length=None)
            source.columns = [str(i) for i in range(source.width)]
        scores, _, _ = read_rows(source, LogSpec(tuple(columns), scale="value", link="identity"))
    except UncurseError as error:
        raise error if source is path else UncurseError(f"{path}: {error}") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UncurseError(f"cannot read {path}: {first_line(error)}; is every value a number?") from None
    return dict(zip(columns, scores.T, strict=True))
