"""Run the code blocks of Markdown pages: ``python -m tools.docblocks README.md docs/how-to/groups.md``.

The blocks of a page run in order, in one Python process and one empty folder. Python blocks share their names. In
blocks of commands, lines that start with ``uncurse`` or ``$ uncurse`` run in a shell; other lines are output, and so is
a block of ``text`` after another block. What a page shows as output must have been printed, numbers to about 1%; lines
with … or with times are not compared. ``--update`` writes new numbers into the pages; words are yours to change.
Comments of a page, which no reader sees, prepare what its blocks need::

    <!-- setup
    pool = make_scores()
    -->
    <!-- commands
    uncurse collect pool.parquet --scores s0,s1 --scale logit -o pool.json
    -->
    <!-- not run: needs a GPU -->           the next block is left out, and the reason is printed
    <!-- in tests: 20 => 2 -->              a text of the next block is replaced; later output is not compared
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STEP = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->$|^<!-- commands\n(?P<commands>.*?)^-->$"
    r"|^<!-- not run: (?P<reason>.*?) -->$|^<!-- in tests: (?P<change>.*?) -->$"
    r"|^(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=fence)$",
    re.M | re.S,
)
_SHELL_SYNTAX = re.compile(r"[|<>&;$`\\]")
#: Languages whose blocks hold commands; a block without a language may hold some.
SHELLS = ("", "console", "sh", "bash")


@dataclass(frozen=True)
class Block:
    """One block of a page."""

    kind: str  # "python", "shell" or "output"
    code: str
    line: int
    reason: str = ""  # why it is not run
    shown: str = ""  # what the page shows as its output
    changed: bool = False  # for the tests


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks that can run, and the setup between them, in order.

    >>> [block.kind for block in blocks("```python\\nx = 1\\n```\\n```\\n$ uncurse demo\\nfine\\n```\\n")]
    ['python', 'shell']
    """
    reason, changes = "", []
    for found in _STEP.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if found["setup"] is not None:
            yield Block("python", found["setup"], line)
        elif found["commands"] is not None:
            yield Block("shell", found["commands"], line)
        elif found["reason"] is not None:
            reason = found["reason"]
        elif found["change"] is not None:
            changes.append(found["change"].split(" => "))
        else:
            code = found["code"]
            for old, new in changes:
                if old not in code:
                    raise ValueError(f"line {line}: the block has no {old!r} to replace")
                code = code.replace(old, new)
            language = found["language"].strip()
            if language == "python":
                yield Block("python", code, line, reason, changed=bool(changes))
            elif language in SHELLS and (parts := commands_and_output(code))[0]:
                run, shown = (code, "") if language == "sh" else parts
                yield Block("shell", run, line, reason, shown, bool(changes))
            elif language == "text":
                yield Block("output", "", line, reason, code)
            reason, changes = "", []


def commands_and_output(code: str) -> tuple[str, str]:
    """Return the commands of a block, and its other lines; an indented line continues the command before it.

    >>> commands_and_output("$ uncurse fit a.json\\n3 rows\\nuncurse fit b.json\\n    -o map.json\\n")
    ('uncurse fit a.json\\nuncurse fit b.json -o map.json\\n', '3 rows')
    """
    found: list[str] = []
    output: list[str] = []
    open_command = False
    for line in code.splitlines():
        if re.match(r"(\$ )?uncurse ", line):
            found.append(line.removeprefix("$ "))
            open_command = True
        elif open_command and line.startswith("    ") and "[" not in line:
            found[-1] = found[-1].rstrip(" \\") + " " + line.strip()
        else:
            output.append(line)
            open_command = False
    return "".join(f"{line}\n" for line in found), "\n".join(output)


def run_page(path: Path, update: bool = False) -> list[str]:
    """Run the blocks of a page in the current folder. Return what was not run, and why."""
    space: dict[str, Any] = {"__name__": "__main__"}
    left_out: list[str] = []
    printed: str | None = None  # by the last block that ran
    compared = True
    for block in blocks(path.read_text(encoding="utf-8")):
        where = f"{path.name}:{block.line}"
        compared &= not block.changed
        if block.reason:
            left_out.append(f"{where}: {block.reason}")
            continue
        with printing() as output:
            if block.kind == "python":
                exec(compile("\n" * block.line + block.code, str(path), "exec"), space)
            elif block.kind == "shell" and (code := run_commands(block.code)):
                raise SystemExit(f"{where}: exit code {code}\n{block.code}")
        printed = printed if block.kind == "output" else output[0]
        stale = [] if printed is None or not compared else stale_lines(block.shown, printed, exact=update)
        if stale and update:
            stale = _update(path, block.line, stale, printed or "")
        if stale:
            raise SystemExit(f"{where}: this was not printed: {stale[0]!r}\n{printed}")
    return left_out


