"""One look for every figure: colours, dashes and shapes of the series, sizes, and the Vega-Lite configuration.

Figures are drawn in the light colours. The page's style sheet answers to those very values (`[fill="#..."]`), so that
one drawing serves light, dark and print, and a figure saved to a file needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Light and dark of each role. Every series has a contrast above 4.5 on either background; as no seven colours are
# told apart by everyone, a series also has its own dash and shape, and its name at the end of its line.
INK = ("#1b1f24", "#e8eaed")
MUTED = ("#5b6470", "#a3acb8")
GRID = ("#e6e8eb", "#2a3038")
RULE = ("#8b95a1", "#79838f")
FLOOR = ("#c9ced6", "#4a525d")
PAPER = ("#ffffff", "#14171b")
SERIES = (
    ("#b5431c", "#f28e63"),
    ("#1a62b3", "#79b5f7"),
    ("#0d7a66", "#4dc9ae"),
    ("#7b4aa8", "#c3a0f0"),
    ("#87680a", "#dcb84a"),
    ("#b52f79", "#f08bc2"),
    ("#46505c", "#b4bec9"),
)
DASHES: tuple[list[int], ...] = ([1, 0], [1, 0], [7, 3], [2, 3], [9, 3, 2, 3], [4, 2], [12, 4])
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right")

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"


@dataclass(frozen=True)
class Frame:
    """The room a figure has: for a desk or paper, and for a phone."""

    width: int
    height: int
    wide: bool
    font_size: int = 12


WIDE = Frame(width=720, height=300, wide=True)
NARROW = Frame(width=340, height=250, wide=False)


def color(series: int) -> str:
    """The light colour of a series; beyond the last they begin again, with another dash."""
    return SERIES[series % len(SERIES)][0]


def dash(series: int) -> list[int]:
    """The dash of a series."""
    return DASHES[(series + series // len(SERIES)) % len(DASHES)]


def shape(series: int) -> str:
    """The point of a series."""
    return SHAPES[(series + series // len(SERIES)) % len(SHAPES)]


def config(frame: Frame) -> dict[str, Any]:
    """Vega-Lite configuration: quiet axes, a light grid, no frame."""
    size = frame.font_size
    axis = {
        "domain": False,
        "ticks": False,
        "gridColor": GRID[0],
        "labelColor": MUTED[0],
        "titleColor": MUTED[0],
        "labelFontSize": size,
        "titleFontSize": size,
        "titleFontWeight": "normal",
        "labelPadding": 7,
        "titlePadding": 10,
        "labelFlush": False,
    }
    return {
        "font": FONT,
        "background": PAPER[0],
        "padding": 6,
        "view": {"stroke": None},
        "axis": axis,
        "text": {"fontSize": size, "color": INK[0]},
        "title": {"fontSize": size + 1, "fontWeight": 600, "color": INK[0], "anchor": "start", "offset": 8},
    }


__all__ = [
    "DASHES", "FLOOR", "FONT", "GRID", "INK", "MUTED", "NARROW", "PAPER", "RULE", "SERIES", "SHAPES", "WIDE", "Frame",
    "color", "config", "dash", "shape",
]  # fmt: skip
