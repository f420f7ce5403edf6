"""Figures of pages and notebooks: drawing on matplotlib axes, one style, and SVG.

Figures are drawn in the light colors of ``page.css``. A page replaces these by their CSS variables, so that one
drawing serves light, dark and print, and a figure that is saved to a file is complete.
"""

from __future__ import annotations

import html
import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..text import share

if TYPE_CHECKING:
    import matplotlib.figure

    from ..metrics import Evaluation
    from ..metrics.measure import Bin

Chart: TypeAlias = "matplotlib.figure.Figure"
Evaluations: TypeAlias = "Sequence[tuple[str, Evaluation]]"  # with their names

STYLESHEET = resources.files(__package__).joinpath("page.css").read_text("utf-8")
#: Light and dark color by name.
COLORS: dict[str, tuple[str, str]] = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", STYLESHEET)
}  # fmt: skip
LIGHT = {name: light for name, (light, _) in COLORS.items()}
#: Series of the observed outcomes, which belong to no method.
OBSERVED = -1
#: Look of a reference line.
REFERENCE: dict[str, Any] = {"lw": 1.2, "ls": (0, (4, 3)), "zorder": 1}

_FONT_SIZE = 12
_SERIES = [name for name in COLORS if re.fullmatch(r"s\d", name)]
_DASHES = ("-", "-", (0, (7, 3)), (0, (2, 3)), (0, (9, 3, 2, 3)), (0, (4, 2)), (0, (12, 4)))
_MARKERS = ("o", "s", "^", "D", "v", "P", ">")
# Quiet axes, a light grid, no frame. One unit of a drawing is one pixel.
_STYLE = {
    "figure.dpi": 72, "figure.facecolor": LIGHT["paper"], "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.08, "figure.constrained_layout.w_pad": 0.08,
    "font.family": "DejaVu Sans", "font.size": _FONT_SIZE, "text.color": LIGHT["ink"], "text.parse_math": False,
    "axes.facecolor": "none", "axes.labelcolor": LIGHT["muted"], "axes.labelpad": 8, "axes.axisbelow": True,
    "axes.spines.left": False, "axes.spines.right": False, "axes.spines.top": False, "axes.spines.bottom": False,
    "axes.grid": True, "axes.grid.axis": "y", "grid.color": LIGHT["grid"], "grid.linewidth": 1,
    "axes.titlelocation": "left", "axes.titlesize": _FONT_SIZE + 1, "axes.titleweight": "bold",
    "xtick.color": LIGHT["muted"], "ytick.color": LIGHT["muted"], "xtick.major.size": 0, "ytick.major.size": 0,
    "xtick.major.pad": 7, "ytick.major.pad": 7, "lines.scale_dashes": False, "legend.frameon": False,
    "svg.fonttype": "none",
}  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """Size of a figure: for a desktop screen or paper, and for a phone."""

    width: int
    height: int  # of the axes
    wide: bool


class Dot(NamedTuple):
    """A value with its interval, on the line of a name."""

    name: str
    series: int
    value: float
    low: float
    high: float


WIDE = Frame(width=720, height=300, wide=True)
NARROW = Frame(width=340, height=250, wide=False)
_MARGIN = 55  # height of an axis with its title


@contextmanager
def page_style() -> Iterator[None]:
    """Draw in the style of the page, whatever the settings of the user are."""
    import matplotlib.style

    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the reader's browser has other fonts
        yield


def color_name(series: int) -> str:
    """Return the name of the color of a series; colors repeat after the last one."""
    return "ink" if series == OBSERVED else _SERIES[series % len(_SERIES)]


def style_of(series: int) -> dict[str, Any]:
    """Return color, dash and marker of a series for `Axes.plot`; series of the same color differ in the others."""
    turn = 0 if series == OBSERVED else series + series // len(_SERIES)
    dash, marker = _DASHES[turn % len(_DASHES)], _MARKERS[turn % len(_MARKERS)]
    return {"color": LIGHT[color_name(series)], "lw": 2, "ls": dash, "marker": marker, "ms": 6.5, "mew": 0}


