"""Criteo's and Avazu's click logs: Polars reads one, and its rows are kept as an Arrow file of codes.

Needs PyArrow, which the extra `deep` installs.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from uncurse.documents import replacing
from uncurse.errors import UncurseError
from uncurse.logs.rows import first_line
from uncurse.optional import needing
from uncurse.validation import check_choice, check_count, check_number

from .deep.clicks import Clicks

with needing("deep"):
    import pyarrow as pa

__all__ = ["Encoded", "count_lines", "encode"]
SCHEMA_VERSION = 2  # the version written, and the only one read
_KEY = b"uncurse"  # of the schema's metadata
_UNKNOWN = 1  # code of a value that no training row has; 0 is a missing value
_SHOWN = 5  # bad lines that are described; all are counted
_LARGEST = (1 << 31) - 1

_CRITEO = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
_HEX = ("site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category", "device_id", "device_ip")
_AVAZU = ["id", "click", "hour", "C1", "banner_pos", *_HEX, "device_model", "device_type", "device_conn_type"]
_AVAZU += [f"C{i}" for i in range(14, 22)]


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows of a click log on disk, as `encode` wrote them. Rows are read when `clicks` asks for them.

    Code 0 is a missing value, 1 an unknown value, and 2, 3, … are the known values. The file is an Arrow file
    (``pyarrow.feather.read_table`` reads it): a category is a dictionary column, its codes are the indices, and the
    dictionary holds the values, with null for the codes 0 and 1.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "train.txt").write_text(2 * ("1" + 13 * "\\t3" + 26 * "\\t68fd1e64" + "\\n"))
    >>> encoded = encode(folder / "train.txt", folder / "train.clicks", kind="criteo")
    >>> len(encoded), encoded.sizes[:3], encoded.bad_lines
    (2, (3, 3, 3), 0)
    >>> encoded.clicks(slice(0, 1)).dense.round(3)[0, 0], encoded.values("C1")
    (np.float32(1.386), ['68fd1e64'])
    """

    path: Path
    kind: str  # criteo or avazu
    rows: int
    names: tuple[str, ...]  # of the categories
    sizes: tuple[int, ...]  # number of codes of each category, 0 and 1 included
    numbers: tuple[str, ...]  # names of the dense columns
    training_crc: int  # CRC-32 of the training mask, 0 if all rows are training rows
    source: str  # name of the log
    source_bytes: int
    bad_lines: int  # lines skipped
    first_bad: list[str]  # the first few: their lines in the file, from 1, and what is wrong with them
    _table: Any = field(repr=False, default=None)

    def __len__(self) -> int:
        return self.rows

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Encoded:
        """Memory-map a file that `encode` wrote."""
        try:
            table = pa.ipc.open_file(pa.memory_map(os.fspath(path))).read_all()
            about = json.loads(table.schema.metadata[_KEY])
            if about.pop("schema_version") != SCHEMA_VERSION:
                raise ValueError("it has another schema_version")
        except OSError as error:
            raise UncurseError(f"cannot read {path}: {error}") from None
        except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
            raise UncurseError(f"{path} is not an encoded click log ({error}); encode the log again") from None
        columns = {column.name: column.type for column in list(table.schema)[1:]}
        names = tuple(name for name, kind in columns.items() if pa.types.is_dictionary(kind))
        return cls(
            path=Path(path),
            rows=len(table),
            names=names,
            sizes=tuple(len(table.column(name).chunk(0).dictionary) for name in names),
            numbers=tuple(name for name in columns if name not in names),
            _table=table,
            **about,
        )

    def values(self, name: str) -> list[str]:
        """Return the known values of a category, in the order of their codes 2, 3, …"""
        if name not in self.names:
            raise UncurseError(f"there is no category {name!r} in {self.path}; choose one of {', '.join(self.names)}")
        values: list[str] = self._table.column(name).chunk(0).dictionary[2:].to_pylist()
        return values

    def clicks(self, rows: Any = None) -> Clicks:
        """Return some rows, or all, as a network takes them: log(1 + max(x, 0)) of the numbers, codes, labels.

        Rows are a slice, an array of indices, or a mask of all rows.
        """
        chosen = slice(None) if rows is None else rows
        try:
            count = len(np.empty(self.rows, bool)[chosen])
        except IndexError as error:
            raise UncurseError(f"{error}; pass a slice, indices, or a mask of the {self.rows} rows") from None
        dense = np.empty((count, len(self.numbers)), np.float32)
        codes = np.empty((count, len(self.names)), np.int32)
        for j, name in enumerate(self.numbers):
            dense[:, j] = np.log1p(self._table.column(name).chunk(0).to_numpy()[chosen].astype(np.float64))
        for j, name in enumerate(self.names):
            codes[:, j] = self._table.column(name).chunk(0).indices.to_numpy()[chosen]
        return Clicks(dense, codes, self._table.column(0).chunk(0).to_numpy()[chosen], self.sizes)


