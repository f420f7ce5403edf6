"""An encoded click log: one file of raw columns behind a JSON header, memory-mapped.

The file is the eight bytes ``UNCURSE\\n``, the header's length in eight more (little-endian), the header, and the
columns: the label, the numbers, the codes, each in the smallest unsigned type that holds it and from a multiple of 64.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UncurseError
from ..threads import chunks, in_threads, shares
from .data import Clicks

MAGIC = b"UNCURSE\n"
SCHEMA_VERSION = 1  # the version written, and the only one read
ALIGNMENT = 64
_CHUNK = 1 << 13  # rows that are turned from columns to rows at once, in the cache


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows of a click log on disk, as `encode` left them. Nothing is read before it is asked for.

    Codes: 0 is missing, 1 unknown (in no training row), 2, 3, … are the known values.

    Examples
    --------
    >>> import tempfile
    >>> from uncurse.deep.reading import encode
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "train.txt").write_text(2 * ("1" + 13 * "\\t3" + 26 * "\\t68fd1e64" + "\\n"))
    >>> _ = encode(folder / "train.txt", folder / "train.clicks", kind="criteo")
    >>> encoded = Encoded.open(folder / "train.clicks")
    >>> len(encoded), encoded.sizes[:3], encoded.bad_lines
    (2, (3, 3, 3), 0)
    >>> encoded.clicks(slice(0, 1)).dense.round(3)[0, 0]
    np.float32(1.386)
    """

    path: Path
    kind: str  # criteo or avazu
    rows: int
    names: tuple[str, ...]  # of the categories
    sizes: tuple[int, ...]  # codes of each category, the two reserved ones included
    numbers: tuple[str, ...]  # names of the dense columns
    vocabulary: str  # whose values are known: those of the training rows, or of all
    min_count: int
    training_rows: int
    training_crc: int  # which rows those are: the CRC-32 of the mask's bytes, 0 where all are
    source: str  # name and size of the log
    source_bytes: int
    lines: int  # read, without the header
    bad_lines: int  # of them skipped
    first_bad: tuple[tuple[int, str], ...]  # the first few: line of the file, from 1, and what is wrong with it
    _columns: tuple[NDArray[Any], ...] = field(repr=False, default=())  # label, numbers, codes

    def __repr__(self) -> str:
        return (
            f"Encoded({str(self.path)!r}: {self.rows:,} rows of {self.source!r}, {len(self.sizes)} categories of "
            f"{sum(self.sizes):,} codes, {len(self.numbers)} numbers, {self.bad_lines:,} bad lines)"
        )

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Encoded:
        """Memory-map a file that `encode` wrote."""
        header, start = _header(Path(path))
        try:
            rows, columns = int(header["rows"]), header["columns"]
            content = np.memmap(path, np.uint8, "r")
            mapped = []
            for column in columns:
                kind, offset = np.dtype(column["dtype"]).newbyteorder("<"), start + int(column["offset"])
                mapped.append(np.asarray(content[offset : offset + rows * kind.itemsize]).view(kind))
            if any(len(column) != rows for column in mapped):
                raise UncurseError(f"{path} is truncated; encode the log again")
            names = {role: tuple(c["name"] for c in columns if c["role"] == role) for role in ("number", "category")}
            sizes = tuple(int(c["size"]) for c in columns if c["role"] == "category")
            first_bad = tuple((int(line), str(reason)) for line, reason in header["first_bad"])
            counts = {
                key: int(header[key]) for key in ("min_count", "training_rows", "training_crc", "lines", "bad_lines")
            }
            counts["source_bytes"] = int(header["source_bytes"])
            return cls(
                path=Path(path),
                kind=str(header["log"]),
                rows=rows,
                names=names["category"],
                sizes=sizes,
                numbers=names["number"],
                vocabulary=str(header["vocabulary"]),
                source=str(header["source"]),
                first_bad=first_bad,
                _columns=tuple(mapped),
                **counts,
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, UncurseError):
                raise
            raise UncurseError(f"{path} has an incomplete header ({error}); encode the log again") from None

    def __len__(self) -> int:
        return self.rows

    def clicks(self, rows: slice | NDArray[Any] | None = None) -> Clicks:
        """Some rows, or all, as a network takes them: log(1 + x) of the numbers, codes, labels.

        Parameters
        ----------
        rows : slice, array of indices or mask of all rows, optional
            All rows by default.
        """
        start, chosen = self._choose(rows)
        count = chosen if isinstance(chosen, int) else len(chosen)
        dense = np.empty((count, len(self.numbers)), np.float32)
        codes = np.empty((count, len(self.names)), np.int32)
        label = np.empty(count, np.uint8)

        def fill(share: slice) -> None:
            for part in chunks(share.stop - share.start, _CHUNK):
                here = slice(share.start + part.start, share.start + part.stop)
                take: Any = chosen[here] if not isinstance(chosen, int) else _moved(here, start)
                label[here] = self._columns[0][take]
                for j in range(dense.shape[1]):
                    dense[here, j] = _log1p(self._columns[1 + j][take])
                for j, column in enumerate(self._columns[1 + dense.shape[1] :]):
                    codes[here, j] = column[take]

        in_threads(fill, shares(count))
        return Clicks(dense, codes, label, self.sizes)

    def _choose(self, rows: slice | NDArray[Any] | None) -> tuple[int, int | NDArray[np.intp]]:
        """The first row and how many where they follow each other, else the indices."""
        if rows is None:
            return 0, self.rows
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self.rows)
            return (start, max(0, stop - start)) if step == 1 else (0, np.arange(start, stop, step))
        index = np.asarray(rows)
        if index.dtype == bool and index.shape == (self.rows,):
            return 0, np.flatnonzero(index)
        if index.ndim != 1 or (index.dtype.kind not in "iu" and index.size):
            raise UncurseError(
                f"rows are {index.dtype} of shape {index.shape}; pass a slice, indices, or a mask of {self.rows} rows"
            )
        index = index.astype(np.intp, copy=False)
        if index.size and (index.min() < -self.rows or index.max() >= self.rows):
            outside = index.max() if index.max() >= self.rows else index.min()
            raise UncurseError(f"there is no row {outside} in {self.path}, which has {self.rows}")
        return 0, index


