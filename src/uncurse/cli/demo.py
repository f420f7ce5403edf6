"""`uncurse demo`: the whole job on logs made here, as a user would do it."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UncurseError
from .app import app
from .output import as_command


@app.command()
def demo(
    seed: Annotated[int, typer.Option(min=0, help="Another seed is another world.")] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for its files.")] = Path("uncurse-demo"),
) -> None:
    """See the problem and its correction on simulated logs.

    Writes logs whose true rates are known, and runs the commands that you would run.

    Example: uncurse demo --seed 1
    """
    import polars as pl

    from ..experiments import demo as world

    start = time.perf_counter()
    typer.echo(
        f"A model scores {world.CANDIDATES:,} candidates and the best are kept. The kept scores are too high, even if\n"
        "every score is right on average: the best of many noisy scores is more often lucky than good.\n"
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UncurseError(f"cannot make the folder {out}: {error.strerror}") from None
    typer.echo(f"Training on {world.SHOWN:,} labelled rows, twice: the second fit, on a bootstrap, shows the noise …")
    pool, outcomes = world.write(world.make(seed), out)
    typer.echo(f"{pool} has what both say of the candidates (s1, s2); {outcomes} what came of them.")
    evidence, score_map, corrected, page = (
        out / name for name in ("day.json", "map.json", "corrected.parquet", "report.html")
    )
    _run("collect", pool, "--scores", "s1,s2", "--scale", "logit", "-o", evidence)
    _run("fit", evidence, "--replicas", "anchored", "-o", score_map)
    _run("apply", score_map, outcomes, "--score", "s1", "-o", corrected)
    _run("evaluate", outcomes, "--score", "s1", "--label", "click", "--map", score_map, "--report", page)
    log = pl.read_parquet(corrected)
    found = world.outcomes(*(log[name].to_numpy() for name in ("s1", "prediction", "truth")))
    typer.echo("\nHere the truth is known, so no noise of labels is in the way:\n")
    typer.echo("            true rate    predicted before            predicted after")
    for row in found:
        before = f"{100 * row.before:>6.2f}%  {100 * row.error_before:>+6.1f}% {_bar(row.error_before):<10}"
        after = f"{100 * row.after:>6.2f}%  {100 * row.error_after:>+6.1f}% {_bar(row.error_after)}"
        typer.echo(f"  top {100 * row.alpha:>3g}%    {100 * row.truth:>6.2f}%    {before} {after}")
    chosen = found[0]
    typer.echo(
        f"\nOn the top {100 * chosen.alpha:g}% the served scores over-predict by {100 * chosen.error_before:+.1f}%; "
        f"debiased, by {100 * chosen.error_after:+.1f}%. The ranking is the same.\n"
        "(The map is made for the kept: over all candidates the mean may move away a little.)\n"
        f"({time.perf_counter() - start:.0f} s; next: the same commands on your own logs, or uncurse reproduce "
        f"synthetic)\nThe page: {page.resolve().as_uri()}"
    )


def _run(*arguments: str | Path) -> None:
    words = [str(argument) for argument in arguments]
    typer.echo(f"\n$ uncurse {shlex.join(words)}")
    with as_command(words):
        code = app(words, standalone_mode=False)
    if code:
        raise typer.Exit(code)


def _bar(error: float) -> str:
    return "█" * round(20 * abs(error)) or "▏"


__all__ = ["demo"]
