"""Draw the charts of docs/results from the CSV files beside them: ``python -m tools.evidence``.

The charts have the style of the report. An SVG follows the light or dark mode of the reader.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
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


def read(name: str) -> list[Line]:
    """Read a table, one dictionary for each of its lines."""
    with (FOLDER / "data" / f"{name}.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def cells(lines: Sequence[Line], **place: str) -> dict[tuple[str, str], Line]:
    """Return the cells of a table by row and column."""
    return {(line["row"], line["column"]): line for line in lines if place.items() <= line.items()}


def dots(
    ax: Any, y: float, values: Sequence[float], color: str, marker: str = "o", name: str = "", **style: Any
) -> None:
    """Draw a value, or a value with the ends of its interval."""
    value, *ends = values
    if ends:
        ax.plot(ends, [y, y], color=color, lw=2, solid_capstyle="round")
    ax.plot([value], [y], marker, color=color, ms=8, mew=1.5, label=name or None, **style)


def rows_axis(ax: Any, names: Sequence[str], xlabel: str) -> None:
    """Name the rows from top to bottom."""
    ax.set_yticks(range(len(names)), names, color=LIGHT["ink"])
    ax.set(ylim=(len(names) - 0.4, -0.6), xlabel=xlabel)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")


def legend(figure: Chart, ax: Any, columns: int = 6) -> None:
    """Name the marks above the figure."""
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside upper left", ncols=columns, handletextpad=0.1, columnspacing=1.2
    )


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
    names = {"plain": (PLAIN, "s"), "isotonic": (OTHER, "D"), "Platt": (OTHER, "^"), "uncursed": (OURS, "o")}
    for y, model in enumerate(found):
        floor = float(np.mean(errors[model, "floor"]))
        ax.plot([floor] * 2, [y - 0.3, y + 0.3], color=LIGHT["rule"], lw=3, label="" if y else "label noise")
        for name, (color, marker) in names.items():
            label = "" if y else {"plain": "as served"}.get(name, name)
            dots(ax, y, [float(np.mean(errors[model, name]))], color, marker, label)
    ax.set_xscale("log")
    ax.set_xticks([1, 2, 5, 10, 20, 50, 100], ["1%", "2%", "5%", "10%", "20%", "50%", "100%"])
    ax.minorticks_off()
    rows_axis(ax, found, "rms error on the top 1% to 10%, mean over the logs")
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
    by = {
        (line["detail"], line["column"]): line
        for line in read("criteo-five-logs")
        if line["table"] == "Calibration error, % (main text)" and line["row"] == "10%"
    }
    methods = [name for name, column in by if column == "Original" and by[name, column]["paper"]]
    figure, (ax,) = axes_of(FRAME, 52 * len(methods))
    for y, method in enumerate(methods):
        for column, color, shift in (("Original", PLAIN, -0.13), ("VAD+", OURS, 0.13)):
            line = by[method, column]
            value, error = float(line["value"]), _T[5] * float(line["standard_error"])
            name = {"Original": "alone, here", "VAD+": "with VAD, here"}[column] if not y else ""
            dots(ax, y + shift, [value, value - error, value + error], color, name=name)
            name = {"Original": "alone, paper", "VAD+": "with VAD, paper"}[column] if not y else ""
            dots(ax, y + shift, [float(line["paper"])], color, "D", name, mfc="none")
    ax.axvline(0, color=LIGHT["ink"], lw=1.2, zorder=1)
    ax.xaxis.set_major_formatter(signed)
    rows_axis(ax, ["as served", *methods[1:]], "calibration error on the top 10%, 95% intervals")
    legend(figure, ax)
    return figure


def auction() -> Chart:
    """Overcharge of each policy, by what the labels were."""
    lines = read("auction")
    by = cells(lines, section="overcharge by labels")
    policies = ["as served", "one multiplier", "Platt", "isotonic", "VAD", "Platt + VAD", "labels", "Auto"]
    figure, axes = axes_of(FRAME, 30 * len(policies), columns=2)
    titles = {"labels won": "labels: its own winners", "labels earlier": "labels: an earlier model's"}
    for ax, (column, title) in zip(axes, titles.items(), strict=True):
        for y, policy in enumerate(policies):
            line = by[policy, column]
            value, error = float(line["value"]), _T[10] * float(line["standard_error"])
            color = {"as served": PLAIN, "Auto": OURS}.get(policy, OTHER)
            dots(ax, y, [value, value - error, value + error], color)
        ax.axvline(0, color=LIGHT["ink"], lw=1.2, zorder=1)
        ax.xaxis.set_major_formatter(signed)
        rows_axis(ax, policies if ax is axes[0] else [""] * len(policies), "overcharge, 95% intervals")
        ax.set(xlim=(-17, 27))
        ax.set_title(title)
    return figure


def speed() -> Chart:
    """How many times as fast as the fastest other library."""
    lines = read("speed")
    figure, (ax,) = axes_of(FRAME, 30 * len(lines))
    for y, line in enumerate(lines):
        value = float(line["times faster"])
        ax.plot([1, value], [y, y], color=LIGHT["grid"], lw=6, solid_capstyle="butt", zorder=1)
        dots(ax, y, [value], OURS)
        ax.annotate(f"{value:g} ×", (value, y), xytext=(9, 0), textcoords="offset points", va="center")
    ax.set_xscale("log")
    ax.set_xticks([1, 3, 10, 30, 100, 300], ["1 ×", "3 ×", "10 ×", "30 ×", "100 ×", "300 ×"])
    ax.minorticks_off()
    ax.set(xlim=(1, 500))
    rows_axis(ax, [line["call"] for line in lines], "times as fast as the fastest peer, 10 million rows")
    return figure


def monitoring() -> Chart:
    """False alarms within a year, and days to an alarm."""
    by = cells(read("monitoring"))
    names = {
        "uncurse monitor": "uncurse monitor", "5% test of each day": "5% test of each day",
        "5% test of all days so far": "5% test of all days", "the same, boundary for 5% a year": "simulated boundary",
    }  # fmt: skip
    figure, axes = axes_of(FRAME, 34 * len(names), columns=2)
    quantities = {
        "false alarms of a valid map, one year": ("years with a false alarm", percent),
        "+5% from day 100 on, without an earlier alarm: median": ("days to find +5% from day 100", "{x:g}"),
    }
    for ax, (quantity, (title, form)) in zip(axes, quantities.items(), strict=True):
        for y, name in enumerate(names):
            line = by[quantity, name]
            color = OURS if not y else OTHER
            if line["standard_error"]:
                value = float(line["value"])
                dots(ax, y, [value], color)
                label = percent(value) if form is percent else f"{value:g}"
                ax.annotate(label, (value, y), xytext=(9, 0), textcoords="offset points", va="center")
            else:
                ax.annotate("false alarm before", (1, y), va="center", color=LIGHT["muted"])
        ax.xaxis.set_major_formatter(form)
        rows_axis(ax, list(names.values()) if ax is axes[0] else [""] * len(names), title)
        ax.set(xlim=(-3, 130) if form is percent else (-1, 30))
        ax.set_xticks(range(0, 101, 25) if form is percent else range(0, 31, 10))
    return figure


def intervals() -> Chart:
    """How many of the 90% intervals contain the true error."""
    lines = read("simulations")
    settings = list(dict.fromkeys(line["section"] for line in lines if line["column"] == "90% held"))
    figure, (ax,) = axes_of(FRAME, 26 * len(settings) + 20)
    for y, setting in enumerate(settings):
        by = cells(lines, section=setting)
        for method, color, marker in (("labels S=3", OTHER, "^"), ("auto", OURS, "o")):
            if (method, "90% held") in by:
                name = {"labels S=3": "labels", "auto": "Auto"}[method] if not y else ""
                dots(ax, y, [float(by[method, "90% held"]["value"])], color, marker, name)
    ax.axvline(90, color=LIGHT["ink"], lw=1.2, zorder=1)
    ax.xaxis.set_major_formatter(percent)
    rows_axis(ax, settings, "share of the 90% intervals that contain the true error")
    legend(figure, ax)
    return figure


def replicas() -> Chart:
    """Error of replica calibration with a checkpoint relative to that with a second training."""
    lines = [line for line in read("snapshots") if "divided" in line["section"]]
    by = cells(lines)
    experiments = list(dict.fromkeys(line["row"] for line in lines))
    names = [name.replace("the same, ", "Criteo, 4 million rows, ").replace("worlds", "logs") for name in experiments]
    figure, (ax,) = axes_of(FRAME, 52 * len(experiments))
    for y, experiment in enumerate(experiments):
        for column, color, shift in (("checkpoint at 80%", OURS, -0.12), ("at 90%", PLAIN, 0.12)):
            name = {"at 90%": "checkpoint at 90%"}.get(column, "checkpoint at 80%") if not y else ""
            first, second = map(float, by[experiment, column]["value"].split(", "))
            dots(ax, y + shift, [first], color, "o", f"{name}, top 2%" if name else "")
            dots(ax, y + shift, [second], color, "D", f"{name}, top 10%" if name else "", mfc="none")
    ax.axvline(1, color=LIGHT["ink"], lw=1.2, zorder=1)
    ax.xaxis.set_major_formatter("{x:.1f} ×")
    rows_axis(ax, names, "rms error relative to that with a second training")
    legend(figure, ax, columns=2)
    return figure


def winners() -> Chart:
    """Error of the value of the best of many, as observed and after three corrections."""
    by = cells(read("winners"))
    cases = list(dict.fromkeys(row for row, column in by if column == "uncurse.winner"))
    names = {
        "observed": (PLAIN, "s"),
        "repeated split-half": (OTHER, "D"),
        "BBC-CV (out-of-bag)": (OTHER, "^"),
        "uncurse.winner": (OURS, "o"),
    }
    figure, (ax,) = axes_of(FRAME, 48 * len(cases))
    for y, case in enumerate(cases):
        for i, (name, (color, marker)) in enumerate(names.items()):
            line = by[case, name]
            value, error = float(line["value"]), _T[20] * float(line["standard_error"])
            dots(ax, y + 0.16 * (i - 1.5), [value, value - error, value + error], color, marker, "" if y else name)
    ax.axvline(0, color=LIGHT["ink"], lw=1.2, zorder=1)
    ax.xaxis.set_major_formatter("{x:+g}")
    rows_axis(ax, cases, "error of the value of the best, points, 95% intervals")
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
