"""Contests: interleaved timing, peak memory in a fresh process, and bars that are met or missed."""

from __future__ import annotations

import ctypes
import gc
import math
import multiprocessing
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

Inputs = dict[str, Any]
ROUNDS, BUDGET = 15, 8.0  # each contestant runs at most so often, and for about so many seconds


@dataclass(frozen=True)
class Contest:
    """Functions that run on the same inputs, and the bars of ours.

    The first of `calls` is the floor, the second is ours. Names that start with "by hand" are only printed; the others
    are peers.
    """

    title: str
    inputs: Callable[[int], Inputs]  # of a number of rows
    calls: Mapping[str, Callable[[Inputs], Any]]
    most_of_floor: float = math.inf  # time of ours / time of the floor
    least_speedup: float = 0.0  # time of the fastest peer / time of ours
    most_megabytes: float = math.inf  # extra memory of ours
    most_of_memory: float = math.inf  # extra memory of ours / that of the most frugal peer
    compare: Callable[[Inputs, Any, Any], dict[str, float]] = lambda inputs, ours, other: {}


def minima(
    calls: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS, budget: float = math.inf
) -> tuple[dict[str, float], dict[str, Any]]:
    """Run functions in turn, round after round. Return the least seconds and the last result of each."""
    best, spent = dict.fromkeys(calls, math.inf), dict.fromkeys(calls, 0.0)
    results: dict[str, Any] = {}
    for _ in range(rounds):
        for name, call in calls.items():
            if spent[name] > budget:
                continue
            results.pop(name, None)  # freed before the clock starts
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # peers warn about themselves
                start = time.perf_counter()
                results[name] = call()
                seconds = time.perf_counter() - start
            spent[name] += seconds
            best[name] = min(best[name], seconds)
    return best, results


def hold(name: str, find: Callable[[str], Contest], rows: int) -> dict[str, Any]:
    """Run a contest, print all contestants and the bars, and return the figures."""
    contest = find(name)
    small = contest.inputs(min(rows, 100_000))
    minima({key: partial(call, small) for key, call in contest.calls.items()}, rounds=1)
    inputs, load = contest.inputs(rows), os.getloadavg()[0]
    runs = {key: partial(call, inputs) for key, call in contest.calls.items()}
    seconds, results = minima(runs, budget=BUDGET)
    floor, ours, *others = contest.calls
    differences = {key: contest.compare(inputs, results[ours], results[key]) for key in others}
    del inputs, results, runs, small
    memory = {key: _in_a_child(find, name, key, rows) for key in contest.calls}
    print(f"{contest.title}   [load {load:.1f}]")
    for key in contest.calls:
        line = f"  {key:48}  {duration(seconds[key]):>9}  {seconds[key] / seconds[floor]:8.2f} × floor"
        line += f"  {seconds[key] / seconds[ours]:8.2f} × ours  {memory[key]:9.1f} MB"
        print(line + "".join(f"  {what} {value:.1e}" for what, value in differences.get(key, {}).items()))
    peers = [key for key in others if not key.startswith("by hand")]
    figures = [("time / floor", seconds[ours] / seconds[floor], contest.most_of_floor)]
    figures += [("extra MB", memory[ours], contest.most_megabytes)]
    if peers:
        fastest, frugal = min(seconds[key] for key in peers), min(memory[key] for key in peers)
        figures += [("time / fastest peer", seconds[ours] / fastest, 1 / (contest.least_speedup or 1e-9))]
        figures += [("memory / leanest peer", memory[ours] / max(frugal, 1e-9), contest.most_of_memory)]
    for what, figure, most in figures:
        bar(what, figure, most)
    print(flush=True)
    return {"contest": name, "rows": rows, "load": load, "seconds": seconds, "megabytes": memory}


def bar(what: str, figure: float, most: float) -> None:
    """Print a bar and whether it is met; an infinite bar is none."""
    if most < 1e9:
        print(
            f"  {what + ':':24} {figure:8.2f}, at most {most:.3g}: {'met' if figure <= most else 'MISSED'}", flush=True
        )


def duration(seconds: float) -> str:
    """Return seconds with three figures, in ms or s."""
    value, unit = (seconds * 1e3, "ms") if seconds < 1 else (seconds, "s")
    return f"{value:.3g} {unit}"


# ---------------------------------------------------------------------------- memory


def peak_megabytes() -> float:
    """Return the peak resident size of this process."""
    if Path("/proc/self/status").exists():
        return _status("VmHWM") / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def fresh(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of a module returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as child:
        return child.submit(function, *arguments).result()


def _in_a_child(find: Callable[[str], Contest], name: str, key: str, rows: int) -> float:
    return float(fresh(_extra_megabytes, find, name, key, rows))


def _extra_megabytes(find: Callable[[str], Contest], name: str, key: str, rows: int) -> float:
    """Return the peak memory of one run beyond its inputs."""
    contest = find(name)
    minima({key: lambda: contest.calls[key](contest.inputs(min(rows, 10_000)))}, rounds=1)  # imports and thread pools
    inputs = contest.inputs(rows)
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # what malloc still holds from making the inputs would be used again, unseen
        trim(0)
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")  # the peak is now the present size
    before = peak_megabytes()
    minima({key: lambda: contest.calls[key](inputs)}, rounds=1)
    return peak_megabytes() - before


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key + ":"))
