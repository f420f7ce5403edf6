"""Export a map as one expression of SQL: a tree of CASE over its pieces, each leaf a formula or a number.

Only the score itself is compared, so that neither LN nor EXP is computed on the way down the tree, and the text grows
with the number of pieces alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import UncurseError
from ...logs.dialects import BY_NAME, Dialect
from ...maps import Chain, Grouped, ScoreMap
from ...maps.compile import compile_map, valid_range
from ...maps.operations import BELOW_ONE, TINY, Clip, Line, Operation, Phi, Pieces, apply
from ...validation import check_choice
from . import MOST_EXP

# Snowflake and BigQuery take at most 1 MB of SQL, about 10,000 pieces.
_MOST_PIECES = 1 << 15

#: Names of the dialects, for messages and command lines.
DIALECTS = tuple(BY_NAME)


def to_sql(score_map: ScoreMap, score: str = "score", *, dialect: str = "duckdb", group: str | None = None) -> str:
    """Export a map as an expression of SQL.

    The expression is NULL where the column holds no score: NULL, NaN, infinite, or a probability outside [0, 1].

    Parameters
    ----------
    score_map : ScoreMap
        Any map with at most 32,768 pieces.
    score : str, default="score"
        Column of scores. Names are quoted, so they mean a column exactly as written: in Snowflake a column that was
        created without quotes is upper case, ``score="SCORE"``.
    dialect : {"duckdb", "spark", "bigquery", "snowflake"}, default="duckdb"
        SQL dialect.
    group : str, optional
        For a map by group: the column of groups, compared as text. NULL and unknown groups get the default map, as
        do all rows without `group`.

    Returns
    -------
    str
        The expression.

    Examples
    --------
    >>> from uncurse import Steps
    >>> print(to_sql(Steps((0.5,), (0.1, 0.2), link="identity", scale="probability"), "p"))
    CASE WHEN CAST("p" AS DOUBLE) BETWEEN 0.0e0 AND 1.0e0 THEN \
CASE WHEN CAST("p" AS DOUBLE) < 0.5e0 THEN 0.1e0 ELSE 0.2e0 END END
    """
    form = BY_NAME[check_choice("dialect", dialect, DIALECTS)]
    column = f"CAST({form.name(score)} AS {form.double})"
    low, high = valid_range(score_map)
    if group is not None and not isinstance(score_map, Grouped):
        raise UncurseError(f"this map has no groups, yet group={group!r}; leave it out")
    default = score_map.default if isinstance(score_map, Grouped) else score_map
    maps = score_map.maps if isinstance(score_map, Grouped) and group is not None else {}
    _check_size([default, *maps.values()])
    result = _prediction(compile_map(default), column, form)
    if maps:
        cases = (
            f"WHEN {form.literal(name)} THEN {_prediction(compile_map(part), column, form)}"
            for name, part in maps.items()
        )
        result = f"CASE CAST({form.name(str(group))} AS {form.text}) {' '.join(cases)} ELSE {result} END"
    return f"CASE WHEN {column} BETWEEN {form.number(low)} AND {form.number(high)} THEN {result} END"


def _check_size(maps: Sequence[ScoreMap]) -> None:
    """Refuse maps of too many pieces before they are compiled: no warehouse parses such an expression."""
    parts = [part for one in maps for part in (one.maps if isinstance(one, Chain) else [one])]
    pieces = sum(len(getattr(part, "x", getattr(part, "edges", ()))) + 1 for part in parts)
    if pieces > _MOST_PIECES:
        raise UncurseError(
            f"this map has {pieces:,} pieces and a SQL expression takes {_MOST_PIECES:,}; apply it to the log with "
            "`uncurse apply` (apply_to_files, with_prediction), or fit a map with fewer pieces"
        )


def _prediction(steps: Sequence[Operation], column: str, form: Dialect) -> str:
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


def _leaf(steps: Sequence[Operation], column: str, piece: int, form: Dialect) -> str:
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


def _step(step: Operation, l: str, piece: int, form: Dialect) -> str:
    number = form.number
    if isinstance(step, Line):
        return f"({number(step.slope)} * {l} + {number(step.intercept)})"
    if isinstance(step, Pieces):
        return f"({number(step.y[piece])} + {number(step.slope[piece])} * ({l} - {number(step.x[piece])}))"
    if isinstance(step, Clip):
        return f"LEAST(GREATEST({l}, {number(step.low)}), {number(step.high)})"
    if step.link == "probit":
        raise UncurseError("the probit link is not in SQL; fit a map of the logistic link, or export it to Python")
    if isinstance(step, Phi):
        if step.link == "log":
            return f"EXP(LEAST({l}, {number(MOST_EXP)}))"
        return f"({number(1.0)} / ({number(1.0)} + EXP(LEAST(-{l}, {number(MOST_EXP)}))))"
    if step.link == "log":
        return f"LN(GREATEST({l}, {number(TINY)}))"
    rest = f"GREATEST({number(1.0)} - {l}, {number(1.0 - BELOW_ONE)})"
    return f"(LN(GREATEST({l}, {number(TINY)})) - LN({rest}))"
