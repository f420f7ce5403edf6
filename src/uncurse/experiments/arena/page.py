"""An arena as one offline page: verdicts, then for each world a figure and its table. No script, no request."""

from __future__ import annotations

import math
from typing import Any

import altair as alt

from ...report.drawing import inline
from ...report.marks import Along, Figure, finish, label_room, lines, shares_axis
from ...report.markup import details, figure, legend, radios, section, table, text
from ...report.page import POLICY, THEMES
from ...report.sheet import sheet
from ...report.style import NARROW, WIDE, Frame
from ...report.words import share
from .bars import judge
from .run import MAIN
from .tables import Arena
from .text import number, shown, summary, world_table

_TITLE = "The arena: worlds with a known truth"
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
_STYLE = """
.verdicts{list-style:none;margin:1.2rem 0 0;padding:0;font-size:.92rem}
.verdicts li{display:grid;grid-template-columns:4.6rem 1fr;gap:.2rem 1rem;padding:.5rem 0;
border-bottom:1px solid var(--grid)}
.verdicts b{font-weight:650}
.met b{color:var(--s2)}
.missed b{color:var(--s0)}
.verdicts small{color:var(--muted);display:block;font-size:.85rem}
"""


def render(arena: Arena, command: str = "") -> str:
    """The whole document."""
    from ...version import __version__

    names = shown(arena)
    series = {name: MAIN.index(name) if set(names) <= set(MAIN) else i for i, name in enumerate(names)}
    parts = [_headline(arena), _verdicts(arena), _overview(arena)]
    parts += [_world(arena, world, i, series) for i, world in enumerate(arena.worlds)]
    parts.append(_done(arena, command))
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{text(_TITLE)}</title>\n<style>\n{sheet(1)}{_STYLE}</style>\n</head>\n<body>",
            f"<header><h1>{text(_TITLE)}</h1>{radios('theme', 'Colours', THEMES)}</header>\n<main>",
            *(part for part in parts if part),
            f"</main>\n<footer>uncurse {text(__version__)}. One file; it loads nothing and sends nothing.</footer>",
            "</body>\n</html>\n",
        ]
    )


def _headline(arena: Arena) -> str:
    judged = judge(arena)
    count = f"{len(arena.methods)} methods in {len(arena.worlds)} worlds, {arena.replications} times each"
    met = f"{sum(verdict.met for verdict in judged)} of {len(judged)} bars are met." if judged else ""
    says = f'{text(count)}. <span class="aside">{text(met)}</span>'
    about = (
        "A score ranks, the top share α is kept, and the predictions of the kept are summed up and compared with their "
        "true probabilities, which are known here. The oracle is the best map of the served score that there can be."
    )
    parts = f'<p class="says">{says}</p><p>{text(about)}</p>'
    return f'<section class="headline" aria-label="In one sentence">{parts}</section>'


def _verdicts(arena: Arena) -> str:
    made = ""
    for verdict in judge(arena):
        kind = "met" if verdict.met else "missed"
        tally = "" if verdict.met else f"In {verdict.missed} of {verdict.count}. "
        worst = text(f"{tally}Worst: {verdict.worst}")
        made += f'<li class="{kind}"><b>{kind}</b><span>{text(verdict.claim)}<small>{worst}</small></span></li>'
    return section("bars", "What it should show", f'<ul class="verdicts">{made}</ul>') if made else ""


def _overview(arena: Arena) -> str:
    head, *rows = summary(arena)
    alpha = 0.02 if 0.02 in arena.alphas else arena.alphas[0]
    caption = f"Root mean square error in percent on the top {share(alpha)}; the best of those that serve one model"
    return section("all", "All worlds", table(head, rows, caption=caption))


def _world(arena: Arena, world: str, place: int, series: dict[str, int]) -> str:
    rows = _rows(arena, world, series)
    if not rows:
        return ""
    names = sorted({(row["series"], row["name"]) for row in rows})
    label = f"{world}: root mean square error against the share kept, on a log scale"
    drawn = "".join(
        inline(_chart(rows, frame), prefix=f"w{place}{kind[0]}-", label=label, kind=kind)
        for kind, frame in (("wide", WIDE), ("narrow", NARROW))
    )
    head, *lines_ = world_table(arena, world)
    numbers = details(
        "The numbers of every method",
        table(head, lines_, caption="Bias ± standard error, then rms, in percent; *: least rms of one served model"),
    )
    caption = text(f"Root mean square error on the top α, {arena.replications} replications; lower is better.")
    return section(
        f"world-{place}", world, f"<p>{text(arena.worlds[world])}</p>", figure(drawn, caption, legend(names)), numbers
    )


def _rows(arena: Arena, world: str, series: dict[str, int]) -> list[dict[str, Any]]:
    """A point for each α and method of the figure, at the logarithm of its rms."""
    rows = []
    for name, number_ in series.items():
        for alpha in arena.alphas:
            cell = arena.get(world, name, alpha)
            if cell is not None:
                value = math.log10(max(100 * cell.rms, _TICKS[0]))
                said = (
                    f"{name}, top {share(alpha)}: rms {number(100 * cell.rms)}%, bias {number(100 * cell.bias, '+')}%"
                )
                rows.append({"series": number_, "name": name, "alpha": alpha, "value": value, "text": said})
    return rows


def _chart(rows: list[dict[str, Any]], frame: Frame) -> Figure:
    """Lines per method. Heights are logarithms already, so that names at the ends of lines can be kept apart."""
    values = [row["value"] for row in rows]
    low, high = min(values) - 0.08, max(values) + 0.08
    ticks = [tick for tick in _TICKS if low <= math.log10(tick) <= high]
    said = " : ".join(f"abs(datum.value - {math.log10(tick)!r}) < 1e-6 ? '{tick:g}%'" for tick in ticks)
    axis = alt.Axis(values=[math.log10(tick) for tick in ticks], labelExpr=f"{said or '1'} : ''", title="rms error")
    if not ticks:
        axis = alt.Axis(labels=False, title="rms error")
    up, across = Along((low, high), axis), shares_axis(rows, "share kept, α")
    names = [row["name"] for row in rows]
    width = frame.width - 78 - (label_room(names, frame) if frame.wide else 0)
    layers = lines(rows, across, up, (width, frame.height), frame, named=frame.wide)
    return finish(alt.layer(*layers).properties(width=width, height=frame.height), frame)


def _done(arena: Arena, command: str) -> str:
    facts = {"replications": str(arena.replications), "seed": str(arena.seed)}
    facts |= {f"left out: {name}": why for name, why in arena.left_out.items()}
    made = "".join(f"<div><dt>{text(key)}</dt><dd>{text(value)}</dd></div>" for key, value in facts.items())
    if command:
        made += f"<div><dt>command</dt><dd><code>{text(command)}</code></dd></div>"
    return section("done", "What was done", f'<dl class="facts">{made}</dl>')


__all__ = ["render"]