def axes_of(frame: Frame, *heights: int, columns: int = 1) -> tuple[Chart, list[Any]]:
    """Return an empty figure of the frame's width and its axes: one row for each of the heights."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(frame.width / 72, sum(height + _MARGIN for height in heights) / 72))
    return figure, list(figure.subplots(len(heights), columns, squeeze=False).flat)


# ---------------------------------------------------------------------------- text

# Characters that XML 1.0 does not allow, and the minus sign of a number.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")


def clean(value: object) -> str:
    r"""Return text without characters that XML does not allow, and with the minus sign of print.

    >>> clean("a\x00b\ud800\tλ"), clean("2026-11-15: -4% (-5% to +1%)")
    ('a�b�\tλ', '2026-11-15: −4% (−5% to +1%)')
    """
    return _MINUS.sub("−", _NOT_XML.sub("�", str(value)))


def short(name: str, limit: int = 22) -> str:
    """Shorten a name for a chart: keep both ends, on one line.

    >>> short("a-very-long-name-of-a-map.json", 15)
    'a-very-…ap.json'
    """
    name = " ".join(clean(name).split())
    head = (limit - 1) // 2
    return name if len(name) <= limit else f"{name[:head]}…{name[head + 1 - limit :]}"


# ---------------------------------------------------------------------------- axes


def signed_percent(value: float, _: object = None) -> str:
    """Format a tick of an error.

    >>> signed_percent(0.1), signed_percent(-0.025), signed_percent(0.0)
    ('+10%', '−2.5%', '0%')
    """
    text = f"{100 * value:+.6g}%" if abs(value) > 1e-12 else "0%"
    return text.replace("-", "−")


def plain(value: float, _: object = None) -> str:
    """Format a tick of a number.

    >>> plain(1250000.0), plain(-0.1)
    ('1,250,000', '−0.1')
    """
    return f"{value:,.7g}".replace("-", "−")


def domain_of(values: Sequence[float], *, zero: bool = False) -> tuple[float, float]:
    """Return the range of an axis with a margin; it includes 0 if `zero`, or if the values span much of the way to it.

    >>> domain_of([0.1, 1.0]), domain_of([-3.0, -2.0])
    ((0.0, 1.06), (-3.06, -1.94))
    """
    low, high = min(values), max(values)
    if zero or 0 < low < 0.25 * high:
        low, high = min(low, 0.0), max(high, 0.0)
    margin = max(0.06 * (high - low), 0.01 * max(abs(low), abs(high))) or 1.0  # the fifth digit is not drawn
    return low - margin * (low != 0), high + margin


def set_ticks(axis: Any, ticks: int, labels: Callable[..., str]) -> None:
    """Put about so many ticks at round numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(labels)


def set_log_percent(ax: Any) -> None:
    """Put ticks at 1, 2 and 5 percent, their tenths and so on, on two log axes of probabilities."""
    for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        digits = (1, 2, 5) if high < 300 * low else (1,)
        ticks = [digit * 10.0**power for power in decades for digit in digits]
        axis.set_ticks([tick for tick in ticks if low <= tick <= high])
        axis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    ax.minorticks_off()


def set_labels(ax: Any, ticks: Sequence[float], labels: Sequence[str]) -> None:
    """Put ticks on the horizontal axis; a label that would touch the one before it is left out."""
    ax.autoscale_view()  # else limits are found when the figure is drawn
    places = ax.transData.transform([(tick, 0.0) for tick in ticks])[:, 0] * 72 / ax.figure.dpi
    end, shown = -math.inf, []
    for place, label in zip(places, labels, strict=True):
        half = 0.33 * _FONT_SIZE * len(label)
        shown.append(label if place - half > end + 5 else "")
        end = place + half if shown[-1] else end
    ax.set_xticks(ticks, shown)


