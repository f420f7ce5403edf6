"""Record ``uncurse demo`` as an animated SVG: ``python -m tools.recording docs/demo.svg``.

The terminal scrolls through the whole output. Where a reader prefers no motion, it shows the end.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

COLUMNS, ROWS = 100, 26
_LINE, _WIDTH, _PAD = 18, 7.23, 18  # height of a line and width of a character, in pixels; margin
_OUTPUT, _COMMAND, _TRAINING = 0.12, 1.2, 2.0  # seconds after a line
_STYLE = (
    "text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e8eaed;"
    "white-space:pre}.c{fill:#79b5f7;font-weight:700}.b{fill:#f28e63}"
)


def record() -> str:
    """Run the demo in an empty folder, and return what a terminal shows."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "uncurse", "demo"]
        options = {**os.environ, "COLUMNS": str(COLUMNS)}
        output = subprocess.run(command, cwd=folder, env=options, check=True, capture_output=True, text=True).stdout
    return shown(output)


def shown(output: str) -> str:
    """Return the command and its output, without the times and paths of this machine."""
    output = re.sub(r"file://\S*/(uncurse-demo)", r"\1", re.sub(r"\(\d+ s\. ", "(", output))
    return "$ uncurse demo\n\n" + output.rstrip()


def draw(output: str) -> str:
    """Return the recording as SVG. Long lines continue on the next one, as on a terminal."""
    lines = [
        (line[start : start + COLUMNS], _class(line))
        for line in output.splitlines()
        for start in range(0, max(len(line), 1), COLUMNS)
    ]
    moments, duration = [], 0.0
    for line, _ in lines:
        moments.append(duration)
        duration += _COMMAND if line.startswith("$ ") else _TRAINING if line.startswith("Training") else _OUTPUT
    shown = len(lines)
    first = max(shown - ROWS, 0)
    cover = _frames("cover", moments, duration, [i * _LINE for i in range(1, shown + 1)])
    scroll = _frames("scroll", moments, duration, [-max(i - ROWS, 0) * _LINE for i in range(1, shown + 1)])
    width, height = round(COLUMNS * _WIDTH + 2 * _PAD), ROWS * _LINE + 2 * _PAD + 16
    # Afterwards, and without motion, the end is shown and nothing covers it.
    style = (
        f"{_STYLE}#s{{transform:translateY({-first * _LINE}px)}}#k{{transform:translateY({shown * _LINE}px)}}"
        f"@media(prefers-reduced-motion:no-preference){{#s{{animation:scroll {duration:.1f}s step-end}}"
        f"#k{{animation:cover {duration:.1f}s step-end}}}}{cover}{scroll}"
    )
    rows = "".join(
        f'<text{name} x="0" y="{i * _LINE + 13}">{html.escape(line, quote=False)}</text>'
        for i, (line, name) in enumerate(lines)
        if line.strip()
    )
    dots = "".join(f'<circle cx="{16 + 16 * i}" cy="15" r="5" fill="#3a424d"/>' for i in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="A recording of uncurse demo: it makes logs, fits a correction and measures it"><style>{style}'
        f'</style><rect width="{width}" height="{height}" rx="8" fill="#14171b"/>{dots}'
        f'<svg x="{_PAD}" y="{_PAD + 12}" width="{width - 2 * _PAD}" height="{ROWS * _LINE}"><g id="s">{rows}'
        f'<rect id="k" x="-4" width="{width}" height="{shown * _LINE}" fill="#14171b"/></g></svg></svg>\n'
    )


def _frames(name: str, moments: Sequence[float], duration: float, offsets: Sequence[int]) -> str:
    steps, last = [], None
    for moment, offset in zip(moments, offsets, strict=True):
        if offset != last:
            steps.append(f"{100 * moment / duration:.2f}%{{transform:translateY({offset}px)}}")
        last = offset
    return f"@keyframes {name}{{{''.join(steps)}}}"


def _class(line: str) -> str:
    marks = {"$ ": "c", "On the top": "b"}
    return next((f' class="{name}"' for start, name in marks.items() if line.startswith(start)), "")


def words(svg: str) -> str:
    """Return the words of a recording, without the numbers: to find out whether it is stale.

    >>> words(draw("$ uncurse demo\\n top 1%: +23.8%  ███"))
    '$ uncurse demo top #%: #%'
    """
    text = " ".join(html.unescape(line) for line in re.findall(r"<text[^>]*>(.*?)</text>", svg))
    return " ".join(re.sub(r"[+-]?\d[\d.,]*", "#", re.sub("[█▏]", "", text)).split())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(record()), encoding="utf-8")
