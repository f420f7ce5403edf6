"""`uncurse refresh`: update a map by new labels."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UncurseError
from ..text import aligned
from . import options, reading
from .app import app
from .output import Format, Quiet, check_outputs, command_line, emit, working, write_document

if TYPE_CHECKING:
    from ..evidence import Evidence
    from ..methods import RefreshRecord


@app.command()
def refresh(
    map_file: options.MapFile,
    today: Annotated[
        list[str],
        typer.Argument(
            metavar="TODAY...", help="New labeled rows: evidence files from collect, or parquet or CSV files."
        ),
    ],
    out: options.Out,
    label: options.Label = None,
    trials: options.Trials = None,
    scores: options.Served = None,
    weight: options.Weight = None,
    request: options.Request = None,
    top_k: options.TopK = None,
    missing: options.Missing = None,
    segment: options.SegmentColumn = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Adjust a map to new labels.

    The fewer the labels, the smaller the change: of its level, then of its slope, then of its curve. Use rows that were
    selected and have labels since, and each row once.

    \b
    Examples:
      uncurse refresh map.json today.json -o map2.json
      uncurse refresh map.json shown.parquet --label click -o map2.json
    """
    from ..logs import Settled
    from ..maps import Segmented
    from ..methods.refresh import refresh as refresh_map

    check_outputs({"--out": out}, [map_file, *today], format=format, suffix=".json")
    before = reading.load_map(map_file)
    given: dict[str, Any] = {"scores": reading.served_column(scores), "label": label, "weight": weight}
    given |= {"request": request, "top_k": top_k, "segment": segment, "missing": missing, "trials": trials}
    if segment is not None and not isinstance(before.map, Segmented):
        raise UncurseError(f"--segment {segment} is for maps by segment, and {map_file} is not one; leave it out")
    # Rows without a label are no negatives: they are left out.
    settled = None if any(map(reading.is_evidence, today)) else Settled()
    rows = reading.read_for_maps(today, {map_file: before}, given, settled)
    with working("refreshing"):
        fitted = refresh_map(before, rows)
    assert fitted.record is not None
    found = replace(fitted.record.refreshes[-1], command=command_line())
    record = replace(fitted.record, refreshes=(*fitted.record.refreshes[:-1], found))
    write_document(out, replace(fitted, record=record).to_json() + "\n")
    text = _text(found, rows, map_file, out, had_intervals=before.errors is not None)
    emit(format, text, "refresh", {**asdict(found), "map": fitted.map.to_dict()}, out)


def _text(found: RefreshRecord, rows: Evidence, map_file: str, out: str, *, had_intervals: bool) -> str:
    from ..report.prose import change, refresh_parts

    counts = f"{found.rows:,} labeled rows ({found.positives:,.0f} positive) of {rows.spec.scores[0]}"
    lines = [f"refresh {found.number} of {map_file}, with {counts}", found.reason]
    if found.probabilities:
        table = [("", "change (95% interval)", "probability of a change"), *refresh_parts(found)]
        lines += ["", *aligned(table, left=2)]
    if found.changed:
        parts = [("predictions on these rows", "change (95% interval)")]
        parts += [
            ("all" if one.alpha == 1 else f"top {100 * one.alpha:g}%", change(one.change, one.standard_error))
            for one in found.changes
        ]
        lines += ["", *aligned(parts, left=1), ""]
        lines += ["the intervals of the fit no longer hold, so the new map has none"] if had_intervals else []
    if out == "-":
        return "\n".join([*lines, "written to standard output"])
    columns = f"--scores {rows.spec.scores[0]} {reading.label_options(rows.spec)}"
    maps = f"--map {map_file} --map {out}"
    following = f"; next: uncurse evaluate LOG {columns} {maps}" if found.changed else ", with unchanged predictions"
    return "\n".join([*lines, f"written to {out}{following}"])
