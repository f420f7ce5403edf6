"""Export a map as a Python module without dependencies."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterable, Iterator, Sequence

from ...errors import UncurseError
from ...maps import Grouped, ScoreMap
from ...maps.compile import compile_map
from ...maps.operations import BELOW_ONE, TINY, Clip, Line, Operation, Phi, Pieces
from ...version import __version__
from . import MOST_EXP, SCALES, piece_rows, wrapped

_PHI = {  # neither tail may overflow
    "logistic": "1.0 / (1.0 + math.exp(-l)) if l > -700.0 else math.exp(l)",
    "log": f"math.exp(min(l, {MOST_EXP!r}))",
    "probit": "0.5 * math.erfc(-l / math.sqrt(2.0))",
}
_INVERSE = {
    "logistic": "math.log(l) - math.log1p(-l)",
    "log": "math.log(l)",
    "probit": "statistics.NormalDist().inv_cdf(l)",
}


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
        lines = [f"{key} = {_python_number(value)}\n" for key, value in _numbers(steps)]
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
            arguments = ", ".join(["score", *(key for key, _ in _numbers(steps))])
            yield from ("", f"def {forms[form]}({arguments}):", *_python_body(steps), "")
        rows.append(f"({', '.join([forms[form], *(_python_number(value) for _, value in _numbers(steps))])},)")
    yield from ("", f"_whole = {rows[0]}", "_groups = {")
    yield from (f"    {group!r}: {row}," for group, row in zip(grouped.maps, rows[1:], strict=True))
    yield from ("}", "", "", f"def {name}(score, group=None):")
    yield f'    """The prediction from {what}, and its group (None or unseen: the default map)."""'
    yield from _python_check(grouped)
    yield "    if isinstance(group, float) and group.is_integer():"
    yield "        group = int(group)  # 1 and 1.0 are one group"
    yield "    made, *numbers = _whole if group is None else _groups.get(str(group), _whole)"
    yield "    return made(score, *numbers)"


def _numbers(steps: Iterable[Operation]) -> Iterator[tuple[str, object]]:
    """Return the numbers of lines and pieces by their names in `_python_body`."""
    edges = None
    for i, step in enumerate(steps, 1):
        if isinstance(step, Pieces):
            if edges is None:
                edges = step.edges
                yield "_edges", edges
            yield f"_pieces_{i}", piece_rows(step)
        elif isinstance(step, Line):
            yield f"_line_{i}", (step.slope, step.intercept)


def _python_check(score_map: ScoreMap) -> tuple[str, ...]:
    bad, must = "not math.isfinite(score)", "a score is a finite number"
    if score_map.scale == "probability":
        bad, must = "not 0.0 <= score <= 1.0", "a probability lies in [0, 1]"
    return (
        "    score = float(score)",
        f"    if {bad}:",
        f'        raise ValueError(f"score is {{score!r}}; {must}")',
    )


def _python_body(steps: Sequence[Operation]) -> Iterator[str]:
    found = False
    yield "    l = score"
    for i, step in enumerate(steps, 1):
        if isinstance(step, Line):
            yield f"    slope, intercept = _line_{i}"
            yield "    l = slope * l + intercept"
        elif isinstance(step, Pieces):
            if not found:
                found = True
                yield "    i = bisect.bisect_right(_edges, score)"
            yield f"    x, y, slope = _pieces_{i}[i]"
            yield "    l = y + slope * (l - x)"
        elif isinstance(step, Clip):
            yield f"    l = min(max(l, {step.low!r}), {step.high!r})"
        elif isinstance(step, Phi):
            yield f"    l = {_PHI[step.link]}"
        else:
            yield f"    l = max(l, {TINY!r})" if step.link == "log" else f"    l = min(max(l, {TINY!r}), {BELOW_ONE!r})"
            yield f"    l = {_INVERSE[step.link]}"
    yield "    return l"


def _python_number(value: object) -> str:
    """Write a number, or a tuple of numbers in lines of readable length."""
    if not isinstance(value, tuple) or len(repr(value)) < 100:
        return repr(value)
    return "\n".join(["(", *wrapped(map(repr, value), "    "), ")"])
