"""Export a map as a Python module or a C header, without dependencies."""

from __future__ import annotations

import builtins
import keyword
import re

from ...errors import UncurseError
from ...maps import ScoreMap, Segmented
from ...maps.program import BELOW_ONE, MOST_EXP, SCALES, TINY, Program, compile_map
from ...methods.fitted import Fitted, fitted_of
from ...version import __version__

# The steps of a program for one score l, in the syntax that Python and C share; each is the next l.
_FORMULAS = {
    "logistic": ["1.0 / (1.0 + exp(min(-l, 709.0)))"],  # exp of 709 is still finite
    "logit": [f"min(max(l, {TINY!r}), {BELOW_ONE!r})", "log(l) - log1p(-l)"],
    "log": [f"log(max(l, {TINY!r}))"],
    "exp": [f"exp(min(l, {MOST_EXP!r}))"],
}
_MODULE = """\"\"\"Predict from the served score, {scale}. Made by uncurse {version}.\"\"\"

import bisect
from math import exp, isfinite, log, log1p
{functions}

_default = {default}
_segments = {{{segments}}}


def {name}(score, segment=None):
    \"\"\"Return the prediction for a score; raise ValueError if it is not one.\"\"\"
    score = float(score)
    if not {valid}:
        raise ValueError(f"score is {{score!r}}; {must}")
    if isinstance(segment, float) and segment.is_integer():
        segment = int(segment)  # 1 and 1.0 are one segment
    function, edges, pieces = _segments.get(str(segment), _default) if segment is not None else _default
    return function(score, *pieces[bisect.bisect_right(edges, score)])
"""


def to_python(score_map: ScoreMap | Fitted, name: str = "predict") -> str:
    """Export a map as a Python module that needs only the standard library.

    The function raises a ValueError for what is no score: not finite, or a probability outside [0, 1].

    Parameters
    ----------
    score_map : ScoreMap or Fitted
        Any map.
    name : str, default="predict"
        Name of the function: of a score, and of a segment if the map has segments.

    Returns
    -------
    str
        Source code.

    Examples
    --------
    >>> from uncurse import Affine
    >>> module = {}
    >>> exec(to_python(Affine(0.5, -1.0)), module)
    >>> module["predict"](2.0)
    0.5
    """
    if not name.isidentifier() or keyword.iskeyword(name) or hasattr(builtins, name):
        raise UncurseError(f"{name!r} cannot name the function of a module; choose another, such as 'predict'")
    score_map = fitted_of(score_map).map
    default = compile_map(score_map.default if isinstance(score_map, Segmented) else score_map)
    parts = score_map.maps if isinstance(score_map, Segmented) else {}
    programs = {segment: compile_map(part) for segment, part in parts.items()}
    bounded = default.scale == "probability"
    return _MODULE.format(
        scale=SCALES[default.scale],
        version=__version__,
        functions="".join({program.link: _function(program) for program in (default, *programs.values())}.values()),
        default=_numbers(default),
        segments="".join(f"\n    {segment!r}: {_numbers(program)},\n" for segment, program in programs.items()),
        name=name,
        valid="0.0 <= score <= 1.0" if bounded else "isfinite(score)",
        must="a probability lies in [0, 1]" if bounded else "a score is a finite number",
    )


def to_c(score_map: ScoreMap | Fitted, name: str = "uncurse_predict") -> str:
    """Export a map as a C99 header, also for C++, with one function from double to double.

    The function returns NAN for what is no score.

    Parameters
    ----------
    score_map : ScoreMap or Fitted
        An `Affine`, `Curve` or `Steps`.
    name : str, default="uncurse_predict"
        Name of the function: letters and digits, but not a keyword.

    Returns
    -------
    str
        Source code.

    Examples
    --------
    >>> from uncurse import Affine
    >>> "static inline double uncurse_predict(double score)" in to_c(Affine(0.5, -1.0))
    True
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise UncurseError(f"{name!r} cannot name a function in C; choose letters and digits, as 'uncurse_predict'")
    program = compile_map(fitted_of(score_map).map)
    (low, high), guard, count = program.valid, f"{name.upper()}_H", len(program.edges)
    pieces = ", ".join(f"{{{x!r}, {y!r}, {slope!r}}}" for x, y, slope in program.pieces)
    edges = ", ".join(map(repr, program.edges)) or "0.0"
    lines = ("".join(f"    l = {formula};\n" for formula in part) for part in formulas(program))
    before, after = (re.sub("(?=min|max)", "f", part) for part in lines)
    return f"""/* Predict from the served score, {SCALES[program.scale]}; NAN for other numbers.
   Made by uncurse {__version__}. */
#ifndef {guard}
#define {guard}

#include <math.h>

static inline double {name}(double score)
{{
    static const double pieces[{count + 1}][3] = {{{pieces}}}; /* x, y, slope */
    static const double edges[{max(count, 1)}] = {{{edges}}};
    int piece = 0, end = {count};
    double l = score;
    if (!(score >= {low!r} && score <= {high!r})) return NAN;
    while (piece < end) {{
        int middle = (piece + end) / 2;
        if (score < edges[middle]) end = middle; else piece = middle + 1;
    }}
{before}    l = pieces[piece][1] + pieces[piece][2] * (l - pieces[piece][0]);
{after}    return l;
}}

#endif /* {guard} */
"""


def _function(program: Program) -> str:
    before, after = formulas(program)
    steps = [*before, "y + slope * (l - x)", *after]
    lines = [f"def _{program.link}(l, x, y, slope):", *(f"    l = {step}" for step in steps), "    return l"]
    return "\n\n" + "\n".join(lines) + "\n"


def formulas(program: Program) -> tuple[list[str], list[str]]:
    """Return expressions that take a score to the score of the link, and from there to the prediction."""
    before, after = ([one for step in part for one in _FORMULAS[step]] for part in program.steps)
    clip = [] if program.bounds is None else [f"min(max(l, {program.bounds[0]!r}), {program.bounds[1]!r})"]
    return before, after + clip


def _numbers(program: Program) -> str:
    return f"(_{program.link}, {program.edges!r}, {program.pieces!r})"
