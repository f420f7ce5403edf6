"""`uncurse fit`: a pool, and labelled rows where there are some, to a map."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import documents
from ..debias.replica_kinds import KINDS
from ..errors import UncurseError
from ..validation import check_choice
from .app import JsonOption, app, check_outputs, command, finish, working
from .options import (
    CALIBRATORS,
    LINKS,
    METHODS,
    REPLICAS,
    SCALES,
    SHAPES,
    Engine,
    Group,
    Label,
    LogsOrEvidence,
    NegativeRate,
    Scores,
    Weight,
)
from .reading import check_pool, evidence_of
from .texts import fit_text

if TYPE_CHECKING:
    from ..debias.auto import Auto
    from ..debias.tower import Tower
    from ..debias.vad import VAD
    from ..evidence import Evidence


@app.command()
def fit(
    pool: LogsOrEvidence,
    out: Annotated[Path, typer.Option("--out", "-o", help="Map file to write, such as map.json.")],
    replicas: Annotated[
        str,
        typer.Option(
            help="How the score columns are related: seeds, bootstrap, anchored, ensemble or snapshots.",
            autocompletion=REPLICAS,
        ),
    ],
    scores: Scores = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="Scale of the scores: logit, probability or value. Required for logs; evidence holds it.",
            autocompletion=SCALES,
        ),
    ] = None,
    labelled: Annotated[
        list[str] | None, typer.Option(help="A log with labels and all replicas, or evidence of one; may repeat.")
    ] = None,
    label: Label = None,
    method: Annotated[
        str,
        typer.Option(
            help="auto (chosen from the evidence), vad (without labels, or with a calibrator) or tower (with labels).",
            autocompletion=METHODS,
        ),
    ] = "auto",
    shape: Annotated[
        str | None,
        typer.Option(
            help="Of VAD's map: straight (one λ, the default) or free (noise that differs, heavy tails).",
            autocompletion=SHAPES,
        ),
    ] = None,
    calibrator: Annotated[
        str | None,
        typer.Option(help="Calibrate on the labelled log first: platt, isotonic, beta, …", autocompletion=CALIBRATORS),
    ] = None,
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
    straight: Annotated[
        bool, typer.Option("--straight", help="Write the straight line that is nearest on the top 1% to 10%.")
    ] = False,
    engine: Engine = "polars",
    json: JsonOption = None,
) -> None:
    """Fit a score map to the candidate pool: logs with the scores of two or more replicas, no labels needed.

    \b
    Examples:
      uncurse fit pool.parquet --scores s1,s2 --scale logit --replicas seeds -o map.json
      uncurse fit monday.json tuesday.json --replicas seeds -o map.json
      uncurse fit pool.json --replicas bootstrap --labelled log.parquet --label click -o map.json
      uncurse fit pool.json --replicas seeds --method vad --calibrator platt --labelled labelled.json -o map.json
    """
    from ..report.about import about_fit

    check_outputs([out, json], [*pool, *(labelled or [])])
    own = {
        "--calibrator": calibrator,
        "--curvature": curvature or None,
        "--lambda-floor": lambda_floor,
        "--link": link,
        "--shape": shape,
        "--scale value": scale == "value" or None,
    }
    _check_method(method, labelled, own)
    check_choice("replicas", replicas, tuple(KINDS))
    if scale is None and not all(source.lower().endswith(".json") for source in pool):
        raise UncurseError("--scale is missing; name the scale of the scores: logit, probability or value")
    lines = straight and scale != "value" and link in (None, "logistic")  # a line needs the scores of the pool
    counts = method != "vad" or shape == "free" or lines
    options = (weight, group, None, None, scale or "logit", link or "logistic", negative_rate, engine)
    given: dict[str, Any] = {"scores": scores, "scale": scale, "link": link, "group": group, "weight": weight}
    given["negative_rate"] = negative_rate
    evidence = evidence_of(pool, scores, None, options, given, need_counts=counts)
    check_pool(pool, evidence)
    rows = None
    if labelled:
        columns = ",".join(evidence.spec.scores)
        options = (
            weight,
            None,
            None,
            None,
            evidence.spec.scale,
            evidence.spec.link,
            evidence.spec.negative_rate,
            engine,
        )
        rows = evidence_of(labelled, columns, label, options, {"label": label}, need_label=True, need_counts=counts)
    where = f"{', '.join(pool)}, columns {', '.join(evidence.spec.scores)}"
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
            if straight:
                fitted.map_, loss = fitted.line()
            about = about_fit(fitted, evidence, rows, command=command())
            if straight:
                about["straight_loss"] = loss
    except UncurseError as error:
        raise UncurseError(f"{where}: {error}") from None
    fitted.map_.save(out, about)
    text, record = fit_text(fitted, about, evidence, out)
    finish(text, documents.dumps("fit", about), json, [record])


def _check_method(method: str, labelled: Sequence[str] | None, own: dict[str, Any]) -> None:
    """What goes with which method; `own` are the options of VAD."""
    check_choice("method", method, ("vad", "tower", "auto"))
    named = [option for option, value in own.items() if value is not None]
    calibrator = own["--calibrator"]
    if method != "vad":
        if named:
            raise UncurseError(f"{named[0]} is not for --method {method}; leave it out, or use --method vad")
        if method == "tower" and not labelled:
            raise UncurseError("--method tower needs --labelled, a log with labels, and --label, their column")
        return
    if labelled and calibrator is None:
        raise UncurseError(
            "--labelled is for a calibrator; name one, such as --calibrator platt, or use --method tower or auto"
        )
    if calibrator is not None and not labelled:
        raise UncurseError(f"--calibrator {calibrator} needs --labelled, a log with labels, and --label, their column")


def _fitted(method: str, pool: Evidence, labelled: Evidence | None, settings: dict[str, Any]) -> VAD | Tower | Auto:
    from ..debias import VAD, Auto, Tower

    if method == "auto":
        return Auto(**settings).fit(pool, labelled=labelled)
    if method == "tower":
        assert labelled is not None  # checked
        return Tower(**settings).fit(pool, labelled=labelled)
    return VAD(**settings).fit(pool, labelled=labelled)


__all__ = ["fit"]
