"""An arena as one offline page: verdicts, an overview, then a chart and a table for each world."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ...optional import needing
from ...report import REQUIREMENT
from ...report.prose import Headline, share
from .run import MAIN
from .tables import Arena, few_replications, judge
from .text import number, shown, summary, world_table

with needing("report", REQUIREMENT):
    from ...report import charts
    from ...report.page import Facts, Figure, Section, Table
    from ...report.page import render as render_page

_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)


def render(arena: Arena, command: str = "") -> str:
    """Return the HTML document."""
    verdicts = judge(arena)
    worlds = "1 world" if len(arena.worlds) == 1 else f"{len(arena.worlds)} worlds"
    count = f"{len(arena.methods)} methods in {worlds}, {arena.replications} replications each."
    met = f" {sum(verdict.met for verdict in verdicts)} of {len(verdicts)} bars are met." if verdicts else ""
    note = (
        "The top share α of the rows is selected by score. The error is the sum of the predictions of the selected "
        "rows divided by the sum of their true probabilities, which are known here, minus 1. The oracle is a smooth "
        "map of the served score, fitted to the true probabilities of the pool; a parametric map of the right form "
        "can have a smaller error."
    )
    names = shown(arena)
    series = {name: MAIN.index(name) if set(names) <= set(MAIN) else i for i, name in enumerate(names)}
    sections = [_verdicts(arena), _overview(arena)]
    sections += [_world(arena, world, i, series) for i, world in enumerate(arena.worlds)]
    headline = Headline((("text", count), ("aside", met)), note=note)
    parts = [section for section in (*sections, _provenance(arena, command)) if section.blocks]
    return render_page("The arena: worlds with known probabilities", headline, parts)


def _verdicts(arena: Arena) -> Section:
    entries = []
    for verdict in judge(arena):
        tally = "" if verdict.met else f"Missed in {verdict.missed} of {verdict.count}. "
        lines = (verdict.claim, f"{tally}Worst: {verdict.worst}")
        entries.append(("met" if verdict.met else "missed", lines, "s2" if verdict.met else "s0"))
    few = few_replications(arena)
    notes = (f"{few[0].upper()}{few[1:]}.",) if few else ()
    return Section("bars", "Expected results", notes, (Facts(tuple(entries)),) if entries else ())


def _overview(arena: Arena) -> Section:
    header, *rows = summary(arena)
    alpha = 0.02 if 0.02 in arena.alphas else arena.alphas[0]
    caption = f"Root mean square error in percent on the top {share(alpha)}; best: of methods that serve one model"
    return Section("all", "All worlds", (), (Table(caption, header, rows),))


def _world(arena: Arena, world: str, place: int, series: dict[str, int]) -> Section:
    rows = _rows(arena, world, series)
    if not rows:
        return Section(f"world-{place}", world)
    legend = tuple(sorted({(row["series"], row["name"]) for row in rows}))
    label = f"{world}: root mean square error by selected share, on a log scale."
    caption = f"Root mean square error on the top α over {arena.replications} replications; lower is better."
    header, *body = world_table(arena, world)
    title = f"{world}: bias ± standard error, then rms, in percent; * marks the least rms of one served model"
    blocks = (
        Figure(f"world-{place}-rms", partial(_chart, rows), label, caption, legend),
        Table(title, header, body, folded=True),
    )
    return Section(f"world-{place}", world, (arena.worlds[world],), blocks)


def _rows(arena: Arena, world: str, series: dict[str, int]) -> charts.Rows:
    """Return a point for each method and α, at the logarithm of its rms."""
    rows = []
    for name, place in series.items():
        for alpha in arena.alphas:
            cell = arena.get(world, name, alpha)
            if cell is not None:
                figures = f"rms {number(100 * cell.rms)}%, bias {number(100 * cell.bias, '+')}%"
                value = math.log10(max(100 * cell.rms, _TICKS[0]))
                text = f"{name}, top {share(alpha)}: {figures}"
                rows.append({"series": place, "name": name, "alpha": alpha, "value": value, "text": text})
    return rows


def _chart(rows: charts.Rows, frame: charts.Frame) -> Any:
    """Draw one line per method. Values are logarithms, so that the names at the ends of lines can be spread."""
    values = [row["value"] for row in rows]
    y = charts.log10_axis((min(values) - 0.08, max(values) + 0.08), _TICKS, "rms error")
    return charts.line_chart(rows, charts.share_axis(rows), y, frame)


def _provenance(arena: Arena, command: str) -> Section:
    entries = [("Replications", (str(arena.replications),), ""), ("Seed", (str(arena.seed),), "")]
    entries += [("Left out", (line.removeprefix("left out: "),), "") for line in arena.notes()]
    entries += [("Command", (command,), "code")] if command else []
    return Section("provenance", "How these results were made", (), (Facts(tuple(entries)),))
