"""Export a map as one expression of SQL: a tree of CASE over its pieces, each leaf a formula or a number.

Only the score itself is compared, so that neither LN nor EXP is computed on the way down the tree, and the text grows
with the number of pieces alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import UncurseError
from ...logs.dialects import BY_NAME
from ...maps import Chain, Grouped, ScoreMap
from ...maps.compile import Clip, Inverse, Line, Operation, Phi, Pieces, apply, compile_map, valid_range
from ...validation import check_choice
from . import Language, edges_of

# Snowflake and BigQuery take at most 1 MB of SQL, about 10,000 pieces.
_MOST_PIECES = 1 << 15

_FORMULAS = {
    Line: "({slope} * {l} + {intercept})",
    Pieces: "({y} + {slope} * ({l} - {x}))",
    Clip: "LEAST(GREATEST({l}, {low}), {high})",
    (Phi, "logistic"): "({one} / ({one} + EXP(LEAST(-{l}, {most_exp}))))",
    (Phi, "log"): "EXP(LEAST({l}, {most_exp}))",
    (Inverse, "logistic"): "(LN(GREATEST({l}, {low})) - LN(GREATEST({one} - {l}, {rest})))",
    (Inverse, "log"): "LN(GREATEST({l}, {low}))",
}
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
        For a map by group, which needs it: the column of groups, compared as text. NULL and unknown groups get the
        default map.

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
    column, sql = f"CAST({form.name(score)} AS {form.double})", Language("SQL", _FORMULAS, form.number)
    low, high = map(form.number, valid_range(score_map))
    if group is not None and not isinstance(score_map, Grouped):
        raise UncurseError(f"this map has no groups, yet group={group!r}; leave it out")
    if group is None and isinstance(score_map, Grouped):
        raise UncurseError("this map has a map for each group; pass group=, their column, or its .default for all rows")
    default = score_map.default if isinstance(score_map, Grouped) else score_map
    maps = score_map.maps if isinstance(score_map, Grouped) else {}
    _check_size([default, *maps.values()])
    result = _prediction(default, column, sql)
    if maps:
        cases = (f"WHEN {form.literal(name)} THEN {_prediction(part, column, sql)}" for name, part in maps.items())
        result = f"CASE CAST({form.name(str(group))} AS {form.text}) {' '.join(cases)} ELSE {result} END"
    return f"CASE WHEN {column} BETWEEN {low} AND {high} THEN {result} END"


def _check_size(maps: Sequence[ScoreMap]) -> None:
    """Refuse maps of too many pieces before they are compiled: no warehouse parses such an expression."""
    parts = [part for one in maps for part in (one.maps if isinstance(one, Chain) else [one])]
    pieces = sum(len(getattr(part, "x", getattr(part, "edges", ()))) + 1 for part in parts)
    if pieces > _MOST_PIECES:
        raise UncurseError(
            f"this map has {pieces:,} pieces and a SQL expression takes {_MOST_PIECES:,}; apply it to the log with "
            "`uncurse apply` (apply_to_files, with_prediction), or fit a map with fewer pieces"
        )


def _prediction(score_map: ScoreMap, column: str, sql: Language) -> str:
    """Write the prediction where the score is one.

    All is in the leaves and nothing around the tree: a parser that tries two readings of every parenthesis, as Spark's
    does, must not find the tree inside one.
    """
    steps = compile_map(score_map)
    edges = edges_of(steps)

    def grow(low: int, high: int) -> str:
        if low == high:
            return _leaf(steps, column, low, sql)
        middle = (low + high) // 2
        edge = sql.number(edges[middle])
        return f"CASE WHEN {column} < {edge} THEN {grow(low, middle)} ELSE {grow(middle + 1, high)} END"

    return grow(0, len(edges))


def _leaf(steps: Sequence[Operation], l: str, piece: int, sql: Language) -> str:
    """Write the prediction in one piece: a number where that is flat."""
    numbers = [vars(step) for step in steps]
    for i, step in enumerate(steps):
        if isinstance(step, Pieces):
            numbers[i] = {"x": step.x[piece], "y": step.y[piece], "slope": step.slope[piece]}
    flat = [i for i, own in enumerate(numbers) if own.get("slope") == 0.0]
    if not flat:
        for step, own in zip(steps, numbers, strict=True):
            l = sql.write(step, l=l, **own)
        return l
    value = np.zeros(1)
    for step, own in zip(steps[flat[-1] :], numbers[flat[-1] :], strict=True):
        one = Line(own["slope"], own["y"] - own["slope"] * own["x"]) if isinstance(step, Pieces) else step
        value = apply(one, value, value)
    return sql.number(value.item())