def add_legend(ax: Any) -> None:
    """Name the series of the axes above the figure, which grows by the height of the names."""
    handles, labels = ax.get_legend_handles_labels()
    columns = max(1, int(ax.figure.get_figwidth() * 72 // 170))
    ax.figure.set_figheight(ax.figure.get_figheight() + 0.25 * math.ceil(len(labels) / columns))
    ax.figure.legend(handles, list(map(short, labels)), loc="outside upper left", ncols=columns)


# ---------------------------------------------------------------------------- marks


def draw_errors(ax: Any, evaluations: Evaluations, *, names: bool = False) -> None:
    """Draw the calibration errors of each evaluation as a line with markers and a band, by selected share.

    The shares are on a log scale if they span much. With `names`, each line has its name at its end.
    """
    drawn = [(i, name, errors) for i, (name, one) in enumerate(evaluations) if (errors := errors_of(one))]
    shares = sorted({alpha for _, _, errors in drawn for alpha, *_ in errors})
    _draw_zero(ax.yaxis, [end for _, _, errors in drawn for _, *ends in errors for end in ends])
    ax.set(xlabel="share of the rows that is selected")
    for text, end, side in (("↑ too high", 1.0, "top"), ("↓ too low", 0.0, "bottom")):
        ax.annotate(text, (0.005, end), xycoords="axes fraction", va=side, color=LIGHT["muted"])
    if shares[-1] > 8 * shares[0]:
        ax.set_xscale("log")
    ax.margins(x=0.03)
    lasts = []
    for series, name, errors in drawn:
        style = style_of(series)
        alphas, values, low, high = zip(*sorted(errors), strict=True)
        ax.fill_between(alphas, low, high, color=style["color"], alpha=0.14, lw=0)
        ax.plot(alphas, values, **style, label=name or None)
        lasts.append((values[-1], short(name), style["color"]))
    ax.minorticks_off()
    set_labels(ax, shares, [share(alpha) for alpha in shares])
    if names:
        low, high = ax.get_ylim()
        step = (high - low) * (_FONT_SIZE + 4) / (72 / ax.figure.dpi * ax.bbox.height)
        place = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points", "annotation_clip": False}
        end = -math.inf
        for value, name, color in sorted(lasts):
            end = max(value, end + step)
            ax.annotate(name, (1, end), xytext=(4, 0), va="center", color=color, weight="bold", **place)


def errors_of(evaluation: Evaluation) -> list[tuple[float, ...]]:
    """Return share, calibration error and the ends of its interval for each selection with a positive label."""
    errors = [(row.alpha, row.calibration_error) for row in evaluation.rows if row.observed > 0]
    return [(alpha, float(error), *error.interval) for alpha, error in errors]


def _draw_zero(axis: Any, ends: Sequence[float]) -> None:
    """Prepare an axis of calibration errors, which includes zero, and draw a line there."""
    axis.axes.set(**{f"{axis.axis_name}label": "calibration error", f"{axis.axis_name}lim": domain_of(ends, zero=True)})
    set_ticks(axis, 6, signed_percent)
    line = axis.axes.axhline if axis.axis_name == "y" else axis.axes.axvline
    line(0, color=LIGHT["ink"], lw=1.2, zorder=1)


def dots_figure(dots: Sequence[Dot], series: Sequence[str], height: int, frame: Frame) -> Chart:
    """Return calibration errors as dots: a line of this height for each name, where series differ by color."""
    figure, (ax,) = axes_of(frame, 40 + height * len({dot.name for dot in dots}))
    draw_dots(ax, dots, series)
    _draw_zero(ax.xaxis, [end for dot in dots for end in (dot.value, dot.low, dot.high)])
    if any(series):
        add_legend(ax)
    return figure


def draw_dots(ax: Any, dots: Sequence[Dot], series: Sequence[str]) -> None:
    """Draw values with their intervals on a line for each name; dots of a line differ by series, which have names."""
    places = {name: place for place, name in enumerate(dict.fromkeys(dot.name for dot in dots))}
    apart = 0.0 if len(places) == len(dots) else min(0.5 / len(series), 0.22)
    ax.set(ylim=(len(places) - 0.5, -0.5))
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    limit = 22 if ax.figure.get_figwidth() * 72 > NARROW.width else 13
    ax.set_yticks(range(len(places)), [short(name, limit) for name in places], color=LIGHT["ink"])
    labels = dict(enumerate(series))
    for dot in dots:
        style = style_of(dot.series)
        place = places[dot.name] + apart * (dot.series - (len(series) - 1) / 2)
        ax.plot([dot.low, dot.high], [place, place], color=style["color"], lw=2)
        ax.plot([dot.value], [place], **{**style, "ls": ""}, label=labels.pop(dot.series, None) or None)


def draw_reliability(ax: Any, series: int, name: str, bins: Sequence[Bin]) -> None:
    """Draw observed rates against mean predictions of bins, with their intervals, and the diagonal."""
    style, x = style_of(series), [one.predicted for one in bins]
    ax.plot(x, [one.observed for one in bins], **{**style, "ls": ""}, label=name or None)
    ax.vlines(x, *zip(*(one.interval for one in bins), strict=True), color=style["color"], lw=1.5)
    ax.axline((0, 0), slope=1, color=LIGHT["rule"], **REFERENCE)


# ---------------------------------------------------------------------------- SVG

_OWN_STYLE = re.compile(r"<defs>\s*<style.*?</defs>", re.DOTALL)  # it would apply to the whole page
_MANY_DIGITS = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
_HEX = re.compile("#[0-9a-f]{6}")
_VARIABLES = {light: f"var(--{name})" for name, light in LIGHT.items()}


def inline_svg(figure: Chart, *, name: str, label: str, kind: str) -> str:
    """Return the figure as an element of a page: it scales, and its colors are variables. Its ids depend on `name`."""
    import matplotlib

    def inside(tag: re.Match[str]) -> str:
        text = re.sub(r'(?<=<g) id="[^"]*"', "", tag.group()).replace("\n", "").replace("xlink:href", "href")
        text = _HEX.sub(lambda found: _VARIABLES.get(found.group(), found.group()), text)
        return _MANY_DIGITS.sub(lambda found: f"{float(found.group()):.2f}", text)

    file = io.StringIO()
    with page_style(), matplotlib.rc_context({"svg.hashsalt": name + kind}):
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", dpi=72, transparent=True, metadata=metadata)
    text = file.getvalue()
    width, height = (72 * inches for inches in figure.get_size_inches())
    start = (
        f'<svg class="figure {kind}" role="img" aria-label="{html.escape(clean(label))}" viewBox="0 0 {width:g} '
        f'{height:g}" style="--drawn:{width:g}px" stroke-linejoin="round">'
    )
    content = _OWN_STYLE.sub("", text[text.index(">", text.index("<svg")) + 1 :])
    return start + re.sub("<[^>]*>", inside, content)
