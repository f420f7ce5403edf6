"""Maps as expressions of DuckDB, Spark and Ibis: every piece and every group is found by a binary search.

A map of n pieces is a few constant arrays. Its piece p is found in log2(n) steps, p + 2^i where the score has passed
edge p + 2^i, each step a column on top of the last. 1e7 rows and 2,048 steps on two cores: DuckDB 0.6 s, Spark 1.5 s,
where a balanced tree of CASE alone, without the link, took 6 s and 5 s. Groups are found in the same way by their
names, and their maps are stacked in the same arrays: thousands of groups cost no more than a few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import narwhals as nw
import numpy as np

from ..errors import UncurseError
from ..links import get_link
from ..maps import Affine, Chain, Curve, Grouped, ScoreMap, Steps

_TINY = float(np.finfo(np.float64).tiny)
_MOST = float(np.finfo(np.float64).max)
_BELOW_ONE = float(np.nextafter(1.0, 0.0))

Cell = float | str | None


class Program:
    """A lazy frame that grows by columns of our own; each is an expression over those before it."""

    def __init__(self, frame: nw.LazyFrame[Any]) -> None:
        self.frame = frame
        taken = frame.collect_schema().names()
        self._prefix = "uncurse_"
        while any(name.startswith(self._prefix) for name in taken):
            self._prefix += "_"
        self._count = 0
        implementation = frame.implementation
        self.is_ibis = implementation.is_ibis()
        self._spark = implementation.is_pyspark() or implementation.is_pyspark_connect()
        if not (self.is_ibis or self._spark or implementation.is_duckdb()):
            raise UncurseError(
                f"there are no expressions for {implementation}; collect the frame, or use Polars, DuckDB or Spark"
            )

    def _name(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"

    def hold(self, expression: nw.Expr) -> str:
        """A new column, by its name."""
        name = self._name()
        self.frame = self.frame.with_columns(expression.alias(name))
        return name

    def finish(self, prediction: nw.Expr, column: str, names: Sequence[str]) -> Any:
        """The native frame with its own columns and the prediction."""
        held = self.hold(prediction)
        table: Any = self.frame.to_native()
        if self._spark:  # quoted: narwhals takes a dot in a name for a field
            from pyspark.sql import functions as F

            quoted = ("`" + name.replace("`", "``") + "`" for name in names)
            return table.select(*map(F.col, quoted), F.col(held).alias(column))
        return self.frame.select(*names, nw.col(held).alias(column)).to_native()

    def array(self, values: Sequence[Cell]) -> Any:
        """A constant array, in the form in which `at` and `count_passed` take it."""
        text = any(isinstance(value, str) for value in values)
        if self._spark:
            from pyspark.sql import functions as F

            # A literal and no column: Spark would copy a column into every row of a small frame that it holds itself.
            return F.lit(np.array([np.inf if value is None else value for value in values]))
        if self.is_ibis:
            import ibis

            return self.add(ibis.literal(list(values), type="array<string>" if text else "array<float64>"))
        cells = ",".join(map(_literal, values))  # written once: DuckDB reads a long query slowly
        return self.add(f"cast([{cells}] as {'varchar' if text else 'double'}[])")

    def at(self, array: Any, place: str) -> nw.Expr:
        """The element of an array at a place, counted from 0."""
        if self._spark:
            from pyspark.sql import functions as F

            return nw.col(self.add(F.get(array, F.col(place))))
        if self.is_ibis:
            table: Any = self.frame.to_native()
            return nw.col(self.add(table[array][table[place]]))
        return nw.col(self.add(f"{array}[{place} + 1]"))

    def count_passed(self, edges: Any, value: str, size: int, base: str | None = None) -> str:
        """How many edges are at most the value: of `size` sorted ones that start at `base`."""
        place = self.hold(nw.lit(0, nw.Int64))
        step = (size + 1) // 2
        while step >= 1:
            place = self.add(self._passed(edges, value, place, base, step))
            step //= 2
        return place

    def _passed(self, edges: Any, value: str, place: str, base: str | None, step: int) -> Any:
        """One step of the search: on by `step` where that edge is passed; there is none (null) beyond the end."""
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

    def add(self, native: Any) -> str:
        """A new column from what the engine itself understands: SQL, or a column of Spark or Ibis."""
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


def _literal(value: Cell) -> str:
    """A number or a text in DuckDB's SQL; a number without an exponent would be a decimal there."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "null" if value is None else f"{value:.17e}"


