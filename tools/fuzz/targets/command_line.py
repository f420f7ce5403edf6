"""Random command lines over random files: each ends with 0, 1 or 2, at most one error line and no traceback."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import polars as pl

from uncurse import VAD, Curve, Evidence, collect
from uncurse.cli.app import run
from uncurse.cli.output import as_command

from ..engine import Call, Fault, Refused, target

COLUMNS = ("s1", "s2", "click", "w", "site", "request", "id")
ODD_NAMES = (
    "s.1",
    'a"b',
    "naïve",
    "a b",
    "a\tb",
    "--x",
    "s1,s2",
    "",
    "select",
    "uncurse score",
    "x" * 300,
    "\u202e",
    "`",
)
ODD_PATHS = (
    "none.parquet",
    "",
    "-",
    ".",
    "*.parquet",
    "logs",
    "x.txt",
    "a" * 300,
    "no/such.json",
    "\udcff",
    "/dev/null",
)
ODD_NUMBERS = (
    "0",
    "-1",
    "1",
    "0.5",
    "1e400",
    "nan",
    "",
    "x",
    "2%",
    "5%",
    "0.02:0.1:0.01",
    "1e-9",
    "99999999999999999999",
)
SUFFIXES = (".json", ".parquet", ".csv", ".html", "", ".py", ".h", ".sql", ".onnx")


def write_files(call: Call, folder: Path) -> None:
    """Write a log in two formats, evidence, and maps."""
    rows = int(call.one_of(1, 2, 20, 300, 300, 300, 300))
    rng = call.rng
    truth = rng.normal(-1.5, 0.8, rows)
    scores = truth[:, None] + rng.normal(0, 0.4, (rows, 2))
    if call.chance(0.2):
        scores = 1 / (1 + np.exp(-scores))
    columns = {
        "id": np.arange(rows),
        "s1": scores[:, 0],
        "s2": scores[:, 1],
        "click": rng.integers(0, 2, rows),
        "w": rng.exponential(1.0, rows),
        "site": rng.choice(["a", "b", "007", "a\0", "é"], rows),
        "request": rng.integers(0, 5, rows),
    }
    log = pl.DataFrame(columns)
    for _ in range(int(call.one_of(0, 0, 1, 2))):
        name = str(call.one_of(*COLUMNS))
        odd = call.one_of(None, float("nan"), float("inf"), "text", True, "2026-01-01")
        kinds = {
            "null": pl.lit(None),
            "odd": pl.lit(odd),
            "list": pl.concat_list(name, name),
            "text": pl.col(name).cast(pl.String),
            "int": pl.col(name).cast(pl.Int64, strict=False),
            "float32": pl.col(name).cast(pl.Float32, strict=False),
        }
        column = kinds[str(call.one_of(*kinds))].alias(str(call.one_of(name, *ODD_NAMES[:6])))
        with contextlib.suppress(pl.exceptions.PolarsError):  # a column of lists has no numbers
            log = log.with_columns(column)
    log.write_parquet(folder / "log.parquet")
    with contextlib.suppress(pl.exceptions.PolarsError):
        log.write_csv(folder / "log.csv")
    (folder / "logs").mkdir(exist_ok=True)
    log.write_parquet(folder / "logs" / "0.parquet")
    plain = pl.DataFrame(columns)
    if rows > 3:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            collect(plain, ["s1", "s2"], label="click", replica_counts=True).save(folder / "day.json")
            collect(plain, ["s1", "s2"], replica_counts=True).save(folder / "pool.json")
            vad = VAD(lambda_floor=0.1).fit(Evidence.load(folder / "pool.json"))
        vad.map_.save(folder / "map.json", vad.record_.to_dict())
    else:
        Curve((-2.0, 0.0, 1.0), (-2.5, -0.5, 0.1), 0.5, 0.5).save(folder / "map.json")


def damage(call: Call, folder: Path) -> None:
    """Change some bytes of a file, cut it short, or change a value of a JSON document."""
    path = call.one_of(*sorted(path for path in folder.iterdir() if path.is_file()))
    content = bytearray(path.read_bytes())
    kind = call.one_of("flip", "cut", "value", "empty")
    if kind == "flip" and content:
        for _ in range(int(call.one_of(1, 5, 50))):
            content[int(call.rng.integers(len(content)))] = int(call.rng.integers(256))
    elif kind == "cut":
        content = content[: len(content) // 2]
    elif kind == "empty":
        content = bytearray()
    elif path.suffix == ".json":
        document = json.loads(bytes(content))
        document.pop("checksum", None)
        at = document
        for _ in range(int(call.one_of(1, 2, 3))):
            key = call.one_of(*(at if isinstance(at, dict) else range(len(at)))) if at else None
            if key is None:
                break
            if isinstance(at[key], dict | list) and call.chance(0.6):
                at = at[key]
            else:
                at[key] = call.one_of(None, -1, 1e300, "x", [], {}, True, 10**30, "1" * 5000)
                break
        content = bytearray(json.dumps(document).encode())
    path.write_bytes(bytes(content))


def column(call: Call) -> str:
    """Return the name of a column; sometimes one that is not there."""
    return str(call.one_of(*COLUMNS) if call.chance(0.9) else call.one_of(*ODD_NAMES))


def source(call: Call) -> str:
    """Return a path to read."""
    names = ("log.parquet", "log.csv", "day.json", "pool.json", "logs", "*.parquet")
    return str(call.one_of(*names) if call.chance(0.9) else call.one_of(*ODD_PATHS))


def output(call: Call, *suffixes: str) -> str:
    """Return a path to write."""
    if call.chance(0.85):
        return "out" + str(call.one_of(*suffixes))
    return str(call.one_of("log.parquet", "map.json", "out" + str(call.one_of(*SUFFIXES)), *ODD_PATHS))


def number(call: Call, *good: str) -> str:
    """Return a number; sometimes a bad one."""
    return str(call.one_of(*good) if call.chance(0.85) else call.one_of(*ODD_NUMBERS))


def options_of(call: Call, given: dict[str, list[str]], likely: tuple[str, ...]) -> list[str]:
    """Return the likely options with high probability, and the others with a low one."""
    words = []
    for name, values in given.items():
        if call.chance(0.98 if name in likely else 0.06):
            words += [name, *values]
    return words


def command_line(call: Call) -> list[str]:
    """Return the words of a random command."""
    log = {
        "--scores": [f"{column(call)},{column(call)}" if call.chance(0.15) else "s1,s2"],
        "--scale": [str(call.one_of("logit", "logit", "logit", "logit", "probability", "value", "x"))],
        "--label": ["click" if call.chance(0.8) else column(call)],
        "--weight": ["w" if call.chance(0.7) else column(call)],
        "--group": ["site" if call.chance(0.7) else column(call)],
        "--request": ["request" if call.chance(0.7) else column(call)],
        "--top-k": [number(call, "1", "2")],
        "--negative-rate": [number(call, "0.1", "1")],
        "--link": [str(call.one_of("logistic", "identity", "log", "probit"))],
        "--engine": [str(call.one_of("polars", "duckdb"))],
        "--format": [str(call.one_of("table", "json"))],
        "--quiet": [],
    }
    one = {**log, "--score": ["s1" if call.chance(0.9) else column(call)]}
    maps = "map.json" if call.chance(0.9) else str(call.one_of("day.json", *ODD_PATHS))
    out = {"-o": [output(call, ".json")]}
    name = str(call.one_of("collect", "fit", "fit", "apply", "evaluate", "evaluate", "refresh", "sql", "export"))
    if call.chance(0.04):
        name = str(call.one_of("fold", "x"))
    if name == "collect":
        words = [source(call), *options_of(call, {**log, **out}, ("--scores", "--scale", "-o"))]
    elif name == "fit":
        more = {
            "--replicas": [str(call.one_of("seeds", "bootstrap", "anchored", "ensemble", "snapshots"))],
            "--method": [str(call.one_of("auto", "vad", "tower"))],
            "--labelled": [source(call)],
            "--shape": [str(call.one_of("straight", "free"))],
            "--calibrator": [str(call.one_of("platt", "isotonic", "spline", "bbq", "x"))],
            "--curvature": [],
            "--straight": [],
            "--lambda-floor": [number(call, "0.1")],
        }
        pool = source(call)
        likely = ("-o", "--replicas") if pool.endswith(".json") else ("--scores", "--scale", "-o", "--replicas")
        given = {key: value for key, value in log.items() if key not in ("--request", "--top-k")}
        words = [pool, *options_of(call, {**given, **more, **out}, likely)]
    elif name == "apply":
        more = {"--column": [column(call)], "-o": [output(call, ".parquet", ".csv", "")]}
        names = {key: one[key] for key in ("--score", "--group", "--engine", "--format", "--quiet")}
        words = [maps, source(call), *options_of(call, {**names, **more}, ("--score", "-o"))]
    elif name == "evaluate":
        more = {
            "--map": [maps],
            "--alpha": [number(call, "0.5", "50%", "0.2:1:0.4", "1")],
            "--bins": [number(call, "3", "10")],
            "--fail-above": [number(call, "5%", "0.5")],
            "--value": [column(call)],
        }
        given = {key: value for key, value in one.items() if key not in ("--scores", "--link")}
        log_or_evidence = source(call)
        likely = ("--map", "--alpha")
        if not log_or_evidence.endswith(".json"):
            likely = (*likely, "--score", "--label")
        words = [log_or_evidence, *options_of(call, {**given, **more}, likely)]
    elif name == "refresh":
        given = {
            key: value for key, value in one.items() if key not in ("--scores", "--link", "--scale", "--negative-rate")
        }
        today = source(call)
        needed = ("-o",) if today.endswith(".json") else ("-o", "--label")
        words = [maps, today, *options_of(call, {**given, **out}, needed)]
    elif name in ("sql", "export"):
        more = {"--dialect": [str(call.one_of("duckdb", "spark", "bigquery", "snowflake", "x"))]}
        more |= {"--score": [column(call)], "--group": [column(call)]}
        if name == "export":
            more |= {"--name": [str(call.one_of("f", "sin", "1x", "class", ""))]}
            more |= {"-o": [output(call, ".py", ".h", ".sql")]}
        words = [maps, *options_of(call, more, ("-o",))]
    else:
        words = [maps, source(call), *options_of(call, {"-o": [output(call, ".txt")]}, ("-o",))]
    return [name, *words]


@target("command_line", every=4)
def run_command_line(call: Call) -> None:
    folder = call.folder
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if not path.is_dir() else path.rmdir()
    write_files(call, folder)
    if call.chance(0.3):
        damage(call, folder)
    words = command_line(call)
    call.calls.append("uncurse " + " ".join(map(repr, words)))
    code, error = run_words(words)
    if code not in (0, 1, 2):
        raise Fault(f"exit code {code}")
    lines = [line for line in error.splitlines() if line.startswith("uncurse: ") and "uncurse: warning:" not in line]
    if "Traceback" in error or "internal error" in error:
        raise Fault(f"not one line: {error[-600:]}")
    if len(lines) > 1 or (code == 2 and len(lines) != 1):
        raise Fault(f"{len(lines)} error lines: {error[-600:]}")
    hidden = [path.name for path in folder.rglob("*") if path.name.startswith((".", "tmp_"))]
    if hidden:
        raise Fault(f"left behind: {hidden}")
    if code == 2:
        raise Refused(lines[0])


def run_words(words: list[str]) -> tuple[int, str]:
    """Run a command line in this process; return its exit code and what it printed on standard error."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape") for _ in range(2)]
    before = sys.argv, sys.stdin, sys.stdout, sys.stderr
    sys.argv = ["uncurse", *words]
    sys.stdin, (sys.stdout, sys.stderr) = io.TextIOWrapper(io.BytesIO(b"")), streams
    try:
        with as_command(words):
            code = run()
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr = before
    streams[1].flush()
    return code, streams[1].buffer.getvalue().decode("utf-8", "surrogateescape")


__all__ = ["command_line", "run_words"]
