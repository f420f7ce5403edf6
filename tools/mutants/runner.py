"""Run tests on changed copies of the source tree, in forked processes that have the libraries loaded."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .mutations import Mutation

#: What the tests need of the checkout.
COPIED = ("src", "tests", "tools", "conftest.py", "pyproject.toml", "docs", "README.md", "examples")
#: Packages and modules that are not part of the core.
OUTSIDE = ("logs", "report", "serving", "deep", "mlflow", "experiments", "cli")
#: Starts of the names of their tests, and of tests of the tools and of the source text. Other tests are the core's.
OTHER_TESTS = (
    *OUTSIDE, "arena", "architecture", "auction", "click", "collect", "demo", "docs", "docstrings", "examples",
    "experiment", "expressions", "faults", "fitting", "fuzz", "import", "log_files", "monitor_command", "mutants",
    "page", "paper", "release", "site", "sources", "spark", "top_per_request",
)  # fmt: skip
MEMORY_BYTES = 6 << 30
#: A test file in the first pass, which also traces calls, and the tests of one mutant may take so long.
FIRST_PASS_SECONDS, SLOWEST_SECONDS = 280.0, 240.0

Function = tuple[str, int]  # path below the root, and first line


@dataclass
class Test:
    """One test of the first pass: its seconds, and the functions of the core that it calls."""

    name: str
    seconds: float
    functions: set[Function]

    @property
    def file(self) -> str:
        """The file of the test."""
        return self.name.split("::")[0]


@dataclass(frozen=True)
class Outcome:
    """What the tests say of one mutant: killed, survived, timeout or unreached."""

    mutation: Mutation
    status: str
    seconds: float
    test: str = ""


@dataclass
class Slot:
    """A copy of the tree and the process that runs in it."""

    root: Path
    pid: int = 0
    started: float = 0.0
    limit: float = 0.0
    done: Callable[[int | None], None] = field(default=lambda status: None)


def copy_tree(checkout: Path, root: Path) -> Path:
    """Copy the parts of the checkout that the tests need."""
    for name in COPIED:
        source = checkout / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif source.exists():
            root.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, root / name)
    return root


def core_files(root: Path) -> list[str]:
    """List the source files of the core, as paths below the root."""
    package = root / "src" / "uncurse"
    files = [path for path in package.rglob("*.py") if Path(path.relative_to(package).parts[0]).stem not in OUTSIDE]
    return sorted(str(path.relative_to(root)) for path in files)


def core_tests(root: Path) -> list[str]:
    """List the test files of the core, and the core files that have doctests."""
    tests = [
        path
        for path in sorted((root / "tests").rglob("test_*.py"))
        if not path.stem.removeprefix("test_").startswith(OTHER_TESTS) and path.parent.name not in OUTSIDE
    ]
    doctests = [root / path for path in core_files(root) if ">>>" in (root / path).read_text(encoding="utf-8")]
    return [str(path.relative_to(root)) for path in (*tests, *doctests)]


# ---------------------------------------------------------------------------- processes


def load_libraries() -> None:
    """Import what every test process needs, but not the library under test."""
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    for name in ("numpy", "scipy.special", "scipy.stats", "scipy.optimize", "scipy.linalg", "hypothesis"):
        __import__(name)
    for name in ("sklearn.linear_model", "sklearn.calibration", "pandas", "polars", "narwhals", "joblib"):
        with contextlib.suppress(ImportError):
            __import__(name)


def start(slot: Slot, work: Callable[[], int], limit: float, done: Callable[[int | None], None]) -> None:
    """Run `work` in a forked process inside the copy; `done` gets its exit status, or None after `limit` seconds."""
    if any(name == "uncurse" or name.startswith("uncurse.") for name in sys.modules):
        raise RuntimeError("the library under test is loaded already; start the tool in a fresh process")
    slot.started, slot.limit, slot.done = time.monotonic(), limit, done
    slot.pid = os.fork()
    if slot.pid:
        return
    status = 70
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        log = os.open(slot.root / "log.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))  # not address space: V8 reserves much
        os.chdir(slot.root)
        # The checkout may be installed in place: this copy comes first.
        sys.path[:0] = [str(slot.root / "src"), str(slot.root)]
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait(slots: list[Slot]) -> None:
    """Wait until some process ends or exceeds its limit, and report it."""
    while True:
        for slot in slots:
            if not slot.pid:
                continue
            pid, status = os.waitpid(slot.pid, os.WNOHANG)
            if pid:
                slot.pid = 0
                slot.done(os.waitstatus_to_exitcode(status))
                return
            if time.monotonic() - slot.started > slot.limit:
                stop([slot])
                slot.done(None)
                return
        time.sleep(0.01)


def stop(slots: list[Slot]) -> None:
    """End the processes that still run, and their children."""
    for slot in slots:
        if slot.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(slot.pid, signal.SIGKILL)
            os.waitpid(slot.pid, 0)
            slot.pid = 0


def run_all(slots: list[Slot], tasks: Iterable[Callable[[Slot], None]]) -> None:
    """Start every task in the next free slot and wait for all."""
    for task in tasks:
        while all(slot.pid for slot in slots):
            wait(slots)
        task(next(slot for slot in slots if not slot.pid))
    while any(slot.pid for slot in slots):
        wait(slots)


def run_pytest(arguments: list[str], plugin: Any) -> int:
    """Run pytest in this process, without files of its own."""
    fixed = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=no", "--no-summary"]
    fixed += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is loaded before pytest starts
    return int(pytest.main([*fixed, *arguments], plugins=[plugin]))


# ---------------------------------------------------------------------------- the first pass


class Tracer:
    """A pytest plugin that records the seconds of each test and the functions of the core that it calls.

    Calls of a fixture with a wider scope count for every test that uses it.
    """

    def __init__(self, root: Path) -> None:
        self.prefix = str(root / "src" / "uncurse") + os.sep
        self.root = root
        self.codes: set[Any] = set()
        self.fixtures: dict[Any, set[Any]] = defaultdict(set)
        self.tests: dict[str, dict[str, Any]] = {}
        self.failed: set[str] = set()

    def trace(self, frame: Any, event: str, argument: Any) -> None:
        """Record a call; return nothing, so that lines are not traced."""
        self.codes.add(frame.f_code)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        outer, self.codes = self.codes, set()
        yield
        self.fixtures[fixturedef] |= self.codes
        self.codes |= outer

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Iterator[None]:
        # A helper of the test file that remembers its results must call the core again in every test.
        for value in list(vars(getattr(item, "module", None) or object).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()
        self.codes = set()
        began = time.perf_counter()
        sys.settrace(self.trace)
        threading.settrace(self.trace)
        yield
        sys.settrace(None)
        threading.settrace(None)
        codes = set(self.codes)
        for definitions in getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).values():
            for definition in definitions:
                codes |= self.fixtures[definition]
        functions = sorted(
            {
                (str(Path(code.co_filename).relative_to(self.root)), code.co_firstlineno)
                for code in codes
                if code.co_filename.startswith(self.prefix)
            }
        )
        self.tests[item.nodeid] = {"seconds": time.perf_counter() - began, "functions": functions}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def first_pass(slots: list[Slot], files: list[str], note: Callable[[str], None]) -> list[Test]:
    """Run every test once on the unchanged source. Tests that fail or take too long are left out, with a note."""
    tests: list[Test] = []

    def task(file: str) -> Callable[[Slot], None]:
        def begin(slot: Slot) -> None:
            answer = slot.root / "answer.json"
            answer.unlink(missing_ok=True)

            def work() -> int:
                tracer = Tracer(slot.root)
                status = run_pytest([file], tracer)
                answer.write_text(json.dumps({"tests": tracer.tests, "failed": sorted(tracer.failed)}))
                return status

            def done(status: int | None) -> None:
                if not answer.exists():
                    note(f"left out: {file} ({'too slow' if status is None else f'exit status {status}'})")
                    return
                content = json.loads(answer.read_text())
                if content["failed"]:
                    names = ", ".join(name.split("::", 1)[-1] for name in content["failed"][:3])
                    note(f"left out: {len(content['failed'])} tests of {file} fail on the unchanged source: {names}")
                for name, record in content["tests"].items():
                    if name not in content["failed"]:
                        functions = {(path, line) for path, line in record["functions"]}
                        tests.append(Test(name, record["seconds"], functions))
                if not content["tests"]:
                    note(f"left out: {file} (no tests; exit status {status})")

            start(slot, work, FIRST_PASS_SECONDS, done)

        return begin

    run_all(slots, [task(file) for file in files])
    return tests


# ---------------------------------------------------------------------------- mutants


class Selection:
    """A pytest plugin that runs some tests only, stops at the first failure and remembers it."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.failed = ""

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.names]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid or "collection"


