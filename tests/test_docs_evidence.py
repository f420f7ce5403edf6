"""The charts of the evidence show the numbers of the CSV files beside them."""

import re

import pytest

pytest.importorskip("matplotlib", reason="the charts need matplotlib")

from benchmarks.charts import CHARTS, FOLDER, main
from tools.tables import lines


def marks(path):
    """The names on a chart, and how many marks it has."""
    text = path.read_text(encoding="utf-8")
    return re.findall(r">([^<>]+)</text>", text), len(re.findall("<use ", text))


def test_the_committed_charts_are_those_of_the_tables(tmp_path):
    main(tmp_path)
    for name in CHARTS:
        assert marks(FOLDER / f"{name}.svg") == marks(tmp_path / f"{name}.svg"), (
            "draw again: python -m benchmarks.charts"
        )


def test_every_file_and_chart_is_on_a_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in FOLDER.glob("*.md"))
    shown = [*FOLDER.glob("*.svg"), *FOLDER.glob("data/*.csv")]
    assert len(shown) > 15
    assert not [path.name for path in shown if f"({path.relative_to(FOLDER).as_posix()})" not in pages]


def test_a_table_of_a_command_becomes_a_line_for_each_cell():
    text = "## small\n\n| α | method | VAD+ |\n| :-- | :-- | --: |\n| 2% | Platt | -0.23 (0.40) 0.54 [-0.44] |\n"
    (line,) = lines(text)
    place = {"section": "small", "table": "", "row": "2%", "detail": "Platt", "column": "VAD+"}
    assert line == {**place, "value": "-0.23", "standard_error": "0.40", "rms": "0.54", "paper": "-0.44"}
