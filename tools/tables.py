"""Turn the tables of Markdown that a command wrote into one CSV file: ``python -m tools.tables R.md OUT.csv``.

A line of the file is one cell: the heading above its table, the title of the table, its row (the first column, and the
other columns of text as `detail`), its column, and what it holds: a value, a standard error, a root mean square error
and the figure of the paper. ``--without TEXT`` leaves out lines in which a field is the text.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterator
from pathlib import Path

COLUMNS = ("section", "table", "row", "detail", "column", "value", "standard_error", "rms", "paper")
_NUMBER = r"[+−-]?\d*\.?\d+(?:[eE][+-]?\d+)?"
_CELL = re.compile(
    rf"(?P<value>{_NUMBER})?%?"
    rf"(?: ?\((?:{_NUMBER}/)?(?P<standard_error>{_NUMBER})%?\))?"  # of two, the second is between worlds
    rf"(?: +(?P<rms>{_NUMBER}))?"
    rf"(?: \[(?P<paper>{_NUMBER})\])?\*?"
)


def cell(text: str) -> dict[str, str]:
    """Return what a cell holds; one that is not a number, as it is.

    >>> cell("-0.23 (0.40/0.68) [-0.44]"), cell("+0.06 (0.08) 0.54*")
    ({'value': '-0.23', 'standard_error': '0.68', 'paper': '-0.44'}, {'value': '0.06', 'standard_error': '0.08', 'rms': '0.54'})
    """  # noqa: E501
    found = _CELL.fullmatch(text)
    if not found:
        return {"value": _plain(text)}
    return {name: _plain(number).lstrip("+") for name, number in found.groupdict().items() if number}


def _plain(text: str) -> str:
    return re.sub(r"(?<![\d.])\.(?=\d)", "0.", text.replace("−", "-").replace("`", "").replace("**", ""))


def lines(text: str) -> Iterator[dict[str, str]]:
    """Yield the cells of all tables; columns of text have ``:--`` below their names, or are the first."""
    section = title = ""
    header: list[str] = []
    keys = 0
    for line in text.splitlines():
        if line.startswith("##"):
            section, title = line.lstrip("# "), ""
        elif line.startswith("**") and line.endswith("**"):
            title = line.strip("*")
        if not line.startswith("|"):
            header = []
            continue
        row = [part.strip().replace("\\*", "*").strip("*") for part in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not header:
            header = row
        elif set(line) <= set("|:- "):
            keys = max(1, sum(part == ":--" for part in row))
        else:
            place = {
                "section": section,
                "table": title,
                "row": row[0].replace("`", ""),
                "detail": "; ".join(row[1:keys]),
            }
            for name, content in zip(header[keys:], row[keys:], strict=True):
                if content:
                    yield {**place, "column": name.replace("`", ""), **cell(content)}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--without", action="append", default=[])
    args = parser.parse_args()
    found = [line for line in lines(args.source.read_text("utf-8")) if not set(line.values()) & set(args.without)]
    with args.target.open("w", encoding="utf-8", newline="") as stream:
        # Columns that are empty in the whole file are left out.
        used = [name for name in COLUMNS if any(line.get(name) for line in found)]
        writer = csv.DictWriter(stream, used, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    print(f"{args.target}: {len(found):,} cells")


if __name__ == "__main__":
    main()
