"""Logs as tables: a path, glob or folder, or a frame of any engine, opened lazily and checked by file and column."""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw

from ..links import UncurseError, check_choice

if TYPE_CHECKING:
    import polars as pl

#: Engines that open files.
ENGINES = ("polars", "duckdb", "spark")
_FOREIGN = ("polars", "duckdb", "_duckdb", "pyspark", "py4j", "ibis", "pyarrow", "sqlframe", "narwhals")
_KINDS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".csv.gz": "csv"}


@dataclass(frozen=True)
class Table:
    """A log that was opened: a narwhals frame, and the files behind it where there are any."""

    frame: nw.LazyFrame[Any] | nw.DataFrame[Any]
    files: tuple[str, ...] = ()
    name: str = "the frame"


def is_frame(source: object) -> bool:
    """Whether this is a frame of some engine rather than a path or paths."""
    if isinstance(source, str | os.PathLike):
        return False
    return not (isinstance(source, Sequence) and all(isinstance(item, str | os.PathLike) for item in source))


def open_table(source: Any, numbers: Sequence[str], names: Sequence[str] = (), *, engine: str = "polars") -> Table:
    """Open a log whose columns `numbers` hold numbers and `names` hold any values; nothing is read yet.

    Parameters
    ----------
    source
        A path, a glob or a folder of parquet or CSV files, a list of them, or a frame: Polars, DuckDB, PySpark,
        pandas, PyArrow, Ibis, or any other that narwhals knows.
    """
    check_choice("engine", engine, ENGINES)
    if is_frame(source):
        try:
            frame = nw.from_native(source)
        except TypeError:
            raise UncurseError(
                f"{type(source).__name__} is neither a path nor a frame that narwhals knows; pass a path, or a frame "
                "of Polars, DuckDB, PySpark, pandas, PyArrow or Ibis"
            ) from None
        table = Table(frame)
        check_columns(dict(frame.collect_schema()), numbers, names, table.name)
        return table
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not sources:
        raise UncurseError("there is no file to read; pass a path, a glob or a folder")
    name = ", ".join(map(str, sources))
    with engine_errors(name):
        if any("://" in str(path) for path in sources):  # an object store or a cluster: the engine finds the files
            scan = _scan_remote([str(path) for path in sources], engine)
            check_columns(dict(scan.collect_schema()), numbers, names, name)
            return Table(scan, (), name)
        found = located(sources)
        uneven = check_files(found, numbers, names)
        return Table(_scan(found, numbers, names, engine, uneven), tuple(file for file, _ in found), name)


@contextmanager
def engine_errors(name: str) -> Iterator[None]:
    """What an engine says of a log, as our error."""
    try:
        yield
    except UncurseError:
        raise
    except Exception as error:
        if not is_foreign(error):
            raise
        raise UncurseError(f"{name}: {first_line(error)}") from None


def is_foreign(error: Exception) -> bool:
    """Whether an engine raised this, or the system."""
    return type(error).__module__.partition(".")[0] in _FOREIGN or isinstance(error, OSError)


# ---------------------------------------------------------------------------- files

Located = list[tuple[str, dict[str, str]]]


