"""An encoded click log: an Arrow file of labels, numbers and dictionary-encoded categories, memory-mapped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uncurse.errors import UncurseError
from uncurse.threads import in_threads

from ..deep.clicks import Clicks

MAGIC = b"ARROW1"
SCHEMA_VERSION = 1  # the version written, and the only one read
_KEY = b"uncurse"  # of the schema's metadata


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows of a click log on disk, as `encode` wrote them. Rows are read when `clicks` asks for them.

    Code 0 is a missing value, 1 an unknown value, and 2, 3, … are the known values. The file is an Arrow file
    (``pyarrow.feather.read_table`` reads it): a category is a dictionary column, its codes are the indices, and the
    dictionary holds the values, with null for the codes 0 and 1.

    Examples
    --------
    >>> import tempfile
    >>> from uncurse_lab.logs import encode
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "train.txt").write_text(2 * ("1" + 13 * "\\t3" + 26 * "\\t68fd1e64" + "\\n"))
    >>> _ = encode(folder / "train.txt", folder / "train.clicks", kind="criteo")
    >>> encoded = Encoded.open(folder / "train.clicks")
    >>> len(encoded), encoded.sizes[:3], encoded.bad_lines
    (2, (3, 3, 3), 0)
    >>> encoded.clicks(slice(0, 1)).dense.round(3)[0, 0]
    np.float32(1.386)
    >>> f"{encoded.values('C1')[0]:08x}"
    '68fd1e64'
    """

    path: Path
    kind: str  # criteo or avazu
    rows: int
    names: tuple[str, ...]  # of the categories
    sizes: tuple[int, ...]  # number of codes of each category, 0 and 1 included
    numbers: tuple[str, ...]  # names of the dense columns
    vocabulary: str  # rows whose values are known, "training" or "all"
    training_rows: int
    training_crc: int  # CRC-32 of the training mask, 0 if all rows are training rows
    source: str  # name of the log
    source_bytes: int
    lines: int  # lines read, without the header
    bad_lines: int  # lines skipped
    first_bad: tuple[tuple[int, str], ...]  # the first few: line of the file, from 1, and what is wrong with it
    _batches: tuple[Any, ...] = field(repr=False, default=())

    def __repr__(self) -> str:
        return (
            f"Encoded({str(self.path)!r}: {self.rows:,} rows of {self.source!r}, {len(self.sizes)} categories of "
            f"{sum(self.sizes):,} codes, {len(self.numbers)} numbers, {self.bad_lines:,} bad lines)"
        )

    def __len__(self) -> int:
        return self.rows

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Encoded:
        """Memory-map a file that `encode` wrote."""
        try:
            table = pa.ipc.open_file(pa.memory_map(os.fspath(path))).read_all()
        except pa.ArrowInvalid as error:
            raise UncurseError(
                f"{path} is truncated or not an encoded click log ({error}); encode the log again"
            ) from None
        except OSError as error:
            raise UncurseError(f"cannot read {path}: {os.strerror(error.errno) if error.errno else error}") from None
        batches = tuple(table.to_batches())
        columns = table.schema.names[1:]
        names = tuple(name for name in columns if pa.types.is_dictionary(table.schema.field(name).type))
        try:
            about = json.loads(table.schema.metadata[_KEY])
            if about.pop("schema_version") != SCHEMA_VERSION:
                raise ValueError
            about["first_bad"] = tuple((int(line), str(reason)) for line, reason in about["first_bad"])
            return cls(
                path=Path(path),
                rows=len(table),
                names=names,
                sizes=tuple(len(batches[0].column(name).dictionary) for name in names),
                numbers=tuple(name for name in columns if name not in names),
                _batches=batches,
                **about,
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UncurseError(
                f"{path} is not an encoded click log with schema_version {SCHEMA_VERSION}; encode the log again"
            ) from None

    def values(self, name: str) -> NDArray[Any]:
        """Return the known values of a category, in the order of their codes 2, 3, …"""
        if name not in self.names:
            raise UncurseError(f"there is no category {name!r} in {self.path}; choose one of {', '.join(self.names)}")
        values: NDArray[Any] = self._batches[0].column(name).dictionary[2:].to_numpy()
        return values

    def clicks(self, rows: slice | NDArray[Any] | None = None) -> Clicks:
        """Return some rows, or all, as a network takes them: log(1 + max(x, 0)) of the numbers, codes, labels.

        Rows are a slice, an array of indices, or a mask of all rows.
        """
        try:
            index = np.arange(self.rows)[slice(None) if rows is None else rows]
        except IndexError as error:
            raise UncurseError(f"{error}; pass a slice, indices, or a mask of the {self.rows} rows") from None
        order = np.argsort(index, kind="stable")
        starts = np.cumsum([0, *(len(batch) for batch in self._batches)])
        bounds = np.searchsorted(index, starts, sorter=order)
        dense = np.empty((len(index), len(self.numbers)), np.float32)
        codes = np.empty((len(index), len(self.names)), np.int32)
        label = np.empty(len(index), np.uint8)

        def fill(i: int) -> None:
            batch, target = self._batches[i], order[bounds[i] : bounds[i + 1]]
            source = index[target] - starts[i]
            label[target] = batch.column(0).to_numpy()[source]
            for j, name in enumerate(self.numbers):
                dense[target, j] = np.log1p(batch.column(name).to_numpy()[source].astype(np.float64))
            for j, name in enumerate(self.names):
                codes[target, j] = batch.column(name).indices.to_numpy()[source]

        in_threads(fill, np.flatnonzero(np.diff(bounds)).tolist())
        return Clicks(dense, codes, label, self.sizes)


def write(path: Path, batches: Iterable[Any], about: dict[str, Any]) -> None:
    """Write record batches of one schema, and what is known of them."""
    metadata = {_KEY: json.dumps({"schema_version": SCHEMA_VERSION, **about}, allow_nan=False).encode()}
    writer = None
    with pa.OSFile(os.fspath(path), "wb") as file:
        for batch in batches:
            writer = writer or pa.ipc.new_file(file, batch.schema.with_metadata(metadata))
            writer.write_batch(batch.replace_schema_metadata(metadata))
        if writer is not None:
            writer.close()
