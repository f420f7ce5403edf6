"""Collect evidence by aggregated queries: sums by block, by step of the grid, by replicas that lie together, by group.

Cells come from a group-by on the grid, not from quantiles: those are slow on Spark. Only the top few thousand rows,
which `Cells` keeps exactly, are fetched, by a filter on the grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import UncurseError
from ..evidence import Cells, Evidence, LogSpec, Moments, ReplicaCounts
from ..evidence.cell_tables import GRID, TAIL, grid_steps, step_edges, top_cut
from ..evidence.from_arrays import Parts
from ..evidence.replica_grid import FINEST, LARGEST, LINEAR, TAIL_RATE
from ..links import to_link
from ..validation import group_rows
from .checks import bad_values, missing_remedy, read_names

Lazy = nw.LazyFrame[Any]

MOST_GROUP_CELLS = 200  # more groups get moments only: their cells would take gigabytes
_BLOCKS = 32
_SAMPLE = 4_096
_LEVEL_SAMPLE = 1 << 17  # rows that bound the level of the grid of replicas from below


def query(frame: Lazy, spec: LogSpec, parts: Parts, group: str | None = None) -> dict[str, Evidence]:
    """Collect the evidence of all rows (under ``""``) or of each group: a query each for moments, cells and counts."""
    moments = _moments(frame, spec, _shift(frame, spec), group)
    few = len(moments) <= MOST_GROUP_CELLS
    cells = _cells(frame, spec, group) if few and parts.cells else {}
    counts = _replica_counts(frame, spec, group) if few and parts.replica_counts else {}
    return {name: Evidence(spec, part, cells.get(name), counts.get(name)) for name, part in moments.items()}


# ---------------------------------------------------------------------------- moments


def _shift(frame: Lazy, spec: LogSpec) -> Array:
    """Return the mean of the first rows; squares are summed about it, so that no digits are lost."""
    sample = fetch(frame.head(_SAMPLE), [_link_score(n, spec).alias(f"l{i}") for i, n in enumerate(spec.scores)])
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
    scores = {f"l{i}": _link_score(n, spec) - float(shift[i]) for i, n in enumerate(spec.scores)}
    raw = {f"x{i}": _as_number(n) for i, n in enumerate(spec.scores)}
    rows = frame.select(**scores, **raw, **_keyed(spec, group))
    if group is None:
        mixed = _total(nw.col(f"l{i}") * (1e4 * np.sqrt(2 + i)) for i in replicas)
        rows = (_with_random(rows, "u") if drawn else rows.with_columns(u=mixed)).with_columns(
            block=((nw.col("u") - nw.col("u").floor()) * _BLOCKS).floor().clip(0, _BLOCKS - 1)
        )
    rows = rows.with_columns(
        *(((nw.col("w") * nw.col(f"l{i}")).alias(f"a{i}")) for i in replicas),
        *((nw.col("w") * nw.col(f"l{i}") * nw.col(f"l{j}")).alias(f"b{i}_{j}") for i, j in pairs),
        (nw.col("w") * nw.col("w")).alias("ww"),
    )
    checked = [*raw, "y", "w"]
    found = _sums_by(
        rows,
        ["block" if group is None else "name"],
        ["w", "ww", *(f"a{i}" for i in replicas), *(f"b{i}_{j}" for i, j in pairs)],
        *(nw.col(name).count().alias(f"count_{name}") for name in (*checked, "name")),
        *(nw.col(name).min().alias(f"min_{name}") for name in checked),
        *(nw.col(name).max().alias(f"max_{name}") for name in checked),
    )
    _check(found, spec)
    if group is None:
        if not drawn and found["rows"].max() * _BLOCKS > 2 * found["rows"].sum():
            return _moments(frame, spec, shift, group, drawn=True)
        return {"": _from_sums(spec.link, found, np.argsort(found["block"]), shift, pairs)}
    groups = _places_by_group(found, group)
    made = {name: _from_sums(spec.link, found, here, shift, pairs) for name, here in groups.items()}
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
    w = found["sum_w"][rows]
    first = np.column_stack([found[f"sum_a{i}"][rows] for i in range(len(shift))]) / np.where(w > 0, w, 1.0)[:, None]
    scatter = np.empty((len(rows), len(shift), len(shift)))
    for i, j in pairs:
        scatter[:, i, j] = scatter[:, j, i] = found[f"sum_b{i}_{j}"][rows] - w * first[:, i] * first[:, j]
    count = found["rows"][rows].astype(np.int64)
    return Moments(link).update_blocks(count, w, found["sum_ww"][rows], first + shift, scatter)


def _check(found: dict[str, NDArray[Any]], spec: LogSpec) -> None:
    """Raise an error if the sums show missing, infinite or impossible values."""
    rows = found["rows"].sum()
    titles: dict[str, str | None] = {f"x{i}": name for i, name in enumerate(spec.scores)}
    titles |= {"y": spec.label, "w": spec.weight, "name": spec.group}
    for name, title in titles.items():
        if title is None:
            continue
        missing = rows - found[f"count_{name}"].sum()
        if missing:
            raise UncurseError(f"column {title!r} has {missing} missing values; {missing_remedy(title, spec)}")
        if name == "name":
            continue
        low, high = (found[f"{end}_{name}"].astype(np.float64) for end in ("min", "max"))
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            remedy = missing_remedy(title, spec, "drop or repair those rows first")
            raise UncurseError(f"column {title!r} holds NaN or infinite values; {remedy}")
        for remedy, is_bad in bad_values(title, spec).items():
            for value in (low.min(), high.max()):
                if is_bad(value):
                    raise UncurseError(f"column {title!r} holds {value:g}; {remedy}")
    if not np.isfinite(found["sum_ww"].sum()):
        raise UncurseError(f"the squares of column {spec.weight!r} are not numbers; rescale the weights")
    if not all(np.isfinite(found[name]).all() for name in found if name.startswith("sum_")):
        raise UncurseError(f"the squares of columns {', '.join(spec.scores)} overflow or are not numbers")
    if not found["sum_w"].sum() > 0:
        raise UncurseError(f"every weight in column {spec.weight!r} is zero; give some row a positive weight")


# ---------------------------------------------------------------------------- cells


def _cells(frame: Lazy, spec: LogSpec, group: str | None) -> dict[str, Cells]:
    low, steps, size = GRID
    rows = frame.select(l=_logit_of(spec.scores[0], spec), **_keyed(spec, group))
    l, w, y = nw.col("l"), nw.col("w"), nw.col("y")
    begins, rate = TAIL
    tail = begins + rate * (l.abs().clip(begins, None) / begins).log()
    on_grid = nw.when(l > begins).then(tail).when(l < -begins).then(-tail).otherwise(l)
    products = {"wl": w * l, "wy": w * y, "ww": w * w, "wwy": w * w * y, "half": y * (1.0 - y)}
    sums = rows.with_columns(at=on_grid).with_columns(
        step=((nw.col("at") - low) * float(steps)).clip(0.0, size - 1.0).floor().cast(nw.Int64),
        **products,
    )
    kept = ["wl", "w", "wy", "ww", "wwy", "half"]
    found = _sums_by(sums, ["step"] if group is None else ["name", "step"], kept)
    squares = found["sum_ww"].sum()
    if not (np.isfinite(squares) and squares > 0):
        raise UncurseError(f"the squares of column {spec.weight!r} are not numbers; rescale the weights")
    if found["sum_half"].any():
        raise UncurseError(f"column {spec.label!r} holds values between 0 and 1; labels must be 0 or 1")
    made = {}
    for name, here in _places_by_group(found, group).items():
        at, count = found["step"][here].astype(np.int64), np.zeros(size)
        table = np.zeros((3 if spec.weight is None else 5, size))
        count[at] = found["rows"][here]
        for i in range(len(table)):
            table[i, at] = found[f"sum_{kept[i]}"][here]
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


# ---------------------------------------------------------------------------- replica counts


def _replica_counts(frame: Lazy, spec: LogSpec, group: str | None) -> dict[str, ReplicaCounts]:
    """Count all rows (under ``""``) or the rows of each group."""
    replicas, level = len(spec.scores), _least_level(frame, spec)
    logits = {f"l{i}": _logit_of(name, spec).clip(-LARGEST, LARGEST) for i, name in enumerate(spec.scores)}
    columns = [nw.col(name) for name in logits]
    axes = _axes(columns, level)
    rows = frame.select(**logits, **_keyed(spec, group)).with_columns(
        **axes,
        wy=nw.col("w") * nw.col("y"),
        ww=nw.col("w") * nw.col("w"),
        **{f"wl{i}": nw.col("w") * column for i, column in enumerate(columns)},
    )
    weighted = [f"wl{i}" for i in range(replicas)]
    found = _sums_by(rows, [*([] if group is None else ["name"]), *axes], ["w", "wy", "ww", *weighted])
    counted = {}
    for name, here in _places_by_group(found, group).items():
        table = np.stack([found["sum_w"][here], found["sum_wy"][here]])
        if table[0].any():
            counted[name] = ReplicaCounts().update_cells(
                [found[axis][here].astype(np.int64) for axis in axes],
                table,
                level,
                labelled=spec.label is not None,
                rows=int(found["rows"][here].sum()),
                weight_squares=float(found["sum_ww"][here].sum()),
                column_sums=np.array([found[f"sum_{name}"][here].sum() for name in weighted]),
            )
    return counted


def _least_level(frame: Lazy, spec: LogSpec) -> int:
    """Return the level that the first rows need: all rows need at least that."""
    wanted = [*spec.scores, *([] if spec.weight is None else [spec.weight])]
    sample = fetch(frame.head(_LEVEL_SAMPLE), wanted)
    scores = np.column_stack([sample[name].to_numpy().astype(np.float64) for name in spec.scores])
    weights = None if spec.weight is None else sample[spec.weight].to_numpy().astype(np.float64)
    if weights is not None and not weights.any():
        return 0
    logits = to_link(scores, spec.scale, "logistic") + spec.logit_offset
    return ReplicaCounts().update(logits, sample_weight=weights).level


def _axes(columns: list[nw.Expr], level: int) -> dict[str, nw.Expr]:
    """Return the cell numbers of rows as `replica_grid.cell_numbers` computes them."""
    served, *others = columns
    mean = _total(others) / float(len(others))
    scale = 2.0**-level / FINEST
    axes = {"served": _number(served, scale), "gap": _number(mean - served, scale)}
    if len(others) == 2:
        axes["contrast"] = _number(others[0] - others[1], scale / 2)
    elif len(others) > 2:
        squares = _total((column - mean) * (column - mean) for column in others)
        axes["contrast"] = _number((squares * (2.0 / (len(others) - 1))).sqrt(), scale / 2)
    return axes


def _number(x: nw.Expr, scale: float) -> nw.Expr:
    far = LINEAR + TAIL_RATE * (x.abs().clip(LINEAR, LARGEST) / LINEAR).log()
    compressed = nw.when(x > LINEAR).then(far).when(x < -LINEAR).then(-far).otherwise(x)
    return (compressed * scale).floor().cast(nw.Int64)


# ---------------------------------------------------------------------------- columns and sums


def fetch(frame: Lazy, names: Sequence[str | nw.Expr]) -> nw.DataFrame[Any]:
    """Collect some columns of a lazy frame."""
    chosen = frame.select(*names)
    if frame.implementation.is_polars():
        return nw.from_native(chosen.to_native().collect(engine="streaming"), eager_only=True)
    return chosen.collect("pyarrow")


def _sums_by(rows: Lazy, keys: Sequence[str], names: Sequence[str], *more: nw.Expr) -> dict[str, NDArray[Any]]:
    """Return the number of rows and the sums of columns ("sum_" and the name) for each value of the keys."""
    sums = (nw.col(name).sum().alias(f"sum_{name}") for name in names)
    result = fetch(rows.group_by(*keys).agg(nw.len().alias("rows"), *sums, *more), [nw.all()])
    found = {name: read_names(result[name]) for name in result.columns}
    return {name: v.astype(np.float64) if name.startswith("sum_") else v for name, v in found.items()}


def _places_by_group(found: dict[str, NDArray[Any]], group: str | None) -> dict[str, NDArray[np.intp]]:
    """Return the places of each group in the result of a query; all of them, under "", without groups."""
    if group is None:
        return {"": np.arange(len(found["rows"]))}
    return dict(zip(*group_rows(found["name"], len(found["rows"]), group), strict=True))


def _keyed(spec: LogSpec, group: str | None) -> dict[str, nw.Expr]:
    """Return weight, label and name of the group as "w", "y" and "name"."""
    return {
        "w": nw.lit(1.0) if spec.weight is None else _as_number(spec.weight),
        "y": nw.lit(0.0) if spec.label is None else _as_number(spec.label),
        "name": nw.lit("") if group is None else nw.col(group).cast(nw.String),
    }


def _as_number(name: str) -> nw.Expr:
    """Return a column as float64; true and false are 1 and 0."""
    return nw.col(name).cast(nw.Float64)


def _logit(p: nw.Expr) -> nw.Expr:
    p = p.clip(float(np.finfo(np.float64).tiny), float(np.nextafter(1.0, 0.0)))
    return p.log() - (1.0 - p).log()


def _logit_of(name: str, spec: LogSpec) -> nw.Expr:
    """Return the logit of one replica, corrected for the negative-sampling rate."""
    x = _as_number(name)
    l = x if spec.scale == "logit" else _logit(x)
    return l + spec.logit_offset if spec.logit_offset else l


def _link_score(name: str, spec: LogSpec) -> nw.Expr:
    """Return the link score l = φ⁻¹(f) of one replica."""
    x, scale = _as_number(name), spec.scale
    if spec.link == "logistic":
        return _logit_of(name, spec)
    if spec.link not in ("identity", "log"):
        raise UncurseError(f"the {spec.link} link has no form in SQL; collect with Polars, or use the logistic link")
    if scale == "logit" or (scale == "probability" and spec.logit_offset):
        x = 1.0 / (1.0 + (-_logit_of(name, spec)).exp())
    return x if spec.link == "identity" else x.log()


def _total(items: Iterable[nw.Expr]) -> nw.Expr:
    """Return the sum of expressions."""
    return reduce(lambda a, b: a + b, items)
