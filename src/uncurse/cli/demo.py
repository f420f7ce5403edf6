"""`uncurse demo`: the whole job on logs made here, as a user would do it."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UncurseError
from ..text import aligned
from .app import app, command


@app.command()
def demo(
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the simulated data.")] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for its files.")] = Path("uncurse-demo"),
) -> None:
    """See the problem and its correction on simulated logs.

    Writes logs whose true rates are known, and runs the commands that you would run.

    Example: uncurse demo --seed 1
    """
    import polars as pl

    from .. import demo as world

    start = time.perf_counter()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UncurseError(f"cannot make the folder {out}: {error.strerror}") from None
    typer.echo(
        f"A model scores {world.CANDIDATES:,} candidates, and you act on the best ones. The predictions for these\n"
        "come out too high, even if the model is right on average: part of what put them on top was luck.\n"
    )
    typer.echo(f"Training a model on {world.SHOWN:,} labeled rows, and two replicas on bootstraps of these rows …")
    pool, outcomes = world.write(*world.make(seed), out)
    typer.echo(f"{pool}: the candidates with the scores of the three models (s0 is served)")
    typer.echo(f"{outcomes}: the served score and the outcome of each candidate")
    evidence, score_map, corrected, page = (
        out / name for name in ("day.json", "map.json", "corrected.parquet", "report.html")
    )
    _run("collect", pool, "--scores", "s0,s1,s2", "--scale", "logit", "-o", evidence)
    _run("fit", evidence, "--replicas", "bootstrap", "-o", score_map)
    _run("apply", score_map, outcomes, "--scores", "s0", "-o", corrected)
    columns, top = ("--scores", "s0", "--label", "click"), "1%,2%,5%,10%"
    _run("evaluate", outcomes, *columns, "--map", score_map, "--top", top, "--report", page)
    log = pl.read_parquet(corrected)
    found = world.outcomes(*(log[name].to_numpy() for name in ("s0", "prediction", "truth")))
    typer.echo("\nThe true rates of this simulation are known. Without the noise of outcomes:\n")
    table = [["top", "true rate", "as served", "error", "", "corrected", "error", ""]]
    for alpha, truth, *means in found:
        cells = [f"{100 * alpha:g}%", f"{100 * truth:.2f}%"]
        for mean in means:
            excess = mean / truth - 1
            bar = ("█" * round(20 * abs(excess)) or "▏").ljust(5)
            cells += [f"{100 * mean:.2f}%", f"{100 * excess:+.1f}%", bar]
        table.append(cells)
    typer.echo("\n".join(aligned(table, left=0)))
    top, before, after = (table[1][place] for place in (0, 3, 6))
    typer.echo(
        f"\nOn the top {top} the served scores over-predict by {before}, corrected by {after}.\n"
        "The ranking is the same. The map is fitted for the selected rows: over all candidates the mean may\n"
        f"change a little. ({time.perf_counter() - start:.0f} s. Next: the same commands on your logs.)\n"
        f"The page: {page.resolve().as_uri()}"
    )


def _run(*arguments: str | Path) -> None:
    words = [str(argument) for argument in arguments]
    typer.echo(f"\n$ uncurse {shlex.join(words)}")
    sys.argv[1:] = words  # the command that reports and maps name
    code = command()(words, standalone_mode=False)
    if code:
        raise typer.Exit(code)
