"""`uncurse arena`: all methods in worlds whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import documents
from .app import JsonOption, app, check_outputs, command, each, finish, say

_QUICK_REPLICATIONS = 8


def _complete_world(incomplete: str) -> list[str]:
    from ..experiments.arena import WORLDS

    return [name for name in WORLDS if name.startswith(incomplete)]


def _complete_method(incomplete: str) -> list[str]:
    from ..experiments.arena import METHODS

    return [name for name in METHODS if name.casefold().startswith(incomplete.casefold())]


@app.command()
def arena(
    world: Annotated[
        list[str] | None,
        typer.Option("--world", help="One of the worlds; again for more.", autocompletion=_complete_world),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            help='Such as "Tower S=3", or Tower for every S; again for more.',
            autocompletion=_complete_method,
        ),
    ] = None,
    replications: Annotated[int | None, typer.Option(min=2, help="Draws of each world; 100 (with --quick 8).")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random numbers.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few draws, and only the main methods.")] = False,
    dlrm: Annotated[
        Path | None, typer.Option("--dlrm", help="The logits of trained DLRMs; by default those of the checkout.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write an offline HTML page to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Also write every table as Markdown.")] = None,
    json: JsonOption = None,
) -> None:
    """All methods in worlds whose truth is known: bias, rms, and how far from the best map possible.

    Example: uncurse arena --world unequal-noise --method vanilla --method Tower --replications 20
    """
    from ..experiments import arena as experiment
    from ..experiments.arena import text

    check_outputs([json, report, markdown], [] if dlrm is None else [dlrm])
    count = replications or (_QUICK_REPLICATIONS if quick else experiment.REPLICATIONS)
    found = experiment.run(
        world or None,
        method or (experiment.QUICK if quick else None),
        count,
        seed,
        dlrm=dlrm,
        progress=lambda total: each("draws", total),
    )
    for name, why in found.left_out.items():
        typer.echo(f"uncurse: left out: {name} {why}", err=True)
    finish(text.text(found), found.to_json(), json, text.records(found))
    if markdown is not None:
        documents.write(markdown, text.markdown(found))
        say(f"written to {markdown}")
    if report is not None:
        from ..experiments.arena.page import render

        documents.write(report, render(found, command()))
        say(f"written to {report}")


__all__ = ["arena"]
