"""Draw the charts of docs/results from the CSV files beside them: ``python -m benchmarks.charts``.

The charts have the style of the report. An SVG follows the light or dark mode of the reader.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uncurse.report.figures import LIGHT, Chart, Frame, axes_of, page_style
from uncurse_lab.render import draw_heat_map, standalone_svg

FOLDER = Path(__file__).parents[1] / "docs" / "results"
PLAIN, OURS, OTHER = LIGHT["s0"], LIGHT["s1"], LIGHT["s6"]
Line = dict[str, str]
_T = {5: 2.776, 10: 2.262, 20: 2.093}  # Student's 97.5% quantiles for so many repetitions
FRAME = Frame(width=560, height=300, wide=True)  # so that a phone can show it


@dataclass(frozen=True)
class Marks:
    """A mark for each row, None where there is none, and half the width of each interval."""

    values: Sequence[float | None]
    color: str = OURS
    marker: str = "o"
    name: str = ""  # in the legend
    halves: Sequence[float] = ()
    shift: float = 0.0  # down from the middle of the row
    filled: bool = True


def read(name: str) -> list[Line]:
    """Read a table, one dictionary for each of its lines."""
    with (FOLDER / "data" / f"{name}.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def cells(lines: Sequence[Line], **place: str) -> dict[tuple[str, str], Line]:
    """Return the cells of a table by row and column."""
    return {(line["row"], line["column"]): line for line in lines if place.items() <= line.items()}


def intervals_of(lines: Sequence[Line], repetitions: int) -> tuple[list[float | None], list[float]]:
    """Return values, and half the widths of their 95% intervals."""
    errors = [_T[repetitions] * float(line["standard_error"]) for line in lines]
    return [float(line["value"]) for line in lines], errors


def draw_rows(
    ax: Any, names: Sequence[str], series: Sequence[Marks], xlabel: str, form: Any = None, line: float | None = None
) -> None:
    """Draw marks in named rows, from top to bottom, with a vertical line at a value."""
    for marks in series:
        rows = [row + marks.shift for row in range(len(names))]
        for row, value, half in zip(rows, marks.values, marks.halves, strict=False):
            if value is not None:
                ax.plot([value - half, value + half], [row, row], color=marks.color, lw=2, solid_capstyle="round")
        kept = [(value, row) for value, row in zip(marks.values, rows, strict=True) if value is not None]
        style = {"ms": 8, "mew": 1.5, "mfc": None if marks.filled else "none", "label": marks.name or None}
        ax.plot(*zip(*kept, strict=True), marks.marker, color=marks.color, **style)
    if line is not None:
        ax.axvline(line, color=LIGHT["ink"], lw=1.2, zorder=1)
    if form is not None:
        ax.xaxis.set_major_formatter(form)
    ax.set_yticks(range(len(names)), names, color=LIGHT["ink"])
    ax.set(ylim=(len(names) - 0.4, -0.6), xlabel=xlabel)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")


def legend(figure: Chart, ax: Any, columns: int = 6) -> None:
    """Name the marks above the figure."""
    handles = ax.get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=columns, handletextpad=0.1, columnspacing=1.2)


def log_ticks(ax: Any, values: Sequence[int], unit: str) -> None:
    """Mark values on a logarithmic axis."""
    ax.set_xscale("log")
    ax.set_xticks(values, [f"{value}{unit}" for value in values])
    ax.minorticks_off()


def percent(value: float, _: object = None) -> str:
    """Format a tick."""
    return f"{value:g}%".replace("-", "−")


def signed(value: float, _: object = None) -> str:
    """Format a tick of an error."""
    return (f"{value:+g}%" if value else "0%").replace("-", "−")


# ---------------------------------------------------------------------------- charts


def real_logs() -> Chart:
    """Root mean square error on the top of real logs, for four methods: the mean over the logs."""
    table, errors = "pool and test thinned by the score of lightgbm", defaultdict(list)
    for file in sorted((FOLDER / "data").glob("real-*.csv")):
        for (model, column), line in cells(read(file.stem), table=table).items():
            if column in ("plain", "isotonic", "Platt", "uncursed", "floor"):
                errors[model, column].append(float(line["value"]))
    found = list(dict.fromkeys(model for model, _ in errors))
    figure, (ax,) = axes_of(FRAME, 44 * len(found) + 20)
    for y, model in enumerate(found):
        floor = float(np.mean(errors[model, "floor"]))
        ax.plot([floor, floor], [y - 0.3, y + 0.3], color=LIGHT["rule"], lw=3, label=None if y else "label noise")
    looks = {"plain": (PLAIN, "s", "as served"), "isotonic": (OTHER, "D", "isotonic"),
             "Platt": (OTHER, "^", "Platt"), "uncursed": (OURS, "o", "uncursed")}  # fmt: skip
    series = [Marks([float(np.mean(errors[model, name])) for model in found], *look) for name, look in looks.items()]
    log_ticks(ax, [1, 2, 5, 10, 20, 50, 100], "%")
    draw_rows(ax, found, series, "rms error on the top 1% to 10%, mean over the logs")
    legend(figure, ax)
    return figure


METHODS = {
    "vanilla": "as served", "auto": "Auto", "platt": "Platt", "isotonic": "isotonic", "platt + VAD": "Platt + VAD",
    "VAD curved S=3": "VAD, curved", "monotone S=3": "VAD, monotone", "labels S=3": "labels",
}  # fmt: skip


def simulations() -> Chart:
    """Root mean square error relative to the oracle, settings down, methods across."""
    lines = read("simulations")
    settings = list(dict.fromkeys(line["section"] for line in lines))
    values = []
    for setting in settings:
        by = cells(lines, section=setting)
        oracle = float(by["oracle", "2%"]["rms"])
        values.append([float(by[name, "2%"]["rms"]) / oracle if (name, "2%") in by else math.nan for name in METHODS])
    figure, (ax,) = axes_of(FRAME, 26 * len(settings) + 20)
    draw_heat_map(ax, settings, list(METHODS.values()), values)
    return figure


def paper() -> Chart:
    """Calibration error of each method alone and with VAD, here and in the paper."""
    lines = [line for line in read("criteo-five-logs") if line["table"] == "Calibration error, % (main text)"]
    by = {(line["detail"], line["column"]): line for line in lines if line["row"] == "10%"}
    methods = [name for name, column in by if column == "Original" and by[name, column]["paper"]]
    series = []
    for column, color, shift, name in (("Original", PLAIN, -0.13, "alone"), ("VAD+", OURS, 0.13, "with VAD")):
        own = [by[method, column] for method in methods]
        values, halves = intervals_of(own, 5)
        series.append(Marks(values, color, "o", f"{name}, here", halves, shift))
        printed = [float(line["paper"]) for line in own]
        series.append(Marks(printed, color, "D", f"{name}, paper", shift=shift, filled=False))
    figure, (ax,) = axes_of(FRAME, 52 * len(methods))
    names = ["as served", *methods[1:]]
    draw_rows(ax, names, series, "calibration error on the top 10%, 95% intervals", signed, 0)
    legend(figure, ax)
    return figure


def auction() -> Chart:
    """Overcharge of each policy, by what the labels were."""
    by = cells(read("auction"), section="overcharge by labels")
    policies = ["as served", "one multiplier", "Platt", "isotonic", "VAD", "Platt + VAD", "labels", "Auto"]
    colors = {"as served": PLAIN, "Auto": OURS}
    figure, axes = axes_of(FRAME, 30 * len(policies), columns=2)
    titles = {"labels won": "labels: its own winners", "labels earlier": "labels: an earlier model's"}
    for ax, (column, title) in zip(axes, titles.items(), strict=True):
        values, halves = intervals_of([by[policy, column] for policy in policies], 10)
        series = [
            Marks([value if one == policy else None for one in policies], colors.get(policy, OTHER), halves=halves)
            for policy, value in zip(policies, values, strict=True)
        ]
        names = policies if ax is axes[0] else [""] * len(policies)
        draw_rows(ax, names, series, "overcharge, 95% intervals", signed, 0)
        ax.set(xlim=(-17, 27))
        ax.set_title(title)
    return figure


def speed() -> Chart:
    """How many times as fast as the fastest other library."""
    lines = read("speed")
    figure, (ax,) = axes_of(FRAME, 30 * len(lines))
    values = [float(line["times faster"]) for line in lines]
    for y, value in enumerate(values):
        ax.plot([1, value], [y, y], color=LIGHT["grid"], lw=6, solid_capstyle="butt", zorder=1)
        ax.annotate(f"{value:g} ×", (value, y), xytext=(9, 0), textcoords="offset points", va="center")
    log_ticks(ax, [1, 3, 10, 30, 100, 300], " ×")
    ax.set(xlim=(1, 500))
    calls = [line["call"] for line in lines]
    draw_rows(ax, calls, [Marks(values)], "times as fast as the fastest peer, 10 million rows")
    return figure


def monitoring() -> Chart:
    """False alarms within a year, and days to an alarm."""
    by = cells(read("monitoring"))
    names = {
        "uncurse monitor": "uncurse monitor", "5% test of each day": "5% test of each day",
        "5% test of all days so far": "5% test of all days", "the same, boundary for 5% a year": "simulated boundary",
    }  # fmt: skip
    figure, axes = axes_of(FRAME, 34 * len(names), columns=2)
    quantities = (
        ("false alarms of a valid map, one year", "years with a false alarm", percent, 130, 25),
        ("+5% from day 100 on, without an earlier alarm: median", "days to find +5% from day 100", "{x:g}", 30, 10),
    )
    for ax, (quantity, title, form, most, step) in zip(axes, quantities, strict=True):
        lines = [by[quantity, name] for name in names]
        values = [float(line["value"]) if line["standard_error"] else None for line in lines]
        for y, value in enumerate(values):
            if value is None:
                ax.annotate("false alarm before", (1, y), va="center", color=LIGHT["muted"])
            else:
                label = percent(value) if form is percent else f"{value:g}"
                ax.annotate(label, (value, y), xytext=(9, 0), textcoords="offset points", va="center")
        series = [Marks([values[0], None, None, None]), Marks([None, *values[1:]], OTHER)]
        draw_rows(ax, list(names.values()) if ax is axes[0] else [""] * len(names), series, title, form)
        ax.set(xlim=(-0.03 * most, most))
        ax.set_xticks(range(0, min(most, 100) + 1, step))
    return figure


def intervals() -> Chart:
    """How many of the 90% intervals contain the true error."""
    lines = [line for line in read("simulations") if line["column"] == "90% held"]
    settings = list(dict.fromkeys(line["section"] for line in lines))
    held = {(line["row"], line["section"]): float(line["value"]) for line in lines}
    series = [
        Marks([held.get((method, setting)) for setting in settings], color, marker, name)
        for method, color, marker, name in (("labels S=3", OTHER, "^", "labels"), ("auto", OURS, "o", "Auto"))
    ]
    figure, (ax,) = axes_of(FRAME, 26 * len(settings) + 20)
    draw_rows(ax, settings, series, "share of the 90% intervals that contain the true error", percent, 90)
    legend(figure, ax)
    return figure


def replicas() -> Chart:
    """Error of replica calibration with a checkpoint relative to that with a second training."""
    lines = [line for line in read("snapshots") if "divided" in line["section"]]
    by = cells(lines)
    experiments = list(dict.fromkeys(line["row"] for line in lines))
    names = [name.replace("the same, ", "Criteo, 4 million rows, ").replace("worlds", "logs") for name in experiments]
    series = []
    for column, color, shift in (("checkpoint at 80%", OURS, -0.12), ("at 90%", PLAIN, 0.12)):
        first, second = zip(*(map(float, by[one, column]["value"].split(", ")) for one in experiments), strict=True)
        name = f"checkpoint {column.removeprefix('checkpoint ')}"
        series.append(Marks(first, color, "o", f"{name}, top 2%", shift=shift))
        series.append(Marks(second, color, "D", f"{name}, top 10%", shift=shift, filled=False))
    figure, (ax,) = axes_of(FRAME, 52 * len(experiments))
    draw_rows(ax, names, series, "rms error relative to that with a second training", "{x:.1f} ×", 1)
    legend(figure, ax, columns=2)
    return figure


def winners() -> Chart:
    """Error of the value of the best of many, as observed and after three corrections."""
    by = cells(read("winners"))
    cases = list(dict.fromkeys(row for row, column in by if column == "uncurse.winner"))
    looks = {"observed": (PLAIN, "s"), "repeated split-half": (OTHER, "D"), "BBC-CV (out-of-bag)": (OTHER, "^"),
             "uncurse.winner": (OURS, "o")}  # fmt: skip
    series = []
    for i, (name, look) in enumerate(looks.items()):
        values, halves = intervals_of([by[case, name] for case in cases], 20)
        series.append(Marks(values, *look, name, halves, 0.16 * (i - 1.5)))
    figure, (ax,) = axes_of(FRAME, 48 * len(cases))
    draw_rows(ax, cases, series, "error of the value of the best, points, 95% intervals", "{x:+g}", 0)
    legend(figure, ax, columns=4)
    return figure


CHARTS: dict[str, tuple[Callable[[], Chart], str]] = {
    "real-logs": (real_logs, "Error on the top of real logs by kind of model, as served and after three corrections."),
    "simulations": (simulations, "Error of eight methods in fourteen settings, relative to the best possible map."),
    "paper": (paper, "Calibration error of each method of the paper alone and with VAD, here and in the paper."),
    "auction": (auction, "What advertisers are overcharged under each policy, for two kinds of labels."),
    "speed": (speed, "How many times as fast as the fastest other library each call is."),
    "monitoring": (monitoring, "False alarms within a year, and days until a real error is found, for four tests."),
    "intervals": (intervals, "Share of the 90% intervals that contain the true error, in each setting."),
    "winners": (winners, "Error of the value of the best of many, as observed and after three corrections."),
    "replicas": (replicas, "Error with an earlier checkpoint as the replica, relative to a second training."),
}


def main(folder: Path = FOLDER) -> None:
    """Draw all charts into a folder."""
    for name, (draw, label) in CHARTS.items():
        with page_style():
            chart = draw()
        (folder / f"{name}.svg").write_text(standalone_svg(chart, name=name, label=label), encoding="utf-8")


if __name__ == "__main__":
    main()
