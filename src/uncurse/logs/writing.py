"""Apply a map to the scores of files; every output is complete or absent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..documents import replacing, temporary_folder
from ..errors import UncurseError
from ..evidence import LogSpec
from ..maps import Grouped, ScoreMap
from ..validation import check_choice, warn_user
from .checks import first_line, unused_name, warn_of_probabilities
from .csv_files import parse_number, read_header, scan_text
from .diagnose import fault_in
from .expressions import PROBABILITY_REMEDY, with_prediction
from .files import LogFile, check_files, is_data, kind_of, locate, names_many
from .scans import ENGINES, scan, scan_polars, spark_path


def apply_to_files(
    score_map: ScoreMap,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    score: str,
    column: str = "prediction",
    group: str | None = None,
    engine: str = "polars",
    progress: Callable[[str], None] | None = None,
) -> list[str]:
    """Write a copy of a log with the predictions of a map as its last column.

    A path of one file gives one file. A folder or a glob always gives a folder, with the same names and subfolders,
    even if it holds only one file; the folder must be new or empty. Output is written to a hidden folder next to its
    place and renamed at the end, so it is complete or absent.

    Parameters
    ----------
    score_map : ScoreMap
        The map.
    source : str or path-like
        A parquet or CSV file, a glob or a folder.
    out : str or path-like
        File or folder to write. For a single file, a folder means a file of the same name in it.
    score : str
        Served column, on the scale of the map.
    column : str, default="prediction"
        Name of the new column.
    group : str, optional
        Column of groups, or a name in the folders (``site=news/``); required if the map has groups.
    engine : {"polars", "duckdb", "spark"}, default="polars"
        Engine that reads and writes parquet files; only Polars keeps every type. CSV files are read with Polars, and
        their columns stay text.
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
    check_choice("engine", engine, ENGINES)
    if isinstance(score_map, Grouped) and group is None:
        raise UncurseError("this map has a map for each group; name the group column too")
    if not column:
        raise UncurseError("the name of the new column is empty; name it, say 'prediction'")
    files = locate([source])
    check_files(files, [score], [] if group is None else [group])
    target, many = _check_target(files, source, out)
    spec = LogSpec((score,), score_map.scale, group=group, link=score_map.link)
    for fault in (fault_in(file.path, spec) for file in files):  # before anything is written
        if fault is not None:
            raise UncurseError(fault)
    _warn(files, score_map, score, group)

    def write(file: LogFile, to: Path) -> None:
        part, by = score_map, group
        values = file.folder_values
        if isinstance(part, Grouped) and group in values:
            part, by = part.maps.get(str(values[group]), part.default), None  # the folder names the group
        try:
            _write(part, file.path, to, score, column, by, engine)
        except UncurseError as error:
            raise UncurseError(f"{file.path}: {error}") from None
        except Exception as error:
            raise UncurseError(f"cannot write {file.path} with predictions to {out}: {first_line(error)}") from None
        if progress is not None:
            progress(file.path)

    try:
        if not many:
            if str(out).endswith(os.sep):
                target.parent.mkdir(exist_ok=True)
            with replacing(target) as temporary:
                write(files[0], temporary)
            return [str(target)]
        with temporary_folder(target.absolute().parent) as temporary:
            folder = temporary / "out"
            for file in files:
                path = folder / file.relative
                path.parent.mkdir(parents=True, exist_ok=True)
                write(file, path)
            folder.rename(target)  # which is absent or an empty folder
        return [str(target / file.relative) for file in files]
    except OSError as error:
        raise UncurseError(f"cannot write {out}: {error.strerror}") from None


def _check_target(
    files: Sequence[LogFile], source: str | os.PathLike[str], out: str | os.PathLike[str]
) -> tuple[Path, bool]:
    """Return the file or folder to write, and whether it is a folder."""
    if not str(out):
        raise UncurseError("the path of the output is empty; name a file or a folder")
    target, many = Path(out), names_many(source)
    if not many and (os.path.isdir(target) or str(out).endswith(os.sep)):
        target = target / Path(files[0].path).name
    if os.path.realpath(target) in [os.path.realpath(file.path) for file in files]:
        raise UncurseError(f"{target} is the log itself; name another file, and nothing is lost")
    if not many:
        kind_of(str(target))
    elif is_data(target) or os.path.isfile(target):
        raise UncurseError(
            f"{source} is a folder or a glob, which may hold several files, and {out} names one file; name a folder"
        )
    elif os.path.isdir(source) and Path(os.path.realpath(source)) in Path(os.path.realpath(target)).parents:
        raise UncurseError(f"{out} lies inside {source}, which would then hold both logs; name a folder elsewhere")
    elif os.path.isdir(target) and any(target.iterdir()):
        raise UncurseError(f"folder {out} holds files already; name a new one, or empty it first")
    return target, many


def _warn(files: Sequence[LogFile], score_map: ScoreMap, score: str, group: str | None) -> None:
    """Warn of logits that look like probabilities, and of groups that the map does not know."""
    import polars as pl

    value, unknown = pl.col(score), pl.lit(0)
    if isinstance(score_map, Grouped) and group is not None:
        unknown = (~pl.col(group).cast(pl.String).is_in(list(score_map.maps))).sum()
    scores = scan_polars(files, [score], [] if group is None else [group], uneven=True).select(
        low=value.min(), high=value.max(), rows=pl.len(), unknown=unknown
    )
    found = scores.collect(engine="streaming").row(0, named=True)
    if found["rows"] and score_map.scale == "logit":
        warn_of_probabilities(score, found["low"], found["high"], found["rows"], PROBABILITY_REMEDY)
    if found["unknown"]:
        warn_user(
            f"{found['unknown']:,} of {found['rows']:,} rows have a {group} without a map of its own; they get the "
            "default map"
        )


def _write(score_map: ScoreMap, file: str, to: Path, score: str, column: str, group: str | None, engine: str) -> None:
    csv_in, csv_out = kind_of(file) == "csv", kind_of(to.name) == "csv"
    engine = "polars" if csv_in else engine
    options: dict[str, Any] = {"column": column, "group": group}
    frame: Any
    if csv_in:  # as text, so that every other value stays as it is written
        number = unused_name([*read_header(file), column], "uncurse_score")
        frame = scan_text(file).with_columns(parse_number(score).alias(number))
        frame = with_prediction(frame, score_map, score=number, **options).drop(number)
    else:
        frame = scan([LogFile(file, file, {})], engine=engine, uneven=False)
        frame = with_prediction(frame, score_map, score=score, **options)
    if engine == "polars" and csv_out:
        packed = to.name.lower().endswith(".gz")
        frame.sink_csv(to, engine="streaming", compression="gzip" if packed else "uncompressed")
    elif engine == "polars":
        frame.sink_parquet(to, engine="streaming")
    elif engine == "duckdb":
        (frame.write_csv if csv_out else frame.write_parquet)(str(to))
    else:  # one file: Spark reads the parts of a file in order, and one task writes them
        parts = to.with_name(f"{to.name}.parts")
        writer = frame.coalesce(1).write.mode("overwrite")
        writer.csv(spark_path(str(parts)), header=True) if csv_out else writer.parquet(spark_path(str(parts)))
        (part,) = parts.glob("part-*")
        part.replace(to)
        shutil.rmtree(parts)
