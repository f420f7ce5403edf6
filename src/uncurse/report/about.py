"""What a fit says of itself: plain data beside the map in its file, for the report and for people."""

from __future__ import annotations

from typing import Any

from ..debias.auto import Auto
from ..debias.tower import Tower
from ..debias.vad import VAD
from ..errors import UncurseError
from ..evidence import Evidence
from .summaries import describe

#: Shares of the pool for which a fit says what error is left, and with which probability it lies there.
SHARES, LEVEL = (0.01, 0.02, 0.05, 0.1), 0.9


def about_fit(
    fitted: VAD | Tower | Auto, pool: Evidence, labelled: Evidence | None = None, *, command: str = ""
) -> dict[str, Any]:
    """Return the record of a fit with its intervals and summaries of the scores of pool and labelled rows.

    >>> from uncurse.evidence import from_arrays
    >>> pool = from_arrays([[0.0, 0.1], [1.0, 0.9], [2.0, 2.2]])
    >>> about = about_fit(VAD().fit(pool), pool)
    >>> about["method"], round(about["lambda"], 3)
    ('vad', 0.988)
    """
    return {
        **fitted.record_.to_dict(),
        "group": pool.spec.group,
        "remaining_error": _remaining_error(fitted, pool, labelled),
        "pool": _described(pool),
        "labelled": None if labelled is None else _described(labelled),
        "command": command,
    }


def _remaining_error(fitted: VAD | Tower | Auto, pool: Evidence, labelled: Evidence | None) -> list[dict[str, float]]:
    """Intervals for the remaining calibration error on the top of the pool."""
    if pool.replica_counts is None or (labelled is not None and labelled.replica_counts is None):
        return []
    made = []
    for alpha in SHARES:
        try:
            low, high = fitted.interval(alpha, LEVEL)
        except UncurseError:  # a small pool, or identical replicas
            continue
        made.append({"alpha": alpha, "low": low, "high": high, "level": LEVEL})
    return made


def _described(log: Evidence) -> dict[str, Any]:
    said: dict[str, Any] = {"rows": log.rows} if log.cells is None else describe(log.cells)
    return {**said, "columns": list(log.spec.scores), "sources": list(log.sources)}


__all__ = ["LEVEL", "SHARES", "about_fit"]
