"""``python -m benchmarks [SECTION]... [--rows 1e7] [--json FILE]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time

import numpy as np

from . import core, harness


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [*core.SECTIONS, *(c.name for section in core.SECTIONS.values() for c in section())]
    names = list(dict.fromkeys(names))
    parser.add_argument("names", nargs="*", metavar="SECTION", help=f"any of {', '.join(names)}; all by default")
    parser.add_argument("--rows", type=float, default=1e7, help="the bars are those of 1e7 rows")
    parser.add_argument("--json", metavar="FILE", help="write every figure there")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in names:
            parser.error(f"{name!r} is unknown; choose from {', '.join(names)}")
    rows = int(arguments.rows)
    wanted = arguments.names or list(core.SECTIONS)
    contests = [c for name, section in core.SECTIONS.items() for c in section() if {name, c.name} & set(wanted)]

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = {
        "cores": cores,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "rows": rows,
        "load_before": os.getloadavg(),
    }
    print(f"{rows:,} rows, {cores} cores, load {os.getloadavg()[0]:.1f}, Python {machine['python']}, ", end="")
    print(f"numpy {np.__version__}. Times are minima of interleaved runs; extra memory is the peak of a fresh process.")
    print("Bars are those of 10,000,000 rows on a quiet machine.\n", flush=True)
    start = time.perf_counter()
    outcomes = []
    for contest in contests:
        try:
            outcome = harness.hold(contest, rows, core.find)
        except ModuleNotFoundError as error:  # a peer that is not installed, or a part of ours not written yet
            print(f"{contest.title}: skipped, {error}\n", flush=True)
            continue
        outcomes.append(outcome)
        print(harness.table(outcome) + "\n", flush=True)
    print(harness.bars(outcomes))
    print(f"{time.perf_counter() - start:,.0f} s in all; load {os.getloadavg()[0]:.1f} at the end")
    if arguments.json:
        machine["load_after"] = os.getloadavg()
        with open(arguments.json, "w") as file:
            json.dump({"machine": machine, "contests": [o.to_dict() for o in outcomes]}, file, indent=1)


if __name__ == "__main__":
    main()
