"""`uncurse fit`: a pool, and labelled rows if there are any, to a map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .. import documents
from ..errors import UncurseError
from ..validation import warn_user
from .app import app
from .options import (
    Engine,
    Group,
    Label,
    Link,
    LogsOrEvidence,
    NegativeRate,
    Out,
    ReplicasName,
    Scale,
    Scores,
    Weight,
    expand_evidence,
)
from .output import Format, Quiet, check_outputs, command_line, emit, is_stdout, working, write_document
from .reading import check_engine, check_same, column_names, is_evidence, label_options, read_evidence

if TYPE_CHECKING:
    from ..debias import FitRecord
    from ..evidence import Evidence
    from ..maps import ScoreMap

CalibratorName = Literal[
    "platt", "temperature", "beta", "histogram", "scaling-binning", "isotonic", "smooth-isotonic", "bbq", "spline"
]


@app.command()
def fit(
    pool: LogsOrEvidence,
    replicas: Annotated[
        ReplicasName,
        typer.Option(
            help="How the columns are related. seeds: models of the same rows, other seeds. bootstrap: the first is "
            "trained on all rows, two or more others on bootstraps. anchored: the same for a model without randomness, "
            "one bootstrap is enough. ensemble: their mean is served. snapshots: earlier checkpoints of the first."
        ),
    ],
    out: Out,
    scores: Scores = None,
    scale: Scale = None,
    labelled: Annotated[
        list[str] | None,
        typer.Option(
            help="A log with labels and all replicas, or evidence of one; may be repeated.", callback=expand_evidence
        ),
    ] = None,
    label: Label = None,
    selected_by: Annotated[
        Literal["auto", "served", "other"] | None,
        typer.Option(
            help="What selected the labelled rows: the served score, from this pool, or anything else, such as an "
            "earlier model or chance. auto, the default, detects it, but not reliably with replicas by bootstrap."
        ),
    ] = None,
    method: Annotated[
        Literal["auto", "vad", "tower"],
        typer.Option(help="auto averages what the evidence supports; vad needs no labels; tower needs labels."),
    ] = "auto",
    shape: Annotated[
        Literal["straight", "free"] | None, typer.Option(help="Shape of the map of --method vad (default straight).")
    ] = None,
    calibrator: Annotated[
        CalibratorName | None,
        typer.Option(help="With --method vad: fit this calibrator on the labelled log, then correct what remains."),
    ] = None,
    curvature: Annotated[
        bool, typer.Option("--curvature", help="With --method vad: also correct for the curvature of the link.")
    ] = False,
    group: Group = None,
    weight: Weight = None,
    negative_rate: NegativeRate = None,
    lambda_floor: Annotated[
        float | None, typer.Option(help="With --method vad: smallest λ; a lower estimate is replaced, with a warning.")
    ] = None,
    link: Link = None,
    half_life: Annotated[
        float | None,
        typer.Option(metavar="FILES", help="Files, from the oldest to the newest, after which a row counts half."),
    ] = None,
    straight: Annotated[
        bool,
        typer.Option(
            "--straight",
            help="Write the straight line that is nearest on the top 1% to 10%, or on the labelled rows if the served "
            "score selected them.",
        ),
    ] = False,
    engine: Engine = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Fit a map to a pool of candidates scored by two or more models.

    The first column of --scores is the served model, the others are its replicas. Labels are optional.

    \b
    Examples:
      uncurse fit pool.parquet --scores s0,s1,s2 --scale logit --replicas bootstrap -o map.json
      uncurse fit monday.json tuesday.json --replicas seeds -o map.json
      uncurse fit mon.json tue.json wed.json --replicas seeds --half-life 2 -o map.json
      uncurse fit pool.json --replicas bootstrap --labelled log.parquet --label click -o map.json
      uncurse fit pool.json --replicas seeds --method vad --calibrator platt --labelled labelled.json -o map.json
    """
    from .. import debias
    from ..report.provenance import record_of

    check_outputs({"--out": out}, [*pool, *(labelled or [])], format=format, suffixes={"--out": (".json",)})
    only_vad: dict[str, Any] = {
        "--calibrator": calibrator,
        "--curvature": curvature or None,
        "--lambda-floor": lambda_floor,
        "--link": link,
        "--shape": shape,
        "--scale value": scale == "value" or None,
    }
    _check_method(method, labelled, label, only_vad)
    if selected_by is not None and (method == "vad" or not labelled):
        raise UncurseError(
            f"--selected-by {selected_by} is for --labelled rows of --method auto or tower; leave it out"
        )
    check_engine(engine, [*pool, *(labelled or [])])
    _check_half_life(half_life, pool, labelled or [])
    # A line needs the scores of the pool, and so do intervals.
    counts = method != "vad" or shape == "free" or (straight and scale != "value" and link in (None, "logistic"))
    given: dict[str, Any] = {"scores": None if scores is None else column_names(scores), "scale": scale, "link": link}
    # A log of labelled rows may have weights of its own: the weights of a pool that was collected are in its file.
    own_weights = is_evidence(pool[0]) and labelled and not is_evidence(labelled[0])
    given |= {"weight": None if own_weights else weight, "group": group, "negative_rate": negative_rate}
    evidence = read_evidence(pool, given, engine, replica_counts=counts, half_life=half_life)
    spec, names = evidence.spec, ", ".join(pool)
    if spec.top_k is not None:
        raise UncurseError(
            f"{names} holds only the {spec.top_k}, where λ would be far too low; collect the whole pool, without "
            "--request"
        )
    if len(spec.scores) < 2:
        raise UncurseError(
            f"--scores names one column, {spec.scores[0]!r}; name two or more, the served one first: train the model "
            "once more, on a bootstrap of its rows, and score the pool with it"
        )
    rows = None
    if labelled:
        fields = ("scores", "scale", "link", "negative_rate")
        of_pool = {} if all(map(is_evidence, labelled)) else {name: getattr(spec, name) for name in fields}
        if of_pool and method != "vad":
            of_pool["group"] = spec.group
        given = {**of_pool, "label": label, "weight": weight}
        rows = read_evidence(labelled, given, engine, need_label=True, replica_counts=counts, half_life=half_life)
        for name in fields:
            held = {names: getattr(spec, name), f"--labelled {', '.join(labelled)}": getattr(rows.spec, name)}
            check_same(name, held, "collect both with the same options")
        if evidence.groups and not rows.groups and method != "vad":
            warn_user(
                f"the labelled evidence has no groups, so labels correct all groups alike; collect it with --group "
                f"{spec.group} to correct each"
            )
    settings: dict[str, Any] = {"scale": spec.scale, "negative_rate": spec.negative_rate, "replicas": replicas}
    if method == "vad":
        settings |= {"link": spec.link, "calibrator": calibrator, "curvature": curvature}
        settings |= {"lambda_floor": lambda_floor, "shape": shape or "straight"}
    else:
        settings |= {"selected_by": selected_by or "auto"}
    kinds: dict[str, Any] = {"auto": debias.Auto, "tower": debias.Tower, "vad": debias.VAD}
    try:
        with working("fitting"):
            fitted = kinds[method](**settings).fit(evidence, labelled=rows)
            record = replace(record_of(fitted, evidence, rows, command=command_line()), half_life=half_life)
            score_map = fitted.map_
            if straight:
                score_map, loss = fitted.line()
                record = replace(record, straight_loss=loss)
    except UncurseError as error:
        raise UncurseError(f"{names}, columns {', '.join(spec.scores)}: {error}") from None
    write_document(out, score_map.to_json(record.to_dict()) + "\n")
    content = {**record.to_dict(), "map": score_map.to_dict()}
    notes = []
    if record.selected_by == "served" and record.remaining_error:
        notes.append("intervals are of the top of the pool; measure winners of requests by evaluate --request --top-k")
    emit(
        format,
        lambda: _text(record, score_map, evidence, rows, out, notes),
        lambda: documents.dumps("fit", content),
        stdout=not is_stdout(out),
    )


