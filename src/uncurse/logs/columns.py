"""Columns of a log as narwhals expressions, and the results of queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import narwhals as nw
import numpy as np

from ..errors import UncurseError
from ..evidence import LogSpec

Lazy = nw.LazyFrame[Any]


def fetch(frame: Lazy, names: Sequence[str | nw.Expr]) -> nw.DataFrame[Any]:
    """Collect some columns of a lazy frame."""
    chosen = frame.select(*names)
    if frame.implementation.is_polars():
        return nw.from_native(chosen.to_native().collect(engine="streaming"), eager_only=True)
    return chosen.collect("pyarrow")


def row_count(frame: Lazy) -> int:
    """Return the number of rows."""
    return int(fetch(frame, [nw.len()]).to_numpy()[0, 0])


def as_number(name: str) -> nw.Expr:
    """Return a column as float64; true and false are 1 and 0."""
    return nw.col(name).cast(nw.Float64)


def _logit(p: nw.Expr) -> nw.Expr:
    p = p.clip(float(np.finfo(np.float64).tiny), float(np.nextafter(1.0, 0.0)))
    return p.log() - (1.0 - p).log()


def logit_of(name: str, spec: LogSpec) -> nw.Expr:
    """Return the logit of one replica, corrected for the negative-sampling rate."""
    x = as_number(name)
    l = x if spec.scale == "logit" else _logit(x)
    return l + spec.logit_offset if spec.logit_offset else l


def link_score(name: str, spec: LogSpec) -> nw.Expr:
    """Return the link score l = φ⁻¹(f) of one replica."""
    x, scale = as_number(name), spec.scale
    if spec.link == "logistic":
        return logit_of(name, spec)
    if spec.link not in ("identity", "log"):
        raise UncurseError(f"the {spec.link} link has no form in SQL; collect with Polars, or use the logistic link")
    if scale == "logit" or (scale == "probability" and spec.logit_offset):
        x = 1.0 / (1.0 + (-logit_of(name, spec)).exp())
    return x if spec.link == "identity" else x.log()


def total(items: Iterable[nw.Expr]) -> nw.Expr:
    """Return the sum of expressions."""
    return reduce(lambda a, b: a + b, items)
