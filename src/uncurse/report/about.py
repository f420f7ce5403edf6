"""What a fit says of itself: plain data beside the map in its file, for the report and for people."""

from __future__ import annotations

from typing import Any

from ..debias.auto import Auto
from ..debias.tower import Tower
from ..debias.vad import VAD
from ..evidence import Evidence
from ..version import __version__
from .summaries import describe

#: Shares of the pool for which a fit says what error is left, and with which probability it lies there.
SHARES, LEVEL = (0.01, 0.02, 0.05, 0.1), 0.9


def about_fit(
    fitted: VAD | Tower | Auto, pool: Evidence, labelled: Evidence | None = None, *, command: str = ""
) -> dict[str, Any]:
    """How it was fitted, what was found, and what the scores of pool and labelled rows look like.

    What is left on the top of the pool is told where its replicas were counted together.

    >>> from uncurse import Moments
    >>> pool = Evidence(("s1", "s2"), Moments().update([[0.0, 0.1], [1.0, 0.9], [2.0, 2.2]]))
    >>> about = about_fit(VAD().fit(pool), pool)
    >>> about["method"], round(about["lambda"], 3)
    ('vad', 0.988)
    """
    inner = fitted.fitted if isinstance(fitted, Auto) else fitted
    return {
        **_method(fitted),
        **(_of_vad(inner, pool) if isinstance(inner, VAD) else _of_tower(inner) if isinstance(inner, Tower) else {}),
        "negative_rate": pool.negative_rate,
        "group": pool.group,
        "left": _left(fitted, pool, labelled),
        "pool": _described(pool),
        "labelled": None if labelled is None else _described(labelled),
        "version": __version__,
        "command": command,
    }


def _method(fitted: VAD | Tower | Auto) -> dict[str, Any]:
    if isinstance(fitted, Auto):
        return {"method": fitted.method_, "reason": fitted.reason_}
    return {"method": "tower" if isinstance(fitted, Tower) else "vad"}


def _of_vad(vad: VAD, pool: Evidence) -> dict[str, Any]:
    groups = {
        name: {"lambda": value, "center": vad.group_center_[name], "rows": pool.groups[name].rows}
        for name, value in getattr(vad, "group_lambda_", {}).items()
    }
    return {
        "link": vad.link,
        "replicas": vad.replicas,
        "calibrator": vad.calibrator,
        "curvature": vad.curvature,
        "shape": vad.shape,
        "lambda": vad.lambda_,
        "standard_error": vad.standard_error_,
        "center": vad.center_,
        "noise_variance": vad.noise_variance_,
        "score_variance": vad.score_variance_,
        "groups": groups,
    }


def _of_tower(tower: Tower) -> dict[str, Any]:
    return {
        "replicas": tower.replicas,
        "line_probability": tower.line_probability_,
        "contrast": tower.contrast_,
    }


def _left(fitted: VAD | Tower | Auto, pool: Evidence, labelled: Evidence | None) -> list[dict[str, float]]:
    """Intervals for the calibration error that is left on the top of the pool."""
    if pool.joint is None or (labelled is not None and labelled.joint is None):
        return []
    made = []
    for alpha in SHARES:
        low, high = fitted.interval(alpha, LEVEL)
        made.append({"alpha": alpha, "low": low, "high": high, "level": LEVEL})
    return made


def _described(log: Evidence) -> dict[str, Any]:
    said: dict[str, Any] = {"rows": log.rows} if log.cells is None else describe(log.cells)
    return {**said, "columns": list(log.columns), "sources": list(log.sources)}


__all__ = ["LEVEL", "SHARES", "about_fit"]
