"""Run compiled maps inside DuckDB, Spark and Ibis, with binary searches for pieces and groups.

The tables of a map are constant arrays. The piece of a score is found in log2(n) steps; each step is a column on top
of the previous one, p + 2^i if the score has passed edge p + 2^i. 1e7 rows and 2,048 pieces on two cores take 0.6 s on
DuckDB and 1.5 s on Spark; a balanced tree of CASE, without the link, takes 6 s and 5 s. Groups are found by their names
in the same way, and maps of one form are stacked in the same arrays, so thousands of groups cost a few more steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import narwhals as nw
import numpy as np

from ..errors import UncurseError
from ..maps import Grouped, ScoreMap
from ..maps.compile import BELOW_ONE, MOST, TINY, Clip, Line, Operation, Phi, Pieces, compile_map, valid_range
from .checks import is_spark, unused_name
from .dialects import DUCKDB, SPARK

Cell = float | str | None
Program = tuple[Operation, ...]


class LazyColumns:
    """A lazy frame of DuckDB, Spark or Ibis with helper columns, each an expression over those before it."""

    def __init__(self, frame: nw.LazyFrame[Any]) -> None:
        self.frame = frame
        self._prefix = unused_name(frame.collect_schema().names(), "uncurse_")
        self._count = 0
        self.is_ibis = frame.implementation.is_ibis()
        self._spark = is_spark(frame)
        if not (self.is_ibis or self._spark or frame.implementation.is_duckdb()):
            raise UncurseError(
                f"there are no expressions for {frame.implementation}; collect the frame, or use Polars, DuckDB or "
                "Spark"
            )

    def _name(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"

    def hold(self, expression: nw.Expr) -> str:
        """Add a column and return its name."""
        name = self._name()
        self.frame = self.frame.with_columns(expression.alias(name))
        return name

    def add(self, native: Any) -> str:
        """Add a column from SQL (DuckDB) or from a native column (Spark, Ibis), and return its name."""
        name = self._name()
        table: Any = self.frame.to_native()
        if self.is_ibis:
            table = table.mutate(**{name: native})
        elif self._spark:
            table = table.withColumn(name, native)
        else:
            table = table.project(f"*, {native} as {name}")
        self.frame = nw.from_native(table)
        return name

    def finish(self, prediction: nw.Expr, column: str, names: Sequence[str]) -> Any:
        """Return the native frame with its own columns and the prediction."""
        held = self.hold(prediction)
        table: Any = self.frame.to_native()
        if self._spark:  # quoted: narwhals takes a dot in a name for a field
            from pyspark.sql import functions as F

            return table.select(*(F.col(SPARK.name(name)) for name in names), F.col(held).alias(column))
        return self.frame.select(*names, nw.col(held).alias(column)).to_native()

    def array(self, values: Sequence[Cell]) -> Any:
        """Return a constant array in the form that `at` and `count_passed` take."""
        text = any(isinstance(value, str) for value in values)
        if self._spark:
            from pyspark.sql import functions as F

            # A literal, not a column, which Spark would copy into every row of a small frame that it holds itself.
            return F.lit(np.array([np.inf if value is None else value for value in values]))
        if self.is_ibis:
            import ibis

            return self.add(ibis.literal(list(values), type="array<string>" if text else "array<float64>"))
        cells = ",".join(_literal(value) for value in values)  # a column: DuckDB parses a long query slowly
        return self.add(f"cast([{cells}] as {DUCKDB.text if text else DUCKDB.double}[])")

    def at(self, array: Any, place: str) -> nw.Expr:
        """Return the element of an array at a place, counted from 0."""
        if self._spark:
            from pyspark.sql import functions as F

            return nw.col(self.add(F.get(array, F.col(place))))
        if self.is_ibis:
            table: Any = self.frame.to_native()
            return nw.col(self.add(table[array][table[place]]))
        return nw.col(self.add(f"{array}[{place} + 1]"))

    def count_passed(self, edges: Any, value: str, size: int, base: str | None = None) -> str:
        """Count the edges that are at most the value, among the `size` sorted edges that start at `base`."""
        place = self.hold(nw.lit(0, nw.Int64))
        step = (size + 1) // 2
        while step >= 1:
            place = self.add(self._passed(edges, value, place, base, step))
            step //= 2
        return place

    def _passed(self, edges: Any, value: str, place: str, base: str | None, step: int) -> Any:
        """Advance by `step` if that edge is passed; edges beyond the end are null."""
        if self._spark:
            from pyspark.sql import functions as F

            index = F.col(place) + (step - 1) if base is None else F.col(base) + F.col(place) + (step - 1)
            return F.col(place) + F.when(F.col(value) >= F.get(edges, index), step).otherwise(0)
        if self.is_ibis:
            import ibis

            table: Any = self.frame.to_native()
            index = table[place] + (step - 1) if base is None else table[base] + table[place] + (step - 1)
            return table[place] + ibis.ifelse((table[value] >= table[edges][index]).fill_null(False), step, 0)
        start = place if base is None else f"{base} + {place}"
        return f"{place} + case when {value} >= {edges}[{start} + {step}] then {step} else 0 end"


def _literal(value: Cell) -> str:
    if isinstance(value, str):
        return DUCKDB.literal(value)
    return "null" if value is None else DUCKDB.number(value)


# ---------------------------------------------------------------------------- maps


def predict(columns: LazyColumns, score_map: ScoreMap, score: str, group: nw.Expr | None) -> nw.Expr:
    """Return the prediction of a map as an expression; null where the column holds no score."""
    maps = [score_map.default] if isinstance(score_map, Grouped) else [score_map]
    number = None
    if isinstance(score_map, Grouped) and score_map.maps and group is not None:
        names = sorted(score_map.maps, key=lambda name: name.encode())
        maps += [score_map.maps[name] for name in names]
        number = _group_number(columns, names, group)
    programs = [compile_map(part) for part in maps]
    # Convert float32 to double first: adjacent scores must not become equal.
    value = columns.hold(nw.col(score).cast(nw.Float64))
    forms: dict[Any, list[int]] = {}
    for i, program in enumerate(programs):
        forms.setdefault(_form(program), []).append(i)
    result: nw.Expr | None = None
    for members in map(set, forms.values()):
        # Rows of other forms get a program of this form, whose result is not used.
        same = [programs[i if i in members else min(members)] for i in range(len(programs))]
        part = _run(columns, same, value, number)
        if result is not None:
            ours = _choose(columns, [float(i in members) for i in range(len(programs))], number)
            part = nw.when(ours > 0.5).then(part).otherwise(result)
        result = part
    low, high = valid_range(score_map)
    return nw.when(nw.col(value).is_between(low, high)).then(cast(nw.Expr, result))


def _group_number(columns: LazyColumns, names: list[str], group: nw.Expr) -> str:
    """Return the number of each row's map: 0 for the default, i for the i-th name."""
    text = columns.hold(group)
    if columns.is_ibis:  # warehouses sort text each in its own way, so there is no binary search
        table = columns.frame.to_native()
        return columns.add(table[text].cases(*((name, i + 1) for i, name in enumerate(names)), else_=0))
    place = columns.count_passed(columns.array(names), text, _room(len(names)))
    found = columns.at(columns.array(["", *names]), place)
    known = (found == nw.col(text)) & (nw.col(place) > 0)
    return columns.hold(nw.when(known).then(nw.col(place)).otherwise(nw.lit(0, nw.Int64)))


