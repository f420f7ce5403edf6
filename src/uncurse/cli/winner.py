"""`uncurse winner`: the best of many candidates, and how good it really is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UncurseError
from ..text import aligned
from . import options
from .app import app
from .output import Format, Quiet, check_outputs, emit, note
from .reading import program_facts

if TYPE_CHECKING:
    import polars as pl


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
    from .. import winners
    from ..winners.winner import cells_of

    check_outputs({"--report": report}, results)
    suffixes = {Path(path).suffix for path in results}
    more: dict[str, Any] = {}
    if suffixes == {".jsonl"}:
        scores: Any = winners.from_lm_eval(results, score)
    elif suffixes <= {".eval", ".json"}:
        scores = winners.from_inspect(results, score)
    else:
        columns = {"--item": item, "--candidate": candidate, "--score": score}
        if estimate is not None:
            columns = {"--estimate": estimate, "--standard-error": standard_error}
        frame = _read(results, columns, (group, cluster, candidate))
        if estimate is None:
            roles = {"item": str(item), "candidate": str(candidate), "score": str(score)}
            scores = winners.from_frame(frame, **roles, cluster=cluster, group=group)
        else:
            scores, more = frame[estimate].to_numpy(), {"standard_error": frame[str(standard_error)].to_numpy()}
            more |= {} if group is None else {"groups": frame[group].to_numpy()}
            more |= {} if candidate is None else {"names": [str(name) for name in frame[candidate]]}
    found = winners.winner(scores, **more, higher_is_better=not lower_is_better)
    if report is not None:
        from ..report import winner_page

        winner_page(found, {"Results": results, **program_facts()}).to_html(report)
    table = found.to_frame()
    content: dict[str, Any] = {"groups": table.to_dicts()}
    text = "\n".join(aligned(cells_of(table)))
    if isinstance(found, winners.Winner):
        text = f"{found!r}\n{found.reason}\n\n{text}"
        names = ("name", "observed", "estimate", "probability_best", "expected_loss")
        content = {**{name: getattr(found, name) for name in names}, "candidates": table.to_dicts()}
        content["interval"] = list(found.interval())
    emit(format, text, "winner", content)
    if report is not None:
        note(f"written to {report}")


def _read(results: Sequence[str], columns: Mapping[str, str | None], others: Sequence[str | None]) -> pl.DataFrame:
    """Read tables; columns, by their options, are required, and others may be None."""
    import polars as pl

    from ..logs.files import kind_of

    for option, name in columns.items():
        if name is None:
            raise UncurseError(f"{option} is missing; name a column of {results[0]}, or --estimate with its error")
    readers = {"csv": lambda path: pl.read_csv(path, infer_schema_length=None), "parquet": pl.read_parquet}
    try:
        frame = pl.concat([readers[kind_of(path)](path) for path in results])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UncurseError(f"cannot read {', '.join(results)}: {str(error).splitlines()[0]}") from None
    for name in (*columns.values(), *others):
        if name is not None and name not in frame.columns:
            raise UncurseError(f"{results[0]} has no column {name!r}; it has {', '.join(frame.columns)}")
    return frame
