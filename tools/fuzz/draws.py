"""Draw valid and invalid arguments from a seeded generator."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import polars as pl
from scipy.special import expit

Value = TypeVar("Value")

#: How often a call gets invalid values at all, and how often each of its arguments is then replaced.
BROKEN_CALLS, BROKEN_ARGUMENTS = 0.4, 0.25
#: Scores up to this size must give results that do not depend on the order of rows; beyond it sums lose digits.
MODERATE = 1e5

JUNK: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: "x",
    lambda: "",
    lambda: "0.5",
    lambda: b"x",
    lambda: "logit",
    lambda: True,
    lambda: np.nan,
    lambda: np.inf,
    lambda: -np.inf,
    lambda: -1,
    lambda: 0,
    lambda: 0.5,
    lambda: 2.5,
    lambda: 10**9,
    lambda: 2**63,
    lambda: 10**400,
    lambda: 1e300,
    lambda: -1e-300,
    lambda: 1j,
    lambda: np.float32(0.5),
    lambda: np.int8(-1),
    lambda: np.bool_(True),
    list,
    lambda: (),
    dict,
    lambda: {"a": 1},
    lambda: {"a": np.zeros(3)},
    lambda: {1, 2},
    lambda: object(),
    lambda: object,
    lambda: len,
    lambda: (i for i in range(3)),
    lambda: iter([0.5]),
    lambda: range(3),
    lambda: [[1.0], [2.0, 3.0]],
    lambda: [None, 1.0],
    lambda: ["a", "b"],
    lambda: ["0", "1"],
    lambda: np.array([]),
    lambda: np.array(0.5),
    lambda: np.zeros((2, 2, 2)),
    lambda: np.zeros((0, 2)),
    lambda: np.zeros((3, 0)),
    lambda: np.array([1j, 2.0]),
    lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    lambda: np.array([object(), None]),
    lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
    lambda: datetime.date(2020, 1, 1),
    lambda: pd.Series([1.0, None]),
    lambda: pd.Series(["a", "b"]),
    lambda: pd.DataFrame({"a": [1.0, 2.0]}),
    lambda: pd.NA,
    lambda: pl.Series([1.0, None]),
    lambda: pl.DataFrame({"a": [1.0, 2.0]}),
    lambda: pl.Series([[1.0], [2.0]]),
)


class Draw:
    """Draws for one call. `extreme` calls may have constant or huge scores, and one row with all the weight.

    `moderate` turns False once a value is so large that sums lose digits.

    Parameters
    ----------
    seed : sequence of int
        Seeds the generator; equal seeds give equal draws.
    """

    def __init__(self, seed: Sequence[int]) -> None:
        self.rng = np.random.default_rng(list(seed))
        self.broken = self.chance(BROKEN_CALLS)
        self.extreme = self.chance(0.5)
        self.moderate = True
        self.calls: list[str] = []

    # ------------------------------------------------------------------------ choices

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return bool(self.rng.random() < probability)

    def one_of(self, *values: Value) -> Value:
        """Return one of the values, all equally likely."""
        return values[int(self.rng.integers(len(values)))]

    def junk(self) -> Any:
        """Return an object that is hardly ever valid."""
        return JUNK[int(self.rng.integers(len(JUNK)))]()

    def option(self, *values: Any) -> Any:
        """Return one of the valid values; in a broken call sometimes another object."""
        return self.junk() if self.breaks() else self.one_of(*values)

    def breaks(self) -> bool:
        """Decide whether this argument is replaced by an invalid one."""
        return self.broken and self.chance(BROKEN_ARGUMENTS)

    def number(self, low: float, high: float) -> Any:
        """Return a number in [low, high], of some numeric type; in a broken call sometimes another object."""
        if self.breaks():
            return self.junk()
        value = float(self.rng.uniform(low, high))
        return self.one_of(float, float, float, np.float64, np.float32)(value)

    def count(self, low: int, high: int) -> Any:
        """Return a whole number in [low, high]; in a broken call sometimes another object."""
        if self.breaks():
            return self.junk()
        return self.one_of(int, int, np.int64, np.int32)(int(self.rng.integers(low, high + 1)))

    # ------------------------------------------------------------------------ arrays

    def rows(self) -> int:
        """Return a number of rows: mostly few, sometimes a thousand."""
        return self.one_of(1, 2, 3, 5, 10, 20, 30, 50, 50, 100, 100, 200, 300, 1000)

    def scores(self, rows: int, columns: int | None = None, scale: str = "logit") -> np.ndarray:
        """Return scores on `scale`, shape (rows,) or (rows, columns), with ties, floors, caps and outliers."""
        shape = (rows, columns or 1)
        center, spread = self.rng.uniform(-5, 2), self.one_of(0.3, 1.0, 2.0)
        noise = self.one_of(0.0, 0.01, 0.2, 0.5) * spread
        values = self.rng.normal(center, spread, (rows, 1)) + noise * self.rng.normal(size=shape)
        kinds = ("plain", "plain", "plain", "ties", "floor", "cap", "tails")
        shape_of = self.one_of(*kinds, *(("constant", "outliers", "huge", "near") if self.extreme else ()))
        if shape_of == "ties":
            values = np.round(values * 4) / 4
        elif shape_of == "floor":
            values = np.maximum(values, np.quantile(values, 0.3) if rows else 0.0)
        elif shape_of == "cap":
            values = np.minimum(values, np.quantile(values, 0.7) if rows else 0.0)
        elif shape_of == "constant":
            values[...] = self.one_of(center, 0.0, 1e-300, 40.0, -800.0)
        elif shape_of == "tails":
            values = values + self.rng.standard_t(1.0, shape)
        elif shape_of == "near":
            values = np.nextafter(center, self.rng.choice([-np.inf, np.inf], shape))
        elif shape_of in ("outliers", "huge") and rows:
            power = self.rng.uniform(4, 7 if shape_of == "outliers" else 300)
            chosen = self.rng.integers(rows, size=max(1, rows // self.one_of(3, 20, 1000)))
            values[chosen, self.rng.integers(shape[1])] = self.one_of(-1.0, 1.0) * 10.0**power
        if scale == "probability":
            values = expit(values)
            if rows and self.extreme and self.chance(0.2):
                values[self.rng.integers(rows)] = self.one_of(0.0, 1.0, 5e-324, 1 - 2.0**-53)
        if np.abs(values).max(initial=0.0) > MODERATE:
            self.moderate = False
        return values if columns else values[:, 0]

    def labels(self, scores: np.ndarray) -> np.ndarray:
        """Return labels whose rate rises with the (first) score on the logit, or constant ones."""
        served = scores if scores.ndim == 1 else scores[:, 0]
        shift = self.rng.uniform(-2, 1) - (np.median(served) if len(served) else 0.0)
        rate = expit(np.clip(served + self.one_of(0.0, shift, shift), -30, 30))
        y = (self.rng.random(len(served)) < rate).astype(int)
        forms = (y, y, y, y.astype(bool), y.astype(float))
        return self.one_of(*forms, *((1 - y, np.zeros_like(y), np.ones_like(y)) if self.extreme else ()))

    def weights(self, rows: int) -> np.ndarray | None:
        """Return weights: none, equal, spread over many powers of ten, or zero in part."""
        w = self.rng.exponential(size=rows)
        kinds = ("none", "none", "plain", "plain", "ones", "counts", "zeros", "tiny", "huge")
        kind = self.one_of(*kinds, *(("spread", "single") if self.extreme else ()))
        if kind == "none":
            return None
        if kind == "ones":
            return np.ones(rows)
        if kind == "counts":
            return self.rng.integers(0, 4, rows)
        if kind == "zeros":
            return w * (self.rng.random(rows) < 0.5)
        if kind == "single":
            return np.asarray(np.arange(rows) == rows // 2, float)
        if kind == "spread":
            return np.asarray(w * 10.0 ** self.rng.uniform(-6, 6, rows))
        factor = {"plain": 1.0, "tiny": 1e-12, "huge": 1e12}[kind]
        return np.asarray(w * factor)

    def groups(self, rows: int) -> np.ndarray:
        """Return the name of a group for every row: text, numbers or objects."""
        number = self.rng.integers(self.one_of(1, 2, 5), size=rows)
        return self.one_of(
            number, number.astype(str), number.astype(float), number > 0, number.astype(str).astype(object)
        )

    # ------------------------------------------------------------------------ other forms of a value

    def wrap(self, array: Any) -> Any:
        """Return the array in another valid form, or in a broken call sometimes an invalid one."""
        if array is None:
            return self.junk() if self.breaks() else None
        if self.breaks():
            return self.damage(array)
        if not self.chance(0.4):
            return array
        forms: tuple[Callable[[], Any], ...] = (
            array.tolist,
            lambda: tuple(array.tolist()),
            lambda: (
                array.astype(np.float32) if array.dtype.kind == "f" and np.abs(array).max(initial=0) < 1e38 else array
            ),
            lambda: np.repeat(array, 2, axis=0)[::2],
            lambda: array[::-1][::-1],
            lambda: np.asfortranarray(array),
            lambda: array.astype(array.dtype.newbyteorder(">")) if array.dtype.kind == "f" else array,
            lambda: np.ma.masked_array(array),
            lambda: _read_only(array),
            lambda: pd.Series(array, index=range(5, 5 + len(array))) if array.ndim == 1 else pd.DataFrame(array),
            lambda: pl.Series(array.tolist()) if array.ndim == 1 and len(array) else array,
        )
        return self.one_of(*forms)()

    def damage(self, array: np.ndarray) -> Any:
        """Return an invalid relative of the array."""
        n = len(array)
        place = int(self.rng.integers(n)) if n else 0

        def with_value(value: Any) -> Any:
            copy = array.astype(object if isinstance(value, str | None) else float)
            if n:
                copy[place] = value
            return copy

        forms: tuple[Callable[[], Any], ...] = (
            self.junk,
            self.junk,
            lambda: with_value(np.nan),
            lambda: with_value(np.inf),
            lambda: with_value(-np.inf),
            lambda: with_value(-1.0),
            lambda: with_value(1e300),
            lambda: with_value(None),
            lambda: with_value("a"),
            lambda: array[:0],
            lambda: array[: n // 2],
            lambda: np.concatenate([array, array[:1]]),
            lambda: array[:, None],
            lambda: array[None],
            lambda: array.astype(str),
            lambda: array.astype(object),
            lambda: array.astype(complex) if array.dtype.kind in "biuf" else array,
            lambda: (
                array.astype(np.float16) if array.dtype.kind == "f" and np.abs(array).max(initial=0) < 6e4 else array
            ),
            lambda: np.ma.masked_array(array, np.arange(array.size).reshape(array.shape) == place),
            lambda: {"a": array},
            lambda: (row for row in array.tolist()),
            lambda: [*array.tolist(), [1.0, 2.0]],
            lambda: array[place] if n else array,
        )
        return self.one_of(*forms)()


def _read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.setflags(write=False)
    return copy


def show(value: Any) -> str:
    """Write a value on one line, short arrays in full."""
    if isinstance(value, np.ndarray):
        if value.size > 24:
            return f"<array {value.dtype} {value.shape}>"
        return f"np.array({value.tolist()!r}, {value.dtype.name!r})"
    if isinstance(value, pd.Series | pl.Series):
        return f"<{type(value).__module__.split('.')[0]} series of {len(value)} {value.dtype}>"
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else text[:197] + "..."


__all__ = ["JUNK", "Draw", "show"]
