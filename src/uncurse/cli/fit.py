"""`uncurse fit`: a pool, and labeled rows if there are any, to a map."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import UncurseError
from ..validation import warn_user
from . import options
from .app import app
from .output import Format, Quiet, check_outputs, command_line, emit, working, write_document
from .reading import column_names, input_file, is_evidence, label_options, log_spec, read_evidence
from .show import formula

if TYPE_CHECKING:
    from .._types import Float
    from ..evidence import Evidence
    from ..methods import Fitted
    from ..methods.requests import Requests


@app.command()
def fit(
    pool: options.LogsOrEvidence,
    replicas: Annotated[
        Literal["seeds", "bootstrap", "ensemble", "snapshots"],
        typer.Option(
            help="How the columns are related. seeds: models of the same rows, other seeds. bootstrap: the first is "
            "trained on all rows, the others on bootstraps. ensemble: their mean is "
            "served. snapshots: earlier checkpoints of the first."
        ),
    ],
    out: options.Out,
    scores: options.Scores = None,
    scale: options.Scale = None,
    labeled: Annotated[
        list[str] | None,
        typer.Option(
            help="A log of labeled rows with the scores of all replicas, or evidence of one; may be repeated."
        ),
    ] = None,
    label: options.Label = None,
    trials: options.Trials = None,
    labels_from: Annotated[
        Literal["winners", "elsewhere"] | None,
        typer.Option(
            help="Who chose the labeled rows. winners: the served score, from this pool. elsewhere: an earlier "
            "model, or chance."
        ),
    ] = None,
    method: Annotated[
        Literal["auto", "vad", "labels"],
        typer.Option(
            help="auto averages the other two, or chooses one. vad: from replicas alone. labels: from replicas "
            "and labels (ReplicaCalibrator in Python)."
        ),
    ] = "auto",
    calibrator: Annotated[
        Literal["platt", "temperature", "beta", "histogram", "scaling-binning", "isotonic", "spline"] | None,
        typer.Option(help="With --method vad: fit this calibrator on the labeled log, then correct what remains."),
    ] = None,
    teacher: options.Teacher = None,
    request: options.Request = None,
    top_k: options.TopK = None,
    value: Annotated[
        str | None,
        typer.Option(help="With --request: column of values, such as bids, if value × probability wins a request."),
    ] = None,
    segment: options.Segment = None,
    weight: options.Weight = None,
    negative_sampling_rate: options.NegativeRate = None,
    missing: options.Missing = None,
    half_life: Annotated[
        float | None,
        typer.Option(
            metavar="FILES",
            help="Name files from the oldest to the newest: a file so many files older counts half as much.",
        ),
    ] = None,
    affine: Annotated[
        bool,
        typer.Option(
            "--affine",
            help="Write the straight line that is nearest on the top 1% to 10%, or on the labeled rows if these are "
            "winners.",
        ),
    ] = False,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Fit a map to a pool of candidates scored by two or more models.

    The first column of --scores is the served model, the others are its replicas. Labels are optional.

    \b
    Examples:
      uncurse fit pool.parquet --scores s0,s1,s2 --scale logit --replicas bootstrap -o map.json
      uncurse fit pool.parquet --scores s0,s1 --scale logit --replicas seeds --request auction_id -o map.json
      uncurse fit monday.json tuesday.json --replicas seeds -o map.json
      uncurse fit mon.json tue.json wed.json --replicas seeds --half-life 2 -o map.json
      uncurse fit pool.json --replicas bootstrap --labeled log.parquet --label click --labels-from winners -o map.json
      uncurse fit pool.json --replicas seeds --method vad --calibrator platt --labeled labeled.json -o map.json
    """
    from .. import methods
    from ..methods.fitted import check_labels_from
    from ..methods.requests import fit_requests
    from ..report.prose import intervals_of

    check_outputs({"--out": out}, [*pool, *(labeled or [])], format=format, suffix=".json")
    if not labeled:
        needs = {"--label": label, "--trials": trials, "--labels-from": labels_from, "--calibrator": calibrator}
        needs |= {"--teacher": teacher, "--method": "labels" if method == "labels" else None}
        for option, name in needs.items():
            if name is not None:
                raise UncurseError(f"{option} {name} needs --labeled, a log with labels, and --label, their column")
    if method == "vad":
        _refuse(f"--method {method}", {"--labels-from": labels_from, "--teacher": teacher})
    else:
        _refuse(f"--method {method}", {"--calibrator": calibrator})
    if half_life is not None and not 0 < half_life < math.inf:
        raise UncurseError(f"--half-life is {half_life:g}; pass a positive number of files, such as 3")
    labeled_log = bool(labeled) and not any(map(is_evidence, labeled or []))
    of_rows = {"weight": weight, "missing": missing}
    given: dict[str, Any] = {"scores": None if scores is None else column_names(scores), "scale": scale}
    given |= {"segment": segment, "negative_sampling_rate": negative_sampling_rate, "teacher": teacher}
    requests = None
    if request is not None:
        unused = {"--method": None if method == "auto" else method, "--segment": segment, "--weight": weight}
        _refuse("--request", {**unused, "--teacher": teacher})
        scores_of_rows, evidence, requests = _read_requests(pool, given | of_rows, request, top_k or 1, value)
    elif top_k is not None or value is not None:
        raise UncurseError("--top-k and --value need --request, the column of requests")
    else:  # if the pool was collected, weights and missing values are those of a labeled log
        own = given if labeled_log and is_evidence(pool[0]) else given | of_rows
        evidence = read_evidence(pool, own, half_life=half_life)
    spec, rows = evidence.spec, None
    if labeled:
        known: dict[str, Any] = {}
        if labeled_log:
            known = {name: getattr(spec, name) for name in ("scores", "scale", "negative_sampling_rate", "teacher")}
            known |= {"segment": None if method == "vad" else spec.segment, "missing": missing}
        known |= {"label": label, "trials": trials, "weight": weight}
        rows = read_evidence(labeled, known, need_label=True, half_life=half_life)
        if evidence.segments and not rows.segments and method != "vad":
            warn_user(
                f"the labeled evidence has no segments, so labels correct all alike; collect it with --segment "
                f"{spec.segment} to correct each"
            )
    settings: dict[str, Any] = {"scale": spec.scale, "replicas": replicas}
    settings["negative_sampling_rate"] = spec.negative_sampling_rate
    settings |= {"link": spec.link, "calibrator": calibrator} if method == "vad" else {}
    kinds: dict[str, Any] = {"auto": methods.Auto, "labels": methods.ReplicaCalibrator, "vad": methods.VAD}
    origin = {} if method == "vad" else {"labels_from": labels_from}
    with working("fitting"):
        if requests is None:
            fitted = kinds[method](**settings).fit(evidence, labeled=rows, **origin).fitted_
        else:
            chosen_by, of_labeled = check_labels_from(rows, labels_from), None
            if rows is not None and labeled_log and chosen_by == "elsewhere":
                from ..logs.collecting import read_rows

                of_labeled = read_rows([input_file(path) for path in labeled or ()], rows.spec, missing="drop")[0]
            settings = {"replicas": replicas, "labels_from": chosen_by}
            fitted = fit_requests(scores_of_rows, evidence, requests, rows, of_labeled, **settings).fitted()
        record = replace(fitted.record, command=command_line(), half_life=half_life)
        if affine:
            line = fitted.to_affine()
            fitted, record = replace(fitted, map=line), replace(record, max_error=line.max_error)
        fitted = replace(fitted, record=record)
    write_document(out, fitted.to_json() + "\n")
    content = {**record.to_dict(), "map": fitted.map.to_dict(), "intervals": intervals_of(fitted)}
    selection = "" if request is None else f" --request {request} --top-k {top_k or 1}"
    emit(format, _text(fitted, evidence, rows, selection, out), "fit", content, out)


