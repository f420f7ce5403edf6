"""The numbers of a map in the form from which exports are written: one line per piece of the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UncurseError
from ..links import get_link, logit
from .combined import Segmented
from .shapes import Affine, Curve, ScoreMap, Steps

#: Bounds of predictions: the smallest normal float, and the largest below 1.
TINY = float(np.finfo(np.float64).tiny)
BELOW_ONE = float(np.nextafter(1.0, 0.0))
#: Bounds of logits: probabilities beyond are clipped.
LOWEST_LOGIT, HIGHEST_LOGIT = -708.3964185322641, 36.7368005696771
#: Largest number whose exponential is finite.
MOST_EXP = 709.782712893383
#: What a score is, by scale.
SCALES = {"logit": "a logit", "probability": "a probability", "value": "a value"}
#: How to serve a map by segment.
SERVE_SEGMENTS = (
    "serve it as Python or SQL, which take segments, or save each part: load('map.json').maps['NAME'].save('NAME.json')"
    ", and .default for all other segments"
)


@dataclass(frozen=True)
class Program:
    """A map as formula: φ(y + slope · (l − x)), where l is the score of the link and x, y, slope are a piece.

    The number of the piece is the number of `edges`, on the scale of the score, or of `link_edges` that are at most
    the score.
    """

    scale: str
    link: str
    edges: tuple[float, ...]
    link_edges: tuple[float, ...]
    pieces: tuple[tuple[float, float, float], ...]

    @property
    def steps(self) -> tuple[list[str], list[str]]:
        """Functions that take a score to the score l of the link, and the result of the piece to a prediction."""
        steps: dict[str, tuple[list[str], list[str]]] = {
            "logistic": (["logit"] if self.scale == "probability" else [], ["logistic"]),
            "log": (["log"], ["exp"]),
            "identity": ([], []),
        }
        before, after = steps[self.link]
        return (["logistic"] if self.scale == "logit" and self.link != "logistic" else []) + before, after

    @property
    def valid(self) -> tuple[float, float]:
        """Lowest and highest score; other numbers are not scores."""
        most = float(np.finfo(np.float64).max)
        return (0.0, 1.0) if self.scale == "probability" else (-most, most)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Bounds of predictions; None if they are any number."""
        if self.scale != "value":
            return TINY, BELOW_ONE
        return (TINY, float(np.finfo(np.float64).max)) if self.link == "log" else None


def compile_map(score_map: ScoreMap) -> Program:
    """Return the program of a map without segments."""
    if isinstance(score_map, Segmented):
        raise UncurseError(f"this map has a map for each segment, and this form has one; {SERVE_SEGMENTS}")
    edges: Sequence[float] = ()
    if isinstance(score_map, Affine):
        pieces = [(0.0, score_map.intercept, score_map.slope)]
    elif isinstance(score_map, Curve):
        edges, y = score_map.x, score_map.y
        slopes = [score_map.left, *(np.diff(y) / np.diff(edges)).tolist(), score_map.right]
        pieces = list(zip([edges[0], *edges], [y[0], *y], slopes, strict=True))
    else:
        assert isinstance(score_map, Steps)
        edges = score_map.edges
        pieces = [(score_map.center, value, score_map.slope) for value in score_map.values]
    on_scale: Any = np.array(edges, np.float64)
    if (score_map.scale, score_map.link) != ("logit", "logistic"):
        predictions = get_link(score_map.link).phi(on_scale)
        on_scale = logit(predictions) if score_map.scale == "logit" else predictions
    return Program(score_map.scale, score_map.link, tuple(on_scale.tolist()), tuple(edges), tuple(pieces))
