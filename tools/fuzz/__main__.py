"""Command line of the fuzzer."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import targets  # noqa: F401  registers them
from .engine import TARGETS, Finding, Tally, run_call, run_workers


def main(arguments: list[str] | None = None) -> int:
    """Fuzz, print each fault once and return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="tools.fuzz", description="Fuzz the public names of the core.")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--only", action="append", help="a target, or the start of the names of several; repeatable")
    parser.add_argument("--call", type=int, help="make this one call of the target of --only, and show its traceback")
    parser.add_argument("--properties", action="store_true", help="then run tests/test_properties.py with fresh draws")
    parser.add_argument("--list", action="store_true", help="list the targets")
    options = parser.parse_args(arguments)
    names = [n for n in TARGETS if not options.only or any(n == o or n.startswith(o + ".") for o in options.only)]
    if options.list:
        print("\n".join(names))
        return 0
    if not names:
        parser.error(f"no target is called {options.only}; see --list")
    if options.call is not None:
        names = [n for n in names if n in options.only] or names
        if len(names) != 1:
            parser.error("--call needs one target; name it with --only")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            outcome = run_call(TARGETS[names[0]], options.seed, options.call, Path(folder), show_traceback=True)[1]
        print(outcome if isinstance(outcome, Finding) else "refused" if outcome else "passed")
        return int(isinstance(outcome, Finding))
    tally = _run(names, options.calls, options.seed, options.jobs)
    failed = bool(tally.findings)
    if options.properties:
        failed |= _properties(options.seed) != 0
    return int(failed)


def _run(names: list[str], calls: int, seed: int, jobs: int) -> Tally:
    start = last = time.monotonic()

    def report(tally: Tally, found: Finding | None) -> None:
        nonlocal last
        if found is not None:
            print(found, flush=True)
        if time.monotonic() - last > 15:
            last = time.monotonic()
            done = tally.calls.total()
            print(f"... {done} calls, {len(tally.findings)} faults, {last - start:.0f} s", file=sys.stderr, flush=True)

    tally = run_workers(names, calls, seed, jobs, report)
    print(f"\n{'target':40s} {'calls':>7s} {'accepted':>8s} {'ms':>7s}")
    for name in names:
        made = tally.calls[name]
        accepted = 1 - tally.refused[name] / made if made else 0.0
        print(f"{name:40s} {made:7d} {accepted:8.0%} {1000 * tally.seconds[name] / max(made, 1):7.1f}")
    for key, count in tally.repeats.most_common():
        print(f"{count:7d} x {key[0]} at {key[1]}")
    print(f"{tally.calls.total()} calls in {time.monotonic() - start:.0f} s, {len(tally.findings)} distinct faults")
    return tally


def _properties(seed: int) -> int:
    """Run the property tests with draws that depend on the seed."""
    command = [sys.executable, "-m", "pytest", "tests/test_properties.py", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "UNCURSE_FUZZ_SEED": str(seed)}
    return subprocess.run([*command, f"--hypothesis-seed={seed}"], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
