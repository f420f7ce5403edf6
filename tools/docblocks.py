"""Run the code blocks of Markdown pages: ``python -m tools.docblocks README.md docs/how-to/groups.md``.

The blocks of a page run in order, in one Python process and one empty folder. Python blocks share their names. In
blocks of commands, lines that start with ``uncurse`` or ``$ uncurse`` run in a shell; other lines are output. Comments
of a page, which no reader sees, prepare what its blocks need::

    <!-- setup
    pool = make_scores()
    -->
    <!-- commands
    uncurse collect pool.parquet --scores s0,s1 --scale logit -o pool.json
    -->
    <!-- not run: needs a GPU -->           the next block is left out, and the reason is printed
    <!-- in tests: 20 => 2 -->              a text of the next block is replaced
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
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

    kind: str  # "python" or "shell"
    code: str
    line: int
    reason: str = ""  # why it is not run


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
                yield Block("python", code, line, reason)
            elif language in SHELLS and commands(code):
                yield Block("shell", code if language == "sh" else commands(code), line, reason)
            reason, changes = "", []


def commands(code: str) -> str:
    """Return the commands of a block; an indented line continues the one before it.

    >>> commands("$ uncurse fit a.json\\nfree, from 3 rows\\nuncurse fit b.json\\n    -o map.json\\n")
    'uncurse fit a.json\\nuncurse fit b.json -o map.json\\n'
    """
    found: list[str] = []
    open_command = False
    for line in code.splitlines():
        if re.match(r"(\$ )?uncurse ", line):
            found.append(line.removeprefix("$ "))
            open_command = True
        elif open_command and line.startswith("    ") and "[" not in line:
            found[-1] = found[-1].rstrip(" \\") + " " + line.strip()
        else:
            open_command = False
    return "".join(f"{line}\n" for line in found)


def run_page(path: Path) -> list[str]:
    """Run the blocks of a page in the current folder. Return what was not run, and why."""
    space: dict[str, Any] = {"__name__": "__main__"}
    left_out = []
    for block in blocks(path.read_text(encoding="utf-8")):
        where = f"{path.name}:{block.line}"
        if block.reason:
            left_out.append(f"{where}: {block.reason}")
        elif block.kind == "python":
            exec(compile("\n" * block.line + block.code, str(path), "exec"), space)
        else:
            code = run_commands(block.code)
            if code:
                raise SystemExit(f"{where}: exit code {code}\n{block.code}")
    return left_out


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


def main(arguments: list[str] | None = None) -> None:
    """Run pages, each in an empty folder, with the command ``uncurse`` of this Python; exit with 1 if one fails."""
    parser = argparse.ArgumentParser(prog="tools.docblocks", description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    pages = [page.resolve() for page in parser.parse_args(arguments).pages]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(environment(Path(folder, "bin")))
        failed = []
        for i, page in enumerate(pages):
            target = Path(folder, str(i))
            target.mkdir()
            os.chdir(target)
            try:
                for line in run_page(page):
                    print(f"not run: {line}")
            except (Exception, SystemExit):
                traceback.print_exc()
                failed.append(page.name)
        os.chdir("/")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
