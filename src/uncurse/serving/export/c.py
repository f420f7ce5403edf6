"""Export a map as a C header without dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...errors import UncurseError
from ...maps import ScoreMap
from ...maps.program import BELOW_ONE, MOST_EXP, SCALES, TINY, compile_map
from ...methods.fitted import Fitted, fitted_of
from ...version import __version__

_KEYWORDS = """auto bool break case catch char class const continue default delete do double else enum explicit export
extern false float for friend goto if inline int long main mutable namespace new operator private protected public
register restrict return short signed sizeof static struct switch template this throw true try typedef typeid typename
union unsigned using virtual void volatile while exp log log1p"""
_LOGISTIC = "l > -700.0 ? 1.0 / (1.0 + exp(-l)) : exp(l)"
_LINK_SCORES = {
    ("logit", "logistic"): (),
    ("logit", "identity"): (f"l = {_LOGISTIC};",),
    ("logit", "log"): (f"l = {_LOGISTIC};", f"l = log(l < {TINY!r} ? {TINY!r} : l);"),
    ("probability", "logistic"): (
        f"l = l < {TINY!r} ? {TINY!r} : l > {BELOW_ONE!r} ? {BELOW_ONE!r} : l;",
        "l = log(l) - log1p(-l);",
    ),
    ("probability", "log"): (f"l = log(l < {TINY!r} ? {TINY!r} : l);",),
    ("value", "log"): (f"l = log(l < {TINY!r} ? {TINY!r} : l);",),
}
_PREDICTIONS = {"logistic": f"l = {_LOGISTIC};", "log": f"l = exp(l < {MOST_EXP!r} ? l : {MOST_EXP!r});"}


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
    if name in _KEYWORDS.split() or name.isupper():
        raise UncurseError(f"{name!r} is a name of C or C++ itself; choose another, such as 'uncurse_predict'")
    program = compile_map(fitted_of(score_map).map)
    (low, high), guard = program.valid, f"{name.upper()}_H"
    edges, rows = map(repr, program.edges), (f"{{{x!r}, {y!r}, {slope!r}}}" for x, y, slope in program.pieces)
    body = [f"static const double pieces[{len(program.x)}][3] = {_table(rows)}; /* x, y, slope */"]
    if program.edges:
        body += [f"static const double edges[{len(program.edges)}] = {_table(edges)};"]
    body += ["int piece = 0;", "double l = score;"]
    body += [f"if (!(score >= {low!r} && score <= {high!r})) return NAN;"]
    if program.edges:
        body += [f"int end = {len(program.edges)};", "while (piece < end) {", "    int middle = (piece + end) / 2;"]
        body += ["    if (score < edges[middle]) end = middle; else piece = middle + 1;", "}"]
    body += [*_LINK_SCORES.get((program.scale, program.link), ())]
    body += ["l = pieces[piece][1] + pieces[piece][2] * (l - pieces[piece][0]);"]
    body += [_PREDICTIONS[program.link]] if program.link in _PREDICTIONS else []
    if program.bounds is not None:
        least, most = program.bounds
        body += [f"return l < {least!r} ? {least!r} : l > {most!r} ? {most!r} : l;"]
    else:
        body += ["return l;"]
    head = f"/* Predict from the served score, {SCALES[program.scale]}; NAN for what is none."
    lines = [head, f"   Made by uncurse {__version__}. */", f"#ifndef {guard}", f"#define {guard}", ""]
    lines += ["#include <math.h>", "", f"static inline double {name}(double score)", "{"]
    lines += [*(f"    {line}" for line in body), "}", "", f"#endif /* {guard} */", ""]
    return "\n".join(lines)


def _table(parts: Iterable[str]) -> str:
    return "{" + ", ".join(parts) + "}"
