"""Export a map as one expression of SQL: a tree of CASE over its pieces, whose leaves are formulas or numbers.

Only the score itself is compared, so that neither LN nor EXP is computed on the way down the tree. Nothing is around
the tree: a parser that tries two readings of every parenthesis, as Spark's does, must not find the tree inside one.
"""

from __future__ import annotations

import numpy as np

from ...errors import UncurseError
from ...links import get_link
from ...maps import ScoreMap, Segmented, Steps
from ...maps.program import BELOW_ONE, HIGHEST_LOGIT, LOWEST_LOGIT, MOST_EXP, TINY, Program, compile_map
from ...methods.fitted import Fitted, fitted_of
from ...validation import check_choice, warn_user
from .dialects import BY_NAME, Dialect

_MOST_TEXT = {"bigquery": 1_000_000, "snowflake": 1_000_000}  # characters of a query
_MODERATE = 100.0  # below, an intercept has as many digits as its prediction needs
#: Names of the dialects, for messages and command lines.
DIALECTS = tuple(BY_NAME)


def to_sql(
    score_map: ScoreMap | Fitted, score: str = "score", *, dialect: str = "duckdb", segment: str | None = None
) -> str:
    """Export a map as an expression of SQL.

    The expression is NULL where the column holds no score: NULL, NaN, infinite, or a probability outside [0, 1].

    Parameters
    ----------
    score_map : ScoreMap or Fitted
        Any map.
    score : str, default="score"
        Column of scores. Names are quoted, so they mean a column exactly as written: in Snowflake a column that was
        created without quotes is upper case, ``score="SCORE"``.
    dialect : {"duckdb", "spark", "bigquery", "snowflake"}, default="duckdb"
        SQL dialect.
    segment : str, optional
        For a map by segment, which needs it: the column of segments, compared as text. NULL and unknown segments get
        the default map.

    Returns
    -------
    str
        The expression.

    Examples
    --------
    >>> from uncurse import Steps
    >>> print(to_sql(Steps((0.5,), (0.1, 0.2), link="identity", scale="probability"), "p"))
    CASE WHEN CAST("p" AS DOUBLE) BETWEEN 0e0 AND 1e0 THEN \
CASE WHEN "p"<0.5e0 THEN 0.1e0 ELSE 0.2e0 END END
    """
    score_map = fitted_of(score_map).map
    form = BY_NAME[check_choice("dialect", dialect, DIALECTS)]
    if segment is not None and not isinstance(score_map, Segmented):
        raise UncurseError(f"this map has no segments, yet segment={segment!r}; leave it out")
    if segment is None and isinstance(score_map, Segmented):
        raise UncurseError(
            "this map has a map for each segment; pass segment=, their column, or its .default for all rows"
        )
    column = form.name(score)  # numbers of all types become doubles where they meet one
    default = score_map.default if isinstance(score_map, Segmented) else score_map
    result = _prediction(default, column, form)
    if isinstance(score_map, Segmented) and score_map.maps:
        parts = score_map.maps.items()
        cases = (f"WHEN {form.literal(name)} THEN {_prediction(part, column, form)}" for name, part in parts)
        result = f"CASE CAST({form.name(str(segment))} AS {form.text}) {' '.join(cases)} ELSE {result} END"
    low, high = (_number(form, value) for value in compile_map(default).valid)
    text = f"CASE WHEN CAST({column} AS {form.double}) BETWEEN {low} AND {high} THEN {result} END"
    if len(text) > _MOST_TEXT.get(dialect, len(text)):
        warn_user(
            f"this expression has {len(text):,} characters and a query of {dialect} takes {_MOST_TEXT[dialect]:,}; "
            "apply the map to the log with `uncurse apply`, or fit fewer segments"
        )
    return text


def _prediction(score_map: ScoreMap, column: str, form: Dialect) -> str:
    """Write the prediction where the score is one."""
    program = compile_map(score_map)
    # A row may lie exactly on the edge of a step. Curves are continuous: there, nine digits of an edge would do.
    exact = isinstance(score_map, Steps)

    def grow(low: int, high: int) -> str:
        if low == high:
            return _leaf(program, low, column, form)
        middle = (low + high) // 2
        edge = _number(form, program.edges[middle], exact)
        return f"CASE WHEN {column}<{edge} THEN {grow(low, middle)} ELSE {grow(middle + 1, high)} END"

    return grow(0, len(program.edges))


def _number(form: Dialect, value: float, exact: bool = True) -> str:
    """Write a number, with twelve digits unless it must be exact."""
    return form.number(value if exact else float(f"{value:.12g}")).replace(".0e", "e")


def _leaf(program: Program, i: int, column: str, form: Dialect) -> str:
    """Write the prediction in one piece: a number where that is flat."""
    x, y, slope = program.pieces[i]
    bounds, one = program.bounds, _number(form, 1.0)
    if slope == 0.0:
        value = get_link(program.link).phi(np.array([y])).item()
        return _number(form, value if bounds is None else min(max(value, bounds[0]), bounds[1]))
    low, high = _link_range(program, i)
    served = _link_score(program, column, form, low, high)
    moderate = program.link != "identity" and abs(slope * x) + abs(y) <= _MODERATE
    if moderate:
        l = f"{_number(form, y - slope * x, False)} + {_number(form, slope, False)}*{served}"
    else:
        l = f"{_number(form, y)} + {_number(form, slope)}*({served} - {_number(form, x)})"
    if program.link == "identity":
        return l if bounds is None else _clipped(f"({l})", *bounds, form)
    if program.link == "log":
        power = f"EXP(LEAST({l},{_number(form, MOST_EXP)}))"
        return _clipped(power, TINY, bounds[1], form) if bounds is not None else power
    exponent = f"-({l})"
    if moderate:
        exponent = f"{_number(form, slope * x - y, False)} - {_number(form, slope, False)}*{served}"
    ends = (y + slope * (low - x), y + slope * (high - x))
    if ends[0] <= LOWEST_LOGIT or ends[1] >= HIGHEST_LOGIT:
        exponent = _clipped(exponent, -HIGHEST_LOGIT, -LOWEST_LOGIT, form)
    return f"{one}/({one} + EXP({exponent}))"


def _link_range(program: Program, i: int) -> tuple[float, float]:
    """Return the lowest and the highest score of the link in a piece."""
    low, high = (LOWEST_LOGIT, HIGHEST_LOGIT) if program.scale == "probability" else (-np.inf, np.inf)
    edges = (low, *program.link_edges, high)
    return edges[i], edges[i + 1]


def _link_score(program: Program, column: str, form: Dialect, low: float, high: float) -> str:
    """Convert the column to a score of the link, which lies from `low` to `high`."""
    one, tiny, rest = (_number(form, value) for value in (1.0, TINY, 1.0 - BELOW_ONE))
    scale, link = program.scale, program.link
    if (scale == "logit" and link == "logistic") or (scale != "logit" and link == "identity"):
        return column
    if scale == "probability" and link == "logistic":
        if low > LOWEST_LOGIT and high < HIGHEST_LOGIT:
            return f"LN({column}/({one} - {column}))"
        return f"(LN(GREATEST({column},{tiny})) - LN(GREATEST({one} - {column},{rest})))"
    p = f"({one}/({one} + EXP(LEAST(-{column},{_number(form, -LOWEST_LOGIT)}))))" if scale == "logit" else column
    return p if link == "identity" else f"LN(GREATEST({p},{tiny}))"


def _clipped(value: str, low: float, high: float, form: Dialect) -> str:
    return f"LEAST(GREATEST({value},{_number(form, low)}),{_number(form, high)})"