def encode(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    kind: str,
    rows: int | None = None,
    training: NDArray[np.bool_] | Callable[[int], NDArray[np.bool_]] | None = None,
    bad_share: float = 0.01,
) -> Encoded:
    """Read Criteo's ``train.txt`` or Avazu's ``train``, as text or gzipped, and write one file that memory-maps.

    `kind` is "criteo" or "avazu", and `rows` the number of good rows to read, all by default. `training` says which of
    these are training rows: a mask, or a function from their number to a mask; all by default. Values that no training
    row has are unknown. Bad lines are skipped and counted; a share above `bad_share` is an error.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> line = "1" + 13 * "\\t3" + 25 * "\\t{0:08x}" + "\\t\\n"
    >>> _ = (folder / "day1.txt").write_text("".join(line.format(i) for i in (7, 9, 7, 8)))
    >>> training = np.array([True, True, True, False])
    >>> first = encode(folder / "day1.txt", folder / "day1.clicks", kind="criteo", training=training)
    >>> first.clicks().codes[:, [0, 25]].tolist()  # 8 is in no training row, the last category always missing
    [[2, 0], [3, 0], [2, 0], [1, 0]]
    """
    check_choice("kind", kind, ("criteo", "avazu"))
    if not 0 <= check_number(bad_share, "bad_share") < 1:
        raise UncurseError(f"bad_share={bad_share!r}; pass a share from 0 to less than 1, such as 0.01")
    source, target = Path(source), Path(target)
    if target.exists() and target.samefile(source):
        raise UncurseError(f"{target} is the log itself; write the encoded rows to another file")
    frame, bad_lines, first_bad = _read(source, kind, None if rows is None else check_count(rows, "rows"), bad_share)
    mask = training(len(frame)) if callable(training) else training
    if mask is not None and (mask.dtype != bool or mask.shape != (len(frame),)):
        raise UncurseError(
            f"training is {mask.dtype} of shape {mask.shape} for the {len(frame):,} good rows of {source}; pass a mask "
            f"(bool) of shape ({len(frame)},)"
        )
    if mask is not None and not mask.any():
        raise UncurseError(f"none of the {len(frame):,} rows is a training row; mark some in training")
    about = {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "training_crc": 0 if mask is None else zlib.crc32(mask.tobytes()),
        "source": source.name,
        "source_bytes": source.stat().st_size,
        "bad_lines": bad_lines,
        "first_bad": first_bad,
    }
    columns = {
        column.name: _dictionary(column, mask)
        if isinstance(column.dtype, pl.Categorical)
        else pa.array(column.to_numpy())
        for column in frame
    }
    table = pa.table(columns).replace_schema_metadata({_KEY: json.dumps(about).encode()})
    try:
        with replacing(target) as path, pa.ipc.new_file(os.fspath(path), table.schema) as writer:
            writer.write_table(table)
    except OSError as error:
        raise UncurseError(f"cannot write {target}: {error.strerror or error}") from None
    return Encoded.open(target)


def _dictionary(column: pl.Series, training: NDArray[np.bool_] | None) -> Any:
    """Return the codes of a category and its known values, in the order of their first training row."""
    present = column.is_not_null().to_numpy()
    places = column.to_physical().fill_null(0).to_numpy()
    known = column.filter(pl.Series(present if training is None else present & training)).unique(maintain_order=True)
    codes = np.full(int(places.max(initial=0)) + 1, _UNKNOWN, np.uint32)
    codes[known.to_physical().to_numpy()] = np.arange(2, 2 + len(known))
    values = pa.array([None, None, *known.cast(pl.String)], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(np.where(present, codes[places], 0).astype(np.int32)), values)


# ---------------------------------------------------------------------------- reading a log


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UncurseError(f"cannot read {source}: {first_line(error)}; pass a log, as text or gzipped") from None


def _lines(source: Path) -> pl.LazyFrame:
    """Return the lines of a text file, gzipped or not: the text, and the number from 1."""
    return pl.scan_csv(
        source, has_header=False, separator="\x01", quote_char=None, schema={"line": pl.String}, glob=False,
        encoding="utf8-lossy", truncate_ragged_lines=True, row_index_name="number", row_index_offset=1,
    ).with_columns(pl.col("line").fill_null(""))  # fmt: skip


