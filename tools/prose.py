"""Check the prose of the project with proselint and its own word list: ``python -m tools.prose``.

It reads the README, the pages of the site, and the docstrings and texts of the package. Code blocks and names in
backticks are left out. Proselint reads the pages alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from proselint.checks import __register__
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = Path(__file__).parents[1]
#: What not to write, and what to write instead.
WORDS = {
    # One word for each thing, as in docs/reference/glossary.md.
    r"\btwins?\b": "replica",
    r"\bvanilla\b": "as served",
    r"\banchored\b": "bootstrap",
    r"\b(un)?labell(ed|ing)\b": "labeled, labeling",
    r"\b(optimis(e|ing|ation)|recentr|behaviour|colour|favour|neighbour|catalogue|licence)\w*": "American spelling",
    # Objects do not act.
    r"\bintervals? (promise|know|do not know|does not know)\b": "intervals include, leave out",
    r"\b(labels|replicas) (say|tell|teach)\b": "labels show, replicas show",
    r"\bwithout a word\b": "silently",
    r"\bworld changes\b": "data drift",
    # Constructions that do not read as English.
    r"\b(that|this) is no (promise|guarantee)\b": "there is no guarantee",
    r"\bwhat came out\b": "summary",
    r"\bwhat is done\b": "how it decides",
    r"\bas measured\b": "name the command",
    r"\bserving costs nothing\b": "you still serve one model",
    r"\b(is|are) another world\b": "a random seed of the simulated data",
    r"\bas far as they support( it)?\b": "only as much as these labels justify",
    r"\ba valid map ever raises\b": "if the map is right, the chance of ever raising a false alarm is at most 5%",
    r"\bleave half of the bias\b": "leave part of the error in place",
}
#: For the pages of the site.
ON_PAGES = {
    r"(?<![\w.,;)\]/\\-])\.\d": "a digit before the decimal point",
    r"\d%? ± ?\d": "an interval such as +13% to +28%, or (standard error 0.2%)",
}
#: Checks of proselint that mistake tables and file names for prose.
NOT_CHECKED = {"dates_times": False, "lexical_illusions": False, "misc.capitalization": False, "typography": False}


def files() -> list[Path]:
    """Return the files to read."""
    written = ("_build", "gallery", "reference/commands")
    pages = [
        path for path in (ROOT / "docs").rglob("*.md") if not str(path.relative_to(ROOT / "docs")).startswith(written)
    ]
    return [*ROOT.glob("*.md"), *pages, *(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.jinja")]


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a file that are prose: no code blocks, and no names in backticks."""
    fence, hidden = "", False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if path.suffix == ".md":
            mark = re.match(r"(`{3,})", line)
            if hidden or line.startswith("<!-- "):
                hidden = "-->" not in line
                continue
            if mark and (not fence or line.startswith(fence)):
                fence = "" if fence else mark[1]
                continue
            if fence:
                continue
        elif not re.search("[a-z] [a-z]+ [a-z]", line):  # code, or too short to be a sentence
            continue
        yield number, re.sub(r"`[^`]*`|\]\([^)]*\)|<[^>]*>", "", line)


def findings() -> list[str]:
    """Return what is wrong, with its place."""
    found = []
    CheckRegistry().register_many(__register__)
    config = {**DEFAULT, "checks": DEFAULT["checks"] | NOT_CHECKED}
    for path in sorted(files()):
        rules = WORDS | (ON_PAGES if path.suffix == ".md" else {})
        for number, line in lines(path):
            for fault in LintFile("page", line).lint(config) if line and path.suffix == ".md" else ():
                found.append(f"{path.relative_to(ROOT)}:{number}: {fault.check_result.message}")
            for pattern, instead in rules.items():
                for match in re.finditer(pattern, line, re.I):
                    place = f"{path.relative_to(ROOT)}:{number}"
                    found.append(f"{place}: {match[0]!r}; write: {instead}")
    return found


if __name__ == "__main__":
    wrong = findings()
    print("\n".join(wrong) or "the prose is clean")
    sys.exit(bool(wrong))
