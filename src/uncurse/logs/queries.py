"""Collect evidence by aggregated queries: sums by block, by step of the grid, and by group.

Cells come from a group-by on the grid, not from quantiles: those are slow on Spark. Only the top few thousand rows,
which `Cells` keeps exactly, are fetched, by a filter on the grid.
"""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import UncurseError
from ..evidence import Cells, Evidence, LogSpec, Moments
from ..evidence.from_arrays import Parts
from ..evidence.score_grid import GRID, TAIL, grid_steps, step_edges, top_cut
from ..validation import check_names
from .checks import bad_values, read_names
from .columns import Lazy, as_number, fetch, link_score, logit_of, total
from .replica_queries import replica_counts

MOST_GROUP_CELLS = 200  # more groups get moments only: their cells would take gigabytes
_BLOCKS = 32
_SAMPLE = 4_096


def query(frame: Lazy, spec: LogSpec, parts: Parts) -> Evidence:
    """Collect the evidence of all rows, without groups: one query each for moments, cells and replica counts."""
    moments = _moments(frame, spec, _shift(frame, spec), None)[""]
    cells = _cells(frame, spec, None)[""] if parts.cells else None
    counts = replica_counts(frame, spec, None)[""] if parts.replica_counts else None
    return Evidence(spec, moments, cells, counts)


def query_groups(frame: Lazy, spec: LogSpec, parts: Parts) -> dict[str, Evidence]:
    """Collect the evidence of each group."""
    moments = _moments(frame, spec, _shift(frame, spec), spec.group)
    many = len(moments) > MOST_GROUP_CELLS
    cells = {} if many or not parts.cells else _cells(frame, spec, spec.group)
    counts = {} if many or not parts.replica_counts else replica_counts(frame, spec, spec.group)
    return {name: Evidence(spec, part, cells.get(name), counts.get(name)) for name, part in moments.items()}


# ---------------------------------------------------------------------------- moments


def _shift(frame: Lazy, spec: LogSpec) -> Array:
    """Return the mean of the first rows; squares are summed about it, so that no digits are lost."""
    sample = fetch(frame.head(_SAMPLE), [link_score(n, spec).alias(f"l{i}") for i, n in enumerate(spec.scores)])
    if not len(sample):
        raise UncurseError("there are no rows; pass a log that holds some")
    values = sample.to_numpy().astype(np.float64)
    mean: Array = np.array(
        [np.mean(column[np.isfinite(column)]) if np.isfinite(column).any() else 0.0 for column in values.T]
    )
    return mean


def _moments(frame: Lazy, spec: LogSpec, shift: Array, group: str | None, *, drawn: bool = False) -> dict[str, Moments]:
    """Return moments by group, or of all rows in blocks chosen by the low digits of the scores, as all engines do.

    Equal scores share a block, so blocks are drawn at random if scores are coarse.
    """
    replicas = range(len(spec.scores))
    pairs = [(i, j) for i in replicas for j in replicas if i <= j]
    parts = {f"l{i}": link_score(n, spec) - float(shift[i]) for i, n in enumerate(spec.scores)}
    weight = nw.lit(1.0) if spec.weight is None else as_number(spec.weight)
    raw = {f"x{i}": as_number(n) for i, n in enumerate(spec.scores)}
    if spec.label is not None:
        y = as_number(spec.label)
        raw |= {"y": y}
    if group is not None:
        raw |= {"key": nw.col(group).cast(nw.String)}
    rows = frame.select(**parts, **raw, w=weight)
    if group is None:
        mixed = total(nw.col(f"l{i}") * (1e4 * np.sqrt(2 + i)) for i in replicas)
        rows = (_with_random(rows, "u") if drawn else rows.with_columns(u=mixed)).with_columns(
            key=((nw.col("u") - nw.col("u").floor()) * _BLOCKS).floor().clip(0, _BLOCKS - 1)
        )
    rows = rows.with_columns(
        *(((nw.col("w") * nw.col(f"l{i}")).alias(f"a{i}")) for i in replicas),
        *((nw.col("w") * nw.col(f"l{i}") * nw.col(f"l{j}")).alias(f"b{i}_{j}") for i, j in pairs),
        (nw.col("w") * nw.col("w")).alias("ww"),
    )
    sums = ["w", "ww", *(f"a{i}" for i in replicas), *(f"b{i}_{j}" for i, j in pairs)]
    checked = list(raw)
    result = fetch(
        rows.group_by("key").agg(
            nw.len().alias("rows"),
            *(nw.col(name).sum().alias(f"sum_{name}") for name in sums),
            *(nw.col(name).count().alias(f"count_{name}") for name in (*checked, "w")),
            *(nw.col(name).min().alias(f"min_{name}") for name in (*checked, "w") if name != "key"),
            *(nw.col(name).max().alias(f"max_{name}") for name in (*checked, "w") if name != "key"),
        ),
        [nw.all()],
    )
    found = {name: read_names(result[name]) for name in result.columns}
    _check(found, spec)
    if group is None:
        if not drawn and found["rows"].max() * _BLOCKS > 2 * found["rows"].sum():
            return _moments(frame, spec, shift, group, drawn=True)
        return {"": _from_sums(spec.link, found, np.argsort(found["key"]), shift, pairs)}
    keys = check_names(found["key"], len(result), group)
    order = np.argsort(keys)
    made = {str(keys[i]): _from_sums(spec.link, found, order[k : k + 1], shift, pairs) for k, i in enumerate(order)}
    return {name: part for name, part in made.items() if part.weight > 0}


