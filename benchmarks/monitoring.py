"""``python -m benchmarks.monitoring [--repetitions 2000] [--rows 1e7] [--json FILE]``: the daily test of a served map.

First its false alarms and its delays, simulated: a year of daily looks at 1,000 predicted positives a day, against
tests that are made for a single look. Then the time of `monitor` against `collect` of the same log and columns: library
calls, interleaved, the minimum of each. ``--rows 0`` leaves out the second part, ``--repetitions 0`` the first.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from uncurse._types import Array
from uncurse.monitoring import LabelSums
from uncurse.monitoring.sequential import log_e_values

from . import logs

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


def simulate(repetitions: int, seed: int) -> dict[str, Any]:
    """Print false alarms of a valid map, and delays of wrong ones."""
    rng = np.random.default_rng(seed)
    boundary = float(np.quantile(all_so_far(year(rng, BOUNDARY_REPETITIONS)[1]).max(axis=1), 1 - LEVEL))
    print(f"{repetitions:,} repetitions of {DAYS} days, 1,000 predicted positives a day")
    print(f"boundary of a test of all days so far with 5% a year: {boundary:.3f} ({BOUNDARY_REPETITIONS:,} years)\n")
    names = list(alarms(*year(rng, 2), boundary))
    outcome: dict[str, Any] = {"boundary": boundary, "false_alarms": {}, "delays": {}}
    print("false alarms of a valid map within      30 days        a year")
    for name, found in alarms(*year(rng, repetitions), boundary).items():
        shares = [float(found[:, :days].any(axis=1).mean()) for days in (30, DAYS)]
        errors = [math.sqrt(share * (1 - share) / repetitions) for share in shares]
        outcome["false_alarms"][name] = {"shares": shares, "standard_errors": errors}
        cells = [f"{100 * share:5.1f}% ± {100 * e:.1f}%" for share, e in zip(shares, errors, strict=True)]
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
            outcome["delays"].setdefault(f"{error:+.2f}, {start}", {})[name] = {
                "median": middle, "median_error": middle_error, "mean": mean, "mean_error": mean_error,
                "missed": missed, "repetitions": len(days),
            }  # fmt: skip
            note = f"  not found in a year: {100 * missed:.1f}%" if missed else ""
            note += f"  ({len(days):,} without an earlier alarm)" if len(days) < repetitions else ""
            cells = [f"{middle:6.0f} ± {middle_error:.1f}", f"{mean:6.2f} ± {mean_error:.2f}"]
            print(f"  {name:<34} {cells[0]}  {cells[1]}{note}", flush=True)
    print("\nalarms of uncurse monitor within a year, if the map is right on average and days vary together")
    outcome["swings"] = {}
    for swing in (0.02, 0.05):
        observed, _ = year(rng, repetitions, swing=swing)
        for tolerance in (0.0, 0.02, 0.05):
            share = float(monitor_alarms(observed, tolerance).any(axis=1).mean())
            outcome["swings"][f"{swing}, {tolerance}"] = share
            error = math.sqrt(share * (1 - share) / repetitions)
            name = f"standard deviation {100 * swing:.0f}%, tolerance {100 * tolerance:.0f}%"
            print(f"  {name:<36} {100 * share:5.1f}% ± {100 * error:.1f}%", flush=True)
    return outcome


# ---------------------------------------------------------------------------- time


def _collect(source: str, group: str | None = None) -> Any:
    from uncurse.logs import collect

    return collect(source, "s1", label="click", group=group)


def _monitor(source: str, group: str | None = None, state: Any = None) -> Any:
    """Do what the command does after its start: read rows that have a label, and judge."""
    from uncurse import Affine, LogSpec
    from uncurse.logs import Settled, collect_spec
    from uncurse.monitoring import monitor

    spec = LogSpec(("s1",), label="click", group=group, scale="logit")
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of rows without a label
        rows = collect_spec([source], spec, False, settled=Settled("click"))
    return monitor(Affine(0.8, -0.5), rows, state, day="2027-11-01")


def _state_of_a_year() -> Any:
    from datetime import date, timedelta

    from uncurse import Affine, MonitorState
    from uncurse.monitoring import Day
    from uncurse.monitoring.state import map_digest

    first = date(2026, 11, 1)
    day = Day(LabelSums.of(PREDICTIONS, PREDICTIONS * ROWS, ROWS), -3.0, 1.0)
    days = {(first + timedelta(days=i)).isoformat(): day for i in range(DAYS)}
    return MonitorState(map_digest(Affine(0.8, -0.5)), days)


def timing(rows: int, folder: Path) -> dict[str, Any]:
    """Print the time of `monitor` and of `collect`."""
    import polars as pl

    path, late = folder / f"{rows}.parquet", folder / f"{rows}-late.parquet"
    if not path.exists():
        logs.make(path, rows)
    unlabelled = pl.int_range(pl.len()) % 10 == 0
    pl.read_parquet(path).with_columns(click=pl.when(~unlabelled).then("click")).write_parquet(late)
    year_state = _state_of_a_year()
    plain: dict[str, Callable[[], Any]] = {
        "collect": lambda: _collect(str(path)),
        "monitor": lambda: _monitor(str(path)),
        "monitor after a year of days": lambda: _monitor(str(path), state=year_state),
        "monitor, 10% of the labels missing": lambda: _monitor(str(late)),
    }
    by_group: dict[str, Callable[[], Any]] = {
        "collect by group": lambda: _collect(str(path), "group"),
        "monitor by group": lambda: _monitor(str(path), "group"),
    }
    outcome: dict[str, Any] = {"rows": rows, "runs": {}, "load": [os.getloadavg()[0]]}
    print(f"\n{rows:,} rows, load {os.getloadavg()[0]:.1f} at the beginning; minima of the elapsed and processor time")
    for runs, rounds in ((plain, 25), (by_group, 5)):
        best = dict.fromkeys(runs, (math.inf, math.inf))
        for _ in range(rounds):
            for name, call in runs.items():
                start = (time.perf_counter(), time.process_time())
                call()
                spent = (time.perf_counter() - start[0], time.process_time() - start[1])
                best[name] = (min(best[name][0], spent[0]), min(best[name][1], spent[1]))
        base = next(iter(best.values()))
        for name, (elapsed, processor) in best.items():
            ratios = elapsed / base[0], processor / base[1]
            outcome["runs"][name] = {"elapsed": elapsed, "processor": processor, "ratios": ratios, "rounds": rounds}
            cells = f"{elapsed:8.4f} s {ratios[0]:6.2f} ×  {processor:8.4f} s {ratios[1]:6.2f} ×"
            bar = f"  bar of {MOST_OF_COLLECT} {'met' if ratios[0] <= MOST_OF_COLLECT else 'MISSED'}"
            # The bar is about the same log: one with missing labels has to be filtered.
            same = name.startswith("monitor") and "missing" not in name
            print(f"  {name:<36} {cells}{bar if same else ''}", flush=True)
    outcome["load"].append(os.getloadavg()[0])
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitoring", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2_000)
    parser.add_argument("--rows", default="1e7")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where logs are kept; a temporary folder by default")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    outcome: dict[str, Any] = {}
    if arguments.repetitions:
        outcome["simulation"] = simulate(arguments.repetitions, arguments.seed)
    rows = int(float(arguments.rows))
    if rows:
        with tempfile.TemporaryDirectory() as temporary:
            outcome["timing"] = timing(rows, Path(arguments.folder or temporary))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(outcome, indent=1))


if __name__ == "__main__":
    main()
