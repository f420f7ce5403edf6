"""Command line of the mutation tool."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from .mutations import Mutation, enumerate_mutations
from .runner import Outcome, Slot, copy_tree, core_files, core_tests, first_pass, load_libraries, run_mutants, stop

CHECKOUT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None, checkout: str | Path = CHECKOUT) -> int:
    """Sample mutants, run the tests on each and print the share that they notice."""
    parser = argparse.ArgumentParser(prog="tools.mutants", description="Mutation testing of the core.")
    parser.add_argument("--count", type=int, default=200, help="how many mutants to sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--paths", nargs="+", default=[], help="files or folders to mutate; default all of the core")
    parser.add_argument("--tests", nargs="+", default=[], help="test files to use; default all tests of the core")
    parser.add_argument("--results", type=Path, help="a file that keeps outcomes, so that a run can be continued")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # remove the copies and end the processes
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, contextlib.ExitStack() as cleanup:
        slots = [Slot(copy_tree(Path(checkout), Path(folder).resolve() / str(job))) for job in range(options.jobs)]
        cleanup.callback(stop, slots)
        root = slots[0].root
        sources = {path: (root / path).read_text(encoding="utf-8") for path in core_files(root)}
        if options.paths:
            wanted = [Path(path) for path in options.paths]
            sources = {path: s for path, s in sources.items() if any(Path(path).is_relative_to(w) for w in wanted)}
        everything = [m for path, source in sources.items() for m in enumerate_mutations(path, source)]
        if not everything:
            parser.error(f"nothing to mutate in {options.paths}")
        sample = random.Random(options.seed).sample(everything, min(options.count, len(everything)))
        known = _read_results(options.results, sample)
        load_libraries()
        began = time.monotonic()
        tests = first_pass(slots, options.tests or core_tests(root), _note)
        _note(f"{len(tests)} tests on the unchanged source in {time.monotonic() - began:.0f} s")
        reporter = _Reporter(len(sample), len(known), options.results)
        remaining = [mutation for mutation in sample if mutation.key not in {o.mutation.key for o in known}]
        outcomes = known + run_mutants(slots, remaining, tests, reporter)
    _summarise(outcomes, sources, len(everything))
    return 0


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Reporter:
    """Print a line for every mutant, and keep it in the file of results."""

    def __init__(self, total: int, done: int, path: Path | None) -> None:
        self.total, self.done, self.path = total, done, path

    def __call__(self, outcome: Outcome) -> None:
        self.done += 1
        m = outcome.mutation
        by = f" by {outcome.test}" if outcome.test else ""
        _note(f"[{self.done}/{self.total}] {outcome.status} {outcome.seconds:.1f} s {m.path}:{m.line} {m.kind}{by}")
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as stream:
                record = {"key": m.key, "status": outcome.status, "seconds": outcome.seconds, "test": outcome.test}
                stream.write(json.dumps(record) + "\n")


def _read_results(path: Path | None, sample: list[Mutation]) -> list[Outcome]:
    if path is None or not path.exists():
        return []
    records = {r["key"]: r for r in map(json.loads, path.read_text(encoding="utf-8").splitlines())}
    return [
        Outcome(m, records[m.key]["status"], records[m.key]["seconds"], records[m.key]["test"])
        for m in sample
        if m.key in records
    ]


def _summarise(outcomes: list[Outcome], sources: dict[str, str], population: int) -> None:
    for outcome in sorted(outcomes, key=lambda o: (o.mutation.path, o.mutation.line)):
        if outcome.status in ("survived", "unreached"):
            m = outcome.mutation
            print(f"\n{outcome.status}: {m.path}:{m.line} ({m.kind})\n{m.diff(sources[m.path])}")
    counts = Counter(outcome.status for outcome in outcomes)
    by_file: dict[str, Counter[bool]] = {}
    for outcome in outcomes:
        caught = outcome.status in ("killed", "timeout")
        by_file.setdefault(outcome.mutation.path, Counter())[caught] += 1
    print()
    for path, found in sorted(by_file.items()):
        print(f"{found[True]:4d} of {found.total():4d}  {path}")
    share = (counts["killed"] + counts["timeout"]) / max(len(outcomes), 1)
    error = math.sqrt(share * (1 - share) / max(len(outcomes), 1))
    print(
        f"{len(outcomes)} of {population} mutants: {counts['killed']} killed, {counts['timeout']} timeouts, "
        f"{counts['survived']} survived, {counts['unreached']} reached by no test"
    )
    print(f"noticed: {100 * share:.1f}% ± {100 * error:.1f}% (standard error)")


if __name__ == "__main__":
    sys.exit(main())