def _with_random(rows: Lazy, name: str) -> Lazy:
    """Add a column of uniform random numbers in [0, 1)."""
    native: Any = rows.to_native()
    implementation = rows.implementation
    if implementation.is_duckdb():
        native = native.project(f"*, random() as {name}")
    elif implementation.is_ibis():
        import ibis

        native = native.mutate(**{name: ibis.random()})
    else:
        from pyspark.sql import functions as F

        native = native.withColumn(name, F.rand(0))
    lazy: Lazy = nw.from_native(native)
    return lazy


def _from_sums(
    link: str, found: dict[str, NDArray[Any]], rows: NDArray[np.intp], shift: Array, pairs: list[tuple[int, int]]
) -> Moments:
    w = found["sum_w"][rows].astype(np.float64)
    safe = np.where(w > 0, w, 1.0)
    first = np.column_stack([found[f"sum_a{i}"][rows] for i in range(len(shift))]).astype(np.float64) / safe[:, None]
    scatter = np.empty((len(rows), len(shift), len(shift)))
    for i, j in pairs:
        scatter[:, i, j] = scatter[:, j, i] = found[f"sum_b{i}_{j}"][rows] - w * first[:, i] * first[:, j]
    squares = found["sum_ww"][rows].astype(np.float64)
    return Moments(link).update_blocks(found["rows"][rows].astype(np.int64), w, squares, first + shift, scatter)


def _check(found: dict[str, NDArray[Any]], spec: LogSpec) -> None:
    """Raise an error if the sums show missing, infinite or impossible values."""
    rows = found["rows"].sum()
    titles: dict[str, str | None] = {f"x{i}": name for i, name in enumerate(spec.scores)}
    titles |= {"y": spec.label, "w": spec.weight, "key": spec.group}
    for name, title in titles.items():
        if title is None or f"count_{name}" not in found:
            continue
        missing = rows - found[f"count_{name}"].sum()
        if missing:
            raise UncurseError(f"column {title!r} has {missing} missing values; drop or fill those rows first")
        if name == "key":
            continue
        low, high = (found[f"{end}_{name}"].astype(np.float64) for end in ("min", "max"))
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise UncurseError(f"column {title!r} holds NaN or infinite values; drop or repair those rows first")
        for remedy, is_bad in bad_values(title, spec).items():
            for value in (low.min(), high.max()):
                if is_bad(value):
                    raise UncurseError(f"column {title!r} holds {value:g}; {remedy}")
    if not np.isfinite(found["sum_ww"].astype(np.float64).sum()):
        raise UncurseError(f"the squares of column {spec.weight!r} are not numbers; rescale the weights")
    if not all(np.isfinite(found[name].astype(np.float64)).all() for name in found if name.startswith("sum_")):
        raise UncurseError(f"the squares of columns {', '.join(spec.scores)} overflow or are not numbers")
    if not found["sum_w"].sum() > 0:
        raise UncurseError(f"every weight in column {spec.weight!r} is zero; give some row a positive weight")


