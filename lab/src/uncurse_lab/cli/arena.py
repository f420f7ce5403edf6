"""`uncurse-lab arena`: all methods in worlds whose truth is known, or on real logs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from uncurse.cli.options import MarkdownFile, ReportFile, Seed
from uncurse.cli.output import Format, Quiet, check_outputs, command_line, emit, note, progress_over, write_file
from uncurse.errors import UncurseError

from .app import app

_QUICK_REPLICATIONS = 8
_QUICK_SPLITS = 4
_REAL_ROWS = 250_000


@app.command()
def arena(
    world: Annotated[list[str] | None, typer.Option(help="World to simulate; may be repeated.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help='Method in a world, such as "Tower S=3", or Tower for every S; may be repeated.'),
    ] = None,
    replications: Annotated[
        int | None,
        typer.Option(min=2, help="Draws of each world, by default 100 (--quick: 8); splits of a log, 20 (4)."),
    ] = None,
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few draws, and only the main methods.")] = False,
    real: Annotated[
        list[Path] | None, typer.Option(help="File of a real log (Avazu, Criteo or MovieLens); may be repeated.")
    ] = None,
    model: Annotated[
        Literal["lightgbm", "lightgbm-small", "logistic", "mlp"] | None,
        typer.Option(help="Model to train on a real log."),
    ] = None,
    shift: Annotated[
        bool, typer.Option("--shift", help="On a real log, thin pool and test by 1 − p of another model.")
    ] = False,
    rows: Annotated[
        int | None, typer.Option(min=100, help="Rows of a real log, drawn at random; 250,000 by default.")
    ] = None,
    dlrm: Annotated[
        Path | None, typer.Option(help="Logits of trained DLRMs; by default those of the repository.")
    ] = None,
    report: ReportFile = None,
    markdown: MarkdownFile = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Compare all methods in simulated worlds or on a real log.

    In a world the truth is known: bias, rms, and the rms relative to a map fitted to the true probabilities.

    On a real log held-out labels decide (--real train.csv --model lightgbm --shift).

    Example: uncurse-lab arena --world unequal-noise --method vanilla --method Tower --replications 20
    """
    inputs = [*(real or []), *([] if dlrm is None else [dlrm])]
    check_outputs({"--report": report, "--markdown": markdown}, inputs)
    of_worlds = {"--world": world, "--method": method, "--dlrm": dlrm, "--report": report}
    of_logs = {"--model": model, "--shift": shift, "--rows": rows}
    remedy = "worlds whose truth is known; omit it with --real" if real else "a real log; pass --real FILE too"
    for name, given in (of_worlds if real else of_logs).items():
        if given:
            raise UncurseError(f"{name} is for {remedy}")
    found: Any
    text: Any
    if real:
        from ..arena import real as text
        from ..arena.click_logs import read_click_log

        if model is None:
            raise UncurseError("pass --model with --real: lightgbm, lightgbm-small, logistic or mlp")
        log = read_click_log(real, rows or _REAL_ROWS, seed)
        if log.bad_lines:
            note(f"skipped {log.bad_lines:,} bad {'line' if log.bad_lines == 1 else 'lines'}, first {log.first_bad}")
        if log.name == "avazu":
            note(
                f"read as a log like Avazu's: the label is click, each of {log.codes.shape[1]} other columns is a "
                "category, numbers too, and id, device_id and device_ip are left out"
            )
        splits = replications or (_QUICK_SPLITS if quick else text.SPLITS)
        bar = partial(progress_over, "splits")
        found = text.run(log, model, shift=shift, splits=splits, seed=seed, progress=bar)
    else:
        from .. import arena as worlds
        from ..arena import text

        methods = method or (worlds.QUICK if quick else None)
        count = replications or (_QUICK_REPLICATIONS if quick else worlds.REPLICATIONS)
        found = worlds.run(world or None, methods, count, seed, dlrm=dlrm, progress=partial(progress_over, "draws"))
        for line in found.notes():
            note(line)
    emit(format, lambda: text.text(found), found.to_json)
    if markdown is not None:
        write_file(markdown, text.markdown(found))
    if report is not None:
        from ..arena.page import render

        write_file(report, render(found, command_line()))
