"""Checks of single values, and warnings."""

from __future__ import annotations

import math
import os
import sys
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np

from ..errors import UncurseError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def warn_user(message: str) -> None:
    """Issue a `UserWarning` that points at the first line of code outside this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`; otherwise raise an error that lists them."""
    if not isinstance(value, str) or value not in choices:
        raise UncurseError(f"{name}={_shown(value)} is unknown; choose one of {', '.join(choices)}")
    return value


def check_number(value: Any, name: str) -> float:
    """Return `value` as a float if it is a finite real number; refuse strings and booleans."""
    number = _as_float(value)
    if not math.isfinite(number):
        raise UncurseError(f"{name} is {_shown(value)}; pass a finite number")
    return number


def check_share(alpha: Any, name: str = "alpha") -> float:
    """Return `alpha` as a float if it lies in (0, 1]."""
    share = _as_float(alpha)
    if not 0 < share <= 1:
        raise UncurseError(f"{name}={_shown(alpha)} is not a share; pass a number above 0 and at most 1, such as 0.02")
    return share


def check_flag(value: Any, name: str) -> bool:
    """Return `value` as a bool if it is one."""
    if not isinstance(value, bool | np.bool_):
        raise UncurseError(f"{name}={_shown(value)}; pass True or False")
    return bool(value)


def check_count(value: Any, name: str, largest: int | None = None) -> int:
    """Return `value` as an int if it is an integer of at least 1, and at most `largest`; booleans are refused."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise UncurseError(f"{name}={_shown(value)}; pass an integer, 1 or more")
    if largest is not None and int(value) > largest:
        raise UncurseError(f"{name}={_shown(value)} is too large; pass at most {largest:,}")
    return int(value)


def _as_float(value: object) -> float:
    """Convert a real number to a float; return NaN for anything else, such as text and booleans."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _shown(value: object) -> str:
    """Show a value in a message; Python refuses to print integers of more than 4,300 digits."""
    try:
        text = repr(value)
    except ValueError:
        return "too large"
    return text if len(text) <= 80 else text[:77] + "..."
