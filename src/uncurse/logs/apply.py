"""Apply a map to frames and to files, by the NumPy map itself; every output is complete or absent."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl
from narwhals.stable.v2 import dependencies

from ..documents import temporary_folder
from ..errors import UncurseError
from ..evidence import LogSpec
from ..maps import ScoreMap, Segmented
from ..maps.combined import predict_segments
from ..validation import check_choice, warn_user
from .files import LogFile, check_file, is_data, kind_of, locate, locate_fault, names_many, open_files, scan
from .frames import add_on_spark, arrow_reader, is_spark, is_stream, open_eager, series_of
from .rows import BATCH, MISSING, ROW, Fault, Reader, check_columns, check_present, first_line, is_missing

_FEW = 100  # rows; fewer scores may lie in [0, 1] by chance


class _Predictor:
    """Predicts batches with a map, and counts what its user should be warned of."""

    def __init__(self, score_map: ScoreMap, score: str, segment: str | None, missing: str, text: bool = False) -> None:
        if isinstance(score_map, Segmented) != (segment is not None):
            remedy = "has no segments; leave it out" if segment else "has a map for each segment; pass their column"
            raise UncurseError(f"segment={segment!r}, and this map {remedy}")
        self.missing = check_choice("missing", missing, MISSING)
        spec = LogSpec((score,), score_map.scale, segment=segment, link=score_map.link)
        self.map, self.score, self.segment = score_map, score, segment
        self.reader = Reader(spec, text=text)
        self.columns = self.reader.columns
        # Of each batch: rows, rows without a prediction, rows of unknown segments, smallest and largest score.
        self.seen: list[tuple[int, int, int, float, float]] = []

    def __call__(self, batch: pl.DataFrame) -> pl.Series:
        """Return the predictions of a batch; the row of a fault is named if the batch has row numbers."""
        batch = self.reader.typed(batch)
        missing = is_missing(batch[self.score])
        if self.missing == "drop" and self.segment is not None:
            missing |= is_missing(batch[self.segment])
        if self.missing != "error":  # 0.5 is valid on every scale
            batch = batch.with_columns(pl.when(missing).then(0.5).otherwise(batch[self.score]).alias(self.score))
        if not len(batch):
            return pl.Series(dtype=pl.Float64)
        scores, unknown = self.reader.arrays(batch)[0][:, 0], 0
        if isinstance(self.map, Segmented) and self.segment is not None:
            if self.missing == "error":
                check_present(batch, self.segment, "fill it, say with 'unknown'")
            numbers = {name: i for i, name in enumerate(self.map.maps)}
            names = batch[self.segment].cast(pl.String)
            places = names.replace_strict(numbers, default=-1, return_dtype=pl.Int32).fill_null(-1).to_numpy()
            predictions = predict_segments(self.map, scores, places)
            unknown = int((places[~missing.to_numpy()] < 0).sum())
        else:
            predictions = self.map(scores)
        self.seen.append((len(batch), int(missing.sum()), unknown, scores.min(), scores.max()))
        out = pl.Series(predictions)
        return out.set(missing, None) if missing.any() else out

    def add_to(self, frame: pl.LazyFrame, column: str, folder: Mapping[str, str | None]) -> pl.LazyFrame:
        """Append the predictions to a lazy frame; `folder` are columns in the path of a file."""
        inputs = pl.struct(
            pl.lit(folder[name], pl.String).alias(name) if name in folder else pl.col(name) for name in self.columns
        )
        each = inputs.map_batches(lambda rows: self(rows.struct.unnest()), return_dtype=pl.Float64, is_elementwise=True)
        made = frame.with_columns(each.alias(column))
        return made.filter(pl.col(column).is_not_null()) if self.missing == "drop" else made

    def append(self, batch: Any, column: str, folder: Mapping[str, str | None] = MappingProxyType({})) -> Any:
        """Append the predictions of a PyArrow batch; `folder` are columns in the path of a file."""
        import pyarrow

        schema = batch.schema.append(pyarrow.field(column, pyarrow.float64()))
        inputs = pl.DataFrame(batch.select([name for name in self.columns if name not in folder]))
        constant = [pl.lit(folder[name], pl.String).alias(name) for name in self.columns if name in folder]
        predictions = self(inputs.with_columns(constant))
        made = pyarrow.RecordBatch.from_arrays([*batch.columns, predictions.to_arrow()], schema=schema)
        return made.filter(made.column(column).is_valid()) if self.missing == "drop" else made

    def warn(self) -> None:
        """Warn of missing values, of logits that look like probabilities, and of segments without a map."""
        if not self.seen:
            return
        counts, missing, unknown, low, high = zip(*self.seen, strict=True)
        if any(missing):
            lack = self.score if self.missing == "null" or self.segment is None else f"{self.score} or {self.segment}"
            result = "they have no prediction" if self.missing == "null" else "they are left out"
            warn_user(f"{sum(missing):,} of {sum(counts):,} rows have no {lack}; {result}")
        if self.map.scale == "logit" and sum(counts) >= _FEW and min(low) >= 0 and max(high) <= 1:
            warn_user(
                f"every value of {self.score} lies in [0, 1]; if these are probabilities, apply the map to their "
                "logits, or fit it on the scale probability"
            )
        if any(unknown):
            warn_user(
                f"{sum(unknown):,} of {sum(counts):,} rows have a {self.segment} without a map of its own; they get "
                "the default map"
            )


def with_prediction(
    frame: Any, score_map: ScoreMap, *, score: str, column: str, segment: str | None = None, missing: str = "error"
) -> Any:
    """Add the predictions of a map as the last column; rows, their order and other columns stay.

    To compute predictions inside a warehouse, export the map with ``uncurse.serving.to_sql`` instead.

    Parameters
    ----------
    frame : frame
        pandas, Polars (eager or lazy), PyArrow, PySpark, DuckDB, Ibis or any Arrow stream, native or wrapped by
        narwhals.
    score_map : ScoreMap
        The map.
    score : str
        Served column, on the scale of the map.
    column : str
        Name of the new column.
    segment : str, optional
        For a map by segment, which needs it: the column of segments, text or whole numbers. Segments without a map get
        the default map.
    missing : {"error", "drop", "null"}, default="error"
        What to do with missing scores and segments. With "null" a missing score has a missing prediction, and a missing
        segment gets the default map. With "drop" rows without a score or a segment are left out. A warning counts them,
        unless the frame is lazy or a stream.

    Returns
    -------
    frame
        Native, of the same kind; of DuckDB, Ibis and Arrow streams a ``pyarrow.RecordBatchReader``, which can be read
        once. Lazy frames and streams report bad values when they run.

    Examples
    --------
    >>> import polars as pl
    >>> from uncurse import Affine
    >>> log = pl.DataFrame({"s1": [0.0, 2.0], "ad": ["a", "b"]})
    >>> with_prediction(log, Affine(0.5, -1.0), score="s1", column="p")["p"].round(3).to_list()
    [0.269, 0.5]
    """
    frame = nw.to_native(frame, pass_through=True)
    predict = _Predictor(score_map, score, segment, missing)
    if isinstance(frame, pl.LazyFrame):
        schema = frame.collect_schema()
        _check(schema.names(), predict, column)
        predict.reader.typed(pl.DataFrame(schema={name: schema[name] for name in predict.columns}))
        return predict.add_to(frame, column, {})
    if is_spark(frame):
        _check(frame.columns, predict, column)
        return add_on_spark(frame, column, lambda batch: predict.append(batch, column))
    if is_stream(frame):
        import pyarrow

        reader = arrow_reader(frame, predict.columns, more=True)
        _check(reader.schema.names, predict, column)
        predict.reader.typed(pl.DataFrame(reader.schema.empty_table().select(predict.columns)))
        output = reader.schema.append(pyarrow.field(column, pyarrow.float64()))
        return pyarrow.RecordBatchReader.from_batches(output, (predict.append(batch, column) for batch in reader))
    table = open_eager(frame)
    _check(table.columns, predict, column)
    rows = pl.DataFrame([series_of(table[name]) for name in predict.columns])
    predictions = predict(rows.with_columns(pl.Series(ROW, np.arange(len(rows)))))
    predict.warn()
    if missing == "drop":
        table, predictions = table.filter(predictions.is_not_null().to_list()), predictions.drop_nulls()
    values = predictions.to_list() if predictions.null_count() else predictions.to_numpy()
    if dependencies.is_pandas_dataframe(frame):  # by position, whatever the index
        return table.to_native().assign(**{column: np.array(values, float)})
    return table.with_columns(nw.new_series(column, values, nw.Float64(), backend=table.implementation)).to_native()


def _check(columns: Sequence[str], predict: _Predictor, column: str, where: str = "the frame") -> None:
    check_columns(columns, predict.columns, where)
    if not column or column in columns:
        raise UncurseError(f"{where}: column {column!r} is there already, or has no name; choose another name")


# ---------------------------------------------------------------------------- files


def apply_to_files(
    score_map: ScoreMap,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    score: str,
    column: str = "prediction",
    segment: str | None = None,
    missing: str = "error",
    progress: Callable[[str], None] | None = None,
) -> list[str]:
    """Write a copy of a log with the predictions of a map as its last column.

    A path of one file gives one file. A folder or a glob always gives a folder, with the same names and subfolders,
    even if it holds only one file; the folder must be new or empty. Output is written to a hidden folder next to its
    place and renamed at the end, so it is complete or absent. Where PyArrow is installed, parquet files keep the types
    of all columns; without it, times and binary columns get wider types.

    Parameters
    ----------
    score_map : ScoreMap
        The map.
    source : str or path-like
        A parquet or CSV file, a glob or a folder. Columns of CSV files stay text, as they are written.
    out : str or path-like
        File or folder to write. For a single file, a folder means a file of the same name in it.
    score, column, segment, missing
        As in `with_prediction`. A segment may also be a name in the folders (``site=news/``).
    progress : callable, optional
        Called with the path of each file that is done.

    Returns
    -------
    list of str
        Paths of the files written.

    Examples
    --------
    >>> import tempfile
    >>> from uncurse import Affine
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "log.csv").write_text("id,s\\na,0.0\\n")
    ...     _ = apply_to_files(Affine(1.0, 0.0), f"{folder}/log.csv", f"{folder}/out.csv", score="s")
    ...     print(Path(folder, "out.csv").read_text())
    id,s,prediction
    a,0.0,0.5
    <BLANKLINE>
    """
    files = locate([source])
    predict = _Predictor(score_map, score, segment, missing, text=kind_of(files[0].path) == "csv")
    for file in files:
        _check([*check_file(file, predict.reader), *file.folder_values], predict, column, file.path)
    many, target = names_many(source), _target(files, source, out)
    written = [target / file.relative if many else target for file in files]
    try:
        with temporary_folder(target.absolute().parent) as temporary:
            for file, path in zip(files, written, strict=True):
                to = temporary / path.relative_to(target.parent)
                to.parent.mkdir(parents=True, exist_ok=True)
                _write(predict, file, to, column)
                if progress is not None:
                    progress(file.path)
            (temporary / target.name).replace(target)  # a folder replaces none or an empty one
    except OSError as error:
        raise UncurseError(f"cannot write {out}: {error.strerror or first_line(error)}") from None
    predict.warn()
    return [str(path) for path in written]


def _target(files: Sequence[LogFile], source: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    target = Path(out)
    if names_many(source):
        if is_data(target) or os.path.isfile(target) or (os.path.isdir(target) and os.listdir(target)):
            raise UncurseError(f"{source} may hold several files, so {out} must be a new or empty folder; name one")
        if Path(os.path.realpath(source)) in Path(os.path.realpath(target)).parents:
            raise UncurseError(f"{out} lies inside {source}, which would then hold both logs; name a folder elsewhere")
        return target
    if os.path.isdir(target):
        target = target / Path(files[0].path).name
    if os.path.realpath(target) == os.path.realpath(files[0].path):
        raise UncurseError(f"{target} is the log itself; name another file, and nothing is lost")
    kind_of(str(target))
    return target


def _write(predict: _Predictor, file: LogFile, to: Path, column: str) -> None:
    scanned = scan([file.path])
    there = scanned.collect_schema().names()
    folder = {name: value for name, value in file.folder_values.items() if name not in there}
    advice = ""
    try:
        if kind_of(to.name) == "csv":
            packed = to.name.lower().endswith(".gz")
            frame = predict.add_to(scanned, column, folder)
            frame.sink_csv(to, engine="streaming", compression="gzip" if packed else "uncompressed")
        elif kind_of(file.path) == "parquet" and find_spec("pyarrow") is not None:
            _copy_parquet(predict, file, to, column, folder)
        else:  # which may widen types, say of times
            advice = "; pip install pyarrow, which writes every type"
            stored = pl.read_parquet_metadata(file.path) if kind_of(file.path) == "parquet" else {}
            stored.pop("ARROW:schema", None)  # which lacks the new column
            predict.add_to(scanned, column, folder).sink_parquet(to, engine="streaming", metadata=stored)
    except (UncurseError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        try:  # to find the row, which Polars does not name
            for batch in predict.reader.select(open_files([file], predict.reader)):
                predict(batch)
        except Fault as fault:
            raise UncurseError(locate_fault([file], fault)) from None
        raise UncurseError(f"cannot write {file.path} with predictions: {first_line(error)}{advice}") from None


def _copy_parquet(predict: _Predictor, file: LogFile, to: Path, column: str, folder: dict[str, str | None]) -> None:
    """Copy a parquet file with PyArrow, which keeps the types and the metadata of all columns."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(file.path) as log, to.open("wb") as out:
        schema = log.schema_arrow.append(pyarrow.field(column, pyarrow.float64()))
        chunks = log.metadata.row_group(0).to_dict()["columns"] if log.num_row_groups else []
        words = [each["path_in_schema"] for each in chunks if each["physical_type"] not in ("FLOAT", "DOUBLE")]
        with pyarrow.parquet.ParquetWriter(out, schema, compression="zstd", use_dictionary=words) as writer:
            for batch in log.iter_batches(BATCH):
                writer.write_batch(predict.append(batch, column, folder))