def _read_requests(
    pool: list[str], given: Mapping[str, Any], request: str, k: int, value: str | None
) -> tuple[Float, Evidence, Requests]:
    """Read the rows of requests: their scores, these as evidence, and what selects within requests."""
    from ..evidence.from_arrays import from_arrays
    from ..logs.collecting import read_rows
    from ..methods.requests import Requests

    if any(map(is_evidence, pool)):
        raise UncurseError(f"--request {request} needs the rows of the pool, and {pool[0]} is evidence; pass the log")
    spec = log_spec(given)
    with working("reading") as advance:
        scores, codes, values = read_rows(
            [input_file(source) for source in pool],
            replace(spec, segment=request, weight=value),
            missing=given["missing"] or "error",
            progress=advance,
        )
    evidence = replace(from_arrays(scores, spec=spec), sources=tuple(pool))
    assert codes is not None
    return scores, evidence, Requests.of(codes, len(scores), k, values)


def _refuse(choice: str, options: Mapping[str, str | None]) -> None:
    """Raise if an option is given that a choice excludes."""
    for option, value in options.items():
        if value is not None:
            raise UncurseError(f"{option} {value} is not for {choice}; leave it out")


def _text(fitted: Fitted, pool: Evidence, labeled: Evidence | None, selection: str, out: str) -> str:
    from ..maps import Affine
    from ..methods.noise import replica_kind
    from ..report.prose import fit_words, lowest_predictions, remaining_error
    from ..text import aligned

    score_map, record = fitted.map, fitted.record
    assert record is not None
    rows = f"{pool.rows:,} candidates"
    rows += "" if record.top_k is None else f", of which {record.pool.rows:,} win their requests,"
    rows += "" if record.labeled is None else f" and {record.labeled.rows:,} labeled rows"
    lines = [f"method: {record.method}, from {rows} with scores {', '.join(pool.spec.scores)}", *fit_words(fitted)]
    if record.labels_from == "winners" and record.top_k is None and fitted.errors is not None:
        lines.append("intervals are of the top of the pool; to fit to the winners of requests, pass --request")
    if isinstance(score_map, Affine) and score_map.link == "logistic":
        lines.append(formula(score_map))
    if pool.segments:
        slopes = [segment.lambda_ for segment in record.segments.values()]
        span = f", λ from {min(slopes):.4f} to {max(slopes):.4f}" if slopes else ""
        lines.append(f"{len(pool.segments):,} segments with a map each{span}")
    title, intervals, unseen = remaining_error(fitted)
    if intervals:
        table: list[tuple[str, ...]] = [("top", "remaining error, 90%"), *intervals]
        if lowest := lowest_predictions(fitted):
            lowest = ["lowest prediction: served → map", *lowest]
            table = [(row[0], cell, row[1]) for row, cell in zip(table, lowest, strict=True)]
        lines += ["", title, *aligned(table, left=0), *filter(None, [unseen]), ""]
    score = pool.spec.scores[0] if replica_kind(record.replicas).served_is_a_column else "MEAN"
    label = "--label LABEL" if labeled is None else label_options(labeled.spec)
    target = f"{out}; next: uncurse evaluate LOG --scores {score} {label}{selection} --map {out}"
    return "\n".join([*lines, f"written to {'standard output' if out == '-' else target}"])
