"""`uncurse arena`: all methods in worlds whose truth is known, or on real logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import documents
from ..errors import UncurseError
from ..validation import check_choice
from .app import JsonOption, app, check_outputs, command, each, finish, say

_QUICK_REPLICATIONS = 8
_QUICK_SPLITS = 4
_REAL_ROWS = 250_000


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
        int | None,
        typer.Option(min=2, help="Draws of each world, by default 100 (--quick: 8); splits of a log, 20 (4)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random numbers.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few draws, and only the main methods.")] = False,
    real: Annotated[
        list[Path] | None,
        typer.Option("--real", help="File of a real log (Avazu, Criteo or MovieLens); again for more files of it."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Model on a real log: lightgbm, lightgbm-small, logistic or mlp.")
    ] = None,
    shift: Annotated[
        bool, typer.Option("--shift", help="On a real log, thin pool and test by 1 − p of another model.")
    ] = False,
    rows: Annotated[
        int | None, typer.Option("--rows", min=100, help="Rows of a real log, drawn at random; 250,000 by default.")
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

    On a real log held-out labels decide: uncurse arena --real train.csv --model lightgbm --shift
    """
    if real:
        for name, given in (("--world", world), ("--method", method), ("--dlrm", dlrm), ("--report", report)):
            if given:
                raise UncurseError(f"{name} is for worlds whose truth is known; omit it with --real")
        if model is None:
            raise UncurseError("pass --model with --real: lightgbm, lightgbm-small, logistic or mlp")
        splits = replications or (_QUICK_SPLITS if quick else None)
        _real(real, model, shift, rows, splits, seed, markdown, json)
        return
    for name, used in (("--model", model is not None), ("--shift", shift), ("--rows", rows is not None)):
        if used:
            raise UncurseError(f"{name} is for a real log; pass --real FILE too")
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
    files: list[Path],
    model: str,
    shift: bool,
    rows: int | None,
    splits: int | None,
    seed: int,
    markdown: Path | None,
    json: Path | None,
) -> None:
    from ..experiments.arena import real, real_results
    from ..experiments.arena.click_logs import read_click_log

    check_choice("model", model, real.MODELS)
    check_outputs([json, markdown], files)
    log = read_click_log(files, rows or _REAL_ROWS, seed)
    found = real.run(
        log,
        model,
        shift=shift,
        splits=splits or real.SPLITS,
        seed=seed,
        progress=lambda total: each("splits", total),
    )
    finish(real_results.text(found), found.to_json(), json, real_results.records(found))
    if markdown is not None:
        documents.write(markdown, real_results.markdown(found))
        say(f"written to {markdown}")


__all__ = ["arena"]
