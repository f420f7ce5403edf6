"""A map as one expression of SQL: a tree of CASE over its pieces, each leaf a formula or a number.

Only the score itself is compared, so that neither LN nor EXP is computed on the way down the tree, and the text grows
with the number of pieces alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UncurseError
from ..maps import Grouped, ScoreMap
from ..validation import check_choice
from .formulas import BELOW_ONE, TINY, Inside, Line, Operation, Phi, Pieces, operations, valid
from .merging import apply

_MOST_EXP = 709.782712893383  # EXP of more overflows, which BigQuery raises as an error


@dataclass(frozen=True)
class _Dialect:
    """How a warehouse writes names, texts and types."""

    double: str
    text: str
    quote: str  # around a name
    escapes: bool = True  # is a backslash in a text an escape?
    quote_escapes: bool = False  # and in a name?
    typed: bool = False  # must a number be cast? Nobody promises what 1e0 is in Snowflake

    def number(self, value: float) -> str:
        """A double; without an exponent it would be a decimal."""
        text = repr(float(value) + 0.0)  # and no -0.0
        text = text if "e" in text else f"{text}e0"
        if self.typed:
            return f"'{text}'::{self.double}"
        return text if value >= 0 else f"({text})"

    def name(self, column: str) -> str:
        """A quoted name of a column."""
        if not column:
            raise UncurseError("'' names no column; pass the column's name")
        if self.quote_escapes:
            return f"{self.quote}{_escaped(column, self.quote)}{self.quote}"
        return f"{self.quote}{column.replace(self.quote, self.quote * 2)}{self.quote}"

    def literal(self, text: str) -> str:
        """A text."""
        return f"'{_escaped(text, chr(39))}'" if self.escapes else "'" + text.replace("'", "''") + "'"


def _escaped(text: str, quote: str) -> str:
    text = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return "".join(f"\\u{ord(letter):04x}" if letter < " " else letter for letter in text)


_DIALECTS = {
    "duckdb": _Dialect("DOUBLE", "VARCHAR", '"', escapes=False),
    "spark": _Dialect("DOUBLE", "STRING", "`"),
    "bigquery": _Dialect("FLOAT64", "STRING", "`", quote_escapes=True),
    "snowflake": _Dialect("DOUBLE", "VARCHAR", '"', typed=True),
}

#: Names of the dialects, for messages and command lines.
DIALECTS = tuple(_DIALECTS)


def to_sql(score_map: ScoreMap, score: str = "score", *, dialect: str = "duckdb", group: str | None = None) -> str:
    """The prediction as an expression over the column `score`; NULL where that is no score.

    A map with groups looks the column `group` up as text (NULL and unseen groups get the default map); without `group`
    the default map serves all. Names are quoted, so they mean a column exactly as written: in Snowflake a column that
    was made without quotes is upper case, ``score="SCORE"``.

    >>> from uncurse import Steps
    >>> print(to_sql(Steps((0.5,), (0.1, 0.2), link="identity", scale="probability"), "p"))
    CASE WHEN CAST("p" AS DOUBLE) BETWEEN 0.0e0 AND 1.0e0 THEN \
CASE WHEN CAST("p" AS DOUBLE) < 0.5e0 THEN 0.1e0 ELSE 0.2e0 END END
    """
    form = _DIALECTS[check_choice("dialect", dialect, DIALECTS)]
    column = f"CAST({form.name(score)} AS {form.double})"
    low, high = valid(score_map)
    if isinstance(score_map, Grouped):
        result = _prediction(operations(score_map.default), column, form)
        if group is not None and score_map.maps:
            cases = (
                f"WHEN {form.literal(name)} THEN {_prediction(operations(one), column, form)}"
                for name, one in score_map.maps.items()
            )
            result = f"CASE CAST({form.name(group)} AS {form.text}) {' '.join(cases)} ELSE {result} END"
    elif group is not None:
        raise UncurseError(f"this map has no groups, yet group={group!r}; leave it out")
    else:
        result = _prediction(operations(score_map), column, form)
    return f"CASE WHEN {column} BETWEEN {form.number(low)} AND {form.number(high)} THEN {result} END"


def _prediction(steps: Sequence[Operation], column: str, form: _Dialect) -> str:
    """The prediction where the score is one.

    All is in the leaves and nothing around the tree: a parser that tries two readings of every parenthesis, as Spark's
    does, must not find the tree inside one.
    """
    edges = next((step.edges for step in steps if isinstance(step, Pieces)), ())

    def grow(low: int, high: int) -> str:
        if low == high:
            return _leaf(steps, column, low, form)
        middle = (low + high) // 2
        edge = form.number(edges[middle])
        return f"CASE WHEN {column} < {edge} THEN {grow(low, middle)} ELSE {grow(middle + 1, high)} END"

    return grow(0, len(edges))


def _leaf(steps: Sequence[Operation], column: str, piece: int, form: _Dialect) -> str:
    """The prediction in one piece: a number where that is flat."""
    flat = [i for i, step in enumerate(steps) if _slope(step, piece) == 0.0]
    if not flat:
        for step in steps:
            column = _step(step, column, piece, form)
        return column
    value = np.zeros(1)
    for step in steps[flat[-1] :]:
        if isinstance(step, Pieces):
            step = Line(step.slope[piece], step.y[piece] - step.slope[piece] * step.x[piece])
        value = apply(step, value, value)
    return form.number(value.item())


def _slope(step: Operation, piece: int) -> float | None:
    if isinstance(step, Pieces):
        return step.slope[piece]
    return step.slope if isinstance(step, Line) else None


def _step(step: Operation, l: str, piece: int, form: _Dialect) -> str:
    number = form.number
    if isinstance(step, Line):
        return f"({number(step.slope)} * {l} + {number(step.intercept)})"
    if isinstance(step, Pieces):
        return f"({number(step.y[piece])} + {number(step.slope[piece])} * ({l} - {number(step.x[piece])}))"
    if isinstance(step, Inside):
        return f"LEAST(GREATEST({l}, {number(step.low)}), {number(step.high)})"
    if step.link == "probit":
        raise UncurseError("the probit link is not in SQL; fit a map of the logistic link, or export it to Python")
    if isinstance(step, Phi):
        if step.link == "log":
            return f"EXP(LEAST({l}, {number(_MOST_EXP)}))"
        return f"({number(1.0)} / ({number(1.0)} + EXP(LEAST(-{l}, {number(_MOST_EXP)}))))"
    if step.link == "log":
        return f"LN(GREATEST({l}, {number(TINY)}))"
    rest = f"GREATEST({number(1.0)} - {l}, {number(1.0 - BELOW_ONE)})"
    return f"(LN(GREATEST({l}, {number(TINY)})) - LN({rest}))"


__all__ = ["DIALECTS", "to_sql"]
