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
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

Inputs = dict[str, Any]

WARM_ROWS = 1_000_000  # a first run on so many rows warms up, and shows who is too slow for all of them
WARM_LIMIT = 60.0  # seconds there beyond which a time is extrapolated from it
ROUNDS = 15
BUDGET = 8.0  # seconds of rounds for each contestant: fast ones get all rounds, slow ones one or two
MEGABYTE = 1e6


@dataclass(frozen=True)
class Contestant:
    """A name, a role (`floor`, `ours`, `peer`, or `also` for what is only printed) and what to run."""

    name: str
    role: str
    call: Callable[[Inputs], Any]


@dataclass(frozen=True)
class Contest:
    """Who runs on which inputs, and the bars of the one contestant that is `ours`."""

    name: str
    title: str
    inputs: Callable[[int], Inputs]  # of a number of rows, the same at every call
    contestants: tuple[Contestant, ...]
    most_of_floor: float | None = None  # time of ours / time of the floor, at most
    least_speedup: float | None = None  # time of the fastest peer / time of ours, at least
    most_megabytes: float | None = None  # extra memory of ours
    most_of_memory: float | None = None  # extra memory of ours / that of the most frugal peer, at most
    compare: Callable[[Inputs, Any, Any], dict[str, float]] | None = None  # result of ours, of another


@dataclass
class Measured:
    """What one contestant did."""

    name: str
    role: str
    seconds: float
    runs: int
    extrapolated: bool = False
    megabytes: float | None = None  # None where this system cannot tell
    differences: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """A bar, the figure, and whether it is met."""

    contest: str
    bar: str
    figure: float
    met: bool


@dataclass
class Outcome:
    """A contest that was run."""

    contest: str
    title: str
    measured: list[Measured]
    verdicts: list[Verdict]
    load: tuple[float, float]  # of the machine (1 minute) before and after

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def hold(contest: Contest, rows: int, find: Callable[[str], Contest]) -> Outcome:
    """Run a contest; `find` gives a child process the contest of that name."""
    before = os.getloadavg()[0]
    small = contest.inputs(min(rows, WARM_ROWS))
    inputs = contest.inputs(rows) if rows > WARM_ROWS else small
    measured, results = [], {}
    for contestant in contest.contestants:
        seconds, result = _timed(contestant, small)
        entry = Measured(contestant.name, contestant.role, math.inf, 0)
        if rows > WARM_ROWS and seconds > WARM_LIMIT:
            entry.seconds, entry.runs, entry.extrapolated = seconds * rows / WARM_ROWS, 1, True
            results[contestant.name] = result
        measured.append(entry)
    del small
    spent = dict.fromkeys((m.name for m in measured), 0.0)
    for _ in range(ROUNDS):
        for contestant, entry in zip(contest.contestants, measured, strict=True):
            if entry.extrapolated or spent[entry.name] > BUDGET:
                continue
            results.pop(entry.name, None)  # freed before the clock starts
            seconds, results[entry.name] = _timed(contestant, inputs)
            spent[entry.name] += seconds
            entry.seconds, entry.runs = min(entry.seconds, seconds), entry.runs + 1
    after = os.getloadavg()[0]
    if contest.compare is not None:
        ours = next(m.name for m in measured if m.role == "ours")
        for entry in measured:
            if entry.role != "floor":
                found = contest.compare(inputs, results[ours], results[entry.name])
                entry.differences = {key: float(value) for key, value in found.items()}
    del inputs, results
    gc.collect()
    for entry in measured:
        entry.megabytes = _in_a_child(contest.name, entry.name, WARM_ROWS if entry.extrapolated else rows, find)
        if entry.extrapolated and entry.megabytes is not None:
            entry.megabytes *= rows / WARM_ROWS
    return Outcome(contest.name, contest.title, measured, judge(contest, measured), (before, after))


