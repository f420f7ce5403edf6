"""`uncurse winner`: the best of many candidates, and how good it really is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UncurseError
from ..text import aligned
from . import options
from .app import app
from .output import Format, Quiet, check_outputs, emit, note
from .reading import program_facts

_LISTED = 20  # groups in a terminal
#: Columns that a table needs, and those that it may have. The first two tell tables apart.
_FORMS = (
    (("successes", "trials"), ("candidate", "group")),
    (("estimate", "standard_error"), ("candidate", "group")),
    (("score", "candidate", "item"), ("cluster", "group")),
    ((), ("item", "cluster")),
)


@app.command()
def winner(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULTS...",
            help="Parquet or CSV file; samples_*.jsonl of lm-evaluation-harness; .eval or .json logs of Inspect.",
        ),
    ],
    successes: Annotated[str | None, typer.Option(help="Column of successes, such as clicks.")] = None,
    trials: Annotated[str | None, typer.Option(help="Column of trials, such as impressions.")] = None,
    estimate: Annotated[str | None, typer.Option(help="Column of estimates, instead of successes.")] = None,
    standard_error: Annotated[str | None, typer.Option(help="Column of their standard errors.")] = None,
    item: Annotated[str | None, typer.Option(help="Column of the items, such as questions.")] = None,
    candidate: Annotated[str | None, typer.Option(help="Column of the candidates, such as models.")] = None,
    score: Annotated[str | None, typer.Option(help="Column of the scores, or name of a metric or scorer.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Column of clusters of related items.")] = None,
    group: Annotated[str | None, typer.Option(help="Column of groups, such as tests; each has a winner.")] = None,
    lower_is_better: Annotated[bool, typer.Option("--lower-is-better", help="The lowest score wins.")] = False,
    report: options.ReportFile = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Pick the best of many candidates, and correct its value.

    The best of many noisy values is too high on average, because luck helped to pick it. Without names of columns, a
    table has a row for each item and a column for each candidate.

    \b
    Examples:
      uncurse winner tests.csv --successes clicks --trials impressions --group test
      uncurse winner scores.csv --report report.html
      uncurse winner results.csv --item id --candidate model --score correct
      uncurse winner results/*/samples_*.jsonl
    """
    from .. import winners
    from ..winners.winner import cells_of

    check_outputs({"--report": report}, results)
    given = {
        "successes": successes, "trials": trials, "estimate": estimate, "standard_error": standard_error,
        "item": item, "candidate": candidate, "score": score, "cluster": cluster, "group": group,
    }  # fmt: skip
    columns = {role: name for role, name in given.items() if name is not None}
    suffixes = {Path(path).suffix for path in results}
    higher = not lower_is_better
    if suffixes == {".jsonl"} or suffixes <= {".eval", ".json"}:
        _check_options(columns, (), ("score",), "files of evaluations")
        read = winners.from_lm_eval if suffixes == {".jsonl"} else winners.from_inspect
        found = winners.winner(read(results, score), higher_is_better=higher)
    else:
        found = _of_table(results, columns, higher)
    if report is not None:
        from ..report import winner_page

        winner_page(found, {"Results": results, **program_facts()}).to_html(report)
    value, table = found.mean() if isinstance(found, winners.Winners) else found, found.to_frame()
    single = value is found
    content: dict[str, Any] = {name: getattr(value, name) for name in ("observed", "estimate")}
    content |= {"interval": list(value.interval()), "candidates" if single else "groups": table.to_dicts()}
    if single:
        content |= {name: getattr(value, name) for name in ("name", "probability_best", "expected_loss")}
    lines = aligned(cells_of(table if single else table.head(_LISTED)))
    if len(lines) <= len(table):
        lines.append(f"The first {_LISTED} of {len(table):,} groups; --format json prints all.")
    emit(format, "\n".join([repr(found), found.reason, "", *lines]), "winner", content)
    if report is not None:
        note(f"written to {report}")


def _of_table(results: list[str], columns: dict[str, str], higher: bool) -> Any:
    """Return the winner of tables, whose columns have these roles."""
    import narwhals.stable.v2 as nw
    import polars as pl

    from .. import winners
    from ..logs.files import kind_of
    from ..winners.scores import numbers_of

    readers = {"csv": lambda path: pl.read_csv(path, infer_schema_length=None), "parquet": pl.read_parquet}
    try:
        frame = pl.concat([readers[kind_of(path)](path) for path in results])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UncurseError(f"cannot read {', '.join(results)}: {str(error).splitlines()[0]}") from None
    needed, allowed = next(form for form in _FORMS if not form[0] or {*form[0][:2]} & {*columns})
    _check_options(columns, needed, allowed, f"--{needed[0]}" if needed else "a table with a column for each candidate")
    for name in columns.values():
        if name not in frame.columns:
            raise UncurseError(f"{results[0]} has no column {name!r}; it has {', '.join(frame.columns)}")
    if not needed:
        clusters = frame[columns["cluster"]].to_numpy() if "cluster" in columns else None
        try:
            return winners.winner(frame.drop(columns.values()), clusters=clusters, higher_is_better=higher)
        except UncurseError as error:
            raise UncurseError(f"{error}; if each score has a row, name --item, --candidate and --score") from None
    if "item" in needed:
        return winners.winner(winners.from_frame(frame, **columns), higher_is_better=higher)
    values, errors = (numbers_of(nw.from_native(frame), columns[role], missing=False) for role in needed)
    names = frame[columns["candidate"]].to_list() if "candidate" in columns else [f"row {i}" for i in range(len(frame))]
    groups = frame[columns["group"]].to_numpy() if "group" in columns else None
    return winners.winner(values, **{needed[1]: errors}, groups=groups, names=names, higher_is_better=higher)


def _check_options(columns: Collection[str], needed: Sequence[str], allowed: Sequence[str], what: str) -> None:
    def named(roles: Iterable[str]) -> list[str]:
        return [f"--{role.replace('_', '-')}" for role in roles]

    for missing in named(role for role in needed if role not in columns):
        raise UncurseError(f"{missing} is missing; {', '.join(named(needed))} belong together")
    for extra in named(role for role in columns if role not in (*needed, *allowed)):
        raise UncurseError(f"{extra} does not belong to {what}; leave it out")
