"""Run targets in worker processes with a memory limit, and collect the faults."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import resource
import signal
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uncurse import UncurseError

from .draws import Draw, show

SLOW_SECONDS = 10.0
MEMORY_BYTES = 4 << 30
#: A worker that reports nothing for so long hangs inside one call.
HANG_SECONDS = 120.0

TARGETS: dict[str, Target] = {}


class Fault(AssertionError):
    """A property that a result breaks."""


class Refused(Exception):
    """The call raised UncurseError: invalid input, as it should be."""


@dataclass(frozen=True)
class Target:
    """A named function of a `Draw` that makes one call and checks the result; `every` spaces out slow ones."""

    name: str
    function: Callable[[Call], None]
    every: int = 1


def target(name: str, every: int = 1) -> Callable[[Callable[[Call], None]], Callable[[Call], None]]:
    """Register a target under the name of the public name that it calls.

    Parameters
    ----------
    name : str
        Public name, as ``--only`` takes it.
    every : int, default=1
        Run the target in one of so many rounds only.
    """

    def register(function: Callable[[Call], None]) -> Callable[[Call], None]:
        if name in TARGETS:
            raise ValueError(f"two targets are called {name!r}")
        TARGETS[name] = Target(name, function, every)
        return function

    return register


class Call(Draw):
    """A `Draw` that also makes the calls: it records each, and turns `UncurseError` into `Refused`."""

    def __init__(self, seed: list[int], folder: Path) -> None:
        super().__init__(seed)
        self.folder = folder
        self.slowest = 0.0

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a public name. Everything but UncurseError is a fault."""
        name = getattr(function, "__qualname__", type(function).__name__)
        shown = [*map(show, arguments), *(f"{key}={show(value)}" for key, value in options.items())]
        self.calls.append(f"{name}({', '.join(shown)})")
        start = time.perf_counter()
        try:
            return function(*arguments, **options)
        except UncurseError as error:
            if not str(error).strip():
                raise Fault("the error has no message") from error
            raise Refused(str(error)) from error
        finally:
            self.slowest = max(self.slowest, time.perf_counter() - start)

    def read_back(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that reads what was just written; a refusal is a fault."""
        try:
            return self.call(function, *arguments)
        except Refused as error:
            raise Fault(f"Refused what was written: {error}") from error

    def refuses(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> bool:
        """Tell whether a call is refused."""
        try:
            self.call(function, *arguments, **options)
        except Refused:
            return True
        return False


@dataclass(frozen=True)
class Finding:
    """One fault: how to see it again, and what happened."""

    target: str
    seed: int
    number: int
    call: str
    summary: str
    place: str

    @property
    def key(self) -> tuple[str, str]:
        """Findings with the same key are counted as one: by line of the library, or by target and broken property."""
        kind = self.summary.split(":")[0]
        return (kind, self.place) if self.place else (kind, self.target)

    def __str__(self) -> str:
        again = f"python -m tools.fuzz --seed {self.seed} --only {self.target} --call {self.number}"
        place = f" at {self.place}" if self.place else ""
        return f"{self.target}: {self.summary}{place}\n    call  {self.call}\n    again {again}"


@dataclass
class Tally:
    """Counts of calls and refusals of each target, and the faults."""

    calls: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    repeats: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, name: str, seconds: float, outcome: bool | Finding) -> bool:
        """Count one call; `outcome` is a finding, or whether the call was refused. Return whether it is new."""
        self.calls[name] += 1
        self.seconds[name] += seconds  # type: ignore[assignment]  # a Counter adds floats as well
        if isinstance(outcome, bool):
            self.refused[name] += outcome
            return False
        self.repeats[outcome.key] += 1
        return self.findings.setdefault(outcome.key, outcome) is outcome


def run_call(
    chosen: Target, seed: int, number: int, folder: Path, *, show_traceback: bool = False
) -> tuple[float, bool | Finding]:
    """Make one call of a target; return the seconds it took, and a finding or whether the call was refused."""
    call = Call([seed, zlib.crc32(chosen.name.encode()), number], folder)
    start = time.perf_counter()

    def finding(summary: str, place: str) -> Finding:
        shown = " ; ".join(call.calls[-3:]) or "(no call)"
        return Finding(chosen.name, seed, number, shown, " ".join(summary.split())[:300], place)

    outcome: bool | Finding = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UserWarning)
            warnings.filterwarnings("ignore", category=RuntimeWarning, module="sklearn")  # of the user's estimator
            _alarm(6 * SLOW_SECONDS)  # a target makes several calls
            chosen.function(call)
    except Refused as refused:
        outcome = True
        if show_traceback:
            print(*call.calls, refused, sep="\n")
    except Exception as error:
        if show_traceback:
            traceback.print_exc()
        name = "" if isinstance(error, Fault) else f"{type(error).__name__}: "
        outcome = finding(f"{name}{error}", "" if isinstance(error, Fault) else _place(error))
    finally:
        _alarm(0)
    seconds = time.perf_counter() - start
    if call.slowest > SLOW_SECONDS and isinstance(outcome, bool):
        outcome = finding(f"Slow: {call.slowest:.0f} s", "")
    return seconds, outcome


def _alarm(seconds: float) -> None:
    def stop(signum: int, frame: object) -> None:
        raise Fault(f"Slow: stopped after {seconds:.0f} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _place(error: BaseException) -> str:
    """Name the innermost line of the library in a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if "/uncurse/" in frame.filename] or list(frames)
    frame = inside[-1]
    return f"{Path(*Path(frame.filename).parts[-2:])}:{frame.lineno} {frame.name}"


