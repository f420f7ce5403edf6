"""Facts that are written in several files agree."""

import re
import tomllib
from pathlib import Path

from packaging.version import Version

from uncurse.version import __version__

ROOT = Path(__file__).parents[1]


def test_the_citation_names_this_version():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_changelog_has_a_section_for_this_version():
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_files_that_contributing_names_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    names = {word for word in text.split("`") if "/" in word and " " not in word}
    missing = [name for name in names if not any((ROOT / base / name).exists() for base in ("", "src/uncurse"))]
    assert not missing


def test_the_oldest_packages_are_the_lower_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    bounds = [*project["dependencies"], *extras["duckdb"], *extras["plot"], *extras["report"]]
    pins = dict(re.findall(r"(?m)^([\w.-]+)==(\S+)$", (ROOT / "constraints-oldest.txt").read_text().lower()))
    wrong = [bound for bound in bounds if Version(pins[bound.split(">=")[0]]) != Version(bound.split(">=")[1])]
    assert not wrong
