"""`uncurse arena`: all methods in worlds whose truth is known, or on real logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from .. import documents
from ..errors import UncurseError
from .app import app
from .output import Format, Quiet, check_outputs, command_line, emit, note, progress_over

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
        typer.Option("--world", help="World to simulate; may be repeated.", autocompletion=_complete_world),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            help='Method, such as "Tower S=3", or Tower for every S; may be repeated.',
            autocompletion=_complete_method,
        ),
    ] = None,
    replications: Annotated[
        int | None,
        typer.Option(min=2, help="Draws of each world, by default 100 (--quick: 8); splits of a log, 20 (4)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few draws, and only the main methods.")] = False,
    real: Annotated[
        list[Path] | None,
        typer.Option("--real", help="File of a real log (Avazu, Criteo or MovieLens); may be repeated."),
    ] = None,
    model: Annotated[
        Literal["lightgbm", "lightgbm-small", "logistic", "mlp"] | None,
        typer.Option("--model", help="Model to train on a real log."),
    ] = None,
    shift: Annotated[
        bool, typer.Option("--shift", help="On a real log, thin pool and test by 1 − p of another model.")
    ] = False,
    rows: Annotated[
        int | None, typer.Option("--rows", min=100, help="Rows of a real log, drawn at random; 250,000 by default.")
    ] = None,
    dlrm: Annotated[
        Path | None, typer.Option("--dlrm", help="Logits of trained DLRMs; by default those of the repository.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write an offline HTML page to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Also write every table as Markdown.")] = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Compare all methods in simulated worlds or on a real log.

    In a world the truth is known: bias, rms, and the distance from the best possible map.

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
        _real(real, model, shift, rows, splits, seed, markdown, format)
        return
    for name, used in (("--model", model is not None), ("--shift", shift), ("--rows", rows is not None)):
        if used:
            raise UncurseError(f"{name} is for a real log; pass --real FILE too")
    from ..experiments import arena as experiment
    from ..experiments.arena import text

    check_outputs({"--report": report, "--markdown": markdown}, [] if dlrm is None else [dlrm])
    count = replications or (_QUICK_REPLICATIONS if quick else experiment.REPLICATIONS)
    found = experiment.run(
        world or None,
        method or (experiment.QUICK if quick else None),
        count,
        seed,
        dlrm=dlrm,
        progress=lambda total: progress_over("draws", total),
    )
    for name, why in found.left_out.items():
        note(f"left out: {name} {why}")
    emit(format, text.text(found), found.to_json(), text.records(found))
    if markdown is not None:
        documents.write(markdown, text.markdown(found))
        note(f"written to {markdown}")
    if report is not None:
        from ..experiments.arena.page import render

        documents.write(report, render(found, command_line()))
        note(f"written to {report}")


def _real(
    files: list[Path],
    model: str,
    shift: bool,
    rows: int | None,
    splits: int | None,
    seed: int,
    markdown: Path | None,
    format: str,
) -> None:
    from ..experiments.arena import real, real_results
    from ..experiments.arena.click_logs import read_click_log

    check_outputs({"--markdown": markdown}, files)
    log = read_click_log(files, rows or _REAL_ROWS, seed)
    found = real.run(
        log,
        model,
        shift=shift,
        splits=splits or real.SPLITS,
        seed=seed,
        progress=lambda total: progress_over("splits", total),
    )
    emit(format, real_results.text(found), found.to_json(), real_results.records(found))
    if markdown is not None:
        documents.write(markdown, real_results.markdown(found))
        note(f"written to {markdown}")
