"""`uncurse winner`: the best of many candidates, and how good it really is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UncurseError
from ..text import aligned
from . import options
from .app import app
from .output import Format, Quiet, check_outputs, emit, note
from .reading import program_facts


@app.command()
def winner(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULTS...",
            help="Parquet or CSV file; samples_*.jsonl of lm-evaluation-harness; .eval or .json logs of Inspect.",
        ),
    ],
    item: Annotated[str | None, typer.Option(help="Column of the items, such as questions.")] = None,
    candidate: Annotated[str | None, typer.Option(help="Column of the candidates, such as models.")] = None,
    score: Annotated[str | None, typer.Option(help="Column of the scores, or name of a metric or scorer.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Column of clusters of related items.")] = None,
    estimate: Annotated[str | None, typer.Option(help="Column of estimates, instead of items and scores.")] = None,
    standard_error: Annotated[str | None, typer.Option(help="Column of their standard errors.")] = None,
    group: Annotated[str | None, typer.Option(help="Column of groups, such as tests; each has a winner.")] = None,
    lower_is_better: Annotated[bool, typer.Option("--lower-is-better", help="The lowest score wins.")] = False,
    report: options.ReportFile = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Pick the best of many candidates, and correct its value.

    The best of many noisy values is too high on average, because luck helped to pick it.

    \b
    Examples:
      uncurse winner results.csv --item id --candidate model --score correct --report report.html
      uncurse winner tests.csv --estimate ctr --standard-error se --group test
      uncurse winner results/*/samples_*.jsonl
    """
    import polars as pl

    from .. import winners
    from ..logs.files import kind_of

    check_outputs({"--report": report}, results)
    suffixes = {Path(path).suffix for path in results}
    higher = not lower_is_better
    if suffixes == {".jsonl"}:
        found = winners.winner(winners.from_lm_eval(results, score), higher_is_better=higher)
    elif suffixes <= {".eval", ".json"}:
        found = winners.winner(winners.from_inspect(results, score), higher_is_better=higher)
    else:
        try:
            readers = {"csv": lambda path: pl.read_csv(path, infer_schema_length=None), "parquet": pl.read_parquet}
            frame = pl.concat([readers[kind_of(path)](path) for path in results])
        except (OSError, pl.exceptions.PolarsError) as error:
            raise UncurseError(f"cannot read {', '.join(results)}: {str(error).splitlines()[0]}") from None
        columns = {"--item": item, "--candidate": candidate, "--score": score}
        if estimate is not None:
            columns = {"--estimate": estimate, "--standard-error": standard_error}
        for option, name in columns.items():
            if name is None:
                raise UncurseError(f"{option} is missing; name a column of {results[0]}, or --estimate with its error")
        for name in (*columns.values(), group, cluster, candidate):
            if name is not None and name not in frame.columns:
                raise UncurseError(f"{results[0]} has no column {name!r}; it has {', '.join(frame.columns)}")
        if estimate is None:
            roles = {"item": str(item), "candidate": str(candidate), "score": str(score)}
            scores = winners.from_frame(frame, **roles, cluster=cluster, group=group)
            found = winners.winner(scores, higher_is_better=higher)
        else:
            found = winners.winner(
                frame[estimate].to_numpy(),
                standard_error=frame[str(standard_error)].to_numpy(),
                groups=None if group is None else frame[group].to_numpy(),
                names=None if candidate is None else [str(name) for name in frame[candidate]],
                higher_is_better=higher,
            )
    if report is not None:
        from ..report import winner_page

        winner_page(found, {"Results": results, **program_facts()}).to_html(report)
    table = found.to_frame()
    lines = [[cell if isinstance(cell, str) else f"{cell:.4g}" for cell in row] for row in table.rows()]
    content: dict[str, Any] = {"groups": table.to_dicts()}
    text = "\n".join(aligned([table.columns, *lines]))
    if isinstance(found, winners.Winner):
        text = f"{found!r}\n{found.reason}\n\n{text}"
        names = ("name", "observed", "estimate", "probability_best", "expected_loss")
        content = {**{name: getattr(found, name) for name in names}, "candidates": table.to_dicts()}
        content["interval"] = list(found.interval())
    emit(format, text, "winner", content)
    if report is not None:
        note(f"written to {report}")
