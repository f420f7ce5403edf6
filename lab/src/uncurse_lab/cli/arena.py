"""`uncurse-lab arena`: all methods in worlds whose truth is known, or on real logs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from uncurse.cli.options import ReportFile
from uncurse.cli.output import Format, Quiet, check_outputs, note
from uncurse.errors import UncurseError

from .show import MarkdownFile, Seed, progress_over, refuse, show


def arena(
    context: typer.Context,
    world: Annotated[list[str] | None, typer.Option(help="World to simulate; may be repeated.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help='Method in a world, such as "labels S=3", or labels for every S; may be repeated.'),
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
    rows: Annotated[int, typer.Option(min=100, help="Rows of a real log, drawn at random.")] = 250_000,
    report: ReportFile = None,
    markdown: MarkdownFile = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Compare all methods in simulated worlds or on a real log.

    In a world the truth is known: bias, rms, and the rms relative to a map fitted to the true probabilities.

    On a real log held-out labels decide (--real train.csv --model lightgbm --shift).

    Example: uncurse-lab arena --world unequal-noise --method vanilla --method labels --replications 20
    """
    check_outputs({"--report": report, "--markdown": markdown}, real or [])
    if real:
        refuse(context, "world method report", "worlds whose truth is known; omit it with --real")
        if model is None:
            raise UncurseError("pass --model with --real: lightgbm, lightgbm-small, logistic or mlp")
        from ..arena.click_logs import read_click_log
        from ..arena.real import SPLITS, run

        log = read_click_log(real, rows, seed)
        if log.bad_lines:
            note(f"skipped {log.bad_lines:,} bad {'line' if log.bad_lines == 1 else 'lines'}, first {log.first_bad}")
        if log.name == "avazu":
            note(
                f"read as a log like Avazu's: the label is click, each of {log.codes.shape[1]} other columns is a "
                "category, numbers too, and id, device_id and device_ip are left out"
            )
        splits, bar = replications or (4 if quick else SPLITS), partial(progress_over, "splits")
        results = run(log, model, shift=shift, splits=splits, seed=seed, progress=bar)
        show(results.parts, results.to_json, format, markdown=markdown)
        return
    refuse(context, "model shift rows", "a real log; pass --real FILE too")
    from .. import arena as worlds
    from ..arena.methods import QUICK

    methods, draws = method or (QUICK if quick else None), replications or (8 if quick else worlds.REPLICATIONS)
    found = worlds.run(world or None, methods, draws, seed, progress=partial(progress_over, "draws"))
    for name, why in found.left_out.items():
        note(f"left out: {name}: {why}")
    title = "The arena: worlds with known probabilities"
    show(found.parts, found.to_json, format, markdown=markdown, report=report, title=title)