def _room(count: int) -> int:
    """Return the least 2^i − 1 that is at least `count`: what a binary search of i steps can distinguish."""
    return (1 << count.bit_length()) - 1


def _form(program: Program) -> tuple[object, ...]:
    """Return what programs that differ only in the numbers of their lines and pieces have in common."""
    return tuple(type(step) if isinstance(step, Line | Pieces) else step for step in program)


def _run(columns: LazyColumns, programs: Sequence[Program], value: str, number: str | None) -> nw.Expr:
    """Run programs of one form; `number` is the place of each row's program."""
    l = nw.col(value)
    piece: str | None = None
    for steps in zip(*programs, strict=True):
        first = steps[0]
        if isinstance(first, Line):
            lines = cast(Sequence[Line], steps)
            slope = _choose(columns, [line.slope for line in lines], number)
            l = slope * l + _choose(columns, [line.intercept for line in lines], number)
        elif isinstance(first, Pieces):
            tables = cast(Sequence[Pieces], steps)
            size = _room(max(len(table.edges) for table in tables))
            if piece is None:
                piece = _find_piece(columns, tables, size, value, number)
            cells = ([c for t in tables for c in _filled(getattr(t, key), size)] for key in ("x", "y", "slope"))
            x, y, slope = (_choose(columns, own, piece) for own in cells)
            flat = not any(any(table.slope) for table in tables)
            l = y if flat else slope * (nw.col(columns.hold(l)) - x) + y
        else:
            l = _link(columns, first, l)
    return l


def _filled(cells: Sequence[float], size: int) -> list[float]:
    """Repeat the last cell to one more than `size` cells."""
    return [*cells, *([cells[-1]] * (size + 1 - len(cells)))]


def _choose(columns: LazyColumns, values: list[float], place: str | None) -> nw.Expr:
    if place is None or len(set(values)) == 1:
        return nw.lit(values[0])
    return columns.at(columns.array(values), place)


def _find_piece(columns: LazyColumns, tables: Sequence[Pieces], size: int, value: str, number: str | None) -> str:
    """Return the place of each row's piece in the stacked tables."""
    edges = [table.edges for table in tables]
    base = None if number is None else columns.hold(nw.col(number) * (size + 1))
    cells: list[Cell] = [cell for table in edges for cell in (*table, *([None] * (size + 1 - len(table))))]
    place = columns.count_passed(columns.array(cells), value, size, base)
    return place if base is None else columns.hold(nw.col(place) + nw.col(base))


def _link(columns: LazyColumns, step: Operation, l: nw.Expr) -> nw.Expr:
    """Apply a link or a bound. Inputs are held: engines write a division or a clip as cases that repeat the input."""
    if isinstance(step, Clip):
        held = nw.col(columns.hold(l))
        return nw.when(held < step.low).then(nw.lit(step.low)).when(held > step.high).then(step.high).otherwise(held)
    link = getattr(step, "link", "")
    if link not in ("logistic", "log"):
        raise UncurseError(f"the {link} link has no expression in SQL; apply this map with Polars or numpy")
    if isinstance(step, Phi):
        return 1.0 / nw.col(columns.hold((-l).exp() + 1.0)) if link == "logistic" else l.exp()
    p = nw.col(columns.hold(_link(columns, Clip(TINY, BELOW_ONE if link == "logistic" else MOST), l)))
    return p.log() - (1.0 - p).log() if link == "logistic" else p.log()
