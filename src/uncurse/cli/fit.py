"""`uncurse fit`: a pool, and labelled rows if there are any, to a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .. import documents
from ..errors import UncurseError
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
)
from .output import Format, Quiet, check_outputs, command_line, emit, is_stdout, working, write_document
from .reading import LogOptions, check_pool, column_names, is_evidence, option_name, read_evidence, value_text

if TYPE_CHECKING:
    from ..debias import VAD, Auto, FitRecord, Tower
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
            help="How the columns are related: models of the same rows with other seeds; of bootstraps (anchored: the "
            "served one of all rows); members of the served ensemble; earlier snapshots of the served model."
        ),
    ],
    out: Out,
    scores: Scores = None,
    scale: Scale = None,
    labelled: Annotated[
        list[str] | None, typer.Option(help="A log with labels and all replicas, or evidence of one; may be repeated.")
    ] = None,
    label: Label = None,
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
    straight: Annotated[
        bool, typer.Option("--straight", help="Write the straight line that is nearest on the top 1% to 10%.")
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
      uncurse fit pool.json --replicas bootstrap --labelled log.parquet --label click -o map.json
      uncurse fit pool.json --replicas seeds --method vad --calibrator platt --labelled labelled.json -o map.json
    """
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
    # A line needs the scores of the pool, and so do intervals.
    counts = method != "vad" or shape == "free" or (straight and scale != "value" and link in (None, "logistic"))
    options = LogOptions(
        column_names(scores),
        weight=weight,
        group=group,
        scale=scale,
        link=link,
        negative_rate=negative_rate,
        engine=None if labelled and all(map(is_evidence, pool)) and not all(map(is_evidence, labelled)) else engine,
    )
    evidence = read_evidence(pool, options, replica_counts=counts)
    check_pool(pool, evidence)
    rows = None if not labelled else _read_labelled(labelled, label, weight, engine, pool, evidence, counts)
    settings: dict[str, Any] = {
        "scale": evidence.spec.scale,
        "negative_rate": evidence.spec.negative_rate,
        "replicas": replicas,
    }
    if method == "vad":
        settings |= {"link": evidence.spec.link, "calibrator": calibrator, "curvature": curvature}
        settings |= {"lambda_floor": lambda_floor, "shape": shape or "straight"}
    try:
        with working("fitting"):
            fitted = _fitted(method, evidence, rows, settings)
            record = record_of(fitted, evidence, rows, command=command_line())
            score_map = fitted.map_
            if straight:
                score_map, loss = fitted.line()
                record = replace(record, straight_loss=loss)
    except UncurseError as error:
        raise UncurseError(f"{', '.join(pool)}, columns {', '.join(evidence.spec.scores)}: {error}") from None
    write_document(out, score_map.to_json(record.to_dict()) + "\n")
    document = documents.dumps("fit", {**record.to_dict(), "map": score_map.to_dict()})
    flat = _flat(record, score_map, evidence, out)
    emit(format, _text(record, score_map, evidence, out), document, [flat], stdout=not is_stdout(out))


def _check_method(method: str, labelled: Sequence[str] | None, label: str | None, only_vad: dict[str, Any]) -> None:
    """Check that the options belong to the method."""
    if label is not None and not labelled:
        raise UncurseError(f"--label {label} needs --labelled, the log that has these labels")
    calibrator = only_vad["--calibrator"]
    if method != "vad":
        for option, value in only_vad.items():
            if value is not None:
                raise UncurseError(f"{option} is not for --method {method}; leave it out, or use --method vad")
        if method == "tower" and not labelled:
            raise UncurseError("--method tower needs --labelled, a log with labels, and --label, their column")
    elif labelled and calibrator is None:
        raise UncurseError("--labelled needs a --calibrator such as platt, or --method auto or tower")
    elif calibrator is not None and not labelled:
        raise UncurseError(f"--calibrator {calibrator} needs --labelled, a log with labels, and --label, their column")
    elif only_vad["--shape"] == "free" and only_vad["--lambda-floor"] is not None:
        raise UncurseError("--lambda-floor is not for --shape free; leave it out")


