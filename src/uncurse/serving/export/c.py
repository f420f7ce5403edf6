"""Export a map as a C header without dependencies."""

from __future__ import annotations

import re

from ...errors import UncurseError
from ...maps import ScoreMap
from ...maps.program import SCALES, compile_map
from ...methods.fitted import Fitted, fitted_of
from ...version import __version__
from .python import formulas


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