def relevant_tests(mutation: Mutation, tests: list[Test]) -> list[Test]:
    """Select the tests that call the changed function, or its module for a change outside functions."""

    def touches(test: Test) -> bool:
        if mutation.function_line:
            return (mutation.path, mutation.function_line) in test.functions
        return any(path == mutation.path for path, _ in test.functions)

    return [test for test in tests if touches(test)]


def test_order(mutation: Mutation, tests: list[Test]) -> list[str]:
    """Order test files: those named after the module first, then by the seconds they need."""
    seconds: dict[str, float] = defaultdict(float)
    for test in tests:
        seconds[test.file] += test.seconds
    stem = Path(mutation.path).stem.lstrip("_")
    return sorted(seconds, key=lambda file: (stem not in Path(file).stem, seconds[file]))


def run_mutants(
    slots: list[Slot], mutations: list[Mutation], tests: list[Test], report: Callable[[Outcome], None]
) -> list[Outcome]:
    """Run the relevant tests on every mutant."""
    outcomes: list[Outcome] = []

    def finish(outcome: Outcome) -> None:
        outcomes.append(outcome)
        report(outcome)

    def task(mutation: Mutation) -> Callable[[Slot], None]:
        chosen = relevant_tests(mutation, tests)

        def begin(slot: Slot) -> None:
            if not chosen:
                finish(Outcome(mutation, "unreached", 0.0))
                return
            path, answer = slot.root / mutation.path, slot.root / "answer.txt"
            source, times = path.read_text(encoding="utf-8"), path.stat()
            path.write_text(mutation.apply(source), encoding="utf-8")
            os.utime(path, (times.st_atime, times.st_mtime + 1000))  # compiled files of the original are out of date
            answer.unlink(missing_ok=True)
            began = time.monotonic()

            def work() -> int:
                sys.dont_write_bytecode = True
                selection = Selection({test.name for test in chosen})
                status = run_pytest(["-x", *test_order(mutation, chosen)], selection)
                answer.write_text(selection.failed)
                return status

            def done(status: int | None) -> None:
                path.write_text(source, encoding="utf-8")
                os.utime(path, (times.st_atime, times.st_mtime))
                name = "timeout" if status is None else "survived" if status == 0 else "killed"
                killer = answer.read_text() if answer.exists() else ""
                finish(Outcome(mutation, name, time.monotonic() - began, killer))

            expected = sum(test.seconds for test in chosen)
            start(slot, work, min(20.0 + 4 * expected, SLOWEST_SECONDS), done)

        return begin

    run_all(slots, [task(mutation) for mutation in mutations])
    return outcomes


__all__ = [
    "Outcome",
    "Slot",
    "Test",
    "copy_tree",
    "core_files",
    "core_tests",
    "first_pass",
    "load_libraries",
    "run_mutants",
    "stop",
]
