"""Export a map as source code without dependencies: a Python module or a C header."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Sequence

from ..errors import UncurseError
from ..maps import Grouped, ScoreMap
from ..maps.compile import compile_map, valid_range
from ..maps.operations import BELOW_ONE, TINY, Clip, Line, Operation, Phi, Pieces
from ..version import __version__

_SCALES = {"logit": "a logit", "probability": "a probability", "value": "a value"}
_MOST_EXP = 709.782712893383  # exp of anything above is no finite number

# ---------------------------------------------------------------------------- Python


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
    what = f"the served score, {_SCALES[score_map.scale]}"
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
            yield f"_pieces_{i}", _rows(step)
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
            yield (
                "    l = "
                + {
                    # Neither tail may overflow.
                    "logistic": "1.0 / (1.0 + math.exp(-l)) if l > -700.0 else math.exp(l)",
                    "log": f"math.exp(min(l, {_MOST_EXP!r}))",
                    "probit": "0.5 * math.erfc(-l / math.sqrt(2.0))",
                }[step.link]
            )
        else:
            yield f"    l = max(l, {TINY!r})" if step.link == "log" else f"    l = min(max(l, {TINY!r}), {BELOW_ONE!r})"
            yield (
                "    l = "
                + {
                    "logistic": "math.log(l) - math.log1p(-l)",
                    "log": "math.log(l)",
                    "probit": "statistics.NormalDist().inv_cdf(l)",
                }[step.link]
            )
    yield "    return l"


def _python_number(value: object) -> str:
    """Write a number, or a tuple of numbers in lines of readable length."""
    if not isinstance(value, tuple) or len(repr(value)) < 100:
        return repr(value)
    return "\n".join(["(", *_wrapped(map(repr, value), "    "), ")"])


def _rows(step: Pieces) -> tuple[tuple[float, float, float], ...]:
    """Return a point (x, y) and a slope for each piece."""
    return tuple(zip(step.x, step.y, step.slope, strict=True))


# ---------------------------------------------------------------------------- C

_C_WORDS = """alignas alignof and and_eq asm atomic_cancel auto bitand bitor bool break case catch char class compl
concept const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast else enum
explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires restrict return short signed sizeof static
static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename typeof union
unsigned using virtual void volatile wchar_t while xor xor_eq main
"""
# Functions and macros of <math.h>, of which each function also has the suffixes f and l; the last line is of POSIX.
_C_MATH = """
acos asin atan atan2 cos sin tan acosh asinh atanh cosh sinh tanh exp exp2 expm1 frexp ilogb ldexp log log10 log1p log2
logb modf scalbn scalbln cbrt fabs hypot pow sqrt erf erfc lgamma tgamma ceil floor nearbyint rint lrint llrint round
lround llround trunc fmod remainder remquo copysign nan nextafter nexttoward fdim fmax fmin fma
isfinite isinf isnan isnormal signbit fpclassify isgreater isgreaterequal isless islessequal islessgreater isunordered
NAN INFINITY HUGE_VAL HUGE_VALF HUGE_VALL FP_INFINITE FP_NAN FP_NORMAL FP_SUBNORMAL FP_ZERO FP_ILOGB0 FP_ILOGBNAN
MATH_ERRNO MATH_ERREXCEPT math_errhandling float_t double_t
roundeven exp10 exp2m1 exp10m1 fmaximum fminimum canonicalize issignaling iseqsig
j0 j1 jn y0 y1 yn gamma drem significand scalb signgam lgamma_r lgammaf_r lgammal_r gamma_r sincos finite
pow10 abs labs llabs linux unix
"""


def _c_names() -> set[str]:
    """Return the names that cannot be defined after including <math.h>."""
    math = _C_MATH.split()
    return {*_C_WORDS.split(), *math, *(name + suffix for name in math for suffix in "fl")}


def to_c(score_map: ScoreMap, name: str = "uncurse_predict") -> str:
    """Export a map as a C99 header, also for C++, with one function from double to double.

    The function returns NAN for what is no score.

    Parameters
    ----------
    score_map : ScoreMap
        An `Affine`, `Curve`, `Steps` or `Chain`.
    name : str, default="uncurse_predict"
        Name of the function; keywords and names of ``<math.h>`` are refused.

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
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or name in _c_names() or name.startswith("M_"):
        raise UncurseError(f"{name!r} cannot name a function in C; choose another, such as 'uncurse_predict'")
    steps = compile_map(score_map)
    low, high = valid_range(score_map)
    guard = f"{name.upper()}_H"
    tables = [(i, step) for i, step in enumerate(steps, 1) if isinstance(step, Pieces)]
    lines = [f"/* The prediction from the served score, {_SCALES[score_map.scale]}; NAN for what is none."]
    lines += [
        f"   Made by uncurse {__version__}. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <math.h>",
        "",
    ]
    lines += [f"static inline double {name}(double score)", "{"]
    if tables:
        count = len(tables[0][1].edges)
        lines += [f"    static const double edges[{count}] = {_c_table(map(repr, tables[0][1].edges))};"]
    for i, table in tables:
        rows = (f"{{{x!r}, {y!r}, {slope!r}}}" for x, y, slope in _rows(table))
        lines += ["    /* A point (x, y) and a slope for each piece. */"]
        lines += [f"    static const double pieces_{i}[{count + 1}][3] = {_c_table(rows)};"]
    if tables:
        lines += [f"    int piece = 0, end = {count};"]
    lines += ["    double l = score;", f"    if (!(score >= {low!r} && score <= {high!r})) return NAN;"]
    if tables:
        lines += ["    while (piece < end) {", "        int middle = (piece + end) / 2;"]
        lines += ["        if (score < edges[middle]) end = middle; else piece = middle + 1;", "    }"]
    lines += [line for i, step in enumerate(steps, 1) for line in _c_step(step, i)]
    return "\n".join([*lines, "    return l;", "}", "", f"#endif /* {guard} */", ""])