def _update(path: Path, first: int, stale: list[str], printed: str) -> list[str]:
    """Replace lines from line `first` on by printed lines with the same words. Return those for which there is none."""
    left = []
    text = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for line in stale:
        words, numbers = _words_and_numbers(line)
        found = [each for each in printed.splitlines() if _words_and_numbers(each)[0] == words]
        if found:  # the one with the most equal numbers, and of these the last
            equal = [sum(map(str.__eq__, numbers, _words_and_numbers(each)[1])) for each in found]
            text[text.index(f"{line}\n", first)] = f"{max(zip(equal, range(len(found)), found, strict=True))[2]}\n"
        else:
            left.append(line)
    path.write_text("".join(text), encoding="utf-8")
    return left


@contextmanager
def printing() -> Iterator[list[str]]:
    """Collect what this process and its children print; the list has it at the end."""
    found: list[str] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        kept = [os.dup(1), os.dup(2)]
        for target in (1, 2):
            os.dup2(file.fileno(), target)
        try:
            with redirect_stdout(file), redirect_stderr(file):
                yield found
        finally:
            file.flush()
            for target, old in zip((1, 2), kept, strict=True):
                os.dup2(old, target)
                os.close(old)
            file.seek(0)
            found.append(file.read())
            sys.stdout.write(found[0])


_NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_VARIES = re.compile(r"…|\.\.\.|µs| ms\b|\d s\b")  # cut lines, and times


def stale_lines(shown: str, printed: str, *, exact: bool = False) -> list[str]:
    """Return the lines that a page shows as output and that were not printed.

    Unless `exact`, numbers may differ by 1% or by two units of the last digit, because machines round differently.

    >>> stale_lines("error +0.68%\\n\\n12 rows in 3 µs", "error  +0.69%\\nmore")
    []
    >>> stale_lines("error +0.68%", "error +0.48%")
    ['error +0.68%']
    """
    lines = [_words_and_numbers(line) for line in printed.splitlines()]

    def was_printed(line: str) -> bool:
        words, numbers = _words_and_numbers(line)
        return any(words == w and (numbers == n if exact else all(map(_close, numbers, n))) for w, n in lines)

    wanted = [line for line in shown.splitlines() if line.strip() and not _VARIES.search(line)]
    return [line for line in wanted if not was_printed(line)]


def _words_and_numbers(line: str) -> tuple[str, list[str]]:
    return "".join(_NUMBER.sub("#", line).split()), _NUMBER.findall(line)


def _close(shown: str, printed: str) -> bool:
    one, other = (float(text.replace(",", "").replace("−", "-")) for text in (shown, printed))
    mantissa = shown.partition("e")[0]
    last_digit = 10.0 ** -len(mantissa.partition(".")[2])
    return abs(one - other) <= max(0.01 * abs(one), 2 * last_digit) or max(abs(one), abs(other)) < 1e-9


def run_commands(code: str) -> int:
    """Run the commands of a block and return the first exit code that is not 0.

    Plain calls of ``uncurse`` run in this process, which saves the imports; a shell runs everything else.
    """
    lines = code.splitlines()
    if any(not line.startswith("uncurse ") or _SHELL_SYNTAX.search(line) for line in lines):
        return subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=False).returncode
    from uncurse.cli.app import run

    for line in lines:
        sys.argv = shlex.split(line, comments=True)
        sys.stdout.flush()
        exit_code = run()
        if exit_code:
            return exit_code
    return 0


def environment(folder: Path) -> dict[str, str]:
    """Write the command ``uncurse`` of this Python to a folder; return the variables with which pages find it."""
    folder.mkdir()
    command = folder / "uncurse"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m uncurse "$@"\n')
    command.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "MPLBACKEND": os.environ.get("MPLBACKEND", "Agg")}


def main() -> None:
    """Run pages, each in an empty folder, with the command ``uncurse`` of this Python, up to the first that fails."""
    parser = argparse.ArgumentParser(prog="tools.docblocks", description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--update", action="store_true", help="write the printed numbers into the pages")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(environment(Path(folder, "bin")))
        for i, page in enumerate([page.resolve() for page in options.pages]):
            target = Path(folder, str(i))
            target.mkdir()
            os.chdir(target)
            for line in run_page(page, options.update):
                print(f"not run: {line}")
        os.chdir("/")


if __name__ == "__main__":
    main()
