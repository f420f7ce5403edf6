"""`uncurse collect`, `fit`, `apply` and `evaluate`: logs in, a map, corrected scores and a page out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import documents
from ..links import UncurseError
from .app import JsonOption, app, check_outputs, command, finish, say, working
from .options import (
    CALIBRATORS,
    LINKS,
    REPLICAS,
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
    Scores,
    TopK,
    Weight,
)
from .reading import as_served, check_pool, evidence_of, names_of, read, shares_of
from .texts import evaluation_records, evaluation_text, fit_text

if TYPE_CHECKING:
    from ..evidence import Evidence


@app.command()
def collect(
    log: Logs,
    scores: Annotated[
        str, typer.Option("--scores", help="Columns of the replicas' scores, comma-separated, the served one first.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The evidence file to write, such as day.json.")],
    scale: Scale = "logit",
    label: Label = None,
    weight: Weight = None,
    group: Group = None,
    request: Request = None,
    top_k: TopK = None,
    negative_rate: NegativeRate = None,
    link: Link = "logistic",
    engine: Engine = "polars",
    json: JsonOption = None,
) -> None:
    """Sum a log up into one small file of evidence, which fit and evaluate read and merge.

    Example: uncurse collect 'logs/2026-11-15/*.parquet' --scores s1,s2 --label click -o day.json
    """
    check_outputs([out, json], log)
    found = read(log, names_of(scores), label, weight, group, request, top_k, scale, link, negative_rate, engine)
    found.save(out)
    record: dict[str, Any] = {
        "out": str(out),
        "rows": found.rows,
        "columns": ",".join(found.columns),
        "groups": len(found.groups),
        "selection": found.selection or "all rows",
    }
    text = f"{found.rows:,} rows of {', '.join(found.columns)}"
    text += f" in {len(found.groups):,} groups" if found.groups else ""
    text += f", {found.selection}" if found.selection else ""
    finish(f"{text}: written to {out}", documents.dumps("collected", record), json, [record])


@app.command()
def fit(
    pool: LogsOrEvidence,
    out: Annotated[Path, typer.Option("--out", "-o", help="The map file to write, such as map.json.")],
    scores: Scores = None,
    scale: Annotated[
        str | None,
        typer.Option(help="What the scores are: logit (default), probability, value.", autocompletion=SCALES),
    ] = None,
    labelled: Annotated[
        list[str] | None, typer.Option(help="For a calibrator: a log with labels, or evidence of one; may repeat.")
    ] = None,
    label: Label = None,
    method: Annotated[str, typer.Option(help="How: vad.")] = "vad",
    calibrator: Annotated[
        str | None,
        typer.Option(help="Calibrate on the labelled log first: platt, isotonic, beta, …", autocompletion=CALIBRATORS),
    ] = None,
    replicas: Annotated[
        str,
        typer.Option(
            help="How the columns came about: seeds, bootstrap or anchored (around the served).",
            autocompletion=REPLICAS,
        ),
    ] = "seeds",
    curvature: Annotated[bool, typer.Option("--curvature", help="Correct for the bend of the link too.")] = False,
    group: Group = None,
    weight: Weight = None,
    negative_rate: NegativeRate = None,
    lambda_floor: Annotated[
        float | None, typer.Option(help="Use this λ, with a warning, where the estimate is lower.")
    ] = None,
    link: Annotated[
        str | None, typer.Option(help="Where scores are shrunk: logistic (default), identity, …", autocompletion=LINKS)
    ] = None,
    engine: Engine = "polars",
    json: JsonOption = None,
) -> None:
    """Fit a score map to the candidate pool: logs with the scores of two or more replicas, no labels needed.

    \b
    Examples:
      uncurse fit pool.parquet --scores s1,s2 --scale logit -o map.json
      uncurse fit monday.json tuesday.json -o map.json
      uncurse fit pool.parquet --scores s1,s2 --labelled log.parquet --label click --calibrator platt -o map.json
    """
    from .. import VAD
    from ..report.about import about_fit

    check_outputs([out, json], [*pool, *(labelled or [])])
    if method != "vad":
        raise UncurseError(f"method={method!r} is unknown; choose one of vad")
    if labelled and calibrator is None:
        raise UncurseError("--labelled is for a calibrator; name one, such as --calibrator platt")
    if calibrator is not None and not labelled:
        raise UncurseError(f"--calibrator {calibrator} needs --labelled, a log with labels, and --label, their column")
    options = (weight, group, None, None, scale or "logit", link or "logistic", negative_rate, engine)
    given: dict[str, Any] = {"scores": scores, "scale": scale, "link": link, "group": group, "weight": weight}
    given["negative_rate"] = negative_rate
    evidence = evidence_of(pool, scores, None, options, given)
    check_pool(pool, evidence)
    rows = None
    if labelled:
        columns = ",".join(evidence.columns)
        own = (weight, None, None, None, evidence.scale, evidence.link, evidence.negative_rate, engine)
        rows = evidence_of(labelled, columns, label, own, {"label": label}, need_label=True)
    vad = VAD(
        link=evidence.link,
        scores=evidence.scale,
        replicas=replicas,
        calibrator=calibrator,
        curvature=curvature,
        negative_rate=evidence.negative_rate,
        lambda_floor=lambda_floor,
    )
    try:
        vad.fit(evidence, labelled=rows)
    except UncurseError as error:
        where = f"{', '.join(pool)}, columns {', '.join(evidence.columns)}"
        raise UncurseError(f"{where}: {error}") from None
    about = about_fit(vad, evidence, rows, command=command())
    vad.map_.save(out, about)
    text, record = fit_text(vad, evidence, out)
    finish(text, documents.dumps("fit", about), json, [record])


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
    from ..maps import Grouped, load, load_about
    from ..tables.writing import apply_to_files

    check_outputs([json], [log, score_map])
    loaded = load(score_map)
    if isinstance(loaded, Grouped) and group is None:
        group = load_about(score_map).get("group")
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
    from ..maps import Grouped, load, load_about
    from ..metrics import evaluate_log
    from ..report import Method, Report, describe

    check_outputs([json, report, figures], [*log, *(maps or [])])
    loaded = [(path, load(path), load_about(path)) for path in maps or []]
    for path, one, about in loaded:
        own = about.get("group") if isinstance(one, Grouped) else None
        if own is not None and group not in (None, own):
            raise UncurseError(f"{path} has a map for each {own}, and {group!r} is asked for; evaluate it on its own")
        group = group or own
    options = (weight, group, request, top_k, scale or "logit", "logistic", None, engine)
    given = {"score": score, "label": label, "request": request, "weight": weight, "scale": scale}
    evidence = evidence_of(log, score, label, options, given, need_label=True)
    shares = shares_of(alpha, evidence.selection)
    for path, one, about in loaded:
        if isinstance(one, Grouped) and not evidence.groups:
            column = about.get("group") or "COLUMN"
            raise UncurseError(f"{path} has a map for each group; collect {', '.join(log)} with --group {column}")
    for path, one, _ in loaded:
        if one.scores != evidence.scale:
            raise UncurseError(
                f"{path} takes scores on the {one.scores} scale and these are {evidence.scale}s; say --scale "
                f"{one.scores} if they are, or fit a map to them"
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
        raise UncurseError(f"{', '.join(log)}, label {evidence.label!r}: {error}") from None
    facts = _facts(log, evidence, names)
    assert evidence.cells is not None  # a log with labels has a logit
    page = Report(methods, served=describe(evidence.cells), facts=facts, selection=evidence.selection)
    content = {
        "facts": facts,
        "selection": evidence.selection,
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

    versions = [f"{name} {version(name)}" for name in ("uncurse", "numpy", "polars")]
    facts: dict[str, str | list[str]] = {
        "Log": list(log),
        "Rows": f"{evidence.rows:,}",
        "Served score": f"{evidence.columns[0]} ({evidence.scale})",
        "Label": str(evidence.label),
    }
    if evidence.weight is not None:
        facts["Weight"] = evidence.weight
    if evidence.selection is not None:
        facts["Selection"] = evidence.selection
    if maps:
        facts["Maps"] = maps
    return {**facts, "Command": command(), "Versions": ", ".join([*versions, f"Python {platform.python_version()}"])}


__all__ = ["apply", "collect", "evaluate", "fit"]
