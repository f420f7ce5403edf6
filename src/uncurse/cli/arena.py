"""`uncurse arena`: all methods in worlds whose truth is known, or on real logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import documents
from ..errors import UncurseError
from .app import JsonOption, app, check_outputs, command, each, finish, say

_QUICK_REPLICATIONS = 8
_QUICK_REAL = 2


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
    replications: Annotated[
        int | None, typer.Option(min=2, help="Draws of each world; 100 (with --quick 8); of a log 5 or 20 (2).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random numbers.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few draws, and only the main methods.")] = False,
    real: Annotated[
        str | None, typer.Option("--real", help="Instead of worlds a real log: movielens or openbandit; with --data.")
    ] = None,
    data: Annotated[Path | None, typer.Option("--data", help="The folder with the files of the real log.")] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="On a real log, the method to compare with; vanilla.")
    ] = None,
    dlrm: Annotated[
        Path | None, typer.Option("--dlrm", help="The logits of trained DLRMs; by default those of the checkout.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write an offline HTML page to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Also write every table as Markdown.")] = None,
    json: JsonOption = None,
) -> None:
    """All methods in worlds whose truth is known: bias, rms, and how far from the best map possible.

    Example: uncurse arena --world unequal-noise --method vanilla --method Tower --replications 20

    On a real log labels judge: uncurse arena --real movielens --data ml1m --method vanilla --method Tower
    """
    if real is not None:
        if data is None:
            raise UncurseError("say --data FOLDER, where the files of the real log are")
        for name, file in (("--dlrm", dlrm), ("--report", report)):
            if file is not None:
                raise UncurseError(f"{name} is for worlds whose truth is known; leave it out beside --real")
        _real(real, data, world, method, replications, seed, quick, against, markdown, json)
        return
    for name, given in (("--data", data), ("--against", against)):
        if given is not None:
            raise UncurseError(f"{name} goes with a real log; say --real too")
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


def _real(
    name: str,
    data: Path,
    world: list[str] | None,
    method: list[str] | None,
    replications: int | None,
    seed: int,
    quick: bool,
    against: str | None,
    markdown: Path | None,
    json: Path | None,
) -> None:
    from ..experiments.arena import QUICK, real, real_text
    from ..experiments.arena.methods import ORACLE

    check_outputs([json, markdown], [data])
    found = real.run(
        name,
        data,
        method or ([one for one in QUICK if one != ORACLE] if quick else None),
        replications or (_QUICK_REAL if quick else None),
        seed,
        worlds=world or None,
        against=against or real.AGAINST,
        progress=lambda total: each("splits", total),
    )
    for split in found.worlds:
        for line in real_text.left_out(found, split):
            typer.echo(f"uncurse: left out of {split}: {line}", err=True)
    finish(real_text.text(found), found.to_json(), json, real_text.records(found))
    if markdown is not None:
        documents.write(markdown, real_text.markdown(found))
        say(f"written to {markdown}")


__all__ = ["arena"]
