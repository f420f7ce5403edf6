"""`uncurse collect`, `apply` and `evaluate`: logs in, evidence, corrected scores and a page out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import documents
from ..errors import UncurseError
from .app import JsonOption, app, check_outputs, command, finish, say, working
from .options import (
    SCALES,
    Engine,
    Group,
    Label,
    Link,
    Logs,
    LogsOrEvidence,
    NegativeRate,
    Request,
    Scale,
    TopK,
    Weight,
)
from .reading import as_served, evidence_of, names_of, read, shares_of
from .texts import evaluation_records, evaluation_text

if TYPE_CHECKING:
    from ..evidence import Evidence


@app.command()
def collect(
    log: Logs,
    scores: Annotated[
        str, typer.Option("--scores", help="Columns of the replicas' scores, comma-separated, the served one first.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Evidence file to write, such as day.json.")],
    scale: Scale,
    label: Label = None,
    weight: Weight = None,
    group: Group = None,
    request: Request = None,
    top_k: TopK = None,
    negative_rate: NegativeRate = None,
    link: Link = "logistic",
    replica_counts: Annotated[
        bool | None,
        typer.Option(
            help="Count the replica scores together, for --method auto and tower; by default for two or more logits."
        ),
    ] = None,
    engine: Engine = "polars",
    json: JsonOption = None,
) -> None:
    """Sum a log up into one small file of evidence, which fit and evaluate read and merge.

    Example: uncurse collect 'logs/2026-11-15/*.parquet' --scores s1,s2 --scale logit --label click -o day.json
    """
    check_outputs([out, json], log)
    if replica_counts is None:
        replica_counts = len(names_of(scores)) > 1 and scale != "value" and link == "logistic"
    options = (weight, group, request, top_k, scale, link, negative_rate, engine, replica_counts)
    found = read(log, names_of(scores), label, *options)
    selection = found.spec.top_k
    found.save(out)
    record: dict[str, Any] = {
        "out": str(out),
        "rows": found.rows,
        "columns": ",".join(found.spec.scores),
        "groups": len(found.groups),
        "selection": str(selection or "all rows"),
        "replica_counts": 0 if found.replica_counts is None else len(found.replica_counts),
    }
    text = f"{found.rows:,} rows of {', '.join(found.spec.scores)}"
    text += f" in {len(found.groups):,} groups" if found.groups else ""
    text += f", {selection}" if selection else ""
    finish(f"{text}: written to {out}", documents.dumps("collected", record), json, [record])


@app.command()
def apply(
    score_map: Annotated[Path, typer.Argument(metavar="MAP", help="A map file that fit wrote.")],
    log: Annotated[str, typer.Argument(metavar="LOG", help="A parquet or CSV file, a glob or a folder.")],
    score: Annotated[str, typer.Option(help="Column of the served score.")],
    out: Annotated[str, typer.Option("--out", "-o", help="The file to write; a folder where LOG is several.")],
    column: Annotated[str, typer.Option(help="Name of the new column.")] = "prediction",
    group: Annotated[str | None, typer.Option(help="Column of groups, for a map by group.")] = None,
    engine: Engine = "polars",
    json: JsonOption = None,
) -> None:
    """Add the map's predictions to a log as a last column; all other columns and the order of rows are kept.

    Example: uncurse apply map.json log.parquet --score s1 -o corrected.parquet
    """
    from ..logs.writing import apply_to_files
    from ..maps import Grouped, load, load_record

    check_outputs([json], [log, score_map])
    loaded = load(score_map)
    if isinstance(loaded, Grouped) and group is None:
        group = load_record(score_map).get("group")
    with working(f"applying {score_map}") as advance:
        written = apply_to_files(
            loaded, log, out, score=score, column=column, group=group, engine=engine, progress=lambda _: advance(1)
        )
    where = written[0] if len(written) == 1 else out
    record = {"column": column, "files": len(written), "out": where}
    text = f"column {column!r} added to {len(written)} file{'s' if len(written) > 1 else ''}: written to {where}"
    finish(text, documents.dumps("applied", {**record, "written": written}), json, [record])


@app.command()
def evaluate(
    log: LogsOrEvidence,
    score: Annotated[str | None, typer.Option(help="Column of the served score.")] = None,
    label: Label = None,
    maps: Annotated[
        list[Path] | None, typer.Option("--map", help="A map file to compare with the scores as served; may repeat.")
    ] = None,
    alpha: Annotated[
        str | None, typer.Option(help="Shares to select: 0.02:0.10:0.01 (the default), or 0.02,0.1.")
    ] = None,
    request: Request = None,
    top_k: TopK = None,
    scale: Annotated[
        str | None, typer.Option(help="What the scores are: logit (default) or probability.", autocompletion=SCALES)
    ] = None,
    weight: Weight = None,
    group: Annotated[str | None, typer.Option(help="Column of groups, for maps by group.")] = None,
    negative_rate: NegativeRate = None,
    bins: Annotated[int, typer.Option(min=1, help="Bins of ECE and MCE.")] = 10,
    engine: Engine = "polars",
    report: Annotated[Path | None, typer.Option(help="Write one offline HTML page there.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Write every figure as SVG and PNG to this folder.")] = None,
    json: JsonOption = None,
) -> None:
    """How true are the predictions of the selected rows, as served and through each map?

    \b
    Examples:
      uncurse evaluate log.parquet --score s1 --label click --map map.json --report report.html
      uncurse evaluate day.json --map a.json --map b.json --alpha 0.01,0.05
      uncurse evaluate log.parquet --score s1 --label click --request request_id --top-k 1
    """
    from ..debias.replica_kinds import KINDS
    from ..maps import Grouped, load, load_record
    from ..metrics import evaluate_log
    from ..report import Method, Report, describe

    check_outputs([json, report, figures], [*log, *(maps or [])])
    loaded = [(path, load(path), load_record(path)) for path in maps or []]
    for path, one, about in loaded:
        own = about.get("group") if isinstance(one, Grouped) else None
        if own is not None and group not in (None, own):
            raise UncurseError(f"{path} has a map for each {own}, and {group!r} is asked for; evaluate it on its own")
        group = group or own
    options = (weight, group, request, top_k, scale or "logit", "logistic", None, engine)
    given = {"score": score, "label": label, "request": request, "weight": weight, "scale": scale}
    evidence = evidence_of(log, score, label, options, given, need_label=True)
    spec = evidence.spec
    selection = None if spec.top_k is None else str(spec.top_k)
    shares = shares_of(alpha, selection)
    for path, one, about in loaded:
        if isinstance(one, Grouped) and not evidence.groups:
            column = about.get("group") or "COLUMN"
            raise UncurseError(f"{path} has a map for each group; collect {', '.join(log)} with --group {column}")
    for path, _, about in loaded:
        kind = KINDS.get(about.get("replicas", ""))
        if kind is not None and not kind.served_is_a_column and log[0].lower().endswith(".json"):
            raise UncurseError(
                f"{path} takes the mean of {', '.join(about.get('columns', ())) or 'the members'}, which evidence does "
                "not hold; evaluate it on a log with a column of the mean"
            )
    for path, one, _ in loaded:
        if one.scale != spec.scale:
            raise UncurseError(
                f"{path} takes scores on the {one.scale} scale and these are {spec.scale}s; say --scale "
                f"{one.scale} if they are, or fit a map to them"
            )
    plain = as_served(evidence, negative_rate)
    names = _distinct([str(path) for path, _, _ in loaded])
    try:
        methods = [Method("as served", evaluate_log(evidence, plain, shares, n_bins=bins))]
        methods += [
            Method(name, evaluate_log(evidence, one, shares, n_bins=bins), about)
            for name, (_, one, about) in zip(names, loaded, strict=True)
        ]
    except UncurseError as error:
        raise UncurseError(f"{', '.join(log)}, label {spec.label!r}: {error}") from None
    facts = _facts(log, evidence, names)
    assert evidence.cells is not None  # a log with labels has a logit
    page = Report(methods, served=describe(evidence.cells), facts=facts, selection=selection)
    content = {
        "facts": facts,
        "selection": selection,
        "methods": [{"name": m.name, "evaluation": m.evaluation.to_dict(), "about": m.about} for m in methods],
    }
    if report is not None:
        with working("drawing"):
            page.to_html(report)
    if figures is not None:
        with working("drawing"):
            page.save_figures(figures)
    finish(
        evaluation_text(methods, evidence), documents.dumps("evaluations", content), json, evaluation_records(methods)
    )
    for written in (report, figures):
        if written is not None:
            say(f"written to {written}")


# ---------------------------------------------------------------------------- facts


def _distinct(names: list[str]) -> list[str]:
    """File names where they differ, whole paths where they do not."""
    short = [Path(name).name for name in names]
    return short if len(set(short)) == len(short) and "as served" not in short else names


def _facts(log: Sequence[str], evidence: Evidence, maps: list[str]) -> dict[str, str | list[str]]:
    import platform
    from importlib.metadata import version

    spec = evidence.spec
    versions = [f"{name} {version(name)}" for name in ("uncurse", "numpy", "polars")]
    facts: dict[str, str | list[str]] = {
        "Log": list(log),
        "Rows": f"{evidence.rows:,}",
        "Served score": f"{spec.scores[0]} ({spec.scale})",
        "Label": str(spec.label),
    }
    if spec.weight is not None:
        facts["Weight"] = spec.weight
    if spec.top_k is not None:
        facts["Selection"] = str(spec.top_k)
    if maps:
        facts["Maps"] = maps
    return {**facts, "Command": command(), "Versions": ", ".join([*versions, f"Python {platform.python_version()}"])}


__all__ = ["apply", "collect", "evaluate"]
