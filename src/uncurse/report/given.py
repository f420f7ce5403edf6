"""What is given to a report, made fit to draw, once: text that any document may hold, a fit's words as far as known.

A map's file may have been edited by hand or written by another release: what it says in a shape that is not expected
counts as not said, and the page is drawn of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from numbers import Real
from typing import Any

# XML 1.0 has no other characters: a drawing with one of them cannot be read, or ends the process that draws it.
_NOT_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Numbers of which the square can still be taken, and its inverse.
_TINY, _HUGE = 1e-100, 1e100
_TEXTS = ("method", "reason", "link", "replicas", "calibrator", "shape", "command", "version")


def clean(value: object) -> str:
    r"""Anything as text that XML may hold: a replacement character for each that it may not.

    >>> clean("a\x00b\ud800\tλ")
    'a�b�\tλ'
    """
    return _NOT_TEXT.sub("�", str(value))


def finite(value: Any) -> float | None:
    """A number, if it is one.

    >>> finite(2), finite("2"), finite(float("nan")), finite(True)
    (2.0, None, None, None)
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if -_HUGE <= number <= _HUGE else None


def about(value: Any) -> dict[str, Any] | None:
    """What a fit says of itself, without what has another shape than `about_fit` gives it.

    >>> about({"lambda": "x", "groups": [1], "link": "logistic", "pool": {"rows": 7, "columns": "s1"}})
    {'link': 'logistic', 'pool': {'rows': 7}}
    """
    if not isinstance(value, Mapping):
        return None
    made: dict[str, Any] = {
        **{key: _text(value.get(key)) for key in _TEXTS},
        **_shrinkage(value),
        "line_probability": _positive(value.get("line_probability")),
        "remaining_error": _remaining_error(value.get("remaining_error")),
        **{role: _summary(value.get(role)) for role in ("pool", "labelled")},
    }
    groups = value.get("groups")
    if isinstance(groups, Mapping):
        # Names stay as they are, for two of them may be alike when clean.
        made["groups"] = {
            name: {**_shrinkage(one), **_counted(one)} for name, one in groups.items() if isinstance(one, Mapping)
        }
    return {key: one for key, one in made.items() if one is not None}


def scores(value: Any) -> dict[str, Any] | None:
    """A summary of scores as `describe` makes it, if it is one."""
    made = _summary(value) or {}
    return made if "histogram" in made else None


def _text(value: Any) -> str | None:
    return clean(value) if isinstance(value, str) else None


def _positive(value: Any, *, least: float = 0.0) -> float | None:
    number = finite(value)
    return None if number is None or number < least else number


def _shrinkage(value: Mapping[str, Any]) -> dict[str, float | None]:
    return {"lambda": finite(value.get("lambda")), "standard_error": _positive(value.get("standard_error"))}


def _counted(value: Mapping[str, Any]) -> dict[str, int]:
    rows = _positive(value.get("rows"))
    return {} if rows is None else {"rows": int(rows)}


def _remaining_error(value: Any) -> list[dict[str, float]] | None:
    """Intervals for what is left on the top, those that are whole."""
    keys = ("alpha", "low", "high", "level")
    made = []
    for one in value if isinstance(value, (list, tuple)) else ():
        numbers = {key: finite(one.get(key)) for key in keys} if isinstance(one, Mapping) else {}
        known = {key: number for key, number in numbers.items() if number is not None}
        if len(known) == len(keys):
            made.append(known)
    return made or None


def _summary(value: Any) -> dict[str, Any] | None:
    """Rows, columns and sources, each where it is known; of the distribution all or nothing."""
    if not isinstance(value, Mapping):
        return None
    made: dict[str, Any] = _counted(value)
    for key in ("columns", "sources"):
        names = value.get(key)
        if isinstance(names, (list, tuple)):
            made[key] = [clean(name) for name in names if isinstance(name, str)]
    sd, bins = _positive(value.get("sd")), _bins(value.get("histogram"))
    distribution = {
        "mean": finite(value.get("mean")),
        "sd": 0.0 if sd is not None and sd < _TINY else sd,
        "weight": _positive(value.get("weight"), least=_TINY),
        "histogram": bins,
    }
    if "rows" in made and None not in distribution.values():
        scale = _text(value.get("scale"))
        made |= distribution | {"scale": scale or "logit", "gaussianity": _judged(value.get("gaussianity"))}
    return made


def _bins(value: Any) -> dict[str, list[float]] | None:
    if not isinstance(value, Mapping):
        return None
    edges, weight = _numbers(value.get("edges")), _numbers(value.get("weight"))
    if not weight or len(edges) != len(weight) + 1 or min(weight) < 0 or max(weight) < _TINY:
        return None
    widths = [right - left for left, right in pairwise(edges)]
    return {"edges": edges, "weight": weight} if min(widths) >= _TINY else None


def _numbers(value: Any) -> list[float]:
    """Numbers, if they all are; else none."""
    made = [finite(one) for one in value] if isinstance(value, (list, tuple)) else []
    known = [one for one in made if one is not None]
    return known if len(known) == len(made) else []


def _judged(value: Any) -> dict[str, float | None] | None:
    if not isinstance(value, Mapping):
        return None
    made = {key: finite(value.get(key)) for key in ("distance", "skewness", "excess_kurtosis")}
    return None if None in made.values() else {**made, "p_value": finite(value.get("p_value"))}


__all__ = ["about", "clean", "finite", "scores"]
