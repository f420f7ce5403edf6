"""Export a map as a Python module without dependencies."""

from __future__ import annotations

import builtins
import keyword

from ...errors import UncurseError
from ...maps import ScoreMap, Segmented
from ...maps.program import BELOW_ONE, MOST_EXP, SCALES, TINY, Program, compile_map
from ...methods.fitted import Fitted, fitted_of
from ...version import __version__

# Neither tail may overflow.
_LOGISTIC = "1.0 / (1.0 + math.exp(-l)) if l > -700.0 else math.exp(l)"
_LINK_SCORES = {
    ("logit", "logistic"): (),
    ("logit", "identity"): (f"l = {_LOGISTIC}",),
    ("logit", "log"): (f"l = math.log(max({_LOGISTIC}, {TINY!r}))",),
    ("probability", "logistic"): (
        f"l = min(max(l, {TINY!r}), {BELOW_ONE!r})",
        "l = math.log(l) - math.log1p(-l)",
    ),
    ("probability", "log"): (f"l = math.log(max(l, {TINY!r}))",),
    ("value", "log"): (f"l = math.log(max(l, {TINY!r}))",),
}
_PREDICTIONS = {"logistic": f"l = {_LOGISTIC}", "log": f"l = math.exp(min(l, {MOST_EXP!r}))"}


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
    taken = hasattr(builtins, name) or name in ("bisect", "math")
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_") or taken:
        raise UncurseError(f"{name!r} cannot name the function of a module; choose another, such as 'predict'")
    score_map = fitted_of(score_map).map
    default = compile_map(score_map.default if isinstance(score_map, Segmented) else score_map)
    maps = score_map.maps if isinstance(score_map, Segmented) else {}
    programs = {segment: compile_map(part) for segment, part in maps.items()}
    lines = [f'"""Predict from the served score, {SCALES[default.scale]}. Made by uncurse {__version__}."""', ""]
    lines += ["import bisect", "import math", ""]
    for link in sorted({program.link for program in (default, *programs.values())}):
        lines += ["", f"def _{link}(score, edges, pieces):", *_function(default.scale, link), ""]
    lines += ["", f"_default = {_numbers(default)}"]
    if isinstance(score_map, Segmented):
        entries = (f"    {segment!r}: {_numbers(program)}," for segment, program in programs.items())
        lines += ["_segments = {", *entries, "}"]
    bad, must = "not math.isfinite(score)", "a score is a finite number"
    if default.scale == "probability":
        bad, must = "not 0.0 <= score <= 1.0", "a probability lies in [0, 1]"
    arguments = "score, segment=None" if isinstance(score_map, Segmented) else "score"
    lines += ["", "", f"def {name}({arguments}):"]
    lines += [
        '    """Return the prediction for a score; raise ValueError if it is not one."""',
        "    score = float(score)",
    ]
    lines += [f"    if {bad}:", f'        raise ValueError(f"score is {{score!r}}; {must}")', "    numbers = _default"]
    if isinstance(score_map, Segmented):
        lines += ["    if isinstance(segment, float) and segment.is_integer():"]
        lines += ["        segment = int(segment)  # 1 and 1.0 are one segment"]
        lines += ["    if segment is not None:", "        numbers = _segments.get(str(segment), _default)"]
    lines += ["    function, edges, pieces = numbers", "    return function(score, edges, pieces)", ""]
    return "\n".join(lines)


def _function(scale: str, link: str) -> list[str]:
    """Write the body of the function of maps of one link."""
    body = ["x, y, slope = pieces[bisect.bisect_right(edges, score)]", "l = score"]
    body += [*_LINK_SCORES.get((scale, link), ()), "l = y + slope * (l - x)"]
    body += [_PREDICTIONS[link]] if link in _PREDICTIONS else []
    bounds = Program(scale, link, (), (), (), (), ()).bounds
    body += ["return l" if bounds is None else f"return min(max(l, {bounds[0]!r}), {bounds[1]!r})"]
    return [f"    {line}" for line in body]


def _numbers(program: Program) -> str:
    """Write the function, the edges and the pieces of a map."""
    return f"(_{program.link}, {program.edges!r}, {tuple(program.pieces)!r})"