def _read_labelled(
    labelled: Sequence[str],
    label: str | None,
    weight: str | None,
    engine: str | None,
    pool_names: Sequence[str],
    pool: Evidence,
    counts: bool,
) -> Evidence:
    """Read the labelled rows with the columns of the pool; evidence with other columns is an error."""
    spec = pool.spec
    options = LogOptions(label=label, weight=weight)
    if not all(map(is_evidence, labelled)):
        rate = spec.negative_rate
        options = LogOptions(
            spec.scores, label, weight, scale=spec.scale, link=spec.link, negative_rate=rate, engine=engine
        )
    rows = read_evidence(labelled, options, need_label=True, replica_counts=counts)
    for name in ("scores", "scale", "link", "negative_rate"):
        mine, theirs = getattr(spec, name), getattr(rows.spec, name)
        if mine != theirs:
            raise UncurseError(
                f"{', '.join(pool_names)} was collected with {option_name(name)} {value_text(mine)}, and --labelled "
                f"{', '.join(labelled)} with {value_text(theirs)}; collect both with the same options"
            )
    return rows


def _fitted(method: str, pool: Evidence, labelled: Evidence | None, settings: dict[str, Any]) -> VAD | Tower | Auto:
    from ..debias import VAD, Auto, Tower

    if method == "auto":
        return Auto(**settings).fit(pool, labelled=labelled)
    if method == "tower":
        assert labelled is not None  # checked
        return Tower(**settings).fit(pool, labelled=labelled)
    return VAD(**settings).fit(pool, labelled=labelled)


def _flat(record: FitRecord, score_map: ScoreMap, pool: Evidence, out: str) -> dict[str, Any]:
    """Return the result as one flat record; what a method does not have is empty."""
    flat: dict[str, Any] = {
        "method": record.method,
        "reason": record.reason,
        "rows": pool.rows,
        "labelled_rows": 0 if record.labelled is None else record.labelled.rows,
        "groups": len(pool.groups),
        "lambda": record.lambda_,
        **{name: getattr(record, name) for name in ("standard_error", "center", "noise_variance", "score_variance")},
        "line_probability": record.line_probability,
        "map": score_map.kind,
        **{name: getattr(score_map, name, None) for name in ("slope", "intercept")},
        "straight_loss": record.straight_loss,
    }
    for one in record.remaining_error:
        flat |= {f"remaining_error_{end}_{one.alpha:g}": getattr(one, end) for end in ("low", "high")}
    return {name: "" if value is None else value for name, value in {**flat, "out": out}.items()}


def _text(record: FitRecord, score_map: ScoreMap, pool: Evidence, out: str) -> str:
    """Return the result as lines for people."""
    from ..debias import KINDS
    from ..maps import Affine

    rows = f"{pool.rows:,} pool rows"
    rows += "" if record.labelled is None else f" and {record.labelled.rows:,} labelled rows"
    lines = [f"{record.method}, from {rows} of {', '.join(pool.spec.scores)}"]
    if record.reason:
        lines.append(f"why: {record.reason}")
    if record.lambda_ is not None and record.standard_error is not None and record.center is not None:
        shrinkage = f"λ = {record.lambda_:.4f} ± {record.standard_error:.4f}"
        lines.append(f"scores are shrunk towards {record.center:.4f} by {shrinkage}")
    if record.line_probability is not None:
        lines.append(f"probability that the labels follow a straight line: {record.line_probability:.2f}")
    if isinstance(score_map, Affine) and score_map.link == "logistic":
        sign = "-" if score_map.intercept < 0 else "+"
        formula = f"1 / (1 + exp(-({score_map.slope:.6g} · logit {sign} {abs(score_map.intercept):.6g})))"
        tail = ", where logit = ln(p / (1 - p))" if score_map.scale == "probability" else ""
        lines.append(f"prediction = {formula}{tail}")
    if pool.groups:
        slopes = [group.lambda_ for group in record.groups.values()]
        span = f", λ from {min(slopes):.4f} to {max(slopes):.4f}" if slopes else ""
        lines.append(f"{len(pool.groups):,} groups with a map each{span}")
    if record.straight_loss is not None:
        loss = f"{100 * record.straight_loss:.2g}%"
        lines.append(f"written as a straight line, which differs by at most {loss} on the top 1% to 10%")
    if record.remaining_error:
        level = f"{100 * record.remaining_error[0].level:g}%"
        spans = [f"{100 * e.alpha:g}%: {100 * e.low:+.1f}% to {100 * e.high:+.1f}%" for e in record.remaining_error]
        lines.append(f"expected error on the top of this pool, {level} intervals: {', '.join(spans)}")
    score = pool.spec.scores[0] if KINDS[record.replicas].served_is_a_column else "MEAN"
    if is_stdout(out):
        lines.append("written to standard output")
    else:
        lines.append(f"written to {out}; next: uncurse apply {out} LOG --score {score} -o OUT")
    return "\n".join(lines)
