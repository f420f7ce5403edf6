"""`uncurse reproduce`: the paper's experiments, every figure beside the paper's."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import documents
from ..errors import UncurseError
from .app import JsonOption, check_outputs, each, finish, say, working

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


Data = Annotated[
    Path | None, typer.Option("--data", exists=False, help="The log (train.txt, train.csv, or gzipped); else --world.")
]
World = Annotated[bool, typer.Option("--world", help="Rows of a made world, whose true probabilities are known.")]
Encoded = Annotated[
    Path | None, typer.Option("--encoded", help="Keep the encoded log here; where it is there, it is read instead.")
]
Rows = Annotated[
    int | None, typer.Option(min=1000, help="To train, validate and test on; the paper has 15 million (Avazu: 10).")
]
Models = Annotated[int | None, typer.Option(min=2, help="Replicas to train; the paper has 80.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="The paper has 2 (Avazu: 1).")]
Rate = Annotated[float | None, typer.Option("--rate", help="Of clicks in the world.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the world, the split and the first model.")]
Quick = Annotated[bool, typer.Option("--quick", help="Two minutes on two cores: few rows, few models.")]
Vocabulary = Annotated[str, typer.Option("--vocabulary", help="Whose values are known: training (rows), or all.")]
BadShare = Annotated[float, typer.Option("--bad-share", help="More bad lines than this share are an error.")]
Device = Annotated[str | None, typer.Option("--device", help="cuda or cpu; by default the GPU where there is one.")]
Precision = Annotated[str, typer.Option("--precision", help="Of matrix products on a GPU: tf32, float32 or bf16.")]
Checkpoint = Annotated[Path | None, typer.Option("--checkpoint", help="A file that a killed training goes on from.")]
All = Annotated[bool, typer.Option("--all", help="Print every table of the paper, not only the main ones.")]
Markdown = Annotated[Path | None, typer.Option("--markdown", help="Also write every table as Markdown to this file.")]


@reproduce.command(
    "avazu",
    help="The paper's experiment on Avazu's log with xDeepFM.",
    epilog="Example: uncurse reproduce avazu --data train.csv --encoded avazu.clicks",
)
@reproduce.command(
    "criteo",
    help="The paper's experiment on Criteo's log with DLRM.",
    epilog="Example: uncurse reproduce criteo --world --quick",
)
def clicks(
    context: typer.Context,
    data: Data = None,
    world: World = False,
    encoded: Encoded = None,
    rows: Rows = None,
    models: Models = None,
    epochs: Epochs = None,
    rate: Rate = None,
    seed: Seed = 0,
    quick: Quick = False,
    vocabulary: Vocabulary = "training",
    bad_share: BadShare = 0.01,
    device: Device = None,
    precision: Precision = "tf32",
    checkpoint: Checkpoint = None,
    all_tables: All = False,
    markdown: Markdown = None,
    json: JsonOption = None,
) -> None:
    """Many models side by side, every calibrator alone and with VAD, each figure beside the paper's."""
    name = str(context.info_name)
    # Threads that wait by spinning starve each other on busy cores; read when PyTorch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    given: dict[str, Any] = {"rows": rows, "models": models, "epochs": epochs, "rate": rate, "seed": seed}
    given |= {"vocabulary": vocabulary, "device": device, "precision": precision, "bad_share": bad_share}
    from ..experiments.click_models import QUICK, run
    from . import tables_text

    if world and data is not None:
        raise UncurseError("--world and --data exclude each other; leave one out")
    if not world and data is None:
        raise UncurseError("say --data FILE, or --world for rows that are made (the logs themselves cannot be shipped)")
    if encoded is not None and data is None:
        raise UncurseError("--encoded keeps an encoded log; it goes with --data")
    check_outputs([json, markdown, checkpoint, encoded], [] if data is None else [data])
    if quick:
        given |= {key: value for key, value in QUICK[name].items() if given.get(key) is None}
    tables = run(
        name,
        data=data,
        encoded=encoded,
        checkpoint=checkpoint,
        say=lambda text: typer.echo(text, err=True),
        reading=lambda: working("reading the log"),
        training_progress=training_progress(),
        progress=lambda total: each("served models", total),
        **given,
    )
    finish(tables_text.text(tables, everything=all_tables), tables.to_json(), json)
    if markdown is not None:
        documents.write(markdown, tables_text.markdown(tables))
        say(f"written to {markdown}")


def training_progress() -> Any:
    """None where a terminal gets a bar; else a line every half minute."""
    if sys.stderr.isatty():
        return None
    last = [time.monotonic()]

    def line(p: Any) -> None:
        if time.monotonic() - last[0] > 30:
            last[0] = time.monotonic()
            speed = f"{p.rows_per_second:,.0f} rows/s"
            typer.echo(f"step {p.step:,} of {p.steps:,}, {speed}, log loss {p.loss:.4f}", err=True)

    return line


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
