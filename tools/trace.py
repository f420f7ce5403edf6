"""Count the functions of `uncurse` that a fit goes through: ``python -m tools.trace``.

Two calls are measured, ``uncurse fit`` on a small Parquet file and ``UncursedClassifierCV.fit``, without imports.
Comprehensions, generator expressions and lambdas are not counted: later versions of Python inline them.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import CodeType, FrameType

import numpy as np
import polars as pl
from sklearn.linear_model import LogisticRegression

import uncurse
from uncurse.cli import app

PACKAGE = str(Path(uncurse.__file__).parent)


def trace(work: Callable[[], object]) -> Counter[CodeType]:
    """Run `work` twice, and count the calls of each function of the package in the second run."""
    calls: Counter[CodeType] = Counter()

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            calls[code] += 1

    work()
    sys.setprofile(profile)
    work()
    sys.setprofile(None)
    return calls


def main() -> None:
    """Print functions, files and calls of both fits."""
    rng = np.random.default_rng(0)
    scores = rng.normal(-2, 0.8, (3_000, 1)) + 0.4 * rng.normal(size=(3_000, 3))
    labels = rng.random(3_000) < 1 / (1 + np.exp(-scores[:, 0]))
    estimator = uncurse.UncursedClassifierCV(LogisticRegression())
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(None):
        log, out = f"{folder}/pool.parquet", f"{folder}/map.json"
        pl.DataFrame(scores, schema=["s0", "s1", "s2"]).write_parquet(log)
        words = ["fit", log, "--scores", "s0,s1,s2", "--scale", "logit", "--replicas", "seeds", "-o", out]
        of_command = trace(lambda: app(words, standalone_mode=False))
        of_estimator = trace(lambda: estimator.fit(scores, labels))
    for name, calls in (("uncurse fit", of_command), ("UncursedClassifierCV.fit", of_estimator)):
        files = {code.co_filename for code in calls}
        print(f"{name}: {len(calls)} functions in {len(files)} files, {calls.total():,} calls")


if __name__ == "__main__":
    main()