# ---------------------------------------------------------------------------- maps


def predict(program: Program, score_map: ScoreMap, score: str, group: nw.Expr | None) -> nw.Expr:
    """The map's prediction as an expression; null where the score is none."""
    maps = [score_map.default] if isinstance(score_map, Grouped) else [score_map]
    number = None
    if isinstance(score_map, Grouped) and score_map.maps and group is not None:
        names = sorted(score_map.maps, key=lambda name: name.encode())
        maps += [score_map.maps[name] for name in names]
        number = _group_number(program, names, group)
    # float32 first becomes double: neighbouring scores must not fall together.
    value = program.hold(nw.col(score).cast(nw.Float64))
    shapes: dict[Any, list[int]] = {}
    for i, one in enumerate(maps):
        shapes.setdefault(_shape(one), []).append(i)
    result: nw.Expr | None = None
    for members in shapes.values():
        here = None if number is None else _renumber(program, number, members, len(maps))
        part = _stack(program, [maps[i] for i in members], value, here)
        if result is None:
            result = part
        else:
            ours = program.at(program.array([float(i in members) for i in range(len(maps))]), cast(str, number))
            result = nw.when(ours > 0.5).then(part).otherwise(result)
    low, high = (0.0, 1.0) if score_map.scale == "probability" else (-_MOST, _MOST)
    return nw.when(nw.col(value).is_between(low, high)).then(cast(nw.Expr, result))


def _group_number(program: Program, names: list[str], group: nw.Expr) -> str:
    """Number of each row's map: 0 for the default, i for the i-th name."""
    text = program.hold(group)
    if program.is_ibis:  # warehouses sort text each in their own way, so no binary search
        table = program.frame.to_native()
        return program.add(table[text].cases(*((name, i + 1) for i, name in enumerate(names)), else_=0))
    place = program.count_passed(program.array(names), text, _room(len(names)))
    found = program.at(program.array(["", *names]), place)
    known = (found == nw.col(text)) & (nw.col(place) > 0)
    return program.hold(nw.when(known).then(nw.col(place)).otherwise(nw.lit(0, nw.Int64)))


def _renumber(program: Program, number: str, members: list[int], total: int) -> str | None:
    """Places within one stack; other rows are computed as its first and thrown away."""
    if len(members) == 1:
        return None
    if len(members) == total:
        return number
    places = {one: i for i, one in enumerate(members)}
    table = program.array([float(places.get(i, 0)) for i in range(total)])
    return program.hold(program.at(table, number).cast(nw.Int64))


def _room(count: int) -> int:
    """The least 2^i − 1 that is no less: what a binary search of i steps can tell apart."""
    return (1 << count.bit_length()) - 1


def _flat(score_map: ScoreMap) -> list[ScoreMap]:
    return list(score_map.maps) if isinstance(score_map, Chain) else [score_map]


def _shape(score_map: ScoreMap) -> tuple[Any, ...]:
    """Maps of one shape differ in their numbers alone."""
    return (score_map.scale, *((type(step), step.link) for step in _flat(score_map)))


def _stack(program: Program, maps: list[ScoreMap], value: str, number: str | None) -> nw.Expr:
    """The prediction of maps of one shape; `number` says which of them a row gets."""
    steps = list(zip(*(_flat(one) for one in maps), strict=True))
    scores, link = maps[0].scale, steps[0][0].link
    l = nw.col(value)
    if scores != "logit" or link != "logistic":
        l = _inverse(program, link, _phi(program, "logistic", l) if scores == "logit" else l)
    for column in steps:
        if column[0].link != link:
            l, link = _inverse(program, column[0].link, _phi(program, link, l)), column[0].link
        l = _transform(program, column, l, number)
    bounds = get_link(link) if scores == "value" else get_link("logistic")
    return _inside(program, _phi(program, link, l), bounds.lower, bounds.upper)


