"""The command line: arguments in, one call, a table out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from . import __version__, documents
from .links import UncurseError

app = typer.Typer(
    name="uncurse",
    help="Predictions that stay true after the winners are picked.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
reproduce = typer.Typer(
    help="Run the paper's experiments, every figure beside the paper's.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(reproduce, name="reproduce")

JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Also write every number to this file ('-': only that, to stdout).")
]


def main() -> None:
    """Run the command line; bad input is one line and exit code 2."""
    try:
        app()
    except UncurseError as error:
        typer.echo(f"uncurse: {error}", err=True)
        sys.exit(2)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def demo(seed: Annotated[int, typer.Option(min=0, help="Another seed is another world.")] = 0) -> None:
    """See maximization bias appear and vanish, on data made here with known truth.

    Example: uncurse demo --seed 1
    """
    from .experiments import demo as world

    start = time.perf_counter()
    typer.echo(
        f"A model scores {world.CANDIDATES:,} candidates and the best are kept. The kept scores are too high:\n"
        "the best of many noisy scores is more often lucky than good.\n"
    )
    classifier, outcomes = world.run(seed)
    typer.echo(f"Trained on {world.SHOWN:,} labelled rows; a second, bootstrapped fit shows how noisy the scores are:")
    typer.echo(
        f"  λ = {classifier.vad_.lambda_:.3f}, so every logit is pulled towards the pool's mean by that factor.\n"
    )
    typer.echo("            true rate    predicted before            predicted after")
    for row in outcomes:
        before = f"{100 * row.before:>6.2f}%  {100 * row.error_before:>+6.1f}% {_bar(row.error_before):<10}"
        after = f"{100 * row.after:>6.2f}%  {100 * row.error_after:>+6.1f}% {_bar(row.error_after)}"
        typer.echo(f"  top {100 * row.alpha:>3g}%    {100 * row.truth:>6.2f}%    {before} {after}")
    chosen = outcomes[0]
    typer.echo(
        f"\nOn the top {100 * chosen.alpha:g}% the served scores over-predict by {100 * chosen.error_before:+.1f}%; "
        f"debiased, by {100 * chosen.error_after:+.1f}%. The ranking is the same."
    )
    typer.echo(f"({time.perf_counter() - start:.1f} s; next: uncurse reproduce synthetic)")


def _bar(error: float) -> str:
    return "█" * round(20 * abs(error)) or "▏"


@reproduce.command()
def synthetic(
    replications: Annotated[int | None, typer.Option(min=2, help="How many times; 100, as in the paper.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the random numbers; 0.")] = None,
    golden: Annotated[
        bool, typer.Option("--golden", help="The authors' own random stream, against its known figures.")
    ] = False,
    json: JsonOption = None,
) -> None:
    """The paper's synthetic experiment (its tables for logistic regression).

    Example: uncurse reproduce synthetic --replications 100 --seed 1 --json synthetic.json
    """
    from .experiments import synthetic as experiment

    quiet = json is not None and str(json) == "-"
    if json is not None and not quiet and not json.parent.is_dir():
        raise UncurseError(f"cannot write {json}: No such file or directory")  # now, not after the work
    if golden and (replications is not None or seed is not None):
        raise UncurseError("--golden is one fixed stream of 100 replications; leave out --seed and --replications")
    if golden:
        figures = experiment.run_golden(progress=_progress("authors' stream", 100))
        content = {"figures": {str(alpha): row for alpha, row in figures.items()}}
        _finish(_golden_table(figures, experiment.GOLDEN), documents.dumps("golden", content), json, quiet)
        return
    count = 100 if replications is None else replications
    tables = experiment.run(count, seed or 0, progress=_progress("replications", count))
    _finish(_synthetic_table(tables), tables.to_json(), json, quiet)


def _finish(text: str, content: str, path: Path | None, quiet: bool) -> None:
    typer.echo(content if quiet else text)
    if path is not None and not quiet:
        documents.write(path, content + "\n")
        typer.echo(f"\nwritten to {path}")


def _golden_table(figures: dict[float, dict[str, float]], golden: dict[float, dict[str, float]]) -> str:
    lines = ["The authors' random stream, means over 100 replications:", ""]
    lines.append(f"{'α':>4}  {'figure':<12} {'ours':>10} {'theirs':>9} {'difference':>11}")
    for alpha, row in figures.items():
        for name, value in row.items():
            theirs = golden[alpha][name]
            lines.append(f"{100 * alpha:>3g}%  {name:<12} {value:>10.6f} {theirs:>9g} {value - theirs:>+11.1e}")
    return "\n".join(lines)


_TITLES = {
    "calibration_error": ("Calibration error, %", 100),
    "ece": ("ECE, 10 bins of equal count", 1),
    "mce": ("MCE", 1),
    "log_loss_reduction": ("Log-loss reduction, %", 100),
}


def _synthetic_table(tables: Any) -> str:
    from .experiments import synthetic as experiment

    lines = [
        f"Means ± standard errors over {tables.replications} replications (seed {tables.seed}); in brackets the paper's"
    ]
    lines.append("figure and the difference in combined standard errors.")
    for metric, (title, unit) in _TITLES.items():
        methods = experiment.METHODS[:4] if metric != "log_loss_reduction" else ("VAD",)
        floor = f"{'noise floor':>13}" if metric in ("ece", "mce") else ""
        lines += ["", title, f"{'α':>5}" + "".join(f"{name:>30}" for name in methods) + floor]
        for alpha in experiment.ALPHAS:
            line = f"{100 * alpha:>4g}%"
            for method in methods:
                line += f"{_cell_text(tables.cell(metric, alpha, method), unit):>30}"
            if floor:
                line += f"{tables.cell(metric + '_floor', alpha, 'VAD').mean:>13.4f}"
            lines.append(line)
    lines += ["", "Calibration error, %, with other replicas (and against the true probabilities), and mean λ"]
    for method in experiment.METHODS:
        line = f"{method:>22}"
        for alpha in (0.02, 0.05, 0.1):
            ours, true = (tables.cell(name, alpha, method) for name in ("calibration_error", "true_error"))
            line += f"   {100 * alpha:>2g}%: {100 * ours.mean:>+6.2f} ± {100 * ours.standard_error:.2f}"
            line += f" ({100 * true.mean:>+6.2f})"
        lines.append(line + (f"   λ {tables.lambdas[method]:.4f}" if method in tables.lambdas else ""))
    far, count = tables.far()
    lines += ["", f"{far} of {count} cells lie more than 3 combined standard errors from the paper's."]
    return "\n".join(lines)


def _cell_text(cell: Any, unit: int) -> str:
    digits = 2 if unit == 100 else 4
    text = f"{unit * cell.mean:.{digits}f}±{unit * cell.standard_error:.{digits}f}"
    if cell.paper_mean is not None:
        text += f" [{unit * cell.paper_mean:.{digits}f} {cell.distance:+.1f}]"
    return text


def _progress(description: str, total: int) -> Callable[[Iterator[Any]], Iterable[Any]]:
    """A bar on standard error where that is a terminal; silence where it is not."""
    if not sys.stderr.isatty():
        return iter
    from rich.console import Console
    from rich.progress import track

    return lambda items: track(items, description, total=total, console=Console(stderr=True), transient=True)


if __name__ == "__main__":
    main()
