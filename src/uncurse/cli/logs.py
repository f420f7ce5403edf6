"""`uncurse collect`, `fit`, `apply` and `evaluate`: logs in, a map, corrected scores and a page out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import documents
from ..links import UncurseError
from .app import JsonOption, app, check_output, command, finish, say, working
from .texts import evaluation_records, evaluation_text, fit_text

if TYPE_CHECKING:
    from ..evidence import Evidence
    from ..maps import ScoreMap

Logs = Annotated[list[str], typer.Argument(metavar="LOG...", help="Parquet or CSV files, globs or folders.")]
LogsOrEvidence = Annotated[
    list[str],
    typer.Argument(metavar="LOG...", help="Parquet or CSV files, globs or folders; or files that collect wrote."),
]
Scores = Annotated[
    str | None, typer.Option("--scores", help="Columns of the replicas' scores, comma-separated, the served one first.")
]
Scale = Annotated[str, typer.Option(help="What the scores are: logit, probability or value. Never guessed.")]
Label = Annotated[str | None, typer.Option(help="Column of labels, 0 or 1.")]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.")]
Group = Annotated[str | None, typer.Option(help="Column of groups, text or whole numbers: one map each.")]
Request = Annotated[str | None, typer.Option(help="Column of requests: keep the best of each.")]
TopK = Annotated[int | None, typer.Option("--top-k", min=1, help="How many of each request are kept; 1.")]
NegativeRate = Annotated[
    float | None, typer.Option(help="The share of negatives kept when the model was trained, undone first.")
]
Link = Annotated[str, typer.Option(help="Where scores are shrunk: logistic, identity, log or probit.")]
Engine = Annotated[str, typer.Option(help="What reads the files: polars, duckdb or spark.")]


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
    check_output(out)
    check_output(json)
    found = _read(log, _names(scores), label, weight, group, request, top_k, scale, link, negative_rate, engine)
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
    scale: Annotated[str | None, typer.Option(help="What the scores are: logit (default), probability, value.")] = None,
    labelled: Annotated[
        list[str] | None, typer.Option(help="For a calibrator: a log with labels, or evidence of one; may repeat.")
    ] = None,
    label: Label = None,
    method: Annotated[str, typer.Option(help="How: vad.")] = "vad",
    calibrator: Annotated[
        str | None, typer.Option(help="Calibrate on the labelled log first: platt, isotonic, beta, …")
    ] = None,
    replicas: Annotated[
        str, typer.Option(help="How the columns came about: seeds, bootstrap or anchored (around the served).")
    ] = "seeds",
    curvature: Annotated[bool, typer.Option("--curvature", help="Correct for the bend of the link too.")] = False,
    group: Group = None,
    weight: Weight = None,
    negative_rate: NegativeRate = None,
    lambda_floor: Annotated[
        float | None, typer.Option(help="Use this λ, with a warning, where the estimate is lower.")
    ] = None,
    link: Annotated[str | None, typer.Option(help="Where scores are shrunk: logistic (default), identity, …")] = None,
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

    check_output(out)
    check_output(json)
    if method != "vad":
        raise UncurseError(f"method={method!r} is unknown; choose one of vad")
    if labelled and calibrator is None:
        raise UncurseError("--labelled is for a calibrator; name one, such as --calibrator platt")
    options = (weight, group, None, None, scale or "logit", link or "logistic", negative_rate, engine)
    given: dict[str, Any] = {"scores": scores, "scale": scale, "link": link, "group": group, "weight": weight}
    given["negative_rate"] = negative_rate
    evidence = _evidence(pool, scores, None, options, given)
    rows = None
    if labelled:
        columns = ",".join(evidence.columns)
        own = (weight, None, None, None, evidence.scale, evidence.link, evidence.negative_rate, engine)
        rows = _evidence(labelled, columns, label, own, {"label": label}, need_label=True)
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
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write; a folder where LOG is several.")],
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

    check_output(json)
    loaded = load(score_map)
    if isinstance(loaded, Grouped) and group is None:
        group = load_about(score_map).get("group")
    with working(f"applying {score_map}") as advance:
        written = apply_to_files(
            loaded, log, out, score=score, column=column, group=group, engine=engine, progress=lambda _: advance(1)
        )
    record = {"column": column, "files": len(written), "out": str(out)}
    text = f"column {column!r} added to {len(written)} file{'s' if len(written) > 1 else ''}: written to {out}"
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
    scale: Annotated[str | None, typer.Option(help="What the scores are: logit (default) or probability.")] = None,
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

    for path in (json, report, figures):
        check_output(path)
    loaded = [(path, load(path), load_about(path)) for path in maps or []]
    if group is None:
        group = next((about.get("group") for _, one, about in loaded if isinstance(one, Grouped)), None)
    shares = _shares(alpha, request)
    options = (weight, group, request, top_k, scale or "logit", "logistic", None, engine)
    given = {"score": score, "label": label, "request": request, "weight": weight, "scale": scale, "group": group}
    evidence = _evidence(log, score, label, options, given, need_label=True)
    for path, one, _ in loaded:
        if one.scores != evidence.scale:
            raise UncurseError(
                f"{path} takes scores on the {one.scores} scale and these are {evidence.scale}s; say --scale "
                f"{one.scores} if they are, or fit a map to them"
            )
    plain = _as_served(evidence, negative_rate)
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
    for path in (report, figures):
        if path is not None:
            say(f"written to {path}")


# ---------------------------------------------------------------------------- reading


def _names(text: str | None) -> list[str]:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if not names:
        raise UncurseError("--scores is empty; name the served column and its replicas, such as --scores s1,s2")
    return names


def _read(
    log: Sequence[str],
    scores: list[str],
    label: str | None,
    weight: str | None,
    group: str | None,
    request: str | None,
    top_k: int | None,
    scale: str,
    link: str,
    negative_rate: float | None,
    engine: str,
) -> Evidence:
    from ..tables import collect as collect_log
    from ..tables.sources import count_rows

    if top_k is not None and request is None:
        raise UncurseError("--top-k needs --request, the column that tells requests apart")
    with working("reading", lambda: count_rows(log) if engine == "polars" and request is None else None) as advance:
        return collect_log(
            list(log),
            scores,
            label=label,
            weight=weight,
            group=group,
            request=request,
            top_k=top_k or 1,
            scale=scale,
            link=link,
            negative_rate=negative_rate,
            engine=engine,
            progress=advance,
        )


def _evidence(
    sources: Sequence[str],
    scores: str | None,
    label: str | None,
    options: tuple[Any, ...],
    given: dict[str, Any],
    *,
    need_label: bool = False,
) -> Evidence:
    """Evidence of logs, or evidence files merged: then what was said of columns must be what they hold."""
    from ..evidence import Evidence, merged

    kept = [source.lower().endswith(".json") for source in sources]
    if any(kept) and not all(kept):
        raise UncurseError(f"{', '.join(sources)} are logs and evidence mixed; collect the logs first")
    option = "--score" if "score" in given else "--scores"
    if not all(kept):
        if scores is None:
            raise UncurseError(f"{option} is missing; name the column{'s' * (option == '--scores')} of the scores")
        if need_label and label is None:
            raise UncurseError("--label is missing; name the column of labels, 0 or 1")
        return _read(sources, _names(scores), label, *options)
    evidence = merged(Evidence.load(source) for source in sources)
    held = {
        "scores": ",".join(evidence.columns),
        "score": evidence.columns[0],
        **{name: getattr(evidence, name) for name in ("scale", "link", "group", "weight", "label", "negative_rate")},
        "request": evidence.selection and evidence.selection.rpartition(" of each ")[2],
    }
    for name, value in given.items():
        if value is not None and held[name] != value:
            raise UncurseError(
                f"--{name.replace('_', '-')} is {value}, but {', '.join(sources)} was collected with {held[name]}; "
                "leave it out, or collect anew"
            )
    if need_label and evidence.label is None:
        raise UncurseError(f"{', '.join(sources)} was collected without labels; collect it with --label")
    return evidence


def _as_served(evidence: Evidence, rate: float | None) -> ScoreMap | None:
    """The prediction that the served score stands for: corrected, where negatives were sampled."""
    import numpy as np

    from ..maps import Affine

    if rate is None:
        return None
    if not 0 < rate <= 1:
        raise UncurseError(f"--negative-rate is {rate:g}; pass the share of negatives kept, such as 0.1")
    if evidence.negative_rate is not None:
        raise UncurseError("this evidence was collected with its negative rate; leave --negative-rate out")
    return Affine(1.0, float(np.log(rate)), scores=evidence.scale)


def _shares(text: str | None, request: str | None) -> list[float]:
    """0.02:0.10:0.01 with both ends, or 0.02,0.1, or both kinds joined by commas."""
    import numpy as np

    if text is None:
        text = "1" if request is not None else "0.02:0.10:0.01"
    shares: list[float] = []
    for part in text.split(","):
        try:
            numbers = [float(number) for number in part.split(":")]
            if len(numbers) == 1:
                shares += numbers
            else:
                first, last, step = numbers
                if not (step > 0 and last >= first):
                    raise ValueError
                shares += [round(first + i * step, 12) for i in range(int(np.floor((last - first) / step + 1e-9)) + 1)]
        except ValueError:
            raise UncurseError(
                f"--alpha is {text!r}; pass shares such as 0.02,0.1, or first:last:step such as 0.02:0.10:0.01"
            ) from None
    return shares


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
