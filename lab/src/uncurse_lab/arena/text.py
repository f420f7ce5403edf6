"""An arena as text for a terminal, as Markdown, and as flat records."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from uncurse.report.prose import share
from uncurse.text_tables import TextTable, as_markdown, as_text

from .methods import ALONE, BUILT_IN, ORACLE
from .run import MAIN
from .tables import Arena, ArenaCell, coverage, few_replications, from_oracle, judge

_SUMMARY = 0.02
WIDTH = 118
_WIDE = 5  # as many α as 120 columns hold; the smallest are in the files
Table = list[tuple[str, ...]]  # the header first
_HEAD = (
    "{0.replications} replications, seed {0.seed}. A cell: bias ± standard error and rms, in percent, of Σf/Σp − 1 on "
    "the top α, with true probabilities p. *: the least rms of methods that serve one model, significant or not. "
    "× oracle: rms over that of a smooth map fitted to the true probabilities of the pool, geometric mean from α = 1% "
    "to 10%; a parametric map of the right form can have a smaller error. 90% held: share of the errors there that lie "
    "in the intervals that a method states at 90%. S: number of models; in worlds of bootstraps, of bootstraps. auto "
    "uses all models of a draw; ensemble of 6 serves six and calibrates their mean logit."
)


def text(arena: Arena) -> str:
    """Return a table for each world, the best method first, then all worlds in one table and the verdicts."""
    worlds = [
        TextTable(f"{world}: {about}", world_table(arena, world, most=_WIDE), gap=1)
        for world, about in arena.worlds.items()
    ]
    bars = _wrapped([f"{'met   ' if verdict.met else 'MISSED'}  {verdict}" for verdict in judge(arena)], 8)
    few = few_replications(arena)
    title = "Bars, from α = 1% to 10%" + (f" ({few})" if few else "")
    blocks = [[title, *bars] if bars else [], _wrapped(arena.notes(), 4)]
    return as_text([_HEAD.format(arena), *worlds, _overview(arena), *filter(None, blocks)])


def markdown(arena: Arena) -> str:
    """Return the same as Markdown: verdicts and the summary first."""
    worlds: list[str | TextTable] = []
    for world, about in arena.worlds.items():
        worlds += [f"### {world}", about, TextTable("", world_table(arena, world))]
    bars = "\n".join(f"- {'**met**' if verdict.met else '**missed**'} {verdict}" for verdict in judge(arena))
    few = [sentence(few_replications(arena))] if bars and few_replications(arena) else []
    head = _HEAD.format(arena).replace("*", "\\*")
    return as_markdown([head, *few, bars, _overview(arena), *worlds, *map(sentence, arena.notes())])


def sentence(line: str) -> str:
    """Return a line with a capital letter and a full stop."""
    return f"{line[:1].upper()}{line[1:]}."


def _wrapped(lines: list[str], indent: int) -> list[str]:
    return [part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent=" " * indent)]


def summary_alpha(arena: Arena) -> float:
    """Return the α of the summary: 2%, or the first if that is not one of the run."""
    return _SUMMARY if _SUMMARY in arena.alphas else arena.alphas[0]


def _overview(arena: Arena) -> TextTable:
    return TextTable(f"rms in percent on the top {share(summary_alpha(arena))}", summary(arena), gap=1)


def records(arena: Arena) -> list[dict[str, Any]]:
    """Return a flat record for each cell."""
    return [cell.to_dict() for cell in arena.cells]


def world_table(arena: Arena, world: str, *, most: int | None = None) -> Table:
    """Methods by how near they come to the oracle; bias ± se and rms at each α, or at the `most` largest."""
    rows = arena.table(world)
    alphas = [a for i, a in enumerate(arena.alphas) if any(cells[i] for cells in rows.values())]
    alphas = sorted(alphas)[-most:] if most else alphas
    alone = arena.of_kind(*ALONE)
    best = {alpha: arena.best(world, alpha, alone) for alpha in alphas}
    ratios = {name: from_oracle(arena, world, name) for name in rows}
    held = {name: kept for name in rows if (kept := coverage(arena, world, name)) is not None}
    table: Table = [("method", *map(share, alphas), "× oracle", *(["90% held"] if held else []))]
    for name in sorted(rows, key=lambda name: ratios[name] or np.inf):
        cells = [arena.get(world, name, alpha) for alpha in alphas]
        shown = [_cell(cell, cell is not None and cell == best[cell.alpha]) for cell in cells]
        ratio = ratios[name]
        row = (name, *shown, "" if ratio is None else number(ratio))
        table.append((*row, f"{100 * held[name]:.0f}%" if name in held else "") if held else row)
    return table


def summary(arena: Arena) -> Table:
    """Main methods and those of a user across, worlds down: rms at one α, and the best method that serves one model."""
    alpha, names = summary_alpha(arena), shown(arena)
    names[-1:-1] = [name for name in arena.methods if name not in BUILT_IN and name not in names]  # before the oracle
    alone = arena.of_kind(*ALONE)
    table: Table = [("world", "the best", *names)]
    for world in arena.worlds:
        cells = [arena.get(world, name, alpha) for name in names]
        best = arena.best(world, alpha, alone)
        named = "" if best is None else f"{best.method} {number(100 * best.rms)}"
        table.append((world, named, *("" if cell is None else number(100 * cell.rms) for cell in cells)))
    return table


def shown(arena: Arena) -> list[str]:
    """Methods for a figure: the main ones, or all where there are few."""
    names = [name for name in MAIN if name in arena.methods] if len(arena.methods) > len(MAIN) else arena.methods
    return [*(name for name in names if name != ORACLE), ORACLE]


def number(value: float, sign: str = "") -> str:
    """Three figures, at most two decimals."""
    size = abs(value)
    return f"{value:{sign}.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def _cell(cell: ArenaCell | None, best: bool) -> str:
    if cell is None:
        return ""
    bias = f"{number(100 * cell.bias, '+')}±{number(100 * cell.bias_error)}"
    return f"{bias} {number(100 * cell.rms):>4}" + ("*" if best else " ")
