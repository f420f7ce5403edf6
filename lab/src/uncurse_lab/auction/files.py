"""Columns of numbers from a file: parquet, CSV, or plain text without a header."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.logs.checks import first_line
from uncurse.logs.files import check_files, locate
from uncurse.logs.scans import scan_polars

_PLAIN = (".txt", ".txt.gz", ".tsv", ".tsv.gz")


def read_columns(path: str | Path, columns: Sequence[str]) -> dict[str, Array]:
    """Read columns as finite numbers.

    The path is a parquet or CSV file, a glob or a folder of these; or a ``.txt`` or ``.tsv`` file, gzipped or not,
    without a header and separated by tabs or spaces, whose columns have the names "0", "1" and so on.
    """
    import polars as pl

    try:
        if str(path).lower().endswith(_PLAIN):
            found = _read_plain(Path(path), columns)
        else:
            files, names = locate([path]), list(dict.fromkeys(columns))
            frame = scan_polars(files, names, uneven=check_files(files, names)).select(names).collect()
            found = {name: frame[name].cast(pl.Float64).to_numpy() for name in columns}
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror or error}") from None
    except (pl.exceptions.PolarsError, EOFError) as error:
        raise UncurseError(f"{path}: {first_line(error)}; is every value a number?") from None
    for name, values in found.items():
        if not len(values):
            raise UncurseError(f"{path} has no rows")
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise UncurseError(
                f"{path}, column {name!r}: {len(bad):,} of {len(values):,} values are missing or not finite, the first "
                f"in row {bad[0] + 1:,}; remove these rows"
            )
    return found


def _read_plain(path: Path, columns: Sequence[str]) -> dict[str, Array]:
    import gzip

    import polars as pl

    if not path.is_file():
        raise UncurseError(f"cannot read {path}: there is no such file")
    data = path.read_bytes()
    data = gzip.decompress(data) if path.name.endswith(".gz") else data
    first = data.split(b"\n", 1)[0]
    separator = "\t" if b"\t" in first else " "
    frame = pl.read_csv(data, has_header=False, separator=separator, infer_schema_length=None)
    names = [str(i) for i in range(frame.width)]
    frame.columns = names
    for name in columns:
        if name not in names:
            raise UncurseError(
                f"{path} has no header, so its columns are numbers; {name!r} is not one of {', '.join(names)}"
            )
    return {name: frame[name].cast(pl.Float64).to_numpy() for name in columns}
