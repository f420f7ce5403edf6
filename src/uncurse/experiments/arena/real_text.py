"""An arena of real logs as text for a terminal, as Markdown, and as flat records."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from .methods import ALONE
from .real_tables import Real, RealCell
from .text import WIDTH, Table, aligned, number, piped

_ALL = "100%"
_IN_FILES = ("best 2",)  # selections that 120 columns do not hold


def text(real: Real) -> str:
    """Two tables for each split: errors, and rms against one method."""
    lines = [
        "A cell: (Σf − Σy)/Σy on what the served score selects, in percent, ± its standard error (labels by bootstrap,",
        "training by replication). *: the least rms of those that serve one model, labels' noise and all. 90% held:",
        "how many of the intervals that a method states at 90% had the labels where they should be, given their noise;",
        f"all replications share labels. The second table: rms less that of {real.against}, paired; below 0 is better.",
    ]
    for world, about in real.worlds.items():
        head = f"{world}: {about} {real.replications[world]} replications, seed {real.seed}."
        lines += ["", *textwrap.wrap(head, WIDTH), *aligned(_narrow(errors(real, world)))]
        lines += ["", f"rms less that of {real.against}", *aligned(_narrow(differences(real, world)))]
        for line in left_out(real, world):
            lines += textwrap.wrap(f"left out: {line}", WIDTH, subsequent_indent="  ")
    return "\n".join(lines)


def markdown(real: Real) -> str:
    """The same as Markdown."""
    parts = [
        "A cell is (Σf − Σy)/Σy on what the served score selects, in percent, ± its standard error (labels by "
        "bootstrap, training by replication); the least rms of methods that serve one model is marked \\*. 90% held: "
        "how many of the intervals stated at 90% had the labels where they should be, given their noise."
    ]
    for world, about in real.worlds.items():
        parts += [f"### {world}", f"{about} {real.replications[world]} replications, seed {real.seed}."]
        parts += [piped(errors(real, world)), f"rms less that of {real.against}, paired:"]
        parts += [piped(differences(real, world))]
        parts += [f"Left out: {line}." for line in left_out(real, world)]
    return "\n\n".join(parts) + "\n"


def left_out(real: Real, world: str) -> list[str]:
    """Methods that do not work there, by what they say."""
    said: dict[str, list[str]] = {}
    for name, why in real.failed[world].items():
        said.setdefault(why, []).append(name)
    return [f"{', '.join(names)} {why}" for why, names in said.items()]


def records(real: Real) -> list[dict[str, Any]]:
    """A flat record for each cell; what is not known is empty."""
    return [{name: "" if value is None else value for name, value in vars(cell).items()} for cell in real.cells]


def errors(real: Real, world: str) -> Table:
    """The methods, the least rms on selections first; below them what labels alone would show, and how many."""
    names, selections = _sorted(real, world), real.selections[world]
    alone = [name for name in names if real.methods[name] in ALONE]
    best = set()
    for selection in selections:
        cells = [cell for name in alone if (cell := real.get(world, name, selection)) is not None]
        best.add(min(cells, key=lambda cell: cell.rms, default=None))
    held = {name: kept for name in names if (kept := _held(real, world, name)) is not None}
    table: Table = [("method", *selections, "90% held")]
    for name in names:
        row = [real.get(world, name, selection) for selection in selections]
        shown = ("" if c is None else _shown(c.error, c.error_error, c in best) for c in row)
        table.append((name, *shown, f"{100 * held[name]:.0f}%" if name in held else ""))
    table.append(("(labels' noise)", *(f"±{number(100 * noise)} " for noise in real.noise[world]), ""))
    table.append(("(positives)", *(f"{count:,.0f} " for count in real.observed[world]), ""))
    return table


def differences(real: Real, world: str) -> Table:
    """The rms of each method less that of the one compared with."""
    selections = real.selections[world]
    table: Table = [("method", *selections)]
    for name in _sorted(real, world):
        if name != real.against:
            row = [real.get(world, name, selection) for selection in selections]
            table.append((name, *("" if c is None else _shown(c.less, c.less_error) for c in row)))
    return table


def _narrow(table: Table) -> Table:
    kept = [i for i, name in enumerate(table[0]) if name not in _IN_FILES]
    return [tuple(row[i] for i in kept) for row in table]


def _cells(real: Real, world: str, name: str) -> list[RealCell]:
    """Of selections that select: not of all rows."""
    cells = [real.get(world, name, s) for s in real.selections[world] if s != _ALL]
    return [cell for cell in cells if cell is not None]


def _sorted(real: Real, world: str) -> list[str]:
    sizes = {name: np.mean([c.rms for c in cells]) for name in real.methods if (cells := _cells(real, world, name))}
    return sorted(sizes, key=lambda name: float(sizes[name]))


def _held(real: Real, world: str, name: str) -> float | None:
    shares = [cell.coverage for cell in _cells(real, world, name) if cell.coverage is not None]
    return float(np.mean(shares)) if shares else None


def _shown(value: float, error: float, best: bool = False) -> str:
    return f"{number(100 * value, '+')}±{number(100 * error)}" + ("*" if best else " ")


__all__ = ["differences", "errors", "left_out", "markdown", "records", "text"]
