"""Facts that are written in several files agree."""

from pathlib import Path

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
