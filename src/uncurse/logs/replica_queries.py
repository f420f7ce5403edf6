"""How replicas lie together, counted by one aggregated query."""

from __future__ import annotations

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from ..evidence import LogSpec, ReplicaCounts
from ..evidence.replica_grid import FINEST, LARGEST, LINEAR, TAIL_RATE
from ..links import to_link
from ..validation import check_names
from .checks import read_names
from .columns import Lazy, as_number, fetch, logit_of, total

_SAMPLE = 1 << 17  # rows that bound the level of the grid from below


def replica_counts(frame: Lazy, spec: LogSpec, group: str | None) -> dict[str, ReplicaCounts]:
    """Count all rows (under ``""``) or the rows of each group."""
    replicas, labelled = len(spec.scores), spec.label is not None
    level = _least_level(frame, spec)
    logits = {f"l{i}": logit_of(name, spec).clip(-LARGEST, LARGEST) for i, name in enumerate(spec.scores)}
    w = nw.lit(1.0) if spec.weight is None else as_number(spec.weight)
    y = nw.lit(0.0) if spec.label is None else as_number(spec.label)
    name = nw.lit("") if group is None else nw.col(group).cast(nw.String)
    columns = [nw.col(f"l{i}") for i in range(replicas)]
    axes = _axes(columns, level)
    rows = frame.select(**logits, w=w, y=y, name=name).with_columns(
        **axes,
        wy=nw.col("w") * nw.col("y"),
        ww=nw.col("w") * nw.col("w"),
        **{f"wl{i}": nw.col("w") * column for i, column in enumerate(columns)},
    )
    summed = ["w", "wy", "ww", *(f"wl{i}" for i in range(replicas))]
    sums = (nw.col(column).sum().alias(f"sum_{column}") for column in summed)
    keys = [*(["name"] if group is not None else []), *axes]
    result = fetch(rows.group_by(*keys).agg(nw.len().alias("rows"), *sums), [nw.all()])
    found = {column: read_names(result[column]) for column in result.columns}
    places: dict[str, NDArray[np.intp]] = {"": np.arange(len(result))}
    if group is not None:
        names, codes = np.unique(check_names(found["name"], len(result), group), return_inverse=True)
        places = {str(one): np.flatnonzero(codes == i) for i, one in enumerate(names.tolist())}
    counted = {}
    for one, here in places.items():
        table = np.stack([found[column][here].astype(np.float64) for column in ("sum_w", "sum_wy")])
        if table[0].any():
            counted[one] = (
                ReplicaCounts()
                .start(replicas, labelled)
                .update_cells(
                    [found[axis][here].astype(np.int64) for axis in axes],
                    table,
                    level,
                    rows=int(found["rows"][here].sum()),
                    weight_squares=float(found["sum_ww"][here].astype(np.float64).sum()),
                    column_sums=np.array([found[f"sum_wl{i}"][here].astype(np.float64).sum() for i in range(replicas)]),
                )
            )
    return counted


def _least_level(frame: Lazy, spec: LogSpec) -> int:
    """Return the level that the first rows need: all rows need at least that."""
    wanted = [*spec.scores, *([] if spec.weight is None else [spec.weight])]
    sample = fetch(frame.head(_SAMPLE), wanted)
    scores = np.column_stack([sample[name].to_numpy().astype(np.float64) for name in spec.scores])
    weights = None if spec.weight is None else sample[spec.weight].to_numpy().astype(np.float64)
    if weights is not None and not weights.any():
        return 0
    logits = to_link(scores, spec.scale, "logistic") + spec.logit_offset
    return ReplicaCounts().update(logits, sample_weight=weights).level


def _axes(columns: list[nw.Expr], level: int) -> dict[str, nw.Expr]:
    """Return the cell numbers of rows as `replica_grid.cell_numbers` computes them."""
    served, *others = columns
    mean = total(others) / float(len(others))
    scale = 2.0**-level / FINEST
    axes = {"served": _number(served, scale), "gap": _number(mean - served, scale)}
    if len(others) == 2:
        axes["contrast"] = _number(others[0] - others[1], scale / 2)
    elif len(others) > 2:
        squares = total((column - mean) * (column - mean) for column in others)
        axes["contrast"] = _number((squares * (2.0 / (len(others) - 1))).sqrt(), scale / 2)
    return axes


def _number(x: nw.Expr, scale: float) -> nw.Expr:
    far = LINEAR + TAIL_RATE * (x.abs().clip(LINEAR, LARGEST) / LINEAR).log()
    compressed = nw.when(x > LINEAR).then(far).when(x < -LINEAR).then(-far).otherwise(x)
    return (compressed * scale).floor().cast(nw.Int64)
