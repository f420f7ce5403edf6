"""``python -m benchmarks [CONTEST]... [--rows 1e7] [--json FILE]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path

import numpy as np

from . import core, harness


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CONTEST", help=f"any of {', '.join(core.NAMES)}; all by default")
    parser.add_argument("--rows", type=float, default=1e7, help="the bars are those of 1e7 rows")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in core.NAMES]
    if unknown:
        parser.error(f"{unknown[0]!r} is unknown; choose from {', '.join(core.NAMES)}")
    rows = int(arguments.rows)
    print(
        f"{rows:,} rows, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}. ", end=""
    )
    print("Times are minima of interleaved runs; extra memory is the peak of a fresh process.\n", flush=True)
    found = []
    for name in arguments.names or core.NAMES:
        try:
            found.append(harness.hold(name, core.contest, rows))
        except ModuleNotFoundError as error:
            print(f"{name}: skipped, {error}\n", flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