def _timed(contestant: Contestant, inputs: Inputs) -> tuple[float, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers warn about themselves
        start = time.perf_counter()
        result = contestant.call(inputs)
        return time.perf_counter() - start, result


def judge(contest: Contest, measured: list[Measured]) -> list[Verdict]:
    """Every bar of the contest with its figure."""
    (ours,) = (m for m in measured if m.role == "ours")
    floors, peers = ([m for m in measured if m.role == role] for role in ("floor", "peer"))
    verdicts = []

    def add(bar: str, figure: float, met: bool) -> None:
        verdicts.append(Verdict(contest.name, bar, figure, met))

    if contest.most_of_floor is not None:
        ratio = ours.seconds / min(m.seconds for m in floors)
        add(f"time at most {contest.most_of_floor:g} × the floor", ratio, ratio <= contest.most_of_floor)
    if contest.least_speedup is not None:
        ratio = min(m.seconds for m in peers) / ours.seconds
        add(f"at least {contest.least_speedup:g} × faster than the fastest peer", ratio, ratio >= contest.least_speedup)
    if contest.most_megabytes is not None and ours.megabytes is not None:
        add(f"extra MB under {contest.most_megabytes:g}", ours.megabytes, ours.megabytes < contest.most_megabytes)
    frugal = [m.megabytes for m in peers if m.megabytes is not None]
    if contest.most_of_memory is not None and ours.megabytes is not None and frugal:
        ratio = ours.megabytes / min(frugal)
        add(f"extra memory at most {contest.most_of_memory:.2f} × any peer's", ratio, ratio <= contest.most_of_memory)
    return verdicts


# ---------------------------------------------------------------------------- memory


def _in_a_child(contest: str, contestant: str, rows: int, find: Callable[[str], Contest]) -> float | None:
    """Peak extra memory of one run, in megabytes, in a process that has done nothing else."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as child:
        return child.submit(_peak, contest, contestant, rows, find).result()


def _peak(contest_name: str, contestant_name: str, rows: int, find: Callable[[str], Contest]) -> float | None:
    contest = find(contest_name)
    (contestant,) = (c for c in contest.contestants if c.name == contestant_name)
    _timed(contestant, contest.inputs(min(rows, 10_000)))  # imports and thread pools are not the method's memory
    inputs = contest.inputs(rows)
    gc.collect()
    _give_back_free_memory()
    exact = _reset_peak()
    before = _status("VmRSS") if exact else _highest()
    result = _timed(contestant, inputs)
    after = _status("VmHWM") if exact else _highest()
    del result
    # Without a reset the inputs' own making may hide the peak: a zero then says nothing.
    return (after - before) / MEGABYTE if exact or after > before else None


def _reset_peak() -> bool:
    """Set the peak resident size of this process to its present size (Linux)."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return False
    return True


def _status(key: str) -> int:
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(key + ":"))


def _highest() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _give_back_free_memory() -> None:
    """What malloc still holds from making the inputs would otherwise be used again, unseen."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


# ---------------------------------------------------------------------------- printing


def table(outcome: Outcome) -> str:
    """All contestants of one contest, and its bars."""
    measured = outcome.measured
    (ours,) = (m for m in measured if m.role == "ours")
    floor = min((m.seconds for m in measured if m.role == "floor"), default=None)
    columns = list(dict.fromkeys(key for m in measured for key in m.differences))
    width = max(len(m.name) for m in measured)
    header = f"  {'':5}  {'':{width}}  {'time':>9}  {'× floor':>8}  {'× ours':>8}  {'extra MB':>8}"
    load = "load {:.1f} before, {:.1f} after".format(*outcome.load)
    lines = [f"{outcome.title}   [{load}]", header + "".join(f"  {column:>7}" for column in columns)]
    for m in measured:
        mark = "~" if m.extrapolated else ""
        of_floor = f"{m.seconds / floor:,.2f}" if floor else "–"
        memory = "–" if m.megabytes is None else f"{mark}{m.megabytes:,.1f}"
        line = f"  {m.role:5}  {m.name:{width}}  {mark + duration(m.seconds):>9}  {of_floor:>8}  "
        line += f"{m.seconds / ours.seconds:>8,.2f}  {memory:>8}"
        lines.append(line + "".join(f"  {_difference(m, column):>{max(7, len(column))}}" for column in columns))
    if any(m.extrapolated for m in measured):
        lines.append(f"  ~ more than {WARM_LIMIT:g} s on {WARM_ROWS:,} rows: not run on all, extrapolated")
    lines += [_verdict_line(v) for v in outcome.verdicts]
    return "\n".join(lines)


def bars(outcomes: list[Outcome]) -> str:
    """The bars of all contests."""
    verdicts = [v for outcome in outcomes for v in outcome.verdicts]
    missed = sum(not v.met for v in verdicts)
    width = max((len(v.contest) for v in verdicts), default=0)
    lines = [f"{len(verdicts)} bars, {missed} missed"]
    lines += [f"  {v.contest:{width}}{_verdict_line(v)}" for v in verdicts]
    return "\n".join(lines)


def _verdict_line(verdict: Verdict) -> str:
    return f"  {verdict.bar + ':':54}  {verdict.figure:>8,.2f}  {'met' if verdict.met else 'MISSED'}"


def _difference(m: Measured, column: str) -> str:
    return f"{m.differences[column]:.1e}" if column in m.differences else ""


def duration(seconds: float) -> str:
    """Three figures, in ms or s."""
    value, unit = (seconds * 1e3, "ms") if seconds < 1 else (seconds, "s")
    digits = max(0, 2 - math.floor(math.log10(max(value, 1e-3))))
    return f"{value:.{min(digits, 2)}f} {unit}"
