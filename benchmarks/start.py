"""``python -m benchmarks.start [--rounds 10]``: seconds until the library is imported and the command answers.

New processes, interleaved, the minimum of each. The floor is ``import numpy``, which every program of this kind pays.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from functools import partial

from .harness import minima

COMMANDS = {
    "import numpy": ["-c", "import numpy"],
    "import uncurse": ["-c", "import uncurse"],
    "uncurse --help": ["-m", "uncurse", "--help"],
    "uncurse --version": ["-m", "uncurse", "--version"],
    "import sklearn.linear_model": ["-c", "import sklearn.linear_model"],
    "import polars": ["-c", "import polars"],
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    runs = {
        name: partial(subprocess.run, [sys.executable, *words], check=True, capture_output=True)
        for name, words in COMMANDS.items()
    }
    seconds = minima(runs, parser.parse_args().rounds)[0]
    for name, least in seconds.items():
        print(f"{name:28} {least:6.3f} s  {least / seconds['import numpy']:5.2f} × import numpy")


if __name__ == "__main__":
    main()
