"""`uncurse-lab reproduce`: the paper's experiments, every figure beside the paper's."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from uncurse import documents
from uncurse.cli.options import MarkdownFile
from uncurse.cli.output import Format, Quiet, check_outputs, emit, note, progress_over, working, write_file
from uncurse.errors import UncurseError
from uncurse.version import __version__

reproduce = typer.Typer(help="Run the experiments of the paper.", no_args_is_help=True, rich_markup_mode=None)


@reproduce.command()
def synthetic(
    replications: Annotated[
        int | None, typer.Option(min=2, help="Number of replications (default 100, as in the paper).")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the random numbers (default 0).")] = None,
    golden: Annotated[
        bool, typer.Option("--golden", help="Use the random stream of the authors, and compare with their figures.")
    ] = False,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Run the synthetic experiment of the paper.

    Example: uncurse-lab reproduce synthetic --replications 100 --seed 1 --format json
    """
    from ..paper import synthetic as experiment

    if golden and (replications is not None or seed is not None):
        raise UncurseError("--golden is one fixed stream of 100 replications; leave out --seed and --replications")
    if golden:
        figures = experiment.golden_records(experiment.run_golden(progress=progress_over("authors' stream", 100)))
        document = {"version": __version__, "figures": figures}
        emit(format, lambda: experiment.golden_text(figures), lambda: documents.dumps("golden", document))
        return
    count = 100 if replications is None else replications
    tables = experiment.run(count, seed or 0, progress=progress_over("replications", count))
    emit(format, lambda: experiment.text(tables), tables.to_json)


@reproduce.command(
    "avazu",
    help="The paper's experiment on Avazu's log with xDeepFM.",
    epilog="Example: uncurse-lab reproduce avazu --data train.csv --encoded avazu.clicks",
)
@reproduce.command(
    "criteo",
    help="The paper's experiment on Criteo's log with DLRM.",
    epilog="Example: uncurse-lab reproduce criteo --world --quick",
)
def clicks(
    context: typer.Context,
    data: Annotated[
        Path | None, typer.Option(help="Log file (train.txt or train.csv, may be gzipped); or use --world.")
    ] = None,
    world: Annotated[bool, typer.Option("--world", help="Simulate rows whose true probabilities are known.")] = False,
    encoded: Annotated[
        Path | None,
        typer.Option(
            help="File for the encoded log; it is read if it exists, and written otherwise. It belongs to one --rows "
            "and --seed, whose training rows it knows; with --vocabulary all, to every seed."
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1000,
            help="Rows to train, validate and test on; the paper has 15 million (Avazu: 10). The network that "
            "thins needs further rows; fewer are taken from a log that is too short, and the output says so.",
        ),
    ] = None,
    models: Annotated[int | None, typer.Option(min=2, help="Number of networks to train; the paper has 80.")] = None,
    worlds: Annotated[
        int, typer.Option(min=1, help="Number of simulated worlds, for standard errors between worlds.")
    ] = 1,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Training epochs; the paper has 2 (Avazu: 1), the Criteo world 3 by default."),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Click rate of the simulated rows.")] = None,
    thinning: Annotated[
        Literal["other", "same"],
        typer.Option(help="Rows of the network that thins pool and test: other rows, or the training rows."),
    ] = "other",
    decay: Annotated[
        bool,
        typer.Option("--decay", help="Let the learning rate fall to a hundredth: snapshots are poor replicas then."),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulated rows, the split and the networks.")] = 0,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Check that the command works, in two minutes on two cores: 8 networks, 80,000 rows, 2 epochs (Avazu: "
            "4, 60,000, 1). --models, --rows and --epochs change these. The networks are under-fitted, and do not "
            "show the paper's findings.",
        ),
    ] = False,
    vocabulary: Annotated[
        str, typer.Option(help="Rows whose values make up the vocabulary: training or all.")
    ] = "training",
    bad_share: Annotated[float, typer.Option(help="Largest share of bad lines before it is an error.")] = 0.01,
    device: Annotated[str | None, typer.Option(help="cuda or cpu (default: the GPU if there is one).")] = None,
    precision: Annotated[
        str, typer.Option(help="Precision of matrix products on a GPU: tf32, float32 or bf16.")
    ] = "tf32",
    checkpoint: Annotated[Path | None, typer.Option(help="File from which an interrupted training resumes.")] = None,
    all_tables: Annotated[
        bool, typer.Option("--all", help="Print every table of the paper, not only the main ones.")
    ] = False,
    markdown: MarkdownFile = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Train many networks, and measure every calibrator alone and with VAD."""
    name = str(context.info_name)
    # Threads that wait by spinning starve each other on busy cores; read when PyTorch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    given: dict[str, Any] = {"rows": rows, "models": models, "epochs": epochs, "rate": rate, "seed": seed}
    given |= {"worlds": worlds, "thinning": thinning, "decay": decay, "vocabulary": vocabulary, "device": device}
    given |= {"precision": precision, "bad_share": bad_share}
    from ..paper import text
    from ..paper.clicks import run
    from ..paper.rows import QUICK

    if world and data is not None:
        raise UncurseError("--world and --data exclude each other; leave one out")
    if not world and data is None:
        raise UncurseError("pass --data FILE, or --world for simulated rows (the logs themselves cannot be shipped)")
    if encoded is not None and data is None:
        raise UncurseError("--encoded keeps an encoded log; it goes with --data")
    outputs = {"--markdown": markdown, "--checkpoint": checkpoint, "--encoded": encoded}
    check_outputs(outputs, [] if data is None else [data])
    if quick:
        given |= {key: value for key, value in QUICK[name].items() if given.get(key) is None}
    tables = run(
        name,
        data=data,
        encoded=encoded,
        checkpoint=checkpoint,
        say=note,
        reading=lambda: working("reading the log"),
        training_progress=training_progress(),
        progress=lambda total: progress_over("networks", total),
        **given,
    )
    emit(format, lambda: text.text(tables, everything=all_tables), tables.to_json)
    if markdown is not None:
        write_file(markdown, text.markdown(tables))


def training_progress() -> Any:
    """Return a callback that prints a line every half minute; None at a terminal, which shows a bar."""
    if sys.stderr.isatty():
        return None
    last = [time.monotonic()]

    def line(p: Any) -> None:
        if time.monotonic() - last[0] > 30:
            last[0] = time.monotonic()
            speed = f"{p.rows_per_second:,.0f} rows/s"
            note(f"step {p.step:,} of {p.steps:,}, {speed}, log loss {p.loss:.4f}")

    return line