# ---------------------------------------------------------------------------- cells


def _cells(frame: Lazy, spec: LogSpec, group: str | None) -> dict[str, Cells]:
    low, steps, size = GRID
    one, zero = nw.lit(1.0), nw.lit(0.0)
    w = one if spec.weight is None else as_number(spec.weight)
    y = zero if spec.label is None else as_number(spec.label)
    names = {"name": nw.lit("") if group is None else nw.col(group).cast(nw.String)}
    rows = frame.select(l=logit_of(spec.scores[0], spec), w=w, y=y, **names)
    begins, rate = TAIL
    tail = begins + rate * (nw.col("l").abs().clip(begins, None) / begins).log()
    on_grid = nw.when(nw.col("l") > begins).then(tail).when(nw.col("l") < -begins).then(-tail).otherwise(nw.col("l"))
    sums = rows.with_columns(at=on_grid).with_columns(
        step=((nw.col("at") - low) * float(steps)).clip(0.0, size - 1.0).floor().cast(nw.Int64),
        wl=nw.col("w") * nw.col("l"),
        wy=nw.col("w") * nw.col("y"),
        ww=nw.col("w") * nw.col("w"),
        wwy=nw.col("w") * nw.col("w") * nw.col("y"),
        half=nw.col("y") * (1.0 - nw.col("y")),
    )
    kept = ("wl", "w", "wy", "ww", "wwy", "half")
    keys = ["step"] if group is None else ["name", "step"]
    result = fetch(
        sums.group_by(*keys).agg(nw.len().alias("rows"), *(nw.col(k).sum().alias(f"sum_{k}") for k in kept)), [nw.all()]
    )
    found = {name: read_names(result[name]) for name in result.columns}
    squares = found["sum_ww"].astype(np.float64).sum()
    if not (np.isfinite(squares) and squares > 0):
        raise UncurseError(f"the squares of column {spec.weight!r} are not numbers; rescale the weights")
    if found["sum_half"].any():
        raise UncurseError(f"column {spec.label!r} holds values between 0 and 1; labels must be 0 or 1")
    table_rows = kept[: 3 if spec.weight is None else 5]
    whole = [""] * len(result) if group is None else check_names(found["name"], len(result), group).tolist()
    places: dict[str, list[int]] = {}
    for i, name in enumerate(whole):
        places.setdefault(str(name), []).append(i)
    made = {}
    for name, here in places.items():
        table, count = np.zeros((len(table_rows), size)), np.zeros(size)
        at = found["step"][here].astype(np.int64)
        count[at] = found["rows"][here]
        for i, column in enumerate(table_rows):
            table[i, at] = found[f"sum_{column}"][here]
        if not table[1].any():
            continue
        # The top of a group stays on the grid of step 1/1024: it is not worth one more scan per group.
        cut = top_cut(count) if group is None else size
        top, labels, weights = _top(rows, cut, spec)
        made[name] = Cells().update_steps(table, int(count.sum()), cut, top, labels, weights)
    return made


def _top(rows: Lazy, cut: int, spec: LogSpec) -> tuple[Array, NDArray[Any] | None, Array | None]:
    """Fetch all rows from step `cut` on."""
    l = labels = weights = np.empty(0)
    if cut < GRID[2]:
        top = fetch(
            rows.filter(nw.col("l") >= float(step_edges(np.array(cut))) - 1e-6) if cut else rows, ["l", "y", "w"]
        )
        l = top["l"].to_numpy().astype(np.float64)
        inside = grid_steps(l) >= cut
        l, labels, weights = (top[n].to_numpy().astype(np.float64)[inside] for n in ("l", "y", "w"))
    return l, None if spec.label is None else labels, None if spec.weight is None else weights