def schedule(names: list[str], calls: int) -> Iterator[tuple[str, int]]:
    """Yield `calls` pairs of target and number, round by round; slow targets take part in few rounds."""
    number = made = 0
    while made < calls:
        for name in names:
            every = TARGETS[name].every
            if (number + zlib.crc32(name.encode())) % every == 0 or len(names) == 1:
                yield name, number
                made += 1
                if made == calls:
                    return
        number += 1


def run_workers(
    names: list[str],
    calls: int,
    seed: int,
    jobs: int,
    report: Callable[[Tally, Finding | None], None] = lambda tally, found: None,
) -> Tally:
    """Run in `jobs` processes of at most 4 GiB each. A process that dies or hangs is a fault of its last call."""
    tally = Tally()
    work = list(schedule(names, calls))
    workers = [_Worker(work[job::jobs], seed) for job in range(jobs)]
    while running := [worker for worker in workers if worker.pending]:
        ready = multiprocessing.connection.wait([worker.receiver for worker in running], timeout=1.0)
        for worker in running:
            if worker.receiver in ready:
                name, seconds, outcome = worker.receive()
            elif time.monotonic() - worker.heard > HANG_SECONDS:
                name, seconds, outcome = worker.give_up(f"Hang: no answer in {HANG_SECONDS:.0f} s")
            else:
                continue
            new = tally.add(name, seconds, outcome)
            report(tally, outcome if new and isinstance(outcome, Finding) else None)
    for worker in workers:
        worker.process.join()
    return tally


class _Worker:
    """A process that makes the pending calls one after the other; it is started again after a crash."""

    def __init__(self, pending: list[tuple[str, int]], seed: int) -> None:
        self.pending, self.seed = pending, seed
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("fork")
        self.receiver, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_serve, args=(self.pending, self.seed, sender), daemon=True)
        self.process.start()
        sender.close()
        self.heard = time.monotonic()

    def receive(self) -> tuple[str, float, bool | Finding]:
        """Return the outcome of the first pending call."""
        try:
            seconds, outcome = self.receiver.recv()
        except EOFError:
            self.process.join()
            return self.give_up(f"Crash: the process ended with {self.process.exitcode}")
        self.heard = time.monotonic()
        name, _ = self.pending.pop(0)
        return name, seconds, outcome

    def give_up(self, reason: str) -> tuple[str, float, bool | Finding]:
        """Blame the first pending call and go on with the next in a new process."""
        self.process.kill()
        self.process.join()
        name, number = self.pending.pop(0)
        if self.pending:
            self.start()
        return name, 0.0, Finding(name, self.seed, number, "(make it again to see it)", reason, "")


def _serve(work: list[tuple[str, int]], seed: int, sender: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # invalid paths may name files here
        for name, number in work:
            sender.send(run_call(TARGETS[name], seed, number, Path(folder)))


__all__ = [
    "TARGETS",
    "Call",
    "Fault",
    "Finding",
    "Refused",
    "Tally",
    "run_call",
    "run_workers",
    "schedule",
    "target",
]
