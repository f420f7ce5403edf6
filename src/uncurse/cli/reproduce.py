"""`uncurse reproduce`: the paper's experiments, every figure beside the paper's."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .. import documents
from ..links import UncurseError
from .app import JsonOption, check_outputs, each, finish

reproduce = typer.Typer(
    help="Run the paper's experiments, every figure beside the paper's.", no_args_is_help=True, rich_markup_mode=None
)


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
    from ..experiments import synthetic as experiment

    check_outputs([json])
    if golden and (replications is not None or seed is not None):
        raise UncurseError("--golden is one fixed stream of 100 replications; leave out --seed and --replications")
    if golden:
        figures = experiment.run_golden(progress=each("authors' stream", 100))
        content = {"figures": {str(alpha): row for alpha, row in figures.items()}}
        finish(_golden_table(figures, experiment.GOLDEN), documents.dumps("golden", content), json)
        return
    count = 100 if replications is None else replications
    tables = experiment.run(count, seed or 0, progress=each("replications", count))
    finish(_synthetic_table(tables), tables.to_json(), json)


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
    from ..experiments import synthetic as experiment

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


__all__ = ["reproduce"]
