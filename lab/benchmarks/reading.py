"""``python -m lab.benchmarks.reading [--rows 1e6] [--rounds 7]``: encoding a click log against parsing it.

Logs of Criteo's and Avazu's shape are made once: shares of missing values and numbers of distinct ones as in the real
samples, categories up to a million values of log-uniform rank. Then `encode`, which parses, numbers the categories and
writes the encoded file, runs against Polars' parse of the same file into memory, interleaved, the minimum of each.
Resident memory is the peak of a fresh process: at that many rows, and at four times as many rows of the same values.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LEAST_SHARE = 0.5  # of the rows a second of Polars
MOST_GROWTH = 1.1  # of memory, at four times the rows
PIECE = 500_000

# Values of each category, at most a million; and shares of missing ones, as in Criteo's sample.
CRITEO = [1_460, 583, 1_000_000, 1_000_000, 305, 24, 12_517, 633, 3, 93_145, 5_683, 1_000_000, 3_194, 27, 14_992]
CRITEO += [1_000_000, 10, 5_652, 2_173, 4, 1_000_000, 18, 15, 286_181, 105, 142_572]
BLANK_NUMBERS = [0.45, 0, 0.2, 0.2, 0.05, 0.25, 0.05, 0, 0.05, 0.45, 0.05, 0.77, 0.2]
BLANKS = {2: 0.04, 3: 0.04, 5: 0.13, 11: 0.04, 15: 0.04, 18: 0.45, 19: 0.45, 20: 0.04, 21: 0.82, 23: 0.04}
BLANKS |= {24: 0.45, 25: 0.45}
SCALE = [2, 3, 2, 1.5, 7, 4, 2, 2, 4, 0, 1, 0.5, 2]  # log of the median of each number

HEX = {"site_id": 4_737, "site_domain": 7_745, "site_category": 26, "app_id": 8_552, "app_domain": 559}
HEX |= {"app_category": 36, "device_id": 1_000_000, "device_ip": 1_000_000, "device_model": 8_251}
WHOLE = {"device_type": 5, "device_conn_type": 4, "C14": 2_626, "C15": 8, "C16": 9, "C17": 435, "C18": 4, "C19": 68}
WHOLE |= {"C20": 172, "C21": 60}


def ranks(rng: np.random.Generator, size: int, rows: int) -> Any:
    """Log-uniform: rank r with a probability like 1 / r."""
    return np.minimum(np.power(float(size), rng.random(rows)), size).astype(np.int64) - 1


def texts(size: int, seed: int) -> Any:
    import polars as pl

    return pl.Series([f"{v:08x}" for v in np.random.default_rng(seed).integers(0, 1 << 32, size).tolist()])


def make_criteo(path: Path, rows: int, seed: int = 0) -> None:
    import polars as pl

    pools = [texts(size, 100 + j) for j, size in enumerate(CRITEO)]
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        for start in range(0, rows, PIECE):
            count = min(PIECE, rows - start)
            columns = {"label": pl.Series((rng.random(count) < 0.25).astype(np.int8))}
            for j, blank in enumerate(BLANK_NUMBERS):
                drawn = np.exp(rng.normal(SCALE[j], 1.7, count)).astype(np.int64) - (j == 1)
                columns[f"I{j + 1}"] = _blanked(pl.Series(drawn), rng, blank)
            for j, pool in enumerate(pools):
                columns[f"C{j + 1}"] = _blanked(pool.gather(ranks(rng, len(pool), count)), rng, BLANKS.get(j, 0))
            pl.DataFrame(columns).write_csv(file, separator="\t", include_header=False)


def make_avazu(path: Path, rows: int, seed: int = 0) -> None:
    import polars as pl

    pools = {name: texts(size, 200 + j) for j, (name, size) in enumerate(HEX.items())}
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        for start in range(0, rows, PIECE):
            count = min(PIECE, rows - start)
            columns = {"id": pl.Series(rng.integers(10**18, 9 * 10**18, count))}
            columns["click"] = pl.Series((rng.random(count) < 0.17).astype(np.int8))
            columns["hour"] = pl.Series(14_102_100 + 100 * rng.integers(0, 10, count) + rng.integers(0, 24, count))
            columns["C1"] = pl.Series(1_001 + ranks(rng, 7, count))
            columns["banner_pos"] = pl.Series(ranks(rng, 7, count))
            for name, pool in pools.items():
                drawn = ranks(rng, len(pool), count)
                if name == "device_ip":
                    drawn = rng.integers(0, len(pool), count)
                elif name == "device_id":
                    drawn[rng.random(count) < 0.8] = 0
                columns[name] = pool.gather(drawn)
            for name, size in WHOLE.items():
                drawn = ranks(rng, size, count)
                columns[name] = pl.Series(np.where(drawn == 0, -1, 100_000 + drawn) if name == "C20" else drawn)
            pl.DataFrame(columns).write_csv(file, include_header=start == 0)


def _blanked(series: Any, rng: np.random.Generator, share: float) -> Any:
    import polars as pl

    return series.set(pl.Series(rng.random(len(series)) < share), None) if share else series


MAKERS: dict[str, Callable[[Path, int], None]] = {"criteo": make_criteo, "avazu": make_avazu}


def ours(kind: str, path: Path) -> int:
    from uncurse_lab.logs import encode

    return len(encode(path, path.with_suffix(".clicks"), kind=kind))


def polars(kind: str, path: Path) -> int:
    import polars as pl

    if kind == "criteo":
        schema: dict[str, Any] = {"label": pl.Int32} | {f"I{i}": pl.Int32 for i in range(1, 14)}
        schema |= {f"C{i}": pl.String for i in range(1, 27)}
    else:
        schema = {"id": pl.String} | dict.fromkeys(["click", "hour", "C1", "banner_pos"], pl.Int32)
        schema |= dict.fromkeys(HEX, pl.String) | dict.fromkeys(WHOLE, pl.Int32)
    # Without quotes Polars is a fifth faster.
    options: dict[str, Any] = {"separator": "\t" if kind == "criteo" else ",", "schema": schema, "quote_char": None}
    return pl.read_csv(path, has_header=kind == "avazu", **options).height


RUNS: dict[str, Callable[[str, Path], int]] = {"encode": ours, "Polars, read_csv": polars}


def peak_megabytes(kind: str, path: Path) -> float:
    """Peak resident memory of a fresh process that encodes this log."""
    words = [sys.executable, "-m", "lab.benchmarks.reading", "--once", kind, "--source", str(path)]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[-1])


def repeated(path: Path, kind: str, copies: int, target: Path) -> None:
    """The same rows several times over, under one header."""
    with target.open("wb") as out:
        for i in range(copies):
            with path.open("rb") as file:
                if kind == "avazu" and i:
                    file.readline()
                shutil.copyfileobj(file, out, 1 << 24)


def contest(kind: str, folder: Path, rows: int, rounds: int) -> None:
    path, again = (folder / f"{kind}_{rows}{suffix}.txt" for suffix in ("", "_again"))
    if not path.exists():
        print(f"making {kind}, {rows:,} rows …", flush=True)
        MAKERS[kind](path, rows)
    best = dict.fromkeys(RUNS, np.inf)
    load = os.getloadavg()[0]
    for _ in range(rounds):
        for name, run in RUNS.items():
            start = time.perf_counter()
            assert run(kind, path) == rows
            best[name] = min(best[name], time.perf_counter() - start)
            path.with_suffix(".clicks").unlink(missing_ok=True)
    print(f"{kind}: {rows:,} rows of {path.stat().st_size / rows:.0f} bytes, {rounds} rounds, load {load:.1f}")
    for name, seconds in best.items():
        print(f"  {name:18} {seconds:7.2f} s {rows / seconds:12,.0f} rows/s", flush=True)
    share = best["Polars, read_csv"] / best["encode"]
    print(f"  at least {LEAST_SHARE:g} of Polars' rows a second: {share:.2f}, ", end="")
    print("met" if share >= LEAST_SHARE else "MISSED")
    repeated(path, kind, 4, again)
    memory = [peak_megabytes(kind, each) for each in (path, again)]
    again.unlink()
    print(
        f"  memory at most {MOST_GROWTH:g} × at four times the rows: {memory[0]:,.0f} and {memory[1]:,.0f} MB, ", end=""
    )
    print("met" if memory[1] <= MOST_GROWTH * memory[0] else "MISSED", flush=True)


def _peak() -> float:
    with open("/proc/self/status") as file:
        return next(float(line.split()[1]) * 1.024e-3 for line in file if line.startswith("VmHWM:"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.reading", description=__doc__)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kinds", default="criteo,avazu")
    parser.add_argument("--folder", help="where logs are kept; a temporary folder by default")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        ours(arguments.once, arguments.source)
        print(_peak())
        arguments.source.with_suffix(".clicks").unlink()
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        for kind in arguments.kinds.split(","):
            contest(kind, folder, int(arguments.rows), arguments.rounds)


if __name__ == "__main__":
    main()