def _check_method(method: str, labelled: Sequence[str] | None, label: str | None, only_vad: dict[str, Any]) -> None:
    """Check that the options belong to the method."""
    if label is not None and not labelled:
        raise UncurseError(f"--label {label} needs --labelled, the log that has these labels")
    calibrator = only_vad["--calibrator"]
    if method != "vad":
        for option, value in only_vad.items():
            if value is not None:
                raise UncurseError(f"{option} is not for --method {method}; leave it out, or use --method vad")
    elif labelled and calibrator is None:
        raise UncurseError("--labelled needs a --calibrator such as platt, or --method auto or tower")
    elif only_vad["--shape"] == "free" and only_vad["--lambda-floor"] is not None:
        raise UncurseError("--lambda-floor is not for --shape free; leave it out")
    if not labelled and (calibrator is not None or method == "tower"):
        option = "--method tower" if calibrator is None else f"--calibrator {calibrator}"
        raise UncurseError(f"{option} needs --labelled, a log with labels, and --label, their column")


def _check_half_life(half_life: float | None, pool: Sequence[str], labelled: Sequence[str]) -> None:
    """Check that the half-life is positive and that there are evidence files that can decay."""
    if half_life is None:
        return
    if not 0 < half_life < math.inf:
        raise UncurseError(f"--half-life is {half_life:g}; pass a positive number of files, such as 3")
    for option, sources in (("", pool), ("--labelled ", labelled)):
        if len(sources) > 1 and not all(map(is_evidence, sources)):
            raise UncurseError(
                f"--half-life {half_life:g} weights evidence files by their order, and {option}{sources[0]} is a log; "
                "collect each period first: uncurse collect LOG -o day.json"
            )
    if max(len(pool), len(labelled)) < 2:
        raise UncurseError(
            f"--half-life {half_life:g} weights files by their order, and there is one file; name an evidence file for "
            "each period"
        )


def _text(
    record: FitRecord, score_map: ScoreMap, pool: Evidence, labelled: Evidence | None, out: str, notes: list[str]
) -> str:
    """Return the result as lines for people."""
    from ..debias.replica_kinds import replica_kind
    from ..maps import Affine
    from ..report.prose import fit_words

    rows = f"{pool.rows:,} pool rows"
    rows += "" if record.labelled is None else f" and {record.labelled.rows:,} labelled rows"
    lines = [f"{record.method}, from {rows} of {', '.join(pool.spec.scores)}", *fit_words(record), *notes]
    if isinstance(score_map, Affine) and score_map.link == "logistic":
        sign = "-" if score_map.intercept < 0 else "+"
        formula = f"1 / (1 + exp(-({score_map.slope:.6g} · logit {sign} {abs(score_map.intercept):.6g})))"
        tail = ", where logit = ln(p / (1 - p))" if score_map.scale == "probability" else ""
        lines.append(f"prediction = {formula}{tail}")
    if pool.groups:
        slopes = [group.lambda_ for group in record.groups.values()]
        span = f", λ from {min(slopes):.4f} to {max(slopes):.4f}" if slopes else ""
        lines.append(f"{len(pool.groups):,} groups with a map each{span}")
    score = pool.spec.scores[0] if replica_kind(record.replicas).served_is_a_column else "MEAN"
    label = "--label LABEL" if labelled is None else label_options(labelled.spec)
    target = f"{out}; next: uncurse evaluate LOG --score {score} {label} --map {out}"
    return "\n".join([*lines, f"written to {'standard output' if is_stdout(out) else target}"])