def find_files(sources: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The files behind paths, globs and folders, in order of their names; all parquet or all CSV."""
    return tuple(file for file, _ in located(sources))


def located(sources: Iterable[str | os.PathLike[str]]) -> Located:
    """The same, each with what the folders below its source say of it: {"date": "2026-11-15"} for date=2026-11-15/."""
    files: dict[str, dict[str, str]] = {}
    for source in sources:
        path, text = Path(source), str(source)
        base = path
        if path.is_dir():
            found = sorted(_walk(path))
            if not found:
                raise UncurseError(f"folder {source} holds no .parquet or .csv file")
        elif path.exists():
            found, base = [text], path.parent
        elif glob.has_magic(text):
            found = sorted(p for p in glob.glob(text, recursive=True) if os.path.isfile(p))
            if not found:
                raise UncurseError(f"no file matches {source}")
            base = Path(*path.parts[: next(i for i, part in enumerate(path.parts) if glob.has_magic(part))] or ["."])
        else:
            raise UncurseError(f"cannot read {source}: there is no such file or folder")
        for file in found:
            if file in files:
                raise UncurseError(f"{file} is named twice; its rows would count double")
            if not file.isprintable() and not _is_utf8(file):
                raise UncurseError(f"{file!a} is not UTF-8; rename the file")
            parts = Path(os.path.relpath(file, base)).parts[:-1]
            files[file] = dict(part.split("=", 1) for part in parts if "=" in part)
    kinds = {kind_of(file): file for file in files}
    if len(kinds) > 1:
        raise UncurseError(f"{' and '.join(kinds.values())} are not of one kind; pass parquet or CSV, not both")
    return list(files.items())


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _walk(folder: Path) -> Iterator[str]:
    seen: set[str] = set()
    for at, folders, names in os.walk(folder, followlinks=True):
        if os.path.realpath(at) in seen:  # a link to a folder above
            folders.clear()
            continue
        seen.add(os.path.realpath(at))
        for name in names:
            file = os.path.join(at, name)
            if is_data(Path(os.path.relpath(file, folder))):
                yield file


def is_data(path: Path) -> bool:
    """Whether a file of this name is read as a part of a log."""
    hidden = any(part.startswith((".", "_")) for part in path.parts)
    return not hidden and any(str(path).lower().endswith(suffix) for suffix in _KINDS)


def kind_of(file: str) -> str:
    """parquet or csv, by the name."""
    for suffix, kind in _KINDS.items():
        if file.lower().endswith(suffix):
            return kind
    raise UncurseError(f"{file} is neither .parquet nor .csv (nor .csv.gz); convert or rename it")


def check_files(files: Located, numbers: Sequence[str], names: Sequence[str] = ()) -> bool:
    """Every file can be opened and has the columns; the first that does not is named.

    Returns whether files are uneven: differ in the types of these columns, or have some of them in their path.
    """
    import polars as pl

    types: dict[str, Any] = {}
    uneven = False
    for file, keys in files:
        try:
            if os.path.getsize(file) == 0:
                raise UncurseError(f"{file} is empty, 0 bytes; write it anew or leave it out")
            csv = kind_of(file) == "csv"
            scan = pl.scan_csv(file, infer_schema_length=1000, glob=False) if csv else _scan_parquet([file])
            schema: dict[str, Any] = dict(scan.collect_schema())
            numbers_here = [] if csv else list(numbers)  # a CSV is all text: whether it is numbers shows when read
            if pl.Null in (schema.get(name) for name in numbers_here) and not scan.select(pl.len()).collect().item():
                numbers_here, uneven = [], True  # a file without rows has no types
        except OSError as error:
            raise UncurseError(f"cannot read {file}: {error.strerror or error}") from None
        except pl.exceptions.PolarsError as error:
            raise UncurseError(
                f"{file} is not a readable {kind_of(file)} file ({first_line(error)}); is it truncated? Write it anew"
            ) from None
        own = {name: pl.String for name in keys if name not in schema}
        check_columns(_as_narwhals({**own, **schema}), numbers_here, (*numbers, *names), file)
        for name in (*numbers, *names):
            uneven |= name in own or types.setdefault(name, schema[name]) != schema[name]
    return uneven


def _as_narwhals(schema: dict[str, Any]) -> dict[str, Any]:
    import polars as pl

    return dict(nw.from_native(pl.DataFrame(schema=schema)).schema)


def check_columns(schema: dict[str, Any], numbers: Sequence[str], names: Sequence[str], where: str) -> None:
    """The columns are there, and those that must hold numbers do."""
    for name in (*numbers, *names):
        if name not in schema:
            near = difflib.get_close_matches(name, schema, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, list(schema)[:12]))}"
            raise UncurseError(f"{where} has no column {name!r}; {hint}")
    for name in numbers:
        dtype = schema[name]
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            holds = {nw.Unknown: "is all null", nw.Object: "holds Python objects, not numbers"}
            said = next((text for kind, text in holds.items() if dtype == kind), f"holds {dtype}, not numbers")
            raise UncurseError(f"{where}: column {name!r} {said}; name another column, or convert it")


def first_line(error: Exception) -> str:
    """The first line of what an engine says, not too long."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def count_rows(sources: Iterable[str | os.PathLike[str]]) -> int | None:
    """How many rows parquet files say they hold, for a bar of progress; None where that takes a read."""
    import polars as pl

    try:
        files = find_files(sources)
        if kind_of(files[0]) != "parquet":
            return None
        return int(_scan_parquet(files).select(pl.len()).collect().item())
    except (UncurseError, OSError, pl.exceptions.PolarsError):  # the read itself will say it better
        return None


# ---------------------------------------------------------------------------- engines


def _scan(files: Located, numbers: Sequence[str], names: Sequence[str], engine: str, uneven: bool) -> nw.LazyFrame[Any]:
    scan: Any
    if engine == "polars":
        scan = scan_polars(files, numbers, names, uneven=uneven)
    elif engine == "duckdb":
        scan = scan_duckdb(files, names)
    else:
        scan = scan_spark(files, numbers, names, uneven=uneven)
    frame: nw.LazyFrame[Any] = nw.from_native(scan).lazy()
    return frame


def _scan_remote(paths: list[str], engine: str) -> nw.LazyFrame[Any]:
    import polars as pl

    csv = all(path.lower().endswith((".csv", ".csv.gz")) for path in paths)
    scan: Any
    if engine == "polars":
        scan = pl.scan_csv(paths) if csv else pl.scan_parquet(paths)
    elif engine == "duckdb":
        connection: Any = _duckdb()
        scan = connection.read_csv(paths, header=True) if csv else connection.read_parquet(paths)
    else:
        from .spark import session

        reader = session().read
        scan = reader.csv(paths, header=True, inferSchema=True) if csv else reader.parquet(*paths)
    frame: nw.LazyFrame[Any] = nw.from_native(scan).lazy()
    return frame


def _scan_parquet(files: Sequence[str]) -> pl.LazyFrame:
    import polars as pl

    return pl.scan_parquet(list(files), glob=False, hive_partitioning=False, extra_columns="ignore")


def scan_polars(
    files: Located, numbers: Sequence[str] = (), names: Sequence[str] = (), *, uneven: bool = False
) -> pl.LazyFrame:
    """The files as one lazy frame; where they are uneven, or CSV, file by file with the columns asked for alone."""
    import polars as pl

    if kind_of(files[0][0]) == "parquet" and not uneven:
        return _scan_parquet([file for file, _ in files])
    return pl.concat([_scan_one(file, keys, numbers, names) for file, keys in files])


def _scan_one(file: str, keys: dict[str, str], numbers: Sequence[str], names: Sequence[str]) -> pl.LazyFrame:
    import polars as pl

    if kind_of(file) == "csv":
        texts = dict.fromkeys((*numbers, *names), pl.String)
        scan = pl.scan_csv(file, schema_overrides=texts, infer_schema_length=1000, glob=False)
        values = [number_of(name) for name in numbers]
    else:
        scan = _scan_parquet([file])
        values = [pl.col(name).cast(pl.Float64) for name in numbers]
    there = scan.collect_schema()
    texts_of = (pl.col(name) if name in there else pl.lit(keys[name]).alias(name) for name in names)
    return scan.select(*values, *(text.cast(pl.String) for text in texts_of if text.meta.output_name() not in numbers))


def number_of(name: str, *, strict: bool = True) -> pl.Expr:
    """The number that a text of a CSV stands for; true and false are 1 and 0."""
    import polars as pl

    text = pl.col(name).str.strip_chars()
    truth = text.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None, return_dtype=pl.Float64)
    return pl.coalesce(truth, pl.when(truth.is_null()).then(text).cast(pl.Float64, strict=strict)).alias(name)


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise UncurseError("engine='duckdb' needs DuckDB; pip install duckdb pyarrow") from None
    return duckdb.connect()


