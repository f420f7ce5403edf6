"""Export a map as a Python module without dependencies."""

from __future__ import annotations

import builtins
import keyword

from ...errors import UncurseError
from ...maps import ScoreMap, Segmented
from ...maps.program import SCALES, Program, compile_map
from ...methods.fitted import Fitted, fitted_of
from ...version import __version__
from .formulas import link_scores, predictions

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


def _function(program: Program) -> str:
    """Write the function of maps of one link."""
    steps = [*link_scores(program), "y + slope * (l - x)", *predictions(program)]
    lines = [f"def _{program.link}(l, x, y, slope):", *(f"    l = {step}" for step in steps), "    return l"]
    return "\n\n" + "\n".join(lines) + "\n"


def _numbers(program: Program) -> str:
    """Write the function, the edges and the pieces of a map."""
    return f"(_{program.link}, {program.edges!r}, {program.pieces!r})"