def _transform(program: Program, maps: Sequence[ScoreMap], l: nw.Expr, number: str | None) -> nw.Expr:
    def each(of: Callable[[Any], float]) -> nw.Expr:
        values = [float(of(one)) for one in maps]
        if number is None or len(set(values)) == 1:
            return nw.lit(values[0])
        return program.at(program.array(values), number)

    if isinstance(maps[0], Affine):
        return each(lambda one: one.slope) * l + each(lambda one: one.intercept)
    if isinstance(maps[0], Curve):
        pieces = [_pieces(cast(Curve, one)) for one in maps]
        x, y, slope, l = _at_piece(program, [one.x for one in cast(Sequence[Curve], maps)], pieces, l, number)
        return slope * (l - x) + y
    if isinstance(maps[0], Steps):
        stairs = cast(Sequence[Steps], maps)
        found = _at_piece(
            program, [one.edges for one in stairs], [[(v,) for v in one.values] for one in stairs], l, number
        )
        return found[0] + each(lambda one: one.slope) * (found[1] - each(lambda one: one.center))
    raise UncurseError(f"a {type(maps[0]).__name__} map has no expression; apply it with Polars or numpy")


def _pieces(curve: Curve) -> list[tuple[float, float, float]]:
    """A point and a slope for each piece: left of the first knot, between knots, right of the last."""
    x, y = np.array(curve.x), np.array(curve.y)
    slopes = [curve.left, *(np.diff(y) / np.diff(x)).tolist(), curve.right]
    return [(float(x[max(i - 1, 0)]), float(y[max(i - 1, 0)]), float(slope)) for i, slope in enumerate(slopes)]


def _at_piece(
    program: Program,
    edges: Sequence[Sequence[float]],
    pieces: Sequence[Sequence[tuple[float, ...]]],
    l: nw.Expr,
    number: str | None,
) -> list[nw.Expr]:
    """What each row's piece holds, and l itself as a column."""
    held = program.hold(l)
    size = _room(max(map(len, edges)))
    base = None if number is None else program.hold(nw.col(number) * (size + 1))
    table = [cell for one in edges for cell in (*one, *([None] * (size + 1 - len(one))))]
    place = program.count_passed(program.array(table), held, size, base) if size else program.hold(nw.lit(0, nw.Int64))
    if base is not None:
        place = program.hold(nw.col(place) + nw.col(base))
    width = len(pieces[0][0])
    cells = [[*one, *([one[-1]] * (size + 1 - len(one)))] for one in pieces]
    columns = [program.array([piece[i] for one in cells for piece in one]) for i in range(width)]
    return [*(program.at(column, place) for column in columns), nw.col(held)]


# ---------------------------------------------------------------------------- links


def _phi(program: Program, link: str, l: nw.Expr) -> nw.Expr:
    if link == "logistic":
        # Held: engines write a division and a clip as several cases, each of which repeats what is inside it.
        return 1.0 / nw.col(program.hold((-l).exp() + 1.0))
    if link == "log":
        return l.exp()
    return _known(link, l)


def _inverse(program: Program, link: str, p: nw.Expr) -> nw.Expr:
    if link == "logistic":
        p = nw.col(program.hold(_inside(program, p, 0.0, 1.0)))
        return p.log() - (1.0 - p).log()
    if link == "log":
        return nw.col(program.hold(_inside(program, p, 0.0, np.inf))).log()
    return _known(link, p)


def _known(link: str, expression: nw.Expr) -> nw.Expr:
    if link != "identity":
        raise UncurseError(f"the {link} link has no expression in SQL; apply this map with Polars or numpy")
    return expression


def _inside(program: Program, p: nw.Expr, lower: float, upper: float) -> nw.Expr:
    """As `links.inside`."""
    low, high = (_TINY if lower == 0.0 else -_MOST), (_BELOW_ONE if upper == 1.0 else _MOST)
    held = nw.col(program.hold(p))
    return nw.when(held < low).then(nw.lit(low)).when(held > high).then(nw.lit(high)).otherwise(held)


__all__ = ["Program", "predict"]