def scan_duckdb(files: Located, names: Sequence[str] = ()) -> Any:
    """The files as one relation, columns matched by name."""

    def quoted(text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    listed = ", ".join(quoted(re.sub(r"([*?\[])", r"[\1]", file)) for file, _ in files)
    if kind_of(files[0][0]) == "csv":
        texts = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in names)
        types = f", types = {{{texts}}}" if texts else ""
        return _duckdb().sql(f"select * from read_csv([{listed}], header = true, union_by_name = true{types})")
    hive = any(name in keys for _, keys in files for name in names)
    option = "true, hive_types_autocast = false" if hive else "false"
    return _duckdb().sql(f"select * from read_parquet([{listed}], union_by_name = true, hive_partitioning = {option})")


def scan_spark(files: Located, numbers: Sequence[str] = (), names: Sequence[str] = (), *, uneven: bool = False) -> Any:
    """The files as one Spark frame, columns matched by name."""
    from functools import reduce

    from .spark import session

    reader = session().read
    # A file's own name, where Spark would see a pattern in it.
    paths = [spark_path(re.sub(r"([\[\]{}*?\\])", r"\\\1", file)) for file, _ in files]
    csv = kind_of(files[0][0]) == "csv"
    if not csv and not uneven:
        return reader.parquet(*paths)
    from pyspark.sql import functions as F

    def named(name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def number(name: str) -> Any:
        if not csv:
            return F.col(named(name)).cast("double").alias(name)
        text = f"trim({named(name)})"
        truth = f"case lower({text}) when 'true' then 1d when 'false' then 0d end"
        return F.expr(f"coalesce({truth}, try_cast({text} as double))").alias(name)

    parts = []
    for path, (_, keys) in zip(paths, files, strict=True):
        one = reader.csv(path, header=True, multiLine=True, escape='"') if csv else reader.parquet(path)
        texts = [
            (F.col(named(name)) if name in one.columns else F.lit(keys[name])).cast("string").alias(name)
            for name in names
            if name not in numbers
        ]
        parts.append(one.select(*map(number, numbers), *texts))
    return reduce(lambda a, b: a.unionByName(b), parts)


def spark_path(file: str) -> str:
    """A local file as Spark names it: with its scheme, and nothing encoded."""
    return f"file://{Path(file).resolve()}"


__all__ = [
    "ENGINES",
    "Located",
    "Table",
    "check_columns",
    "check_files",
    "count_rows",
    "engine_errors",
    "find_files",
    "first_line",
    "is_data",
    "is_foreign",
    "is_frame",
    "kind_of",
    "located",
    "number_of",
    "open_table",
    "scan_duckdb",
    "scan_polars",
    "scan_spark",
    "spark_path",
]
