"""Export a map as one expression of SQL: a tree of CASE over its pieces, whose leaves are formulas or numbers.

Only the score itself is compared, so that neither LN nor EXP is computed on the way down the tree. Nothing is around
the tree: a parser that tries two readings of every parenthesis, as Spark's does, must not find the tree inside one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import UncurseError
from ...links import get_link
from ...maps import ScoreMap, Segmented, Steps
from ...maps.program import BELOW_ONE, HIGHEST_LOGIT, LOWEST_LOGIT, MOST_EXP, TINY, Program, compile_map
from ...methods.fitted import Fitted, fitted_of
from ...validation import check_choice, warn_user

_MOST_BYTES = 1 << 20  # of a query of BigQuery and Snowflake

_MODERATE = 100.0  # below, an intercept has as many digits as its prediction needs


@dataclass(frozen=True)
class _Dialect:
    """How a SQL dialect writes names, texts and numbers."""

    double: str  # name of the type
    text: str
    quote: str  # character around a name
    escapes: bool = True  # a backslash in a text starts an escape sequence
    name_escapes: bool = False  # and in a name
    typed: bool = False  # numbers are cast to `double`: Snowflake does not document the type of 1e0

    def name(self, column: str) -> str:
        if not column:
            raise UncurseError("'' names no column; pass the column's name")
        return _quoted(column, self.quote, self.name_escapes)

    def number(self, value: float, exact: bool = True) -> str:
        """Write a number with an exponent, or it would be a decimal; with twelve digits unless it must be exact."""
        text = repr((value if exact else float(f"{value:.12g}")) + 0.0)  # + 0.0 removes the sign of -0.0
        text = (text if "e" in text else f"{text}e0").replace(".0e", "e")
        if self.typed:
            return f"'{text}'::{self.double}"
        return text if value >= 0 else f"({text})"


def _quoted(text: str, quote: str, escapes: bool) -> str:
    if not escapes:
        return f"{quote}{text.replace(quote, quote * 2)}{quote}"
    text = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return quote + "".join(f"\\u{ord(letter):04x}" if letter < " " else letter for letter in text) + quote


_DIALECTS = {
    "duckdb": _Dialect("DOUBLE", "VARCHAR", '"', escapes=False),
    "spark": _Dialect("DOUBLE", "STRING", "`"),
    "bigquery": _Dialect("FLOAT64", "STRING", "`", name_escapes=True),
    "snowflake": _Dialect("DOUBLE", "VARCHAR", '"', typed=True),
}
#: Names of the dialects.
DIALECTS = tuple(_DIALECTS)


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
    form = _DIALECTS[check_choice("dialect", dialect, DIALECTS)]
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
        parts = score_map.maps.values()
        names = (_quoted(name, "'", form.escapes) for name in score_map.maps)
        cases = (f"WHEN {n} THEN {_prediction(part, column, form)}" for n, part in zip(names, parts, strict=True))
        result = f"CASE CAST({form.name(str(segment))} AS {form.text}) {' '.join(cases)} ELSE {result} END"
    low, high = map(form.number, compile_map(default).valid)
    text = f"CASE WHEN CAST({column} AS {form.double}) BETWEEN {low} AND {high} THEN {result} END"
    if dialect in ("bigquery", "snowflake") and len(text.encode()) > _MOST_BYTES:
        warn_user(
            f"this expression has {len(text.encode()) / 1e6:.1f} MB and {dialect} takes queries of at most 1 MB; apply "
            "a map with fewer segments, or use uncurse apply"
        )
    return text


def _prediction(score_map: ScoreMap, column: str, form: _Dialect) -> str:
    program = compile_map(score_map)
    # A row may lie exactly on the edge of a step. Curves are continuous, so twelve digits of an edge do.
    exact = isinstance(score_map, Steps)

    def grow(low: int, high: int) -> str:
        if low == high:
            return _leaf(program, low, column, form)
        middle = (low + high) // 2
        edge = form.number(program.edges[middle], exact)
        return f"CASE WHEN {column}<{edge} THEN {grow(low, middle)} ELSE {grow(middle + 1, high)} END"

    return grow(0, len(program.edges))


def _leaf(program: Program, i: int, column: str, form: _Dialect) -> str:
    """Write the prediction in one piece: a number where that is flat."""
    x, y, slope = program.pieces[i]
    bounds, one = program.bounds, form.number(1.0)
    if slope == 0.0:
        value = get_link(program.link).phi(np.array([y])).item()
        return form.number(value if bounds is None else min(max(value, bounds[0]), bounds[1]))
    first, last = (LOWEST_LOGIT, HIGHEST_LOGIT) if program.scale == "probability" else (-np.inf, np.inf)
    low, high = (first, *program.link_edges, last)[i : i + 2]
    served = _link_score(program, column, form, low, high)
    moderate = program.link != "identity" and abs(slope * x) + abs(y) <= _MODERATE
    if moderate:
        l = f"{form.number(y - slope * x, False)} + {form.number(slope, False)}*{served}"
    else:
        l = f"{form.number(y)} + {form.number(slope)}*({served} - {form.number(x)})"
    if program.link == "identity":
        return l if bounds is None else _clipped(f"({l})", *bounds, form)
    if program.link == "log":
        power = f"EXP(LEAST({l},{form.number(MOST_EXP)}))"
        return _clipped(power, TINY, bounds[1], form) if bounds is not None else power
    assert program.link == "logistic"
    exponent = f"-({l})"
    if moderate:
        exponent = f"{form.number(slope * x - y, False)} - {form.number(slope, False)}*{served}"
    ends = (y + slope * (low - x), y + slope * (high - x))
    if ends[0] <= LOWEST_LOGIT or ends[1] >= HIGHEST_LOGIT:
        exponent = _clipped(exponent, -HIGHEST_LOGIT, -LOWEST_LOGIT, form)
    return f"{one}/({one} + EXP({exponent}))"


def _link_score(program: Program, column: str, form: _Dialect, low: float, high: float) -> str:
    """Convert the column to a score of the link, which lies from `low` to `high`."""
    one, tiny, rest = (form.number(value) for value in (1.0, TINY, 1.0 - BELOW_ONE))
    scale, link = program.scale, program.link
    if (scale == "logit" and link == "logistic") or (scale != "logit" and link == "identity"):
        return column
    if scale == "probability" and link == "logistic":
        if low > LOWEST_LOGIT and high < HIGHEST_LOGIT:
            return f"LN({column}/({one} - {column}))"
        return f"(LN(GREATEST({column},{tiny})) - LN(GREATEST({one} - {column},{rest})))"
    p = f"({one}/({one} + EXP(LEAST(-{column},{form.number(-LOWEST_LOGIT)}))))" if scale == "logit" else column
    return p if link == "identity" else f"LN(GREATEST({p},{tiny}))"


def _clipped(value: str, low: float, high: float, form: _Dialect) -> str:
    return f"LEAST(GREATEST({value},{form.number(low)}),{form.number(high)})"
