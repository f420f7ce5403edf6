"""``python -m benchmarks.monitoring [--repetitions 2000] [--rows 1e7]``: the daily test of a served map.

First its false alarms and its delays, simulated: a year of daily looks at 1,000 predicted positives a day, against
tests that are made for a single look. Then the time of `collect` and `monitor` against `collect` of the same log and
columns: library calls, interleaved, the minimum of each. ``--rows 0`` leaves out the second part, ``--repetitions 0``
the first.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from uncurse._types import Array
from uncurse.monitoring.sequential import LabelSums, log_e_values

from . import logs
from .harness import bar, minima

DAYS, LEVEL = 365, 0.05
PREDICTIONS, ROWS = np.array([0.01, 0.03, 0.1]), np.array([40_000, 10_000, 3_000])  # a day; 1,000 predicted positives
#: Errors of the predictions, and the day from which on they are there.
ERRORS = ((0.02, 0), (0.05, 0), (-0.05, 0), (0.10, 0), (0.05, 100))
BOUNDARY_REPETITIONS = 20_000
MOST_OF_COLLECT = 1.3


def year(
    rng: np.random.Generator, repetitions: int, error: float = 0.0, start: int = 0, swing: float = 0.0
) -> tuple[Array, Array]:
    """Return the positives of each day, and their deviation from the predictions in standard deviations.

    The rates of all rows of a day are too high or too low together by a factor whose standard deviation is `swing`.
    """
    factor = np.where(np.arange(DAYS) < start, 1.0, 1 / (1 + error))
    if swing:
        factor = factor * np.exp(swing * rng.normal(size=(repetitions, DAYS)) - swing**2 / 2)
    observed = np.zeros((repetitions, DAYS))
    for f, n in zip(PREDICTIONS, ROWS, strict=True):
        observed += rng.binomial(n, f * factor, (repetitions, DAYS))
    sd = math.sqrt(ROWS @ (PREDICTIONS * (1 - PREDICTIONS)))
    return observed, (observed - ROWS @ PREDICTIONS) / sd


def all_so_far(z: Array) -> Array:
    """Return the size of the deviation of all days so far, in standard deviations."""
    return np.abs(np.cumsum(z, axis=1)) / np.sqrt(np.arange(1, DAYS + 1))


def monitor_alarms(observed: Array, tolerance: float = 0.0) -> Array:
    """Return on which days the e-value is 20 or more."""
    cumulants = np.broadcast_to(np.array(LabelSums.of(PREDICTIONS, np.zeros(3), ROWS).cumulants), (DAYS, 25))
    return log_e_values(observed, cumulants, tolerance) >= math.log(1 / LEVEL)


def alarms(observed: Array, z: Array, boundary: float) -> dict[str, Array]:
    """Return on which days each test finds the map wrong."""
    once = 1.959964  # two-sided, 5%
    return {
        "uncurse monitor": monitor_alarms(observed),
        "5% test of each day": np.abs(z) >= once,
        "5% test of all days so far": all_so_far(z) >= once,
        f"the same at {boundary:.2f} standard errors": all_so_far(z) >= boundary,
    }


def delays(found: Array, start: int) -> Array:
    """Return days from the error to the first alarm, infinite without one; repetitions with a false alarm before count
    as no repetition."""
    valid = found[~found[:, :start].any(axis=1), start:]
    return np.where(valid.any(axis=1), valid.argmax(axis=1) + 1.0, np.inf)


def median_with_error(rng: np.random.Generator, values: Array) -> tuple[float, float]:
    """Return the median and its standard error, by 500 bootstraps."""
    drawn = np.median(rng.choice(values, (500, len(values))), axis=1)
    return float(np.median(values)), float(np.std(drawn)) if np.isfinite(drawn).all() else math.inf


def simulate(repetitions: int, seed: int) -> None:
    """Print false alarms of a valid map, and delays of wrong ones."""
    rng = np.random.default_rng(seed)
    boundary = float(np.quantile(all_so_far(year(rng, BOUNDARY_REPETITIONS)[1]).max(axis=1), 1 - LEVEL))
    print(f"{repetitions:,} repetitions of {DAYS} days, 1,000 predicted positives a day")
    print(f"boundary of a test of all days so far with 5% a year: {boundary:.3f} ({BOUNDARY_REPETITIONS:,} years)\n")
    names = list(alarms(*year(rng, 2), boundary))
    print("false alarms of a valid map within      30 days        a year")
    for name, found in alarms(*year(rng, repetitions), boundary).items():
        shares = [float(found[:, :days].any(axis=1).mean()) for days in (30, DAYS)]
        errors = [math.sqrt(share * (1 - share) / repetitions) for share in shares]
        cells = [f"{100 * share:5.1f}% ({100 * e:.1f}%)" for share, e in zip(shares, errors, strict=True)]
        print(f"  {name:<34} {cells[0]}  {cells[1]}", flush=True)
    for error, start in ERRORS:
        when = f"from day {start} on" if start else "from the first day on"
        print(f"\npredictions {100 * error:+.0f}% {when}: days to the alarm, median and mean")
        found = alarms(*year(rng, repetitions, error, start), boundary)
        for name in names:
            days = delays(found[name], start)
            if len(days) < 100:  # nearly all raised a false alarm before
                print(f"  {name:<34} {len(days)} of {repetitions:,} repetitions without an earlier alarm")
                continue
            middle, middle_error = median_with_error(rng, days)
            known = days[np.isfinite(days)]
            mean, mean_error = float(known.mean()), float(known.std() / math.sqrt(len(known)))
            missed = 1 - len(known) / len(days)
            note = f"  not found in a year: {100 * missed:.1f}%" if missed else ""
            note += f"  ({len(days):,} without an earlier alarm)" if len(days) < repetitions else ""
            cells = [f"{middle:6.0f} ({middle_error:.1f})", f"{mean:6.2f} ({mean_error:.2f})"]
            print(f"  {name:<34} {cells[0]}  {cells[1]}{note}", flush=True)
    print("\nalarms of uncurse monitor within a year, if the map is right on average and days vary together")
    for swing in (0.02, 0.05):
        observed, _ = year(rng, repetitions, swing=swing)
        for tolerance in (0.0, 0.02, 0.05):
            share = float(monitor_alarms(observed, tolerance).any(axis=1).mean())
            error = math.sqrt(share * (1 - share) / repetitions)
            name = f"standard deviation {100 * swing:.0f}%, tolerance {100 * tolerance:.0f}%"
            print(f"  {name:<36} {100 * share:5.1f}% ({100 * error:.1f}%)", flush=True)


# ---------------------------------------------------------------------------- time


def _monitor(rows: Any, state: Any = None) -> Any:
    from uncurse import Affine, monitor

    return monitor(Affine(0.8, -0.5), rows, state, day="2027-11-01")


def _state_of_a_year() -> Any:
    from datetime import date, timedelta

    from uncurse import Affine, MonitorState
    from uncurse.monitoring.state import Day, map_digest

    first = date(2026, 11, 1)
    day = Day(LabelSums.of(PREDICTIONS, PREDICTIONS * ROWS, ROWS), -3.0, 1.0)
    days = {(first + timedelta(days=i)).isoformat(): day for i in range(DAYS)}
    return MonitorState(map_digest(Affine(0.8, -0.5)), days)


def timing(rows: int, folder: Path) -> None:
    """Print the time of `collect`, and of `collect` and `monitor`."""
    from uncurse import collect

    path, year_state = folder / f"{rows}.parquet", _state_of_a_year()
    if not path.exists():
        logs.make(path, rows)

    def read(segment: str | None = None) -> Any:
        return collect(path, "s1", label="click", scale="logit", segment=segment)

    plain: dict[str, Callable[[], Any]] = {
        "collect": read,
        "collect and monitor": lambda: _monitor(read()),
        "the same after a year of days": lambda: _monitor(read(), year_state),
    }
    by_segment: dict[str, Callable[[], Any]] = {
        "collect by segment": lambda: read("segment"),
        "collect and monitor by segment": lambda: _monitor(read("segment")),
    }
    print(f"\n{rows:,} rows, load {os.getloadavg()[0]:.1f}")
    for runs, rounds in ((plain, 15), (by_segment, 5)):
        seconds = minima(runs, rounds)[0]
        base = next(iter(seconds.values()))
        for name, least in seconds.items():
            print(f"  {name:<36} {least:8.4f} s")
            if name not in ("collect", "collect by segment"):
                bar("time / collect", least / base, MOST_OF_COLLECT)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitoring", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2_000)
    parser.add_argument("--rows", default="1e7")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where logs are kept; a temporary folder by default")
    arguments = parser.parse_args()
    if arguments.repetitions:
        simulate(arguments.repetitions, arguments.seed)
    rows = int(float(arguments.rows))
    if rows:
        with tempfile.TemporaryDirectory() as temporary:
            timing(rows, Path(arguments.folder or temporary))


if __name__ == "__main__":
    main()
