"""``python -m benchmarks.logs [--rows 1e7,1e8] [--copies 0] [--folder F] [--json FILE]``: logs against one decode.

A parquet log (two replicas, label, request, segment) is made once. Then `collect`, `fit` and `evaluate_log` at nine
shares run against PyArrow's decode of the columns they need, interleaved, the minimum of each: with `VAD`, with `VAD`
from a DuckDB relation of the same file, and with `ReplicaCalibrator`. Memory is the peak of a fresh process that does
nothing else. With ``--copies 10`` the largest log is read ten times over through a glob.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .harness import bar, fresh, minima, peak_megabytes

ALPHAS = [a / 100 for a in range(2, 11)]
SCORES, NEEDED = ["s1", "s2"], ["s1", "s2", "click"]
OURS = "collect + VAD.fit + evaluate"
MOST_OF_DECODE, MOST_MEGABYTES = 4.0, 500.0


def make(path: Path, rows: int) -> None:
    """Write a parquet log."""
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
            **{name: (truth + rng.normal(0, 0.4, size)).astype(np.float32) for name in SCORES},
            "click": (rng.random(size) < 1 / (1 + np.exp(-truth))).astype(np.int8),
            "request": np.arange(start, start + size) // 20,
            "segment": pa.DictionaryArray.from_arrays(codes, names).cast(pa.string()),
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
    from glob import glob

    return sorted(glob(source))


def _evaluated(source: Any, labels: bool = False) -> Any:
    from uncurse import VAD, ReplicaCalibrator, collect
    from uncurse.metrics import evaluate_log

    evidence = collect(source, SCORES, label="click", scale="logit")
    options: dict[str, str] = {"scale": "logit", "replicas": "seeds"}
    if labels:
        fitted = ReplicaCalibrator(**options).fit(evidence, labeled=evidence, labels_from="elsewhere")
        return evaluate_log(evidence, fitted.map_, ALPHAS)
    return evaluate_log(evidence, VAD(**options).fit(evidence).map_, ALPHAS)


def _of_duckdb(source: str) -> Any:
    import duckdb

    return _evaluated(duckdb.connect().read_parquet(source))


RUNS: dict[str, Callable[[str], Any]] = {
    "decode, batches": decode_batches,
    "decode, whole": decode_whole,
    OURS: _evaluated,
    "the same from a DuckDB relation": _of_duckdb,
    "the same with ReplicaCalibrator": partial(_evaluated, labels=True),
}


def _peak(name: str, source: str) -> float:
    RUNS[name](source)
    return peak_megabytes()


def point(source: str, rows: int, rounds: int) -> dict[str, Any]:
    """Print time and memory of all runs on one log."""
    names = [name for name in RUNS if rows <= 1e8 or "whole" not in name]
    load = os.getloadavg()[0]
    seconds = minima({name: partial(RUNS[name], source) for name in names}, rounds)[0]
    memory = {name: float(fresh(_peak, name, source)) for name in names}
    floor = min(seconds[name] for name in names if name.startswith("decode"))
    print(f"\n{rows:,} rows, {rounds} rounds, load {load:.1f}")
    for name in names:
        print(f"  {name:<34} {seconds[name]:9.4f} s  {memory[name]:8.0f} MB  {seconds[name] / floor:6.2f} × decode")
    bar("time / decode", seconds[OURS] / floor, MOST_OF_DECODE)
    bar("resident MB", memory[OURS], MOST_MEGABYTES)
    return {"rows": rows, "load": load, "seconds": seconds, "megabytes": memory}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.logs", description=__doc__)
    parser.add_argument("--rows", default="1e7,1e8")
    parser.add_argument("--copies", type=int, default=0, help="read the largest log so many times through a glob")
    parser.add_argument("--folder", help="where logs are kept; a temporary folder by default")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        outcomes = []
        for rows in (int(float(word)) for word in arguments.rows.split(",")):
            path = folder / f"{rows}.parquet"
            if not path.exists():
                make(path, rows)
            outcomes.append(point(str(path), rows, rounds=max(3, min(15, int(3e8 / rows)))))
        if arguments.copies:
            links = folder / "copies"
            links.mkdir(exist_ok=True)
            for i in range(arguments.copies):
                if not (links / f"{i:02d}.parquet").exists():
                    os.link(path, links / f"{i:02d}.parquet")
            outcomes.append(point(str(links / "*.parquet"), rows * arguments.copies, rounds=1))
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(outcomes, indent=1))


if __name__ == "__main__":
    main()
