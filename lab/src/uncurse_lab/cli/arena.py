"""`uncurse-lab arena`: all methods in simulated settings whose truth is known."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from uncurse.cli.options import ReportFile
from uncurse.cli.output import Format, Quiet, check_outputs, note

from .show import MarkdownFile, Seed, progress_over, show


def arena(
    world: Annotated[list[str] | None, typer.Option(help="Setting to simulate; may be repeated.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help='Method, such as "labels S=3", or labels for every S; may be repeated.'),
    ] = None,
    replications: Annotated[
        int | None, typer.Option(min=2, help="Draws of each setting, by default 100 (--quick: 8).")
    ] = None,
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few draws, and only the main methods.")] = False,
    report: ReportFile = None,
    markdown: MarkdownFile = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Compare all methods in simulated settings.

    The truth is known: errors are against the true probabilities, also relative to a map that is fitted to them.

    Example: uncurse-lab arena --world unequal-noise --method vanilla --method labels --replications 20
    """
    check_outputs({"--report": report, "--markdown": markdown})
    from .. import arena as worlds
    from ..arena.methods import QUICK

    methods, draws = method or (QUICK if quick else None), replications or (8 if quick else worlds.REPLICATIONS)
    found = worlds.run(world or None, methods, draws, seed, progress=partial(progress_over, "draws"))
    for name, why in found.left_out.items():
        note(f"left out: {name}: {why}")
    show(found.parts, found.to_json, format, markdown=markdown, report=report, page=found.page)
