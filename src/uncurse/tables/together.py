"""How replicas lie together, counted by one aggregated query."""

from __future__ import annotations

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from ..evidence import Joint
from ..evidence.dense_histogram import REACH, SLOTS, Grid
from ..validation import check_names
from .columns import Columns
from .sql import Lazy, as_number, fetch, logit_of, total


def joint_of(frame: Lazy, columns: Columns, grid: Joint, group: str | None) -> dict[str, Joint]:
    """A `Joint` on the same grid as `grid`, of all rows (under ``""``) or of each group."""
    logits = {f"l{i}": logit_of(name, columns) for i, name in enumerate(columns.scores)}
    w = nw.lit(1.0) if columns.weight is None else as_number(columns.weight)
    y = nw.lit(0.0) if columns.label is None else as_number(columns.label)
    name = nw.lit("") if group is None else nw.col(group).cast(nw.String)
    others = [nw.col(f"l{i}") for i in range(1, len(logits))]
    middle = total(others) / float(len(others))
    rows = frame.select(**logits, w=w, y=y, name=name).with_columns(
        served=_steps(nw.col("l0"), grid.grid),
        apart=_steps(middle - nw.col("l0"), grid.grid),
        slot=_slots(others, grid.grid),
        wy=nw.col("w") * nw.col("y"),
        ww=nw.col("w") * nw.col("w"),
    )
    keys = ["served", "apart", "slot"] if group is None else ["name", "served", "apart", "slot"]
    sums = (nw.col(column).sum().alias(f"sum_{column}") for column in ("w", "wy", "ww"))
    result = fetch(rows.group_by(*keys).agg(nw.len().alias("rows"), *sums), [nw.all()])
    found = {column: result[column].to_numpy() for column in result.columns}
    if group is None:
        return {"": _filled(grid.like(), found, np.arange(len(result)))}
    names = check_names(found["name"], len(result), group)
    places: dict[str, list[int]] = {}
    for i, one in enumerate(names.tolist()):
        places.setdefault(str(one), []).append(i)
    return {one: _filled(grid.like(), found, np.array(here)) for one, here in places.items()}


def _steps(x: nw.Expr, grid: Grid) -> nw.Expr:
    return (x * (1 / grid.step)).floor().clip(1.0 - REACH, REACH - 1.0).cast(nw.Int64)


def _slots(others: list[nw.Expr], grid: Grid) -> nw.Expr:
    """⌊2 log₂⌋ of their variance, each less its level."""
    if len(others) == 1:
        return nw.lit(0).cast(nw.Int64)
    columns = [column - level for column, level in zip(others, grid.levels, strict=True)]
    mean = total(columns) / float(len(columns))
    variance = total((column - mean) * (column - mean) for column in columns) / float(len(columns) - 1)
    twice = variance.clip(2.0 ** (SLOTS[0] / 2 - 1), None).log() * float(2 / np.log(2.0))
    return twice.floor().clip(float(grid.lowest), SLOTS[1] - 1.0).cast(nw.Int64)


def _filled(joint: Joint, found: dict[str, NDArray[np.generic]], here: NDArray[np.intp]) -> Joint:
    numbers = [found[name][here].astype(np.int64) for name in ("served", "apart", "slot")]
    table = np.stack([found[name][here].astype(np.float64) for name in ("sum_w", "sum_wy")])
    squares = float(found["sum_ww"][here].astype(np.float64).sum())
    return joint.update_cells(numbers[0], numbers[1], numbers[2], table, int(found["rows"][here].sum()), squares)


__all__ = ["joint_of"]
