"""`uncurse-lab reproduce`: the paper's experiments, every figure beside the paper's."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from uncurse import documents
from uncurse.cli.output import Format, Quiet, check_outputs, note, working
from uncurse.errors import UncurseError
from uncurse.version import __version__

from .show import MarkdownFile, Seed, progress_over, refuse, show

reproduce = typer.Typer(help="Run the experiments of the paper.", no_args_is_help=True, rich_markup_mode=None)


@reproduce.command()
def synthetic(
    context: typer.Context,
    replications: Annotated[int, typer.Option(min=2, help="Number of replications.")] = 100,
    seed: Seed = 0,
    golden: Annotated[
        bool, typer.Option("--golden", help="Repeat the authors' 100 replications with their random numbers.")
    ] = False,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Run the synthetic experiment of the paper.

    Example: uncurse-lab reproduce synthetic --replications 100 --seed 1 --format json
    """
    from ..paper import synthetic as experiment

    if golden:
        refuse(context, "seed replications", "fresh random numbers; --golden repeats 100 replications of the authors")
        found = experiment.run_golden(progress=progress_over("authors' stream", 100))
        document = {"version": __version__, "figures": found}
        show(lambda brief: experiment.golden_parts(found), lambda: documents.dumps("golden", document), format)
        return
    tables = experiment.run(replications, seed, progress=progress_over("replications", replications))
    show(lambda brief: experiment.parts(tables), tables.to_json, format)


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
            "and --seed, whose training rows it knows."
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
    device: Annotated[str | None, typer.Option(help="cuda or cpu (default: the GPU if there is one).")] = None,
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
    from ..paper.clicks import run
    from ..paper.rows import QUICK
    from ..paper.text import parts

    if world and data is not None:
        raise UncurseError("--world and --data exclude each other; leave one out")
    if not world and data is None:
        raise UncurseError("pass --data FILE, or --world for simulated rows (the logs themselves cannot be shipped)")
    if encoded is not None and data is None:
        raise UncurseError("--encoded keeps an encoded log; it goes with --data")
    outputs = {"--markdown": markdown, "--encoded": encoded}
    check_outputs(outputs, [] if data is None else [data])
    sizes = {"rows": rows, "models": models, "epochs": epochs}
    if quick:
        sizes = {key: QUICK[name][key] if size is None else size for key, size in sizes.items()}
    tables = run(
        name,
        data=data,
        encoded=encoded,
        **sizes,
        worlds=worlds,
        thinning=thinning,
        decay=decay,
        seed=seed,
        device=device,
        say=note,
        reading=lambda: working("reading the log"),
        progress=partial(progress_over, "networks"),
    )
    show(partial(parts, tables), tables.to_json, format, brief=not all_tables, markdown=markdown)
