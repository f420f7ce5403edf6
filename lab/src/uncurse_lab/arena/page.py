"""An arena as one offline page: verdicts, an overview, then a chart and a table for each world."""

from __future__ import annotations

from functools import partial
from typing import Any

from uncurse.optional import needing
from uncurse.report import REQUIREMENT
from uncurse.report.prose import Headline, share

from .run import MAIN
from .tables import Arena, Verdict, few_replications, judge
from .text import number, sentence, shown, summary, summary_alpha, world_table

with needing("report", REQUIREMENT):
    from uncurse.report import figures as charts
    from uncurse.report.page import Facts, Figure, Section, Table
    from uncurse.report.page import render as render_page

_LEAST = 0.01  # percent
_NOTE = (
    "The top share α of the rows is selected by score. The error is the sum of the predictions of the selected rows "
    "divided by the sum of their true probabilities, which are known here, minus 1. The oracle is a smooth map of the "
    "served score, fitted to the true probabilities of the pool; a parametric map of the right form can have a smaller "
    "error."
)


def render(arena: Arena, command: str = "") -> str:
    """Return the HTML document."""
    verdicts = judge(arena)
    worlds = "1 world" if len(arena.worlds) == 1 else f"{len(arena.worlds)} worlds"
    count = f"{len(arena.methods)} methods in {worlds}, {arena.replications} replications each."
    met = f" {sum(verdict.met for verdict in verdicts)} of {len(verdicts)} bars are met." if verdicts else ""
    few = few_replications(arena)
    header, *rows = summary(arena)
    top = share(summary_alpha(arena))
    caption = f"Root mean square error in percent on the top {top}; best: of methods that serve one model"
    made = [("Replications", str(arena.replications), ""), ("Seed", str(arena.seed), "")]
    made += [("Left out", line.removeprefix("left out: "), "") for line in arena.notes()]
    made += [("Command", command, "code")] if command else []
    names = shown(arena)
    series = {name: MAIN.index(name) if set(names) <= set(MAIN) else i for i, name in enumerate(names)}
    bars = Facts(tuple(map(_fact, verdicts)))
    facts = Facts(tuple((name, (line,), style) for name, line, style in made))
    sections = [
        Section("bars", "Expected results", (sentence(few),) if few else (), (bars,) if verdicts else ()),
        Section("all", "All worlds", (), (Table(caption, header, rows),)),
        *(_world(arena, world, i, series) for i, world in enumerate(arena.worlds)),
        Section("provenance", "How these results were made", (), (facts,)),
    ]
    headline = Headline((("text", count), ("aside", met)), note=_NOTE)
    parts = [section for section in sections if section.blocks]
    return render_page("The arena: worlds with known probabilities", headline, parts)


def _percent(value: float, _: object = None) -> str:
    return f"{value:g}%"


def _fact(verdict: Verdict) -> tuple[str, tuple[str, ...], str]:
    tally = "" if verdict.met else f"Missed in {verdict.missed} of {verdict.count}. "
    lines = (verdict.claim, f"{tally}Worst: {verdict.worst}")
    return ("met", lines, "s2") if verdict.met else ("missed", lines, "s0")


def _world(arena: Arena, world: str, place: int, series: dict[str, int]) -> Section:
    """Draw a point for each method and α, at its rms in percent."""
    rows: list[dict[str, Any]] = []
    for name, color in series.items():
        for alpha in arena.alphas:
            if (cell := arena.get(world, name, alpha)) is not None:
                figures = f"rms {number(100 * cell.rms)}%, bias {number(100 * cell.bias, '+')}%"
                value = max(100 * cell.rms, _LEAST)
                text = f"{name}, top {share(alpha)}: {figures}"
                rows.append({"series": color, "name": name, "alpha": alpha, "value": value, "text": text})
    if not rows:
        return Section(f"world-{place}", world)
    legend = tuple(sorted({(row["series"], row["name"]) for row in rows}))
    label = f"{world}: root mean square error by selected share, on a log scale."
    caption = f"Root mean square error on the top α over {arena.replications} replications; lower is better."
    header, *body = world_table(arena, world)
    title = f"{world}: bias ± standard error, then rms, in percent; * marks the least rms of one served model"
    x, y = ("share selected, α", share), ("rms error", _percent)
    draw = partial(charts.lines_figure, rows, x=x, y=y, log_x=True, log_y=True)
    figure = Figure(f"world-{place}-rms", draw, label, caption, legend)
    blocks = (figure, Table(title, header, body, folded=True))
    return Section(f"world-{place}", world, (arena.worlds[world],), blocks)
