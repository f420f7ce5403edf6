"""What a fit says of itself: plain data beside the map in its file, for the report and for people."""

from __future__ import annotations

from typing import Any

from .. import __version__
from ..evidence import Evidence
from ..vad import VAD
from .summaries import describe


def about_fit(vad: VAD, pool: Evidence, labelled: Evidence | None = None, *, command: str = "") -> dict[str, Any]:
    """λ and its error, by group too, and what the scores of pool and labelled rows look like.

    >>> from uncurse import Moments
    >>> pool = Evidence(("s1", "s2"), Moments().update([[0.0, 0.1], [1.0, 0.9], [2.0, 2.2]]))
    >>> about = about_fit(VAD().fit(pool), pool)
    >>> round(about["lambda"], 3)
    0.988
    """
    groups = {
        name: {"lambda": value, "center": vad.group_center_[name], "rows": pool.groups[name].rows}
        for name, value in getattr(vad, "group_lambda_", {}).items()
    }
    return {
        "method": "vad",
        "link": vad.link,
        "replicas": vad.replicas,
        "calibrator": vad.calibrator,
        "curvature": vad.curvature,
        "negative_rate": vad.negative_rate,
        "lambda": vad.lambda_,
        "standard_error": vad.standard_error_,
        "center": vad.center_,
        "noise_variance": vad.noise_variance_,
        "score_variance": vad.score_variance_,
        "group": pool.group,
        "groups": groups,
        "pool": _described(pool),
        "labelled": None if labelled is None else _described(labelled),
        "version": __version__,
        "command": command,
    }


def _described(log: Evidence) -> dict[str, Any]:
    said: dict[str, Any] = {"rows": log.rows} if log.cells is None else describe(log.cells)
    return {**said, "columns": list(log.columns), "sources": list(log.sources)}


__all__ = ["about_fit"]