def _moved(rows: slice, by: int) -> slice:
    return slice(rows.start + by, rows.stop + by)


@cache
def _logs() -> NDArray[np.float32]:
    return np.log1p(np.arange(1 << 16, dtype=np.float64)).astype(np.float32)


def _log1p(values: NDArray[Any]) -> NDArray[np.float32]:
    logs: NDArray[np.float32]
    logs = _logs()[values] if values.itemsize < 4 else np.log1p(values.astype(np.float64)).astype(np.float32)
    return logs


# ---------------------------------------------------------------------------- the file


@dataclass(frozen=True)
class Column:
    """One column to write: its part of the header, and what gives its rows, piece by piece."""

    name: str
    role: str  # label, number or category
    dtype: np.dtype[Any]
    size: int  # values it may take
    pieces: Callable[[], Any]  # an iterator of arrays of `dtype`


def write(path: Path, rows: int, columns: list[Column], about: dict[str, Any]) -> None:
    """Write a file of `rows`, columns side by side in threads."""
    offsets, end = [], 0
    for column in columns:
        offsets.append(end)
        end += -(-rows * column.dtype.itemsize // ALIGNMENT) * ALIGNMENT
    listed = [
        {"name": c.name, "role": c.role, "dtype": c.dtype.name, "offset": offset, "size": c.size}
        for c, offset in zip(columns, offsets, strict=True)
    ]
    content = {"schema_version": SCHEMA_VERSION, **about, "rows": rows, "bytes": end, "columns": listed}
    header = json.dumps(content, allow_nan=False).encode()
    header += b" " * (-(len(MAGIC) + 8 + len(header)) % ALIGNMENT)
    start = len(MAGIC) + 8 + len(header)
    with path.open("wb") as file:
        file.write(MAGIC + len(header).to_bytes(8, "little") + header)
        file.truncate(start + end)

    def fill(place: tuple[Column, int]) -> None:
        column, offset = place
        with path.open("r+b") as file:
            file.seek(start + offset)
            for piece in column.pieces():
                file.write(piece.astype(column.dtype.newbyteorder("<"), copy=False).data)

    in_threads(fill, list(zip(columns, offsets, strict=True)))


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a file that is whole, and where its columns start."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise UncurseError(f"{path} is not an encoded click log; write one with encode(log, {path.name!r})")
            length = int.from_bytes(file.read(8), "little")
            text = file.read(length) if length <= size else b""
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror}") from None
    try:
        header = json.loads(text)
        version, end = header["schema_version"], header["bytes"] + len(MAGIC) + 8 + length
    except (ValueError, KeyError, TypeError):
        raise UncurseError(
            f"{path} is truncated or damaged: its header is not readable; encode the log again"
        ) from None
    if version != SCHEMA_VERSION:
        raise UncurseError(
            f"{path} has schema_version {version!r} and this release reads {SCHEMA_VERSION}; "
            "upgrade, or encode the log again"
        )
    if size != end:
        raise UncurseError(f"{path} has {size:,} bytes instead of {end:,}, so it is truncated; encode the log again")
    return header, len(MAGIC) + 8 + length


__all__ = ["Column", "Encoded", "write"]