def _c_step(step: Operation, i: int) -> Iterator[str]:
    if isinstance(step, Line):
        yield f"    l = {step.slope!r} * l + {step.intercept!r};"
    elif isinstance(step, Pieces):
        yield f"    l = pieces_{i}[piece][1] + pieces_{i}[piece][2] * (l - pieces_{i}[piece][0]);"
    elif isinstance(step, Clip):
        yield f"    l = l < {step.low!r} ? {step.low!r} : l > {step.high!r} ? {step.high!r} : l;"
    elif step.link == "probit":
        raise UncurseError("the probit link is not in C's library; export a map of the logistic link, or to Python")
    elif isinstance(step, Phi):
        if step.link == "logistic":
            yield "    l = l > -700.0 ? 1.0 / (1.0 + exp(-l)) : exp(l);"
        else:
            yield f"    l = exp(l < {_MOST_EXP!r} ? l : {_MOST_EXP!r});"
    else:
        yield f"    l = l < {TINY!r} ? {TINY!r} : l;"
        if step.link == "logistic":
            yield f"    l = l > {BELOW_ONE!r} ? {BELOW_ONE!r} : l;"
        yield "    l = log(l) - log1p(-l);" if step.link == "logistic" else "    l = log(l);"


def _c_table(parts: Iterable[str]) -> str:
    return "\n".join(["{", *_wrapped(parts, "        "), "    }"])


def _wrapped(parts: Iterable[str], indent: str) -> Iterator[str]:
    """Join parts by commas, in lines of at most 120 characters if possible."""
    line = ""
    for part in parts:
        if line and len(indent) + len(line) + len(part) > 117:
            yield indent + line
            line = ""
        line += f" {part}," if line else f"{part},"
    yield indent + line


__all__ = ["to_c", "to_python"]
