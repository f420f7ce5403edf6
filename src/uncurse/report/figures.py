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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeAlias

from ..text import interval
from .prose import clean, share, short

if TYPE_CHECKING:
    import matplotlib.figure

    from ..metrics import Evaluation
    from ..metrics.measure import Bin

Chart: TypeAlias = "matplotlib.figure.Figure"
Rows = Sequence[Mapping[str, Any]]

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


def draw_errors(ax: Any, rows: Rows, *, names: bool = False) -> None:
    """Draw a line with markers and a band for each series of calibration errors, by selected share.

    Rows have keys "series", "name", "alpha", "value", "low" and "high". The shares are on a log scale if they span
    much. With `names`, each line has its name at its end.
    """
    shares = sorted({row["alpha"] for row in rows})
    _draw_zero(ax.yaxis, rows)
    ax.set(xlabel="share of the rows that is selected")
    ax.axhline(0, color=LIGHT["ink"], lw=1.2, zorder=1)
    for text, end, side in (("↑ too high", 1.0, "top"), ("↓ too low", 0.0, "bottom")):
        ax.annotate(text, (0.005, end), xycoords="axes fraction", va=side, color=LIGHT["muted"])
    if shares[-1] > 8 * shares[0]:
        ax.set_xscale("log")
    ax.margins(x=0.03)
    lasts = []
    for series in sorted({row["series"] for row in rows}):
        own = sorted((row for row in rows if row["series"] == series), key=lambda row: row["alpha"])
        style = style_of(series)
        alphas, values, low, high = ([row[key] for row in own] for key in ("alpha", "value", "low", "high"))
        ax.fill_between(alphas, low, high, color=style["color"], alpha=0.14, lw=0)
        ax.plot(alphas, values, **style, label=own[0]["name"] or None)
        lasts.append((values[-1], short(own[0]["name"]), style["color"]))
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


def _draw_zero(axis: Any, rows: Rows) -> None:
    """Prepare an axis of calibration errors, which includes zero."""
    ends = [row[key] for row in rows for key in ("value", "low", "high")]
    axis.axes.set(**{f"{axis.axis_name}label": "calibration error", f"{axis.axis_name}lim": domain_of(ends, zero=True)})
    set_ticks(axis, 6, signed_percent)


def draw_dots(ax: Any, rows: Rows) -> None:
    """Draw calibration errors with their intervals on a line for each "name".

    Rows are as in `draw_errors`, without a share. Those of a line differ by "series", and have the key "label" with its
    name.
    """
    places = {name: place for place, name in enumerate(dict.fromkeys(row["name"] for row in rows))}
    series = list(dict.fromkeys(row["series"] for row in rows))
    apart = 0.0 if len(places) == len(rows) else min(0.5 / len(series), 0.22)
    _draw_zero(ax.xaxis, rows)
    ax.set(ylim=(len(places) - 0.5, -0.5))
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    limit = 22 if ax.figure.get_figwidth() * 72 > NARROW.width else 13
    ax.set_yticks(range(len(places)), [short(name, limit) for name in places], color=LIGHT["ink"])
    ax.axvline(0, color=LIGHT["ink"], lw=1.2, zorder=1)
    labels: set[str] = set()
    for row in rows:
        style, label = style_of(row["series"]), row.get("label")
        place = places[row["name"]] + apart * (series.index(row["series"]) - (len(series) - 1) / 2)
        ax.plot([row["low"], row["high"]], [place, place], color=style["color"], lw=2)
        ax.plot([row["value"]], [place], **{**style, "ls": ""}, label=None if label in labels else label)
        labels |= {label} if label else set()


def draw_reliability(ax: Any, rows: Rows) -> None:
    """Draw observed rates against mean predictions of bins, with their intervals, and the diagonal."""
    style = style_of(rows[0]["series"])
    x, y, low, high = ([row[key] for row in rows] for key in ("predicted", "observed", "low", "high"))
    ax.plot(x, y, **{**style, "ls": ""}, label=rows[0]["name"] or None)
    ax.vlines(x, low, high, color=style["color"], lw=1.5)
    ax.axline((0, 0), slope=1, color=LIGHT["rule"], **REFERENCE)


# ---------------------------------------------------------------------------- evaluations as rows


def error_rows(evaluations: Iterable[tuple[str, Evaluation]]) -> list[dict[str, Any]]:
    """Return the calibration error of each selection with its 95% interval, as `draw_errors` takes them."""
    rows = []
    for series, (name, evaluation) in enumerate(evaluations):
        for one in evaluation.rows:
            low, high = one.calibration_error.interval
            ends = {"value": float(one.calibration_error), "low": low, "high": high}
            rows.append({"series": series, "name": name, "alpha": one.alpha, **ends})
    return rows


def bin_rows(series: int, name: str, bins: Iterable[Bin]) -> list[dict[str, Any]]:
    """Return bins with the 95% intervals of their observed rates, as `draw_reliability` takes them."""
    rows = []
    for one in bins:
        low, high = interval(one.observed, one.standard_error)
        ends = {"low": max(low, 0.0), "high": min(high, 1.0)}
        rows.append({"series": series, "name": name, **vars(one), **ends})
    return rows


def error_figure(rows: Rows, frame: Frame) -> Chart:
    """Return calibration errors by share; if there is one share, as dots."""
    single = len({row["alpha"] for row in rows}) == 1
    figure, (ax,) = axes_of(frame, 30 * len(rows) if single else frame.height)
    if single:
        draw_dots(ax, rows)
    else:
        draw_errors(ax, rows, names=frame.wide)
    if not single and not frame.wide:
        add_legend(ax)
    return figure


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
