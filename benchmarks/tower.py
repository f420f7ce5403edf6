"""``python -m benchmarks.tower [--rows 1e6,1e7] [--replicas 2,3] [--json FILE]``: logs to a `Tower` against one decode.

Two parquet logs are made once: a pool (scores of S replicas) and labelled rows (scores and clicks). Then `collect` of
both with replica counts and `Tower.fit` run against PyArrow's decode of the same columns (the faster of two ways),
interleaved, the minimum of each. On a busy machine compare the seconds of all cores together, which load moves less.
Resident memory is the peak of a fresh process that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .logs import peak

MOST_OF_DECODE, MOST_MEGABYTES = 6.0, 1_500.0
BAR_ROWS = 10_000_000


def make(path: Path, rows: int, replicas: int, mean: float, labelled: bool) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(int(labelled))
    writer = None
    for start in range(0, rows, 1_000_000):
        size = min(1_000_000, rows - start)
        truth = rng.normal(mean, 0.8, size)
        columns: dict[str, Any] = {
            name: (truth + rng.normal(0, 0.4, size)).astype(np.float32) for name in scores(replicas)
        }
        if labelled:
            columns["click"] = (rng.random(size) < 1 / (1 + np.exp(-truth))).astype(np.int8)
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def scores(replicas: int) -> list[str]:
    return [f"s{i + 1}" for i in range(replicas)]


def paths(folder: str, replicas: int, rows: int) -> dict[str, str]:
    return {kind: str(Path(folder) / f"{kind}-{replicas}-{rows}.parquet") for kind in ("pool", "labelled")}


def decode_batches(files: dict[str, str], replicas: int) -> None:
    import pyarrow.dataset as ds

    for kind, file in files.items():
        for batch in ds.dataset(file).to_batches(columns=scores(replicas) + ["click"] * (kind == "labelled")):
            len(batch)


def decode_whole(files: dict[str, str], replicas: int) -> None:
    import pyarrow.parquet as pq

    for kind, file in files.items():
        pq.read_table(file, columns=scores(replicas) + ["click"] * (kind == "labelled"))


def collected(files: dict[str, str], replicas: int, replica_counts: bool = True) -> tuple[Any, Any]:
    from uncurse import collect

    pool = collect(files["pool"], scores(replicas), replica_counts=replica_counts)
    return pool, collect(files["labelled"], scores(replicas), label="click", replica_counts=replica_counts)


def to_tower(files: dict[str, str], replicas: int) -> Any:
    from uncurse import Tower

    pool, labelled = collected(files, replicas)
    return Tower().fit(pool, labelled=labelled)


RUNS: dict[str, Callable[[dict[str, str], int], Any]] = {
    "decode, batches": decode_batches,
    "decode, whole": decode_whole,
    "collect without replica counts": lambda files, replicas: collected(files, replicas, replica_counts=False),
    "collect with replica counts": collected,
    "collect with replica counts + Tower.fit": to_tower,
}
OURS = "collect with replica counts + Tower.fit"


def peak_megabytes(name: str, folder: str, replicas: int, rows: int) -> float:
    """Peak resident memory of a process that runs this once."""
    words = [sys.executable, "-m", "benchmarks.tower", "--once", name, "--folder", folder]
    words += ["--replicas", str(replicas), "--rows", str(rows)]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[-1])


def point(folder: str, replicas: int, rows: int, rounds: int) -> dict[str, Any]:
    files, load = paths(folder, replicas, rows), os.getloadavg()[0]
    best, busy = dict.fromkeys(RUNS, np.inf), dict.fromkeys(RUNS, np.inf)
    for _ in range(rounds):
        for name, run in RUNS.items():
            start, used = time.perf_counter(), time.process_time()
            run(files, replicas)
            best[name] = min(best[name], time.perf_counter() - start)
            busy[name] = min(busy[name], time.process_time() - used)
    floor, least = (min(t[name] for name in RUNS if name.startswith("decode")) for t in (best, busy))
    memory = {name: peak_megabytes(name, folder, replicas, rows) for name in RUNS}
    print(f"\n{rows:,} pool and {rows:,} labelled rows, {replicas} replicas, {rounds} rounds, ", end="")
    print(f"load {load:.1f} before and {os.getloadavg()[0]:.1f} after")
    for name in RUNS:
        line = f"  {name:<32} {best[name]:9.4f} s  {busy[name]:9.4f} core s  {memory[name]:6.0f} MB"
        if not name.startswith("decode"):
            line += f"  {best[name] / floor:6.2f} × decode, {busy[name] / least:.2f} × of cores"
        print(line, flush=True)
    if rows >= BAR_ROWS and replicas == 2:
        met = best[OURS] / floor <= MOST_OF_DECODE and memory[OURS] < MOST_MEGABYTES
        bar = f"at most {MOST_OF_DECODE:g} × decode and {MOST_MEGABYTES:g} MB on a quiet machine"
        print(f"  bar: {bar}: {'met' if met else 'MISSED'}")
    measured = {"seconds": best, "core_seconds": busy, "megabytes": memory}
    return {"rows": rows, "replicas": replicas, "load": load, **measured}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tower", description=__doc__)
    parser.add_argument("--rows", default="1e6,1e7")
    parser.add_argument("--replicas", default="2,3")
    parser.add_argument("--folder", help="where logs are kept; a temporary folder by default")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sizes = [int(float(word)) for word in arguments.rows.split(",")]
    counts = [int(word) for word in arguments.replicas.split(",")]
    if arguments.once:
        RUNS[arguments.once](paths(arguments.folder, counts[0], sizes[0]), counts[0])
        print(peak())
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or temporary
        outcomes = []
        for replicas in counts:
            for rows in sizes:
                for kind, path in paths(folder, replicas, rows).items():
                    if not Path(path).exists():
                        make(Path(path), rows, replicas, -3.0 if kind == "pool" else -2.7, kind == "labelled")
                outcomes.append(point(folder, replicas, rows, rounds=max(5, min(15, int(1e8 / rows)))))
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(outcomes, indent=1))


if __name__ == "__main__":
    main()
