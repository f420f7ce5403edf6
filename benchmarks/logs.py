"""``python -m benchmarks.logs [--rows 1e6,1e7,1e8] [--copies 0] [--json FILE]``: logs of any size against one decode.

A parquet log (two replicas, label, request, group) is made once; then `collect` + `fit` + `evaluate` at nine shares run
against PyArrow's decode of the columns they need, interleaved, the minimum of each. Resident memory is the peak of a
fresh process that does nothing else. With ``--copies 10`` the largest log is read ten times over through a glob.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ALPHAS = [0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.10]
NEEDED = ["s1", "s2", "click"]
MOST_OF_DECODE, MOST_MEGABYTES = 4.0, 500.0


def make(path: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    names = pa.array(["news", "sport", "video", "search", "mail", "maps", "shop", "other"])
    writer = None
    for start in range(0, rows, 1_000_000):
        size = min(1_000_000, rows - start)
        truth = rng.normal(-2.7, 0.8, size)
        codes = pa.array(rng.integers(0, len(names), size).astype(np.int32))
        columns = {
            "s1": (truth + rng.normal(0, 0.4, size)).astype(np.float32),
            "s2": (truth + rng.normal(0, 0.4, size)).astype(np.float32),
            "click": (rng.random(size) < 1 / (1 + np.exp(-truth))).astype(np.int8),
            "request": np.arange(start, start + size) // 20,
            "group": pa.DictionaryArray.from_arrays(codes, names).cast(pa.string()),
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def decode_batches(source: str) -> None:
    import pyarrow.dataset as ds

    for batch in ds.dataset(_files(source)).to_batches(columns=NEEDED):
        len(batch)


def decode_whole(source: str) -> None:
    import pyarrow.parquet as pq

    for file in _files(source):
        pq.read_table(file, columns=NEEDED)


def _files(source: str) -> list[str]:
    from uncurse.logs.files import find_files

    return list(find_files([source]))


def through_evidence(source: str, engine: str = "polars") -> Any:
    from uncurse import VAD
    from uncurse.logs import collect
    from uncurse.metrics import evaluate_log

    evidence = collect(source, ["s1", "s2"], label="click", engine=engine)
    return evaluate_log(evidence, VAD().fit(evidence).map_, ALPHAS)


def reading_twice(source: str) -> Any:
    from uncurse import VAD
    from uncurse.logs import collect
    from uncurse.metrics import evaluate_log

    fitted = VAD().fit(collect(source, ["s1", "s2"])).map_
    return evaluate_log(collect(source, "s1", label="click"), fitted, ALPHAS)


RUNS: dict[str, Callable[[str], Any]] = {
    "decode, batches": decode_batches,
    "decode, whole": decode_whole,
    "collect + fit + evaluate": through_evidence,
    "the same, log read twice": reading_twice,
    "the same by DuckDB": lambda source: through_evidence(source, "duckdb"),
}


def peak_megabytes(name: str, source: str) -> float:
    """Peak resident memory of a process that runs this once."""
    words = [sys.executable, "-m", "benchmarks.logs", "--once", name, "--source", source]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[-1])


def peak() -> float:
    """Since this program began; what `getrusage` tells is the parent's where that was larger."""
    lines = Path("/proc/self/status").read_text().splitlines() if Path("/proc/self/status").exists() else []
    peak = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return float(peak[0]) * 1.024e-3 if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measure(source: str, names: list[str], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(names, np.inf)
    for _ in range(rounds):
        for name in names:
            start = time.perf_counter()
            RUNS[name](source)
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.logs", description=__doc__)
    parser.add_argument("--rows", default="1e6,1e7,1e8")
    parser.add_argument("--copies", type=int, default=0, help="read the largest log so many times through a glob")
    parser.add_argument("--folder", help="where logs are kept; a temporary folder by default")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--source", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        RUNS[arguments.once](arguments.source)
        print(peak())
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        outcomes = []
        for rows in (int(float(word)) for word in arguments.rows.split(",")):
            path = folder / f"{rows}.parquet"
            if not path.exists():
                print(f"making {rows:,} rows …", flush=True)
                make(path, rows)
            outcomes.append(_point(str(path), rows, rounds=max(3, min(15, int(3e8 / rows)))))
        _slope(outcomes)
        if arguments.copies:
            links = folder / "copies"
            links.mkdir(exist_ok=True)
            for i in range(arguments.copies):
                if not (links / f"{i:02d}.parquet").exists():
                    os.link(path, links / f"{i:02d}.parquet")
            outcomes.append(_point(str(links / "*.parquet"), rows * arguments.copies, rounds=1))
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(outcomes, indent=1))


def _point(source: str, rows: int, rounds: int) -> dict[str, Any]:
    names = list(RUNS) if rows <= 1e8 else [name for name in RUNS if "DuckDB" not in name and "whole" not in name]
    load = os.getloadavg()[0]
    best = measure(source, names, rounds)
    floor = min(best[name] for name in names if name.startswith("decode"))
    memory = {name: peak_megabytes(name, source) for name in names}
    print(f"\n{rows:,} rows, {rounds} rounds, load {load:.1f}")
    for name in names:
        ratio = "" if name.startswith("decode") else f"{best[name] / floor:6.2f} × decode"
        print(f"  {name:<28} {best[name]:9.4f} s  {memory[name]:8.0f} MB  {ratio}", flush=True)
    ours = names[2] if rows <= 1e8 else names[1]
    met = best[ours] / floor <= MOST_OF_DECODE and memory[ours] < MOST_MEGABYTES
    print(f"  bar: at most {MOST_OF_DECODE:g} × decode and {MOST_MEGABYTES:g} MB: {'met' if met else 'MISSED'}")
    return {"rows": rows, "load": load, "seconds": best, "megabytes": memory, "ours": ours}


def _slope(outcomes: list[dict[str, Any]]) -> None:
    if len(outcomes) < 2:
        return
    rows = np.log10([o["rows"] for o in outcomes])
    seconds = np.log10([o["seconds"][o["ours"]] for o in outcomes])
    slope = np.polyfit(rows, seconds, 1)[0]
    print(f"\ntime grows as rows to the power {slope:.2f} over these points")


if __name__ == "__main__":
    main()
