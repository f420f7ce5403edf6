"""Export a map as a Python module without dependencies."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import UncurseError
from ...maps import Grouped, ScoreMap
from ...maps.compile import Clip, Inverse, Line, Operation, Phi, Pieces, compile_map
from ...version import __version__
from . import SCALES, Language, edges_of, tables_of, wrapped

_CLIP = "l = min(max(l, {low}), {high})"
_LANGUAGE = Language(
    "Python",
    {
        Line: "slope, intercept = _line_{i}\nl = slope * l + intercept",
        Pieces: "x, y, slope = _pieces_{i}[piece]\nl = y + slope * (l - x)",
        Clip: _CLIP,
        # Neither tail may overflow.
        (Phi, "logistic"): "l = 1.0 / (1.0 + math.exp(-l)) if l > -700.0 else math.exp(l)",
        (Phi, "log"): "l = math.exp(min(l, {most_exp}))",
        (Phi, "probit"): "l = 0.5 * math.erfc(-l / math.sqrt(2.0))",
        (Inverse, "logistic"): _CLIP + "\nl = math.log(l) - math.log1p(-l)",
        (Inverse, "log"): "l = math.log(max(l, {low}))",
        (Inverse, "probit"): _CLIP + "\nl = statistics.NormalDist().inv_cdf(l)",
    },
)


def to_python(score_map: ScoreMap, name: str = "predict") -> str:
    """Export a map as a Python module that needs only the standard library.

    The function raises a ValueError for what is no score: not finite, or a probability outside [0, 1].

    Parameters
    ----------
    score_map : ScoreMap
        Any map.
    name : str, default="predict"
        Name of the function: of a score, and of a group if the map has groups.

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
    taken = hasattr(builtins, name) or name in ("bisect", "math", "statistics")
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_") or taken:
        raise UncurseError(f"{name!r} cannot name the function of a module; choose another, such as 'predict'")
    what = f"the served score, {SCALES[score_map.scale]}"
    if isinstance(score_map, Grouped):
        lines = list(_python_groups(score_map, name, what))
    else:
        steps = compile_map(score_map)
        lines = [f"{key} = {_python_number(value)}\n" for key, value in _numbers(steps).items()]
        lines += [f"\ndef {name}(score):", f'    """The prediction from {what}; ValueError for what is none."""']
        lines += [*_python_check(score_map), *_python_body(steps)]
    text = "\n".join(lines)
    modules = [f"import {module}\n" for module in ("bisect", "math", "statistics") if f"{module}." in text]
    head = f'"""The prediction from {what}. Made by uncurse {__version__}; needs nothing but Python."""'
    return f"{head}\n\n{''.join(modules)}\n{text}\n"


def _python_groups(grouped: Grouped, name: str, what: str) -> Iterator[str]:
    """Write a function for each form of map, the numbers of each group, and the function that finds the group."""
    forms: dict[tuple[object, ...], str] = {}
    rows = []
    for one in (grouped.default, *grouped.maps.values()):
        steps = compile_map(one)
        form = tuple(type(step) if isinstance(step, Line | Pieces) else step for step in steps)
        if form not in forms:
            forms[form] = f"_map_{len(forms) + 1}"
            arguments = ", ".join(["score", *_numbers(steps)])
            yield from ("", f"def {forms[form]}({arguments}):", *_python_body(steps), "")
        rows.append(f"({', '.join([forms[form], *map(_python_number, _numbers(steps).values())])},)")
    yield from ("", f"_whole = {rows[0]}", "_groups = {")
    yield from (f"    {group!r}: {row}," for group, row in zip(grouped.maps, rows[1:], strict=True))
    yield from ("}", "", "", f"def {name}(score, group=None):")
    yield f'    """The prediction from {what}, and its group (None or unseen: the default map)."""'
    yield from _python_check(grouped)
    yield "    if isinstance(group, float) and group.is_integer():"
    yield "        group = int(group)  # 1 and 1.0 are one group"
    yield "    made, *numbers = _whole if group is None else _groups.get(str(group), _whole)"
    yield "    return made(score, *numbers)"


def _numbers(steps: Sequence[Operation]) -> dict[str, Any]:
    """Return the numbers of lines and tables by their names in the formulas."""
    edges = edges_of(steps)
    numbers: dict[str, Any] = {"_edges": edges} if edges else {}
    numbers |= {f"_pieces_{i}": tuple(table) for i, table in tables_of(steps).items()}
    lines = {i: step for i, step in enumerate(steps, 1) if isinstance(step, Line)}
    return numbers | {f"_line_{i}": (step.slope, step.intercept) for i, step in lines.items()}


def _python_check(score_map: ScoreMap) -> tuple[str, ...]:
    bad, must = "not math.isfinite(score)", "a score is a finite number"
    if score_map.scale == "probability":
        bad, must = "not 0.0 <= score <= 1.0", "a probability lies in [0, 1]"
    return (
        "    score = float(score)",
        f"    if {bad}:",
        f'        raise ValueError(f"score is {{score!r}}; {must}")',
    )


def _python_body(steps: Sequence[Operation]) -> list[str]:
    lookup = ["    piece = bisect.bisect_right(_edges, score)"] if edges_of(steps) else []
    return ["    l = score", *lookup, *_LANGUAGE.statements(steps), "    return l"]


def _python_number(value: object) -> str:
    """Write a number, or a tuple of numbers in lines of readable length."""
    if not isinstance(value, tuple) or len(repr(value)) < 100:
        return repr(value)
    return "\n".join(["(", *wrapped(map(repr, value), "    "), ")"])