def count_lines(path: str | os.PathLike[str], most: int) -> int:
    """Count the lines of a log, gzipped or not, up to `most`."""
    with _reading(Path(path)):
        return int(_lines(Path(path)).head(most).select(pl.len()).collect().item())


@dataclass(frozen=True)
class _Layout:
    """Columns of a log: its label and numbers; the others are categories, apart from those that are left out."""

    names: list[str]
    separator: str
    label: str
    numbers: list[str]
    header: int  # lines

    @property
    def fields(self) -> pl.Expr:
        """The fields of a line by name."""
        split = pl.col("line").str.split_exact(self.separator, len(self.names) - 1)
        return split.struct.rename_fields(self.names).alias("fields")

    def number(self, name: str) -> pl.Expr:
        """A whole number; null where there is none."""
        return pl.col(name).cast(pl.Int64, strict=False)

    def columns(self) -> Iterator[pl.Expr]:
        """Yield what is kept of a good line."""
        yield (pl.col(self.label) == "1").cast(pl.UInt8).alias("label")
        for name in self.names:
            if name in self.numbers:
                yield self.number(name).clip(0, _LARGEST).fill_null(0).cast(pl.UInt32).alias(name)
            elif name not in (self.label, "index", "id"):
                text = pl.col(name).str.slice(-2) if name == "hour" else pl.col(name)  # the hour of the day
                yield pl.when(pl.col(name) != "").then(text).cast(pl.Categorical(pl.Categories.random())).alias(name)

    def faults(self) -> dict[str, pl.Expr]:
        """Return what can be wrong with a line, and whether it is."""
        count = pl.col("line").str.count_matches(self.separator, literal=True) + 1
        found = {f"not {len(self.names)} fields": count != len(self.names)}
        found[f"{self.label} is not 0 or 1"] = ~pl.col(self.label).is_in(["0", "1"])
        for name in self.numbers:
            whole = self.number(name).abs().le(_LARGEST).fill_null(False)
            found[f"{name} is not a whole number up to {_LARGEST:,}"] = (pl.col(name) != "") & ~whole
        return found


def _layout(source: Path, kind: str) -> _Layout:
    with _reading(source):
        head = _lines(source).head(2).collect()["line"].to_list()
    if not head:
        raise UncurseError(f"{source} is empty; pass a log with at least one line")
    if kind == "criteo":
        return _Layout(_CRITEO, "\t", "label", [f"I{i}" for i in range(1, 14)], 0)
    if head[0].split(",")[-len(_AVAZU) :] != _AVAZU:
        raise UncurseError(f"{source} does not start with Avazu's header; pass Avazu's train file")
    # Data frames write a row index in front, which the header may not name.
    index = max(line.count(",") for line in head) >= len(_AVAZU)
    return _Layout(["index"] * index + _AVAZU, ",", "click", [], 1)


def _read(source: Path, kind: str, rows: int | None, bad_share: float) -> tuple[pl.DataFrame, int, list[str]]:
    """Return label, numbers and categories of the good rows, how many lines are bad, and why the first are."""
    layout = _layout(source, kind)
    faults = layout.faults()
    bad = pl.any_horizontal(*faults.values())
    query = _lines(source).slice(layout.header).with_columns(layout.fields).unnest("fields")
    query = query.select(
        pl.when(bad).then("number").alias("bad"), pl.when(bad).then("line").alias("line"), *layout.columns()
    )
    if rows is not None:  # as many lines as these rows can need
        query = query.head(int(rows / (1 - bad_share)) + 1)
    with _reading(source):
        frame = query.collect(engine="streaming")
    if rows is not None and frame["bad"].null_count() > rows:
        frame = frame.head(int(frame["bad"].is_null().arg_true()[rows - 1]) + 1)
    wrong = frame.filter(pl.col("bad").is_not_null()).select("bad", "line")
    shown = wrong.head(_SHOWN).with_columns(layout.fields).unnest("fields")
    reason = pl.coalesce(*(pl.when(fault).then(pl.lit(name)) for name, fault in faults.items()))
    first = shown.select(pl.format("line {}: {}", "bad", reason)).to_series().to_list()
    if len(wrong) > bad_share * len(frame):
        raise UncurseError(
            f"{len(wrong):,} of {len(frame):,} lines of {source} are bad, more than bad_share={bad_share:g}, first "
            f"{first[0]}; check the kind of log, repair it, or raise bad_share"
        )
    if frame.is_empty():
        raise UncurseError(f"{source} has no rows; pass a log with at least one")
    return frame.filter(pl.col("bad").is_null()).drop("bad", "line"), len(wrong), first
